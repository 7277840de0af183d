"""How many training rows can be read in the files of a fitted estimator."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.spatial import cKDTree

from ..engine.refusals import counted
from ..engine.refusals.arrays import AnyNDArray
from .single.model import SingleModel
from .single.when_used import ensemble, gpflow

#: An inducing point counts as a row if each input differs by less than this fraction of
#: its standard deviation. Tables rarely have more digits.
SAME = 1e-6


class RowsHeld(NamedTuple):
    """How many training rows the files of an estimator hold.

    A file holds a row if it has the row's inputs, to six digits: as training data, as
    near rows of predictions, or as an inducing point. Inducing points that were
    trained, or that are centres of several rows, are not rows.
    """

    training: int  #: The number of rows in the call of ``fit``, copies included.
    model: int  #: The number of rows in the folder of ``save_estimator``.
    scorer: int  #: The number of rows in the folder of ``export_numpy``.

    def in_model(self, folder: str = "it") -> str:
        """Write how many rows are in the folder of ``save_estimator``."""
        return self._in_words(self.model, folder)

    def in_scorer(self, folder: str = "it") -> str:
        """Write how many rows are in the folder of ``export_numpy``."""
        return self._in_words(self.scorer, folder)

    def _in_words(self, count: int, folder: str) -> str:
        rows = counted(self.training, "training row")
        verb = "is" if count == 1 else "are"
        return f"{count} of {rows} {verb} in {folder}"


def count_rows_held(singles: Iterable[SingleModel], X: AnyNDArray) -> RowsHeld:
    """Count the training rows that the files of fitted models hold, each row once.

    :param singles: The models.
    :param X: The inputs that they were trained on, [N, D], in original units. Rows that
        have only NaN do not count.
    """
    X = X[~np.isnan(X).any(axis=1)]
    in_model = np.zeros(len(X), dtype=bool)
    in_scorer = np.zeros(len(X), dtype=bool)
    for single in singles:
        rows = single.in_units(X)
        for points, data, near in _held_by(single, X.shape[1]):
            are_points = _are_among(rows, points)
            are_data = _are_among(rows, data)
            in_model |= are_points | are_data
            in_scorer |= are_points
            if near:
                in_scorer |= are_data
    return RowsHeld(len(X), int(np.sum(in_model)), int(np.sum(in_scorer)))


def _held_by(
    single: SingleModel, num_inputs: int
) -> Iterator[tuple[AnyNDArray, AnyNDArray, bool]]:
    """Find what the files of a model hold, in its units, for each of its components:
    inducing points and inputs of the data, and whether predictions use near rows.
    """
    if single.exact is not None:
        yield single.exact.points, single.exact.X, False
        return
    models, _ = ensemble.components(single.model)
    for model, near in zip(models, ensemble.near_rows(single.model), strict=True):
        X = np.asarray(model.data[0]) if hasattr(model, "data") else np.zeros((0, 0))
        yield _points_of(model, num_inputs), X, bool(near)


def _points_of(model: gpflow.models.GPModel, num_inputs: int) -> AnyNDArray:
    """Collect the arrays of a model's inducing variables that have the shape of rows,
    [M, D].
    """
    variables: Any = getattr(model, "inducing_variable", None)
    parameters = () if variables is None else variables.parameters
    arrays = [np.asarray(parameter) for parameter in parameters]
    points = [a for a in arrays if a.ndim == 2 and a.shape[1] == num_inputs]
    return np.concatenate([np.zeros((0, num_inputs)), *points])


def _are_among(X: AnyNDArray, points: AnyNDArray) -> npt.NDArray[np.bool_]:
    """Mark the rows of X, [N, D], that are among points, [M, D]."""
    if len(X) == 0 or len(points) == 0:
        return np.zeros(len(X), dtype=bool)
    spread = np.std(X, axis=0)
    spread = np.where(spread > 0.0, spread, 1.0)
    nearest = cKDTree(points / spread)
    distances, _ = nearest.query(X / spread, p=np.inf, distance_upper_bound=SAME)
    return np.isfinite(distances)
