"""
Rows in an order, and for each the nearest of those before it.

They are sought in small groups of rows that lie together, so that what is computed for a chunk of
rows needs no others: see :mod:`gpflow_pep.energies.neighbours`.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.kernels import Kernel

from .distance import scaled_inputs

#: The most rows in a group, where neighbours are fewer than a quarter of that. Larger groups hold
#: nearer neighbours; the covariances within them cost this many times M for each row.
GROUP_SIZE = 128


class NearestPredecessors(NamedTuple):
    """K groups of at most S rows, each group in an order of its own."""

    rows: AnyNDArray
    """[K, S], places of rows in the data, -1 at the end of a group that has fewer."""

    neighbours: AnyNDArray
    """[K, S, m], the neighbours of each as places in its group, all before its own, nearest first;
    -1 where there are fewer than m."""


def nearest_predecessors(X: AnyNDArray, kernel: Kernel, m: int) -> NearestPredecessors:
    """
    Cut rows into groups, put each group in order, and find the nearest predecessors of each row.

    Distances are between :func:`scaled_inputs`. Groups come of halving again and again across the
    input that is spread most; within a group rows are in order along its first principal direction.

    :param kernel: The kernel, of one output, with the hyperparameters it has now.
    :param m: The most neighbours of a row, at least 1.
    """
    X = scaled_inputs(kernel, tf.convert_to_tensor(X)).numpy()
    num_groups = -(-len(X) // largest_group(m))
    size = -(-len(X) // num_groups)
    rows = np.full([num_groups, size], -1, np.int32)
    neighbours = np.full([num_groups, size, m], -1, np.int32)
    for k, group in enumerate(_halve(X, np.arange(len(X)), num_groups)):
        group = group[_along_principal_direction(X[group])]
        rows[k, : len(group)] = group
        neighbours[k, : len(group)] = _nearest_before(X[group], m)
    return NearestPredecessors(rows, neighbours)


def largest_group(m: int) -> int:
    """How many rows a group has at most, where a row has up to m neighbours."""
    return max(GROUP_SIZE, 4 * (m + 1))


def _halve(X: AnyNDArray, rows: AnyNDArray, num_groups: int) -> Iterator[AnyNDArray]:
    """Cut rows into groups of sizes that differ by at most 1."""
    if num_groups == 1:
        yield rows
        return
    smaller, larger = divmod(len(rows), num_groups)
    left = num_groups // 2
    cut = left * smaller + min(left, larger)
    widest = np.argmax(np.std(X[rows], axis=0))
    order = np.argpartition(X[rows, widest], cut)
    yield from _halve(X, rows[order[:cut]], left)
    yield from _halve(X, rows[order[cut:]], num_groups - left)


def _along_principal_direction(X: AnyNDArray) -> AnyNDArray:
    """[S], places of rows in order of their first principal component."""
    deviations = X - X.mean(axis=0)
    direction = np.linalg.eigh(deviations.T @ deviations)[1][:, -1]
    return np.argsort(deviations @ direction, kind="stable")


def _nearest_before(X: AnyNDArray, m: int) -> AnyNDArray:
    """[S, m], the nearest rows before each, -1 where there are fewer."""
    distances = np.sum((X[:, None] - X[None]) ** 2, axis=-1)
    distances[np.triu_indices(len(X))] = np.inf
    m_here = min(m, len(X))
    nearest = np.argsort(distances, axis=1, kind="stable")[:, :m_here]
    absent = np.isinf(np.take_along_axis(distances, nearest, axis=1))
    neighbours = np.full([len(X), m], -1)
    neighbours[:, :m_here] = np.where(absent, -1, nearest)
    return neighbours
