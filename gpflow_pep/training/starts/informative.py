r"""
The informative vector machine (Lawrence, Seeger & Herbrich 2002): rows by how much their targets
say of f.

Assumed-density filtering takes in one row after another. A row whose latent function has mean m and
variance s so far, with :math:`\log Z = \log \int N(f; m, s) p(y | f) df`, changes them with
:math:`\delta_1 = d \log Z / dm` and :math:`\delta_2 = d^2 \log Z / dm^2`: given it, the variance is
:math:`s + \delta_2 s^2`. The entropy of the posterior falls by
:math:`-\tfrac12 \log(1 + \delta_2 s)`, and the row that makes it fall most is next.
"""

from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.inducing_variables import InducingPoints
from gpflow.kernels import Kernel
from gpflow.likelihoods import Likelihood

from ...engine import checks
from ...engine.factors import check_num_latent, check_support, tilted_derivatives
from ...engine.numerics.graphs import compiled
from .rows import CompiledKernel, as_data, distinct_rows

#: Numbers in the candidates' covariances with the rows chosen (128 MiB in float64).
CANDIDATE_ELEMENTS = 2**24


def ivm(
    data: Any,
    M: int,
    *,
    kernel: Kernel,
    likelihood: Likelihood,
    seed: int,
    num_candidates: int | None = None,
) -> InducingPoints:
    """
    Choose the row next whose target makes the entropy of the posterior fall most.

    :param data: X [N, D] and Y [N, 1].
    :param kernel: The kernel, with hyperparameters that suit the data.
    :param likelihood: One latent function's, known to
        :func:`~gpflow_pep.likelihoods.log_power_expectation`: for regression
        ``gpflow.likelihoods.Gaussian(noise_variance)``.
    :param seed: Of the candidates, and of their order: among equals the first is chosen.
    :param num_candidates: How many rows are candidates, a random set of rows that differ; at least
        M. None: all, as far as :data:`CANDIDATE_ELEMENTS` allows.
    :raises ValueError: If fewer than M rows differ, or there are several latent functions.
    """
    X, Y = as_data(data)
    checks.check_number(M, len(X))
    checks.check_single_output(kernel)
    checks.check_seed(seed)
    check_support(likelihood, tf.constant(Y))
    num_latent = check_num_latent(None, likelihood, tf.constant(Y))
    if num_latent != 1:
        got = f"{type(likelihood).__name__} with {num_latent} latent functions"
        remedy = "Choose by another rule, such as greedy_variance."
        raise checks.refusal("likelihood", got, "one", remedy)
    if num_candidates is None:
        num_candidates = min(len(X), max(M, CANDIDATE_ELEMENTS // M))
    checks.check_number(num_candidates, len(X), "num_candidates")
    order = np.random.default_rng(seed).permutation(len(X))
    rows = distinct_rows(X, order, M, limit=num_candidates)
    return InducingPoints(X[rows[_most_informative(X[rows], Y[rows], M, kernel, likelihood)]])


def _most_informative(
    X: AnyNDArray, Y: AnyNDArray, M: int, kernel: Kernel, likelihood: Likelihood
) -> list[int]:
    prior = CompiledKernel(kernel, X)
    mean, variance = np.zeros(len(X)), prior.variances(X)
    A = np.empty([M, len(X)])  # posterior covariance = prior's + sum of sign[j] A[j] A[j]ᵀ
    sign = np.empty(M)
    is_chosen = np.zeros(len(X), dtype=bool)
    derivatives = _derivatives(likelihood, X, Y)
    chosen: list[int] = []
    for m in range(M):
        delta1, delta2 = derivatives(mean, variance)
        fall = -np.log1p(np.maximum(delta2 * variance, -1.0 + 1e-15))
        best = int(np.argmax(np.where(is_chosen, -np.inf, fall)))
        covariance = prior.between(X[[best]], X)[0] + (sign[:m] * A[:m, best]) @ A[:m]
        A[m] = np.sqrt(np.abs(delta2[best])) * covariance
        sign[m] = np.sign(delta2[best])
        mean += delta1[best] * covariance
        variance = np.maximum(variance + sign[m] * np.square(A[m]), 0.0)
        is_chosen[best] = True
        chosen.append(best)
    return chosen


def _derivatives(likelihood: Likelihood, X: AnyNDArray, Y: AnyNDArray) -> Any:
    """Compile a function of means and variances."""
    inputs, targets, dtype = tf.constant(X), tf.constant(Y), X.dtype

    def derivatives(mean: tf.Tensor, variance: tf.Tensor) -> list[tf.Tensor]:
        m = tf.cast(mean, dtype)[:, None]
        v = tf.maximum(tf.cast(variance, dtype), np.finfo(dtype).tiny)[:, None]
        result = tilted_derivatives(likelihood, inputs, m, v, targets, 1.0)
        return [tf.cast(part[:, 0], tf.float64) for part in (result.delta1, result.delta2)]

    compute = compiled(derivatives)
    return lambda *moments: [part.numpy() for part in compute(*map(tf.constant, moments))]
