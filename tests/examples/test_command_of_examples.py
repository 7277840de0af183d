"""The command ``python -m examples``: it lists and runs every example, and each has a
quick run.
"""

import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from examples import common
from examples.__main__ import commands, run

COMMANDS = commands()
#: Not of the command line of all others: names of files; a package that is not
#: installed here.
OTHERS = {"messy_table", "messy_tables", "trieste_adapter", "trieste_loop"}
WITHOUT_DATA = (
    "forget how_long interdomain large_scale minibatch pic saspa streaming"
    " mixed_outputs distributed regression selection serving single_precision tied"
    " several_targets zero_inflated calibration"
)


def test_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    run([])
    listed = capsys.readouterr().out
    assert all(f"{name} " in listed for name in COMMANDS)
    assert {"snelson", "evaluations", "byt17"} <= set(COMMANDS)
    with pytest.raises(SystemExit, match="Got the example nothing"):
        run(["nothing"])


@pytest.mark.near_copies("compare", "regression", "byt17", "minibatch", "quality")
@pytest.mark.parametrize("name", sorted(set(COMMANDS) - OTHERS))
def test_help_shows_what_the_example_does(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        run([name, "--help"])
    shown = capsys.readouterr().out
    assert ended.value.code in (0, None)
    assert "--quick" in shown and COMMANDS[name][1].split(":")[0] in " ".join(
        shown.split()
    )


@pytest.mark.slow
def test_what_is_of_the_tests_is_found_without_them() -> None:
    command = [sys.executable, "-m", "examples", "tilted", "--help"]
    subprocess.run(
        command, cwd=Path(common.__file__).parents[1], check=True, capture_output=True
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", WITHOUT_DATA.split())
def test_quick_runs(name: str, tmp_path: Path, capfd: Any, monkeypatch: Any) -> None:
    """Those that need no data set."""
    monkeypatch.setattr(sys, "argv", [name, "--quick"])
    monkeypatch.chdir(tmp_path)
    import_module(COMMANDS[name][0]).main()
    printed = capfd.readouterr().out
    assert len(printed.splitlines()) >= 2 and "nan" not in printed  # the head and a row


def test_arguments() -> None:
    options = {
        "rows": 20,
        "steps": int,
        "grow": False,
        "kind": ("a", "b"),
        "sizes": [1, 2],
    }
    quick = {"rows": 3, "names": ["two"]}

    def parse(*given: str) -> dict[str, object]:
        return vars(
            common.arguments(
                "What.", names=("one",), quick=quick, given=given, **options
            )
        )

    plain = {"rows": 20, "steps": None, "grow": False, "kind": "a", "sizes": [1, 2]}
    assert parse() == {"names": ["one"], "quick": False, **plain}
    assert parse("--quick") == {**plain, "names": ["two"], "quick": True, "rows": 3}
    assert parse("--quick", "three", "--rows", "7")["rows"] == 7
    assert parse("--sizes", "4", "5", "--kind", "b", "--steps", "2")["sizes"] == [4, 5]
    with pytest.raises(SystemExit):
        parse("--kind", "c")
