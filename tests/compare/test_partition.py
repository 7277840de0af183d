"""Folds and splits: those of scikit-learn, and rows with the same inputs in
one part.
"""

from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal
from sklearn import model_selection as theirs
from sklearn.metrics import r2_score
from sklearn.model_selection import KFold, StratifiedKFold

from gpflow_pep.compare import Cleaned, Comparison, Fit, Settings, clean, compare
from gpflow_pep.compare.candidates import DEFAULT, make_candidates
from gpflow_pep.compare.findings import _quality as quality
from gpflow_pep.compare.page import model_card, page
from gpflow_pep.compare.partition import _equal_inputs as equal_inputs
from gpflow_pep.compare.partition import _note_equal_inputs as note_equal_inputs
from gpflow_pep.compare.partition import (
    clean_for,
    parts_of,
)
from gpflow_pep.compare.terminal import legend
from gpflow_pep.compare.trials import Trial, Trials

N = 60


def data(kind: str, copies: int = 0, num_inputs: int = N) -> Cleaned:
    """Rows, of which so many are repeated, in any order; or that have only few
    different inputs.
    """
    rng = np.random.default_rng(0)
    x = (
        rng.choice(rng.normal(size=num_inputs), N)
        if num_inputs < N
        else rng.normal(size=N)
    )
    y = (
        np.where(np.arange(N) % 3, "a", "b")
        if kind == "classes"
        else rng.normal(size=N)
    )
    table = pd.DataFrame(
        {"x": x, "word": np.where(np.arange(N) % 2, "u", None), "y": y}
    )
    table = pd.concat([table, table.iloc[:copies]]).sample(frac=1.0, random_state=1)
    return clean(table.reset_index(drop=True), "y")


SHUFFLED = {"shuffle": True, "random_state": 0}
SPLITTERS: list[tuple[str, dict[str, Any], Any]] = [
    ("numbers", {"folds": 4, "seed": 3}, KFold(4, shuffle=True, random_state=3)),
    ("numbers", {"splits": 2}, theirs.ShuffleSplit(2, test_size=0.2, random_state=0)),
    ("classes", {"folds": 4}, StratifiedKFold(4, **SHUFFLED)),
    (
        "classes",
        {"splits": 2, "test_fraction": 0.3},
        theirs.StratifiedShuffleSplit(2, test_size=0.3, random_state=0),
    ),
]


def assert_parts(parts: Any, expected: Any) -> None:
    for part, other in zip(parts, expected, strict=True):
        for rows, those in zip(part, other, strict=True):
            assert_array_equal(rows, np.sort(those))


@pytest.mark.parametrize("kind, options, splitter", SPLITTERS)
@pytest.mark.parametrize("copies, together", [(0, True), (0, False), (12, False)])
def test_without_copies_parts_are_those_of_scikit_learn(
    kind: str, options: dict[str, Any], splitter: Any, copies: int, together: bool
) -> None:
    cleaned = data(kind, copies)
    parts = parts_of(cleaned, Settings(**options, together=together))
    assert_parts(parts, splitter.split(cleaned.X, cleaned.y))
    if not copies:
        assert note_equal_inputs(cleaned, Settings(**options)) is cleaned


@pytest.mark.parametrize("kind, options, splitter", SPLITTERS)
def test_copies_are_held_out_together(
    kind: str, options: dict[str, Any], splitter: Any
) -> None:
    X = pd.DataFrame({"a": [1.0, np.nan, np.nan, 1.0], "b": ["u", "v", "v", None]})
    assert_array_equal(equal_inputs(X), [0, 1, 1, 2])  # missing values are equal
    cleaned = data(kind, copies=12)
    settings = Settings(**options)
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
    plain = splitter.split(cleaned.X, cleaned.y)
    assert any(set(groups[train]) & set(groups[test]) for train, test in plain)
    *_, note = note_equal_inputs(cleaned, settings).notes
    assert note.startswith(
        "24 of 72 rows have the same inputs as another row, 24 of them also the same"
    )
    assert "held out together" in note and "--no-together" in note


@pytest.mark.parametrize("kind", ["numbers", "classes"])
def test_few_different_inputs_are_in_training_and_held_out_rows(kind: str) -> None:
    cleaned = data(kind, num_inputs=6)
    settings = Settings()
    splitter = StratifiedKFold if kind == "classes" else KFold
    expected = splitter(5, **SHUFFLED).split(cleaned.X, cleaned.y)
    assert_parts(parts_of(cleaned, settings), expected)
    *_, note = note_equal_inputs(cleaned, settings).notes
    assert "different inputs, too few to hold out each in one of 5 folds" in note
    *_, note = note_equal_inputs(cleaned, Settings(together=False)).notes
    assert note.endswith(
        "With --no-together, some of them are in training while others are held out."
    )


def test_a_class_with_one_set_of_inputs_and_one_row_at_a_time() -> None:
    """The rows of such a class cannot be in both, so rows are put anywhere."""
    cleaned = data("classes")
    y = cleaned.y.mask(cleaned.y.index < 2, "c")
    X = cleaned.X.copy()
    X.iloc[1] = X.iloc[0]
    for _, test in parts_of(cleaned._replace(X=X, y=y), Settings(splits=3)):
        assert len(test) == 12
    cleaned = data("numbers", copies=1)
    settings = Settings(folds=N + 1)
    assert [len(test) for _, test in parts_of(cleaned, settings)] == [1] * (N + 1)
    assert "one of 61 folds" in note_equal_inputs(cleaned, settings).notes[-1]


def visits(**columns: Any) -> pd.DataFrame:
    """Twenty patients at three visits each, on sixty days that are not in order."""
    rng = np.random.default_rng(3)
    patient = np.repeat([f"P{number:02}" for number in range(20)], 3)
    day = pd.Timestamp("2024-03-01") + pd.to_timedelta(rng.permutation(60), "D")
    table = pd.DataFrame({"day": day.strftime("%d.%m.%Y"), "patient": patient})
    table["size"] = np.repeat(rng.normal(size=20), 3) + rng.normal(size=60)
    table["grade"] = np.where(np.arange(60) % 3, "a", "b")
    return table.assign(**columns)


@pytest.mark.parametrize(
    "options, number",
    [
        ({}, 5),
        ({"folds": 3}, 3),
        ({"splits": 4}, 4),
        ({"splits": 2, "test_fraction": 0.25}, 2),
    ],
)
@pytest.mark.parametrize("times", [60, 30])
def test_windows_are_those_of_scikit_learn(
    options: Any, number: int, times: int
) -> None:
    """The latest is the first; rows of one time are on one side. Without a fraction
    windows are shorter than scikit-learn's where the earliest would train on less than
    a third of the rows.
    """
    table = visits()
    table["day"] = pd.to_datetime(table["day"], dayfirst=True).rank().sub(1) // (
        60 // times
    )
    settings = Settings(**options, time_column="day")
    data = clean_for(table, "size", settings)
    size = min(times // (number + 1), (times - times // 3) // number)
    if "test_fraction" in options:
        size = int(times * 0.25)
    windows = theirs.TimeSeriesSplit(number, test_size=size).split(np.arange(times))
    rows = [
        [np.flatnonzero(table["day"].isin(place)) for place in window]
        for window in windows
    ]
    assert "day" in data.X
    assert_parts(parts_of(data, settings), rows[::-1])


def sizes(day: Any, **options: Any) -> list[tuple[int, int]]:
    """Count the rows that each window trains on, and those that it holds out."""
    settings = Settings(time_column="day", **options)
    data = clean_for(visits(day=day), "size", settings)
    return [(len(train), len(test)) for train, test in parts_of(data, settings)]


LATER = np.r_[np.arange(10), np.repeat(np.arange(10, 20), 5)]  # five rows a day


@pytest.mark.parametrize(
    "day, options, expected",
    [
        (LATER, {}, [(55 - n, 5) for n in (0, 5, 10, 15, 20)]),
        (LATER, {"folds": 3}, [(50, 10), (40, 10), (30, 10)]),
        (LATER, {"horizon": 4}, [(40, 20), (20, 20)]),
        (LATER, {"horizon": 4, "splits": 1}, [(40, 20)]),
        (np.arange(60), {"horizon": 3, "splits": 2}, [(57, 3), (54, 3)]),
        (np.arange(60) // 20, {}, [(40, 20), (20, 20)]),
        (np.arange(60) // 2, {"horizon": 7}, [(46, 14), (32, 14)]),
    ],
)
def test_each_window_has_a_third_of_the_rows_to_train_on(
    day: Any, options: Any, expected: Any
) -> None:
    assert sizes(day, **options) == expected


def test_one_window() -> None:
    settings = Settings(time_column="day", test_fraction=0.6)
    data = clean_for(visits(), "size", settings)
    ((train, test),) = parts_of(data, settings)
    assert (
        len(test) == 36 and data.blocks.iloc[train].max() < data.blocks.iloc[test].min()
    )
    # Each class is needed before the window alone.
    clean_for(visits(**LATE), "grade", Settings(time_column="day", test_fraction=0.5))


@pytest.mark.parametrize(
    "options, target, splitter",
    [
        ({"folds": 4}, "size", theirs.GroupKFold(4)),
        ({"folds": 4}, "grade", theirs.StratifiedGroupKFold(4, **SHUFFLED)),
        (
            {"splits": 2},
            "grade",
            theirs.GroupShuffleSplit(2, test_size=0.2, random_state=0),
        ),
    ],
)
def test_groups_are_held_out_as_scikit_learn_does(
    options: Any, target: str, splitter: Any
) -> None:
    table = visits()
    settings = Settings(**options, group_column="patient")
    data = clean_for(table, target, settings, drop=["day"])
    assert "patient" not in data.X and not data.warnings
    parts = list(parts_of(data, settings))
    assert_parts(parts, splitter.split(table, table[target], table["patient"]))
    for train, test in parts:
        assert not {*table["patient"][train]} & {*table["patient"][test]}


def test_rows_without_a_time_are_dropped_with_a_note() -> None:
    table = visits(other=np.sin(np.arange(60.0)))
    table.loc[:4, "day"] = None
    data = clean_for(table, "size", Settings(time_column="day"))
    assert (
        len(data.X) == len(data.y) == len(data.blocks) == 55
        and "conventions" in data.X.attrs
    )
    assert "Dropped 5 of 60 rows without 'day'." in data.notes and "day" in data.X
    data = clean_for(
        table, ["size", "other"], Settings(time_column="day"), drop=["day"]
    )
    assert len(data.blocks) == len(data.y) == 55 and list(data.X) == [
        "patient",
        "grade",
    ]


LATE = {
    "day": np.arange(60),
    "grade": np.where(np.arange(60) < 20, "a", ["b", "c", "a"] * 20),
}


@pytest.mark.parametrize(
    "options, columns, message",
    [
        (
            {"time_column": "date"},
            {},
            "time_column: got 'date', expected a column other than the",
        ),
        (
            {"group_column": "size"},
            {},
            "group_column: got 'size', expected a column other than",
        ),
        (
            {"time_column": "patient"},
            {},
            "patient', a column of the kind text, such as 'P",
        ),
        (
            {"time_column": ""},
            {},
            "time_column: got '', expected a column other than the target",
        ),
        (
            {"group_column": ""},
            {},
            "group_column: got '', expected a column other than the target",
        ),
        (
            {"group_column": "day"},
            {"day": [{}] * 60},
            "kind other, such as {}, expected text, dates or",
        ),
        ({"time_column": "day", "splits": 99}, {}, "splits: got 99 for"),
        (
            {"group_column": "patient", "folds": 21},
            {},
            "21 for 20 different values of 'patient'",
        ),
        (
            {"group_column": "grade"},
            {},
            "folds: got 5 for 2 different values of 'grade', which",
        ),
        (
            {"time_column": "day", "folds": 60},
            {},
            "60 for 60 different values of 'day', which",
        ),
        (
            {"time_column": "day", "folds": 5},
            {"day": np.arange(60) // 20},
            "5 for 3 different values of",
        ),
        (
            {"time_column": "day"},
            {"day": (np.arange(60) > 15) * 1},
            "trains on 16 rows and holds out 44, expected .* of the rows in training"
            " .20.",
        ),
        (
            {"time_column": "day", "horizon": 41},
            {},
            "horizon: got 41 for 60 different values of 'day', which trains on 19 rows",
        ),
        (
            {"time_column": "day", "horizon": 10, "folds": 5},
            {},
            "horizon: got 10 for 60 different values",
        ),
        ({"horizon": 3}, {}, "horizon: got 3 without a time_column, expected both"),
        (
            {"time_column": "day", "horizon": 3, "test_fraction": 0.2},
            {},
            "horizon: got 3 and test_fraction=0.2, expected one of them",
        ),
        (
            {"time_column": "day", "test_fraction": 0.999},
            {},
            "test_fraction: got 0.999 for 60",
        ),
        (
            {"time_column": "day", "splits": 5, "test_fraction": 0.3},
            {},
            "fraction: got 0.3 for 60",
        ),
        (
            {"folds": 31},
            {},
            "folds: got 31 for 60 rows, which trains on 59 rows and holds out",
        ),
        (
            {"folds": 70},
            {},
            "folds: got 70 for 60 rows, which trains on 0 rows and holds out 0",
        ),
        (
            {"test_fraction": 0.99},
            {},
            "test_fraction: got 0.99 for 60 rows, which trains on 0",
        ),
        (
            {"test_fraction": 0.01},
            {},
            "test_fraction: got 0.01 for 60 rows, which trains on 59",
        ),
        (
            {"time_column": "day", "y": "grade"},
            LATE,
            "trains on 20 rows, none of class 'b', 'c', and holds out",
        ),
    ],
)
def test_refused_before_anything_is_trained(
    options: Any, columns: Any, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        compare(visits(**columns), **{"y": "size", **options})


def test_months_as_times() -> None:
    months = pd.date_range("2023-01-01", periods=36, freq="MS")
    x = np.random.default_rng(0).normal(size=72)
    table = pd.DataFrame({"Month": np.tile(months.strftime("%m.%Y"), 2), "x": x})
    table["y"] = x**2
    data = clean_for(table, "y", Settings(time_column="Month"))
    assert list(data.blocks) == list(months) * 2
    years = table.assign(Month=np.tile(2023.0 + np.round(np.arange(36) / 12.0, 3), 2))
    assert clean_for(years, "y", Settings(time_column="Month")).blocks.max() > 2025.9
    message = r"got 'Month' with numbers such as 1.2023, .* month 01.2023; .* Jan 2023"
    numbers = table.assign(Month=table["Month"].astype(float))
    for frame, options in ((numbers, {}), (table, {"as_written": ["Month"]})):
        with pytest.raises(ValueError, match=message):
            clean_for(frame, "y", Settings(time_column="Month"), **options)
    message = r"of the kind text, such as 'Mai 2023', .* 2023M01, 01/2023"
    with pytest.raises(ValueError, match=message):
        words = table.assign(Month=["Mai 2023", "Okt 2023"] * 36)
        clean_for(words, "y", Settings(time_column="Month"))


CLASSES: Any = {"task": "classification"}


def test_the_order_of_classes() -> None:
    words = ["stable", "worse", "admitted"]
    table = pd.DataFrame({"x": np.random.default_rng(0).normal(size=60)})
    table["y"] = words * 20
    with pytest.raises(ValueError, match=r"--order admitted,stable,worse \(in Python"):
        clean_for(table, "y", Settings(likelihood="ordinal"))
    assert clean_for(table, "y", Settings(likelihood="ordinal", order=words))
    for order, message in (
        (words[:2], r"order: got 'stable', 'worse' without 'admitted', expected all"),
        ([*words, "dead"], r"order: got 'dead', expected classes of 'y' among"),
        (
            ["worse", "worse"],
            r"order: got \['worse', 'worse'\], expected distinct classes",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            clean_for(table, "y", Settings(likelihood="ordinal", order=order))
    with pytest.raises(
        ValueError, match="expected no order, or the likelihood 'ordinal'"
    ):
        clean_for(table, "y", Settings(order=words))
    settings = Settings(likelihood="ordinal")
    data = clean_for(table.assign(y=[1, 2, 10] * 20), "y", settings, **CLASSES)
    assert data.notes[-1].startswith("The classes of 'y' are in the order 1 < 2 < 10")
    settings = Settings(likelihood="ordinal", order=[10, 2, 1])
    numbers = clean_for(table.assign(y=[1, 2, 10] * 20), "y", settings, **CLASSES)
    (classifier,) = make_candidates(numbers, settings)[DEFAULT][1:]
    assert classifier.order == ("10", "2", "1")


@pytest.mark.parametrize(
    "setting, name", [("time_column", "day"), ("group_column", "patient")]
)
def test_smaller_tables_are_the_latest_or_groups(
    setting: str, name: str, monkeypatch: Any
) -> None:
    settings = Settings(**{setting: name}, alphas=(0.5,), num_inducing=3)
    trials = Trials(clean_for(visits(), "size", settings), settings)
    train = Mock(side_effect=lambda trial, *_: trials.not_begun(trial))
    monkeypatch.setattr(trials, "train", train)
    trials.run(Trial("mean", 1, 0.5), 1.0)
    blocks = trials.data.blocks
    rows = train.call_args.args[1]
    rest = np.setdiff1d(trials.parts[0][0], rows)
    assert len(rest) == len(rows)
    if name == "day":
        assert blocks.iloc[rows].min() > blocks.iloc[rest].max()
    else:
        assert len({*blocks.iloc[rows]} & {*blocks.iloc[rest]}) <= 1


@pytest.mark.parametrize(
    "changes, options, flags",
    [
        ({}, {}, ["--time-column day", "--group-column patient"]),
        ({"day": "x"}, {}, ["--group-column patient"]),
        ({"day": [{}] * 60}, {}, ["--group-column patient"]),
        (
            {"patient": np.arange(60) // 20},
            {},
            ["--time-column day", "patient --folds 3"],
        ),
        ({"patient": np.arange(60)}, {}, ["--time-column day"]),
        (
            {"patient": np.arange(60), "device": ["phone", "tablet", "TV"] * 20},
            {},
            ["column day"],
        ),
        (
            {"patient": np.arange(60), "device id": [1, 2, 3] * 20},
            {},
            ["day", "'device id' --folds"],
        ),
        (
            {"patient": np.arange(60), "device": [*range(10)] * 6},
            {},
            ["day", "column device"],
        ),
        (
            {"patient": ["Nord", "NORD ", "West", "Ost"] * 15},
            {},
            ["column day", "--folds 3"],
        ),
        (
            {"day": "x", "year": 2015 + np.arange(60) // 5},
            {},
            ["column year", "column patient"],
        ),
        (
            {"day": "x", "year": 2015 + np.arange(60) // 20},
            {},
            ["column year --folds 2", ""],
        ),
        (
            {"day": "x", "year built": 1950 + np.arange(60) // 5},
            {},
            ["--group-column patient"],
        ),
        (
            {"nhs id": [f"N{n}" for n in np.arange(60) % 15]},
            {},
            ["--time-column day", "Columns 'patient', 'nhs id' may identify"],
        ),
        ({}, {"time_column": "day"}, []),
        ({}, {"group_column": "patient"}, []),
    ],
)
def test_unused_columns_are_named_with_the_command(
    changes: Any, options: Any, flags: Any
) -> None:
    data = clean_for(
        visits(**changes), "size", Settings(**options), "gpflow-pep compare a.csv"
    )
    for warning, flag in zip(data.warnings, flags, strict=True):
        words = ("held out at random. If ", "too optimistic: run ", flag)
        assert all(word in warning for word in words)
    # The whole command is in one of them.
    texts = "".join(data.warnings)
    assert texts.count("run gpflow-pep compare a.csv --") == bool(flags)
    both = "run the same command with --group-column"
    assert texts.count(both) == max(len(flags) - 1, 0)


def test_names_of_the_groups_are_no_inputs_and_footers_no_rows() -> None:
    table = visits(
        number=[f"N{name}" for name in visits()["patient"]], row=[*range(60)]
    )
    footer = {"day": "", "row": "mean", "patient": "", "number": "", "size": None}
    table = pd.concat([table, pd.DataFrame([footer])], ignore_index=True)
    data = clean_for(table, "size", Settings(group_column="patient"))
    assert "number" not in data.X and "number" not in data.formats and len(data.X) == 60
    assert (
        "Dropped column 'number': it groups the rows in the same way as 'patient'."
        in data.notes
    )
    assert "number" in clean_for(table, "size", Settings()).X


def test_columns_of_other_names_whose_values_explain_the_target() -> None:
    rng = np.random.default_rng(0)
    number = np.repeat(rng.permutation(20), 3)
    effect = rng.normal(size=20)[number] + 0.1 * rng.normal(size=60)
    for name, values, warned in (
        ("code", number, True),
        ("town", np.array([f"t{n}" for n in number]), True),
        ("age", number, False),  # explains it as an input does: neighbours are alike
        ("noise", np.repeat(rng.permutation(20), 3), False),
        ("kind", number % 4, False),
    ):
        y = np.sort(effect)[np.argsort(np.argsort(number))] if name == "age" else effect
        table = pd.DataFrame({name: values, "x": rng.normal(size=60), "y": y})
        warnings = clean_for(table, "y", Settings()).warnings
        assert any(f"--group-column {name}" in text for text in warnings) == warned, (
            name
        )


def latest_scores(comparison: Any, index: Any) -> list[Any]:
    table = comparison.held_out[comparison.best].loc[index]
    return [table["true"], table["mean"]]


@pytest.mark.parametrize(
    "times, words",
    [
        (pd.date_range("2024-01-01", periods=60, freq="MS"), "before June 2028, "),
        (pd.date_range("2024-01-01", periods=60, freq="D"), "before 2024-02-23, "),
        (
            pd.date_range("2024-01-01", periods=60, freq="h"),
            "before 2024-01-03 05:00, ",
        ),
        (1950 + np.arange(60) / 4, "before 'day' 1963.25, "),
    ],
)
def test_the_first_sentence_is_of_the_latest_window(times: Any, words: str) -> None:
    table = pd.DataFrame({"day": times, "size": np.arange(60.0)})
    settings = Settings(time_column="day", horizon=7, splits=1)
    data = clean_for(table, "size", settings)
    index = np.arange(53, 60)
    held_out = {"part": 1, "true": index, "mean": index + 0.5}
    held_out |= {"lower_90": index - 1.0, "upper_90": index + 1.0, "log_density": -1.0}
    frame = pd.DataFrame(held_out, index=index)
    scores = {"nlpd": 1.0, "rmse": 0.5, "mae": 0.5, "coverage": 1.0}
    worse = {"nlpd": 3.0, "rmse": 9.0, "mae": 9.0, "coverage": 1.0}
    fits = [
        Fit(name, 1, each, 1.0, 0.5, 7, True, "", 53)
        for name, each in (("default", scores), ("mean", worse))
    ]
    comparison = Comparison(
        data,
        settings,
        {"default": np.nan, "mean": np.nan},
        fits,
        {"default": frame, "mean": frame},
        "default",
    )
    text = quality(comparison)
    assert text.startswith(
        f"Trained on all rows {words}the default model explains 94% of the"
    )
    assert "windows" not in text and "On rows" not in text


@pytest.mark.slow
def test_a_comparison_over_windows_and_over_groups() -> None:
    """Scores, details and words follow the split, and the final model has all rows."""
    least: dict[str, Any] = {"alphas": (0.5,), "num_inducing": 4, "max_iterations": 3}
    least |= {"baselines": False, "folds": 2}
    windows = compare(visits(), "size", time_column="day", **least)
    assert windows.final is not None and windows.final.num_rows == 60
    assert [fit.num_rows for fit in windows.fits_of("mean")] == [40, 20]
    latest = windows.held_out["mean"].query("part == 1")
    days = pd.to_datetime(visits()["day"], dayfirst=True)
    assert {*latest.index} == {*days.nlargest(20).index}
    assert windows.details is not None and {*windows.details.learning} == {10, 20, 40}
    text = quality(windows)
    assert text.startswith(
        "Trained on all rows before 2024-04-10, the default model explains"
    )
    share = r2_score(*latest_scores(windows, latest.index))
    assert (
        f"before 2024-04-10, the default model explains {max(share, 0.0):.0%} of"
        in text
    )
    assert "On rows later by 'day' than all training rows (all 2 windows) it" in text
    assert text.count("explains") == 2
    card = " ".join(model_card(windows).split())
    assert "are guesses, except later rows by 'day', which give the scores." in card
    assert "2 windows. Each window is tested on rows later by 'day'" in legend(windows)
    groups = compare(visits(), "size", group_column="patient", details=False, **least)
    assert groups.model is not None and "patient" not in groups.model.feature_names_in_
    assert quality(groups).startswith("On rows of new values of 'patient', ")
    text = page(groups, {}, command="", folder=Path())
    assert ("also from rows of the same &#39;patient&#39;" in text) == (
        groups.best == "default"
    )
    # The description of a forecast has scores of later rows, or no scores.
    assert "scores in this box" not in page(windows, {}, command="", folder=Path())
