"""Targets that are cut off at one or both ends."""

import copy
from collections.abc import Callable
from typing import Any, NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
from gpflow import Parameter
from gpflow.base import AnyNDArray, MeanAndVariance, TensorType
from gpflow.utilities import positive
from tensorflow import Tensor

from ..engine.checks import check_real, refusal
from ..engine.factors import (
    Layout,
    ScalarFactor,
    Support,
    Traits,
    layout,
    scalar_factor,
    support,
    traits,
)
from ..engine.factors.bernoulli import normal_cdf
from ..engine.factors.gaussian import gaussian_log_power_expectation, noise_in_units
from ..engine.factors.normal_tail import normal_tail, slopes_at_mode
from ..engine.numerics.quadrature import Mode, Structure
from .integrated import LikelihoodWithMoments

#: As that of GPflow's Gaussian.
_SMALLEST_VARIANCE = 1e-6


class Tobit(LikelihoodWithMoments):
    r"""
    Gaussian noise, and targets that cannot be outside of bounds: what would be beyond one is there.

    .. math::

       y = \min(\max(f + \epsilon, a), b), \qquad \epsilon \sim N(0, \sigma^2)

    for instance measurements below what an instrument detects, sales of what was sold out, or
    marks between 0 and 100. A target at a bound has the probability
    :math:`\Phi((a - f) / \sigma)` or :math:`\Phi((f - b) / \sigma)`, another one the density
    :math:`N(y; f, \sigma^2)` (Tobin, *Estimation of relationships for limited dependent variables*,
    Econometrica 26, 1958). The latent function is that of the targets as they would be without
    bounds.

    ``Tobit()`` has a limit for each row, such as "<5.8", and no bounds of its own: the targets
    [N, 2] are numbers, and beside each -1 where the true one is at most the number, 1 where it is
    at least that, and 0 where it is the number itself. Predictions are of numbers without limits.
    """

    def __init__(
        self,
        low: float | None = None,
        high: float | None = None,
        variance: float = 1.0,
        **kwargs: Any,
    ) -> None:
        r"""
        :param low: a, in units of the targets; None: no lower bound.
        :param high: b; None: no upper bound. Neither: targets [N, 2] with a limit for each row.
        :param variance: :math:`\sigma^2`, above 1e-6; a trainable parameter.
        :raises ValueError: If a bound is no number, the bounds are not in order, or the variance is
            outside its range.
        """
        super().__init__(**kwargs)
        for name, bound in (("low", low), ("high", high)):
            if bound is not None:
                remedy = "Leave it out if there is none; a limit for each row is Tobit()."
                check_real(name, bound, "(-inf, inf)", remedy)
        if low is not None and high is not None and not low < high:
            raise refusal("low", f"{low:g} with high={high:g}", "one below high", "Swap them.")
        check_real(
            "variance",
            float(variance),
            f"({_SMALLEST_VARIANCE}, inf)",
            "Pass 0.1 times that of the targets, for example.",
        )
        self.low = None if low is None else float(low)
        self.high = None if high is None else float(high)
        self.variance = Parameter(variance, transform=positive(lower=_SMALLEST_VARIANCE))

    def _moments(self, X: TensorType, mean: Tensor, variance: Tensor) -> MeanAndVariance:
        r"""
        Compute the moments of a Gaussian that is cut off.

        They are relative to the point between the bounds that is nearest to the mean, so that they
        keep their digits where next to nothing is on one side.
        """
        deviation = tf.sqrt(variance + self.variance)
        nearest = tf.clip_by_value(mean, *self.bounds)
        start = (nearest - mean) / deviation
        up, up_square = _excess(start, self.high, mean, deviation, 1.0)
        down, down_square = _excess(-start, self.low, mean, deviation, -1.0)
        shift = up - down
        square = tf.nn.relu(up_square + down_square - tf.square(shift))  # rounding, near bounds
        return nearest + deviation * shift, tf.square(deviation) * square

    @property
    def has_limits_of_rows(self) -> bool:
        """Whether each row has a limit of its own, in the second column of the targets."""
        return self.low is None and self.high is None

    @property
    def bounds(self) -> tuple[float, float]:
        """Both bounds: infinite where there is none."""
        low = -np.inf if self.low is None else self.low
        return low, np.inf if self.high is None else self.high


def _excess(
    start: Tensor, bound: float | None, mean: Tensor, deviation: Tensor, sign: float
) -> tuple[Tensor, Tensor]:
    """Compute two moments of how far a standard Gaussian exceeds a start, up to an end."""
    first, second = _partial_moments(start)
    if bound is None:
        return first, second
    end = sign * (bound - mean) / deviation
    beyond, beyond_square = _partial_moments(end)
    return first - beyond, second - beyond_square - 2.0 * (end - start) * beyond


def _partial_moments(x: Tensor) -> tuple[Tensor, Tensor]:
    r"""Compute :math:`E[(z - x)_+]` and :math:`E[(z - x)_+^2]` for standard Gaussian z."""
    density = tf.exp(-0.5 * tf.square(x)) / np.sqrt(2.0 * np.pi)
    above = normal_cdf(-x)
    return density - x * above, (1.0 + tf.square(x)) * above - x * density


class _Ends(NamedTuple):
    """The bounds at which targets are, [N, P] each; with limits of rows, [N, 1]."""

    inside: Tensor
    """Whether a target is at none."""

    place: Tensor
    """Its bound; the target itself where it is inside."""

    sign: Tensor
    """1 where that is the upper one, else -1."""


def _ends(likelihood: Tobit, Y: Tensor) -> _Ends:
    if likelihood.has_limits_of_rows:
        place, side = Y[..., :1], Y[..., 1:]
        return _Ends(side == 0.0, place, tf.where(side > 0.0, tf.ones_like(side), -1.0))
    low, high = likelihood.bounds
    at_low, at_high = low >= Y, high <= Y
    place = tf.where(at_high, tf.cast(high, Y.dtype), tf.where(at_low, tf.cast(low, Y.dtype), Y))
    sign = tf.where(at_high, tf.ones_like(Y), -tf.ones_like(Y))
    return _Ends(~(at_low | at_high), place, sign)


@scalar_factor.register(Tobit)
def _factor(likelihood: Tobit, X: Tensor, Y: Tensor, alpha: Tensor) -> ScalarFactor:
    r"""Make the factor :math:`\Phi(x)` with :math:`x = \pm (f - b) / \sigma` at bounds."""
    ends, noise = _ends(likelihood, Y), tf.cast(likelihood.variance, Y.dtype)
    deviation = tf.sqrt(noise)

    def log_prob(f: Tensor) -> Tensor:
        at_bound = normal_tail(ends.sign * (f - ends.place) / deviation).log_cdf
        return tf.where(ends.inside, gpflow.logdensities.gaussian(ends.place, f, noise), at_bound)

    def exact(mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        x = ends.sign * (mean - ends.place) / tf.sqrt(noise + variance)
        inside = gaussian_log_power_expectation(mean, variance, ends.place, noise, alpha)
        values = tf.where(ends.inside, inside, normal_tail(x).log_cdf)
        return ends.inside | (alpha == 1.0), values

    def slopes(x: Tensor) -> tuple[Tensor, Tensor]:
        _, h, excess = normal_tail(x)
        return h, h * excess

    def mode(mean: Tensor, variance: Tensor) -> Mode:
        c, t = ends.sign * (mean - ends.place) / deviation, alpha * variance / noise
        slope, curvature = slopes_at_mode(c, t, slopes, np.inf)
        return Mode(ends.sign * slope / deviation, tf.sqrt(variance / (1.0 + t * curvature)))

    width = deviation * tf.ones_like(ends.place)
    step = Structure(ends.place + ends.sign * width, width, 3.0 * width)
    return ScalarFactor(log_prob, [step], mode, exact=exact)


@support.register(Tobit)
def _between_bounds(likelihood: Tobit, Y: AnyNDArray) -> Support:
    if likelihood.has_limits_of_rows:
        inside = np.isfinite(Y) & ((np.arange(Y.shape[1]) == 0) | np.isin(Y, [-1.0, 0.0, 1.0]))
        return Support(inside, "numbers, and -1, 0 or 1 in the second column,")
    low, high = likelihood.bounds
    ends = [f"{name} {end:g}" for name, end in (("from", low), ("to", high)) if np.isfinite(end)]
    return Support(np.isfinite(Y) & (low <= Y) & (high >= Y), f"numbers {' '.join(ends)}")


@layout.register(Tobit)
def _layout(likelihood: Tobit, num_columns: int) -> Layout:
    return Layout(2, 1) if likelihood.has_limits_of_rows else Layout(None, num_columns)


@traits.register(Tobit)
def _traits(likelihood: Tobit) -> Traits:
    def draw(X: AnyNDArray, f: AnyNDArray, random: np.random.Generator) -> AnyNDArray:
        deviation = np.sqrt(np.asarray(likelihood.variance))
        return np.clip(f + deviation * random.standard_normal(f.shape), *likelihood.bounds)

    def in_units(change: Callable[[float], float], scale: float) -> Tobit:
        changed = copy.copy(noise_in_units(likelihood, "variance", scale**-2))
        low, high = likelihood.low, likelihood.high
        changed.low = None if low is None else change(low)
        changed.high = None if high is None else change(high)
        return changed

    def has_density(Y: AnyNDArray) -> AnyNDArray:
        return np.asarray(_ends(likelihood, tf.convert_to_tensor(Y)).inside)

    return Traits(draw=draw, in_units=in_units, has_density=has_density)
