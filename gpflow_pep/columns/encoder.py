"""Tables turned into numbers, for all that takes arrays of them."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from ..refusals import refusal
from .formats import Format, read_cells

#: In days. A cycle is one where the dates cover it twice, and their places in it differ.
CYCLES = {"year": 365.2425, "day": 1.0}
#: Values of a text column that have a column of their own, at most.
MAX_CATEGORIES = 20
_MAX_SIZE = 1e100
_EPOCH = pd.Timestamp(0)


class Encoding(NamedTuple):
    """
    What was learnt of a column.

    :param missing: Whether a value was missing, so that a column says where one is.
    :param median: What takes the place of a missing number or date.
    :param cycles: Of dates, those of :data:`CYCLES` that are given as sine and cosine too.
    :param others: Whether there is a column for all other values.
    """

    missing: bool
    median: float = 0.0
    cycles: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    others: bool = False


class TableEncoder(TransformerMixin, BaseEstimator):
    """
    Turn columns of a table, found by name, into numbers: a scikit-learn transformer.

    Numbers stay; dates become days since 1970-01-01, and the sine and cosine of the year and of the
    time of day where there are at least two years or days; text becomes a column of 0 and 1 for
    each of the most frequent values, and one for the others. A missing number is replaced by the
    median, and a column of 0 and 1 says where, for columns in which ``fit`` found some.

    All that ``fit`` learns is in ``encodings_``, :class:`Encoding` by column: plain numbers and
    words, which can be saved and read whatever the version of scikit-learn. That is why it is not
    made of scikit-learn's own transformers.

    :param formats: How the cells of each column are read, :class:`~gpflow_pep.columns.Format` by
        name. Other columns are refused.
    :param max_categories: The most values of a text column that have a column of their own.
    """

    encodings_: dict[str, Encoding]
    feature_names_in_: npt.NDArray[np.object_]
    n_features_in_: int

    def __init__(
        self,
        formats: dict[str, Format],
        *,
        max_categories: int = MAX_CATEGORIES,
        min_count: int = 2,
    ) -> None:
        self.formats = formats
        self.max_categories = max_categories
        self.min_count = min_count

    def fit(self, X: pd.DataFrame, y: Any = None) -> "TableEncoder":
        """
        Learn medians and values.

        :param X: A table with the columns of ``formats``, in any order, and no others.
        :param y: Not used.
        :raises ValueError: If the columns are others, or a cell cannot be read.
        """
        table = self._read(X)
        return self.restore({name: self._learn(name, column) for name, column in table.items()})

    def restore(self, encodings: dict[str, Encoding]) -> "TableEncoder":
        """
        Take what another one learnt, in place of ``fit``.

        :param encodings: Its ``encodings_``.
        :raises ValueError: If they are not of the columns of ``formats``.
        """
        if list(encodings) != list(self.formats):
            got, remedy = f"those of {listed(encodings)}", "Pass those of the same formats."
            raise refusal("encodings", got, listed(self.formats), remedy)
        self.encodings_ = encodings
        self.feature_names_in_ = np.array(list(self.formats), dtype=object)
        self.n_features_in_ = len(self.formats)
        return self

    def transform(self, X: pd.DataFrame) -> npt.NDArray[np.float64]:
        """
        Turn a table into numbers, [N, number of names].

        :param X: A table with the columns that it was fitted on, in any order, and no others.
        :raises ValueError: If the columns are others, or a cell cannot be read.
        """
        check_is_fitted(self)
        table = self._read(X)
        encoded = [values for name in table for _, values in self._encode(name, table[name])]
        num_rows = len(next(iter(table.values()), ()))
        return np.array(encoded, dtype=np.float64).reshape(len(encoded), num_rows).T

    def get_feature_names_out(self, input_features: Any = None) -> npt.NDArray[np.object_]:
        """Give the names of the numbers."""
        check_is_fitted(self)
        none = pd.Series([], dtype=np.float64)
        names = [name for column in self.formats for name, _ in self._encode(column, none)]
        return np.array(names, dtype=object)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "encodings_")

    def _read(self, X: Any) -> "dict[str, pd.Series[Any]]":
        X = as_table(X, "X")
        columns = list(X.columns)
        absent = [name for name in self.formats if columns.count(name) != 1]
        if absent:
            got = f"no column (or more than one) {listed(absent)} among {listed(columns)}"
            expected = f"the columns {listed(self.formats)} once each"
            raise refusal("X", got, expected, "Add or rename them.")
        foreign = [name for name in columns if name not in self.formats]
        if foreign:
            expected = f"{listed(self.formats)} and no others"
            remedy = "Choose them: X[list(model.feature_names_in_)]."
            raise refusal("X", f"the columns {listed(foreign)}", expected, remedy)
        return {
            name: check_cells(name, _in_days(read_cells(X[name], form)))
            for name, form in self.formats.items()
        }

    def _learn(self, name: str, column: "pd.Series[Any]") -> Encoding:
        missing = bool(column.isna().any())
        kind = self.formats[name].kind
        if kind == "text":
            counts = column.value_counts()
            frequent = counts[counts >= self.min_count].sort_index().nlargest(self.max_categories)
            words = tuple(sorted(frequent.index))
            return Encoding(missing, categories=words, others=len(words) < len(counts))
        values = column.dropna().to_numpy()
        median = float(np.median(values)) if len(values) else 0.0
        return Encoding(missing, median, _cycles(values) if kind == "date" else ())

    def _encode(self, name: str, column: "pd.Series[Any]") -> list[tuple[str, Any]]:
        """Turn a column into others, each with its name."""
        learnt, none = self.encodings_[name], column.isna().to_numpy()
        if self.formats[name].kind == "text":
            words = column.to_numpy()
            parts = [(f"{name}={category}", words == category) for category in learnt.categories]
            if learnt.others:
                others = ~none & ~column.isin(learnt.categories).to_numpy()
                parts.append((f"{name}=(other)", others))
        else:
            values = column.fillna(learnt.median).to_numpy()
            parts = [(name, values)]
            for cycle in learnt.cycles:
                angle = 2.0 * np.pi * values / CYCLES[cycle]
                parts.append((f"{name}: sine of {cycle}", np.sin(angle)))
                parts.append((f"{name}: cosine of {cycle}", np.cos(angle)))
        return [*parts, *[(f"{name} missing", none)] * learnt.missing]


def as_table(frame: Any, name: str) -> pd.DataFrame:
    """
    Take a table of pandas or polars as one of pandas, with column names that are text.

    :raises ValueError: If it is no table.
    """
    if hasattr(frame, "to_pandas"):
        try:
            frame = frame.to_pandas()
        except ImportError as error:
            expected = f"that pyarrow is installed ({error})"
            remedy = "Run: pip install 'gpflow-pep[parquet]'."
            raise refusal(name, "a table of polars", expected, remedy) from error
    if not isinstance(frame, pd.DataFrame):
        expected = "a table: a pandas or polars DataFrame"
        remedy = "Make one: pandas.DataFrame(values, columns=names)."
        raise refusal(name, type(frame).__name__, expected, remedy)
    return frame.set_axis([str(column) for column in frame.columns], axis=1)


def check_cells(name: str, column: "pd.Series[Any]") -> "pd.Series[Any]":
    """
    Refuse numbers that are infinite or so large that their squares are.

    :raises ValueError: If there is one; it names the column and the row.
    """
    if column.dtype == np.float64:
        large = (column.abs() > _MAX_SIZE).to_numpy()
        if large.any():
            row = int(np.argmax(large))
            place = f"row {row} (rows count from 0), and {int(large.sum())} such value(s) in all"
            got, expected = f"{column.iloc[row]} in {place}", f"numbers below {_MAX_SIZE:g} in size"
            remedy = "Correct them, or leave the cells empty."
            raise refusal(f"column '{name}'", got, expected, remedy)
    return column


def _in_days(column: "pd.Series[Any]") -> "pd.Series[Any]":
    if pd.api.types.is_datetime64_any_dtype(column):
        return (column - _EPOCH) / pd.Timedelta(days=1)
    return column


def _cycles(days: npt.NDArray[np.float64]) -> tuple[str, ...]:
    if not len(days):
        return ()
    return tuple(
        name
        for name, period in CYCLES.items()
        if np.ptp(days) >= 2.0 * period and np.ptp(days % period) > 1e-6
    )


def listed(names: Any, most: int = 8) -> str:
    """Give names for a message."""
    names = [repr(str(name)) for name in names]
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
