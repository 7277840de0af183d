"""A trained model on disk and back."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from compare.small_comparison import ALPHAS, small_classes, small_classification, small_comparison
from numpy.testing import assert_allclose, assert_array_equal

import gpflow_pep.compare.fitted
from gpflow_pep.compare.fitted import FittedClassifier, FittedModel, FittedRegression
from gpflow_pep.compare.saving import export_saved_model, load_model, save_model
from gpflow_pep.models import PEPClassification, PEPRegression

X_NEW = np.linspace(98.0, 108.0, 25)[:, None]


def fitted(alpha: float = 0.5) -> FittedModel:
    return small_comparison().models[alpha]


@pytest.mark.parametrize("alpha", ALPHAS)
def test_round_trip(tmp_path: Path, alpha: float) -> None:
    before = fitted(alpha)
    save_model(tmp_path / "new" / "model", before)
    after = load_model(tmp_path / "new" / "model")
    assert isinstance(after, FittedRegression) and isinstance(after.model, PEPRegression)
    assert after.model.alpha.numpy() == alpha
    assert after.feature_names == ("time",)
    assert after.target_name == "load"
    for array, loaded in zip(before.model.data, after.model.data, strict=True):
        assert_array_equal(array, loaded)
    for name in ("mean", "variance"):
        assert_allclose(
            getattr(after.predict(X_NEW), name), getattr(before.predict(X_NEW), name), rtol=1e-14
        )
    for f, loaded_f in zip(
        before.model.predict_f(X_NEW, full_cov=True),
        after.model.predict_f(X_NEW, full_cov=True),
        strict=True,
    ):
        assert_allclose(f, loaded_f, rtol=1e-13, atol=1e-14)
    assert_allclose(
        after.model.pep_log_marginal_likelihood(), before.model.pep_log_marginal_likelihood()
    )


@pytest.mark.parametrize("num_classes, alpha", [(2, 1.0), (3, 0.5)])
def test_round_trip_of_classes(tmp_path: Path, num_classes: int, alpha: float) -> None:
    before = small_classification(num_classes).models[alpha]
    save_model(tmp_path, before)
    after = load_model(tmp_path)
    assert isinstance(after, FittedClassifier) and isinstance(after.model, PEPClassification)
    assert after.model.alpha.numpy() == alpha
    assert after.classes == before.classes
    X = small_classes(num_classes).X
    # The sites are restored, not found anew.
    assert_array_equal(after.model.sites.nu, before.model.sites.nu)
    assert_allclose(after.predict(X).probability, before.predict(X).probability, rtol=1e-13)


def test_saving_again_replaces(tmp_path: Path) -> None:
    save_model(tmp_path, fitted(0.0))
    save_model(tmp_path, fitted(1.0))
    assert load_model(tmp_path).model.alpha.numpy() == 1.0


def test_description_can_be_read_by_people(tmp_path: Path) -> None:
    save_model(tmp_path, fitted())
    description = json.loads((tmp_path / "model.json").read_text())
    assert description["alpha"] == 0.5
    assert description["feature_names"] == ["time"]
    assert description["versions"]["gpflow"] == gpflow.__version__
    assert description["versions"]["gpflow_pep"] == gpflow_pep.__version__


def test_other_gpflow_config_is_noticed(tmp_path: Path) -> None:
    save_model(tmp_path, fitted())
    with (
        gpflow.config.as_context(gpflow.config.Config(positive_bijector="exp")),
        pytest.raises(ValueError, match=r"kernel.* expected the saved .* set gpflow\.config"),
    ):
        load_model(tmp_path)


def test_loaded_model_can_be_trained_on(tmp_path: Path) -> None:
    save_model(tmp_path, fitted())
    model = load_model(tmp_path).model
    assert len(model.trainable_variables) == len(fitted().model.trainable_variables)


def test_saved_model(tmp_path: Path) -> None:
    export_saved_model(tmp_path / "saved_model", fitted())
    predictor = tf.saved_model.load(str(tmp_path / "saved_model"))
    expected = fitted().predict(X_NEW)
    for rows in (slice(0, 25), slice(3, 4)):
        mean, variance = predictor.predict_y(tf.constant(X_NEW[rows]))
        assert_allclose(mean, expected.mean[rows], rtol=1e-11)
        assert_allclose(variance, expected.variance[rows], rtol=1e-11)
    served = predictor.signatures["serving_default"](X=tf.constant(X_NEW))
    assert_allclose(served["mean"], expected.mean, rtol=1e-11)
    assert_allclose(served["variance"], expected.variance, rtol=1e-11)


def test_saved_model_needs_tensorflow_alone(tmp_path: Path) -> None:
    export_saved_model(tmp_path / "saved_model", fitted())
    code = (
        "import sys, tensorflow as tf\n"
        f"predictor = tf.saved_model.load({str(tmp_path / 'saved_model')!r})\n"
        "mean, variance = predictor.predict_y(tf.constant([[101.5]], tf.float64))\n"
        "assert not {'gpflow', 'gpflow_pep'} & set(sys.modules)\n"
        "print(repr(float(mean[0, 0])), repr(float(variance[0, 0])))\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    expected = fitted().predict(np.array([[101.5]]))
    numbers = [float(word) for word in run.stdout.split()]
    assert_allclose(numbers, [expected.mean[0, 0], expected.variance[0, 0]], rtol=1e-11)


def test_prediction_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = fitted().predict(X_NEW)
    monkeypatch.setattr(gpflow_pep.compare.fitted, "PREDICTION_CHUNK", 7)
    in_chunks = fitted().predict(X_NEW)
    assert_allclose(in_chunks.mean, whole.mean, rtol=1e-12)
    # GPflow subtracts large numbers here, and rounds them by the shape of the product.
    assert_allclose(in_chunks.variance, whole.variance, rtol=1e-10)


def test_prediction_of_no_rows() -> None:
    assert fitted().predict(np.zeros((0, 1))).mean.shape == (0, 1)


@pytest.mark.parametrize(
    "X, got, expected, remedy",
    [
        (np.zeros((3, 2)), "shape (3, 2)", "[N, 1]", "pass the columns time"),
        (np.zeros(3), "shape (3,)", "[N, 1]", "pass the columns time"),
        (np.array([[np.nan]]), "NaN", "finite numbers", "remove those rows"),
    ],
)
def test_bad_rows(X: Any, got: str, expected: str, remedy: str) -> None:
    with pytest.raises(ValueError) as error:
        fitted().predict(X)
    for part in (got, expected, remedy):
        assert part in str(error.value)


def test_other_models_are_refused(tmp_path: Path) -> None:
    data, Z = fitted().model.data, fitted().model.inducing_variable
    cases: dict[str, PEPRegression] = {
        "a Matern32, expected a SquaredExponential": PEPRegression(
            data, gpflow.kernels.Matern32(), Z
        ),
        "a Constant, expected a Zero": PEPRegression(
            data,
            gpflow.kernels.SquaredExponential(),
            Z,
            mean_function=gpflow.functions.Constant(1.0),
        ),
        "blocks of rows, expected none": PEPRegression(
            data, gpflow.kernels.SquaredExponential(), Z, blocks=np.arange(32) // 4
        ),
    }
    for message, model in cases.items():
        with pytest.raises(ValueError, match=rf"{message}.*tf.train.Checkpoint"):
            save_model(tmp_path, replace(fitted(), model=model))
    assert list(tmp_path.iterdir()) == []


def remove(name: str) -> Any:
    return lambda folder: (folder / name).unlink()


def write(name: str, text: str) -> Any:
    return lambda folder: (folder / name).write_text(text)


def truncate(folder: Path) -> None:
    content = (folder / "arrays.npz").read_bytes()
    (folder / "arrays.npz").write_bytes(content[: len(content) // 2])


def forget_the_scale(folder: Path) -> None:
    with np.load(folder / "arrays.npz") as archive:
        arrays = dict(archive)
    del arrays["input_scale"]
    np.savez(folder / "arrays.npz", **arrays)


@pytest.mark.parametrize(
    "damage, got, expected, remedy",
    [
        (
            remove("model.json"),
            "no file model.json",
            "model.json and arrays.npz",
            "pass the folder",
        ),
        (remove("arrays.npz"), "no file arrays.npz", "model.json and arrays.npz", "save the model"),
        (write("model.json", "{"), "is damaged", "as written", "save the model again"),
        (write("model.json", "[]"), "has format None", "expected 2", "version of gpflow_pep"),
        (write("model.json", '{"format": 9}'), "has format 9", "expected 2", "version of"),
        (write("model.json", '{"format": 2}'), "entry 'task'", "all that", "save the"),
        (write("arrays.npz", ""), "is damaged", "as written", "save the model again"),
        (write("arrays.npz", "no archive"), "is damaged", "as written", "save the model again"),
        (truncate, "is damaged", "as written", "save the model again"),
        (forget_the_scale, "entry 'input_scale'", "all that save_model", "save the model again"),
    ],
)
def test_damaged_folder(tmp_path: Path, damage: Any, got: str, expected: str, remedy: str) -> None:
    save_model(tmp_path, fitted())
    damage(tmp_path)
    with pytest.raises(ValueError) as error:
        load_model(tmp_path)
    for part in (got, expected, remedy):
        assert part in str(error.value)


def test_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"has no file model\.json"):
        load_model(tmp_path / "nowhere")
