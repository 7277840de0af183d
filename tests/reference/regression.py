"""A naive dense NumPy computation of regression from the formulas of the papers.

It shares no code with the package. BYT17 is Bui, Yan and Turner (2017), T09 is Titsias
(2009). Letters: N rows, M inducing variables, D inputs, P outputs, S new rows, B
blocks.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


def squared_exponential(
    X1: Array, X2: Array, variance: float, lengthscales: Any
) -> Array:
    """variance * exp(-0.5 sum_d (x_d - x'_d)^2 / lengthscale_d^2) of [N, D] and [S, D]:
    [N, S].
    """
    scaled = (X1[:, None, :] - X2[None, :, :]) / np.asarray(lengthscales, dtype=float)
    return variance * np.exp(-0.5 * np.sum(scaled**2, axis=-1))


class Prior(NamedTuple):
    """The prior covariances of the inducing variables u and of f at the
    training rows.
    """

    Kuu: Array  # [M, M], jitter included
    Kuf: Array  # [M, N]
    Kff: Array  # [N, N]


def squared_exponential_prior(
    X: Array, Z: Array, variance: float, lengthscales: Any, jitter: float = 0.0
) -> Prior:
    """The :class:`Prior` of ordinary inducing points under
    :func:`squared_exponential`.
    """
    pairs = (Z, Z), (Z, X), (X, X)
    Kuu, *others = (
        squared_exponential(*pair, variance, lengthscales) for pair in pairs
    )
    return Prior(Kuu + jitter * np.eye(len(Z)), *others)


class Factors(NamedTuple):
    """How the likelihood is cut into factors: which rows belong together, and the power
    of each.
    """

    blocks: IntArray  # [N], label of the block of each row
    row_alpha: Array  # [N], the power of the factor that the row belongs to


def make_factors(num_data: int, alpha: Any, blocks: IntArray | None = None) -> Factors:
    """:param alpha: one power for all, one per row (no blocks) or one per block
        (ascending labels).
    :param blocks: [N], integer labels; `None` makes each row a block of its own.
    """
    labels = np.arange(num_data) if blocks is None else np.asarray(blocks)
    _, position = np.unique(labels, return_inverse=True)
    alpha_of_block = np.broadcast_to(
        np.asarray(alpha, dtype=float), [position.max() + 1]
    )
    return Factors(labels, alpha_of_block[position])


def _residual_covariance(prior: Prior) -> Array:
    """D = Kff - Kfu Kuu^-1 Kuf, the covariance of f given u.  [N, N]."""
    return prior.Kff - prior.Kuf.T @ np.linalg.solve(prior.Kuu, prior.Kuf)


def _log_det(matrix: Array) -> float:
    sign, value = np.linalg.slogdet(matrix)
    if sign <= 0:
        raise ValueError(f"expected a positive determinant, got sign {sign}.")
    return float(value)


def approximate_covariance(prior: Prior, noise: Array, factors: Factors) -> Array:
    """K_bar = Qff + blkdiag(alpha_b D_b) + diag(noise), BYT17 section 3.7.
    [N, N].
    """
    Q = prior.Kuf.T @ np.linalg.solve(prior.Kuu, prior.Kuf)
    D = _residual_covariance(prior)
    same_block = factors.blocks[:, None] == factors.blocks[None, :]
    return (
        Q + np.where(same_block, factors.row_alpha[:, None] * D, 0.0) + np.diag(noise)
    )


def gaussian_log_density(R: Array, K: Array) -> float:
    """sum_p log N(r_p; 0, K) of columns r_p of R [N, P]."""
    N, P = R.shape
    quadratic = float(np.sum(R * np.linalg.solve(K, R)))
    return -0.5 * P * (N * np.log(2 * np.pi) + _log_det(K)) - 0.5 * quadratic


def power_correction(D_b: Array, noise_b: Array, alpha: float) -> float:
    """What one block adds to log Z beyond the Gaussian density, with S = diag(noise)
    -(1 - alpha) / (2 alpha) log|I + alpha S^-1/2 D_b S^-1/2| (BYT17 section 3.7 with
    its sign and determinant put right); at alpha = 0 the trace term of T09's bound.
    """
    scaled = D_b / np.sqrt(np.outer(noise_b, noise_b))
    if alpha == 0.0:
        return -0.5 * float(np.trace(scaled))
    # From the eigenvalues, since a determinant near 1 has lost the digits of a small
    # alpha.
    log_det = float(np.sum(np.log1p(alpha * np.linalg.eigvalsh(scaled))))
    return -0.5 * (1.0 - alpha) / alpha * log_det


def pep_log_z(prior: Prior, R: Array, noise: Array, factors: Factors) -> float:
    """log Z_PEP, BYT17 sections 3.6 and 3.7, of targets minus the mean function R [N,
    P].
    """
    D = _residual_covariance(prior)
    correction = 0.0
    for label in np.unique(factors.blocks):
        rows = np.flatnonzero(factors.blocks == label)
        correction += power_correction(
            D[np.ix_(rows, rows)], noise[rows], float(factors.row_alpha[rows[0]])
        )
    density = gaussian_log_density(R, approximate_covariance(prior, noise, factors))
    return density + R.shape[1] * correction


def pep_qu(
    prior: Prior, R: Array, noise: Array, factors: Factors
) -> tuple[Array, Array]:
    """q(u) = N(Kuf K_bar^-1 R, Kuu - Kuf K_bar^-1 Kfu), BYT17 section 3.6: [M, P], [M,
    M].
    """
    solved = np.linalg.solve(approximate_covariance(prior, noise, factors), prior.Kuf.T)
    return solved.T @ R, prior.Kuu - prior.Kuf @ solved


def pep_predict(
    prior: Prior, R: Array, noise: Array, factors: Factors, Kus: Array, Kss: Array
) -> tuple[Array, Array]:
    """Qsf K_bar^-1 R [S, P] and Kss - Qsf K_bar^-1 Qfs [S, S]: f at new rows, without
    the mean.
    """
    Qsf = Kus.T @ np.linalg.solve(prior.Kuu, prior.Kuf)
    K_bar = approximate_covariance(prior, noise, factors)
    return Qsf @ np.linalg.solve(K_bar, R), Kss - Qsf @ np.linalg.solve(K_bar, Qsf.T)


def loo_log_density(prior: Prior, R: Array, noise: Array, factors: Factors) -> Array:
    """log p(y_n | the others) [N] with each row a factor, summed over outputs: f_n
    given the other rows under K_bar, plus the residual variance and the noise of the
    row itself.
    """
    K = approximate_covariance(prior, noise, factors)
    D = np.diag(_residual_covariance(prior))
    Q = prior.Kuf.T @ np.linalg.solve(prior.Kuu, prior.Kuf)
    densities = np.zeros(len(R))
    for n in range(len(R)):
        others = np.arange(len(R)) != n
        weights = np.linalg.solve(K[np.ix_(others, others)], Q[others, n])
        variance = Q[n, n] - Q[others, n] @ weights + D[n] + noise[n]
        off = R[n] - weights @ R[others]
        densities[n] = gaussian_log_density(off[None], variance[None, None])
    return densities


def exact_log_marginal_likelihood(Kff: Array, R: Array, noise: Array) -> float:
    """log p(Y) of exact Gaussian process regression."""
    return gaussian_log_density(R, Kff + np.diag(noise))


def exact_predict(Kff: Array, R: Array, noise: Array, Kfs: Array, Kss: Array) -> Any:
    """Mean [S, P] and covariance [S, S] of f at new rows in exact Gaussian process
    regression.
    """
    gain = np.linalg.solve(Kff + np.diag(noise), Kfs).T
    return gain @ R, Kss - gain @ Kfs
