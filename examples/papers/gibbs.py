"""Gibbs sampling of a sparse model of several classes whose hyperparameters are known.

What expectation propagation approximates, without the approximation: VH20 compares with
it in appendix C. Given u the values of f are independent over rows and classes, and
given f so is u over classes, and Gaussian. RobustMax is constant in each value of f
below and above a threshold, so that each conditional is a Gaussian in two pieces.
"""

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.covariances import Kuf, Kuu
from gpflow.kernels import Kernel
from gpflow.likelihoods import MultiClass
from scipy import special

from gpflow_pep.likelihoods import class_probabilities

Data = tuple[AnyNDArray, AnyNDArray]
#: Of all rows and u once each; the first are left out, and of the others one of ten is
#: kept.
SWEEPS = 2000
BURN_IN = 500
THIN = 10
#: A residual variance; GPflow's jitter leaves no less.
LEAST = 1e-6


def residual(
    kernel: Kernel, Z: AnyNDArray, X: AnyNDArray
) -> tuple[AnyNDArray, AnyNDArray]:
    """f = B v + noise, v standard normal: B [N, M], and the variances of the noise [N]."""
    root = tf.linalg.cholesky(Kuu(Z, kernel, jitter=LEAST))
    B = tf.linalg.triangular_solve(root, Kuf(Z, kernel, tf.constant(X)))
    variance = kernel(X, full_cov=False) - tf.reduce_sum(tf.square(B), axis=0)
    return tf.transpose(B).numpy(), np.maximum(variance.numpy(), LEAST)


def two_pieces(
    threshold: AnyNDArray, below: AnyNDArray, above: AnyNDArray, uniform: AnyNDArray
) -> AnyNDArray:
    """
    Standard normal variables, reweighted below and above a threshold.

    :param threshold: Where the weight changes.
    :param below: The weight below it.
    :param above: The weight above it.
    :param uniform: In (0, 1), what makes them random.
    """
    lower = below * special.ndtr(threshold)
    upper = above * special.ndtr(-threshold)
    place = uniform * (lower + upper)
    is_below = place < lower
    share = np.where(is_below, place / below, (lower + upper - place) / above)
    found = special.ndtri(np.clip(share, 1e-300, 1.0 - 1e-16))
    return np.where(is_below, found, -found)


def sweep(
    f: AnyNDArray,
    prior: tuple[AnyNDArray, AnyNDArray],
    labels: AnyNDArray,
    epsilon: float,
    rng: np.random.Generator,
) -> None:
    """Each value of f [N, C] anew, given the others of its row; in place."""
    mean, deviation = prior  # [N, C] and [N]: given u
    N, C = f.shape
    rows = np.arange(N)
    own = np.arange(C) == labels[:, None]
    right = 1.0 - epsilon
    wrong = epsilon / (C - 1)
    for k in range(C):
        others = np.delete(f, k, axis=1)
        largest = others.max(axis=1)
        is_own = own[:, k]
        # Where another class is ahead of the label whatever this value is, it is
        # unconstrained.
        free = ~is_own & (f[rows, labels] < largest)
        below = np.where(is_own | free, wrong, right)
        above = np.where(is_own, right, wrong)
        threshold = (np.where(free, mean[:, k], largest) - mean[:, k]) / deviation
        f[:, k] = mean[:, k] + deviation * two_pieces(
            threshold, below, above, rng.uniform(size=N)
        )


def sample(
    kernel: Kernel, likelihood: MultiClass, Z: AnyNDArray, data: Data, seed: int = 0
) -> AnyNDArray:
    """Draws of v given the labels, [draws, M, C]."""
    (X, Y), C = data, likelihood.num_classes
    labels = Y[:, 0].astype(int)
    epsilon = float(likelihood.invlink.epsilon.numpy())
    rng = np.random.default_rng(seed)
    B, variance = residual(kernel, Z, X)
    scaled = B / variance[:, None]
    precision = np.linalg.cholesky(np.eye(B.shape[1]) + B.T @ scaled)
    v = np.zeros((B.shape[1], C))
    f = rng.standard_normal((len(X), C))
    draws = []
    for number in range(SWEEPS):
        sweep(f, (B @ v, np.sqrt(variance)), labels, epsilon, rng)
        mean = np.linalg.solve(precision, scaled.T @ f)
        v = np.linalg.solve(precision.T, mean + rng.standard_normal(v.shape))
        if number >= BURN_IN and number % THIN == 0:
            draws.append(v)
    return np.array(draws)


def probabilities(
    kernel: Kernel,
    likelihood: MultiClass,
    Z: AnyNDArray,
    draws: AnyNDArray,
    Xnew: AnyNDArray,
) -> AnyNDArray:
    """Of each class at new inputs, [S, C], the mean over draws."""
    B, variance = residual(kernel, Z, Xnew)
    C = likelihood.num_classes
    mean = (B @ draws).reshape(-1, C)  # all draws at once
    spread = np.broadcast_to(np.tile(variance, len(draws))[:, None], mean.shape)
    found = class_probabilities(
        likelihood, np.tile(Xnew, (len(draws), 1)), mean, spread, C
    )
    return found.numpy().reshape(len(draws), len(Xnew), C).mean(axis=0)
