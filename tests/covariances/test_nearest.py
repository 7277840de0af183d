"""Groups of rows and the nearest predecessors in them."""

import time
from typing import Any

import gpflow
import numpy as np
import pytest

from gpflow_pep.covariances import largest_group, nearest_predecessors, scaled_inputs

SE = gpflow.kernels.SquaredExponential


@pytest.mark.parametrize("num_rows, m", [(2, 1), (40, 3), (300, 5), (300, 50), (1000, 10)])
def test_neighbours_are_the_nearest_before(num_rows: int, m: int, rng: np.random.Generator) -> None:
    X = rng.standard_normal((num_rows, 3))
    rows, neighbours = nearest_predecessors(X, SE(), m)
    assert sorted(rows[rows >= 0]) == list(range(num_rows))
    assert neighbours.shape == (*rows.shape, m)
    sizes = np.sum(rows >= 0, axis=1)
    assert max(sizes) == rows.shape[1] <= largest_group(m) and max(sizes) - min(sizes) <= 1
    for group, size, near in zip(rows, sizes, neighbours, strict=True):
        assert np.all(group[size:] == -1) and np.all(near[size:] == -1)
        points = X[group[:size]]
        for place in range(size):
            found = near[place][near[place] >= 0]
            assert len(found) == min(m, place) and np.all(near[place][len(found) :] == -1)
            distances = np.linalg.norm(points[:place] - points[place], axis=1)
            np.testing.assert_allclose(distances[found], np.sort(distances)[: len(found)])


def test_groups_lie_together(rng: np.random.Generator) -> None:
    centres = rng.permutation(np.repeat(np.arange(4), 100))
    X = 10.0 * centres[:, None] + rng.uniform(size=(400, 1))
    rows, _ = nearest_predecessors(X, SE(), 3)
    for group in rows:
        assert len(set(centres[group[group >= 0]])) == 1


def test_rows_that_are_all_the_same() -> None:
    rows, neighbours = nearest_predecessors(np.zeros([300, 2]), SE(), 4)
    assert np.sum(rows >= 0) == 300 and np.all(neighbours[:, 4:-1] >= 0)


X = np.array([[0.0, 1.0, 10.0], [4.0, 3.0, 30.0]])  # standard deviations 2, 1, 10

KERNELS: dict[str, tuple[Any, list[float]]] = {
    "one lengthscale": (SE(lengthscales=2.0), [0.5, 0.5, 0.5]),
    "one for each input": (gpflow.kernels.Matern32(lengthscales=[1.0, 2.0, 4.0]), [1, 0.5, 0.25]),
    "some inputs": (SE(lengthscales=2.0, active_dims=[1]), [0, 0.5, 0]),
    "a product": (
        SE(lengthscales=0.5, active_dims=[0]) * SE(lengthscales=[2.0, 4.0], active_dims=[0, 2]),
        [2.0, 0, 0.25],
    ),
    "a sum with noise": (SE(lengthscales=2.0) + gpflow.kernels.White(), [0.5, 0.5, 0.5]),
    "no lengthscale": (gpflow.kernels.Linear(), [0.5, 1.0, 0.1]),
    "inputs of their own": (
        SE(lengthscales=4.0, active_dims=[0]) + gpflow.kernels.Linear(active_dims=[0, 1]),
        [0.25, 1.0, 0],
    ),
}


@pytest.mark.parametrize("name", KERNELS)
def test_inputs_are_scaled_as_the_kernel_sees_them(name: str) -> None:
    kernel, factors = KERNELS[name]
    np.testing.assert_allclose(scaled_inputs(kernel, X), X * factors)


def test_an_input_without_spread() -> None:
    assert np.array_equal(scaled_inputs(gpflow.kernels.Linear(), np.ones([3, 1])), np.ones([3, 1]))


def test_many_rows_take_seconds(rng: np.random.Generator) -> None:
    began = time.perf_counter()
    nearest_predecessors(rng.standard_normal((30_000, 8)), SE(), 10)
    assert time.perf_counter() - began < 20.0  # 1 second, on a quiet core
