"""Predictions of new rows as a table, with an estimator or a scorer. This module does
not load TensorFlow.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from ..engine.refusals import refusal
from ..tables import read_cells, recognise
from ..tables.contents import GUESSED
from ..tables.conventions import Conventions
from ..tables.encodings import Columns, read_columns
from ..tables.reading import read_table

#: The remark on a row that is far from all training rows.
FAR_AWAY = "far from all training rows"
#: The median, and the ends of the central 90% interval.
QUANTILES = {"median": 0.5, "lower_90": 0.05, "upper_90": 0.95}
#: Also the ends of the central 50% interval, for the picture of a forecast.
BANDS = QUANTILES | {"lower_50": 0.25, "upper_50": 0.75}


def predictions(
    model: Any,
    inputs: Any,
    classes: bool,
    quantiles: Mapping[str, float] = QUANTILES,
    **options: Any,
) -> dict[str, npt.NDArray[Any]]:
    """Predict y at rows, as columns of a table. The probability of a class is in the
    column "p(name)". With several targets, each column is [N, P].

    :param quantiles: The quantiles of a number, by the name of their column.
    :param options: Options of ``predict`` and ``predict_quantiles``.
    """
    if classes:
        probability = model.predict_proba(inputs)
        names = model.classes_
        columns = {"predicted": names[np.argmax(probability, axis=1)]}
        return columns | {
            f"p({name})": probability[:, c] for c, name in enumerate(names)
        }
    mean, sd = model.predict(inputs, return_std=True, **options)
    values = model.predict_quantiles(inputs, list(quantiles.values()), **options)
    values = np.moveaxis(values, -1, 0)
    return {"mean": mean, "sd": sd, **dict(zip(quantiles, values, strict=True))}


def predictions_given_others(
    model: Any, inputs: Any, targets: npt.NDArray[np.float64]
) -> dict[str, npt.NDArray[Any]]:
    """Predict each of several targets of rows, given the other targets of the same row.

    :param model: An estimator whose targets are mixtures of common functions.
    :param targets: The targets, [N, P], with NaN for unknown ones.
    :return: The columns of :func:`predictions`, [N, P] each.
    """
    places = np.arange(targets.shape[1])
    of_columns = [
        predictions(model, inputs, False, known=np.where(places == p, np.nan, targets))
        for p in places
    ]
    columns = {
        name: [part[name][:, p] for p, part in enumerate(of_columns)]
        for name in of_columns[0]
    }
    return {name: np.stack(values, axis=1) for name, values in columns.items()}


def predict_table(model: Any, table: pd.DataFrame) -> pd.DataFrame:
    """Predict the rows of a table as it was read, in their order.

    :param model: A pipeline or a scorer for tables, as compare writes them. If targets
        were modelled together, each target is predicted from the inputs and from the
        other targets in its row of the table, as in :func:`predictions_given_others`.
    :return: The columns of :func:`predictions`, which with several targets are called
        "mean(name)" and so on, and "unusual": the cells of the row that are unlike all
        training rows, see :func:`~gpflow_pep.tables.encodings.unusual_cells`, and a
        note if the row is far from all training rows.
    :raises ValueError: If the model is of another kind, or if the table lacks one of
        its columns.
    """
    encoder, cells, predictor, inputs = prepared(model, table)
    targets = getattr(predictor, "target_names_", None)
    if (
        targets
        and getattr(predictor, "mixes_outputs_", False)
        and set(targets) & {*table.columns}
    ):
        known = known_targets(table, targets, encoder.conventions)
        columns = predictions_given_others(predictor, inputs, known)
    else:
        columns = predictions(predictor, inputs, hasattr(model, "classes_"))
    # A single target may have a column of limits.
    if targets and columns["mean"].ndim > 1:
        columns = {
            f"{column}({name})": values[:, p]
            for p, name in enumerate(targets)
            for column, values in columns.items()
        }
    remarks = [
        "; ".join(filter(None, [unusual, FAR_AWAY if far else ""]))
        for unusual, far in zip(
            encoder.unusual(cells), predictor.far_rows(inputs), strict=True
        )
    ]
    index = pd.RangeIndex(len(table))
    return pd.DataFrame({**columns, "unusual": remarks}, index=index)


class Prepared(NamedTuple):
    """The rows of a table, ready for a model.

    :param encoder: The step that reads tables: the encoder of a pipeline, or a scorer.
    :param cells: The columns of the model as the encoder reads them.
    :param predictor: The step that predicts: the estimator of a pipeline, or a scorer.
    :param inputs: The inputs of the predictor.
    """

    encoder: Any
    cells: Columns
    predictor: Any
    inputs: Any


def prepared(model: Any, table: pd.DataFrame) -> Prepared:
    """Read the columns of a model in a table; see :func:`predict_table`."""
    steps = [step for _, step in getattr(model, "steps", ())]
    encoder = steps[0] if steps else model
    formats = getattr(encoder, "formats", None)
    if formats is None or not hasattr(model, "feature_names_in_"):
        got = f"a {type(model).__name__}"
        expected = "a pipeline or a scorer for tables, as compare writes it"
        remedy = "Call the predict method of the object."
        raise refusal("model", got, expected, remedy)
    names = list(model.feature_names_in_)
    # If one column is absent, the message lists all columns.
    cells = read_columns(table[names] if {*names} <= {*table} else table, formats)
    if not steps:
        return Prepared(encoder, cells, model, cells)
    return Prepared(encoder, cells, steps[-1], model[:-1].transform(cells))


def as_cells(table: pd.DataFrame) -> pd.DataFrame:
    """Put ' before words and names that a spreadsheet would run as a formula."""

    def cell(value: Any) -> Any:
        formula = isinstance(value, str) and re.match(
            r"[=@\t\r]|[+-](?![\d.,\s]*(e[+-]?\d+)?$)", value
        )
        return f"'{value}" if formula else value

    text_columns = table.select_dtypes(exclude="number").columns
    return table.assign(
        **{name: table[name].map(cell) for name in text_columns}
    ).rename(columns=cell)


def read_as_in_training(
    model: Any, path: Path, frame: pd.DataFrame, reading: Mapping[str, Any]
) -> pd.DataFrame:
    """Read a table again if its encoding was guessed, or its sheet was chosen, and the
    model was trained with another one. Otherwise return it as it was read.

    :param reading: The arguments with which the table was read.
    :raises ValueError: If there is no such sheet.
    """
    encoder = model.steps[0][1] if hasattr(model, "steps") else model
    conventions = getattr(encoder, "conventions", None)
    sheet = getattr(conventions, "sheet", "")
    if "sheet" in frame.attrs and sheet and reading["sheet"] is None:
        if frame.attrs["sheet"] == sheet:
            return frame
        return read_table(path, **{**reading, "sheet": sheet})
    encoding = getattr(conventions, "encoding", "")
    guess = frame.attrs.get("encoding")
    was_named = reading["encoding"] is not None or encoding.startswith("utf")
    if guess not in GUESSED or was_named or encoding in ("", guess):
        return frame
    return read_table(path, **{**reading, "encoding": encoding})


def known_targets(
    table: pd.DataFrame, targets: Sequence[str], conventions: Conventions | None
) -> npt.NDArray[np.float64]:
    """Read the numbers in the target columns of a table, [N, P]; NaN if a cell is empty
    or the table does not have the column.
    """
    known = np.full((len(table), len(targets)), np.nan)
    marks = {
        name: table.attrs[name]
        for name in ("decimal", "thousands")
        if name in table.attrs
    }
    conventions = conventions and conventions._replace(**marks)
    for p, name in enumerate(targets):
        if name not in table or table[name].isna().all():
            continue
        form = recognise(table[name], conventions=conventions)
        if form.kind != "number":
            remedy = "Correct the cells, or leave them empty."
            raise refusal(
                f"column '{name}'", form.kind, "numbers, because it is a target", remedy
            )
        known[:, p] = read_cells(table[name], form).to_numpy(dtype=np.float64)
    return known
