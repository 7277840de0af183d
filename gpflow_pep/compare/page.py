"""A comparison as one HTML page that needs no other file, and its model described in
Markdown.

The templates are page.html.j2 and card.md.j2.
"""

import base64
import datetime
import platform
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pandas as pd
from jinja2 import Environment, PackageLoader, select_autoescape

from .. import __version__
from ..engine.refusals import counted
from ..tables.notes import first_of
from ..tables.numbers import LIMIT
from .figures import pictures
from .findings import findings, named
from .run import Comparison
from .scores import class_report
from .terminal import KEY, score_line, word_tables

LIBRARIES = ("gpflow", "tensorflow", "scikit-learn", "pandas", "numpy", "scipy")
#: The largest numbers of inputs on the page, of texts of an input, of the rows that
#: were predicted worst, and of their inputs.
MAX_INPUTS = 100
MOST_TEXTS = 5
MOST_WORST = 8
WORST_INPUTS = 4
#: The headings of columns of predictions on the page.
WORST_COLUMNS = {
    "row": "row",
    "target": "target",
    "true": "true",
    LIMIT: LIMIT,
    "predicted": "predicted",
    "mean": "predicted mean",
    "lower_90": "90% interval from",
    "upper_90": "to",
    "probability": "probability of the true class",
    "log_density": "log density",
}
_ENVIRONMENT = Environment(
    loader=PackageLoader("gpflow_pep.compare", ""),
    autoescape=select_autoescape(["html.j2"]),
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)


def _in_markdown(text: str) -> str:
    """Write words of a table so that Markdown shows them as they are, in one line."""
    escaped = re.sub(r"([\\\[\]`*|])", r"\\\1", " ".join(str(text).split()))
    return escaped.replace("&", "&amp;").replace("<", "&lt;")


_ENVIRONMENT.filters |= {"repr": repr, "quoted": shlex.quote, "plain": _in_markdown}


def page(
    comparison: Comparison,
    figures: Mapping[str, Sequence[bytes]],
    *,
    command: str,
    folder: Path,
) -> str:
    """Write a comparison as an HTML page, with PNG files and code that loads its model.

    :param figures: The PNG files of each picture, by its name: first in the width of a
        phone, and then, if there is a second file, in the width of a page.
    """
    data = comparison.data
    shown = {
        name: (picture, [base64.b64encode(png).decode() for png in figures[name]])
        for name, picture in pictures(comparison).items()
        if name in figures
    }
    return _ENVIRONMENT.get_template("page.html.j2").render(
        comparison=comparison,
        tables=word_tables(comparison),
        figures=shown.values(),
        classes=list(_classes(comparison)),
        worst=_worst(comparison),
        columns=[
            *map(_described_column, data.targets),
            *(_described_column(data.X[name]) for name in data.X.columns[:MAX_INPUTS]),
        ],
        settings=asdict(comparison.settings),
        model=str(folder / "model"),
        scorer=str(folder / "scorer") if (folder / "scorer").is_dir() else None,
        command=command,
    )


def model_card(comparison: Comparison, command: str = "") -> str:
    """Describe the model of a comparison: what it predicts, how well, and for which
    rows.

    :param comparison: A comparison that has a model.
    :param command: The command that was called.
    """
    data = comparison.data
    columns = map(
        _described_column, (*data.targets, *(data.X[name] for name in data.X))
    )
    times = comparison.settings.time_column
    but_times = ""
    if times in data.X:
        but_times = f", except later rows by '{times}', which give the scores"
    return _ENVIRONMENT.get_template("card.md.j2").render(
        comparison=comparison,
        but_times=but_times,
        columns=columns,
        command=command,
        today=datetime.date.today(),
    )


def versions() -> list[str]:
    """List the versions of the software that made the comparison."""
    libraries = (f"{name} {version(name)}" for name in LIBRARIES)
    return [
        "gpflow_pep " + __version__,
        "Python " + platform.python_version(),
        *libraries,
    ]


def _classes(comparison: Comparison) -> Iterator[list[str]]:
    """Return a row of cells for each class: the number of its held-out rows, recall and
    precision.
    """
    if comparison.data.kind == "classes" and comparison.best is not None:
        for name, row in class_report(comparison.held_out_of_best).iterrows():
            recall, precision = (
                f"{row[column]:.0%}" for column in ("recall", "precision")
            )
            precision = precision.replace("nan%", "never named")
            yield [str(name), f"{row['rows']:.0f}", recall, precision]


def _worst(comparison: Comparison) -> tuple[list[str], list[list[str]]]:
    """Return the headings and the cells of the held-out rows with the lowest densities,
    with some of their inputs.
    """
    if comparison.best is None:
        return [], []
    rows = comparison.held_out_of_best.nsmallest(MOST_WORST, "log_density")
    inputs = comparison.data.X.iloc[:, :WORST_INPUTS].loc[rows.index]
    if comparison.data.kind == "classes":
        # A table with a column for each class would be too wide.
        rows["probability"] = np.exp(rows["log_density"])
    rows = rows.reset_index(names="row")
    rows = rows[[name for name in WORST_COLUMNS if name in rows]]
    table = pd.concat(
        [rows.rename(columns=WORST_COLUMNS), inputs.reset_index(drop=True)], axis=1
    )
    return list(table.columns), table.map(_cell).to_numpy().tolist()


def _cell(value: object) -> str:
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    return text.removesuffix(" 00:00:00")  # for dates


def _described_column(column: "pd.Series[object]") -> list[str]:
    """Describe a column: its name, its values, and how many are missing."""
    if pd.api.types.is_numeric_dtype(column):
        numbers = column.dropna()
        values = (
            f"{numbers.min():.4g} to {numbers.max():.4g}, mean {numbers.mean():.4g}"
        )
    elif pd.api.types.is_datetime64_any_dtype(column):
        values = f"{column.min():%Y-%m-%d} to {column.max():%Y-%m-%d}"
    else:
        counts = column.value_counts()
        texts = [f"{value} ({count})" for value, count in counts.items()]
        values = first_of(texts, MOST_TEXTS)
    return [str(column.name), values, str(int(column.isna().sum()))]


_ENVIRONMENT.globals |= {
    "MAX_INPUTS": MAX_INPUTS,
    "KEY": KEY,
    "counted": counted,
    "findings": findings,
    "named": named,
    "score_line": score_line,
    "versions": versions,
}
