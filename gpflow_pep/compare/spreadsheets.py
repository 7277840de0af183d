"""Read tables in sheets of Excel files."""

import datetime
import io
import warnings
import zipfile
from typing import Any

import pandas as pd

from ..columns.encodings import listed
from ..refusals import refusal
from .contents import MISSING, TableFault, check_names, unreadable
from .headers import count_title_rows, names_of_places, title_note

#: How many rows names are looked for in.
_SAMPLE = 1000


def is_spreadsheet(content: bytes) -> bool:
    """Whether the content of a file is that of an Excel file (.xlsx)."""
    return content.startswith(b"PK\x03\x04") and zipfile.is_zipfile(io.BytesIO(content))


def read_spreadsheet(content: bytes, sheet: str | None, header: bool | None) -> pd.DataFrame:
    """
    Read a sheet; the ``attrs`` of the table have its name as "sheet", and "notes" if there are any.

    :param content: Of the file.
    :param sheet: The name of the sheet; None: the first that is not empty.
    :param header: Whether the first row has the names of columns; None: recognised.
    :raises ValueError: If there is no such sheet.
    """
    sheets = _read_sheets(content)
    filled = [name for name, cells in sheets.items() if not cells.empty]
    if sheet is not None and sheet not in sheets:
        raise refusal("sheet", repr(sheet), f"one of {listed(sheets)}", "Correct the name.")
    if sheet is None and not filled:
        raise TableFault(" has no sheet with rows, expected one. Check how it was written.")
    name, notes = sheet or filled[0], []
    if sheet is None and len(filled) > 1:
        notes.append(
            f"Read the sheet {name!r}, the first of {listed(filled)} (--sheet names another)."
        )
    cells = sheets[name]
    rows = [[_as_text(cell) for cell in row] for row in cells.head(_SAMPLE).itertuples(index=False)]
    start = count_title_rows(rows) if header is None else 0
    if start:
        notes.append(title_note(rows[:start]))
        rows, cells = rows[start:], cells.iloc[start:]
    cells = cells.dropna(how="all")
    names, why = names_of_places(rows, cells.shape[1], header)
    notes += why
    if not names:
        names = [text or f"Unnamed: {i}" for i, text in enumerate(map(_as_text, cells.iloc[0]))]
        cells = cells.iloc[1:]
    check_names(names)
    if cells.empty:
        raise TableFault(f" has no rows in the sheet {name!r}, expected some under the names.")
    table = cells.set_axis(names, axis=1).reset_index(drop=True).infer_objects()
    table.attrs = {"sheet": name, **({"notes": notes} if notes else {})}
    return table


def _read_sheets(content: bytes) -> dict[str, pd.DataFrame]:
    """Read the cells of each sheet, without the empty rows and columns around them."""
    try:
        import openpyxl  # noqa: F401
    except ImportError as error:
        raise TableFault(
            " is an Excel file, which needs openpyxl, which is not installed. Run: pip install"
            " 'gpflow-pep[excel]'; or save the sheet as CSV."
        ) from error
    # Whatever the error is: openpyxl checks little of what it reads.
    with unreadable((Exception,)), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of openpyxl: styles and the like that it does not know
        sheets = pd.read_excel(
            io.BytesIO(content), sheet_name=None, header=None, dtype=object, na_values=MISSING,
            engine="openpyxl",
        )  # fmt: skip
    return {str(name): _without_margins(cells) for name, cells in sheets.items()}


def _without_margins(cells: pd.DataFrame) -> pd.DataFrame:
    cells = cells.map(_plain_cell).astype(object)
    rows, columns = (cells.notna().any(axis=axis).to_numpy().nonzero()[0] for axis in (1, 0))
    if not len(rows):
        return pd.DataFrame()
    return cells.iloc[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]


def _plain_cell(cell: Any) -> Any:
    """Give times of the day as text, which is read as such; and no text of spaces alone."""
    if isinstance(cell, datetime.time):
        return cell.isoformat()
    return None if isinstance(cell, str) and not cell.strip() else cell


def _as_text(cell: Any) -> str:
    return "" if pd.isna(cell) else str(cell).strip()
