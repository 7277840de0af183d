"""Checks and conversions of the inputs of estimators, before scikit-learn checks
them.
"""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse
from sklearn.preprocessing import PowerTransformer, StandardScaler
from sklearn.utils import check_random_state

from ...distributions import YeoJohnson
from ...engine.refusals import as_code, counted, refusal
from ...engine.refusals.arrays import AnyNDArray, refuse_masked

#: The largest size, zeros included, of a sparse matrix that is made dense: 400 MB.
MAX_DENSE = 50_000_000
#: The transform of inputs other than standardising.
YEO_JOHNSON = "yeo-johnson"
#: The largest number of rows by which the powers are chosen: a million rows of ten
#: columns would take ten seconds.
ROWS_OF_POWERS = 20_000
#: A bent column with a smaller standard deviation than this is nearly constant.
LEAST_SPREAD = 1e-4
#: An input is wild if its column has less than this fraction of its standard deviation
#: without it. On 100 rows R² stays at .99 with a fraction of .01, and falls to .5 and
#: .7 with .001.
NEARLY_ONE = 0.003


@contextmanager
def words_refused(X: Any) -> Iterator[None]:
    """If a check of a table fails, raise an error with the names of the columns that
    are not numbers.
    """
    try:
        yield
    except (TypeError, ValueError) as error:
        if not hasattr(X, "columns"):
            raise
        columns = zip(X.columns, X.dtypes, strict=True)
        names = [str(name) for name, dtype in columns if not _is_number(dtype)]
        if not names:
            raise
        raise refusal(
            "X",
            f"the column(s) {', '.join(map(repr, names))} of words, dates or mixed"
            " cells",
            "numbers",
            "Put gpflow_pep.compare.make_preparation(X) before the estimator in a"
            " pipeline, which turns these columns into numbers, or encode them"
            " yourself.",
        ) from error


def _is_number(dtype: Any) -> bool:
    if hasattr(dtype, "is_numeric"):  # a table of polars
        return bool(dtype.is_numeric())
    return pd.api.types.is_numeric_dtype(dtype) or pd.api.types.is_bool_dtype(dtype)


def check_table(name: str, values: Any) -> None:
    """Refuse several columns with the same name, masked values, and an array of dates,
    which scikit-learn would read as numbers.
    """
    refuse_masked(name, values)
    columns = [str(column) for column in getattr(values, "columns", ())]
    copies = sorted({column for column in columns if columns.count(column) > 1})
    if copies:
        got = f"more than one column named {', '.join(map(repr, copies))}"
        raise refusal(name, got, "different names", "Rename or remove the copies.")
    dtypes = np.ravel(
        np.array(getattr(values, "dtypes", getattr(values, "dtype", "")), object)
    )
    are_dates = [
        str(kind).lower().startswith(("date", "timedelta", "duration"))
        for kind in dtypes
    ]
    # Columns of words in X are reported later.
    if all(are_dates) or (name == "y" and any(are_dates)):
        remedy = (
            "Convert them to days: (dates - dates.min()) / pandas.Timedelta(days=1)."
        )
        raise refusal(name, "dates or durations", "numbers", remedy)


def filled(y: Any) -> Any:
    """Replace missing targets or labels, such as None, pandas.NA and NaT, by NaN.

    Arrays, tables and columns of plain numbers stay as they are.
    """
    if isinstance(y, pd.DataFrame):
        columns = [filled(y.iloc[:, place]) for place in range(y.shape[1])]
        return pd.concat(columns, axis=1) if columns else y
    if isinstance(y, pd.Series):
        if isinstance(y.dtype, np.dtype) and y.dtype != object:
            return y
        missing = y.isna()
        return y.astype(object).where(~missing, np.nan) if missing.any() else y
    if isinstance(y, (list, tuple, pd.Index, pd.api.extensions.ExtensionArray)):
        try:  # as objects, because among words NaN would become the word "nan"
            values = np.array(y, dtype=object)
        except ValueError:  # rows have different lengths
            return y
    else:
        values = y
    if not isinstance(values, np.ndarray) or values.dtype != object:
        return y
    missing = pd.isna(values)
    return np.where(missing, np.nan, values) if missing.any() else y


def refuse_missing(y: Any, noun: str) -> None:
    """Refuse a :func:`filled` column of targets or labels if one is missing."""
    refuse_masked("y", y)
    try:
        missing = np.asarray(pd.isna(np.asarray(y)))
    except (TypeError, ValueError):  # this is not an array: other checks describe it
        return
    if missing.ndim and missing.any():
        count = np.sum(missing.reshape(len(missing), -1).any(axis=1))
        raise refusal(
            "y",
            f"no {noun} in {counted(int(count), 'row')} of {len(missing)}",
            f"a {noun} in each row",
            f"Leave out the rows without a {noun}.",
        )


def dense(X: Any) -> Any:
    """Convert a sparse matrix to an array; refuse it if the array would be too
    large.
    """
    if not scipy.sparse.issparse(X):
        return X
    if np.prod(X.shape, dtype=np.float64) > MAX_DENSE:
        raise refusal(
            "X",
            f"a sparse matrix of shape {X.shape}",
            f"at most {MAX_DENSE:,} numbers, zeros included, because the matrix is"
            " made dense",
            "Reduce its columns, for example by sklearn.decomposition.TruncatedSVD;"
            " predict some rows at a time.",
        )
    return X.toarray()


def check_sizes(name: str, values: AnyNDArray) -> None:
    """Refuse numbers [N, ...] that are so large that a sum of their squares is
    infinite, or so small that squares are 0.
    """
    most = np.sqrt(np.finfo(values.dtype).max / (4.0 * max(len(values), 1)))
    large = np.abs(values) > most
    if large.any():
        row = int(np.argwhere(large)[0, 0])
        got = f"{values[large][0]:g} in row {row} (rows count from 0)"
        raise refusal(
            name, got, f"numbers below {most:.2g} in size", "Correct or rescale them."
        )
    largest = np.max(np.abs(values), initial=0.0)
    least = np.sqrt(np.finfo(values.dtype).tiny)
    if 0.0 < largest < least:
        raise refusal(
            name, f"at most {largest:g}", f"values above {least:.2g}", "Rescale them."
        )


def warn_of_wild_numbers(X: AnyNDArray, names: Sequence[Any], name: str = "X") -> None:
    """Warn of numbers in X [N, D] that are so far from the rest of their column that
    the rest looks constant.
    """
    apart = np.abs(X - np.median(X, axis=0))
    for column, row in enumerate(np.argmax(apart, axis=0)):
        spread = np.std(np.delete(X[:, column], row))
        if 0.0 < spread < NEARLY_ONE * np.std(X[:, column]):
            label = repr(names[column]) if len(names) else column
            warnings.warn(
                f"{name}: got {X[row, column]:g} in column {label}, row {row} (rows"
                " count from 0), so far from the others, with a standard deviation of"
                f" {spread:.2g}, that they look constant beside it. Correct it, or"
                " leave the row out.",
                stacklevel=4,
            )


def listed(settings: Mapping[str, Any]) -> str:
    """List settings in words: strings and numbers with their values, other objects only
    by name.
    """
    names = []
    for name, value in settings.items():
        plain = isinstance(value, str | int | float | tuple | type(None))
        names.append(f"{name}={as_code(value)}" if plain else name)
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def refuse_weights(refused: dict[str, Any]) -> None:
    """Refuse other arguments of ``fit``, such as the weights of scikit-learn, with a
    TypeError.
    """
    if refused.pop("sample_weight", None) is not None:
        raise TypeError(
            "sample_weight: got weights, expected no weights, because the likelihood"
            " defines how much a row counts. Pass error bars instead (see 'What is"
            " known of each row' in the documentation)."
        )
    if refused:
        raise TypeError(
            f"fit: got {', '.join(refused)}, expected X and y only. Leave them out."
        )


def seed_of(random_state: Any) -> int:
    """Draw a seed from a seed, from an old or new generator of NumPy, or from None."""
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**31 - 1))
    try:
        return int(check_random_state(random_state).randint(2**31 - 1))
    except ValueError as error:
        expected = "None, a whole number, or a generator of numpy.random"
        raise refusal(
            "random_state", repr(random_state), expected, "Pass 0."
        ) from error


def fit_yeo_johnson(X: AnyNDArray, straight: int | None = None) -> YeoJohnson:
    """
    Choose the power of each standardised column of X [N, D] by maximum likelihood. A
    column stays standardised if its transform is not finite or nearly constant.

    :param straight: A column that stays standardised in any case; None for no such
        column.
    """
    scaler = StandardScaler().set_output(transform="default").fit(X)
    standard = scaler.transform(X)
    ones = np.ones(X.shape[1])
    zeros = np.zeros(X.shape[1])
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        sample = standard[:: len(X) // ROWS_OF_POWERS + 1]
        powers = PowerTransformer(standardize=False).fit(sample).lambdas_
        bent = YeoJohnson(zeros, ones, powers, zeros, ones).bend(standard)
        known = np.isfinite(bent).all(axis=0) & (np.std(bent, axis=0) > LEAST_SPREAD)
        if straight is not None:
            known[straight] = False
        mean = np.mean(bent, axis=0)
        scale = np.std(bent, axis=0)
    second = (
        np.where(known, *pair)
        for pair in ((powers, ones), (mean, zeros), (scale, ones))
    )
    return YeoJohnson(scaler.mean_, scaler.scale_, *second)
