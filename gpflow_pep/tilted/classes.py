"""Likelihoods of classes: how many there are, and the probability of each."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import TensorType
from gpflow.likelihoods import Bernoulli, Likelihood, MultiClass, Softmax
from gpflow.utilities import Dispatcher

from ..ops import chunks
from .moments import log_power_expectation

#: Of which integrals are computed at a time, a row for each class.
_ROWS = 10_000

#: ``(likelihood) -> C`` for likelihoods of the classes 0 to C - 1.
num_classes = Dispatcher("gpflow_pep.tilted.num_classes")


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

    def of_chunk(rows: Sequence[tf.Tensor]) -> tf.Tensor:
        X, Fmu, Fvar = (tf.tile(part, [num_classes, 1]) for part in rows)
        num_rows, one = tf.shape(Fmu)[0] // num_classes, tf.ones([1], Fmu.dtype)
        labels = tf.repeat(tf.range(num_classes, dtype=one.dtype), num_rows)[:, None]
        found = log_power_expectation(likelihood, X, Fmu, Fvar, labels, one)
        return tf.exp(tf.transpose(tf.reshape(found, [num_classes, num_rows])))

    rows = tuple(map(tf.convert_to_tensor, (X, Fmu, Fvar)))
    return chunks.map_over_chunks(of_chunk, chunks.row_chunks(rows, max(1, _ROWS // num_classes)))


@num_classes.register(object)
def _no_classes(likelihood: Any) -> int:
    raise ValueError(
        f"likelihood: got {type(likelihood).__name__}, expected one of classes, such as Bernoulli,"
        " MultiClass or Softmax. Nothing else has probabilities of classes."
    )


@num_classes.register(Bernoulli)
def two_classes(likelihood: Likelihood) -> int:
    """Count them."""
    return 2


@num_classes.register(MultiClass)
@num_classes.register(Softmax)
def _several(likelihood: MultiClass | Softmax) -> int:
    return int(likelihood.latent_dim or 0)
