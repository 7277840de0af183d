"""A likelihood for each output, and integrals of the targets that were observed."""

from typing import Any

import numpy as np
import pytest
from gpflow.likelihoods import Bernoulli, Gaussian, Poisson
from helpers import assert_close

from gpflow_pep import likelihoods as ours
from gpflow_pep.engine.factors.entries import entry_derivatives, entry_log_power_expectation
from gpflow_pep.likelihoods import PerOutput, log_power_expectation

N = 6
rng = np.random.default_rng(0)
X = rng.standard_normal((N, 1))
MEAN, VARIANCE = rng.standard_normal((N, 3)), rng.uniform(0.1, 1.0, (N, 3))
Y = np.column_stack([rng.standard_normal(N), np.arange(N) % 2, np.arange(N)]).astype(np.float64)
PARTS = [Gaussian(0.2), Bernoulli(), Poisson()]
MOMENTS = X, MEAN, VARIANCE
#: Each likelihood with X and its columns of means, variances and targets.
ALONE: list[tuple[Any, ...]] = [
    (part, X, *(of[:, p : p + 1] for of in (MEAN, VARIANCE, Y))) for p, part in enumerate(PARTS)
]


def test_columns() -> None:
    both = PerOutput(PARTS)
    density = sum(part.log_prob(X, f, y) for part, _, f, _, y in ALONE)
    assert_close(both.log_prob(X, MEAN, Y), density, rtol=1e-12)
    for name in ("conditional_mean", "conditional_variance"):
        expected = np.hstack([getattr(part, name)(X, f) for part, _, f, _, _ in ALONE])
        assert_close(getattr(both, name)(X, MEAN), expected, rtol=1e-12)
    assert ours.traits(both).starts_at_high_powers
    assert not ours.traits(PerOutput(PARTS[:2])).starts_at_high_powers


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
def test_integrals(alpha: float) -> None:
    each = [log_power_expectation(*rows, alpha) for rows in ALONE]
    both = PerOutput(PARTS)
    assert_close(log_power_expectation(both, *MOMENTS, Y, alpha), sum(each), rtol=1e-12)
    # Those of the tilted integral, where GPflow has 20 nodes.
    methods = {0.0: both.variational_expectations, 1.0: both.predict_log_density}
    if alpha in methods:
        assert_close(methods[alpha](*MOMENTS, Y), sum(each), rtol=1e-12)
    missing = rng.uniform(size=Y.shape) < 0.4
    targets, power = np.where(missing, np.nan, Y), np.array([alpha])
    ell = np.where(missing, 0.0, np.stack(each, axis=1))
    actual = entry_log_power_expectation(both, *MOMENTS, targets, power)
    assert_close(actual, ell, rtol=1e-12)
    derivatives, _ = entry_derivatives(both, *MOMENTS, targets, power, [])
    assert_close(derivatives.ell, ell, rtol=1e-12)
    alone = [ours.tilted_derivatives(*rows, alpha) for rows in ALONE]
    for name in ("delta1", "delta2"):
        there = np.hstack([getattr(of_one, name) for of_one in alone])
        expected = np.where(missing, 0.0, there)
        assert_close(getattr(derivatives, name), expected, rtol=1e-12)


def test_shared_parameters() -> None:
    shared = Gaussian(0.3)
    both, power = PerOutput([shared, shared, Poisson()]), np.full(N, 0.5)
    assert len(both.trainable_variables) == 1
    apart = PerOutput([Gaussian(0.3), Gaussian(0.3), Poisson()])
    actual, expected = (entry_log_power_expectation(p, *MOMENTS, Y, power) for p in (both, apart))
    assert_close(actual, expected, rtol=1e-12)


def test_supports() -> None:
    ours.check_support(PerOutput(PARTS), Y)
    wrong = Y.copy()
    wrong[2, 1] = 0.5
    with pytest.raises(ValueError, match=r"Y: got 0\.5 at row 2, expected .* in column 1"):
        ours.check_support(PerOutput(PARTS), wrong)
    with pytest.raises(ValueError, match="Y: got 2 columns, expected 3"):
        ours.check_support(PerOutput(PARTS), Y[:, :2])
