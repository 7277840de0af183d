"""Likelihoods with a latent function for each column: by what is known of them, or by values."""

import tensorflow as tf
from gpflow.likelihoods import Likelihood, ScalarLikelihood

from .dispatch import Implementation, implementations, registered_class, scalar_factor
from .generic import integrate
from .unknown import by_values


def implementation_for(likelihood: Likelihood) -> Implementation:
    """
    Find what computes the tilted integral of a likelihood.

    One whose class derives from another, but has a density of its own, is not what was registered
    for the other.

    :param likelihood: A likelihood.
    """
    kind = type(likelihood)
    if isinstance(likelihood, ScalarLikelihood):
        known = [registered_class(one, kind) for one in (implementations, scalar_factor)]
        nearest = min(known, key=kind.__mro__.index)
        if nearest._scalar_log_prob is not kind._scalar_log_prob:  # type: ignore[attr-defined]
            return by_values
    return implementations.dispatch_or_raise(kind)


@implementations.register(ScalarLikelihood)
def scalar_log_power_expectation(
    likelihood: ScalarLikelihood,
    X: tf.Tensor,
    Fmu: tf.Tensor,
    Fvar: tf.Tensor,
    Y: tf.Tensor,
    alpha: tf.Tensor,
) -> tf.Tensor:
    """Sum what :func:`~gpflow_pep.tilted.generic.integrate` gives for the factor over columns."""
    make_factor = scalar_factor.dispatch_or_raise(type(likelihood))
    factor = make_factor(likelihood, X, Y, alpha[:, None])
    return tf.reduce_sum(integrate(factor, Fmu, Fvar, alpha[:, None]), axis=-1)
