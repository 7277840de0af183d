"""Prior covariances of inducing variables and rows, against GPflow's own."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.covariances import Kuf
from gpflow.inducing_variables import InducingPoints

from gpflow_pep.engine.prior.evaluate import kuf

RNG = np.random.default_rng(5)
X, Z = RNG.standard_normal([13, 4]), RNG.standard_normal([5, 4])
UPSTREAM = RNG.standard_normal([5, 13])
STATIONARY = (
    gpflow.kernels.SquaredExponential,
    gpflow.kernels.RationalQuadratic,
    gpflow.kernels.Exponential,
    gpflow.kernels.Matern12,
    gpflow.kernels.Matern32,
    gpflow.kernels.Matern52,
)


def values_and_gradients(function, kernel, points, rows):
    """Of a weighted sum of the covariances, in all that they depend on."""
    rows = tf.Variable(rows)
    with tf.GradientTape() as tape:
        covariances = function(points, kernel, rows)
        total = tf.reduce_sum(covariances * UPSTREAM)
    variables = (*kernel.trainable_variables, *points.trainable_variables, rows)
    gradients = tape.gradient(total, variables, unconnected_gradients="zero")
    return [covariances, *map(tf.convert_to_tensor, gradients)]


def check_same(kernel, points=None, rows=X):
    points = InducingPoints(Z) if points is None else points
    ours, theirs = (values_and_gradients(one, kernel, points, rows) for one in (kuf, Kuf))
    for own, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("ard", [False, True])
@pytest.mark.parametrize("kind", STATIONARY)
def test_values_and_gradients_are_those_of_gpflow(kind, ard):
    check_same(kind(variance=1.7, lengthscales=[0.5, 2.0, 1.1, 30.0] if ard else 1.3))


@pytest.mark.parametrize("columns", [[2], [0, 3], slice(1, 3)])
def test_only_active_columns_count(columns):
    check_same(gpflow.kernels.Matern52(lengthscales=0.7, active_dims=columns))


def test_points_among_the_rows():
    check_same(gpflow.kernels.SquaredExponential(), InducingPoints(X[:5] + 0.0))


@pytest.mark.parametrize(
    "kernel",
    [
        gpflow.kernels.Linear(),
        gpflow.kernels.Cosine(),
        gpflow.kernels.SquaredExponential() + gpflow.kernels.Linear(),
        gpflow.kernels.ArcCosine(),
    ],
    ids=lambda kernel: type(kernel).__name__,
)
def test_other_kernels_are_gpflows_business(kernel):
    check_same(kernel)


SEPARATE = gpflow.kernels.SeparateIndependent(
    [gpflow.kernels.SquaredExponential(lengthscales=k + 0.5) for k in range(2)]
    + [gpflow.kernels.Linear()]
)
SHARED = gpflow.kernels.SharedIndependent(gpflow.kernels.Matern32(lengthscales=0.7), 3)
SEPARATE_POINTS = gpflow.inducing_variables.SeparateIndependentInducingVariables(
    [InducingPoints(Z + k) for k in range(3)]
)
SHARED_POINTS = gpflow.inducing_variables.SharedIndependentInducingVariables(InducingPoints(Z))


@pytest.mark.parametrize("points", [SEPARATE_POINTS, SHARED_POINTS], ids=["separate", "shared"])
@pytest.mark.parametrize("kernel", [SEPARATE, SHARED], ids=["separate", "shared"])
def test_several_latent_functions(kernel, points):
    check_same(kernel, points)


def test_numbers_that_do_not_agree_are_refused_as_by_gpflow():
    kernel = gpflow.kernels.SeparateIndependent([gpflow.kernels.Matern52() for _ in range(2)])
    with pytest.raises(AssertionError, match="same number"):
        kuf(SEPARATE_POINTS, kernel, X)


class Halved(gpflow.kernels.SquaredExponential):
    """A kernel of a user, whose inputs are scaled otherwise."""

    def scale(self, X):
        return None if X is None else 0.5 * X / self.lengthscales


class Doubled(gpflow.kernels.SquaredExponential):
    """One with a ``Kuf`` of its own."""


@Kuf.register(InducingPoints, Doubled, object)
def _doubled(inducing_variable, kernel, Xnew):
    return 2.0 * kernel(inducing_variable.Z, Xnew)


class Warped(gpflow.kernels.SquaredExponential):
    """One that says only what becomes of distances."""

    def K_r2(self, r2):
        return self.variance * tf.exp(-tf.sqrt(1.0 + r2))


class Shifted(InducingPoints):
    """Points with a ``Kuf`` of their own."""


@Kuf.register(Shifted, gpflow.kernels.Matern12, object)
def _shifted(inducing_variable, kernel, Xnew):
    return kernel(inducing_variable.Z + 1.0, Xnew)


@pytest.mark.parametrize("kind", [Halved, Doubled, Warped])
def test_what_a_user_changed_counts(kind):
    kernel = kind(lengthscales=1.3)
    check_same(kernel)
    plain = kuf(InducingPoints(Z), gpflow.kernels.SquaredExponential(lengthscales=1.3), X)
    assert np.max(np.abs(kuf(InducingPoints(Z), kernel, X) - plain)) > 0.1


def test_what_a_user_changed_in_points_counts():
    kernel = gpflow.kernels.Matern12(lengthscales=1.3)
    check_same(kernel, Shifted(Z))
    assert np.max(np.abs(kuf(Shifted(Z), kernel, X) - kuf(InducingPoints(Z), kernel, X))) > 0.1


def test_few_digits():
    with gpflow.config.as_context(gpflow.config.Config(float=np.float32)):
        kernel, points = gpflow.kernels.Matern52(), InducingPoints(Z.astype(np.float32))
        ours = kuf(points, kernel, tf.constant(X, tf.float32))
    assert ours.dtype == tf.float32
    expected = Kuf(InducingPoints(Z), gpflow.kernels.Matern52(), X)
    np.testing.assert_allclose(ours, expected, rtol=1e-4)


def test_gradient_of_gradient():
    kernel, points = gpflow.kernels.SquaredExponential(lengthscales=[0.5, 2.0, 1.1, 3.0]), Z
    variable = kernel.lengthscales.unconstrained_variable

    def hessian(function):
        with tf.GradientTape() as outer:
            with tf.GradientTape() as inner:
                total = tf.reduce_sum(function(InducingPoints(points), kernel, X) * UPSTREAM)
            gradient = inner.gradient(total, variable)
        return outer.jacobian(gradient, variable)

    np.testing.assert_allclose(hessian(kuf), hessian(Kuf), rtol=1e-9, atol=1e-12)
