"""Draws of mixtures, and by which components rows are far."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from gpflow_pep.distributions.mixtures import (
    draws_of_mixture,
    far_by_components,
    mixed_moments,
)

RNG = np.random.default_rng(0)


def test_each_draw_is_of_a_component() -> None:
    weights = np.array([0.2, 0.0, 0.8])

    def numbered(k: int, number: int) -> np.ndarray:
        return np.stack([np.full(number, k), np.arange(number)], axis=1)

    draws = draws_of_mixture(weights, 10_000, RNG, numbered)
    component = draws[:, 0]
    shares = np.bincount(component, minlength=3) / len(draws)
    assert shares[1] == 0.0
    assert_allclose(shares, weights, atol=4.0 * np.sqrt(0.2 * 0.8 / len(draws)))
    for k in (0, 2):  # none is lost, or there twice
        assert_array_equal(draws[component == k, 1], np.arange(np.sum(component == k)))
    # The component of a draw does not depend on the draw before.
    after_first = np.mean(component[1:][component[:-1] == 0] == 0)
    assert_allclose(after_first, 0.2, atol=4.0 * np.sqrt(0.2 * 0.8 / 2000))


@pytest.mark.parametrize(
    "weights, asked",
    [([1.0], [0]), ([0.5, 0.3, 0.2], [0, 1, 2]), ([0.1] * 8 + [0.11, 0.09], [8])],
)
def test_components_of_some_weight_are_asked(
    weights: list[float], asked: list[int]
) -> None:
    rows = np.eye(len(weights), dtype=bool)  # row k is far by component k
    far = far_by_components(np.array(weights), lambda k: rows[k])
    assert_array_equal(np.flatnonzero(far), asked)


def test_moments_are_those_of_draws() -> None:
    weights = np.array([0.3, 0.7])
    means = np.array([[0.0, 1.0], [2.0, -1.0]])
    covariances = np.array([np.eye(2), [[2.0, 0.5], [0.5, 1.0]]])
    mean, covariance = mixed_moments(
        weights, means, covariances, lambda apart: np.outer(apart, apart)
    )
    second = [C + np.outer(m, m) for m, C in zip(means, covariances, strict=True)]
    assert_allclose(mean, weights @ means)
    expected = np.tensordot(weights, second, 1) - np.outer(mean, mean)
    assert_allclose(covariance, expected, rtol=1e-14)
