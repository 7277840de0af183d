"""Warnings of what makes scores look better or worse than they are."""

import warnings
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
ROWS = np.arange(N)


def warnings_of(y: Any, **columns: Any) -> list[str]:
    return clean(pd.DataFrame({"x": X, **columns, "y": y}), "y").warnings


def named(a: Any, b: Any, c: Any) -> Any:
    return pd.Series(CLASSES).map({"a": a, "b": b, "c": c})


@pytest.mark.parametrize(
    "y, column, words",
    [
        (
            Y,
            0.19 * Y + 3.0,
            (
                "puts the rows in the same order as the target 'y' (rank correlation"
                " 1.0000)"
            ),
        ),
        (Y, np.round(0.19 * Y, 2), "puts the rows in the same order"),
        (
            Y,
            -np.exp(Y / 10.0),
            (
                "puts the rows in the opposite order as the target 'y' (rank"
                " correlation -1.0000)"
            ),
        ),
        (Y, np.where(ROWS % 9, Y, np.nan), "puts the rows in the same order"),
        (
            Y,
            pd.Timestamp("2020-01-01") + pd.to_timedelta(Y, "D"),
            "puts the rows in the same or",
        ),
        (CLASSES, named("u", "v", "w"), "has another value for each"),
        (CLASSES, named(7, 5, 9), "has another value for each value of"),
        (
            CLASSES,
            np.where(CLASSES == "b", X, np.nan),
            "has values in all rows of the class 'b'",
        ),
        (
            CLASSES,
            np.where(CLASSES == "a", np.nan, X),
            "is empty in all rows of the class 'a' of",
        ),
        # Those that are only informative:
        (Y, Y + 0.5 * rng.normal(size=N), ""),
        (Y, np.round(Y, -1), ""),
        (Y, np.where(ROWS < 20, Y, np.nan), ""),
        (Y, np.where(Y > 50.0, "high", "low"), ""),
        (Y, rng.normal(size=N), ""),
        (CLASSES, named("u", "v", "v"), ""),
        (CLASSES, np.where(ROWS == 0, "b", CLASSES), ""),
        # Separates a class, as some inputs do.
        (
            CLASSES,
            X + 100.0 * (CLASSES == "a"),
            "",
        ),
    ],
)
def test_targets_in_disguise(y: Any, column: Any, words: str) -> None:
    warnings = warnings_of(y, other=column)
    assert len(warnings) == bool(words)
    for warning in warnings:
        assert (
            warning.startswith(f"Column 'other' {words}")
            and "(--drop other)" in warning
        )


@pytest.mark.parametrize("wild", [{7: 5e4}, {7: -900.0}, {3: 5e4, 7: 6e4, 9: 0.0}])
def test_wild_targets(wild: dict[int, float]) -> None:
    y = Y.copy()
    y[list(wild)] = list(wild.values())
    frame = pd.DataFrame({"x": X, "y": y})
    frame.loc[1, "y"] = np.nan  # so that rows are numbered as in the file
    (warning,) = clean(frame, "y").warnings
    median = np.nanmedian(frame["y"])
    deviation = 1.4826 * np.nanmedian(np.abs(frame["y"] - median))
    far = {
        row: value
        for row, value in wild.items()
        if abs(value - median) > 20.0 * deviation
    }
    for row, value in far.items():
        assert f"{value:g} in row {row}" in warning
    fewest = min(abs(value - median) for value in far.values()) / deviation
    assert (
        f" {fewest:.0f} robust standard deviations from its median {median:g}."
        in warning
    )
    assert ("at least" in warning) == (len(far) > 1)


NORMAL = rng.normal(size=N)
LATITUDE = 52.0 + rng.uniform(0.0, 0.5, N)
DOSE = np.where(ROWS % 3 == 0, rng.uniform(1.0, 2.0, N), 0.0)
TRUTH = np.resize([0.0, 1.0, 1.0], N)
SKEWED = np.resize([0.0] * 6 + [1.0] * 3 + [2.0], N)


@pytest.mark.parametrize(
    "column, words",
    [
        (np.where(ROWS == 7, 1e9, NORMAL), "is 1e+09 in row 7"),
        (np.where(ROWS == 5, -LATITUDE, LATITUDE), f"is {-LATITUDE[5]:g} in row 5"),
        (np.where(ROWS == 9, 1e9, DOSE), "is 1e+09 in row 9"),
        (np.where(ROWS == 7, 1e9, TRUTH), "is 1e+09 in row 7"),  # among two numbers
        (np.where(ROWS % 5 == 0, 0, rng.poisson(3.0, N)), ""),
        (DOSE, ""),
        (TRUTH, ""),
        (np.where(ROWS == 7, 12.0, SKEWED), ""),  # as counts are
    ],
)
def test_wild_inputs(column: Any, words: str) -> None:
    warnings = warnings_of(Y, size=column)
    assert len(warnings) == bool(words)
    assert all(
        f"Column 'size' {words}" in w and "--likelihood" not in w for w in warnings
    )


@pytest.mark.parametrize(
    "mark, others", [(-200.0, X), (-1.0, np.abs(X)), (0.0, X + 100.0), (1e4, X)]
)
def test_marks_of_missing_values(mark: float, others: Any) -> None:
    (warning,) = warnings_of(Y, size=np.where(ROWS % 5 == 0, mark, others))
    assert f"'size' is {mark:g} in 40 of 200 rows" in warning
    assert f"--missing={mark:g} (in Python" in warning


@pytest.mark.parametrize(
    "y",
    [
        Y,
        np.exp(1.5 * rng.normal(size=N)),
        np.exp(2.5 * rng.normal(size=N)),
        np.where(rng.uniform(size=N) < 0.7, 0.0, rng.lognormal(size=N)),
        rng.poisson(0.7, N),
        rng.negative_binomial(1, 0.05, N),
        np.where(ROWS % 20, Y, 1e4 + Y),  # too many: so the target is distributed
    ],
)
def test_targets_that_are_only_skewed(y: Any) -> None:
    assert warnings_of(y) == []


STEPS = np.round(Y + ROWS / 50.0, 1)  # of a sensor with two digits


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
    words = (
        f" is {cells[rows.start]:g} in {length - 1} rows one after another,"
        f" {rows.start} to"
    )
    words += f" {rows.stop - 1} (rows count from 0)"
    for name, target, columns in (("flow", Y + X, {"flow": cells}), ("y", cells, {})):
        (found,) = (
            text for text in warnings_of(target, **columns) if "one after" in text
        )
        assert found.startswith(f"Column '{name}'{words}")


RAIN = np.where(np.cumsum(rng.uniform(size=N) < 0.2) % 2, 0.0, rng.gamma(2.0, 2.0, N))


@pytest.mark.parametrize(
    "values",
    [
        Y,
        STEPS,
        RAIN,
        np.sort(np.round(Y)),
        -np.sort(np.round(Y)),
        np.repeat(Y[:10], 20),
        np.repeat(np.round(Y[:100]), 2),
        np.where(ROWS < 9, 1.0, Y),
        ROWS // 50,
    ],
)
def test_sensors_that_are_not_stuck(values: Any) -> None:
    assert not [text for text in warnings_of(X, flow=values) if "one after" in text]


@pytest.mark.parametrize(
    "y, words",
    [
        (
            np.where(ROWS < 8, "fraud", "regular"),
            "'fraud' (8 of 200 rows, 4.0%). Never predicting",
        ),
        (
            np.select([ROWS < 4, ROWS < 10], ["u", "v"], "w"),
            "'v' (6 of 200 rows, 3.0%), 'u' (4 of 200 rows, 2.0%). Never",
        ),
        (np.where(ROWS < 10, "fraud", "regular"), ""),
    ],
)
def test_rare_classes(y: Any, words: str) -> None:
    warnings = warnings_of(y)
    assert len(warnings) == bool(words)
    assert all(
        warning.startswith(f"Rare classes of 'y': {words}") for warning in warnings
    )


UNITS = rng.poisson(20, N) + 1.0
PRICE = rng.uniform(1.0, 9.0, N)
COST = rng.uniform(20, 80, N)


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
    table = pd.DataFrame(
        {"x": X, "units": UNITS, "price": PRICE, "cost": COST, "gaps": X}
    )
    table.loc[: N // 2, "gaps"] = np.nan
    assert formula(table, pd.Series(y, name="y")) == names


def test_a_target_that_one_column_gives_shows_no_warning_of_scikit_learn() -> None:
    table = pd.DataFrame({"a": UNITS, "b": PRICE})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert formula(table, pd.Series(3.0 * UNITS, name="y")) == ["a"]
