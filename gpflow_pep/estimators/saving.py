"""Saving and loading of fitted estimators, as JSON, NumPy arrays and skops, without
pickle.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any
from zipfile import ZIP_DEFLATED

import numpy as np
import sklearn
from scipy.interpolate import BSpline
from sklearn import feature_selection, model_selection
from sklearn.base import BaseEstimator
from sklearn.compose import make_column_selector
from sklearn.utils import Bunch
from sklearn.utils.validation import check_is_fitted

from ..engine.files import MODEL
from ..engine.refusals import refusal
from ..scoring.stored import Described, SavedFiles, read_files, remedy_of, write_files
from ..tables import Format, TableEncoder
from ..tables.conventions import Conventions
from ..tables.encodings import Encoding
from .base import DESCRIBE, RESTORE, PEPEstimator
from .describing_estimators import (
    ESTIMATORS,
    check_estimator_same,
    construct_estimator,
    describe_estimator,
)
from .pipeline import DrawingPipeline
from .rows_held import RowsHeld
from .separate import SeparateRegressors
from .single.defaults_of_gpflow import default_float, default_jitter
from .single.when_used import describing, gpflow, tf

#: What files may refer to, in addition to the types that skops trusts: scikit-learn's
#: estimators, numbers, words, and elementwise functions of NumPy and SciPy. None of
#: these runs code from a file or reads another file.
_PUBLIC = [
    *ESTIMATORS.values(),
    SeparateRegressors,
    DrawingPipeline,
    RowsHeld,
    TableEncoder,
    Format,
    Encoding,
    Conventions,
    *(make_column_selector, Bunch, BSpline),
    *(
        vars(module)[name]
        for module in (feature_selection, model_selection)
        for name in module.__all__
        if name in vars(module)
    ),
]
TRUSTED = [
    *(f"{public.__module__}.{public.__name__}" for public in _PUBLIC),
    *("builtins.object", "numpy.dtype", "numpy.number"),
    "scipy._lib.array_api_compat.numpy._aliases.asarray",  # a part of BSpline
    *(
        "sklearn.metrics._scorer._PassthroughScorer",
        "sklearn.calibration._CalibratedClassifier",
    ),
    "sklearn.calibration._SigmoidCalibration",
]


def save_estimator(
    folder: str | PathLike[str],
    estimator: Any,
    *,
    card: str = "",
    promised: Sequence[Mapping[str, Any]] = (),
) -> None:
    """Save a fitted estimator, or a pipeline or other estimator of scikit-learn that
    contains one.

    The folder has three files. ``model.json`` is readable text: it describes each
    :class:`PEPRegressor <gpflow_pep.estimators.PEPRegressor>` and
    :class:`PEPClassifier <gpflow_pep.estimators.PEPClassifier>`, the number of training
    rows in the folder, and the versions that wrote it. ``arrays.npz`` has their
    parameters, training data, sites, units and names. ``pipeline.skops`` has the rest
    of the pipeline. The objects of kernel, likelihood and inducing variables must keep
    the arguments of their constructors as attributes with the same names. Nearly all
    classes of GPflow do, and all classes of this package; your own classes can be used
    if they are at the top level of a module that is imported before loading. The folder
    appears when everything is written; until then an earlier folder is kept.

    :param folder: A folder that does not exist or is empty, or that an earlier call
        wrote, which is then replaced.
    :param estimator: The estimator.
    :param card: A text for people about the model, written as ``README.md`` if it is
        not empty.
    :param promised: The scores of held-out rows of each target, as
        :func:`~gpflow_pep.compare.service.promised_scores` computes them, for
        ``gpflow-pep score``.
    :raises ValueError: If the estimator is not fitted or does not contain an estimator
        of this package; if it contains functions of the user, or other parts that
        loading could not restore; or if the folder has other files.
    """
    saved, originals = _describe(estimator)
    if promised:
        saved.content["promised"] = list(promised)
    try:
        loaded = _construct_all(saved)
    except Exception as error:  # from a constructor of the user
        got = f"a part that cannot be made again ({error})"
        expected = "constructors that take what"
        raise describing.cannot_save(
            "estimator", got, f"{expected} their objects keep"
        ) from error
    for pair in zip(loaded, originals, strict=True):
        check_estimator_same(*pair)
    _construct(saved, loaded)
    libraries = {
        library.__name__: library.__version__ for library in (gpflow, tf, np, sklearn)
    }
    write_files(folder, saved, MODEL, card, **libraries)


def load_estimator(folder: str | PathLike[str]) -> Any:
    """Load an estimator that :func:`save_estimator` wrote::

        model = load_estimator("pep_results/model")
        mean, std = model.predict(table, return_std=True)

    Nothing in the files is run or imported. Only estimators of scikit-learn and of this
    package, models, and parts of GPflow's models are constructed; your own classes are
    among them if you have imported their module. Predictions equal the predictions of
    the saved estimator.

    :param folder: The folder that was written.
    :raises ValueError: If a file is missing, damaged or changed, has an unknown format,
        or contains a foreign type; or if ``gpflow.config`` has another float type or
        jitter than when the estimator was saved.
    """
    saved = read_files(folder, MODEL)
    config = saved.content.get("gpflow_config")
    if config != _config():
        raise refusal(
            "gpflow.config",
            str(_config()),
            f"{config}, as when the estimator was saved",
            "Set it with gpflow.config.set_default_float and"
            " gpflow.config.set_default_jitter.",
        )
    try:
        return _construct(saved, _construct_all(saved))
    except ModuleNotFoundError as error:
        got = f"a class of the module {error.name}"
        expected = "modules that are imported"
        raise refusal(
            str(folder),
            got,
            expected,
            "Import the module before, because loading does not import modules.",
        ) from error
    # Any error is caught, because files that save_estimator wrote do not raise errors.
    except Exception as error:
        raise refusal(
            str(folder),
            f"files that do not describe an estimator ({type(error).__name__}:"
            f" {error})",
            "files that save_estimator writes",
            remedy_of(MODEL),
        ) from error


def _describe(estimator: Any) -> tuple[SavedFiles, list[PEPEstimator]]:
    """Describe the estimators of this package in an object; skops describes the
    rest.
    """
    # This import takes a second, and only saving and loading need it.
    from skops import io

    if not isinstance(estimator, BaseEstimator):
        raise _not_ours(f"a {type(estimator).__name__}")
    check_is_fitted(estimator)
    describe = describing.Describer()
    descriptions: list[Described] = []
    originals: list[PEPEstimator] = []
    places: dict[int, int] = {}

    def refer(part: PEPEstimator) -> dict[str, Any]:
        if id(part) not in places:
            places[id(part)] = len(originals)
            descriptions.append(describe_estimator(part, describe))
            originals.append(part)
        return {"estimator": places[id(part)]}

    token = DESCRIBE.set(refer)
    try:
        pipeline = io.dumps(estimator, compression=ZIP_DEFLATED)
    except TypeError as error:
        raise _not_ours(f"a part that skops cannot write ({error})") from error
    finally:
        DESCRIBE.reset(token)
    if not originals and type(estimator) is not TableEncoder:
        raise _not_ours(f"a {type(estimator).__name__}")
    _check_types(pipeline)
    content = {"estimators": descriptions, "gpflow_config": _config()}
    # In the form in which it will be read.
    content = json.loads(json.dumps(content, allow_nan=False))
    return SavedFiles(content, describe.arrays, pipeline), originals


def _construct_all(saved: SavedFiles) -> list[PEPEstimator]:
    """Construct the estimators of this package, in the order of their descriptions,
    because they may share parts.
    """
    load = describing.Loader(saved.arrays)
    return [
        construct_estimator(described, load)
        for described in saved.content["estimators"]
    ]


def _construct(saved: SavedFiles, estimators: list[PEPEstimator]) -> Any:
    """Construct what skops wrote, and put the estimators of this package in their
    places.
    """
    from skops import io

    _check_types(saved.pipeline)

    def restore(state: dict[str, Any]) -> dict[str, Any]:
        return vars(estimators[state["estimator"]])

    token = RESTORE.set(restore)
    try:
        return io.loads(saved.pipeline, trusted=TRUSTED)
    finally:
        RESTORE.reset(token)


def _check_types(pipeline: bytes) -> None:
    from skops import io

    foreign = sorted(set(io.get_untrusted_types(data=pipeline)) - set(TRUSTED))
    if foreign:
        raise refusal(
            "estimator",
            f"{', '.join(foreign)} in it",
            "only types of scikit-learn and of this package, and functions of NumPy"
            " and SciPy, because loading runs no other code",
            "Leave out such a step and apply it yourself before, or pickle the"
            " estimator.",
        )


def _not_ours(got: str) -> ValueError:
    return refusal(
        "estimator",
        got,
        "a PEPRegressor or PEPClassifier, or an object of scikit-learn that contains"
        " one",
        "Pass such an object, or use pickle.",
    )


def _config() -> dict[str, Any]:
    name = np.dtype(default_float()).name
    jitter = default_jitter()
    return {"float": name, "jitter": jitter}
