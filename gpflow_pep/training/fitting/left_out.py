"""Log densities of rows that were left out of a model: one at a time, or held out."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray, RegressionData
from gpflow.models import GPModel
from sklearn.utils import gen_batches

from ...engine import checks
from ...engine.factors.entries import takes_missing_targets, target_rule
from ...engine.prior import check_columns
from ...models.base import InternalDataModel
from ...models.tied import TiedModel

#: Rows predicted at a time.
_CHUNK = 10_000
_ADVICE = "Look for rows far from those of training, or for parameters that ran off."


def left_out_densities(model: GPModel) -> Callable[[], AnyNDArray]:
    """Make a function that computes the log density of each row without its own site, [N]."""
    check_one_power(model)
    if not isinstance(model, InternalDataModel):
        raise checks.refusal(
            "validation",
            f"none with {type(model).__name__}, whose rows share one site that cannot be removed"
            " for a single row",
            "rows that were held out",
            "Pass validation=(X, Y).",
        )
    checks.check_not_sharded(
        model.reduction.count, "select_alpha without held-out rows", "Pass validation=(X, Y)."
    )
    if model.data[0].shape[0] == 1:
        raise checks.refusal("model", "one row", "several", "There is no other to predict by.")
    return lambda: np.asarray(model.loo_log_density())


def held_out_densities(model: GPModel, validation: RegressionData) -> Callable[[], AnyNDArray]:
    """Make a function that computes the log density of each row that was held out, [N]."""
    check_one_power(model)
    missing, rule = takes_missing_targets(model), target_rule(model)
    rows_and_targets = checks.check_data(validation, missing_targets=missing)
    X, Y = map(tf.convert_to_tensor, rows_and_targets)
    check_columns(model.inducing_variable, X)
    rule.check(model.likelihood, Y)
    if len(X) < 2:
        expected = "several: its mean has no standard error"
        raise checks.refusal("validation", "one row", expected, "Hold more rows out.")
    power = tf.ones([1], X.dtype)

    def density() -> AnyNDArray:
        posterior = model.posterior()
        parts = []
        for some in gen_batches(len(X), _CHUNK):
            moments = posterior.predict_f(X[some])
            arguments = model.likelihood, X[some], *moments, Y[some], power
            parts.append(rule.log_power_expectation(*arguments))
        values = tf.concat(parts, axis=0)
        return np.asarray(checks.require_finite(values, "log density of held-out rows", _ADVICE))

    return density


def check_one_power(model: Any) -> None:
    if not isinstance(model, (InternalDataModel, TiedModel)):
        remedy = (
            "An estimator chooses by itself: pass it alpha='auto', or the powers as its alpha."
            if hasattr(model, "get_params")
            else "Other models have no power."
        )
        raise checks.refusal("model", type(model).__name__, "one of gpflow_pep.models", remedy)
    if model.alpha.shape.rank != 0:
        got, remedy = f"powers of shape {tuple(model.alpha.shape)}", "Pass a number for alpha."
        raise checks.refusal("model", got, "one power for all rows", remedy)
