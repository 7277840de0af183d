"""A text about a model for those who find its folder later."""

import datetime
from collections.abc import Iterator

from .cleaning import Cleaned
from .headline import headline
from .page import described_column, versions
from .run import Comparison
from .terminal import title
from .verdicts import verdict, warnings_of


def model_card(comparison: Comparison, command: str = "") -> str:
    """
    Describe the model of a comparison, in Markdown: what it predicts, how well, and of which rows.

    :param comparison: One that has a model.
    :param command: What was called.
    """
    return "\n".join([*_lines(comparison, command), ""])


def _lines(comparison: Comparison, command: str) -> Iterator[str]:
    yield f"# {title(comparison)}"
    today = datetime.date.today().isoformat()
    yield f"\nTrained by gpflow_pep on {today}: {comparison.best}, on all rows.\n"
    yield headline(comparison)
    yield f"{verdict(comparison)}\n"
    yield from (f"* {warning}" for warning in warnings_of(comparison))
    yield "\n## Rows that it was trained on\n\n| column | values | missing |\n|---|---|---|"
    yield from _columns(comparison.data)
    yield "\nPredictions of rows outside these ranges are guesses.\n"
    yield from (f"* {note}" for note in comparison.data.notes)
    yield "\n## How it was made\n"
    if command:
        yield f"    {command}\n"
    yield ", ".join(versions()) + "."


def _columns(data: Cleaned) -> Iterator[str]:
    for column in (*data.targets, *(data.X[name] for name in data.X.columns)):
        yield f"| {' | '.join(cell.replace('|', '/') for cell in described_column(column))} |"
