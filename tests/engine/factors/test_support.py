"""Targets that a likelihood gives no probability are refused, for every likelihood."""

import importlib
import inspect
import pkgutil
from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from scipy.stats import multivariate_normal

import gpflow_pep as pep
from gpflow_pep.engine.factors import check_num_latent
from gpflow_pep.likelihoods import check_support, support

likelihoods = gpflow.likelihoods
_BASES = {
    likelihoods.Likelihood,
    likelihoods.MonteCarloLikelihood,
    likelihoods.MultiLatentLikelihood,
    likelihoods.QuadratureLikelihood,
    likelihoods.ScalarLikelihood,
}


def _fixed_exponential() -> gpflow.likelihoods.Likelihood:
    likelihood = likelihoods.Gamma()
    gpflow.set_trainable(likelihood.shape, False)
    return likelihood


def _switched() -> gpflow.likelihoods.Likelihood:
    parts = [pep.likelihoods.NoisyLabelBernoulli(), likelihoods.Poisson()]
    return likelihoods.SwitchedLikelihood(parts)


ACCEPTED: "list[tuple[Callable[[], Any], Any]]" = [
    (likelihoods.Bernoulli, [[0.0], [1.0]]),
    (pep.likelihoods.NoisyLabelBernoulli, [[0.0], [1.0]]),
    (lambda: likelihoods.MultiClass(3), [[0], [2]]),
    (lambda: likelihoods.Softmax(3), [[0.0], [2.0]]),
    (lambda: likelihoods.Ordinal(np.array([0.0, 1.0])), [[2.0]]),
    (likelihoods.Poisson, [[0.0], [7.0]]),
    (likelihoods.Exponential, [[0.0]]),
    (likelihoods.Gamma, [[1e-9]]),
    (_fixed_exponential, [[0.0]]),
    (likelihoods.Beta, [[0.0], [1.0]]),
    (likelihoods.Gaussian, [[-3.0]]),
    (_switched, [[1.0, 0.0], [5.0, 1.0]]),
    (pep.likelihoods.NegativeBinomial, [[0.0], [7.0]]),
    (pep.likelihoods.ZeroInflatedPoisson, [[0.0], [7.0]]),
    (pep.likelihoods.LogNormal, [[1e-9], [1e9]]),
    (lambda: pep.likelihoods.Tobit(high=2.0), [[-1e9], [2.0]]),
    (pep.likelihoods.Tobit, [[-1e9, -1.0], [2.0, 1.0], [3.0, 0.0]]),
    (lambda: pep.likelihoods.Ordinal([0.0, 1.0]), [[0.0], [2.0]]),
]
REFUSED: "list[tuple[Callable[[], Any], Any, str]]" = [
    (likelihoods.Bernoulli, [[1.0], [2.0]], "got 2 at row 1, expected 0 or 1 for .* Bernoulli"),
    (pep.likelihoods.NoisyLabelBernoulli, [[1.0], [2.0]], "got 2 at row 1, expected 0 or 1 for"),
    (lambda: likelihoods.MultiClass(3), [[3.0]], "got 3 at row 0, expected whole .* 0 to 2"),
    (lambda: likelihoods.Softmax(3), [[0.5]], "got 0.5 at row 0"),
    (lambda: likelihoods.Ordinal(np.array([0.0])), [[2.0]], "whole numbers from 0 to 1"),
    (lambda: pep.likelihoods.Ordinal([0.0]), [[2.0]], "whole numbers from 0 to 1"),
    (likelihoods.Poisson, [[0.5]], "got 0.5 at row 0, expected whole numbers from 0"),
    (likelihoods.Exponential, [[-1.0]], "expected numbers from 0"),
    (lambda: likelihoods.Gamma(shape=2.0), [[1.0], [0.0]], "got 0 at row 1, expected .* above 0"),
    (likelihoods.Gamma, [[0.0]], "above 0, or from 0 if shape is fixed at 1"),
    (likelihoods.Beta, [[1.1]], "numbers from 0 to 1"),
    (_switched, [[1.0, 0.0], [2.0, 0.0]], "got 2 at row 1, .*0 or 1 where the last column is 0"),
    (_switched, [[0.5, 1.0]], "got 0.5 at row 0, .*whole numbers from 0 where .* is 1"),
    (_switched, [[1.0, 2.0]], "got 2 at row 0, expected in the last column .* from 0 to 1"),
    (_switched, [[1.0, 0.5]], "got 0.5 at row 0, expected in the last column"),
    (pep.likelihoods.NegativeBinomial, [[0.5]], "got 0.5 at row 0, expected whole numbers from 0"),
    (pep.likelihoods.ZeroInflatedPoisson, [[-1.0]], "got -1 at row 0, expected whole numbers from"),
    (pep.likelihoods.LogNormal, [[1.0], [0.0]], "got 0 at row 1, expected numbers above 0"),
    (pep.likelihoods.Tobit, [[0.5, 0.5]], "got 0.5 at row 0, expected numbers, and -1, 0 or 1"),
    (lambda: pep.likelihoods.Tobit(low=1.0), [[0.5]], "got 0.5 at row 0, expected numbers from 1"),
    (lambda: pep.likelihoods.Tobit(0.0, 1.0), [[1.5]], "expected numbers from 0 to 1 for"),
    (lambda: "Bernoulli", [[0.0]], "likelihood: got str, expected one of gpflow.likelihoods"),
]


@pytest.mark.parametrize("create, Y", ACCEPTED)
def test_targets_in_the_support_pass(create: Callable[[], Any], Y: Any) -> None:
    check_support(create(), tf.constant(Y))


@pytest.mark.parametrize("create, Y, message", REFUSED)
def test_targets_outside_are_refused(create: Callable[[], Any], Y: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_support(create(), tf.constant(Y))


def test_a_graph_has_no_values_to_check() -> None:
    @tf.function
    def checked(Y: tf.Tensor) -> tf.Tensor:
        check_support(likelihoods.Bernoulli(), Y)
        return Y

    checked(tf.constant([[2.0]]))


def test_models_refuse_them() -> None:
    X = np.linspace(0.0, 1.0, 4)[:, None]
    kernel = gpflow.kernels.SquaredExponential()
    with pytest.raises(ValueError, match="got 2 at row 3, expected 0 or 1"):
        Y = np.array([[1.0], [1.0], [1.0], [2.0]])
        pep.models.PEP((X, Y), kernel, pep.likelihoods.NoisyLabelBernoulli(), X[:2])


def test_noise_of_each_row_is_a_function_of_it() -> None:
    """Several numbers are refused; with Z = X and error bars log Z is that of the exact process."""
    sd, Y = np.array([[0.1], [0.5], [0.2]]), np.array([[0.3], [-1.0], [2.0]])
    X, kernel = np.array([[0.0], [1.0], [2.5]]), gpflow.kernels.SquaredExponential(active_dims=[0])
    message = r"likelihood: got a .* of shape \(3,\), expected one number, or a gpflow.functions"
    gaussian = likelihoods.Gaussian(variance=[0.1, 0.2, 0.3])
    for likelihood in (gaussian, likelihoods.StudentT(scale=[0.1, 0.2, 0.3])):
        with pytest.raises(ValueError, match=message):
            pep.models.PEP((X, Y), kernel, likelihood, X)
    with pytest.raises(ValueError, match=message):
        pep.models.PEPRegression((X, Y), kernel, X, likelihood=gaussian)
    with pytest.raises(ValueError, match=r"noise_variance: got 3 numbers, expected one\. .* row"):
        pep.models.PEPRegression((X, Y), kernel, X, noise_variance=np.ones(3))

    class ErrorBars(gpflow.functions.Function):  # type: ignore[misc]
        def __call__(self, X: tf.Tensor) -> tf.Tensor:
            return X[..., -1:] ** 2

    rows = np.hstack([X, sd])
    expected = multivariate_normal.logpdf(
        Y[:, 0], cov=np.exp(-0.5 * (X - X.T) ** 2) + np.diag(sd[:, 0] ** 2)
    )
    for alpha in (0.0, 0.5, 1.0):
        model = pep.models.PEPRegression(
            (rows, Y),
            kernel,
            rows.copy(),
            alpha=alpha,
            likelihood=likelihoods.Gaussian(variance=ErrorBars()),
        )
        np.testing.assert_allclose(model.pep_log_marginal_likelihood(), expected, rtol=1e-4)
        moments = model.predict_f(rows)[1] + sd**2, model.predict_y(rows)[1]
        np.testing.assert_allclose(*moments, rtol=1e-9)


def test_every_likelihood_has_an_entry_of_its_own() -> None:
    registered = {kinds[0] for kinds in support.funcs}
    for module in (likelihoods, pep.likelihoods):
        for name, kind in inspect.getmembers(module, inspect.isclass):
            if issubclass(kind, likelihoods.Likelihood) and kind not in _BASES:
                assert kind in registered, f"support.register({name}) is missing"


@pytest.mark.parametrize(
    "create, columns, expected",
    [
        (likelihoods.Bernoulli, 2, 2),
        (lambda: likelihoods.MultiClass(3), 1, 3),
        (lambda: likelihoods.Softmax(4), 1, 4),
        (likelihoods.HeteroskedasticTFPConditional, 1, 2),
        (_switched, 2, 1),
    ],
)
def test_number_of_latent_functions(create: Callable[[], Any], columns: int, expected: int) -> None:
    Y = tf.zeros((3, columns))
    assert check_num_latent(None, create(), Y) == expected
    assert check_num_latent(expected, create(), Y) == expected
    with pytest.raises(ValueError, match=f"num_latent_gps: got 7, expected {expected}"):
        check_num_latent(7, create(), Y)


@pytest.mark.parametrize(
    "create, columns, expected",
    [
        (lambda: likelihoods.MultiClass(3), 2, 1),
        (lambda: likelihoods.Softmax(3), 3, 1),
        (_switched, 1, 2),
    ],
)
def test_number_of_columns(create: Callable[[], Any], columns: int, expected: int) -> None:
    with pytest.raises(ValueError, match=f"Y: got {columns} columns, expected {expected}"):
        check_num_latent(None, create(), tf.zeros((3, columns)))


def _public_modules() -> "list[str]":
    found = [pep.__name__]
    for module in pkgutil.walk_packages(pep.__path__, f"{pep.__name__}."):
        if not any(part.startswith("_") for part in module.name.split(".")):
            found.append(module.name)
    return found


@pytest.mark.parametrize("name", _public_modules())
def test_all_public_names_exist(name: str) -> None:
    module = importlib.import_module(name)
    for public in getattr(module, "__all__", ()):
        assert hasattr(module, public), f"{name}.__all__ has {public}, which does not exist"
    exec(f"from {name} import *", {})
