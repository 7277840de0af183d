"""PEPRegression under ``SharedIndependent``, as users of GPflow's SVGP write several outputs."""

from typing import Any

import gpflow
import numpy as np
import pytest
from gpflow.kernels import SeparateIndependent, SharedIndependent
from helpers import assert_all_close, assert_close, gradients, regression_problem

import gpflow_pep as pep

iv = gpflow.inducing_variables
PROBLEM = regression_problem(4, num_data=14, num_inducing=4, num_outputs=2)


def _shared(Z: Any = PROBLEM.Z) -> iv.SharedIndependentInducingVariables:
    return iv.SharedIndependentInducingVariables(iv.InducingPoints(Z.copy()))


def _pair(**options: Any) -> tuple[pep.PEPRegression, pep.PEPRegression]:
    wrapped = SharedIndependent(PROBLEM.kernel(), 2)
    options = {"noise_variance": 0.1, "alpha": 0.4, **options}
    return (
        pep.PEPRegression(PROBLEM.data, wrapped, _shared(), **options),
        pep.PEPRegression(PROBLEM.data, PROBLEM.kernel(), PROBLEM.Z, **options),
    )


@pytest.mark.parametrize(
    "options",
    [{}, {"bound": "tight"}, {"blocks": np.arange(14) // 4}],
    ids=["rows", "scaled", "blocks"],
)
@pytest.mark.near_copies
def test_same_as_without(options: dict[str, Any]) -> None:
    shared, plain = _pair(**options)
    assert_close(shared.training_loss(), plain.training_loss(), rtol=1e-12)
    of_shared = gradients(shared.training_loss, shared.trainable_variables)
    of_plain = gradients(plain.training_loss, plain.trainable_variables)
    assert_all_close(of_shared, of_plain, rtol=1e-10)
    for full_cov in (False, True):
        expected = plain.predict_f(PROBLEM.Xnew, full_cov=full_cov)
        for of in (shared.predict_f, shared.posterior().predict_f):
            assert_all_close(of(PROBLEM.Xnew, full_cov=full_cov), expected, rtol=1e-9)
    assert_all_close(shared.compute_qu(), plain.compute_qu(), rtol=1e-10)


@pytest.mark.slow
def test_all_else_that_regression_has() -> None:
    shared, plain = _pair(alpha=0.0)
    assert_close(shared.elbo(), plain.elbo(), rtol=1e-12)
    assert_close(shared.upper_bound(), plain.upper_bound(), rtol=1e-12)
    assert_close(shared.loo_log_density(), plain.loo_log_density(), rtol=1e-12)
    covariance = shared.predict_f(PROBLEM.Xnew, full_output_cov=True)[1]
    assert covariance.shape == (6, 2, 2)
    with_memory, other = (
        pep.PEPRegression(
            PROBLEM.data, model.kernel, model.inducing_variable, memory=model.remember()
        )
        for model in (shared, plain)
    )
    assert_close(with_memory.training_loss(), other.training_loss(), rtol=1e-10)


@pytest.mark.parametrize(
    "kernel, variables, said",
    [
        (SharedIndependent(PROBLEM.kernel(), 2), PROBLEM.Z, "SharedIndependentInducingVariables"),
        (SharedIndependent(PROBLEM.kernel(), 3), _shared(), "kernel: got 3.*expected 2"),
        (
            SharedIndependent(PROBLEM.kernel(), 2),
            iv.SeparateIndependentInducingVariables([iv.InducingPoints(PROBLEM.Z)] * 2),
            "expected one set for all latent functions",
        ),
        (
            SeparateIndependent([PROBLEM.kernel(), PROBLEM.kernel()]),
            _shared(),
            "SeparateIndependent, expected a kernel of one output.*LinearCoregionalization",
        ),
    ],
)
def test_others_are_refused(kernel: Any, variables: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        pep.PEPRegression(PROBLEM.data, kernel, variables)
