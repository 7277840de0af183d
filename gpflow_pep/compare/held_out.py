"""Predictions of rows as a table."""

from typing import Any

import numpy as np
import pandas as pd
from sklearn.pipeline import Pipeline

from ..estimators.classifier import log_of_labels
from .predicting import predictions


def held_out(pipeline: Pipeline, X: pd.DataFrame, y: Any, classes: bool) -> pd.DataFrame:
    """
    Predict rows whose target is known: "true", :func:`predictions` and its "log_density". Of
    several targets there is a row for each that is known, with its name as "target".
    """
    estimator, inputs, targets = pipeline[-1], pipeline[:-1].transform(X), y.to_numpy()
    columns = predictions(estimator, inputs, classes)
    if classes:
        names = estimator.classes_
        probability = np.stack([columns[f"p({name})"] for name in names], axis=1)
        densities = log_of_labels(probability, names, targets)
    else:
        densities = estimator.log_densities(inputs, targets)
        if targets.ndim == 2:
            there = ~np.isnan(targets)
            rows, places = np.nonzero(there)
            values = {"true": targets, **columns, "log_density": densities}
            return pd.DataFrame(
                {"target": y.columns[places], **{name: v[there] for name, v in values.items()}},
                index=X.index[rows],
            )
    return pd.DataFrame({"true": targets, **columns, "log_density": densities}, index=X.index)
