"""Months, quarters and weeks: every form of the table, read alike in new tables."""

import datetime
from typing import Any

import numpy as np
import pandas as pd
import pytest

from gpflow_pep.tables import Format, read_cells, recognise
from gpflow_pep.tables.dates import FORMS, PERIODS, may_be_months
from gpflow_pep.tables.forms import Form
from gpflow_pep.tables.readings import conventions_of

THIS_YEAR = datetime.date.today().year


def read(cells: list[Any], **options: Any) -> tuple[Format, list[Any]]:
    column = pd.Series(cells, name="when")
    form = recognise(column, **options)
    return form, read_cells(column, form).tolist()


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.example)
def test_the_example_of_each_form(form: Form) -> None:
    date = pd.Timestamp(form.meaning)
    if form.of == "dates":
        column = pd.Series([form.example, None])
        values = read_cells(column, Format("date", pattern="dmy")).tolist()
        assert values == [date, pd.NaT]
        return
    found, values = read([form.example, form.example, None])
    assert found.kind == "date" and found.pattern.startswith(form.example)
    assert values == [date, date, pd.NaT]
    as_written, words = read([form.example] * 2, as_written=True)
    is_number = form.example == "01.2023"  # as 01.5 is
    assert as_written.kind == ("number" if is_number else "text")
    assert words == [1.2023 if is_number else form.example] * 2


def test_each_month_of_two_years_in_each_form() -> None:
    starts = pd.date_range("2022-01-01", periods=24, freq="MS")
    quarters = pd.date_range("2022-01-01", periods=8, freq="QS")
    for style in (
        *("%b %Y", "%B %Y", "%b-%y", "%b. %Y", "%Y %b", "%Y-%b", "%YM%m", "%Y-M%m"),
        *("%m/%Y", "%m-%Y", "%Y/%m", "%m.%Y", "%Y-%m", "%B, %Y", "%b '%y"),
    ):
        form, values = read(list(starts.strftime(style)))
        assert form.kind == "date" and values == list(starts), style
        upper, values = read([cell.upper() for cell in starts.strftime(style)])
        assert upper.kind == "date" and values == list(starts), style
    assert read([f"{day.month}/{day.year}" for day in starts])[1] == list(starts)
    for words in ("Q{} {}", "Q{}/{}", "{}Q {}"):
        cells = [words.format(day.quarter, day.year) for day in quarters]
        assert read(cells)[1] == list(quarters)
    weeks = pd.date_range("2020-12-28", periods=60, freq="7D")
    for style in ("%G-W%V", "%GW%V", "W%V %G", "W%V/%G"):
        assert read(list(weeks.strftime(style)))[1] == list(weeks)


@pytest.mark.parametrize(
    "cells, kind",
    [
        # Of one form, or none:
        (["Jan 2023", "Q2 2023", "Feb 2023"], "text"),
        (["Jan 2023", "2023M02", "Mar 2023"], "text"),
        ([*(f"{month:02}/2023" for month in range(1, 13)), "13/2023"], "text"),
        (["Jan 2023", "Foo 2023"], "text"),
        (["2022-W52", "2022-W53"], "text"),
        (["Q1 2023", "Q5 2023"], "text"),
        (["Jan 1823", "Feb 1823"], "text"),
        # Numbers, if no month begins with 0, or a number is no month:
        (["10.2023", "11.2023", "12.2023"], "number"),
        (["01.2023", "13.2023"], "number"),
        (["01.2023", "02.2123"], "number"),
        (["01.2023", "1.2023"], "number"),
        ([1.2023, 2.2023, 12.202], "number"),
        ([2023.083, 2023.167], "number"),
        (["120/80", "130/85"], "text"),
        # A word may be a gap; a mark is one:
        ([*(f"{month:02}.2023" for month in range(1, 13)), "n/a", "?"], "date"),
        ([*(f"Q{quarter} 2023" for quarter in range(1, 5)), "unknown"], "text"),
        (["Q1 2024"] * 9 + ["unknown"], "date"),
    ],
)
def test_columns_of_one_form_alone(cells: list[Any], kind: str) -> None:
    assert read(cells)[0].kind == kind


def test_months_do_not_show_the_decimal_mark() -> None:
    months = [f"{month:02}.2023" for month in range(1, 13)]
    table = pd.DataFrame({"month": months, "price": [*["1,5"] * 3, *["2"] * 9]})
    assert conventions_of(table).decimal == ","


def test_new_tables_are_read_by_the_form_of_the_model() -> None:
    form, _ = read(["01.2023", "02.2023", "12.2024"])
    expected = [pd.Timestamp("2020-12-01"), pd.NaT, pd.Timestamp("2023-10-01")]
    # A file that has no 0 at the beginning of a month gives numbers.
    for cells in (["12.2020", None, "10.2023"], [12.202, np.nan, 10.2023]):
        assert read_cells(pd.Series(cells), form).tolist() == expected
    months, _ = read(["Jan 2023", "Feb 2023"])
    for cell in ("2023-03", "03/2023", "Foo 2023", "March"):
        with pytest.raises(ValueError, match=f"got '{cell}' .* written as Jan 2023"):
            read_cells(pd.Series(["Feb 2023", cell]), months)


def test_years_of_two_digits_of_forecasts() -> None:
    """Months to come are no months of a hundred years ago; nor are days."""
    short = f"{(THIS_YEAR + 5) % 100:02}"
    for cells, new in (
        (["Jan-21", "Feb-21", "Mar-22"], f"Jan-{short}"),
        (["31.12.21", "01.01.22"], f"01.01.{short}"),
    ):
        form, _ = read(cells)
        (value,) = read_cells(pd.Series([new]), form)
        assert value == pd.Timestamp(THIS_YEAR + 5, 1, 1)
    _, values = read(["Jan-49", "Feb-49", "Dec-60"])  # earlier than 20 years from now
    assert [day.year for day in values] in ([1949, 1949, 1960], [2049, 2049, 1960])


@pytest.mark.parametrize(
    "numbers, expected",
    [
        ([1.2023, 12.2024, 1.202], True),
        ([1.2023, np.nan], True),
        ([2023.083, 2023.167], False),
        ([1.2023, 13.2023], False),
        ([1.2023, 2.5], False),
        ([1.20231], False),
        ([1.0, 2.0], False),
        ([np.nan], False),
    ],
)
def test_numbers_that_may_be_months(numbers: list[float], expected: bool) -> None:
    assert may_be_months(np.array(numbers)) == expected


def test_forms_of_periods_exclude_each_other() -> None:
    for form in PERIODS.values():
        assert [other for other in FORMS if other.match(form.example)] == [form]
