"""Ordinal regression: a probit bin, with GPflow's floor."""

from functools import partial

import tensorflow as tf
from gpflow.likelihoods import Ordinal
from tensorflow import Tensor

from ..numerics.quadrature import Structure, no_tilt
from .classes import moments_of_labels, normal_cdf
from .generic import ScalarFactor
from .moments import Traits, scalar_factor, support, traits, whole_numbers

#: Replaces infinity at the ends, because infinity would give gradients of 0 times
#: infinity.
_FAR_EDGE = 1e10
#: GPflow adds this number to the probability of each bin. It does not have a name in
#: GPflow.
FLOOR = 1e-6


def _edge_structure(edge: Tensor, width: Tensor, floor: Tensor) -> Structure:
    r"""Find the structure of :math:`\log(\epsilon + \Phi((f - a) / w))`.

    The structure ends where :math:`\Phi` meets the floor :math:`\epsilon`. Near that
    point the logarithm has complex singularities, whose distance shrinks slowly with
    the floor.
    """
    meeting = tf.math.ndtri(floor)
    return Structure(
        centre=edge + 0.5 * width * meeting,
        resolution=tf.abs(width) * 0.6,
        extent=tf.abs(width) * (1.0 - 0.5 * meeting),
    )


@scalar_factor.register(Ordinal)
def _ordinal(likelihood: Ordinal, X: Tensor, Y: Tensor, alpha: Tensor) -> ScalarFactor:
    sigma = tf.cast(likelihood.sigma, Y.dtype)
    edges = tf.cast(likelihood.bin_edges, Y.dtype)
    floor = tf.constant(FLOOR, Y.dtype)
    far = tf.constant([_FAR_EDGE], Y.dtype)
    label = tf.cast(Y, tf.int32)
    lower = tf.gather(tf.concat([-far, edges], axis=0), label)
    upper = tf.gather(tf.concat([edges, far], axis=0), label)
    is_lowest = label == 0
    is_highest = label == likelihood.num_bins - 1

    def bin_probability(f: Tensor, scale: Tensor) -> Tensor:
        # Computed on the side on which neither term is near 1, so that the difference
        # keeps its digits.
        low = (lower - f) / scale
        high = (upper - f) / scale
        mirrored = low > -high
        inner = normal_cdf(tf.where(mirrored, -low, high))
        outer = normal_cdf(tf.where(mirrored, -high, low))
        # GPflow squeezes the distribution function at both ends, which takes this
        # fraction of each bin.
        return (1.0 - 2e-3) * (inner - outer) + floor

    # A bin at the end has one edge, so its structure counts twice.
    ones = tf.ones_like(Y)
    rising = tf.where(is_lowest, upper, lower)
    rises = tf.where(is_lowest, -ones, ones)
    falling = tf.where(is_highest, lower, upper)
    falls = tf.where(is_highest, ones, -ones)
    return ScalarFactor(
        log_prob=lambda f: tf.math.log(bin_probability(f, sigma)),
        structures=[
            _edge_structure(rising, rises * sigma, floor),
            _edge_structure(falling, falls * sigma, floor),
        ],
        mode=no_tilt,
        mean_prob=lambda mean, variance: bin_probability(
            mean, tf.sqrt(sigma**2 + variance)
        ),
        num_nodes=128,
    )


support.register(Ordinal)(
    lambda likelihood, Y: whole_numbers(Y, int(likelihood.num_bins))
)


@traits.register(Ordinal)
def _traits(likelihood: Ordinal) -> Traits:
    num_bins = int(likelihood.num_bins)
    return Traits(
        num_classes=num_bins, predict=partial(moments_of_labels, likelihood, num_bins)
    )
