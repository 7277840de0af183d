"""Natural gradient steps beside their definition in natural parameters, with NumPy's inverses."""

import numpy as np
import pytest
import tensorflow as tf
from helpers import Array, assert_close

from gpflow_pep.training.fitting.natural import _NaturalStep, natural_step

M, L = 4, 2


def gaussians(seed: int) -> tuple[Array, Array]:
    """Means [M, L] and roots [L, M, M], with a negative entry on one diagonal."""
    rng = np.random.default_rng(seed)
    root = np.tril(0.3 * rng.standard_normal([L, M, M]), -1) + np.diag([0.4, 0.9, 0.2, 1.3])
    root[1, 2, 2] *= -1.0
    return rng.standard_normal([M, L]), root


def symmetric(seed: int) -> Array:
    A = np.random.default_rng(seed).standard_normal([L, M, M])
    return A @ A.transpose(0, 2, 1)


def taken(
    mean: Array, root: Array, by_mean: Array, by_covariance: Array, gamma: float
) -> _NaturalStep:
    """With the gradient in the root, of a loss whose gradient in the covariance is that."""
    by_root = 2.0 * by_covariance @ root
    return _NaturalStep(
        *(
            part.numpy()
            for part in natural_step(*map(tf.constant, (mean, root, by_mean, by_root)), gamma)
        )
    )


def assert_by_definition(
    step: _NaturalStep, mean: Array, root: Array, by_mean: Array, by_covariance: Array
) -> None:
    """Natural parameters less a length times the gradient in expectations (m, S + mm')."""
    for latent in range(L):
        gamma, m, g = step.gamma[latent], mean[:, latent], by_mean[:, latent]
        C = by_covariance[latent]
        precision = np.linalg.inv(root[latent] @ root[latent].T)
        first, second = precision @ m, -0.5 * precision
        first = first - gamma * (g - 2.0 * C @ m)
        second = second - gamma * C
        covariance = np.linalg.inv(-2.0 * second)
        assert_close(step.root[latent] @ step.root[latent].T, covariance, rtol=1e-10)
        assert_close(step.mean[:, latent], covariance @ first, rtol=1e-10)
    assert not np.triu(step.root, 1).any()


@pytest.mark.parametrize("gamma", [1.0, 0.3, 1e-6])
def test_definition(gamma: float) -> None:
    mean, root = gaussians(0)
    by_mean, C = 0.1 * np.random.default_rng(1).standard_normal([M, L]), symmetric(2)
    step = taken(mean, root, by_mean, C, gamma)
    assert_close(step.gamma, np.full(L, gamma), rtol=1e-15)
    assert_by_definition(step, mean, root, by_mean, C)


def test_quadratic_loss_in_one_step() -> None:
    """KL to another Gaussian: a step of length 1 goes there."""
    mean, root = gaussians(0)
    target = root @ np.linalg.cholesky(np.linalg.inv(np.eye(M) + symmetric(4)))
    wanted = mean + 0.3 * np.einsum("lij,j->il", root, [1.0, -1.0, 1.0, 0.5])
    precision, P = (np.linalg.inv(R @ R.transpose(0, 2, 1)) for R in (root, target))
    by_mean = np.einsum("lij,jl->il", P, mean - wanted)
    step = taken(mean, root, by_mean, 0.5 * (P - precision), 1.0)
    assert_close(step.mean, wanted, rtol=1e-10)
    assert_close(step.root @ step.root.transpose(0, 2, 1), target @ target.transpose(0, 2, 1))


@pytest.mark.parametrize("gamma", [1.0, 0.1])
def test_indefinite_is_shortened(gamma: float) -> None:
    """For the latent function that needs it alone."""
    mean, root = gaussians(0)
    C = symmetric(2)
    C[0] -= 30.0 * np.eye(M)
    by_mean = np.zeros([M, L])
    step = taken(mean, root, by_mean, C, gamma)
    assert_by_definition(step, mean, root, by_mean, C)
    assert 1e-3 * gamma < step.gamma[0] < gamma and step.gamma[1] == gamma
    before, after = (np.linalg.eigvalsh(R[0] @ R[0].T) for R in (root, step.root))
    assert np.all(after > before[0]) and np.all(np.isfinite(after))

    def is_positive(length: float) -> bool:
        precision = np.linalg.inv(root[0] @ root[0].T) + 2.0 * length * C[0]
        return bool(np.linalg.eigvalsh(precision)[0] > 0.0)

    assert is_positive(step.gamma[0]) and not is_positive(1.0)


@pytest.mark.parametrize("gamma", [0.5, 0.1])
def test_mean_that_goes_too_far_is_shortened(gamma: float) -> None:
    mean, root = gaussians(0)
    by_mean = np.ones([M, L]) * [1e4, 1e-4]
    C = np.zeros([L, M, M])
    step = taken(mean, root, by_mean, C, gamma)
    assert_by_definition(step, mean, root, by_mean, C)
    move = np.linalg.solve(root[0], (step.mean - mean)[:, 0])
    longest = gamma / (1.0 - gamma)
    assert 0.45 * longest < np.sqrt(np.mean(move**2)) <= longest
    assert step.gamma[1] == gamma


def test_no_gradient_no_step() -> None:
    mean, root = gaussians(0)
    step = taken(mean, root, np.zeros([M, L]), np.zeros([L, M, M]), 1.0)
    assert_close(step.mean, mean, rtol=1e-15)
    assert_close(step.root @ step.root.transpose(0, 2, 1), root @ root.transpose(0, 2, 1))


def test_compiled_in_single_precision() -> None:
    mean, root = gaussians(0)
    by_mean, C = 0.1 * np.ones([M, L]), symmetric(2)
    expected = taken(mean, root, by_mean, C, 0.2)
    parts = [tf.constant(p, tf.float32) for p in (mean, root, by_mean, 2.0 * C @ root)]
    for xla in (False, True):
        found = tf.function(natural_step, autograph=False, jit_compile=xla)(*parts, 0.2)
        assert found.mean.dtype == tf.float32
        assert_close(found.mean, expected.mean, rtol=1e-4)
