"""The bar for gpflow.monitor, and inducing inputs for pictures of them."""

import gpflow
import numpy as np
import pytest

import gpflow_pep as pep

Z = np.random.default_rng(0).standard_normal((5, 2))


def test_steps_and_values_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    with pep.monitor.ProgressBar(3, lambda: {"sweeps": 2.0}) as bar:
        monitor = gpflow.monitor.Monitor(gpflow.monitor.MonitorTaskGroup(bar))
        for step in range(3):
            monitor(step)
    shown = capsys.readouterr().err
    assert "3/3" in shown and "sweeps 2" in shown
    with pytest.raises(ValueError, match="expected to be in use as"):
        pep.monitor.ProgressBar(3)(0)


def test_inducing_inputs_of_each_set() -> None:
    shared = gpflow.inducing_variables.SharedIndependentInducingVariables(
        gpflow.inducing_variables.InducingPoints(Z)
    )
    separate = gpflow.inducing_variables.SeparateIndependentInducingVariables(
        [gpflow.inducing_variables.InducingPoints(Z + k) for k in range(2)]
    )
    kernels = [gpflow.kernels.SquaredExponential() for _ in range(2)]
    for variables, kernel, expected in (
        (Z, gpflow.kernels.SquaredExponential(), [Z]),
        (shared, gpflow.kernels.SharedIndependent(kernels[0], 2), [Z]),
        (separate, gpflow.kernels.SeparateIndependent(kernels), [Z, Z + 1]),
    ):
        model = gpflow.models.SVGP(
            kernel, gpflow.likelihoods.Gaussian(), variables, num_latent_gps=2
        )
        sets = pep.plotting.inducing_points_of(model)
        assert len(sets) == len(expected)
        for inducing, other in zip(sets, expected):
            np.testing.assert_array_equal(inducing.Z, other)
