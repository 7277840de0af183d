"""The order in which rows come in minibatches."""

from collections.abc import Callable

import tensorflow as tf

#: The batches of the k-th epoch, k = 0, 1, ...
Epochs = Callable[[int], tf.data.Dataset]


def shuffled_rows(num_rows: int, batch_size: int, seed: int) -> Epochs:
    """
    Put row numbers into batches, in another order each epoch.

    The order follows from the seed and the number of the epoch alone, so that any epoch can be had
    again, in another process too. Rows that are left over when batches are full wait for another
    epoch.
    """

    @tf.autograph.experimental.do_not_convert
    def epoch(number: int) -> tf.data.Dataset:
        seeds = tf.stack([tf.constant(seed, tf.int64), tf.cast(number, tf.int64)])
        rows = tf.range(num_rows, dtype=tf.int64)
        order = tf.random.experimental.stateless_shuffle(rows, seeds, alg="philox")
        return tf.data.Dataset.from_tensor_slices(order).batch(batch_size, drop_remainder=True)

    return epoch
