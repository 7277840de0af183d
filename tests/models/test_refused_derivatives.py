"""Derivatives that models do not know are refused; others are right.

Those of converged sites, which PEP knows, are in test_implicit_derivatives.py.
"""

import functools
from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from cases.pep import CASES
from helpers import assert_close, finite_difference_gradient, regression_problem

import gpflow_pep as pep

REFUSED = r"derivative of .*: got one in a hyperparameter, expected none: .* finite differences"
NAMES = ("probit", pytest.param("Poisson", marks=pytest.mark.slow), "Student-t", "RobustMax")
XNEW = regression_problem().Xnew[:2]

Function = Callable[[], tf.Tensor]


@functools.cache
def converged(name: str) -> "pep.models.PEP":
    """One model serves all tests, which leave it as it is: its sites are found once."""
    model = CASES[name].model(alpha=0.5)
    model.update_sites()
    return model


def lengthscale(model: Any) -> tf.Variable:
    return model.kernel.lengthscales.unconstrained_variable


def gradient(function: Function, source: Any) -> Any:
    with tf.GradientTape() as tape:
        tape.watch(source)
        value = function()
    return tape.gradient(value, source)


def second_derivative(loss: Function, source: tf.Variable) -> tf.Tensor:
    with tf.GradientTape() as outer:
        first = gradient(loss, source)
    return outer.gradient(first, source)


#: What sites at their fixed point enter.
QUANTITIES: dict[str, Callable[[Any], tf.Tensor]] = {
    "predict_f": lambda model: model.predict_f(XNEW)[0],
    "loo_log_density": lambda model: model.loo_log_density(),
}


@pytest.mark.parametrize("quantity", QUANTITIES)
def test_second_derivatives_of_other_functions_are_refused(quantity: str) -> None:
    model = converged("probit")
    function = QUANTITIES[quantity]
    with pytest.raises(ValueError, match=r"derivative of the gradient of .*: got one in"):
        second_derivative(lambda: function(model), lengthscale(model))


@pytest.mark.slow
def test_second_derivatives_in_a_graph_are_refused() -> None:
    model = converged("probit")
    loss, variable = model.training_loss, lengthscale(model)
    with pytest.raises(ValueError, match="got one in a hyperparameter"):
        tf.function(lambda: second_derivative(loss, variable), autograph=False)()


def test_differentiation_forwards_is_refused() -> None:
    model = converged("probit")
    with (
        tf.autodiff.ForwardAccumulator(lengthscale(model), tf.ones([2], tf.float64)),
        pytest.raises(ValueError, match=r"derivative of the gradient of q\(v\): got one in"),
    ):
        model.predict_f(XNEW)


def test_a_compiled_function_refuses_where_what_is_refused_has_a_share() -> None:
    """Its gradient is made for all of its results, whichever of them is differentiated."""
    problem = regression_problem(3)
    kernels = [gpflow.kernels.SquaredExponential(lengthscales=size) for size in (0.5, 1.0)]
    kernel = gpflow.kernels.LinearCoregionalization(kernels, W=np.array([[1.0, 0.3], [-0.5, 0.8]]))
    likelihood = pep.likelihoods.PerOutput([gpflow.likelihoods.Bernoulli() for _ in range(2)])
    targets = 1.0 * np.hstack([problem.Y > 0.4, problem.Y < 0.6])
    model = pep.PEP((problem.X, targets), kernel, likelihood, problem.Z, alpha=0.5, tolerance=1e-11)
    compiled = tf.function(
        lambda: (model.training_loss(), tf.reduce_sum(model.predict_f(XNEW)[0])), autograph=False
    )
    variable = kernel.W.unconstrained_variable
    expected = gradient(model.training_loss, variable)
    assert_close(gradient(lambda: compiled()[0], variable), expected, rtol=1e-6)
    with pytest.raises(tf.errors.InvalidArgumentError, match=REFUSED):
        gradient(lambda: compiled()[1], variable)
    with pytest.raises(ValueError, match=REFUSED):
        gradient(lambda: model.predict_f(XNEW)[0], variable)


def test_a_tape_outside_of_a_branch_is_refused() -> None:
    """TensorFlow's gradients of branches and loops cannot read variables."""
    model = converged("probit")

    def predict() -> tf.Tensor:
        return tf.reduce_sum(model.predict_f(XNEW)[0])

    @functools.partial(tf.function, autograph=False)
    def chosen(condition: tf.Tensor) -> tf.Tensor:
        return tf.cond(condition, predict, lambda: tf.zeros([], tf.float64))

    with pytest.raises(ValueError, match=r"a tape inside of the tf\.cond or loop"):
        gradient(lambda: chosen(tf.constant(True)), lengthscale(model))


@pytest.mark.slow
def test_sites_that_no_derivative_needs_may_not_have_converged() -> None:
    model = CASES["Student-t"].model(alpha=0.5, max_sweeps=1)
    compiled = tf.function(lambda: (model.training_loss(), model.predict_f(XNEW)[0]))
    with pytest.warns(pep.models.ConvergenceWarning):
        assert np.all(np.isfinite(gradient(lambda: compiled()[0], lengthscale(model))))
        with pytest.raises(tf.errors.InvalidArgumentError, match="sites that did not converge"):
            gradient(lambda: compiled()[1], lengthscale(model))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.near_copies
def test_derivatives_in_new_inputs_stay(name: str) -> None:
    """Whatever the tape watches besides, and wherever it is."""
    model = converged(name)
    Xnew = tf.Variable(XNEW)
    predict = tf.function(lambda X: model.predict_f(X)[0][:, 0], autograph=False)
    expected = finite_difference_gradient(lambda: tf.reduce_sum(predict(Xnew)), Xnew)

    def by_own_tape() -> Any:
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(Xnew)
            mean = model.predict_f(Xnew)[0][:, 0]
        return tape.gradient(mean, Xnew)

    results = {
        "eager": gradient(lambda: model.predict_f(Xnew)[0][:, 0], Xnew),
        "own tape": by_own_tape(),
        "in a graph": tf.function(by_own_tape, autograph=False)(),
        "of a graph": gradient(lambda: predict(Xnew), Xnew),
        "posterior": gradient(lambda: model.posterior().predict_f(Xnew)[0][:, 0], Xnew),
    }
    for result in results.values():
        assert_close(result, expected, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("compiled", [False, True])
def test_hessians_in_new_inputs_stay(compiled: bool) -> None:
    """With all tapes outside of a compiled function, too."""
    model = converged("probit")
    Xnew = tf.Variable(XNEW[:1])

    def predict() -> tf.Tensor:
        return model.predict_f(Xnew)[0]

    function = tf.function(predict, autograph=False) if compiled else predict

    def slope() -> tf.Tensor:
        return gradient(function, Xnew)

    with tf.GradientTape() as tape:
        first = slope()
    hessian = tape.jacobian(first, Xnew)[0, :, 0]
    for axis in range(2):
        expected = finite_difference_gradient(lambda: slope()[0, axis], Xnew)  # noqa: B023
        assert_close(hessian[axis], expected[0], rtol=1e-5)


def test_the_loss_is_differentiable_once_in_any_way() -> None:
    model = converged("probit")
    variable, factor = lengthscale(model), tf.Variable(3.0, dtype=tf.float64)
    expected = gradient(model.training_loss, variable)
    with tf.autodiff.ForwardAccumulator(variable, tf.ones([2], tf.float64)) as forwards:
        loss = model.training_loss()
    assert_close(forwards.jvp(loss), tf.reduce_sum(expected), rtol=1e-9)
    with tf.GradientTape() as outer:
        first = gradient(lambda: factor * model.training_loss(), variable)
    assert_close(outer.gradient(first, factor), tf.reduce_sum(expected), rtol=1e-9)


@pytest.mark.slow
def test_regression_has_all_derivatives() -> None:
    problem = regression_problem()
    model = pep.models.PEPRegression(problem.data, problem.kernel(), problem.Z, alpha=0.5)
    variable = lengthscale(model)
    with tf.GradientTape() as tape:
        first = gradient(model.training_loss, variable)
    hessian = tape.jacobian(first, variable)
    for axis in range(2):
        expected = finite_difference_gradient(
            lambda: gradient(model.training_loss, variable)[axis],  # noqa: B023
            variable,
        )
        assert_close(hessian[axis], expected, rtol=1e-6)
    for quantity in ("predict_f", "loo_log_density"):
        total = lambda: tf.reduce_sum(QUANTITIES[quantity](model))  # noqa: B023, E731
        assert_close(
            gradient(total, variable), finite_difference_gradient(total, variable), rtol=1e-6
        )


def test_tied_models_have_all_derivatives_with_the_conditional_of_the_prior() -> None:
    problem = regression_problem(3)
    data = problem.X, 1.0 * (problem.Y > 0.4)
    likelihood = gpflow.likelihoods.Bernoulli()
    model = pep.ARPEP(problem.kernel(), likelihood, problem.Z, alpha=0.5, num_data=17)
    variable, loss = model.kernel.variance.unconstrained_variable, lambda: model.training_loss(data)
    expected = finite_difference_gradient(lambda: gradient(loss, variable), variable)
    assert_close(second_derivative(loss, variable), expected, rtol=1e-6)
