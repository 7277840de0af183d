"""A likelihood for each row, chosen by the last column of the targets."""

import tensorflow as tf
from gpflow.likelihoods import SwitchedLikelihood

from .dispatch import implementations
from .scalar import implementation_for


@implementations.register(SwitchedLikelihood)
def _switched(
    likelihood: SwitchedLikelihood,
    X: tf.Tensor,
    Fmu: tf.Tensor,
    Fvar: tf.Tensor,
    Y: tf.Tensor,
    alpha: tf.Tensor,
) -> tf.Tensor:
    count = len(likelihood.likelihoods)
    alpha = tf.broadcast_to(alpha, tf.shape(Fmu)[:1])
    which = tf.cast(Y[:, -1], tf.int32)
    parts = [tf.dynamic_partition(rows, which, count) for rows in (X, Fmu, Fvar, Y[:, :-1], alpha)]
    results = [
        implementation_for(one)(one, *rows) for one, *rows in zip(likelihood.likelihoods, *parts)
    ]
    rows_of = tf.dynamic_partition(tf.range(tf.shape(Y)[0]), which, count)
    return tf.ensure_shape(tf.dynamic_stitch(rows_of, results), Fmu.shape[:1])
