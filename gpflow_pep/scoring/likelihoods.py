"""Moments and probabilities of y from the moments of f, as functions of NumPy arrays.

A likelihood is described by a dictionary, as :class:`~gpflow_pep.scoring.stored.Reader`
reads it: ``kind``, the name of GPflow's class, and the arguments of its constructor by
name.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from scipy.special import ndtr

from ..distributions.noise import exponent_of_noise, features_of_noise
from ..distributions.units import Array
from ..engine.numerics.softmax_in_numpy import softmax_probabilities
from ..engine.refusals import refusal
from .kernels import REMEDY
from .largest import prob_each_largest

#: Ordinal regression without GPflow's squeezed probit link and floor.
_OWN_ORDINAL = "gpflow_pep.likelihoods.Ordinal"
#: The kinds of likelihoods of numbers with their parameters, and the kinds of
#: likelihoods of classes.
NUMBERS = {
    "Gaussian": ("variance", "scale"),
    "StudentT": ("scale", "df"),
    "Poisson": ("binsize",),
}
CLASSES = ("Bernoulli", "MultiClass", "Softmax", "Ordinal", _OWN_ORDINAL)
#: The kind of Gaussian noise that varies with the inputs.
LOG_LINEAR = "gpflow_pep.likelihoods.LogLinear"
_LINKS = {"Poisson": {"function": "exp"}, "Bernoulli": {"function": "inv_probit"}}
#: GPflow's probit link is ``SQUEEZE + (1 - 2 SQUEEZE) Phi(f)``.
SQUEEZE = 1e-3
#: GPflow adds this number to the probability of each ordered class. It does not have a
#: name in GPflow.
_FLOOR = 1e-6


def check_likelihood(likelihood: Mapping[str, Any]) -> None:
    """Refuse a likelihood of another class, with another link, or with noise that is
    not a number.
    """
    kind = likelihood["kind"]
    if kind not in (*NUMBERS, *CLASSES):
        raise _unsupported(kind, (*NUMBERS, *CLASSES))
    numbers = [
        likelihood[name]
        for name in NUMBERS.get(kind, ())
        if likelihood[name] is not None
    ]
    varies = kind == "Gaussian" and _is_log_linear(likelihood["variance"])
    constant = varies or all(
        not isinstance(v, dict) and np.size(v) == 1 for v in numbers
    )
    link = kind not in _LINKS or likelihood["invlink"] == _LINKS[kind]
    if (
        not constant
        or not link
        or (kind == "StudentT" and not np.all(likelihood["df"] > 2.0))
    ):
        got = (
            f"{kind} with noise that depends on the input, no variance, or another link"
        )
        expected = "noise with a constant variance or LogLinear, and the usual link"
        raise refusal("likelihood", got, expected, REMEDY)


def _is_log_linear(noise: Any) -> bool:
    return isinstance(noise, dict) and noise["kind"] == LOG_LINEAR


def noise_at(likelihood: Mapping[str, Any], X: Array) -> Array:
    """Compute the variance of Gaussian noise, [N, 1], or one number for all rows."""
    noise = likelihood["variance"]
    if not _is_log_linear(noise):
        return np.asarray(likelihood["scale"] ** 2 if noise is None else noise)
    exponent = exponent_of_noise(features_of_noise(X), noise["weights"])
    return np.maximum(
        noise["variance"] * np.exp(exponent), likelihood["variance_lower_bound"]
    )


def target_moments(
    likelihood: Mapping[str, Any], X: Array, mean: Array, variance: Array
) -> tuple[Array, Array]:
    """
    Compute the mean and variance of y at rows X [N, D] from the mean and variance of f,
    [N, 1], for a likelihood of numbers.
    """
    kind = likelihood["kind"]
    if kind == "Gaussian":
        return mean, variance + noise_at(likelihood, X)
    if kind == "StudentT":
        df = likelihood["df"]
        return mean, variance + likelihood["scale"] ** 2 * (df / (df - 2.0))
    if kind == "Poisson":
        rate = np.exp(mean + 0.5 * variance) * likelihood["binsize"]
        return rate, rate + np.expm1(variance) * rate**2
    raise _unsupported(kind, NUMBERS)


def class_probabilities(
    likelihood: Mapping[str, Any], mean: Array, variance: Array
) -> Array:
    """Compute the probability of each class, [N, C].

    :param likelihood: The description of a likelihood of classes.
    :param mean: The means of the latent functions, [N, L].
    :param variance: The variances of the latent functions, [N, L].
    :raises ValueError: If the likelihood is not supported.
    """
    kind = likelihood["kind"]
    if kind == "Bernoulli":
        margin = mean / np.sqrt(1.0 + variance)
        return np.asarray(
            SQUEEZE
            + (1.0 - 2.0 * SQUEEZE) * ndtr(np.concatenate([-margin, margin], axis=1))
        )
    if kind == "MultiClass":
        largest = prob_each_largest(mean, variance)
        epsilon = likelihood["invlink"]["epsilon"]
        other = epsilon / (mean.shape[1] - 1.0)
        return np.asarray(largest * (1.0 - epsilon) + (1.0 - largest) * other)
    if kind == "Softmax":
        return softmax_probabilities(mean, variance)
    if kind in ("Ordinal", _OWN_ORDINAL):
        squeezed = kind == "Ordinal"
        edges = likelihood["bin_edges" if squeezed else "edges"]
        ends = np.concatenate([[-np.inf], edges, [np.inf]])
        z = (ends - mean) / np.sqrt(likelihood["sigma"] ** 2 + variance)
        low = z[:, :-1]
        high = z[:, 1:]
        # Computed on the side on which neither probability is near 1, so that the
        # difference keeps its digits.
        mirrored = low + high > 0.0
        inner = np.where(mirrored, -low, high)
        outer = np.where(mirrored, -high, low)
        between = np.asarray(ndtr(inner) - ndtr(outer))
        return (1.0 - 2.0 * SQUEEZE) * between + _FLOOR if squeezed else between
    raise _unsupported(kind, CLASSES)


def _unsupported(kind: str, known: Iterable[str]) -> ValueError:
    """Make the error for a likelihood that is not supported; ``known`` has the
    supported ones.
    """
    return refusal(
        "likelihood", kind, f"one of {', '.join(known)}, as GPflow has them", REMEDY
    )
