"""Seconds of ``gpflow-pep compare`` on scikit-learn's data, from the command to its
last line.

    python -m examples compare
    python -m examples compare --example wine --jobs 1

``begins`` is when the first fit begins: until then Python and TensorFlow are loaded,
and the table is read. ``trained`` is when the last fit has ended, ``ends`` when the
report is written.
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from examples.common import arguments


def seconds(example: str, folder: Path, jobs: list[str]) -> list[float]:
    """When the first fit began, the last one ended, and all was done."""
    command = Path(sys.executable).with_name("gpflow-pep")
    began = time.perf_counter()
    process = subprocess.Popen(
        [command, "compare", "--example", example, "--out", folder, *jobs],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    fits = [
        time.perf_counter() - began for line in process.stdout if " steps, " in line
    ]
    if process.wait():
        raise SystemExit(f"{example}: exit code {process.returncode}")
    return [fits[0], fits[-1], time.perf_counter() - began]  # the first takes no time


def main() -> None:
    args = arguments(
        __doc__,
        example=["chirp", "diabetes", "breast-cancer", "wine"],
        jobs=str,
        quick={"example": ["chirp"]},
    )
    jobs = ["--jobs", args.jobs] if args.jobs else []
    print(f"{'example':14} {'begins':>7} {'trained':>8} {'ends':>6}  s")
    for example in args.example:
        with tempfile.TemporaryDirectory() as folder:
            begins, trained, ends = seconds(example, Path(folder) / "results", jobs)
        print(f"{example:14} {begins:7.1f} {trained:8.1f} {ends:6.1f}", flush=True)
