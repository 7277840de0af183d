r"""The number of inducing points, chosen from data.

A model is trained, gets as many inducing points more as it has, and is trained again, as long as
that raises

.. math::

    \frac{1}{N} \Big( \sum_n \log p(y_n | y_{-n}) - c M D \Big), \qquad c = 0.15,

the mean leave-one-out log density less a charge for each number of the inducing inputs. Without the
charge it would go on rising where inducing inputs fit single rows: leave-one-out densities are
optimistic where inducing inputs were trained, with 100 of them by 0.13 to 0.4 nats for each of
these numbers on four of twelve tables, and by less than 0.06 on the others (:doc:`/study`).
Inducing inputs that are not trained are not charged.

With thousands of rows, training can begin with some of them, and the densities of others, which
training has not seen, need no charge: estimators do so from :data:`MANY` rows on. More points are
then allowed too.

The inducing points go on from where they were, and the hyperparameters start anew: with few points
training can end where a kernel ignores an input, which it does not leave when there are more.
"""

import logging
import time
from collections.abc import Callable, Sequence
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
from ...engine.prior import check_columns, is_mixed, latent_kernels
from ...engine.prior.mixing import share_inducing_variable
from ...models import PEP, PEPRegression
from ...models.base import InternalDataModel
from ...models.tied import TiedModel
from .objectives import FAILURES, assign, state_of

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


_LOGGER = logging.getLogger(__name__)
#: c, in nats for each number of the inducing inputs.
CHARGE = 0.15
#: More points must raise the score by so many nats a row.
GAIN = 0.01
#: More than 100 points are allowed up to this :math:`N M^2`, to which the time of an evaluation is
#: proportional: 400 for 625 rows, 200 for 2 500, if they are doubled from 25. Where outputs are
#: mixtures, M counts the points of all latent functions.
MOST_WORK = 1e8
#: So many rows are enough to choose by rows that training has not seen, and for this much work: 400
#: points up to 12 500 rows, 200 up to 50 000.
MANY, MOST_WORK_UNSEEN = 4000, 2e9
_CHEAP = 100


class PointsScore(NamedTuple):
    """How a model with so many inducing points was trained and predicts left-out rows."""

    num_inducing: int
    score: float
    """The mean leave-one-out log density less the charge, in nats a row; NaN where it failed or the
    time was over."""

    log_density: float  #: That mean, of all rows or of rows that training did not see.
    objective: float  #: What training maximised, at its end.
    bound_gap: float
    """With Gaussian noise, the exact log evidence for these hyperparameters is known to so many
    nats a row: the upper bound less the lower one of scaled conditionals. NaN otherwise, and
    where the time was over."""

    seconds: float  #: Of training, with its compilation.


def add_points(
    model: GPModel,
    train: Callable[[GPModel], Any],
    *,
    seed: int,
    deadline: float = np.inf,
    unseen: AnyNDArray | None = None,
    most_work: float | None = None,
) -> tuple[tuple[PointsScore, ...], Any]:
    """Train a model with more and more inducing points, as long as the score rises.

    :param model: A ``PEPRegression`` or ``PEP`` with inducing points [M, D], of which M is tried
        first, with rows that are factors of their own. Latent functions share the points where
        outputs are mixed from them. It ends as it was trained with the best number;
        ``inducing_variable`` is another object then.
    :param train: Trains a model and returns a record with an ``objective``.
    :param seed: For the rows at which points are added.
    :param deadline: No further number is tried that would, by what the last one took, go on when
        ``time.perf_counter`` is past it.
    :param unseen: Rows that ``train`` does not see: only their densities count, without a charge,
        and up to :data:`MOST_WORK_UNSEEN` is allowed. None: all rows count.
    :param most_work: What is allowed instead.
    :return: The numbers of points that were tried, of which the last can have gained nothing, and
        what training returned for the best.
    :raises ValueError: If the model is another, or the first training fails.
    """
    _check_model(model)
    candidates = _candidates(model, seed)
    densities = left_out_densities(model)
    unconstrained_Z = _points_of(model).Z.unconstrained_variable
    others = [part for part in model.trainable_variables if part is not unconstrained_Z]
    start = [variable.numpy() for variable in others]
    scores: list[PointsScore] = []
    best: _Trained | None = None
    while True:
        began = time.perf_counter()
        record = None
        try:
            record = train(model)
            scores.append(_score(model, record, densities, unseen, began, deadline))
            _LOGGER.info("%d inducing points: score %.5g nats a row", *scores[-1][:2])
        except FAILURES:
            if best is None:
                raise
            unknown = np.nan, np.nan, np.nan, np.nan
            scores.append(PointsScore(model.num_inducing, *unknown, time.perf_counter() - began))
        if best is not None and not scores[-1].score > scores[-2].score + GAIN:
            _set_points(model, best.points)
            assign(state_of(model), best.values)
            return tuple(scores), best.record
        values = [variable.numpy() for variable in state_of(model)]
        best = _Trained(_points_of(model), values, record)
        M = scores[-1].num_inducing
        num_points = min(2 * M, len(candidates))
        late = time.perf_counter() + 3.0 * scores[-1].seconds > deadline
        most = most_work or (MOST_WORK if unseen is None else MOST_WORK_UNSEEN)
        dear = num_points > _CHEAP and work_with(model, num_points) > most
        if num_points <= M or dear or late or np.isnan(scores[-1].score):
            return tuple(scores), record
        _set_points(model, _with_more(best.points.Z, candidates, num_points))
        assign(others, start)


def can_double(model: GPModel, scores: Sequence[PointsScore], deadline: float) -> bool:
    """Whether the last number gained, and only work or time ended :func:`add_points`."""
    last = scores[-1]
    gained = last.num_inducing == model.num_inducing and np.isfinite(last.score)
    enough = len(np.unique(np.asarray(model.data[0]), axis=0)) >= 2 * last.num_inducing
    return bool(gained and enough) and time.perf_counter() + 3.0 * last.seconds < deadline


def double_points(model: GPModel, seed: int) -> None:
    """Give a model that :func:`add_points` left twice as many points, and no other parameters."""
    Z = _points_of(model).Z
    _set_points(model, _with_more(Z, _candidates(model, seed), 2 * Z.shape[0]))


def _candidates(model: GPModel, seed: int) -> AnyNDArray:
    """Give the rows at which points are added, distinct ones, in random order."""
    rows: AnyNDArray = np.unique(np.asarray(model.data[0]), axis=0)
    return np.random.default_rng(seed).permutation(rows)


def work_with(model: GPModel, num_points: int) -> float:
    """Describe what an evaluation with so many inducing points costs, in proportion: N M²."""
    size = num_points * len(latent_kernels(model.kernel))
    return float(len(np.asarray(model.data[0])) * size**2)


def _points_of(model: GPModel) -> Any:
    """Give the inducing variables, of mixed latent functions the shared ones."""
    variables = model.inducing_variable
    if isinstance(variables, SharedIndependentInducingVariables) and is_mixed(model.kernel):
        return variables.inducing_variable
    return variables


def _set_points(model: GPModel, points: InducingPoints) -> None:
    mixed = is_mixed(model.kernel)
    model.inducing_variable = share_inducing_variable(points) if mixed else points


class _Trained(NamedTuple):
    points: InducingPoints
    values: list[AnyNDArray]
    record: Any


def _score(
    model: GPModel,
    record: Any,
    densities: Callable[[], AnyNDArray],
    unseen: AnyNDArray | None,
    began: float,
    deadline: float,
) -> PointsScore:
    seconds = time.perf_counter() - began
    rows = slice(None) if unseen is None else unseen
    is_late = time.perf_counter() > deadline
    log_density = _known(lambda: float(np.mean(densities()[rows])), is_late)
    Z = _points_of(model).Z
    is_charged = Z.trainable and unseen is None
    charge = CHARGE * np.prod(Z.shape) / len(model.data[0]) if is_charged else 0.0
    score = log_density - float(charge)
    objective = float(record.objective)
    bound_gap = _known(lambda: _bound_gap(model), is_late)
    return PointsScore(Z.shape[0], score, log_density, objective, bound_gap, seconds)


def _known(compute: Callable[[], float], is_late: bool) -> float:
    """Compute what only describes a model that is trained already; NaN if late or if it fails."""
    try:
        return np.nan if is_late else compute()
    except FAILURES:
        return np.nan


def _bound_gap(model: GPModel) -> float:
    plain = type(model) is PEPRegression and model.memory is None
    plain = plain and not model.takes_missing_targets
    if not plain:
        return np.nan
    parts = model.data, model.kernel, model.inducing_variable
    options: dict[str, Any] = {"likelihood": model.likelihood, "mean_function": model.mean_function}
    bounds = PEPRegression(*parts, alpha=0.0, bound="tight", **options)
    return float(bounds.bound_gap()) / len(model.data[0])


def _with_more(Z: gpflow.Parameter, candidates: AnyNDArray, number: int) -> InducingPoints:
    """Add rows in random order, none of which is a point already.

    Rows of the largest residual variances served no better on the table where both were tried.
    """
    points = Z.numpy()
    known = set(map(bytes, points))
    others = [row for row in candidates[: 2 * number] if bytes(row) not in known]
    points = np.concatenate([points, others[: number - len(points)]])
    return InducingPoints(
        gpflow.Parameter(points, transform=Z.transform, prior=Z.prior, trainable=Z.trainable)
    )


def _check_model(model: Any) -> None:
    kind = isinstance(model, (PEPRegression, PEP))
    if not kind or type(_points_of(model)) is not InducingPoints:
        part = type(_points_of(model) if kind else model).__name__
        raise checks.refusal(
            "num_inducing",
            f"'auto' with {part}",
            "PEPRegression, PEP or PEPClassification with inducing points [M, D]",
            "Leave it out: the model keeps the inducing variables that it has.",
        )
    if model.rows.cut.block_rows is not None:
        raise checks.refusal(
            "num_inducing",
            "'auto' with blocks",
            "rows that can be left out one at a time",
            "Leave it out, and choose the number by rows that you hold out.",
        )
