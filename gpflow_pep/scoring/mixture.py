r"""
Predictions of a mixture of sparse Gaussian processes.

A component with inducing inputs Z predicts

.. math::

   E[f_*] = k_{*Z} a, \qquad Var[f_*] = k_{**} - k_{*Z} Q k_{Z*}

with :math:`a = L^{-T} m` and :math:`Q = L^{-T} (I - S) L^{-1}`, where L is the Cholesky factor of
:math:`K_{ZZ}` and m, S are the moments of the whitened inducing variables. These are what GPflow's
posterior has in its cache: the same products have the same rounding errors.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import logsumexp, ndtr, ndtri

from ..engine.refusals import refusal
from .kernels import Array, covariance_with, variance_of
from .likelihoods import class_probabilities, target_moments
from .units import Units

#: See :func:`is_far`.
FAR = 0.95
#: Rows at a time: so many that Python's own time does not count, so few that arrays fit a cache.
CHUNK = 1000
#: Steps of Newton's method for a quantile, and halvings of an interval after them.
_NEWTON_STEPS, _BISECTIONS = 12, 60
#: A step is the last where it is this much of the quantile and the smallest standard deviation.
_TOLERANCE = 1e-14
#: Stands for a density of 0, which is far out: such a step leaves the interval.
_SMALLEST_DENSITY = 1e-300


class Component(NamedTuple):
    """What predicts f at rows, and the likelihood of y."""

    covariance: Callable[[Array], Array]
    """Of rows [N, D]: their prior covariances with the inducing inputs, [N, M]."""

    variance: Callable[[Array], Array]
    """Of rows [N, D]: their prior variances, [N]."""

    a: Array
    """[M, L]."""

    Q: Array
    """[L, M, M]."""

    constant: Any
    """The mean function, [L] or a number."""

    likelihood: Mapping[str, Any]

    any_row: Array
    """[2, L]: mean and variance of f at a row of which nothing is known."""


class PredictiveMixture(NamedTuple):
    """Components of one kind of likelihood, and their weights [K] of sum 1."""

    components: tuple[Component, ...]
    weights: Array


def mixture_of(parts: Mapping[str, Any]) -> PredictiveMixture:
    """
    Prepare predictions.

    :param parts: ``weights``, [K], and ``components``: of each ``kernel`` and ``likelihood``,
        ``Z``, ``a``, ``Q`` and ``constant``.
    """
    components = tuple(
        Component(
            covariance_with(part["kernel"], part["Z"]),
            variance_of(part["kernel"]),
            part["a"],
            part["Q"],
            part["constant"],
            part["likelihood"],
            part.get("any_row", np.full([2, 1], np.nan)),
        )
        for part in parts["components"]
    )
    return PredictiveMixture(components, parts["weights"])


def latent_moments(component: Component, X: Array) -> tuple[Array, Array]:
    """
    Compute the mean and variance of f, [N, L] each, at rows X [N, D]; those of NaN are unknown.

    Rounding can make a variance that is nearly 0 negative: it is 0 then.
    """
    unknown = np.isnan(X).all(axis=1)[:, None]
    if unknown.any():
        moments = latent_moments(component, np.where(unknown, 0.0, X))
        mean, variance = map(np.where, [unknown] * 2, component.any_row, moments)
        return mean, variance
    K = component.covariance(X)
    explained = np.stack([np.einsum("nm,nm->n", K @ Q, K) for Q in component.Q], axis=1)
    variance = component.variance(X)[:, None] - explained
    return K @ component.a + component.constant, np.maximum(variance, 0.0)


def target_components(mixture: PredictiveMixture, X: Array) -> tuple[Array, Array]:
    """Compute the mean and variance of y under each component, [K, N] each."""
    moments = [
        target_moments(component.likelihood, *latent_moments(component, X))
        for component in mixture.components
    ]
    means, variances = (np.stack([pair[i][:, 0] for pair in moments]) for i in (0, 1))
    return means, variances


def predict_targets(mixture: PredictiveMixture, X: Array, units: Units) -> tuple[Array, Array]:
    """
    Compute the mean and variance of y, [N] each, the spread of the components' means included.

    :param units: Those of the model, from which y is changed back.
    """

    def moments(X: Array) -> Array:
        means, variances = units.moments(*target_components(mixture, X))
        mean = mixture.weights @ means
        return np.stack([mean, mixture.weights @ (variances + (means - mean) ** 2)], axis=1)

    mean, variance = _in_chunks(moments, X).T
    return mean, variance


def predict_quantiles(mixture: PredictiveMixture, X: Array, quantiles: Array) -> Array:
    r"""
    Compute quantiles of y with Gaussian noise, [N, Q].

    Each solves :math:`\sum_k w_k F_k(y) = q`.

    :param quantiles: Probabilities in (0, 1), [Q].
    :raises ValueError: If the noise is another, or a quantile is not finite.
    """
    _check_gaussian(mixture, "Use predict with return_std=True.")

    def solve(X: Array) -> Array:
        means, variances = target_components(mixture, X)
        return quantiles_of_mixture(means, np.sqrt(variances), mixture.weights, quantiles)

    return _in_chunks(solve, X)


def predict_probabilities(mixture: PredictiveMixture, X: Array) -> Array:
    """Compute the probability of each class, [N, C], of sum 1."""

    def probabilities(X: Array) -> Array:
        return np.asarray(
            sum(
                weight * class_probabilities(component.likelihood, *latent_moments(component, X))
                for weight, component in zip(mixture.weights, mixture.components, strict=True)
            )
        )

    probability = _in_chunks(probabilities, X)
    # Rounding of the integrals leaves sums that differ from 1 a little.
    return np.asarray(probability / probability.sum(axis=1, keepdims=True))


def is_far(mixture: PredictiveMixture, X: Array) -> npt.NDArray[np.bool_]:
    """
    Say of each row, [N], whether the training rows say almost nothing of f there.

    That is where the variance of f is more than :data:`FAR` of the prior variance, under the
    component of the largest weight; of several latent functions, for all of them.
    """
    component = mixture.components[int(np.argmax(mixture.weights))]

    def shares(X: Array) -> Array:
        return latent_moments(component, X)[1].min(axis=1) / component.variance(X)

    unknown = np.isnan(X).all(axis=1)
    far: npt.NDArray[np.bool_] = _in_chunks(shares, np.where(unknown[:, None], 0.0, X)) > FAR
    return far | unknown


def predict_log_densities(mixture: PredictiveMixture, X: Array, y: Array) -> Array:
    r"""
    Compute :math:`\log \sum_k w_k p_k(y | x)` of rows and targets y [N] with Gaussian noise, [N].
    """
    _check_gaussian(mixture, "Use log_densities of the estimator that was saved.")

    def densities(rows: Array) -> Array:
        means, variances = target_components(mixture, rows[:, :-1])
        squares = (rows[:, -1] - means) ** 2 / variances
        logs = -0.5 * (np.log(2.0 * np.pi * variances) + squares)
        return np.asarray(logsumexp(logs, axis=0, b=mixture.weights[:, None]))

    return _in_chunks(densities, np.column_stack([X, y]))


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


def _check_gaussian(mixture: PredictiveMixture, remedy: str) -> None:
    for component in mixture.components:
        if component.likelihood["kind"] != "Gaussian":
            got = f"the likelihood {component.likelihood['kind']}"
            raise refusal("predict_quantiles, log_densities", got, "Gaussian noise", remedy)


def _in_chunks(function: Callable[[Array], Array], X: Array) -> Array:
    """Predict some rows at a time; refuse results that are not finite."""
    parts = [function(X[start : start + CHUNK]) for start in range(0, max(len(X), 1), CHUNK)]
    values = parts[0] if len(parts) == 1 else np.concatenate(parts)
    if not np.isfinite(values).all():
        remedy = "The inputs are too large, or too far from those that the model was trained on."
        raise refusal("prediction", "NaN or infinity", "finite numbers", remedy)
    return values
