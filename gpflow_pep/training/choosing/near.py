r"""Near training rows in the predictions of ensembles, if they improve predictions of
left-out rows.

Components whose predictions are given the nearest training rows (:ref:`near-rows`) are
added. Their weights (:mod:`gpflow_pep.training.choosing.combining`) come from the
densities of rows that no component was trained on. Densities of training rows, each
left out in turn, cannot be used if inducing inputs were trained: without near rows they
are far too good, and with near rows they are only slightly too good.

**Numbers.** Each component is added a second time, with another noise variance of near
rows and of the target, which is chosen by the mean density of left-out rows. At power 1
the noise variance of the model can be nearly 0, because the residual variances of rows
replace it; near rows would then make its densities far too narrow. At smaller powers
the noise variance includes details of the function that too few inducing points cannot
describe, but near rows can. More near rows are used if they raise the density.

**Labels of two classes** can change on such a fine scale that even many inducing points
have little information on them, while near rows have nearly all of it. With :math:`p_n`
the probability that row n has class 1, given the other rows, the residuals

.. math::

    e_n = \frac{y_n - p_n}{\sqrt{p_n (1 - p_n)}}

have mean 0 and variance 1 if the model is right. :func:`near_residuals` multiplies each
residual by the mean of the residuals near it. The product is 0 on average if near rows
have no further information; it is the autocorrelation of Moran (1950) for residuals.
Only if it is clearly positive, a further model is trained, whose predictions use only
the nearest rows (:mod:`gpflow_pep.models.minibatch`). A model whose rows share sites
(``ARPEP``) cannot leave rows out. Its densities of training rows are used instead; they
are a little too high, so near rows have to gain a little more.
"""

import contextlib
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras
from gpflow.base import AnyNDArray, Parameter, RegressionData
from gpflow.kernels import MultioutputKernel
from gpflow.likelihoods import Gaussian, Likelihood
from gpflow.models import GPModel
from gpflow.utilities import set_trainable
from scipy.special import logsumexp
from scipy.stats import norm

from ...engine import checks
from ...engine.factors import check_num_latent, num_classes
from ...engine.left_out_rows import copies_of, ensemble_weights, gains
from ...engine.numerics.nearest_in_numpy import nearest_rows
from ...engine.predictions.context_rows import NearRows, predict_by_levels
from ...engine.prior import input_scales, nearest_others
from ...models import PEP, PEPRegression
from ...models.base import InternalDataModel
from ..fitting.loop import fit
from ..fitting.objectives import FAILURES, copy_of
from ..fitting.points import MOST_LEFT_OUT, held_out_densities
from .combining import power_of
from .ensemble import Ensemble, EnsembleRecord, components, heaviest

#: The numbers of near rows that predictions use, unless a number is given: the first
#: one, or the second one if that improves predictions of left-out rows; the last one
#: for labels.
NUMBERS = (10, 40)
NEAR_LABELS = 20
#: The noise variances of near rows that are tried, relative to the mean squared error
#: of left-out rows. The model's noise variance is also tried.
NOISE_LEVELS = (0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.55, 0.75, 1.0)
#: Near rows must raise the mean log density by this number of standard errors of the
#: difference.
LEAST_GAIN = 2.0
#: The constant c in the prior of the weights. It can be small because no component was
#: trained on these rows. On eight tables of 4000 to 7000 rows .1 is .008 nats a row
#: worse on average and at most .030, and .001 is .001 better.
PRIOR_WEIGHT = 0.01
#: Training for near labels: the number of steps of Adam, of rows in a batch, the
#: learning rate, and the number of steps after which it is halved. Training with ten
#: near rows takes a fraction of the time of twenty, and the kernel is as good.
STEPS = 200
BATCH_SIZE = 256
RATE = 0.3
HALVED_AFTER = 100
#: Probabilities of labels are raised to at least this, so that no single residual
#: dominates.
_LEAST = 0.01


def takes_near_rows(model: Any) -> bool:
    """Whether near rows can be added to a model's predictions, and left out one at a
    time.
    """
    plain = type(model) is PEPRegression and not model.has_blocks
    if not plain or model.takes_missing_targets:
        return False
    if model.memory is not None or model.alpha.shape.rank != 0:
        return False
    noise = getattr(model.likelihood, "variance", None)
    return type(model.likelihood) is Gaussian and isinstance(noise, Parameter)


def takes_near_labels(kernel: Any, likelihood: Likelihood) -> bool:
    """Whether labels are of two classes and one latent function, so that near rows have
    sites.
    """
    one_output = not isinstance(kernel, MultioutputKernel)
    one_output &= check_num_latent(None, likelihood, tf.zeros([1, 1])) == 1
    return one_output and num_classes(likelihood) == 2


def ensemble_with_near_rows(
    ensemble: Ensemble, validation: RegressionData, near: int | None = None
) -> Ensemble | None:
    r"""
    Add each component of an ensemble a second time, with predictions that use near
    training rows::

        ensemble = pep.training.ensemble_of_powers(model)
        mixed = pep.training.ensemble_with_near_rows(ensemble, (X_held, Y_held))
        ensemble = mixed or ensemble

    Noise and weights are chosen with rows that were left out of training, see
    :mod:`gpflow_pep.training.choosing.near`. The constant c in the prior of the weights
    is 0.01. Afterwards you can add these rows to the models: assign all rows to
    ``data`` of each.

    :param ensemble: An ensemble of ``PEPRegression`` without blocks, memory or missing
        targets, with a Gaussian likelihood of constant noise variance.
    :param validation: Rows that the models do not have, X [S, D] and Y [S, P].
    :param near: The number of near rows that predictions use. None selects 10, or 40
        for a component if this raises its log densities of the left-out rows by at
        least two standard errors.
    :return: The ensemble with both kinds of components; None if it does not raise the
        mean log density of the left-out rows by at least two standard errors.
    :raises ValueError: If the components are of another kind, or if an argument is
        outside its range.
    """
    models, (num_near, *larger) = ensemble.models, NUMBERS if near is None else (near,)
    other_models = [model for model in models if not takes_near_rows(model)]
    if other_models or any(ensemble.near):
        got = (
            "components that use near rows"
            if not other_models
            else type(other_models[0]).__name__
        )
        expected = "PEPRegression without blocks or memory, and constant noise"
        raise checks.refusal(
            "ensemble", got, expected, "Use the model without near rows."
        )
    num_rows = len(models[0].data[0])
    if near is not None:
        checks.check_number(near, num_rows, "near", counted="rows")
    alone = np.stack([held_out_densities(model, validation)() for model in models])
    X, Y = map(np.asarray, validation)
    scored: list[tuple[NearRows, AnyNDArray]] = []
    for model in models:
        error = np.mean((Y - np.asarray(model.predict_f(X)[0])) ** 2)
        levels = [
            float(model.likelihood.variance.numpy()),
            *(error * np.array(NOISE_LEVELS)),
        ]
        chosen, densities = choose_noise(model, min(num_near, num_rows), (X, Y), levels)
        for number in larger:
            levels = [
                (chosen.noise_variance or 0.0) * factor for factor in (0.6, 1.0, 1.6)
            ]
            with_more = choose_noise(model, min(number, num_rows), (X, Y), levels)
            if gains(with_more[1], densities, LEAST_GAIN):
                chosen, densities = with_more
        scored.append((chosen, densities))
    return _with_components(models, alone, models, scored)


def ensemble_with_near_labels(
    model: GPModel | Ensemble,
    data: tuple[AnyNDArray, AnyNDArray],
    near: int = NEAR_LABELS,
    *,
    num_steps: int = STEPS,
    seconds: float | None = None,
    seed: int = 0,
    progress: bool = False,
) -> Ensemble | None:
    """Mix a model of two classes with one whose predictions use near training rows
    alone::

        mixed = pep.training.ensemble_with_near_labels(model, (X, labels)) or model

    See :mod:`gpflow_pep.training.choosing.near`. The constant c in the prior of the
    weights is 0.01.

    :param model: A trained model, or several that are mixed, with a likelihood of two
        classes and one latent function.
    :param data: X [N, D] and labels 0 and 1 [N, 1], the rows that it was trained on.
    :param near: The number of near rows that predictions use.
    :param num_steps: The largest number of steps of training for near rows.
    :param seconds: The time limit of this training in seconds, without compilation;
        None sets no limit.
    :param seed: Seed of the choice of left-out rows and of the batches.
    :param progress: Whether to show a bar on stderr.
    :return: The ensemble; None if the residuals of near rows are not correlated, or if
        the mean log density of the left-out rows does not rise by at least two standard
        errors.
    :raises ValueError: If the model has another likelihood, or if an argument is
        outside its range.
    """
    main: Any = heaviest(model)
    if not takes_near_labels(main.kernel, main.likelihood):
        got = f"{type(main).__name__} with {type(main.likelihood).__name__}"
        expected = "a likelihood of two classes with one latent function"
        raise checks.refusal("model", got, expected, "Use the model without near rows.")
    X, Y = map(np.asarray, data)
    checks.check_number(near, len(X) - 1, "near", counted="other rows")
    models, weights = components(model)
    alone = np.stack(
        [
            (
                np.asarray(model.loo_log_density())
                if isinstance(model, InternalDataModel)
                else held_out_densities(model, (X, Y))()
            )
            for model in models
        ]
    )
    # So no row predicts its copy.
    once = np.sort(np.unique(copies_of(X, Y), return_index=True)[1])
    X = X[once]
    Y = Y[once]
    alone = alone[:, once]
    rows = np.random.default_rng(checks.check_seed(seed)).permutation(len(X))[
        :MOST_LEFT_OUT
    ]
    mixed = logsumexp(alone, axis=0, b=weights[:, None])
    products = near_residuals(main.kernel, X, mixed, Y[:, 0], rows)
    if not gains(products, np.zeros_like(products), LEAST_GAIN):
        return None
    parts = map(copy_of, (main.kernel, main.likelihood, main.inducing_variable))
    second = PEP((X, Y), *parts, alpha=1.0)
    try:
        _train(second, near, num_steps, seconds, seed, progress)
        scored = NearRows(near), _near_label_densities(second, near, rows)
        return _with_components(models, alone[:, rows], [second], [scored])
    except FAILURES:
        return None


def choose_noise(
    model: PEPRegression,
    num_near: int,
    validation: RegressionData,
    levels: Sequence[float],
) -> tuple[NearRows, AnyNDArray]:
    """Choose from some levels the noise variance with the highest mean density of rows
    that the model does not have, X [S, D] and Y [S, P]. Return it with the log
    densities of these rows, [S].
    """
    mean, variance = moments_given_near(model, num_near, validation[0], levels)
    # Rounding can make a row independent of the others.
    with np.errstate(invalid="ignore"):
        densities = norm.logpdf(validation[1][:, None], mean, np.sqrt(variance)).sum(
            axis=-1
        )
    densities = np.where(np.isnan(densities), -np.inf, densities)
    best = int(np.argmax(densities.mean(axis=0)))
    return NearRows(num_near, float(levels[best])), densities[:, best]


def moments_given_near(
    model: PEPRegression, num_near: int, X: AnyNDArray, levels: Sequence[float]
) -> tuple[AnyNDArray, AnyNDArray]:
    """
    Compute moments of y of new rows [S, D] given near ones with each level of noise:
    mean [S, K, P] and variance [S, K, 1].
    """
    parts = model.context_parts()
    context = model.row_context()
    index = nearest_rows(np.asarray(context.X / context.scales))(
        X / context.scales, num_near
    )
    Xnew = tf.constant(X)
    noise = tf.constant(levels, X.dtype)
    mean, variance = predict_by_levels(parts, context, Xnew, tf.constant(index), noise)
    mean += parts.mean(Xnew)[:, None]
    return mean.numpy(), (variance + noise).numpy()[..., None]


def near_residuals(
    kernel: Any,
    X: AnyNDArray,
    log_densities: AnyNDArray,
    labels: AnyNDArray,
    rows: AnyNDArray,
) -> AnyNDArray:
    r"""
    Multiply the residuals :math:`e_n` of rows [S] by the mean of the residuals of ten
    near them.

    :param kernel: The kernel whose lengthscales define which inputs X [N, D] are near.
    :param log_densities: The log densities of the labels [N], 0 or 1, each given the
        others.
    """
    scaled = tf.constant(X) / input_scales(kernel, tf.constant(X))
    near = nearest_others(scaled, rows, min(NUMBERS[0], len(X) - 1)).numpy()
    # |y - p| is 1 minus the probability of the label, and p (1 - p) is the product of
    # both.
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
) -> None:
    """Train the kernel of a model for predictions from near rows."""
    ends: list[float] = []

    def check_time(_: GPModel) -> dict[str, float]:
        # The time before the first step is compilation.
        ends.append(time.perf_counter())
        if seconds is not None and ends[-1] > ends[0] + seconds:
            raise TimeoutError
        return {}

    options: dict[str, Any] = {"batch_size": BATCH_SIZE, "seed": seed}
    loss = model.near_row_training_loss_closure(min(near, NUMBERS[0]), **options)
    rate = tf_keras.optimizers.schedules.ExponentialDecay(RATE, HALVED_AFTER, 0.5)
    options = {"optimizer": tf_keras.optimizers.Adam(rate), "progress": progress}
    set_trainable(model.inducing_variable, False)
    with contextlib.suppress(TimeoutError):
        fit(
            model,
            loss,
            num_steps=num_steps,
            evaluate=check_time,
            evaluate_every=5,
            **options,
        )


def _near_label_densities(model: PEP, near: int, rows: AnyNDArray) -> AnyNDArray:
    """Compute log densities of training rows, each given other rows that are near it,
    [S].
    """
    X = tf.convert_to_tensor(model.data[0])
    index = nearest_others(X / input_scales(model.kernel, X), rows, near)
    densities = np.asarray(model.near_row_log_density(tf.constant(rows), index))
    return np.where(np.isnan(densities), -np.inf, densities)


def _with_components(
    models: Sequence[GPModel],
    log_densities: AnyNDArray,
    more_models: Sequence[GPModel],
    scored: Sequence[tuple[NearRows, AnyNDArray]],
) -> Ensemble | None:
    """Mix models with log densities [K, S] with other models, if that improves
    predictions of left-out rows.

    :param scored: For each of the other models, how it uses near rows, and its log
        densities of the rows, [S].
    """
    near, other_densities = zip(*scored, strict=True)
    densities = np.stack([*log_densities, *other_densities])
    weights = ensemble_weights(densities, prior_weight=PRIOR_WEIGHT)
    before = ensemble_weights(log_densities, prior_weight=PRIOR_WEIGHT)
    mixed = logsumexp(densities, axis=0, b=weights[:, None])
    alone = logsumexp(log_densities, axis=0, b=before[:, None])
    if not gains(mixed, alone, LEAST_GAIN):
        return None
    every = [*models, *more_models]
    record = EnsembleRecord(
        tuple(map(power_of, every)), np.mean(densities, axis=1), "leave-one-out"
    )
    return Ensemble(every, weights, record, [*[None] * len(models), *near])
