"""Structured products against plain ones, and Cholesky factors of matrices that are
hard.
"""

import warnings
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from helpers import assert_all_close, assert_close, value_and_gradients

from gpflow_pep.engine.numerics import krylov, linalg
from gpflow_pep.engine.numerics.linalg import (
    JitterWarning,
    gram,
    jitter_needed,
    lower_matmul,
)

SIZES = [1, 7, 159, 160, 321, 500]


def _plain_gram(A: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    A = A + tf.zeros([weights.shape[0], 1, 1], A.dtype)
    return tf.matmul(A * weights[:, None, :], A, transpose_b=True)


def _values_and_gradients(function: Any, parts: list[tf.Tensor]) -> Any:
    """Of a weighted sum that is not symmetric."""
    with tf.GradientTape() as tape:
        tape.watch(parts)
        value = function(*parts)
        total = tf.reduce_sum(
            value * np.random.default_rng(0).standard_normal(value.shape)
        )
    return [value, *tape.gradient(total, parts)]


def _check_same(actual: Any, expected: Any, of_lower: int | None = None) -> None:
    for place, (one, other) in enumerate(zip(actual, expected, strict=True)):
        other = tf.linalg.band_part(other, -1, 0) if place == of_lower else other
        assert_close(one, other, rtol=1e-12 if place else 1e-13)


@pytest.mark.near_copies("1", "7", "160")
@pytest.mark.parametrize("size", SIZES)
def test_products(size: int, rng: np.random.Generator) -> None:
    """With XLA too, and in graphs of unknown sizes; weights of either sign."""
    lower, wide = (rng.standard_normal((1, size, columns)) for columns in (size, 13))
    parts = [tf.constant(np.tril(lower)), tf.constant(wide)]
    expected = _values_and_gradients(tf.matmul, parts)
    by_xla = tf.function(_values_and_gradients, jit_compile=True, autograph=False)
    for way in (_values_and_gradients, by_xla):
        _check_same(way(lower_matmul, parts), expected, of_lower=1)
    unknown = [tf.TensorSpec([1, None, None], tf.float64)] * 2
    for product, plain, some in (
        (lower_matmul, tf.matmul, parts),
        (
            lambda A, w: gram(A, w[:, 0]),
            lambda A, w: _plain_gram(A, w[:, 0]),
            [parts[1]] * 2,
        ),
    ):
        compiled = tf.function(product, input_signature=unknown, autograph=False)
        assert_close(compiled(*some), plain(*some), rtol=1e-13)
    for num_weights in (1, 13):
        pair = [parts[1], tf.constant(rng.standard_normal((1, num_weights)))]
        actual = _values_and_gradients(gram, pair)
        _check_same(actual, _values_and_gradients(_plain_gram, pair))
        transposed = tf.linalg.matrix_transpose(actual[0])
        assert_close(actual[0], transposed, rtol=0.0 if size > 320 else 1e-15)


def test_one_matrix_for_all_latent_functions_and_row_products(
    rng: np.random.Generator,
) -> None:
    """What they share gets the sum of their gradients."""
    for L_of_A, L_of_other in ((1, 3), (3, 1)):
        A = tf.constant(rng.standard_normal((L_of_A, 5, 7)))
        W = tf.constant(np.tril(rng.standard_normal((L_of_other, 5, 5))))
        weights = tf.constant(rng.standard_normal((L_of_other, 7)))
        for own, plain, parts, of_lower in (
            (lower_matmul, tf.matmul, [W, A], 1),
            (gram, _plain_gram, [A, weights], None),
            (gram, lambda A: tf.einsum("ksm,ktm->kst", A, A), [A], None),
            (linalg.row_products, lambda A: tf.einsum("ksm,ktm->kst", A, A), [A], None),
        ):
            expected = _values_and_gradients(plain, parts)
            _check_same(_values_and_gradients(own, parts), expected, of_lower)


class _PlainFactor:
    def __init__(self, K: tf.Tensor) -> None:
        self.L = tf.linalg.cholesky(K)
        eye = tf.eye(K.shape[-1], batch_shape=[2], dtype=K.dtype)
        self.W = tf.linalg.triangular_solve(self.L, eye)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("weighted", [(1.0, 1.0), (1.0, 0.0), (0.0, 1.0)], ids=str)
@pytest.mark.parametrize("own", [linalg.factorise, linalg.factorise_with_jitter])
def test_a_factor_and_its_derivatives_of_first_and_second_order(
    rng: np.random.Generator, own: Any, weighted: tuple[float, float], compiled: bool
) -> None:
    root = rng.standard_normal((2, 6, 6))
    K = tf.constant(root @ root.transpose(0, 2, 1) + 0.1 * np.eye(6))
    upstream = [tf.constant(w * rng.standard_normal((2, 6, 6))) for w in weighted]
    direction = tf.constant(rng.standard_normal((2, 6, 6)))
    direction += tf.linalg.matrix_transpose(direction)

    def derivatives(factor: Any, K: tf.Tensor) -> list[tf.Tensor]:
        with tf.GradientTape() as outer:
            outer.watch(K)
            with tf.GradientTape() as tape:
                tape.watch(K)
                made = factor(K)
                parts = made.L, made.W
                pairs = zip(parts, upstream, strict=True)
                total = tf.add_n([tf.reduce_sum(part * by) for part, by in pairs])
            first = tape.gradient(total, K)
            along = tf.reduce_sum(first * direction)
        second = outer.gradient(along, K)
        # K stays symmetric.
        return [
            *parts,
            *(0.5 * (by + tf.linalg.matrix_transpose(by)) for by in (first, second)),
        ]

    ours = (tf.function(derivatives, autograph=False) if compiled else derivatives)(
        own, K
    )
    expected = derivatives(_PlainFactor, K)
    assert_all_close(ours[:2], expected[:2], rtol=1e-12)
    assert_all_close(ours[2:], expected[2:], rtol=1e-9)


def test_gradient_where_jitter_was_needed() -> None:
    x = tf.Variable(np.linspace(0.0, 1.0, 40)[:, None])

    def covariance(jitter: Any = 0.0) -> tf.Tensor:
        return tf.exp(-0.5 * (x - tf.transpose(x)) ** 2 / 9.0) + jitter * tf.eye(
            40, dtype=x.dtype
        )

    with pytest.warns(JitterWarning):
        jitter = jitter_needed(covariance())
        value, own = value_and_gradients(
            lambda: tf.reduce_sum(linalg.factorise_with_jitter(covariance()[None]).L),
            [x],
        )
    same, expected = value_and_gradients(
        lambda: tf.reduce_sum(tf.linalg.cholesky(covariance(jitter))), [x]
    )
    assert jitter > 0.0
    assert_close(value, same, rtol=1e-12)
    assert_all_close(own, expected, rtol=1e-2)  # K has a condition of 1e14 here


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e8])
@pytest.mark.parametrize("kind", ["rank one", "indefinite by rounding", "zero"])
def test_jitter_is_enough_and_little(kind: str, scale: float, dtype: type) -> None:
    eps = np.finfo(dtype).eps
    x = np.linspace(0, 1, 40)[:, None]
    K = {
        "rank one": np.ones((40, 40)),
        "zero": np.diag(np.r_[np.ones(39), 0.0]),
        "indefinite by rounding": np.exp(-((x - x.T) ** 2) / 18.0).astype(dtype)
        - 9 * eps * np.eye(40),
    }[kind]
    K = (scale * K).astype(dtype)
    with pytest.warns(JitterWarning, match="nearly"):
        jitter = jitter_needed(tf.constant(K)).numpy()
    L = tf.linalg.cholesky(K + jitter * np.eye(40, dtype=dtype)).numpy()
    assert np.all(np.isfinite(L))
    assert 0.0 < jitter <= 1e4 * 40 * eps * scale


def test_jitter_only_for_what_needs_it(rng: np.random.Generator) -> None:
    K = np.stack([np.eye(4), np.ones((4, 4)), 2.0 * np.eye(4)])
    with pytest.warns(JitterWarning):
        jitter = jitter_needed(tf.constant(K)).numpy()
    assert jitter[0] == 0.0 and jitter[2] == 0.0 and jitter[1] > 0.0
    root = rng.standard_normal((3, 5, 9))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        jitter = jitter_needed(tf.constant(root @ root.transpose(0, 2, 1)))
    assert_close(jitter, np.zeros(3))
    K = np.diag([1.0, np.nan, 1.0])
    jitter_needed(tf.constant(K))  # ends; the caller sees NaN in the factor
    assert np.isnan(linalg.factorise(tf.constant(K)).L.numpy()).any()


def test_a_compiled_graph_warns_by_pythons_rules() -> None:
    compiled = tf.function(jitter_needed, autograph=False)
    singular = tf.ones([4, 4], tf.float64)
    for action, number in {"default": 1, "always": 3, "ignore": 0}.items():
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter(action)  # type: ignore[arg-type]
            jitters = [compiled(singular) for _ in range(3)]
        assert [warning.category for warning in caught] == [JitterWarning] * number
    by_xla = tf.function(jitter_needed, autograph=False, jit_compile=True)(singular)
    assert jitters[0] > 0.0 and by_xla == jitters[0]
    with warnings.catch_warnings():
        warnings.simplefilter("error", JitterWarning)
        with pytest.raises(
            tf.errors.UnknownError, match="JitterWarning: A covariance matrix"
        ):
            compiled(singular)
        with linalg.warnings_of_graphs_dropped():
            assert compiled(singular) > 0.0
        assert compiled(tf.eye(4, dtype=tf.float64)) == 0.0


# GMRES against dense solutions.

RNG = np.random.default_rng(0)


def gmres(
    matrix: Any, right: Any, tolerance: float, most: int = 100
) -> krylov._KrylovSolution:
    def times(x: tf.Tensor) -> tf.Tensor:
        return tf.linalg.matvec(matrix, x)

    options: dict[str, Any] = {"tolerance": tolerance, "max_products": most}
    return krylov.gmres(times, tf.convert_to_tensor(right), **options)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("size", [1, 2, 12])
def test_solution(size: int, compiled: bool) -> None:
    matrix = np.eye(size) + 0.5 * RNG.standard_normal((size, size))
    right = RNG.standard_normal(size)
    solve = tf.function(gmres, autograph=False) if compiled else gmres
    solution = solve(matrix, right, 1e-13)
    assert_close(solution.x, np.linalg.solve(matrix, right), rtol=1e-9)
    assert 1 <= solution.num_products <= size and solution.residual < 1e-12


def test_residual_is_what_is_left() -> None:
    matrix = np.diag(np.linspace(1.0, 50.0, 40))
    right = np.ones(40)
    solution = gmres(matrix, right, 1e-3)
    left = np.linalg.norm(right - matrix @ np.asarray(solution.x)) / np.linalg.norm(
        right
    )
    assert_close(solution.residual, left, rtol=1e-6)
    assert left <= 1e-3 and solution.num_products < 40
    few = gmres(matrix, right, 1e-3, most=4)
    assert few.num_products == 4 and few.residual > 1e-3


def test_few_products_and_flat_directions() -> None:
    """The solution of minimum norm; where there is none, the residual says so."""
    values = np.array([1.0, 1.0, 3.0, 3.0, -2.0, -2.0])
    right = RNG.standard_normal(6)
    solution = gmres(np.diag(values), right, 1e-12)
    assert solution.num_products == 3  # as many as different eigenvalues
    assert_close(solution.x, right / values)
    Q, _ = np.linalg.qr(RNG.standard_normal((8, 8)))
    matrix = (Q * np.r_[0.0, 0.0, np.linspace(0.5, 2.0, 6)]) @ Q.T
    right = matrix @ RNG.standard_normal(8)
    assert_close(
        gmres(matrix, right, 1e-11).x, np.linalg.pinv(matrix, rcond=1e-10) @ right
    )
    assert gmres(matrix, right + Q[:, 0], 1e-11).residual > 0.01
    solution = gmres(np.eye(3), np.zeros(3), 1e-10)
    none = gmres(np.zeros((3, 3)), np.ones(3), 1e-10)
    assert solution.num_products == 0 and none.residual == 1.0
    assert not np.any(solution.x) and not np.any(none.x)
