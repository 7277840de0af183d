"""Likelihoods of classes: the probability of each class, and what those of several share."""

from collections.abc import Sequence

import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import AnyNDArray, TensorType
from gpflow.likelihoods import Likelihood

from ..ops import chunks
from .moments import log_power_expectation
from .support import Layout, Support, whole_numbers
from .traits import Traits

#: Of which integrals are computed at a time, a row for each class.
_ROWS = 10_000


@check_shapes("X: [N, D]", "Fmu: [N, L]", "Fvar: [N, L]", "return: [N, C]")
def class_probabilities(
    likelihood: Likelihood, X: TensorType, Fmu: TensorType, Fvar: TensorType, num_classes: int
) -> tf.Tensor:
    """
    Compute the probability of each class: its tilted integral at power 1.

    All classes are computed at once, so many rows at a time that memory does not grow with C.

    :param likelihood: Of classes 0 to C - 1.
    :param X: Inputs, as the model takes them.
    :param Fmu: The mean of the latent functions there.
    :param Fvar: Their variance.
    :param num_classes: C.
    """

    def chunk_probs(rows: Sequence[tf.Tensor]) -> tf.Tensor:
        X, Fmu, Fvar = (tf.tile(part, [num_classes, 1]) for part in rows)
        num_rows, ones = tf.shape(Fmu)[0] // num_classes, tf.ones([1], Fmu.dtype)
        labels = tf.repeat(tf.range(num_classes, dtype=ones.dtype), num_rows)[:, None]
        log_probs = log_power_expectation(likelihood, X, Fmu, Fvar, labels, ones)
        return tf.exp(tf.transpose(tf.reshape(log_probs, [num_classes, num_rows])))

    rows = tuple(map(tf.convert_to_tensor, (X, Fmu, Fvar)))
    return chunks.map_over_chunks(
        chunk_probs, chunks.row_chunks(rows, max(1, _ROWS // num_classes))
    )


def class_traits(likelihood: Likelihood) -> Traits:
    """Find the traits of likelihoods of a class for each latent function, which compare these."""
    return Traits(num_classes=int(likelihood.latent_dim or 0), ignores_level=True)


def class_support(likelihood: Likelihood, Y: AnyNDArray) -> Support:
    """Find the support of likelihoods of a class for each latent function."""
    return whole_numbers(Y, int(likelihood.latent_dim or 0))


def class_layout(likelihood: Likelihood, num_columns: int) -> Layout:
    """Find the layout of likelihoods of a class for each latent function: one column of labels."""
    return Layout(1, int(likelihood.latent_dim or 0))
