"""
What likelihoods make of the moments of f, as functions of NumPy arrays.

A likelihood is described by a dictionary: ``kind``, the name of GPflow's class, and its parameters.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy.special import ndtr

from ..engine.numerics.softmax_in_numpy import softmax_probabilities
from ..engine.refusals import refusal
from .kernels import Array
from .largest import prob_each_largest

#: The parameters of each kind.
NUMBERS = {"Gaussian": ("variance",), "StudentT": ("scale", "df"), "Poisson": ("binsize",)}
CLASSES: dict[str, tuple[str, ...]] = {
    "Bernoulli": (),
    "MultiClass": ("epsilon",),
    "Softmax": (),
    "Ordinal": ("edges", "sigma", "squeeze", "floor"),
}
#: GPflow's probit link is ``_SQUEEZE + (1 - 2 _SQUEEZE) Phi(f)``.
_SQUEEZE = 1e-3


def target_moments(
    likelihood: Mapping[str, Any], mean: Array, variance: Array
) -> tuple[Array, Array]:
    """
    Compute the mean and variance of y from those of f, of any shape, for a likelihood of numbers.
    """
    kind = likelihood["kind"]
    if kind == "Gaussian":
        return mean, variance + likelihood["variance"]
    if kind == "StudentT":
        df = likelihood["df"]
        return mean, variance + likelihood["scale"] ** 2 * (df / (df - 2.0))
    if kind == "Poisson":
        rate = np.exp(mean + 0.5 * variance) * likelihood["binsize"]
        return rate, rate + np.expm1(variance) * rate**2
    raise unsupported(kind, NUMBERS)


def class_probabilities(likelihood: Mapping[str, Any], mean: Array, variance: Array) -> Array:
    """
    Compute the probability of each class, [N, C].

    :param likelihood: The description of one of classes.
    :param mean: Of the latent functions, [N, L].
    :param variance: Of the latent functions, [N, L].
    :raises ValueError: If the likelihood is another.
    """
    kind = likelihood["kind"]
    if kind == "Bernoulli":
        margin = mean / np.sqrt(1.0 + variance)
        return np.asarray(
            _SQUEEZE + (1.0 - 2.0 * _SQUEEZE) * ndtr(np.concatenate([-margin, margin], axis=1))
        )
    if kind == "MultiClass":
        largest, epsilon = prob_each_largest(mean, variance), likelihood["epsilon"]
        other = epsilon / (mean.shape[1] - 1.0)
        return np.asarray(largest * (1.0 - epsilon) + (1.0 - largest) * other)
    if kind == "Softmax":
        return softmax_probabilities(mean, variance)
    if kind == "Ordinal":
        ends = np.concatenate([[-np.inf], likelihood["edges"], [np.inf]])
        z = (ends - mean) / np.sqrt(likelihood["sigma"] ** 2 + variance)
        low, high = z[:, :-1], z[:, 1:]
        # From the side on which neither is near 1, so that the difference keeps its digits.
        mirrored = low + high > 0.0
        inner, outer = np.where(mirrored, -low, high), np.where(mirrored, -high, low)
        between = np.asarray(ndtr(inner) - ndtr(outer))
        return (1.0 - likelihood["squeeze"]) * between + likelihood["floor"]
    raise unsupported(kind, CLASSES)


def unsupported(kind: str, known: Mapping[str, Any]) -> ValueError:
    """Refuse a likelihood, for ``raise``; ``known`` has those that would do."""
    expected = f"one of {', '.join(known)}, as GPflow defines them"
    remedy = "Use the estimator that was saved: gpflow_pep.estimators.load_estimator."
    return refusal("likelihood", kind, expected, remedy)
