"""The forms in which a fitted estimator predicts: saved, pickled, by NumPy, as a SavedModel."""

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tensorflow as tf

from gpflow_pep import estimators
from gpflow_pep.scoring import load_scorer


def saved(model: Any, folder: Path) -> Any:
    estimators.save_estimator(folder / "model", model)
    return estimators.load_estimator(folder / "model")


def scorer(model: Any, folder: Path) -> Any:
    estimators.export_numpy(folder / "scorer", model)
    return load_scorer(folder / "scorer")


def forms(model: Any, folder: Path) -> Iterator[Any]:
    """All with the methods of the estimator that predict."""
    yield saved(model, folder)
    yield pickle.loads(pickle.dumps(model))
    yield scorer(model, folder)


def served(model: Any, folder: Path, X: Any) -> Any:
    """What the SavedModel's ``predict_y`` gives."""
    estimators.export_saved_model(folder / "saved", model)
    predictor = tf.saved_model.load(str(folder / "saved"))
    return predictor.predict_y(tf.constant(X))
