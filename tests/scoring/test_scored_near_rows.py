"""Predictions from near rows in NumPy against those of TensorFlow."""

from typing import Any

import gpflow
import numpy as np
import pytest
from gpflow.kernels import Constant, Linear, Matern32, SquaredExponential, White

import gpflow_pep as pep
from gpflow_pep.engine.numerics.nearest_in_numpy import nearest_rows
from gpflow_pep.estimators.describing import Describer
from gpflow_pep.estimators.numpy_parts import describe_posterior
from gpflow_pep.scoring.ensemble import ensemble_of, latent_moments
from gpflow_pep.scoring.stored import Reader
from gpflow_pep.training import Ensemble, NearRows

RNG = np.random.default_rng(0)
X, XNEW = RNG.uniform(-2.0, 2.0, (60, 2)), RNG.uniform(-2.0, 2.0, (9, 2))
Y = np.sin(3.0 * X[:, :1]) + 0.1 * RNG.standard_normal((60, 1))
KERNELS = {
    "one": lambda: Matern32(lengthscales=[0.3, 0.9]),
    "unused input": lambda: SquaredExponential(lengthscales=[0.4], active_dims=[0]),
    "sum": lambda: Matern32(0.7, 0.4) + Linear([0.2, 0.1]) + White(0.05) + Constant(0.3),
    "product": lambda: Matern32(lengthscales=0.4) * (Constant(0.5) + White(0.02)),
}


def numpy_component(ensemble: Ensemble) -> Any:
    describe = Describer(values=True)
    described = describe_posterior(ensemble.posterior(), describe)
    return ensemble_of(Reader(describe.arrays)(described)).components[0]


def assert_same(model: Any, near: NearRows) -> None:
    component = numpy_component(Ensemble([model], near=[near]))
    for rows in (XNEW, XNEW[3:4], X[:4]):
        expected = model.predict_f(rows, near=near)
        for part, other in zip(latent_moments(component, rows), expected, strict=True):
            np.testing.assert_allclose(part, other, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("kernel", KERNELS)
def test_numbers(kernel: str) -> None:
    for alpha, near in ((0.0, NearRows(7)), (0.5, NearRows(1, 0.2)), (1.0, NearRows(60, 0.01))):
        model = pep.PEPRegression((X, Y), KERNELS[kernel](), X[::9], noise_variance=0.1)
        model.alpha = alpha
        assert_same(model, near)


@pytest.mark.parametrize("kernel", KERNELS)
def test_labels(kernel: str) -> None:
    bernoulli = gpflow.likelihoods.Bernoulli()
    labels = 1.0 * (Y > 0.0)
    labels[::7] = 1.0 - labels[::7]
    model = pep.PEP((X, labels), KERNELS[kernel](), bernoulli, X[:4].copy(), alpha=1.0)
    model.kernel.trainable_parameters[0].assign(model.kernel.trainable_parameters[0] * 5.0)
    for number in (1, 12):
        assert_same(model, NearRows(number))


def test_a_mean_function_is_refused() -> None:
    constant = gpflow.functions.Constant(2.0)
    model = pep.PEPRegression((X, Y), Matern32(), X[::9], mean_function=constant)
    with pytest.raises(ValueError, match="mean_function: got Constant, expected none or Zero"):
        numpy_component(Ensemble([model], near=[NearRows(3, 0.1)]))


def test_the_nearest_in_many_dimensions() -> None:
    rows, new = RNG.standard_normal((400, 17)), RNG.standard_normal((5, 17))
    squares = np.sum((new[:, None] - rows) ** 2, axis=-1)
    for number in (1, 6, 400):
        expected = np.argsort(squares, axis=1)[:, :number]
        np.testing.assert_array_equal(nearest_rows(rows)(new, number), expected)
    assert nearest_rows(rows)(new[:0], 3).shape == (0, 3)
