r"""Ensembles of predictive densities, instead of one chosen model.

The rows that a model was trained on hardly show which power predicts best. The ensemble
of the predictive densities of models that were trained at several powers,

.. math::

    p(y_* | x_*) = \sum_k w_k \, p_k(y_* | x_*),

needs no choice and never loses much: on each row its negative log density is at most
the negative log density of component k minus :math:`\log w_k`. The weights maximise the
leave-one-out density of the rows, with a Dirichlet prior whose weight is :math:`c`
times the weight of the data,

.. math::

    \sum_n \log \sum_k w_k \, p_k(y_n | y_{-n}) + \frac{c N}{K} \sum_k \log w_k .

Without the prior this is stacking (Yao, Vehtari, Simpson & Gelman 2018). Leave-one-out
densities are optimistic if inducing inputs were trained, and more so at larger powers.
The prior therefore keeps each weight above :math:`c / (K (1 + c))`.
"""

import warnings
from collections.abc import Sequence

import numpy as np
from check_shapes import check_shapes
from gpflow.base import AnyNDArray, RegressionData
from gpflow.models import GPModel
from scipy.optimize import nnls

from ...engine import checks
from ..fitting.objectives import (
    FAILURES,
    Objective,
    assigned_at_exit,
    copy_of,
    state_of,
)
from ..fitting.points import check_one_power
from .alphas import ALPHAS, Train, check_alphas, train_at_each
from .ensemble import Ensemble, EnsembleRecord, check_models, check_weights

#: The constant c in the prior of the weights, relative to the data.
PRIOR_WEIGHT = 0.25
#: A leave-one-out log density is at least the density of the row's best component minus
#: this number. Lower values, or an improper cavity, have no more influence on the
#: weights.
_FLOOR = 700.0
_MAX_PASSES = 10_000
_SETTLED = 1e-12


@check_shapes("log_densities: [K, N]", "return: [K]")
def ensemble_weights(
    log_densities: AnyNDArray, *, prior_weight: float = PRIOR_WEIGHT
) -> AnyNDArray:
    r"""Compute the weights of an ensemble from log densities of left-out rows.

    Expectation maximisation of the objective of
    :mod:`gpflow_pep.training.choosing.combining`, which is concave:
    :math:`r_{kn} = w_k e^{\ell_{kn}} / \sum_j w_j e^{\ell_{jn}}`, then
    :math:`w_k = (\sum_n r_{kn} + c N / K) / (N + c N)`, until no weight moves.

    :param log_densities: The log density :math:`\ell_{kn}` of each row under each
        component, in nats. Minus infinity or NaN, for a component without a density,
        counts as a density of about 0.
    :param prior_weight: The weight c of the prior, at least 0; 0 is stacking without a
        prior.
    :return: The weights, each at least :math:`c / (K (1 + c))`, whose sum is 1.
    :raises ValueError: If a row has no density under any component, or c is negative.
    """
    log_densities = np.asarray(log_densities, dtype=np.float64)
    checks.check_real("prior_weight", prior_weight, "[0, inf)", "0.25 is usual.")
    if not log_densities.size:
        got = f"the shape {log_densities.shape}"
        raise checks.refusal("log_densities", got, "at least one row", "Give rows.")
    best = np.max(np.where(np.isnan(log_densities), -np.inf, log_densities), axis=0)
    if not np.isfinite(best).all():
        raise checks.refusal(
            "log_densities",
            f"no finite density in {np.sum(~np.isfinite(best))} row(s)",
            "a finite density under at least one component",
            "Remove the rows, or the components that failed.",
        )
    density = np.exp(
        np.nan_to_num(np.maximum(log_densities - best, -_FLOOR), nan=-_FLOOR)
    )
    num_components, num_rows = density.shape
    weights = np.full(num_components, 1.0 / num_components)
    pseudo_rows = prior_weight * num_rows / num_components
    for _ in range(_MAX_PASSES):
        joint = weights[:, None] * density
        responsible = np.sum(joint / np.sum(joint, axis=0), axis=1)
        updated = (responsible + pseudo_rows) / (num_rows * (1.0 + prior_weight))
        if np.max(np.abs(updated - weights)) < _SETTLED:
            return updated
        weights = updated
    return weights


@check_shapes("means: [K, N]", "targets: [N]", "weights: [K]", "return: [K]")
def weights_of_means(
    means: AnyNDArray,
    targets: AnyNDArray,
    weights: AnyNDArray,
    *,
    shrinkage: float = 0.1,
) -> AnyNDArray:
    r"""
    Compute the weights u of the components' means in the predicted mean,
    :math:`\sum_k u_k \mu_k`: at least 0, with sum 1, and with the smallest

    .. math::

       \sum_n \Big(y_n - \sum_k u_k \mu_{k,-n}\Big)^2 + \lambda N \sigma^2 |u - w|^2,

    where :math:`\sigma^2` is the mean square error with the weights w of the densities.
    Because u has the sum 1, this is a multiple of a square :math:`|B u|^2`. The
    nonnegative v with the smallest :math:`|B v|^2 + (1 - \sum_k v_k)^2` is a multiple
    of u.

    :param means: The means :math:`\mu_{k,-n}` of left-out rows.
    :param targets: The targets y of these rows, in the same units.
    :param weights: The weights w of the densities.
    :param shrinkage: The weight :math:`\lambda` of the shrinkage, above 0.
    """
    errors = (targets - means).T  # [N, K]
    scale = np.sqrt(np.sum((errors @ weights) ** 2))
    # The weights w are right up to rounding.
    if scale <= 1e-12 * np.linalg.norm(errors):
        return weights
    apart = np.sqrt(shrinkage) * (np.eye(len(weights)) - weights[:, None])
    B = np.vstack([errors / scale, apart, np.ones(len(weights))])
    v: AnyNDArray = nnls(B, np.r_[np.zeros(len(B) - 1), 1.0])[0]
    return v / np.sum(v)


def ensemble_of_models(
    models: Sequence[GPModel],
    weights: str | AnyNDArray = "loo",
    *,
    validation: RegressionData | None = None,
    prior_weight: float = PRIOR_WEIGHT,
) -> Ensemble:
    """Mix models that are already trained, with different powers, kernels, starts or
    hyperparameters.

    :param models: The components, which have the same data and one kind of likelihood.
    :param weights: The weights of the components. ``"loo"`` computes them with
        :func:`ensemble_weights` from leave-one-out densities; if these are unknown, as
        with blocks and models that hold no data, the weights are equal. ``"uniform"``
        gives equal weights. K numbers, each at least 0, are divided by their sum.
    :param validation: Rows that are not in the training rows of any component; their
        densities replace leave-one-out densities.
    :param prior_weight: See :func:`ensemble_weights`.
    :raises ValueError: If the models or the weights do not fit together.
    """
    models = check_models(models)
    weights = _checked(weights, len(models))
    if isinstance(weights, str):
        densities = None
        if weights == "loo" and len(models) > 1:
            densities = _densities(models, validation)
        if densities is None:
            weights_from = "uniform"
            chosen = check_weights(None, len(models))
        else:
            weights_from = "leave-one-out" if validation is None else "held-out"
            chosen = ensemble_weights(densities, prior_weight=prior_weight)
    else:
        densities = None
        weights_from = "given"
        chosen = weights
    means = (
        np.full(len(models), np.nan)
        if densities is None
        else np.mean(densities, axis=1)
    )
    return Ensemble(
        models,
        chosen,
        EnsembleRecord(tuple(map(power_of, models)), means, weights_from),
    )


def ensemble_of_powers(
    model: GPModel,
    alphas: Sequence[float] = ALPHAS,
    *,
    weights: str | AnyNDArray = "loo",
    validation: RegressionData | None = None,
    refit: bool | Train = True,
    objective: Objective = "evidence",
    prior_weight: float = PRIOR_WEIGHT,
) -> Ensemble:
    r"""Train a model at several powers and mix the results.

    Each power starts from the present parameters, and the loss is compiled once for all
    powers. The model itself does not change.

    :param model: A model of :mod:`gpflow_pep.models` with one power for all rows.
    :param alphas: The powers, in [0, 1].
    :param weights: See :func:`ensemble_of_models`; numbers are in the order of the
        powers.
    :param validation: See :func:`ensemble_of_models`.
    :param refit: Whether to train at each power, with
        :func:`~gpflow_pep.training.maximise` and its defaults; or a function that
        trains the model. False keeps the parameters, and the ensemble gains little.
    :param objective: The objective of :func:`~gpflow_pep.training.maximise`.
    :param prior_weight: See :func:`ensemble_weights`.
    :return: An ensemble of copies of the model. A power at which training fails is left
        out, with a warning.
    :raises ValueError: If an argument does not suit the model, or every power fails.
    """
    alphas = check_alphas(alphas)
    check_one_power(model)
    weights = _checked(weights, len(alphas))  # checked before minutes of training
    state = state_of(model)
    start = [variable.numpy() for variable in state]
    trained: dict[float, GPModel] = {}
    with assigned_at_exit(state, lambda: start):
        failures = train_at_each(
            alphas,
            model,
            refit,
            objective,
            lambda at: trained.update({at: copy_of(model)}),
        )
    for alpha, message in failures.items():
        warnings.warn(
            f"alpha = {alpha:g} is left out of the ensemble: {message}", stacklevel=2
        )
    if not isinstance(weights, str):
        weights = weights[[alpha in trained for alpha in alphas]]
    return ensemble_of_models(
        list(trained.values()),
        weights,
        validation=validation,
        prior_weight=prior_weight,
    )


def _checked(weights: str | AnyNDArray, num_components: int) -> str | AnyNDArray:
    if not isinstance(weights, str):
        return check_weights(weights, num_components)
    if weights not in ("loo", "uniform"):
        expected = "'loo', 'uniform' or numbers"
        raise checks.refusal(
            "weights", checks.as_code(weights), expected, "Leave it out if in doubt."
        )
    return weights


def _densities(
    models: Sequence[GPModel], validation: RegressionData | None
) -> AnyNDArray | None:
    """Compute log densities [K, N] of left-out rows; None if a model has none."""
    if validation is not None:
        return np.stack(
            [np.asarray(model.predict_log_density(validation)) for model in models]
        )
    rows: list[AnyNDArray | None] = []
    for model in models:
        try:
            rows.append(np.asarray(model.loo_log_density()))
        except AttributeError:
            return None
        except FAILURES:
            rows.append(None)
    known = [row for row in rows if row is not None]
    if not known or len({len(row) for row in known}) > 1:
        return None
    return np.stack(
        [np.full(len(known[0]), -np.inf) if row is None else row for row in rows]
    )


def power_of(model: GPModel) -> float | None:
    """Return the power of all rows; None if there is no power or several."""
    alpha = getattr(model, "alpha", None)
    return float(alpha.numpy()) if alpha is not None and alpha.shape.rank == 0 else None
