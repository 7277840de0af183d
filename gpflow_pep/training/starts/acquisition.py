r"""
Which row to label next: the one whose target is hardest to predict, or has most information on f.

The entropy of the predictive distribution of y at a row, :math:`H[y]`, is what Villacampa-Calvo &
Hernández-Lobato (2020), section 5.6, choose by. Part of it is noise, which no label removes; what a
label adds about f is the mutual information :math:`H[y] - E_f H[y | f]` (Houlsby, Huszár,
Ghahramani & Lengyel 2011).
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import InputData
from gpflow.likelihoods import Likelihood, RobustMax, ScalarLikelihood
from gpflow.models import GPModel

from ...engine import factors
from ...engine.checks import refusal
from ...engine.factors.entries import is_of_one_target
from ...engine.factors.generic import Function, bounded_log, integrate
from ...engine.numerics import chunks
from ...engine.prior import check_columns

#: Rows predicted at a time.
_CHUNK = 10_000


@tf.autograph.experimental.do_not_convert
@check_shapes("return: [N]")
def predictive_entropy(model: GPModel, X: InputData) -> tf.Tensor:
    r"""Compute the entropy of the predictive distribution of y at each row, in nats.

    For classes it is :math:`-\sum_c p_c \log p_c`, between 0 and log C; for Gaussian noise
    :math:`\frac12 \log(2 \pi e \, \mathrm{var}[y])`, summed over outputs.

    :param model: A model of GPflow's or of this package.
    :param X: Inputs, [N, D].
    :raises ValueError: If the likelihood is neither of classes nor Gaussian, or X has other columns
        than the inducing inputs.
    """
    return _by_chunks(model, X, _entropy_of_y)


@tf.autograph.experimental.do_not_convert
@check_shapes("return: [N]")
def information_gain(model: GPModel, X: InputData) -> tf.Tensor:
    r"""Compute the information that each row's target would have on f there, in nats.

    It is :func:`predictive_entropy` less the entropy that is left when f is known (BALD). Where
    that is the same everywhere, both choose the same row: for Gaussian noise of one variance and
    for RobustMax, whose labels are wrong at a rate that does not depend on f.

    :param model: A model of GPflow's or of this package, whose likelihood is Gaussian, MultiClass
        with RobustMax, or of classes and one latent function, such as Bernoulli.
    :param X: Inputs, [N, D].
    :raises ValueError: If the likelihood is another, or X has other columns than the inducing
        inputs.
    """

    def gain(likelihood: Likelihood, *rows: tf.Tensor) -> tf.Tensor:
        return tf.maximum(
            _entropy_of_y(likelihood, *rows) - entropy_given_f(likelihood, *rows), 0.0
        )

    return _by_chunks(model, X, gain)


def _by_chunks(model: GPModel, X: InputData, function: Callable[..., tf.Tensor]) -> tf.Tensor:
    rows = tf.convert_to_tensor(X)
    if hasattr(model, "inducing_variable"):
        check_columns(model.inducing_variable, rows)
    return chunks.map_over_chunks(
        lambda part: function(model.likelihood, part, *model.predict_f(part)),
        chunks.row_chunks(rows, _CHUNK),
    )


def _entropy_of_y(likelihood: Any, X: tf.Tensor, m: tf.Tensor, v: tf.Tensor) -> tf.Tensor:
    """Compute H[y] of each row, [N]."""
    if factors.traits(likelihood).is_gaussian:
        return _gaussian_entropy(v + likelihood.variance_at(X))
    p = factors.class_probabilities(likelihood, X, m, v, factors.num_classes(likelihood))
    p = p / tf.reduce_sum(p, axis=1, keepdims=True)
    return -tf.reduce_sum(tf.math.xlogy(p, p), axis=1)


def entropy_given_f(likelihood: Any, X: tf.Tensor, m: tf.Tensor, v: tf.Tensor) -> tf.Tensor:
    """Compute E_f H[y | f] of each row, [N]."""
    if factors.traits(likelihood).is_gaussian:
        return _gaussian_entropy(likelihood.variance_at(X) + tf.zeros_like(m))
    if factors.traits(likelihood).num_classes is not None and is_of_one_target(likelihood):
        return _of_labels(likelihood, X, m, v)
    link = getattr(likelihood, "invlink", None)
    if not isinstance(link, RobustMax):
        got = type(likelihood).__name__ + (f" with {type(link).__name__}" if link else "")
        expected = "Gaussian, Bernoulli or MultiClass with RobustMax, or one of classes and one f"
        raise refusal("likelihood", got, expected, "Choose by predictive_entropy instead.")
    wrong = tf.convert_to_tensor(link.epsilon)
    others = tf.cast(link.num_classes - 1, m.dtype)
    entropy = -tf.math.xlogy(1.0 - wrong, 1.0 - wrong) - tf.math.xlogy(wrong, wrong / others)
    return entropy + tf.zeros_like(m[:, 0])


def _of_labels(likelihood: ScalarLikelihood, X: tf.Tensor, m: tf.Tensor, v: tf.Tensor) -> tf.Tensor:
    ones = tf.ones([1, 1], m.dtype)
    make_factor = factors.scalar_factor.dispatch(type(likelihood))

    def log_prob(label: int) -> Function:
        Y = label * tf.ones_like(m)
        if make_factor is None:
            return lambda f: likelihood._scalar_log_prob(X, f, Y)
        factor: factors.ScalarFactor = make_factor(likelihood, X, Y, ones)
        return factor.log_prob

    log_probs = [log_prob(label) for label in range(factors.num_classes(likelihood))]

    def log_entropy(f: tf.Tensor) -> tf.Tensor:
        logs = [log_prob(f) for log_prob in log_probs]
        entropy = -tf.add_n([log * tf.exp(log) for log in logs])
        return bounded_log(entropy)

    # The expectation of the entropy is a tilted integral of it at power 1.
    bump = factors.Structure(tf.zeros_like(m), 0.6 * tf.ones_like(m), 4.0 * tf.ones_like(m))
    # With 400 nodes errors are below 1e-9 of the entropy for every variance.
    integral = integrate(factors.ScalarFactor(log_entropy, [bump], num_nodes=400), m, v, ones)
    return tf.reduce_sum(tf.exp(integral), axis=1)


def _gaussian_entropy(variance: tf.Tensor) -> tf.Tensor:
    """Of Gaussians that are independent, [N] of variances [N, P]."""
    return 0.5 * tf.reduce_sum(tf.math.log(2.0 * np.pi * np.e * variance), axis=1)
