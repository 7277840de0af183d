"""Fitted models described in numbers and names, for :mod:`gpflow_pep.scoring`."""

from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray, Parameter
from gpflow.covariances import Kuf
from gpflow.covariances.kufs import Kuf_kernel_inducingpoints
from gpflow.inducing_variables import InducingPoints
from gpflow.kernels import Kernel
from gpflow.likelihoods import Likelihood, RobustMax
from gpflow.likelihoods.utils import inv_probit
from gpflow.mean_functions import Constant, MeanFunction, Zero
from gpflow.posteriors import AbstractPosterior, IndependentPosteriorSingleOutput

from ..engine.checks import refusal
from ..engine.factors.ordinal import FLOOR, SQUEEZED
from ..inducing_variables import InducingVariablesWrapper
from ..likelihoods import Ordinal
from ..scoring import kernels, likelihoods
from ..scoring.mixture import PredictiveMixture, mixture_of
from ..training.choosing.mixed_model import MixedPosterior

_REMEDY = "Use export_saved_model, which TensorFlow runs, or save_estimator."
_ROWS_REMEDY = f"{_REMEDY} Or train with neighbours=0, to predict from inducing points alone."


def numpy_mixtures(posterior: MixedPosterior) -> tuple[PredictiveMixture, ...]:
    """Give what predicts with NumPy, one mixture; none where that does not know a part."""
    try:
        return (mixture_of(mixture_parts(posterior)),)
    except ValueError:
        return ()


def mixture_parts(posterior: MixedPosterior) -> dict[str, Any]:
    """
    Describe what predicts, for :func:`gpflow_pep.scoring.mixture.mixture_of`.

    :param posterior: Of float64, with its cache.
    :raises ValueError: If it has a part that NumPy's predictions do not know.
    """
    parts = [*map(_component_parts, posterior.posteriors, posterior.likelihoods)]
    for part, moments in zip(parts, posterior.moments_anywhere(), strict=True):
        part["any_row"] = np.stack(moments)
    return {"weights": posterior.weights.numpy(), "components": parts}


def _component_parts(posterior: AbstractPosterior, likelihood: Likelihood) -> dict[str, Any]:
    if not isinstance(posterior, IndependentPosteriorSingleOutput) or posterior.cache is None:
        got = "predictions that know training rows, or several outputs"
        raise _refused("model_", got, "predictions from inducing points", _ROWS_REMEDY)
    kernel: Any = getattr(posterior, "kernel_of_model", posterior.kernel)
    Z = _points(posterior.X_data, kernel)
    a, Q = map(np.asarray, posterior.cache)
    if a.shape[1] > 1 and type(likelihood).__name__ in likelihoods.NUMBERS:
        raise _refused("model_", "several columns of targets", "one")
    if Q.dtype != np.float64:
        raise _refused("model_", f"numbers of type {Q.dtype}", "float64")
    return {
        "kernel": kernel_parts(kernel),
        "Z": Z,
        "a": a,
        "Q": Q,
        "constant": _constant(posterior.mean_function),
        "likelihood": likelihood_parts(likelihood),
    }


def _points(inducing_variable: Any, kernel: Kernel) -> AnyNDArray:
    if isinstance(inducing_variable, InducingVariablesWrapper):  # it changes Kuu, and not Kuf
        inducing_variable = inducing_variable.inducing_variable
    rule = Kuf.dispatch(InducingPoints, type(kernel), tf.Tensor)
    if type(inducing_variable) is not InducingPoints or rule is not Kuf_kernel_inducingpoints:
        got = type(inducing_variable).__name__
        raise _refused("inducing_variable_", got, "InducingPoints, and GPflow's covariances")
    return np.asarray(inducing_variable.Z)


def kernel_parts(kernel: Kernel) -> dict[str, Any]:
    """Describe a kernel that is one of :mod:`gpflow_pep.scoring.kernels`; refuse others."""
    kind = type(kernel).__name__
    if kind not in kernels.KINDS or type(kernel) is not getattr(gpflow.kernels, kind):
        raise _refused("kernel_", kind, f"GPflow's {', '.join(kernels.KINDS)}")
    if isinstance(kernel, gpflow.kernels.Combination):
        return {"kind": kind, "kernels": [kernel_parts(part) for part in kernel.kernels]}
    names = kernels.PARAMETERS[kind]
    described = {"kind": kind, **{name: np.asarray(getattr(kernel, name)) for name in names}}
    if isinstance(kernel, gpflow.kernels.Periodic):
        base = kernel_parts(kernel.base_kernel)
        if base["kind"] not in kernels.ISOTROPIC:
            raise _refused("kernel_", f"Periodic of {base['kind']}", "one of a usual base")
        return described | {"base": base}
    return described | {"columns": _columns(kernel.active_dims)}


def _columns(active_dims: Any) -> list[int] | None:
    if not isinstance(active_dims, slice):
        return [int(column) for column in active_dims]
    if active_dims == slice(None) or active_dims == slice(None, None, None):
        return None
    if active_dims.stop is None or active_dims.stop < 0 or (active_dims.start or 0) < 0:
        raise _refused("kernel_", f"active_dims={active_dims}", "a list of columns")
    return list(range(active_dims.stop))[active_dims]


def likelihood_parts(likelihood: Likelihood) -> dict[str, Any]:
    """Describe a likelihood of :mod:`gpflow_pep.scoring.likelihoods`; refuse others."""
    kind = type(likelihood).__name__
    if type(likelihood) not in _OF_LIKELIHOOD:
        known = ", ".join({**likelihoods.NUMBERS, **likelihoods.CLASSES})
        raise _refused("likelihood_", kind, f"GPflow's {known}, or this package's Ordinal")
    usual, values = _OF_LIKELIHOOD[type(likelihood)](likelihood)
    if not usual:
        got = f"{kind} with noise that depends on the input, or a link of its own"
        raise _refused("likelihood_", got, "one with a constant and the usual link")
    return {"kind": kind, **values}


def _gaussian(likelihood: Any) -> tuple[bool, dict[str, float]]:
    noise = likelihood.scale if likelihood.variance is None else likelihood.variance
    if not isinstance(noise, Parameter) or np.size(noise) != 1:
        return False, {}
    value = float(np.ravel(noise)[0])
    return True, {"variance": value**2 if likelihood.variance is None else value}


def _student_t(likelihood: Any) -> tuple[bool, dict[str, float]]:
    scale, df = likelihood.scale, likelihood.df
    if not isinstance(scale, Parameter) or np.size(scale) != 1 or np.size(df) != 1:
        return False, {}
    df = float(np.ravel(df)[0])
    return df > 2.0, {"scale": float(np.ravel(scale)[0]), "df": df}


def _poisson(likelihood: Any) -> tuple[bool, dict[str, float]]:
    if likelihood.invlink is not tf.exp or np.size(likelihood.binsize) != 1:
        return False, {}
    return True, {"binsize": float(np.ravel(likelihood.binsize)[0])}


def _bernoulli(likelihood: Any) -> tuple[bool, dict[str, float]]:
    return likelihood.invlink is inv_probit, {}


def _multi_class(likelihood: Any) -> tuple[bool, dict[str, float]]:
    if type(likelihood.invlink) is not RobustMax:
        return False, {}
    return True, {"epsilon": float(np.asarray(likelihood.invlink.epsilon))}


def _softmax(likelihood: Any) -> tuple[bool, dict[str, Any]]:
    return True, {}


def _ordinal(likelihood: Any) -> tuple[bool, dict[str, Any]]:
    gpflows = type(likelihood) is gpflow.likelihoods.Ordinal
    edges = likelihood.bin_edges if gpflows else likelihood.edges
    squeeze, floor = (SQUEEZED, FLOOR) if gpflows else (0.0, 0.0)
    values = {"edges": np.asarray(edges, np.float64), "sigma": float(np.asarray(likelihood.sigma))}
    return True, {**values, "squeeze": squeeze, "floor": floor}


#: Whether a likelihood has only parts that are described, and its parameters.
_OF_LIKELIHOOD: dict[type[Likelihood], Callable[[Any], tuple[bool, dict[str, Any]]]] = {
    gpflow.likelihoods.Gaussian: _gaussian,
    gpflow.likelihoods.StudentT: _student_t,
    gpflow.likelihoods.Poisson: _poisson,
    gpflow.likelihoods.Bernoulli: _bernoulli,
    gpflow.likelihoods.MultiClass: _multi_class,
    gpflow.likelihoods.Softmax: _softmax,
    gpflow.likelihoods.Ordinal: _ordinal,
    Ordinal: _ordinal,
}


def _constant(mean_function: MeanFunction | None) -> Any:
    if mean_function is None or type(mean_function) is Zero:
        return 0.0
    if type(mean_function) is Constant:
        return np.asarray(mean_function.c)
    got = type(mean_function).__name__
    raise _refused("mean_function", got, "none, Zero or Constant")


def _refused(name: str, got: str, expected: str, remedy: str = _REMEDY) -> ValueError:
    return refusal(name, got, f"{expected}: NumPy's predictions know no others", remedy)
