"""A likelihood for each output, and integrals of the targets that were observed."""

import gpflow
import numpy as np
import pytest
from gpflow.likelihoods import Bernoulli, Gaussian, Poisson
from helpers import assert_close

from gpflow_pep.engine.factors.entries import entry_derivatives, entry_log_power_expectation
from gpflow_pep.likelihoods import (
    PerOutput,
    check_support,
    log_power_expectation,
    tilted_derivatives,
    traits,
)

N = 6
rng = np.random.default_rng(0)
X = rng.standard_normal((N, 1))
MEAN, VARIANCE = rng.standard_normal((N, 3)), rng.uniform(0.1, 1.0, (N, 3))
Y = np.column_stack([rng.standard_normal(N), np.arange(N) % 2, np.arange(N)]).astype(np.float64)
PARTS = [Gaussian(0.2), Bernoulli(), Poisson()]
MOMENTS = X, MEAN, VARIANCE


def columns() -> list[tuple[np.ndarray, ...]]:
    return [(X, *(part[:, p : p + 1] for part in (MEAN, VARIANCE, Y))) for p in range(3)]


@pytest.mark.parametrize(
    "name, alpha", [("predict_log_density", 1), ("variational_expectations", 0)]
)
def test_sums_over_columns(name: str, alpha: float) -> None:
    """Those of the tilted integral, where GPflow has 20 nodes."""
    expected = sum(log_power_expectation(*pair) for pair in _with_parts(alpha))
    assert_close(getattr(PerOutput(PARTS), name)(*MOMENTS, Y), expected, rtol=1e-12)


def _with_parts(alpha: float) -> list[tuple[object, ...]]:
    return [(part, *column, float(alpha)) for part, column in zip(PARTS, columns())]


def test_columns() -> None:
    both = PerOutput(PARTS)
    density = sum(part.log_prob(X, c[1], c[3]) for part, c in zip(PARTS, columns()))
    assert_close(both.log_prob(X, MEAN, Y), density, rtol=1e-12)
    for name in ("conditional_mean", "conditional_variance"):
        for p, (part, column) in enumerate(zip(PARTS, columns())):
            expected = getattr(part, name)(X, column[1])
            assert_close(getattr(both, name)(X, MEAN)[:, p], expected[:, 0], rtol=1e-12)
    mean, variance = both.predict_mean_and_var(*MOMENTS)
    assert mean.shape == variance.shape == (N, 3)
    assert traits(both).starts_at_high_powers
    assert not traits(PerOutput(PARTS[:2])).starts_at_high_powers


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
def test_integrals(alpha: float) -> None:
    each = [log_power_expectation(part, *c, alpha) for part, c in zip(PARTS, columns())]
    both = log_power_expectation(PerOutput(PARTS), *MOMENTS, Y, alpha)
    assert_close(both, sum(each), rtol=1e-12)
    missing = rng.uniform(size=Y.shape) < 0.4
    targets, power = np.where(missing, np.nan, Y), np.array([alpha])
    ell = np.where(missing, 0.0, np.stack(each, axis=1))
    actual = entry_log_power_expectation(PerOutput(PARTS), *MOMENTS, targets, power)
    assert_close(actual, ell, rtol=1e-12)
    derivatives, _ = entry_derivatives(PerOutput(PARTS), *MOMENTS, targets, power, [])
    assert_close(derivatives.ell, ell, rtol=1e-12)
    for p, (part, column) in enumerate(zip(PARTS, columns())):
        expected = tilted_derivatives(part, *column, alpha)
        for name in ("delta1", "delta2"):
            there = np.where(missing[:, p], 0.0, getattr(expected, name)[:, 0])
            assert_close(getattr(derivatives, name)[:, p], there, rtol=1e-12)


def test_shared_parameters() -> None:
    shared = Gaussian(0.3)
    both = PerOutput([shared, shared, Poisson()])
    assert len(both.trainable_variables) == 1
    power = np.full(N, 0.5)
    actual = entry_log_power_expectation(both, *MOMENTS, Y, power)
    apart = PerOutput([Gaussian(0.3), Gaussian(0.3), Poisson()])
    assert_close(actual, entry_log_power_expectation(apart, *MOMENTS, Y, power), rtol=1e-12)


def test_supports() -> None:
    check_support(PerOutput(PARTS), Y)
    wrong = Y.copy()
    wrong[2, 1] = 0.5
    with pytest.raises(ValueError, match=r"Y: got 0\.5 at row 2, expected .* in column 1"):
        check_support(PerOutput(PARTS), wrong)
    with pytest.raises(ValueError, match="Y: got 2 columns, expected 3"):
        check_support(PerOutput(PARTS), Y[:, :2])
    assert isinstance(PerOutput(PARTS), gpflow.likelihoods.Likelihood)
