"""Compute old cells of the papers' experiments again, drawn at random.

    python -m examples recheck byt17 --data DIRECTORY
    python -m examples recheck vh20 --data DIRECTORY --cells 20

The journal of each experiment's full protocol grows over versions of this package.
This command draws cells of it, computes them with the installed version, and prints how
many agree in all scores of held-out rows within ``--within``. If nearly all agree, old
and new cells may stand in one table.
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


class Agreement(NamedTuple):
    """How far the scores of a cell are from the scores of its journal."""

    cell: Cell
    difference: float  #: The largest of all scores and rows; infinite if a row differs.
    error: str


def drawn(journal: Journal, number: int, seed: int) -> list[Cell]:
    """Draw cells that ended without an error, in the order of the journal."""
    ended = [cell for cell, record in journal.records.items() if not record["error"]]
    chosen = set(random.Random(seed).sample(ended, min(number, len(ended))))
    return [cell for cell in ended if cell in chosen]


def largest_difference(
    old: Sequence[Mapping[str, Any]], new: Sequence[Mapping[str, Any]]
) -> float:
    """The largest difference of a score of held-out rows."""
    if len(old) != len(new):
        return float("inf")
    return max(
        abs(before[name] - after[name])
        for before, after in zip(old, new, strict=True)
        for name in SCORES
        if name in before
    )


def recheck(
    journal: Journal, cells: Sequence[Cell], evaluate: runner.Evaluate, out: Path
) -> list[Agreement]:
    """Compute the cells again, into a journal of their own."""
    runner.run(cells, evaluate, out, 1)
    found = Journal(out / runner.JOURNAL).records
    return [
        Agreement(
            cell,
            largest_difference(journal.records[cell]["rows"], found[cell]["rows"]),
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
    agreements = recheck(journal, cells, evaluate, args.out)
    agreeing = [a for a in agreements if a.difference <= args.within]
    versions = {journal.records[cell]["versions"].split(", ")[1] for cell in cells}
    print(
        f"{args.name}: {len(agreeing)} of {len(cells)} cells of"
        f" {' and '.join(sorted(versions))} agree within {args.within:g} in all scores"
        " of held-out rows."
    )
    for cell, difference, error in agreements:
        if difference > args.within:
            power = "" if cell.alpha is None else f" {cell.alpha:g}"
            print(
                f"{cell.experiment:15}{cell.data:12}{cell.split:3} M ={cell.M:4}"
                f" {cell.method}{power}: {error or f'{difference:.4f}'}"
            )
