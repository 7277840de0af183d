"""Kernels as expectations over frequencies, and functions drawn from the prior."""

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import tensorflow as tf
from gpflow import kernels
from helpers import Array, assert_close, worst_z

from gpflow_pep.engine.paths.factors import FACTORS, SPECTRA, kernel_factor
from gpflow_pep.engine.paths.prior import Draws, PriorDraws

k = kernels
X = np.random.default_rng(0).uniform(-2.0, 2.0, (6, 3))
ARD = {"variance": 1.3, "lengthscales": [0.7, 1.4], "active_dims": [2, 0]}


def coregion() -> kernels.Kernel:
    kernel = kernels.Coregion(output_dim=2, rank=1, active_dims=[1])
    kernel.W.assign([[0.5], [-1.2]])
    kernel.kappa.assign([0.3, 0.8])
    return kernel


def inputs(name: str) -> Array:
    """Rows, of which Coregion reads one column as numbers of outputs."""
    return (
        np.column_stack([X[:, 0], np.arange(len(X)) % 2, X[:, 2]])
        if name == "Coregion"
        else X
    )


_kinds = k.SquaredExponential, k.Exponential, k.Matern12, k.Matern32, k.Matern52
RANDOM: dict[str, Callable[[], kernels.Kernel]] = {
    **{kind.__name__: partial(kind, **ARD) for kind in _kinds},
    "RationalQuadratic": partial(k.RationalQuadratic, alpha=0.8, **ARD),
    "one lengthscale for all inputs": lambda: k.Matern52(lengthscales=1.4),
    "Periodic": lambda: k.Periodic(k.SquaredExponential(**ARD), period=[1.5, 2.0]),
    "Periodic of RationalQuadratic": lambda: k.Periodic(
        RANDOM["RationalQuadratic"](), period=1.7
    ),
    "Periodic of Matern32": lambda: k.Periodic(
        k.Matern32(0.8, 0.6, active_dims=[1]), period=1.7
    ),
}
EXACT: dict[str, Callable[[], kernels.Kernel]] = {
    "Constant": lambda: k.Constant(0.7),
    "Linear": lambda: k.Linear(variance=[0.5, 1.5], active_dims=[0, 2]),
    "Polynomial": lambda: k.Polynomial(3, variance=[0.5, 1.5, 0.3], offset=0.4),
    "Polynomial of degree 1": lambda: k.Polynomial(1, offset=0.4, active_dims=[1]),
    "Cosine": lambda: k.Cosine(lengthscales=[2.0, 3.0], active_dims=[0, 1]),
    "Coregion": coregion,
}
PRODUCTS: dict[str, Callable[[], kernels.Kernel]] = {
    "sum": lambda: RANDOM["Matern52"]() + EXACT["Linear"]() + k.Constant(0.2),
    "product of two stationary": lambda: (
        RANDOM["SquaredExponential"]() * RANDOM["Matern32"]()
    ),
    "stationary times linear": lambda: (
        RANDOM["SquaredExponential"]() * EXACT["Linear"]()
    ),
    "periodic times stationary": lambda: (
        RANDOM["Periodic"]() * RANDOM["SquaredExponential"]()
    ),
    "product of finite": lambda: EXACT["Linear"]() * EXACT["Polynomial of degree 1"](),
    "product of sums": lambda: (
        (RANDOM["Matern52"]() + EXACT["Linear"]())
        * (k.Constant(0.5) + RANDOM["Periodic of Matern32"]())
    ),
}


def covariance(kernel: kernels.Kernel, X: Array, num_features: int, seed: int) -> Array:
    """That of a draw given its frequencies, by the definition."""
    amplitudes, waves = kernel_factor(kernel)
    phi = amplitudes(tf.constant(X)).numpy()
    if waves is None:
        return np.asarray(phi @ phi.T)
    psi = waves.inputs(tf.constant(X)).numpy()
    frequencies = waves.draw(np.random.default_rng(seed), (num_features, psi.shape[1]))
    angles = (psi[:, None] - psi) @ frequencies.T
    return np.asarray(phi @ phi.T * np.mean(np.cos(angles), axis=-1))


@pytest.mark.near_copies(
    "SquaredExponential", "Matern32", "Periodic", "Coregion", "Cosine"
)
@pytest.mark.parametrize("name", [*RANDOM, *EXACT])
def test_error_falls_with_the_root_of_the_number_of_features(name: str) -> None:
    kernel = {**RANDOM, **EXACT}[name]()
    rows = inputs(name)
    if name in EXACT:
        assert_close(covariance(kernel, rows, 3, 0), kernel(rows), rtol=1e-10)
        return
    errors = [
        [covariance(kernel, X, n, i) - kernel(X) for i in range(20)] for n in (40, 4000)
    ]
    few, many = (np.sqrt(np.mean(np.square(of_one))) for of_one in errors)
    assert 0.005 < few < 0.25
    assert 7.0 < few / many < 14.0  # 10


def test_every_kernel_is_here_and_others_can_be_entered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    covered = {type(case()) for case in (*RANDOM.values(), *EXACT.values())}
    assert covered == FACTORS.keys() and SPECTRA.keys() < covered
    kind = type("Mine", (kernels.SquaredExponential,), {})
    for table in (SPECTRA, FACTORS):
        monkeypatch.setitem(table, kind, table[kernels.SquaredExponential])
    pair = (
        covariance(kind(), X, 5, 0),
        covariance(kernels.SquaredExponential(), X, 5, 0),
    )
    assert_close(*pair, rtol=1e-14)


@pytest.mark.parametrize("name", [*RANDOM, *EXACT, *PRODUCTS])
def test_draws_have_the_moments_of_the_prior(name: str) -> None:
    """With a few features too: each draw has other frequencies."""
    kernel = {**RANDOM, **EXACT, **PRODUCTS}[name]()
    rows = inputs(name)
    draws = PriorDraws(kernel, Draws(4000, 1, 8, np.zeros(3)))
    draws.resample(np.random.default_rng(1))
    values = draws(tf.constant(rows[None])).numpy()
    assert values.shape == (4000, 1, len(rows))
    assert worst_z(values, np.zeros((1, len(rows))), kernel(rows).numpy()[None]) < 4.5


def test_average_over_a_blur() -> None:
    """In closed form, against Gauss-Hermite quadrature of the function itself."""
    SE = kernels.SquaredExponential
    kernel = SE(1.0, [0.7, 1.4]) * SE(0.5, active_dims=[1]) + kernels.Constant(0.3)
    draws = PriorDraws(kernel, Draws(2, 1, 5, np.zeros(2)))
    draws.resample(np.random.default_rng(1))
    centres = X[:3, :2]
    roots = np.tril(np.random.default_rng(2).uniform(0.1, 0.4, (3, 2, 2)))
    nodes, weights = np.polynomial.hermite_e.hermegauss(24)
    grid = np.stack(np.meshgrid(nodes, nodes), axis=-1).reshape(-1, 2)
    weight = np.outer(weights, weights).ravel() / (2.0 * np.pi)
    points = centres[:, None] + np.einsum("nde,ge->ngd", roots, grid)
    values = draws(tf.constant(points.reshape(1, -1, 2))).numpy().reshape(2, 1, 3, -1)
    covariance = tf.constant(np.einsum("nde,nfe->ndf", roots, roots))
    assert_close(
        draws(tf.constant(centres[None]), covariance), values @ weight, rtol=1e-8
    )


@pytest.mark.parametrize(
    ("kernel", "got"),
    [
        (kernels.White(), "White"),
        (kernels.ArcCosine(), "ArcCosine"),
        (kernels.SquaredExponential() + kernels.White(), "White"),
        (kernels.Polynomial(1.5), "Polynomial of degree 1.5"),
        (kernels.Periodic(kernels.Matern32()), "Periodic of Matern32 in 3 inputs"),
        (type("Mine", (kernels.SquaredExponential,), {})(), "Mine"),
    ],
)
def test_other_kernels_are_refused(kernel: kernels.Kernel, got: str) -> None:
    with pytest.raises(
        ValueError, match=f"^kernel: got {got}, expected .*(Draw f|Leave out White)"
    ):
        PriorDraws(kernel, Draws(2, 1, 5, np.zeros(3))).resample(
            np.random.default_rng(0)
        )
