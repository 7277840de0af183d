"""The scores of a comparison as tables of words, and these on a terminal."""

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from rich.console import Console
from rich.table import Table
from rich.text import Text

from .findings import AS_GOOD, SAVED, UNSTABLE, summarise
from .run import Comparison
from .scores import Metric, in_full

MARKS = {SAVED: "*", AS_GOOD: "~", UNSTABLE: "!", "": ""}


class WordTable(NamedTuple):
    """A table of words, with a row for each model by its name."""

    title: str
    caption: str
    headings: list[str]
    rows: dict[str, list[str]]


def word_tables(comparison: Comparison) -> list[WordTable]:
    """Write the summary down, and where there are several targets the scores of each as well."""
    marked = {
        str(name): ([MARKS[row["verdict"]], str(name)], row)
        for name, row in summarise(comparison).iterrows()
    }
    metrics = comparison.metrics
    headings = ["", "model", *(metric.heading for metric in metrics), "seconds", "converged"]
    rows = {
        name: [
            *mark,
            *(_value(row, metric) for metric in metrics),
            f"{row['seconds']:.1f}",
            _converged(row),
        ]
        for name, (mark, row) in marked.items()
    }
    tables = [WordTable(title(comparison), legend(comparison), headings, rows)]
    if len(comparison.data.targets) > 1:
        targets = (column.name for column in comparison.data.targets)
        pairs = [(metric, target) for target in targets for metric in metrics[:2]]
        headings = ["", "model", *(f"{metric.heading} of {target}" for metric, target in pairs)]
        rows = {
            name: [*mark, *(in_full(row[f"{m.name}({target})"], m.form) for m, target in pairs)]
            for name, (mark, row) in marked.items()
        }
        tables.append(WordTable("Each target, in its own units", "", headings, rows))
    return tables


def drawn(comparison: Comparison, words: WordTable, room: int = 1000) -> Table:
    """Draw a table for a terminal. Where it is wider than there is room for, it has no lines, and
    no columns that do not fit then; the caption names these.
    """
    narrow: dict[str, Any] = {"box": None, "padding": (0, 1, 0, 0), "pad_edge": False}
    count = len(words.headings)
    for shown, look in ((count, {}), *((number, narrow) for number in range(count, 2, -1))):
        table = Table(title=Text(words.title), **look)  # Text has no markup
        for heading in words.headings[:shown]:
            side: Any = "left" if heading == "model" else "right"
            table.add_column(Text(heading), justify=side, no_wrap=True)
        for name, row in words.rows.items():
            other = "red" if comparison.num_failed(name) else None
            style = "bold green" if name == comparison.best else other
            table.add_row(*row[:shown], style=style)
        if Console(width=1000).measure(table).maximum <= room:
            break
    hidden = ", ".join(words.headings[shown:])
    table.caption = f"{words.caption}{f' report.html has {hidden} too.' * bool(hidden)}" or None
    return table


def _value(row: "pd.Series[object]", metric: Metric) -> str:
    value, error = row[metric.name], row[f"{metric.name}_se"]
    spread = in_full(error, metric.error_form)
    return in_full(value, metric.form) + ("" if np.isnan(error) else f" ± {spread}")


def _converged(row: "pd.Series[object]") -> str:
    if row["failed"]:
        return f"{row['failed']} failed"
    return "yes" if row["converged"] == row["fits"] else f"{row['converged']} of {row['fits']}"


def title(comparison: Comparison) -> str:
    """Name the targets, and count inputs and rows."""
    data, classes = comparison.data, comparison.data.num_classes
    kind = f" ({classes} classes)" if data.kind == "classes" else ""
    inputs = f"{data.X.shape[1]} input{'s' * (data.X.shape[1] > 1)}"
    names = ", ".join(f"'{column.name}'" for column in data.targets)
    target = f"Target{'s' * (len(data.targets) > 1)} {names}"
    return f"{target}{kind}, {inputs}, {len(data.X)} rows"


def legend(comparison: Comparison) -> str:
    """Explain the table."""
    part, *_ = comparison.settings.parts()
    count, score = len({fit.part for fit in comparison.fits}), comparison.metrics[0].heading
    text = f"Mean ± standard error over {count} {part}{'s' * (count > 1)}."
    text += f" {comparison.settings.how_split()[1]}"
    if len(comparison.data.targets) > 1:
        text += " Scores are means over targets; errors are in units of their standard deviations."
    text += f" * saved; ~ as good: the {score} differs from that of * by at most one standard error"
    return f"{text} of the difference; ! unstable: far worse in one {part} than in others."
