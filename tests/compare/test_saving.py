"""A trained model on disk and back."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from compare.small_comparison import ALPHAS, small_classes, small_classification, small_comparison
from gpflow.utilities import to_default_float
from numpy.testing import assert_allclose, assert_array_equal

import gpflow_pep.compare.fitted
from gpflow_pep.compare.fitted import (
    FittedClassifier,
    FittedModel,
    FittedRegression,
)
from gpflow_pep.compare.saving import load_model, save_model
from gpflow_pep.estimators.parts import make_kernel
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


@pytest.mark.parametrize("classes", [False, True])
def test_conditional_comes_back(tmp_path: Path, classes: bool) -> None:
    before = small_classification(2).models[1.0] if classes else fitted(0.0)
    old = before.model
    data, Z = old.data, old.inducing_variable.Z.numpy()
    if classes:
        new = gpflow_pep.compare.fitted.build_classifier(*data, Z, 1.0, 2, "scaled")
    else:
        new = gpflow_pep.compare.fitted.build_regression(*data, Z, 0.0, conditional="scaled")
    save_model(tmp_path, replace(before, model=new))
    after = load_model(tmp_path).model
    assert after.conditional == "scaled"
    assert_allclose(after.pep_log_marginal_likelihood(), new.pep_log_marginal_likelihood())
    # As files were written before there was a choice.
    description = json.loads((tmp_path / "model.json").read_text())
    del description["conditional"]
    (tmp_path / "model.json").write_text(json.dumps(description))
    assert load_model(tmp_path).model.conditional == "prior"


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


def test_saved_model(exported: str) -> None:
    predictor = tf.saved_model.load(exported)
    expected = fitted().predict(X_NEW)
    for rows in (slice(0, 25), slice(3, 4)):
        mean, variance = predictor.predict_y(tf.constant(X_NEW[rows]))
        assert_allclose(mean, expected.mean[rows], rtol=1e-11)
        assert_allclose(variance, expected.variance[rows], rtol=1e-11)
    served = predictor.signatures["serving_default"](X=tf.constant(X_NEW))
    assert_allclose(served["mean"], expected.mean, rtol=1e-11)
    assert_allclose(served["variance"], expected.variance, rtol=1e-11)


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


def regression(change: Any = lambda model: None, **options: Any) -> FittedModel:
    """Like those that are trained, but for the noise that the options describe and one change."""
    data, Z = fitted().model.data, fitted().model.inducing_variable
    likelihood = gpflow.likelihoods.Gaussian(**options)
    model = PEPRegression(data, make_kernel("rbf", 1), Z, likelihood=likelihood)
    change(model)
    return replace(fitted(), model=model)


def classifier(likelihood: gpflow.likelihoods.Likelihood, num_classes: int) -> FittedModel:
    before = small_classification(num_classes)
    (fitted, *_) = before.models.values()
    data, Z = fitted.model.data, fitted.model.inducing_variable
    model = PEPClassification(data, make_kernel("rbf", 2), likelihood, Z)
    return replace(fitted, model=model)


def put(part: str, name: str, value: Any) -> Any:
    return lambda model: setattr(getattr(model, part) if part else model, name, value)


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: classifier(gpflow.likelihoods.Bernoulli(tf.sigmoid), 2),
         r"likelihood.invlink: the model has sigmoid, expected inv_probit"),
        (lambda: classifier(gpflow.likelihoods.Softmax(3), 3),
         r"a Softmax, expected a MultiClass"),
        (lambda: regression(variance=gpflow.functions.Linear([[0.1]], 0.5)),
         r"likelihood.variance: the model has a Linear, expected a .* parameter"),
        (lambda: regression(scale=0.3), r"likelihood.variance: the model has None, expected a"),
        (lambda: regression(variance=0.1, variance_lower_bound=1e-3),
         r"likelihood.variance_lower_bound: the model has 0.001, expected 1e-06"),
        (lambda: regression(put("kernel", "variance", gpflow.Parameter(
            1.0, transform=gpflow.utilities.positive(0.1)))),
         r"kernel.variance: the model has a chain.*, expected a softplus"),
        (lambda: regression(put("kernel", "variance", gpflow.Parameter(
            1.0, transform=gpflow.utilities.positive(), prior=tfp.distributions.Gamma(
                to_default_float(2.0), to_default_float(3.0))))),
         r"kernel.variance: .* prior Gamma, expected .* prior NoneType"),
        (lambda: regression(put("", "kernel", gpflow.kernels.SquaredExponential())),
         r"lengthscales: .* shape \(\), .* shape \(1,\)"),
        (lambda: regression(put("", "kernel", gpflow.kernels.SquaredExponential(
            lengthscales=[1.0], active_dims=[0]))),
         r"active_dims: the model has \[0\], expected slice"),
    ],
)  # fmt: skip
def test_what_would_be_lost_is_refused(tmp_path: Path, make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=rf"{message}.*tf.train.Checkpoint"):
        save_model(tmp_path / "model", make())
    assert list(tmp_path.iterdir()) == []


def test_options_of_a_classifier_come_back(tmp_path: Path) -> None:
    link = gpflow.likelihoods.RobustMax(3, epsilon=0.05)
    before = classifier(gpflow.likelihoods.MultiClass(3, invlink=link), 3)
    before.model.max_sweeps, before.model.tolerance = 150, 1e-5
    save_model(tmp_path, before)
    after = load_model(tmp_path).model
    assert_allclose(after.likelihood.invlink.epsilon, 0.05)
    assert (after.max_sweeps, after.tolerance) == (150, 1e-5)


def test_what_was_not_to_be_trained_stays_so(tmp_path: Path) -> None:
    before = regression(lambda model: gpflow.set_trainable(model.inducing_variable, False))
    save_model(tmp_path, before)
    after = load_model(tmp_path).model
    assert not after.inducing_variable.Z.trainable and not after.alpha.trainable
    assert len(after.trainable_variables) == len(before.model.trainable_variables) == 3


@pytest.mark.parametrize("earlier", [False, True])
@pytest.mark.parametrize("step", ["savez", "write_text", "rename"])
def test_a_save_that_fails_leaves_what_was_there(
    tmp_path: Path, saved: Path, monkeypatch: pytest.MonkeyPatch, step: str, earlier: bool
) -> None:
    folder = tmp_path / "model"
    if earlier:
        shutil.copytree(saved, folder)
    place = np if step == "savez" else Path
    original = getattr(place, step)

    def fail(target: Any, *arguments: Any, **options: Any) -> Any:
        if step != "rename":
            original(target, *arguments, **options)  # written, and then
        elif target.name != "new":
            return original(target, *arguments)
        raise OSError("no space left")

    monkeypatch.setattr(place, step, fail)
    with pytest.raises(OSError, match="no space left"):
        save_model(folder, fitted(1.0))
    monkeypatch.undo()
    assert list(tmp_path.iterdir()) == [folder] * earlier
    if earlier:
        assert load_model(folder).model.alpha.numpy() == 0.5


def test_a_saved_folder_is_as_open_as_any(tmp_path: Path) -> None:
    save_model(tmp_path / "model", fitted())
    (tmp_path / "other").mkdir()
    assert (tmp_path / "model").stat().st_mode == (tmp_path / "other").stat().st_mode
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "other"]


def test_files_of_others_are_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match=r"has notes.txt, expected model.json .* choose another"):
        save_model(tmp_path, fitted())
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved") / "model"
    save_model(folder, fitted())
    return folder


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
def test_damaged_folder(
    tmp_path: Path, saved: Path, damage: Any, got: str, expected: str, remedy: str
) -> None:
    shutil.copytree(saved, tmp_path, dirs_exist_ok=True)
    damage(tmp_path)
    with pytest.raises(ValueError) as error:
        load_model(tmp_path)
    for part in (got, expected, remedy):
        assert part in str(error.value)


def test_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"has no file model\.json"):
        load_model(tmp_path / "nowhere")
