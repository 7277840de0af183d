"""Likelihoods and powers under test in PEP, each with what the reference says
about it.
"""

import functools
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import gpflow
import helpers
import numpy as np
import pytest
import scipy.special
import scipy.stats
import tensorflow as tf
from helpers import Array, RegressionProblem, regression_problem
from reference import sites as pep_reference
from reference.sites import Factor, largest_latent_factor, scalar_factor

import gpflow_pep as pep
from cases import tilted

N = 10
M = 4
ALPHAS: dict[str, Array] = {
    "alpha 0": np.zeros(N),
    "alpha 0.3": np.full(N, 0.3),
    "alpha 0.5": np.full(N, 0.5),
    "alpha 1": np.ones(N),
    "alpha per row": np.linspace(0.0, 1.0, N),
}
#: Much below the tolerance of a comparison with the reference.
TIGHT = 1e-11
SQUEEZE = 1e-3  # of GPflow's probit
EPSILON = 0.01  # of RobustMax
NUM_CLASSES = 3
BIN_EDGES = np.array([-0.1, 0.6])
#: Of each latent function. RobustMax would not notice the scale of functions of one
#: mean.
MEANS = np.array([0.3, 0.0, -0.2])


def probit_link(f: Array, squeeze: float = SQUEEZE) -> Array:
    return squeeze + (1.0 - 2.0 * squeeze) * scipy.stats.norm.cdf(f)


def plain_probit_link(f: tf.Tensor) -> tf.Tensor:
    """The probit of the papers, for GPflow's Bernoulli: without the squeeze."""
    return 0.5 * tf.math.erfc(-f / np.sqrt(2.0))


def probit_log_density(f: Array, y: float, squeeze: float = SQUEEZE) -> Array:
    return np.log(probit_link((2.0 * y - 1.0) * f, squeeze))


def poisson_log_density(f: Array, y: float) -> Array:
    return y * f - np.exp(f) - scipy.special.gammaln(y + 1.0)


class Case(NamedTuple):
    """One likelihood, with targets that suit it."""

    likelihood: Callable[[], gpflow.likelihoods.Likelihood]
    targets: Callable[[Array], Array]  # real numbers [N, 1] -> Y [N, 1]
    factor: Callable[[float], Factor]  # y -> the reference's factor
    num_latent: int = 1

    @property
    def problem(self) -> RegressionProblem:
        return regression_problem(3, num_data=N, num_inducing=M)

    @property
    def Y(self) -> Array:
        return self.targets(self.problem.Y)

    def mean_function(self) -> gpflow.functions.Constant:
        return gpflow.functions.Constant(MEANS[: self.num_latent])

    def rows(self, rows: Any = slice(None)) -> tuple[Array, Array]:
        return self.problem.X[rows], self.Y[rows]

    def _arguments(self) -> dict[str, Any]:
        parts = {"kernel": self.problem.kernel(), "likelihood": self.likelihood()}
        options = {
            "inducing_variable": self.problem.Z,
            "mean_function": self.mean_function(),
        }
        return {"data": self.rows(), **parts, **options}

    def model(self, **arguments: Any) -> "pep.models.PEP":
        return pep.models.PEP(**{**self._arguments(), "tolerance": TIGHT, **arguments})

    def regression(self, **arguments: Any) -> "pep.models.PEPRegression":
        """Of the Gaussian case: the same model in closed form."""
        return pep.models.PEPRegression(**{**self._arguments(), **arguments})

    def reference_problem(self, alpha: Array) -> pep_reference.Problem:
        return pep_reference.Problem(
            priors=[self.problem.prior()] * self.num_latent,
            means=np.tile(MEANS[: self.num_latent], [N, 1]),
            factors=[self.factor(float(y)) for y in self.Y[:, 0]],
            alpha=alpha,
        )


def _of_tilted(
    reference: Callable[..., Any], *arguments: Any
) -> Callable[[float], Factor]:
    """A factor by one of the densities in `cases.tilted`."""
    return lambda y: scalar_factor(reference(y, *arguments).log_density)


def _scalar(log_density: Callable[[Array, float], Array]) -> Callable[[float], Factor]:
    return lambda y: scalar_factor(lambda f: log_density(f, y))


def _labels(Y: Array) -> Array:
    return np.where(Y > 0.3, 1.0, 0.0)


def _classes(Y: Array) -> Array:
    return np.digitize(Y, BIN_EDGES).astype(float)


def _multi_class() -> gpflow.likelihoods.MultiClass:
    link = gpflow.likelihoods.RobustMax(NUM_CLASSES, epsilon=EPSILON)
    return gpflow.likelihoods.MultiClass(NUM_CLASSES, invlink=link)


lik = gpflow.likelihoods
CASES = {
    "Gaussian": Case(
        partial(lik.Gaussian, 0.2), np.copy, _of_tilted(tilted.gaussian, 0.2)
    ),
    "probit": Case(lik.Bernoulli, _labels, _scalar(probit_log_density)),
    "logit": Case(
        partial(lik.Bernoulli, invlink=tf.sigmoid),
        _labels,
        _scalar(lambda f, y: tilted.LOGIT.log_density((2.0 * y - 1.0) * f)),
    ),
    "Poisson": Case(
        lik.Poisson, lambda Y: np.round(np.exp(Y)), _scalar(poisson_log_density)
    ),
    "Gamma": Case(
        partial(lik.Gamma, shape=1.7),
        lambda Y: np.exp(Y - 0.3),
        _of_tilted(tilted.gamma, 1.7),
    ),
    "Beta": Case(
        partial(lik.Beta, scale=3.0),
        lambda Y: scipy.stats.norm.cdf(0.7 * Y),
        _of_tilted(tilted.beta, 3.0),
    ),
    "Ordinal": Case(
        tilted.ordinal(0, 0.5, BIN_EDGES).create,
        _classes,
        _of_tilted(lambda y: tilted.ordinal(int(y), 0.5, BIN_EDGES).reference),
    ),
    "Student-t": Case(
        partial(lik.StudentT, scale=0.4, df=4.0),
        np.copy,
        _of_tilted(tilted.student_t, 0.4, 4.0),
    ),
    "RobustMax": Case(
        _multi_class,
        _classes,
        lambda y: largest_latent_factor(
            int(y), 1.0 - EPSILON, EPSILON / (NUM_CLASSES - 1)
        ),
        num_latent=NUM_CLASSES,
    ),
}
#: Of one latent function and with a rule like another's here, which is among the fast
#: tests.
LIKE_ANOTHER = ("logit", "Gamma", "Beta", "Ordinal")
#: Names of all cases as parameters.
_marks = {name: [pytest.mark.slow] * (name in LIKE_ANOTHER) for name in CASES}
each_case = pytest.mark.parametrize(
    "name", [pytest.param(n, marks=_marks[n]) for n in CASES]
)


@functools.cache
def reference_sites(
    name: str, power: str
) -> tuple[pep_reference.Problem, pep_reference.Sites]:
    problem = CASES[name].reference_problem(ALPHAS[power])
    return problem, pep_reference.fixed_point(problem)


class Compiled(NamedTuple):
    """A model, and its loss with its gradients as a function compiled once for all
    tests.
    """

    model: "pep.models.PEP"
    loss: Callable[[], tf.Tensor]
    loss_and_gradients: Callable[[], tuple[tf.Tensor, list[tf.Tensor]]]
    variables: dict[str, tf.Variable]


@functools.cache
def compiled(name: str) -> Compiled:
    """The model of a case with a power for each row: assign ``ALPHAS`` to its alpha."""
    model = CASES[name].model(alpha=ALPHAS["alpha 0.5"])
    variables = helpers.trainable_by_name(model)

    # Tracing takes seconds, the gradient milliseconds: one function serves both.
    parts = model.training_loss, list(variables.values())
    loss_and_gradients = tf.function(lambda: helpers.value_and_gradients(*parts))
    return Compiled(
        model, lambda: loss_and_gradients()[0], loss_and_gradients, variables
    )
