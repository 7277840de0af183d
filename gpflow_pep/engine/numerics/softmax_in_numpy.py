r"""The probability of each class under the softmax.

It is what :func:`gpflow_pep.engine.factors.softmax.softmax_probabilities` computes, at
the same nodes: both round alike.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import erfcx, logsumexp, ndtr

Array = npt.NDArray[np.float64]

#: exp(-exp(-x)) is Phi((x - CENTRE) / WIDTH) plus Gaussian bumps, each of a place, a
#: standard deviation and a height: by nonlinear least squares in all of them, of the
#: error over min(1, e^x).
CENTRE = 0.60827
WIDTH = 0.77506
BUMPS = (
    (-2.11952, 0.41636, -0.000442866),
    (-1.80746, 0.48810, 0.003032531),
    (-1.07764, 0.62496, -0.023677976),
    (0.19942, 0.81794, 0.252974305),
    (0.85637, 0.91271, -0.121035814),
    (1.78906, 0.98948, -0.034714087),
    (2.44757, 1.27864, -0.024341428),
    (4.26877, 1.29190, -0.002772377),
    (5.36027, 1.62332, -0.000829587),
    (7.27147, 2.09090, -0.000074040),
)
#: A Gumbel variable is below the one with probability 2e-24, above the other with 2e-9.
LOWEST_GUMBEL = -4.0
HIGHEST_GUMBEL = 20.0
#: The mean and the variance of a Gumbel variable, roughly.
GUMBEL_PLACE = 1.0
GUMBEL_VARIANCE = 1.2
#: The least value of a distribution function and of a density, relative to the normal
#: distribution's tail.
SMALLEST = 1e-30
#: With 80 nodes errors of the probabilities of 2 to 6 classes are at most 4e-8, and so
#: are relative errors of probabilities down to 1e-12, for variances of 1e-6 to 1e7.
#: With 64 nodes errors are 1e-7.
NUM_NODES = 80
#: The scale of a rise and half its length, in the standard deviations of its variable,
#: and how many are resolved beside the narrowest. A scale of .7 takes a third more
#: nodes to the same errors.
RISE_RESOLUTION = 1.0
RISE_EXTENT = 6.0
MORE_STRUCTURES = 2
#: See :mod:`gpflow_pep.engine.numerics.quadrature`, whose rule this is.
REACH = 8.6


def softmax_probabilities(mean: Array, variance: Array) -> Array:
    r"""Compute the probability of each class, [N, C], for independent Gaussian latent
    functions.

    :param mean: [N, C].
    :param variance: [N, C], not negative.
    """
    w, spacing = _nodes(mean, variance)
    v = variance.T[:, None, :]
    x = w - mean.T[:, None, :]
    log_cdf = _log_cdf(x, v)
    log_density = _log_cdf(x - v, v) - x + 0.5 * v
    values = log_cdf.sum(axis=0) - log_cdf + log_density + np.log(spacing)
    return np.asarray(np.exp(logsumexp(values, axis=1)).T)


def _log_cdf(x: Array, variance: Array) -> Array:
    """Compute the logarithm of the distribution function of a Gumbel plus a Gaussian
    variable.
    """
    t = (x - CENTRE) / np.sqrt(WIDTH**2 + variance)
    log_tail = -0.5 * np.minimum(t, 0.0) ** 2
    cdf = np.where(t < 0.0, 0.5 * erfcx(np.maximum(-t, 0.0) / np.sqrt(2.0)), ndtr(t))
    for place, deviation, height in BUMPS:
        precision = 1.0 / (deviation**2 + variance)
        offset = x - place
        bump = np.exp(-0.5 * precision * offset**2 - log_tail)
        cdf += height * deviation * np.sqrt(precision) * bump
    return np.asarray(log_tail + np.log(np.maximum(cdf, SMALLEST)))


class _Stretch(NamedTuple):
    """As in :mod:`gpflow_pep.engine.numerics.quadrature`."""

    centre: Array
    resolution: Array
    mu: Array
    step: float

    def forward(self, t: Array) -> tuple[Array, Array]:
        """Compute x and dx/dt."""
        y = self.resolution / self.step * ((1.0 - self.mu) * t + self.mu * np.sinh(t))
        slope = (
            self.resolution
            * ((1.0 - self.mu) + self.mu * np.cosh(t))
            / np.sqrt(y * y + 1.0)
        )
        return self.centre + self.step * np.arcsinh(y), slope

    def inverse(self, x: Array) -> Array:
        """Compute t, nearly."""
        y = self.step / self.resolution * np.sinh((x - self.centre) / self.step)
        size = np.abs(y)
        linear = 1.0 - self.mu
        t = np.arcsinh(size / self.mu)
        t = np.where(size < t * linear, size / (1.0 - 0.999 * self.mu), t)
        for _ in range(4):
            excess = linear * t + self.mu * np.sinh(t) - size
            t = t - excess / (linear + self.mu * np.cosh(t))
        return np.asarray(np.sign(y) * t)


def _nodes(mean: Array, variance: Array) -> tuple[Array, Array]:
    """Give places and weights, [Q, N] each, dense where a distribution
    function rises.
    """
    deviation = np.sqrt(variance)
    low = np.max(mean - REACH * deviation, axis=1) + LOWEST_GUMBEL
    high = np.max(mean + REACH * deviation, axis=1) + HIGHEST_GUMBEL
    middle = 0.5 * (low + high)
    unit = 0.5 * (high - low) / REACH
    width = np.sqrt(variance + GUMBEL_VARIANCE)
    centre = mean + GUMBEL_PLACE
    alive = mean + REACH * deviation + HIGHEST_GUMBEL > low[:, None]
    rows = np.arange(len(mean))
    score = np.where(alive, width, np.inf)
    nearest = np.inf
    chosen: list[Array] = []
    for _ in range(1 + MORE_STRUCTURES):
        chosen.insert(0, np.argmin(score, axis=1))
        distance = np.abs(centre - centre[rows, chosen[0]][:, None])
        nearest = np.minimum(
            nearest,
            np.maximum(distance, RISE_RESOLUTION * width[rows, chosen[0]][:, None]),
        )
        score = np.where(alive, width / nearest, np.inf)
    ends = np.full((2, len(mean)), REACH) * np.array([[-1.0], [1.0]])
    places = [np.clip((centre[rows, k] - middle) / unit, -REACH, REACH) for k in chosen]
    points = np.stack([*ends, *places])
    slopes = np.ones((len(chosen), len(mean)))
    stretches: list[_Stretch] = []
    for k in chosen:
        step = 1.0 if stretches else 2.0
        scale = width[rows, k] / unit / slopes[0]
        resolution = np.minimum(RISE_RESOLUTION * scale, step)
        mu = 1.0 / np.cosh(np.minimum(RISE_EXTENT * scale, step) / resolution)
        stretches.append(_Stretch(points[2], resolution, mu, step))
        points = stretches[-1].inverse(np.delete(points, 2, axis=0))
        slopes = slopes[1:] * stretches[-1].forward(points[2:])[1]
    x = points[0] + (points[1] - points[0]) * np.linspace(0.0, 1.0, NUM_NODES)[:, None]
    spacing = np.ones_like(x)
    for stretch in reversed(stretches):
        x, slope = stretch.forward(x)
        spacing = spacing * slope
    density = np.exp(-0.5 * x * x)
    weights = spacing * density / np.sum(spacing * density, axis=0)
    x = x - np.sum(weights * x, axis=0)
    x = x / np.sqrt(np.sum(weights * x * x, axis=0))
    return middle + unit * x, weights * unit * np.sqrt(2.0 * np.pi) * np.exp(
        0.5 * x * x
    )
