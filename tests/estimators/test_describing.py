"""GPflow's objects as JSON and arrays, and back."""

import inspect
import json
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.utilities import parameter_dict, positive
from numpy.testing import assert_array_equal

import gpflow_pep as pep
from gpflow_pep.estimators.single.describing import (
    MODULES,
    Describer,
    Loader,
    check_same,
)

k = gpflow.kernels
lik = gpflow.likelihoods
iv = gpflow.inducing_variables
fun = gpflow.functions
Z = np.random.default_rng(0).normal(size=(4, 2))


def there_and_back(value: Any) -> Any:
    describe = Describer()
    described = json.loads(json.dumps(describe(value, "value"), allow_nan=False))
    loaded = Loader(describe.arrays)(described)
    check_same(loaded, value, "value")
    return loaded


class OwnKernel(gpflow.kernels.SquaredExponential):
    """A user's."""


class Strict(lik.StudentT):
    """A user's, whose constructor checks types and ranges: 0.69, where others start, is
    none.
    """

    def __init__(self, scale: float, df: float = 4.0, *, limit: float = 1.0) -> None:
        if not (isinstance(scale, float) and isinstance(df, float) and scale > limit):
            raise ValueError(f"scale: {scale!r} of {type(scale)} is not above {limit}")
        super().__init__(scale, df)
        self.limit = limit


KERNELS = [
    k.SquaredExponential(variance=0.3, lengthscales=[0.1, 2.0]),
    *(
        k.Matern12(active_dims=[1]),
        k.Matern32(active_dims=slice(0, 2)),
        k.Matern52(name="short"),
    ),
    *(k.RationalQuadratic(alpha=0.3), k.Exponential(), k.Cosine(lengthscales=0.5)),
    *(k.Linear(variance=[1.0, 2.0]), k.Polynomial(degree=4, offset=0.3)),
    k.ArcCosine(order=2, weight_variances=[1.0, 2.0]),
    k.Periodic(k.Matern32(lengthscales=0.4), period=0.7),
    k.ChangePoints([k.Matern32(), k.Linear()], locations=[0.1], steepness=2.0),
    k.Constant(2.0) * k.SquaredExponential() + k.White(0.1),
    k.Coregion(output_dim=3, rank=2, active_dims=[1]) * k.RBF(active_dims=[0]),
    k.Convolutional(k.RBF(), [2, 1], [1, 1]),
    k.SharedIndependent(k.RBF(), output_dim=2),
    k.SeparateIndependent([k.RBF(), k.Matern12()]),
    k.LinearCoregionalization([k.RBF(), k.Matern12()], W=np.ones((3, 2))),
    *(OwnKernel(), k.RBF() + OwnKernel()),
]
BLURRED = pep.inducing_variables.BlurredInducingPoints
PARTS = [
    *(lik.Gaussian(0.3), lik.Gaussian(scale=0.3, variance_lower_bound=1e-3)),
    lik.Gaussian(scale=fun.Linear([[0.1], [0.2]], [0.5])),
    lik.Gaussian(variance=pep.likelihoods.LogLinear(2, variance=0.2)),
    *(lik.StudentT(scale=0.5, df=5.0), lik.Exponential(), lik.Gamma(shape=3.0)),
    *(
        lik.Poisson(binsize=2.0),
        lik.Poisson(invlink=tf.nn.softplus),
        lik.Beta(scale=2.0),
    ),
    *(
        lik.Ordinal(np.array([0.0, 1.0, 2.0])),
        lik.Bernoulli(),
        lik.Bernoulli(invlink=tf.sigmoid),
    ),
    *(lik.MultiClass(3), lik.MultiClass(3, invlink=lik.RobustMax(3, epsilon=0.05))),
    lik.Softmax(3),
    pep.likelihoods.NoisyLabelBernoulli(0.1, link="step"),
    pep.likelihoods.Ordinal([-0.3, 0.1, 2.0], sigma=0.7),
    *(iv.InducingPoints(Z), iv.Multiscale(Z, np.ones_like(Z))),
    iv.SharedIndependentInducingVariables(iv.InducingPoints(Z)),
    iv.SeparateIndependentInducingVariables(
        [iv.InducingPoints(Z), iv.InducingPoints(Z + 1.0)]
    ),
    Strict(2.5, limit=2.0),
    *(
        BLURRED(Z, np.full(4, 0.3)),
        BLURRED(Z, np.abs(Z)),
        BLURRED(Z, Z[:, :, None] * Z[:, None]),
    ),
]


@pytest.mark.parametrize(
    "part", [*KERNELS, *PARTS], ids=lambda part: type(part).__name__
)
def test_parts_come_back(part: Any) -> None:
    found = there_and_back(part)
    values = parameter_dict(found)
    expected = parameter_dict(part)
    assert list(values) == list(expected) and type(found) is type(part)
    for name in expected:
        assert_array_equal(values[name], expected[name])
        assert values[name].trainable == expected[name].trainable
    if part in KERNELS:
        num_inputs = 1 if isinstance(part, k.ChangePoints) else 2
        X = np.abs(np.random.default_rng(1).normal(size=(5, num_inputs))).round()
        assert_array_equal(found(X, full_cov=True), part(X, full_cov=True))


def test_parameters_come_back_whole() -> None:
    kernel = k.RBF()
    prior = tfp.distributions.Gamma(
        gpflow.utilities.to_default_float(2.0), np.float64(3.0)
    )
    kernel.variance = gpflow.Parameter(0.3, transform=positive(0.1, "exp"), prior=prior)
    gpflow.set_trainable(kernel.lengthscales, False)
    found = there_and_back(kernel)
    assert_array_equal(
        found.variance.log_prior_density(), kernel.variance.log_prior_density()
    )
    assert found.variance.transform.forward(0.0) == kernel.variance.transform.forward(
        0.0
    )
    assert not found.lengthscales.trainable


def test_shared_parts_stay_shared() -> None:
    one = k.RBF()
    other = k.Matern32()
    other.lengthscales = one.lengthscales
    found = there_and_back(k.Sum([one, other, k.Product([one, other])]))
    first, second, product = found.kernels
    assert first.lengthscales is second.lengthscales
    assert product.kernels[0] is first


def test_values_at_the_edge_of_their_domain() -> None:
    kernel = k.RBF()
    kernel.variance.unconstrained_variable.assign(-800.0)  # softplus of it is 0
    assert there_and_back(kernel).variance.numpy() == 0.0


def test_which_public_classes_are_not_known() -> None:
    """All other public kernels and likelihoods of GPflow are tested above."""
    tested = {type(part) for value in [*KERNELS, *PARTS] for part in value.submodules}
    tested |= {type(value) for value in [*KERNELS, *PARTS]}
    kinds = {
        kind
        for room in (k, lik)
        for kind in vars(room).values()
        if inspect.isclass(kind)
    }
    public = {kind for kind in kinds if issubclass(kind, gpflow.base.Module)}
    left = {kind.__name__ for kind in public - tested if not inspect.isabstract(kind)}
    assert left <= {
        *("AnisotropicStationary", "IsotropicStationary"),  # bases
        "MultiLatentTFPConditional",  # takes a function
        # Do not keep their arguments.
        *(
            "ArcHierarchical",
            "WedgeHierarchical",
            "GaussianMC",
            "HeteroskedasticTFPConditional",
            "SwitchedLikelihood",
        ),
    }


class Forgetful(lik.Gaussian):
    """A user's, whose constructor takes no value that its objects keep."""

    def __init__(self, variance: str) -> None:
        super().__init__(float(str.__add__(variance, "")))


def test_what_constructors_refuse_and_classes_that_are_not_imported() -> None:
    describe = Describer()
    described = describe(Forgetful("0.3"), "value")
    with pytest.raises(ValueError, match="Forgetful: descriptor '__add__'"):
        Loader(describe.arrays)(described)
    with pytest.raises(ModuleNotFoundError, match="another is not imported"):
        Loader({})(described | {"class": "another.Forgetful"})


def local() -> gpflow.kernels.Kernel:
    class Local(OwnKernel):
        """Which no module has."""

    return Local()


def exotic() -> gpflow.kernels.Kernel:
    kernel = k.RBF()
    kernel.variance = gpflow.Parameter(0.5, transform=tfp.bijectors.Tanh())
    return kernel


def more_points() -> gpflow.likelihoods.Likelihood:
    likelihood = lik.MultiClass(3)
    likelihood.num_gauss_hermite_points = 50
    return likelihood


@pytest.mark.parametrize(
    "make, message",
    [
        (
            lambda: k.RBF() + local(),
            r"kernels\[1\]: got a .*Local, expected a class that its modul",
        ),
        (
            lambda: lik.Poisson(invlink=lambda f: f),
            r"value.invlink: got .*<lambda>, expected an object",
        ),
        (exotic, r"variance.transform: got .*Tanh"),
        (
            lambda: fun.Additive(fun.Constant(1.0), fun.Identity(1)),
            r"got a .*Additive, expected a class whose objects keep the argument first",
        ),
        (
            lambda: lik.SwitchedLikelihood([lik.Gaussian(0.1), lik.Gaussian(0.2)]),
            r"expected a class whose objects keep the argument likelihood_list",
        ),
        (
            lambda: lik.HeteroskedasticTFPConditional(tfp.distributions.Laplace),
            r"conditional_distribution: got a function that the constructor makes",
        ),
        (
            more_points,
            r"num_gauss_hermite_points: got 50, expected 20, which is what loading",
        ),
        (lambda: np.array([np.nan]), r"got NaN or infinity, expected finite numbers"),
        (lambda: float("inf"), r"got inf, expected a finite number"),
        (
            lambda: np.array([{}]),
            r"got an array of objects, expected an array of numbers, or of words",
        ),
        (lambda: np.array([1j]), r"got an array of complex128"),
        (lambda: np.random.RandomState(0), r"got numpy.random.*RandomState"),
    ],
)
def test_what_would_be_lost(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=rf"{message}.*tf\.train\.Checkpoint"):
        there_and_back(make())


@pytest.mark.parametrize(
    "described",
    [
        *(
            {"number": 0, "class": name, "arguments": {}, "parameters": {}}
            for name in (
                "os.system",
                "gpflow.kernels.np",
                "numpy.ndarray",
                "gpflow.likelihoods.base",
                "gpflow.kernels.Callable",
            )
        ),
        {"probability": "Inline", "arguments": {}},
        {"probability": "JointDistributionCoroutine", "arguments": {}},
    ],
)
def test_other_classes_are_never_made(described: Any) -> None:
    with pytest.raises(ValueError, match=r"is not a known "):
        Loader({})(described)
    with pytest.raises(KeyError):
        Loader({})({"function": "system"})
    assert {room.__name__.split(".")[0] for room in MODULES} == {"gpflow", "gpflow_pep"}
