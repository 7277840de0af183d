"""The papers' scripts as they are started: of their own, with several processes."""

import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from helpers import EXAMPLES


@pytest.mark.slow
@pytest.mark.parametrize(
    "script, only, sets", [("byt17", "inducing", "banana:400"), ("vh20", "places", "plane")]
)
def test_two_processes(
    script: str, only: str, sets: str, data_directory: Path, tmp_path: Path
) -> None:
    """What the command line hands to a process must pickle, from ``__main__`` too."""
    options = [
        "--only",
        only,
        "--sets",
        sets,
        "--jobs",
        "2",
        "--data",
        str(data_directory),
        "--out",
        str(tmp_path),
    ]
    command = [sys.executable, "-m", "examples", script, "--quick", *options]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=EXAMPLES.parent)
    assert ended.returncode == 0, ended.stderr
    table = pd.read_csv(tmp_path / "results.csv")
    assert table["error"].isna().all() and table["method"].eq("PEP").all()
    assert (tmp_path / f"{only}.txt").exists()
