"""
A trained model on disk and back: JSON and NumPy arrays (no pickle) to go on in Python, a
SavedModel to predict wherever TensorFlow runs.
"""

import json
import platform
import zipfile
import zlib
from os import PathLike
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray

from . import __version__
from .datasets import Standardiser
from .fitted import FittedClassifier, FittedModel, FittedRegression, SavedPrediction
from .models import PEPRegression

FORMAT = 1
KINDS: dict[str, type[FittedModel]] = {
    "regression": FittedRegression,
    "classification": FittedClassifier,
}
DESCRIPTION = "model.json"
ARRAYS = "arrays.npz"
PARAMETER = "parameter"
UNCONSTRAINED = "unconstrained"


def _check_rebuildable(fitted: FittedModel) -> None:
    """Only what :meth:`FittedModel.restore` builds comes back from disk."""
    model = fitted.model
    expected = {
        model.kernel: (gpflow.kernels.SquaredExponential,),
        model.inducing_variable: (gpflow.inducing_variables.InducingPoints,),
        model.mean_function: (gpflow.functions.Zero,),
        model.likelihood: fitted.likelihoods,
    }
    for part, classes in expected.items():
        if type(part) not in classes:
            raise ValueError(
                f"the model has a {type(part).__name__}, expected a"
                f" {' or '.join(cls.__name__ for cls in classes)}, as the models that compare"
                " trains: save other models with tf.train.Checkpoint."
            )
    if isinstance(model, PEPRegression) and model._blocks is not None:
        raise ValueError(
            "the model has blocks of rows, expected none, as the models that compare trains: save"
            " other models with tf.train.Checkpoint."
        )


def _parameters(model: gpflow.models.GPModel) -> dict[str, gpflow.Parameter]:
    """Without variables that are no parameters: records of what the model did."""
    found = gpflow.utilities.parameter_dict(model)
    return {path: p for path, p in found.items() if isinstance(p, gpflow.Parameter)}


def save_model(directory: str | PathLike[str], fitted: FittedModel) -> None:
    """
    Save all that predicting from original units needs: parameters, training data, alpha,
    standardisers, names, and the versions that wrote them.

    :param directory: made if it does not exist; what an earlier call wrote there is replaced.
    :param fitted: a model with the kernel, mean, likelihood and inducing points of
        :meth:`FittedModel.start <gpflow_pep.fitted.base.FittedModel.start>`, as
        :func:`gpflow_pep.compare.compare` trains them.
    :raises ValueError: if the model is made of other parts.
    """
    _check_rebuildable(fitted)
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    X, Y = fitted.model.data
    parameters = _parameters(fitted.model)
    np.savez(
        directory / ARRAYS,
        X=X.numpy(),
        Y=Y.numpy(),
        input_mean=fitted.inputs.mean,
        input_scale=fitted.inputs.scale,
        **fitted.units(),
        **{PARAMETER + path: value.numpy() for path, value in parameters.items()},
        **{
            UNCONSTRAINED + path: value.unconstrained_variable.numpy()
            for path, value in parameters.items()
        },
    )
    description = {
        "format": FORMAT,
        "task": next(task for task, kind in KINDS.items() if isinstance(fitted, kind)),
        "alpha": fitted.model.alpha.numpy().tolist(),
        "feature_names": fitted.feature_names,
        "target_name": fitted.target_name,
        "versions": {
            "python": platform.python_version(),
            "gpflow_pep": __version__,
            "gpflow": gpflow.__version__,
            "tensorflow": tf.__version__,
            "numpy": np.__version__,
        },
    }
    (directory / DESCRIPTION).write_text(
        json.dumps(description, indent=2, ensure_ascii=False) + "\n", encoding="utf-8"
    )


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


def _restore_parameters(model: gpflow.models.GPModel, arrays: dict[str, AnyNDArray]) -> None:
    """
    Assign the unconstrained values: the constrained ones do not come back to the last digit, and
    where Kuu is ill-conditioned predictions would differ by more.
    """
    for path, parameter in _parameters(model).items():
        parameter.unconstrained_variable.assign(arrays[UNCONSTRAINED + path])
        value, expected = parameter.numpy(), arrays[PARAMETER + path]
        if not np.allclose(value, expected, rtol=1e-9):
            raise ValueError(
                f"parameter {path} was loaded as {value}, expected the saved {expected}: set"
                " gpflow.config (positive bijector and minima) as it was when the model was saved."
            )


def load_model(directory: str | PathLike[str]) -> FittedModel:
    """
    Load what :func:`save_model` wrote::

        fitted = load_model("pep_results/model")
        mean, variance = fitted.predict(X)  # of y, in original units
        fitted.model                        # the PEPRegression

    and, where the target is a class, ``(probability,) = fitted.predict(X)`` and the
    ``PEPClassification``.

    Predictions are identical under the same ``gpflow.config`` (its jitter, for example).

    :param directory: the folder that was written.
    :raises ValueError: if a file is missing or damaged, or of another format.
    """
    directory = Path(directory)
    description, arrays = _read(directory)
    try:
        fitted = KINDS[description["task"]].restore(
            arrays,
            arrays[PARAMETER + ".inducing_variable.Z"],
            arrays[PARAMETER + ".alpha"],
            Standardiser(arrays["input_mean"], arrays["input_scale"]),
            tuple(description["feature_names"]),
            description["target_name"],
        )
        _restore_parameters(fitted.model, arrays)
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

    Where the target is a class it gives the probabilities of the classes, [N, C].

    :param directory: the folder to write.
    :param fitted: the trained model.
    """
    module = SavedPrediction(fitted)
    tf.saved_model.save(module, str(directory), signatures=module.predict_y)
