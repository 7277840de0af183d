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
from gpflow.base import AnyNDArray, RegressionData
from gpflow.models import GPModel

from ...engine import checks
from ...engine.left_out_rows import PRIOR_WEIGHT, ensemble_weights
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
        :func:`~gpflow_pep.training.ensemble_weights` from leave-one-out densities; if
        these are unknown, as with blocks and models that hold no data, the weights are
        equal. ``"uniform"`` gives equal weights. K numbers, each at least 0, are
        divided by their sum.
    :param validation: Rows that are not in the training rows of any component; their
        densities replace leave-one-out densities.
    :param prior_weight: See :func:`~gpflow_pep.training.ensemble_weights`.
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
    :param prior_weight: See :func:`~gpflow_pep.training.ensemble_weights`.
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
