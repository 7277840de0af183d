r"""The choice of the number of inducing points by rows that are left out of training.

A model is trained without a fifth of its rows, at most 1000 (:func:`leave_rows_out`).
Its number of inducing points is doubled and training continues, as long as that raises
the mean log density of the left-out rows by more than its standard error, and by more
than 0.01. Densities of training rows cannot be used instead: leave-one-out densities
are .2 nats too good if inducing inputs were trained, and rise with every further point.
"""

import logging
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray, RegressionData
from gpflow.inducing_variables import InducingPoints, SharedIndependentInducingVariables
from gpflow.models import GPModel
from sklearn.utils import gen_batches

from ...engine import checks
from ...engine.factors.entries import takes_missing_targets, target_rule
from ...engine.left_out_rows import copies_of, gains
from ...engine.prior import check_columns, is_mixed, latent_kernels
from ...engine.prior.mixing import share_inducing_variable
from ...engine.records import OVER, PointsScore
from ...models import PEP, PEPRegression
from ...models.base import InternalDataModel
from ...models.tied import TiedModel
from .objectives import FAILURES, assign, state_of

#: The number of rows that are predicted at a time.
_CHUNK = 10_000
_ADVICE = "Look for rows far from the training rows, or for parameters that ran off."


def left_out_densities(model: GPModel) -> Callable[[], AnyNDArray]:
    """Make a function that computes the log density of each row without its own site,
    [N].
    """
    check_one_power(model)
    if not isinstance(model, InternalDataModel):
        got = (
            f"no rows for {type(model).__name__}, whose rows share one site that"
            " cannot be removed for a single row"
        )
        remedy = "Pass validation=(X, Y)."
        expected = "rows that were held out"
        raise checks.refusal("validation", got, expected, remedy)
    if model.data[0].shape[0] == 1:
        raise checks.refusal(
            "model", "one row", "several", "There is no other row to predict from."
        )
    return lambda: np.asarray(model.loo_log_density())


def held_out_densities(
    model: GPModel, validation: RegressionData
) -> Callable[[], AnyNDArray]:
    """Make a function that computes the log density of each row that was held
    out, [N].
    """
    check_one_power(model)
    missing = takes_missing_targets(model)
    rule = target_rule(model)
    rows_and_targets = checks.check_data(validation, missing_targets=missing)
    X, Y = map(tf.convert_to_tensor, rows_and_targets)
    check_columns(model.inducing_variable, X)
    rule.check(model.likelihood, Y)
    if len(X) < 2:
        expected = "several rows, because the mean of one has no standard error"
        raise checks.refusal("validation", "one row", expected, "Hold out more rows.")
    power = tf.ones([1], X.dtype)

    def density() -> AnyNDArray:
        posterior = model.posterior()
        by_chunk = []
        for rows in gen_batches(len(X), _CHUNK):
            moments = posterior.predict_f(X[rows])
            arguments = model.likelihood, X[rows], *moments, Y[rows], power
            by_chunk.append(rule.log_power_expectation(*arguments))
        values = tf.concat(by_chunk, axis=0)
        return np.asarray(
            checks.require_finite(values, "log density of held-out rows", _ADVICE)
        )

    return density


def check_one_power(model: Any) -> None:
    if not isinstance(model, (InternalDataModel, TiedModel)):
        remedy = (
            "An estimator chooses the power itself: pass alpha='auto', or the powers,"
            " to the estimator."
            if hasattr(model, "get_params")
            else "Other models have no power."
        )
        raise checks.refusal(
            "model", type(model).__name__, "a model of gpflow_pep.models", remedy
        )
    if model.alpha.shape.rank != 0:
        got = f"powers of shape {tuple(model.alpha.shape)}"
        remedy = "Pass a number for alpha."
        raise checks.refusal("model", got, "one power for all rows", remedy)


_LOGGER = logging.getLogger(__name__)
#: More points must also raise the mean log density by this number of nats a row.
GAIN = 0.01
#: The fraction of the rows that is left out, and the largest number of them.
PART_LEFT_OUT = 0.2
MOST_LEFT_OUT = 1000
#: The largest number of points of a model in closed form without a deadline. Other
#: models have more than 100 points only up to this :math:`N M^2`, to which the time of
#: an evaluation is proportional. If outputs are mixtures, M counts the points of all
#: latent functions.
MOST_POINTS = 800
CHEAP_POINTS = 100
MOST_WORK = 1e8
#: With a deadline a further number is tried if this multiple of the time of the last
#: one is left. On 5000 rows of a sum of sinusoids with 10 s, 1 is as good, and 4 is .10
#: nats worse.
LONGER = 2.0


def leave_rows_out(model: Any, seed: int) -> tuple[Any, AnyNDArray]:
    """Make a model without some rows and their copies. It shares its parts, and
    therefore its parameters, with the other model. Return also the numbers of the
    left-out rows, [S]. (If a quarter of the left-out rows had copies in training, 90%
    intervals contained .84 and .88 of the new rows of two tables, and .90 without
    copies.)
    """
    X, Y = map(np.asarray, model.data)
    num_left_out = min(max(int(PART_LEFT_OUT * len(X)), 2), MOST_LEFT_OUT)
    order = np.random.default_rng(seed).permutation(len(X))
    out, rest = np.split(order, [num_left_out])
    copies = copies_of(X, Y)
    rest = rest[~np.isin(copies[rest], copies[out])]
    return with_data(model, (X[rest], Y[rest])), out


def with_data(model: Any, data: tuple[AnyNDArray, AnyNDArray]) -> Any:
    """Make a model of other rows. It shares its parts, and therefore its parameters,
    with this model.
    """
    options = {"alpha": model.alpha.numpy(), "mean_function": model.mean_function}
    kernel = model.kernel
    Z = model.inducing_variable
    likelihood = model.likelihood
    if isinstance(model, PEPRegression):
        return PEPRegression(data, kernel, Z, likelihood=likelihood, **options)
    options |= {
        key: getattr(model, key) for key in ("max_sweeps", "tolerance", "reset_sites")
    }
    other = type(model)(data, kernel, likelihood, Z, **options)
    # It is 0 if the user passed a tolerance.
    other.loss_tolerance.assign(model.loss_tolerance)
    return other


def add_points(
    model: GPModel,
    train: Callable[[GPModel, float], Any],
    left_out: RegressionData,
    *,
    seed: int,
    deadline: float = np.inf,
    after: float = 0.0,
) -> tuple[tuple[PointsScore, ...], Any]:
    """Train a model with more and more inducing points, as long as predictions of
    left-out rows improve.

    :param model: A ``PEPRegression`` or ``PEP`` with inducing points [M, D], whose rows
        are separate factors. M is the first number of points. If outputs are mixed from
        latent functions, these share the points. In the end the model has the best
        number of points and a new object as ``inducing_variable``.
    :param train: A function that trains a model until a time, and returns a record with
        an ``objective``.
    :param left_out: Rows that the model does not have, X [S, D] and Y [S, P].
    :param seed: Seed of the choice of rows at which points are added.
    :param deadline: The end, by ``time.perf_counter``. A further number is tried if
        twice the time of the last one is left.
    :param after: The time that is needed afterwards, as a multiple of the time for the
        log densities.
    :return: The numbers of points that were tried, the last of which may not have
        improved predictions; and the record of training with the best number, which has
        not converged if there was no time for more points.
    :raises ValueError: If the model is of another kind, or the first training fails.
    """
    rows: AnyNDArray = np.unique(np.asarray(model.data[0]), axis=0)
    candidates = np.random.default_rng(seed).permutation(rows)
    densities = held_out_densities(model, left_out)
    most = min(_most_points(model, deadline), len(candidates))
    scores: list[PointsScore] = []
    best: _Trained | None = None
    ends = deadline
    while True:
        points = _points_of(model)
        M = points.Z.shape[0]
        trial = _try(model, train, densities, left_out, ends, deadline, best is None)
        scores.append(trial.score_of(M))
        _LOGGER.info("%d inducing points: %.5g nats a row", *scores[-1][:2])
        pays = best is None or gains(
            trial.densities, best.densities, errors=1.0, least=GAIN
        )
        if best is None or pays:
            values = [value.numpy() for value in state_of(model)]
            best = _Trained(points, values, trial.record, trial.densities)
        else:
            _set_points(model, best.points)
            assign(state_of(model), best.values)
        more = pays and min(2 * M, most) > M
        ends = deadline - LONGER * after * trial.judging_seconds
        late = time.perf_counter() + LONGER * trial.seconds > ends
        if late and (more or np.isnan(scores[-1].log_density)):
            message = f"{OVER} More inducing points were not tried."
            return tuple(scores), best.record._replace(converged=False, message=message)
        if not more:
            return tuple(scores), best.record
        _set_points(model, _with_more(points.Z, candidates, min(2 * M, most)))


class _Trial(NamedTuple):
    """A training with some number of inducing points, and its log densities of left-out
    rows.
    """

    record: Any  #: None if training failed.
    #: Log densities of left-out rows, [S]; NaN if training failed, or if there was no
    #: time for them.
    densities: AnyNDArray
    seconds: float
    judging_seconds: float

    def score_of(self, num_inducing: int) -> PointsScore:
        objective = np.nan if self.record is None else float(self.record.objective)
        density = float(np.mean(self.densities))
        seconds = self.seconds, self.judging_seconds
        return PointsScore(num_inducing, density, objective, *seconds)


def _try(
    model: GPModel,
    train: Callable[[GPModel, float], Any],
    densities: Callable[[], AnyNDArray],
    left_out: RegressionData,
    ends: float,
    deadline: float,
    is_first: bool,
) -> _Trial:
    """Train with the present points of the model. An error in the first training is
    raised.
    """
    began = time.perf_counter()
    record = None
    density = np.full(len(left_out[0]), np.nan)
    try:
        record = train(model, ends)
        trained = time.perf_counter()
        if not is_first or trained <= deadline:
            density = densities()
    except FAILURES:
        if is_first:
            raise
        trained = time.perf_counter()
    return _Trial(record, density, trained - began, time.perf_counter() - trained)


def _most_points(model: GPModel, deadline: float = np.inf) -> int:
    """Return the largest number of points of a model. With a deadline, which ends the
    search, it is half of the number of rows for a model in closed form.
    """
    if isinstance(model, PEPRegression) and not is_mixed(model.kernel):
        return MOST_POINTS if deadline == np.inf else len(model.data[0]) // 2
    num_latents = len(latent_kernels(model.kernel))
    return max(
        CHEAP_POINTS,
        int(np.sqrt(MOST_WORK / len(np.asarray(model.data[0]))) / num_latents),
    )


def check_grows(model: Any) -> None:
    """Refuse a model to which inducing points cannot be added, or whose rows cannot be
    left out.
    """
    kind = isinstance(model, (PEPRegression, PEP))
    if not kind or type(_points_of(model)) is not InducingPoints:
        kind_of_part = type(_points_of(model) if kind else model).__name__
        expected = "PEPRegression, PEP or PEPClassification with inducing points [M, D]"
        remedy = "Leave it out to keep the inducing variables of the model."
        raise checks.refusal(
            "num_inducing", f"'auto' with {kind_of_part}", expected, remedy
        )
    has_parts = model.memory is not None or model.alpha.shape.rank != 0
    if model.rows.cut.block_rows is not None or has_parts:
        got = "'auto' with blocks, a memory or a power for each row"
        remedy = "Leave it out, and choose the number with held-out rows."
        raise checks.refusal(
            "num_inducing", got, "rows that can be left out one by one", remedy
        )


def _points_of(model: Any) -> Any:
    """Return the inducing variables; the shared ones if latent functions are mixed."""
    variables = model.inducing_variable
    if isinstance(variables, SharedIndependentInducingVariables) and is_mixed(
        model.kernel
    ):
        return variables.inducing_variable
    return variables


def _set_points(model: Any, points: InducingPoints) -> None:
    mixed = is_mixed(model.kernel)
    model.inducing_variable = share_inducing_variable(points) if mixed else points


class _Trained(NamedTuple):
    points: InducingPoints
    values: list[AnyNDArray]
    record: Any
    densities: AnyNDArray


def _with_more(
    Z: gpflow.Parameter, candidates: AnyNDArray, number: int
) -> InducingPoints:
    """Add rows in random order that are not inducing points already.

    Rows with the largest residual variances were not better on the table on which both
    were tried.
    """
    points = Z.numpy()
    known = set(map(bytes, points))
    new_points = [row for row in candidates[: 2 * number] if bytes(row) not in known]
    points = np.concatenate([points, new_points[: number - len(points)]])
    options: dict[str, Any] = {
        "transform": Z.transform,
        "prior": Z.prior,
        "trainable": Z.trainable,
    }
    return InducingPoints(gpflow.Parameter(points, **options))
