"""A naive dense NumPy computation of sequential Power EP for any likelihood.

From Bui, Yan and Turner (2017), sections 3.3 to 3.5 (BYT17), with sites that are full
Gaussians of the inducing variables, log Z by equation (8), and tilted moments from sums
over very fine grids; no code of the package. The limit alpha = 0 has formulas of its
own: conjugate-computation variational inference, by the natural-gradient direction of
E[log p(y | f)], and its bound.

Letters: N rows, M inducing variables, L latent functions, S new rows, G points of a
grid.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.stats

from reference.regression import Array, Prior

LogDensity = Callable[[Array], Array]
"""log p(y | f) of one row, elementwise in f."""


class TiltedMoments(NamedTuple):
    """Averages over f ~ N(m, diag(v)) of a function w of one row's L latent
    functions.
    """

    zeroth: float  # E[w]
    first: Array  # E[w (f - m)], [L]
    second: Array  # E[w (f - m)^2], [L]


Factor = Callable[[Array, Array, float], TiltedMoments]
"""(m [L], v [L], alpha) -> averages of w = p(y | f)^alpha, or of log p(y | f) where
alpha is 0.
"""


def scalar_factor(log_density: LogDensity) -> Factor:
    """The factor of a row with one latent function."""

    def average(mean: Array, variance: Array, alpha: float) -> TiltedMoments:
        offset = np.sqrt(variance[0]) * _GRID
        log_p = log_density(mean[0] + offset)
        weighted = _WEIGHTS * (np.exp(alpha * log_p) if alpha > 0.0 else log_p)
        first, second = (np.array([np.sum(weighted * offset**k)]) for k in (1, 2))
        return TiltedMoments(float(np.sum(weighted)), first, second)

    return average


def largest_latent_factor(label: int, high: float, low: float) -> Factor:
    """p = high where the label's latent function is the largest one, else low.

    One integral over the label's function, in which each other one is below it (VH20
    (A.34)); with f_k or its square before it, of the first moments of a Gaussian cut
    off above, instead.
    """

    def average(mean: Array, variance: Array, alpha: float) -> TiltedMoments:
        deviation = np.sqrt(variance)
        offset = deviation[label] * _GRID
        z = (mean[label] + offset - mean[:, None]) / deviation[:, None]  # [L, G]
        below = scipy.stats.norm.cdf(z)
        density = scipy.stats.norm.pdf(z)
        below[label] = 1.0
        inside = _WEIGHTS @ np.prod(below, axis=0)
        first = 0.0 * mean
        second = 0.0 * mean
        for k in range(len(mean)):
            parts = (
                -deviation[k] * density[k],
                variance[k] * (below[k] - z[k] * density[k]),
            )
            if k == label:
                parts = offset, offset**2
            others = _WEIGHTS * np.prod(np.delete(below, k, axis=0), axis=0)
            first[k], second[k] = (np.sum(others * part) for part in parts)
        w_low, w_high = (
            (low**alpha, high**alpha) if alpha > 0.0 else np.log([low, high])
        )
        # The average over everywhere is that of w_low; only the difference is left
        # inside.
        more = w_high - w_low
        return TiltedMoments(
            w_low + more * inside, more * first, w_low * variance + more * second
        )

    return average


def _symmetric_inverse(matrix: Array) -> Array:
    # Many sweeps would amplify what rounding leaves between the two triangles.
    inverse = np.linalg.inv(matrix)
    return 0.5 * (inverse + inverse.T)


class Natural(NamedTuple):
    """exp(T1' u - u' T2 u / 2) of one latent function, without its scale."""

    T1: Array  # [M]
    T2: Array  # [M, M]

    def moments(self) -> tuple[Array, Array]:
        """Mean and covariance."""
        covariance = _symmetric_inverse(self.T2)
        return covariance @ self.T1, covariance

    def log_normaliser(self) -> float:
        """log of the integral over u, BYT17's G."""
        sign, log_det = np.linalg.slogdet(self.T2)
        if sign <= 0:
            raise ValueError(
                "expected a proper Gaussian, got a precision that is not positive."
            )
        quadratic = float(self.T1 @ np.linalg.solve(self.T2, self.T1))
        return 0.5 * (len(self.T1) * np.log(2 * np.pi) - float(log_det) + quadratic)

    def plus(self, other: "Natural", times: Any = 1) -> Any:
        """The product with another one to a power."""
        return type(self)(self.T1 + times * other.T1, self.T2 + times * other.T2)

    def times(self, power: Any) -> Any:
        return type(self)(power * self.T1, power * self.T2)


"""(m [L], v [L], alpha) -> averages of w = p(y | f)^alpha, or of log p(y | f) where
alpha is 0.
"""

# The sum over an equidistant grid converges exponentially for analytic functions that
# vanish at both ends; the Gaussian is below 1e-31 of its maximum there.
_GRID = np.linspace(-12.0, 12.0, 1501)
_WEIGHTS = np.exp(-0.5 * _GRID**2) / np.sqrt(2 * np.pi) * (_GRID[1] - _GRID[0])


class Problem(NamedTuple):
    """A model: independent priors, factors, and their powers."""

    priors: Sequence[Prior]  # L
    means: Array  # [N, L], the mean functions at the rows
    factors: Sequence[Factor]  # N
    alpha: Array  # [N]

    def prior_of_u(self, latent: int) -> Natural:
        Kuu = self.priors[latent].Kuu
        return Natural(np.zeros(len(Kuu)), _symmetric_inverse(Kuu))

    def direction(self, row: int, latent: int) -> Array:
        """w with E[f | u] = w' u, [M]."""
        prior = self.priors[latent]
        return np.linalg.solve(prior.Kuu, prior.Kuf[:, row])

    def residual_variance(self, row: int, latent: int) -> float:
        """The variance of f given u."""
        prior = self.priors[latent]
        return float(
            prior.Kff[row, row] - prior.Kuf[:, row] @ self.direction(row, latent)
        )


Sites = list[list[Natural]]  # [N][L]


def no_sites(problem: Problem) -> Sites:
    """Sites that say nothing."""
    sizes = [p.Kuu for p in problem.priors]
    return [
        [Natural(0.0 * Kuu[0], 0.0 * Kuu) for Kuu in sizes] for _ in problem.factors
    ]


def posterior(problem: Problem, sites: Sites) -> list[Natural]:
    """q(u) of each latent function: the prior times all sites."""
    q = [problem.prior_of_u(latent) for latent in range(len(problem.priors))]
    for site in sites:
        q = [one.plus(other) for one, other in zip(q, site)]
    return q


def _moments_of_f(
    problem: Problem, row: int, of_u: Sequence[Natural]
) -> tuple[Array, Array]:
    """Mean and variance of the row's latent functions where u has these distributions,
    [L].
    """
    mean = np.zeros(len(of_u))
    variance = np.zeros(len(of_u))
    for latent, natural in enumerate(of_u):
        w, (m, V) = problem.direction(row, latent), natural.moments()
        mean[latent] = w @ m + problem.means[row, latent]
        variance[latent] = w @ V @ w + problem.residual_variance(row, latent)
    return mean, variance


def _cavity(
    problem: Problem, q: Sequence[Natural], sites: Sites, row: int
) -> list[Natural]:
    """BYT17 section 3.3, deletion."""
    alpha = float(problem.alpha[row])
    return [one.plus(site, -alpha) for one, site in zip(q, sites[row])]


def _log_tilted_normaliser(
    problem: Problem, row: int, cavity: Sequence[Natural]
) -> float:
    """log of E[p^alpha] under the cavity; at alpha = 0, E[log p]."""
    alpha = float(problem.alpha[row])
    zeroth = problem.factors[row](*_moments_of_f(problem, row, cavity), alpha).zeroth
    return float(np.log(zeroth)) if alpha > 0.0 else zeroth


def target_site(
    problem: Problem, q: Sequence[Natural], sites: Sites, row: int
) -> list[Natural]:
    """The row's site after projection and an undamped update.

    For alpha > 0 what the moments of the tilted distribution add to the cavity, to the
    power 1 / alpha (u given f is Gaussian); for alpha = 0 the steepest ascent of
    E_q[log p].
    """
    alpha = float(problem.alpha[row])
    cavity = _cavity(problem, q, sites, row)
    target = []
    mean, variance = _moments_of_f(problem, row, cavity)
    tilted = problem.factors[row](mean, variance, alpha)
    for latent, (natural, v) in enumerate(zip(cavity, variance)):
        w, (m, V) = problem.direction(row, latent), natural.moments()
        if alpha > 0.0:
            shift = tilted.first[latent] / tilted.zeroth
            shrinkage = v - (tilted.second[latent] / tilted.zeroth - shift**2)
            gain = V @ w / v  # covariance of u and f over the variance of f
            matched_precision = _symmetric_inverse(V - shrinkage * np.outer(gain, gain))
            matched = Natural(matched_precision @ (m + gain * shift), matched_precision)
            target.append(matched.plus(natural, -1.0).times(1.0 / alpha))
        else:
            by_mean = tilted.first[latent] / v
            by_mean_twice = (tilted.second[latent] / v - tilted.zeroth) / v
            T2 = -by_mean_twice * np.outer(w, w)
            target.append(Natural(by_mean * w + T2 @ m, T2))
    return target


def sweep(problem: Problem, sites: Sites, step: float) -> tuple[Sites, float]:
    """One pass over the rows, each update into q at once: the new sites, and the
    largest change of an undamped step, relative to the largest precision of q.
    """
    sites, changes, q = list(sites), [], posterior(problem, sites)
    for row in range(len(sites)):
        target = target_site(problem, q, sites, row)
        for one, new, old in zip(q, target, sites[row]):
            size = np.max(np.abs(one.T2))
            changes += [np.max(np.abs(a - b)) / size for a, b in zip(new, old)]
        moves = [
            new.plus(old, -1.0).times(step) for old, new in zip(sites[row], target)
        ]
        sites[row] = [old.plus(move) for old, move in zip(sites[row], moves)]
        q = [one.plus(move) for one, move in zip(q, moves)]
    return sites, float(np.max(changes))


def fixed_point(
    problem: Problem,
    *,
    step: float = 0.8,
    tolerance: float = 1e-12,
    max_sweeps: int = 300,
) -> Sites:
    """The sites that no update changes any more; an error where they are not
    reached.
    """
    sites = no_sites(problem)
    for _ in range(max_sweeps):
        sites, change = sweep(problem, sites, step)
        if change < tolerance:
            return sites
    raise ArithmeticError(
        f"no fixed point after {max_sweeps} sweeps: change {change:.3g}"
    )


def log_z(problem: Problem, sites: Sites) -> float:
    """BYT17 (8): G(q) - G(prior) + sum_n (log Z_tilted + G(cavity) - G(q)) / alpha.

    A factor of power 0 adds the limit instead, which is E[log p] plus the derivative of
    G along the site: -E_q[log t].
    """
    q = posterior(problem, sites)
    G_q = sum(one.log_normaliser() for one in q)
    value = G_q - sum(problem.prior_of_u(k).log_normaliser() for k in range(len(q)))
    for row, alpha in enumerate(problem.alpha):
        cavity = _cavity(problem, q, sites, row)
        normaliser = _log_tilted_normaliser(problem, row, cavity)
        if alpha > 0.0:
            G_cavity = sum(one.log_normaliser() for one in cavity)
            value += (normaliser + G_cavity - G_q) / float(alpha)
            continue
        value += normaliser
        for one, site in zip(q, sites[row]):
            mean, covariance = one.moments()
            second_moment = covariance + np.outer(mean, mean)
            value -= float(site.T1 @ mean) - 0.5 * float(
                np.sum(site.T2 * second_moment)
            )
    return value


def variational_bound(problem: Problem, q: Sequence[Natural]) -> float:
    """E_q[log p(y | f)] - KL[q(u) || p(u)] at any q(u), whatever the powers are."""
    rows = range(len(problem.factors))
    variational = problem._replace(alpha=np.zeros(len(rows)))
    value = sum(_log_tilted_normaliser(variational, row, q) for row in rows)
    for prior, natural in zip(problem.priors, q):
        mean, covariance = natural.moments()
        trace = np.trace(np.linalg.solve(prior.Kuu, covariance + np.outer(mean, mean)))
        log_dets = np.linalg.slogdet(prior.Kuu)[1] - np.linalg.slogdet(covariance)[1]
        value -= 0.5 * float(trace - len(mean) + log_dets)
    return value


def leave_one_out(problem: Problem, sites: Sites) -> Array:
    """log E[p(y_n | f)] under q without the whole site of row n, [N]."""
    rows = range(len(problem.factors))
    q = posterior(problem, sites)
    whole = problem._replace(alpha=np.ones(len(rows)))
    cavities = (_cavity(whole, q, sites, row) for row in rows)
    return np.array(
        [_log_tilted_normaliser(whole, *pair) for pair in zip(rows, cavities)]
    )


def predict(
    natural: Natural, prior: Prior, Kus: Array, Kss: Array
) -> tuple[Array, Array]:
    """Mean [S] and covariance [S, S] of f at new rows, without the mean function, by
    q(u).
    """
    mean, covariance = natural.moments()
    W = np.linalg.solve(prior.Kuu, Kus).T
    return W @ mean, Kss - W @ Kus + W @ covariance @ W.T
