"""The scores of a comparison as tables of words, and their output on a terminal."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..engine.refusals import counted
from .findings import (
    AS_GOOD,
    BETTER,
    NOT_TOLD_APART,
    SAVED,
    SMALL,
    STOPPED,
    UNSTABLE,
    WORSE,
    summarise,
)
from .losses import Metric, with_error
from .run import Comparison
from .series import SAME_SEASON, season_of
from .trials import FEWEST_STEPS

MARKS = {
    SAVED: "*",
    AS_GOOD: "~",
    BETTER: "+",
    WORSE: "",
    NOT_TOLD_APART: "?",
    UNSTABLE: "!",
    STOPPED: "t",
    "": "",
}
KEY = (
    "* saved; ~ about as good; + clearly better; ? not told apart; ! unstable; t too"
    " little time"
)


class WordTable(NamedTuple):
    """A table of words, with a row for each model by its name."""

    title: str
    caption: str
    headings: list[str]
    rows: dict[str, list[str]]


def word_tables(comparison: Comparison) -> list[WordTable]:
    """Write the summary as a table, and if there are several targets a second table
    with the scores of each.
    """
    table = summarise(comparison)
    metrics = comparison.metrics
    targets = comparison.data.targets

    def write(
        title: str, caption: str, columns: dict[str, Callable[[Any], str]]
    ) -> WordTable:
        rows = {
            str(name): [
                MARKS[row["verdict"]],
                str(name),
                *(cell(row) for cell in columns.values()),
            ]
            for name, row in table.iterrows()
        }
        return WordTable(title, caption, ["", "model", *columns], rows)

    cells: dict[str, Callable[[Any], str]]
    cells = {metric.heading: partial(_value, metric) for metric in metrics}
    cells |= {"seconds": lambda row: f"{row['seconds']:.1f}", "converged": _converged}
    tables = [write(f"{comparison.data.title}\n{KEY}", legend(comparison), cells)]
    if len(targets) > 1:
        cells = {
            f"{metric.heading} of {y.name}": partial(
                _value, metric, target=f"({y.name})"
            )
            for y in targets
            for metric in metrics[:2]
        }
        tables.append(write("Each target, in its own units", "", cells))
    return tables


def drawn(comparison: Comparison, words: WordTable, room: int = 1000) -> Table:
    """Draw a table for a terminal. If it is too wide, it has no lines, and columns that
    still do not fit are left out; the caption lists them.
    """
    narrow: dict[str, Any] = {"box": None, "padding": (0, 1, 0, 0), "pad_edge": False}
    count = len(words.headings)
    for shown, look in (
        (count, {}),
        *((number, narrow) for number in range(count, 2, -1)),
    ):
        table = Table(title=Text(words.title), **look)  # Text does not read markup
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
    caption = words.caption
    if hidden:
        caption += f" report.html also has {hidden}."
    table.caption = caption or None
    return table


def score_line(comparison: Comparison) -> str:
    """Write the scores of the saved model in one line, with a word on the NLPD."""
    row = summarise(comparison).loc[str(comparison.best)]
    scores = []
    for metric in comparison.metrics:
        text = f"{metric.heading} {_value(metric, row)}"
        if metric.name == "nlpd":
            text += f" ({metric.label}; lower is better)"
        scores.append(text)
    return f"Scores: {', '.join(scores)}."


def _value(metric: Metric, row: "pd.Series[Any]", target: str = "") -> str:
    name = f"{metric.name}{target}"
    return with_error(metric, row[name], row.get(f"{name}_se", np.nan))


def _converged(row: "pd.Series[object]") -> str:
    if row["failed"]:
        return f"{row['failed']} failed"
    return (
        "yes"
        if row["converged"] == row["fits"]
        else f"{row['converged']} of {row['fits']}"
    )


def legend(comparison: Comparison) -> str:
    """Explain the table of scores."""
    part, *_ = comparison.settings.parts()
    count = len({fit.part for fit in comparison.fits})
    score = comparison.metrics[0].heading
    text = f"Mean ± standard error over {counted(count, part)}."
    text += f" {comparison.settings.how_split()[1]}"
    if SAME_SEASON in comparison.candidates:
        season = season_of(comparison.data.blocks)
        text += f" '{SAME_SEASON}' repeats the value of a {season} before."
    if len(comparison.data.targets) > 1:
        text += (
            " Scores are means over targets; errors are in units of their standard"
            " deviations."
        )
    small = "a tenth of the gain over a constant"
    if score == "NLPD":
        small = f"{SMALL:g} nats and {small}"
    text += (
        f" ~: the {score} is neither clearly better nor clearly worse than for *, and"
        f" the difference and its standard error are at most {small}. ?: one of the two"
        " is larger, or a constant is as good. No mark: clearly worse."
    )
    text += f" !: far worse in one {part} than in the others."
    return f"{text} t: the time limit ended a fit before step {FEWEST_STEPS}."
