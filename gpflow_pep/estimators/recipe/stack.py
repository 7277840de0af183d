"""Components, and how their distributions are mixed."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from gpflow.base import AnyNDArray

from ...distributions import Predictive, Recalibration


class Stack(NamedTuple):
    """Components, and how their distributions are mixed."""

    components: tuple[Any, ...]  #: Fitted estimators, all of whose settings are named.
    weights: AnyNDArray  #: Of the densities, [K], of sum 1.
    mean_weights: AnyNDArray  #: Of the means, [K], of sum 1.
    recalibration: Recalibration | None  #: None: rows were not left out honestly.
    lines: tuple[str, ...]  #: What was tried and kept, and why.
    #: Of several columns of y, the number of the component that predicts each, [P], and
    #: of the one that does so if other targets of the row are known; None: all
    #: components predict all columns. A weight is then the share of columns.
    places: Sequence[int] | None = None
    known_places: Sequence[int] | None = None

    @property
    def heaviest(self) -> Any:
        """The component of the largest weight."""
        return self.components[int(np.argmax(self.weights))]

    def by_column(self, compute: Callable[[Any], AnyNDArray]) -> AnyNDArray:
        """Compute values of rows, [N, ...] or [N, P, ...], by the components that
        predict a column, and take those of each column, [N, P, ...].
        """
        places = self.places or ()
        values = {place: compute(self.components[place]) for place in set(places)}
        columns = [
            values[place][:, p]
            if self.components[place].n_outputs_ > 1
            else values[place]
            for p, place in enumerate(places)
        ]
        return np.stack(columns, axis=1)

    def mixed(self, parts: Sequence[Predictive]) -> Predictive:
        """Mix the components' distributions of the same rows."""
        return Predictive.mixed(
            parts, self.weights, self.mean_weights, self.recalibration
        )
