"""Likelihoods with a latent function for each column: by what is known of them, or by values."""

import tensorflow as tf
from gpflow.likelihoods import Likelihood, MultiLatentLikelihood, ScalarLikelihood

from ..checks import require
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


def require_resolved(
    likelihood: Likelihood, ell: tf.Tensor, *moments: tf.Tensor, rows: tf.Tensor | None = None
) -> list[tf.Operation]:
    """
    Stop where the values of a density do not give its integral, and say in which rows.

    :param likelihood: A likelihood; one that has a rule of its own is not asked.
    :param ell: Its tilted integrals [N]: NaN where they are not resolved.
    :param moments: Of what it was integrated under, [N, L] each, which must be finite.
    :param rows: Their numbers, [N]; None: 0 to N - 1.
    :return: What a graph must run first.
    :raises ValueError: See :func:`gpflow_pep.checks.require`.
    """
    by_values_only = isinstance(likelihood, MultiLatentLikelihood)
    if not by_values_only and implementation_for(likelihood) is not by_values:
        return []
    lost = tf.math.is_nan(ell)
    for part in moments:
        lost &= tf.reduce_all(tf.math.is_finite(part), axis=1)
    index = tf.where(lost)[:, 0]
    return require(
        ~tf.reduce_any(lost),
        f"likelihood: got {type(likelihood).__name__}, of which only the values of its density are"
        " known, and these do not give its integral in some rows: there the density is far narrower"
        " than the Gaussian that it is averaged over, or 0. Expected one that the nodes of"
        " quadrature resolve. Standardise the targets, keep its scale away from 0 (for instance add"
        " a small constant to it, or start the prior of its latent function lower and narrower),"
        " use HeteroskedasticTFPConditional if the noise is Gaussian, or register an integral of"
        " your own with gpflow_pep.tilted.implementations. The first of these rows:",
        index if rows is None else tf.gather(rows, index),
    )


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
