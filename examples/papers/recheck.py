"""Compute old cells of the papers' experiments again, drawn at random.

    python -m examples recheck byt17 --data DIRECTORY
    python -m examples recheck vh20 --data DIRECTORY --cells 20

The journal of each experiment's full protocol grows over versions of this package.
This command draws cells of it, computes them with the installed version, and prints how
many agree in each score of held-out rows within ``--within``. If nearly all agree, old
and new cells may stand in one table. (A row more or less that is classified wrongly
changes the error rate of a few hundred rows by more than that.)
"""

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from examples.common import arguments
from examples.data_sets import DIRECTORY
from examples.papers import byt17, runner, vh20
from examples.papers.runner import Cell, Journal

RESULTS = Path(__file__).parents[2] / "docs" / "results"
EVALUATES = {"byt17": byt17.evaluate_in, "vh20": vh20.evaluate_in}
SCORES = ("smse", "smll", "nlpd", "error_rate")


class Recomputed(NamedTuple):
    """How far the scores of a cell are from the scores of its journal."""

    cell: Cell
    differences: dict[str, float]  #: By score; the largest of all rows of the cell.
    error: str


def drawn(journal: Journal, number: int, seed: int) -> list[Cell]:
    """Draw cells that ended without an error, in the order of the journal."""
    ended = [cell for cell, record in journal.records.items() if not record["error"]]
    chosen = set(random.Random(seed).sample(ended, min(number, len(ended))))
    return [cell for cell in ended if cell in chosen]


def largest_differences(
    old: Sequence[Mapping[str, Any]], new: Sequence[Mapping[str, Any]]
) -> dict[str, float]:
    """The largest difference of each score of held-out rows; infinite if the cell does
    not have as many rows as before.
    """
    names = [name for name in SCORES if name in old[0]]
    if len(old) != len(new):
        return dict.fromkeys(names, float("inf"))
    return {
        name: max(
            abs(before[name] - after[name])
            for before, after in zip(old, new, strict=True)
        )
        for name in names
    }


def recheck(
    journal: Journal, cells: Sequence[Cell], evaluate: runner.Evaluate, out: Path
) -> list[Recomputed]:
    """Compute the cells again, into a journal of their own."""
    runner.run(cells, evaluate, out, 1)
    found = Journal(out / runner.JOURNAL).records
    return [
        Recomputed(
            cell,
            largest_differences(journal.records[cell]["rows"], found[cell]["rows"]),
            found[cell]["error"],
        )
        for cell in cells
    ]


def main() -> None:
    args = arguments(
        __doc__,
        name=EVALUATES,
        data=DIRECTORY,
        out={"type": Path, "required": True},
        cells=60,
        seed=0,
        within=0.002,
        quick={"cells": 2},
    )
    journal = Journal(RESULTS / f"{args.name}_full" / runner.JOURNAL)
    cells = drawn(journal, args.cells, args.seed)
    evaluate = EVALUATES[args.name](args.data)
    found = recheck(journal, cells, evaluate, args.out)
    versions = {journal.records[cell]["versions"].split(", ")[1] for cell in cells}
    print(
        f"{args.name}: {len(cells)} cells of {' and '.join(sorted(versions))}, computed"
        f" again; how many scores of held-out rows agree within {args.within:g}:"
    )
    for experiment in dict.fromkeys(cell.experiment for cell in cells):
        rows = [each for each in found if each.cell.experiment == experiment]
        for name in rows[0].differences:
            sizes = [each.differences[name] for each in rows]
            agreeing = sum(size <= args.within for size in sizes)
            print(
                f"{experiment:15}{name:11}{agreeing:3} of {len(rows):2}, largest"
                f" difference {max(sizes):.4f}"
            )
    for cell, _, error in found:
        if error:
            print(f"{cell}: {error}")
