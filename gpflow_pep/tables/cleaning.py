"""Clean a table: choose its inputs and its target, and read their cells."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd

from ..engine.refusals import counted, refusal
from . import Format, TableEncoder, read_cells, recognise
from .conventions import (
    MARKS,
    MARKS_IN_WORDS,
    PLAIN,
    WORDS_OF_NOTHING,
    Conventions,
    plain_spelling,
)
from .dates import has_order, read_dates
from .encodings import MAX_CATEGORIES, as_table, check_cells, listed, option
from .formats import (
    LEAST_SHARE,
    PAIR,
    conventions_of,
    given_conventions,
    halves,
    is_code,
    may_be_classes,
    several_units,
    stripped,
)
from .numbers import SURE_UNIT, is_limit
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
    notes: list[str] = list(about.get("notes", ()))
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
        notes.append(f"Dropped column '{name}': it is {value} in every row.")
        X, _ = X.drop(columns=name), formats.pop(name)
    empty = X.isna().all(axis=1)
    if empty.any() and len(X.columns):
        notes.append(
            f"Dropped {empty.sum()} of {len(X)} rows in which every input is missing."
        )
        X, y = X[~empty], y[~empty]
    for name in X.columns[X.isna().any()]:
        notes.append(
            f"Column '{name}' has no value in {X[name].isna().sum()} of {len(X)} rows."
        )
    warnings = list(about.get("warnings", ()))
    for column in _columns_of(y):
        _check_enough(X, column.dropna(), kind, notes)
        there = column.notna()
        suspicious = suspicions(X[there], column[there], kind == "classes")
        warnings += [text for text in suspicious if text not in warnings]
    numbers = [*(X[name] for name in X), *_columns_of(y)]
    warnings += [text for column in numbers for text in stuck(column)]
    X.attrs = {"conventions": known._replace(encoding=about.get("encoding", ""))}
    return Cleaned(X, y, kind, notes, formats, warnings, sides)


def _sides_of_limits(
    column: "pd.Series[Any]", limits: bool, known: Conventions, notes: list[str]
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
    notes: list[str],
) -> tuple[pd.DataFrame, dict[str, Format]]:
    """Read the useful columns, and note how each was read, or why it was dropped."""
    formats, columns = {}, {}
    for name, column, form in _recognised(table, literal, known, notes):
        if name in drop:
            continue
        reason = _why_drop(name, column, form, known, name in literal)
        if reason:
            notes.append(f"{_DROPPED} '{name}': {reason}.")
            continue
        formats[name] = form
        columns[name] = check_cells(name, read_cells(column, form))
        notes.extend(_how_read(name, column, form, known))
        limits = [*filter(is_limit, stripped(column))] if form.kind == "number" else []
        if limits:
            value = read_cells(pd.Series(limits[:1]), form)[0]
            note = (
                f"{counted(len(limits), 'row')}, read as numbers ('{limits[0]}' is"
                f" {value:.15g})"
            )
            notes.append(f"Column '{name}' has limits in {note}.")
        notes.extend(_how_joined(name, column, form, known))
    return pd.DataFrame(columns, index=table.index), formats


def _recognised(
    table: pd.DataFrame, literal: set[str], known: Conventions, notes: list[str]
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
        notes.append(
            f"Column '{name}' has two numbers in a cell, such as"
            f" {_first_pair(column)!r}, which are the columns {listed(names)}"
            f" ({option('as-written', name)} keeps the cells as words)."
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
    notes: list[str],
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
        notes.append(
            f"Target '{name}' is missing in {Y[name].isna().sum()} of {len(Y)} rows."
        )
    return Y if several else Y[targets[0]], kind, table


def _read_target(
    column: "pd.Series[Any]",
    task: str | None,
    literal: bool,
    known: Conventions,
    notes: list[str],
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
            is_code(word) or is_limit(word) for word in words.dropna()
        )
        values = words if as_they_are else read_cells(values, Format("text"))
    return values.rename(target), "classes"


def _why_drop(
    name: str,
    column: "pd.Series[Any]",
    form: Format,
    known: Conventions,
    as_written: bool,
) -> str:
    """Give the reason why a column is dropped; empty if it is not."""
    values = column.dropna()
    if form.kind == "other":
        return (
            "its cells are of type"
            f" {type(values.iloc[0]).__name__ if len(values) else 'none'}"
        )
    if values.empty:
        return "it is empty"
    nameless = not name.strip() or re.fullmatch(r"Unnamed: \d+", name)
    if form.kind == "text":
        words = read_cells(values, form)
        if words.nunique() > max(2, len(words) // 2):
            units = several_units(values, known)
            also = (
                f"numbers of several units, such as {listed(units.values())}"
                if units
                else ""
            )
            also = also or _two_orders(words.unique()) or f"such as {words.iloc[0]!r}"
            return f"{words.nunique()} of its {len(words)} texts differ, {also}"
        return ""
    named = nameless or (
        _ID_NAME.fullmatch(name.rstrip(". ")) and not _TIME_NAME.match(name)
    )
    if as_written or form.kind != "number" or not named:
        return ""
    numbers = read_cells(values, form).dropna()
    if len(numbers) < 3 or not numbers.is_unique or np.any(numbers % 1.0):
        return ""
    rises = " and rise from row to row, as time does" * numbers.is_monotonic_increasing
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
    first, second = (read_dates(words, order, None).notna() for order in ("dmy", "mdy"))
    both = bool(np.all(first | second)) and not (first.all() or second.all())
    return "dates, of which neither dmy nor mdy suits all" if both else ""


def _how_read(
    name: str, column: "pd.Series[Any]", form: Format, known: Conventions
) -> Iterable[str]:
    """Describe how text was read."""
    values = column.dropna()
    if not len(values):
        return
    words = (
        values[~values.isin([*MARKS, *form.missing])] if form.kind != "text" else values
    )
    if form.kind == "number":
        words = words[[not is_limit(str(word)) for word in words]]
    # The first cell that shows most: thousands, zeros before the number, (120) and
    # 120-.
    telling = (
        word for word in words if isinstance(word, str) and _TELLING.search(word)
    )
    cell = next(telling, next(iter(words), ""))
    if form.kind == "date":
        cell = next(iter(words), "")
        value = f"{read_cells(pd.Series([cell]), form)[0]:%Y-%m-%d %H:%M}".removesuffix(
            " 00:00"
        )
        how = f" ('{cell}' is {value})" if form.pattern else ""
        yield f"Column '{name}' holds dates{how}, which become days since 1970-01-01."
    elif form.kind == "number" and isinstance(cell, str) and cell:
        value = read_cells(pd.Series([cell]), form._replace(sentinels=()))[0]
        unit = f" of the unit '{form.unit}'" if form.unit else ""
        unit = " of hours" if form.unit == ":" else unit
        words = option("as-written", form.source or name)
        kept_so = f"; {words} keeps such cells as words" if is_code(cell) else ""
        how = f"numbers{unit} ('{cell}' is {value:.15g}{kept_so})"
        if not PLAIN["."].fullmatch(cell) or float(cell) != value:
            yield f"Column '{name}' was text, and is read as {how}."
    elif form.kind == "text":
        different = read_cells(values, form)
        if dates := _two_orders(different.unique()):
            yield f"Column '{name}' holds {dates}: they are taken as words."
        if different.nunique() > MAX_CATEGORIES:
            yield (
                f"Column '{name}' has {different.nunique()} different texts: the"
                f" {MAX_CATEGORIES} most frequent have a column each, and all others"
                " share one."
            )
        return
    others = [word for word in form.missing if word not in known.missing]
    if others:
        yield f"Column '{name}': {_are(others)} taken as no value."


def _are(names: Sequence[str]) -> str:
    return f"{listed(names)} {'is' if len(names) == 1 else 'are'}"


def _how_joined(
    name: str, column: "pd.Series[Any]", form: Format, known: Conventions
) -> Iterable[str]:
    """Name which cells are taken as no value, or are not, and which words as others."""
    as_written = option("as-written", form.source or name)
    for sentinel in form.sentinels:
        count = int((read_cells(column, form._replace(sentinels=())) == sentinel).sum())
        why = "is taken as no value"
        if sentinel not in known.sentinels:
            why = (
                f"is far from all other numbers, and {why} ({as_written} reads it as a"
                " number)"
            )
        if count:
            yield f"Column '{name}': {sentinel:g} in {counted(count, 'row')} {why}."
    written = stripped(column)
    empty = set() if "" in form.missing else {*form.missing, *MARKS_IN_WORDS} - {""}
    if form.kind != "text":
        empty = {*MARKS} - {"", *known.missing}
        numbers = [cell for cell in written if cell not in MARKS]
        empty = empty if may_be_classes(empty.intersection(written), numbers) else set()
    empty &= {*written}
    if empty:
        yield (
            f"Column '{name}': {_are(sorted(empty))} taken as no value ({as_written}:"
            f" as text), in {counted(sum(cell in empty for cell in written), 'cell')}."
        )
    if form.kind != "text":
        return
    cells = read_cells(column, form._replace(spellings=()))
    marks = [word for word in WORDS_OF_NOTHING if (cells == word).any()]
    if marks:
        remedy = f"--missing {','.join(marks)}: as no value"
        yield f"Column '{name}': {_are(marks)} taken as text ({remedy})."
    for spelling in form.spellings:
        same = cells[
            cells.map(plain_spelling, na_action="ignore") == plain_spelling(spelling)
        ]
        others = sorted(set(same) - {spelling})
        yield (
            f"Column '{name}': {_are(others)} taken as '{spelling}'"
            f" ({as_written} keeps them apart)."
        )


def _check_enough(
    X: pd.DataFrame, y: "pd.Series[Any]", kind: Kind, notes: list[str]
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
        dropped = [note for note in notes if note.startswith(_DROPPED)]
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
