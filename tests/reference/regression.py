"""A naive dense NumPy computation of what the package computes cleverly.

Everything here is written from the formulas of the papers with N x N matrices and explicit
inverses, shares no code with the package, and is only meant for a few dozen rows.  BYT17 is Bui,
Yan and Turner (2017), JMLR 18; T09 is Titsias (2009), technical report.

Letters: N rows, M inducing variables, D inputs, P outputs, S new rows, B blocks.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


def squared_exponential(
    X1: Array, X2: Array, variance: float, lengthscales: float | Sequence[float]
) -> Array:
    """variance * exp(-0.5 sum_d (x_d - x'_d)^2 / lengthscale_d^2).

    :param X1: [N, D].
    :param X2: [S, D].
    :return: [N, S].
    """
    scaled = (X1[:, None, :] - X2[None, :, :]) / np.asarray(lengthscales, dtype=float)
    return variance * np.exp(-0.5 * np.sum(scaled**2, axis=-1))


class Prior(NamedTuple):
    """The prior covariances of the inducing variables u and of f at the training rows."""

    Kuu: Array  # [M, M], jitter included
    Kuf: Array  # [M, N]
    Kff: Array  # [N, N]


def squared_exponential_prior(
    X: Array, Z: Array, variance: float, lengthscales: float | Sequence[float], jitter: float = 0.0
) -> Prior:
    """The :class:`Prior` of ordinary inducing points under :func:`squared_exponential`."""
    return Prior(
        Kuu=squared_exponential(Z, Z, variance, lengthscales) + jitter * np.eye(len(Z)),
        Kuf=squared_exponential(Z, X, variance, lengthscales),
        Kff=squared_exponential(X, X, variance, lengthscales),
    )


class Factors(NamedTuple):
    """How the likelihood is cut into factors: which rows belong together, and the power of each."""

    blocks: IntArray  # [N], label of the block of each row
    row_alpha: Array  # [N], the power of the factor that the row belongs to
    bound: str = "standard"  # q(f | u): p(f | u), or "tight": scaled as Titsias (2025) does


def make_factors(
    num_data: int,
    alpha: float | Sequence[float] | Array,
    blocks: IntArray | None = None,
    bound: str = "standard",
) -> Factors:
    """:param alpha: one power for all, one per row (no blocks) or one per block (ascending labels).
    :param blocks: [N], integer labels; `None` makes each row a block of its own.
    """
    labels = np.arange(num_data) if blocks is None else np.asarray(blocks)
    _, position = np.unique(labels, return_inverse=True)
    alpha_of_block = np.broadcast_to(np.asarray(alpha, dtype=float), [position.max() + 1])
    return Factors(labels, alpha_of_block[position], bound)


def _residual_covariance(prior: Prior) -> Array:
    """D = Kff - Kfu Kuu^-1 Kuf, the covariance of f given u.  [N, N]."""
    return prior.Kff - prior.Kuf.T @ np.linalg.solve(prior.Kuu, prior.Kuf)


def _log_det(matrix: Array) -> float:
    sign, value = np.linalg.slogdet(matrix)
    if sign <= 0:
        raise ValueError(f"expected a positive determinant, got sign {sign}.")
    return float(value)


def approximate_covariance(prior: Prior, noise: Array, factors: Factors) -> Array:
    """K_bar = Qff + blkdiag(alpha_b D_b) + diag(noise), BYT17 section 3.7; where the conditional is
    scaled, Qff + inv((1 - alpha_b) S_b^-1 + alpha_b (S_b + D_b)^-1) with S = diag(noise).

    :param noise: [N], the noise variance of each row.
    :return: [N, N].
    """
    Q = prior.Kuf.T @ np.linalg.solve(prior.Kuu, prior.Kuf)
    D = _residual_covariance(prior)
    same_block = factors.blocks[:, None] == factors.blocks[None, :]
    if factors.bound == "tight":
        return Q + np.linalg.inv(_scaled_precision(np.where(same_block, D, 0.0), noise, factors))
    return Q + np.where(same_block, factors.row_alpha[:, None] * D, 0.0) + np.diag(noise)


def _scaled_precision(D: Array, noise: Array, factors: Factors) -> Array:
    """(1 - alpha) S^-1 + alpha (S + D)^-1 with D zero outside the blocks.  [N, N]."""
    alpha = factors.row_alpha
    return np.diag((1.0 - alpha) / noise) + alpha[:, None] * np.linalg.inv(D + np.diag(noise))


def gaussian_log_density(R: Array, K: Array) -> float:
    """sum_p log N(r_p; 0, K).

    :param R: [N, P], one column per output.
    :param K: [N, N].
    """
    N, P = R.shape
    quadratic = float(np.sum(R * np.linalg.solve(K, R)))
    return -0.5 * P * (N * np.log(2 * np.pi) + _log_det(K)) - 0.5 * quadratic


def power_correction(D_b: Array, noise_b: Array, alpha: float) -> float:
    """The term that one block adds to log Z beyond the Gaussian density,
    -(1 - alpha) / (2 alpha) log|I + alpha S^-1/2 D_b S^-1/2| with S = diag(noise), for alpha > 0
    (BYT17 section 3.7 with its sign and determinant put right); its limit at alpha = 0 is the trace
    term of T09's bound.
    """
    scaled = D_b / np.sqrt(np.outer(noise_b, noise_b))
    if alpha == 0.0:
        return -0.5 * float(np.trace(scaled))
    # From the eigenvalues, since a determinant near 1 has lost the digits of a small alpha.
    log_det = float(np.sum(np.log1p(alpha * np.linalg.eigvalsh(scaled))))
    return -0.5 * (1.0 - alpha) / alpha * log_det


def scaled_correction(D_b: Array, noise_b: Array, alpha: float) -> float:
    """The same with a scaled conditional: -1/2 log of the determinants of S + D_b and of the
    precision, since the density has the inverse of the latter's already.
    """
    factors = make_factors(len(noise_b), alpha, np.zeros(len(noise_b), dtype=int), "tight")
    precision = _scaled_precision(D_b, noise_b, factors)
    return -0.5 * (_log_det(D_b + np.diag(noise_b)) + _log_det(precision))


def pep_log_z(prior: Prior, R: Array, noise: Array, factors: Factors) -> float:
    """log Z_PEP of Gaussian regression, BYT17 sections 3.6 and 3.7, or with a scaled conditional.

    :param R: [N, P], the targets minus the mean function.
    :param noise: [N].
    """
    D = _residual_covariance(prior)
    correct = scaled_correction if factors.bound == "tight" else power_correction
    correction = 0.0
    for label in np.unique(factors.blocks):
        rows = np.flatnonzero(factors.blocks == label)
        correction += correct(D[np.ix_(rows, rows)], noise[rows], float(factors.row_alpha[rows[0]]))
    density = gaussian_log_density(R, approximate_covariance(prior, noise, factors))
    return density + R.shape[1] * correction


def pep_qu(prior: Prior, R: Array, noise: Array, factors: Factors) -> tuple[Array, Array]:
    """q(u) = N(Kuf K_bar^-1 R, Kuu - Kuf K_bar^-1 Kfu), BYT17 section 3.6.

    :return: mean [M, P] and covariance [M, M], both without the mean function.
    """
    solved = np.linalg.solve(approximate_covariance(prior, noise, factors), prior.Kuf.T)
    return solved.T @ R, prior.Kuu - prior.Kuf @ solved


def pep_predict(
    prior: Prior, R: Array, noise: Array, factors: Factors, Kus: Array, Kss: Array
) -> tuple[Array, Array]:
    """The predictive mean Qsf K_bar^-1 R and covariance Kss - Qsf K_bar^-1 Qfs of f at new rows.

    :param Kus: [M, S].
    :param Kss: [S, S].
    :return: mean [S, P] (without the mean function), covariance [S, S].
    """
    Qsf = Kus.T @ np.linalg.solve(prior.Kuu, prior.Kuf)
    K_bar = approximate_covariance(prior, noise, factors)
    return Qsf @ np.linalg.solve(K_bar, R), Kss - Qsf @ np.linalg.solve(K_bar, Qsf.T)


def loo_log_density(prior: Prior, R: Array, noise: Array, factors: Factors) -> Array:
    """log p(y_n | the others) with each row a factor, summed over outputs: f_n given the other rows
    under K_bar, plus the residual variance and the noise of the row itself.

    :return: [N].
    """
    K, D = approximate_covariance(prior, noise, factors), np.diag(_residual_covariance(prior))
    Q = prior.Kuf.T @ np.linalg.solve(prior.Kuu, prior.Kuf)
    densities = []
    for n in range(len(R)):
        others = np.arange(len(R)) != n
        weights = np.linalg.solve(K[np.ix_(others, others)], Q[others, n])
        variance = Q[n, n] - Q[others, n] @ weights + D[n] + noise[n]
        densities.append(
            sum(
                gaussian_log_density(part[:, None], variance[None, None])
                for part in (R[n] - weights @ R[others])[:, None]
            )
        )
    return np.array(densities)


def exact_log_marginal_likelihood(Kff: Array, R: Array, noise: Array) -> float:
    """log p(Y) of exact Gaussian process regression."""
    return gaussian_log_density(R, Kff + np.diag(noise))


def exact_predict(
    Kff: Array, R: Array, noise: Array, Kfs: Array, Kss: Array
) -> tuple[Array, Array]:
    """Mean [S, P] and covariance [S, S] of f at new rows in exact Gaussian process regression."""
    K = Kff + np.diag(noise)
    return Kfs.T @ np.linalg.solve(K, R), Kss - Kfs.T @ np.linalg.solve(K, Kfs)


def variational_bound(
    prior: Prior, r: Array, noise: Array, mean: Array, covariance: Array
) -> float:
    """
    E_q[log p(y | f)] - KL[q(u) || p(u)] at any q(u), T09 (7): what alpha = 0 maximises over q(u).

    :param r: [N], one output.
    :param mean: [M], of q(u).
    :param covariance: [M, M], of q(u).
    """
    W = np.linalg.solve(prior.Kuu, prior.Kuf).T
    mean_f = W @ mean
    variance_f = np.diag(_residual_covariance(prior) + W @ covariance @ W.T)
    expectation = -0.5 * np.sum(
        np.log(2 * np.pi * noise) + ((r - mean_f) ** 2 + variance_f) / noise
    )
    divergence = 0.5 * (
        np.trace(np.linalg.solve(prior.Kuu, covariance))
        + mean @ np.linalg.solve(prior.Kuu, mean)
        - len(mean)
        + _log_det(prior.Kuu)
        - _log_det(covariance)
    )
    return float(expectation - divergence)


# Iterative Power EP, BYT17 sections 3.4 and 3.5, with full-rank factors and one output.


class Site(NamedTuple):
    """An approximate factor exp(T1' u - u' T2 u / 2), without its scale."""

    T1: Array  # [M]
    T2: Array  # [M, M]


class PowerEP(NamedTuple):
    """The state of the iteration: the prior, the rows of each factor with its power, the sites."""

    prior: Prior
    r: Array  # [N]
    noise: Array  # [N]
    rows: list[IntArray]  # B index vectors
    alpha: Array  # [B], in (0, 1]
    sites: list[Site]  # B


def start_power_ep(prior: Prior, r: Array, noise: Array, factors: Factors) -> PowerEP:
    """Power EP before its first step, with every factor equal to one."""
    M = len(prior.Kuu)
    rows = [np.flatnonzero(factors.blocks == label) for label in np.unique(factors.blocks)]
    alpha = np.array([factors.row_alpha[index[0]] for index in rows])
    return PowerEP(prior, r, noise, rows, alpha, [Site(np.zeros(M), np.zeros((M, M)))] * len(rows))


def power_ep_posterior(state: PowerEP) -> Site:
    """The natural parameters of q(u): those of the prior plus those of all the sites."""
    return Site(
        np.sum([site.T1 for site in state.sites], axis=0),
        np.linalg.inv(state.prior.Kuu) + np.sum([site.T2 for site in state.sites], axis=0),
    )


def _moments(natural: Site) -> tuple[Array, Array]:
    covariance = np.linalg.inv(natural.T2)
    return covariance @ natural.T1, covariance


def _log_normaliser(natural: Site) -> float:
    """G = log of the integral over u of exp(T1' u - u' T2 u / 2)."""
    M = len(natural.T1)
    quadratic = float(natural.T1 @ np.linalg.solve(natural.T2, natural.T1))
    return 0.5 * (M * np.log(2 * np.pi) - _log_det(natural.T2) + quadratic)


def _cavity(state: PowerEP, b: int) -> Site:
    posterior, site, alpha = power_ep_posterior(state), state.sites[b], state.alpha[b]
    return Site(posterior.T1 - alpha * site.T1, posterior.T2 - alpha * site.T2)


def _project(state: PowerEP, b: int) -> tuple[float, Site]:
    """Moment matching of the tilted distribution of u: log Z_tilted and the matched q(u).

    With a Gaussian likelihood N(y; f, S)^alpha is |2 pi S|^((1 - alpha)/2) alpha^(-n/2) times
    N(y; f, S / alpha), so the tilted distribution is the conditional of a joint Gaussian.
    """
    rows, alpha = state.rows[b], float(state.alpha[b])
    noise, r = state.noise[rows], state.r[rows]
    mean, V = _moments(_cavity(state, b))
    W = np.linalg.solve(state.prior.Kuu, state.prior.Kuf[:, rows]).T
    D = _residual_covariance(state.prior)[np.ix_(rows, rows)]
    C = W @ V @ W.T + D + np.diag(noise) / alpha
    log_z_tilted = (
        0.5 * (1.0 - alpha) * float(np.sum(np.log(2 * np.pi * noise)))
        - 0.5 * len(rows) * np.log(alpha)
        + gaussian_log_density((r - W @ mean)[:, None], C)
    )
    gain = V @ W.T @ np.linalg.inv(C)
    matched_mean = mean + gain @ (r - W @ mean)
    precision = np.linalg.inv(V - gain @ W @ V)
    return log_z_tilted, Site(precision @ matched_mean, precision)


def power_ep_sweep(state: PowerEP, step: float | None = None) -> PowerEP:
    """One pass of deletion, projection and update over the factors, in order.

    The new fraction of factor b is q / cavity; raised to 1/alpha it is the new factor, and the site
    moves towards it by `step`.

    :param step: in (0, 1]; `None` is the papers' rule, which is step = alpha_b.
    """
    sites = list(state.sites)
    for b, alpha in enumerate(state.alpha):
        current = state._replace(sites=sites)
        _, matched = _project(current, b)
        cavity = _cavity(current, b)
        rho = float(alpha) if step is None else step
        sites[b] = Site(
            (1.0 - rho) * sites[b].T1 + rho * (matched.T1 - cavity.T1) / alpha,
            (1.0 - rho) * sites[b].T2 + rho * (matched.T2 - cavity.T2) / alpha,
        )
    return state._replace(sites=sites)


def power_ep_log_z(state: PowerEP) -> float:
    """
    BYT17 (8) at the present sites: G(q) - G(p) + sum_b (log Z_tilted + G(cavity) - G(q)) / alpha_b.
    """
    M = len(state.prior.Kuu)
    prior = Site(np.zeros(M), np.linalg.inv(state.prior.Kuu))
    G_q = _log_normaliser(power_ep_posterior(state))
    log_z = G_q - _log_normaliser(prior)
    for b, alpha in enumerate(state.alpha):
        log_z_tilted, _ = _project(state, b)
        log_z += (log_z_tilted + _log_normaliser(_cavity(state, b)) - G_q) / alpha
    return float(log_z)


def power_ep_qu(state: PowerEP) -> tuple[Array, Array]:
    """Mean [M] and covariance [M, M] of q(u) at the present sites."""
    return _moments(power_ep_posterior(state))
