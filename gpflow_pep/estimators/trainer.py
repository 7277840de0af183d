"""Training of the models of an estimator, within its limits."""

import time
import warnings
from typing import Any

import numpy as np
from gpflow.models import GPModel
from sklearn.exceptions import ConvergenceWarning

from ..training import MaximiseRecord, maximise
from ..training.shared import fits_one_chunk, thread_cache
from ..training.whole_loss import WholeLoss

#: Training stops when steps raise log Z by less than TOLERANCE nats for each row, on average over
#: the last WINDOW. At alpha 1 above all, it can go on rising without end as kernel and inducing
#: points fit the training rows ever more closely, and held-out rows no better: docs/training.rst.
TOLERANCE, WINDOW = 1e-4, 10


class Trainer:
    """
    Trains models that differ in rows and parameters, with one compilation where that is possible.

    :param estimator: Whose settings these are.
    :param num_trainings: Among how many the seconds are shared, if there is a limit.
    """

    def __init__(self, estimator: Any, num_trainings: int) -> None:
        self._estimator, self._left = estimator, num_trainings
        seconds = estimator.max_seconds
        self._end = None if seconds is None else time.perf_counter() + seconds
        self._key = estimator._cache_key()
        self._loss: WholeLoss | None = None
        self._compiled_for: Any = None

    def share_ends(self) -> float:
        """Say when the share of the seconds that the next training takes will be over."""
        now, share = time.perf_counter(), 1.0 / max(self._left, 1)
        self._left -= 1
        return np.inf if self._end is None else now + share * (self._end - now)

    def __call__(self, model: GPModel, deadline: float | None = None) -> MaximiseRecord:
        """Train a model until a deadline, or for its share of the seconds that are left."""
        estimator = self._estimator
        deadline = self.share_ends() if deadline is None else deadline
        options: dict[str, Any] = {
            "tolerance": TOLERANCE,
            "window": WINDOW,
            "max_iterations": estimator.max_iterations,
            "progress": estimator.verbose,
        }
        if self._end is not None:
            options["seconds"] = max(deadline - time.perf_counter(), 1e-3)
        trained, objective = estimator._training_model(model), estimator._objective()
        if self._key is not None and fits_one_chunk(model):
            cache = thread_cache()
            record = cache.maximise(trained, cache_key=self._key, objective=objective, **options)
        else:
            points = getattr(model, "inducing_variable", None)
            if self._loss is None or self._compiled_for is not points:
                self._loss, self._compiled_for = WholeLoss(trained, objective=objective), points
            record = maximise(self._loss, **options)
        if not record.converged:
            warnings.warn(
                f"Training ended after {record.iterations} steps: {record.message} Raise"
                " max_iterations or max_seconds, or start from another kernel.",
                ConvergenceWarning,
                stacklevel=4,
            )
        return record
