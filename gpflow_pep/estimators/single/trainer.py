"""Training of the models of an estimator, within its limits of time and steps."""

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
from ...engine.left_out_rows import LEAST_ROWS
from ...engine.prior import latent_kernels
from ...engine.records import OVER, MaximiseRecord, PointsScore
from ...engine.refusals import counted
from ...models import ARPEP, PEPRegression
from ...models.base import q_once
from ...training import (
    Ensemble,
    ensemble_of_models,
    ensemble_of_powers,
    ensemble_with_near_rows,
    fit,
    maximise,
    select_alpha,
    shuffled_batches,
)
from ...training.choosing.ensemble import components, ensemble_posterior, heaviest
from ...training.choosing.near import PRIOR_WEIGHT, takes_near_rows
from ...training.fitting import cheaper
from ...training.fitting.full_batch import NO_STEP
from ...training.fitting.objectives import FAILURES, Objective, WholeLoss
from ...training.fitting.points import add_points, leave_rows_out

#: Training stops when steps raise log Z by less than TOLERANCE nats for each row, on
#: average over the last WINDOW steps. Above all at alpha 1, log Z can rise without end,
#: as kernel and inducing points fit the training rows ever more closely, but held-out
#: rows no better: docs/training.rst.
TOLERANCE = 1e-4
WINDOW = 10
#: The cost of an evaluation is proportional to N M². If N M² is larger than this, for
#: example with 100 inducing points and more than 10 000 rows, training begins with some
#: of the rows.
WORK_OF_SUBSETS = 1e8
#: If N M² is larger than this, an evaluation takes more than a second, and training
#: uses only some of the rows.
WORK_OF_STEPS = 5e9
#: Default settings mix powers up to this N M²; above it, the time is better spent on
#: more points. On 7000 rows of ccpp with 100 points the NLPD was -.230 with three
#: powers in 12 s, and -.106 with one power in 7 s.
WORK_OF_POWERS = 5e8
#: After training, near rows, weights and the posterior of all rows take this number of
#: times as long as log densities of left-out rows: 8 (100 or 200 points, 30 000 rows)
#: to 14 (400 or 800 points, 5000 rows).
AFTER = 14.0
#: The number of points is chosen on this number of rows for each point, and on at least
#: this number of rows. (With all rows ccpp gets 200 points and gains .03 nats in three
#: times the time; 16 generated tables gain at most .007.) With several latent
#: functions, whose integrals take most of the time, it is chosen on half as many rows:
#: 20 000 rows of three classes had a log loss of .659 in 26 s with 1000 rows, and .658
#: in 77 s with all rows.
ROWS_PER_POINT = 8
SOME_ROWS = 2000
#: The smallest number of steps of training with minibatches; its number of passes over
#: the data; and the learning rate of Adam.
MINIBATCH_STEPS = 3000
MINIBATCH_EPOCHS = 5
RATE = 0.01


@dataclass(frozen=True)
class Training:
    """The settings of training."""

    objective: Objective
    max_iterations: int
    progress: bool  #: Whether to show a progress bar.
    #: Identifies everything that a compiled loss depends on, except the shapes of
    #: parameters and of X's columns; None if that is not known.
    cache_key: tuple[Any, ...] | None
    #: A function that returns the object with the data and the loss of a model.
    holder: Callable[[GPModel], Any]
    #: Whether only one of several powers is kept if there are many points.
    drops_powers: bool


class Attempts(NamedTuple):
    """What the training of one model tries."""

    alphas: tuple[float, ...]  #: The power, or several powers to choose from or to mix.
    mixes: bool  #: Whether the powers are mixed.
    #: Whether inducing points are added as long as that improves predictions.
    grows: bool
    near_rows: bool  #: Whether predictions may use near training rows.
    end: float  #: The time at which training has to end, by ``time.perf_counter``.


class Trained(NamedTuple):
    """A trained model, or an ensemble of models at several powers."""

    model: GPModel | Ensemble
    record: MaximiseRecord  #: The record of the component with the largest weight.
    #: The mean log density of left-out rows at each power.
    scores: dict[float, float] | None
    left_out: AnyNDArray | None
    """The numbers of the left-out rows that decided between models; None if each row
    was left out in turn, which is optimistic if inducing inputs were trained.
    """

    #: Mean and variance of y at these rows, [S, P] each, under each component.
    moments: Any = ()


def train_model(
    training: Training,
    model: Any,
    data: tuple[AnyNDArray, AnyNDArray],
    attempts: Attempts,
    seed: int,
) -> Trained:
    """Train a model with all attempts: adding inducing points, one or several powers,
    and near rows.

    With :data:`LEAST_ROWS <gpflow_pep.engine.left_out_rows.LEAST_ROWS>` rows or more,
    rows that are left out of training decide between all attempts. They are added to
    the models afterwards, and the parameters stay the same. With fewer rows, left-out
    rows decide only on the number of points.
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
    """The result of choosing the number of inducing points, for the training of the
    powers.
    """

    points: tuple[PointsScore, ...]
    #: The records of powers that are trained already.
    records: dict[float, MaximiseRecord]
    cut: str  #: Why no more points were tried, if the time ran out.
    train: Callable[..., MaximiseRecord]
    attempts: Attempts

    def trainer_of_powers(self, train: "Trainer") -> Callable[[GPModel], None]:
        """Make a function that trains a model at its power and adds to the records."""

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
    """Add inducing points to a model as long as predictions of left-out rows improve.

    :param many: Whether left-out rows also decide on powers and near rows.
    """
    attempts = before.attempts
    after = AFTER if attempts.near_rows and takes_near_rows(model) else 1.0
    ends = {"deadline": train.share_ends(), "after": many * after}
    points, record = add_points(model, before.train, validation, seed=seed, **ends)
    train.end -= many * after * points[-1].judging
    cut = record.message if record.message.startswith(OVER) else ""
    # The model's power is then trained already, unless training on all rows follows;
    # the other powers start where it ended.
    records: dict[float, MaximiseRecord] = {}
    if many or time.perf_counter() > train.end:
        records = {_power(model): record}
    growth = _Growth(points, records, cut, before.train, attempts)
    if not (many and isinstance(model, PEPRegression)):
        return growth
    auto = attempts.mixes and training.drops_powers
    if auto and _work(model) > WORK_OF_POWERS:
        attempts = attempts._replace(alphas=(_power(model),), mixes=False)
    # Training then continues on all of these rows, if there is time for as many steps
    # as on some of them. On tables of 30 000 rows, 12 to 15 steps lose .03 to .08 nats;
    # on one of 10 000 rows, 71 steps gain .14.
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
    """Train at one power, choose the best of several powers, or mix them; return the
    scores of the powers too.
    """
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
    """Let predictions use near rows if that improves them, and predict the left-out
    rows with each component.
    """
    if attempts.near_rows:
        model = _with_near_rows(model, validation)
    if not has_gaussian_noise(heaviest(model).likelihood):
        return model, ()
    with q_once():
        posterior = ensemble_posterior(model)
        return model, posterior.components_of_y(tf.constant(validation[0]))


def _with_near_rows(model: Any, validation: tuple[AnyNDArray, AnyNDArray]) -> Any:
    """Let predictions use near rows, if the model can and if predictions of left-out
    rows improve.
    """
    with q_once(), contextlib.suppress(*FAILURES):
        # This fails if rows are nearly equal and there is hardly any noise.
        models, weights = components(model)
        if all(map(takes_near_rows, models)):
            mixed = ensemble_with_near_rows(Ensemble(models, weights), validation)
            return mixed or model
    return model


def _power(model: Any) -> float:
    """Return the power of a model; NaN if it has none."""
    return float(model.alpha.numpy()) if hasattr(model, "alpha") else np.nan


def tied_model(Y: AnyNDArray, *parts: Any, alpha: float) -> ARPEP:
    """Make the model for training with minibatches from kernel, likelihood and inducing
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
    """Train with minibatches until the given time, and return the number of steps."""

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
    """Compute N M², to which the cost of an evaluation is proportional."""
    M = model.num_inducing * len(latent_kernels(model.kernel))
    return float(len(model.data[0]) * M**2)


def _begins_with_some(model: GPModel) -> bool:
    """Whether training begins with some of the rows, because a step on all rows takes
    long.
    """
    is_slow = (
        isinstance(model, PEPRegression) or getattr(model, "num_latent_gps", 1) > 1
    )
    return is_slow and cheaper.has_subsets(model)


class Trainer:
    """
    Trains models that differ in rows and parameters, with one compilation if possible.

    :param training: The settings.
    :param num_trainings: The number of trainings that share the time, if it is limited.
    :param end: The time at which all of them have to end, by ``time.perf_counter``.
    """

    def __init__(self, training: Training, num_trainings: int, end: float) -> None:
        self._training = training
        self._left = num_trainings
        self.end = end
        self._loss: WholeLoss | None = None
        self._compiled_for: tuple[Any, Any] = None, None

    def share_ends(self) -> float:
        """Compute the time at which the next training has used up its share."""
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
        """Train a model until a deadline, or for its share of the remaining time.

        :param begin_with_some: Whether training may begin with some of the rows.
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
            # Run L-BFGS once more from there, without its memory of earlier steps.
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
        """Train on some rows; see :func:`~gpflow_pep.training.maximise_on_subset`."""
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
        """Maximise the objective, with a loss that was compiled before if there is
        one.
        """
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
    """Warn if training ended before it converged."""
    if not record.converged:
        text = (
            f"Training ended after {counted(record.iterations, 'step')}:"
            f" {record.message} Raise"
        )
        text += " max_iterations or max_seconds, or start from another kernel."
        warnings.warn(text, ConvergenceWarning, stacklevel=5)
    return record
