"""Pictures are drawn on axes of a figure that is not pyplot's."""

from typing import Any

import pytest


@pytest.fixture
def ax() -> Any:
    figure = pytest.importorskip("matplotlib.figure").Figure(figsize=(5.0, 5.0), dpi=100)
    return figure.subplots()


@pytest.fixture(autouse=True)
def no_window(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPLBACKEND", "Agg")
