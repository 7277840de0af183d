"""Descriptions of fitted models for :mod:`gpflow_pep.scoring`."""

from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.covariances import Kuf
from gpflow.covariances.kufs import Kuf_kernel_inducingpoints
from gpflow.inducing_variables import InducingPoints
from gpflow.kernels import Kernel
from gpflow.likelihoods import Bernoulli, Gaussian, Likelihood, StudentT
from gpflow.mean_functions import Zero
from gpflow.posteriors import AbstractPosterior, IndependentPosteriorSingleOutput

from ...engine.checks import refusal
from ...engine.predictions.context_posterior import ContextRowsPosterior
from ...engine.predictions.context_rows import Context
from ...engine.prior.wrapped import WellConditioned
from ...scoring import likelihoods
from ...scoring.components import Component, component_of, factors_of_u
from ...scoring.kernels import REMEDY
from ...scoring.stored import Described, Reader
from ...training.choosing.ensemble import EnsemblePosterior
from .describing import Describer


def numpy_components(posterior: EnsemblePosterior) -> tuple[Component, ...]:
    """Return the components that predict with NumPy; an empty result if one of them has
    no form in NumPy.
    """
    describe = Describer(values=True)
    try:
        described = Reader(describe.arrays)(describe_posterior(posterior, describe))
        return tuple(map(component_of, described["components"]))
    except ValueError:
        return ()


def describe_posterior(
    posterior: EnsemblePosterior, describe: Describer
) -> dict[str, Described]:
    """Describe a posterior for :func:`gpflow_pep.scoring.components.component_of`.

    :param posterior: A posterior in float64, with its cache.
    :raises ValueError: If a part of it has no form in NumPy.
    """
    components = [*map(_component, posterior.posteriors, posterior.likelihoods)]
    for component, moments in zip(
        components, posterior.moments_anywhere(), strict=True
    ):
        component["any_row"] = moments
    return {
        "weights": describe(posterior.weights.numpy(), "weights"),
        "components": [
            {name: describe(value, f"{name}_") for name, value in component.items()}
            for component in components
        ],
    }


def _component(posterior: AbstractPosterior, likelihood: Likelihood) -> dict[str, Any]:
    if isinstance(posterior, ContextRowsPosterior):
        return _component_of_rows(posterior, likelihood)
    if not isinstance(posterior, IndependentPosteriorSingleOutput):
        raise _refused("model_", "several outputs", "one")
    kernel: Any = getattr(posterior, "kernel_of_model", None)
    if kernel is None or posterior.cache is None:
        got = "a posterior of another package, or without its cache"
        raise _refused(
            "model_", got, "the posterior of a model of gpflow_pep, with its cache"
        )
    m, reductions, L = map(np.asarray, posterior.cache)
    if m.shape[1] > 1 and type(likelihood).__name__ in likelihoods.NUMBERS:
        raise _refused("model_", "several columns of targets", "one")
    if L.dtype != np.float64:
        raise _refused("model_", f"numbers of type {L.dtype}", "float64")
    mean = posterior.mean_function
    if mean is not None and type(mean) is not Zero:
        raise _refused("mean_function", type(mean).__name__, "none or Zero")
    Z = _points(posterior.X_data, kernel)
    largest = np.max(kernel(Z, full_cov=False))
    factors = factors_of_u(m, L, reductions, _least_noise(likelihood, Z) / largest)
    return {"kernel": kernel, "likelihood": likelihood, "Z": Z, **factors}


def _least_noise(likelihood: Likelihood, Z: AnyNDArray) -> float:
    """Compute the least variance that a likelihood adds to the variance of f.

    It is 1 for a likelihood without noise on f, such as a likelihood of classes: their
    latent noise has about this variance.
    """
    if type(likelihood) not in (Gaussian, StudentT):
        return 1.0
    return float(np.min(likelihood.conditional_variance(Z, np.zeros((len(Z), 1)))))


def _component_of_rows(
    posterior: ContextRowsPosterior, likelihood: Likelihood
) -> dict[str, Any]:
    """Describe predictions from near rows. The names are explained in
    `gpflow_pep.scoring.near`.
    """
    parts = posterior._parts
    context = Context(*map(np.asarray, posterior.cache or ()))
    X = context.X
    r = context.r
    noise = context.noise
    M = context.L.shape[1]
    if r.shape[1] > 1 or X.dtype != np.float64:
        raise _refused(
            "model_",
            "several columns of targets, or float32",
            "one column of targets, and float64",
        )
    if type(parts.mean_function) is not Zero:
        raise _refused(
            "mean_function", type(parts.mean_function).__name__, "none or Zero"
        )
    if parts.likelihood is not None and (
        type(likelihood) is not Bernoulli or np.any(noise != 1.0)
    ):
        got = f"near rows of {type(likelihood).__name__}, or of a power below 1"
        raise _refused("likelihood_", got, "Gaussian, or Bernoulli at power 1")
    return {
        "kernel": parts.kernel,
        "likelihood": likelihood,
        "Z": (
            _points(parts.inducing_variable, parts.kernel)
            if M
            else np.zeros((0, X.shape[1]))
        ),
        "near": posterior.near,
        "X": X,
        "r": r,
        "noise": noise if parts.likelihood is None else None,
        "precision": 1.0 / context.scales,
        "L": context.L[0],
        "mean": context.mean,
        "root": context.root,
    }


def _points(inducing_variable: Any, kernel: Kernel) -> AnyNDArray:
    if isinstance(inducing_variable, WellConditioned):  # it changes Kuu but not Kuf
        inducing_variable = inducing_variable.inducing_variable
    rule = Kuf.dispatch(InducingPoints, type(kernel), tf.Tensor)
    if (
        type(inducing_variable) is not InducingPoints
        or rule is not Kuf_kernel_inducingpoints
    ):
        got = type(inducing_variable).__name__
        raise _refused(
            "inducing_variable_", got, "InducingPoints, and GPflow's covariances"
        )
    return np.asarray(inducing_variable.Z)


def _refused(name: str, got: str, expected: str, remedy: str = REMEDY) -> ValueError:
    return refusal(
        name, got, f"{expected}, because only these have a prediction in NumPy", remedy
    )
