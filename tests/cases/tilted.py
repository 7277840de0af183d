"""One table of likelihoods, targets and independent densities for all that concerns
tilting.
"""

import itertools
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import gpflow
import numpy as np
import numpy.typing as npt
import tensorflow as tf
import tensorflow_probability as tfp
from reference import tilted as reference
from scipy.special import gammaln, log_ndtr, ndtr, xlogy
from scipy.stats import norm
from scipy.stats import t as student

import gpflow_pep as pep

Array = npt.NDArray[np.float64]
# Means [L], variances [L], alpha -> ell.
Reference = Callable[[Array, Array, float], float]
# Means [L], variances [L] -> those of y, [P].
Moments = Callable[[Array, Array], tuple[Any, Any]]
likelihoods = gpflow.likelihoods
ours = pep.likelihoods
MEANS = (-50.0, -3.0, 0.7, 8.0, 50.0)
VARIANCES = (1e-6, 0.3, 1.0, 100.0, 1e6)
ALPHAS = (0.0, 1e-6, 0.1, 0.5, 1.0)


class Case(NamedTuple):
    """A likelihood with one target, and its tilted integral by other means."""

    create: Callable[[], gpflow.likelihoods.Likelihood]
    target: Sequence[float]  # [P]
    reference: Reference
    tolerance: float = 1e-6  # of ell, relative to 1 + |ell|
    num_latent: int = 1
    grows: float = 0.0  # sign of f in which log p falls as fast as exp(|f|)
    log_scale: int | None = (
        None  # latent function; the density is known by its values alone
    )
    moments: Moments | None = None  # of y; None if they are those of another case

    def is_finite(self, mean: float, variance: float, alpha: float) -> bool:
        """Whether float64 holds ell and what the reference needs for it."""
        return alpha > 0.0 or not self.grows or self.grows * mean + variance < 400.0


def _scalar(
    log_density: Callable[[Array], Array], *places: float, wall: float = 0.0
) -> Reference:
    def integral(mean: Array, variance: Array, alpha: float) -> float:
        more = [-wall * np.log(max(alpha, 1e-8))] if wall else []
        moments = float(mean[0]), float(variance[0])
        return reference.log_power_expectation(
            log_density, *moments, alpha, [*places, *more]
        )

    integral.log_density = log_density  # type: ignore[attr-defined]
    return integral


#: log p = -log(1 + exp(-f)).
LOGIT = _scalar(lambda f: -np.logaddexp(0.0, -f), 0.0)


def _given_f(first: Any, second: Any, *places: float) -> Moments:
    """By integrals of the mean and variance of y given f."""
    return lambda mean, v: reference.moments(
        first, second, float(mean[0]), float(v[0]), places
    )


def _noisy(noise: float) -> Moments:
    return lambda mean, variance: (mean[0], variance[0] + noise)


def _rate(first: float, linear: float, square: float) -> Moments:
    """Of y with the mean a r and variance b r + c r² given r = exp(f)."""

    def closed_form(mean: Array, variance: Array) -> tuple[float, float]:
        with np.errstate(over="ignore"):
            rate, second = np.exp(mean[0] + variance[0] * np.array([0.5, 1.0]))
            spread = second * second * -np.expm1(-variance[0])
            return first * rate, linear * rate + square * second**2 + first**2 * spread

    return closed_form


def _event(reference: Reference, label: float = 1.0) -> Moments:
    """Of labels 0 and 1, by the integral of one of them."""

    def integral(mean: Array, variance: Array) -> tuple[float, float]:
        p = np.exp(reference(mean, variance, 1.0))
        return (p if label else 1.0 - p), p * (1.0 - p)

    return integral


def _bins(edges: Array, sigma: float, floor: float = 0.0) -> Moments:
    """Of the numbers of bins, each with some probability more."""

    def closed_form(mean: Array, variance: Array) -> tuple[float, float]:
        z = (edges - mean[0]) / np.sqrt(sigma**2 + variance[0])
        ends = np.concatenate([[-np.inf], z, [np.inf]])
        low = ends[:-1]
        high = ends[1:]
        p = np.where(low > 0.0, ndtr(-low) - ndtr(-high), ndtr(high) - ndtr(low))
        p = (1.0 - 2e-3) * p + floor if floor else p
        labels = np.arange(len(p))
        first = labels @ p / p.sum()
        return first, (labels - first) ** 2 @ p / p.sum()

    return closed_form


def _squashed(f: Array) -> Array:
    return 1e-3 + (1.0 - 2e-3) * ndtr(f)


def _softplus(f: Array) -> Array:
    return np.logaddexp(0.0, f)


def _exp(f: Array) -> Array:
    return np.exp(np.minimum(f, 600.0))


def squeezed_probit(sign: float, epsilon: float) -> Reference:
    return _scalar(
        lambda f: np.log(epsilon + (1 - 2 * epsilon) * ndtr(sign * f)), 0.0, -3 * sign
    )


def student_t(y: float, scale: float, df: float) -> Reference:
    return _scalar(lambda f: student.logpdf(y, df, f, scale), y)


def _poisson(y: float, binsize: float = 1.0) -> Reference:
    log_size = np.log(binsize)

    def density(f):
        return y * (f + log_size) - binsize * _exp(f) - gammaln(y + 1)

    return _scalar(density, np.log(max(y, 1e-3) / binsize), wall=1.0)


def _log_softplus(f: Array) -> Array:
    """It is f far on the left."""
    return np.where(f < -30.0, f, np.log(np.maximum(np.logaddexp(0.0, f), 1e-300)))


def gamma(y: float, shape: float) -> Reference:
    constant = xlogy(shape - 1, y) - gammaln(shape)
    place = np.log(max(y, 1e-20) / shape)
    return _scalar(lambda f: constant - shape * f - y * _exp(-f), place, wall=-1.0)


def _censored(sign: float, bound: float, variance: float) -> Reference:
    return _scalar(lambda f: log_ndtr(sign * (f - bound) / np.sqrt(variance)), bound)


def gaussian(y: float, noise: float) -> Reference:
    return _scalar(lambda f: norm.logpdf(y, f, np.sqrt(noise)), y)


def beta(y: float, scale: float) -> Reference:
    y = float(np.clip(y, 1e-6, 1 - 1e-6))

    def log_density(f: Array) -> Array:
        a = scale * (1e-3 + (1 - 2e-3) * ndtr(f))
        b = scale - a
        constant = gammaln(scale) - gammaln(a) - gammaln(b)
        return (a - 1) * np.log(y) + (b - 1) * np.log1p(-y) + constant

    return _scalar(log_density, 0.0, -3.0, 3.0)


_EDGES = np.array([-1.0, 0.5, 4.0])


def _in_a_bin(
    create: Any, label: int, edges: Array, sigma: float, floor: float, rtol: float
) -> Case:
    low, high = np.concatenate([[-np.inf], edges, [np.inf]])[label : label + 2]

    def log_density(f: Array) -> Array:
        a = (low - f) / sigma
        b = (high - f) / sigma
        inner, outer = (
            log_ndtr(np.where(a + b > 0.0, *pair)) for pair in ((-a, b), (-b, a))
        )
        log_p = inner + np.log(-np.expm1(outer - inner))
        return np.log((1.0 - 2e-3) * np.exp(log_p) + floor) if floor else log_p

    density = _scalar(log_density, *(edge for edge in (low, high) if np.isfinite(edge)))
    return Case(
        create, [float(label)], density, rtol, moments=_bins(edges, sigma, floor)
    )


def ordinal(label: int, sigma: float, edges: Array = _EDGES) -> Case:
    def create() -> gpflow.likelihoods.Likelihood:
        likelihood = likelihoods.Ordinal(edges)
        likelihood.sigma.assign(sigma)
        return likelihood

    return _in_a_bin(create, label, edges, sigma, 1e-6, 1e-5)


def _bin(
    label: int, sigma: float = 1.0, edges: Array = _EDGES, tolerance: float = 1e-8
) -> Case:
    create = partial(ours.Ordinal, edges, sigma)
    return _in_a_bin(create, label, edges, sigma, 0.0, tolerance)


def _step(sign: float, epsilon: float) -> Reference:
    def integral(mean: Array, variance: Array, alpha: float) -> float:
        z = sign * mean[0] / np.sqrt(variance[0])
        logs = np.array([np.log1p(-epsilon), np.log(epsilon)])
        return _two_valued(np.array([ndtr(z), ndtr(-z)]), logs, alpha)

    at = np.log([epsilon, 1.0 - epsilon])
    integral.log_density = lambda f: at[(sign * f >= 0.0) * 1]  # type: ignore[attr-defined]
    return integral


def _two_valued(prob: Array, logs: Array, alpha: float) -> float:
    # By the series of cumulants; the fourth is below 1e-7 of the first.
    if alpha < 1e-3:
        first = float(prob @ logs)
        second, third = (float(prob @ (logs - first) ** k) for k in (2, 3))
        return first + alpha * second / 2 + alpha**2 * third / 6
    return float(np.log(prob @ np.exp(alpha * logs))) / alpha


def _multi_class(label: int, high: float, low: float) -> Reference:
    def integral(mean: Array, variance: Array, alpha: float) -> float:
        own = mean[label]
        own_deviation = np.sqrt(variance[label])
        others = [k for k in range(len(mean)) if k != label]

        def product(f: Array) -> Array:
            z = (f - own) / own_deviation
            log_cdf = sum(
                log_ndtr((f - mean[k]) / np.sqrt(variance[k])) for k in others
            )
            return np.exp(log_cdf - 0.5 * z**2) / np.sqrt(2 * np.pi) / own_deviation

        edges = [own + own_deviation * np.linspace(-13, 13, 53)]
        edges += [
            mean[k] + np.sqrt(variance[k]) * np.linspace(-9, 9, 19) for k in others
        ]
        points = np.unique(np.concatenate(edges))
        points = points[np.abs(points - own) < 13.1 * own_deviation]
        largest = reference.adaptive_integral(product, points)
        prob = np.array([largest, 1.0 - largest])
        return _two_valued(prob, np.log([high, low]), alpha)

    return integral


def _heteroscedastic(y: float) -> Reference:
    """Integrated over the first latent function by the formula, over the second by
    quadrature.
    """

    def integral(mean: Array, variance: Array, alpha: float) -> float:
        def log_density(f: Array) -> Array:
            noise = np.exp(np.clip(2.0 * f, -690.0, 690.0))
            ratio = variance[0] / noise
            spread = np.log1p(alpha * ratio) / alpha if alpha else ratio
            error = (y - mean[0]) ** 2 / (noise + alpha * variance[0])
            return -0.5 * (np.log(2 * np.pi * noise) + spread + error)

        size = float(np.log(abs(y - mean[0]) + np.sqrt(variance[0])))
        moments = float(mean[1]), float(variance[1])
        return reference.log_power_expectation(log_density, *moments, alpha, [size])

    return integral


def _noise_of_f(mean: Array, variance: Array) -> tuple[float, float]:
    with np.errstate(over="ignore"):
        return mean[0], variance[0] + np.exp(2.0 * mean[1] + 2.0 * variance[1])


def _counts(y: float, dispersion: float) -> Case:
    # Gamma(y + r) / Gamma(r) / r^y.
    counted = sum(np.log1p(dispersion * k) for k in range(int(y)))
    constant = counted - np.log(dispersion) * y - gammaln(y + 1)

    def log_density(f: Array) -> Array:
        u = f + np.log(dispersion)
        return constant - y * np.logaddexp(0.0, -u) - np.logaddexp(0.0, u) / dispersion

    walls = [np.log((y + 1.0) / a) for a in (1.0, 0.1, 1e-3, 1e-6)]
    density = _scalar(log_density, -np.log(dispersion), np.log(max(y, 1e-3)), *walls)
    create = partial(ours.NegativeBinomial, dispersion)
    moments = _rate(1.0, 1.0, dispersion)
    return Case(create, [y], density, 1e-5, moments=moments)


def _label(create: Any, y: float, one: Reference) -> Case:
    return Case(create, [y], one, moments=_event(one, y))


def _noisy_label(epsilon: float, y: float) -> Case:
    one = squeezed_probit(2.0 * y - 1.0, epsilon)
    return _label(partial(ours.NoisyLabelBernoulli, epsilon), y, one)


def _growing(
    create: Any, y: float, density: Reference, up: float, *rate: float
) -> Case:
    """It falls as fast as exp(f), or exp(-f); moments are those of a rate."""
    moments = _rate(*rate) if rate else None
    return Case(create, [y], density, 1e-5, grows=up, moments=moments)


def _tobit(
    y: Sequence[float], density: Reference, *bounds: float, noise: float = 0.3
) -> Case:
    clip = _given_f(
        lambda f: np.clip(f, *(*bounds, np.inf)[:2]), np.zeros_like, *bounds
    )
    moments = (lambda mean, variance: clip(mean, variance + noise)) if bounds else None
    return Case(
        partial(ours.Tobit, *bounds, variance=noise), y, density, moments=moments
    )


def _student(
    parameters: tuple[float, float], y: float, moments: Moments | None = None
) -> Case:
    create = partial(likelihoods.StudentT, *parameters)
    return Case(create, [y], student_t(y, *parameters), moments=moments)


def _noisy_normal(F: tf.Tensor) -> tfp.distributions.Distribution:
    return tfp.distributions.Normal(F[..., :1], tf.exp(F[..., 1:]))


def _other_link(f: Array) -> Array:
    return np.arctan(f) / np.pi * 0.98


_softplus_link = {"invlink": tf.nn.softplus}
CASES: dict[str, Case] = {
    **{
        kind.__name__: Case(
            partial(kind, 0.3), [1.1], gaussian(1.1, 0.3), moments=_noisy(0.3)
        )
        for kind in (likelihoods.Gaussian, likelihoods.GaussianMC)
    },
    "Bernoulli 1": _label(likelihoods.Bernoulli, 1.0, squeezed_probit(1.0, 1e-3)),
    "Bernoulli 0": _label(likelihoods.Bernoulli, 0.0, squeezed_probit(-1.0, 1e-3)),
    "Bernoulli logit": _label(
        partial(likelihoods.Bernoulli, invlink=tf.sigmoid), 1.0, LOGIT
    ),
    "Bernoulli other link": Case(
        lambda: likelihoods.Bernoulli(
            invlink=lambda f: 0.5 + tf.atan(f) / np.pi * 0.98
        ),
        [0.0],
        _scalar(lambda f: np.log(0.5 - _other_link(f)), 0.0, 3.0),
        moments=_given_f(
            lambda f: 0.5 + _other_link(f), lambda f: 0.25 - _other_link(f) ** 2, 0.0
        ),
    ),
    "Poisson 0": _growing(likelihoods.Poisson, 0.0, _poisson(0.0), 1.0),
    "Poisson 3": _growing(
        partial(likelihoods.Poisson, binsize=0.5),
        3.0,
        _poisson(3.0, 0.5),
        1.0,
        0.5,
        0.5,
        0.0,
    ),
    "Poisson 10000": _growing(likelihoods.Poisson, 1e4, _poisson(1e4), 1.0),
    "Poisson softplus": Case(
        partial(likelihoods.Poisson, **_softplus_link),
        [2.0],
        _scalar(lambda f: 2.0 * _log_softplus(f) - _softplus(f) - np.log(2.0), 0.0),
        1e-5,
        moments=_given_f(_softplus, _softplus, 0.0),
    ),
    "Exponential 0": Case(
        likelihoods.Exponential, [0.0], _scalar(lambda f: -f, wall=-1.0), 1e-5
    ),
    "Exponential": _growing(
        likelihoods.Exponential, 0.5, gamma(0.5, 1.0), -1.0, 1.0, 0.0, 1.0
    ),
    "Gamma": _growing(
        partial(likelihoods.Gamma, shape=2.5), 3.0, gamma(3.0, 2.5), -1.0, 2.5, 0.0, 2.5
    ),
    "Gamma 1": _growing(likelihoods.Gamma, 3.0, gamma(3.0, 1.0), -1.0),
    "Gamma tiny": _growing(
        partial(likelihoods.Gamma, shape=100.0), 1e-3, gamma(1e-3, 100.0), -1.0
    ),
    "Beta": Case(
        partial(likelihoods.Beta, scale=3.0),
        [0.3],
        beta(0.3, 3.0),
        1e-5,
        moments=_given_f(_squashed, lambda f: _squashed(f) * _squashed(-f) / 4.0, 0.0),
    ),
    "Beta 0": Case(likelihoods.Beta, [0.0], beta(0.0, 1.0), 1e-5),
    "Beta narrow": Case(
        partial(likelihoods.Beta, scale=100.0), [0.6], beta(0.6, 100.0), 1e-5
    ),
    "StudentT": _student((1.0, 4.0), -3.0, _noisy(2.0)),
    "StudentT narrow": _student((0.1, 3.0), 1.3),
    "Ordinal first": ordinal(0, 1.0),
    "Ordinal middle": ordinal(1, 1.0),
    "Ordinal wide": ordinal(2, 0.1),
    "Ordinal last": ordinal(3, 1.0),
    "MultiClass": Case(
        partial(likelihoods.MultiClass, 3),
        [1.0],
        _multi_class(1, 1 - 1e-3, 5e-4),
        num_latent=3,
    ),
    "Softmax": Case(  # It depends on the difference only, as the logit does.
        partial(likelihoods.Softmax, 2),
        [1.0],
        lambda mean, v, alpha: LOGIT(mean[1:] - mean[:1], v.sum(keepdims=True), alpha),
        5e-6,
        num_latent=2,
    ),
    **{
        create().__class__.__name__: Case(
            create, [0.4], _heteroscedastic(0.4), 1e-5, 2, -1.0, log_scale, _noise_of_f
        )
        for create, log_scale in (
            (likelihoods.HeteroskedasticTFPConditional, None),
            (partial(likelihoods.MultiLatentTFPConditional, 2, _noisy_normal), 1),
        )
    },
    "SwitchedLikelihood": Case(
        lambda: likelihoods.SwitchedLikelihood(
            [likelihoods.Bernoulli(), likelihoods.StudentT(0.5)]
        ),
        [1.3, 1.0],
        student_t(1.3, 0.5, 3.0),
        moments=lambda *of_f: np.transpose(
            [_event(squeezed_probit(1.0, 1e-3))(*of_f), _noisy(0.75)(*of_f)]
        ),
    ),
    "NoisyLabelBernoulli probit": _noisy_label(0.05, 1.0),
    "NoisyLabelBernoulli rare": _noisy_label(1e-6, 0.0),
    "NoisyLabelBernoulli step": _label(
        partial(ours.NoisyLabelBernoulli, 0.05, "step"), 0.0, _step(-1.0, 0.05)
    ),
    "NegativeBinomial 0": _counts(0.0, 0.7),
    "NegativeBinomial 3": _counts(3.0, 0.7),
    "NegativeBinomial wide": _counts(40.0, 8.0),
    "NegativeBinomial narrow": _counts(1e4, 1e-3),
    "NegativeBinomial nearly Poisson": _counts(5.0, 1e-5),
    "NegativeBinomial softplus": Case(
        partial(ours.NegativeBinomial, 0.5, **_softplus_link),
        [2.0],
        _scalar(
            lambda f: (
                np.log(0.75)
                + 2.0 * _log_softplus(f)
                - 4.0 * np.log1p(0.5 * _softplus(f))
            ),
            0.0,
        ),
        1e-5,
        moments=_given_f(
            _softplus, lambda f: _softplus(f) + 0.5 * _softplus(f) ** 2, 0.0
        ),
    ),
    "Tobit inside": _tobit([1.1], gaussian(1.1, 0.3), 0.0),
    "Tobit low": _tobit([0.5], _censored(-1.0, 0.5, 0.3), 0.5),
    "Tobit high": _tobit([2.0], _censored(1.0, 2.0, 1e-4), -1.0, 2.0, noise=1e-4),
    "Tobit limit of a row": _tobit([0.5, -1.0], _censored(-1.0, 0.5, 0.3)),
    "Tobit upper limit of a row": _tobit([0.5, 1.0], _censored(1.0, 0.5, 0.3)),
    "Tobit no limit of a row": _tobit([1.1, 0.0], gaussian(1.1, 0.3)),
    "Bin first": _bin(0),
    "Bin middle": _bin(1),
    "Bin last": _bin(3),
    "Bin narrow": _bin(1, 1.0, np.array([0.0, 0.02])),
    "Bin wide": _bin(2, 0.1, tolerance=1e-5),
    "LogNormal": Case(
        partial(ours.LogNormal, 0.3),
        [5.0],
        _scalar(
            lambda f: norm.logpdf(np.log(5.0), f, np.sqrt(0.3)) - np.log(5.0),
            np.log(5.0),
        ),
        moments=lambda mean, variance: _rate(1.0, 0.0, 0.0)(mean, variance + 0.3),
    ),
}
#: Other numbers of a likelihood that is among the fast tests.
LIKE_ANOTHER = {
    *(
        "Bernoulli 0",
        "GaussianMC",
        "Gamma 1",
        "NegativeBinomial wide",
        "NegativeBinomial narrow",
        "NegativeBinomial nearly Poisson",
        "NegativeBinomial softplus",
    ),
    *("Bin first", "Bin last", "Bin wide", "Bin narrow"),
    *("Ordinal last", "Ordinal wide", "Beta 0", "Beta narrow"),
    *("Tobit upper limit of a row", "Tobit limit of a row", "Tobit high"),
}


class Rows(NamedTuple):
    X: Array
    mean: Array
    variance: Array
    Y: Array
    alpha: Array

    def arguments(self, dtype: Any = np.float64) -> "list[Any]":
        return [tf.constant(array, dtype) for array in self]


def grid(
    case: Case, means: Any = MEANS, variances: Any = VARIANCES, alphas: Any = ALPHAS
) -> Rows:
    """All combinations that are finite; latent functions after the first have other
    moments.
    """
    every = itertools.product(means, variances, alphas)
    points = np.array([point for point in every if case.is_finite(*point)])
    latent = np.arange(case.num_latent)
    mean = points[:, :1] * np.cos(latent) + 0.5 * latent
    variance = points[:, 1:2] ** np.array([1.0, 0.3, -0.2, 0.6])[: case.num_latent]
    Y = np.tile(case.target, (len(points), 1))
    rows = Rows(0.0 * points[:, :1], mean, variance, Y, points[:, 2])
    if case.log_scale is None:
        return rows
    # A density narrower than the digits of its place cannot be seen from its values.
    lowest = mean[:, case.log_scale] - 8.6 * np.sqrt(variance[:, case.log_scale])
    return Rows(*(part[lowest > -28.0] for part in rows))


def reference_values(case: Case, rows: Rows) -> Array:
    each = zip(rows.mean, rows.variance, rows.alpha)
    return np.array([case.reference(m, v, float(a)) for m, v, a in each])
