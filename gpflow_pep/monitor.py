"""Tasks for ``gpflow.monitor``: convergence of the sites, calibration of classes, a bar::

    from gpflow.monitor import Monitor, MonitorTaskGroup

    with pep.monitor.ProgressBar(100) as bar:
        monitor = Monitor(
            MonitorTaskGroup([bar, pep.monitor.SitesToTensorBoard("logs", model)]),
            MonitorTaskGroup(pep.monitor.CalibrationToTensorBoard("logs", model, data), period=10),
        )
        gpflow.optimizers.Scipy().minimize(
            model.training_loss,
            model.trainable_variables,
            options={"maxiter": 100},
            step_callback=monitor,
        )

What is written for TensorBoard needs the package ``tensorboard``, images need ``matplotlib``.
"""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import RegressionData
from gpflow.models import GPModel
from gpflow.monitor import ImageToTensorBoard, MonitorTask, ToTensorBoard

from . import metrics, plotting
from .engine.checks import refusal
from .engine.refusals import absent
from .engine.sites.record import FALLBACKS
from .models import PEP
from .training.fitting.full_batch import bar

__getattr__ = absent(__name__)


class SitesToTensorBoard(ToTensorBoard):
    """The record of the inner loop's newest run, as scalars ``sites/...``.

    They are ``residual``, ``num_sweeps``, ``num_rejected``, ``converged`` (1 or 0) and ``fallback``
    (0 for none, else its place in :data:`gpflow_pep.engine.sites.record.FALLBACKS`). Nothing is
    computed for it.

    :param log_dir: Where to write.
    :param model: A model with sites.
    :raises ValueError: If the model has none.
    """

    def __init__(self, log_dir: str, model: PEP) -> None:
        if not isinstance(model, PEP):
            expected = "PEP or PEPClassification, whose sites an inner loop brings to a fixed point"
            raise refusal("model", type(model).__name__, expected, "Leave this task out.")
        super().__init__(log_dir)
        self.model = model

    def run(self, **unused_kwargs: Any) -> None:
        """Write the scalars."""
        record = self.model.last_inference._asdict()
        record["fallback"] = FALLBACKS.index(record["fallback"])
        for name, value in record.items():
            tf.summary.scalar(f"sites/{name}", float(value), step=self.current_step)


class CalibrationToTensorBoard(ImageToTensorBoard):
    """How often predictions of classes are right, against their probability, as an image.

    :param log_dir: Where to write.
    :param model: A model of classes.
    :param data: Held-out X [N, D] and labels Y [N, 1].
    :param name: The image's name.
    :raises ValueError: If the model does not predict classes, or a label is none of them.
    """

    def __init__(
        self, log_dir: str, model: GPModel, data: RegressionData, *, name: str = "calibration"
    ) -> None:
        predict = plotting.predictor(model)
        X, Y = np.asarray(data[0]), np.asarray(data[1])
        labels = metrics.check_labels("Y", Y[:, 0], np.asarray(predict(X[:1])).shape[1])

        def draw(figure: Any, axes: Any) -> None:
            plotting.reliability(labels, predict(X), ax=axes)

        super().__init__(log_dir, draw, name)


class ProgressBar(MonitorTask):
    """A bar on stderr, for as long as it is entered with ``with``.

    :param num_steps: How many steps the optimiser takes at most.
    :param values: Computes what to show beside the bar, numbers by name, such as the loss.
    """

    def __init__(
        self, num_steps: int, values: Callable[[], Mapping[str, float]] | None = None
    ) -> None:
        self._num_steps, self._values = num_steps, values or dict
        self._open = ExitStack()
        self._show: Callable[[int, Mapping[str, float]], None] | None = None

    def __enter__(self) -> "ProgressBar":
        self._show = self._open.enter_context(bar(True, self._num_steps))
        return self

    def __exit__(self, *exception: Any) -> None:
        self._show = None
        self._open.close()

    def run(self, **unused_kwargs: Any) -> None:
        """Move the bar.

        :raises ValueError: If it was not entered.
        """
        if self._show is None:
            expected = "to be in use as `with ProgressBar(...) as bar:`"
            remedy = "Put the optimisation inside of such a block."
            raise refusal("ProgressBar", "a step before it was entered", expected, remedy)
        # Steps count from 0.
        self._show(int(self.current_step) + 1, self._values())
