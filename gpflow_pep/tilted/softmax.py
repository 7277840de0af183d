"""Softmax: an integral in as many dimensions as classes, over fixed quasi-random nodes."""

import functools

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.likelihoods import Softmax
from scipy.stats import norm, qmc

from ..ops.power import log_power_mean
from .dispatch import implementations

#: log2 of the number of nodes; half of them mirror the others.
_LOG2_NODES = 9


@functools.lru_cache
def quasi_normal(num_latent: int, log2_nodes: int = _LOG2_NODES) -> AnyNDArray:
    """
    Fixed nodes of equal weight for a standard normal distribution: a scrambled Sobol sequence with
    its mirror image.

    :param num_latent: L.
    :param log2_nodes: There are two to this power of them.
    :return: [Q, 1, L]
    """
    uniform = qmc.Sobol(num_latent, seed=0).random_base2(log2_nodes - 1)
    nodes = norm.ppf(uniform)
    nodes = np.concatenate([nodes, -nodes])
    return (nodes / np.sqrt(np.mean(nodes**2, axis=0)))[:, None, :]


@implementations.register(Softmax)
def _softmax(
    likelihood: Softmax,
    X: tf.Tensor,
    Fmu: tf.Tensor,
    Fvar: tf.Tensor,
    Y: tf.Tensor,
    alpha: tf.Tensor,
) -> tf.Tensor:
    nodes = tf.constant(quasi_normal(likelihood.num_classes), Fmu.dtype)
    F = Fmu + tf.sqrt(Fvar) * nodes
    own = tf.one_hot(tf.cast(Y[:, 0], tf.int32), likelihood.num_classes, dtype=Fmu.dtype)
    log_prob = tf.reduce_sum(own * tf.nn.log_softmax(F), axis=2)
    weights = tf.fill(tf.shape(log_prob), tf.constant(1.0 / nodes.shape[0], Fmu.dtype))
    return log_power_mean(log_prob, weights, alpha)
