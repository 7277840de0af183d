r"""
The row that is least determined by those before it, one after another: a pivoted Cholesky
factorisation of the kernel's matrix.

The residual variance of a row given the rows :math:`Z` chosen so far,
:math:`d_n = k_{nn} - k_{nZ} K_{ZZ}^{-1} k_{Zn}`, falls with every choice. So one computed earlier
is an upper bound, and a row need not be looked at before the largest of the others is below its
bound. The factor is therefore kept for a pool only, the rows of the largest bounds. As long as the
largest residual variance in the pool is not below any bound outside, it is the largest of all rows,
and the choice is exact; else the next pool is taken. Memory is O(N + M pool); time is O(M²) for
each row that comes into a pool, which most rows do a few times.
"""

import numpy as np
from gpflow.base import AnyNDArray, TensorData
from gpflow.config import default_jitter
from gpflow.inducing_variables import InducingPoints
from gpflow.kernels import Kernel
from scipy.linalg import solve_triangular

from ...engine import checks
from .rows import CompiledKernel, as_inputs, chunks, key, too_few_distinct

#: Numbers in the factor of the pool's rows (32 MiB in float64).
POOL_ELEMENTS = 2**22
_CHOSEN = -np.inf


def greedy_variance(
    X: TensorData,
    M: int,
    *,
    kernel: Kernel,
    seed: int | None = None,
    tolerance: float | None = None,
) -> InducingPoints:
    """
    Choose the row with the largest residual variance next, until M are chosen.

    Residual variances are those of a model with these inducing points: GPflow's default jitter is
    added to the diagonal of ``Kuu``.

    :param X: Inputs, [N, D].
    :param M: How many; with a tolerance, at most.
    :param kernel: The kernel, with hyperparameters that suit the data.
    :param seed: For a random choice among rows with equal residual variances: under a stationary
        kernel that is the first row. None: an arbitrary one, always the same.
    :param tolerance: Stop when no residual variance is above this, after the first row.
    :raises ValueError: If there is no tolerance and fewer than M rows differ.
    """
    X = as_inputs(X)
    checks.check_number(M, len(X))
    checks.check_single_output(kernel)
    if seed is not None:
        checks.check_seed(seed)
    if tolerance is not None:
        remedy = "A thousandth of the kernel's variance is precise; None is for none."
        checks.check_real("tolerance", tolerance, "[0, inf]", remedy)
    order = np.arange(len(X)) if seed is None else np.random.default_rng(seed).permutation(len(X))
    threshold = -np.inf if tolerance is None else tolerance
    pivots = _pivots(X, order, M, CompiledKernel(kernel, X), threshold)
    if tolerance is None and len(pivots) < M:
        raise too_few_distinct(M, len(pivots))
    return InducingPoints(X[pivots])


def _pivots(
    X: AnyNDArray, order: AnyNDArray, M: int, prior: CompiledKernel, tolerance: float
) -> list[int]:
    """
    Places of the rows to choose: M, or as many as differ or as the tolerance asks for.

    :param order: Where residual variances are equal, the row that comes first in it is preferred,
        at least within a pool.
    """
    num_rows = len(X)
    pool_size = max(1, min(num_rows, POOL_ELEMENTS // M))
    bound = prior.variances(X)[order]
    chosen: list[int] = []
    L = np.zeros([M, M])
    A = np.empty([M, pool_size])
    while True:
        by_bound = np.argpartition(bound, num_rows - pool_size)
        pool = np.sort(by_bound[num_rows - pool_size :])
        outside = bound[by_bound[: num_rows - pool_size]].max(initial=_CHOSEN)
        X_pool = X[order[pool]]
        d = _residuals(prior, X_pool, X[chosen], L[: len(chosen), : len(chosen)], A)
        known = {key(row) for row in X[chosen]}
        d[[key(row) in known for row in X_pool]] = _CHOSEN
        while True:
            m, best = len(chosen), int(np.argmax(d))
            if m == M or (m > 0 and max(d[best], outside) <= tolerance):
                return chosen
            if d[best] < outside:
                break
            L[m, :m], L[m, m] = A[:m, best], np.sqrt(d[best] + default_jitter())
            covariance = prior.between(X_pool[[best]], X_pool)[0] - A[:m, best] @ A[:m]
            A[m] = covariance / L[m, m]
            d = np.where(d == _CHOSEN, d, np.maximum(d - np.square(A[m]), 0.0))
            d[np.all(X_pool == X_pool[best], axis=1)] = _CHOSEN
            chosen.append(int(order[pool[best]]))
        bound[pool] = d


def _residuals(
    prior: CompiledKernel, X: AnyNDArray, Z: AnyNDArray, L: AnyNDArray, A: AnyNDArray
) -> AnyNDArray:
    """Residual variances of rows given Z, whose factor is L; the rows' own factor goes into A."""
    d = prior.variances(X)
    m = len(Z)
    if m == 0:
        return d
    for part in chunks(len(X), m):
        A[:m, part] = solve_triangular(L, prior.between(Z, X[part]), lower=True)
        d[part] -= np.einsum("mn,mn->n", A[:m, part], A[:m, part])
    return np.maximum(d, 0.0)
