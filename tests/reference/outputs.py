"""Outputs that are mixtures of latent functions, with dense matrices, in NumPy alone.

A direction [S] of all whitened inducing variables for each observed entry, residual
covariances of whole rows, and the Power EP energy with the normalisers of rows and
entries written out.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.integrate

from reference.regression import Array, gaussian_log_density, power_correction

#: ``log p(y | f)`` of one output.
LogProb = Callable[[Array, Array], Array]
Kernel = Callable[[Array, Array], Array]


class Problem(NamedTuple):
    """Outputs with all their parts as arrays."""

    X: Array
    Y: Array  # [N, P], NaN where nothing was observed
    Z: Sequence[Array]  # of each latent function
    kernels: Sequence[Kernel]
    mixing: Array  # [P, Q]
    means: Array  # [P]
    likelihoods: Sequence[LogProb]
    jitter: float

    @property
    def entries(self) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
        rows, outputs = np.nonzero(np.isfinite(self.Y))
        return rows, outputs

    def projected(self, X: Array) -> tuple[list[Array], Array]:
        """A of each latent function, and d [N, Q]."""
        A = []
        d = []
        for Z, kernel in zip(self.Z, self.kernels, strict=True):
            L = np.linalg.cholesky(kernel(Z, Z) + self.jitter * np.eye(len(Z)))
            A.append(np.linalg.solve(L, kernel(Z, X)))
            d.append(np.diagonal(kernel(X, X)) - np.sum(A[-1] ** 2, axis=0))
        return A, np.array(d).T

    def directions(self, X: Array) -> Array:
        """[N, P, S]: f_np is this direction of v and what is left."""
        A, _ = self.projected(X)
        rows = [
            self.mixing[None, :, q, None] * part.T[:, None, :]
            for q, part in enumerate(A)
        ]
        return np.concatenate(rows, axis=2)

    def residual(self, X: Array) -> Array:
        """[N, P, P], the covariance of what is left."""
        return np.einsum(
            "pq,nq,rq->npr", self.mixing, self.projected(X)[1], self.mixing
        )


class Posterior(NamedTuple):
    """q(v)."""

    mean: Array
    covariance: Array
    half_logdet: float  # of the precision


def posterior_of(G: Array, b: Array) -> Posterior:
    B = np.eye(len(b)) + G
    covariance = np.linalg.inv(B)
    return Posterior(covariance @ b, covariance, 0.5 * np.linalg.slogdet(B)[1])


def closed_form(problem: Problem, noise: Array, alpha: float) -> float:
    """Gaussian noise [P], the outputs of a row one block: BYT17's energy of the dense
    matrices.
    """
    n, p = problem.entries
    a = problem.directions(problem.X)[n, p]
    D = _within_rows(problem)
    K = a @ a.T + alpha * D + np.diag(noise[p])
    r = problem.Y[n, p] - problem.means[p]
    return gaussian_log_density(r[:, None], K) + power_correction(D, noise[p], alpha)


def _within_rows(problem: Problem) -> Array:
    """The covariance of what is left of each observed entry with the others
    of its row.
    """
    n, p = problem.entries
    same_row = n[:, None] == n
    return problem.residual(problem.X)[n[:, None], p[:, None], p] * same_row


def imputed(problem: Problem, noise: Array, alpha: float) -> tuple[Array, Array]:
    """Moments of f [N, P] with Gaussian noise: each row is exact itself, given what it
    is observed to be, and approximated where it informs of the others.
    """
    n, p = problem.entries
    a = problem.directions(problem.X)
    D = problem.residual(problem.X)
    residual = _within_rows(problem)
    y = problem.Y[n, p] - problem.means[p]
    mean = np.empty_like(problem.Y)
    variance = np.empty_like(problem.Y)
    for row in range(len(problem.X)):
        here = n == row
        K = (
            a[n, p] @ a[n, p].T
            + np.where(here, 1.0, alpha) * residual
            + np.diag(noise[p])
        )
        cross = a[row] @ a[n, p].T + D[row][:, p] * here
        mean[row] = problem.means + cross @ np.linalg.solve(K, y)
        prior = np.diagonal(a[row] @ a[row].T + D[row])
        variance[row] = prior - np.sum(cross * np.linalg.solve(K, cross.T).T, axis=1)
    return mean, variance


def exact(problem: Problem, noise: Array) -> float:
    n, p = problem.entries
    K = np.diag(noise[p])
    w = problem.mixing[p]
    for q, kernel in enumerate(problem.kernels):
        K = K + np.outer(w[:, q], w[:, q]) * kernel(problem.X, problem.X)[np.ix_(n, n)]
    return gaussian_log_density((problem.Y[n, p] - problem.means[p])[:, None], K)


def tilted(
    log_prob: LogProb, y: Array, mean: Array, variance: Array, alpha: float
) -> Array:
    """log of the mean of p(y | f) ** alpha, over alpha, on a fine grid."""
    x = np.linspace(-12.0, 12.0, 6001)[:, None]
    weights = np.exp(-0.5 * x**2) / np.sum(np.exp(-0.5 * x**2))
    values = log_prob(mean + np.sqrt(variance) * x, y)
    if alpha == 0.0:
        return np.sum(weights * values, axis=0)
    top = values.max(axis=0)
    return (
        top + np.log(np.sum(weights * np.exp(alpha * (values - top)), axis=0)) / alpha
    )


def of_each(problem: Problem, mean: Array, variance: Array, alpha: float) -> Array:
    """The tilted integral of each observed entry, 0 elsewhere."""
    ell = np.zeros_like(problem.Y)
    for p, log_prob in enumerate(problem.likelihoods):
        n = np.isfinite(problem.Y[:, p])
        moments = mean[n, p] + problem.means[p], variance[n, p]
        ell[n, p] = tilted(log_prob, problem.Y[n, p], *moments, alpha)
    return ell


def log_determinant_shares(parts: Array) -> Array:
    """What each positive part [K, S, S] of G has in log|I + G|, if all grow together
    from 0.
    """
    total = parts.sum(axis=0)
    eye = np.eye(parts.shape[1])

    def slopes(t: float) -> Array:
        return np.einsum("ij,kji->k", np.linalg.inv(eye + t * total), parts)

    return np.asarray(scipy.integrate.quad_vec(slopes, 0.0, 1.0, epsrel=1e-11)[0])


class RowsAsFactors(NamedTuple):
    contribution: Array  # [N]
    cavity_mean: Array  # [N, P], without the mean function
    cavity_variance: Array


def rows_as_factors(
    problem: Problem, nu: Array, tau: Array, alpha: float
) -> RowsAsFactors:
    """Every normaliser of rows and inner sites by itself; alpha > 0."""
    a = problem.directions(problem.X)
    D = problem.residual(problem.X)
    J = np.eye(D.shape[1]) + alpha * tau[:, :, None] * D
    R = np.linalg.solve(J, tau[:, :, None] * np.eye(D.shape[1]))
    r = np.linalg.solve(J, nu[:, :, None])[..., 0]
    parts = np.einsum("nps,npr,nrt->nst", a, R, a)
    first = np.einsum("nps,np->ns", a, r)
    q = posterior_of(parts.sum(axis=0), first.sum(axis=0))
    totals = 0.5 * (first @ q.mean - log_determinant_shares(parts))
    ell_mean = np.zeros_like(nu)
    ell_variance = np.ones_like(nu)
    precision = np.linalg.inv(q.covariance)
    for n in range(len(nu)):
        # The cavity of the whole row in all of v, by brute force.
        cavity = precision - alpha * a[n].T @ R[n] @ a[n]
        covariance = np.linalg.inv(cavity)
        mean = covariance @ (precision @ q.mean - alpha * a[n].T @ r[n])
        totals[n] += (
            _log_partition(cavity, mean) - _log_partition(precision, q.mean)
        ) / alpha
        # f of the row under it, and with its inner sites to the power alpha.
        prior = a[n] @ covariance @ a[n].T + D[n]
        prior_mean = a[n] @ mean
        K = np.eye(len(prior)) + alpha * prior * tau[n]
        s, m = (
            np.linalg.solve(K, x) for x in (prior, prior_mean + alpha * prior @ nu[n])
        )
        log_mass = nu[n] @ (prior_mean + m) - np.sum(tau[n] * prior_mean * m)
        log_mass = 0.5 * (alpha * log_mass - np.linalg.slogdet(K)[1])
        s = np.diagonal(s)
        e = 1.0 - alpha * tau[n] * s
        ell_mean[n], ell_variance[n] = (m - alpha * nu[n] * s) / e, s / e
        inner = (alpha * nu[n] ** 2 * s + tau[n] * m**2 - 2.0 * nu[n] * m) / e
        totals[n] += log_mass / alpha + 0.5 * np.sum(inner - np.log(e) / alpha)
    totals += np.sum(of_each(problem, ell_mean, ell_variance, alpha), axis=1)
    return RowsAsFactors(totals, ell_mean, ell_variance)


def row_energy(problem: Problem, nu: Array, tau: Array, alpha: float) -> float:
    return float(np.sum(rows_as_factors(problem, nu, tau, alpha).contribution))


def _log_partition(precision: Array, mean: Array) -> float:
    return float(-0.5 * np.linalg.slogdet(precision)[1] + 0.5 * mean @ precision @ mean)


def bound(problem: Problem, mean: Array, root: Array) -> float:
    """SVGP's bound for one Gaussian over all whitened inducing variables."""
    a = problem.directions(problem.X)
    D = problem.residual(problem.X)
    s = np.sum((a @ root) ** 2, axis=2) + np.einsum("npp->np", D)
    divergence = 0.5 * (np.sum(root**2) + mean @ mean - len(mean))
    divergence -= np.sum(np.log(np.abs(np.diagonal(root))))
    return float(np.sum(of_each(problem, a @ mean, s, 0.0)) - divergence)
