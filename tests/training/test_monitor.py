"""The package's own tasks for gpflow.monitor, read back with TensorBoard's reader."""

from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.base import AnyNDArray

import gpflow_pep as pep

pytest.importorskip("matplotlib")
reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")

RNG = np.random.default_rng(0)
X = RNG.standard_normal((60, 2))
CLASSES = (RNG.random((60, 1)) < 1.0 / (1.0 + np.exp(-3.0 * X[:, :1]))).astype(float)
Z = X[:5]


def classifier() -> pep.models.PEPClassification:
    return pep.models.PEPClassification(
        (X, CLASSES), gpflow.kernels.SquaredExponential(), None, Z, alpha=0.5
    )


def events(directory: Path) -> dict[str, dict[int, AnyNDArray]]:
    """By tag and step."""
    accumulator = reader.EventAccumulator(str(directory), size_guidance={reader.TENSORS: 0})
    accumulator.Reload()
    return {
        tag: {event.step: tf.make_ndarray(event.tensor_proto) for event in accumulator.Tensors(tag)}
        for tag in accumulator.Tags()["tensors"]
    }


@pytest.mark.slow
def test_training_is_watched(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = classifier()
    directory = str(tmp_path)
    records: list[Any] = []
    with pep.monitor.ProgressBar(3, lambda: {"sweeps": model.last_inference.num_sweeps}) as bar:
        tasks = [
            gpflow.monitor.ExecuteCallback(lambda **_: records.append(model.last_inference)),
            pep.monitor.SitesToTensorBoard(directory, model),
            pep.monitor.CalibrationToTensorBoard(directory, model, (X, CLASSES)),
            bar,
        ]
        gpflow.optimizers.Scipy().minimize(
            model.training_loss,
            model.trainable_variables,
            options={"maxiter": 3},
            step_callback=gpflow.monitor.Monitor(gpflow.monitor.MonitorTaskGroup(tasks)),
        )
    found = events(tmp_path)
    assert len(records) == 3
    for name in ("residual", "num_sweeps", "num_rejected", "converged"):
        expected = [float(getattr(record, name)) for record in records]
        written = [float(value) for value in found[f"sites/{name}"].values()]
        np.testing.assert_allclose(written, expected, rtol=1e-6)
    assert list(found["sites/fallback"].values()) == [0.0] * 3
    images = found["calibration"]
    assert list(images) == [0, 1, 2]
    width, height, png = images[0]
    assert int(width) > 100 and int(height) > 100
    assert np.ptp(tf.io.decode_png(png).numpy()) > 0
    shown = capsys.readouterr().err
    assert "3/3" in shown and "sweeps" in shown


def test_a_fallback_is_written_by_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = classifier()
    record = model.last_inference._replace(fallback="clipped")
    monkeypatch.setattr(type(model), "last_inference", property(lambda self: record))
    pep.monitor.SitesToTensorBoard(str(tmp_path), model)(7)
    assert events(tmp_path)["sites/fallback"] == {7: 2.0}


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


REFUSED: list[tuple[str, Any]] = [
    ("expected PEP", lambda d: pep.monitor.SitesToTensorBoard(d, _regression())),
    (
        "likelihood: got Gaussian, expected one of classes",
        lambda d: pep.monitor.CalibrationToTensorBoard(d, _regression(), (X, CLASSES)),
    ),
    (
        "Y: got 0.9, expected whole numbers from 0 to 1",
        lambda d: pep.monitor.CalibrationToTensorBoard(d, _classes(), (X, 0.9 * CLASSES)),
    ),
    (
        "Y: got ndarray that is no array of real numbers",
        lambda d: pep.monitor.CalibrationToTensorBoard(d, _classes(), (X, CLASSES.astype(str))),
    ),
    ("expected to be in use as", lambda d: pep.monitor.ProgressBar(3)(0)),
]


def _classes() -> gpflow.models.SVGP:
    return gpflow.models.SVGP(gpflow.kernels.Linear(), gpflow.likelihoods.Bernoulli(), Z)


def _regression() -> gpflow.models.SGPR:
    return gpflow.models.SGPR((X, CLASSES), gpflow.kernels.SquaredExponential(), Z)


@pytest.mark.parametrize("message, create", REFUSED)
def test_refused(message: str, create: Any, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        create(str(tmp_path))
