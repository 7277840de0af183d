"""What is predicted of targets: mixtures of distributions of which the moments are
given.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import log_ndtr, ndtr, ndtri, ndtri_exp

from ..engine.refusals import refusal
from .mixtures import mixed_moments, weighted_sum
from .recalibration import Recalibration
from .units import Array, Units

#: Steps of Newton's method for a quantile, and halvings of an interval after them.
_NEWTON_STEPS = 12
_BISECTIONS = 60
#: A step is the last where it is this much of the quantile and the smallest standard
#: deviation.
_TOLERANCE = 1e-14
#: Quantiles at a time: so many that Python's own time does not count, so few that they
#: fit a cache.
_CHUNK = 3000
#: Probabilities below it are computed by their logarithms.
_SMALLEST = 1e-290
_LOG_ROOT = 0.5 * np.log(2.0 * np.pi)


class Predictive(NamedTuple):
    r"""The distributions of targets, [N], or [N, P] of several outputs:

    .. math::

       F(y) = \sum_k w_k F_k(T_k(y)),

    with the distribution :math:`F_k` of component k in its units :math:`T_k`, and
    recalibrated where that is given. Whatever its methods take and give is in original
    units.
    """

    means: Array  #: Of each component, in the model's units, [K, N] or [K, N, P].
    variances: Array  #: Of each component, of that shape.
    weights: Array  #: [K], of sum 1.
    #: Of all components, or of each. The logarithm is taken by all of them or by none.
    units: Units | tuple[Units, ...] = Units()
    noise: str = (
        "Gaussian"  #: The likelihood: components of Gaussian noise are Gaussian.
    )
    #: u of the mean :math:`\sum_k u_k \mu_k`, [K], of sum 1; None: the weights.
    mean_weights: Array | None = None
    recalibration: Recalibration | None = None

    @classmethod
    def mixed(
        cls,
        predictives: "Sequence[Predictive]",
        weights: Array,
        mean_weights: Array | None = None,
        recalibration: Recalibration | None = None,
    ) -> "Predictive":
        """Mix the distributions of the same rows, whose components become those of the
        mixture.

        :param predictives: None of them recalibrated.
        :param weights: Of the parts, [K], of sum 1.
        :param mean_weights: Of the parts' means, [K], of sum 1; None: the weights.
        """

        if len(predictives) == 1:
            return predictives[0]._replace(recalibration=recalibration)

        def product(shares: Array, inside: Sequence[Array]) -> Array:
            return np.concatenate([a * b for a, b in zip(shares, inside, strict=True)])

        of_means = [
            p.weights if p.mean_weights is None else p.mean_weights for p in predictives
        ]
        others = [
            predictive.noise
            for predictive in predictives
            if predictive.noise != "Gaussian"
        ]
        return cls(
            np.concatenate([predictive.means for predictive in predictives]),
            np.concatenate([predictive.variances for predictive in predictives]),
            product(weights, [predictive.weights for predictive in predictives]),
            tuple(
                units for predictive in predictives for units in predictive._every_units
            ),
            others[0] if others else "Gaussian",
            product(weights if mean_weights is None else mean_weights, of_means),
            recalibration,
        )

    def moments(self) -> tuple[Array, Array]:
        r"""Compute mean and variance, the spread of the components' means included.

        The variance is that of the mixture, times :math:`s^2 \nu / (\nu - 2)` where it
        is recalibrated, which is exact if it is Gaussian; with mean weights it is about
        their mean.

        :raises ValueError: If one is not finite.
        """
        components = zip(self._every_units, self.means, self.variances, strict=True)
        by_component = [
            units.moments(mean, variance) for units, mean, variance in components
        ]
        means, variances = zip(*by_component, strict=True)
        mean, variance = mixed_moments(self.weights, means, variances)
        if self.recalibration is not None:
            variance = self.recalibration.spread * variance
        if self.mean_weights is not None:
            mixture = mean
            mean = weighted_sum(self.mean_weights, means)
            variance = variance + (mixture - mean) ** 2
        return mean, require_finite(variance)  # it is not finite where a mean is not

    def quantiles(self, q: Array) -> Array:
        r"""Compute quantiles, the last axis of the result: each solves
        :math:`F(y) = q`.

        :param q: Probabilities in (0, 1), [Q].
        :raises ValueError: If the noise is not Gaussian.
        """
        self._check_gaussian("Use predict with return_std=True.")
        return self.at_scores(ndtri(q))

    def at_scores(self, scores: Array) -> Array:
        r"""Compute the quantiles of the probabilities :math:`\Phi(\cdot)` of normal
        scores, [Q].
        """
        z = (
            scores
            if self.recalibration is None
            else self.recalibration.original(scores)
        )
        shape = self.means.shape[1:]
        z = np.broadcast_to(z.reshape(-1, *[1] * len(shape)), (len(z), *shape))
        return np.moveaxis(self._targets(z), 0, -1)

    def log_densities(self, y: Array) -> Array:
        """Compute log densities of targets; NaN of NaN.

        :raises ValueError: If the noise is not Gaussian.
        """
        self._check_gaussian("Use log_densities of the estimator that was saved.")
        z, log_slopes = self._standardised(y)
        logs = self._log_density(z, log_slopes)
        if self.recalibration is None:
            return logs
        return logs + self.recalibration.log_ratio(_normal_scores(z, self.weights))

    def normal_scores(self, y: Array) -> Array:
        r"""Compute :math:`\Phi^{-1}(F(y))` of targets with Gaussian noise; NaN
        of NaN.
        """
        z = _normal_scores(self._standardised(y)[0], self.weights)
        return z if self.recalibration is None else self.recalibration.scores(z)

    def recalibrated(self, y: Array) -> Array:
        r"""Change draws of the mixture, [S, N] or [S, N, P], to draws of what it
        becomes by recalibration: to the quantiles of their probabilities. Their ranks
        stay.
        """
        if self.recalibration is None:
            return y
        rows = self._replace(
            means=self.means[:, None], variances=self.variances[:, None]
        )
        z = _normal_scores(rows._standardised(y)[0], self.weights)
        return self._targets(self.recalibration.original(z))

    def _targets(self, z: Array) -> Array:
        r"""Solve :math:`F(y) = \Phi(z)` before recalibration, for z of [Q, N] or [Q, N,
        P].
        """
        size = max(_CHUNK // max(z[:, :1].size, 1), 1)
        places = [slice(i, i + size) for i in range(0, max(z.shape[1], 1), size)]
        solved = [self._solved(z[:, rows], rows) for rows in places]
        return require_finite(np.concatenate(solved, axis=1))

    def _solved(self, z: Array, rows: slice) -> Array:
        """Find targets by Newton's method in an interval that shrinks, in the units x
        of the component of the largest weight.
        """
        heaviest = self._every_units[int(np.argmax(self.weights))]
        several = not isinstance(self.units, Units)
        means = self.means[:, None, rows]
        sd = np.sqrt(self.variances[:, None, rows])
        by_component = means + sd * z
        if several:
            pairs = zip(self._every_units, by_component, strict=True)
            targets = [units.inverse_transform(values) for units, values in pairs]
            by_component = np.stack([heaviest.transform(values) for values in targets])
        low = by_component.min(axis=0)
        high = by_component.max(axis=0)
        x = np.tensordot(self.weights, by_component, 1)
        smallest = sd.min(axis=0)
        cut = self._replace(means=means, variances=sd**2)
        for step in range(_NEWTON_STEPS + _BISECTIONS):
            if several:
                y = heaviest.inverse_transform(x)
                standardised, slopes = cut._standardised(y)
                slopes = slopes - heaviest.log_slope(y)
            else:
                standardised = (x - means) / sd
                slopes = -np.log(sd)
            excess = _normal_scores(standardised, self.weights) - z
            below = excess < 0.0
            low = np.where(below, x, low)
            high = np.where(below, high, x)
            following = 0.5 * (low + high)
            if step < _NEWTON_STEPS:
                with np.errstate(all="ignore"):  # such a step leaves the interval
                    log_slope = (
                        self._log_density(standardised, slopes)
                        + 0.5 * (excess + z) ** 2
                    )
                    newton = x - excess * np.exp(-log_slope - _LOG_ROOT)
                following = np.where(
                    (newton >= low) & (newton <= high), newton, following
                )
            moved = np.abs(following - x)
            x = following
            if np.all(moved <= _TOLERANCE * (np.abs(x) + smallest)):
                break
        return heaviest.inverse_transform(x)

    def _standardised(self, y: Array) -> tuple[Array, Array]:
        r"""Compute :math:`(T_k(y) - m_k) / s_k`, and the logarithm of its slope."""
        t = np.stack([units.transform(y) for units in self._every_units])
        slopes = np.stack([units.log_slope(y) for units in self._every_units])
        return (t - self.means) / np.sqrt(self.variances), slopes - 0.5 * np.log(
            self.variances
        )

    def _log_density(self, standardised: Array, log_slopes: Array) -> Array:
        return _log_sum(log_slopes - 0.5 * standardised**2, self.weights) - _LOG_ROOT

    def without_recalibration(self) -> "Predictive":
        """Give the mixture alone."""
        return self._replace(recalibration=None)

    def column(self, p: int) -> "Predictive":
        """Give the distributions of one of several outputs, [N]."""
        units = tuple(
            units_of_columns.column(p) for units_of_columns in self._every_units
        )
        means = self.means[..., p]
        variances = self.variances[..., p]
        return self._replace(means=means, variances=variances, units=units)

    @property
    def _every_units(self) -> tuple[Units, ...]:
        """Those of each component."""
        units = self.units
        return (units,) * len(self.weights) if isinstance(units, Units) else units

    def _check_gaussian(self, remedy: str) -> None:
        if self.noise != "Gaussian":
            got = f"the likelihood {self.noise}"
            raise refusal(
                "predict_quantiles, log_densities", got, "Gaussian noise", remedy
            )


class PredictiveOfColumns(NamedTuple):
    """The distributions of several outputs, [N, P], each of which has components, units
    and recalibration of its own; the methods are those of :class:`Predictive`.
    """

    columns: tuple[Predictive, ...]  #: Of each output, [N].

    def without_recalibration(self) -> "PredictiveOfColumns":
        """Give the mixtures alone."""
        columns = tuple(column.without_recalibration() for column in self.columns)
        return PredictiveOfColumns(columns)

    def moments(self) -> tuple[Array, Array]:
        """Compute mean and variance, [N, P] each."""
        means, variances = zip(
            *(column.moments() for column in self.columns), strict=True
        )
        return np.stack(means, axis=1), np.stack(variances, axis=1)

    def quantiles(self, q: Array) -> Array:
        """Compute quantiles, [N, P, Q].

        :param q: Probabilities in (0, 1), [Q].
        """
        return np.stack([column.quantiles(q) for column in self.columns], axis=1)

    def log_densities(self, y: Array) -> Array:
        """Compute log densities of targets, [N, P]; NaN of NaN."""
        pairs = zip(self.columns, y.T, strict=True)
        return np.stack(
            [column.log_densities(values) for column, values in pairs], axis=1
        )

    def normal_scores(self, y: Array) -> Array:
        """Compute the normal scores of targets, [N, P]; NaN of NaN."""
        pairs = zip(self.columns, y.T, strict=True)
        return np.stack(
            [column.normal_scores(values) for column, values in pairs], axis=1
        )


def require_finite(values: Array) -> Array:
    """Let predictions pass if they are finite."""
    if not np.isfinite(values).all():
        remedy = "The inputs are too large, or too far from the training rows."
        raise refusal("prediction", "NaN or infinity", "finite numbers", remedy)
    return values


def _normal_scores(standardised: Array, weights: Array) -> Array:
    r"""Compute :math:`\Phi^{-1}(\sum_k w_k \Phi(z_k))` by the nearer tail, which is
    precise.
    """
    tails = [
        np.tensordot(weights, ndtr(sign * standardised), 1) for sign in (1.0, -1.0)
    ]
    sign = np.where(tails[0] < tails[1], 1.0, -1.0)
    tail = np.minimum(tails[0], tails[1])
    scores = ndtri(tail)
    if np.any(tail < _SMALLEST):
        by_logarithms = ndtri_exp(_log_sum(log_ndtr(sign * standardised), weights))
        scores = np.where(tail < _SMALLEST, by_logarithms, scores)
    return np.asarray(sign * scores)


def _log_sum(logs: Array, weights: Array) -> Array:
    r"""Compute :math:`\log \sum_k w_k e^{l_k}`."""
    largest = np.max(logs, axis=0)
    shift = np.where(np.isneginf(largest), 0.0, largest)
    with np.errstate(divide="ignore"):
        return np.asarray(
            shift + np.log(np.tensordot(weights, np.exp(logs - shift), 1))
        )
