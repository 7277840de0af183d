"""Which rows are trained on and which are held out; rows with the same inputs stay together."""

import warnings
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.model_selection import KFold, ShuffleSplit, StratifiedKFold, StratifiedShuffleSplit

from ..tables.cleaning import Cleaned
from ..tables.suspicions import MIN_ROWS
from .settings import Settings


def equal_inputs(X: pd.DataFrame) -> npt.NDArray[np.int64]:
    """Give each row the number of the first different row like it, counted in order, [N]."""
    return pd.factorize(pd.util.hash_pandas_object(X, index=False).to_numpy())[0]


def note_equal_inputs(data: Cleaned, settings: Settings) -> Cleaned:
    """Add a note of rows whose inputs are the same, if there are any."""
    groups = equal_inputs(data.X)
    repeated = np.bincount(groups)[groups] > 1
    if not repeated.any():
        return data
    same_target = pd.concat([data.X, data.y], axis=1).duplicated(keep=False).sum()
    note = (
        f"{repeated.sum()} of {len(groups)} rows have the same inputs as another row,"
        f" {same_target} of them the same target too"
    )
    kind, count, _ = settings.parts()
    if not settings.together:
        note += ". With --no-together some are trained on and others held out."
    elif _are_enough(data, groups, settings):
        note += (
            ". Rows with the same inputs are held out together, so that none is predicted from its"
            " copy (--no-together puts them anywhere)."
        )
    else:
        note += (
            f". There are {groups.max() + 1} different inputs, too few to hold each out in one of"
            f" {count} {kind}{'s' * (count > 1)}: rows with the same inputs are both trained on"
            " and held out, and scores are those of rows whose inputs were seen before."
        )
    return data._replace(notes=[*data.notes, note])


def parts_of(
    data: Cleaned, settings: Settings
) -> Iterator[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
    """Give rows to train on and rows held out, each in increasing order.

    Rows with the same inputs are in one part, where there are enough others. Without such rows
    parts are those of scikit-learn's splitters.
    """
    kind, count, fraction = settings.parts()
    classes = data.kind == "classes"
    groups = equal_inputs(data.X) if settings.together else np.arange(len(data.X))
    if not _are_enough(data, groups, settings):
        groups = np.arange(len(data.X))
    _, firsts = np.unique(groups, return_index=True)
    if kind == "fold":
        splitter: Any = partial(StratifiedKFold if classes else KFold, shuffle=True)
    else:
        splitter = StratifiedShuffleSplit if classes else ShuffleSplit
        splitter = partial(splitter, test_size=fraction)
    splits = splitter(count, random_state=settings.seed)
    with warnings.catch_warnings():
        # scikit-learn warns where a class has fewer members than there are folds: some hold out
        # none.
        warnings.filterwarnings("ignore", message="The least populated class")
        for train, test in splits.split(firsts[:, None], data.y.iloc[firsts]):
            yield np.flatnonzero(np.isin(groups, train)), np.flatnonzero(np.isin(groups, test))


def _are_enough(data: Cleaned, groups: npt.NDArray[np.int64], settings: Settings) -> bool:
    """Whether rows with the same inputs can be held out together: there are enough others."""
    kind, count, fraction = settings.parts()
    _, firsts = np.unique(groups, return_index=True)
    in_each = len(firsts) * min(fraction, 1.0 - fraction)
    # Where most rows repeat the inputs of others, a part needs as many different ones as a table.
    if in_each < 2.0 or (2 * len(firsts) < len(groups) and in_each < MIN_ROWS):
        return False
    if data.kind == "numbers":
        return True
    sizes = data.y.iloc[firsts].value_counts()
    if len(sizes) < data.y.nunique() or in_each < len(sizes):
        return False
    return bool(sizes.max() >= count if kind == "fold" else sizes.min() >= 2)
