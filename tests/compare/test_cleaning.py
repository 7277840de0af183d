"""What is learnt from, of tables as people have them, and how new tables are read."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from cases.forms import saved, scorer
from compare.small_comparison import run
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.pipeline import make_pipeline

from gpflow_pep.compare import (
    Cleaned,
    clean,
    make_preparation,
    predict_table,
    read_table,
)
from gpflow_pep.estimators import PEPRegressor
from gpflow_pep.tables import Format, encodings, read_cells

N = 40
HUGE = pd.Series([10**400, *range(N - 1)], dtype=object)
SHUFFLED = np.random.default_rng(1).permutation(N)


def table(**columns: Any) -> pd.DataFrame:
    x = np.random.default_rng(0).normal(size=N)
    return pd.DataFrame({"x": x, "y": np.sin(x), **columns})


def notes_of(cleaned: Cleaned) -> str:
    return "\n".join(cleaned.notes)


def read(path: Path, lines: Iterable[str]) -> pd.DataFrame:
    path.write_text("\n".join(lines) + "\n")
    return read_table(path)


@pytest.mark.parametrize(
    "name, values, reason",
    [
        ("Unnamed: 0", range(N), "numbers the rows"),
        ("Unnamed: 7", [None] * N, "is empty"),
        ("id", range(100, 100 + N), "numbers the rows"),
        ("customer_id", SHUFFLED, "numbers the rows"),
        ("customerId", [*map(float, range(N - 1)), np.nan], "numbers the rows"),
        ("Row", range(N), "numbers the rows"),
        (
            "order number",
            np.arange(N) * 7,
            "all differ and rise from row to row, as time does",
        ),
        ("Patient", SHUFFLED, "(--as-written Patient keeps it)"),
        ("order no", range(N, 0, -1), "(--as-written 'order no' keeps it)"),
        ("OrderNumber", range(N), "numbers the rows"),
        ("Kundennummer", [f"{i:05}" for i in range(N)], "(rename it to keep it)"),
        (
            "uuid",
            [f"{i:08x}-{i**3:04x}" for i in range(N)],
            "40 of its 40 texts differ",
        ),
        ("invoice_no", [f"2021/{i}" for i in range(N)], "40 of its 40 texts differ"),
        (
            "address",
            [f"Street {i}" for i in range(N)],
            "40 texts differ, such as 'Street",
        ),
        ("site", ["A"] * N, "it is A in every row"),
        ("unit", [2.0] * N, "it is 2.0 in every row"),
        ("parts", [[1]] * N, "its cells are of type list"),
        # Those that may tell something:
        ("time", range(N), ""),
        ("year", range(1980, 1980 + N), ""),
        ("humid", range(N), ""),
        ("paid", range(N), ""),
        ("grid", range(N), ""),
        ("id", np.linspace(0.0, 1.0, N), ""),
        ("id", np.arange(N) % 7, ""),
        ("index", np.linspace(90.0, 110.0, N), ""),
        ("day no", range(N), ""),
        ("weekNr", range(N), ""),
        ("patient", np.arange(N) % 9, ""),
        ("colour", ["red", "blue"] * (N // 2), ""),
        ("ticked", ["x", None] * (N // 2), ""),
        ("ratio", ["16/9", "4/3"] * (N // 2), ""),
        ("ratio", ["a/b", "c/d"] * (N // 2), ""),
        ("ratio", ["1/2/2021", "2/13/2021"] * (N // 2), ""),
    ],
)
def test_which_columns_tell_nothing(name: str, values: Any, reason: str) -> None:
    cleaned = clean(table(**{name: list(values)}), "y")
    assert list(cleaned.X) == ["x", name][: 1 + (not reason)] == list(cleaned.formats)
    assert (f"Dropped column '{name}'" in notes_of(cleaned)) == bool(reason)
    assert reason in notes_of(cleaned)
    if "keeps it" in reason:
        assert name in clean(table(**{name: list(values)}), "y", as_written=[name]).X


PRESSURES = [f"{100 + i}/{60 + i // 2}" for i in range(N - 2)]
LENGTHS = [f"{i},5 / {i + 1},25 mm" for i in range(N)]


@pytest.mark.parametrize(
    "cells, first, second",
    [
        (["?", "n/a", *PRESSURES], [np.nan] * 2 + [100, 137], [np.nan] * 2 + [60, 78]),
        (["120", None, *PRESSURES], [120, np.nan, 100, 137], [np.nan] * 2 + [60, 78]),
        (LENGTHS, [0.5, 1.5, 2.5, 39.5], [1.25, 2.25, 3.25, 40.25]),
    ],
)
def test_two_numbers_in_a_cell(
    cells: list[Any], first: list[float], second: list[float]
) -> None:
    frame = table(pair=cells)
    cleaned = clean(frame, "y")
    names = ["pair (1 of 2)", "pair (2 of 2)"]
    assert list(cleaned.X) == ["x", *names]
    note = "'pair (1 of 2)', 'pair (2 of 2)'; --as-written pair keeps them as words)."
    assert note in notes_of(cleaned)
    for name, values in zip(names, (first, second)):
        assert_array_equal(cleaned.X[name].iloc[[0, 1, 2, -1]], values)
    assert list(clean(frame, "y", drop=["pair"]).X) == ["x"]
    assert list(clean(frame, "y", drop=[names[0]]).X) == ["x", names[1]]
    assert "pair (1 of 2)" not in clean(frame, "y", as_written=["pair"]).X
    # New rows have the cells as they were, of one row too; or what was made of them.
    encoder = make_preparation(cleaned.X, cleaned.formats).fit(cleaned.X)
    assert list(encoder.feature_names_in_) == ["x", "pair"]
    assert_array_equal(
        encoder.transform(frame[["pair", "x"]]), encoder.transform(cleaned.X)
    )
    new = pd.DataFrame({"x": [0.0], "pair": cells[-1:]})
    assert_array_equal(encoder.transform(new)[0, :2], [0.0, first[-1]])
    wild = new.assign(pair="1000/-99" + cells[-1][-3:] * ("mm" in cells[-1]))
    assert encoder.unusual(wild) == [
        f"{names[0]} is above all; {names[1]} is below all"
    ]
    with pytest.raises(
        ValueError, match=r"column 'pair': got '12O/80' in row 0 .*such as 120/80"
    ):
        encoder.transform(new.assign(pair="12O/80"))
    with pytest.raises(ValueError, match=r"no column .*'pair' among 'x'"):
        encoder.transform(new[["x"]])


def test_cells_are_read() -> None:
    cleaned = clean(
        table(
            price=[f"${1000 * i:,}.50" for i in range(N)],
            share=[f"{i}%" for i in range(N)],
            lab=["n.d.", "n.d.", *map(str, range(N - 2))],
            day=pd.date_range("2020-01-25", periods=N).strftime("%d.%m.%Y"),
            yes=[True, None] * (N // 2),
            loss=["5", *(f"({i})" for i in range(1, N))],
            gain=["5", *(f"{i}-" for i in range(1, N))],
            cost=[f"{'€$'[i % 2]}{100 + i}" for i in range(N)],
            lead=["<0.5" if i % 4 == 0 else f"{i}.25" for i in range(N)],
            zip=[f"{1000 + 317 * i:05}" for i in range(N)],
        ),
        "y",
    )
    for name, values in (
        ("price", 1000.0 * np.arange(N) + 0.5),
        ("yes", [1.0, np.nan] * (N // 2)),
        ("lead", [0.5 if i % 4 == 0 else i + 0.25 for i in range(N)]),
    ):
        assert_array_equal(cleaned.X[name], values)
    assert cleaned.X["day"][39] == pd.Timestamp("2020-03-04")
    assert cleaned.formats["day"].pattern == "dmy"
    for note in (
        (
            "5 columns have text that is read as numbers: 'price' ('$1,000.50' is"
            " 1000.5), 'share' ('0%' is 0), "
        ),
        (
            "Column 'day' holds dates, which become days since 1970-01-01 ('25.01.2020'"
            " is 2020-01-25)."
        ),
        "Column 'lab' has words that are read as missing ('n.d.').",
        "2 columns have missing values in some of the 40 rows: 'lab' (2), 'yes' (20).",
        "'loss' ('(1)' is -1)",
        "'gain' ('1-' is -1)",
        "differ, numbers of several units, such as '€100', '$101'",
        "Column 'lead' has limits that are read as numbers (10 rows, '<0.5' is 0.5).",
        "('01000' is 1000; --as-written zip keeps them as words)",
    ):
        assert note in notes_of(cleaned)


def test_one_line_for_all_columns_of_a_kind() -> None:
    gaps = [f"{i / 4}" if i % 5 else "?" for i in range(N)]
    columns = {f"a{k}": gaps[k:] + gaps[:k] for k in range(24)}
    cleaned = clean(table(**columns, b=["Yes", "YES", "no", "no"] * 10), "y")
    assert cleaned.notes == [
        "Column 'b' has words in several spellings, of which the most frequent one is"
        " read ('Yes' as 'YES'; --as-written b keeps them apart).",
        "24 columns have missing values in some of the 40 rows: "
        + ", ".join(f"'a{k}' (8)" for k in range(8))
        + " and 16 more.",
    ]
    cleaned = clean(table(a=[0.5] * N, b=2, c=[[1]] * N), "y")
    assert cleaned.notes == [
        "Dropped column 'c': its cells are of type list.",
        "Dropped 2 columns that have the same value in all rows: 'a' (0.5), 'b' (2.0).",
    ]
    survey = {f"q{k}": [*[1, 2, 3, 4, 5] * 7, *[99] * 5] for k in range(3)}
    (warning,) = clean(table(**survey), "y").warnings
    assert warning.startswith("3 columns") and "--missing=99 " in warning


def test_what_is_no_number_to_the_reader() -> None:
    """Text with a note, and never another number."""
    places = ["52°31'", "48°30'12\"N", "33.5°S", "10°"] * 10
    money = ["1,10,000", "12,34,567", "5", "50,000"] * 10
    cleaned = clean(table(place=places, money=money), "y")
    assert list(cleaned.X["place"]) == places and list(cleaned.X["money"]) == money
    for note in ("degrees and minutes", "digits in groups of two"):
        assert note in notes_of(cleaned)
    assert notes_of(cleaned).count("which are not read as numbers") == 2
    assert "are read as words" in notes_of(cleaned)
    places = [f"{i}°{i}'" for i in range(N)]
    assert "degrees and minutes" in notes_of(clean(table(place=places), "y"))


def test_months_are_dates() -> None:
    months = pd.date_range("2023-01-01", periods=N, freq="MS")
    cleaned = clean(table(Month=list(months.strftime("%m.%Y"))), "y")
    assert list(cleaned.X["Month"]) == list(months)
    assert (
        "Column 'Month' holds months, which become days since 1970-01-01 ('01.2023' is"
        " 2023-01-01; --as-written Month keeps them as words)."
    ) in cleaned.notes
    numbers = [float(month.strftime("%m.%Y")) for month in months]
    cleaned = clean(table(Month=numbers), "y")
    assert list(cleaned.X["Month"]) == numbers
    assert "and are read as numbers (1.2023 may be 01.2023; " in notes_of(cleaned)


@pytest.mark.parametrize(
    "words, joined, note",
    [
        ([*"MMFmf"], {"M", "F"}, "are kept apart, no"),
        ([*"YyNNn"], {"Y", "N"}, ""),
        ([*"AAabb"], {"A", "a", "b"}, "kept apart ('A' and 'a')."),
        ([*"mMMmM"], {"m", "M"}, "kept apart ('M' and 'm')."),
        (["mW", "MW", "MW", "kW", "kW"], {"mW", "MW", "kW"}, "('MW' and 'mW')."),
    ],
)
def test_single_letters(words: list[str], joined: set[str], note: str) -> None:
    cleaned = clean(table(letter=words * 8), "y")
    assert {*cleaned.X["letter"].str.upper()} == {word.upper() for word in joined}
    assert cleaned.X["letter"].nunique() == len(joined)
    expected = note if note.endswith(".") else "the most frequent one is read"
    assert expected in notes_of(cleaned)
    as_written = clean(table(letter=words * 8), "y", as_written=["letter"])
    assert {*as_written.X["letter"]} == {*words} and not as_written.notes


def test_large_labels_are_never_floats() -> None:
    labels = [2**60 + 1 + i % 3 for i in range(N)]
    words = [str(label) for label in labels]
    cleaned = clean(table(y=labels), "y")
    assert cleaned.kind == "classes" and list(cleaned.y) == words
    assert "several are equal in floating point)" in notes_of(cleaned)
    cleaned = clean(table(site=labels), "y")
    assert list(cleaned.X["site"]) == words
    # Two labels that differ as floats too, and have their digits.
    pair = [2**60 + 1, 2**61 + 1] * (N // 2)
    assert {*clean(table(y=pair), "y").y} == {*map(str, pair[:2])}


def test_one_word_among_numbers() -> None:
    rain = [*["0.2", "1.5", "0", "3", "7.5"] * 7, *["T"] * 5]
    cleaned = clean(table(rain=rain), "y")
    assert cleaned.X["rain"].isna().sum() == 5
    assert "Column 'rain' has words that are read as missing ('T')." in cleaned.notes
    new = pd.DataFrame({"x": [0.0, 0.0], "rain": ["T", "2.5"]})
    encoder = make_preparation(cleaned.X, cleaned.formats).fit(cleaned.X)
    assert_array_equal(encoder.transform(new)[:, 1:], [[1.5, 1.0], [2.5, 0.0]])
    codes = clean(table(code=[*["1", "2", "3", "4", "5"] * 7, *["T"] * 5]), "y")
    assert "(numbers and the word 'T' in 5 cells" in notes_of(codes)
    assert codes.formats["code"].kind == "text"


def test_units_sentinels_and_spellings() -> None:
    frame = table(
        wind=[f"{i},5 m/s" for i in range(N)],
        sun=[-999, 9999, *range(36), -999, -999],
        ill=["Yes", "YES", "no", "yes "] * (N // 4),
    )
    cleaned = clean(frame, "y")
    assert_array_equal(cleaned.X["wind"], np.arange(N) + 0.5)
    assert_array_equal(cleaned.X["sun"], [np.nan, 9999, *range(36), np.nan, np.nan])
    assert list(cleaned.X["ill"][:4]) == ["YES", "YES", "no", "YES"]
    for note in (
        ("Column 'wind' has text that is read as numbers ('0,5 m/s' is 0.5)."),
        (
            "Column 'sun' has numbers that are far from all others, and are read as"
            " missing (-999 in 3 rows; --as-written sun reads them as numbers)."
        ),
        (
            "Column 'ill' has words in several spellings, of which the most frequent"
            " one is read ('Yes', 'yes' as 'YES'; --as-written ill keeps them apart)."
        ),
    ):
        assert note in notes_of(cleaned)
    literal = clean(frame, "y", as_written=["wind", "sun", "ill"])
    assert "wind" not in literal.X  # 40 texts that differ
    assert_array_equal(literal.X["sun"], frame["sun"])
    assert set(literal.X["ill"]) == {"Yes", "YES", "no", "yes"}
    assert "taken as" not in notes_of(literal)
    values = [*range(37), *[-999] * 3]  # of targets
    cleaned = clean(table(y=values), "y")
    assert_array_equal(cleaned.y, range(37))
    assert "Dropped 3 of 40 rows without 'y'." in notes_of(cleaned)
    assert list(clean(table(y=values), "y", as_written=["y"]).y) == values


def test_rows_without_target_or_input_and_notes_of_the_reader() -> None:
    frame = table()
    kept = [0, 1, 2, 4, *range(7, N)]
    frame.attrs["notes"] = ["Left out a line."]
    frame.loc[3, "y"] = np.nan
    frame.loc[[5, 6], "x"] = np.nan
    for options, words in (
        ({}, "every input is"),
        ({"drop_missing": True}, "an input is"),
    ):
        cleaned = clean(frame, "y", **options)
        assert list(cleaned.y.index) == list(cleaned.X.index) == kept
        assert cleaned.notes[0] == "Left out a line."
        assert "Dropped 1 of 40 rows without 'y'." in notes_of(cleaned)
        assert f"Dropped 2 of 39 rows in which {words} missing." in notes_of(cleaned)
    assert len(clean(frame.assign(z=np.arange(N) % 7), "y").y) == N - 1


STARS = ["3 stars", "4 stars", "5 stars", "3 stars"]


@pytest.mark.parametrize(
    "values, task, kind, labels, note",
    [
        (["a", "b"], None, "classes", {"a", "b"}, ""),
        ([True, False], None, "classes", {"True", "False"}, ""),
        (
            [0, 1],
            None,
            "classes",
            {"0", "1"},
            "two values, which are treated as classes",
        ),
        ([0, 1], "regression", "numbers", {0.0, 1.0}, ""),
        (
            [0, 1, 2, 3],
            None,
            "numbers",
            {0.0, 1.0, 2.0, 3.0},
            "pass task='classification' (--task classification)",
        ),
        ([0, 1, 2, 3], "classification", "classes", {"0", "1", "2", "3"}, ""),
        ([0.5, 1.5, 2.5, 3.5], None, "numbers", {0.5, 1.5, 2.5, 3.5}, ""),
        (
            ["1,5", "2,5", "3,5", "4,5"],
            None,
            "numbers",
            {1.5, 2.5, 3.5, 4.5},
            "'y' has text that is read as numbers",
        ),
        (["Yes", "YES", "no", "No"], None, "classes", {"YES", "No"}, "spellings"),
        (STARS, None, "classes", {*STARS}, ""),  # as before units were read
        (STARS, "regression", "numbers", {3.0, 4.0, 5.0}, " stars' is "),
        (
            [f"{i} kg" for i in range(N)],
            None,
            "numbers",
            {*map(float, range(N))},
            " kg' is ",
        ),
        (
            ["01", "02", "10", "03"],
            "classification",
            "classes",
            {"01", "02", "03", "10"},
            "--as-written y keeps them as words",
        ),
        (
            [2.5, 2.75, 3.0, 4.0],
            "classification",
            "classes",
            {"2.5", "2.75", "3", "4"},
            "",
        ),
        (
            ["2,5", "2,75", "3", "10"],
            "classification",
            "classes",
            {"2.5", "2.75", "3", "10"},
            "('2,5' is 2.5)",
        ),
    ],
)
def test_kinds_of_targets(
    values: Any, task: str | None, kind: str, labels: Any, note: str
) -> None:
    cleaned = clean(table(y=values * (N // len(values))), "y", task=task)
    assert cleaned.kind == kind and set(cleaned.y) == labels
    assert cleaned.y.dtype == (np.float64 if kind == "numbers" else object)
    about = [text for text in cleaned.notes if "'y'" in text]
    assert bool(about) == bool(note) and note in notes_of(cleaned)


def test_the_target_by_place_and_columns_to_drop() -> None:
    frame = table(z=np.arange(N) / 7.0)
    assert clean(frame, -1).y.name == "z" and clean(frame, 0).y.name == "x"
    assert list(clean(frame, "y", drop=["x"]).X) == ["z"]
    assert clean(frame, "-1").y.name == "z" and clean(frame, "0").y.name == "x"
    numbered = frame.set_axis([0, 1, 2], axis=1)
    assert list(clean(numbered, 1).X) == ["0", "2"]


def test_many_texts_are_limited() -> None:
    # Labels of rows repeat.
    frame = pd.concat([table(city=[f"C{i}" for i in range(N)])] * 3)
    cleaned = clean(frame, "y")
    assert list(cleaned.X) == ["x", "city"] and len(cleaned.X) == 3 * N
    note = "Column 'city' has many different texts: the 20 most frequent become"
    assert note in notes_of(cleaned) and notes_of(cleaned).endswith("(40 texts).")


MIXED = [f"{10 + i}%" if i % 2 else f"{(10 + i) / 100:.2f}" for i in range(N)]
MONEY = [f"{'€$£'[i % 3]}{100 + i}" for i in range(N)]
LIMITS = ["<5.8" if i == 3 else f"{i}.5" for i in range(N)]
TWICE = table().set_axis(["x", "x"], axis=1)
PRICES = pd.DataFrame(
    {"price": [f"{'€$'[i % 2]}{i}" for i in range(N)], "y": np.arange(N) % 7.5}
)


@pytest.mark.parametrize(
    "frame, options, message",
    [
        ({}, {"target": "z"}, r"target: got 'z', expected one of the columns 'x', 'y'"),
        ({}, {"target": 2}, r"target: got 2"),
        (
            {},
            {"target": "2"},
            r"target: got '2', expected .* Give its name, or its position",
        ),
        ({}, {"drop": ["z"]}, r"drop: got 'z', expected input columns among 'x'"),
        ({}, {"drop": ["y"]}, r"drop: got 'y', expected input columns"),
        (
            {},
            {"drop": ["x"]},
            r"got no input column besides the target 'y', expected at least one",
        ),
        ({}, {"task": "ranking"}, r"task: got 'ranking', expected 'regression' or"),
        (
            {},
            {"as_written": ["z"]},
            r"as_written: got 'z', expected columns among 'x', 'y'",
        ),
        ([[1, 2]], {}, r"frame: got list, expected a table: .* Make a table"),
        (TWICE, {}, r"more than one column named 'x', expected different"),
        (
            PRICES,
            {},
            (
                "no input column.*Dropped column 'price': 40 of its 40 texts.*several"
                " units"
            ),
        ),
        ({"x": np.inf}, {}, r"column 'x': got inf in row 0"),
        ({"x": HUGE}, {}, r"column 'x': got a larger number"),
        (
            {"y": pd.Series([10**400] * N, dtype=object)},
            {},
            r"'y': got a larger number, .* below 1e\+100",
        ),
        ({"y": [*range(N - 1), np.inf]}, {}, r"column 'y': got inf in row 39"),
        ({"y": 3.0}, {}, r"target 'y': got 3.0 in every row"),
        ({"y": "a"}, {}, r"target 'y': got a in every row"),
        (
            {"y": [*"a" * 39, "b"]},
            {},
            r"'y': got 1 row of the class 'b', expected at least 2",
        ),
        (
            {"y": [f"a{i}" for i in range(N)]},
            {},
            r"got 40 classes in 40 rows, expected far fewer",
        ),
        (
            {"y": pd.date_range("2020", periods=N)},
            {},
            r"target 'y': got dates, expected numbers",
        ),
        (
            {"y": [[1], [2]] * 20},
            {"task": "classification"},
            r"target 'y': got neither numbers nor text, expected numbers or classes",
        ),
        (
            {"y": [*"ab"] * 20},
            {"task": "regression"},
            r"got text such as 'a', expected numbers",
        ),
        (
            {"y": [f"{i}/7" for i in range(N)]},
            {},
            r"numbers in a cell, such as '0/7', .* two c",
        ),
        (
            {"y": [*map(str, range(N - 1)), "bad"]},
            {},
            r"target 'y': got 'bad' among its numbers",
        ),
        (
            {"y": [*range(5), *[None] * 35]},
            {},
            r"got 5 rows with a target 'y', expected at least",
        ),
        (
            {"y": ["?"] * N},
            {"task": "regression"},
            r"got 0 rows with a target 'y', expected at least",
        ),
        ({"y": MIXED}, {}, "target 'y': got .*numbers of several units"),
        ({"y": MONEY}, {}, r"target 'y': got .*several units, such as '€100', '\$101'"),
        (
            {"y": LIMITS},
            {},
            r"'<5.8' among its numbers, in 1 of 40 rows.*--likelihood tobit",
        ),
    ],
)
def test_what_cannot_be_learnt_from(
    frame: Any, options: dict[str, Any], message: str
) -> None:
    frame = table(**frame) if isinstance(frame, dict) else frame
    with pytest.raises(ValueError, match=message):
        clean(frame, **{"target": "x" if frame is TWICE else "y", **options})


def test_thousands_in_a_file_with_decimal_commas(tmp_path: Path) -> None:
    pay = [950, 1200, 12500, 800, 3400] * 8
    rows = (
        f"{v:,}".replace(",", ".") + f";{i % 9},5;{i},25" for i, v in enumerate(pay)
    )
    frame = read(tmp_path / "t.csv", ["Gehalt;Note;y", *rows])
    cleaned = clean(frame, "y")
    assert_array_equal(cleaned.X["Gehalt"], pay)
    assert "Numbers have decimal commas." in cleaned.notes
    assert "read as numbers ('1.200' is 1200)" in notes_of(cleaned)
    assert_array_equal(clean(frame, "Gehalt").y, pay)
    # Two new rows, which say nothing of their mark, and others that have points.
    new = (["Gehalt;Note", "1.200;2"], 1200.0), (["Note,Gehalt", "2.5,1200.5"], 1200.5)
    for lines, value in new:
        new = read(tmp_path / "new.csv", lines)
        assert read_cells(new["Gehalt"], cleaned.formats["Gehalt"])[0] == value


def test_tables_that_can_be_read_in_two_ways(tmp_path: Path) -> None:
    rows = [f"{(700 + 37 * i):,};{1 + i % 9}/{1 + i % 7}/2021;{i}" for i in range(N)]
    frame = read(tmp_path / "t.csv", ["area;day;y", *rows])
    with pytest.raises(
        ValueError, match=r"column 'area': got '1,0.*--decimal . or , \(in Python"
    ):
        clean(frame, "y")
    with pytest.raises(ValueError, match=r"column 'day': .* --dates dmy, mdy or ymd"):
        clean(frame, "y", decimal=".")
    cleaned = clean(frame, "y", thousands=",", dates="mdy")
    assert_array_equal(cleaned.X["area"], 700.0 + 37.0 * np.arange(N))
    assert cleaned.X["day"][1] == pd.Timestamp("2021-02-02")
    assert cleaned.X["day"][7] == pd.Timestamp("2021-08-01")


@pytest.mark.parametrize(
    "words",
    [
        ["None", "Mild", "Severe", "None"],
        ["+", "-"],
        ["NA", "EU"],
        [".", "x"],
        ["+/-", "+"],
    ],
)
def test_words_that_are_classes(tmp_path: Path, words: list[str]) -> None:
    y = [words[i % len(words)] for i in range(N)]
    for number in (N, N - 1):
        lines = ["a,y", *(f"{i % 7}.5,{w}" for i, w in enumerate(y))]
        cleaned = clean(read(tmp_path / "t.csv", lines), "y")
        assert (
            list(cleaned.y) == [word for word in y if word != "?"]
            and len(cleaned.y) == number
        )
        y[3] = "?"
    assert "has marks that are read as missing ('?' in " in notes_of(cleaned)
    for mark in {*words[:2]} & {"None", "-", "NA", "."}:
        assert (
            f"has marks that are kept as text (--missing {mark} reads them as missing)"
            in notes_of(cleaned)
        )


@pytest.mark.near_copies("*-numbers0", "NA-*")
@pytest.mark.parametrize(
    "numbers", [("1", "2"), ("0.5", "1.5"), ("10%", "20%"), ("01", "02")]
)
@pytest.mark.parametrize("mark", ["-", "NA", "None", ".", "?"])
def test_marks_among_numbers_that_are_classes(
    tmp_path: Path, numbers: tuple[str, str], mark: str
) -> None:
    y = [(*numbers, mark)[i % 3] for i in range(N)]
    file = read(
        tmp_path / "t.csv", ["a,y", *(f"{i % 7}.5,{w}" for i, w in enumerate(y))]
    )
    for frame in (file, table(y=y)):
        cleaned = clean(frame, "y")
        assert len(cleaned.y) == N - y.count(mark) and cleaned.y.nunique() == 2
        note = (
            f"Column 'y' has marks that are read as missing ('{mark}' in 13 cells;"
            " --as-written y keeps them as text)."
        )
        assert (
            note in cleaned.notes and list(clean(frame, "y", as_written=("y",)).y) == y
        )
        assert len(
            clean(frame, "y", as_written=("y",), missing=(mark,)).y
        ) == N - y.count(mark)


def test_marks_among_numbers_that_are_no_classes(tmp_path: Path) -> None:
    rows = [
        f"{i % 7}.5,{'NA' if i % 9 == 4 else -999 if i % 9 == 5 else i}"
        for i in range(N)
    ]
    frame = read(tmp_path / "t.csv", ["a,y", *rows])
    assert frame["y"].dtype == float and frame["y"].isna().sum() == 4
    other = frame.rename(columns={"y": "x"}).assign(y=np.arange(N) ** 2)
    cleaned = clean(other, "y", as_written=("x",))
    assert cleaned.formats["x"].kind == "number" and cleaned.X["x"].min() == -999.0


def test_missing_marks_that_a_user_names() -> None:
    frame = table(
        y=[-200 if i % 4 == 0 else i for i in range(N)], b=["k.A.", "u", "v", "u"] * 10
    )
    assert any(
        "'y' is -200 in 10 of 40 rows" in text for text in clean(frame, "y").warnings
    )
    cleaned = clean(frame, "y", missing=["-200", "k.A."])
    assert (
        cleaned.y.min() == 1.0
        and set(cleaned.X["b"]) == {"u", "v"}
        and cleaned.warnings == []
    )
    note = "Column 'y' has numbers that --missing reads as missing (-200 in 10 rows)."
    assert note in cleaned.notes


@pytest.mark.parametrize("number", [12, N])
def test_dates_in_two_orders_are_words_with_a_note(number: int) -> None:
    days = pd.date_range("2021-01-13", periods=number, freq="8D")
    words = [f"{d:%m/%d/%Y}" if i % 2 else f"{d:%d/%m/%Y}" for i, d in enumerate(days)]
    cleaned = clean(table(day=np.resize(words, N)), "y")
    assert "dates that are not all in the order dmy or mdy" in notes_of(cleaned)
    assert ("day" in cleaned.X.columns) == (number == 12)


def test_new_tables_are_read_as_the_table_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_training: None
) -> None:
    """Numbers, dates, units, marks and the encoding; also of two rows; and each cell
    once.
    """
    rng = np.random.default_rng(0)
    size = rng.integers(700, 4000, 40)
    town = rng.choice(["Łódź", "Köln"], 40)
    born = pd.Timestamp("1940-01-01") + pd.to_timedelta(rng.integers(0, 20000, 40), "D")
    columns = {
        "size": [f"{value:,}" for value in size],
        "rate": [f"{i % 7}.5 %" if i % 9 else "k.A." for i in range(40)],
        "born": born.strftime("%m/%d/%y"),
        "town": np.where(np.arange(40) % 8, town, "-"),
        "pair": [f"{100 + i}/{60 + i % 7}" for i in range(40)],
    }
    table = pd.DataFrame(columns).assign(y=size / 100.0 + 3.0 * (town == "Köln"))
    table.to_csv(tmp_path / "t.csv", sep=";", index=False, encoding="cp1250")
    frame = read_table(tmp_path / "t.csv", encoding="cp1250")
    X, y, _, _, formats, *_ = clean(frame, "y", missing=["k.A.", "-"])
    assert {form.pattern[:3] for form in formats.values()} == {"", "mdy"}
    estimator = PEPRegressor(num_inducing=5, alpha=0.5, random_state=0)
    model = make_pipeline(make_preparation(X, formats), estimator).fit(X, y)
    assert model[0].conventions.encoding == "cp1250"
    of_numpy = scorer(model, tmp_path)
    _ = saved(model, tmp_path)
    new = "size;rate;born;town;pair\n1,555;k.A.;01/02/45;Łódź;115/65\n"
    new += "1,999;2.5 %;03/04/70;-;120/62\n"
    (tmp_path / "new.csv").write_text(new, encoding="cp1250")
    known = {
        "size": [1555.0, 1999.0],
        "rate": [np.nan, 2.5],
        "town": ["Łódź", None],
        "born": pd.to_datetime(["1945-01-02", "1970-03-04"]),
        "pair (1 of 2)": [115.0, 120.0],
        "pair (2 of 2)": [65.0, 62.0],
    }
    expected = model.predict(pd.DataFrame(known)[list(X)])
    for folder in ("model", "scorer"):
        out = tmp_path / f"{folder}.csv"
        result = run("predict", tmp_path / folder, tmp_path / "new.csv", "--out", out)
        assert result.exit_code == 0, result.output
        written = pd.read_csv(out)
        assert_allclose(written["mean"], expected, rtol=1e-9)
        assert "new" not in "".join(written["unusual"].fillna(""))
    read: list[str] = []

    def counted(column: "pd.Series[float]", form: Format) -> "pd.Series[float]":
        read.append(str(column.name))
        return read_cells(column, form)

    monkeypatch.setattr(encodings, "read_cells", counted)
    for fitted in (model, of_numpy):
        predict_table(fitted, frame[list(columns)])
        assert sorted(read) == sorted(X)
        read.clear()


def test_new_workbooks_are_read_by_the_sheet(tmp_path: Path, no_training: None) -> None:
    pytest.importorskip("openpyxl")
    old = table()
    new = table()
    new["x"] = np.linspace(-1.0, 1.0, N)

    def write(name: str, **sheets: pd.DataFrame) -> Path:
        with pd.ExcelWriter(tmp_path / name) as writer:
            for sheet, frame in sheets.items():
                frame.to_excel(writer, sheet_name=sheet, index=False)
        return tmp_path / name

    frame = read_table(write("t.xlsx", Old=old, New=new), sheet="New")
    X, y, _, _, formats, *_ = clean(frame, "y")
    estimator = PEPRegressor(num_inducing=5, alpha=0.5, random_state=0)
    model = make_pipeline(make_preparation(X, formats), estimator).fit(X, y)
    assert model[0].conventions.sheet == "New"
    scorer(model, tmp_path), saved(model, tmp_path)
    other = write("u.xlsx", Old=old)
    out = tmp_path / "out.csv"
    for folder in ("model", "scorer"):
        called = [tmp_path / folder, tmp_path / "t.xlsx", "--out", out]
        result = run("predict", *called)
        assert result.exit_code == 0, result.output
        assert_allclose(pd.read_csv(out)["mean"], model.predict(X), rtol=1e-6)
        result = run("predict", *called, "--sheet", "Old")
        assert result.exit_code == 0, result.output
        expected = model.predict(old[["x"]])
        assert_allclose(pd.read_csv(out)["mean"], expected, rtol=1e-6)
    result = run("predict", tmp_path / "scorer", other, "--out", out)
    assert result.exit_code == 2
    assert "sheet: got 'New', expected a sheet among 'Old'" in result.output


def test_formats_are_found_out() -> None:
    X = pd.DataFrame(
        {"a": ["1,5", "2"], "b": ["u", "v"], "c": pd.to_datetime(["2020", "2021"])}
    )
    kinds = {name: form.kind for name, form in make_preparation(X).formats.items()}
    assert kinds == {"a": "number", "b": "text", "c": "date"}
    with pytest.raises(
        ValueError, match=r"column 'd': got neither numbers, dates nor text"
    ):
        make_preparation(X.assign(d=[[1], [2]]))


def test_later_tables_are_read_by_their_own_marks(tmp_path: Path) -> None:
    """Of numbers with units and thousands too, which are read by the formats of the
    model.
    """

    def rows(*cells: str) -> Path:
        lines = [
            "mass;pay;y",
            *(f"{cell} kg;{cell};{i % 5}" for i, cell in enumerate(cells)),
        ]
        (tmp_path / "t.csv").write_text("\n".join(lines))
        return tmp_path / "t.csv"

    data = clean(read_table(rows(*(f"{1000.5 + 37 * i:,.2f}" for i in range(12)))), "y")
    encoder = make_preparation(data.X, data.formats).fit(data.X)

    def read(cell: str, **options: str) -> list[float]:
        table = read_table(rows(cell, cell), **options)[["mass", "pay"]]  # type: ignore[arg-type]
        assert (
            encoder.unusual(table)[0].count("is below all")
            == 2 * (table["pay"] == 1.5).all()
        )
        return [float(number) for number in encoder.transform(table)[0]]

    assert read("1,200") == [1200.0, 1200.0]  # as in the first table
    assert read("1,500", decimal=",") == read("1,500", thousands=".") == [1.5, 1.5]
    assert read("1.200,25") == [1200.25, 1200.25]  # which can be read in one way alone
    assert read("1'200", thousands="'") == [1200.0, 1200.0]
    with pytest.raises(ValueError, match=r"'1,200 kg' .* with '\.' as decimal point"):
        read("1,200", thousands="'")
