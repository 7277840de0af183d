"""Likelihoods of classes: the probability of each class, and what those of several share."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import MeanAndVariance, TensorType
from gpflow.likelihoods import Likelihood
from tensorflow import Tensor

from ..numerics import chunks
from .moments import Layout, Traits, layout, log_power_expectation, support, traits, whole_numbers

#: Of which integrals are computed at a time, a row for each class.
_ROWS = 10_000


@check_shapes("X: [N, D]", "Fmu: [N, L]", "Fvar: [N, L]", "return: [N, C]")
def class_probabilities(
    likelihood: Likelihood, X: TensorType, Fmu: TensorType, Fvar: TensorType, num_classes: int
) -> Tensor:
    """
    Compute the probability of each class: its tilted integral at power 1.

    All classes are computed at once, so many rows at a time that memory does not grow with C.

    :param likelihood: Of classes 0 to C - 1.
    :param X: Inputs, as the model takes them.
    :param Fmu: The mean of the latent functions there.
    :param Fvar: Their variance.
    :param num_classes: C.
    """

    of_all_classes = traits(likelihood).probabilities

    def chunk_probs(rows: Sequence[Tensor]) -> Tensor:
        if of_all_classes is not None:
            return tf.cast(of_all_classes(*rows[1:]), rows[1].dtype)
        X, Fmu, Fvar = (tf.tile(part, [num_classes, 1]) for part in rows)
        num_rows, ones = tf.shape(Fmu)[0] // num_classes, tf.ones([1], Fmu.dtype)
        labels = tf.repeat(tf.range(num_classes, dtype=ones.dtype), num_rows)[:, None]
        log_probs = log_power_expectation(likelihood, X, Fmu, Fvar, labels, ones)
        return tf.exp(tf.transpose(tf.reshape(log_probs, [num_classes, num_rows])))

    rows = tuple(map(tf.convert_to_tensor, (X, Fmu, Fvar)))
    return chunks.map_over_chunks(
        chunk_probs, chunks.row_chunks(rows, max(1, _ROWS // num_classes))
    )


def moments_of_labels(
    likelihood: Likelihood, num_classes: int, X: Tensor, Fmu: Tensor, Fvar: Tensor
) -> MeanAndVariance:
    """Compute the moments of labels 0 to C - 1, of one latent function each, [..., N, P]."""
    shape, size = tf.shape(Fmu), tf.shape(X)[-1]
    X = tf.broadcast_to(X[..., None, :], tf.concat([shape, [size]], axis=0))
    X, mean, variance = (tf.reshape(part, [-1, n]) for part, n in ((X, size), (Fmu, 1), (Fvar, 1)))
    p = class_probabilities(likelihood, X, mean, variance, num_classes)
    p /= tf.reduce_sum(p, axis=1, keepdims=True)
    labels = tf.range(num_classes, dtype=p.dtype)
    first = tf.linalg.matvec(p, labels)
    second = tf.reduce_sum(p * tf.square(labels - first[:, None]), axis=1)
    return tf.reshape(first, shape), tf.reshape(second, shape)


def register_classes(kind: type[Likelihood], **others: Any) -> None:
    """
    Register likelihoods of a class for each latent function, which compare these.

    :param others: Traits that they have beside those.
    """

    def count(likelihood: Likelihood) -> int:
        return int(likelihood.latent_dim or 0)

    def of_likelihood(likelihood: Likelihood) -> Traits:
        number = count(likelihood)

        def predict(X: TensorType, Fmu: TensorType, Fvar: TensorType) -> MeanAndVariance:
            p = class_probabilities(likelihood, X, Fmu, Fvar, number)
            return p, p - tf.square(p)

        return Traits(num_classes=number, ignores_level=True, predict=predict, **others)

    support.register(kind)(lambda likelihood, Y: whole_numbers(Y, count(likelihood)))
    layout.register(kind)(lambda likelihood, num_columns: Layout(1, count(likelihood)))
    traits.register(kind)(of_likelihood)
