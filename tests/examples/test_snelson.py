"""The values that Titsias (2009), section 4, reports for Snelson's data, by the example script."""

from pathlib import Path
from types import ModuleType

import gpflow
import numpy as np
import pytest
from helpers import load_example


@pytest.fixture(scope="module")
def snelson() -> ModuleType:
    return load_example("snelson.py")


@pytest.mark.slow
@pytest.mark.parametrize("jitter, expected", [(1e-8, -55.5708), (1e-6, -55.5719)])
def test_bound_at_its_optimum(
    snelson: ModuleType, data_directory: Path, jitter: float, expected: float
) -> None:
    data = snelson.load(data_directory)
    exact = snelson.exact(data)
    np.testing.assert_allclose(float(exact.log_marginal_likelihood()), -55.5647, atol=5e-5)
    gpflow.config.set_default_jitter(jitter)
    model, value = snelson.sparse(data, 0.0, snelson.initial_inputs(data[0]))
    np.testing.assert_allclose(value, expected, atol=5e-5)
    np.testing.assert_allclose(
        model.likelihood.variance.numpy(), exact.likelihood.variance.numpy(), rtol=1e-3
    )
