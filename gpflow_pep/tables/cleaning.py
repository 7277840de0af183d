"""Clean a table: choose its inputs and its target, and read their cells."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd

from ..engine.refusals import counted, refusal
from . import Format, TableEncoder, read_cells, recognise
from .conventions import (
    FEWEST,
    MARKS,
    MARKS_IN_WORDS,
    PLAIN,
    WORDS_OF_NOTHING,
    Conventions,
    plain_spelling,
    short_spellings,
)
from .dates import (
    as_month_with_point,
    has_order,
    may_be_months,
    period_of,
    read_dates,
)
from .encodings import MAX_CATEGORIES, as_table, check_cells, listed, option
from .formats import (
    LEAST_SHARE,
    PAIR,
    conventions_of,
    given_conventions,
    halves,
    is_code,
    is_large_label,
    may_be_classes,
    merge_in_floats,
    several_units,
    stripped,
    word_among_numbers,
)
from .notes import Note, sentences
from .numbers import SURE_UNIT, is_limit, unread_form
from .suspicions import MIN_ROWS, stuck, suspicions

#: The column of the limits of rows, beside that of the target.
LIMIT = "limit (-1: at most, 1: at least)"
#: Cells that show how a column is read: with thousands, or zeros before the number.
_TELLING = re.compile(r"\d[., ']\d{3}(?!\d)|^0\d|\d[eE]\d|^\(|\d-$")
_DROPPED = "Dropped column"
#: What the name of a column of the first or the second of two numbers ends with.
_HALF = re.compile(r" \([12] of 2\)$")
#: What has a number by which it is found, which is no input where every row has another
#: one.
_THINGS = (
    "row|record|obs|observation|case|serial|order|invoice|ticket|booking|transaction|account|client"
    "|customer|patient|subject|participant|person|user|member|employee|student|sample|specimen"
)
_ID_NAME = re.compile(
    rf"(?i:(.*[ _.-])?(id|ids|uuid|guid|no|nr|key|({_THINGS})(["
    r" _.-]?(no|nr|num|number|index))?)"
    r"|id["
    r" _.-].*|idx|index|number|rownames|rownum|.*nummer|#)|.*[a-z](I[dD]|N[or]|Number)"
)
#: What counts time is none: what changes with time can be learnt from it.
_TIME_NAME = re.compile(
    "(?i:time|second|minute|hour|day|week|month|quarter|year|step|cycle|stunde|tages|woche|monat"
    "|jahr|schritt|zykl)"
)


Kind = Literal["numbers", "classes"]


class Cleaned(NamedTuple):
    """The inputs and the target of a table, and what was done to get them.

    :param X: Inputs: numbers (float64), dates and text; values may be missing.
    :param y: The target, with no value missing: numbers, or the classes' names. Of
        several targets, a table of numbers, of which each row has one at least.
    :param kind: "numbers" or "classes".
    :param notes: What was done, a sentence each.
    :param formats: How the cells of each input were read, and are to be read in other
        tables.
    :param warnings: What makes scores look better or worse than they are, a sentence or
        more each.
    :param limits: -1 where a target is at most the number, as of "<5.8", 1 where it is
        at least that, else 0; None where all are the numbers themselves.
    :param blocks: The time of each row, or its group, by which rows are held out; None:
        at random.
    """

    X: pd.DataFrame
    y: Any
    kind: Kind
    notes: list[str]
    formats: dict[str, Format]
    warnings: list[str]
    limits: Any = None
    blocks: Any = None

    @property
    def outcomes(self) -> Any:
        """The target or targets as models take them: with the limits of rows beside, if
        any.
        """
        if self.limits is None:
            return self.y
        return pd.concat([self.y, self.limits.loc[self.y.index]], axis=1)

    @property
    def targets(self) -> "list[pd.Series[Any]]":
        """The target, or each of several."""
        return _columns_of(self.y)

    @property
    def num_classes(self) -> int:
        """How many classes there are; 1 for numbers."""
        return int(self.y.nunique()) if self.kind == "classes" else 1


def clean(
    frame: Any,
    target: str | int | Sequence[str | int],
    *,
    drop: Sequence[str] = (),
    drop_missing: bool = False,
    task: str | None = None,
    as_written: Sequence[str] = (),
    limits: bool = False,
    decimal: str | None = None,
    thousands: str | None = None,
    dates: str | None = None,
    missing: Sequence[str | float] = (),
) -> Cleaned:
    """Choose the columns and rows of a table that can be learnt from, and read their
    cells.

    How its numbers and dates are written is found once, from all cells, and is part of
    the formats.

    Dropped, with a note, are rows without target, columns that number or name the rows,
    that are empty or constant, or text that differs from row to row. Text that looks
    like numbers or dates is read as such; numbers such as -999 far outside the others
    are missing values, and words that differ in capitals or spaces are one.

    :param frame: The table, of pandas or polars.
    :param target: The name of the column to predict, or its place from 0; or of several
        columns of numbers.
    :param drop: Columns to leave out.
    :param drop_missing: Whether rows in which an input is missing are left out.
    :param task: "regression" or "classification"; None: classes are text, truth values,
        and numbers that are only two.
    :param as_written: Columns whose numbers and words are values as they are written:
        -999 is a number, Yes and yes are two words, and numbers with a unit or zeros
        before them are text.
    :param limits: Whether targets such as "<5.8" are limits of what was not measured,
        for the likelihood "tobit"; else they are refused.
    :param decimal: The decimal mark, "." or ","; None: from the cells.
    :param thousands: What separates thousands; None: from the cells.
    :param dates: The order of day, month and year: "dmy", "mdy" or "ymd"; None: from
        the cells.
    :param missing: Words and numbers that stand for no value, in all columns.
    :raises ValueError: If a column does not exist or can be read in two ways, a number
        is infinite, all targets are equal, no input is left, or fewer than 10 rows are.
    """
    if task not in (None, "regression", "classification"):
        expected = "'regression' or 'classification'"
        raise refusal(
            "task", repr(task), expected, "Leave it out to have it recognised."
        )
    table = as_table(frame, "frame").reset_index(drop=True)  # rows are numbered from 0
    copies = table.columns[table.columns.duplicated()].unique()
    if len(copies):
        got = f"more than one column named {listed(copies)}"
        raise refusal("frame", got, "different names", "Rename or remove the copies.")
    targets = _places(table, target)
    inputs = [name for name in table.columns if name not in targets]
    _check_names(
        "drop", [_HALF.sub("", str(name)) for name in drop], inputs, "input columns"
    )
    _check_names("as_written", as_written, list(table.columns), "columns")
    about = table.attrs
    marks = decimal or about.get("decimal"), thousands or about.get("thousands")
    known = conventions_of(
        table, given_conventions(*marks, dates, missing), about.get("sep", "")
    )
    table = table.drop(columns=[str(name) for name in drop if str(name) in inputs])
    notes: list[str | Note] = list(about.get("notes", ()))
    if known.decimal == ",":
        notes.append("Numbers have decimal commas.")
    literal = set(map(str, as_written))
    sides = None
    for name in targets if task != "classification" else ():
        if name not in literal:
            sides = _sides_of_limits(table[name], limits, known, notes)
    y, kind, table = _read_targets(table, targets, task, literal, known, notes)
    X, formats = _read_inputs(table, {*map(str, drop)}, literal, known, notes)
    empty = X.isna().any(axis=1)
    if drop_missing and empty.any():
        notes.append(
            f"Dropped {empty.sum()} of {len(X)} rows in which an input is missing."
        )
        X, y = X[~empty], y[~empty]
    for name in [
        name for name in X if X[name].notna().all() and X[name].nunique() <= 1
    ]:
        value = X[name].iloc[0] if len(X) else "nothing"
        notes.append(
            Note(
                name,
                f"{_DROPPED} '{name}': it is {value} in every row.",
                "Dropped {} that have one value in all rows",
                str(value),
            )
        )
        X, _ = X.drop(columns=name), formats.pop(name)
    empty = X.isna().all(axis=1)
    if empty.any() and len(X.columns):
        notes.append(
            f"Dropped {empty.sum()} of {len(X)} rows in which every input is missing."
        )
        X, y = X[~empty], y[~empty]
    for name in X.columns[X.isna().any()]:
        count = X[name].isna().sum()
        notes.append(
            Note(
                str(name),
                f"Column '{name}' has no value in {count} of {len(X)} rows.",
                f"{{}} have no value in some of the {len(X)} rows",
                str(count),
            )
        )
    warnings: list[str | Note] = list(about.get("warnings", ()))
    for column in _columns_of(y):
        _check_enough(X, column.dropna(), kind, notes)
        there = column.notna()
        suspicious = suspicions(X[there], column[there], kind == "classes")
        warnings += [text for text in suspicious if text not in warnings]
    numbers = [*(X[name] for name in X), *_columns_of(y)]
    warnings += [text for column in numbers for text in stuck(column)]
    file = {name: about.get(name, "") for name in ("encoding", "sheet")}
    X.attrs = {"conventions": known._replace(**file)}
    return Cleaned(X, y, kind, sentences(notes), formats, sentences(warnings), sides)


def _sides_of_limits(
    column: "pd.Series[Any]", limits: bool, known: Conventions, notes: list[str | Note]
) -> "pd.Series[Any] | None":
    """Give the side of its number on which each target is, by marks as in <5.8; None
    without.
    """
    cells = [cell.strip() if isinstance(cell, str) else "" for cell in column]
    sides = [
        (-1.0 if cell[0] in "<≤" else 1.0) if is_limit(cell) else 0.0 for cell in cells
    ]
    count, name = np.count_nonzero(sides), f"'{column.name}'"
    if not count or recognise(column, conventions=known).kind != "number":
        if limits:
            got = f"'tobit' for {name}, which has no limits such as <5.8 beside numbers"
            raise refusal("likelihood", got, "another one", "Leave it out.")
        return None
    example = f"{next(filter(is_limit, cells))!r}"
    if not limits:
        raise refusal(
            f"target {name}",
            f"{example} among its numbers, in {count} of {len(cells)} rows",
            "numbers alone, or limits and the likelihood 'tobit', which has a"
            " probability for them",
            "Pass --likelihood tobit (likelihood='tobit'), with one target. To leave"
            " such rows out, or to put a number there, would shift what is predicted.",
        )
    notes.append(
        f"{name} has limits such as {example} in {count} of {len(cells)} rows: the"
        " likelihood is that the value is beyond. Baselines take the number for the"
        " value; RMSE, MAE and coverage are of the other rows."
    )
    return pd.Series(sides, column.index, name=LIMIT)


def _check_names(
    argument: str, names: Sequence[str], known: Sequence[str], kind: str
) -> None:
    unknown = [str(name) for name in names if str(name) not in known]
    if unknown:
        raise refusal(
            argument,
            listed(unknown),
            f"{kind} among {listed(known)}",
            "Check the names.",
        )


def _read_inputs(
    table: pd.DataFrame,
    drop: set[str],
    literal: set[str],
    known: Conventions,
    notes: list[str | Note],
) -> tuple[pd.DataFrame, dict[str, Format]]:
    """Read the useful columns, and note how each was read, or why it was dropped."""
    formats, columns = {}, {}
    for name, column, form in _recognised(table, literal, known, notes):
        if name in drop:
            continue
        reason = _why_drop(name, column, form, known, name in literal)
        if reason:
            notes.append(reason)
            continue
        formats[name] = form
        columns[name] = check_cells(name, read_cells(column, form))
        notes.extend(_how_read(name, column, form, known))
        limits = [*filter(is_limit, stripped(column))] if form.kind == "number" else []
        if limits:
            value = read_cells(pd.Series(limits[:1]), form)[0]
            example = f"'{limits[0]}' is {value:.15g}"
            rows = counted(len(limits), "row")
            notes.append(
                Note(
                    name,
                    f"Column '{name}' has limits in {rows}, read as numbers"
                    f" ({example}).",
                    "{} have limits, read as numbers",
                    f"{rows}, {example}",
                )
            )
        notes.extend(_how_joined(name, column, form, known))
    return pd.DataFrame(columns, index=table.index), formats


def _recognised(
    table: pd.DataFrame, literal: set[str], known: Conventions, notes: list[str | Note]
) -> "Iterator[tuple[str, pd.Series[Any], Format]]":
    """Give each column and its format; of cells such as 120/80 those of each of the two
    numbers.
    """
    for label, column in table.items():
        name = str(label)
        form = recognise(column, as_written=name in literal, conventions=known)
        named = name in literal or _ID_NAME.fullmatch(name)
        if form.kind != "text" or named or not _first_pair(column):
            yield name, column, form
            continue
        parts, names = halves(column), [f"{name} ({number} of 2)" for number in (1, 2)]
        pair = repr(_first_pair(column))
        notes.append(
            Note(
                name,
                f"Column '{name}' has two numbers in a cell, such as {pair}, which are"
                f" the columns {listed(names)} ({option('as-written', name)} keeps the"
                " cells as words).",
                "{} have two numbers in a cell, which are two columns each"
                " (--as-written keeps the cells of a column as words)",
                f"such as {pair}",
            )
        )
        for part, cells in enumerate(parts):
            cells = cells.rename(names[part])
            form = recognise(cells, conventions=known)
            yield names[part], cells, form._replace(source=name, part=part)


def _first_pair(column: "pd.Series[Any]") -> str:
    """Give the first cell such as 120/80; empty where cells are others, or few differ,
    as 16/9.
    """
    words = [word for word in stripped(column) if word not in MARKS]
    pairs = [word for word in words if PAIR.fullmatch(word)]
    enough = len({*pairs}) >= MIN_ROWS and len(pairs) >= LEAST_SHARE * len(words)
    return pairs[0] if enough else ""


def _columns_of(y: Any) -> "list[pd.Series[Any]]":
    return [y[name] for name in y.columns] if isinstance(y, pd.DataFrame) else [y]


def make_preparation(
    X: pd.DataFrame, formats: Mapping[str, Format] | None = None
) -> TableEncoder:
    """Make the first step of a pipeline for tables like this one::

        X, y, kind, notes, formats, *_ = clean(read_table("data.csv"), "y")
        model = make_pipeline(make_preparation(X, formats), PEPRegressor()).fit(X, y)
        model.predict(read_table("new.csv")[list(X.columns)])

    It is not fitted yet: medians and values are learnt from training rows alone.

    :param X: Inputs; the ``attrs`` have the conventions of their table, if they are
        known.
    :param formats: How the cells of each column are to be read in tables like it, as
        :func:`~gpflow_pep.tables.cleaning.clean` gives them; None: recognised from `X`.
    :raises ValueError: If a column holds neither numbers, dates nor text.
    """
    known = X.attrs.get("conventions")
    if formats is None:
        known = known or conventions_of(X)
        formats = {
            str(name): recognise(column, conventions=known)
            for name, column in X.items()
        }
    for name, form in formats.items():
        if form.kind == "other":
            got = "neither numbers, dates nor text"
            raise refusal(f"column '{name}'", got, "one of them", "Leave it out.")
    return TableEncoder(
        {str(name): formats[str(name)] for name in X.columns}, conventions=known
    )


def _places(table: pd.DataFrame, target: Any) -> list[str]:
    several = isinstance(target, Sequence) and not isinstance(target, str)
    places = [_place(table, name) for name in (target if several else [target])]
    if not places or len(set(places)) < len(places):
        expected = "one column, or several that differ"
        raise refusal("target", listed(places) or "none", expected, "Name each once.")
    return places


def _place(table: pd.DataFrame, target: str | int) -> str:
    if target in table.columns:
        return str(target)
    number, count = re.fullmatch(r"-?\d+", str(target)), table.shape[1]
    if (
        number and -count <= int(target) < count
    ):  # as text, where the command line gives it
        return str(table.columns[int(target)])
    expected = f"one of the columns {listed(table.columns)}"
    remedy = (
        "Name it, or its place from 0; is the separator right, and are there names?"
    )
    raise refusal("target", repr(target), expected, remedy)


def _read_targets(
    table: pd.DataFrame,
    targets: list[str],
    task: str | None,
    as_written: set[str],
    known: Conventions,
    notes: list[str | Note],
) -> tuple[Any, Kind, pd.DataFrame]:
    """Read the target, or several, which are numbers; and leave out rows that have none
    of them.
    """
    several, columns = len(targets) > 1, {}
    kind: Kind = "numbers"
    for name in targets:
        columns[name], kind = _read_target(
            table[name], task, name in as_written, known, notes
        )
        if several and kind == "classes":
            raise refusal(
                f"target '{name}'",
                "classes",
                "numbers: several targets are modelled together by regression alone",
                "Compare it by itself; two numbers are taken as numbers with"
                " task='regression' (--task regression).",
            )
    Y = pd.DataFrame(columns, index=table.index)
    there = Y.notna().any(axis=1)
    if not there.all():
        name = "any target" if several else f"'{targets[0]}'"
        notes.append(f"Dropped {(~there).sum()} of {len(Y)} rows without {name}.")
    Y, table = Y[there], table[there].drop(columns=targets)
    for name in Y.columns[Y.isna().any()]:
        count = Y[name].isna().sum()
        notes.append(
            Note(
                name,
                f"Target '{name}' is missing in {count} of {len(Y)} rows.",
                f"{{}} that are targets are missing in some of the {len(Y)} rows",
                str(count),
            )
        )
    return Y if several else Y[targets[0]], kind, table


def _read_target(
    column: "pd.Series[Any]",
    task: str | None,
    literal: bool,
    known: Conventions,
    notes: list[str | Note],
) -> tuple["pd.Series[Any]", Kind]:
    """Read a target, some of which may be missing, and note its kind."""
    target = str(column.name)
    form = recognise(column, as_written=literal, conventions=known)
    stars = (
        form.unit
        and not SURE_UNIT.fullmatch(form.unit)
        and column.nunique() <= MAX_CATEGORIES
    )
    if stars and task != "regression":
        form = recognise(
            column, as_written=True, conventions=known
        )  # classes, such as 3 stars
    name = f"target '{target}'"
    if form.kind in ("other", "date") and task != "classification":
        got = "dates" if form.kind == "date" else "neither numbers nor text"
        remedy = (
            "Choose another target, or make numbers of it, such as days since a date."
        )
        raise refusal(name, got, "numbers or classes", remedy)
    words = [word for word in form.missing if word not in known.missing]
    if form.kind != "text" and words:
        got, expected = f"{listed(words)} among its {form.kind}s", f"{form.kind}s alone"
        remedy = (
            "Correct them, leave these cells empty, or name marks of no value"
            " (--missing)."
        )
        raise refusal(name, got, expected, remedy)
    plain = form.kind == "text" and not literal
    units = several_units(column, known) if plain else {}
    if units and all(map(SURE_UNIT.fullmatch, filter(None, units))):
        got = f"numbers of several units, such as {listed(units.values())}"
        remedy = (
            "Write all in the same unit, or take the cells as classes (--as-written)."
        )
        raise refusal(name, got, "one unit", remedy)
    values = read_cells(column, form)
    there, number = values.dropna(), values.nunique()
    if pair := _first_pair(column) if plain and task != "classification" else "":
        got, remedy = (
            f"two numbers in a cell, such as {pair!r}",
            "Make two columns, and name both.",
        )
        raise refusal(name, got, "one", remedy)
    notes.extend(_how_joined(target, column, form, known))
    if form.kind == "text" and task == "regression":
        got = f"text such as {str(there.iloc[0])!r}"
        remedy = "Correct it, or choose classification."
        raise refusal(name, got, "numbers for regression", remedy)
    if form.kind != "text":
        notes.extend(_how_read(target, column, form, known))
    elif merge_in_floats(there.unique()):
        notes.append(_about_large_numbers(target, there.iloc[0]))
    truth = pd.api.types.is_bool_dtype(column[values.notna()].infer_objects())
    numbers = form.kind == "number" and not truth
    if form.kind == "number":
        check_cells(target, values)
    if task == "regression" or (task is None and numbers and number != 2):
        if (
            task is None
            and number <= MAX_CATEGORIES
            and bool(np.all(there == np.round(there)))
        ):
            notes.append(
                f"'{target}' has {number} different whole numbers, which are taken as"
                " numbers, such as counts. If they are classes, pass"
                " task='classification' (--task classification)."
            )
        return values, "numbers"
    if numbers and task is None:
        notes.append(
            f"'{target}' has two values, which are taken as classes. If they are"
            " numbers, pass task='regression' (--task regression)."
        )
    if form.kind != "text":
        words = read_cells(column, Format("text")).where(values.notna())
        as_they_are = truth or any(
            is_code(word) or is_limit(word) or is_large_label(word)
            for word in words.dropna()
        )
        values = words if as_they_are else read_cells(values, Format("text"))
    return values.rename(target), "classes"


def _why_drop(
    name: str,
    column: "pd.Series[Any]",
    form: Format,
    known: Conventions,
    as_written: bool,
) -> Note | None:
    """Word why a column is dropped; None if it is not."""
    values = column.dropna()
    kind, reason = "", ""
    if form.kind == "other":
        kind = "whose cells are neither numbers, dates nor text"
        reason = (
            "its cells are of type"
            f" {type(values.iloc[0]).__name__ if len(values) else 'none'}"
        )
    elif values.empty:
        kind, reason = "that are empty", "it is empty"
    elif form.kind == "text":
        kind, reason = (
            "whose texts nearly all differ",
            _how_texts_differ(values, form, known),
        )
    elif form.kind == "number" and not as_written:
        kind, reason = (
            "that number the rows",
            _how_rows_are_numbered(name, values, form),
        )
    if not reason:
        return None
    alone = f"{_DROPPED} '{name}': {reason}."
    return Note(name, alone, f"Dropped {{}} {kind}", reason)


def _how_texts_differ(
    values: "pd.Series[Any]", form: Format, known: Conventions
) -> str:
    """Word that most cells have a text of their own; empty if they do not."""
    words = read_cells(values, form)
    if words.nunique() <= max(2, len(words) // 2):
        return ""
    count = f"{words.nunique()} of its {len(words)} texts differ"
    units = several_units(values, known)
    if units:
        return f"{count}, numbers of several units, such as {listed(units.values())}"
    if dates := _two_orders(words.unique()):
        return f"{count}, {dates}"
    unread = next(filter(unread_form, stripped(values)), "")
    if unread:
        return f"{count}, such as {unread!r}, {_not_read(unread)}"
    return f"{count}, such as {words.iloc[0]!r}"


def _not_read(cell: str) -> str:
    return f"{unread_form(cell)}, which are not read as numbers: write decimal numbers"


def _how_rows_are_numbered(name: str, values: "pd.Series[Any]", form: Format) -> str:
    """Word that a column numbers the rows; empty if it does not."""
    nameless = not name.strip() or re.fullmatch(r"Unnamed: \d+", name)
    named = _ID_NAME.fullmatch(name.rstrip(". ")) and not _TIME_NAME.match(name)
    if not nameless and not named:
        return ""
    numbers = read_cells(values, form).dropna()
    if len(numbers) < 3 or not numbers.is_unique or np.any(numbers % 1.0):
        return ""
    rises = ""
    if numbers.is_monotonic_increasing:
        rises = " and rise from row to row, as time does"
    codes = any(map(is_code, stripped(values)))
    way = "rename it to keep it" if codes else f"{option('as-written', name)} keeps it"
    return f"it numbers the rows, in whole numbers that all differ{rises} ({way})"


def _two_orders(words: Iterable[Any]) -> str:
    """Name dates of which no order suits all; empty where the words are no
    such dates.
    """
    words = [word for word in words if isinstance(word, str)]
    if not all(map(has_order, words)):
        return ""
    first, second = (read_dates(words, order).notna() for order in ("dmy", "mdy"))
    both = bool(np.all(first | second)) and not (first.all() or second.all())
    return "dates, of which neither dmy nor mdy suits all" if both else ""


def _how_read(
    name: str, column: "pd.Series[Any]", form: Format, known: Conventions
) -> Iterator[Note]:
    """Describe how cells were read, if it needs words."""
    values = column.dropna()
    if values.empty:
        return
    if form.kind == "text":
        yield from _about_words(name, values, form, known)
        return
    cells = values[~values.isin([*MARKS, *form.missing])]
    if form.kind == "date":
        yield _about_dates(name, cells, form)
    else:
        yield from _about_numbers(name, cells, form)
    others = [word for word in form.missing if word not in known.missing]
    if others:
        yield Note(
            name,
            f"Column '{name}': {_are(others)} taken as no value.",
            "{} have words that are taken as no value",
            listed(others),
        )


def _about_dates(name: str, cells: "pd.Series[Any]", form: Format) -> Note:
    cell = next(iter(cells), "")
    date = read_cells(pd.Series([cell]), form)[0]
    shown = f"{date:%Y-%m-%d %H:%M}".removesuffix(" 00:00")
    example = f"'{cell}' is {shown}" if form.pattern else ""
    period = period_of(form.pattern)
    of = period.of if period else "dates"
    how = f" ({example})" if example else ""
    otherwise = ""
    if period:
        as_written = option("as-written", form.source or name)
        otherwise = f" ({as_written} takes the cells as they are)"
    become = "become days since 1970-01-01"
    alone = f"Column '{name}' holds {of}{how}, which {become}{otherwise}."
    return Note(name, alone, f"{{}} hold {of}, which {become}", example)


def _about_numbers(name: str, cells: "pd.Series[Any]", form: Format) -> Iterator[Note]:
    cells = cells[[not is_limit(str(cell)) for cell in cells]]
    # The first cell that shows most: thousands, zeros before the number, (120) and
    # 120-.
    telling = (
        cell for cell in cells if isinstance(cell, str) and _TELLING.search(cell)
    )
    cell = next(telling, next(iter(cells), ""))
    if isinstance(cell, str) and cell:
        yield from _about_number(name, cell, form)
    values = read_cells(cells, form).to_numpy(dtype=np.float64)
    if may_be_months(values) and len({*values}) >= FEWEST:
        example = f"{values[0]:.15g}"
        yield Note(
            name,
            f"Column '{name}' has numbers such as {example}, which may be"
            f" {as_month_with_point(values[0])}, a month: they are taken as numbers."
            " Write months as 2023-01 or Jan 2023.",
            "{} have numbers that may be months and are taken as numbers",
            example,
        )


def _about_number(name: str, cell: str, form: Format) -> Iterator[Note]:
    """Describe how a number in text was read, if it is no plain one."""
    value = read_cells(pd.Series([cell]), form._replace(sentinels=()))[0]
    if PLAIN["."].fullmatch(cell) and float(cell) == value:
        return
    unit = f" of the unit '{form.unit}'" if form.unit else ""
    unit = " of hours" if form.unit == ":" else unit
    kept_so = ""
    if is_code(cell):
        as_written = option("as-written", form.source or name)
        kept_so = f"; {as_written} keeps such cells as words"
    example = f"'{cell}' is {value:.15g}"
    yield Note(
        name,
        f"Column '{name}' was text, and is read as numbers{unit} ({example}{kept_so}).",
        "{} were text, and are read as numbers",
        f"{example}{kept_so}",
    )


def _about_words(
    name: str, values: "pd.Series[Any]", form: Format, known: Conventions
) -> Iterator[Note]:
    words = read_cells(values, form)
    different = words.dropna().unique()
    unread = next(filter(unread_form, different), "")
    if unread:
        what = _not_read(unread)
        yield Note(
            name,
            f"Column '{name}' has cells such as {unread!r}, {what}. They are taken as"
            " words.",
            "{} have cells that are not read as numbers, and are taken as words",
            f"{unread!r}, {what}",
        )
    elif merge_in_floats(different):
        yield _about_large_numbers(name, different[0])
    elif word := word_among_numbers(values, known):
        count = counted(int((words == word).sum()), "cell")
        yield Note(
            name,
            f"Column '{name}' has numbers and the word {word!r} in {count}: all are"
            f" taken as words (--missing {word}: as numbers, and {word!r} as no"
            " value).",
            "{} have numbers and a word, and all cells are taken as words (--missing"
            " takes a word as no value)",
            f"{word!r} in {count}",
        )
    if dates := _two_orders(different):
        yield Note(
            name,
            f"Column '{name}' holds {dates}: they are taken as words.",
            f"{{}} hold {dates}, and are taken as words",
        )
    if len(different) > MAX_CATEGORIES:
        most = f"the {MAX_CATEGORIES} most frequent have a column each, and all others"
        yield Note(
            name,
            f"Column '{name}' has {len(different)} different texts: {most} share one.",
            f"{{}} have many different texts, of which {most} of a column share one",
            str(len(different)),
        )


def _about_large_numbers(name: str, example: str) -> Note:
    what = "of which several are the same in floating point: they are taken as words"
    alone = f"Column '{name}' has whole numbers such as {example}, {what}."
    return Note(name, alone, f"{{}} have whole numbers, {what}", example)


def _are(names: Sequence[str]) -> str:
    return f"{listed(names)} {'is' if len(names) == 1 else 'are'}"


def _how_joined(
    name: str, column: "pd.Series[Any]", form: Format, known: Conventions
) -> Iterator[Note]:
    """Name which cells are taken as no value, or are not, and which words as others."""
    as_written = option("as-written", form.source or name)
    if form.sentinels:
        numbers = read_cells(column, form._replace(sentinels=()))
        yield from _about_sentinels(name, numbers, form, known, as_written)
    yield from _about_marks(name, stripped(column), form, known, as_written)
    if form.kind == "text":
        yield from _about_spellings(name, column, form, as_written)


def _about_sentinels(
    name: str,
    numbers: "pd.Series[Any]",
    form: Format,
    known: Conventions,
    as_written: str,
) -> Iterator[Note]:
    """Name numbers that are taken as no value: those that a user named, and others."""
    counts = {sentinel: int((numbers == sentinel).sum()) for sentinel in form.sentinels}
    found = {sentinel: count for sentinel, count in counts.items() if count}
    for were_named in (True, False):
        rows = " and ".join(
            f"{sentinel:g} in {counted(count, 'row')}"
            for sentinel, count in found.items()
            if (sentinel in known.sentinels) == were_named
        )
        if not rows:
            continue
        far, instead = "", ""
        if not were_named:
            far = " is far from all other numbers, and"
            instead = f" ({as_written} reads it as a number)"
        yield Note(
            name,
            f"Column '{name}': {rows}{far} is taken as no value{instead}.",
            "{} have numbers that are named as no value"
            if were_named
            else "{} have numbers that are far from all others, and are taken as no"
            " value (--as-written reads those of a column as numbers)",
            rows,
        )


def _about_marks(
    name: str, written: list[str], form: Format, known: Conventions, as_written: str
) -> Iterator[Note]:
    """Name marks that are taken as no value and may be words."""
    empty = set() if "" in form.missing else {*form.missing, *MARKS_IN_WORDS} - {""}
    if form.kind != "text":
        empty = {*MARKS} - {"", *known.missing}
        numbers = [cell for cell in written if cell not in MARKS]
        empty = empty if may_be_classes(empty.intersection(written), numbers) else set()
    empty &= {*written}
    if not empty:
        return
    cells = counted(sum(cell in empty for cell in written), "cell")
    yield Note(
        name,
        f"Column '{name}': {_are(sorted(empty))} taken as no value ({as_written}: as"
        f" text), in {cells}.",
        "{} have marks that are taken as no value (--as-written takes those of a column"
        " as text)",
        f"{listed(sorted(empty))} in {cells}",
    )


def _about_spellings(
    name: str, column: "pd.Series[Any]", form: Format, as_written: str
) -> Iterator[Note]:
    """Name marks that are taken as text, and words that are joined, or may be one."""
    cells = read_cells(column, form._replace(spellings=()))
    marks = [word for word in WORDS_OF_NOTHING if (cells == word).any()]
    if marks:
        remedy = f"--missing {','.join(marks)}: as no value"
        yield Note(
            name,
            f"Column '{name}': {_are(marks)} taken as text ({remedy}).",
            f"{{}} have {listed(marks)}, taken as text ({remedy})",
        )
    plain = cells.map(plain_spelling, na_action="ignore")
    joined = {
        spelling: sorted({*cells[plain == plain_spelling(spelling)]} - {spelling})
        for spelling in form.spellings
    }
    if joined:
        ways = [f"{_are(words)} taken as '{way}'" for way, words in joined.items()]
        details = [f"{listed(words)} as '{way}'" for way, words in joined.items()]
        yield Note(
            name,
            f"Column '{name}': {'; '.join(ways)} ({as_written} keeps them apart).",
            "{} have words in several spellings, of which the most frequent is taken"
            " (--as-written keeps those of a column apart)",
            ", ".join(details),
        )
    apart = short_spellings(read_cells(column, form)) if "" not in form.missing else []
    if apart:
        groups = ", ".join(" and ".join(map(repr, words)) for words in apart)
        yield Note(
            name,
            f"Column '{name}' has {groups}, which may be one word in two spellings:"
            " they are kept apart. Write them alike if they are one.",
            "{} have short words that may be one in two spellings, and are kept apart",
            groups,
        )


def _check_enough(
    X: pd.DataFrame, y: "pd.Series[Any]", kind: Kind, notes: list[str | Note]
) -> None:
    name, counts = f"target '{y.name}'", y.value_counts()
    if len(y) < MIN_ROWS:
        expected, remedy = (
            f"at least {MIN_ROWS}",
            "Add rows; some are held out for testing.",
        )
        raise refusal(
            "frame", f"{counted(len(y), 'row')} with a {name}", expected, remedy
        )
    if len(counts) < 2:
        got, expected = f"{y.iloc[0]} in every row", "values that differ"
        raise refusal(name, got, expected, "Choose another target.")
    if X.shape[1] == 0:
        got, expected = f"no input column beside the {name}", "at least one that varies"
        dropped = [note for note in sentences(notes) if note.startswith("Dropped")]
        remedy = " ".join(["Add an informative input.", *dropped[:3]])
        raise refusal("frame", got, expected, remedy)
    if kind == "numbers":
        return
    if len(counts) > max(MAX_CATEGORIES, len(y) // 2):
        remedy = "Choose another target; or is it a number, for regression?"
        raise refusal(
            name, f"{len(counts)} classes in {len(y)} rows", "far fewer", remedy
        )
    if counts.min() < 2:
        remedy = "Remove the class or join it with another; or is the target a number?"
        expected = "at least 2, to train on and to hold out"
        raise refusal(name, f"1 row of the class {counts.idxmin()!r}", expected, remedy)
