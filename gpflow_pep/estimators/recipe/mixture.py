"""Single models whose distributions are mixed, and models of columns of y."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...distributions import Predictive, Recalibration
from ...distributions.cutting import cuts_reported
from ...distributions.mixtures import (
    draws_of_mixture,
    far_by_components,
    mixed_probabilities,
)
from ...distributions.predictive import PredictiveOfColumns
from ...engine.refusals.arrays import AnyNDArray
from ..single.inputs import seed_of
from ..single.model import SingleModel
from ..single.settings import ModelSettings


@dataclass(eq=False)
class Mixture:
    """Single models, and how their distributions are mixed.

    In all methods rows are inputs, [N, D], in original units.
    """

    components: tuple[Any, ...]  #: Single models.
    settings: ModelSettings  #: The settings with which the recipe trained it.
    lines: tuple[str, ...]  #: What was tried and kept, and why.
    weights: AnyNDArray  #: The weights of the densities, [K]; their sum is 1.
    mean_weights: AnyNDArray  #: The weights of the means, [K]; their sum is 1.
    recalibration: Recalibration | None  #: None if rows were not left out of training.
    #: The normal scores of training rows that :mod:`gpflow_pep.estimators.intervals`
    #: computes once; None before that.
    fold_scores: AnyNDArray | None = None

    @property
    def heaviest(self) -> SingleModel:
        """The component with the largest weight."""
        heaviest: SingleModel = self.components[int(np.argmax(self.weights))]
        return heaviest

    def singles(self) -> Iterator[SingleModel]:
        """Yield the single models."""
        yield from self.components

    @property
    def is_one_model(self) -> bool:
        """Whether the mixture is one single model."""
        return len(self.components) == 1 and self.recalibration is None

    @property
    def mixes_outputs(self) -> bool:
        """Whether columns of y are mixtures of common functions."""
        return any(single.mixes_outputs for single in self.components)

    @cuts_reported()
    def predictive(
        self, rows: AnyNDArray, known: AnyNDArray | None = None
    ) -> Predictive:
        """Predict y.

        :param known: Known targets of the rows, [N, P], with NaN for unknown ones.
        """
        return self.mixed(
            [single.predictive(rows, known) for single in self.components]
        )

    @cuts_reported()
    def predictive_of_f(self, rows: AnyNDArray) -> Predictive:
        """Predict f."""
        return self.mixed([single.predictive_of_f(rows) for single in self.components])

    def mixed(self, predictives: Sequence[Predictive]) -> Predictive:
        """Mix the components' distributions of the same rows."""
        return Predictive.mixed(
            predictives, self.weights, self.mean_weights, self.recalibration
        )

    def left_out(
        self, copies: AnyNDArray | None = None
    ) -> tuple[Any, Predictive] | None:
        """Return the row numbers of left-out rows, and their predictions; None if a
        component has not left out any.

        :param copies: The number of copies of each training row, [N].
        """
        judged = [single.left_out(copies) for single in self.components]
        if not all(judged):
            return None
        return judged[0][0], self.mixed([prediction for _, prediction in judged])

    def probabilities(self, rows: AnyNDArray) -> AnyNDArray:
        """Predict the probability of each class, [N, C]."""
        probabilities = [single.probabilities(rows) for single in self.components]
        return mixed_probabilities(self.weights, probabilities, self.recalibration)

    def far_rows(self, rows: AnyNDArray) -> AnyNDArray:
        """Find for each row, [N], whether it is far from the training rows."""
        return far_by_components(
            self.weights, lambda k: self.components[k].far_rows(rows)
        )

    def draws(self, rows: AnyNDArray, num_draws: int, seed: int) -> AnyNDArray:
        """Draw y jointly at rows, [N, S] or [N, P, S]."""
        if self.is_one_model:
            return np.asarray(self.components[0].draws(rows, num_draws, seed))
        random = np.random.default_rng(seed)

        def draw(k: int, size: int) -> AnyNDArray:
            values = self.components[k].draws(rows, size, seed_of(random))
            return np.moveaxis(values, -1, 0)

        mixed = draws_of_mixture(self.weights, num_draws, random, draw)
        return np.moveaxis(self.predictive(rows).recalibrated(mixed), 0, -1)


@dataclass(eq=False)
class ColumnMixture:
    """Mixtures, and the choice of the mixture that predicts each column of y. The
    methods are the same as in :class:`Mixture`.
    """

    components: tuple[Mixture, ...]  #: Mixtures of one column, or of all columns.
    lines: tuple[str, ...]  #: What was tried and kept, and why.
    #: The number of the component that predicts each column, [P].
    places: Sequence[int]
    #: The number of the component that predicts each column if other targets of the row
    #: are known, [P].
    known_places: Sequence[int]
    recalibration: None = None  #: Each component has its own recalibration.

    @property
    def weights(self) -> AnyNDArray:
        """The shares of columns that the components predict, [K]."""
        counts = np.bincount(self.places, minlength=len(self.components))
        return np.asarray(counts / len(self.places))

    mean_weights = weights

    @property
    def heaviest(self) -> SingleModel:
        """The single model with the largest weight in the component with the largest
        weight.
        """
        return self.components[int(np.argmax(self.weights))].heaviest

    def singles(self) -> Iterator[SingleModel]:
        """Yield the single models of all components."""
        for mixture in self.components:
            yield from mixture.singles()

    is_one_model = False

    @property
    def mixes_outputs(self) -> bool:
        """Whether known targets of a row change the predictions of others."""
        return any(
            self.components[place].mixes_outputs for place in set(self.known_places)
        )

    def predictive(
        self, rows: AnyNDArray, known: AnyNDArray | None = None
    ) -> PredictiveOfColumns:
        """Predict y."""
        places = self.places if known is None else self.known_places
        return self._joined(places, lambda part: part.predictive(rows, known))

    def predictive_of_f(self, rows: AnyNDArray) -> PredictiveOfColumns:
        """Predict f."""
        return self._joined(self.places, lambda part: part.predictive_of_f(rows))

    @cuts_reported()
    def _joined(
        self, places: Sequence[int], predict: Callable[[Mixture], Predictive]
    ) -> PredictiveOfColumns:
        """Use for each column the prediction of its component."""
        parts = {
            place: predict(self.components[place]) for place in sorted(set(places))
        }
        columns = []
        for p, place in enumerate(places):
            part = parts[place]
            columns.append(part.column(p) if part.means.ndim > 2 else part)
        return PredictiveOfColumns(tuple(columns))

    def by_column(self, compute: Callable[[Mixture], AnyNDArray]) -> AnyNDArray:
        """Compute values of rows with each component that predicts a column, [N, ...]
        or [N, P, ...], and select the values of each column, [N, P, ...].
        """
        values = {place: compute(self.components[place]) for place in set(self.places)}
        columns = []
        for p, place in enumerate(self.places):
            several = self.components[place].heaviest.num_outputs > 1
            columns.append(values[place][:, p] if several else values[place])
        return np.stack(columns, axis=1)

    def far_rows(self, rows: AnyNDArray) -> AnyNDArray:
        """Mark the rows that are far for all components that predict a column, [N]."""
        mixtures = [self.components[place] for place in sorted(set(self.places))]
        return np.asarray(
            np.all([mixture.far_rows(rows) for mixture in mixtures], axis=0)
        )

    def draws(self, rows: AnyNDArray, num_draws: int, seed: int) -> AnyNDArray:
        """Draw y, [N, P, S]; draws of different components are independent."""
        random = np.random.default_rng(seed)
        return self.by_column(lambda part: part.draws(rows, num_draws, seed_of(random)))
