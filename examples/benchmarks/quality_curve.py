"""Scores along a fit, by the time since it began; it needs NumPy alone, for peers'
interpreters.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

#: The next point of a curve is due when the time has grown by this factor.
GROWTH = 1.4
#: As if the time were so many seconds at least.
SHORT = 0.05
#: How many times longer a run should be than the one before it, of runs of growing
#: length.
LONGER = 3


class Over(Exception):
    """The time of a run is over: raised where an optimiser calls back, to end it."""


class Point(NamedTuple):
    """A score, and the time of training that it took."""

    processor: float
    """Seconds of all threads together, without what was spent on scores."""

    wall: float
    kind: str
    """How it was predicted, where a model can do so in several ways."""

    scores: Any


class Curve:
    """
    Points of one run, or of runs of growing length, which each begin anew.

    :param limit: Seconds of processor time, after which :attr:`is_over`.
    :param score: What is kept of predictions. What it takes is no part of the times.
    """

    def __init__(self, limit: float, score: Callable[..., Any]) -> None:
        self.limit = limit
        self.score = score
        self.points: list[Point] = []
        self.begin()

    def begin(self) -> None:
        """Begin a run at time 0."""
        self.start = time.process_time(), time.perf_counter()
        self.next_point = 0.0

    @property
    def processor(self) -> float:
        return time.process_time() - self.start[0]

    @property
    def is_over(self) -> bool:
        return self.processor > self.limit

    def permits_longer(self) -> bool:
        """
        Find whether a run of :data:`LONGER` times as many steps as the last should end
        in time.

        The last two say what steps take beside what comes before them; a second run is
        tried.
        """
        times = [point.processor for point in self.points[-2:]]
        if len(times) < 2:
            return not times or times[0] < self.limit
        return times[1] + LONGER * max(times[1] - times[0], 0.0) < self.limit

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Leave what is done inside out of the times."""
        began = time.process_time(), time.perf_counter()
        try:
            yield
        finally:
            spent = time.process_time() - began[0], time.perf_counter() - began[1]
            self.start = self.start[0] + spent[0], self.start[1] + spent[1]

    def add(self, predict: Callable[[], Any], kind: str = "") -> None:
        """Score what the function predicts."""
        times = self.processor, time.perf_counter() - self.start[1]
        with self.pause():
            self.points.append(Point(*times, kind, self.score(*predict())))
        self.next_point = GROWTH * max(times[0], SHORT)

    def look(self, **predictions: Callable[[], Any]) -> None:
        """
        Call back of an optimiser: add a point of each kind where one is due.

        :raises Over: When the time is over.
        """
        over = self.is_over
        if over or self.processor >= self.next_point:
            for kind, predict in predictions.items():
                self.add(predict, kind)
        if over:
            raise Over
