r"""Predictions of mixtures of sparse Gaussian processes.

A component with inducing inputs Z and :math:`K_{ZZ} = L L^T` predicts

.. math::

   E[f_*] = k_{*Z} a, \qquad Var[f_*] = k_{**} - A_*^T (I - S) A_*, \qquad
   A_* = L^{-1} k_{Z*}

with :math:`a = L^{-T} m`, where m, S are the moments of the whitened inducing
variables. :math:`A_*` is computed by substitution: an explicit matrix
:math:`L^{-T} (I - S) L^{-1}` would have rounding errors as large as the machine's
epsilon times the condition number of :math:`K_{ZZ}`, which is many times the variance
if data have nearly no noise. If I - S is positive definite, one triangle is enough,

.. math::

   Var[f_*] = k_{**} - |R^{-1} k_{Z*}|^2, \qquad
   (R R^T)^{-1} = L^{-T} (I - S) L^{-1} .

If inference is exact, R is the Cholesky factor of :math:`K_{ZZ}` plus the noise, apart
from the jitter of GPflow.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.linalg import solve_triangular

from ..distributions.cutting import record_cut
from ..distributions.mixtures import FAR, far_by_components, mixed_probabilities
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

#: The number of rows at a time: enough to hide the overhead of Python, few enough that
#: arrays fit in a cache.
CHUNK = 1000
#: Variances may change by this fraction of the smallest variance of y. The standard
#: deviation then changes by half as much, a hundredth of the allowed difference of
#: predictions.
NEGLIGIBLE = 1e-8
#: The number of training rows over which predictions of a row with unknown inputs are
#: averaged.
ROWS_OF_ANYWHERE = 1000


class Component(NamedTuple):
    """Functions that predict f at rows, and the likelihood of y."""

    #: Computes mean and variance of f, [N, L] each, at rows [N, D].
    moments: Callable[[Array], tuple[Array, Array]]
    variance: Callable[[Array], Array]  #: Computes prior variances [N] of rows [N, D].
    likelihood: Mapping[str, Any]
    any_row: Array  #: Mean and variance of f at a row with unknown inputs, [2, L].


def component_of(described: Mapping[str, Any]) -> Component:
    """Prepare predictions of a component.

    :param described: The description: ``kernel``, ``likelihood``, ``any_row``, ``Z``,
        ``a``, and either ``roots``, R of each latent function, or ``L`` and
        ``reductions``, I - S of each. With near rows, the entries for
        :func:`~gpflow_pep.scoring.near.moments_from_near_rows` instead.
    :raises ValueError: If the kernel or likelihood has no form in NumPy.
    """
    check_likelihood(described["likelihood"])
    moments_of = moments_from_near_rows if "near" in described else _moments_from_u
    variance = variance_of(described["kernel"])
    return Component(
        moments_of(described), variance, described["likelihood"], described["any_row"]
    )


def _moments_from_u(
    described: Mapping[str, Any],
) -> Callable[[Array], tuple[Array, Array]]:
    covariance = covariance_with(described["kernel"], described["Z"])
    variance = variance_of(described["kernel"])

    def moments(X: Array) -> tuple[Array, Array]:
        K = covariance(X)
        return K @ described["a"], variance(X)[:, None] - explained(K)

    if "roots" in described:
        explained = _explained_by_roots(described["roots"])
    else:
        explained = _explained_by_reductions(described["L"], described["reductions"])
    return moments


def _explained_by_roots(roots: Array) -> Callable[[Array], Array]:
    def explained(K: Array) -> Array:
        by_latent = [np.sum(solve_lower(R, K.T) ** 2, axis=0) for R in roots]
        return np.stack(by_latent, axis=1)

    return explained


def _explained_by_reductions(L: Array, reductions: Array) -> Callable[[Array], Array]:
    def explained(K: Array) -> Array:
        A = solve_lower(L, K.T)
        by_latent = [
            np.einsum("mn,mn->n", reduction @ A, A) for reduction in reductions
        ]
        return np.stack(by_latent, axis=1)

    return explained


def factors_of_u(
    m: Array, L: Array, reductions: Array, relative_noise: float
) -> dict[str, Array]:
    """Compute the entries of the description of a component that follow from its
    whitened inducing variables: ``a``, and ``roots``, or else ``L`` and ``reductions``.

    :param m: The means of the whitened inducing variables, [M, L].
    :param L: The lower Cholesky factor of the inducing variables' covariance, [M, M].
    :param reductions: I - S of each latent function, [L, M, M].
    :param relative_noise: The least variance that the noise adds to the variance of f,
        divided by the largest prior variance of f.
    """
    roots = _roots(L, reductions, NEGLIGIBLE * relative_noise)
    factors = {"L": L, "reductions": reductions} if roots is None else {"roots": roots}
    return {"a": solve_triangular(L, m, lower=True, trans=1), **factors}


def _roots(L: Array, reductions: Array, negligible: float) -> Array | None:
    r"""Compute the lower triangular R with which variances need one triangular solve
    instead of two: :math:`(R R^T)^{-1} = L^{-T} (I - S) L^{-1}`.

    With :math:`I - S = T T^T`, T upper triangular, R is :math:`L T^{-T}`. Rounding
    makes small eigenvalues of I - S negative in directions without data. A small number
    is then added to its diagonal, which reduces the variances by at most this number
    times the prior variance.

    :param reductions: I - S of each latent function, [L, M, M].
    :param negligible: The largest number that may be added.
    :return: R, [L, M, M]; None if I - S needs a larger number, for example because a
        likelihood that is not log-concave makes f less certain than its prior.
    """
    eps = float(np.finfo(np.float64).eps)
    eye = np.eye(len(L))
    added = 0.0
    while added <= negligible:
        # Lower factors of the reversed matrix are upper factors in the original order.
        reverse = (reductions + added * eye)[:, ::-1, ::-1]
        try:
            upper = np.linalg.cholesky(reverse)[:, ::-1, ::-1]
        except np.linalg.LinAlgError:
            added = max(4.0 * added, eps)
            continue
        return np.stack([solve_triangular(T, L.T).T for T in upper])
    return None


def rows_of_anywhere(num_rows: int) -> npt.NDArray[np.intp]:
    """Select the training rows, at equal steps, that stand for a row with unknown
    inputs.
    """
    return np.unique(np.linspace(0, num_rows - 1, ROWS_OF_ANYWHERE).astype(np.intp))


def moments_anywhere(means: Array, variances: Array) -> Array:
    """Compute mean and variance of f, [2, L], at a row with unknown inputs: the mixture
    over training rows, at which they are [N, L] each.
    """
    mean = means.mean(axis=0)
    return np.stack([mean, np.mean(variances + (means - mean) ** 2, axis=0)])


def latent_moments(component: Component, X: Array) -> tuple[Array, Array]:
    """Compute the mean and variance of f, [N, L] each, at rows X [N, D]; rows of NaN
    are unknown.

    Rounding can make a variance that is nearly 0 negative. It is then set to 0, and
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
    """Compute the variance of y; for classes, the variance of f plus noise of variance
    1.
    """
    if likelihood["kind"] in NUMBERS:
        return target_moments(likelihood, X, mean, variance)[1]
    return variance + 1.0


def predictive(
    components: Sequence[Component], weights: Array, X: Array, units: Units
) -> Predictive:
    """Predict targets, [N], with a mixture of components.

    :param weights: The weights, [K]; their sum is 1.
    :param units: The units of the model, from which predictions are converted to
        original units.
    """

    def moments(component: Component, X: Array) -> tuple[Array, Array]:
        of_f = latent_moments(component, X)
        return target_moments(component.likelihood, X, *of_f)

    return _predictive(components, weights, X, units, moments)


def predictive_of_f(
    components: Sequence[Component], weights: Array, X: Array, units: Units
) -> Predictive:
    """Predict f, [N], with a mixture of components; see :func:`predictive`."""
    return _predictive(components, weights, X, units, latent_moments)


def _predictive(
    components: Sequence[Component],
    weights: Array,
    X: Array,
    units: Units,
    moments: Callable[[Component, Array], tuple[Array, Array]],
) -> Predictive:
    def of_components(X: Array) -> Array:
        return np.array([moments(each, X) for each in components])[..., 0]  # [K, 2, N]

    means, variances = np.swapaxes(_in_chunks(of_components, X, -1), 0, 1)
    noise = str(components[0].likelihood["kind"])
    return Predictive(means, variances, weights, units, noise)


def predict_probabilities(
    components: Sequence[Component], weights: Array, X: Array
) -> Array:
    """Compute the probability of each class, [N, C], with a mixture of components. The
    sum over classes is 1.
    """

    def probabilities(X: Array) -> Array:
        return mixed_probabilities(
            weights,
            [
                class_probabilities(c.likelihood, *latent_moments(c, X))
                for c in components
            ],
        )

    probability = _in_chunks(probabilities, X)
    # Integrals are rounded, so sums differ a little from 1.
    return np.asarray(probability / probability.sum(axis=1, keepdims=True))


def far_rows(
    components: Sequence[Component], weights: Array, X: Array
) -> npt.NDArray[np.bool_]:
    """Find for each row, [N], whether the training rows have almost no information on f
    there.

    A row is far if the variance of f is more than the fraction
    :data:`~gpflow_pep.distributions.mixtures.FAR` of the prior variance, for any
    component with enough weight. With several latent functions, this must hold for all
    of them.
    """
    unknown = np.isnan(X).all(axis=1)
    rows = np.where(unknown[:, None], 0.0, X)

    def is_far(k: int) -> npt.NDArray[np.bool_]:
        component = components[k]

        def shares(X: Array) -> Array:
            return latent_moments(component, X)[1].min(axis=1) / component.variance(X)

        return np.asarray(_in_chunks(shares, rows) > FAR)

    return unknown | far_by_components(weights, is_far)


def _in_chunks(function: Callable[[Array], Array], X: Array, axis: int = 0) -> Array:
    """Predict chunks of rows, which are an axis of the result; refuse results that are
    not finite.
    """
    parts = [
        function(X[start : start + CHUNK]) for start in range(0, max(len(X), 1), CHUNK)
    ]
    return require_finite(parts[0] if len(parts) == 1 else np.concatenate(parts, axis))
