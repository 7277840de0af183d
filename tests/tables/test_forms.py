"""The tables of forms of numbers and units, and the page of all forms."""

from itertools import chain
from pathlib import Path
from runpy import run_path

import pandas as pd
import pytest

from gpflow_pep.tables import Format, dates, numbers, read_cells, recognise, units
from gpflow_pep.tables.forms import Form
from gpflow_pep.tables.numbers import Quantity, is_limit, read_quantity, unread_form

PAGE = run_path(str(Path(__file__).parents[2] / "docs" / "forms.py"))["page"]


def in_german(cell: str) -> str:
    return cell.translate(str.maketrans(",.", ".,"))


@pytest.mark.parametrize("form", numbers.FORMS, ids=lambda form: form.example)
def test_the_example_of_each_form_of_numbers(form: Form) -> None:
    value, unit = form.meaning
    is_read = form.meaning is not numbers.NO_NUMBER
    assert unread_form(form.example) == ("" if is_read else form.of)
    assert is_limit(form.example) == (form.of == "limits")
    if not is_read:
        assert recognise(pd.Series([form.example] * 9)).kind == "text"
        assert read_quantity(form.example, ".", ", '") is numbers.NO_NUMBER
        return
    assert read_quantity(form.example, ".", ", '") == pytest.approx(form.meaning)
    german = form.example if unit else in_german(form.example)
    for decimal, thousands, cell in ((".", ",", form.example), (",", ".", german)):
        cells = pd.Series([cell, None])
        read = read_cells(cells, Format("number", decimal, thousands, unit=unit))
        assert read[0] == value and read.isna()[1]


@pytest.mark.parametrize("form", units.FORMS, ids=lambda form: form.example)
def test_the_example_of_each_form_of_units(form: Form) -> None:
    assert form.match(form.meaning)
    assert read_quantity(form.example, ".", ",").unit == form.meaning
    is_sure = "word" not in form.of
    assert units.is_sure(form.meaning) == is_sure
    # In a column of few numbers: 2 WD and 4 WD may be names.
    found = recognise(pd.Series([form.example] * 2))
    assert found.kind == ("number" if is_sure else "text")
    found = recognise(pd.Series([f"{i}{form.example}" for i in range(1, 9)]))
    if form.example[0].isdigit():
        assert found.kind == "number" and found.unit == form.meaning


@pytest.mark.parametrize(
    "cell, quantity",
    [
        ("-$4", Quantity(-4.0, "$")),
        ("($5)", Quantity(-5.0, "$")),
        ("(5 kg)", Quantity(-5.0, "kg")),
        ("5 kg/m²", Quantity(5.0, "kg/m²")),
        ("5.1 +/- 0.1 mm", Quantity(5.1, "mm")),
        ("US$ 1,200", Quantity(1200.0, "US$")),
        ("<$5", Quantity(5.0, "$")),
        ("> -5 °C", Quantity(-5.0, "°C")),
        ("1e3 sq ft", Quantity(1000.0, "sq ft")),
        ("3 PM", Quantity(15.0, ":")),
        ("12 a.m.", Quantity(0.0, ":")),
        ("100:00:36", Quantity(100.01, ":")),
        ("\u22121\u00a0234.5", Quantity(-1234.5)),
    ],
)
def test_parts_of_forms_together(cell: str, quantity: Quantity) -> None:
    assert read_quantity(cell, ".", ", '") == pytest.approx(quantity)


@pytest.mark.parametrize(
    "cell",
    [
        *("", "-", "kg", "1A", "1st", "3th", "13 PM", "0 am", "36:61", "+5-", "-$-4"),
        *(
            "(-5)",
            "(5",
            "5)",
            "1e3/80",
            "1e3.5",
            "1,23,456",
            "12,34",
            "16/9",
            "<",
            "<x",
        ),
        *("\u0661\u0662", "1.2.3", "5 quite long words"),
    ],
)
def test_cells_of_no_form(cell: str) -> None:
    """Words, and never another number."""
    assert read_quantity(cell, ".", ",") is numbers.NO_NUMBER


def test_the_page_has_each_form() -> None:
    lines = PAGE().splitlines()
    for form in chain(numbers.FORMS, units.FORMS, dates.FORMS):
        place = lines.index(f"     - ``{form.example}``")
        assert lines[place - 1] == f"   * - {form.of}"
        meaning = form.meaning if isinstance(form.meaning, str) else ""
        assert meaning in lines[place + 1]
    assert lines.count("     - a word, with a note") == 2
