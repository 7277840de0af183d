"""The page of the forms in which numbers, units and dates are read: the package's own
tables of forms.
"""

from collections.abc import Iterator
from typing import Any

from gpflow_pep.tables import dates, numbers, units

#: What is above each table of forms, and what reads them.
_TABLES = {
    "Numbers": numbers,
    "Units, whose cells are read as a number of the unit": units,
    "Dates": dates,
}


def page() -> str:
    """Write the tables in reST."""
    return "\n".join(line for title in _TABLES for line in _table(title))


def _table(title: str) -> Iterator[str]:
    yield from (f".. list-table:: {title}", "   :header-rows: 1", "")
    yield from _row("Form", "Example", "Read as")
    # What is tried first of numbers is no number, and comes last on the page.
    forms = _TABLES[title].FORMS
    for form in sorted(forms, key=lambda form: form.meaning is numbers.NO_NUMBER):
        yield from _row(form.of, f"``{form.example}``", _shown(form.meaning))
    yield ""


def _row(*cells: str) -> Iterator[str]:
    for mark, cell in zip(("* -", "  -", "  -"), cells, strict=True):
        yield f"   {mark} {cell}"


def _shown(meaning: Any) -> str:
    if not isinstance(meaning, numbers.Quantity):
        return meaning
    if meaning is numbers.NO_NUMBER:
        return "a word, with a note"
    unit = "hours" if meaning.unit == units.HOURS else meaning.unit
    return f"{meaning.value:.15g} {unit}".strip()
