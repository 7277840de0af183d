"""The informative vector machine (Lawrence, Seeger & Herbrich 2002), which the papers
compare with.

Assumed-density filtering takes in one row after another. A row whose latent function
has mean m and variance s so far, with log Z = log int N(f; m, s) p(y | f) df, changes
them with delta1 = d log Z / dm and delta2 = d^2 log Z / dm^2: given it, the variance is
s + delta2 s^2. The entropy of the posterior falls by -1/2 log(1 + delta2 s), and the
row that makes it fall most is next.
"""

from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.inducing_variables import InducingPoints
from gpflow.kernels import Kernel
from gpflow.likelihoods import Likelihood

from gpflow_pep.likelihoods import check_support, tilted_derivatives
from gpflow_pep.training.starts.rows import as_data, distinct_rows


def ivm(
    data: Any, M: int, *, kernel: Kernel, likelihood: Likelihood, seed: int
) -> InducingPoints:
    """Choose the row next whose target makes the entropy of the posterior fall most.

    :param data: X [N, D] and Y [N, 1].
    :param likelihood: One latent function's.
    :param seed: Of the candidates, which are all rows that differ, as far as 128 MiB of
        covariances with the chosen ones allow, and of their order: among equals the
        first is chosen.
    """
    X, Y = as_data(data)
    check_support(likelihood, tf.constant(Y))
    order = np.random.default_rng(seed).permutation(len(X))
    rows = distinct_rows(X, order, M, limit=min(len(X), max(M, 2**24 // M)))
    return InducingPoints(
        X[rows[_most_informative(X[rows], Y[rows], M, kernel, likelihood)]]
    )


def _most_informative(
    X: AnyNDArray, Y: AnyNDArray, M: int, kernel: Kernel, likelihood: Likelihood
) -> list[int]:
    @tf.function(autograph=False)
    def derivatives(
        mean: tf.Tensor, variance: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        m, v = (tf.cast(part, X.dtype)[:, None] for part in (mean, variance))
        v = tf.maximum(v, np.finfo(X.dtype).tiny)
        _, delta1, delta2 = tilted_derivatives(
            likelihood, tf.constant(X), m, v, tf.constant(Y), 1.0
        )
        return tf.cast(delta1[:, 0], tf.float64), tf.cast(delta2[:, 0], tf.float64)

    mean = np.zeros(len(X))
    variance = kernel(X, full_cov=False).numpy().astype(np.float64)
    between = tf.function(
        lambda row: tf.cast(kernel(row, X), tf.float64), autograph=False
    )
    # Posterior covariance = prior's + sum of sign[j] A[j] A[j]ᵀ.
    A = np.empty([M, len(X)])
    sign = np.empty(M)
    is_chosen = np.zeros(len(X), dtype=bool)
    chosen: list[int] = []
    for m in range(M):
        delta1, delta2 = (part.numpy() for part in derivatives(mean, variance))
        fall = -np.log1p(np.maximum(delta2 * variance, -1.0 + 1e-15))
        best = int(np.argmax(np.where(is_chosen, -np.inf, fall)))
        covariance = between(X[[best]]).numpy()[0] + (sign[:m] * A[:m, best]) @ A[:m]
        A[m] = np.sqrt(np.abs(delta2[best])) * covariance
        sign[m] = np.sign(delta2[best])
        mean = mean + delta1[best] * covariance
        variance = np.maximum(variance + sign[m] * np.square(A[m]), 0.0)
        is_chosen[best] = True
        chosen.append(best)
    return chosen
