"""Likelihoods of f plus Gaussian noise if only bounds are known: targets that are cut
off, and ordered classes.

The integrals need the logarithm of the normal distribution function where it is small.
"""

import copy
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow import Parameter
from gpflow.base import AnyNDArray, MeanAndVariance, TensorType
from scipy.special import ndtri
from tensorflow import Tensor

from ..engine import factors
from ..engine.checks import as_numbers, check_real, is_number, refusal
from ..engine.factors.classes import normal_cdf
from ..engine.factors.gaussian import gaussian_log_power_expectation, noise_in_units
from ..engine.factors.generic import bounded_log
from ..engine.factors.moments import whole_numbers
from ..engine.numerics.quadrature import Mode, Structure
from .integrated import LikelihoodWithMoments, parameter_between

#: Below minus this number the normal distribution function is computed as a continued
#: fraction. Above it, the third power of the function, by which derivatives divide,
#: does not underflow.
_FAR = {tf.float32: 7.0, tf.float64: 18.0}


class _NormalTail(NamedTuple):
    r"""The logarithm of the normal distribution function and its derivatives."""

    log_cdf: Tensor  #: :math:`\log \Phi(x)`, to fourteen digits.
    slope: Tensor  #: Its derivative, :math:`h = N(x) / \Phi(x)`.
    excess: Tensor  #: h + x, which is above 0.


def _slopes_at_mode(
    start: Tensor,
    t: Tensor,
    slopes: Callable[[Tensor], tuple[Tensor, Tensor]],
    most: TensorType,
) -> tuple[Tensor, Tensor]:
    r"""Solve :math:`x = x_0 + t s(x)` for x up to some limit by Newton's method, and
    return the result of ``slopes`` at the solution.

    Newton's method starts on the left, where the difference of both sides is concave.

    :param start: The start :math:`x_0`.
    :param slopes: A function that returns s, which is at least -x, and its derivative
        times -1.
    """
    x = tf.minimum(_left_of_mode(start, t), most)
    for _ in range(8):
        slope, curvature = slopes(x)
        x = tf.minimum(x - (x - start - t * slope) / (1.0 + t * curvature), most)
    return slopes(x)


def _left_of_mode(start: Tensor, t: Tensor) -> Tensor:
    r"""
    Find an x to the left of the solution of :math:`x = x_0 + t h(x)`, from which
    Newton's method needs few steps for any t: 0 is to the left of the solution if
    :math:`x_0` is, and so is the x with
    :math:`t N(x) = 1 - x_0 + \sqrt{2 \log(1 + t)}`, as :math:`h(x) > N(x)`.

    :param start: The start :math:`x_0`.
    """
    reach = 1.0 + tf.nn.relu(-start) + tf.sqrt(2.0 * tf.math.log1p(t))
    square = 2.0 * (tf.math.log(t) - tf.math.log(reach)) - np.log(2.0 * np.pi)
    x = tf.where(start < 0.0, start / (1.0 + t), start)
    return tf.where(square > 0.0, tf.maximum(x, tf.sqrt(tf.nn.relu(square))), x)


def _normal_tail(x: Tensor) -> _NormalTail:
    r"""
    Compute :math:`\log \Phi(x)` and its slope, in a third of the time of TensorFlow
    Probability.

    Far from 0 it is computed by Laplace's continued fraction
    :math:`h(-t) = t + 1 / (t + 2 / (t + 3 / \ldots))`.
    """
    far = _FAR[x.dtype]
    is_far = x < -far
    t = tf.maximum(-x, far)
    near = tf.maximum(x, -far)
    fraction = t
    for k in range(6, 1, -1):
        fraction = t + k / fraction
    excess = 1.0 / fraction
    cdf = normal_cdf(near)
    log_height = -0.5 * np.log(2.0 * np.pi)
    far_log = log_height - 0.5 * tf.square(t) - tf.math.log(t + excess)
    ratio = tf.exp(log_height - 0.5 * tf.square(near)) / cdf
    return _NormalTail(
        tf.where(is_far, far_log, tf.math.log(cdf)),
        tf.where(is_far, t + excess, ratio),
        tf.where(is_far, excess, near + ratio),
    )


class Tobit(LikelihoodWithMoments):
    r"""
    Gaussian noise, and targets that are cut off: values beyond a bound are recorded as
    the bound.

    .. math::

       y = \min(\max(f + \epsilon, a), b), \qquad \epsilon \sim N(0, \sigma^2)

    for instance measurements below a limit of detection, sales that ended when stock
    was out, or marks between 0 and 100. A target at a bound has the probability
    :math:`\Phi((a - f) / \sigma)` or :math:`\Phi((f - b) / \sigma)`; other targets have
    the density :math:`N(y; f, \sigma^2)` (Tobin, *Estimation of relationships for
    limited dependent variables*, Econometrica 26, 1958). The latent function describes
    the targets as they would be without bounds.

    ``Tobit()`` is for a limit in each row, such as "<5.8". Targets are [N, 2]: a
    number, and -1 if the true value is at most this number, 1 if it is at least this
    number, and 0 if it is this number. Predictions are of values without limits.
    """

    def __init__(
        self,
        low: float | None = None,
        high: float | None = None,
        variance: float = 1.0,
        **kwargs: Any,
    ) -> None:
        r""":param low: The lower bound a, in units of the targets; None means no lower
        bound.
        :param high: The upper bound b; None means no upper bound. With neither bound,
            targets are [N, 2] with a limit for each row.
        :param variance: The variance :math:`\sigma^2`, above 1e-6; a trainable
            parameter.
        :raises ValueError: If a bound is not a number, if the bounds are not in order,
            or if the variance is outside its range.
        """
        super().__init__(**kwargs)
        for name, bound in (("low", low), ("high", high)):
            if bound is not None:
                remedy = (
                    "Leave it out if there is no bound. For a limit in each row use"
                    " Tobit()."
                )
                check_real(name, bound, "(-inf, inf)", remedy)
        if low is not None and high is not None and not low < high:
            raise refusal(
                "low",
                f"{low:g} with high={high:g}",
                "a number below high",
                "Swap them.",
            )
        remedy = "Pass 0.1 times the variance of the targets, for example."
        self.variance = parameter_between(1e-6, "variance", variance, np.inf, remedy)
        self.low = None if low is None else float(low)
        self.high = None if high is None else float(high)

    def _moments(
        self, X: TensorType, mean: Tensor, variance: Tensor
    ) -> MeanAndVariance:
        r"""Compute the moments of a censored Gaussian.

        They are computed relative to the point between the bounds that is nearest to
        the mean, so that they keep their digits if there is nearly no mass on one side.
        """
        deviation = tf.sqrt(variance + self.variance)
        nearest = tf.clip_by_value(mean, *self.bounds)
        start = (nearest - mean) / deviation
        up, up_square = _excess(start, self.high, mean, deviation, 1.0)
        down, down_square = _excess(-start, self.low, mean, deviation, -1.0)
        shift = up - down
        # Rounding can make it negative near bounds.
        square = tf.nn.relu(up_square + down_square - tf.square(shift))
        return nearest + deviation * shift, tf.square(deviation) * square

    @property
    def has_limits_of_rows(self) -> bool:
        """Whether each row has its own limit, in the second column of the targets."""
        return self.low is None and self.high is None

    @property
    def bounds(self) -> tuple[float, float]:
        """Both bounds, which are infinite if there is no bound."""
        low = -np.inf if self.low is None else self.low
        return low, np.inf if self.high is None else self.high

    def _factor(self, X: Tensor, Y: Tensor, alpha: Tensor) -> factors.ScalarFactor:
        r"""Make the factor :math:`\Phi(x)` with :math:`x = \pm (f - b) / \sigma` for
        targets at bounds.
        """
        ends = _ends(self, Y)
        noise = tf.cast(self.variance, Y.dtype)
        deviation = tf.sqrt(noise)

        def log_prob(f: Tensor) -> Tensor:
            at_bound = _normal_tail(ends.sign * (f - ends.place) / deviation).log_cdf
            return tf.where(
                ends.inside,
                gpflow.logdensities.gaussian(ends.place, f, noise),
                at_bound,
            )

        def exact(mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
            x = ends.sign * (mean - ends.place) / tf.sqrt(noise + variance)
            inside = gaussian_log_power_expectation(
                mean, variance, ends.place, noise, alpha
            )
            values = tf.where(ends.inside, inside, _normal_tail(x).log_cdf)
            return ends.inside | (alpha == 1.0), values

        def slopes(x: Tensor) -> tuple[Tensor, Tensor]:
            _, h, excess = _normal_tail(x)
            return h, h * excess

        def mode(mean: Tensor, variance: Tensor) -> Mode:
            c = ends.sign * (mean - ends.place) / deviation
            t = alpha * variance / noise
            slope, curvature = _slopes_at_mode(c, t, slopes, np.inf)
            return Mode(
                ends.sign * slope / deviation, tf.sqrt(variance / (1.0 + t * curvature))
            )

        width = deviation * tf.ones_like(ends.place)
        step = Structure(ends.place + ends.sign * width, width, 3.0 * width)
        return factors.ScalarFactor(log_prob, [step], mode, exact=exact)

    def _support(self, Y: AnyNDArray) -> factors.Support:
        if self.has_limits_of_rows:
            sides = np.isin(Y, [-1.0, 0.0, 1.0])
            inside = np.isfinite(Y) & ((np.arange(Y.shape[1]) == 0) | sides)
            return factors.Support(
                inside, "numbers, and -1, 0 or 1 in the second column,"
            )
        low, high = self.bounds
        ends = zip(("from", "to"), self.bounds)
        texts = [f"{name} {end:g}" for name, end in ends if np.isfinite(end)]
        inside = np.isfinite(Y) & (low <= Y) & (high >= Y)
        return factors.Support(inside, f"numbers {' '.join(texts)}")

    def _layout(self, num_columns: int) -> factors.Layout:
        columns, number = (2, 1) if self.has_limits_of_rows else (None, num_columns)
        return factors.Layout(columns, number)

    def _draw(
        self, X: AnyNDArray, f: AnyNDArray, random: np.random.Generator
    ) -> AnyNDArray:
        deviation = np.sqrt(np.asarray(self.variance))
        return np.clip(f + deviation * random.standard_normal(f.shape), *self.bounds)

    def _in_units(self, change: Callable[[float], float], scale: float) -> "Tobit":
        changed = copy.copy(noise_in_units(self, "variance", scale**-2))
        changed.low = None if self.low is None else change(self.low)
        changed.high = None if self.high is None else change(self.high)
        return changed

    def _has_density(self, Y: AnyNDArray) -> AnyNDArray:
        return np.asarray(_ends(self, tf.convert_to_tensor(Y)).inside)

    def _traits(self) -> factors.Traits:
        rules: dict[str, Any] = {
            "in_units": self._in_units,
            "has_density": self._has_density,
        }
        return factors.Traits(draw=self._draw, **rules)


def _excess(
    start: Tensor, bound: float | None, mean: Tensor, deviation: Tensor, sign: float
) -> tuple[Tensor, Tensor]:
    """Compute two moments of the excess of a standard Gaussian over a start, up to an
    end.
    """
    first, second = _partial_moments(start)
    if bound is None:
        return first, second
    end = sign * (bound - mean) / deviation
    beyond, beyond_square = _partial_moments(end)
    return first - beyond, second - beyond_square - 2.0 * (end - start) * beyond


def _partial_moments(x: Tensor) -> tuple[Tensor, Tensor]:
    r"""Compute :math:`E[(z - x)_+]` and :math:`E[(z - x)_+^2]` for standard
    Gaussian z.
    """
    density = tf.exp(-0.5 * tf.square(x)) / np.sqrt(2.0 * np.pi)
    above = normal_cdf(-x)
    return density - x * above, (1.0 + tf.square(x)) * above - x * density


class _Ends(NamedTuple):
    """The bounds of targets, [N, P] each; [N, 1] with limits of rows."""

    inside: Tensor  #: Whether a target is not at a bound.
    place: Tensor  #: The bound of a target; the target itself if it is not at a bound.
    sign: Tensor  #: 1 for the upper bound, otherwise -1.


def _ends(likelihood: Tobit, Y: Tensor) -> _Ends:
    if likelihood.has_limits_of_rows:
        place = Y[..., :1]
        side = Y[..., 1:]
        return _Ends(side == 0.0, place, tf.where(side > 0.0, tf.ones_like(side), -1.0))
    low, high = likelihood.bounds
    at_low = low >= Y
    at_high = high <= Y
    place = tf.where(
        at_high, tf.cast(high, Y.dtype), tf.where(at_low, tf.cast(low, Y.dtype), Y)
    )
    sign = tf.where(at_high, tf.ones_like(Y), -tf.ones_like(Y))
    return _Ends(~(at_low | at_high), place, sign)


#: Replaces infinity at the ends, because infinity would give gradients of 0 times
#: infinity.
_FAR_EDGE = 1e10


class Ordinal(LikelihoodWithMoments):
    r"""Classes 0 to C - 1 that are in order, such as grades, or answers from "never" to
    "always".

    .. math::

       p(y = k | f) = \Phi\left(\frac{b_{k + 1} - f}{\sigma}\right)
                      - \Phi\left(\frac{b_k - f}{\sigma}\right), \qquad
       b_0 = -\infty, \quad b_C = \infty

    so that y is the number of the bin in which :math:`f + \epsilon` is, between edges,
    with noise :math:`\epsilon \sim N(0, \sigma^2)` (Chu & Ghahramani, *Gaussian
    processes for ordinal regression*, JMLR 6, 2005). Under a Gaussian f the variance of
    f is added to :math:`\sigma^2`. The edges are trained with the model and stay in
    order.

    :class:`gpflow.likelihoods.Ordinal` adds 1e-6 to each probability and does not train
    the edges. This class computes the probabilities of the formula: they sum to 1, and
    their logarithms keep all digits if the probabilities underflow.
    """

    def __init__(self, edges: Any, sigma: float = 1.0, **kwargs: Any) -> None:
        r"""
        :param edges: The edges :math:`b_1 < \dots < b_{C - 1}`, at least one; a
            trainable parameter.
        :param sigma: The standard deviation :math:`\sigma`, above 1e-3. The parameter
            is not trainable by default: if the variance of the kernel is trained,
            doubling the scale of kernel, edges and :math:`\sigma` gives the same model.
        :raises ValueError: If the edges are not in order, or an argument is outside its
            range.
        """
        super().__init__(**kwargs)
        values = as_numbers("edges", edges)
        ascending = values.ndim == 1 and np.all(np.diff(values) > 0.0)
        if not (ascending and values.size and np.all(np.isfinite(values))):
            remedy = "Pass the thresholds between each class and the next, sorted."
            raise refusal(
                "edges", values.tolist(), "one or more ascending numbers", remedy
            )
        remedy = "Pass 1 and let the kernel's variance be trained."
        self.edges = Parameter(values, transform=tfp.bijectors.Ascending())
        self.sigma = parameter_between(
            1e-3, "sigma", sigma, np.inf, remedy, trainable=False
        )

    @classmethod
    def of_classes(cls, num_classes: int) -> "Ordinal":
        """Start from edges between which all classes have the same probability under
        N(0, 2).

        This is the distribution of f with unit variance plus noise with unit variance.

        :param num_classes: The number of classes, C.
        :raises ValueError: If it is below 2.
        """
        if not (is_number(num_classes) and int(num_classes) == num_classes >= 2):
            raise refusal(
                "num_classes", num_classes, "a whole number above 1", "Pass that."
            )
        return cls(np.sqrt(2.0) * ndtri(np.arange(1, num_classes) / num_classes))

    def _moments(
        self, X: TensorType, mean: Tensor, variance: Tensor
    ) -> MeanAndVariance:
        """Compute the moments of the number of the class."""
        labels = tf.range(self._count, dtype=mean.dtype)
        deviation = tf.sqrt(tf.square(self.sigma) + variance)
        p = tf.exp(
            _log_prob(_bin_of(self, labels), mean[..., None], deviation[..., None])
        )
        first = tf.linalg.matvec(p, labels)
        return first, tf.reduce_sum(p * tf.square(labels - first[..., None]), axis=-1)

    def _factor(self, X: Tensor, Y: Tensor, alpha: Tensor) -> factors.ScalarFactor:
        inside = _bin_of(self, Y)
        sigma = tf.cast(self.sigma, Y.dtype)
        slopes = partial(_slopes, width=inside.width / sigma)

        def exact(mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
            return alpha == 1.0, _log_prob(
                inside, mean, tf.sqrt(tf.square(sigma) + variance)
            )

        def mode(mean: Tensor, variance: Tensor) -> Mode:
            start = inside.distance(mean, sigma)
            t = alpha * variance / tf.square(sigma)
            slope, curvature = _slopes_at_mode(
                start, t, slopes, 0.5 * inside.width / sigma
            )
            towards = tf.where(inside.is_above(mean), -slope, slope)
            return Mode(towards / sigma, tf.sqrt(variance / (1.0 + t * curvature)))

        # A bin at the end has one edge, so its distance counts twice.
        is_lowest = inside.low <= -_FAR_EDGE
        last = inside.high >= _FAR_EDGE
        rising = tf.where(is_lowest, inside.high - sigma, inside.low + sigma)
        falling = tf.where(last, inside.low + sigma, inside.high - sigma)
        width = sigma * tf.ones_like(rising)
        structures = [
            Structure(place, width, 3.0 * width) for place in (rising, falling)
        ]
        return factors.ScalarFactor(
            lambda f: _log_prob(inside, f, sigma),
            structures,
            mode,
            exact=exact,
            num_nodes=128,
        )

    @property
    def _count(self) -> int:
        return int(self.edges.shape[0]) + 1

    def _support(self, Y: AnyNDArray) -> factors.Support:
        return whole_numbers(Y, self._count)

    def _draw(
        self, X: AnyNDArray, f: AnyNDArray, random: np.random.Generator
    ) -> AnyNDArray:
        noisy = f + np.asarray(self.sigma) * random.standard_normal(f.shape)
        return np.searchsorted(np.asarray(self.edges), noisy, side="right").astype(
            f.dtype
        )

    def _traits(self) -> factors.Traits:
        return factors.Traits(num_classes=self._count, draw=self._draw)


class _Bin(NamedTuple):
    """The edges between which f plus noise is for a target, [N, P] each."""

    low: Tensor  #: The lower edge; far away for the first class.
    high: Tensor  #: The upper edge; far away for the last class.
    width: Tensor  #: The distance between both edges.

    def distance(self, f: Tensor, scale: Tensor) -> Tensor:
        """Compute the distance of f from the nearer edge, which is negative if f is
        outside of the bin.
        """
        return tf.where(self.is_above(f), self.high - f, f - self.low) / scale

    def is_above(self, f: Tensor) -> Tensor:
        """Whether the upper edge is the nearer one."""
        return self.high - f < f - self.low


def _bin_of(likelihood: Ordinal, Y: Tensor) -> _Bin:
    edges = tf.cast(likelihood.edges, Y.dtype)
    far = tf.constant([_FAR_EDGE], Y.dtype)
    label = tf.cast(Y, tf.int32)
    low = tf.gather(tf.concat([-far, edges], axis=0), label)
    high = tf.gather(tf.concat([edges, far], axis=0), label)
    return _Bin(low, high, high - low)


def _log_prob(inside: _Bin, f: Tensor, scale: Tensor) -> Tensor:
    return _log_mass(inside.distance(f, scale), inside.width / scale)


def _is_narrow(x: Tensor, width: Tensor) -> Tensor:
    """Whether a bin is so narrow, compared with the scale of the density, that a series
    is used for the integral.
    """
    return width * tf.maximum(0.5 * width - x, 1.0) < 0.1


def _log_mass(x: Tensor, width: Tensor) -> Tensor:
    r"""Compute :math:`\log [\Phi(x) - \Phi(x - w)]` for :math:`x \le w / 2`.

    It is :math:`\log \Phi(x)` plus the logarithm of the fraction that the other end
    leaves. In narrow bins it is a series of the integral in w, whose first omitted term
    is below 1e-11.
    """
    narrow = _is_narrow(x, width)
    w = tf.where(narrow, width, 1.0)
    middle = tf.where(narrow, x - 0.5 * width, 0.0)
    square = tf.square(middle)
    half_square = tf.square(0.5 * w)
    # Hermite's polynomials.
    second = square - 1.0
    fourth = square * (square - 6.0) + 3.0
    series = tf.math.log1p(
        half_square * (second / 6.0 + half_square * (fourth / 120.0))
    )
    by_series = series + bounded_log(w) - 0.5 * (square + np.log(2.0 * np.pi))
    x = tf.where(narrow, tf.zeros_like(x), x)
    width = tf.where(narrow, tf.ones_like(width), width)
    inner, fall = _inner_end(x, width)
    return tf.where(
        narrow, by_series, inner.log_cdf + tf.math.log(-tf.math.expm1(-fall))
    )


def _inner_end(x: Tensor, width: Tensor) -> tuple[_NormalTail, Tensor]:
    r"""Compute :math:`\Phi(x)` and the decrease of :math:`\log \Phi` from x to
    :math:`x - w`.

    Far from 0 both logarithms are large compared with their difference. There it is
    computed as :math:`w (w / 2 - x)`, the decrease of the log density, plus the
    logarithm of the ratio of the slopes :math:`N(x) / \Phi(x)`.
    """
    inner = _normal_tail(x)
    outer = _normal_tail(x - width)
    steeper = outer.slope / tf.where(x < 0.0, inner.slope, 1.0)
    below = width * (0.5 * width - x) + tf.math.log(steeper)
    return inner, tf.where(x < 0.0, below, inner.log_cdf - outer.log_cdf)


def _slopes(x: Tensor, width: Tensor) -> tuple[Tensor, Tensor]:
    r"""Compute the first derivative of :func:`_log_mass` in x, and minus the second
    derivative.
    """
    narrow = _is_narrow(x, width)
    inner, fall = _inner_end(x, width)
    mass = tf.where(narrow, tf.ones_like(x), -tf.math.expm1(-fall))
    loss = width * (0.5 * width - x)
    slope = tf.where(
        narrow, 0.5 * width - x, -inner.slope * tf.math.expm1(-loss) / mass
    )
    far_end = width * inner.slope * tf.exp(-loss) / mass
    curvature = tf.where(narrow, tf.ones_like(x), slope * (slope + x) + far_end)
    return slope, tf.clip_by_value(curvature, 0.0, 1.0)
