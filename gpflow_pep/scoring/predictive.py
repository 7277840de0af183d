"""What is predicted of targets: mixtures of distributions of which the moments are given."""

from typing import NamedTuple

import numpy as np
from scipy.special import log_ndtr, logsumexp, ndtr, ndtri, ndtri_exp

from ..engine.refusals import refusal
from .kernels import Array
from .units import Units

#: Steps of Newton's method for a quantile, and halvings of an interval after them.
_NEWTON_STEPS, _BISECTIONS = 12, 60
#: A step is the last where it is this much of the quantile and the smallest standard deviation.
_TOLERANCE = 1e-14
#: Stands for a density of 0, which is far out: such a step leaves the interval.
_SMALLEST_DENSITY = 1e-300
#: Quantiles at a time: so many that Python's own time does not count, so few that they fit a cache.
_CHUNK = 3000


class Predictive(NamedTuple):
    r"""
    The distributions of targets, [N], or [N, P] of several outputs: :math:`\sum_k w_k p_k(y)` each.

    Whatever its methods take and give is in original units.
    """

    means: Array
    """Of each component, in the model's units, [K, N] or [K, N, P]."""

    variances: Array
    """Of each component, of that shape."""

    weights: Array
    """[K], of sum 1."""

    units: Units = Units()

    noise: str = "Gaussian"
    """The name of the likelihood: the components of Gaussian noise are Gaussian."""

    def moments(self) -> tuple[Array, Array]:
        """
        Compute mean and variance, the spread of the components' means included.

        :raises ValueError: If one is not finite.
        """
        means, variances = self.units.moments(self.means, self.variances)
        mean = np.tensordot(self.weights, means, 1)
        variance = np.tensordot(self.weights, variances + (means - mean) ** 2, 1)
        return mean, require_finite(variance)  # it is not finite where a mean is not

    def quantiles(self, q: Array) -> Array:
        r"""
        Compute quantiles, the last axis of the result: each solves :math:`\sum_k w_k F_k(y) = q`.

        :param q: Probabilities in (0, 1), [Q].
        :raises ValueError: If the noise is not Gaussian.
        """
        self._check_gaussian("Use predict with return_std=True.")
        means, sd = (part.reshape(len(part), -1) for part in (self.means, np.sqrt(self.variances)))
        size = max(_CHUNK // max(len(q), 1), 1)
        values = [
            quantiles_of_mixture(means[:, i : i + size], sd[:, i : i + size], self.weights, q)
            for i in range(0, max(means.shape[1], 1), size)
        ]
        by_quantile = np.concatenate(values).T.reshape(len(q), *self.means.shape[1:])
        return np.moveaxis(self.units.inverse_transform(by_quantile), 0, -1)

    def log_densities(self, y: Array) -> Array:
        """
        Compute log densities of targets; NaN of NaN.

        :raises ValueError: If the noise is not Gaussian.
        """
        self._check_gaussian("Use log_densities of the estimator that was saved.")
        squares = (self.units.transform(y) - self.means) ** 2 / self.variances
        logs = -0.5 * (np.log(2.0 * np.pi * self.variances) + squares)
        return np.asarray(logsumexp(logs, axis=0, b=self._columns) + self.units.log_slope(y))

    def normal_scores(self, y: Array) -> Array:
        r"""Compute :math:`|\Phi^{-1}(F(y))|` of targets with Gaussian noise; NaN of NaN."""
        standardised = (self.units.transform(y) - self.means) / np.sqrt(self.variances)
        # By logarithms, the tails too are precise.
        tails = [logsumexp(log_ndtr(s * standardised), axis=0, b=self._columns) for s in (1, -1)]
        return np.asarray(-ndtri_exp(np.minimum(*tails)))

    @property
    def _columns(self) -> Array:
        return self.weights.reshape(-1, *[1] * (self.means.ndim - 1))

    def _check_gaussian(self, remedy: str) -> None:
        if self.noise != "Gaussian":
            got = f"the likelihood {self.noise}"
            raise refusal("predict_quantiles, log_densities", got, "Gaussian noise", remedy)


def require_finite(values: Array) -> Array:
    """Let predictions pass if they are finite."""
    if not np.isfinite(values).all():
        remedy = "The inputs are too large, or too far from the training rows."
        raise refusal("prediction", "NaN or infinity", "finite numbers", remedy)
    return values


def quantiles_of_mixture(means: Array, sd: Array, weights: Array, q: Array) -> Array:
    """
    Find the quantiles of mixtures of Gaussians by Newton's method in an interval that shrinks.

    :param means: [K, N].
    :param sd: [K, N], standard deviations.
    :param weights: [K].
    :param q: [Q].
    :return: [N, Q].
    """
    shape = (means.shape[1], len(q))
    means, sd = np.repeat(means, len(q), axis=1), np.repeat(sd, len(q), axis=1)  # [K, N Q]
    q = np.tile(q, shape[0])
    by_component = means + sd * ndtri(q)
    low, high = by_component.min(axis=0), by_component.max(axis=0)
    y, smallest = weights @ by_component, sd.min(axis=0)
    by_density = (weights / np.sqrt(2.0 * np.pi))[:, None] / sd
    for step in range(_NEWTON_STEPS + _BISECTIONS):
        z = (y - means) / sd
        excess = weights @ ndtr(z) - q
        below = excess < 0.0
        low, high = np.where(below, y, low), np.where(below, high, y)
        following = 0.5 * (low + high)
        if step < _NEWTON_STEPS:
            density = np.sum(by_density * np.exp(-0.5 * z * z), axis=0)
            newton = y - excess / np.maximum(density, _SMALLEST_DENSITY)
            following = np.where((newton >= low) & (newton <= high), newton, following)
        moved, y = np.abs(following - y), following
        if np.all(moved <= _TOLERANCE * (np.abs(y) + smallest)):
            break
    return np.asarray(y).reshape(shape)
