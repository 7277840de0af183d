"""Training of the models of an estimator, within its limits."""

import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras
from gpflow.base import AnyNDArray, RegressionData
from gpflow.models import GPModel
from sklearn.exceptions import ConvergenceWarning

from ..engine.factors import check_num_latent
from ..models import ARPEP, PEPRegression
from ..training import MaximiseRecord, fit, maximise, shuffled_batches
from ..training.fitting import cheaper
from ..training.fitting.full_batch import NO_STEP, OVER
from ..training.fitting.objectives import WholeLoss
from ..training.fitting.points import (
    MANY,
    MOST_WORK,
    PointsScore,
    add_points,
    can_double,
    double_points,
    work_with,
)

#: Training stops when steps raise log Z by less than TOLERANCE nats for each row, on average over
#: the last WINDOW. At alpha 1 above all, it can go on rising without end as kernel and inducing
#: points fit the training rows ever more closely, and held-out rows no better: docs/training.rst.
TOLERANCE, WINDOW = 1e-4, 10
#: What an evaluation costs is in proportion to N M². Where this is above :data:`WORK_OF_SUBSETS`,
#: as by 100 inducing points on more than 10 000 rows, training begins with some of the rows. Where
#: the number of points is chosen too, it has so many steps that all together are
#: :data:`WORK_OF_TRAINING`, and at least :data:`LEAST_STEPS`: the last ones gain least.
WORK_OF_SUBSETS, WORK_OF_TRAINING, LEAST_STEPS = 1e8, 6e10, 30
#: With several latent functions it has so many steps that their rows are together as many as this.
#: 20 000 rows of three classes: 77 s and a log loss of .658 with all steps, 26 s, .659 with none.
ROWS_OF_STEPS = 16_000
#: Rows on which the number of points is chosen where densities of all take long: twice what
#: train with 50 points.
SOME_ROWS = 2000
#: Minibatch training has so many steps at least, and passes over the data; the rate of Adam.
MINIBATCH_STEPS, MINIBATCH_EPOCHS, RATE = 3000, 5, 0.01


def tied_model(Y: AnyNDArray, *parts: Any, alpha: float) -> ARPEP:
    """Make the model that is trained by minibatches, of kernel, likelihood and inducing points."""
    num_latent = check_num_latent(None, parts[1], tf.constant(Y))
    return ARPEP(*parts, alpha=alpha, num_data=len(Y), num_latent_gps=num_latent)


def train_by_batches(
    estimator: Any, model: ARPEP, data: RegressionData, batch_size: int, seed: int
) -> int:
    """Train by minibatches, and give the number of steps."""
    num_rows = len(data[0])
    batches = shuffled_batches(data, batch_size, seed=seed % 2**31)
    num_steps = max(MINIBATCH_STEPS, MINIBATCH_EPOCHS * num_rows // batch_size)
    num_steps = min(num_steps, estimator.max_iterations * max(1, num_rows // batch_size))
    optimizer = tf_keras.optimizers.Adam(RATE)
    fit(model, batches, num_steps=num_steps, optimizer=optimizer, progress=estimator.verbose)
    return num_steps


def _begins_with_some(model: GPModel) -> bool:
    """Whether some of many rows are trained on first: where a step on all of them takes long."""
    is_slow = isinstance(model, PEPRegression) or getattr(model, "num_latent_gps", 1) > 1
    return is_slow and cheaper.has_subsets(model)


class Trainer:
    """
    Trains models that differ in rows and parameters, with one compilation where that is possible.

    :param estimator: Whose settings these are.
    :param num_trainings: Among how many the seconds are shared, if there is a limit.
    :param seconds: The limit; None: there is none.
    :param limits_work: Whether there are fewer steps where they are much work.
    """

    def __init__(
        self, estimator: Any, num_trainings: int, seconds: float | None, limits_work: bool = False
    ) -> None:
        self._estimator, self._left = estimator, num_trainings
        self._limits_work, self._work = limits_work, WORK_OF_TRAINING
        self.end = np.inf if seconds is None else time.perf_counter() + seconds
        self._key = estimator._cache_key()
        self._loss: WholeLoss | None = None
        self._compiled_for: tuple[Any, Any] = None, None

    def share_ends(self) -> float:
        """Find when the share of the seconds that the next training takes will be over."""
        now, share = time.perf_counter(), 1.0 / max(self._left, 1)
        self._left -= 1
        return now + share * (self.end - now)

    def __call__(
        self, model: GPModel, deadline: float | None = None, trained: MaximiseRecord | None = None
    ) -> MaximiseRecord:
        """Train a model until a deadline, or for its share of the seconds that are left.

        :param trained: How its parameters were trained already; None: they are those of a start.
        """
        estimator = self._estimator
        deadline = self.share_ends() if deadline is None else deadline
        options: dict[str, Any] = {
            "tolerance": TOLERANCE,
            "window": WINDOW,
            "max_iterations": estimator.max_iterations,
            "progress": estimator.verbose,
        }
        most, can_take_some = estimator.max_iterations, _begins_with_some(model)
        # Comparisons train models of others too.
        work_matters = self._limits_work or can_take_some
        work = work_with(model, model.num_inducing) if work_matters else 0.0
        # Integrals over several latent functions take most of the time, whatever M is.
        has_integrals = can_take_some and not isinstance(model, PEPRegression)
        is_long = work > WORK_OF_SUBSETS or (has_integrals and len(model.data[0]) >= MANY)
        if is_long and trained is None and can_take_some and time.perf_counter() < deadline:
            trained = self.train_on_some(model, deadline)
        if is_long and has_integrals and self._limits_work:
            most = ROWS_OF_STEPS // len(model.data[0])
        elif work > WORK_OF_SUBSETS and self._limits_work:
            most = max(int(self._work / work), LEAST_STEPS)
        options["max_iterations"] = max(min(most, estimator.max_iterations), 1)
        is_over = trained is not None and time.perf_counter() > deadline
        if trained is not None and is_over:
            record = trained._replace(objective=np.nan, converged=False, message=OVER)
        elif trained is not None and most == 0:
            loss = WholeLoss(estimator._training_model(model), objective=estimator._objective())
            settled = loss.settle()
            record = trained._replace(objective=np.nan if settled is None else settled)
        else:
            record = self._maximise(model, options | self._seconds(deadline))
        if record.message.startswith(NO_STEP) and time.perf_counter() < deadline:
            # Once more from there, without the steps that L-BFGS remembers.
            again = self._maximise(model, options | self._seconds(deadline))
            num_rows = len(estimator._training_model(model).data[0])
            gain = (again.objective - record.objective) / num_rows
            if again.message == NO_STEP and gain < TOLERANCE:
                message = f"Another run from there gained {gain:.2g} nats a row."
                again = again._replace(converged=True, message=message)
            record = again._replace(
                iterations=record.iterations + again.iterations,
                seconds=record.seconds + again.seconds,
            )
        enough = most <= record.iterations < estimator.max_iterations and not is_over
        if not (record.converged or enough):
            warnings.warn(
                f"Training ended after {record.iterations} steps: {record.message} Raise"
                " max_iterations or max_seconds, or start from another kernel.",
                ConvergenceWarning,
                stacklevel=4,
            )
        return record

    def _maximise(self, model: GPModel, options: dict[str, Any]) -> MaximiseRecord:
        """Maximise the objective on all rows, by a loss that was compiled before if it can."""
        estimator = self._estimator
        objective, trained = estimator._objective(), estimator._training_model(model)
        if self._key is not None and cheaper.fits_one_chunk(model):
            cache = cheaper.thread_cache()
            return cache.maximise(trained, cache_key=self._key, objective=objective, **options)
        points = getattr(model, "inducing_variable", None)
        before, points_before = self._compiled_for
        if self._loss is None or before is not model or points_before is not points:
            self._loss = WholeLoss(trained, objective=objective)
            self._compiled_for = model, points
        return maximise(self._loss, **options)

    def with_more_points(
        self, model: GPModel, lacks_points: Callable[[GPModel, AnyNDArray], bool], seed: int
    ) -> tuple[tuple[PointsScore, ...], MaximiseRecord, bool]:
        """Train with as many inducing points as pay, as long as one power may take.

        :param lacks_points: Whether these are too few, by rows that training has not seen.
        :return: Also, whether there are twice as many then, which take the time of all powers.
        """
        deadline = self.share_ends()
        if not _begins_with_some(model) or len(model.data[0]) < MANY:
            train = partial(self, deadline=deadline)
            return *add_points(model, train, seed=seed, deadline=deadline), False
        # Densities of all rows that training has not seen would take as long as training on all.
        some = model if isinstance(model, PEPRegression) else cheaper.with_rows(model, SOME_ROWS, 0)
        train_on_some = partial(self.train_on_some, deadline=deadline)
        unseen = cheaper.halves(some, 0)[1]
        most = None if some is model else MOST_WORK * SOME_ROWS / len(model.data[0])
        points, record = add_points(
            some, train_on_some, seed=seed, deadline=deadline, unseen=unseen, most_work=most
        )
        if some is not model:
            model.inducing_variable = some.inducing_variable
        doubled = can_double(model, points, self.end) and lacks_points(model, unseen)
        if doubled:
            double_points(model, seed)
            self._work *= 1 + self._left  # it may do the work of the other powers too
        return points, self(model, self.end if doubled else deadline, record), doubled

    def train_on_some(self, model: GPModel, deadline: float) -> MaximiseRecord:
        """Train on some rows, see :func:`~gpflow_pep.training.maximise_on_subset`."""
        estimator = self._estimator
        options = {"tolerance": TOLERANCE, "window": WINDOW}  # few steps follow, or none
        if isinstance(model, PEPRegression):
            options = {"tolerance": cheaper.TOLERANCE, "window": cheaper.WINDOW}
        options |= {"max_iterations": estimator.max_iterations, "progress": estimator.verbose}
        some = cheaper.with_rows(model, cheaper.default_number(model, 0), 0)
        return self._maximise(some, options | self._seconds(deadline))

    def _seconds(self, deadline: float) -> dict[str, float]:
        """Give the seconds that are left until a deadline, if there is a limit."""
        return {} if self.end == np.inf else {"seconds": max(deadline - time.perf_counter(), 1e-3)}
