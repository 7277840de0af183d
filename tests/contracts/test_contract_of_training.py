"""Training as of GPflow's models: loops that add data, natural gradients, other methods."""

from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from cases.models import each_tied, gaussian_model
from gpflow.kernels import SquaredExponential
from gpflow.likelihoods import Gaussian
from gpflow.optimizers import NaturalGradient, Scipy
from helpers import assert_all_close, assert_close, gradients, regression_problem

import gpflow_pep as pep

NOISE = 0.1
PROBLEM = regression_problem(8, num_data=12, num_inducing=4)


def _growing(X: Any, Y: Any) -> tuple[tf.Variable, tf.Variable]:
    return tuple(tf.Variable(part, shape=[None, part.shape[1]], trainable=False) for part in (X, Y))


@pytest.mark.parametrize("name", ["PEPRegression", "PEP"])
@pytest.mark.slow
def test_a_loop_that_adds_what_it_looked_at(name: str) -> None:
    """Bayesian optimisation: one compiled step, more rows each time, the target's top is found."""
    grid = np.linspace(-1.0, 2.0, 61)[:, None]

    def target(X: Any) -> Any:
        return -np.sin(3.0 * X) - X**2 + 0.7 * X

    X = np.array([[-0.9], [1.1], [1.8]])
    data = _growing(X, target(X))
    kernel, Z = SquaredExponential(lengthscales=0.5), grid[::8].copy()
    model: Any
    if name == "PEP":
        model = pep.PEP(data, kernel, Gaussian(1e-3), Z)
    else:
        model = pep.PEPRegression(data, kernel, Z, noise_variance=1e-3)
    gpflow.set_trainable(model.inducing_variable, False)
    gpflow.set_trainable(model.likelihood, False)
    closure = model.training_loss_closure(compile=True)
    predict = tf.function(model.predict_f)
    for _ in range(6):
        Scipy().minimize(closure, model.trainable_variables, compile=False, options={"maxiter": 5})
        mean, variance = predict(grid)
        best = grid[[int(np.argmax(mean + 2.0 * np.sqrt(variance)))]]
        X = np.vstack([X, best])
        model.data = X, target(X)
    assert len(model.data[0].numpy()) == 9
    assert target(X).max() > target(grid).max() - 0.02
    assert closure.experimental_get_tracing_count() == predict.experimental_get_tracing_count() == 1


@each_tied
@pytest.mark.slow
def test_a_natural_gradient_step_reaches_the_collapsed_bound(name: str) -> None:
    regression = gaussian_model("PEPRegression", PROBLEM, alpha=0.0)
    model = gaussian_model(name, PROBLEM, alpha=0.0)
    loss = model.training_loss_closure(PROBLEM.data, compile=False)
    NaturalGradient(1.0).minimize(loss, [(model.q_mu, model.q_sqrt)])
    assert_close(model.elbo(PROBLEM.data), regression.elbo(), rtol=1e-8)
    assert_all_close(model.predict_f(PROBLEM.Xnew), regression.predict_f(PROBLEM.Xnew), rtol=1e-6)
    model.alpha = 1.0
    before = float(loss())
    for _ in range(3):
        NaturalGradient(0.3).minimize(loss, [(model.q_mu, model.q_sqrt)])
    assert float(loss()) < before


@pytest.mark.slow
def test_scipy_ends_where_it_does_without_compilation() -> None:
    ends = []
    for compile in (False, True):
        model = gaussian_model("PEPRegression", PROBLEM)
        optimizer = Scipy()
        for _ in range(2):  # the second call takes the compiled function of the first
            result = optimizer.minimize(
                model.training_loss,
                model.trainable_variables,
                compile=compile,
                options={"maxiter": 4},
            )
        ends.append(result.fun)
    assert ends[0] == pytest.approx(ends[1], rel=1e-6)


@pytest.mark.parametrize("alpha", [0.5, 0.0, 1.0])
@pytest.mark.slow
def test_all_methods_agree_with_the_exact_one(alpha: float) -> None:
    """Where inducing points are at all rows, whatever alpha: GPR, SGPR, FITC, VGP and ours."""
    X, Y = PROBLEM.data
    exact = gpflow.models.GPR((X, Y), PROBLEM.kernel(), noise_variance=NOISE)
    evidence, expected = float(exact.log_marginal_likelihood()), exact.predict_f(PROBLEM.Xnew)
    likelihood = Gaussian(NOISE)
    sgpr = gpflow.models.SGPR((X, Y), PROBLEM.kernel(), X.copy(), noise_variance=NOISE)
    fitc = gpflow.models.GPRFITC((X, Y), PROBLEM.kernel(), X.copy(), noise_variance=NOISE)
    vgp = gpflow.models.VGP((X, Y), PROBLEM.kernel(), likelihood)
    NaturalGradient(1.0).minimize(vgp.training_loss, [(vgp.q_mu, vgp.q_sqrt)])
    options: dict[str, Any] = {"inducing_variable": X.copy(), "alpha": alpha}
    regression = gaussian_model("PEPRegression", PROBLEM, **options)
    point = gaussian_model("PEP", PROBLEM, **options)
    q = {"q_mu": regression.q_mu, "q_sqrt": regression.q_sqrt}
    tied = gaussian_model("ARPEP", PROBLEM, **{**options, **q, "alpha": 0.0})
    values = {
        "SGPR": sgpr.elbo(),
        "FITC": fitc.fitc_log_marginal_likelihood(),
        "VGP": vgp.elbo(),
        "PEPRegression": regression.pep_log_marginal_likelihood(),
        "PEP": point.pep_log_marginal_likelihood(),
        "ARPEP": tied.elbo((X, Y)),
    }
    for name, value in values.items():
        assert float(value) == pytest.approx(evidence, abs=2e-3), name  # of jitter
    for model in (sgpr, fitc, vgp, regression, point, tied):
        assert_all_close(model.predict_f(PROBLEM.Xnew), expected, rtol=1e-3)


@each_tied
@pytest.mark.slow
def test_batches_of_any_size_from_a_compiled_loss(name: str) -> None:
    """The mean over the batches of an epoch is the loss of all rows."""
    model = gaussian_model(name, PROBLEM, alpha=0.5)
    X, Y = map(tf.constant, PROBLEM.data)
    batches = tf.data.Dataset.from_tensor_slices((X, Y)).repeat().batch(4)
    specification = [tf.TensorSpec([None, part.shape[1]], tf.float64) for part in (X, Y)]
    loss = tf.function(
        lambda X, Y: model.training_loss((X, Y)), input_signature=specification, autograph=False
    )
    closure = model.training_loss_closure(iter(batches), compile=True)
    assert_close(np.mean([closure() for _ in range(3)]), loss(X, Y), rtol=1e-10)
    assert_close(np.mean([loss(X[k : k + 1], Y[k : k + 1]) for k in range(12)]), loss(X, Y))
    assert loss.experimental_get_tracing_count() == 1


@pytest.mark.parametrize("name", ["PEPRegression", "PEP"])
@pytest.mark.near_copies
def test_inducing_inputs_that_were_fixed_when_the_loss_was_compiled(name: str) -> None:
    """Their gradient was wrong where chunks are computed anew for it; GPflow's SGPR is right."""
    Z = PROBLEM.Z[:2]
    model = gaussian_model(name, PROBLEM, inducing_variable=Z, chunk_size=5)
    gpflow.set_trainable(model.inducing_variable, False)
    loss = model.training_loss_closure(compile=True)
    loss()
    gpflow.set_trainable(model.inducing_variable, True)
    variable = model.inducing_variable.Z.unconstrained_variable
    (actual,) = gradients(loss, [variable])
    for place in np.ndindex(*Z.shape):
        ends = []
        for step in (1e-5, -1e-5):
            moved = Z.copy()
            moved[place] += step
            variable.assign(moved)
            ends.append(float(loss()))
        assert_close(actual[place], (ends[0] - ends[1]) / 2e-5, rtol=1e-6, scale=1.0)
