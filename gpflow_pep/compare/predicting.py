"""Predictions of new rows as a table, by an estimator or a scorer. No TensorFlow."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from ..refusals import refusal

#: Of a row of which the training rows tell nearly nothing.
FAR_AWAY = "far from all training rows"
#: The median, and the ends of the central 90% interval.
QUANTILES = {"median": 0.5, "lower_90": 0.05, "upper_90": 0.95}


def predictions(model: Any, inputs: Any, classes: bool) -> dict[str, npt.NDArray[Any]]:
    """Predict y at rows, as columns of a table; of a class each probability is "p(name)"."""
    if classes:
        probability, names = model.predict_proba(inputs), model.classes_
        columns = {"predicted": names[np.argmax(probability, axis=1)]}
        return columns | {f"p({name})": probability[:, c] for c, name in enumerate(names)}
    mean, sd = model.predict(inputs, return_std=True)
    values = model.predict_quantiles(inputs, list(QUANTILES.values()))
    return {"mean": mean, "sd": sd, **dict(zip(QUANTILES, values.T, strict=True))}


def predict_table(model: Any, table: pd.DataFrame) -> pd.DataFrame:
    """
    Predict the rows of a table as it was read, in their order.

    :param model: A pipeline or a scorer for tables, as compare writes them.
    :return: The columns of :func:`predictions`, and "unusual": the cells of the row that are like
        none of the training rows, see :func:`~gpflow_pep.columns.encodings.unusual_cells`, and
        whether all of it is far from them.
    :raises ValueError: If the model is another, or the table lacks one of its columns.
    """
    steps = [step for _, step in getattr(model, "steps", ())]
    encoder = steps[0] if steps else model
    if not hasattr(encoder, "unusual") or not hasattr(model, "feature_names_in_"):
        expected = "a pipeline or a scorer for tables, as compare writes it"
        raise refusal("model", f"a {type(model).__name__}", expected, "Call its own predict.")
    names = list(model.feature_names_in_)
    missing = [name for name in names if name not in table]
    if missing:
        got = f"no column {', '.join(map(repr, missing))}"
        expected = f"all that the model was trained on: {', '.join(names)}"
        raise refusal("table", got, expected, "Add what is missing, empty if it is unknown.")
    table = table[names]
    inputs, predictor = (model[:-1].transform(table), steps[-1]) if steps else (table, model)
    columns = predictions(predictor, inputs, hasattr(model, "classes_"))
    remarks = [
        "; ".join(filter(None, [cells, FAR_AWAY * far]))
        for cells, far in zip(encoder.unusual(table), predictor.far_rows(inputs), strict=True)
    ]
    index = pd.RangeIndex(len(table))
    return pd.DataFrame({**columns, "unusual": remarks}, index=index)
