"""GPflow's objects of the names that estimators take as arguments."""

from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np
from gpflow.base import AnyNDArray
from gpflow.inducing_variables import InducingVariables
from gpflow.kernels import Kernel
from gpflow.likelihoods import Likelihood

from ..checks import as_numbers, refusal
from ..selection import greedy_variance, kmeans, random_subset
from ..training.model_state import copy_of

KERNELS: dict[str, Callable[..., Kernel]] = {
    "rbf": gpflow.kernels.SquaredExponential,
    "matern12": gpflow.kernels.Matern12,
    "matern32": gpflow.kernels.Matern32,
    "matern52": gpflow.kernels.Matern52,
    "rational_quadratic": gpflow.kernels.RationalQuadratic,
}
#: Of numbers: :class:`PEPRegressor <gpflow_pep.estimators.PEPRegressor>`.
NUMBERS: dict[str, type[Likelihood]] = {
    "gaussian": gpflow.likelihoods.Gaussian,
    "student_t": gpflow.likelihoods.StudentT,
    "poisson": gpflow.likelihoods.Poisson,
}
#: Of classes: :class:`PEPClassifier <gpflow_pep.estimators.PEPClassifier>`.
CLASSES: dict[str, type[Likelihood]] = {
    "bernoulli": gpflow.likelihoods.Bernoulli,
    "multiclass": gpflow.likelihoods.MultiClass,
    "softmax": gpflow.likelihoods.Softmax,
}
RULES = ("kmeans", "random", "greedy_variance")
_POINTS = "points [M, D] or GPflow's inducing variables"


def _unknown_name(argument: str, name: Any, choices: Any, others: str) -> ValueError:
    known = ", ".join(repr(choice) for choice in choices)
    return refusal(argument, repr(name), f"{known} or {others}", "Choose one of them.")


def make_kernel(kernel: str | Kernel, num_inputs: int) -> Kernel:
    """
    Make a kernel for standardised inputs, or copy the one that is given.

    By name it has a lengthscale for each input. It starts at unit variance and lengthscales √D,
    because squared distances between standardised rows grow in proportion to D.
    """
    if isinstance(kernel, Kernel):
        return copy_of(kernel)
    if not isinstance(kernel, str) or kernel not in KERNELS:
        raise _unknown_name("kernel", kernel, KERNELS, "a GPflow kernel")
    return KERNELS[kernel](lengthscales=np.full(num_inputs, np.sqrt(num_inputs)))


def make_likelihood(
    likelihood: str | Likelihood, choices: dict[str, type[Likelihood]], *arguments: Any
) -> Likelihood:
    """Make a likelihood by its name, with these arguments, or copy the one that is given."""
    if isinstance(likelihood, Likelihood):
        return copy_of(likelihood)
    if not isinstance(likelihood, str) or likelihood not in choices:
        raise _unknown_name("likelihood", likelihood, choices, "a GPflow likelihood")
    return choices[likelihood](*arguments)


def make_inducing_variable(
    rule: Any, X: AnyNDArray, num_inducing: int, kernel: Kernel, seed: int
) -> InducingVariables:
    """Choose inducing variables, or take those that are given, in the units of X."""
    if isinstance(rule, InducingVariables):
        return copy_of(rule)
    if rule is not None and not isinstance(rule, str):
        points = as_numbers("inducing", rule, gpflow.default_float())
        if points.ndim != 2:
            raise _unknown_name("inducing", rule, RULES, _POINTS)
        return gpflow.inducing_variables.InducingPoints(points)
    number = min(num_inducing, len(np.unique(X, axis=0)))
    if rule == "kmeans":
        return kmeans(X, number, seed=seed)
    if rule == "random":
        return random_subset(X, number, seed=seed)
    if rule == "greedy_variance":
        return greedy_variance(X, number, kernel=kernel, seed=seed)
    raise _unknown_name("inducing", rule, RULES, _POINTS)
