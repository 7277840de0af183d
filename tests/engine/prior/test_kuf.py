"""Prior covariances of inducing variables and rows, against GPflow's own."""

from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow import kernels as k
from gpflow.covariances import Kuf
from gpflow.inducing_variables import InducingPoints
from helpers import assert_all_close, assert_close

import gpflow_pep as pep
from gpflow_pep.engine.prior.evaluate import convert_user_code, is_plain, kuf

RNG = np.random.default_rng(5)
X = RNG.standard_normal([13, 4])
Z = RNG.standard_normal([5, 4])
UPSTREAM = RNG.standard_normal([5, 13])


class Halved(k.SquaredExponential):
    """A kernel of a user, whose inputs are scaled otherwise."""

    def scale(self, X):
        return None if X is None else 0.5 * X / self.lengthscales


class Warped(k.SquaredExponential):
    """One that says only what becomes of distances."""

    def K_r2(self, r2):
        return self.variance * tf.exp(-tf.sqrt(1.0 + r2))


class Doubled(k.SquaredExponential):
    """One with a ``Kuf`` of its own."""


class Shifted(InducingPoints):
    """Points with a ``Kuf`` of their own."""


Kuf.register(InducingPoints, Doubled, object)(lambda Z, kernel, X: 2.0 * kernel(Z.Z, X))
Kuf.register(Shifted, k.Matern12, object)(lambda Z, kernel, X: kernel(Z.Z + 1.0, X))
iv = gpflow.inducing_variables
POINTS = {
    "points": lambda: InducingPoints(Z),
    "among the rows": lambda: InducingPoints(X[:5] + 0.0),
    "separate": lambda: iv.SeparateIndependentInducingVariables(
        [InducingPoints(Z + i) for i in range(3)]
    ),
    "shared": lambda: iv.SharedIndependentInducingVariables(InducingPoints(Z)),
    "shifted": lambda: Shifted(Z),
}
SEPARATE = k.SeparateIndependent(
    [*(k.RBF(lengthscales=i + 0.5) for i in range(2)), k.Linear()]
)
SHARED = k.SharedIndependent(k.Matern32(lengthscales=0.7), 3)
STATIONARY = (
    k.RBF,
    k.RationalQuadratic,
    k.Exponential,
    k.Matern12,
    k.Matern32,
    k.Matern52,
)
KERNELS = [
    *(
        kind(variance=1.7, lengthscales=lengthscales)
        for kind in STATIONARY
        for lengthscales in (1.3, [0.5, 2.0, 1.1, 30.0])
    ),
    *(
        k.Matern52(lengthscales=0.7, active_dims=dims)
        for dims in ([2], [0, 3], slice(1, 3))
    ),
    *(k.Linear(), k.Cosine(), k.RBF() + k.Linear(), k.ArcCosine()),
    *(kind(lengthscales=1.3) for kind in (Halved, Doubled, Warped)),
]
CASES = [
    *(("points", kernel) for kernel in KERNELS),
    ("among the rows", k.SquaredExponential()),
    *(
        (points, kernel)
        for points in ("separate", "shared")
        for kernel in (SEPARATE, SHARED)
    ),
    ("shifted", k.Matern12(lengthscales=1.3)),
]


def values_and_gradients(function, kernel, points, rows):
    rows = tf.Variable(rows)
    with tf.GradientTape() as tape:
        covariances = function(points, kernel, rows)
        total = tf.reduce_sum(covariances * UPSTREAM)
    variables = (*kernel.trainable_variables, *points.trainable_variables, rows)
    gradients = tape.gradient(total, variables, unconnected_gradients="zero")
    return [covariances, *map(tf.convert_to_tensor, gradients)]


@pytest.mark.parametrize("points, kernel", CASES)
def test_values_and_gradients_are_those_of_gpflow(points, kernel):
    points = POINTS[points]()
    ours, theirs = (values_and_gradients(one, kernel, points, X) for one in (kuf, Kuf))
    for own, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-10, atol=1e-13)
    if isinstance(kernel, Halved | Doubled | Warped) or isinstance(points, Shifted):
        plain = {Shifted: k.Matern12}.get(type(points), k.SquaredExponential)(
            lengthscales=1.3
        )
        assert np.max(np.abs(ours[0] - kuf(InducingPoints(Z), plain, X))) > 0.1


def test_few_digits_and_numbers_that_do_not_agree():
    with gpflow.config.as_context(gpflow.config.Config(float=np.float32)):
        kernel = k.Matern52()
        points = InducingPoints(Z.astype(np.float32))
        ours = kuf(points, kernel, tf.constant(X, tf.float32))
    assert ours.dtype == tf.float32
    np.testing.assert_allclose(ours, Kuf(InducingPoints(Z), k.Matern52(), X), rtol=1e-4)
    with pytest.raises(AssertionError, match="same number"):  # as by GPflow
        kuf(
            POINTS["separate"](), k.SeparateIndependent([k.Matern52(), k.Matern52()]), X
        )


def test_gradient_of_gradient():
    kernel = k.SquaredExponential(lengthscales=[0.5, 2.0, 1.1, 3.0])
    variable = kernel.lengthscales.unconstrained_variable

    def hessian(function):
        with tf.GradientTape() as outer:
            with tf.GradientTape() as inner:
                total = tf.reduce_sum(function(InducingPoints(Z), kernel, X) * UPSTREAM)
            gradient = inner.gradient(total, variable)
        return outer.jacobian(gradient, variable)

    np.testing.assert_allclose(hessian(kuf), hessian(Kuf), rtol=1e-9, atol=1e-12)


# Graphs without AutoGraph, and with it where a user's own code needs it.


class Branching(gpflow.kernels.SquaredExponential):
    """A kernel whose Python code branches on a tensor, which needs AutoGraph in a
    graph.
    """

    def K(self, X: Any, X2: Any = None) -> tf.Tensor:
        if self.variance > 0.5:
            return super().K(X, X2)
        return 2.0 * super().K(X, X2)


class BranchingMean(gpflow.functions.MeanFunction):
    """So does this mean function."""

    def __call__(self, X: Any) -> tf.Tensor:
        if tf.reduce_sum(X) > 1e6:
            return tf.zeros_like(X[:, :1])
        return 0.3 * X[:, :1]


@convert_user_code
def _branch(part: Any, x: tf.Tensor) -> tf.Tensor:
    if x > 0.0:
        return x
    return -x


@pytest.mark.parametrize(
    "part", [Branching(), gpflow.kernels.White() + Branching(), lambda x: x]
)
def test_the_code_of_users_is_converted(part: Any) -> None:
    function = tf.autograph.experimental.do_not_convert(lambda x: _branch(part, x))
    assert tf.function(function)(tf.constant(-3.0)) == 3.0


def test_other_code_is_left_alone() -> None:
    kernel = gpflow.kernels.SquaredExponential() * gpflow.kernels.Linear()
    assert is_plain(kernel) and is_plain(gpflow.functions.Constant())
    assert not is_plain(Branching() + kernel)
    with pytest.raises(tf.errors.OperatorNotAllowedInGraphError):
        tf.function(lambda x: _branch(kernel, x), autograph=False)(tf.constant(-3.0))


def _branching_model(likelihood: Any = None) -> Any:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((20, 1))
    Y = rng.integers(0, 2, (20, 1)).astype(float)
    options: dict[str, Any] = {"alpha": 0.5, "mean_function": BranchingMean()}
    if likelihood is None:
        return pep.models.PEPRegression(
            (X, Y), Branching(), X[:5], noise_variance=0.1, **options
        )
    return pep.models.PEP((X, Y), Branching(), likelihood, X[:5], **options)


@pytest.mark.parametrize("likelihood", [None, gpflow.likelihoods.Gaussian()])
@pytest.mark.near_copies
def test_losses_take_kernels_and_means_that_branch_on_tensors(likelihood: Any) -> None:
    model = _branching_model(likelihood)
    assert_close(tf.function(model.training_loss)(), model.training_loss(), rtol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("likelihood, near", [(None, {}), (None, {"near": 3}), (1, {})])
def test_so_do_predictions(likelihood: Any, near: dict[str, int]) -> None:
    model = _branching_model(likelihood and gpflow.likelihoods.Gaussian())
    predict = tf.function(lambda Xnew: model.predict_f(Xnew, **near))
    assert_all_close(
        predict(model.data[0]), model.predict_f(model.data[0], **near), rtol=1e-9
    )
