"""The runner of the papers' experiments: killed and resumed, errors kept, several processes."""

import importlib
import json
import subprocess
import sys
import textwrap
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from helpers import EXAMPLES


@pytest.fixture
def runner() -> ModuleType:
    return importlib.import_module("examples.papers.runner")


def cells(runner: ModuleType, count: int = 5) -> list[Any]:
    return [runner.Cell("sums", "none", split, 3, "PEP", 0.5) for split in range(count)]


def test_killed_and_resumed(runner: ModuleType, tmp_path: Path) -> None:
    """A process that dies in the fourth cell, and a line that was cut: no cell is run twice."""
    script = f"""
        import os, sys
        sys.path.insert(0, {str(EXAMPLES.parent)!r})
        from pathlib import Path
        from examples.papers import runner

        def evaluate(cell):
            if cell.split == 3:
                os._exit(9)
            with open({str(tmp_path / "calls")!r}, "a") as file:
                file.write(f"{{cell.split}} ")
            return {{"value": 2.0 * cell.split}}

        cells = [runner.Cell("sums", "none", split, 3, "PEP", 0.5) for split in range(5)]
        runner.run(cells, evaluate, Path({str(tmp_path)!r}))
    """
    killed = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=False)
    assert killed.returncode == 9
    journal = tmp_path / runner.JOURNAL
    assert len(journal.read_text().splitlines()) == 3 and not (tmp_path / runner.TABLE).exists()
    with journal.open("ab") as file:
        file.write(b'{"cell": {"experiment": "su')
    more: list[int] = []

    def evaluate(cell: Any) -> dict[str, float]:
        more.append(cell.split)
        return {"value": 2.0 * cell.split}

    table = runner.run(cells(runner), evaluate, tmp_path)
    assert (tmp_path / "calls").read_text().split() == ["0", "1", "2"] and more == [3, 4]
    assert list(table["split"]) == [0, 1, 2, 3, 4] and list(table["value"]) == [0, 2, 4, 6, 8]
    assert all(json.loads(line) for line in journal.read_text().splitlines())
    again = runner.run(cells(runner), evaluate, tmp_path)
    assert more == [3, 4] and again.equals(table)
    read = runner.read(tmp_path / runner.TABLE)
    assert list(read["value"]) == list(table["value"]) and "gpflow_pep" in read["versions"][0]


def test_errors_are_rows(runner: ModuleType, tmp_path: Path) -> None:
    calls: list[int] = []

    def evaluate(cell: Any) -> list[dict[str, float]]:
        calls.append(cell.split)
        if cell.split == 1 and calls.count(1) == 1:
            raise ValueError("X has\nNaN")
        return [{"place": 0.0}, {"place": 1.0}]

    table = runner.run(cells(runner, 2), evaluate, tmp_path)
    assert list(table["error"]) == ["", "", "ValueError: X has NaN"]
    assert list(runner.read(tmp_path / runner.TABLE)["place"]) == [0.0, 1.0]
    runner.run(cells(runner, 2), evaluate, tmp_path)
    assert calls == [0, 1]
    table = runner.run(cells(runner, 2), evaluate, tmp_path, retry=True)
    assert calls == [0, 1, 1] and list(table["error"]) == [""] * 4


def test_several_processes_and_the_time(runner: ModuleType, tmp_path: Path) -> None:
    def evaluate(cell: Any) -> dict[str, Any]:
        import os

        return {"process": os.getpid(), "threads": os.environ["TF_NUM_INTRAOP_THREADS"]}

    assert runner.run(cells(runner), evaluate, tmp_path, 2, minutes=0.0).empty
    table = runner.run(cells(runner), evaluate, tmp_path, 2)
    import os

    assert os.getpid() not in set(table["process"]) and set(table["threads"]) == {"1"}
    assert list(table["split"]) == list(range(5))


def test_a_process_that_dies_is_told(runner: ModuleType, tmp_path: Path) -> None:
    """What had ended before is kept."""

    def evaluate(cell: Any) -> dict[str, float]:
        import os
        import time

        if cell.split == 2:
            time.sleep(0.5)
            os._exit(9)
        return {}

    with pytest.raises(SystemExit, match="a process was killed"):
        runner.run(cells(runner, 3), evaluate, tmp_path, 2)
    assert len(runner.read(tmp_path / runner.TABLE)) == 2


def test_one_run_at_a_time(runner: ModuleType, tmp_path: Path) -> None:
    def evaluate(cell: Any) -> dict[str, float]:
        with pytest.raises(SystemExit, match="another run writes here"):
            runner.run(cells(runner), evaluate, tmp_path)
        return {}

    table = runner.run(cells(runner, 1), evaluate, tmp_path)
    assert list(table["error"]) == [""]


def test_start_is_shared(runner: ModuleType) -> None:
    cell = runner.Cell("a", "b", 0, 3, "PEP", 0.5)
    assert cell.seed == runner.Cell("a", "b", 0, 3, "SVGP").seed
    assert cell.seed != runner.Cell("a", "b", 1, 3, "PEP", 0.5).seed
