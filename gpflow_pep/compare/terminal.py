"""The summary of a comparison in words: cells of its table, and the table on a terminal."""

import numpy as np
import pandas as pd
from rich.table import Table

from .cleaning import Cleaned
from .run import Comparison
from .scores import Metric
from .summary import BEST, UNSTABLE, WITHIN, summarise
from .trials import num_classes_of

MARKS = {BEST: "*", WITHIN: "~", UNSTABLE: "!", "": ""}
LEGEND = "* best ({} {}), ~ within noise of it, ! unstable; mean ± standard error over {} {}."


def headings(comparison: Comparison) -> list[str]:
    """Name the columns of :func:`cells`."""
    metrics = (metric.heading for metric in comparison.metrics)
    return ["", "model", *metrics, "seconds", "converged"]


def cells(comparison: Comparison) -> dict[str, list[str]]:
    """Write the summary down, a list of words for each model."""
    return {
        str(name): [
            MARKS[row["verdict"]],
            str(name),
            *(_value(row, metric) for metric in comparison.metrics),
            f"{row['seconds']:.1f}",
            _converged(row),
        ]
        for name, row in summarise(comparison).iterrows()
    }


def _value(row: "pd.Series[object]", metric: Metric) -> str:
    value, error = row[metric.name], row[f"{metric.name}_se"]
    text = format(value, metric.form)
    return text if np.isnan(error) else f"{text} ± {format(error, metric.error_form)}"


def _converged(row: "pd.Series[object]") -> str:
    if row["failed"]:
        return f"{row['failed']} failed"
    return "yes" if row["converged"] == row["fits"] else f"{row['converged']} of {row['fits']}"


def title(comparison: Comparison) -> str:
    """Say what was compared on what."""
    data, classes = comparison.data, num_classes_of(comparison.data)
    kind = f" ({classes} classes)" if data.kind == "classes" else ""
    inputs = f"{data.X.shape[1]} input{'s' * (data.X.shape[1] > 1)}"
    return f"{named_targets(data)}{kind}, {inputs}, {len(data.X)} rows"


def named_targets(data: Cleaned) -> str:
    """Name the target, or all of several."""
    names = ", ".join(f"'{column.name}'" for column in data.targets)
    return f"Target{'s' * (len(data.targets) > 1)} {names}"


def legend(comparison: Comparison) -> str:
    """Explain the table."""
    parts, count, _ = comparison.settings.parts()
    metric = comparison.metrics[0]
    text = LEGEND.format(metric.best, metric.heading, count, parts + "s" * (count > 1))
    if len(comparison.data.targets) > 1:
        text += " Scores are means over targets; errors are in units of their standard deviations."
    return text


def target_headings(comparison: Comparison) -> list[str]:
    """Name the columns of :func:`target_cells`."""
    names = (column.name for column in comparison.data.targets)
    metrics = comparison.metrics[:2]
    return ["", "model", *(f"{metric.heading} of {name}" for name in names for metric in metrics)]


def target_cells(comparison: Comparison) -> dict[str, list[str]]:
    """Write the scores of each of several targets down, in its own units."""
    names = [column.name for column in comparison.data.targets]
    pairs = [(metric, f"{metric.name}({n})") for n in names for metric in comparison.metrics[:2]]
    return {
        str(name): [
            MARKS[row["verdict"]],
            str(name),
            *(format(row[column], metric.form) for metric, column in pairs),
        ]
        for name, row in summarise(comparison).iterrows()
    }


def target_table(comparison: Comparison) -> Table:
    """Draw the scores of each of several targets for a terminal."""
    table = Table(title="Each target, in its own units")
    for heading in target_headings(comparison):
        table.add_column(heading, justify="left" if heading == "model" else "right", no_wrap=True)
    for name, row in target_cells(comparison).items():
        table.add_row(*row, style="bold green" if name == comparison.best else None)
    return table


def score_table(comparison: Comparison) -> Table:
    """Draw the summary for a terminal."""
    table = Table(title=title(comparison), caption=legend(comparison))
    for heading in headings(comparison):
        table.add_column(heading, justify="left" if heading == "model" else "right", no_wrap=True)
    for name, row in cells(comparison).items():
        failed = any(fit.failed for fit in comparison.fits_of(name))
        best = name == comparison.best
        table.add_row(*row, style="bold green" if best else "red" if failed else None)
    return table
