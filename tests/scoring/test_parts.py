"""Parts of models in NumPy against GPflow, TensorFlow's posteriors, tilted integrals
and SciPy.
"""

from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow import kernels as k
from gpflow.inducing_variables import InducingPoints
from gpflow.likelihoods import (
    Bernoulli,
    Gaussian,
    MultiClass,
    Poisson,
    RobustMax,
    StudentT,
)
from helpers import refusals
from numpy.testing import assert_allclose
from scipy.stats import multivariate_normal

import gpflow_pep as pep
from gpflow_pep.distributions import Units
from gpflow_pep.engine.factors import num_classes
from gpflow_pep.engine.numerics.nearest_in_numpy import nearest_rows
from gpflow_pep.estimators.single.describing import Describer
from gpflow_pep.estimators.single.numpy_parts import describe_posterior
from gpflow_pep.inducing_variables import BlurredInducingPoints
from gpflow_pep.likelihoods import (
    LogLinear,
    NoisyLabelBernoulli,
    Ordinal,
    predict_mean_and_var,
)
from gpflow_pep.likelihoods import class_probabilities as tilted_probabilities
from gpflow_pep.scoring import components
from gpflow_pep.scoring.kernels import KINDS, covariance_with, variance_of
from gpflow_pep.scoring.largest import prob_each_largest
from gpflow_pep.scoring.likelihoods import (
    check_likelihood,
    class_probabilities,
    target_moments,
)
from gpflow_pep.scoring.stored import Reader
from gpflow_pep.training import Ensemble, NearRows
from gpflow_pep.training.choosing.ensemble import EnsemblePosterior, ensemble_posterior

RNG = np.random.default_rng(0)
X = RNG.uniform(-2.0, 2.0, (60, 2))
XNEW = RNG.uniform(-2.0, 2.0, (9, 2))
Y = np.sin(3.0 * X[:, :1]) + 0.1 * RNG.standard_normal((60, 1))
Z = X[::6].copy()
INPUTS = RNG.normal(size=(7, 3))
OTHERS = RNG.normal(size=(5, 3))
WIDE = [0.7, 1.3, 2.1]
KERNELS: dict[str, Callable[[], k.Kernel]] = {
    "SquaredExponential": lambda: k.SquaredExponential(1.7, WIDE),
    "one lengthscale": lambda: k.SquaredExponential(1.7, 0.8),
    "some columns": lambda: k.SquaredExponential(1.7, [0.5, 0.9], active_dims=[2, 0]),
    "a slice from the end": lambda: k.Linear(active_dims=slice(-2, None)),
    "a slice of columns": lambda: k.Matern32(
        1.7, [0.5, 0.9], active_dims=slice(0, 3, 2)
    ),
    **{
        name: lambda name=name: getattr(k, name)(0.6, WIDE)
        for name in ("Matern12", "Matern32", "Matern52", "Exponential", "Cosine")
    },
    "RationalQuadratic": lambda: k.RationalQuadratic(0.6, WIDE, alpha=0.4),
    "Linear": lambda: k.Linear([0.3, 0.2, 1.1]),
    "Constant": lambda: k.Constant(2.5),
    "White": lambda: k.White(2.5),
    "Periodic": lambda: k.Periodic(
        k.SquaredExponential(1.1, WIDE), period=[1.0, 2.0, 3.0]
    ),
    "Periodic of a distance": lambda: k.Periodic(
        k.Matern32(1.1, 0.7, active_dims=[1]), 1.5
    ),
    "Sum": lambda: k.SquaredExponential(active_dims=[0]) + k.Linear(0.2) + k.White(0.1),
    "Product": lambda: (
        (k.Matern12(0.6) + k.Constant(0.3)) * k.RationalQuadratic(1.0, 1.0, 1.0, [1, 2])
    ),
}


def read(value: Any) -> Any:
    """An object, or a posterior, as the scorer reads it."""
    describe = Describer(values=True)
    if isinstance(value, EnsemblePosterior):
        return Reader(describe.arrays)(describe_posterior(value, describe))
    return Reader(describe.arrays)(describe(value, "part"))


def mixture(described: Any) -> Any:
    return [*map(components.component_of, described["components"])]


# Kernels.


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_is_gpflows(name: str) -> None:
    kernel = KERNELS[name]()
    described = read(kernel)
    close = {"rtol": 1e-12, "atol": 1e-13}
    assert_allclose(
        covariance_with(described, OTHERS)(INPUTS), kernel(INPUTS, OTHERS), **close
    )
    assert_allclose(
        variance_of(described)(INPUTS), kernel(INPUTS, full_cov=False), rtol=1e-12
    )
    groups = INPUTS[[[0, 1, 2], [4, 5, 6]]]
    others = OTHERS[[[0, 3], [1, 2]]]
    expected = [kernel(*pair) for pair in zip(groups, others, strict=True)]
    assert_allclose(covariance_with(described, others)(groups), expected, **close)
    # Rounding can make a squared distance negative.
    if name.startswith(("Matern12", "Squared")):
        diagonal = np.diag(covariance_with(described, OTHERS)(OTHERS.copy()))
        assert_allclose(diagonal, kernel.variance.numpy(), rtol=1e-7)


def test_no_kind_is_forgotten() -> None:
    assert {read(make())["kind"] for make in KERNELS.values()} == {*KINDS}


# Likelihoods.

ROWS = RNG.normal(size=(9, 1))
ROWS[1], ROWS[4], ROWS[7] = 5.0, -80.0, np.nan
VARYING = LogLinear(1, variance=0.2)
VARYING.weights.assign([[0.7]])
NUMBERS = [
    *(Gaussian(0.3), Gaussian(scale=0.7), Gaussian(variance=VARYING)),
    *(StudentT(0.4, df=3.5), Poisson(), Poisson(binsize=0.2)),
]


@pytest.mark.parametrize("likelihood", NUMBERS)
def test_moments_of_numbers(likelihood: Any) -> None:
    moments = RNG.normal(size=(9, 1)), RNG.uniform(0.0, 2.0, size=(9, 1))
    check_likelihood(read(likelihood))
    found = target_moments(read(likelihood), ROWS, *moments)
    for new, tilted in zip(
        found, predict_mean_and_var(likelihood, ROWS, *moments), strict=True
    ):
        assert_allclose(new, tilted, rtol=1e-12)


CLASSES: dict[str, tuple[Any, int]] = {
    "Bernoulli": (Bernoulli(), 1),
    **{
        f"RobustMax of {C}, {epsilon:g}": (
            MultiClass(C, invlink=RobustMax(C, epsilon)),
            C,
        )
        for C in (2, 3, 8)
        for epsilon in (1e-3, 0.05)
    },
    **{f"Softmax of {C}": (gpflow.likelihoods.Softmax(C), C) for C in (3, 10)},
    "GPflow's ordinal": (gpflow.likelihoods.Ordinal(np.array([-1.0, 0.5, 0.6])), 1),
    "ordinal": (Ordinal([-1.0, 0.5, 0.6], sigma=0.7), 1),
}


@pytest.mark.parametrize("name", CLASSES)
def test_probabilities_of_classes(name: str) -> None:
    likelihood, num_latent = CLASSES[name]
    number = 2 if name == "Bernoulli" else num_classes(likelihood)
    mean = 2.0 * RNG.normal(size=(20, num_latent))
    variance = 10.0 ** RNG.uniform(-3.0, 2.0, size=mean.shape)
    check_likelihood(read(likelihood))
    probability = class_probabilities(read(likelihood), mean, variance)
    expected = tilted_probabilities(
        likelihood, np.zeros((20, 1)), mean, variance, number
    )
    assert probability.shape == (20, number)
    rtol, atol = (0.0, 1e-10) if "Robust" in name else (1e-8, 1e-14)
    assert_allclose(probability, expected, rtol=rtol, atol=atol)


MEANS = np.array(
    [[0.3, -0.2, 0.5], [0.0, 1e-3, 0.1], [0.2, 0.1, 0.0], [8.0, 0.0, -3.0]]
)
VARIANCES = np.array(
    [[1.0, 0.5, 2.0], [1e-8, 4.0, 1e-4], [25.0, 1e-6, 1e-6], [0.3, 0.2, 0.1]]
)


def test_the_largest_by_bivariate_normals() -> None:
    """The differences of the others from it are below 0."""
    found = prob_each_largest(MEANS, VARIANCES)
    for m, v, probability in zip(MEANS, VARIANCES, found, strict=True):
        for c in range(3):
            A = np.delete(np.eye(3), c, axis=0) - np.eye(3)[c]
            expected = multivariate_normal.cdf(np.zeros(2), A @ m, (A * v) @ A.T)
            assert_allclose(probability[c], expected, atol=1e-10)
    assert_allclose(found.sum(axis=1), 1.0, atol=1e-10)
    decided = prob_each_largest(MEANS, np.zeros((4, 3)))  # a variance of 0 decides
    assert_allclose(
        decided, np.arange(3) == np.argmax(MEANS, axis=1)[:, None], atol=1e-12
    )


# Ensembles.


def three() -> EnsemblePosterior:
    def model(a: float, noise: float) -> pep.PEPRegression:
        parts = (X, Y), k.SquaredExponential(1.2, [0.9, 1.1]), Z + a
        return pep.PEPRegression(*parts, alpha=a, noise_variance=noise)

    models = [model(0.0, 0.05), model(0.5, 0.01), model(1.0, 0.4)]
    return ensemble_posterior(Ensemble(models, np.array([0.2, 0.5, 0.3])))


def assert_same_moments(
    component: Any, predict: Any, sets: list[Any], **tolerance: Any
) -> None:
    tolerance = {"rtol": 1e-10, "atol": 1e-11, **tolerance}
    for rows in sets:
        for new, expected in zip(
            components.latent_moments(component, rows), predict(rows)
        ):
            assert_allclose(new, expected, **tolerance)


def test_a_mixture(monkeypatch: pytest.MonkeyPatch) -> None:
    posterior = three()
    prepared = mixture(read(posterior))
    weights = posterior.weights.numpy()
    for component, tensors in zip(prepared, posterior.posteriors, strict=True):
        assert_same_moments(component, tensors.predict_f, [XNEW, XNEW[:1]])
    found = components.predictive(prepared, weights, XNEW, Units())
    moments = found.moments()
    y = RNG.normal(size=(9, 1))
    assert_allclose(
        moments, [part[:, 0] for part in posterior.predict_y(XNEW)], rtol=1e-10
    )
    expected = posterior.predict_log_density((XNEW, y))
    assert_allclose(found.log_densities(y[:, 0]), expected, rtol=1e-10)
    q = np.array([1e-4, 0.05, 0.31, 0.5, 0.95, 0.999])
    expected = posterior.predict_quantiles(XNEW, q)[:, 0]
    assert_allclose(found.quantiles(q), expected, rtol=1e-10, atol=1e-11)
    monkeypatch.setattr(components, "CHUNK", 4)
    chunks = components.predictive(prepared, weights, XNEW, Units())
    assert_allclose(chunks.moments(), moments, rtol=1e-12)


@pytest.mark.parametrize("wide", [False, True])
def test_moments_of_several_latent_functions(wide: bool) -> None:
    # With a wide q(v) the variance is larger than the prior's in some direction.
    root = (1.0 if wide else 0.05) * np.tril(RNG.normal(size=(3, 10, 10)))
    model = pep.models.APEP(
        k.Matern52(0.8, [0.9, 1.1]),
        MultiClass(3),
        InducingPoints(Z),
        num_data=60,
        num_latent_gps=3,
        q_mu=RNG.normal(size=(10, 3)),
        q_sqrt=root,
    )
    posterior = model.posterior()
    described = describe_posterior(
        EnsemblePosterior([posterior], [model], [MultiClass(3)], [1.0]),
        Describer(values=True),
    )
    assert ("roots" in described["components"][0]) is not wide
    mixed = EnsemblePosterior([posterior], [model], [MultiClass(3)], [1.0])
    component = mixture(read(mixed))[0]
    assert_same_moments(component, model.predict_f, [XNEW])


# Near rows.

NEAR_KERNELS = {
    "one": lambda: k.Matern32(lengthscales=[0.3, 0.9]),
    "unused input": lambda: k.SquaredExponential(lengthscales=[0.4], active_dims=[0]),
    "sum": lambda: (
        k.Matern32(0.7, 0.4) + k.Linear([0.2, 0.1]) + k.White(0.05) + k.Constant(0.3)
    ),
    "product": lambda: k.Matern32(lengthscales=0.4) * (k.Constant(0.5) + k.White(0.02)),
}


def near_component(model: Any, near: NearRows) -> Any:
    return mixture(read(Ensemble([model], near=[near]).posterior()))[0]


@pytest.mark.near_copies("sum-True", "one-False")
@pytest.mark.parametrize("labels", [False, True])
@pytest.mark.parametrize("kernel", NEAR_KERNELS)
def test_near_rows(kernel: str, labels: bool) -> None:
    numbers = ((0.0, NearRows(7)), (0.5, NearRows(1, 0.2)), (1.0, NearRows(60, 0.01)))
    for alpha, near in ((1.0, NearRows(1)), (1.0, NearRows(12))) if labels else numbers:
        made = NEAR_KERNELS[kernel]()
        if labels:
            wrong = np.arange(60)[:, None] % 7 == 0
            model = pep.PEP(
                (X, 1.0 * ((Y > 0.0) ^ wrong)), made, Bernoulli(), X[:4], alpha=alpha
            )
            model.kernel.trainable_parameters[0].assign(
                made.trainable_parameters[0] * 5.0
            )
        else:
            model = pep.PEPRegression(
                (X, Y), made, X[::9], noise_variance=0.1, alpha=alpha
            )

        def predict(rows, model=model, near=near):
            return model.predict_f(rows, near=near)

        sets = [XNEW, XNEW[3:4], X[:4]]
        assert_same_moments(
            near_component(model, near), predict, sets, atol=1e-10, rtol=1e-8
        )


def test_the_nearest_in_many_dimensions() -> None:
    rows = RNG.standard_normal((400, 17))
    new = RNG.standard_normal((5, 17))
    squares = np.sum((new[:, None] - rows) ** 2, axis=-1)
    for number in (1, 6, 400):
        expected = np.argsort(squares, axis=1)[:, :number]
        np.testing.assert_array_equal(nearest_rows(rows)(new, number), expected)
    assert nearest_rows(rows)(new[:0], 3).shape == (0, 3)


# What is refused.


class OwnKernel(k.SquaredExponential):
    """A user's, whose name is not GPflow's."""


def kernel(kernel: k.Kernel) -> Any:
    return covariance_with(read(kernel), OTHERS)


def likelihood(likelihood: Any) -> Any:
    return check_likelihood(read(likelihood))


def parts(kernel: k.Kernel, points: Any = Z, near: Any = None, **options: Any) -> Any:
    model = pep.PEPRegression((X, Y), kernel, points, **options)
    return (
        read(ensemble_posterior(model)) if near is None else near_component(model, near)
    )


def changed(**parts: Any) -> Any:
    described = read(three())
    for component in described["components"]:
        component |= parts
    return mixture(described)


LOG_COUNTS = {"kind": "Poisson", "binsize": 1.0, "invlink": {"function": "exp"}}
OF_ALL = {"kind": "Linear", "active_dims": slice(None), "variance": 1.0}
SAVE = ".*(save_estimator|Checkpoint)"
BLURRED = BlurredInducingPoints(Z, np.tile(np.eye(2), (10, 1, 1)))
LINE = gpflow.functions.Linear(np.ones((2, 1)))
TWO = gpflow.functions.Constant(2.0)
PAIR = np.zeros((1, 1)), np.ones((1, 1))
REFUSED: dict[str, Callable[[], Any]] = {
    r"kernel: got .*\.OwnKernel, expected one of GPflow's" + SAVE: lambda: kernel(
        OwnKernel()
    ),
    "part: got a .*SquaredExponential, expected a class that its module has": (
        lambda: kernel(type("SquaredExponential", (k.SquaredExponential,), {})())
    ),
    "kernel: got ArcCosine, expected one of GPflow's" + SAVE: lambda: kernel(
        k.ArcCosine()
    ),
    "kernel: got Polynomial" + SAVE: lambda: kernel(
        k.SquaredExponential() + k.Polynomial()
    ),
    r"kernel: got Periodic of .*\.OwnKernel, expected": lambda: kernel(
        k.Periodic(OwnKernel())
    ),
    "kernel: got SharedIndependent, expected one of GPflow's": lambda: kernel(
        k.SharedIndependent(k.SquaredExponential(), 2)
    ),
    "kernel: got Wavelet, expected one": lambda: covariance_with(
        {"kind": "Wavelet"}, OTHERS
    ),
    "kernel: got Wavelet, expected one of": lambda: variance_of({"kind": "Wavelet"}),
    r"got gpflow_pep\.likelihoods\.Noisy" + SAVE: lambda: likelihood(
        NoisyLabelBernoulli()
    ),
    "likelihood: got Bernoulli with" + SAVE: lambda: likelihood(
        Bernoulli(invlink=tf.sigmoid)
    ),
    "likelihood: got Poisson with" + SAVE: lambda: likelihood(
        Poisson(invlink=tf.nn.softplus)
    ),
    "likelihood: got StudentT with" + SAVE: lambda: likelihood(StudentT(df=1.5)),
    "likelihood: got Gaussian with noise that" + SAVE: lambda: likelihood(
        Gaussian(variance=LINE)
    ),
    "likelihood: got StudentT with noise that" + SAVE: lambda: likelihood(
        StudentT(scale=LINE)
    ),
    "part: got a .*Gaussian, expected a class that its module has by this name"
    + SAVE: (lambda: likelihood(type("Gaussian", (Gaussian,), {})())),
    "got Beta, expected one of Gaussian": lambda: target_moments(
        {"kind": "Beta"}, ROWS[:1], *PAIR
    ),
    "got Gaussian, expected one of Bern": lambda: class_probabilities(
        {"kind": "Gaussian"}, *PAIR
    ),
    "mean_function: got L.*, expected " + SAVE: lambda: parts(
        k.Matern32(), mean_function=LINE
    ),
    "BlurredInducing.*, expected " + SAVE: lambda: parts(
        k.SquaredExponential(), BLURRED
    ),
    "mean_function: got Constant, expected none or Zero": lambda: parts(
        k.Matern32(), mean_function=TWO, near=NearRows(3, 0.1)
    ),
    "got the likelihood Poisson, expected Gaussian noise": (
        lambda: components.predictive(
            changed(likelihood=LOG_COUNTS), np.ones(3) / 3.0, XNEW, Units()
        ).quantiles(np.array([0.5]))
    ),
    "prediction: got NaN": lambda: components.predictive(
        changed(kernel=OF_ALL), np.ones(3) / 3.0, np.full((1, 2), 1e200), Units()
    ),
}


test_refused = pytest.mark.filterwarnings("ignore::RuntimeWarning")(refusals(REFUSED))
