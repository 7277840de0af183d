r"""Predictions of an ensemble of sparse Gaussian processes.

A component with inducing inputs Z, of which the prior has :math:`K_{ZZ} = L L^T`,
predicts

.. math::

   E[f_*] = k_{*Z} a, \qquad Var[f_*] = k_{**} - A_*^T (I - S) A_*, \qquad
   A_* = L^{-1} k_{Z*}

with :math:`a = L^{-T} m`, where m, S are the moments of the whitened inducing
variables. :math:`A_*` is computed by substitution: an explicit matrix
:math:`L^{-T} (I - S) L^{-1}` in its place would have rounding errors as large as the
machine's epsilon times the condition number of :math:`K_{ZZ}`, many times the variance
where data are nearly free of noise. Where I - S is positive definite one triangle is
enough,

.. math::

   Var[f_*] = k_{**} - |R^{-1} k_{Z*}|^2, \qquad
   (R R^T)^{-1} = L^{-T} (I - S) L^{-1} .

Where inference is exact R is the Cholesky factor of :math:`K_{ZZ}` plus the noise, but
for the jitter of GPflow.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..distributions.cutting import record_cut
from ..distributions.predictive import Predictive, require_finite
from ..distributions.units import Array, Units
from .kernels import covariance_with, variance_of
from .likelihoods import (
    NUMBERS,
    check_likelihood,
    class_probabilities,
    target_moments,
)
from .near import moments_from_near_rows
from .triangles import solve_lower

#: See :func:`is_far`.
FAR = 0.95
#: A component is asked whether a row is far if its weight is this, or the largest. On
#: 43 data sets of 10 and 20 rows of known processes .86 of rows with an input of 10 000
#: are far so, and .07 of those like the training rows; by the heaviest component alone
#: .65 and .06, and with .1 in its place .98 and .13: light components take a function
#: for noise.
WEIGHTY = 0.2
#: Rows at a time: so many that Python's own time does not count, so few that arrays fit
#: a cache.
CHUNK = 1000


class Component(NamedTuple):
    """What predicts f at rows, and the likelihood of y."""

    moments: Callable[
        [Array], tuple[Array, Array]
    ]  #: Mean and variance of f, [N, L], at [N, D].
    variance: Callable[[Array], Array]  #: Prior variances [N] of rows [N, D].
    likelihood: Mapping[str, Any]
    any_row: (
        Array  #: [2, L]: mean and variance of f at a row of which nothing is known.
    )


class NumpyEnsemble(NamedTuple):
    """Components of one kind of likelihood, and their weights [K] of sum 1."""

    components: tuple[Component, ...]
    weights: Array

    @property
    def noise(self) -> str:
        """The name of the likelihood."""
        return str(self.components[0].likelihood["kind"])


def ensemble_of(parts: Mapping[str, Any]) -> NumpyEnsemble:
    """Prepare predictions.

    :param parts: ``weights``, [K], and ``components``: of each ``kernel`` and
        ``likelihood``, ``any_row``, ``Z``, ``a``, and ``roots``, R of each latent
        function, or ``L`` and ``reductions``, I - S of each; with near rows what
        :func:`~gpflow_pep.scoring.near.moments_from_near_rows` takes instead.
    :raises ValueError: If a kernel or likelihood has no form in NumPy.
    """
    for part in parts["components"]:
        check_likelihood(part["likelihood"])
    components = tuple(
        Component(
            (moments_from_near_rows if "near" in part else _moments_from_u)(part),
            variance_of(part["kernel"]),
            part["likelihood"],
            part["any_row"],
        )
        for part in parts["components"]
    )
    return NumpyEnsemble(components, parts["weights"])


def _moments_from_u(part: Mapping[str, Any]) -> Callable[[Array], tuple[Array, Array]]:
    covariance, variance = (
        covariance_with(part["kernel"], part["Z"]),
        variance_of(part["kernel"]),
    )

    def moments(X: Array) -> tuple[Array, Array]:
        K = covariance(X)
        return K @ part["a"], variance(X)[:, None] - explained(K)

    if "roots" in part:
        explained = _explained_by_roots(part["roots"])
    else:
        explained = _explained_by_reductions(part["L"], part["reductions"])
    return moments


def _explained_by_roots(roots: Array) -> Callable[[Array], Array]:
    def explained(K: Array) -> Array:
        parts = [np.sum(solve_lower(R, K.T) ** 2, axis=0) for R in roots]
        return np.stack(parts, axis=1)

    return explained


def _explained_by_reductions(L: Array, reductions: Array) -> Callable[[Array], Array]:
    def explained(K: Array) -> Array:
        A = solve_lower(L, K.T)
        parts = [np.einsum("mn,mn->n", reduction @ A, A) for reduction in reductions]
        return np.stack(parts, axis=1)

    return explained


def latent_moments(component: Component, X: Array) -> tuple[Array, Array]:
    """Compute the mean and variance of f, [N, L] each, at rows X [N, D]; those of NaN
    are unknown.

    Rounding can make a variance that is nearly 0 negative: it is 0 then, and
    :mod:`gpflow_pep.distributions.cutting` reports it.
    """
    unknown = np.isnan(X).all(axis=1)[:, None]
    if unknown.any():
        moments = latent_moments(component, np.where(unknown, 0.0, X))
        mean, variance = map(np.where, [unknown] * 2, component.any_row, moments)
        return mean, variance
    mean, computed = component.moments(X)
    variance = np.maximum(computed, 0.0)
    if np.any(computed < 0.0):
        record_cut(computed, _target_variance(component.likelihood, X, mean, variance))
    return mean, variance


def _target_variance(
    likelihood: Mapping[str, Any], X: Array, mean: Array, variance: Array
) -> Array:
    """Compute the variance of y; of classes that of f with noise of variance 1."""
    if likelihood["kind"] in NUMBERS:
        return target_moments(likelihood, X, mean, variance)[1]
    return variance + 1.0


def predictive(ensemble: NumpyEnsemble, X: Array, units: Units) -> Predictive:
    """Predict targets, [N].

    :param units: Those of the model, from which they are changed back.
    """

    def moments(X: Array) -> Array:
        parts = [
            target_moments(c.likelihood, X, *latent_moments(c, X))
            for c in ensemble.components
        ]
        return np.array(parts)[..., 0]  # [K, 2, N]

    means, variances = np.swapaxes(_in_chunks(moments, X, -1), 0, 1)
    return Predictive(means, variances, ensemble.weights, units, ensemble.noise)


def predict_probabilities(ensemble: NumpyEnsemble, X: Array) -> Array:
    """Compute the probability of each class, [N, C], of sum 1."""

    def probabilities(X: Array) -> Array:
        return np.asarray(
            sum(
                weight
                * class_probabilities(
                    component.likelihood, *latent_moments(component, X)
                )
                for weight, component in zip(
                    ensemble.weights, ensemble.components, strict=True
                )
            )
        )

    probability = _in_chunks(probabilities, X)
    # Rounding of the integrals leaves sums that differ from 1 a little.
    return np.asarray(probability / probability.sum(axis=1, keepdims=True))


def are_asked(weights: Array) -> npt.NDArray[np.bool_]:
    """Find the components, [K], by which a row can be far: see :data:`WEIGHTY`."""
    least = min(WEIGHTY, float(np.max(weights)))
    return np.asarray(weights >= least)


def is_far(ensemble: NumpyEnsemble, X: Array) -> npt.NDArray[np.bool_]:
    """Find for each row, [N], whether the training rows have almost no information on f
    there.

    That is where the variance of f is more than :data:`FAR` of the prior variance,
    under any component of some weight (:data:`WEIGHTY`); of several latent functions,
    for all of them.
    """
    unknown = np.isnan(X).all(axis=1)
    rows, far = np.where(unknown[:, None], 0.0, X), unknown
    pairs = zip(are_asked(ensemble.weights), ensemble.components, strict=True)
    for component in (component for is_asked, component in pairs if is_asked):

        def shares(X: Array, component: Component = component) -> Array:
            return latent_moments(component, X)[1].min(axis=1) / component.variance(X)

        far = far | (_in_chunks(shares, rows) > FAR)
    return far


def _in_chunks(function: Callable[[Array], Array], X: Array, axis: int = 0) -> Array:
    """Predict some rows, an axis of the result, at a time; refuse results that are not
    finite.
    """
    parts = [
        function(X[start : start + CHUNK]) for start in range(0, max(len(X), 1), CHUNK)
    ]
    return require_finite(parts[0] if len(parts) == 1 else np.concatenate(parts, axis))
