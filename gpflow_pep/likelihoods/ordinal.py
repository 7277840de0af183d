"""Ordered classes, such as grades and stages."""

from functools import partial
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow import Parameter
from gpflow.base import AnyNDArray, MeanAndVariance, TensorType
from gpflow.utilities import positive
from scipy.special import ndtri
from tensorflow import Tensor

from ..engine.checks import as_numbers, check_real, is_number, refusal
from ..engine.factors import ScalarFactor, Traits, scalar_factor, support, traits
from ..engine.factors.generic import bounded_log
from ..engine.factors.normal_tail import NormalTail, normal_tail, slopes_at_mode
from ..engine.factors.support import whole_numbers
from ..engine.numerics.quadrature import Mode, Structure
from .integrated import LikelihoodWithMoments

#: As that of GPflow's Gaussian, for the deviation.
_SMALLEST_SIGMA = 1e-3
#: Stands for infinity at the ends, where infinity itself would give gradients 0 times infinity.
_FAR_EDGE = 1e10
#: Bins that are narrower, on the scale on which the density varies, are integrated by a series.
_NARROW = 0.1
_NUM_NODES = 128


class Ordinal(LikelihoodWithMoments):
    r"""
    Classes 0 to C - 1 that are in order, such as grades, or answers from "never" to "always".

    .. math::

       p(y = k | f) = \Phi\left(\frac{b_{k + 1} - f}{\sigma}\right)
                      - \Phi\left(\frac{b_k - f}{\sigma}\right), \qquad
       b_0 = -\infty, \quad b_C = \infty

    so that y says between which two of C - 1 edges :math:`f + \epsilon` is, with noise
    :math:`\epsilon \sim N(0, \sigma^2)` (Chu & Ghahramani, *Gaussian processes for ordinal
    regression*, JMLR 6, 2005). Under a Gaussian f it is the same with :math:`\sigma^2` and the
    variance of f added. The edges are trained with the model and stay in order.

    :class:`gpflow.likelihoods.Ordinal` adds 1e-6 to each probability and does not train the edges.
    Here the probabilities are what the formula says: they sum to 1, and their logarithms have all
    their digits where they underflow.
    """

    def __init__(self, edges: Any, sigma: float = 1.0, **kwargs: Any) -> None:
        r"""
        :param edges: :math:`b_1 < \dots < b_{C - 1}`, one number at least; a trainable parameter.
        :param sigma: :math:`\sigma`, above 1e-3; a parameter that is not trainable at first: with a
            kernel whose variance is trained, twice of all (kernel, edges and :math:`\sigma`)
            is the same model.
        :raises ValueError: If the edges are not in order, or an argument is outside its range.
        """
        super().__init__(**kwargs)
        values = as_numbers("edges", edges)
        ascending = values.ndim == 1 and np.all(np.diff(values) > 0.0)
        if not (ascending and values.size and np.all(np.isfinite(values))):
            remedy = "Pass those between each class and the next, sorted."
            raise refusal("edges", values.tolist(), "one number or more, ascending", remedy)
        remedy = "Pass 1 and let the kernel's variance be trained."
        check_real("sigma", float(sigma), f"({_SMALLEST_SIGMA}, inf)", remedy)
        self.edges = Parameter(values, transform=tfp.bijectors.Ascending())
        lowest = positive(lower=_SMALLEST_SIGMA)
        self.sigma = Parameter(sigma, transform=lowest, trainable=False)

    @classmethod
    def of_classes(cls, num_classes: int) -> "Ordinal":
        """
        Start from edges between which all classes have the same probability under N(0, 2).

        That is f of unit variance and noise of unit variance.

        :param num_classes: C.
        :raises ValueError: If it is below 2.
        """
        if not (is_number(num_classes) and int(num_classes) == num_classes >= 2):
            raise refusal("num_classes", num_classes, "a whole number above 1", "Pass that.")
        return cls(np.sqrt(2.0) * ndtri(np.arange(1, num_classes) / num_classes))

    def _moments(self, X: TensorType, mean: Tensor, variance: Tensor) -> MeanAndVariance:
        """Compute the moments of the number of the class."""
        labels = tf.range(self.edges.shape[0] + 1, dtype=mean.dtype)
        deviation = tf.sqrt(tf.square(self.sigma) + variance)
        p = tf.exp(_log_prob(_bin_of(self, labels), mean[..., None], deviation[..., None]))
        first = tf.linalg.matvec(p, labels)
        return first, tf.reduce_sum(p * tf.square(labels - first[..., None]), axis=-1)


class _Bin(NamedTuple):
    """Between which edges f and its noise are for a target, [N, P] each."""

    low: Tensor
    """The lower edge; far away for the first class."""

    high: Tensor
    """The upper edge; far away for the last class."""

    width: Tensor
    """From one to the other."""

    def distance(self, f: Tensor, scale: Tensor) -> Tensor:
        """Compute how far inside of the nearer edge f is: less than 0 where it is outside."""
        return tf.where(self.is_above(f), self.high - f, f - self.low) / scale

    def is_above(self, f: Tensor) -> Tensor:
        """Whether the upper edge is the nearer one."""
        return self.high - f < f - self.low


def _bin_of(likelihood: Ordinal, Y: Tensor) -> _Bin:
    edges, far = tf.cast(likelihood.edges, Y.dtype), tf.constant([_FAR_EDGE], Y.dtype)
    label = tf.cast(Y, tf.int32)
    low = tf.gather(tf.concat([-far, edges], axis=0), label)
    high = tf.gather(tf.concat([edges, far], axis=0), label)
    return _Bin(low, high, high - low)


def _log_prob(inside: _Bin, f: Tensor, scale: Tensor) -> Tensor:
    return _log_mass(inside.distance(f, scale), inside.width / scale)


def _is_narrow(x: Tensor, width: Tensor) -> Tensor:
    return width * tf.maximum(0.5 * width - x, 1.0) < _NARROW


def _log_mass(x: Tensor, width: Tensor) -> Tensor:
    r"""
    Compute :math:`\log [\Phi(x) - \Phi(x - w)]` for :math:`x \le w / 2`.

    It is :math:`\log \Phi(x)` plus the logarithm of what the other end leaves of it. In narrow
    bins the series of the integral in w, of which the first term left out is below 1e-11.
    """
    narrow = _is_narrow(x, width)
    w, middle = tf.where(narrow, width, 1.0), tf.where(narrow, x - 0.5 * width, 0.0)
    square, part = tf.square(middle), tf.square(0.5 * w)
    second, fourth = square - 1.0, square * (square - 6.0) + 3.0  # Hermite's polynomials
    series = tf.math.log1p(part * (second / 6.0 + part * (fourth / 120.0)))
    by_series = series + bounded_log(w) - 0.5 * (square + np.log(2.0 * np.pi))
    x, width = tf.where(narrow, tf.zeros_like(x), x), tf.where(narrow, tf.ones_like(width), width)
    inner, fall = _inner_end(x, width)
    return tf.where(narrow, by_series, inner.log_cdf + tf.math.log(-tf.math.expm1(-fall)))


def _inner_end(x: Tensor, width: Tensor) -> tuple[NormalTail, Tensor]:
    r"""
    Compute :math:`\Phi(x)` and how far :math:`\log \Phi` falls from x to :math:`x - w`.

    Far out, both logarithms are large beside that: it is :math:`w (w / 2 - x)`, by which the log
    density falls, plus the logarithm of the ratio of the slopes :math:`N(x) / \Phi(x)`.
    """
    inner, outer = normal_tail(x), normal_tail(x - width)
    steeper = outer.slope / tf.where(x < 0.0, inner.slope, 1.0)
    below = width * (0.5 * width - x) + tf.math.log(steeper)
    return inner, tf.where(x < 0.0, below, inner.log_cdf - outer.log_cdf)


def _slopes(x: Tensor, width: Tensor) -> tuple[Tensor, Tensor]:
    r"""Compute the first derivative of :func:`_log_mass` in x, and the second one times -1."""
    narrow = _is_narrow(x, width)
    inner, fall = _inner_end(x, width)
    mass = tf.where(narrow, tf.ones_like(x), -tf.math.expm1(-fall))
    loss = width * (0.5 * width - x)
    slope = tf.where(narrow, 0.5 * width - x, -inner.slope * tf.math.expm1(-loss) / mass)
    far_end = width * inner.slope * tf.exp(-loss) / mass
    curvature = tf.where(narrow, tf.ones_like(x), slope * (slope + x) + far_end)
    return slope, tf.clip_by_value(curvature, 0.0, 1.0)


@scalar_factor.register(Ordinal)
def _factor(likelihood: Ordinal, X: Tensor, Y: Tensor, alpha: Tensor) -> ScalarFactor:
    inside, sigma = _bin_of(likelihood, Y), tf.cast(likelihood.sigma, Y.dtype)
    slopes = partial(_slopes, width=inside.width / sigma)

    def exact(mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        return alpha == 1.0, _log_prob(inside, mean, tf.sqrt(tf.square(sigma) + variance))

    def mode(mean: Tensor, variance: Tensor) -> Mode:
        start, t = inside.distance(mean, sigma), alpha * variance / tf.square(sigma)
        slope, curvature = slopes_at_mode(start, t, slopes, 0.5 * inside.width / sigma)
        towards = tf.where(inside.is_above(mean), -slope, slope)
        return Mode(towards / sigma, tf.sqrt(variance / (1.0 + t * curvature)))

    # A bin at the end has one edge: its structure counts twice.
    first, last = inside.low <= -_FAR_EDGE, inside.high >= _FAR_EDGE
    rising = tf.where(first, inside.high - sigma, inside.low + sigma)
    falling = tf.where(last, inside.low + sigma, inside.high - sigma)
    width = sigma * tf.ones_like(rising)
    structures = [Structure(place, width, 3.0 * width) for place in (rising, falling)]
    return ScalarFactor(
        lambda f: _log_prob(inside, f, sigma),
        structures,
        mode,
        exact=exact,
        num_nodes=_NUM_NODES,
    )


support.register(Ordinal)(lambda likelihood, Y: whole_numbers(Y, _count(likelihood)))


def _count(likelihood: Ordinal) -> int:
    return int(likelihood.edges.shape[0]) + 1


@traits.register(Ordinal)
def _traits(likelihood: Ordinal) -> Traits:
    def draw(X: AnyNDArray, f: AnyNDArray, random: np.random.Generator) -> AnyNDArray:
        noisy = f + np.asarray(likelihood.sigma) * random.standard_normal(f.shape)
        return np.searchsorted(np.asarray(likelihood.edges), noisy, side="right").astype(f.dtype)

    return Traits(num_classes=_count(likelihood), draw=draw)
