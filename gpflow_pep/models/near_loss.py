r"""
Training for predictions from near rows: rows given those near them, in minibatches.

The objective is the sum over rows of :math:`\log p(y_n \mid y_{near(n)})`, where near(n) are the m
other training rows that are nearest in units of the kernel's lengthscales, and f has the kernel's
prior: :meth:`~gpflow_pep.models.context_predictions.ContextPredictions.near_row_log_density`. A
batch's part of it costs m³ for each of its rows, whatever N is. Inducing variables do not enter and
are not trained.
"""

from typing import Any

import numpy as np
import tensorflow as tf

from ..engine import checks
from ..engine.predictions.context_posterior import check_neighbours
from ..engine.prior import input_scales, nearest_others
from .minibatch import BatchLoss

#: Batches before neighbours are sought again: lengthscales change much in so many.
REFRESH_EVERY = 5


class NearRowLoss(BatchLoss):
    """
    The training loss of batches of rows, each given the rows near it.

    For the arguments see
    :meth:`~gpflow_pep.models.context_predictions.ContextPredictions.near_row_training_loss_closure`.
    """

    def __init__(self, model: Any, neighbours: int, batch_size: int, seed: int) -> None:
        num_rows = int(tf.shape(model.data[0])[0])
        checks.check_positive("neighbours", neighbours)
        check_neighbours(neighbours, num_rows - 1, model.has_blocks)
        checks.check_positive("batch_size", batch_size)
        checks.check_seed(seed)
        self.model, self._neighbours, self._num_rows = model, neighbours, num_rows
        self._batch_size = min(batch_size, num_rows)
        self._seed = seed
        self._newest: tuple[Any, tf.data.Dataset] | None = None

    def epoch(self, number: int) -> tf.data.Dataset:
        """
        Seek the neighbours of the rows of the next batches, by the kernel as it is.

        :param number: Of the epoch, from 0: it has :data:`REFRESH_EVERY` batches, or fewer where
            there are not so many rows. Rows are chosen at random, anew each time.
        """
        X = tf.convert_to_tensor(self.model.data[0])
        scales = input_scales(self.model._context_parts().kernel, X)
        key = number, scales.numpy().tobytes()
        if self._newest is None or self._newest[0] != key:
            size = min(REFRESH_EVERY * self._batch_size, self._num_rows)
            random = np.random.default_rng([self._seed, number])
            index = tf.constant(random.choice(self._num_rows, size, replace=False))
            near = nearest_others(X / scales, index, self._neighbours)
            rows = tf.data.Dataset.from_tensor_slices((index, near))
            self._newest = key, rows.batch(self._batch_size, drop_remainder=True)
        return self._newest[1]

    @tf.autograph.experimental.do_not_convert
    def of_batch(self, batch: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        """
        Compute the loss of a batch, scaled to all rows.

        :param batch: Numbers of rows [B], and of the rows that each is given [B, m].
        """
        density = tf.reduce_mean(self.model.near_row_log_density(*batch))
        return -self._num_rows * density - self.model.log_prior_density()
