"""Training of the models of an estimator, within its limits."""

import contextlib
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tf_keras
from gpflow.base import AnyNDArray, RegressionData
from gpflow.models import GPModel
from sklearn.exceptions import ConvergenceWarning

from ...engine.factors import check_num_latent
from ...engine.factors.entries import has_gaussian_noise
from ...engine.prior import latent_kernels
from ...engine.refusals import counted
from ...models import ARPEP, PEPRegression
from ...models.base import q_once
from ...training import (
    Ensemble,
    MaximiseRecord,
    ensemble_of_models,
    ensemble_of_powers,
    ensemble_with_near_rows,
    fit,
    maximise,
    select_alpha,
    shuffled_batches,
)
from ...training.choosing.ensemble import components, ensemble_posterior, heaviest
from ...training.choosing.near import LEAST_ROWS, PRIOR_WEIGHT, takes_near_rows
from ...training.fitting import cheaper
from ...training.fitting.full_batch import NO_STEP
from ...training.fitting.objectives import FAILURES, Objective, WholeLoss
from ...training.fitting.points import OVER, PointsScore, add_points, leave_rows_out

#: Training stops when steps raise log Z by less than TOLERANCE nats for each row, on
#: average over the last WINDOW. At alpha 1 above all, it can go on rising without end
#: as kernel and inducing points fit the training rows ever more closely, and held-out
#: rows no better: docs/training.rst.
TOLERANCE = 1e-4
WINDOW = 10
#: What an evaluation costs is in proportion to N M². Where this is above it, as by 100
#: inducing points on more than 10 000 rows, training begins with some of the rows.
WORK_OF_SUBSETS = 1e8
#: Above this, where an evaluation takes more than a second, some rows train, and never
#: all.
WORK_OF_STEPS = 5e9
#: Up to here powers are mixed with default settings; above, more points take their
#: time. On 7000 rows of ccpp with 100 points the NLPD was -.230 with three powers in 12
#: s, -.106 with one in 7.
WORK_OF_POWERS = 5e8
#: After training, near rows, weights and the posterior of all rows take so many times
#: as long as log densities of rows left out: 8 (100, 200 points, 30 000 rows) to 14
#: (400, 800; 5000 rows).
AFTER = 14.0
#: Rows for each point on which the number of points is chosen, and at least so many.
#: (All rows give ccpp 200 points, .03 nats in three times the seconds; 16 generated
#: tables gain .007 at most.) Of several latent functions, whose integrals take most of
#: the time, half as many: 20 000 rows of three classes had a log loss of .659 in 26 s
#: with 1000 of them, .658 in 77 s with all.
ROWS_PER_POINT = 8
SOME_ROWS = 2000
#: Minibatch training has so many steps at least, and passes over the data; the rate of
#: Adam.
MINIBATCH_STEPS = 3000
MINIBATCH_EPOCHS = 5
RATE = 0.01


@dataclass(frozen=True)
class Training:
    """The settings of training."""

    objective: Objective
    max_iterations: int
    progress: bool  #: Whether there is a bar.
    #: Names all that a compiled loss depends on beside the shapes of parameters and of
    #: X's columns; None: it is not known.
    cache_key: tuple[Any, ...] | None
    #: Gives what holds the data and the loss of a model.
    holder: Callable[[GPModel], Any]
    drops_powers: bool  #: Whether many points leave one power of several.


class Attempts(NamedTuple):
    """What the training of one model is to try."""

    alphas: tuple[float, ...]  #: The power; or those to choose from, or to mix.
    mixes: bool  #: Whether the powers are mixed.
    grows: bool  #: Whether inducing points are added as long as that pays.
    near_rows: bool  #: Whether predictions may use near training rows.
    end: float  #: When it is to end, by ``time.perf_counter``.


class Trained(NamedTuple):
    """A model, or an ensemble of its powers, as it was trained."""

    model: GPModel | Ensemble
    record: MaximiseRecord  #: Of the heaviest component.
    #: Mean log densities of rows left out at each power.
    scores: dict[float, float] | None
    left_out: AnyNDArray | None
    """The numbers of the rows by which all was chosen; None: each row in turn, which is
    optimistic where inducing inputs were trained.
    """

    #: Mean and variance of y of these rows, [S, P] each, under each component.
    moments: Any = ()


def train_model(
    training: Training,
    model: Any,
    data: tuple[AnyNDArray, AnyNDArray],
    attempts: Attempts,
    seed: int,
) -> Trained:
    """Train as is to be tried: as many inducing points as pay, one power or several,
    near rows.

    From :data:`LEAST_ROWS <gpflow_pep.training.choosing.near.LEAST_ROWS>` rows on, rows
    that are left out of training judge all of it, and are given to the models
    afterwards, with the parameters as they are. With fewer they judge the number of
    points only.
    """
    tries = attempts.grows or attempts.mixes or attempts.near_rows
    many = len(data[0]) >= LEAST_ROWS and tries
    trainings = len(attempts.alphas) + (attempts.grows and not many)
    train = Trainer(training, trainings, attempts.end)
    full = model
    left_out = None
    validation: Any = None
    fast: Any = train
    if many and attempts.grows and _begins_with_some(full):
        fast = train.on_some
    growth = _Growth((), {}, "", fast, attempts)
    if many or attempts.grows:
        model, left_out = leave_rows_out(full, seed)
        validation = data[0][left_out], data[1][left_out]
    if attempts.grows:
        growth = _grow(training, model, validation, growth, train, many, seed)
    if not many:
        if attempts.grows:
            full.inducing_variable = model.inducing_variable
        model = full
        left_out = None
        validation = None
    refit = growth.trainer_of_powers(train)
    trained, scores = _with_powers(model, growth.attempts, validation, refit)
    moments: Any = ()
    if validation is not None:
        trained, moments = _judged(trained, attempts, validation)
        for component in components(trained)[0]:
            component.data = data
    record = growth.records[_power(heaviest(trained))]
    record = record._replace(points=growth.points)
    if growth.cut:
        record = _warned(record._replace(converged=False, message=growth.cut))
    return Trained(trained, record, scores, left_out, moments)


class _Growth(NamedTuple):
    """What the choice of the number of inducing points leaves for the powers."""

    points: tuple[PointsScore, ...]
    records: dict[float, MaximiseRecord]  #: Of powers that are trained already.
    cut: str  #: Why more points were not tried, if the time was over.
    train: Callable[..., MaximiseRecord]
    attempts: Attempts

    def trainer_of_powers(self, train: "Trainer") -> Callable[[GPModel], None]:
        """Make what trains a model at its power, and adds to the records."""

        def refit(model: GPModel) -> None:
            alpha = _power(model)
            if alpha in self.records:
                return
            if self.records and time.perf_counter() > train.end:
                raise ValueError(OVER)
            self.records[alpha] = self.train(model)

        return refit


def _grow(
    training: Training,
    model: Any,
    validation: tuple[AnyNDArray, AnyNDArray],
    before: _Growth,
    train: "Trainer",
    many: bool,
    seed: int,
) -> _Growth:
    """Add inducing points to a model as long as rows left out gain.

    :param many: Whether rows that are left out judge powers and near rows too.
    """
    attempts = before.attempts
    after = AFTER if attempts.near_rows and takes_near_rows(model) else 1.0
    ends = {"deadline": train.share_ends(), "after": many * after}
    points, record = add_points(model, before.train, validation, seed=seed, **ends)
    train.end -= many * after * points[-1].judging
    cut = record.message if record.message.startswith(OVER) else ""
    # Its power is trained then, unless all rows are to follow; the others start where
    # it ended.
    records: dict[float, MaximiseRecord] = {}
    if many or time.perf_counter() > train.end:
        records = {_power(model): record}
    growth = _Growth(points, records, cut, before.train, attempts)
    if not (many and isinstance(model, PEPRegression)):
        return growth
    auto = attempts.mixes and training.drops_powers
    if auto and _work(model) > WORK_OF_POWERS:
        attempts = attempts._replace(alphas=(_power(model),), mixes=False)
    # All of these rows train then, in time for as many steps as some took. Tables of
    # 30 000 rows lose .03 to .08 nats by 12 to 15 steps, one of 10 000 gains .14 by 71.
    some_rows = max(ROWS_PER_POINT * model.num_inducing, SOME_ROWS)
    seconds = record.seconds / (some_rows / len(model.data[0]))
    late = time.perf_counter() + seconds > train.end
    if not (late or _work(model) > WORK_OF_STEPS):
        records = {}
    on_all = partial(train, begin_with_some=False)
    return growth._replace(records=records, train=on_all, attempts=attempts)


def _with_powers(
    model: Any,
    attempts: Attempts,
    validation: tuple[AnyNDArray, AnyNDArray] | None,
    refit: Callable[[GPModel], None],
) -> tuple[Any, dict[float, float] | None]:
    """Train at one power, at the best of several, or mix several; with their scores."""
    if not attempts.mixes:
        if len(attempts.alphas) == 1:
            refit(model)
            return model, None
        chosen = select_alpha(
            model, attempts.alphas, validation=validation, refit=refit
        )
        return model, {score.alpha: score.log_density for score in chosen.scores}
    mixed = ensemble_of_powers(model, attempts.alphas, weights="uniform", refit=refit)
    if time.perf_counter() >= attempts.end:
        if len(mixed.models) > 1:
            message = f"{OVER} The powers have equal weights, and near rows were not"
            warnings.warn(f"{message} tried.", ConvergenceWarning, stacklevel=7)
        return mixed, None
    prior: dict[str, Any] = {}
    if validation is not None:
        prior = {"prior_weight": PRIOR_WEIGHT}
    mixed = ensemble_of_models(mixed.models, validation=validation, **prior)
    if len(mixed.models) == 1 or mixed.record is None:
        return mixed, None
    by_power: Any = zip(mixed.record.alphas, mixed.record.log_densities, strict=True)
    return mixed, dict(by_power)


def _judged(
    model: Any, attempts: Attempts, validation: tuple[AnyNDArray, AnyNDArray]
) -> tuple[Any, Any]:
    """Let near rows join, and predict the rows left out under each component."""
    if attempts.near_rows:
        model = _with_near_rows(model, validation)
    if not has_gaussian_noise(heaviest(model).likelihood):
        return model, ()
    with q_once():
        posterior = ensemble_posterior(model)
        return model, posterior.components_of_y(tf.constant(validation[0]))


def _with_near_rows(model: Any, validation: tuple[AnyNDArray, AnyNDArray]) -> Any:
    """Let predictions use near rows, if they can and rows left out gain."""
    with q_once(), contextlib.suppress(*FAILURES):
        # It fails if rows are nearly the same, with hardly any noise.
        models, weights = components(model)
        if all(map(takes_near_rows, models)):
            mixed = ensemble_with_near_rows(Ensemble(models, weights), validation)
            return mixed or model
    return model


def _power(model: Any) -> float:
    """Give the power of a model, or of one that has none a number."""
    return float(model.alpha.numpy()) if hasattr(model, "alpha") else np.nan


def tied_model(Y: AnyNDArray, *parts: Any, alpha: float) -> ARPEP:
    """Make the model that is trained by minibatches, of kernel, likelihood and inducing
    points.
    """
    num_latent = check_num_latent(None, parts[1], tf.constant(Y))
    return ARPEP(*parts, alpha=alpha, num_data=len(Y), num_latent_gps=num_latent)


def train_by_batches(
    training: Training,
    model: ARPEP,
    data: RegressionData,
    batch_size: int,
    seed: int,
    end: float,
) -> int:
    """Train by minibatches until a time, and give the number of steps."""

    def check_time(_: GPModel) -> dict[str, float]:
        if time.perf_counter() > end:
            warnings.warn(
                f"{OVER} Raise max_seconds.", ConvergenceWarning, stacklevel=8
            )
            raise TimeoutError
        return {}

    num_rows = len(data[0])
    batches = shuffled_batches(data, batch_size, seed=seed % 2**31)
    num_steps = max(MINIBATCH_STEPS, MINIBATCH_EPOCHS * num_rows // batch_size)
    num_steps = min(num_steps, training.max_iterations * max(1, num_rows // batch_size))
    optimizer = tf_keras.optimizers.Adam(RATE)
    with contextlib.suppress(TimeoutError):
        fit(
            model,
            batches,
            num_steps=num_steps,
            optimizer=optimizer,
            evaluate=check_time,
            evaluate_every=10,
            progress=training.progress,
        )
    return int(optimizer.iterations)


def _work(model: Any) -> float:
    """Describe what an evaluation costs, in proportion: N M²."""
    M = model.num_inducing * len(latent_kernels(model.kernel))
    return float(len(model.data[0]) * M**2)


def _begins_with_some(model: GPModel) -> bool:
    """Whether some of many rows are trained on first: where a step on all of them takes
    long.
    """
    is_slow = (
        isinstance(model, PEPRegression) or getattr(model, "num_latent_gps", 1) > 1
    )
    return is_slow and cheaper.has_subsets(model)


class Trainer:
    """
    Trains models that differ in rows and parameters, with one compilation where that is
    possible.

    :param training: The settings.
    :param num_trainings: Among how many the seconds are shared, if there is a limit.
    :param end: When they are to end, by ``time.perf_counter``.
    """

    def __init__(self, training: Training, num_trainings: int, end: float) -> None:
        self._training = training
        self._left = num_trainings
        self.end = end
        self._loss: WholeLoss | None = None
        self._compiled_for: tuple[Any, Any] = None, None

    def share_ends(self) -> float:
        """Find when the share of the seconds that the next training takes
        will be over.
        """
        now = time.perf_counter()
        share = 1.0 / max(self._left, 1)
        self._left -= 1
        return now + share * (self.end - now)

    def __call__(
        self,
        model: GPModel,
        deadline: float | None = None,
        begin_with_some: bool = True,
    ) -> MaximiseRecord:
        """Train a model until a deadline, or for its share of the seconds that are
        left.

        :param begin_with_some: Whether some of many rows may be trained on first.
        """
        deadline = self.share_ends() if deadline is None else deadline
        if (
            begin_with_some
            and _begins_with_some(model)
            and time.perf_counter() < deadline
        ):
            has_integrals = not isinstance(model, PEPRegression)
            has_many = has_integrals and len(model.data[0]) > SOME_ROWS
            if _work(model) > WORK_OF_SUBSETS or has_many:
                record = self.on_some(model, deadline)
                if time.perf_counter() > deadline:
                    return record._replace(objective=np.nan)
        record = self._maximise(model, deadline)
        if record.message.startswith(NO_STEP) and time.perf_counter() < deadline:
            # Once more from there, without the steps that L-BFGS remembers.
            again = self._maximise(model, deadline)
            num_rows = len(self._training.holder(model).data[0])
            gain = (again.objective - record.objective) / num_rows
            if again.message == NO_STEP and gain < TOLERANCE:
                message = f"Another run from there gained {gain:.2g} nats a row."
                again = again._replace(converged=True, message=message)
            total = record.iterations + again.iterations, record.seconds + again.seconds
            record = again._replace(iterations=total[0], seconds=total[1])
        return _warned(record)

    def on_some(self, model: GPModel, deadline: float | None = None) -> MaximiseRecord:
        """Train on some rows, see :func:`~gpflow_pep.training.maximise_on_subset`."""
        deadline = self.share_ends() if deadline is None else deadline
        size = max(ROWS_PER_POINT * model.num_inducing, SOME_ROWS)
        limits = cheaper.TOLERANCE, cheaper.WINDOW
        if not isinstance(model, PEPRegression):
            size = size // 2
            limits = (TOLERANCE, WINDOW)
        sampled = cheaper.on_some_rows(model, size, 0)
        return _warned(self._maximise(sampled, deadline, *limits))

    def _maximise(
        self,
        model: GPModel,
        deadline: float,
        tolerance: float = TOLERANCE,
        window: int = WINDOW,
    ) -> MaximiseRecord:
        """Maximise the objective by a loss that was compiled before if it can."""
        training = self._training
        objective = training.objective
        trained = training.holder(model)
        options: dict[str, Any] = {"tolerance": tolerance, "window": window}
        options["max_iterations"] = training.max_iterations
        options["progress"] = training.progress
        options["seconds"] = max(deadline - time.perf_counter(), 1e-3)
        if training.cache_key is not None and cheaper.fits_one_chunk(model):
            cached: dict[str, Any] = {
                "cache_key": training.cache_key,
                "objective": objective,
            }
            return cheaper.thread_cache().maximise(trained, **cached, **options)
        points = getattr(model, "inducing_variable", None)
        before, points_before = self._compiled_for
        if self._loss is None or before is not model or points_before is not points:
            self._loss = WholeLoss(trained, objective=objective)
            self._compiled_for = model, points
        return maximise(self._loss, **options)


def _warned(record: MaximiseRecord) -> MaximiseRecord:
    """Warn of training that did not come to its end."""
    if not record.converged:
        text = (
            f"Training ended after {counted(record.iterations, 'step')}:"
            f" {record.message} Raise"
        )
        text += " max_iterations or max_seconds, or start from another kernel."
        warnings.warn(text, ConvergenceWarning, stacklevel=5)
    return record
