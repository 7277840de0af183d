"""Prior covariances of inducing variables and rows, against GPflow's own."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow import kernels as k
from gpflow.covariances import Kuf
from gpflow.inducing_variables import InducingPoints

from gpflow_pep.engine.prior.evaluate import kuf

RNG = np.random.default_rng(5)
X, Z = RNG.standard_normal([13, 4]), RNG.standard_normal([5, 4])
UPSTREAM = RNG.standard_normal([5, 13])


class Halved(k.SquaredExponential):
    """A kernel of a user, whose inputs are scaled otherwise."""

    def scale(self, X):
        return None if X is None else 0.5 * X / self.lengthscales


class Doubled(k.SquaredExponential):
    """One with a ``Kuf`` of its own."""


@Kuf.register(InducingPoints, Doubled, object)
def _doubled(inducing_variable, kernel, Xnew):
    return 2.0 * kernel(inducing_variable.Z, Xnew)


class Warped(k.SquaredExponential):
    """One that says only what becomes of distances."""

    def K_r2(self, r2):
        return self.variance * tf.exp(-tf.sqrt(1.0 + r2))


class Shifted(InducingPoints):
    """Points with a ``Kuf`` of their own."""


@Kuf.register(Shifted, k.Matern12, object)
def _shifted(inducing_variable, kernel, Xnew):
    return kernel(inducing_variable.Z + 1.0, Xnew)


POINTS = {
    "points": lambda: InducingPoints(Z),
    "points among the rows": lambda: InducingPoints(X[:5] + 0.0),
    "separate": lambda: gpflow.inducing_variables.SeparateIndependentInducingVariables(
        [InducingPoints(Z + i) for i in range(3)]
    ),
    "shared": lambda: gpflow.inducing_variables.SharedIndependentInducingVariables(
        InducingPoints(Z)
    ),
    "shifted": lambda: Shifted(Z),
}
SEPARATE = k.SeparateIndependent([*(k.RBF(lengthscales=i + 0.5) for i in range(2)), k.Linear()])
SHARED = k.SharedIndependent(k.Matern32(lengthscales=0.7), 3)
STATIONARY = (
    k.SquaredExponential,
    k.RationalQuadratic,
    k.Exponential,
    k.Matern12,
    k.Matern32,
    k.Matern52,
)
CASES = [
    *(
        ("points", kind(variance=1.7, lengthscales=lengthscales))
        for kind in STATIONARY
        for lengthscales in (1.3, [0.5, 2.0, 1.1, 30.0])
    ),
    *(
        ("points", k.Matern52(lengthscales=0.7, active_dims=columns))
        for columns in ([2], [0, 3], slice(1, 3))
    ),
    ("points among the rows", k.SquaredExponential()),
    *(
        ("points", kernel)
        for kernel in (k.Linear(), k.Cosine(), k.RBF() + k.Linear(), k.ArcCosine())
    ),
    *((points, kernel) for points in ("separate", "shared") for kernel in (SEPARATE, SHARED)),
    *(("points", kind(lengthscales=1.3)) for kind in (Halved, Doubled, Warped)),
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
        plain = {Shifted: k.Matern12}.get(type(points), k.SquaredExponential)(lengthscales=1.3)
        assert np.max(np.abs(ours[0] - kuf(InducingPoints(Z), plain, X))) > 0.1


def test_numbers_that_do_not_agree_are_refused_as_by_gpflow():
    kernel = k.SeparateIndependent([k.Matern52() for _ in range(2)])
    with pytest.raises(AssertionError, match="same number"):
        kuf(POINTS["separate"](), kernel, X)


def test_few_digits():
    with gpflow.config.as_context(gpflow.config.Config(float=np.float32)):
        kernel, points = k.Matern52(), InducingPoints(Z.astype(np.float32))
        ours = kuf(points, kernel, tf.constant(X, tf.float32))
    assert ours.dtype == tf.float32
    np.testing.assert_allclose(ours, Kuf(InducingPoints(Z), k.Matern52(), X), rtol=1e-4)


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
