"""Conversion of tables to numbers, as a scikit-learn transformer."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from ..engine.refusals import refusal
from .conventions import Conventions
from .encodings import (
    MAX_CATEGORIES,
    Encoding,
    encode_table,
    encoded_names,
    learn,
    listed,
    read_columns,
    unusual_cells,
)
from .formats import Format


class TableEncoder(TransformerMixin, BaseEstimator):
    """Convert the columns of a table, matched by name, to numbers: a scikit-learn
    transformer.

    Numbers stay the same. Dates become days since 1970-01-01, and the sine and cosine
    of the time of year and of day if there are at least two years or days. Text becomes
    a column of 0 and 1 for each of the most frequent values, and one column for all
    others. A missing number is replaced by the median, and in columns in which ``fit``
    found missing numbers a column of 0 and 1 marks it.

    Tables X must have exactly the columns of ``formats``, in any order. Other tables
    raise a ``ValueError``, and so do tables with a cell that cannot be read.

    The result of ``fit`` is in ``encodings_``, an :class:`Encoding` for each column:
    plain numbers and words, which can be saved and read with any version of
    scikit-learn. For this reason it does not use scikit-learn's transformers.

    :param formats: How the cells of each column are read,
        :class:`~gpflow_pep.tables.Format` by name. Other columns raise an error.
    :param conventions: The conventions of the table of the formats, if they are known.
        Columns without a format, such as known targets, are read with them.
    :param max_categories: The largest number of values of a text column that get their
        own column.
    """

    encodings_: dict[str, Encoding]
    feature_names_in_: npt.NDArray[np.object_]
    n_features_in_: int

    def __init__(
        self,
        formats: dict[str, Format],
        *,
        conventions: Conventions | None = None,
        max_categories: int = MAX_CATEGORIES,
        min_count: int = 2,
    ) -> None:
        self.formats = formats
        self.conventions = conventions
        self.max_categories = max_categories
        self.min_count = min_count

    def fit(self, X: pd.DataFrame, y: Any = None) -> "TableEncoder":
        """Compute medians and values; y is not used."""
        limits = self.max_categories, self.min_count
        return self.restore(
            {
                name: learn(column, self.formats[name].kind, *limits)
                for name, column in read_columns(X, self.formats).items()
            }
        )

    def restore(self, encodings: dict[str, Encoding]) -> "TableEncoder":
        """Use the ``encodings_`` of another encoder with the same formats, instead of
        ``fit``.
        """
        if list(encodings) != list(self.formats):
            got = f"formats of the columns {listed(encodings)}"
            remedy = "Pass encodings and formats of the same columns."
            raise refusal("encodings", got, listed(self.formats), remedy)
        sources = [form.source or name for name, form in self.formats.items()]
        # A column of cells such as 120/80 is the source of two.
        names = np.array(list(dict.fromkeys(sources)), dtype=object)
        learnt = {
            "encodings_": encodings,
            "feature_names_in_": names,
            "n_features_in_": len(names),
        }
        self.__dict__.update(learnt)  # all at once
        return self

    def transform(self, X: pd.DataFrame) -> npt.NDArray[np.float64]:
        """Convert a table to numbers, [N, number of names]."""
        check_is_fitted(self)
        return encode_table(X, self.formats, self.encodings_)

    def unusual(self, X: pd.DataFrame) -> list[str]:
        """List for each row its cells that are unlike all training rows, [N]."""
        check_is_fitted(self)
        return unusual_cells(X, self.formats, self.encodings_)

    def get_feature_names_out(
        self, input_features: Any = None
    ) -> npt.NDArray[np.object_]:
        """Return the names of the columns of numbers."""
        check_is_fitted(self)
        names = encoded_names(self.formats, self.encodings_)
        return np.array(names, dtype=object)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "encodings_")
