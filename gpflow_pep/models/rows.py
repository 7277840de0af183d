"""Rows of data that come and go, with what belongs to them."""

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import AnyNDArray, TensorData

from .parameters import Power, keep

Data = tuple[tf.Tensor, tf.Tensor]


@check_shapes(
    "old: [N_old, D]",
    "new: [N_new, D]",
    "return: [N_new]",
)
def match_rows(old: AnyNDArray, new: AnyNDArray) -> AnyNDArray:
    """
    Find each new row among the old ones: its index there, or -1.

    Rows are the same where all their numbers are. Of rows that are there several times, the first
    new one is the first old one, and so on; those that are left over are new.

    :param old: Rows, X and Y side by side.
    :param new: Rows, likewise.
    """
    rows = pd.DataFrame(np.concatenate([old, new]))
    labels = rows.groupby(list(rows.columns), sort=False).ngroup()
    is_new = np.arange(len(rows)) >= len(old)
    # The k-th occurrence of a row, in the old ones and in the new ones, is one and the same.
    occurrence = labels.groupby([labels, is_new]).cumcount()
    keys = pd.MultiIndex.from_arrays([labels, occurrence])
    return keys[~is_new].get_indexer(keys[is_new])


class ReplacedRows(NamedTuple):
    """Other rows for a model, and where they were before."""

    data: Data

    alpha: Power | None
    """A power for each, where there was one for each before."""

    index: AnyNDArray
    """[N_new], the place of each among the old ones, or -1."""

    def carry_over(self, old: AnyNDArray) -> AnyNDArray:
        """Pick what belonged to the rows, [N_new, ...]; 0 for those that are new."""
        stays = (self.index >= 0).reshape(-1, *[1] * (old.ndim - 1))
        return np.where(stays, old[self.index], 0.0)


def replace_rows(
    data: Data, alpha: Power, given: Data, powers: TensorData | None, add: bool
) -> ReplacedRows:
    """
    Put other rows in the place of a model's, or after them.

    :param data: X [N, D] and Y [N, P] of the model.
    :param alpha: Its power, or powers.
    :param given: X and Y of the other rows, checked.
    :param powers: Of rows that are new, where there is one for each.
    :param add: Whether the old rows stay, before the others.
    :raises ValueError: If the rows or powers do not suit the model.
    """
    check_replacement(data, given, of_any_length=add)
    old = tuple(map(tf.convert_to_tensor, data))
    if add:
        index = np.r_[np.arange(len(old[0])), np.full(len(given[0]), -1)]
        given = tuple(tf.concat(parts, axis=0) for parts in zip(old, given, strict=True))
    else:
        index = match_rows(*(np.hstack([part.numpy() for part in rows]) for rows in (old, given)))
    replaced = ReplacedRows(given, _powers(alpha, index, powers), index)
    check_replacement(data, given)
    return replaced


def check_replacement(data: Data, given: Data, *, of_any_length: bool = False) -> None:
    """
    Check that rows can take the place of others.

    :param data: X [N, D] and Y [N, P] of a model.
    :param given: Of the other rows.
    :param of_any_length: Whether their number does not matter.
    :raises ValueError: If they have other columns, or do not fit the variables of the model.
    """
    for name, new, old in zip("XY", given, data, strict=True):
        if new.shape[1] != old.shape[1]:
            raise ValueError(
                f"{name}: got {new.shape[1]} column(s), expected {old.shape[1]}, as before."
                " Give the same columns, or make a new model."
            )
        fixed = isinstance(old, tf.Variable) and not of_any_length
        if fixed and not old.shape.is_compatible_with(new.shape):
            raise ValueError(
                f"{name}: got {new.shape[0]} rows for a tf.Variable of {old.shape[0]},"
                " expected as many. Create it with shape=[None, D]."
            )


def put_rows(model: Any, data: Data, alpha: Power | None = None) -> None:
    """
    Put rows in the place of those of a model, once all that may be refused has been checked.

    Variables are assigned; other rows are replaced, and graphs that hold them told to stop.

    :param model: It has ``data``, ``alpha``, ``num_data`` and ``_rows_version``.
    :param data: X [N, D] and Y [N, P], checked.
    :param alpha: A power for each, where there was one for each before.
    """
    if isinstance(model.data[0], tf.Variable):
        for variable, value in zip(model.data, data, strict=True):
            variable.assign(value)
    else:
        keep(model, data=data)
        model._rows_version.assign_add(1)
    if alpha is not None:
        keep(model, alpha=alpha)
        model._rows_version.assign_add(1)
    keep(model, num_data=model.data[0].shape[0])


def _powers(alpha: Power, index: AnyNDArray, given: TensorData | None) -> Power | None:
    """Find the power of each row; None where all have one."""
    if alpha.shape.rank == 0:
        if given is not None:
            raise ValueError(
                "alpha: got powers of new rows, expected none: the model has one power for all"
                " rows. Leave it out, or assign model.alpha."
            )
        return None
    is_new = index < 0
    if given is None and np.any(is_new):
        raise ValueError(
            f"alpha: got none, expected the power of the {np.sum(is_new)} rows that are new,"
            " because each row of the model has a power of its own. Pass alpha= to update_data or"
            " condition_on."
        )
    new: AnyNDArray = np.asarray(0.0 if given is None else given)
    if new.shape not in ((), (np.sum(is_new),)):
        raise ValueError(
            f"alpha: got the shape {new.shape}, expected a number or one for each of the"
            f" {np.sum(is_new)} rows that are new."
        )
    powers = alpha.numpy()[index]
    powers[is_new] = new
    return Power(powers)
