"""
A naive dense NumPy computation of regression whose conditionals know neighbours: N x N matrices,
row by row, from the equations of docs/neighbours.rst.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from reference.regression import Array, Prior

#: For each row of the data set, the places of its neighbours in the data set.
Neighbours = Sequence[Sequence[int]]


def projected(prior: Prior) -> tuple[Array, Array]:
    """A [M, N] and D [N, N]."""
    L = np.linalg.cholesky(prior.Kuu)
    A = np.linalg.solve(L, prior.Kuf)
    return A, prior.Kff - A.T @ A


def log_z(
    prior: Prior, R: Array, noise: Array, alpha: float, neighbours: Neighbours
) -> tuple[float, Array, Array]:
    """log Z, and mean [M, P] and covariance [M, M] of q(v); R is [N, P]."""
    A, D = projected(prior)
    N, P = R.shape
    C = D + np.diag(noise)
    B, b = np.eye(len(A)), np.zeros([len(A), P])
    squares = logdet = 0.0
    for n in range(N):
        near = list(neighbours[n])
        g = np.linalg.solve(C[np.ix_(near, near)], D[near, n])
        a, r = A[:, n] - A[:, near] @ g, R[n] - g @ R[near]
        s = noise[n] + D[n, n] - g @ D[near, n]
        for power, column, target, variance in (
            (1.0 - alpha, A[:, n], R[n], noise[n]),
            (alpha, a, r, s),
        ):
            B += power * np.outer(column, column) / variance
            b += power * np.outer(column, target) / variance
            squares += power * target @ target / variance
        logdet += np.log(s)
    mean = np.linalg.solve(B, b)
    logdet += N * np.log(2.0 * np.pi) + np.linalg.slogdet(B)[1]
    value = -0.5 * (P * logdet + squares - np.sum(b * mean))
    return float(value), mean, np.linalg.inv(B)


def scaled_bound(prior: Prior, R: Array, noise: Array) -> float:
    """Titsias' (2025) bound: the exact covariance's diagonal in the log-determinant, no trace."""
    A, D = projected(prior)
    N, P = R.shape
    K = A.T @ A + np.diag(noise)
    value = P * (N * np.log(2.0 * np.pi) + np.linalg.slogdet(K)[1]) + np.sum(
        R * np.linalg.solve(K, R)
    )
    return float(-0.5 * value - 0.5 * P * np.sum(np.log1p(np.diag(D) / noise)))


def neighbours_in(plan: Any) -> Neighbours:
    """Of each row as places in the data set, from the places within groups of a plan."""
    rows, places = np.asarray(plan.rows), np.asarray(plan.neighbours)
    found: dict[int, list[int]] = {}
    for group, near in zip(rows, places, strict=True):
        for row, here in zip(group, near, strict=True):
            if row >= 0:
                found[row] = [int(group[place]) for place in here if place >= 0]
    return [found[n] for n in range(len(found))]
