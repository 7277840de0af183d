"""A progress bar for ``gpflow.monitor``. Tasks of GPflow write and draw the state of
models; see :doc:`/training`::

    with pep.monitor.ProgressBar(100) as bar:
        gpflow.optimizers.Scipy().minimize(
            model.training_loss,
            model.trainable_variables,
            options={"maxiter": 100},
            step_callback=gpflow.monitor.Monitor(gpflow.monitor.MonitorTaskGroup(bar)),
        )
"""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

from gpflow.monitor import MonitorTask

from .engine.refusals import refusal
from .training.fitting.full_batch import bar


class ProgressBar(MonitorTask):
    """A progress bar on stderr, which is shown inside of a ``with`` block.

    :param num_steps: The largest number of steps of the optimiser.
    :param values: A function that computes numbers to show beside the bar, by name,
        such as the loss.
    """

    def __init__(
        self, num_steps: int, values: Callable[[], Mapping[str, float]] | None = None
    ) -> None:
        self._num_steps = num_steps
        self._values = values or dict
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

        :raises ValueError: If the bar is used outside of a ``with`` block.
        """
        if self._show is None:
            expected = "use inside of `with ProgressBar(...) as bar:`"
            remedy = "Put the optimisation inside such a block."
            raise refusal(
                "ProgressBar", "a step before it was entered", expected, remedy
            )
        # Steps count from 0.
        self._show(int(self.current_step) + 1, self._values())
