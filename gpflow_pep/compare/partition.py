"""The choice of training rows and held-out rows. Rows with the same inputs stay
together.
"""

import re
import shlex
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn import model_selection

from ..engine.refusals import counted, refusal
from ..tables.cleaning import Cleaned, clean
from ..tables.conventions import MIN_ROWS
from ..tables.dates import FORMS, as_month_with_point, may_be_months
from ..tables.encodings import as_table, check_names, listed
from ..tables.grades import order_of_labels, places_in
from ..tables.readings import Reading
from .settings import Settings

#: Names of columns that identify things with several rows. The first names may also
#: mean a kind, such as the make of a device, if there are few values.
_KINDS = (
    "member|branch|school|animal|plot|batch|machine|device|sensor|station|account"
    "|vehicle"
)
_KINDS += "|supplier|company|group|cluster"
_WHOSE = re.compile(
    r"(?i:(.*["
    r" _.-])?(patient|subject|participant|person|customer|client|user|household|site"
    rf"|cent(er|re)|clinic|hospital|doctor|store|shop|student|donor|{_KINDS})"
    r"([ _.-]?(id|nr|no|num|number|code|key|name))?|(.*["
    r" _.-])?(id|uuid|guid|key))|.*[a-z]I[dD]"
)
_KIND = re.compile(f"(?i:(.*[ _.-])?({_KINDS}))")
#: Every window trains on at least this share of the rows. Forecasts from a few early
#: rows are far worse than forecasts of the saved model, and would hide how good it is.
LEAST_TRAINED = 1.0 / 3.0
#: Names of columns of years that order rows like dates. The year of a birth, a house or
#: a model does not.
_YEAR = re.compile(
    r"(?i:((fiscal|financial|calendar|school|survey|harvest)[ _.-]?)?(year|yr|jahr))"
)
#: Other columns identify groups if they have at least this number of values, which
#: explain this fraction of the variance of the target, and if neighbouring numbers
#: correlate less than this.
_FEWEST_GROUPS = 10
_EXPLAINED = 0.5
_ALIKE = 0.3


def _equal_inputs(X: pd.DataFrame) -> npt.NDArray[np.int64]:
    """Count the distinct rows in the order of their first occurrence, and return the
    number of each row, [N].
    """
    return pd.factorize(pd.util.hash_pandas_object(X, index=False).to_numpy())[0]


def clean_for(
    frame: Any, target: Any, settings: Settings, command: str = "", **cleaning: Any
) -> Cleaned:
    """Clean a table, read the times or groups of its rows, and note how rows are held
    out.

    :param command: The command that was called, for warnings.
    :param cleaning: Options of :func:`~gpflow_pep.tables.cleaning.clean`.
    :raises ValueError: If the time column or group column does not exist, or has too
        few values.
    """
    table = as_table(frame, "frame").reset_index(drop=True)
    name = settings.time_column
    setting = "time_column"
    kinds = "dates or numbers"
    if settings.group_column is not None:
        name = settings.group_column
        setting = "group_column"
        kinds = "text, dates or numbers"
        cleaning["drop"] = [*cleaning.get("drop", ()), name]
    if name is not None:
        inputs = table.columns.difference(np.atleast_1d(target), sort=False)
        check_names(setting, [name], inputs, "a column other than the target")
    data = clean(frame, target, **cleaning, limits=settings.likelihood == "tobit")
    if name is None:
        texts = _unused_columns(
            table, data, settings, command or "gpflow-pep compare ..."
        )
        data = _note_equal_inputs(
            data._replace(warnings=[*data.warnings, *texts]), settings
        )
    else:
        literal = name in cleaning.get("as_written", ())
        kind, values = _read(table[name], data, literal)
        if kind not in kinds:
            raise _unfit(setting, table[name], kind, kinds)
        blocks = values.loc[data.X.index]
        if setting == "time_column" and kind == "number":
            _check_that_time_rises(blocks)
        if not (there := blocks.notna()).all():
            data.notes.append(
                f"Dropped {(~there).sum()} of {len(there)} rows without '{name}'."
            )
        X = data.X[there]
        for other in _namesakes(data, blocks) if setting == "group_column" else ():
            data.notes.append(
                f"Dropped column '{other}': it groups the rows in the same way as"
                f" '{name}'."
            )
            X = X.drop(columns=other)
            _ = data.formats.pop(other)
        data = data._replace(X=X, y=data.y[there], blocks=blocks[there])
    _check_order(data, settings)
    _check_parts(data, settings)
    return data


def _check_order(data: Cleaned, settings: Settings) -> None:
    """Check the order of classes for the likelihood "ordinal", or note the order that
    numbers and grades have.
    """
    if settings.likelihood != "ordinal":
        if settings.order is not None:
            got = f"{listed(settings.order)} for the likelihood {settings.likelihood!r}"
            remedy = "Pass --likelihood ordinal, or leave the order out."
            raise refusal("order", got, "no order, or the likelihood 'ordinal'", remedy)
        return
    if data.kind != "classes":
        return  # refused by the check of the settings
    classes = np.unique(data.y)
    if settings.order is not None:
        places_in(settings.order, classes)
        kind = f"classes of '{data.y.name}'"
        check_names("order", settings.order, classes, kind)
        return
    places = order_of_labels(classes)
    if places is None:
        proposal = shlex.quote(",".join(classes))
        raise refusal(
            "order",
            f"no order for the words {listed(classes)}, with the likelihood 'ordinal'",
            "all classes from the lowest to the highest",
            f"Pass them in their order: --order {proposal} (in Python"
            f" order={list(classes)}) is the order of the alphabet.",
        )
    data.notes.append(
        f"The classes of '{data.y.name}' are in the order"
        f" {' < '.join(classes[places])} (--order A,B,... sets another order)."
    )


def _unfit(setting: str, column: "pd.Series[Any]", kind: str, kinds: str) -> ValueError:
    """Refuse a column of another kind, with a cell and the forms of dates."""
    cell = next(iter(column.dropna()), None)
    got = f"{str(column.name)!r}, a column of the kind {kind}, such as {cell!r}"
    forms = ", ".join(form.example for form in FORMS)
    expected = f"{kinds}, with dates in one of the forms {forms}"
    return refusal(
        setting, got, expected, "Choose another column, or change its cells."
    )


def _check_that_time_rises(times: "pd.Series[Any]") -> None:
    """Refuse numbers that may be months and years, as 1.2024 is before 2.2023."""
    if not may_be_months(times.to_numpy(dtype=np.float64)):
        return
    value = times.dropna().iloc[0]
    got = (
        f"'{times.name}' with numbers such as {value:.15g}, which may be the month"
        f" {as_month_with_point(value)}; as numbers they are not in the order of time"
    )
    expected = "dates, or numbers that rise with time, such as 2023.083"
    remedy = "Write months as 2023-01, Jan 2023 or 01/2023."
    raise refusal("time_column", got, expected, remedy)


def _namesakes(data: Cleaned, groups: "pd.Series[Any]") -> list[str]:
    """Find inputs that also identify the groups, such as a second identifier of each
    patient.
    """
    names = []
    for name in data.X:
        pairs = (
            pd.DataFrame({"group": groups, "other": data.X[name]})
            .dropna()
            .drop_duplicates()
        )
        may_name = data.formats[name].kind == "text" or _WHOSE.fullmatch(name)
        if may_name and pairs["group"].is_unique and pairs["other"].is_unique:
            names.append(name)
    return names if len(names) < data.X.shape[1] else []


def _check_parts(data: Cleaned, settings: Settings) -> None:
    """Check that each part has enough rows to train on and to score, also of each
    class.
    """
    names = "test_fraction", "horizon", "splits"
    least = max(2, data.num_classes)
    setting = next(
        (name for name in names if getattr(settings, name) is not None), "folds"
    )
    value = getattr(settings, setting) or settings.parts()[1]
    rows = counted(len(data.X), "row")
    if data.blocks is not None:
        rows = f"{data.blocks.nunique()} different values of '{data.blocks.name}'"
    try:
        parts = list(parts_of(data, settings))
    except ValueError:
        # scikit-learn finds too few rows, groups or members of a class.
        parts = [(np.arange(0), np.arange(0))]
    least_trained = least
    if settings.time_column is not None:
        least_trained = max(least, int(np.ceil(LEAST_TRAINED * len(data.X))))
    for train, test in parts:
        missing = {*data.y} - {*data.y.iloc[train]} if data.kind == "classes" else ()
        if missing or len(train) < least_trained or len(test) < least:
            got = f"{value} for {rows}, which trains on {counted(len(train), 'row')}"
            got += (
                f", none of class {listed(sorted(missing))},"
                if missing and len(train)
                else ""
            )
            expected = f"at least {least} rows each, and training rows of every class"
            if least_trained > least:
                expected += f", and a third of the rows in training ({least_trained})"
            remedy = "Choose a smaller number, or --splits 1."
            raise refusal(setting, f"{got} and holds out {len(test)}", expected, remedy)


def _unused_columns(
    table: pd.DataFrame, data: Cleaned, settings: Settings, command: str
) -> Iterator[str]:
    """Warn of columns of times, and of identifiers of groups, that may have to decide
    how rows are held out.
    """
    times, groups = _times_and_groups(table.loc[data.X.index], data)
    random = "and rows are held out at random. If"
    run = f"the scores are too optimistic: run {command}"
    if times:
        is_year, _, name, number = min(times)
        kind = "years" if is_year else "dates"
        yield (
            f"Column '{name}' has {kind}, {random} the model is to predict later rows,"
            f" {run} {_flag('time_column', name, number - 1, settings)}."
        )
    if groups:
        groups = sorted(groups)
        _, minus_number, name = groups[0]
        flag = _flag("group_column", name, -minus_number, settings)
        remedy = f"the scores are too optimistic: run the same command with {flag}"
        remedy += " instead of --time-column"
        if not times:
            remedy = f"{run} {flag}"
        columns = "Column" if len(groups) == 1 else "Columns"
        yield (
            f"{columns} {listed(name for *_, name in groups)} may identify groups of"
            f" rows, {random} rows of one '{name}' belong together, and new rows come"
            f" from other ones, {remedy}."
        )


def _times_and_groups(
    table: pd.DataFrame, data: Cleaned
) -> tuple[list[tuple[bool, bool, str, int]], list[tuple[bool, int, str]]]:
    """Find columns of times, and of identifiers: their rank, name and number of values.

    Dates come before years, and columns that increase from row to row come last. Among
    identifiers, columns with the name of an identifier come first, and then columns
    with many values.
    """
    times: list[tuple[bool, bool, str, int]] = []
    groups: list[tuple[bool, int, str]] = []
    inputs = table.columns.difference(data.target_names, sort=False)
    for name in map(str, inputs):
        kind, values = _read(table[name], data)
        if kind == "other":
            continue
        values = values.dropna()
        count = values.nunique()
        is_year = kind == "number" and bool(_YEAR.fullmatch(name))
        least = 3 if is_year else MIN_ROWS
        if (is_year or kind == "date") and count >= least:
            times.append((is_year, values.is_monotonic_increasing, name, count))
        elif kind in ("number", "text") and not is_year:
            is_named = is_whose(name, count)
            if _repeats(values, data.targets, is_named):
                groups.append((not is_named, -count, name))
    return times, groups


def _read(
    column: "pd.Series[Any]", data: Cleaned, literal: bool = False
) -> tuple[str, "pd.Series[Any]"]:
    """Return the kind and the values of a column. An input is not read again."""
    name = str(column.name)
    if name in data.X:
        return data.formats[name].kind, data.X[name]
    known = data.X.attrs["conventions"]
    reading = Reading(column, known, literal)
    return reading.form.kind, reading.values


def is_whose(name: str, count: int) -> bool:
    """Whether a column with this number of values has the name of an identifier."""
    if not _WHOSE.fullmatch(name):
        return False
    return count >= _FEWEST_GROUPS or not _KIND.fullmatch(name)


def _flag(setting: str, name: str, most: int, settings: Settings) -> str:
    """Write the option for a column, with fewer folds if the column has few values."""
    few = (
        f" --folds {most}"
        if most < settings.parts()[1] and settings.splits is None
        else ""
    )
    return (
        f"--{setting.replace('_', '-')} {shlex.quote(name)}{few} (in Python"
        f" {setting}={name!r})"
    )


def _repeats(values: "pd.Series[Any]", targets: Any, is_named: bool) -> bool:
    """Whether words or whole numbers have several rows each and identify groups, by the
    name of the column or because they explain a target.
    """
    if values.dtype == np.float64 and (values % 1.0).any():
        return False
    counts = values.value_counts()
    several = len(counts) > 2 and counts[counts > 1].sum() > 0.5 * len(values)
    return several and (is_named or any(_explains(values, y) for y in targets))


def _explains(values: "pd.Series[Any]", y: "pd.Series[Any]") -> bool:
    """Whether a column has many values that explain the target, and neighbouring
    numbers do not predict each other.
    """
    values, count = values[y[values.index].notna()], values.nunique()
    if not _FEWEST_GROUPS <= count <= len(values) / 2:
        return False
    target = (pd.get_dummies(y) if y.dtype == object else y.to_frame()).loc[
        values.index
    ] * 1.0
    means = target.groupby(values).mean()
    unexplained = ((target - means.loc[values].to_numpy()) ** 2).sum() / (
        len(values) - count
    )
    alike = means.corrwith(means.shift()).abs() * (values.dtype == np.float64)
    return bool(
        ((unexplained < (1.0 - _EXPLAINED) * target.var()) & (alike < _ALIKE)).any()
    )


def _note_equal_inputs(data: Cleaned, settings: Settings) -> Cleaned:
    """Add a note on rows with the same inputs, if there are any."""
    groups = _equal_inputs(data.X)
    repeated = np.bincount(groups)[groups] > 1
    if not repeated.any():
        return data
    same_target = pd.concat([data.X, data.y], axis=1).duplicated(keep=False).sum()
    note = (
        f"{repeated.sum()} of {len(groups)} rows have the same inputs as another row,"
        f" {same_target} of them also the same target. "
    )
    kind, count, _ = settings.parts()
    if not settings.together:
        note += (
            "With --no-together, some of them are in training while others are held"
            " out."
        )
    elif _are_enough(data, groups, settings):
        note += (
            "Rows with the same inputs are held out together, so that no row is"
            " predicted from"
        )
        note += " its copy (--no-together switches this off)."
    else:
        note += (
            f"There are {groups.max() + 1} different inputs, too few to hold out each"
            f" in one of {counted(count, kind)}. Rows with the same inputs are"
            " therefore both in training and held out, and the scores are for rows"
            " whose inputs were seen in training."
        )
    return data._replace(notes=[*data.notes, note])


def parts_of(
    data: Cleaned, settings: Settings
) -> Iterator[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
    """Return training rows and held-out rows of each part, in increasing order.

    Windows follow each other in time, the latest first. Unless the user sets their
    length, they are as long as in scikit-learn's ``TimeSeriesSplit``, or shorter, so
    that each trains on at least :data:`LEAST_TRAINED` of the rows. Unless the user sets
    their number, windows that train on fewer rows are left out.

    Rows with the same inputs are in the same part if there are enough other rows.
    Without such rows, parts are the same as from scikit-learn's splitters.
    """
    kind, count, fraction = settings.parts()
    if kind == "window":
        yield from _windows(data, settings)
        return
    classes = data.kind == "classes"
    every = np.arange(len(data.X))
    groups = _equal_inputs(data.X) if settings.together else every
    if data.blocks is not None:
        groups = pd.factorize(data.blocks)[0]
    elif not _are_enough(data, groups, settings):
        groups = every
    _, firsts = np.unique(groups, return_index=True)
    by, group = ((groups,), "Group") if data.blocks is not None else ((), "")
    rows = every if by else firsts
    stratified = "Stratified" if classes else ""
    name = (
        f"{stratified}{group}KFold"
        if kind == "fold"
        else f"{group or stratified}ShuffleSplit"
    )
    options = {"shuffle": True} if kind == "fold" else {"test_size": fraction}
    options = {} if name == "GroupKFold" else {**options, "random_state": settings.seed}
    splitter = getattr(model_selection, name)(count, **options)
    with warnings.catch_warnings():
        # scikit-learn warns if a class has fewer rows than there are folds, because
        # some folds then hold out none.
        warnings.filterwarnings("ignore", message="The least populated class")
        for train, test in splitter.split(rows[:, None], data.y.iloc[rows], *by):
            train = groups[rows[train]]
            test = groups[rows[test]]
            yield (
                np.flatnonzero(np.isin(groups, train)),
                np.flatnonzero(np.isin(groups, test)),
            )


def _windows(
    data: Cleaned, settings: Settings
) -> Iterator[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
    """Return the rows before each window, and the rows of the window."""
    _, count, fraction = settings.parts()
    times, place = np.unique(data.blocks, return_inverse=True)
    size = settings.horizon or int(len(times) * fraction + 1e-9)  # 2 are 1/6 of 12
    least = LEAST_TRAINED * len(place)
    if settings.horizon is None and settings.test_fraction is None:
        enough = int(np.searchsorted(np.cumsum(np.bincount(place)), least)) + 1
        size = max(1, min(size, (len(times) - enough) // count))
    as_many_as_fit = settings.folds is None and settings.splits is None
    for window in range(count):
        end = len(times) - window * size
        train = np.flatnonzero(place < end - size)
        if window > 0 and as_many_as_fit and len(train) < least:
            return
        yield train, np.flatnonzero((place >= end - size) & (place < end))


def _are_enough(
    data: Cleaned, groups: npt.NDArray[np.int64], settings: Settings
) -> bool:
    """Whether rows with the same inputs can be held out together: there are enough
    others.
    """
    kind, count, fraction = settings.parts()
    _, firsts = np.unique(groups, return_index=True)
    in_each = len(firsts) * min(fraction, 1.0 - fraction)
    # If most rows repeat the inputs of others, a part needs as many distinct rows as a
    # table.
    if in_each < 2.0 or (2 * len(firsts) < len(groups) and in_each < MIN_ROWS):
        return False
    if data.kind == "numbers":
        return True
    sizes = data.y.iloc[firsts].value_counts()
    if len(sizes) < data.y.nunique() or in_each < len(sizes):
        return False
    return bool(sizes.max() >= count if kind == "fold" else sizes.min() >= 2)
