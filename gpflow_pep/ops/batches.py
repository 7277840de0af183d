"""The order in which rows come in minibatches."""

from collections.abc import Callable

import tensorflow as tf

from .graph import unconverted

#: The batches of the k-th epoch, k = 0, 1, ...
Epochs = Callable[[int], tf.data.Dataset]


def check_positive(name: str, value: int) -> None:
    """
    Refuse what is no positive integer.

    :raises ValueError: If it is none.
    """
    if isinstance(value, bool) or int(value) != value or value < 1:
        raise ValueError(f"{name}: got {value!r}, expected a positive integer. Pass one.")


def shuffled_rows(num_rows: int, batch_size: int, seed: int) -> Epochs:
    """
    Row numbers in batches, in another order each epoch.

    The order follows from the seed and the number of the epoch alone, so that any epoch can be had
    again, in another process too. Rows that are left over when batches are full wait for another
    epoch.

    :param num_rows: N.
    :param batch_size: Row numbers in a batch.
    :param seed: The same seed gives the same batches.
    """

    @unconverted
    def epoch(number: int) -> tf.data.Dataset:
        seeds = tf.stack([tf.constant(seed, tf.int64), tf.cast(number, tf.int64)])
        rows = tf.range(num_rows, dtype=tf.int64)
        order = tf.random.experimental.stateless_shuffle(rows, seeds, alg="philox")
        return tf.data.Dataset.from_tensor_slices(order).batch(batch_size, drop_remainder=True)

    return epoch
