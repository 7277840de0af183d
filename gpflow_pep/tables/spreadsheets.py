"""Reading of tables in sheets of Excel files."""

import datetime
import io
import warnings
import zipfile
from typing import Any

import pandas as pd

from .contents import SAMPLE, TableFault, unreadable
from .conventions import MARKS, MARKS_IN_WORDS
from .encodings import check_names, listed
from .formats import kind_of_type
from .headers import count_title_rows, distinct, names_of_places, title_note
from .recognising import may_be_classes


def is_spreadsheet(content: bytes) -> bool:
    """Whether content is from an Excel file (.xlsx)."""
    return content.startswith(b"PK\x03\x04") and zipfile.is_zipfile(io.BytesIO(content))


def read_spreadsheet(
    content: bytes, sheet: str | None, header: bool | None
) -> pd.DataFrame:
    """
    Read a sheet. The ``attrs`` of the table have the name of the sheet as "sheet", and
    "notes" if there are any.

    :param content: The content of the file.
    :param sheet: The name of the sheet. None selects the first sheet with at least two
        rows and two columns, or if there is none, the first that is not empty.
    :param header: Whether the first row has the names of columns; None recognises it.
    :raises ValueError: If there is no such sheet.
    """
    sheets = _read_sheets(content)
    name, notes = _choose_sheet(sheets, sheet)
    names, cells, notes_on_names = _split_off_names(sheets[name], header)
    if cells.empty:
        raise TableFault(
            f" has no rows in the sheet {name!r}, expected rows below the names."
            f" Choose another sheet (--sheet) of {listed(sheets)}."
        )
    cells = cells.set_axis(names, axis=1).reset_index(drop=True)
    table = pd.DataFrame({name: _without_marks(cells[name]) for name in names})
    table.attrs = {"sheet": name}
    notes += notes_on_names
    if notes:
        table.attrs["notes"] = notes
    return table


def _choose_sheet(
    sheets: dict[str, pd.DataFrame], sheet: str | None
) -> tuple[str, list[str]]:
    """Choose the sheet, with a note if there are several."""
    if sheet is not None:
        check_names("sheet", [sheet], sheets, "a sheet")
        return sheet, []
    filled = [name for name, cells in sheets.items() if not cells.empty]
    if not filled:
        raise TableFault(
            " has no sheet with rows, expected one. Check how the file was written."
        )
    tables = [name for name in filled if min(sheets[name].shape) > 1]
    name = (tables or filled)[0]
    if len(filled) == 1:
        return name, []
    which = "the first of" if name == filled[0] else "the first with a table of"
    note = (
        f"Read the sheet {name!r}, {which} {listed(filled)} (--sheet selects another)."
    )
    return name, [note]


def _split_off_names(
    cells: pd.DataFrame, header: bool | None
) -> tuple[list[str], pd.DataFrame, list[str]]:
    """Return the names of the columns, the cells below them, and notes."""
    rows = [list(map(_as_text, row)) for row in cells.head(SAMPLE).to_numpy()]
    notes = []
    start = count_title_rows(rows) if header is None else 0
    if start:
        notes.append(title_note(rows[:start]))
    rows = rows[start:]
    cells = cells.iloc[start:].dropna(how="all")
    names, notes_on_places = names_of_places(rows, cells.shape[1], header)
    if not names:
        texts = map(_as_text, cells.head(1).to_numpy().ravel())
        names = [text or f"Unnamed: {place}" for place, text in enumerate(texts)]
        cells = cells.iloc[1:]
    names, notes_on_copies = distinct(names)
    return names, cells, [*notes, *notes_on_places, *notes_on_copies]


def _read_sheets(content: bytes) -> dict[str, pd.DataFrame]:
    """Read the cells of each sheet, without the empty rows and columns around them."""
    try:
        import openpyxl
    except ImportError as error:
        raise TableFault(
            " is an Excel file, which needs openpyxl, but openpyxl is not installed."
            " Run: pip install 'gpflow-pep[excel]'; or save the sheet as CSV."
        ) from error
    # Any error is caught, because openpyxl does not check much of what it reads.
    with unreadable((Exception,)), warnings.catch_warnings():
        # openpyxl warns of styles and other features that it does not support.
        warnings.simplefilter("ignore")
        book = openpyxl.load_workbook(io.BytesIO(content), data_only=True)
        return {
            sheet.title: _without_margins(_cells(sheet)) for sheet in book.worksheets
        }


def _cells(sheet: Any) -> pd.DataFrame:
    """Return the cells. If cells of one column are merged, all their rows get the
    value.
    """
    cells = pd.DataFrame([*sheet.iter_rows(values_only=True)], dtype=object)
    for merged in sheet.merged_cells.ranges:
        left, top, right, bottom = merged.bounds
        if left == right:
            cells.iloc[top - 1 : bottom, left - 1] = cells.iloc[top - 1, left - 1]
    return cells


def _without_margins(cells: pd.DataFrame) -> pd.DataFrame:
    cells = cells.map(_plain_cell).astype(object)
    rows, columns = (
        cells.notna().any(axis=axis).to_numpy().nonzero()[0] for axis in (1, 0)
    )
    if not len(rows):
        return pd.DataFrame()
    return cells.iloc[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]


def _plain_cell(cell: Any) -> Any:
    """Convert times of day and durations to text, from which they are read, and text of
    spaces to an empty cell.
    """
    if isinstance(cell, datetime.timedelta):
        minutes, seconds = divmod(round(cell.total_seconds()), 60)
        return f"{minutes // 60}:{minutes % 60:02}:{seconds:02}"
    if isinstance(cell, datetime.time):
        return cell.isoformat()
    word = cell.strip() if isinstance(cell, str) else "full"
    return None if not word or (word[0] == "#" and word in MARKS_IN_WORDS) else cell


def _without_marks(column: "pd.Series[Any]") -> "pd.Series[Any]":
    """Remove marks of missing values if no other cell is text and the marks are not a
    class.
    """
    is_text = column.map(lambda cell: isinstance(cell, str))
    numbers = column[~is_text].dropna()
    if not len(numbers) or not column[is_text].isin(MARKS).all():
        return column.infer_objects()
    if kind_of_type(numbers) == "number" and may_be_classes(
        column[is_text], numbers.tolist()
    ):
        return column
    return column.where(~is_text, None).infer_objects()


def _as_text(cell: Any) -> str:
    return "" if pd.isna(cell) else str(cell).strip()
