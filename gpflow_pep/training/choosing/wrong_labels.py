r"""How often labels are wrong, by rows that are left out: the epsilon of RobustMax.

RobustMax takes a part :math:`\epsilon` of the labels to be wrong, 0.001 by default.
Where more of them are, functions bend around rows that contradict their neighbours, and
predictions are far too sure. The evidence cannot estimate how many: its maximum in
:math:`\epsilon` explains by errors what a flexible function explains better. Rows that
are left out can. With :math:`\pi_n` the probability, given the other rows, that the
latent function of the label of row n is the largest of C, the density of the label is

.. math::

    p_n(\epsilon) = (1 - \epsilon) \, \pi_n + \frac{\epsilon}{C - 1} (1 - \pi_n),

and :math:`\sum_n \log p_n(\epsilon)` is concave in :math:`\epsilon`. Where its maximum
is at a larger rate than the model's, and higher by :data:`LEAST_GAIN`, the model is
trained on with that rate: functions become smoother, and the next estimate may be
larger still.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from check_shapes import check_shapes
from gpflow.base import AnyNDArray
from gpflow.models import GPModel
from scipy.optimize import minimize_scalar

from ...engine import checks, factors
from ..fitting.objectives import FAILURES
from ..fitting.points import left_out_densities

#: By so many nats for all rows together must a larger error rate raise the log density
#: of rows that are left out. ``examples/benchmarks/wrong_labels.py`` prints what
#: follows from it.
LEAST_GAIN = 1.0
#: A limit of trainings with a larger rate; one or two were enough where it was tried.
_MOST_ROUNDS = 4


class ErrorRate(NamedTuple):
    """An estimate of how often labels are wrong."""

    rate: float
    gain: float  #: By how much it raises the sum of the log densities, in nats.


@check_shapes("log_densities: [N]")
def likeliest_error_rate(
    log_densities: AnyNDArray, error_rate: float, num_classes: int
) -> ErrorRate:
    r"""Estimate the rate at which labels are wrong, see
    :mod:`gpflow_pep.training.choosing.wrong_labels`.

    :param log_densities: Of the label of each row, given the others, under a likelihood
        with an error rate. Rows without a finite one are left out.
    :param error_rate: The rate for which these were computed, :math:`\epsilon`. No
        smaller one is looked for.
    :param num_classes: C.
    :raises ValueError: If the rate is not below that of labels drawn at random, (C - 1)
        / C.
    """
    most = 1.0 - 1.0 / num_classes
    checks.check_real(
        "error_rate", error_rate, f"(0, {most:g})", "RobustMax's own is 0.001."
    )
    density = np.exp(log_densities[np.isfinite(log_densities)])
    of_others = error_rate / (num_classes - 1)
    is_largest = np.clip(
        (density - of_others) / (1.0 - error_rate - of_others), 0.0, 1.0
    )

    def total(rate: float) -> float:
        wrong = rate / (num_classes - 1) * (1.0 - is_largest)
        return float(np.sum(np.log((1.0 - rate) * is_largest + wrong)))

    best = minimize_scalar(
        lambda rate: -total(rate), bounds=(error_rate, most), method="bounded"
    )
    return ErrorRate(float(best.x), -float(best.fun) - total(error_rate))


def raise_error_rate(model: GPModel, train: Callable[[GPModel], Any]) -> Any:
    """
    Train a model of several classes on, with a larger error rate, where labels are
    wrong so often::

        pep.training.maximise(model)
        pep.training.raise_error_rate(model, pep.training.maximise)

    Epsilon of its likelihood ends as it was estimated, and never becomes smaller. It
    stays where rows have no density or training fails. At power 1, where densities of
    rows that are left out are too optimistic, it may stay though labels are wrong.

    :param model: A trained model that holds its data.
    :param train: Trains it, and may return a record.
    :return: What the last training returned; None where the rate stays as it is.
    :raises ValueError: If the likelihood is neither ``gpflow.likelihoods.MultiClass``
        nor ``NoisyLabelBernoulli``, or single rows cannot be left out of the model.
    """
    likelihood = model.likelihood
    error_rate = factors.traits(likelihood).error_rate
    if error_rate is None:
        got = f"one with the likelihood {type(likelihood).__name__}"
        expected = "one with MultiClass or NoisyLabelBernoulli"
        raise checks.refusal(
            "model", got, expected, "Others have no rate of wrong labels."
        )
    epsilon, record = error_rate(likelihood), None
    densities, num_classes = left_out_densities(model), factors.num_classes(likelihood)
    for _ in range(_MOST_ROUNDS):
        before = float(epsilon.numpy())
        try:
            rate, gain = likeliest_error_rate(densities(), before, num_classes)
            if gain < LEAST_GAIN:
                break
            epsilon.assign(rate)
            record = train(model)
        except FAILURES:
            epsilon.assign(before)
            break
    return record
