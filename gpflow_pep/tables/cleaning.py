"""Cleaning of a table: choosing its inputs and its target, and reading their cells."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import pandas as pd

from ..engine.refusals import counted, refusal, with_suggestion
from ..engine.refusals.numbers import check_choice
from .conventions import MIN_ROWS, Conventions, given_conventions
from .encoder import TableEncoder
from .encodings import MAX_CATEGORIES, as_table, check_cells, check_names, listed
from .formats import Format, halves, read_cells, read_column_as
from .notes import Note, sentences
from .numbers import LIMIT, is_limit
from .readings import (
    DROPPED,
    ID_NAME,
    Reading,
    about_limits,
    about_many_texts,
    conventions_of,
    how_joined,
    how_read,
    recognise,
    why_drop,
)
from .recognising import is_code, is_large_label
from .suspicions import stuck, suspicions
from .units import is_sure

#: The end of the name of a column with the first or the second of two numbers.
_HALF = re.compile(r" \([12] of 2\)$")
Kind = Literal["numbers", "classes"]
_Notes: TypeAlias = list[str | Note]


class Cleaned(NamedTuple):
    """The inputs and the target of a table, and notes on how they were read.

    :param X: The inputs: numbers (float64), dates and text; values may be missing.
    :param y: The target, without missing values: numbers, or names of classes. Several
        targets are a table of numbers, with at least one in each row.
    :param kind: "numbers" or "classes".
    :param notes: Sentences on what was done to the table.
    :param formats: How the cells of each input were read, for reading other tables in
        the same way.
    :param warnings: Texts on what makes scores look better or worse than they are.
    :param limits: -1 if a target is at most the number, such as "<5.8", 1 if it is at
        least the number, and otherwise 0; None if there are no limits.
    :param blocks: The time or the group of each row, by which rows are held out; None
        if they are held out at random.
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
        """The target or targets for models, with a column for the limits of rows if
        there are any.
        """
        if self.limits is None:
            return self.y
        return pd.concat([self.y, self.limits.loc[self.y.index]], axis=1)

    @property
    def targets(self) -> "list[pd.Series[Any]]":
        """The columns of the target or targets."""
        return _columns_of(self.y)

    @property
    def target_names(self) -> list[str]:
        """The names of the target or targets."""
        return [str(column.name) for column in self.targets]

    @property
    def title(self) -> str:
        """The names of the target or targets, and the numbers of inputs and rows."""
        kind = f" ({self.num_classes} classes)" if self.kind == "classes" else ""
        inputs = counted(self.X.shape[1], "input")
        names = ", ".join(f"'{name}'" for name in self.target_names)
        noun = "Target" if len(self.target_names) == 1 else "Targets"
        return f"{noun} {names}{kind}, {inputs}, {len(self.X)} rows"

    @property
    def num_classes(self) -> int:
        """The number of classes; 1 for numbers."""
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
    """Choose the useful columns and rows of a table, and read their cells.

    The way in which numbers and dates are written is recognised once, from all cells,
    and is part of the formats.

    Rows without a target are dropped, with a note, and so are columns that number or
    name the rows, columns that are empty or constant, and text that differs from row to
    row. Text that looks like numbers or dates is converted to them. Numbers such as
    -999, far outside the others, are read as missing values. Words that differ only in
    capitals or spaces are read as the same word.

    :param frame: The table, of pandas or polars.
    :param target: The column to predict: its name, or its position counted from 0; or
        several columns of numbers.
    :param drop: Columns to leave out.
    :param drop_missing: Whether rows in which an input is missing are left out.
    :param task: The kind of target, "regression" or "classification". None treats text,
        truth values and numbers with only two values as classes.
    :param as_written: Columns to read exactly as written: -999 is a number, Yes and yes
        are two words, and numbers with a unit or leading zeros are text.
    :param limits: Whether targets such as "<5.8" are read as limits, for the likelihood
        "tobit"; otherwise they raise an error.
    :param decimal: The decimal mark, "." or ","; None recognises it.
    :param thousands: The separator of thousands; None recognises it.
    :param dates: The order of day, month and year: "dmy", "mdy" or "ymd"; None
        recognises it.
    :param missing: Words and numbers that mean a missing value, in all columns.
    :raises ValueError: If a column does not exist or can be read in two ways, if a
        number is infinite, if all targets are equal, or if no input or fewer than 10
        rows remain.
    """
    if task is not None:
        check_choice("task", task, ("regression", "classification"))
    table = _as_distinct_table(frame)
    targets = _places(table, target)
    inputs = [name for name in table.columns if name not in targets]
    sources = [_HALF.sub("", str(name)) for name in drop]
    check_names("drop", sources, inputs, "input columns")
    check_names("as_written", as_written, table.columns, "columns")
    about = table.attrs
    decimal = decimal or about.get("decimal")
    thousands = thousands or about.get("thousands")
    stated = given_conventions(decimal, thousands, dates, missing)
    known = conventions_of(table, stated, about.get("sep", ""))
    dropped = set(map(str, drop))
    literal = set(map(str, as_written))
    table = table.drop(columns=[name for name in inputs if name in dropped])
    notes: list[str | Note] = list(about.get("notes", ()))
    if known.decimal == ",":
        notes.append("Numbers have decimal commas.")
    readings = [Reading(table[name], known, name in literal) for name in targets]
    sides = None
    if task != "classification":
        for reading in readings:
            if not reading.literal:
                sides = _sides_of_limits(reading, limits, notes)
    y, kind, table = _read_targets(table, readings, task, notes)
    X, formats = _read_inputs(table, dropped, literal, known, notes)
    X = _choose_rows_and_columns(X, drop_missing, notes)
    y = y.loc[X.index]
    warnings: list[str | Note] = list(about.get("warnings", ()))
    for column in _columns_of(y):
        _check_enough(X, column.dropna(), kind, notes)
    warnings += _warnings(X, _columns_of(y), kind)
    file = {name: about.get(name, "") for name in ("encoding", "sheet")}
    X.attrs = {"conventions": known._replace(**file)}
    kept = {name: formats[name] for name in X}
    return Cleaned(X, y, kind, sentences(notes), kept, sentences(warnings), sides)


def _as_distinct_table(frame: Any) -> pd.DataFrame:
    """Convert a table to pandas, with distinct names, and with rows that are numbered
    from 0.
    """
    table = as_table(frame, "frame").reset_index(drop=True)
    copies = table.columns[table.columns.duplicated()].unique()
    if len(copies):
        got = f"more than one column named {listed(copies)}"
        raise refusal("frame", got, "different names", "Rename or remove the copies.")
    return table


def _choose_rows_and_columns(
    X: pd.DataFrame, drop_missing: bool, notes: _Notes
) -> pd.DataFrame:
    """Leave out rows without inputs and columns with a single value, and note missing
    values in the others.
    """
    if drop_missing:
        X = _without_rows(X, X.isna().any(axis=1), "an", notes)
    constant = [name for name in X if X[name].notna().all() and X[name].nunique() <= 1]
    for name in constant:
        value = X[name].iloc[0] if len(X) else "nothing"
        notes.append(
            Note(
                name,
                f"{DROPPED} '{name}': it is {value} in every row.",
                "Dropped {} that have the same value in all rows",
                str(value),
            )
        )
    X = X.drop(columns=constant)
    if len(X.columns):
        X = _without_rows(X, X.isna().all(axis=1), "every", notes)
    notes.extend(
        _about_gaps(X, "Column '{}' has missing values", "have missing values")
    )
    return X


def _about_gaps(table: pd.DataFrame, alone: str, together: str) -> Iterator[Note]:
    """Note in how many rows each column has missing values."""
    size = len(table)
    for name, count in table.isna().sum().items():
        if count:
            yield Note(
                str(name),
                f"{alone.format(name)} in {count} of {size} rows.",
                f"{{}} {together} in some of the {size} rows",
                str(count),
            )


def _without_rows(
    X: pd.DataFrame, empty: "pd.Series[Any]", which: str, notes: _Notes
) -> pd.DataFrame:
    if not empty.any():
        return X
    notes.append(
        f"Dropped {empty.sum()} of {len(X)} rows in which {which} input is missing."
    )
    return X[~empty]


def _warnings(X: pd.DataFrame, targets: "list[pd.Series[Any]]", kind: Kind) -> _Notes:
    """Describe anything that makes scores misleading."""
    warnings: _Notes = []
    for target in targets:
        there = target.notna()
        suspicious = suspicions(X[there], target[there], kind == "classes")
        warnings += [text for text in suspicious if text not in warnings]
    for column in [*(X[name] for name in X), *targets]:
        warnings += stuck(column)
    return warnings


def _sides_of_limits(
    reading: Reading, limits: bool, notes: _Notes
) -> "pd.Series[Any] | None":
    """Return the side of its number on which each target is, from marks as in <5.8;
    None if there are no marks.
    """
    words = reading.words
    sides = [_side_of_limit(word) for word in words]
    count = np.count_nonzero(sides)
    name = f"'{reading.name}'"
    if not count or reading.form.kind != "number":
        if limits:
            got = (
                f"'tobit' for {name}, which has no limits such as <5.8 among its"
                " numbers"
            )
            raise refusal("likelihood", got, "another one", "Leave it out.")
        return None
    example = f"{next(filter(is_limit, reading.counts))!r}"
    if not limits:
        raise refusal(
            f"target {name}",
            f"{example} among its numbers, in {count} of {len(sides)} rows",
            "only numbers, or limits and the likelihood 'tobit', which has a"
            " probability for limits",
            "Pass --likelihood tobit (likelihood='tobit'), with one target. Leaving"
            " out such rows, or replacing limits by numbers, would shift the"
            " predictions.",
        )
    notes.append(
        f"{name} has limits such as {example} in {count} of {len(sides)} rows. Their"
        " likelihood is the probability that the value lies beyond the limit."
        " Baselines use the number as the value. RMSE, MAE and coverage are computed"
        " from the other rows."
    )
    return pd.Series(sides, reading.cells.index, name=LIMIT)


def _side_of_limit(word: str | None) -> float:
    if word is None or not is_limit(word):
        return 0.0
    return -1.0 if word[0] in "<≤" else 1.0


def _read_inputs(
    table: pd.DataFrame,
    drop: set[str],
    literal: set[str],
    known: Conventions,
    notes: _Notes,
) -> tuple[pd.DataFrame, dict[str, Format]]:
    """Read the useful columns, and note how each was read, or why it was dropped."""
    formats = {}
    columns = {}
    for reading in _readings(table, literal, known, notes):
        name = reading.name
        if name in drop:
            continue
        reason = why_drop(reading)
        if reason:
            notes.append(reason)
            continue
        formats[name] = reading.form
        columns[name] = check_cells(name, reading.values)
        notes.extend(how_read(reading))
        notes.extend(about_many_texts(reading))
        notes.extend(about_limits(reading))
        notes.extend(how_joined(reading))
    return pd.DataFrame(columns, index=table.index), formats


def _readings(
    table: pd.DataFrame, literal: set[str], known: Conventions, notes: _Notes
) -> Iterator[Reading]:
    """Read each column. Cells such as 120/80 give two columns."""
    for name, cells in table.items():
        reading = Reading(cells, known, name in literal)
        if reading.lookalike.of != "pairs" or ID_NAME.fullmatch(reading.name):
            yield reading
            continue
        names = [f"{name} ({number} of 2)" for number in (1, 2)]
        what = "have pairs of numbers, which become two columns"
        detail = f"{reading.lookalike.what}: {listed(names)}"
        notes.append(reading.note(what, detail, "keeps them as words"))
        for part, numbers in enumerate(halves(cells)):
            half = Reading(numbers.rename(names[part]), known)
            half.form = half.form._replace(source=reading.name, part=part)
            yield half


def _columns_of(y: Any) -> "list[pd.Series[Any]]":
    if not isinstance(y, pd.DataFrame):
        return [y]
    return [y[name] for name in y]


def make_preparation(
    X: pd.DataFrame, formats: Mapping[str, Format] | None = None
) -> TableEncoder:
    """Make the first step of a pipeline for tables like this one::

        X, y, kind, notes, formats, *_ = clean(read_table("data.csv"), "y")
        model = make_pipeline(make_preparation(X, formats), PEPRegressor()).fit(X, y)
        model.predict(read_table("new.csv")[list(X.columns)])

    The step is not fitted yet, so that it reads medians and values from training rows
    only.

    :param X: Inputs. Their ``attrs`` have the conventions of the table, if they are
        known.
    :param formats: How the cells of each column are read, from
        :func:`~gpflow_pep.tables.cleaning.clean`; None recognises it from `X`.
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
        expected = "one column, or several distinct columns"
        raise refusal(
            "target", listed(places) or "none", expected, "List each column once."
        )
    return places


def _place(table: pd.DataFrame, target: str | int) -> str:
    if target in table.columns:
        return str(target)
    # As text, if the command line has a position.
    count = table.shape[1]
    if re.fullmatch(r"-?\d+", str(target)) and -count <= int(target) < count:
        return str(table.columns[int(target)])
    expected = f"one of the columns {listed(table.columns)}"
    remedy = (
        "Give its name, or its position counted from 0. If these are not your"
        " columns, set --sep or --header."
    )
    remedy = with_suggestion(remedy, [target], table.columns)
    raise refusal("target", repr(target), expected, remedy)


def _read_targets(
    table: pd.DataFrame, readings: list[Reading], task: str | None, notes: _Notes
) -> tuple[Any, Kind, pd.DataFrame]:
    """Read the target, or several targets, which must be numbers. Leave out rows
    without any target.
    """
    targets = [reading.name for reading in readings]
    several = len(targets) > 1
    columns = {}
    kind: Kind = "numbers"
    for name, reading in zip(targets, readings):
        columns[name], kind = _read_target(reading, task, notes)
        if several and kind == "classes":
            raise refusal(
                f"target '{name}'",
                "classes",
                "numbers, because only regression models several targets together",
                "Compare this target by itself. If its two values are numbers, pass"
                " task='regression' (--task regression).",
            )
    Y = pd.DataFrame(columns, index=table.index)
    there = Y.notna().any(axis=1)
    if not there.all():
        name = "any target" if several else f"'{targets[0]}'"
        notes.append(f"Dropped {(~there).sum()} of {len(Y)} rows without {name}.")
    Y = Y[there]
    table = table[there].drop(columns=targets)
    that_miss = "that are targets are missing"
    notes.extend(_about_gaps(Y, "Target '{}' is missing", that_miss))
    return Y if several else Y[targets[0]], kind, table


def _read_target(
    reading: Reading, task: str | None, notes: _Notes
) -> tuple["pd.Series[Any]", Kind]:
    """Read a target, which may have missing values, and note its kind."""
    if task != "regression" and _may_name_classes(reading):
        reading = Reading(reading.cells, reading.known, literal=True)
    form = reading.form
    if form.kind == "text":
        _check_words(reading, task)
    else:
        _check_values(reading, task)
    values = reading.values
    notes.extend(how_joined(reading))
    notes.extend(how_read(reading))
    if form.kind == "number":
        check_cells(reading.name, values)
    truth = _has_truth_values(reading)
    if task is None:
        task, note = _recognised_task(reading, truth)
        notes.extend(note)
    if task == "regression":
        return values, "numbers"
    return _names_of_classes(reading, truth).rename(reading.name), "classes"


def _has_truth_values(reading: Reading) -> bool:
    cells = reading.cells[reading.values.notna()]
    return bool(pd.api.types.is_bool_dtype(cells.infer_objects()))


def _recognised_task(reading: Reading, truth: bool) -> tuple[str, list[str]]:
    """Recognise the task from the target, with a note if it might be the other task."""
    if reading.form.kind != "number" or truth:
        return "classification", []
    if reading.values.nunique() == 2:
        note = (
            f"'{reading.name}' has two values, which are treated as classes. If they"
            " are numbers, pass task='regression' (--task regression)."
        )
        return "classification", [note]
    return "regression", list(_about_whole_numbers(reading))


def _may_name_classes(reading: Reading) -> bool:
    """Whether numbers with a unit may be classes, such as 3 stars."""
    unit = reading.form.unit
    if not unit or is_sure(unit):
        return False
    return bool(reading.cells.nunique() <= MAX_CATEGORIES)


def _check_values(reading: Reading, task: str | None) -> None:
    """Refuse a target of dates or other values, and words among numbers or dates."""
    target = f"target '{reading.name}'"
    kind = reading.form.kind
    if kind == "other" or (kind == "date" and task != "classification"):
        got = "dates" if kind == "date" else "neither numbers nor text"
        remedy = (
            "Choose another target, or convert it to numbers, such as days since a"
            " date."
        )
        raise refusal(target, got, "numbers or classes", remedy)
    known = reading.known.missing
    words = [word for word in reading.form.missing if word not in known]
    if words:
        got = f"{listed(words)} among its {kind}s"
        remedy = (
            "Correct these cells, leave them empty, or list the words that mean a"
            " missing value (--missing)."
        )
        raise refusal(target, got, f"{kind}s alone", remedy)


def _check_words(reading: Reading, task: str | None) -> None:
    """Refuse a target of text that is not of classes."""
    target = f"target '{reading.name}'"
    looks_like, what = reading.lookalike
    if looks_like == "units":
        remedy = (
            "Write all cells in the same unit, or keep the cells as classes"
            " (--as-written)."
        )
        raise refusal(target, what, "one unit", remedy)
    if looks_like == "pairs" and task != "classification":
        remedy = "Make two columns, and pass both as targets."
        raise refusal(target, what, "one", remedy)
    words = reading.values.dropna()
    if task == "regression" and len(words):
        got = f"text such as {str(words.iloc[0])!r}"
        remedy = "Correct such cells, or choose classification."
        raise refusal(target, got, "numbers for regression", remedy)


def _about_whole_numbers(reading: Reading) -> Iterator[str]:
    """Describe numbers that may be classes."""
    numbers = reading.values.dropna()
    count = numbers.nunique()
    if count <= MAX_CATEGORIES and bool(np.all(numbers == np.round(numbers))):
        yield (
            f"'{reading.name}' has {count} different whole numbers, which are treated"
            " as numbers, such as counts. If they are classes, pass"
            " task='classification' (--task classification)."
        )


def _names_of_classes(reading: Reading, truth: bool) -> "pd.Series[Any]":
    """Write the names of classes as words. Numbers that are codes are written as in the
    table.
    """
    values = reading.values
    if reading.form.kind == "text":
        return values
    words = read_column_as(reading, Format("text")).where(values.notna())
    if truth or any(map(_is_name, words.dropna())):
        return words
    return read_cells(values, Format("text"))


def _is_name(word: str) -> bool:
    return is_code(word) or is_limit(word) or is_large_label(word)


def _check_enough(
    X: pd.DataFrame, y: "pd.Series[Any]", kind: Kind, notes: _Notes
) -> None:
    name = f"target '{y.name}'"
    counts = y.value_counts()
    if len(y) < MIN_ROWS:
        got = f"{counted(len(y), 'row')} with a {name}"
        remedy = "Add rows, because some are held out for testing."
        raise refusal("frame", got, f"at least {MIN_ROWS}", remedy)
    if len(counts) < 2:
        got = f"{y.iloc[0]} in every row"
        raise refusal(
            name, got, "at least two different values", "Choose another target."
        )
    if X.shape[1] == 0:
        got = f"no input column besides the {name}"
        dropped = [note for note in sentences(notes) if note.startswith("Dropped")]
        remedy = " ".join(["Add an informative input.", *dropped[:3]])
        raise refusal("frame", got, "at least one input that varies", remedy)
    if kind == "numbers":
        return
    if len(counts) > max(MAX_CATEGORIES, len(y) // 2):
        got = f"{len(counts)} classes in {len(y)} rows"
        remedy = "Choose another target, or --task regression if it is a number."
        raise refusal(name, got, "far fewer", remedy)
    if counts.min() < 2:
        got = f"1 row of the class {counts.idxmin()!r}"
        expected = "at least 2 rows of each class, one to train on and one to hold out"
        remedy = (
            "Remove the class, join it with another, or choose --task regression if"
            " the target is a number."
        )
        raise refusal(name, got, expected, remedy)
