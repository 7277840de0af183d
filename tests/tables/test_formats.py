"""How cells are read."""

import datetime
import decimal
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal

from gpflow_pep.tables import Format, read_cells, recognise
from gpflow_pep.tables.conventions import given_conventions
from gpflow_pep.tables.readings import conventions_of


def days(*dates: str) -> list[Any]:
    return [pd.Timestamp(date) for date in dates]


READ: list[tuple[list[Any], str, list[Any]]] = [
    ([1, 2, 3], "number", [1, 2, 3]),
    ([True, False, None], "number", [1, 0, np.nan]),
    (["1,234.5", "7"], "number", [1234.5, 7]),
    (["1.234,5", "7"], "number", [1234.5, 7]),
    (["1,5", "2,25"], "number", [1.5, 2.25]),
    (["1,234", "12,345,678"], "number", [1234, 12345678]),
    (["1,234", "0,12"], "number", [1.234, 0.12]),
    (["1 234,5", "7"], "number", [1234.5, 7]),
    (["1'234.5", "7"], "number", [1234.5, 7]),
    (["12 %", "-3.5%"], "number", [12, -3.5]),
    (["$1,200.00", "-$3"], "number", [1200, -3]),
    (["3,50 €", "\u22124,00 €"], "number", [3.5, -4]),
    (["1e-3", ".5", "2."], "number", [1e-3, 0.5, 2]),
    ([*map(str, range(10)), "n.d."], "number", [*range(10), np.nan]),
    ([*map(str, range(30)), *["n.d."] * 9], "number", [*range(30), *[np.nan] * 9]),
    ([decimal.Decimal("1.5"), None], "number", [1.5, np.nan]),
    (
        ["2020-01-31", "2021-12-01 06:30"],
        "date",
        days("2020-01-31", "2021-12-01 06:30"),
    ),
    (["2020-01-31T00:00:00Z", None], "date", days("2020-01-31", "")),
    (["2020-01-31T01:00:00+01:00"], "date", days("2020-01-31")),
    (["31.01.2020", "01.02.2020"], "date", days("2020-01-31", "2020-02-01")),
    (["31/01/2020", "01/02/2020"], "date", days("2020-01-31", "2020-02-01")),
    (["01/31/2020", "02/01/2020"], "date", days("2020-01-31", "2020-02-01")),
    (
        ["3 Feb 2020 12:00", "14 Mar 2021 13:30"],
        "date",
        days("2020-02-03 12:00", "2021-03-14 13:30"),
    ),
    (
        ["01/31/2020 1:30 PM", "02/01/2020 12:05 AM"],
        "date",
        days("2020-01-31 13:30", "2020-02-01 00:05"),
    ),
    (
        ["2020-01-31 1:30:09pm", "2020-02-01 11:00:00 a.m."],
        "date",
        days("2020-01-31 13:30:09", "2020-02-01 11:00"),
    ),
    (
        ["31.01.2020 3 PM", "01.02.2020 4 AM"],
        "date",
        days("2020-01-31 15:00", "2020-02-01 04:00"),
    ),
    ([datetime.date(2020, 1, 31), None], "date", days("2020-01-31", "")),
    (["71,3 m/s", "5 m/s", "-1,25 m/s", None], "number", [71.3, 5, -1.25, np.nan]),
    (["12kg", "13 kg", "14\u00a0kg"], "number", [12, 13, 14]),
    (["1.234,5 l/100km", "2 l/100km", "3,5 l/100km"], "number", [1234.5, 2, 3.5]),
    (["12 °C", "-3 °C", "5.5 °C"], "number", [12, -3, 5.5]),
    (["5 sq ft", "6 sq ft", "1e3 sq ft"], "number", [5, 6, 1000]),
    ([*(f"{i} kg" for i in range(20)), "n.d."], "number", [*range(20), np.nan]),
    ([*range(5), *[-999] * 3], "number", [*range(5), *[np.nan] * 3]),
    ([*map(str, range(9)), *["9999"] * 3], "number", [*range(9), *[np.nan] * 3]),
    (
        [*range(5), -99, -99, -99, -999, -999, -999, *range(5)],
        "number",
        [*range(5), *[np.nan] * 6, *range(5)],
    ),
    ([*range(5), -999, -999], "number", [*range(5), -999, -999]),
    (
        [-400, -3, 7, 9, 20, -999, -999, -999],
        "number",
        [-400, -3, 7, 9, 20, -999, -999, -999],
    ),
    (
        [0, 500, 700, 900, 20, 999, 999, 999],
        "number",
        [0, 500, 700, 900, 20, 999, 999, 999],
    ),
    (
        [*[0] * 15, 10, 20, 30, 41, *[999] * 3],
        "number",
        [*[0] * 15, 10, 20, 30, 41, *[999] * 3],
    ),
    ([1, 2, *[-999] * 3], "number", [1, 2, *[-999] * 3]),
    (["Yes", "yes", "YES ", "Yes", "No"], "text", ["Yes", "Yes", "Yes", "Yes", "No"]),
    (["New York", "new  york", "new  york"], "text", ["new  york"] * 3),
    (["no", "No", "no"], "text", ["no"] * 3),
    (["0,123", "0,456"], "number", [0.123, 0.456]),
    (["950", "1.200", "12.500", "2,5"], "number", [950, 1200, 12500, 2.5]),
    (["(120)", "80", "120-"], "number", [-120, 80, -120]),
    (["-$3", "$-4", "($5)"], "number", [-3, -4, -5]),
    (["5.1 ± 0.1", "6.2 +/- 0.3", "7.25"], "number", [5.1, 6.2, 7.25]),
    (["13:30", "36:15", "100:00:36"], "number", [13.5, 36.25, 100.01]),
    (["12:30 AM", "3 p.m."], "number", [0.5, 15]),
    (["01000", "99000"], "number", [1000, 99000]),
    (["1E0", "2E1"], "number", [1, 20]),
    (["<0.5", *map(str, range(20))], "number", [0.5, *range(20)]),
    (
        [*(f"<{i}" for i in range(8)), "> 150", "<.5", *map(str, range(20))],
        "number",
        [*range(8), 150, 0.5, *range(20)],
    ),
    ([*["12 %", "13%"] * 3], "number", [12, 13] * 3),
    (["€1.5", "2.5 €"], "number", [1.5, 2.5]),
    (
        ["None", "Mild", "None", "NA", "-", "?"],
        "text",
        ["None", "Mild", "None", "NA", "-", np.nan],
    ),
    ([*map(str, range(9)), "NA", "-"], "number", [*range(9), np.nan, np.nan]),
    (
        ["01/02/2021", "01/03/2021", "31/01/2022"],
        "date",
        days("2021-02-01", "2021-03-01", "2022-01-31"),
    ),
    (
        ["2020-01-31", "31.01.2021", "5 Feb 2020", "3. Mar 2021 10:00"],
        "date",
        days("2020-01-31", "2021-01-31", "2020-02-05", "2021-03-03 10:00"),
    ),
    (
        ["01.02.10", "13.02.45", "01.01.70"],
        "date",
        days("2010-02-01", "1945-02-13", "1970-01-01"),
    ),
    (["99-12-31", "00-01-02"], "date", days("1999-12-31", "2000-01-02")),
    (
        [20210131, 20210201, 20221231],
        "date",
        days("2021-01-31", "2021-02-01", "2022-12-31"),
    ),
    ([20210131, 20210132, 20221231], "number", [20210131, 20210132, 20221231]),
    ([2**60 + 1, 2**60 + 2], "text", [f"{2**60 + 1}", f"{2**60 + 2}"]),
    ([f"{2**53}", f"{2**53 + 1}", "NA"], "text", [f"{2**53}", f"{2**53 + 1}", "NA"]),
    ([10**20, 10**20 + 7, None], "text", [f"{10**20}", f"{10**20 + 7}", np.nan]),
    ([2**60, 2**61 + 1], "number", [2.0**60, 2.0**61]),
    (
        [*["0.5", "1.5", "2.5", "3.25", "7"] * 2, "T"],
        "number",
        [*[0.5, 1.5, 2.5, 3.25, 7] * 2, np.nan],
    ),
    (
        [*["0,0 mm", "1,5 mm", "2,5 mm", "3,2 mm"] * 2, "T"],
        "number",
        [*[0, 1.5, 2.5, 3.2] * 2, np.nan],
    ),
    (["red ", "blue", None, ""], "text", ["red", "blue", np.nan, np.nan]),
]


#: Cells that are words, and stay as they are.
WORDS: list[list[Any]] = [
    ["12 kg", "13 g", "14 kg"],
    [*(f"{i} kg" for i in range(20)), "7"],
    ["2 WD", "4 WD", "2 WD"],
    ["1A", "2A", "3A"],
    ["1st", "2nd", "3rd"],
    ["(120)", "($80)", "-5"],
    ["16:9", "4:3"],
    ["AA", "Aa", "aa", "mW", "MW"],
    ["abC", "ABC", "abc"],
    ["<=50K", ">50K"],
    ["10%", "10‰"],
    ["0.10", "11%", "0.12", "13%"],
    ["€100", "$101", "£102"],
    ["1.5 EUR", "2.5 USD", "3 EUR"],
    ["A1", "B2", "12"],
    ["v1.2", "v1.3"],
    ["12.5.2", "12.5.3"],
    [*map(str, range(90)), *(f"V{i}" for i in range(10))],
    ["1,10,000", "12,34,567", "5"],
    [*(f"{i},000" for i in range(1, 30)), "1,10,000"],
    ["52°31'12\"N", "48°30' N", "33°45'S", "-0° 30'"],
    ["52°31", "48°31", "33°31", "12°31"],
    ["52.5°N", "48.25°N", "33.75°N"],
    [*(f"{i}.5" for i in range(30)), "52°31'"],
    ["1", "2", "3", "4", "5", "6", "T"],
    [*["0.5", "1.5", "2.5", "3.5"] * 4, *["T"] * 3],
]
READ += [(words, "text", words) for words in WORDS]


@pytest.mark.parametrize(
    "cells, kind, expected", READ, ids=lambda value: str(value)[:40]
)
def test_cells(cells: list[Any], kind: str, expected: list[Any]) -> None:
    # Labels of rows may repeat.
    column = pd.Series(cells, index=[5] * len(cells), name="x")
    form = recognise(column)
    assert form.kind == kind
    values = read_cells(column, form)
    dtype = {"number": np.float64, "text": object}.get(kind, values.dtype)
    pd.testing.assert_series_equal(
        values,
        pd.Series(expected, column.index, dtype=dtype, name="x"),
        check_freq=False,
    )


@pytest.mark.parametrize(
    "cells, message",
    [
        (
            ["950", "1.200"],
            r"'1.200', which is 1.2 or 1200; .* Choose a way: --decimal",
        ),
        (["1,234", "2,345"], r"'1,234', which is (1.234 or 1234|1234 or 1.234)"),
        (
            ["01/02/2021", "03/04/2021"],
            r"'01/02/2021', which is 2021-0[12]-0[12] or .* --dates",
        ),
        (["01-02-2021", "03-04-2021"], r"'01-02-2021', which is 2021-0[12]-0[12] or"),
        (["21-01-05", "21-02-04"], r"'21-01-05', which is (2021-01-05|2005-01-21) or"),
    ],
)
def test_cells_of_two_readings_are_refused(cells: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        recognise(pd.Series(cells, name="x"))
    # What the table or a user says decides.
    other = "2,5" if message.startswith("'1") else "31/12/2020"
    table = pd.DataFrame({"x": cells, "other": [other, None]})
    values = read_cells(
        table["x"], recognise(table["x"], conventions=conventions_of(table))
    )
    expected = {"950": 1200, "1,234": 2.345}.get(cells[0], pd.Timestamp("2021-04-03"))
    assert cells[0] == "21-01-05" or values[1] == expected
    given = given_conventions(decimal=".", dates="mdy")
    values = read_cells(table["x"], recognise(table["x"], conventions=given))
    expected = {"950": 1.2, "1,234": 2345}.get(cells[0], pd.Timestamp("2021-03-04"))
    assert cells[0] == "21-01-05" or values[1] == expected


def test_cells_that_contradict_their_table_decide() -> None:
    """Nearly all could be read as the table is: the way in which all can be read is
    taken.
    """
    cells = pd.Series([*(f"{month}/01/2021" for month in range(1, 13)), "1/31/2021"])
    assert recognise(cells, conventions=given_conventions(dates="dmy")).pattern == "mdy"
    cells = pd.Series(["0,123", "0,456"])  # no thousands begin with 0
    assert recognise(cells, conventions=given_conventions(decimal=".")).decimal == ","


def test_years_of_two_digits_stay_in_their_hundred_years() -> None:
    """Those of the table that was trained on, also in later years."""
    form = Format("date", pattern="dmy", first_year=1927)
    read = read_cells(pd.Series(["31.12.26", "01.01.27", "01.01.2030"]), form)
    assert list(read) == days("2026-12-31", "1927-01-01", "2030-01-01")
    with pytest.raises(ValueError, match="a date written as dmy"):
        read_cells(pd.Series(["01.01.27"]), Format("date", pattern="dmy"))
    end = pd.Timestamp.now().year
    assert recognise(pd.Series(["31.12.45"])).first_year == end - 99


def test_marks_that_a_user_names() -> None:
    known = given_conventions(missing=[-200, "k.A."])
    numbers = pd.Series([5.0, -200.0, 7.0])
    form = recognise(numbers, conventions=known)
    assert_array_equal(read_cells(numbers, form), [5.0, np.nan, 7.0])
    assert_array_equal(
        read_cells(pd.Series(["-200,0", "k.A.", "8"]), form._replace(decimal=",")),
        [np.nan, np.nan, 8.0],
    )
    for cells in (["a", "k.A.", "b"], ["2020-01-31", "k.A.", "2020-02-28"]):
        words = pd.Series(cells)
        read = read_cells(words, recognise(words, conventions=known))
        assert read.isna().tolist() == [False, True, False]
    # A number that is named is one in a column whose values are as they are written.
    words = pd.Series(["1", "k.A.", "-200"])
    read = read_cells(words, recognise(words, as_written=True, conventions=known))
    assert_array_equal(read, [1.0, np.nan, -200.0])


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"decimal": ";"}, r"decimal: got ';', expected '.' or ','"),
        (
            {"decimal": ",", "thousands": ","},
            r"thousands: got ',', expected one character, which is not",
        ),
        ({"thousands": "0"}, r"thousands: got '0'"),
        ({"dates": "ydm"}, r"dates: got 'ydm', expected 'dmy' or 'mdy' or 'ymd'"),
    ],
)
def test_conventions_that_are_none(arguments: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        given_conventions(**arguments)


@pytest.mark.parametrize("dtype", ["Int64", "Float64", "boolean", "timedelta64[s]"])
def test_types_of_pandas(dtype: str) -> None:
    values: Any = [1, 0, None, 1]
    # Of NumPy: of a list, pandas 2.0 makes nanoseconds, so zeros.
    if dtype == "timedelta64[s]":
        values = np.array([1, 0, "NaT", 1], dtype)
    column = pd.Series(values, dtype=dtype)
    scale = 86400.0 if dtype.startswith("timedelta") else 1.0
    assert_array_equal(read_cells(column, recognise(column)) * scale, [1, 0, np.nan, 1])


@pytest.mark.parametrize("cells", [[[1], [2]], [b"a", b"b"], [1j, 2j], [{}, {}]])
def test_what_nothing_is_known_of(cells: list[Any]) -> None:
    assert recognise(pd.Series(cells)).kind == "other"
    assert recognise(pd.Series(["u", "v", None], dtype="category")).kind == "text"


@pytest.mark.parametrize(
    "cells, kind",
    [
        (["71,3 m/s", "5 m/s", "-1,25 m/s"], "text"),
        ([*range(5), *[-999] * 3], "number"),
        (["Yes", "yes", "YES", "No"], "text"),
        (["01000", "20000"], "text"),
        (["1E0", "2E1"], "text"),
        (["NA", "?", "a"], "text"),
        ([20210131, 20210201, 20221231], "number"),
    ],
)
def test_values_as_they_are_written(cells: list[Any], kind: str) -> None:
    form = recognise(pd.Series(cells), as_written=True)
    assert form.kind == kind and not form.unit
    assert list(read_cells(pd.Series(cells), form)) == cells


def test_other_tables_are_read_in_the_same_way() -> None:
    """Whatever they have: spellings that are new, no number for what is missing, no
    unit.
    """
    answers = Format("text", spellings=("Yes",))
    assert list(read_cells(pd.Series(["yEs", "YES", "no"]), answers)) == [
        "Yes",
        "Yes",
        "no",
    ]
    numbers = Format("number", sentinels=(-999.0,))
    for cells in ([5, -999], ["5", "-999.0"]):
        assert_array_equal(read_cells(pd.Series(cells), numbers), [5.0, np.nan])
    assert_array_equal(
        read_cells(pd.Series([5, 7]), Format("number", unit="kg")), [5.0, 7.0]
    )
    for cells in ([1.0, None, 2.0], [1, 2]):  # of a column that had words too
        assert list(read_cells(pd.Series(cells), Format("text")).dropna()) == ["1", "2"]
    for empty in (pd.Series([], dtype=object), pd.Series([None, ""])):
        assert read_cells(empty, recognise(empty)).isna().all()


@pytest.mark.parametrize(
    "form, cell, message",
    [
        (
            Format("number"),
            "1,5",
            r"column 'x': got '1,5' in row 2 .* expected a number .*'\.' as",
        ),
        (
            Format("number", ",", "."),
            "1.5",
            r"got '1.5' .* with ',' as decimal point. Correct the",
        ),
        (
            Format("number", unit="kg"),
            "5 g",
            r"got '5 g' in row 2 .* and the unit 'kg'\. Correct",
        ),
        (Format("date", pattern="dmy"), "31.31.2020", r"got '31.31.2020' .* as dmy"),
    ],
)
def test_cells_that_cannot_be_read(form: Format, cell: str, message: str) -> None:
    good = {"number": f"1 {form.unit}", "date": "31.01.2020"}[form.kind]
    with pytest.raises(ValueError, match=message):
        read_cells(pd.Series([good, None, cell], index=[9, 9, 9], name="x"), form)


@pytest.mark.parametrize("number", [np.inf, -np.inf])
def test_infinite_numbers_have_no_warning_of_numpy(number: float) -> None:
    column = pd.Series([number, *range(20210101, 20210131)], dtype=float, name="x")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert recognise(column).kind == "number"
