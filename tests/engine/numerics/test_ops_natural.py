"""Natural gradient steps beside their definition in natural parameters, with NumPy's
inverses.
"""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from helpers import Array, assert_close

from gpflow_pep.training.fitting.natural import _NaturalStep, natural_step

M = 4
L = 2


def symmetric(seed: int) -> Array:
    A = np.random.default_rng(seed).standard_normal([L, M, M])
    return A @ A.transpose(0, 2, 1)


_rng = np.random.default_rng(0)
#: Means [M, L] and roots [L, M, M], with a negative entry on one diagonal.
ROOT = np.tril(0.3 * _rng.standard_normal([L, M, M]), -1) + np.diag(
    [0.4, 0.9, 0.2, 1.3]
)
ROOT[1, 2, 2] *= -1.0
MEAN = _rng.standard_normal([M, L])
PRECISION = np.linalg.inv(ROOT @ ROOT.transpose(0, 2, 1))
SMALL = 0.1 * np.random.default_rng(1).standard_normal([M, L])
C = symmetric(2)
INDEFINITE = C - 30.0 * np.eye(M) * [[[1.0]], [[0.0]]]


def taken(by_mean: Array, by_covariance: Array, gamma: float) -> _NaturalStep:
    """A step by the gradients in mean and covariance of a loss; it has that in the
    root.
    """
    parts = MEAN, ROOT, by_mean, 2.0 * by_covariance @ ROOT
    return _NaturalStep(
        *(p.numpy() for p in natural_step(*map(tf.constant, parts), gamma))
    )


@pytest.mark.parametrize(
    "by_mean, by_covariance, gamma, shortened",
    [
        *((SMALL, C, gamma, None) for gamma in (1.0, 0.3, 1e-6)),
        *((0.0 * SMALL, INDEFINITE, gamma, "indefinite") for gamma in (1.0, 0.1)),
        *(
            (np.ones([M, L]) * [1e4, 1e-4], 0.0 * C, gamma, "far")
            for gamma in (0.5, 0.1)
        ),
        (0.0 * SMALL, 0.0 * C, 1.0, "nowhere"),
    ],
)
def test_definition(
    by_mean: Array, by_covariance: Array, gamma: float, shortened: Any
) -> None:
    """Natural parameters less a length times the gradient in expectations (m,
    S + mm').
    """
    step = taken(by_mean, by_covariance, gamma)
    for k in range(L):
        m = MEAN[:, k]
        g = by_mean[:, k]
        by = by_covariance[k]
        first = PRECISION[k] @ m - step.gamma[k] * (g - 2.0 * by @ m)
        covariance = np.linalg.inv(PRECISION[k] + 2.0 * step.gamma[k] * by)
        assert_close(step.root[k] @ step.root[k].T, covariance, rtol=1e-10)
        assert_close(step.mean[:, k], covariance @ first, rtol=1e-10)
    assert not np.triu(step.root, 1).any()
    assert step.gamma[1] == pytest.approx(gamma, rel=1e-15)
    if shortened == "indefinite":
        assert 1e-3 * gamma < step.gamma[0] < gamma
        before, after = (np.linalg.eigvalsh(R[0] @ R[0].T) for R in (ROOT, step.root))
        assert np.all(after > before[0]) and np.all(np.isfinite(after))
        assert np.linalg.eigvalsh(PRECISION[0] + 2.0 * by_covariance[0])[0] < 0.0
    elif shortened == "far":
        move = np.linalg.solve(ROOT[0], (step.mean - MEAN)[:, 0])
        longest = gamma / (1.0 - gamma)
        assert 0.45 * longest < np.sqrt(np.mean(move**2)) <= longest
    else:
        assert step.gamma[0] == pytest.approx(gamma, rel=1e-15)


def test_quadratic_loss_in_one_step_and_single_precision() -> None:
    """KL to another Gaussian: a step of length 1 goes there."""
    target = ROOT @ np.linalg.cholesky(np.linalg.inv(np.eye(M) + symmetric(4)))
    wanted = MEAN + 0.3 * np.einsum("lij,j->il", ROOT, [1.0, -1.0, 1.0, 0.5])
    P = np.linalg.inv(target @ target.transpose(0, 2, 1))
    step = taken(np.einsum("lij,jl->il", P, MEAN - wanted), 0.5 * (P - PRECISION), 1.0)
    assert_close(step.mean, wanted, rtol=1e-10)
    assert_close(
        step.root @ step.root.transpose(0, 2, 1), target @ target.transpose(0, 2, 1)
    )
    by_mean = 0.1 * np.ones([M, L])
    expected = taken(by_mean, C, 0.2)
    parts = [tf.constant(p, tf.float32) for p in (MEAN, ROOT, by_mean, 2.0 * C @ ROOT)]
    for xla in (False, True):
        step = tf.function(natural_step, autograph=False, jit_compile=xla)(*parts, 0.2)
        assert step.mean.dtype == tf.float32
        assert_close(step.mean, expected.mean, rtol=1e-4)
