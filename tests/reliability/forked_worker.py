"""Processes that the campaign kills or interrupts, which start at once.

As a script it imports what they need, which takes seconds, and then forks one for each line that it
reads: a job and its arguments, as JSON. TensorFlow is imported but not begun: it cannot be forked
after it has computed anything.
"""

import importlib
import itertools
import json
import os
import sys
import time
import traceback
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import interrupted_worker
from interrupted_worker import RUNNING

from gpflow_pep.compare import cli
from gpflow_pep.engine.files import MODEL
from gpflow_pep.estimators import export_saved_model, load_estimator
from gpflow_pep.scoring.stored import read_files, write_files

PAPERS = Path(__file__).parents[2] / "examples" / "papers"
#: What is said before the process number, and before the exit code.
BEGUN, ENDED = "begun", "ended"
#: What a run of compare is given beside its table and its folder.
COMPARE = [
    "--target",
    "y",
    "--alphas",
    "0.5",
    "--splits",
    "1",
    "--inducing",
    "4",
    "--max-iterations",
    "3",
    "--seed",
    "1",
    "--no-baselines",
    "--jobs",
    "1",
]
CELLS = 12


def compare(table: str, out: str) -> None:
    """The command line."""
    cli.main(["compare", table, "--out", out, *COMPARE])


def evaluate(cell: Any) -> list[dict[str, float]]:
    """A cell of a grid, of two rows."""
    time.sleep(0.02)
    return [{"value": cell.seed * part / 3.0} for part in (1.0, 2.0)]


def grid(out: str) -> None:
    """The runner of the examples' grids."""
    sys.path.insert(0, str(PAPERS))
    runner = importlib.import_module("runner")
    cells = [runner.Cell("sums", "none", split, 3, "PEP", 0.5) for split in range(CELLS)]
    runner.run(cells, evaluate, Path(out))


def save(folder: str, *templates: str) -> None:
    """Estimators in turn, over and over, into one folder; each read from another before."""
    contents = [read_files(template, MODEL) for template in templates]
    for content in itertools.cycle(contents):
        write_files(folder, content, MODEL)


def export(folder: str, *templates: str) -> None:
    """The same as SavedModels."""
    for estimator in itertools.cycle([load_estimator(template) for template in templates]):
        export_saved_model(folder, estimator)
        print(RUNNING, flush=True)


JOBS = {"train": interrupted_worker.main, **{f.__name__: f for f in (compare, grid, save, export)}}
#: They say themselves when they are under way.
TALKATIVE = ("train", "export")


def run(job: str, *arguments: str) -> int:
    """In the new process; its exit code."""
    print(BEGUN, os.getpid(), flush=True)
    if job not in TALKATIVE:
        print(RUNNING, flush=True)
    try:
        JOBS[job](*arguments)
    except SystemExit as end:
        return int(end.code or 0)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def main() -> None:
    importlib.import_module("gpflow_pep.compare.report")
    for line in sys.stdin:
        process = os.fork()
        if process == 0:
            code = run(*json.loads(line))
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
        _, status = os.waitpid(process, 0)
        print(ENDED, os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main()
