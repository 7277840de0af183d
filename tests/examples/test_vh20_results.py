"""VH20's page: it follows from its table; which power and which method is best (Figure 1)."""

import importlib
from pathlib import Path
from types import ModuleType

import pandas as pd
import pytest
from helpers import EXAMPLES


@pytest.fixture
def powers() -> ModuleType:
    return importlib.import_module("examples.papers.vh20_powers")


def scores() -> pd.DataFrame:
    """Both are best at 0.5, and ARPEP before PEP at 1; PEP has a split that ARPEP lacks."""
    nlpd = {("PEP", 0.5): 0.1, ("PEP", 1.0): 0.4, ("ARPEP", 0.5): 0.3, ("ARPEP", 1.0): 0.35}
    return pd.DataFrame(
        {"data": "wine", "M": 5, "split": split, "method": method, "alpha": alpha}
        | {"nlpd": value + 9.0 * (split == 3), "error_rate": 0.1}
        for split in range(4)
        for (method, alpha), value in nlpd.items()
        if method == "PEP" or split < 3
    )


def ranks(text: str) -> dict[str, float]:
    lines = [line.split() for line in text.splitlines() if line.endswith("3 runs")]
    return {" ".join(line[:2]): float(line[2]) for line in lines}


def test_ranks_and_means(powers: ModuleType) -> None:
    text, _ = powers.powers(scores()).split("error, mean ± s.e.")
    assert "PEP           0.100 ± 0.000" in text and "ARPEP         0.300 ± 0.000" in text
    of_powers, of_methods = text.split("same power")
    assert ranks(of_powers) == {"PEP 0.5": 1.0, "PEP 1": 2.0, "ARPEP 0.5": 1.0, "ARPEP 1": 2.0}
    assert ranks(of_methods) == {"PEP 0.5": 1.0, "PEP 1": 2.0, "ARPEP 0.5": 2.0, "ARPEP 1": 1.0}


def test_drawn(powers: ModuleType) -> None:
    pytest.importorskip("matplotlib")
    panels = powers.draw_powers(scores()).axes
    assert [len(axes.lines) for axes in panels[1::2]] == [2, 2]  # the scores of both methods
    assert panels[1].lines[0].get_ydata() == pytest.approx([0.1, 0.4])


def test_what_is_printed_follows_from_the_table(
    powers: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page of results shows what its command makes of the table beside it."""
    results = EXAMPLES.parent / "docs" / "results"
    summary = importlib.import_module("examples.papers.vh20_summary")
    monkeypatch.setattr("examples.papers.summaries.available", lambda: False)
    summary.summarise(
        importlib.import_module("examples.papers.runner").read(results / "vh20.csv"), tmp_path
    )
    printed = {path.name: path.read_text() for path in (results / "vh20").glob("*.txt")}
    assert printed == {path.name: path.read_text() for path in tmp_path.glob("*.txt")}
    assert {"nlpd.txt", "powers.txt", "time.txt"} <= set(printed)
