"""One table of likelihoods, targets and independent densities for all that concerns tilting."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import gpflow
import numpy as np
import numpy.typing as npt
import tensorflow as tf
import tensorflow_probability as tfp
from reference import tilted as reference
from scipy.special import gammaln, log_ndtr, ndtr, xlogy

import gpflow_pep as pep

Array = npt.NDArray[np.float64]
Reference = Callable[[Array, Array, float], float]  # means [L], variances [L], alpha -> ell
Moments = Callable[[Array, Array], tuple[Any, Any]]  # means [L], variances [L] -> those of y, [P]
likelihoods = gpflow.likelihoods

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
    log_scale: int | None = None  # latent function; the density is known by its values alone
    moments: Moments | None = None  # of y; None if they are those of another case

    def is_finite(self, mean: float, variance: float, alpha: float) -> bool:
        """Whether float64 holds ell and what the reference needs for it."""
        return alpha > 0.0 or not self.grows or self.grows * mean + variance < 400.0


def _scalar(log_density: Callable[[Array], Array], *places: float, wall: float = 0.0) -> Reference:
    def integral(mean: Array, variance: Array, alpha: float) -> float:
        more = [-wall * np.log(max(alpha, 1e-8))] if wall else []
        return reference.log_power_expectation(
            log_density, float(mean[0]), float(variance[0]), alpha, [*places, *more]
        )

    return integral


def _given_f(
    first: Callable[[Array], Array], second: Callable[[Array], Array], *places: float
) -> Moments:
    """From the mean and variance of y given one latent function."""

    def integral(mean: Array, variance: Array) -> tuple[float, float]:
        return reference.moments(first, second, float(mean[0]), float(variance[0]), places)

    return integral


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
        low, high = ends[:-1], ends[1:]
        p = np.where(low > 0.0, ndtr(-low) - ndtr(-high), ndtr(high) - ndtr(low))
        p = (1.0 - 2e-3) * p + floor if floor else p
        labels = np.arange(len(p))
        first = labels @ p / p.sum()
        return first, (labels - first) ** 2 @ p / p.sum()

    return closed_form


def _clipped(low: float, high: float, noise: float) -> Moments:
    """Of f plus noise, cut off."""

    def integral(mean: Array, variance: Array) -> tuple[float, float]:
        places = [end for end in (low, high) if np.isfinite(end)]
        clip = _given_f(lambda f: np.clip(f, low, high), np.zeros_like, *places)
        return clip(mean, variance + noise)

    return integral


def _squashed(f: Array) -> Array:
    return 1e-3 + (1.0 - 2e-3) * ndtr(f)


def _softplus(f: Array) -> Array:
    return np.logaddexp(0.0, f)


def _exp(f: Array) -> Array:
    return np.exp(np.minimum(f, 600.0))


def _squeezed_probit(sign: float, epsilon: float) -> Reference:
    return _scalar(lambda f: np.log(epsilon + (1 - 2 * epsilon) * ndtr(sign * f)), 0.0, -3 * sign)


def _student_t(y: float, scale: float, df: float) -> Reference:
    constant = gammaln(df / 2 + 0.5) - gammaln(df / 2) - 0.5 * np.log(df * np.pi) - np.log(scale)
    return _scalar(lambda f: constant - (df + 1) / 2 * np.log1p(((y - f) / scale) ** 2 / df), y)


def _poisson(y: float, binsize: float = 1.0) -> Reference:
    return _scalar(
        lambda f: y * (f + np.log(binsize)) - binsize * _exp(f) - gammaln(y + 1),
        np.log(max(y, 1e-3) / binsize),
        wall=1.0,
    )


def _softplus_poisson(y: float) -> Reference:
    def log_density(f: Array) -> Array:
        # log(softplus(f)) is f far on the left.
        rate = np.logaddexp(0.0, f)
        return (
            np.where(f < -30.0, y * f, y * np.log(np.maximum(rate, 1e-300))) - rate - gammaln(y + 1)
        )

    return _scalar(log_density, 0.0)


def _gamma(y: float, shape: float) -> Reference:
    constant = xlogy(shape - 1, y) - gammaln(shape)
    place = np.log(max(y, 1e-20) / shape)
    return _scalar(lambda f: constant - shape * f - y * _exp(-f), place, wall=-1.0)


def _negative_binomial(y: float, dispersion: float) -> Reference:
    shape = 1.0 / dispersion
    counted = sum(np.log1p(dispersion * k) for k in range(int(y)))  # Gamma(y + r) / Gamma(r) / r^y
    constant = counted - np.log(dispersion) * y - gammaln(y + 1)

    def log_density(f: Array) -> Array:
        u = f + np.log(dispersion)
        return constant - y * np.logaddexp(0.0, -u) - shape * np.logaddexp(0.0, u)

    walls = [np.log((y + 1.0) / a) for a in (1.0, 0.1, 1e-3, 1e-6)]
    return _scalar(log_density, -np.log(dispersion), np.log(max(y, 1e-3)), *walls)


def _softplus_negative_binomial(y: float, dispersion: float) -> Reference:
    shape = 1.0 / dispersion
    constant = gammaln(y + shape) - gammaln(shape) - gammaln(y + 1) + y * np.log(dispersion)

    def log_density(f: Array) -> Array:
        rate = np.logaddexp(0.0, f)
        log_rate = np.where(f < -30.0, f, np.log(np.maximum(rate, 1e-300)))
        return constant + y * log_rate - (y + shape) * np.log1p(dispersion * rate)

    return _scalar(log_density, 0.0)


def _zero_inflated(y: float, p: float) -> Reference:
    if y == 0.0:
        return _scalar(lambda f: np.log(p + (1.0 - p) * np.exp(-_exp(f))), 0.0, 2.0)
    constant = np.log1p(-p) - gammaln(y + 1)
    return _scalar(lambda f: constant + y * f - _exp(f), np.log(y), wall=1.0)


def _censored(sign: float, bound: float, variance: float) -> Reference:
    return _scalar(lambda f: log_ndtr(sign * (f - bound) / np.sqrt(variance)), bound)


def _log_normal(y: float, variance: float) -> Reference:
    def log_density(f: Array) -> Array:
        error = (np.log(y) - f) ** 2 / variance
        return -np.log(y) - 0.5 * (np.log(2.0 * np.pi * variance) + error)

    return _scalar(log_density, np.log(y))


def _beta(y: float, scale: float) -> Reference:
    y = float(np.clip(y, 1e-6, 1 - 1e-6))

    def log_density(f: Array) -> Array:
        a = scale * (1e-3 + (1 - 2e-3) * ndtr(f))
        b = scale - a
        constant = gammaln(scale) - gammaln(a) - gammaln(b)
        return (a - 1) * np.log(y) + (b - 1) * np.log1p(-y) + constant

    return _scalar(log_density, 0.0, -3.0, 3.0)


_EDGES = np.array([-1.0, 0.5, 4.0])


def _ordinal(label: int, sigma: float) -> Case:
    low, high = np.concatenate([[-np.inf], _EDGES, [np.inf]])[label : label + 2]

    def log_density(f: Array) -> Array:
        a, b = (low - f) / sigma, (high - f) / sigma
        p = np.where(a > 0, ndtr(-a) - ndtr(-b), ndtr(b) - ndtr(a))
        return np.log((1 - 2e-3) * p + 1e-6)

    def create() -> gpflow.likelihoods.Likelihood:
        likelihood = likelihoods.Ordinal(_EDGES)
        likelihood.sigma.assign(sigma)
        return likelihood

    moments = _bins(_EDGES, sigma, 1e-6)
    return Case(create, [float(label)], _scalar(log_density, *_EDGES), 1e-5, moments=moments)


def _bin(label: int, sigma: float = 1.0, edges: Array = _EDGES, tolerance: float = 1e-8) -> Case:
    low, high = np.concatenate([[-np.inf], edges, [np.inf]])[label : label + 2]

    def log_density(f: Array) -> Array:
        a, b = (low - f) / sigma, (high - f) / sigma
        mirrored = a + b > 0.0
        inner = log_ndtr(np.where(mirrored, -a, b))
        outer = log_ndtr(np.where(mirrored, -b, a))
        return inner + np.log(-np.expm1(outer - inner))

    def create() -> gpflow.likelihoods.Likelihood:
        return pep.likelihoods.Ordinal(edges, sigma)

    places = [edge for edge in (low, high) if np.isfinite(edge)]
    moments = _bins(edges, sigma)
    return Case(create, [float(label)], _scalar(log_density, *places), tolerance, moments=moments)


def _gaussian(y: float, noise: float) -> Reference:
    return _scalar(lambda f: -0.5 * np.log(2 * np.pi * noise) - 0.5 * (y - f) ** 2 / noise, y)


def _step(sign: float, epsilon: float) -> Reference:
    def integral(mean: Array, variance: Array, alpha: float) -> float:
        z = sign * mean[0] / np.sqrt(variance[0])
        logs = np.array([np.log1p(-epsilon), np.log(epsilon)])
        return _two_valued(np.array([ndtr(z), ndtr(-z)]), logs, alpha)

    return integral


def _two_valued(prob: Array, logs: Array, alpha: float) -> float:
    if alpha < 1e-3:  # by the series of cumulants; the fourth is below 1e-7 of the first
        first = float(prob @ logs)
        second, third = (float(prob @ (logs - first) ** k) for k in (2, 3))
        return first + alpha * second / 2 + alpha**2 * third / 6
    return float(np.log(prob @ np.exp(alpha * logs))) / alpha


def _multi_class(label: int, high: float, low: float) -> Reference:
    def integral(mean: Array, variance: Array, alpha: float) -> float:
        own, own_deviation = mean[label], np.sqrt(variance[label])
        others = [k for k in range(len(mean)) if k != label]

        def product(f: Array) -> Array:
            z = (f - own) / own_deviation
            log_cdf = sum(log_ndtr((f - mean[k]) / np.sqrt(variance[k])) for k in others)
            return np.exp(log_cdf - 0.5 * z**2) / np.sqrt(2 * np.pi) / own_deviation

        edges = [own + own_deviation * np.linspace(-13, 13, 53)]
        edges += [mean[k] + np.sqrt(variance[k]) * np.linspace(-9, 9, 19) for k in others]
        points = np.unique(np.concatenate(edges))
        points = points[np.abs(points - own) < 13.1 * own_deviation]
        largest = reference.adaptive_integral(product, points)
        prob = np.array([largest, 1.0 - largest])
        return _two_valued(prob, np.log([high, low]), alpha)

    return integral


def _heteroscedastic(y: float) -> Reference:
    """Integrated over the first latent function by the formula, over the second by quadrature."""

    def integral(mean: Array, variance: Array, alpha: float) -> float:
        def log_density(f: Array) -> Array:
            noise = np.exp(np.clip(2.0 * f, -690.0, 690.0))
            ratio = variance[0] / noise
            spread = np.log1p(alpha * ratio) / alpha if alpha else ratio
            error = (y - mean[0]) ** 2 / (noise + alpha * variance[0])
            return -0.5 * (np.log(2 * np.pi * noise) + spread + error)

        size = float(np.log(abs(y - mean[0]) + np.sqrt(variance[0])))
        return reference.log_power_expectation(
            log_density, float(mean[1]), float(variance[1]), alpha, [size]
        )

    return integral


def _noise_of_f(mean: Array, variance: Array) -> tuple[float, float]:
    with np.errstate(over="ignore"):
        return mean[0], variance[0] + np.exp(2.0 * mean[1] + 2.0 * variance[1])


def _softmax_of_two(label: int) -> Reference:
    """It depends on the difference only, as the logit does."""
    logit = _scalar(lambda f: -np.logaddexp(0.0, -f), 0.0)

    def integral(mean: Array, variance: Array, alpha: float) -> float:
        difference = mean[label] - mean[1 - label]
        return logit(np.array([difference]), np.array([variance.sum()]), alpha)

    return integral


def _of_switched(mean: Array, variance: Array) -> tuple[Array, Array]:
    event = _event(_squeezed_probit(1.0, 1e-3))(mean, variance)
    pairs = zip(event, _noisy(0.75)(mean, variance))
    first, second = map(np.array, pairs)
    return first, second


def _switched() -> gpflow.likelihoods.Likelihood:
    return likelihoods.SwitchedLikelihood([likelihoods.Bernoulli(), likelihoods.StudentT(0.5)])


def _two_latents() -> gpflow.likelihoods.Likelihood:
    def noisy(F: tf.Tensor) -> tfp.distributions.Distribution:
        return tfp.distributions.Normal(F[..., :1], tf.exp(F[..., 1:]))

    return likelihoods.MultiLatentTFPConditional(2, noisy)


def _counts(y: float, dispersion: float) -> Case:
    def create() -> gpflow.likelihoods.Likelihood:
        return pep.likelihoods.NegativeBinomial(dispersion)

    moments = _rate(1.0, 1.0, dispersion)
    return Case(create, [y], _negative_binomial(y, dispersion), 1e-5, moments=moments)


def _inflated(y: float, p: float) -> Case:
    def create() -> gpflow.likelihoods.Likelihood:
        return pep.likelihoods.ZeroInflatedPoisson(p)

    moments, grows = _rate(1.0 - p, 1.0 - p, (1.0 - p) * p), 1.0 if y else 0.0
    return Case(create, [y], _zero_inflated(y, p), 1e-5, grows=grows, moments=moments)


_probit = likelihoods.Bernoulli
CASES: dict[str, Case] = {
    "Gaussian": Case(
        lambda: likelihoods.Gaussian(0.3), [1.1], _gaussian(1.1, 0.3), moments=_noisy(0.3)
    ),
    "GaussianMC": Case(
        lambda: likelihoods.GaussianMC(0.3), [1.1], _gaussian(1.1, 0.3), moments=_noisy(0.3)
    ),
    "Bernoulli 1": Case(
        _probit, [1.0], _squeezed_probit(1.0, 1e-3), moments=_event(_squeezed_probit(1.0, 1e-3))
    ),
    "Bernoulli 0": Case(_probit, [0.0], _squeezed_probit(-1.0, 1e-3)),
    "Bernoulli logit": Case(
        lambda: likelihoods.Bernoulli(invlink=tf.sigmoid),
        [1.0],
        _scalar(lambda f: -np.logaddexp(0.0, -f), 0.0),
        moments=_event(_scalar(lambda f: -np.logaddexp(0.0, -f), 0.0)),
    ),
    "Bernoulli other link": Case(
        lambda: likelihoods.Bernoulli(invlink=lambda f: 0.5 + tf.atan(f) / np.pi * 0.98),
        [0.0],
        _scalar(lambda f: np.log(0.5 - np.arctan(f) / np.pi * 0.98), 0.0, 3.0),
        moments=_given_f(
            lambda f: 0.5 + np.arctan(f) / np.pi * 0.98,
            lambda f: 0.25 - (np.arctan(f) / np.pi * 0.98) ** 2,
            0.0,
        ),
    ),
    "Poisson 0": Case(likelihoods.Poisson, [0.0], _poisson(0.0), 1e-5, grows=1.0),
    "Poisson 3": Case(
        lambda: likelihoods.Poisson(binsize=0.5),
        [3.0],
        _poisson(3.0, 0.5),
        1e-5,
        grows=1.0,
        moments=_rate(0.5, 0.5, 0.0),
    ),
    "Poisson 10000": Case(likelihoods.Poisson, [1e4], _poisson(1e4), 1e-5, grows=1.0),
    "Poisson softplus": Case(
        lambda: likelihoods.Poisson(invlink=tf.nn.softplus),
        [2.0],
        _softplus_poisson(2.0),
        1e-5,
        moments=_given_f(_softplus, _softplus, 0.0),
    ),
    "Exponential 0": Case(likelihoods.Exponential, [0.0], _scalar(lambda f: -f, wall=-1.0), 1e-5),
    "Exponential": Case(
        likelihoods.Exponential,
        [0.5],
        _gamma(0.5, 1.0),
        1e-5,
        grows=-1.0,
        moments=_rate(1.0, 0.0, 1.0),
    ),
    "Gamma": Case(
        lambda: likelihoods.Gamma(shape=2.5),
        [3.0],
        _gamma(3.0, 2.5),
        1e-5,
        grows=-1.0,
        moments=_rate(2.5, 0.0, 2.5),
    ),
    "Gamma 1": Case(likelihoods.Gamma, [3.0], _gamma(3.0, 1.0), 1e-5, grows=-1.0),
    "Gamma tiny": Case(
        lambda: likelihoods.Gamma(shape=100.0), [1e-3], _gamma(1e-3, 100.0), 1e-5, grows=-1.0
    ),
    "Beta": Case(
        lambda: likelihoods.Beta(scale=3.0),
        [0.3],
        _beta(0.3, 3.0),
        1e-5,
        moments=_given_f(_squashed, lambda f: _squashed(f) * _squashed(-f) / 4.0, 0.0),
    ),
    "Beta 0": Case(likelihoods.Beta, [0.0], _beta(0.0, 1.0), 1e-5),
    "Beta narrow": Case(lambda: likelihoods.Beta(scale=100.0), [0.6], _beta(0.6, 100.0), 1e-5),
    "StudentT": Case(
        lambda: likelihoods.StudentT(1.0, 4.0),
        [-3.0],
        _student_t(-3.0, 1.0, 4.0),
        moments=_noisy(2.0),
    ),
    "StudentT narrow": Case(
        lambda: likelihoods.StudentT(0.1, 3.0), [1.3], _student_t(1.3, 0.1, 3.0)
    ),
    "Ordinal first": _ordinal(0, 1.0),
    "Ordinal middle": _ordinal(1, 1.0),
    "Ordinal wide": _ordinal(2, 0.1),
    "Ordinal last": _ordinal(3, 1.0),
    "MultiClass": Case(
        lambda: likelihoods.MultiClass(3), [1.0], _multi_class(1, 1 - 1e-3, 5e-4), num_latent=3
    ),
    "Softmax": Case(lambda: likelihoods.Softmax(2), [1.0], _softmax_of_two(1), 5e-6, num_latent=2),
    "HeteroskedasticTFPConditional": Case(
        likelihoods.HeteroskedasticTFPConditional,
        [0.4],
        _heteroscedastic(0.4),
        1e-5,
        num_latent=2,
        grows=-1.0,
        moments=_noise_of_f,
    ),
    "MultiLatentTFPConditional": Case(
        _two_latents,
        [0.4],
        _heteroscedastic(0.4),
        1e-5,
        num_latent=2,
        grows=-1.0,
        log_scale=1,
        moments=_noise_of_f,
    ),
    "SwitchedLikelihood": Case(
        _switched, [1.3, 1.0], _student_t(1.3, 0.5, 3.0), moments=_of_switched
    ),
    "NoisyLabelBernoulli probit": Case(
        lambda: pep.likelihoods.NoisyLabelBernoulli(0.05),
        [1.0],
        _squeezed_probit(1.0, 0.05),
        moments=_event(_squeezed_probit(1.0, 0.05)),
    ),
    "NoisyLabelBernoulli rare": Case(
        lambda: pep.likelihoods.NoisyLabelBernoulli(1e-6), [0.0], _squeezed_probit(-1.0, 1e-6)
    ),
    "NoisyLabelBernoulli step": Case(
        lambda: pep.likelihoods.NoisyLabelBernoulli(0.05, "step"),
        [0.0],
        _step(-1.0, 0.05),
        moments=_event(_step(-1.0, 0.05), 0.0),
    ),
    "NegativeBinomial 0": _counts(0.0, 0.7),
    "NegativeBinomial 3": _counts(3.0, 0.7),
    "NegativeBinomial wide": _counts(40.0, 8.0),
    "NegativeBinomial narrow": _counts(1e4, 1e-3),
    "NegativeBinomial nearly Poisson": _counts(5.0, 1e-5),
    "NegativeBinomial softplus": Case(
        lambda: pep.likelihoods.NegativeBinomial(0.5, tf.nn.softplus),
        [2.0],
        _softplus_negative_binomial(2.0, 0.5),
        1e-5,
        moments=_given_f(_softplus, lambda f: _softplus(f) + 0.5 * _softplus(f) ** 2, 0.0),
    ),
    "ZeroInflatedPoisson 0": _inflated(0.0, 0.3),
    "ZeroInflatedPoisson 0, rare": _inflated(0.0, 1e-5),
    "ZeroInflatedPoisson 0, often": _inflated(0.0, 0.95),
    "ZeroInflatedPoisson 3": _inflated(3.0, 0.3),
    "Tobit inside": Case(
        lambda: pep.likelihoods.Tobit(low=0.0, variance=0.3),
        [1.1],
        _gaussian(1.1, 0.3),
        moments=_clipped(0.0, np.inf, 0.3),
    ),
    "Tobit low": Case(
        lambda: pep.likelihoods.Tobit(low=0.5, variance=0.3), [0.5], _censored(-1.0, 0.5, 0.3)
    ),
    "Tobit high": Case(
        lambda: pep.likelihoods.Tobit(-1.0, 2.0, variance=1e-4),
        [2.0],
        _censored(1.0, 2.0, 1e-4),
        moments=_clipped(-1.0, 2.0, 1e-4),
    ),
    "Tobit limit of a row": Case(
        lambda: pep.likelihoods.Tobit(variance=0.3), [0.5, -1.0], _censored(-1.0, 0.5, 0.3)
    ),
    "Tobit upper limit of a row": Case(
        lambda: pep.likelihoods.Tobit(variance=0.3), [0.5, 1.0], _censored(1.0, 0.5, 0.3)
    ),
    "Tobit no limit of a row": Case(
        lambda: pep.likelihoods.Tobit(variance=0.3), [1.1, 0.0], _gaussian(1.1, 0.3)
    ),
    "Bin first": _bin(0),
    "Bin middle": _bin(1),
    "Bin last": _bin(3),
    "Bin narrow": _bin(1, 1.0, np.array([0.0, 0.02])),
    "Bin wide": _bin(2, 0.1, tolerance=1e-5),
    "LogNormal": Case(
        lambda: pep.likelihoods.LogNormal(0.3),
        [5.0],
        _log_normal(5.0, 0.3),
        moments=lambda mean, variance: _rate(1.0, 0.0, 0.0)(mean, variance + 0.3),
    ),
}


class Rows(NamedTuple):
    """Arguments of tilted integrals, a row for each point of the grid."""

    X: Array
    mean: Array
    variance: Array
    Y: Array
    alpha: Array

    def arguments(self, dtype: Any = np.float64) -> "list[Any]":
        return [tf.constant(array, dtype) for array in self]


def grid(
    case: Case,
    means: Sequence[float] = MEANS,
    variances: Sequence[float] = VARIANCES,
    alphas: Sequence[float] = ALPHAS,
) -> Rows:
    """
    Every mean with every variance and alpha where the result is finite; latent functions after the
    first have other moments, of their own sizes.
    """
    points = np.array(
        [(m, v, a) for m in means for v in variances for a in alphas if case.is_finite(m, v, a)]
    )
    latent = np.arange(case.num_latent)
    mean = points[:, :1] * np.cos(latent) + 0.5 * latent
    variance = points[:, 1:2] ** np.array([1.0, 0.3, -0.2, 0.6])[: case.num_latent]
    rows = Rows(
        np.zeros((len(points), 1)),
        mean,
        variance,
        np.tile(case.target, (len(points), 1)),
        points[:, 2],
    )
    if case.log_scale is None:
        return rows
    # A density narrower than the digits of its place cannot be seen from its values.
    lowest = mean[:, case.log_scale] - 8.6 * np.sqrt(variance[:, case.log_scale])
    return Rows(*(part[lowest > -28.0] for part in rows))


def reference_values(case: Case, rows: Rows) -> Array:
    return np.array(
        [case.reference(m, v, float(a)) for m, v, a in zip(rows.mean, rows.variance, rows.alpha)]
    )
