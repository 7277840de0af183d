"""Sums over rows of mixtures, and what is looked at in each row, against NumPy."""

import numpy as np
import pytest
import tensorflow as tf
from helpers import assert_all_close, assert_close

from gpflow_pep.engine.sites import mixed
from gpflow_pep.engine.sites.mixed import log_determinant, row_sites
from gpflow_pep.engine.sites.posterior import Sites

N = 7
P = 4
Q = 3
M = 5
rng = np.random.default_rng(0)
A = rng.standard_normal((Q, M, N))
MIXING = rng.standard_normal((P, Q))
TAU = rng.uniform(0.1, 2.0, (N, P))
NU = rng.standard_normal((N, P))
D = rng.uniform(0.0, 1.0, (N, Q))
ALPHA = np.linspace(0.0, 1.0, N)


def test_latent_sums_and_their_gradients() -> None:
    variables = [
        tf.Variable(part) for part in (A, rng.standard_normal((N, Q, Q)), NU[:, :Q])
    ]
    by_G = rng.standard_normal((Q * M, Q * M))
    by_b = rng.standard_normal((Q * M, 1))

    def sums_and_gradients(written_out: bool) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            A, half, first = map(tf.convert_to_tensor, variables)
            T = half + tf.linalg.matrix_transpose(half)
            if written_out:
                G = tf.reshape(tf.einsum("qmn,nqr,rkn->qmrk", A, T, A), by_G.shape)
                b = tf.reshape(tf.einsum("qmn,nq->qm", A, first), by_b.shape)
            else:
                (G,), (b,) = map(tf.unstack, mixed.latent_sums(A, T, first))
                assert np.array_equal(G, np.transpose(G))
            value = tf.reduce_sum(by_G * tf.square(G)) + tf.reduce_sum(
                by_b * tf.square(b)
            )
        return [G, b, *tape.gradient(value, variables)]

    assert_all_close(sums_and_gradients(False), sums_and_gradients(True), rtol=1e-12)


@pytest.mark.parametrize("smallest", [0.0, 1e-12, 1e-6, 0.5])
def test_log_determinants(smallest: float) -> None:
    """With digits at any power; none where two eigenvalues are negative, and it is
    positive.
    """
    alpha = np.maximum(ALPHA, smallest)
    tau = np.where(rng.uniform(size=TAU.shape) < 0.3, -0.05 * TAU, TAU)
    d = tf.constant(D)
    powers = tf.constant(alpha)
    rows = row_sites(tf.constant(MIXING), Sites(NU, tau), d, powers)
    actual = log_determinant(rows, d, powers).numpy()
    for n in range(N):
        root = np.sqrt(D[n])
        C = MIXING.T @ np.diag(tau[n]) @ MIXING
        values = np.linalg.eigvalsh(root[:, None] * C * root)
        terms = values if alpha[n] == 0.0 else np.log1p(alpha[n] * values) / alpha[n]
        assert_close(actual[n], np.sum(terms), rtol=1e-12)
    power = tf.ones([1], tf.float64)
    d = tf.ones([1, 2], tf.float64)
    for tau, is_finite in (
        ([-0.5, -0.5], True),
        ([-3.0, 1.0], False),
        ([-3.0, -3.0], False),
    ):
        rows = row_sites(tf.eye(2, dtype=tf.float64), Sites(0.0 * d, d * tau), d, power)
        assert np.isfinite(log_determinant(rows, d, power)[0]) == is_finite


def test_proper_rows() -> None:
    """The eigenvalues of I - alpha T S, where a precision is negative or none is."""
    half = rng.standard_normal((N, Q, Q))
    for tau in (np.where(rng.uniform(size=TAU.shape) < 0.5, -TAU, TAU), TAU):
        none = np.zeros((N, Q))  # no residual variance: T is C
        rows = row_sites(
            tf.constant(MIXING), Sites(NU, tau), tf.constant(none), tf.constant(ALPHA)
        )
        T = rows.T.numpy()
        others = half @ np.swapaxes(half, 1, 2) + 0.5 * np.eye(Q)
        S = np.linalg.inv(0.02 * others + (T if np.all(tau > 0.0) else 0.0))
        h = mixed.LatentMarginals(tf.constant(none), tf.constant(S))
        actual = mixed._proper_rows(
            h, rows, tf.constant(tau), tf.constant(ALPHA)
        ).numpy()
        eigenvalues = np.linalg.eigvals(np.eye(Q) - ALPHA[:, None, None] * (T @ S)).real
        assert np.array_equal(actual, np.all(eigenvalues > 0.0, axis=1))
        assert actual.all() == bool(np.all(tau > 0.0)) and actual.any()
