"""Kernels in NumPy against GPflow's."""

from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np
import pytest
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
    SquaredExponential,
    White,
)
from numpy.testing import assert_allclose

from gpflow_pep.estimators.describing import Describer
from gpflow_pep.scoring.kernels import KINDS, covariance_with, variance_of
from gpflow_pep.scoring.stored import Reader

RNG = np.random.default_rng(0)
X, Z = RNG.normal(size=(7, 3)), RNG.normal(size=(5, 3))
LENGTHSCALES = [0.7, 1.3, 2.1]
CASES: dict[str, Callable[[], Kernel]] = {
    "SquaredExponential": lambda: SquaredExponential(1.7, LENGTHSCALES),
    "one lengthscale": lambda: SquaredExponential(1.7, 0.8),
    "some columns": lambda: SquaredExponential(1.7, [0.5, 0.9], active_dims=[2, 0]),
    "a slice from the end": lambda: Linear(active_dims=slice(-2, None)),
    "a slice of columns": lambda: Matern32(1.7, [0.5, 0.9], active_dims=slice(0, 3, 2)),
    "Matern12": lambda: Matern12(0.6, LENGTHSCALES),
    "Matern32": lambda: Matern32(0.6, LENGTHSCALES),
    "Matern52": lambda: Matern52(0.6, LENGTHSCALES),
    "Exponential": lambda: Exponential(0.6, LENGTHSCALES),
    "RationalQuadratic": lambda: RationalQuadratic(0.6, LENGTHSCALES, alpha=0.4),
    "Linear": lambda: Linear([0.3, 0.2, 1.1]),
    "Constant": lambda: Constant(2.5),
    "White": lambda: White(2.5),
    "Cosine": lambda: Cosine(1.2, LENGTHSCALES),
    "Periodic": lambda: Periodic(SquaredExponential(1.1, LENGTHSCALES), period=[1.0, 2.0, 3.0]),
    "Periodic of a distance": lambda: Periodic(Matern32(1.1, 0.7, active_dims=[1]), period=1.5),
    "Sum": lambda: SquaredExponential(active_dims=[0]) + Linear(0.2) + White(0.1),
    "Product": lambda: (Matern12(0.6) + Constant(0.3)) * RationalQuadratic(active_dims=[1, 2]),
}


def read(value: Any) -> Any:
    """An object as the scorer reads it."""
    describe = Describer(values=True)
    return Reader(describe.arrays)(describe(value, "part"))


@pytest.mark.parametrize("name", CASES)
def test_a_kernel_is_gpflows(name: str) -> None:
    kernel = CASES[name]()
    described = read(kernel)
    assert_allclose(covariance_with(described, Z)(X), kernel(X, Z), rtol=1e-12, atol=1e-13)
    assert_allclose(variance_of(described)(X), kernel(X, full_cov=False), rtol=1e-12)
    groups, others = X[[[0, 1, 2], [4, 5, 6]]], Z[[[0, 3], [1, 2]]]
    expected = [kernel(*pair) for pair in zip(groups, others, strict=True)]
    assert_allclose(covariance_with(described, others)(groups), expected, rtol=1e-12, atol=1e-13)


def test_no_kind_is_forgotten() -> None:
    described = [read(make()) for make in CASES.values()]
    assert {part["kind"] for part in described} == {*KINDS}


def test_rows_that_are_inducing_inputs() -> None:
    """Rounding can make the squared distance negative there."""
    for kernel in (Matern12(0.6), SquaredExponential(0.6)):
        diagonal = np.diag(covariance_with(read(kernel), Z)(Z.copy()))
        assert_allclose(diagonal, 0.6, rtol=1e-7)


class OwnKernel(SquaredExponential):
    """A user's, whose name is not GPflow's."""


SquaredExponentialOfAUser = type("SquaredExponential", (SquaredExponential,), {})


@pytest.mark.parametrize(
    "kernel, message",
    [
        (OwnKernel(), r"kernel: got .*\.OwnKernel, expected one of GPflow's .*save_estimator"),
        (
            SquaredExponentialOfAUser(),
            "part: got a .*SquaredExponential, expected a class that has a name",
        ),
        (ArcCosine(), "kernel: got ArcCosine, expected one of GPflow's .*save_estimator"),
        (SquaredExponential() + Polynomial(), "kernel: got Polynomial.*save_estimator"),
        (Periodic(OwnKernel()), r"kernel: got Periodic of .*\.OwnKernel, expected one of GPflow"),
        (
            gpflow.kernels.SharedIndependent(SquaredExponential(), 2),
            "kernel: got SharedIndependent, expected one of GPflow's",
        ),
    ],
)
def test_other_kernels_are_refused_by_name(kernel: Kernel, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        covariance_with(read(kernel), Z)


@pytest.mark.parametrize("prepare", [lambda k: covariance_with(k, Z), variance_of])
def test_kinds_of_later_versions_are_refused(prepare: Callable[[object], object]) -> None:
    with pytest.raises(ValueError, match="kernel: got Wavelet, expected one of"):
        prepare({"kind": "Wavelet"})
