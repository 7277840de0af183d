"""Inputs far from 0: everything is as it is for the same inputs near 0."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf

import gpflow_pep as pep
from gpflow_pep.engine.numerics import chunks
from gpflow_pep.engine.numerics.nearest_in_numpy import nearest_rows
from gpflow_pep.engine.prior import centred, input_scales, nearest_by_products
from gpflow_pep.scoring.kernels import covariance_with

k = gpflow.kernels
RNG = np.random.default_rng(0)
# Multiples of 2^-8, so that an offset changes none of their differences by rounding.
X = np.round(RNG.uniform(size=(20, 2)) * 256) / 256
Y = np.sin(9.0 * X[:, :1]) + 0.3 * X[:, 1:] + 0.05 * RNG.standard_normal((20, 1))
Z = X[::4] + 1 / 256
NEW = X[:3] + 1 / 128
OFFSETS = (1e4, 1e4), (2.46e6, -1.0), (1e6, 2.46e6)
MIXED = k.LinearCoregionalization(
    [k.RBF(1.0, 0.2), k.Matern32(1.0, 0.4)], np.eye(2) + 0.3
)
KERNELS = {
    "SE": k.SquaredExponential(1.3, [0.15, 0.4]),
    "Matern12": k.Matern12(1.0, 0.3),
    "Matern32": k.Matern32(1.0, [0.3, 0.4]),
    "Matern52": k.Matern52(1.0, 0.3),
    "RationalQuadratic": k.RationalQuadratic(1.0, 0.3),
    "Cosine": k.Cosine(1.0, 2.0),
    "Periodic": k.Periodic(k.RBF(1.0, 0.5, active_dims=[0]), 0.5) * k.RBF(1.0, 0.3),
    "sum": k.RBF(1.0, 0.15, active_dims=[0])
    + k.Matern32(0.5, 0.4, active_dims=[1])
    + k.White(0.1),
    "product": (k.RBF(1.0, 0.2) + k.Constant(0.1))
    * k.Matern52(1.0, 0.5, active_dims=[1]),
}


def regression(kernel, X, Z, alpha, Y=Y, **options):
    return pep.PEPRegression(
        (X, Y), kernel, Z, alpha=alpha, noise_variance=0.01, **options
    )


def several(kernel, X, Z, alpha):
    return regression(kernel, X, Z, alpha, np.hstack([Y, -Y]))


def classes(kernel, X, Z, alpha):
    labels = (Y > 0.0) * 1.0
    likelihood = gpflow.likelihoods.Bernoulli()
    return pep.PEP((X, labels), kernel, likelihood, Z, alpha=alpha, tolerance=1e-11)


def tied(kernel, X, Z, alpha):
    number = kernel.num_latent_gps if isinstance(kernel, k.MultioutputKernel) else 1
    q = np.random.default_rng(1).standard_normal((len(Z), number))
    points = gpflow.inducing_variables.InducingPoints(Z)
    if number > 1:
        points = gpflow.inducing_variables.SharedIndependentInducingVariables(points)
    likelihood = gpflow.likelihoods.Gaussian(0.01)
    return pep.ARPEP(kernel, likelihood, points, num_data=len(X), alpha=alpha, q_mu=q)


def everything(make, kernel, offset, alpha):
    model = make(kernel, X + offset, Z + offset, alpha)
    columns = np.repeat(Y, model.num_latent_gps, axis=1)
    data = [] if make is not tied else [(X + offset, columns)]
    with tf.GradientTape() as tape:
        loss = model.training_loss(*data)
    gradient = tape.gradient(loss, model.trainable_variables)
    by_model = [model.predict_f(NEW + offset, full_cov=full) for full in (False, True)]
    by_posterior = model.posterior().predict_f(NEW + offset, full_cov=True)
    return tf.nest.flatten([loss, gradient, by_model, by_posterior])


SEPARATE = k.SeparateIndependent(
    [k.RBF(1.0, 0.2), k.Matern32(1.0, 0.4) + k.Constant(0.1)]
)


@pytest.mark.near_copies(
    "regression-kernel0-*",
    "classes-*",
    "tied-kernel9-*",
    "regression-kernel4-*",
    "several-*",
)
@pytest.mark.parametrize(
    "make, kernel, alpha, offsets",
    [
        (regression, KERNELS["SE"], 0.5, OFFSETS),
        *((regression, KERNELS[name], 0.5, OFFSETS[1:2]) for name in [*KERNELS][1:]),
        *((tied, KERNELS["SE"], alpha, OFFSETS[1:2]) for alpha in (0.0, 1.0)),
        (classes, KERNELS["sum"], 0.5, OFFSETS[1:2]),
        (several, MIXED, 0.5, OFFSETS[1:]),
        (tied, SEPARATE, 0.5, OFFSETS[1:]),
        (tied, k.SharedIndependent(k.RBF(1.0, 0.2), 2), 0.5, OFFSETS[1:]),
    ],
)
def test_an_offset_changes_nothing(make, kernel, alpha, offsets):
    near, *far = (
        everything(make, kernel, offset, alpha) for offset in ((0.0, 0.0), *offsets)
    )
    rtol = 1e-7 if isinstance(kernel, k.MultioutputKernel) else 1e-8
    for other in far:
        for a, b in zip(near, other, strict=True):
            np.testing.assert_allclose(b, a, rtol=rtol, atol=1e-8 * np.abs(a).max())


def test_log_z_of_a_day_in_julian_dates_is_that_of_exact_regression():
    u = np.arange(40.0)[:, None] / 64
    y = np.sin(9.0 * u)
    days = u + 2460000.5
    K = np.exp(-0.5 * ((u - u.T) / 0.15) ** 2) + 0.01 * np.eye(40)
    exact = (
        -0.5 * (y.T @ np.linalg.solve(K, y))[0, 0]
        - 0.5 * np.linalg.slogdet(2 * np.pi * K)[1]
    )
    model = regression(k.SquaredExponential(1.0, 0.15), days, days.copy(), 0.5, y)
    # The jitter of inducing points at all rows is what is left of the difference.
    np.testing.assert_allclose(model.pep_log_marginal_likelihood(), exact, rtol=1e-4)


def test_other_units_and_what_loses_no_digits():
    """Another unit of an input, and a lengthscale in it, change nothing either."""
    unit = np.array([2.0**20, 2.0**-20])
    offset = np.array([2.0**40, 1e6 * 2.0**-20])
    near = regression(k.RBF(1.0, [0.3, 0.4]), X, Z, 0.5)
    kernel = k.RBF(1.0, [0.3, 0.4] * unit)
    far = regression(kernel, X * unit + offset, Z * unit + offset, 0.5)
    np.testing.assert_allclose(far.training_loss(), near.training_loss(), rtol=1e-8)
    near, far = (regression(OfDifferences(), X + o, Z + o, 0.5) for o in (0.0, 2.0**22))
    np.testing.assert_allclose(far.training_loss(), near.training_loss(), rtol=1e-7)
    # An input that never changes.
    constant = np.column_stack([X, np.full(len(X), 2020.0)])
    regression(k.Linear(), constant, constant[:4], 0.5).training_loss()


def test_paths_near_rows_and_selection_take_an_offset():
    kernel = KERNELS["Matern32"]
    found = []
    starts = pep.training.starts
    for o in (0.0, np.array([2.46e6, -1e6])):
        model = regression(kernel, X + o, Z + o, 0.5)
        near = model.posterior(near=5).predict_f(NEW + o)
        chosen = starts.greedy_variance(X + o, 5, kernel=kernel).Z.numpy() - o
        by_means = (
            starts.kmeans(X + o, 4, seed=0, minibatches=few) for few in (False, True)
        )
        clusters = [points.Z.numpy() - o for points in by_means]
        found.append(
            tf.nest.flatten([model.paths(3, 16)(NEW + o), near, chosen, clusters])
        )
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-6, atol=1e-6)


def test_parts_take_an_offset():
    """Those in NumPy; of a sum only the stationary part is shifted."""
    rows = RNG.standard_normal((50, 20))
    expected = nearest_rows(rows)(rows[:9] + 0.1, 5)
    np.testing.assert_array_equal(
        nearest_rows(rows + 1e8)(rows[:9] + 1e8 + 0.1, 5), expected
    )
    for kind in ("SquaredExponential", "Matern52", "Cosine"):
        kernel = {"kind": kind, "active_dims": slice(None), "variance": 1.0}
        kernel["lengthscales"] = np.array([0.2, 0.3])
        near, far = (covariance_with(kernel, Z + o)(X + o) for o in (0.0, 2.46e6))
        np.testing.assert_allclose(far, near, rtol=1e-8, atol=1e-10)
    kernel = k.Linear(1e-8) + k.RBF(1.0, 0.15)
    o = 2000.0
    exact = 1e-8 * (X + o) @ (Z + o).T + k.RBF(1.0, 0.15)(X, Z)
    np.testing.assert_allclose(centred(kernel)(X + o, Z + o), exact, rtol=1e-12)


class MyOwn(k.Kernel):
    """It has squared distances from products."""

    def K(self, X, X2=None):
        return tf.exp(-gpflow.utilities.ops.square_distance(X, X2))

    def K_diag(self, X):
        return tf.ones_like(X[..., 0])


class Warped(k.RBF):
    """A function of differences of something else."""

    def scale(self, X):
        return None if X is None else tf.square(X)


@pytest.mark.parametrize(
    "kernel",
    [
        MyOwn(),
        k.Linear() + k.RBF(),
        Warped(),
        k.Polynomial(60.0),
        k.SharedIndependent(k.Polynomial(), 1),
    ],
)
def test_other_kernels_far_from_0_are_refused(kernel):
    tied(kernel, X + 100.0, Z + 100.0, 0.5)
    with pytest.raises(
        ValueError, match=r"X: got an input of size 2.46e.06 .* Subtract the same"
    ):
        tied(kernel, X + 2.46e6, Z + 2.46e6, 0.5)
    if not isinstance(kernel, k.MultioutputKernel):
        with pytest.raises(ValueError, match="not stationary"):
            regression(kernel, X + 2.46e6, Z[:1] + 2.46e6, 0.5)


class OfDifferences(k.Kernel):
    """It loses no digits: it subtracts inputs."""

    def K(self, X, X2=None):
        other = X if X2 is None else X2
        return tf.exp(-tf.reduce_sum(tf.abs(X[:, None] - other), axis=-1))

    def K_diag(self, X):
        return tf.ones_like(X[:, 0])


@pytest.mark.parametrize("kind", [k.Matern12, k.Exponential, k.RBF, k.Matern52])
@pytest.mark.parametrize(("dtype", "scale"), [(np.float64, 1e5), (np.float32, 10.0)])
def test_many_lengthscales_between_rows_are_no_fault_of_K_diag(kind, dtype, scale):
    """Rounding of squared distances is no other variance: Y is of the prior, far from
    all Z.
    """
    rows = np.random.default_rng(2).uniform(0.0, 3.0 * scale, (40, 13)).astype(dtype)
    with gpflow.config.as_context(gpflow.config.Config(float=dtype, jitter=1e-4)):
        model = pep.PEPRegression((rows, rows[:, :1]), kind(), rows[:8].copy())
        _, variance = model.predict_f(rows[20:] + np.asarray(5.0 * scale, dtype))
    np.testing.assert_allclose(variance, 1.0, rtol=1e-3)


def test_kernels_that_register_their_subclasses_are_as_they_were():
    kinds = {}

    class Registered(k.RBF):
        def __init_subclass__(cls, *, tag, **options):
            super().__init_subclass__(**options)
            kinds[cls.__name__] = tag, cls

    class Mine(Registered, tag=1):
        pass

    loss = regression(Mine(1.0, 0.2), X, Z, 0.5).training_loss()
    np.testing.assert_allclose(
        loss, regression(k.RBF(1.0, 0.2), X, Z, 0.5).training_loss()
    )
    assert kinds == {"Mine": (1, Mine)}


# Which rows are near: scales of inputs, and both ways to find the nearest rows.

ROWS = np.random.default_rng(0).standard_normal([50, 3]) * [1.0, 10.0, 0.1] + [
    0.0,
    3.0,
    1e3,
]
STD = ROWS.std(axis=0)
EACH = k.Matern32(lengthscales=[1.0, 2.0, 3.0])
SCALES = [
    (k.RBF(lengthscales=0.7), [0.7, 0.7, 0.7]),
    (EACH, [1.0, 2.0, 3.0]),
    (EACH + k.RationalQuadratic(lengthscales=1.5), [1.0, 1.5, 1.5]),  # the smallest
    (
        k.RBF(1.0, [0.5, 0.2], active_dims=[2, 0]) + k.Constant() + k.White(),
        [0.2, np.inf, 0.5],
    ),
    (k.RBF(lengthscales=0.3, active_dims=slice(1, 3)), [np.inf, 0.3, 0.3]),
    (
        k.RBF(1.0, 0.5, active_dims=[0]) * k.Linear(active_dims=[0, 1]),
        [0.5, STD[1], np.inf],
    ),
    (k.Linear() + k.Constant(), STD),  # no lengthscale
    (k.Periodic(k.RBF(lengthscales=0.5)), STD),
    (k.ChangePoints([k.Matern32(1.0, 2.0), k.Matern32(1.0, 0.4)], [0.0]), [0.4] * 3),
]


@pytest.mark.parametrize("kernel, expected", SCALES)
def test_scales(kernel, expected):
    """An input that never changes has the scale 1 where the kernel has none."""
    np.testing.assert_allclose(
        input_scales(kernel, tf.constant(ROWS)), expected, rtol=1e-12
    )
    constant = tf.constant(np.where([True, False, True], ROWS, 4.0))
    np.testing.assert_allclose(
        input_scales(k.Linear(), constant), [STD[0], 1.0, STD[2]], 1e-8
    )


@pytest.mark.parametrize("m", [0, 1, 4, 50])
def test_nearest(m, monkeypatch):
    monkeypatch.setattr(chunks, "CHUNK_ELEMENTS", 150)
    scaled = ROWS / STD
    rows = tf.constant(ROWS / STD)
    new = scaled[:7] + 0.3 * np.random.default_rng(1).standard_normal([7, 3])
    squares = np.sum((new[:, None] - scaled[None]) ** 2, axis=-1)
    expected = np.argsort(squares, axis=1)[:, :m]
    spec = [tf.TensorSpec([None, 3], tf.float64)]
    unknown = tf.function(
        lambda Xnew: nearest_by_products(rows, Xnew, m), input_signature=spec
    )
    for num_new in (0, 1, 7):
        some = tf.constant(new[:num_new])
        found = (
            nearest_rows(scaled)(new[:num_new], m),
            nearest_by_products(rows, some, m),
        )
        for actual in (*found, unknown(some)):
            np.testing.assert_array_equal(actual, expected[:num_new])
    with pytest.raises(ValueError, match="near: got 51"):
        nearest_by_products(rows, rows, 51)
