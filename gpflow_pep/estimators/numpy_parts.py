"""Fitted models described for :mod:`gpflow_pep.scoring`."""

from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.covariances import Kuf
from gpflow.covariances.kufs import Kuf_kernel_inducingpoints
from gpflow.inducing_variables import InducingPoints
from gpflow.kernels import Kernel
from gpflow.likelihoods import Bernoulli, Likelihood
from gpflow.mean_functions import Zero
from gpflow.posteriors import AbstractPosterior, IndependentPosteriorSingleOutput

from ..engine.checks import refusal
from ..engine.predictions.context_posterior import ContextRowsPosterior
from ..engine.predictions.context_rows import Context
from ..engine.prior.wrapped import WellConditioned
from ..scoring import likelihoods
from ..scoring.ensemble import NumpyEnsemble, ensemble_of
from ..scoring.kernels import REMEDY
from ..scoring.stored import Reader
from ..training.choosing.ensemble import EnsemblePosterior
from .describing import Described, Describer


def numpy_ensembles(posterior: EnsemblePosterior) -> tuple[NumpyEnsemble, ...]:
    """Give what predicts with NumPy, one ensemble; none where it has no form
    of a part.
    """
    describe = Describer(values=True)
    try:
        described = describe_posterior(posterior, describe)
        return (ensemble_of(Reader(describe.arrays)(described)),)
    except ValueError:
        return ()


def describe_posterior(
    posterior: EnsemblePosterior, describe: Describer
) -> dict[str, Described]:
    """Describe what predicts, for :func:`gpflow_pep.scoring.ensemble.ensemble_of`.

    :param posterior: Of float64, with its cache.
    :raises ValueError: If it has a part that NumPy's predictions have no form of.
    """
    components = [*map(_component, posterior.posteriors, posterior.likelihoods)]
    for component, moments in zip(
        components, posterior.moments_anywhere(), strict=True
    ):
        component["any_row"] = np.stack(moments)
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
    if (
        not isinstance(posterior, IndependentPosteriorSingleOutput)
        or posterior.cache is None
    ):
        raise _refused("model_", "several outputs", "one")
    kernel: Any = getattr(posterior, "kernel_of_model", posterior.kernel)
    a, Q = map(np.asarray, posterior.cache)
    if a.shape[1] > 1 and type(likelihood).__name__ in likelihoods.NUMBERS:
        raise _refused("model_", "several columns of targets", "one")
    if Q.dtype != np.float64:
        raise _refused("model_", f"numbers of type {Q.dtype}", "float64")
    mean = posterior.mean_function
    if mean is not None and type(mean) is not Zero:
        raise _refused("mean_function", type(mean).__name__, "none or Zero")
    Z = _points(posterior.X_data, kernel)
    return {"kernel": kernel, "likelihood": likelihood, "Z": Z, "a": a, "Q": Q}


def _component_of_rows(
    posterior: ContextRowsPosterior, likelihood: Likelihood
) -> dict[str, Any]:
    """Describe predictions from near rows; `gpflow_pep.scoring.near` has the names."""
    parts, context = posterior._parts, Context(*map(np.asarray, posterior.cache or ()))
    X, r, noise, M = context.X, context.r, context.noise, context.W.shape[1]
    if r.shape[1] > 1 or X.dtype != np.float64:
        raise _refused(
            "model_", "several columns of targets, or float32", "one, of float64"
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
        "W": context.W[0],
        "mean": context.mean,
        "root": context.root,
    }


def _points(inducing_variable: Any, kernel: Kernel) -> AnyNDArray:
    if isinstance(inducing_variable, WellConditioned):  # it changes Kuu, and not Kuf
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
        name, got, f"{expected}: NumPy's predictions have no other form", remedy
    )
