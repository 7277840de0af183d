"""Derivatives against finite differences: of variables that GPflow does not list,
second ones, and of what depends on converged sites; and those that are refused.
"""

import functools
from collections.abc import Callable
from typing import Any

import gpflow
import helpers
import numpy as np
import pytest
import tensorflow as tf
from cases.pep import ALPHAS, CASES, N
from gpflow.kernels import (
    LinearCoregionalization,
    Matern32,
    Matern52,
    SquaredExponential,
)
from gpflow.likelihoods import Bernoulli, Poisson
from helpers import Array, assert_close, assert_gradients, directional_slope, gradients

import gpflow_pep as pep
from gpflow_pep.engine.prior import centred

RNG = np.random.default_rng(0)
X = RNG.uniform(-2.0, 2.0, (12, 1))
Y = np.hstack([np.sin(2.0 * X), np.cos(2.0 * X)]) + 0.1 * RNG.standard_normal((12, 2))
LABELS = (np.sin(2.0 * X) > 0.0) * 1.0
WEIGHTS = RNG.standard_normal(100)
RTOL = 1e-7
Function = Callable[[], tf.Tensor]
in_graph = functools.partial(tf.function, autograph=False)


def gradient(function: Function, source: Any, **options: Any) -> Any:
    with tf.GradientTape(**options) as tape:
        tape.watch(source)
        value = function()
    return tape.gradient(value, source)


def flat(parts: Any) -> Array:
    return np.concatenate([np.ravel(tf.convert_to_tensor(part)) for part in parts])


def weighted(values: Any) -> tf.Tensor:
    """A sum with weights, which notices each part."""
    flat = tf.reshape(values, [-1])
    return tf.reduce_sum(flat * WEIGHTS[: flat.shape[0]])


def parts_of(model: Any) -> list[tf.Variable]:
    return list(helpers.trainable_by_name(model).values())


def lengthscale(model: Any) -> tf.Variable:
    return model.kernel.lengthscales.unconstrained_variable


# Of variables that GPflow does not list.


class Reads:
    """A function reads a number, of a variable that is nobody's."""

    def __init__(self, read: Function) -> None:
        super().__init__()
        self._read = read


class Stretched(Reads, SquaredExponential):
    def K(self, X: tf.Tensor, X2: tf.Tensor | None = None) -> tf.Tensor:
        factor = self._read()
        return super().K(factor * X, None if X2 is None else factor * X2)


class Slope(Reads, gpflow.mean_functions.MeanFunction):
    def __call__(self, X: tf.Tensor) -> tf.Tensor:
        return self._read() * X


def by_closure() -> tuple[tf.Variable, Function]:
    variable = tf.Variable(0.8, dtype=tf.float64)
    return variable, lambda: tf.convert_to_tensor(variable)


def by_keras() -> tuple[tf.Variable, Function]:
    """A layer of Keras 3, which is no ``tf.Module``."""
    layer = tf.keras.layers.Dense(1, use_bias=False, dtype="float64")
    layer.build((None, 1))
    variable = layer.trainable_variables[0].value
    variable.assign([[0.8]])
    return variable, lambda: layer(tf.ones([1, 1], tf.float64))[0, 0]


#: What a function of a hidden variable is in.
PLACES: dict[str, Callable[[Function], dict[str, Any]]] = {
    "kernel": lambda read: {"kernel": Stretched(read)},
    "mean function": lambda read: {"mean_function": Slope(read)},
    "likelihood": lambda read: {
        "likelihood": Poisson(invlink=lambda f: tf.nn.softplus(read() * f))
    },
}


def of_labels(**options: Any) -> pep.PEP:
    parts = {"kernel": SquaredExponential(), "likelihood": Bernoulli(), **options}
    Z = np.linspace(-1.5, 1.5, 4)[:, None]
    return pep.PEP((X, LABELS), inducing_variable=Z, tolerance=1e-11, **parts)


@pytest.mark.near_copies("kernel-by_keras-None")
@pytest.mark.parametrize("chunk_size", [None, 5])
@pytest.mark.parametrize(
    ("place", "make"), [("kernel", by_keras), *((p, by_closure) for p in PLACES)]
)
def test_hidden_variables(place: str, make: Any, chunk_size: int | None) -> None:
    variable, read = make()
    model = of_labels(chunk_size=chunk_size, **PLACES[place](read))
    assert not any(variable is listed for listed in model.variables)

    def all_together() -> tf.Tensor:
        parts = model.predict_f(np.array([[-0.3], [0.8]]))[0], model.loo_log_density()
        sums = [tf.reduce_sum(part) for part in parts]
        return model.pep_log_marginal_likelihood() + 2.0 * sums[0] + 3.0 * sums[1]

    function = all_together if chunk_size is None else in_graph(all_together)
    assert_gradients(function, [variable], rtol=1e-5)


@pytest.mark.slow
@pytest.mark.near_copies("kernel")
@pytest.mark.parametrize("place", PLACES)
def test_second_derivatives_in_hidden_variables(place: str) -> None:
    variable, read = by_closure()
    loss = of_labels(**PLACES[place](read)).training_loss
    assert_gradients(lambda: gradient(loss, variable), [variable], rtol=1e-5)


def test_a_likelihood_that_is_not_trained() -> None:
    likelihood = gpflow.likelihoods.Gaussian(0.2)
    gpflow.set_trainable(likelihood, False)
    model = of_labels(likelihood=likelihood)
    variable = likelihood.variance.unconstrained_variable
    assert_gradients(model.pep_log_marginal_likelihood, [variable], rtol=1e-5)


# Second ones of losses in closed form.


def mixed(alpha: float) -> pep.PEPRegression:
    """With rows at inducing inputs, where nothing is left of f given u."""
    kernels = [SquaredExponential(1.0, length) for length in (0.6, 1.2)]
    kernel = LinearCoregionalization(kernels, W=np.array([[1.0, 0.3], [-0.5, 0.8]]))
    return pep.PEPRegression(
        (X, Y), kernel, X[::3].copy(), noise_variance=[0.1, 0.2], alpha=alpha
    )


def plain(alpha: float) -> pep.PEPRegression:
    data = (X, Y[:, :1])
    Z = X[::3].copy()
    return pep.PEPRegression(data, SquaredExponential(), Z, alpha=alpha)


def with_memory(alpha: float) -> pep.PEPRegression:
    """Of points that are kept, and have not moved yet."""

    def model(rows: slice, **options: Any) -> pep.PEPRegression:
        options = {"noise_variance": 0.1, "alpha": alpha, **options}
        data = (X[rows], Y[rows, :1])
        Z = X[:4] + 0.1
        return pep.PEPRegression(data, SquaredExponential(), Z, **options)

    return model(slice(6, 12), memory=model(slice(0, 6)).remember())


def check_second(
    of: Function, variables: Any, step: float = 1e-3, rtol: float = 1e-6
) -> None:
    """In all variables at once, each in a direction of its own."""
    random = np.random.default_rng(1)
    direction = [random.standard_normal(variable.shape) for variable in variables]

    def slope() -> tf.Tensor:
        parts = zip(
            helpers.value_and_gradients(of, variables)[1], direction, strict=True
        )
        return tf.add_n([tf.reduce_sum(part * along) for part, along in parts])

    actual = sum(np.sum(a * b) for a, b in zip(gradients(slope, variables), direction))
    assert_close(
        actual, directional_slope(slope, variables, direction, step), rtol=rtol
    )


@pytest.mark.near_copies("*-0.0", "*-0.3", "*-1.0")
@pytest.mark.parametrize("alpha", [0.0, 1e-6, 0.3, 0.5, 1.0])
@pytest.mark.parametrize("make", [mixed, with_memory])
def test_second_derivatives(
    make: Callable[[float], pep.PEPRegression], alpha: float
) -> None:
    model = make(alpha)
    check_second(model.training_loss, model.trainable_variables)


@pytest.mark.near_copies("plain")
@pytest.mark.parametrize("make", [plain, mixed])
def test_second_derivatives_of_a_graph(
    make: Callable[[float], pep.PEPRegression],
) -> None:
    """With all tapes outside of it."""
    model = make(0.3)
    check_second(in_graph(model.training_loss), model.trainable_variables)


class Holder(gpflow.kernels.Kernel):
    """The sum of all kernels that it holds, which are in attributes of any form."""

    def __init__(self, kernel: Any, **held: Any) -> None:
        super().__init__()
        self._only = kernel
        self.held = {"listed": [held]}

    def _sum(self, of: Callable[[gpflow.kernels.Kernel], tf.Tensor]) -> tf.Tensor:
        kernels = [self._only, *self.held["listed"][0].values()]
        return tf.add_n([of(kernel) for kernel in kernels])

    def K(self, X: Any, X2: Any = None) -> tf.Tensor:
        return self._sum(lambda kernel: kernel(X, X2))

    def K_diag(self, X: Any) -> tf.Tensor:
        """By way of covariances, of which second derivatives are part, too."""
        return self._sum(lambda kernel: tf.linalg.diag_part(kernel(X)))


class Renamed(Matern52):
    """The same kernel by another name."""


def on_circles(kernel: type[gpflow.kernels.Kernel]) -> gpflow.kernels.Kernel:
    return gpflow.kernels.Periodic(kernel(1.1, 0.8), period=5.0)


def changing() -> gpflow.kernels.Kernel:
    kernels = [Matern52(), on_circles(Matern32)]
    return gpflow.kernels.ChangePoints(kernels, [0.8], 2.0)


def on_patches() -> gpflow.kernels.Kernel:
    return gpflow.kernels.Convolutional(Matern52(), [1, 1], [1, 1])


#: Kernels with Matern parts, whose distances are 0 where rows are inducing inputs.
MATERN: dict[str, Callable[[], gpflow.kernels.Kernel]] = {
    "3/2": Matern32,
    "5/2": Matern52,
    "sum and product": lambda: Matern32() + Matern52() * SquaredExponential(),
    "periodic 3/2": lambda: on_circles(Matern32),
    "change points": changing,
    "patches": on_patches,
    "own": lambda: Holder(on_circles(Matern52), sum=Matern32() + Renamed()),
}


@pytest.mark.near_copies("5/2", "own")
@pytest.mark.parametrize("name", MATERN)
def test_second_derivatives_at_inducing_inputs(name: str) -> None:
    data = (X, Y[:, :1])
    Z = X[::3].copy()
    model = pep.PEPRegression(data, MATERN[name](), Z, noise_variance=0.1)
    # Third derivatives jump there.
    check_second(model.training_loss, model.trainable_variables, step=1e-5, rtol=1e-4)
    data = np.array([[0.0], [1.0], [2.5]]), np.array([[0.5], [-1.0], [0.7]])
    model = pep.PEPRegression(data, MATERN[name](), data[0].copy(), noise_variance=0.01)
    x = tf.Variable([[1.0]], dtype=tf.float64)
    posterior = model.posterior()
    for predict in (model.predict_f, posterior.predict_f):
        moments = functools.partial(predict, x)
        check_second(lambda: tf.add_n(moments()), [x], step=1e-5, rtol=1e-3)  # noqa: B023


def test_second_derivatives_of_sites_and_paths_at_an_inducing_input() -> None:
    """With a Matern kernel inside of another one; only the input is watched."""
    data = np.array([[0.0], [1.0], [2.5]]), np.array([[1.0], [0.0], [3.0]])
    model = pep.PEP(data, on_circles(Matern52), Poisson(), data[0].copy())
    x = tf.Variable([[1.0]], dtype=tf.float64)
    alone = {"watch_accessed_variables": False}
    for function in (
        lambda: model.predict_f(x)[1],
        functools.partial(model.paths(2, 8), x),
    ):

        def slope(function: Function = function) -> tf.Tensor:
            return gradient(function, x, **alone)

        actual = gradient(slope, x, **alone)
        one = [np.ones([1, 1])]
        numeric = directional_slope(lambda: slope()[0, 0], [x], one, 1e-5)
        assert_close(actual[0, 0], numeric, rtol=1e-6)


@pytest.mark.parametrize("kind", [Matern32, Matern52])
def test_periodic_kernels_in_several_inputs_stay_as_they_are(
    kind: type[gpflow.kernels.Kernel],
) -> None:
    kernel = gpflow.kernels.Periodic(kind(1.1, [0.8, 0.5]), [2.0, 1.0])
    Z = RNG.standard_normal((5, 2))
    for others in (None, np.vstack([Z[:2], Z[:2] + 0.3])):
        assert_close(centred(kernel)(Z, others), kernel(Z, others), rtol=1e-12)


# Of what depends on converged sites.


def near_rows(model):
    return (model.data[0][:3] + 0.1, model.data[1][:3])


#: Functions of converged sites, with rows of the model's own data that moved a little.
FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "predict_f": lambda model: model.predict_f(near_rows(model)[0])[0],
    "loo_log_density": lambda model: model.loo_log_density(),
    "predict_log_density": lambda model: model.predict_log_density(near_rows(model)),
    "q_mu": lambda model: model.q_mu,
}
OTHERS: dict[str, Callable[[Any], Any]] = {
    "variance of predict_f": lambda model: model.predict_f(
        model.data[0][:3], full_cov=True
    )[1],
    "posterior": lambda model: model.posterior().predict_f(model.data[0][:3])[1],
    "q_sqrt": lambda model: model.q_sqrt,
    "compute_qu": lambda model: model.compute_qu()[1],
    "sites": lambda model: tf.stack(model.converged_rows()[2:4]),
    "surrogate": lambda model: tf.square(model.surrogate().targets),
}
OF_ROWS, OF_Q = ({name: FUNCTIONS[name]} for name in ("loo_log_density", "q_mu"))


def check(model: Any, functions: Any, rtol: float = RTOL) -> None:
    """All trainable variables move at once, each in a direction of its own."""
    variables = parts_of(model)
    random = np.random.default_rng(0)
    direction = [random.standard_normal(variable.shape) for variable in variables]

    def values() -> Array:
        return np.array([weighted(function(model)) for function in functions.values()])

    expected = directional_slope(values, variables, direction)
    for function, slope in zip(functions.values(), expected, strict=True):
        gradient = gradients(lambda: weighted(function(model)), variables)  # noqa: B023
        along = np.sum(
            [np.sum(part * other) for part, other in zip(gradient, direction)]
        )
        assert_close(along, slope, rtol=rtol, scale=0.1)
        assert_record(model)


def assert_record(model: Any) -> None:
    info = model.last_adjoint
    assert (
        1 <= info.num_products <= 2 * N * model.num_latent_gps and info.residual < 1e-8
    )


each_name = pytest.mark.parametrize("name", ["probit", "Student-t", "RobustMax"])
each_alpha = pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])


@pytest.mark.near_copies("probit-0.5")
@each_alpha
@pytest.mark.parametrize(
    "name", ["probit", "Gaussian", "Poisson", "Student-t", "RobustMax"]
)
def test_gradient_table(name: str, alpha: float) -> None:
    check(CASES[name].model(alpha=alpha), FUNCTIONS)


def _with_memory() -> Any:
    case = CASES["probit"]
    memory = case.model().remember()
    model = case.model(data=case.rows(slice(0, 6)), memory=memory)
    model.kernel.variance.assign(0.8)
    return model


def _of_separate_kernels() -> Any:
    kernels = [SquaredExponential(lengthscales=0.5 + k / 2) for k in range(3)]
    points = gpflow.inducing_variables.InducingPoints(CASES["RobustMax"].problem.Z)
    shared = gpflow.inducing_variables.SharedIndependentInducingVariables(points)
    kernel = gpflow.kernels.SeparateIndependent(kernels)
    return CASES["RobustMax"].model(kernel=kernel, inducing_variable=shared)


def _with_a_flat_direction() -> Any:
    """A level of all classes that nothing but the prior knows, which is nearly flat."""
    rows = np.linspace(-1.0, 1.0, 8)[:, None]
    labels = np.arange(8)[:, None] % 3
    parts = (
        SquaredExponential(1e4, 0.7),
        gpflow.likelihoods.MultiClass(3),
        rows[::3].copy(),
    )
    model = pep.PEPClassification((rows, labels), *parts, tolerance=1e-11)
    gpflow.set_trainable(model.inducing_variable, False)
    return model


PER_ROW = {"alpha": ALPHAS["alpha per row"]}
NEAR = {"probability": lambda model: model.predict_y(model.data[0][:4] + 0.05)[0]}
MODELS: dict[str, tuple[Callable[[], Any], dict[str, Any], float]] = {
    "powers of rows": (lambda: CASES["Student-t"].model(**PER_ROW), OF_ROWS, RTOL),
    "powers, three classes": (
        lambda: CASES["RobustMax"].model(**PER_ROW),
        OF_ROWS,
        RTOL,
    ),
    "all that depends on sites": (CASES["probit"].model, OTHERS, 1e-6),
    "chunks": (lambda: CASES["Poisson"].model(chunk_size=3), {**OF_ROWS, **OF_Q}, RTOL),
    "memory": (_with_memory, OF_Q, RTOL),
    "kernels of their own": (_of_separate_kernels, OF_Q, RTOL),
    "flat direction": (_with_a_flat_direction, NEAR, 1e-6),
}


@pytest.mark.slow
@pytest.mark.parametrize("create, functions, rtol", MODELS.values(), ids=MODELS)
def test_other_models(create: Callable[[], Any], functions: Any, rtol: float) -> None:
    check(create(), functions, rtol)


@pytest.mark.near_copies("0.5-probit")
@each_name
@pytest.mark.parametrize("alpha", [0.0, 0.5])
def test_products_with_the_hessian_of_the_loss(name: str, alpha: float) -> None:
    model = CASES[name].model(alpha=alpha)
    variables = parts_of(model)
    loss = model.training_loss
    vector = [RNG.standard_normal(variable.shape) for variable in variables]
    with tf.GradientTape() as tape:
        first = helpers.value_and_gradients(loss, variables)[1]
        slope = tf.add_n(
            [tf.reduce_sum(a * b) for a, b in zip(first, vector, strict=True)]
        )
    product = tape.gradient(slope, variables)
    assert_record(model)
    expected = directional_slope(
        lambda: flat(gradients(loss, variables)), variables, vector
    )
    assert_close(flat(product), expected, rtol=RTOL)


@pytest.mark.slow
@each_alpha
@each_name
def test_graphs_compute_the_same(name: str, alpha: float) -> None:
    model = CASES[name].model(alpha=alpha)
    variables, function = parts_of(model), lambda: weighted(model.q_mu)
    expected = gradients(function, variables)
    inside = in_graph(lambda: helpers.value_and_gradients(function, variables)[1])
    for actual in (inside(), gradients(in_graph(function), variables)):
        helpers.assert_all_close(actual, expected, rtol=1e-7, scale=0.1)


@pytest.mark.slow
def test_jacobian_by_one_gradient_after_another() -> None:
    model = CASES["probit"].model()
    variable = lengthscale(model)
    with tf.GradientTape(persistent=True) as tape:
        mean = model.q_mu[:, 0]
    jacobian = tape.jacobian(mean, variable, experimental_use_pfor=False)
    assert_close(jacobian[2], gradients(lambda: model.q_mu[2, 0], [variable])[0])
    with pytest.raises(ValueError, match="experimental_use_pfor to False"):
        tape.jacobian(mean, variable)


# Refused, and beside these those that are right.

REFUSED = (
    r"derivative of .*: got a derivative in a hyperparameter, .* finite"
    r" differences"
)
PROBLEM = helpers.regression_problem(3)
XNEW = helpers.regression_problem().Xnew[:2]


@functools.cache
def converged(name: str) -> "pep.models.PEP":
    """One model serves all tests, which leave it as it is: its sites are found once."""
    model = CASES[name].model()
    model.update_sites()
    return model


def mean_at(Xnew: Any, model: Any) -> tf.Tensor:
    return model.predict_f(Xnew)[0]


def twice(function: Callable[[Any], tf.Tensor]) -> Any:
    model = converged("probit")
    variable = lengthscale(model)
    return gradient(lambda: gradient(lambda: function(model), variable), variable)


def forwards() -> Any:
    model = converged("probit")
    with tf.autodiff.ForwardAccumulator(lengthscale(model), tf.ones([2], tf.float64)):
        return model.predict_f(XNEW)


def in_a_branch() -> Any:
    """TensorFlow's gradients of branches and loops cannot read variables."""
    model = converged("probit")
    branches = (
        lambda: tf.reduce_sum(mean_at(XNEW, model)),
        lambda: tf.zeros([], tf.float64),
    )
    chosen = in_graph(lambda condition: tf.cond(condition, *branches))
    return gradient(lambda: chosen(tf.constant(True)), lengthscale(model))


TWICE = "derivative of the gradient of"
CALLS: dict[str, Callable[[], Any]] = {
    f"{TWICE} .*: got": lambda: twice(functools.partial(mean_at, XNEW)),
    f"{TWICE} .*: got a derivative in": lambda: twice(FUNCTIONS["loo_log_density"]),
    rf"{TWICE} q\(v\): got a derivative in": forwards,
    r"a tape inside of the tf\.cond or loop": in_a_branch,
}
twice_in_graph = in_graph(lambda: twice(pep.PEP.training_loss))
# The model is made outside.
IN_GRAPH = {
    "got a derivative in a hyperparameter": lambda: (
        converged("probit"),
        twice_in_graph(),
    )
}
test_refused = helpers.refusals(CALLS)
test_refused_in_a_graph = pytest.mark.slow(helpers.refusals(IN_GRAPH))


def test_sites_away_from_their_fixed_point_are_refused() -> None:
    model = CASES["Student-t"].model(max_sweeps=1)
    message = (
        r"derivative of q\(v\): got sites that did not converge, .* residual: .*clipped"
    )
    with (
        pytest.warns(pep.models.ConvergenceWarning),
        pytest.raises(ValueError, match=message),
    ):
        gradients(lambda: model.q_mu, parts_of(model))


@pytest.mark.slow
def test_sites_that_no_derivative_needs_may_not_have_converged() -> None:
    model = CASES["Student-t"].model(max_sweeps=1)
    both = tf.function(lambda: (model.training_loss(), mean_at(XNEW, model)))
    with pytest.warns(pep.models.ConvergenceWarning):
        assert np.all(np.isfinite(gradient(lambda: both()[0], lengthscale(model))))
        with pytest.raises(
            tf.errors.InvalidArgumentError, match="sites that did not converge"
        ):
            gradient(lambda: both()[1], lengthscale(model))


@pytest.mark.slow
def test_a_compiled_function_refuses_where_what_is_refused_has_a_share() -> None:
    """Its gradient is made for all of its results, whichever of them is
    differentiated.
    """
    kernels = [SquaredExponential(lengthscales=size) for size in (0.5, 1.0)]
    kernel = LinearCoregionalization(kernels, W=np.array([[1.0, 0.3], [-0.5, 0.8]]))
    likelihood = pep.likelihoods.PerOutput([Bernoulli(), Bernoulli()])
    data = PROBLEM.X, 1.0 * np.hstack([PROBLEM.Y > 0.4, PROBLEM.Y < 0.6])
    model = pep.PEP(data, kernel, likelihood, PROBLEM.Z, tolerance=1e-11)
    compiled = in_graph(
        lambda: (model.training_loss(), tf.reduce_sum(mean_at(XNEW, model)))
    )
    variable = kernel.W.unconstrained_variable
    expected = gradient(model.training_loss, variable)
    assert_close(gradient(lambda: compiled()[0], variable), expected, rtol=1e-6)
    with pytest.raises(tf.errors.InvalidArgumentError, match=REFUSED):
        gradient(lambda: compiled()[1], variable)
    with pytest.raises(ValueError, match=REFUSED):
        gradient(lambda: mean_at(XNEW, model), variable)


@pytest.mark.slow
@each_name
@pytest.mark.near_copies
def test_derivatives_in_new_inputs_stay(name: str) -> None:
    """Whatever the tape watches besides, and wherever it is."""
    model = converged(name)
    Xnew = tf.Variable(XNEW)
    eager = functools.partial(mean_at, Xnew, model)
    graph = in_graph(eager)

    def posterior():
        return model.posterior().predict_f(Xnew)[0]

    by_own_tape = functools.partial(
        gradient, eager, Xnew, watch_accessed_variables=False
    )
    results = [gradient(function, Xnew) for function in (eager, graph, posterior)]
    results += [by_own_tape(), in_graph(by_own_tape)()]
    units, total = (
        np.eye(XNEW.size).reshape(-1, *XNEW.shape),
        lambda: tf.reduce_sum(graph()),
    )
    expected = np.reshape(
        [directional_slope(total, [Xnew], [u]) for u in units], XNEW.shape
    )
    for result in results:  # that of the sum over classes is 0
        assert_close(result, expected, rtol=1e-6, scale=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("compiled", [False, True])
def test_hessians_in_new_inputs_stay(compiled: bool) -> None:
    """With all tapes outside of a compiled function, too."""
    Xnew = tf.Variable(XNEW[:1])
    direction = np.array([[0.8, -0.6]])
    function = functools.partial(mean_at, Xnew, converged("probit"))
    function = in_graph(function) if compiled else function
    with tf.GradientTape(persistent=compiled) as tape:
        first = gradient(function, Xnew)
    by_pfor = not compiled  # its refusal is documented
    hessian = tape.jacobian(first, Xnew, experimental_use_pfor=by_pfor)[0, :, 0].numpy()
    expected = directional_slope(
        lambda: gradient(function, Xnew)[0], [Xnew], [direction]
    )
    assert_close(hessian @ direction[0], expected, rtol=1e-5)


def test_the_loss_is_differentiable_once_in_any_way() -> None:
    model = converged("probit")
    variable = lengthscale(model)
    factor = tf.Variable(3.0, dtype=tf.float64)
    expected = tf.reduce_sum(gradient(model.training_loss, variable))
    with tf.autodiff.ForwardAccumulator(variable, tf.ones([2], tf.float64)) as forwards:
        loss = model.training_loss()
    assert_close(forwards.jvp(loss), expected, rtol=1e-9)
    with tf.GradientTape() as outer:
        first = gradient(lambda: factor * model.training_loss(), variable)
    assert_close(outer.gradient(first, factor), expected, rtol=1e-9)


def test_tied_models_have_all_derivatives_with_the_conditional_of_the_prior() -> None:
    data = PROBLEM.X, 1.0 * (PROBLEM.Y > 0.4)
    model = pep.ARPEP(PROBLEM.kernel(), Bernoulli(), PROBLEM.Z, alpha=0.5, num_data=17)
    check_second(
        lambda: model.training_loss(data),
        [model.kernel.variance.unconstrained_variable],
    )
