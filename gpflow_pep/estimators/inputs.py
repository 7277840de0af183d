"""What is done to the inputs of estimators before scikit-learn checks them."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse

from ..checks import refusal

#: The most numbers of a sparse matrix, zeros included, which is made dense: 400 MB.
MAX_DENSE = 50_000_000


@contextmanager
def words_refused(X: Any) -> Iterator[None]:
    """Name the columns of a table that are no numbers, where a check of it fails."""
    try:
        yield
    except (TypeError, ValueError) as error:
        if not isinstance(X, pd.DataFrame):
            raise
        numbers = (pd.api.types.is_numeric_dtype, pd.api.types.is_bool_dtype)
        words = [str(name) for name in X.columns if not any(is_(X[name]) for is_ in numbers)]
        if not words:
            raise
        raise refusal(
            "X",
            f"the column(s) {', '.join(map(repr, words))} of words, dates or mixed cells",
            "numbers",
            "Put gpflow_pep.compare.make_preparation(X) before it in a pipeline, which makes"
            " numbers of them, or encode them yourself.",
        ) from error


def dense(X: Any) -> Any:
    """Make an array of a sparse matrix; refuse it if it would be too large."""
    if not scipy.sparse.issparse(X):
        return X
    if np.prod(X.shape, dtype=np.float64) > MAX_DENSE:
        raise refusal(
            "X",
            f"a sparse matrix of shape {X.shape}",
            f"at most {MAX_DENSE:,} numbers, zeros included, because it is made dense",
            "Reduce its columns, for example by sklearn.decomposition.TruncatedSVD; predict some"
            " rows at a time.",
        )
    return X.toarray()


def refuse_weights(refused: dict[str, Any]) -> None:
    """Refuse other arguments that ``fit`` of scikit-learn's estimators takes, by a TypeError."""
    if "sample_weight" in refused:
        raise TypeError(
            "sample_weight: got weights, expected none: the likelihood of a Gaussian process says"
            " how much a row counts. Pass noise that depends on the input as the likelihood, or"
            " repeat rows."
        )
    if refused:
        raise TypeError(f"fit: got {', '.join(refused)}, expected X and y only. Leave them out.")
