r"""Greedy choices of rows: by residual variance, and by the variational bound.

**Residual variance** (:func:`greedy_variance`): the next row is the row that is least
determined by the rows before it. This is a pivoted Cholesky factorisation of the
kernel's matrix.

The residual variance of a row given the rows :math:`Z` chosen so far,
:math:`d_n = k_{nn} - k_{nZ} K_{ZZ}^{-1} k_{Zn}`, falls with every choice. So a residual
variance that was computed earlier is an upper bound, and need not be computed again
before the largest residual variance of the other rows is below it. The factor is
therefore kept only for a pool, the rows with the largest bounds. As long as the largest
residual variance in the pool is not below any bound outside of it, it is the largest of
all rows, and the choice is exact; otherwise a new pool is made. Memory is O(N + M
pool). Time is O(M²) for each row that enters a pool; most rows enter one a few times.

**The variational bound** (:func:`greedy_variational`): Titsias (2009), section 3.2.

With inducing points Z the bound is :math:`\log N(y; 0, Q + \sigma^2 I) -
\tfrac{1}{2\sigma^2} \mathrm{tr}(K_{ff} - Q)`. A further point :math:`x_i` adds
:math:`a aᵀ` to Q with :math:`a = r_i / s_i`, where
:math:`r_i = \mathrm{cov}(f, f_i | f_Z)`, N numbers, and
:math:`s_i^2 = \mathrm{var}(f_i | f_Z)`. With :math:`S = Q + \sigma^2 I` the bound rises
by

.. math::

    \tfrac12 \frac{(aᵀ S^{-1} y)^2}{1 + aᵀ S^{-1} a} - \tfrac12 \log(1 + aᵀ S^{-1} a)
    + \frac{aᵀ a}{2 \sigma^2} \ge 0

Unlike the paper, only products between candidates are kept: :math:`r_iᵀ r_j`,
:math:`r_iᵀ S^{-1} r_j` and :math:`r_iᵀ S^{-1} y`. One pass over the rows computes them
for empty Z, and each choice changes them by a few matrices of rank one. So each of C
candidates costs O(N C) once and O(M) at each choice, instead of O(N M) at each choice,
and no N x M matrix is kept.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow import Parameter
from gpflow.base import AnyNDArray, TensorData
from gpflow.config import default_jitter
from gpflow.inducing_variables import InducingPoints
from gpflow.kernels import Kernel
from scipy.linalg import solve_triangular
from sklearn.utils import gen_batches

from ...engine import checks
from ...engine.numerics.graphs import compiled
from ...engine.prior import check_kernel_at_row, evaluate
from .rows import as_data, as_inputs, distinct_rows, key, too_few_distinct


class _CompiledKernel:
    """Prior covariances of rows, in float64, compiled once: a selection needs them very
    often.

    :param kernel: A kernel of one output. Each call uses its present hyperparameters.
    :param like: Rows with the dtype and the number of columns of the inputs.
    :raises ValueError: If the kernel cannot be evaluated at such rows.
    """

    def __init__(self, kernel: Kernel, like: AnyNDArray) -> None:
        check_kernel_at_row(kernel, like)
        rows = tf.TensorSpec([None, like.shape[1]], like.dtype)

        def between(X: tf.Tensor, X2: tf.Tensor) -> tf.Tensor:
            return tf.cast(evaluate.covariance(kernel, X, X2), tf.float64)

        def variances(X: tf.Tensor) -> tf.Tensor:
            return tf.cast(evaluate.variance(kernel, X), tf.float64)

        self._between = compiled(between, input_signature=[rows, rows])
        self._variances = compiled(variances, input_signature=[rows])

    def between(self, X: AnyNDArray, X2: AnyNDArray) -> AnyNDArray:
        """[N, N2], the covariances of two sets of rows."""
        return self._between(X, X2).numpy()

    def variances(self, X: AnyNDArray) -> AnyNDArray:
        """[N], the variances of rows, which must all be finite."""
        by_chunk = [
            self._variances(X[rows]).numpy() for rows in _chunks(len(X), X.shape[1])
        ]
        values = np.concatenate(by_chunk)
        if not np.all(np.isfinite(values)):
            got = "a variance of NaN or infinity at some row"
            raise checks.refusal(
                "kernel", got, "finite numbers", "Check the kernel's parameters."
            )
        return values


def _chunks(num_rows: int, width: int) -> Iterator[slice]:
    """Cut rows into chunks, for matrices of `width` numbers per row."""
    return gen_batches(num_rows, max(1, 2**19 // width))  # 4 MiB in float64


#: The number of entries in the factor of the pool's rows (32 MiB in float64).
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
    """Choose M rows one by one, each time the row with the largest residual variance.

    Residual variances are the same as in a model with these inducing points: GPflow's
    default jitter is added to the diagonal of ``Kuu``.

    :param X: Inputs, [N, D].
    :param M: The number of rows; with a tolerance, the largest number.
    :param kernel: The kernel, with hyperparameters that suit the data.
    :param seed: Seed of the random choice among rows with equal residual variances,
        such as the first row under a stationary kernel. None makes an arbitrary choice
        that is always the same.
    :param tolerance: Stop when no residual variance is above this number, but not
        before the first row. None sets no threshold.
    :raises ValueError: If there is no tolerance and there are fewer than M distinct
        rows.
    """
    X = as_inputs(X)
    checks.check_number(M, len(X))
    checks.check_single_output(kernel)
    if seed is not None:
        checks.check_seed(seed)
    if tolerance is not None:
        remedy = (
            "A thousandth of the kernel's variance is precise; None sets no threshold."
        )
        checks.check_real("tolerance", tolerance, "[0, inf]", remedy)
    order = (
        np.arange(len(X))
        if seed is None
        else np.random.default_rng(seed).permutation(len(X))
    )
    threshold = -np.inf if tolerance is None else tolerance
    pivots = _pivots(X, order, M, _CompiledKernel(kernel, X), threshold)
    if tolerance is None and len(pivots) < M:
        raise too_few_distinct(M, len(pivots))
    return InducingPoints(X[pivots])


def _pivots(
    X: AnyNDArray, order: AnyNDArray, M: int, prior: _CompiledKernel, tolerance: float
) -> list[int]:
    """Return the places of the chosen rows: M, or fewer if fewer rows are distinct or
    the tolerance is reached.

    :param order: If residual variances are equal, the row that comes first in this
        order is chosen, at least within a pool.
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
            m = len(chosen)
            best = int(np.argmax(d))
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
    prior: _CompiledKernel, X: AnyNDArray, Z: AnyNDArray, L: AnyNDArray, A: AnyNDArray
) -> AnyNDArray:
    """Compute residual variances of rows given Z, whose factor is L. The factor of the
    rows is written into A.
    """
    d = prior.variances(X)
    m = len(Z)
    if m == 0:
        return d
    for rows in _chunks(len(X), m):
        A[:m, rows] = solve_triangular(L, prior.between(Z, X[rows]), lower=True)
        d[rows] -= np.einsum("mn,mn->n", A[:m, rows], A[:m, rows])
    return np.maximum(d, 0.0)


def greedy_variational(
    data: Any,
    M: int,
    *,
    kernel: Kernel,
    noise_variance: float | Parameter,
    seed: int,
    num_candidates: int | None = None,
) -> InducingPoints:
    """Choose M rows one by one, each time the row that raises the variational bound of
    regression most.

    The bound is the bound of :class:`gpflow.models.SGPR`, with GPflow's default jitter
    and mean 0. A choice never lowers it (Titsias 2009, proposition 1).

    :param data: X [N, D] and Y [N, P]; subtract a mean function from Y first.
    :param kernel: The kernel, with hyperparameters that suit the data.
    :param noise_variance: Variance of the Gaussian noise, or the parameter that holds
        it.
    :param seed: Seed of the choice of candidates.
    :param num_candidates: The number of candidates, at least M: a random set of
        distinct rows. None selects 2000, or 2 M if that is more.
    :raises ValueError: If there are fewer than M distinct rows.
    """
    X, Y = as_data(data)
    checks.check_number(M, len(X))
    checks.check_single_output(kernel)
    if num_candidates is None:
        num_candidates = min(len(X), max(2000, 2 * M))
    checks.check_number(num_candidates, len(X), "num_candidates")
    checks.check_seed(seed)
    checks.check_noise_variance(noise_variance)
    order = np.random.default_rng(seed).permutation(len(X))
    rows = distinct_rows(X, order, M, limit=num_candidates)
    noise = float(np.squeeze(noise_variance))
    candidates = _Candidates((X, Y), rows, M, _CompiledKernel(kernel, X), noise)
    chosen: list[int] = []
    while len(chosen) < M:
        best = int(np.argmax(candidates.gains()))
        candidates.choose(best)
        chosen.append(int(rows[best]))
    return InducingPoints(X[chosen])


class _Symmetric:
    """A symmetric matrix ``start - leftᵀ right``, which changes by matrices of low
    rank. Only rows and the diagonal are computed.
    """

    def __init__(self, start: AnyNDArray, max_changes: int) -> None:
        self.start = start
        self.diagonal = np.diagonal(start).copy()
        self.left = np.empty([max_changes, len(start)])
        self.right = np.empty([max_changes, len(start)])
        self.num_changes = 0

    def row(self, i: int) -> AnyNDArray:
        k = self.num_changes
        return np.asarray(self.start[i] - self.left[:k, i] @ self.right[:k])

    def subtract(self, *pairs: tuple[AnyNDArray, AnyNDArray]) -> None:
        """Subtract the outer product of each pair."""
        for left, right in pairs:
            self.left[self.num_changes], self.right[self.num_changes] = left, right
            self.diagonal -= left * right
            self.num_changes += 1


class _Candidates:
    """C candidates, from which at most M are chosen. See the module for the symbols."""

    def __init__(
        self,
        data: tuple[AnyNDArray, AnyNDArray],
        rows: AnyNDArray,
        M: int,
        prior: _CompiledKernel,
        noise: float,
    ) -> None:
        X, Y = data
        Z = X[rows]
        prior.variances(Z)  # this refuses numbers that are not finite
        products = np.zeros([len(Z), len(Z)])
        moments = np.zeros([len(Z), Y.shape[1]])
        for part in _chunks(len(X), len(Z)):
            K = prior.between(Z, X[part])
            products += K @ K.T
            moments += K @ Y[part]
        self.covariance = _Symmetric(prior.between(Z, Z), M)  # cov(f_i, f_j | f_Z)
        self.products = _Symmetric(products, 2 * M)  # rᵢᵀ rⱼ
        self.whitened = _Symmetric(products / noise, 3 * M)  # rᵢᵀ S⁻¹ rⱼ
        self.moments = moments / noise  # rᵢᵀ S⁻¹ y, for each output
        self.noise = noise
        self.is_chosen = np.zeros(len(Z), dtype=bool)

    def gains(self) -> AnyNDArray:
        """Compute by how much each candidate would raise the bound; -inf for candidates
        that are chosen already.
        """
        variance = np.maximum(self.covariance.diagonal, 0.0) + default_jitter()
        ratio = np.maximum(self.whitened.diagonal, 0.0) / variance
        fit = np.sum(np.square(self.moments), axis=1) / variance / (1.0 + ratio)
        trace = self.products.diagonal / variance / self.noise
        gain = 0.5 * (fit + self.moments.shape[1] * (trace - np.log1p(ratio)))
        return np.where(self.is_chosen, -np.inf, gain)

    def choose(self, i: int) -> None:
        """Add candidate i to Z."""
        self.is_chosen[i] = True
        scale = np.sqrt(max(self.covariance.diagonal[i], 0.0) + default_jitter())
        rows = (self.covariance.row(i), self.products.row(i), self.whitened.row(i))
        along, p, c = (row / scale for row in rows)  # cov(fⱼ, a), rⱼᵀ a, rⱼᵀ S⁻¹ a
        q = p[i] / scale  # aᵀa
        s = c[i] / scale  # aᵀS⁻¹a
        t = self.moments[i] / scale  # aᵀS⁻¹y
        # First S grows by a aᵀ, then every r loses its part along a.
        root = np.sqrt(1.0 + s)
        d = (c - 0.5 * s * along) / (1.0 + s)
        self.whitened.subtract((c / root, c / root), (along, d), (d, along))
        self.moments -= np.outer(c + along, t / (1.0 + s))
        b = p - 0.5 * q * along
        self.products.subtract((along, b), (b, along))
        self.covariance.subtract((along, along))
