"""Groups of rows and the nearest predecessors in them."""

import gpflow
import numpy as np
import pytest

from gpflow_pep.covariances import largest_group, nearest_predecessors

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
