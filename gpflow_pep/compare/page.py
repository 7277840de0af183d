"""A comparison as one HTML page that needs no other file."""

import base64
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from html import escape
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pandas as pd

from .. import __version__
from .run import Comparison
from .summary import verdict, warnings_of
from .terminal import cells, headings, legend, title

LIBRARIES = ("gpflow", "tensorflow", "scikit-learn", "pandas", "numpy", "scipy")
#: Inputs that the page lists.
MOST_INPUTS = 100
CAPTIONS = {
    "scores": "Scores of held-out rows at each power, with standard errors, beside the baselines."
    " The best power is ringed.",
    "predictions": "Held-out rows: predictions with 90% intervals against what came; and where in"
    " its predicted distribution each target fell. Flat is right.",
    "classes": "Held-out rows: how often predictions come true against the probability that they"
    " were given; and what is taken for what.",
    "fit": "The model of all rows along its input.",
    "relevance": "How much each input matters to the model of all rows: one over its lengthscale,"
    " inputs standardised.",
    "training": "How the objective of the model of all rows rose in training.",
}
#: Figures with several parts.
WIDE = ("scores", "predictions", "classes")
STYLE = """
:root { color-scheme: light; }
body { font: 16px/1.5 system-ui, sans-serif; color: #1c2733; max-width: 1080px;
  margin: 2rem auto 4rem; padding: 0 1.2rem; }
h1 { font-size: 1.7rem; margin-bottom: .2rem; } h2 { font-size: 1.2rem; margin: 2.2rem 0 .6rem;
  border-bottom: 1px solid #d6dde4; padding-bottom: .2rem; }
.lead { font-size: 1.1rem; } .small { color: #56636f; font-size: .9rem; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; font-size: .92rem; }
th, td { padding: .35rem .7rem; text-align: right; white-space: nowrap;
  border-bottom: 1px solid #e3e8ed; font-variant-numeric: tabular-nums; }
th { color: #56636f; font-weight: 600; } td:nth-child(2), th:nth-child(2) { text-align: left; }
tr.best td { background: #e4eefa; font-weight: 600; } tr.baseline td { color: #56636f; }
.warning { background: #fdf1e3; border-left: 4px solid #c8741c; padding: .5rem .9rem;
  margin: .4rem 0; }
pre { background: #f3f5f7; padding: .8rem 1rem; overflow-x: auto; font-size: .88rem; }
figure { margin: 1rem 0 1.6rem; } img { max-width: min(100%, var(--width)); height: auto; }
.data td, .data th { text-align: left; white-space: normal; }
figcaption { color: #56636f; font-size: .9rem; }
"""


def page(
    comparison: Comparison, figures: Mapping[str, bytes], *, command: str, folder: Path
) -> str:
    """
    Write a comparison as an HTML page.

    :param comparison: What :func:`~gpflow_pep.compare.run.compare` returned.
    :param figures: PNG files by the names of :func:`~gpflow_pep.compare.figures.figures`.
    :param command: What was called; empty: nothing is said of it.
    :param folder: Where the page and the model are, for the code that loads the model.
    """
    heading = escape(title(comparison))
    warnings = "".join(f'<p class="warning">{escape(text)}</p>' for text in warnings_of(comparison))
    sections = [
        f'<h1>{heading}</h1><p class="lead">{escape(verdict(comparison))}</p>{warnings}',
        f"<h2>Scores</h2>{_scores(comparison)}",
        *(_figure(name, content) for name, content in figures.items()),
        f"<h2>The data</h2>{_data(comparison)}",
    ]
    if comparison.model is not None:
        sections.append(f"<h2>Using the model</h2>{_use(comparison, folder)}")
    sections.append(f"<h2>How this was made</h2>{_made(comparison, command)}")
    body = "\n".join(f"<section>{section}</section>" for section in sections)
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>gpflow-pep: {heading}</title><style>{STYLE}</style></head>"
        f"<body>\n{body}\n</body></html>\n"
    )


def _table(
    head: Sequence[str], rows: Iterable[tuple[str, Sequence[str]]], style: str = "scores"
) -> str:
    """Write a table; it and each row have a class of CSS."""
    top = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    lines = "".join(
        f'<tr class="{kind}">' + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>"
        for kind, row in rows
    )
    return f'<div class="scroll"><table class="{style}"><tr>{top}</tr>{lines}</table></div>'


def _scores(comparison: Comparison) -> str:
    def kind(name: str) -> str:
        if name == comparison.best:
            return "best"
        return "baseline" if np.isnan(comparison.candidates[name]) else ""

    rows = ((kind(name), row) for name, row in cells(comparison).items())
    of_time = " Seconds are the whole time of a fit, compilation included."
    note = f'<p class="small">{escape(legend(comparison) + of_time)}</p>'
    return _table(headings(comparison), rows) + note


def _figure(name: str, content: bytes) -> str:
    source = base64.b64encode(content).decode()
    caption = escape(CAPTIONS[name])
    wide = "1040px" if name in WIDE else "620px"
    image = f'<img style="--width: {wide}" src="data:image/png;base64,{source}" alt="{caption}">'
    return f"<figure>{image}<figcaption>{caption}</figcaption></figure>"


def _data(comparison: Comparison) -> str:
    X, y = comparison.data.X, comparison.data.y
    inputs = [("", _described(str(name), column)) for name, column in X.items()]
    rows = [("best", _described(str(y.name), y)), *inputs[:MOST_INPUTS]]
    more = f'<p class="small">and {len(inputs) - MOST_INPUTS} more inputs.</p>'
    notes = "".join(f"<li>{escape(note)}</li>" for note in comparison.data.notes)
    return (
        _table(("", "column", "values", "missing"), rows, "data")
        + (more if len(inputs) > MOST_INPUTS else "")
        + (f"<p>What was done to the table:</p><ul>{notes}</ul>" if notes else "")
    )


def _described(name: str, column: "pd.Series[object]") -> tuple[str, str, str, str]:
    if pd.api.types.is_numeric_dtype(column):
        numbers = column.dropna()
        values = f"{numbers.min():.4g} to {numbers.max():.4g}, mean {numbers.mean():.4g}"
    elif pd.api.types.is_datetime64_any_dtype(column):
        values = f"{column.min():%Y-%m-%d} to {column.max():%Y-%m-%d}"
    else:
        counts = column.value_counts()
        values = ", ".join(f"{value} ({count})" for value, count in counts.head(5).items())
        values += ", …" if len(counts) > 5 else ""
    return "", name, values, str(int(column.isna().sum()))


def _use(comparison: Comparison, folder: Path) -> str:
    final = comparison.final
    numbers = comparison.data.kind == "numbers"
    call = (
        "mean, std = model.predict(table, return_std=True)"
        if numbers
        else "probabilities = model.predict_proba(table)  # in the order of model.classes_"
    )
    columns = ", ".join(map(repr, map(str, list(comparison.data.X)[:6])))
    columns += ", ..." if comparison.data.X.shape[1] > 6 else ""
    code = f"""from gpflow_pep.compare import read_table
from gpflow_pep.estimators import load_estimator

model = load_estimator({str(folder / "model")!r})
table = read_table("new.csv")[list(model.feature_names_in_)]  # {columns}
{call}"""
    shell = f"gpflow-pep predict {folder / 'model'} new.csv --out predictions.csv"
    steps = "" if final is None else f" ({final.iterations} steps, {final.seconds:.1f} s)"
    return (
        f"<p>The model in <code>model</code> is {escape(str(comparison.best))}, trained on all rows"
        f"{steps}. It takes tables like the one that it was trained on, columns in any order.</p>"
        f"<pre>{escape(shell)}</pre><p>or, in Python,</p><pre>{escape(code)}</pre>"
    )


def _made(comparison: Comparison, command: str) -> str:
    said = {name: value for name, value in asdict(comparison.settings).items() if value is not None}
    settings = ", ".join(f"{name} = {value}" for name, value in said.items())
    versions = ", ".join(f"{library} {version(library)}" for library in LIBRARIES)
    called = f"<pre>{escape(command)}</pre>" if command else ""
    return (
        f'{called}<p class="small">Settings: {escape(settings)}.</p>'
        f'<p class="small">gpflow_pep {__version__}, Python {platform.python_version()},'
        f" {escape(versions)}.</p>"
    )
