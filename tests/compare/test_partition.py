"""Folds and splits: those of scikit-learn, and rows with the same inputs in one part."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal
from sklearn.model_selection import KFold, ShuffleSplit, StratifiedKFold, StratifiedShuffleSplit

from gpflow_pep.compare import Cleaned, Settings, clean
from gpflow_pep.compare.partition import equal_inputs, note_equal_inputs, parts_of

N = 60


def data(kind: str, copies: int = 0, num_inputs: int = N) -> Cleaned:
    """Rows, of which so many are repeated, in any order; or that have only few different inputs."""
    rng = np.random.default_rng(0)
    x = rng.choice(rng.normal(size=num_inputs), N) if num_inputs < N else rng.normal(size=N)
    y = np.where(np.arange(N) % 3, "a", "b") if kind == "classes" else rng.normal(size=N)
    table = pd.DataFrame({"x": x, "word": np.where(np.arange(N) % 2, "u", None), "y": y})
    table = pd.concat([table, table.iloc[:copies]]).sample(frac=1.0, random_state=1)
    return clean(table.reset_index(drop=True), "y")


SPLITTERS: list[tuple[str, dict[str, Any], Any]] = [
    ("numbers", {"folds": 4, "seed": 3}, KFold(4, shuffle=True, random_state=3)),
    ("numbers", {"splits": 2}, ShuffleSplit(2, test_size=0.2, random_state=0)),
    ("classes", {"folds": 4}, StratifiedKFold(4, shuffle=True, random_state=0)),
    (
        "classes",
        {"splits": 2, "test_fraction": 0.3},
        StratifiedShuffleSplit(2, test_size=0.3, random_state=0),
    ),
]


@pytest.mark.parametrize("kind, options, splitter", SPLITTERS)
@pytest.mark.parametrize("copies, together", [(0, True), (0, False), (12, False)])
def test_without_copies_parts_are_those_of_scikit_learn(
    kind: str, options: dict[str, Any], splitter: Any, copies: int, together: bool
) -> None:
    cleaned = data(kind, copies)
    parts = list(parts_of(cleaned, Settings(**options, together=together)))
    expected = list(splitter.split(cleaned.X, cleaned.y))
    assert len(parts) == len(expected)
    for part, (train, test) in zip(parts, expected):
        assert_array_equal(part[0], np.sort(train))
        assert_array_equal(part[1], np.sort(test))
    if not copies:
        assert note_equal_inputs(cleaned, Settings(**options)) is cleaned


@pytest.mark.parametrize("kind, options, splitter", SPLITTERS)
def test_copies_are_held_out_together(kind: str, options: dict[str, Any], splitter: Any) -> None:
    cleaned, settings = data(kind, copies=12), Settings(**options)
    groups = equal_inputs(cleaned.X)
    assert len(groups) == N + 12 and groups.max() == N - 1
    counts = np.zeros(N + 12)
    for train, test in parts_of(cleaned, settings):
        assert not set(groups[train]) & set(groups[test])
        assert sorted([*train, *test]) == list(range(N + 12))
        assert kind == "numbers" or set(cleaned.y.iloc[train]) == set(cleaned.y)
        counts[test] += 1.0
    if "folds" in options:
        assert_array_equal(counts, 1.0)
    plain = list(splitter.split(cleaned.X, cleaned.y))
    assert any(set(groups[train]) & set(groups[test]) for train, test in plain)
    *_, note = note_equal_inputs(cleaned, settings).notes
    assert note.startswith("24 of 72 rows have the same inputs as another row, 24 of them the same")
    assert "held out together" in note and "--no-together" in note


def test_missing_values_are_equal() -> None:
    X = pd.DataFrame({"a": [1.0, np.nan, np.nan, 1.0], "b": ["u", "v", "v", None]})
    assert_array_equal(equal_inputs(X), [0, 1, 1, 2])


@pytest.mark.parametrize("kind", ["numbers", "classes"])
def test_few_different_inputs_are_in_training_and_held_out_rows(kind: str) -> None:
    cleaned, settings = data(kind, num_inputs=6), Settings()
    splitter = StratifiedKFold if kind == "classes" else KFold
    expected = splitter(5, shuffle=True, random_state=0).split(cleaned.X, cleaned.y)
    for (_, test), (_, other) in zip(parts_of(cleaned, settings), expected):
        assert_array_equal(test, np.sort(other))
    *_, note = note_equal_inputs(cleaned, settings).notes
    assert "different inputs, too few to hold each out in one of 5 folds" in note
    *_, note = note_equal_inputs(cleaned, Settings(together=False)).notes
    assert note.endswith("With --no-together some are trained on and others held out.")


def test_a_class_with_one_set_of_inputs() -> None:
    """Its rows cannot be in both, so rows are put anywhere."""
    cleaned = data("classes")
    y = cleaned.y.mask(cleaned.y.index < 2, "c")
    X = cleaned.X.copy()
    X.iloc[1] = X.iloc[0]
    for _, test in parts_of(cleaned._replace(X=X, y=y), Settings(splits=3)):
        assert len(test) == 12


def test_one_row_at_a_time() -> None:
    cleaned = data("numbers", copies=1)
    assert [len(test) for _, test in parts_of(cleaned, Settings(folds=N + 1))] == [1] * (N + 1)
    assert "one of 61 folds" in note_equal_inputs(cleaned, Settings(folds=N + 1)).notes[-1]
