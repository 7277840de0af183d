"""Training with outliers: rounds compare the targets with the posterior mean of the one before."""

from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from check_shapes import inherit_check_shapes
from gpflow import Parameter, set_trainable
from gpflow.base import TensorType
from gpflow.functions import MeanFunction
from tensorflow import Tensor

from ..checks import check_positive, check_real, refusal
from ..covariances.evaluate import kuf
from ..likelihoods import RobustGaussian
from ..models import PEPRegression
from .full_batch import MaximiseRecord, maximise
from .model_state import copy_of

#: The median distance of Gaussian numbers from their mean, in standard deviations.
_MEDIAN = 0.6745


class PosteriorMean(MeanFunction):
    r"""
    The posterior mean of a model at some time, :math:`m(x) + k_u(x)ᵀ K_{uu}^{-1} E[u]`.

    It starts as the mean function. None of its parameters is trainable.
    """

    def __init__(self, model: PEPRegression) -> None:
        """:param model: Of one output, which is copied."""
        super().__init__()
        parts = model._parts_of_output()
        self.kernel = copy_of(parts.kernel)
        self.inducing_variable = copy_of(parts.inducing_variable)
        self.mean_function = copy_of(parts.mean_function)
        self.weights = Parameter(np.zeros([model.num_inducing, 1]))
        set_trainable(self, False)

    def assign(self, model: PEPRegression) -> None:
        """Take the posterior mean that a model of the same structure has now."""
        self.weights.assign(tf.matmul(model._parts.whiten().W[0], model.q_mu, transpose_a=True))
        parts = model._parts_of_output()
        for name in ("kernel", "inducing_variable", "mean_function"):
            values = gpflow.utilities.read_values(getattr(parts, name))
            gpflow.utilities.multiple_assign(getattr(self, name), values)

    @inherit_check_shapes
    def __call__(self, X: TensorType) -> Tensor:
        rows = tf.reshape(X, [-1, X.shape[-1]])
        shift = tf.matmul(kuf(self.inducing_variable, self.kernel, rows), self.weights, True)
        return self.mean_function(X) + tf.reshape(shift, [*tf.unstack(tf.shape(X)[:-1]), 1])


def maximise_robust(
    model: PEPRegression, *, threshold: float = 2.0, rounds: int = 3, **options: Any
) -> tuple[MaximiseRecord, ...]:
    r"""
    Train a model of :class:`~gpflow_pep.likelihoods.RobustGaussian` noise::

        likelihood = pep.likelihoods.RobustGaussian(0.1)
        model = pep.PEPRegression((X, Y), kernel, Z, likelihood=likelihood)
        pep.training.maximise_robust(model)

    In the first round targets are compared with the mean function, as in Altamirano, Briol &
    Knoblauch (2024), and in each further one with the posterior mean of the round before: see
    :doc:`/robust`. The parameters are trained by :func:`~gpflow_pep.training.maximise`, each round
    from the end of the one before. Objectives of different rounds cannot be compared.

    :param model: It ends with the centre and the threshold of the last round.
    :param threshold: How many standard deviations from the centre a target counts half, above 0. A
        smaller one suits more outliers, and makes the noise variance too small where there are
        few; a larger one lets outliers make it too large.
    :param rounds: How many, at least 1.
    :param options: All arguments of :func:`~gpflow_pep.training.maximise`, but ``num_inducing`` and
        ``optimizer``.
    :return: The record of each round.
    :raises ValueError: If the model has another likelihood, an argument is outside its range, or
        most targets are at the centre.
    """
    likelihood = getattr(model, "likelihood", None)
    if type(likelihood) is not RobustGaussian or not isinstance(model, PEPRegression):
        got = f"a {type(model).__name__} of {type(likelihood).__name__} noise"
        remedy = "Pass likelihood=gpflow_pep.likelihoods.RobustGaussian() when it is made."
        raise refusal("model", got, "a PEPRegression of RobustGaussian noise", remedy)
    check_real("threshold", threshold, "(0, inf)", "Pass 2 if in doubt.")
    check_positive("rounds", rounds)
    for name in {"num_inducing", "optimizer"} & options.keys():
        raise refusal(name, repr(options[name]), "none of it", "Leave it out.")
    likelihood.centre = centre = PosteriorMean(model)
    optimizer = gpflow.optimizers.Scipy()  # of all rounds, so that the loss is compiled once
    records: list[MaximiseRecord] = []
    for _ in range(rounds):
        if records:
            centre.assign(model)
        X, Y = map(tf.convert_to_tensor, model.data)
        distance = np.median(np.abs(Y - centre(X)))
        if not distance > 0.0:
            got = "targets of which most are equal to the centre"
            raise refusal("Y", got, "noise around it", "Leave them out, or give another mean.")
        likelihood.threshold.assign(threshold * distance / _MEDIAN)
        records.append(maximise(model, optimizer=optimizer, **options))
    return tuple(records)
