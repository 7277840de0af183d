"""A form in which cells are written, as a row of a table."""

import re
from typing import Any, NamedTuple


class Form(NamedTuple):
    """A form in which numbers, units or dates are written.

    The tables of forms, ``FORMS`` of :mod:`~gpflow_pep.tables.numbers`,
    :mod:`~gpflow_pep.tables.units` and :mod:`~gpflow_pep.tables.dates`, are what reads
    cells; the tests take their cases from them, and the documentation its list.

    :param of: What is written so.
    :param example: A cell.
    :param meaning: What the example is.
    :param expression: The regular expression of all such cells.
    """

    of: str
    example: str
    meaning: Any
    expression: str

    def match(self, cell: str) -> re.Match[str] | None:
        """Match a cell; None if it is written in another form."""
        return re.fullmatch(self.expression, cell, re.IGNORECASE)
