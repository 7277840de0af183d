"""Warnings of what makes scores look better or worse than they are."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from gpflow_pep.compare import clean
from gpflow_pep.tables.suspicions import formula

N = 200
rng = np.random.default_rng(0)
Y = rng.normal(50.0, 4.0, N)
X = 0.3 * Y + rng.normal(size=N)
CLASSES = np.resize(["a", "a", "b", "c"], N)


def warnings_of(y: Any, **columns: Any) -> list[str]:
    return clean(pd.DataFrame({"x": X, **columns, "y": y}), "y").warnings


@pytest.mark.parametrize(
    "column, words",
    [
        (0.19 * Y + 3.0, "the same order as the target 'y' (rank correlation 1.0000)"),
        (np.round(0.19 * Y, 2), "the same order"),
        (-np.exp(Y / 10.0), "the opposite order as the target 'y' (rank correlation -1.0000)"),
        (np.where(np.arange(N) % 9, Y, np.nan), "the same order"),
        (pd.Timestamp("2020-01-01") + pd.to_timedelta(Y, "D"), "the same order"),
    ],
)
def test_numbers_in_disguise(column: Any, words: str) -> None:
    (warning,) = warnings_of(Y, other=column)
    assert warning.startswith("Column 'other' puts the rows in " + words)
    assert "(--drop other)" in warning


@pytest.mark.parametrize(
    "column",
    [
        Y + 0.5 * rng.normal(size=N),
        np.round(Y, -1),
        np.where(np.arange(N) < 20, Y, np.nan),
        np.where(Y > 50.0, "high", "low"),
        rng.normal(size=N),
    ],
)
def test_numbers_that_are_only_informative(column: Any) -> None:
    assert warnings_of(Y, other=column) == []


@pytest.mark.parametrize(
    "column, words",
    [
        (pd.Series(CLASSES).map({"a": "u", "b": "v", "c": "w"}), "has another value for each"),
        (pd.Series(CLASSES).map({"a": 7, "b": 5, "c": 9}), "has another value for each value of"),
        (np.where(CLASSES == "b", X, np.nan), "has values in all rows of the class 'b'"),
        (np.where(CLASSES == "a", np.nan, X), "is empty in all rows of the class 'a' of 'y'"),
    ],
)
def test_classes_in_disguise(column: Any, words: str) -> None:
    (warning,) = warnings_of(CLASSES, other=column)
    assert f"Column 'other' {words}" in warning and "(--drop other)" in warning


@pytest.mark.parametrize(
    "column",
    [
        pd.Series(CLASSES).map({"a": "u", "b": "v", "c": "v"}),
        np.where(np.arange(N) == 0, "b", CLASSES),
        X + 100.0 * (CLASSES == "a"),  # separates a class, as some inputs do
    ],
)
def test_columns_that_only_help_with_classes(column: Any) -> None:
    assert warnings_of(CLASSES, other=column) == []


@pytest.mark.parametrize("wild", [{7: 5e4}, {7: -900.0}, {3: 5e4, 7: 6e4, 9: 0.0}])
def test_wild_targets(wild: dict[int, float]) -> None:
    y = Y.copy()
    y[list(wild)] = list(wild.values())
    frame = pd.DataFrame({"x": X, "y": y})
    frame.loc[1, "y"] = np.nan  # so that rows are numbered as in the file
    (warning,) = clean(frame, "y").warnings
    median = np.nanmedian(frame["y"])
    deviation = 1.4826 * np.nanmedian(np.abs(frame["y"] - median))
    far = {row: value for row, value in wild.items() if abs(value - median) > 20.0 * deviation}
    for row, value in far.items():
        assert f"{value:g} in row {row}" in warning
    fewest = min(abs(value - median) for value in far.values()) / deviation
    assert f" {fewest:.0f} robust standard deviations from its median {median:g}." in warning
    assert ("at least" in warning) == (len(far) > 1)


def test_wild_inputs_and_marks_of_missing_values() -> None:
    x, latitude = rng.normal(size=N), 52.0 + rng.uniform(0.0, 0.5, N)
    x[7], latitude[5] = 1e9, -latitude[5]
    wild, south = warnings_of(Y, size=x, latitude=latitude)
    assert "Column 'size' is 1e+09 in row 7" in wild and "--likelihood" not in wild
    assert f"'latitude' is {latitude[5]:g} in row 5" in south
    for mark, others in ((-200.0, X), (-1.0, np.abs(X)), (0.0, X + 100.0), (1e4, X)):
        (warning,) = warnings_of(Y, size=np.where(np.arange(N) % 5 == 0, mark, others))
        assert f"'size' is {mark:g} in 40 of 200 rows" in warning
        assert f"--missing={mark:g} (in Python" in warning
    counts = np.where(np.arange(N) % 5 == 0, 0, rng.poisson(3.0, N))
    assert warnings_of(Y, number=counts) == []
    dose = np.where(np.arange(N) % 3 == 0, rng.uniform(1.0, 2.0, N), 0.0)
    assert warnings_of(Y, dose=dose) == []
    dose[9] = 1e9
    (wild,) = warnings_of(Y, dose=dose)
    assert "Column 'dose' is 1e+09 in row 9" in wild


@pytest.mark.parametrize(
    "y",
    [
        Y,
        np.exp(1.5 * rng.normal(size=N)),
        np.exp(2.5 * rng.normal(size=N)),
        np.where(rng.uniform(size=N) < 0.7, 0.0, rng.lognormal(size=N)),
        rng.poisson(0.7, N),
        rng.negative_binomial(1, 0.05, N),
        np.where(np.arange(N) % 20, Y, 1e4 + Y),  # too many: so the target is distributed
    ],
)
def test_targets_that_are_only_skewed(y: Any) -> None:
    assert warnings_of(y) == []


STEPS = np.round(Y + np.arange(N) / 50.0, 1)  # of a sensor with two digits


@pytest.mark.parametrize(
    "values, rows, length",
    [
        (Y, slice(100, 131), 31),
        (Y, slice(0, 11), 11),
        (STEPS, slice(150, 200), 50),
        (np.round(Y), slice(60, 160), 100),
    ],
)
def test_stuck_sensors(values: Any, rows: slice, length: int) -> None:
    cells = values.copy()
    cells[rows] = cells[rows.start]
    cells[rows.start + 2] = np.nan
    words = f" is {cells[rows.start]:g} in {length - 1} rows one after another, {rows.start} to"
    words += f" {rows.stop - 1} (rows count from 0)"
    for target, columns in ((Y + X, {"flow": cells}), (cells, {})):
        found = [text for text in warnings_of(target, **columns) if "one after" in text]
        name = "flow" if columns else "y"
        assert len(found) == 1 and found[0].startswith(f"Column '{name}'{words}")


RAIN = np.where(np.cumsum(rng.uniform(size=N) < 0.2) % 2, 0.0, rng.gamma(2.0, 2.0, N))


@pytest.mark.parametrize(
    "values",
    [
        Y, STEPS, RAIN, np.sort(np.round(Y)), -np.sort(np.round(Y)), np.repeat(Y[:10], 20),
        np.repeat(np.round(Y[:100]), 2), np.where(np.arange(N) < 9, 1.0, Y), np.arange(N) // 50,
    ],
)  # fmt: skip
def test_sensors_that_are_not_stuck(values: Any) -> None:
    assert not [text for text in warnings_of(X, flow=values) if "one after" in text]


def test_rare_classes() -> None:
    (warning,) = warnings_of(np.where(np.arange(N) < 8, "fraud", "regular"))
    assert warning.startswith(
        "Rare classes of 'y': 'fraud' (8 of 200 rows, 4.0%). Never predicting"
    )
    (warning,) = warnings_of(np.select([np.arange(N) < 4, np.arange(N) < 10], ["u", "v"], "w"))
    words = "Rare classes of 'y': 'v' (6 of 200 rows, 3.0%), 'u' (4 of 200 rows, 2.0%). Never"
    assert warning.startswith(words)
    assert warnings_of(np.where(np.arange(N) < 10, "fraud", "regular")) == []


def test_a_wild_number_among_two() -> None:
    truth = np.resize([0.0, 1.0, 1.0], N)
    assert warnings_of(Y, truth=truth) == []
    truth[7] = 1e9
    (warning,) = warnings_of(Y, truth=truth)
    assert warning.startswith("Column 'truth' is 1e+09 in row 7")
    counts = np.resize([0.0] * 6 + [1.0] * 3 + [2.0], N)  # skewed, as counts are
    counts[7] = 12.0
    assert warnings_of(Y, counts=counts) == []


UNITS, PRICE, COST = rng.poisson(20, N) + 1.0, rng.uniform(1.0, 9.0, N), rng.uniform(20, 80, N)


@pytest.mark.parametrize(
    "y, names",
    [
        (np.round(UNITS * PRICE, 2), ["units", "price"]),
        (1.19 * UNITS * PRICE, ["units", "price"]),
        (COST / UNITS, ["units", "cost"]),
        (UNITS * PRICE / COST, ["units", "price", "cost"]),
        (COST - 3.0 * UNITS, ["units", "cost"]),
        (UNITS + PRICE + COST, ["units", "price", "cost"]),
        (UNITS * PRICE * np.exp(0.1 * rng.normal(size=N)), []),
        (np.sin(UNITS) + PRICE, []),
        (Y, []),
    ],
)
def test_targets_that_are_formulas_of_columns(y: Any, names: list[str]) -> None:
    """Products and ratios of powers, and weighted sums, whatever else the table has."""
    columns = {"x": X, "units": UNITS, "price": PRICE, "cost": COST, "gaps": X}
    table = pd.DataFrame(columns)
    table.loc[: N // 2, "gaps"] = np.nan
    assert formula(table, pd.Series(y, name="y")) == names
