"""Rows of data that come and go, with what belongs to them."""

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import AnyNDArray, RegressionData, TensorData

from ..sites import Sites
from ..tilted import check_support
from . import checks
from .inference import SiteModel
from .parameters import Power


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
    _, labels = np.unique(np.concatenate([old, new]), axis=0, return_inverse=True)
    labels = labels.reshape(-1)
    # The k-th occurrence of a row, in the old ones and in the new ones, is one and the same.
    keys = [
        {key: index for index, key in enumerate(zip(part.tolist(), _occurrence(part).tolist()))}
        for part in (labels[: len(old)], labels[len(old) :])
    ]
    return np.array([keys[0].get(key, -1) for key in keys[1]], dtype=np.int64)


def _occurrence(labels: AnyNDArray) -> AnyNDArray:
    """How often each label came before."""
    order = np.argsort(labels, kind="stable")
    ordered = labels[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    run = np.repeat(starts, np.diff(np.r_[starts, len(ordered)]))
    occurrence = np.empty_like(order)
    occurrence[order] = np.arange(len(ordered)) - run
    return occurrence


class ReplaceableRows(SiteModel):
    """A model whose rows of data may be replaced; the sites of those that stay are kept."""

    def update_data(self, new_data: RegressionData, *, alpha: TensorData | None = None) -> None:
        """
        Train on other rows. Rows that were there before, the same in X and Y, keep their sites.

        Data that are ``tf.Variable`` are assigned, and compiled functions go on with the new rows.
        Otherwise functions that were compiled before stop with a message.

        :param new_data: X [N, D] and Y [N, P], as many columns as before.
        :param alpha: Where there is a power for each row: the power of the rows that are new, a
            number or one for each.
        :raises ValueError: If an argument is not as said here.
        """
        X, Y = self._check_rows(new_data)
        old, new = (
            np.hstack([part.numpy() for part in data]) for data in (self._tensors(), (X, Y))
        )
        self._replace(X, Y, match_rows(old, new), alpha)

    def condition_on(self, extra_data: RegressionData, *, alpha: TensorData | None = None) -> None:
        """
        Train on more rows, which come after the others; see :meth:`update_data`.

        :param extra_data: X and Y of the rows to add.
        :param alpha: As in :meth:`update_data`.
        :raises ValueError: If an argument is not as said here.
        """
        extra = self._check_rows(extra_data)
        old = self._tensors()
        X, Y = (tf.concat(parts, axis=0) for parts in zip(old, extra, strict=True))
        added = np.full(int(tf.shape(extra[0])[0]), -1)
        self._replace(X, Y, np.r_[np.arange(int(tf.shape(old[0])[0])), added], alpha)

    def _tensors(self) -> tuple[tf.Tensor, tf.Tensor]:
        X, Y = self.data
        return tf.convert_to_tensor(X), tf.convert_to_tensor(Y)

    def _check_rows(self, data: RegressionData) -> tuple[tf.Tensor, tf.Tensor]:
        X, Y = (tf.convert_to_tensor(part) for part in checks.check_data(data))
        check_support(self.likelihood, Y)
        for name, new, old in (("X", X, self.data[0]), ("Y", Y, self.data[1])):
            if new.shape[1] != old.shape[1]:
                raise ValueError(
                    f"{name}: got {new.shape[1]} column(s), expected {old.shape[1]}, as before."
                    " Give the same columns, or make a new model."
                )
        return X, Y

    def _replace(
        self, X: tf.Tensor, Y: tf.Tensor, index: AnyNDArray, alpha: TensorData | None
    ) -> None:
        """Rows and, by the index of each among the old ones or -1, what they keep."""
        # All that may be refused comes first, so that a refusal leaves the model as it was.
        powers = self._powers(index, alpha)
        alpha = None if powers is None else Power(powers)
        self._require_room(X, Y)
        stays = index >= 0
        nu, tau = (np.where(stays[:, None], part.numpy()[index], 0.0) for part in self.sites.read())
        if isinstance(self.data[0], tf.Variable):
            for variable, value in zip(self.data, (X, Y), strict=True):
                variable.assign(value)
        else:
            self.data = X, Y
            self._rows_version.assign_add(1)
        if alpha is not None:
            self.alpha = alpha
            self._rows_version.assign_add(1)
        self.num_data = self.data[0].shape[0]
        self.sites.assign(Sites(tf.constant(nu), tf.constant(tau)))

    def _require_room(self, X: tf.Tensor, Y: tf.Tensor) -> None:
        for name, variable, value in zip("XY", self.data, (X, Y), strict=True):
            if isinstance(variable, tf.Variable) and not variable.shape.is_compatible_with(
                value.shape
            ):
                raise ValueError(
                    f"{name}: got {value.shape[0]} rows for a tf.Variable of {variable.shape[0]},"
                    " expected as many. Create it with shape=[None, D]."
                )

    def _powers(self, index: AnyNDArray, alpha: TensorData | None) -> AnyNDArray | None:
        """The power of each row; None where all have one."""
        if self.alpha.shape.rank == 0:
            if alpha is not None:
                raise ValueError(
                    "alpha: got powers of new rows, expected none: the model has one power for all"
                    " rows. Leave it out, or assign model.alpha."
                )
            return None
        is_new = index < 0
        if alpha is None and np.any(is_new):
            raise ValueError(
                f"alpha: got none, expected the power of the {np.sum(is_new)} rows that are new,"
                " because each row of the model has a power of its own. Pass alpha=."
            )
        powers: AnyNDArray = self.alpha.numpy()[index]
        new: AnyNDArray = np.asarray(0.0 if alpha is None else alpha)
        if new.shape not in ((), (np.sum(is_new),)):
            raise ValueError(
                f"alpha: got the shape {new.shape}, expected a number or one for each of the"
                f" {np.sum(is_new)} rows that are new."
            )
        powers[is_new] = new
        return powers
