"""Predictive distributions of targets: mixtures of distributions with given moments."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import log_ndtr, ndtr, ndtri, ndtri_exp

from ..engine.refusals import refusal
from .mixtures import mixed_moments, weighted_sum
from .recalibration import Recalibration
from .units import Array, Units

#: The number of steps of Newton's method for a quantile, and of halvings of an interval
#: after them.
_NEWTON_STEPS = 12
_BISECTIONS = 60
#: A step is the last one if it is smaller than this, relative to the quantile and the
#: smallest standard deviation.
_TOLERANCE = 1e-14
#: The number of quantiles that are computed at a time: enough to hide the overhead of
#: Python, few enough to fit in a cache.
_CHUNK = 3000
#: Probabilities below this are computed from their logarithms.
_SMALLEST = 1e-290
_LOG_ROOT = 0.5 * np.log(2.0 * np.pi)


class Predictive(NamedTuple):
    r"""The distributions of targets, [N], or [N, P] for several outputs:

    .. math::

       F(y) = \sum_k w_k F_k(T_k(y)),

    with the distribution :math:`F_k` of component k in its units :math:`T_k`, and with
    a recalibration if there is one. Arguments and results of the methods are in
    original units.
    """

    #: The means of each component in the model's units, [K, N] or [K, N, P].
    means: Array
    variances: Array  #: The variances of each component, of the same shape.
    weights: Array  #: The weights, [K]; their sum is 1.
    #: The units of all components, or of each. Either all or none of them use the
    #: logarithm.
    units: Units | tuple[Units, ...] = Units()
    noise: str = (
        "Gaussian"  #: The likelihood: components of Gaussian noise are Gaussian.
    )
    #: The weights u in the mean :math:`\sum_k u_k \mu_k`, [K], with sum 1; None uses
    #: the weights of the densities.
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
        """Mix distributions of the same rows. The mixture has all their components.

        :param predictives: The distributions, without recalibration.
        :param weights: The weights of the distributions, [K], with sum 1.
        :param mean_weights: The weights of their means, [K], with sum 1; None uses
            ``weights``.
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
        r"""Compute mean and variance, including the spread of the components' means.

        With a recalibration the variance of the mixture is multiplied by
        :math:`s^2 \nu / (\nu - 2)`, which is exact if the mixture is Gaussian. With
        mean weights, the variance is around the mean with these weights.

        :raises ValueError: If a result is not finite.
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
        return mean, require_finite(variance)  # it is not finite if a mean is not

    def quantiles(self, q: Array) -> Array:
        r"""Compute quantiles, which solve :math:`F(y) = q`. They are the last axis of
        the result.

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
        """Compute log densities of targets; NaN for NaN.

        :raises ValueError: If the noise is not Gaussian.
        """
        self._check_gaussian("Use log_densities of the estimator that was saved.")
        z, log_slopes = self._standardised(y)
        logs = self._log_density(z, log_slopes)
        if self.recalibration is None:
            return logs
        return logs + self.recalibration.log_ratio(_normal_scores(z, self.weights))

    def normal_scores(self, y: Array) -> Array:
        r"""Compute :math:`\Phi^{-1}(F(y))` of targets with Gaussian noise; NaN for
        NaN.
        """
        z = _normal_scores(self._standardised(y)[0], self.weights)
        return z if self.recalibration is None else self.recalibration.scores(z)

    def recalibrated(self, y: Array) -> Array:
        r"""Convert draws of the mixture, [S, N] or [S, N, P], to draws of the
        recalibrated mixture: the quantiles of their probabilities. The ranks of the
        draws stay the same.
        """
        if self.recalibration is None:
            return y
        rows = self._replace(
            means=self.means[:, None], variances=self.variances[:, None]
        )
        z = _normal_scores(rows._standardised(y)[0], self.weights)
        return self._targets(self.recalibration.original(z))

    def _targets(self, z: Array) -> Array:
        r"""Solve :math:`F(y) = \Phi(z)` without recalibration, for z of shape [Q, N] or
        [Q, N, P].
        """
        size = max(_CHUNK // max(z[:, :1].size, 1), 1)
        places = [slice(i, i + size) for i in range(0, max(z.shape[1], 1), size)]
        solved = [self._solved(z[:, rows], rows) for rows in places]
        return require_finite(np.concatenate(solved, axis=1))

    def _solved(self, z: Array, rows: slice) -> Array:
        """Find targets by Newton's method in a shrinking interval, in the units x of
        the component with the largest weight.
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
                with np.errstate(all="ignore"):  # this step leaves the interval
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
        """Return the mixture without recalibration."""
        return self._replace(recalibration=None)

    def column(self, p: int) -> "Predictive":
        """Return the distributions of one of several outputs, [N]."""
        units = tuple(
            units_of_columns.column(p) for units_of_columns in self._every_units
        )
        means = self.means[..., p]
        variances = self.variances[..., p]
        return self._replace(means=means, variances=variances, units=units)

    @property
    def _every_units(self) -> tuple[Units, ...]:
        """The units of each component."""
        units = self.units
        return (units,) * len(self.weights) if isinstance(units, Units) else units

    def _check_gaussian(self, remedy: str) -> None:
        if self.noise != "Gaussian":
            got = f"the likelihood {self.noise}"
            raise refusal(
                "predict_quantiles, log_densities", got, "Gaussian noise", remedy
            )


class PredictiveOfColumns(NamedTuple):
    """The distributions of several outputs, [N, P], each with its own components, units
    and recalibration. The methods are the same as in :class:`Predictive`.
    """

    columns: tuple[Predictive, ...]  #: The distributions of each output, [N].

    def without_recalibration(self) -> "PredictiveOfColumns":
        """Return the mixtures without recalibration."""
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
        """Compute log densities of targets, [N, P]; NaN for NaN."""
        pairs = zip(self.columns, y.T, strict=True)
        return np.stack(
            [column.log_densities(values) for column, values in pairs], axis=1
        )

    def normal_scores(self, y: Array) -> Array:
        """Compute the normal scores of targets, [N, P]; NaN for NaN."""
        pairs = zip(self.columns, y.T, strict=True)
        return np.stack(
            [column.normal_scores(values) for column, values in pairs], axis=1
        )


def require_finite(values: Array) -> Array:
    """Return predictions if they are finite; otherwise raise an error."""
    if not np.isfinite(values).all():
        remedy = "The inputs are too large, or too far from the training rows."
        raise refusal("prediction", "NaN or infinity", "finite numbers", remedy)
    return values


def _normal_scores(standardised: Array, weights: Array) -> Array:
    r"""Compute :math:`\Phi^{-1}(\sum_k w_k \Phi(z_k))` from the nearer tail, for
    precision.
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
