"""Run a grid of cells, each a fit of its own, and keep what came of them in one table.

A cell names an experiment, a data set, a split, a size M, a method and a power. What it
gives is one row of the table or several. The runner writes each cell as one line of
``cells.jsonl`` when it has ended, forced to the disk: a run that was killed goes on
where it was, a cell that has ended is never run again, and a last line that was cut is
dropped. A cell that raises is a row with its error. ``results.csv`` is the table of all
cells that have ended, with the seed, the seconds and the versions.
"""

import fcntl
import json
import os
import platform
import re
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import joblib
import pandas as pd
import tensorflow as tf
from joblib.externals.loky.process_executor import TerminatedWorkerError
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from threadpoolctl import threadpool_limits

from examples.common import arguments
from examples.data_sets import DIRECTORY

JOURNAL = "cells.jsonl"
TABLE = "results.csv"
PACKAGES = ("gpflow_pep", "gpflow", "tensorflow", "numpy", "scipy")
#: Of TensorFlow and of linear algebra, in each process that starts.
ONE_THREAD = (
    "TF_NUM_INTRAOP_THREADS",
    "TF_NUM_INTEROP_THREADS",
    "OPENBLAS_NUM_THREADS",
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
)
#: The folders of a file in the text of an error, which belong to one machine.
FOLDERS = re.compile(r"(?<![\w.])(?:/[\w.+-]+)+/(?=[\w.+-])")
#: Without a terminal a line says how far the run is, after as many seconds.
REPORT_EVERY = 60.0


@dataclass(frozen=True)
class Cell:
    """What one fit is of; its name on the disk, so that the parts must say all that
    differs.
    """

    experiment: str
    data: str
    split: int
    M: int
    """Inducing variables, or what the experiment takes it for."""

    method: str
    alpha: float | None = None
    """None: the method has none."""

    steps: int = 200
    """The most steps of training."""

    @property
    def seed(self) -> int:
        """The same for all methods and powers, which so have the same start."""
        return zlib.crc32(f"{self.data}/{self.split}/{self.M}".encode())


#: The values of a cell's row, or of each of its rows.
Outcome = Mapping[str, Any] | Sequence[Mapping[str, Any]]
Evaluate = Callable[[Cell], Outcome]


@lru_cache(maxsize=1)
def versions() -> str:
    """Of Python and of the packages that numbers depend on."""
    of = [f"{name} {version(name)}" for name in PACKAGES]
    return ", ".join([f"python {platform.python_version()}", *of])


def run(
    cells: Sequence[Cell],
    evaluate: Evaluate,
    out: Path,
    jobs: int | None = None,
    *,
    minutes: float | None = None,
    retry: bool = False,
) -> pd.DataFrame:
    """
    Evaluate the cells that have not ended, and write the table.

    :param cells: All of the grid, in the order in which they are run. Cells beside each
        other that share what takes long to prepare should be so in the list.
    :param evaluate: What a cell gives; for several jobs it must pickle.
    :param out: Directory of journal and table.
    :param jobs: Processes; 1 is this one. None: as ``joblib.parallel_config`` says,
        this one alone where it says nothing; ``backend="dask"`` spreads the cells over
        a cluster.
    :param minutes: After as many no further cell is begun.
    :param retry: Whether cells that raised are run again.
    :return: The table of the cells, in their order.
    """
    out.mkdir(parents=True, exist_ok=True)
    os.environ.update(dict.fromkeys(ONE_THREAD, "1"))
    deadline = float("inf") if minutes is None else time.monotonic() + 60.0 * minutes
    with _locked(out / "lock"):
        journal = Journal(out / JOURNAL)
        ended = {
            cell
            for cell, record in journal.records.items()
            if not (retry and record["error"])
        }
        todo = [cell for cell in dict.fromkeys(cells) if cell not in ended]

        def in_time() -> Iterator[Any]:
            for cell in todo:
                if time.monotonic() > deadline:
                    return
                yield joblib.delayed(_evaluate)(evaluate, cell)

        # Nothing is dispatched ahead: what was begun is waited for when the time is
        # over.
        parallel = joblib.Parallel(
            n_jobs=jobs,
            return_as="generator_unordered",
            pre_dispatch="n_jobs",
            batch_size=1,
        )
        try:
            with _one_thread(), _bar(len(cells), len(cells) - len(todo)) as advance:
                for cell, record in parallel(in_time()):
                    journal.append(cell, record)
                    advance(cell)
        except TerminatedWorkerError:
            sys.exit(
                "a process was killed, maybe for want of memory. The same command goes"
                " on where it was; with fewer --jobs each has more."
            )
        finally:
            found = table(journal.records, cells)
            _write(out / TABLE, found)
    return found


@contextmanager
def _one_thread() -> Iterator[None]:
    """In this process too, which evaluates the cells of a single job: its libraries
    have read :data:`ONE_THREAD` before ``run`` could set it.
    """
    # Raises where TensorFlow has computed something, with the threads that it has.
    with suppress(RuntimeError):
        tf.config.threading.set_intra_op_parallelism_threads(1)
        tf.config.threading.set_inter_op_parallelism_threads(1)
    with threadpool_limits(1):
        yield


def _evaluate(evaluate: Evaluate, cell: Cell) -> tuple[Cell, dict[str, Any]]:
    """In a process of the pool: the rows of a cell, or what went wrong."""
    began = time.perf_counter()
    rows: Any = [{}]
    error = ""
    try:
        outcome = evaluate(cell)
        rows = (
            [dict(outcome)]
            if isinstance(outcome, Mapping)
            else [dict(row) for row in outcome]
        )
    except Exception as caught:
        text = FOLDERS.sub("", " ".join(str(caught).split()))
        error = f"{type(caught).__name__}: {text[:500]}"
    return cell, {
        "rows": rows,
        "error": error,
        "cell_seconds": round(time.perf_counter() - began, 3),
        "versions": versions(),
    }


class Journal:
    """A line for each cell that has ended; the last one counts."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.records: dict[Cell, dict[str, Any]] = {}
        whole = 0
        content = path.read_bytes() if path.exists() else b""
        for line in content.splitlines(keepends=True):
            if not line.endswith(b"\n"):
                break  # the run was killed while it wrote this
            record = json.loads(line)
            self.records[Cell(**record.pop("cell"))] = record
            whole += len(line)
        if whole < len(content):
            with path.open("r+b") as file:
                file.truncate(whole)

    def append(self, cell: Cell, record: dict[str, Any]) -> None:
        """Write a line that survives what may happen next."""
        line = json.dumps({"cell": asdict(cell), **record}, default=float)
        with self.path.open("ab") as file:
            file.write(line.encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        self.records[cell] = record


def table(
    records: Mapping[Cell, Mapping[str, Any]], cells: Sequence[Cell]
) -> pd.DataFrame:
    """A tidy table: the cell, its seed, its values, and what its evaluation took."""
    rows = []
    for cell in dict.fromkeys(cells):
        if cell in records:
            record = dict(records[cell])
            values = record.pop("rows")
            rows += [
                {**asdict(cell), "seed": cell.seed, **one, **record} for one in values
            ]
    last = ["error", "cell_seconds", "versions"]
    found = pd.DataFrame(rows)
    return (
        found[[*(name for name in found if name not in last), *last]] if rows else found
    )


def read(path: Path) -> pd.DataFrame:
    """A table that was written; cells that raised are said, and left out."""
    if not path.read_text(encoding="utf-8").strip():
        sys.exit(f"{path}: no run has ended yet.")
    found = pd.read_csv(path, keep_default_na=False, na_values=[""], low_memory=False)
    failed = found[found["error"].notna()]
    if len(failed):
        print(f"{path}: left out {len(failed)} rows of cells that raised.")
    return found[found["error"].isna()].drop(columns="error")


def _write(path: Path, found: pd.DataFrame) -> None:
    """All of the table or nothing of it."""
    new = path.with_suffix(".new")
    found.to_csv(new, index=False, float_format="%.10g")
    new.replace(path)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Keep a second run away from the same directory."""
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sys.exit(
                f"{path.parent}: another run writes here. Wait for it, or name another"
                " --out."
            )
        yield


@contextmanager
def _bar(total: int, completed: int) -> Iterator[Callable[[Cell], None]]:
    """Show on stderr how many cells have ended, and the time left."""
    columns = (
        MofNCompleteColumn(),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("{task.description}"),
    )
    console = Console(stderr=True)
    said = time.monotonic()
    with Progress(
        *columns, console=console, disable=not console.is_terminal
    ) as display:
        task = display.add_task("", total=total, completed=completed)
        done = completed

        def advance(cell: Cell) -> None:
            nonlocal done, said
            done += 1
            power = "" if cell.alpha is None else f" {cell.alpha:g}"
            what = (
                f"{cell.experiment} {cell.data} {cell.split} M={cell.M}"
                f" {cell.method}{power}"
            )
            display.update(task, advance=1, description=what)
            if not console.is_terminal and time.monotonic() > said + REPORT_EVERY:
                said = time.monotonic()
                console.print(f"{done} of {total} cells; {what}", highlight=False)

        yield advance


Grid = Callable[[str], list[Cell]]
Summarise = Callable[[pd.DataFrame, Path], None]


def _flag(text: str) -> dict[str, Any]:
    """Describe an option without a value to ``argparse``."""
    return {"action": "store_true", "help": text}


def _names(text: str) -> dict[str, Any]:
    """Describe an option with one or more names to ``argparse``."""
    return {"nargs": "+", "metavar": "NAME", "help": text}


def _selected(
    cells: list[Cell], experiments: list[str] | None, data_sets: list[str] | None
) -> list[Cell]:
    """Select cells by name; None selects all. Exit with the names of the grid if no
    cell is left.
    """
    selected = [
        cell
        for cell in cells
        if cell.experiment in (experiments or [cell.experiment])
        and cell.data in (data_sets or [cell.data])
    ]
    if not selected:
        sys.exit(
            "No cell of this grid has the names of --only and --sets. Experiments:"
            f" {' '.join(sorted({cell.experiment for cell in cells}))}. Data sets:"
            f" {' '.join(sorted({cell.data for cell in cells}))}."
        )
    return selected


def command(
    about: str | None,
    grid: Grid,
    evaluate_in: Callable[[Path], Evaluate],
    summarise: Summarise,
) -> None:
    """
    Be the command of a script: run a grid and summarise it, or summarise a table that
    is given.

    ``--only`` selects experiments and ``--sets`` data sets, by their names in the grid.

    :param about: What the script does.
    :param grid: The cells of ``"quick"`` (minutes, the default), ``"reduced"`` (an hour
        or two on two cores) and ``"full"`` (the paper's protocol: days).
    :param evaluate_in: What evaluates a cell, for the directory of the data sets.
    :param summarise: Makes tables and figures of the table alone, in a directory.
    """
    sizes = {
        "reduced": _flag("run the grid of an hour or two on two cores"),
        "full": _flag("run the paper's protocol, which takes days"),
    }
    paths = {"data": DIRECTORY, "out": {"type": Path, "required": True}, "table": Path}
    names = {
        "only": _names("run these experiments alone"),
        "sets": _names("run these data sets alone, by their names in the grid"),
    }
    limits = {"jobs": int, "minutes": float, "retry": False}
    args = arguments(about, **sizes, **paths, **names, **limits)
    if args.table is None:
        size = "full" if args.full else "reduced" if args.reduced else "quick"
        cells = _selected(grid(size), args.only, args.sets)
        evaluate = evaluate_in(args.data)
        run(
            cells, evaluate, args.out, args.jobs, minutes=args.minutes, retry=args.retry
        )
    args.out.mkdir(parents=True, exist_ok=True)
    summarise(read(args.table or args.out / TABLE), args.out)
