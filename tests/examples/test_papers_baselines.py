"""Baselines of the papers' experiments, beside independent ones."""

import importlib
from types import ModuleType
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.base import AnyNDArray
from helpers import assert_close, regression_problem
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

PROBLEM = regression_problem(num_data=24)
LABELS = (PROBLEM.Y > 0.4).astype(float)


@pytest.fixture
def baselines() -> ModuleType:
    return importlib.import_module("examples.papers.baselines")


def _scores() -> ModuleType:
    return importlib.import_module("examples.papers.tasks")


def test_laplace_is_that_of_scikit_learn(baselines: ModuleType) -> None:
    """Evidence, its gradient through the mode, and the moments of f at new inputs."""
    kernel, X = PROBLEM.kernel(), PROBLEM.X
    likelihood = gpflow.likelihoods.Bernoulli(invlink=tf.sigmoid)
    model = baselines.Laplace((X, LABELS), kernel, likelihood, 1)
    theirs = GaussianProcessClassifier(
        ConstantKernel(PROBLEM.variance) * RBF(list(PROBLEM.lengthscales)),
        optimizer=None,
        max_iter_predict=1000,
    ).fit(X, LABELS[:, 0])
    value, slope = theirs.log_marginal_likelihood(theirs.kernel_.theta, eval_gradient=True)
    parameters = kernel.variance, kernel.lengthscales
    with tf.GradientTape() as tape:
        log_z = model.maximum_log_likelihood_objective()
    variables = [parameter.unconstrained_variable for parameter in parameters]
    # Theirs is by the logarithms; d log(theta) / d unconstrained is ours over theta.
    ours = [
        gradient.numpy() * parameter.numpy() / tf.sigmoid(variable).numpy()
        for gradient, parameter, variable in zip(
            tape.gradient(log_z, variables), parameters, variables
        )
    ]
    # They stop 1e-10 nats from the mode's objective, and add no jitter.
    assert_close(log_z, value, 1e-5)
    assert_close(np.hstack(ours), slope, 1e-4)
    for moment, expected in zip(
        model.predict_f(PROBLEM.Xnew), latent_moments(theirs.base_estimator_, PROBLEM.Xnew)
    ):
        assert_close(moment[:, 0], expected, 1e-4)


def latent_moments(fitted: Any, Xnew: AnyNDArray) -> tuple[AnyNDArray, AnyNDArray]:
    """Lines 4 and 6 of GPML's Algorithm 3.2, at scikit-learn's mode; its own are of 1.7."""
    K = fitted.kernel_(fitted.X_train_, Xnew)
    v = np.linalg.solve(fitted.L_, fitted.W_sr_[:, None] * K)
    return K.T @ (fitted.y_train_ - fitted.pi_), fitted.kernel_.diag(Xnew) - np.sum(v**2, axis=0)


def test_laplace_of_several_classes(baselines: ModuleType) -> None:
    """Softmax of two is the logit of a difference, whose kernel has twice the variance."""
    data = PROBLEM.X, LABELS
    two = baselines.Laplace(data, PROBLEM.kernel(), gpflow.likelihoods.Softmax(2), 2)
    twice = PROBLEM.kernel()
    twice.variance.assign(2.0 * PROBLEM.variance)
    likelihood = gpflow.likelihoods.Bernoulli(invlink=tf.sigmoid)
    one = baselines.Laplace(data, twice, likelihood, 1)
    values = [model.maximum_log_likelihood_objective() for model in (two, one)]
    assert_close(*values, 1e-5)
    (f, _), (difference, _) = (model.predict_f(PROBLEM.Xnew) for model in (two, one))
    assert_close(f[:, 1] - f[:, 0], difference[:, 0], 1e-5, scale=1.0)


def test_dtc(baselines: ModuleType) -> None:
    """log N(y; 0, Q + noise), and no trace."""
    noise = PROBLEM.noise_variance
    model = baselines.DTC(PROBLEM.data, PROBLEM.kernel(), PROBLEM.Z.copy(), noise_variance=noise)
    Kuu = PROBLEM.covariance(PROBLEM.Z, PROBLEM.Z) + 1e-6 * np.eye(len(PROBLEM.Z))
    Kuf = PROBLEM.covariance(PROBLEM.Z, PROBLEM.X)
    K = Kuf.T @ np.linalg.solve(Kuu, Kuf) + noise * np.eye(len(PROBLEM.X))
    y = PROBLEM.Y[:, 0]
    expected = -0.5 * (
        y @ np.linalg.solve(K, y) + np.linalg.slogdet(K)[1] + len(y) * np.log(2.0 * np.pi)
    )
    assert_close(model.maximum_log_likelihood_objective(), expected)


def test_compiled_models_forget(baselines: ModuleType) -> None:
    """A fit does not depend on what the shared model was fitted to before."""
    task = baselines.Task(*PROBLEM.data, PROBLEM.Xnew, PROBLEM.Z)
    budget = baselines.Budget(3)
    first = baselines.fit("PEP", task, 0.5, budget)
    other = baselines.fit("PEP", task._replace(Y=-2.0 * PROBLEM.Y, Z=PROBLEM.X[:5]), 1.0, budget)
    again = baselines.fit("PEP", task, 0.5, budget)
    assert np.array_equal(first.mean, again.mean) and not np.array_equal(first.mean, other.mean)
    scores = _scores().regression_scores(first, np.sin(PROBLEM.Xnew[:, :1]), PROBLEM.Y)
    assert set(scores) == {"smse", "smll", "nlpd"} and np.all(np.isfinite(list(scores.values())))


@pytest.mark.slow
@pytest.mark.parametrize("num_classes", [0, 2, 3])
def test_every_method_learns(baselines: ModuleType, num_classes: int) -> None:
    """Better than chance by far, and those that see no more than M rows better than chance."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((160, 2))
    Y = np.sin(2.0 * X[:, :1]) + X[:, 1:]
    Y = np.digitize(Y, {0: [], 2: [0.0], 3: [-0.7, 0.7]}[num_classes]) if num_classes else Y
    train, test = np.split(np.arange(160), [100])
    names = baselines.CLASSIFICATION if num_classes else baselines.REGRESSION
    task = baselines.Task(X[train], Y[train].astype(float), X[test], X[:20], num_classes)
    for name in names:
        if name == "IVM" and num_classes != 2:
            continue
        fitted = baselines.fit(name, task, 0.5, baselines.Budget(50))
        few = name in ("SoD", "IVM")
        if num_classes:
            scores = _scores().classification_scores(fitted, Y[test])
            error, loss, chance = scores["error_rate"], scores["nlpd"], np.log(num_classes)
            most = 0.9 * (1.0 - 1.0 / num_classes) if few else 0.3
        else:
            scores = _scores().regression_scores(fitted, Y[test], Y[train])
            error, loss, chance, most = scores["smse"], scores["smll"], -0.5, 0.9 if few else 0.3
        assert error < most and (few or loss < chance), (name, scores)
