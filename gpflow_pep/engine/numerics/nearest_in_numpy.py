"""The nearest of some rows, by a k-d tree, or in many dimensions from all distances."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from scipy.spatial import KDTree

Array = npt.NDArray[np.float64]
Search = Callable[[Array, int], npt.NDArray[np.int32]]

#: In more dimensions a tree looks at nearly all rows.
_MOST_FOR_TREES = 15
#: Distances at a time.
_ELEMENTS = 2**22


def nearest_rows(X: Array) -> Search:
    """Index rows [N, D]; inputs without a finite scale have been divided by infinity.

    :return: A function of new rows [S, D] and m at most N, that gives the numbers of
        the m nearest rows of each, [S, m], the nearest first.
    """
    origin = X.mean(axis=0)  # distances from products lose the digits of a large one
    X = X - origin
    tree = KDTree(X) if X.shape[1] <= _MOST_FOR_TREES else None
    squares = np.sum(X**2, axis=1)

    def of_some(new: Array, m: int) -> npt.NDArray[np.intp]:
        distances = squares - 2.0 * new @ X.T
        candidates = np.argpartition(distances, m - 1, axis=1)[:, :m]
        order = np.argsort(
            np.take_along_axis(distances, candidates, axis=1), axis=1, kind="stable"
        )
        return np.take_along_axis(candidates, order, axis=1)

    def search(new: Array, m: int) -> npt.NDArray[np.int32]:
        if m == 0 or len(new) == 0:
            return np.zeros((len(new), m), np.int32)
        new = new - origin
        if tree is not None:
            return tree.query(new, np.arange(1, m + 1))[1].astype(np.int32)
        size = max(_ELEMENTS // len(X), 1)
        pieces = [
            of_some(new[start : start + size], m) for start in range(0, len(new), size)
        ]
        return np.concatenate(pieces).astype(np.int32)

    return search
