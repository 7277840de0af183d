"""What turns a cleaned table into the numbers that estimators take."""

from collections.abc import Mapping

import pandas as pd

from ..columns import Format, TableEncoder, recognise


def make_preparation(X: pd.DataFrame, formats: Mapping[str, Format] | None = None) -> TableEncoder:
    """
    Make the first step of a pipeline for tables like this one::

        X, y, kind, notes, formats = clean(read_table("data.csv"), "y")
        model = make_pipeline(make_preparation(X, formats), PEPRegressor()).fit(X, y)
        model.predict(read_table("new.csv")[list(X.columns)])

    It is not fitted yet: medians and values are learnt from training rows alone.

    :param X: Inputs.
    :param formats: How the cells of each column are to be read in tables like it, as
        :func:`~gpflow_pep.compare.tables.clean` gives them; None: found out from `X`.
    :raises ValueError: If a column holds neither numbers, dates nor text.
    """
    if formats is None:
        formats = {str(name): recognise(column) for name, column in X.items()}
    for name, form in formats.items():
        if form.kind == "other":
            raise ValueError(
                f"column '{name}' holds neither numbers, dates nor text, expected one of them."
                " Leave it out."
            )
    return TableEncoder({str(name): formats[str(name)] for name in X.columns})
