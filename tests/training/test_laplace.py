"""The Laplace approximation: where it is exact, against differences, and what it refuses."""

import gpflow
import numpy as np
import pytest
import tensorflow_probability as tfp
from cases.pep import CASES
from helpers import assert_close, gradients, regression_problem

import gpflow_pep as pep
from gpflow_pep.training import laplace, maximise


def constant_mean(alpha: float) -> pep.PEPRegression:
    """Of which the posterior is Gaussian: nothing but a constant is trained."""
    problem = regression_problem()
    mean = gpflow.functions.Constant(np.zeros(1))
    mean.c.prior = tfp.distributions.Normal(np.float64(0.5), np.float64(2.0))
    points = problem.X.copy()
    model = pep.PEPRegression(
        problem.data, problem.kernel(), points, alpha=alpha, mean_function=mean, noise_variance=0.2
    )
    for part in (model.kernel, model.likelihood, model.inducing_variable):
        gpflow.set_trainable(part, False)
    return model


@pytest.mark.near_copies("0.5")
@pytest.mark.parametrize("alpha", [0.0, 0.5])
def test_it_is_exact_where_the_posterior_is_gaussian(alpha: float) -> None:
    model = constant_mean(alpha)
    X, Y = map(np.asarray, model.data)
    precision = np.linalg.inv(np.asarray(model.kernel(X)) + 0.2 * np.eye(len(X)))
    expected = np.sum(precision) + 1.0 / 4.0
    mean = (np.sum(precision @ Y) + 0.5 / 4.0) / expected
    maximise(model, tolerance=0.0, progress=False)
    posterior = laplace(model)
    assert_close(posterior.covariance, [[1.0 / expected]], rtol=1e-5)
    assert_close(posterior.mean, [mean], rtol=1e-4)
    draws = [m.mean_function.c.numpy()[0] for m in posterior.draw_models(40, seed=0)]
    assert abs(np.mean(draws) - mean) < 4.0 / np.sqrt(40 * expected)
    assert 0.6 < np.std(draws) * np.sqrt(expected) < 1.4
    assert_close(model.mean_function.c, [mean], rtol=1e-4)  # the model stays as it is


@pytest.mark.slow
def test_curvature_of_pep_is_that_of_differences() -> None:
    model = CASES["probit"].model(alpha=0.5)
    for part in (model.likelihood, model.inducing_variable, model.mean_function):
        gpflow.set_trainable(part, False)
    for parameter in model.trainable_parameters:
        one = np.ones_like(parameter.numpy())
        parameter.prior = tfp.distributions.LogNormal(0.0 * one, 0.5 * one)
    maximise(model, tolerance=0.0, progress=False)
    posterior = laplace(model)
    variables = [parameter.unconstrained_variable for parameter in model.trainable_parameters]

    def slope() -> np.ndarray:
        return np.concatenate(
            [np.ravel(part) for part in gradients(model.training_loss, variables)]
        )

    rows, step = [], 1e-4
    for variable in variables:
        start = variable.numpy()
        for place in np.ndindex(start.shape):
            change = np.zeros_like(start)
            change[place] = step
            variable.assign(start + change)
            above = slope()
            variable.assign(start - change)
            rows.append((above - slope()) / (2.0 * step))
        variable.assign(start)
    assert_close(np.linalg.inv(posterior.covariance), np.stack(rows), rtol=1e-5, scale=0.1)
    mixed = pep.training.mix_models(posterior.draw_models(3, seed=0), weights="uniform")
    assert np.all(np.isfinite(mixed.predict_log_density(model.data)))


def test_what_is_no_mode_is_refused() -> None:
    model = constant_mean(0.5)
    model.mean_function.c.assign([3.0])
    with pytest.raises(ValueError, match=r"laplace: got parameters from which .* Newton's method"):
        laplace(model)
    other = pep.PEPRegression(model.data, gpflow.kernels.SquaredExponential(), model.data[0][:3])
    with pytest.raises(ValueError, match=r"laplace: got a second derivative .* eigenvalue -"):
        laplace(other)
    tied = pep.ARPEP(other.kernel, gpflow.likelihoods.Bernoulli(), np.zeros([1, 2]), num_data=3)
    with pytest.raises(ValueError, match="model: got ARPEP, expected a model that holds its data"):
        laplace(tied)
