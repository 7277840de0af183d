"""Fitted estimators as NumPy arrays, to predict without TensorFlow."""

import platform
from os import PathLike
from typing import Any

import numpy as np
from gpflow.base import AnyNDArray
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import check_is_fitted

from .. import __version__
from ..engine.checks import refusal
from ..scoring.likelihoods import CLASSES
from ..scoring.stored import DESCRIPTION, write_parts
from ..scoring.units import Units
from ..tables import TableEncoder
from .base import PEPEstimator
from .classifier import PEPClassifier
from .numpy_parts import mixture_parts
from .regressor import PEPRegressor
from .saved_files import replaced_folder


def export_numpy(folder: str | PathLike[str], estimator: Any) -> None:
    """
    Export the predictions as a small folder that NumPy and SciPy can predict from::

        from gpflow_pep.scoring import load_scorer

        scorer = load_scorer("pep_results/scorer")
        mean, sd = scorer.predict(X, return_std=True)

    It has the inducing points and q(u), not the training data. Predictions are those of the
    estimator; see :class:`~gpflow_pep.scoring.Scorer`.

    :param folder: As of :func:`~gpflow_pep.estimators.saving.save_estimator`.
    :param estimator: A fitted estimator; or a pipeline that ends with one, whose other steps are a
        :class:`~gpflow_pep.tables.TableEncoder` at its beginning, or of scikit-learn's
        ``StandardScaler``, or "passthrough".
    :raises ValueError: If it is another, or has a part that NumPy's predictions do not know:
        another kernel or likelihood than GPflow's usual ones, inducing variables that are not
        points, neighbours, float32; or if the folder has other files.
    """
    parts = scorer_parts(estimator)
    versions = {"gpflow_pep": __version__, "python": platform.python_version()}
    with replaced_folder(folder, DESCRIPTION) as new:
        write_parts(new, parts, versions)


def predicts_without_tensorflow(estimator: Any) -> bool:
    """
    Whether :func:`export_numpy` takes a fitted estimator, and the scorer has all its predictions:
    of numbers quantiles too, which a scorer has for Gaussian noise only.
    """
    try:
        components = scorer_parts(estimator)["mixture"]["components"]
    except ValueError:
        return False
    return {part["likelihood"]["kind"] for part in components} <= {"Gaussian", *CLASSES}


def scorer_parts(estimator: Any) -> dict[str, Any]:
    """Describe a fitted estimator, for :class:`~gpflow_pep.scoring.Scorer`; refuse others."""
    steps = [step for _, step in estimator.steps] if isinstance(estimator, Pipeline) else None
    steps = [step for step in steps or [estimator] if step not in (None, "passthrough")]
    last = steps.pop() if steps else None
    if type(last) not in (PEPRegressor, PEPClassifier):
        expected = "a PEPRegressor or PEPClassifier, or a pipeline that ends with one"
        raise refusal("estimator", f"a {type(last).__name__}", expected, "Export one of them.")
    assert isinstance(last, PEPEstimator)
    check_is_fitted(last)
    encoder = steps.pop(0) if steps and type(steps[0]) is TableEncoder else None
    for step in steps:
        if type(step) is not StandardScaler:
            expected = "a TableEncoder at the beginning, StandardScaler and nothing else before it"
            remedy = "Apply such a step before, and export the estimator."
            raise refusal("estimator", f"the step {type(step).__name__}", expected, remedy)
    first = encoder or (steps[0] if steps else last)
    names = getattr(first, "feature_names_in_", None)
    return {
        "mixture": mixture_parts(last.posterior_),
        "scalers": [_scaler_parts(scaler) for scaler in (*steps, last.input_scaler_)],
        "units": (last._target.numbers if isinstance(last, PEPRegressor) else Units())._asdict(),
        "columns": None if encoder is None else _column_parts(encoder),
        "conventions": encoder and encoder.conventions and encoder.conventions._asdict(),
        "num_columns": first.n_features_in_,
        "names": None if names is None else [str(name) for name in names],
        "labels": _label_parts(last.classes_) if isinstance(last, PEPClassifier) else None,
    }


def _scaler_parts(scaler: StandardScaler) -> dict[str, Any]:
    return {
        "offset": 0.0 if scaler.mean_ is None or not scaler.with_mean else scaler.mean_,
        "scale": 1.0 if scaler.scale_ is None else scaler.scale_,
    }


def _column_parts(encoder: TableEncoder) -> list[dict[str, Any]]:
    check_is_fitted(encoder)
    return [
        {"name": name, "format": form._asdict(), "encoding": encoder.encodings_[name]._asdict()}
        for name, form in encoder.formats.items()
    ]


def _label_parts(labels: AnyNDArray) -> dict[str, Any]:
    values = np.array(labels.tolist())
    if values.dtype.kind not in "biufU" or values.tolist() != labels.tolist():
        got = f"labels of type {labels.dtype}: {list(labels[:5])}"
        remedy = "Train with such labels, for example y.astype(str)."
        raise refusal("classes_", got, "numbers or words of one type", remedy)
    objects = labels.dtype == object
    return {"values": values if objects else labels, "objects": objects}
