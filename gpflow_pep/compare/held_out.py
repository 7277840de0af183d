"""Predictions of rows as a table."""

from typing import Any

import numpy as np
import pandas as pd
from gpflow.base import AnyNDArray
from sklearn.pipeline import Pipeline

from ..estimators.classifier import log_of_labels
from ..refusals import refusal

#: The ends of the central 90% interval.
INTERVAL = {"lower_90": 0.05, "upper_90": 0.95}


def predictions(estimator: Any, inputs: AnyNDArray, classes: bool) -> dict[str, AnyNDArray]:
    """Predict y at rows, as columns of a table; of a class each probability is "p(name)"."""
    if classes:
        probability, names = estimator.predict_proba(inputs), estimator.classes_
        columns = {"predicted": names[np.argmax(probability, axis=1)]}
        return columns | {f"p({name})": probability[:, c] for c, name in enumerate(names)}
    mean, sd = estimator.predict(inputs, return_std=True)
    ends = estimator.predict_quantiles(inputs, list(INTERVAL.values()))
    return {"mean": mean, "sd": sd, **dict(zip(INTERVAL, ends.T))}


def held_out(
    pipeline: Pipeline, X: pd.DataFrame, y: "pd.Series[Any]", classes: bool
) -> pd.DataFrame:
    """Predict rows whose target is known: "true", :func:`predictions` and its "log_density"."""
    estimator, inputs, targets = pipeline[-1], pipeline[:-1].transform(X), y.to_numpy()
    columns = predictions(estimator, inputs, classes)
    if classes:
        names = estimator.classes_
        probability = np.stack([columns[f"p({name})"] for name in names], axis=1)
        densities = log_of_labels(probability, names, targets)
    else:
        densities = estimator.log_densities(inputs, targets)
    return pd.DataFrame({"true": targets, **columns, "log_density": densities}, index=X.index)


def predict_table(pipeline: Pipeline, table: pd.DataFrame) -> pd.DataFrame:
    """Predict the rows of a table as it was read, in their order; see :func:`predictions`."""
    if not isinstance(pipeline, Pipeline):
        expected = "a pipeline for tables, as compare writes it"
        raise refusal("model", f"a {type(pipeline).__name__}", expected, "Call its own predict.")
    names = list(pipeline.feature_names_in_)
    missing = [name for name in names if name not in table]
    if missing:
        got = f"no column {', '.join(map(repr, missing))}"
        expected = f"all that the model was trained on: {', '.join(names)}"
        raise refusal("table", got, expected, "Add what is missing, empty if it is unknown.")
    inputs = pipeline[:-1].transform(table[names])
    columns = predictions(pipeline[-1], inputs, hasattr(pipeline, "classes_"))
    return pd.DataFrame(columns, index=pd.RangeIndex(len(table)))
