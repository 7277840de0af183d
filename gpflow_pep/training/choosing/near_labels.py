r"""
Labels predicted from near training rows, beside predictions from inducing points.

Labels can change at so fine a scale that inducing points, however many, have little information on
them, and rows nearby nearly all. That shows before anything is trained for it: a model that misses
information of rows nearby is wrong in the same direction on rows that are near each other. With
:math:`p_n` the probability that row n has class 1, given the other rows, the residuals

.. math::

    e_n = \frac{y_n - p_n}{\sqrt{p_n (1 - p_n)}}

have mean 0 and variance 1 where the model is right. :func:`near_residuals` multiplies each by the
mean of those near it: the mean of the products is 0 where near rows add nothing. This is the
autocorrelation of Moran (1950), of residuals. It costs no compilation.

Only where the products are clearly positive, a second model is trained, whose predictions use the
nearest rows alone and whose kernel is trained for this
(:mod:`gpflow_pep.models.minibatch`). The two are mixed as in
:mod:`gpflow_pep.training.choosing.combining`, with weights by rows that are left out: for the
second model without themselves among the near rows. Some hundreds of these are predicted early,
after :data:`TRIAL_STEPS`: where the ensemble is no better for them than the first model, training
ends there.

A model whose rows share sites (``ARPEP``) cannot leave rows out. Its densities of training rows,
which are a little too high, stand for those, so that near rows have to gain a little more.
"""

import contextlib
import itertools
import time
from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
import tf_keras
from gpflow.base import AnyNDArray, RegressionData
from gpflow.kernels import Kernel, MultioutputKernel
from gpflow.models import GPModel
from scipy.special import logsumexp

from ...engine import checks
from ...engine.factors import traits
from ...engine.prior import input_scales, nearest_others
from ...models import PEP
from ...models.base import InternalDataModel
from ..fitting.loop import fit
from ..fitting.objectives import FAILURES, copy_of
from ..fitting.points import held_out_densities
from .combining import LEAST_GAIN, add_components
from .ensemble import Ensemble, components, heaviest
from .near_rows import NearRows

#: How many near rows predictions of labels use, unless another number is given.
NEAR_LABELS = 20
#: How many near rows are known in training for them: fewer take a fraction of the time, and the
#: kernel that they lead to is as good.
NEAR_IN_TRAINING = 10
#: Training for near rows: steps of Adam, rows in a batch, and the learning rate, which is halved
#: again and again after so many steps.
STEPS, BATCH_SIZE, RATE, HALVED_AFTER = 200, 256, 0.3, 100
#: After so many steps, so many rows that are left out show whether there is anything to gain.
TRIAL_STEPS, TRIAL_ROWS = 80, 500
#: Residuals are compared with the mean of so many near ones. Near rows are tried where the mean of
#: the products is at least this, and so many standard errors above 0.
NEAR_RESIDUALS, LEAST_PRODUCT, STANDARD_ERRORS = 10, 0.01, 2.5
#: The most rows that are left out: labels have less information than numbers.
MOST_LEFT_OUT = 3000
#: c of the prior on the weights: left-out scores of near rows are not optimistic.
PRIOR_WEIGHT = 0.001
#: Steps between looks at the time.
_LOOK_EVERY = 5
#: Probabilities of labels are taken to be at least this, so that no residual stands for all.
_LEAST = 0.01


class _Over(Exception):
    """There is no time left."""


class _NoGain(Exception):
    """Near rows gain nothing so far."""


def ensemble_with_near_labels(
    model: GPModel | Ensemble,
    data: tuple[AnyNDArray, AnyNDArray],
    kernel: Kernel,
    near: int = NEAR_LABELS,
    *,
    alpha: float = 1.0,
    num_steps: int = STEPS,
    seconds: float | None = None,
    seed: int = 0,
    progress: bool = False,
) -> Ensemble | None:
    """
    Mix a model of two classes with one whose predictions use near training rows alone::

        mixed = pep.training.ensemble_with_near_labels(model, (X, labels), kernel) or model

    See :mod:`gpflow_pep.training.choosing.near_labels`. c of the prior on the weights is 0.001.

    :param model: Trained, or several mixed, with a likelihood of two classes and one latent
        function.
    :param data: X [N, D] and labels 0 and 1 [N, 1], the rows that it was trained on.
    :param kernel: Of one output, as training for near rows starts from it; it is trained.
    :param near: How many near rows predictions use.
    :param alpha: The power of their sites.
    :param num_steps: The most steps of training for near rows.
    :param seconds: The most seconds of it, without compilation; None: any number.
    :param seed: Which rows are left out, and which are in which batch.
    :param progress: Whether to show a bar on stderr.
    :return: The ensemble; None where the residuals of near rows have nothing in common, or the mean
        log density of the rows that are left out is not higher by at least two standard errors.
    :raises ValueError: If the model is of another likelihood, or an argument is outside its range.
    """
    main: Any = heaviest(model)
    if not knows_near_labels(main):
        got = f"{type(main).__name__} with {type(main.likelihood).__name__}"
        expected = "a likelihood of two classes with one latent function"
        raise checks.refusal("model", got, expected, "Keep it as it is.")
    checks.check_seed(seed)
    X, Y = map(np.asarray, data)
    checks.check_number(near, len(X) - 1, "near", counted="other rows")
    left_out = np.random.default_rng(seed).permutation(len(X))[:MOST_LEFT_OUT]
    log_densities = _log_densities(model, (X, Y))
    mixed = logsumexp(log_densities, axis=0, b=components(model)[1][:, None])
    scaled = tf.constant(X) / input_scales(main.kernel, tf.constant(X))
    products = near_residuals(mixed, Y[:, 0], scaled, left_out)
    error = np.std(products, ddof=1) / np.sqrt(len(products))
    if not np.mean(products) > max(LEAST_PRODUCT, STANDARD_ERRORS * error):
        return None
    parts = kernel, copy_of(main.likelihood), copy_of(main.inducing_variable)
    second = PEP((X, Y), *parts, alpha=alpha)

    def mixed_by(rows: AnyNDArray, standard_errors: float) -> Ensemble | None:
        densities = _left_out_densities(second, near, rows)
        return add_components(
            components(model)[0],
            log_densities[:, rows],
            [second],
            [densities],
            [NearRows(near, None)],
            prior_weight=PRIOR_WEIGHT,
            standard_errors=standard_errors,
        )

    def check_gain() -> None:
        if mixed_by(left_out[:TRIAL_ROWS], 0.0) is None:
            raise _NoGain

    try:
        _train(second, near, num_steps, seconds, seed, progress, check_gain)
        return mixed_by(left_out, LEAST_GAIN)
    except (_NoGain, *FAILURES):
        return None


def knows_near_labels(model: Any) -> bool:
    """Whether labels of a model can be predicted from near rows."""
    one_output = model.num_latent_gps == 1 and not isinstance(model.kernel, MultioutputKernel)
    return one_output and traits(model.likelihood).num_classes == 2


def _log_densities(model: GPModel | Ensemble, data: RegressionData) -> AnyNDArray:
    """Log densities of training rows, given the others where that is known, [K, N]."""
    return np.stack(
        [
            np.asarray(component.loo_log_density())
            if isinstance(component, InternalDataModel)
            else held_out_densities(component, data)()
            for component in components(model)[0]
        ]
    )


def near_residuals(
    log_densities: AnyNDArray, labels: AnyNDArray, X: tf.Tensor, rows: AnyNDArray
) -> AnyNDArray:
    r"""
    Multiply the residuals :math:`e_n` of rows by the mean of the residuals of those near them.

    :param log_densities: Of the label of each row, given the others, [N].
    :param labels: 0 or 1, [N].
    :param X: Scaled inputs, [N, D].
    :param rows: Of which rows, [S].
    :return: [S].
    """
    near = nearest_others(X, rows, min(NEAR_RESIDUALS, len(X) - 1)).numpy()
    # |y - p| is 1 less the probability of the label, and p (1 - p) its product with the latter.
    probability = np.clip(np.exp(log_densities), _LEAST, 1.0)
    residuals = (2.0 * labels - 1.0) * np.sqrt((1.0 - probability) / probability)
    products: AnyNDArray = residuals[rows] * residuals[near].mean(axis=1)
    return products


def _train(
    model: PEP,
    near: int,
    num_steps: int,
    seconds: float | None,
    seed: int,
    progress: bool,
    check_gain: Callable[[], None],
) -> None:
    """
    Train the kernel of a model for predictions from near rows.

    :param check_gain: It is called once, after :data:`TRIAL_STEPS`.
    """
    ends: list[float] = []
    looks = itertools.count(1)

    def look(_: GPModel) -> dict[str, float]:
        if seconds is not None:
            ends[:] = ends or [time.perf_counter() + seconds]  # what comes first is compiled
            if time.perf_counter() > ends[0]:
                raise _Over
        if next(looks) * _LOOK_EVERY == TRIAL_STEPS < num_steps:
            check_gain()
        return {}

    known = min(near, NEAR_IN_TRAINING)
    loss = model.near_row_training_loss_closure(known, batch_size=BATCH_SIZE, seed=seed)
    rate = tf_keras.optimizers.schedules.ExponentialDecay(RATE, HALVED_AFTER, 0.5)
    gpflow.set_trainable(model.inducing_variable, False)
    with contextlib.suppress(_Over):
        fit(
            model,
            loss,
            num_steps=num_steps,
            optimizer=tf_keras.optimizers.Adam(rate),
            evaluate=look,
            evaluate_every=_LOOK_EVERY,
            progress=progress,
        )


def _left_out_densities(model: PEP, near: int, rows: AnyNDArray) -> AnyNDArray:
    """Log densities of training rows, each given the others that are near it, [S]."""
    X = tf.convert_to_tensor(model.data[0])
    index = nearest_others(X / input_scales(model.kernel, X), rows, near)
    densities = np.asarray(model.near_row_log_density(tf.constant(rows), index))
    return np.where(np.isnan(densities), -np.inf, densities)
