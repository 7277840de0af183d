"""The bound in which products are of less precision is that of the package otherwise."""

import gpflow
import numpy as np
import pytest
from helpers import load_example
from numpy.testing import assert_allclose

import gpflow_pep as pep

single_precision = load_example("benchmarks/single_precision.py")


@pytest.mark.parametrize("alpha", [0.0, 0.5])
def test_the_bound_in_numpy_is_that_of_the_model(alpha: float) -> None:
    data = single_precision.generated(60)
    setting = (data, 10, 0.5, 0.01, alpha)
    double, single = np.float64, np.float32
    value = single_precision.collapsed_bound(*setting, double, double)
    kernel = gpflow.kernels.SquaredExponential(lengthscales=0.5)
    X, Y = data.X.astype(float), data.Y.astype(float)
    model = pep.PEPRegression((X, Y), kernel, X[:10].copy(), alpha=alpha, noise_variance=0.01)
    assert_allclose(value, model.pep_log_marginal_likelihood(), rtol=1e-9)
    both = single_precision.collapsed_bound(*setting, single, single)
    assert 0.0 < abs(both - value) < 1e-3
