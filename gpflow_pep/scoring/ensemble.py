r"""Predictions of an ensemble of sparse Gaussian processes.

A component with inducing inputs Z predicts

.. math::

   E[f_*] = k_{*Z} a, \qquad Var[f_*] = k_{**} - k_{*Z} Q k_{Z*}

with :math:`a = L^{-T} m` and :math:`Q = L^{-T} (I - S) L^{-1}`, where L is the Cholesky
factor of :math:`K_{ZZ}` and m, S are the moments of the whitened inducing variables.
These are what GPflow's posterior has in its cache: the same products have the same
rounding errors.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.linalg.blas import dsymv

from .kernels import Array, covariance_with, variance_of
from .likelihoods import check_likelihood, class_probabilities, target_moments
from .near import moments_from_near_rows
from .predictive import Predictive, require_finite
from .units import Units

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
        ``likelihood``, ``any_row``, ``Z``, ``a`` and ``Q``; with near rows what
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
        if len(K) == 1:  # reads half of Q: 0.5 ms for 1000 points, not 1.1
            products = [dsymv(1.0, Q.T, K[0])[None] for Q in part["Q"]]
        else:
            products = [K @ Q for Q in part["Q"]]
        explained = np.stack(
            [np.einsum("nm,nm->n", half, K) for half in products], axis=1
        )
        return K @ part["a"], variance(X)[:, None] - explained

    return moments


def latent_moments(component: Component, X: Array) -> tuple[Array, Array]:
    """Compute the mean and variance of f, [N, L] each, at rows X [N, D]; those of NaN
    are unknown.

    Rounding can make a variance that is nearly 0 negative: it is 0 then.
    """
    unknown = np.isnan(X).all(axis=1)[:, None]
    if unknown.any():
        moments = latent_moments(component, np.where(unknown, 0.0, X))
        mean, variance = map(np.where, [unknown] * 2, component.any_row, moments)
        return mean, variance
    mean, variance = component.moments(X)
    return mean, np.maximum(variance, 0.0)


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
