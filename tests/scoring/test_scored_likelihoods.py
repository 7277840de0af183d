"""What likelihoods make of f in NumPy, against GPflow, the tilted integrals and SciPy."""

import re
from itertools import pairwise
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.likelihoods import Bernoulli, Gaussian, MultiClass, Poisson, RobustMax, StudentT
from numpy.testing import assert_allclose
from scipy.integrate import quad
from scipy.stats import norm

from gpflow_pep.engine.factors import num_classes
from gpflow_pep.estimators.describing import Describer
from gpflow_pep.likelihoods import LogLinear, NoisyLabelBernoulli, Ordinal, predict_mean_and_var
from gpflow_pep.likelihoods import class_probabilities as tilted_probabilities
from gpflow_pep.scoring.largest import prob_each_largest
from gpflow_pep.scoring.likelihoods import check_likelihood, class_probabilities, target_moments
from gpflow_pep.scoring.stored import Reader

RNG = np.random.default_rng(0)
MEAN, VARIANCE = RNG.normal(size=(9, 1)), RNG.uniform(0.0, 2.0, size=(9, 1))
X = RNG.normal(size=(9, 1))
X[1], X[4], X[7] = 5.0, -80.0, np.nan
VARYING = LogLinear(1, variance=0.2)
VARYING.weights.assign([[0.7]])


def read(value: Any) -> Any:
    """A likelihood as the scorer reads it."""
    describe = Describer(values=True)
    likelihood = Reader(describe.arrays)(describe(value, "part"))
    check_likelihood(likelihood)
    return likelihood


@pytest.mark.parametrize(
    "likelihood",
    [
        Gaussian(0.3), Gaussian(scale=0.7), Gaussian(variance=VARYING),
        StudentT(0.4, df=3.5), Poisson(), Poisson(binsize=0.2),
    ],
)  # fmt: skip
def test_moments_of_numbers(likelihood: Any) -> None:
    described = read(likelihood)
    for new, tilted in zip(
        target_moments(described, X, MEAN, VARIANCE),
        predict_mean_and_var(likelihood, X, MEAN, VARIANCE),
    ):
        assert_allclose(new, tilted, rtol=1e-12)


def test_two_classes() -> None:
    probability = class_probabilities(read(Bernoulli()), MEAN, VARIANCE)
    expected = tilted_probabilities(Bernoulli(), X, MEAN, VARIANCE, 2)
    assert_allclose(probability, expected, rtol=1e-12)


@pytest.mark.parametrize("num_classes", [2, 3, 8])
@pytest.mark.parametrize("epsilon", [1e-3, 0.05])
def test_several_classes(num_classes: int, epsilon: float) -> None:
    likelihood = MultiClass(num_classes, invlink=RobustMax(num_classes, epsilon))
    mean = 2.0 * RNG.normal(size=(20, num_classes))
    variance = 10.0 ** RNG.uniform(-3.0, 2.0, size=mean.shape)
    probability = class_probabilities(read(likelihood), mean, variance)
    expected = tilted_probabilities(likelihood, np.zeros((20, 1)), mean, variance, num_classes)
    assert_allclose(probability, expected, atol=1e-10)


@pytest.mark.parametrize(
    "likelihood, num_latent",
    [
        (gpflow.likelihoods.Softmax(3), 3),
        (gpflow.likelihoods.Softmax(10), 10),
        (gpflow.likelihoods.Ordinal(np.array([-1.0, 0.5, 0.6])), 1),
        (Ordinal([-1.0, 0.5, 0.6], sigma=0.7), 1),
    ],
)
def test_other_classes(likelihood: Any, num_latent: int) -> None:
    mean = 2.0 * RNG.normal(size=(20, num_latent))
    variance = 10.0 ** RNG.uniform(-3.0, 2.0, size=mean.shape)
    probability = class_probabilities(read(likelihood), mean, variance)
    number = num_classes(likelihood)
    expected = tilted_probabilities(likelihood, np.zeros((20, 1)), mean, variance, number)
    assert probability.shape == (20, number)
    assert_allclose(probability, expected, rtol=1e-8, atol=1e-14)


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
        ends = [-9.0, *(step for step in steps if -9.0 < step < 9.0), 9.0]
        parts = pairwise(ends)
        return sum(quad(integrand, *part, epsabs=1e-13, epsrel=1e-12)[0] for part in parts)

    probability = prob_each_largest(m[None], s[None] ** 2)[0]
    assert_allclose(probability, [integral(c) for c in range(3)], atol=1e-10)
    assert_allclose(probability.sum(), 1.0, atol=1e-10)


def test_variance_0_decides() -> None:
    probability = prob_each_largest(np.array([[0.1, 0.2]]), np.zeros((1, 2)))
    assert_allclose(probability, [[0.0, 1.0]], atol=1e-12)


@pytest.mark.parametrize(
    "likelihood, message",
    [
        (NoisyLabelBernoulli(), "likelihood: got gpflow_pep.likelihoods.NoisyLabelBernoulli"),
        (Bernoulli(invlink=tf.sigmoid), "likelihood: got Bernoulli with"),
        (Poisson(invlink=tf.nn.softplus), "likelihood: got Poisson with"),
        (StudentT(df=1.5), "likelihood: got StudentT with"),
        (Gaussian(variance=gpflow.functions.Linear()), "likelihood: got Gaussian with noise that"),
        (StudentT(scale=gpflow.functions.Linear()), "likelihood: got StudentT with noise that"),
        (
            type("Gaussian", (Gaussian,), {})(),
            "part: got a .*Gaussian, expected a class that has a name",
        ),
    ],
)
def test_other_likelihoods_are_refused_by_name(likelihood: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        read(likelihood)
    assert re.search("save_estimator|Checkpoint", str(caught.value))


def test_kinds_of_later_versions_are_refused() -> None:
    with pytest.raises(ValueError, match="likelihood: got Beta, expected one of Gaussian"):
        target_moments({"kind": "Beta"}, X, MEAN, VARIANCE)
    with pytest.raises(ValueError, match="likelihood: got Gaussian, expected one of Bernoulli"):
        class_probabilities({"kind": "Gaussian"}, MEAN, VARIANCE)
