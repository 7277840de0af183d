"""A trained model on disk and back.

JSON and NumPy arrays (no pickle) to go on in Python, a SavedModel to predict wherever TensorFlow
runs.
"""

import json
import platform
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from types import FunctionType
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from sklearn.preprocessing import StandardScaler

from .. import __version__
from .fitted import (
    FittedClassifier,
    FittedModel,
    FittedRegression,
    build_classifier,
    build_regression,
)

FORMAT = 2
KINDS = {"regression": FittedRegression, "classification": FittedClassifier}
DESCRIPTION = "model.json"
ARRAYS = "arrays.npz"
PARAMETER = "parameter"
UNCONSTRAINED = "unconstrained"
Z = ".inducing_variable.Z"
# What parts of a model are set to; what else they refer to is made from these.
SETTINGS = (FunctionType, bool, int, float, str, slice, type(None))


def _parameters(model: gpflow.models.GPModel) -> dict[str, gpflow.Parameter]:
    """Find the parameters, without variables that are none: records of what the model did."""
    found = gpflow.utilities.parameter_dict(model)
    return {path: p for path, p in found.items() if isinstance(p, gpflow.Parameter)}


def _describe(fitted: FittedModel) -> dict[str, Any]:
    description = {
        "format": FORMAT,
        "task": next(task for task, kind in KINDS.items() if isinstance(fitted, kind)),
        "alpha": fitted.model.alpha.numpy().tolist(),
        "conditional": fitted.model.conditional,
        "feature_names": fitted.feature_names,
        "target_name": fitted.target_name,
        "trainable": [path for path, p in _parameters(fitted.model).items() if p.trainable],
        "versions": {
            "python": platform.python_version(),
            "gpflow_pep": __version__,
            **{library.__name__: library.__version__ for library in (gpflow, tf, np)},
        },
    }
    if isinstance(fitted, FittedRegression):
        description["neighbours"] = fitted.model.neighbours
    if isinstance(fitted, FittedClassifier):
        description["classes"] = fitted.classes
        description["max_sweeps"] = fitted.model.max_sweeps
        description["tolerance"] = fitted.model.tolerance
    return description


def _arrays(fitted: FittedModel) -> dict[str, AnyNDArray]:
    X, Y = fitted.model.data
    arrays = {"X": X.numpy(), "Y": Y.numpy()}
    arrays.update(input_mean=fitted.inputs.mean_, input_scale=fitted.inputs.scale_)
    if isinstance(fitted, FittedRegression):
        arrays.update(target_mean=fitted.target.mean_, target_scale=fitted.target.scale_)
        if fitted.model.neighbour_plan is not None:
            # Not to be found anew: they are those of earlier hyperparameters.
            rows, neighbours = (
                fitted.model.neighbour_plan.rows,
                fitted.model.neighbour_plan.neighbours,
            )
            arrays.update(neighbour_rows=rows.numpy(), neighbours=neighbours.numpy())
    for path, parameter in _parameters(fitted.model).items():
        arrays[PARAMETER + path] = parameter.numpy()
        arrays[UNCONSTRAINED + path] = parameter.unconstrained_variable.numpy()
    return arrays


def _scaler(mean: AnyNDArray, scale: AnyNDArray) -> StandardScaler:
    scaler = StandardScaler()
    scaler.mean_, scaler.scale_, scaler.n_features_in_ = mean, scale, len(mean)
    return scaler


def _rebuild(description: dict[str, Any], arrays: dict[str, AnyNDArray]) -> FittedModel:
    """Build a model as the saved one, whose parameters are yet to be assigned."""
    kind = KINDS[description["task"]]
    data = arrays["X"], arrays["Y"], arrays[PARAMETER + Z], arrays[PARAMETER + ".alpha"]
    conditional = description.get("conditional", "prior")  # older files have none
    inputs = _scaler(arrays["input_mean"], arrays["input_scale"])
    units = inputs, tuple(description["feature_names"]), description["target_name"]
    if kind is FittedRegression:
        target = _scaler(arrays["target_mean"], arrays["target_scale"])
        neighbours = description.get("neighbours", 0)
        regression = build_regression(*data, conditional=conditional, neighbours=neighbours)
        if regression.neighbour_plan is not None:
            regression.neighbour_plan.rows.assign(arrays["neighbour_rows"])
            regression.neighbour_plan.neighbours.assign(arrays["neighbours"])
        return FittedRegression(regression, *units, target)
    classes = tuple(description["classes"])
    model = build_classifier(*data, len(classes), conditional)
    model.max_sweeps, model.tolerance = description["max_sweeps"], description["tolerance"]
    return FittedClassifier(model, *units, classes)


def _restore_parameters(
    model: gpflow.models.GPModel, description: dict[str, Any], arrays: dict[str, AnyNDArray]
) -> None:
    # Not the constrained values: they do not come back to the last digit, and where Kuu is
    # ill-conditioned predictions would differ by more.
    for path, parameter in _parameters(model).items():
        parameter.unconstrained_variable.assign(arrays[UNCONSTRAINED + path])
        gpflow.set_trainable(parameter, path in description["trainable"])
        value, expected = parameter.numpy(), arrays[PARAMETER + path]
        if not np.allclose(value, expected, rtol=1e-9):
            raise ValueError(
                f"parameter {path} was loaded as {value}, expected the saved {expected}: set"
                " gpflow.config (positive bijector and minima) as it was when the model was saved."
            )


def _settings(part: tf.Module, path: str, internal: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    """Find what a module and its parts consist of and are set to, each with its path."""
    yield path, f"a {type(part).__name__}"
    for name, value in vars(part).items():
        if name.startswith(internal):
            continue
        if isinstance(value, gpflow.Parameter):
            prior, shape = type(value.prior).__name__, tuple(value.shape)
            yield f"{path}.{name}", f"a {value.name} parameter of shape {shape}, prior {prior}"
        elif isinstance(value, tf.Module):
            yield from _settings(value, f"{path}.{name}", ("_self_", "_name"))
        else:
            yield f"{path}.{name}", value


def _require(what: str, found: Any, expected: Any) -> None:
    """Refuse to save what would come back as something else."""
    if not np.array_equal(found, expected):
        found, expected = (getattr(value, "__name__", value) for value in (found, expected))
        raise ValueError(
            f"{what}: the model has {found}, expected {expected}, as the models that compare"
            " trains: save other models with tf.train.Checkpoint."
        )


def _check_restorable(
    fitted: FittedModel, description: dict[str, Any], arrays: dict[str, AnyNDArray]
) -> None:
    """Compare the model, part by part, with the one that would be loaded."""
    model = fitted.model
    _require("inducing variable", type(model.inducing_variable).__name__, "InducingPoints")
    blocks = getattr(model, "has_blocks", False)
    _require("blocks", "blocks of rows" if blocks else "none", "none")
    restored = _rebuild(description, arrays).model
    # What else is private to our models says how they work, not what they compute.
    found = dict(_settings(model, "model", ("_",)))
    for path, value in _settings(restored, "model", ("_",)):
        if isinstance(value, SETTINGS):
            _require(path, found.get(path), value)
    _restore_parameters(restored, description, arrays)


def check_replaceable(directory: str | PathLike[str]) -> None:
    """
    Check that a folder is one that :func:`save_model` may replace.

    :param directory: The folder, which need not exist.
    :raises ValueError: If it has files that :func:`save_model` does not write.
    :raises OSError: If it is no folder.
    """
    directory = Path(directory)
    found = {path.name for path in directory.iterdir()} if directory.exists() else set()
    for foreign in sorted(found - {DESCRIPTION, ARRAYS}):
        raise ValueError(
            f"{directory} has {foreign}, expected {DESCRIPTION} and {ARRAYS} of an earlier call or"
            " nothing, because the folder is replaced: choose another, or remove what is there."
        )


@contextmanager
def _replacing(directory: Path) -> Iterator[Path]:
    """Give a new folder to write in, which takes the place of another once all is written."""
    directory.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{directory.name}-", dir=directory.parent) as work:
        new, old = Path(work, "new"), Path(work, "old")
        new.mkdir()
        yield new
        try:
            if directory.exists():
                directory.rename(old)
            new.rename(directory)
        except BaseException:
            if old.exists() and not directory.exists():
                old.rename(directory)
            raise


def save_model(directory: str | PathLike[str], fitted: FittedModel) -> None:
    """
    Save all that predicting from original units needs.

    That is parameters, training data, alpha, standardisers, names, and the versions that wrote
    them. The folder appears when all is written; until then an earlier one stays as it is.

    :param directory: A folder that does not exist, is empty, or was written by an earlier call,
        which is replaced.
    :param fitted: A model as :func:`gpflow_pep.compare.run.compare` trains them: with the same
        kind of kernel, mean, likelihood and inducing points.
    :raises ValueError: If the model would not come back as it is, or the folder has other files.
    """
    directory = Path(directory).resolve()
    description, arrays = _describe(fitted), _arrays(fitted)
    _check_restorable(fitted, description, arrays)
    check_replaceable(directory)
    text = json.dumps(description, indent=2, ensure_ascii=False) + "\n"
    with _replacing(directory) as folder:
        np.savez(folder / ARRAYS, **arrays)
        (folder / DESCRIPTION).write_text(text, encoding="utf-8")


def _read(directory: Path) -> tuple[dict[str, Any], dict[str, AnyNDArray]]:
    remedy = "pass the folder that save_model wrote, or save the model again."
    for name in (DESCRIPTION, ARRAYS):
        if not (directory / name).is_file():
            raise ValueError(
                f"{directory} has no file {name}, expected {DESCRIPTION} and {ARRAYS}: {remedy}"
            )
    try:
        description = json.loads((directory / DESCRIPTION).read_text(encoding="utf-8"))
        with np.load(directory / ARRAYS) as archive:
            arrays = dict(archive)
    except (OSError, EOFError, ValueError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(
            f"a file in {directory} is damaged ({error}), expected {DESCRIPTION} and {ARRAYS} as"
            f" written: {remedy}"
        ) from error
    found = description.get("format") if isinstance(description, dict) else None
    if found != FORMAT:
        raise ValueError(
            f"{directory / DESCRIPTION} has format {found}, expected {FORMAT}: load it with the"
            " version of gpflow_pep that wrote it, or save the model again."
        )
    return description, arrays


def load_model(directory: str | PathLike[str]) -> FittedModel:
    """
    Load what :func:`save_model` wrote::

        fitted = load_model("pep_results/model")
        mean, variance = fitted.predict(X)  # of y, in original units
        fitted.model                        # the PEPRegression

    and, where the target is a class, ``(probability,) = fitted.predict(X)`` and the
    ``PEPClassification``.

    Predictions are identical under the same ``gpflow.config`` (its jitter, for example).

    :param directory: The folder that was written.
    :raises ValueError: If a file is missing or damaged, or of another format.
    """
    directory = Path(directory)
    description, arrays = _read(directory)
    try:
        fitted = _rebuild(description, arrays)
        _restore_parameters(fitted.model, description, arrays)
    except KeyError as error:
        raise ValueError(
            f"the files in {directory} do not have the entry {error}, expected all that save_model"
            " writes: save the model again."
        ) from error
    return fitted


def export_saved_model(directory: str | PathLike[str], fitted: FittedModel) -> None:
    """
    Export the predictions as a TensorFlow SavedModel, which needs neither this package nor GPflow::

        predictor = tf.saved_model.load("pep_results/saved_model")
        mean, variance = predictor.predict_y(X)  # X: float64 [N, D], original units

    Where the target is a class it gives the probabilities of the classes, [N, C]. It keeps q(u),
    not the training data, which only a regression model's predictions with neighbours need.

    :param directory: The folder to write.
    :param fitted: The trained model.
    """
    posterior = fitted.model.posterior()

    rows = tf.TensorSpec([None, len(fitted.feature_names)], tf.float64, name="X")

    @tf.function(input_signature=[rows])
    def predict_y(X: tf.Tensor) -> Any:
        standard = fitted.standardise(X)
        return fitted.of_latents(standard, *posterior.predict_f(standard))

    module = tf.Module()
    module.posterior, module.likelihood = posterior, fitted.model.likelihood
    module.predict_y = predict_y
    tf.saved_model.save(module, str(directory), signatures=predict_y)
