"""A naive dense NumPy computation of batches of rows that are forgotten one after
another.

What a batch leaves is q(f(Z)) over the prior of its time: pseudo-observations of f(Z),
one more block of rows (BNT17, section 3; BYT17, section 3.7). N rows, M inducing
points, R before, D inputs.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from reference.regression import Array, Prior, gaussian_log_density
from reference.sites import Factor, Problem, fixed_point, posterior
from reference.sites import log_z as log_z_of_sites

Covariance = Callable[[Array, Array], Array]
Mean = Callable[[Array], Array]  # [N, D] -> [N]


class Process(NamedTuple):
    """A Gaussian process prior with its inducing points."""

    covariance: Covariance
    mean: Mean
    Z: Array  # [M, D]
    jitter: float

    def of_points(self) -> Array:
        """[M, M]."""
        return self.covariance(self.Z, self.Z) + self.jitter * np.eye(len(self.Z))


class Past(NamedTuple):
    """What is left of the batches before."""

    Z: Array  # [R, D]
    prior_mean: Array  # [R], of f(Z), and so on
    prior_covariance: Array  # [R, R]
    mean: Array  # [R]
    covariance: Array  # [R, R]
    log_z: float

    def observations(self) -> tuple[Array, Array]:
        """Targets [R] and noise covariance [R, R] whose likelihood is posterior over
        prior.
        """
        S = np.linalg.inv(self.covariance)
        K = np.linalg.inv(self.prior_covariance)
        noise = np.linalg.inv(S - K)
        return noise @ (S @ self.mean - K @ self.prior_mean), noise


class Rows(NamedTuple):
    """Rows with Gaussian noise."""

    X: Array  # [N, D]
    y: Array  # [N]
    noise: Array  # [N]


def no_rows(num_columns: int) -> Rows:
    return Rows(np.zeros([0, num_columns]), np.zeros(0), np.zeros(0))


def _log_det_ratio(D: Array, noise: Array, alpha: float) -> float:
    """log|I + alpha noise^-1 D| / alpha, or its limit."""
    root = np.linalg.inv(np.linalg.cholesky(noise))
    values = np.linalg.eigvalsh(root @ D @ root.T)
    return float(
        np.sum(values) if alpha == 0.0 else np.sum(np.log1p(alpha * values)) / alpha
    )


def streamed(now: Process, rows: Rows, past: Past | None, alpha: float) -> Past:
    """log Z of all rows so far by Power EP, and q(f(Z)) of the present
    inducing points.
    """
    X = rows.X
    y = rows.y
    blocks = [np.array([n]) for n in range(len(rows.y))]
    noise = np.diag(rows.noise)
    log_z = 0.0
    if past is not None:
        target, covariance = past.observations()
        blocks.append(np.arange(len(y), len(y) + len(target)))
        X = np.vstack([X, past.Z])
        y = np.concatenate([y, target])
        zeros = np.zeros([len(rows.y), len(target)])
        noise = np.block([[noise, zeros], [zeros.T, covariance]])
        off = (target - past.prior_mean)[:, None]
        alone = gaussian_log_density(off, past.prior_covariance + covariance)
        log_z = past.log_z - alone
    Kuu = now.of_points()
    Kuf = now.covariance(now.Z, X)
    Kff = now.covariance(X, X)
    # Inducing variables have the jitter, and those that stay the same one.
    if past is not None:
        kept = np.all(now.Z[:, None] == past.Z[None], axis=-1)
        Kuf[:, len(rows.y) :] += now.jitter * kept
        Kff[len(rows.y) :, len(rows.y) :] += now.jitter * np.eye(len(past.Z))
    Q = Kuf.T @ np.linalg.solve(Kuu, Kuf)
    K_bar = Q + noise
    for block in blocks:
        own = np.ix_(block, block)
        D = (Kff - Q)[own]
        K_bar[own] += alpha * D
        log_z -= 0.5 * (1.0 - alpha) * _log_det_ratio(D, noise[own], alpha)
    r = y - now.mean(X)
    solved = np.linalg.solve(K_bar, Kuf.T)
    mean = now.mean(now.Z)
    log_z = log_z + gaussian_log_density(r[:, None], K_bar)
    return Past(now.Z, mean, Kuu, mean + solved.T @ r, Kuu - Kuf @ solved, log_z)


def streamed_by_sites(
    processes: Any,
    X: Array,
    factors: list[Factor],
    pasts: Any,
    log_z: float,
    alpha: float,
) -> tuple[float, list[tuple[Array, Array]]]:
    """log Z of all rows so far, from that of those before, where new ones have any
    likelihood, and q(f(Z)) of each latent function: Power EP, where the prior is what
    the past says of the points.
    """
    priors = []
    means = []
    for now, past in zip(processes, pasts):
        known = streamed(now, no_rows(X.shape[1]), past._replace(log_z=0.0), alpha)
        log_z += known.log_z
        Kuf = now.covariance(now.Z, X)
        S = known.covariance
        # F = w' u + residual, whatever is known of u.
        w = np.linalg.solve(now.of_points(), Kuf)
        residual = now.covariance(X, X) - Kuf.T @ w
        priors.append(Prior(S, S @ w, residual + w.T @ S @ w))
        means.append((now.mean(X) + w.T @ (known.mean - now.mean(now.Z)), known.mean))
    of_rows = np.stack([mean for mean, _ in means], axis=1)
    problem = Problem(priors, of_rows, factors, np.full(len(X), alpha))
    sites = fixed_point(problem)
    moments = [natural.moments() for natural in posterior(problem, sites)]
    q = [(centre + mean, S) for (_, centre), (mean, S) in zip(means, moments)]
    return log_z + log_z_of_sites(problem, sites), q
