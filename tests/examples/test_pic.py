"""The example of predictions that use rows: its table says what it should."""

import sys
from pathlib import Path

import pytest
from helpers import load_example


@pytest.mark.slow
def test_the_table(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    example, figure = load_example("pic.py"), tmp_path / "pic.png"
    monkeypatch.setattr(sys, "argv", ["pic.py", "--rows", "200", "--out", str(figure)])
    example.main()
    lines = capsys.readouterr().out.splitlines()
    table = {line[:20].strip(): float(line.split()[-2]) for line in lines[2:7]}
    exact = table["exact"]
    assert table["PITC"] > 0.4 and table["FITC"] > 0.4
    assert exact < table["PIC"] < 0.1
    assert exact < table["FITC, 10 neighbours"] < 0.1
    if lines[7:]:
        assert lines[7] == f"wrote {figure}" and figure.exists()
