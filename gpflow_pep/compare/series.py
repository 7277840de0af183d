"""Series in a table with a time column: the order of rows in each series, and baselines
that repeat a value of the past.
"""

from typing import Any

import numpy as np
import pandas as pd
from gpflow.base import AnyNDArray
from sklearn.base import BaseEstimator, RegressorMixin, TransformerMixin

from ..tables.cleaning import Cleaned
from ..tables.encodings import CYCLES
from ..tables.formats import days
from .partition import is_whose

#: The baseline that repeats the last value, and the one that repeats the value of the
#: same season before.
LAST_VALUE = "last value"
SAME_SEASON = "same season before"
#: The columns of :func:`rows_in_time`.
TIME = "time"
SERIES = "series"
#: Columns are added to the names of series until at most this share of the rows repeats
#: a time of its series, because a few rows may be in the table twice.
MOST_REPEATED = 0.05
#: Columns do not define series if series would have fewer rows than this on average.
FEWEST_ROWS = 3.0
#: A table has a season if it covers two of them. Two years of months are a little less
#: than twice 365.25 days.
LEAST_SEASONS = 1.99
#: If a series lacks the value of one season before, so many seasons are searched.
MOST_SEASONS = 3


def series_of(data: Cleaned) -> "pd.Series[str] | None":
    """Return the name of the series of each row, made of words such as a shop; None if
    there is only one series.

    Columns are added to the name one by one. Each time the column is chosen with which
    the fewest rows share the time of another row of their series. The columns have
    words, or whole numbers and the name of an identifier.

    :param data: A table with a time column.
    """
    names: list[str] = []
    num_rows = len(data.X)
    distinct = data.blocks.nunique()
    columns = [str(name) for name in data.X if _may_name_series(data, str(name))]
    while distinct < (1.0 - MOST_REPEATED) * num_rows:
        after = {}
        for name in columns:
            keys = data.X[[*names, name]]
            if name in names or len(keys.drop_duplicates()) * FEWEST_ROWS > num_rows:
                continue
            after[name] = len(pd.concat([data.blocks, keys], axis=1).drop_duplicates())
        best = max(after, key=after.__getitem__, default="")
        if after.get(best, 0) <= distinct:
            break
        names.append(best)
        distinct = after[best]
    if not names:
        return None
    texts = [data.X[name].map(_text_of) for name in names]
    return pd.concat(texts, axis=1).agg(", ".join, axis=1)


def _may_name_series(data: Cleaned, name: str) -> bool:
    column = data.X[name]
    if data.formats[name].kind == "text":
        return True
    if data.formats[name].kind != "number" or (column.dropna() % 1.0).any():
        return False
    return is_whose(name, column.nunique())


def _text_of(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def rows_in_time(data: Cleaned) -> pd.DataFrame:
    """Return the time of each row, in days if the time column has dates, and the number
    of its series.
    """
    times = _as_numbers(data.blocks)
    series = series_of(data)
    numbers = 0 if series is None else pd.factorize(series)[0]
    return pd.DataFrame({TIME: times, SERIES: numbers}, index=times.index)


def _as_numbers(times: "pd.Series[Any]") -> "pd.Series[float]":
    """Return times as numbers, in days if they are dates."""
    is_date = pd.api.types.is_datetime64_any_dtype(times)
    return days(times) if is_date else times.astype(np.float64)


def spacing(times: "pd.Series[Any]") -> float:
    """Compute the median distance of distinct times, in days if they are dates."""
    return float(np.median(np.diff(np.unique(_as_numbers(times)))))


def season_of(times: "pd.Series[Any]") -> str | None:
    """Find the season of dates, by its name in :data:`CYCLES`: the shortest of day,
    week and year that contains two dates or more and that the dates cover twice; None
    if there is none, or if times are numbers.
    """
    if not pd.api.types.is_datetime64_any_dtype(times):
        return None
    step = spacing(times)
    covered = np.ptp(_as_numbers(times)) + step
    for name in ("day", "week", "year"):
        if 2.0 * step <= CYCLES[name] and covered >= LEAST_SEASONS * CYCLES[name]:
            return name
    return None


class RowsInTime(TransformerMixin, BaseEstimator):
    """Turn rows of a table into their times and series, by their index.

    :param rows: The table of :func:`rows_in_time`.
    """

    def __init__(self, rows: pd.DataFrame) -> None:
        self.rows = rows

    def fit(self, X: pd.DataFrame, y: Any = None) -> "RowsInTime":
        """Do nothing."""
        return self

    def transform(self, X: pd.DataFrame) -> AnyNDArray:
        """Return times and series, [N, 2]."""
        return self.rows.loc[X.index, [TIME, SERIES]].to_numpy(dtype=np.float64)

    def __sklearn_is_fitted__(self) -> bool:
        return True


class PastValue(RegressorMixin, BaseEstimator):
    """Predict that a value of the past repeats: the value of the same series in the
    same season before, going back as many seasons as needed to find training rows, and
    otherwise the last value. The prediction is the mean of all training rows for a
    series without training rows. Rows of the same series and time are averaged.

    The inputs come from :class:`RowsInTime`.

    :param season: The length of a season; None predicts the last value.
    :param step: The distance between times. A value of the same season is at most half
        of this distance away.
    """

    def __init__(self, season: float | None = None, step: float = 1.0) -> None:
        self.season = season
        self.step = step

    def fit(self, X: AnyNDArray, y: AnyNDArray) -> "PastValue":
        """Store the values, y [N]."""
        rows = pd.DataFrame({TIME: X[:, 0], SERIES: X[:, 1], "value": y})
        self.values_ = rows.groupby([TIME, SERIES], as_index=False)["value"].mean()
        self.mean_ = float(np.mean(y))
        return self

    def predict(self, X: AnyNDArray) -> AnyNDArray:
        """Predict the values of rows, [N]."""
        values = self._values_at(X[:, 0], X[:, 1], direction="backward")
        if self.season is not None:
            same_season = self._same_season(X, self.season)
            values = np.where(np.isnan(same_season), values, same_season)
        return np.where(np.isnan(values), self.mean_, values)

    def _same_season(self, X: AnyNDArray, season: float) -> AnyNDArray:
        """Return the latest value of the same season, [N]; NaN if there is none."""
        ahead = X[:, 0] - self.values_[TIME].max()
        fewest = np.maximum(np.ceil((ahead - 0.5 * self.step) / season), 1.0)
        values = np.full(len(X), np.nan)
        nearest = {"direction": "nearest", "tolerance": 0.5 * self.step}
        for more in range(MOST_SEASONS):
            times = X[:, 0] - (fewest + more) * season
            earlier = self._values_at(times, X[:, 1], **nearest)
            values = np.where(np.isnan(values), earlier, values)
        return values

    def _values_at(
        self, times: AnyNDArray, series: AnyNDArray, **options: Any
    ) -> AnyNDArray:
        """Look up the value of a series at a time, [N], with ``pandas.merge_asof``."""
        rows = pd.DataFrame({TIME: times, SERIES: series}).sort_values(TIME)
        index = rows.index
        joined = pd.merge_asof(rows, self.values_, on=TIME, by=SERIES, **options)
        return joined["value"].set_axis(index).sort_index().to_numpy()
