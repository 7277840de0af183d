"""Parts of models in NumPy against GPflow, TensorFlow's posteriors, tilted integrals and SciPy."""

import re
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.inducing_variables import InducingPoints
from gpflow.kernels import (
    ArcCosine,
    Constant,
    Cosine,
    Exponential,
    Kernel,
    Linear,
    Matern12,
    Matern32,
    Matern52,
    Periodic,
    Polynomial,
    RationalQuadratic,
    SharedIndependent,
    SquaredExponential,
    White,
)
from gpflow.likelihoods import Bernoulli, Gaussian, MultiClass, Poisson, RobustMax, StudentT
from numpy.testing import assert_allclose
from scipy.integrate import quad
from scipy.stats import norm

import gpflow_pep as pep
from gpflow_pep.engine.factors import num_classes
from gpflow_pep.engine.numerics.nearest_in_numpy import nearest_rows
from gpflow_pep.estimators.describing import Describer
from gpflow_pep.estimators.numpy_parts import describe_posterior
from gpflow_pep.inducing_variables import BlurredInducingPoints
from gpflow_pep.likelihoods import LogLinear, NoisyLabelBernoulli, Ordinal, predict_mean_and_var
from gpflow_pep.likelihoods import class_probabilities as tilted_probabilities
from gpflow_pep.scoring import ensemble
from gpflow_pep.scoring.kernels import KINDS, covariance_with, variance_of
from gpflow_pep.scoring.largest import prob_each_largest
from gpflow_pep.scoring.likelihoods import check_likelihood, class_probabilities, target_moments
from gpflow_pep.scoring.stored import Reader
from gpflow_pep.scoring.units import Units
from gpflow_pep.training import Ensemble, NearRows
from gpflow_pep.training.choosing.ensemble import EnsemblePosterior, ensemble_posterior

RNG = np.random.default_rng(0)
X, XNEW = RNG.uniform(-2.0, 2.0, (60, 2)), RNG.uniform(-2.0, 2.0, (9, 2))
Y = np.sin(3.0 * X[:, :1]) + 0.1 * RNG.standard_normal((60, 1))
Z = X[::6].copy()
INPUTS, OTHERS = RNG.normal(size=(7, 3)), RNG.normal(size=(5, 3))
WIDE = [0.7, 1.3, 2.1]
KERNELS: dict[str, Callable[[], Kernel]] = {
    "SquaredExponential": lambda: SquaredExponential(1.7, WIDE),
    "one lengthscale": lambda: SquaredExponential(1.7, 0.8),
    "some columns": lambda: SquaredExponential(1.7, [0.5, 0.9], active_dims=[2, 0]),
    "a slice from the end": lambda: Linear(active_dims=slice(-2, None)),
    "a slice of columns": lambda: Matern32(1.7, [0.5, 0.9], active_dims=slice(0, 3, 2)),
    "Matern12": lambda: Matern12(0.6, WIDE),
    "Matern32": lambda: Matern32(0.6, WIDE),
    "Matern52": lambda: Matern52(0.6, WIDE),
    "Exponential": lambda: Exponential(0.6, WIDE),
    "RationalQuadratic": lambda: RationalQuadratic(0.6, WIDE, alpha=0.4),
    "Linear": lambda: Linear([0.3, 0.2, 1.1]),
    "Constant": lambda: Constant(2.5),
    "White": lambda: White(2.5),
    "Cosine": lambda: Cosine(1.2, WIDE),
    "Periodic": lambda: Periodic(SquaredExponential(1.1, WIDE), period=[1.0, 2.0, 3.0]),
    "Periodic of a distance": lambda: Periodic(Matern32(1.1, 0.7, active_dims=[1]), period=1.5),
    "Sum": lambda: SquaredExponential(active_dims=[0]) + Linear(0.2) + White(0.1),
    "Product": lambda: (Matern12(0.6) + Constant(0.3)) * RationalQuadratic(active_dims=[1, 2]),
}


def read(value: Any) -> Any:
    """An object, or a posterior, as the scorer reads it."""
    describe = Describer(values=True)
    if isinstance(value, EnsemblePosterior):
        return Reader(describe.arrays)(describe_posterior(value, describe))
    return Reader(describe.arrays)(describe(value, "part"))


# Kernels.


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_is_gpflows(name: str) -> None:
    kernel = KERNELS[name]()
    described = read(kernel)
    close = {"rtol": 1e-12, "atol": 1e-13}
    assert_allclose(covariance_with(described, OTHERS)(INPUTS), kernel(INPUTS, OTHERS), **close)
    assert_allclose(variance_of(described)(INPUTS), kernel(INPUTS, full_cov=False), rtol=1e-12)
    groups, others = INPUTS[[[0, 1, 2], [4, 5, 6]]], OTHERS[[[0, 3], [1, 2]]]
    expected = [kernel(*pair) for pair in zip(groups, others, strict=True)]
    assert_allclose(covariance_with(described, others)(groups), expected, **close)


def test_no_kind_is_forgotten() -> None:
    assert {read(make())["kind"] for make in KERNELS.values()} == {*KINDS}


@pytest.mark.parametrize("kernel", [Matern12(0.6), SquaredExponential(0.6)])
def test_rows_that_are_inducing_inputs(kernel: Kernel) -> None:
    """Rounding can make the squared distance negative there."""
    diagonal = np.diag(covariance_with(read(kernel), OTHERS)(OTHERS.copy()))
    assert_allclose(diagonal, 0.6, rtol=1e-7)


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
    for new, tilted in zip(found, predict_mean_and_var(likelihood, ROWS, *moments), strict=True):
        assert_allclose(new, tilted, rtol=1e-12)


CLASSES: dict[str, tuple[Any, int]] = {
    "Bernoulli": (Bernoulli(), 1),
    **{
        f"RobustMax of {C}, {epsilon:g}": (MultiClass(C, invlink=RobustMax(C, epsilon)), C)
        for C in (2, 3, 8)
        for epsilon in (1e-3, 0.05)
    },
    "Softmax of 3": (gpflow.likelihoods.Softmax(3), 3),
    "Softmax of 10": (gpflow.likelihoods.Softmax(10), 10),
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
    expected = tilted_probabilities(likelihood, np.zeros((20, 1)), mean, variance, number)
    assert probability.shape == (20, number)
    rtol, atol = (0.0, 1e-10) if "Robust" in name else (1e-8, 1e-14)
    assert_allclose(probability, expected, rtol=rtol, atol=atol)


@pytest.mark.parametrize(
    "mean, variance",
    [
        ([0.3, -0.2, 0.5], [1.0, 0.5, 2.0]),
        ([0.0, 1e-3, 0.1], [1e-8, 4.0, 1e-4]),
        ([0.2, 0.1, 0.0], [25.0, 1e-6, 1e-6]),
        ([8.0, 0.0, -3.0], [0.3, 0.2, 0.1]),
    ],
)
def test_the_largest_against_adaptive_quadrature(mean: list[float], variance: list[float]) -> None:
    m, s = np.array(mean), np.sqrt(variance)

    def integral(c: int) -> float:
        others = [k for k in range(3) if k != c]

        def integrand(t: float) -> float:
            f = m[c] + s[c] * t
            return float(norm.pdf(t) * np.prod(norm.cdf((f - m[others]) / s[others])))

        steps = sorted((m[k] + z * s[k] - m[c]) / s[c] for k in others for z in (-6.0, 0.0, 6.0))
        parts = pairwise([-9.0, *(step for step in steps if -9.0 < step < 9.0), 9.0])
        return sum(quad(integrand, *part, epsabs=1e-13, epsrel=1e-12)[0] for part in parts)

    probability = prob_each_largest(m[None], s[None] ** 2)[0]
    assert_allclose(probability, [integral(c) for c in range(3)], atol=1e-10)
    assert_allclose(probability.sum(), 1.0, atol=1e-10)


def test_variance_0_decides() -> None:
    probability = prob_each_largest(np.array([[0.1, 0.2]]), np.zeros((1, 2)))
    assert_allclose(probability, [[0.0, 1.0]], atol=1e-12)


# Ensembles.


def three() -> EnsemblePosterior:
    options = ((0.0, 0.05), (0.5, 0.01), (1.0, 0.4))
    models = [
        pep.PEPRegression(
            (X, Y), SquaredExponential(1.2, [0.9, 1.1]), Z + a, alpha=a, noise_variance=noise
        )
        for a, noise in options
    ]
    return ensemble_posterior(Ensemble(models, np.array([0.2, 0.5, 0.3])))


def assert_same_moments(
    component: Any, predict: Callable[[Any], Any], sets: list[Any], atol: float = 1e-11, **rtol: Any
) -> None:
    for rows in sets:
        for new, expected in zip(ensemble.latent_moments(component, rows), predict(rows)):
            assert_allclose(new, expected, **{"rtol": 1e-10, "atol": atol, **rtol})


def test_a_mixture(monkeypatch: pytest.MonkeyPatch) -> None:
    posterior = three()
    prepared = ensemble.ensemble_of(read(posterior))
    for component, tensors in zip(prepared.components, posterior.posteriors, strict=True):
        assert_same_moments(component, tensors.predict_f, [XNEW, XNEW[:1]])
    found = ensemble.predictive(prepared, XNEW, Units())
    moments, y = found.moments(), RNG.normal(size=(9, 1))
    assert_allclose(moments, [part[:, 0] for part in posterior.predict_y(XNEW)], rtol=1e-10)
    expected = posterior.predict_log_density((XNEW, y))
    assert_allclose(found.log_densities(y[:, 0]), expected, rtol=1e-10)
    q = np.array([1e-4, 0.05, 0.31, 0.5, 0.95, 0.999])
    expected = posterior.predict_quantiles(XNEW, q)[:, 0]
    assert_allclose(found.quantiles(q), expected, rtol=1e-10, atol=1e-11)
    monkeypatch.setattr(ensemble, "CHUNK", 4)
    chunks = ensemble.predictive(prepared, XNEW, Units())
    assert_allclose(chunks.moments(), moments, rtol=1e-12)


@pytest.mark.parametrize("q_diag", [False, True])
def test_moments_of_several_latent_functions(q_diag: bool) -> None:
    q_sqrt = RNG.uniform(0.2, 0.9, (10, 3)) if q_diag else np.tril(RNG.normal(size=(3, 10, 10)))
    parts = Matern52(0.8, [0.9, 1.1]), InducingPoints(Z), RNG.normal(size=(10, 3)), q_sqrt
    posterior = gpflow.posteriors.create_posterior(*parts, whiten=True)
    mixed = EnsemblePosterior([posterior], [posterior], [MultiClass(3)], [1.0])
    component = ensemble.ensemble_of(read(mixed)).components[0]
    assert_same_moments(component, posterior.predict_f, [XNEW])


# Near rows.

NEAR_KERNELS = {
    "one": lambda: Matern32(lengthscales=[0.3, 0.9]),
    "unused input": lambda: SquaredExponential(lengthscales=[0.4], active_dims=[0]),
    "sum": lambda: Matern32(0.7, 0.4) + Linear([0.2, 0.1]) + White(0.05) + Constant(0.3),
    "product": lambda: Matern32(lengthscales=0.4) * (Constant(0.5) + White(0.02)),
}


def near_component(model: Any, near: NearRows) -> Any:
    return ensemble.ensemble_of(read(Ensemble([model], near=[near]).posterior())).components[0]


@pytest.mark.parametrize("labels", [False, True])
@pytest.mark.parametrize("kernel", NEAR_KERNELS)
def test_near_rows(kernel: str, labels: bool) -> None:
    numbers = ((0.0, NearRows(7)), (0.5, NearRows(1, 0.2)), (1.0, NearRows(60, 0.01)))
    for alpha, near in ((1.0, NearRows(1)), (1.0, NearRows(12))) if labels else numbers:
        made = NEAR_KERNELS[kernel]()
        if labels:
            wrong = np.arange(60)[:, None] % 7 == 0
            model = pep.PEP((X, 1.0 * ((Y > 0.0) ^ wrong)), made, Bernoulli(), X[:4], alpha=alpha)
            model.kernel.trainable_parameters[0].assign(made.trainable_parameters[0] * 5.0)
        else:
            model = pep.PEPRegression((X, Y), made, X[::9], noise_variance=0.1, alpha=alpha)
        predict = lambda rows, model=model, near=near: model.predict_f(rows, near=near)  # noqa: E731
        sets = [XNEW, XNEW[3:4], X[:4]]
        assert_same_moments(near_component(model, near), predict, sets, atol=1e-10, rtol=1e-8)


def test_the_nearest_in_many_dimensions() -> None:
    rows, new = RNG.standard_normal((400, 17)), RNG.standard_normal((5, 17))
    squares = np.sum((new[:, None] - rows) ** 2, axis=-1)
    for number in (1, 6, 400):
        expected = np.argsort(squares, axis=1)[:, :number]
        np.testing.assert_array_equal(nearest_rows(rows)(new, number), expected)
    assert nearest_rows(rows)(new[:0], 3).shape == (0, 3)


# What is refused.


class OwnKernel(SquaredExponential):
    """A user's, whose name is not GPflow's."""


def kernel(kernel: Kernel) -> Any:
    return covariance_with(read(kernel), OTHERS)


def likelihood(likelihood: Any) -> Any:
    return check_likelihood(read(likelihood))


def parts(kernel: Kernel, points: Any = Z, near: Any = None, **options: Any) -> Any:
    model = pep.PEPRegression((X, Y), kernel, points, **options)
    return read(ensemble_posterior(model)) if near is None else near_component(model, near)


def changed(**parts: Any) -> Any:
    described = read(three())
    for component in described["components"]:
        component |= parts
    return ensemble.ensemble_of(described)


LOG_COUNTS = {"kind": "Poisson", "binsize": 1.0, "invlink": {"function": "exp"}}
OF_ALL = {"kind": "Linear", "active_dims": slice(None), "variance": 1.0}
SAVE = ".*(save_estimator|Checkpoint)"
BLURRED = BlurredInducingPoints(Z, np.tile(np.eye(2), (10, 1, 1)))
LINE, TWO = gpflow.functions.Linear(np.ones((2, 1))), gpflow.functions.Constant(2.0)
PAIR = np.zeros((1, 1)), np.ones((1, 1))
REFUSED: dict[str, Callable[[], Any]] = {
    r"kernel: got .*\.OwnKernel, expected one of GPflow's" + SAVE: lambda: kernel(OwnKernel()),
    "part: got a .*SquaredExponential, expected a class that has a name": (
        lambda: kernel(type("SquaredExponential", (SquaredExponential,), {})())
    ),
    "kernel: got ArcCosine, expected one of GPflow's" + SAVE: lambda: kernel(ArcCosine()),
    "kernel: got Polynomial" + SAVE: lambda: kernel(SquaredExponential() + Polynomial()),
    r"kernel: got Periodic of .*\.OwnKernel, expected": lambda: kernel(Periodic(OwnKernel())),
    "kernel: got SharedIndependent, expected one of GPflow's": (
        lambda: kernel(SharedIndependent(SquaredExponential(), 2))
    ),
    "kernel: got Wavelet, expected one": lambda: covariance_with({"kind": "Wavelet"}, OTHERS),
    "kernel: got Wavelet, expected one of": lambda: variance_of({"kind": "Wavelet"}),
    "likelihood: got gpflow_pep.likelihoods.NoisyLabelBernoulli" + SAVE: (
        lambda: likelihood(NoisyLabelBernoulli())
    ),
    "likelihood: got Bernoulli with" + SAVE: lambda: likelihood(Bernoulli(invlink=tf.sigmoid)),
    "likelihood: got Poisson with" + SAVE: lambda: likelihood(Poisson(invlink=tf.nn.softplus)),
    "likelihood: got StudentT with" + SAVE: lambda: likelihood(StudentT(df=1.5)),
    "likelihood: got Gaussian with noise that" + SAVE: lambda: likelihood(Gaussian(variance=LINE)),
    "likelihood: got StudentT with noise that" + SAVE: lambda: likelihood(StudentT(scale=LINE)),
    "part: got a .*Gaussian, expected a class that has a name" + SAVE: (
        lambda: likelihood(type("Gaussian", (Gaussian,), {})())
    ),
    "likelihood: got Beta, expected one of Gaussian": (
        lambda: target_moments({"kind": "Beta"}, ROWS[:1], *PAIR)
    ),
    "likelihood: got Gaussian, expected one of Bernoulli": (
        lambda: class_probabilities({"kind": "Gaussian"}, *PAIR)
    ),
    "mean_function: got L.*, expected " + SAVE: lambda: parts(Matern32(), mean_function=LINE),
    "BlurredInducing.*, expected " + SAVE: lambda: parts(SquaredExponential(), BLURRED),
    "mean_function: got Constant, expected none or Zero": (
        lambda: parts(Matern32(), mean_function=TWO, near=NearRows(3, 0.1))
    ),
    "got the likelihood Poisson, expected Gaussian noise": lambda: ensemble.predictive(
        changed(likelihood=LOG_COUNTS), XNEW, Units()
    ).quantiles(np.array([0.5])),
    "prediction: got NaN": (
        lambda: ensemble.predictive(changed(kernel=OF_ALL), np.full((1, 2), 1e200), Units())
    ),
}


@pytest.mark.parametrize("message", REFUSED)
def test_refused(message: str) -> None:
    with np.errstate(all="ignore"), pytest.raises(ValueError) as caught:
        REFUSED[message]()
    assert re.search(f"(?s){message}", str(caught.value)), caught.value
