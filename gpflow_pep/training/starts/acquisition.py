"""The choice of the row to label next: the row whose target is hardest to predict
(Villacampa-Calvo & Hernández-Lobato 2020, section 5.6).
"""

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import InputData
from gpflow.models import GPModel

from ...engine import factors
from ...engine.numerics import chunks
from ...engine.prior import check_columns

#: The number of rows that are predicted at a time.
_CHUNK = 10_000


@tf.autograph.experimental.do_not_convert
@check_shapes("return: [N]")
def predictive_entropy(model: GPModel, X: InputData) -> tf.Tensor:
    r"""Compute the entropy of the predictive distribution of y at each row, in nats.

    For classes it is :math:`-\sum_c p_c \log p_c`, between 0 and log C; for Gaussian
    noise :math:`\frac12 \log(2 \pi e \, \mathrm{var}[y])`, summed over outputs.

    :param model: A model of GPflow or of this package.
    :param X: Inputs, [N, D].
    :raises ValueError: If the likelihood is neither Gaussian nor a likelihood of
        classes, or if X has other columns than the inducing inputs.
    """
    rows = tf.convert_to_tensor(X)
    likelihood = model.likelihood
    if hasattr(model, "inducing_variable"):
        check_columns(model.inducing_variable, rows)

    def entropy(X: tf.Tensor) -> tf.Tensor:
        m, v = model.predict_f(X)
        if factors.traits(likelihood).is_gaussian:
            variance = v + likelihood.variance_at(X)
            return 0.5 * tf.reduce_sum(
                tf.math.log(2.0 * np.pi * np.e * variance), axis=1
            )
        p = factors.class_probabilities(
            likelihood, X, m, v, factors.num_classes(likelihood)
        )
        p = p / tf.reduce_sum(p, axis=1, keepdims=True)
        return -tf.reduce_sum(tf.math.xlogy(p, p), axis=1)

    return chunks.map_over_chunks(entropy, chunks.row_chunks(rows, _CHUNK))
