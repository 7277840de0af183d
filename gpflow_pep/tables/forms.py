"""A form in which cells are written, as an entry of a table of forms."""

import re
from typing import Any, NamedTuple


class Form(NamedTuple):
    """A form in which numbers, units or dates are written.

    The tables of forms, ``FORMS`` of :mod:`~gpflow_pep.tables.numbers`,
    :mod:`~gpflow_pep.tables.units` and :mod:`~gpflow_pep.tables.dates`, are used to
    read cells. The tests take their cases from these tables, and the documentation its
    list.

    :param of: What is written in this form.
    :param example: A cell.
    :param meaning: The meaning of the example.
    :param expression: A regular expression that matches these cells.
    """

    of: str
    example: str
    meaning: Any
    expression: str

    def match(self, cell: str) -> re.Match[str] | None:
        """Match a cell; None if it is written in another form."""
        return re.fullmatch(self.expression, cell, re.IGNORECASE)
