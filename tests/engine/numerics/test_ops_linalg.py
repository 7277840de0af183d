"""Structured products against plain ones, and Cholesky factors of matrices that are hard."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from helpers import assert_all_close, assert_close

from gpflow_pep.engine.numerics import linalg
from gpflow_pep.engine.numerics.linalg import JitterWarning, gram, jitter_needed, lower_matmul

SIZES = [1, 7, 159, 160, 321, 500]


def _lower_and_wide(rng: np.random.Generator, size: int) -> list[tf.Tensor]:
    lower = np.tril(rng.standard_normal((1, size, size)))
    return [tf.constant(lower), tf.constant(rng.standard_normal((1, size, 13)))]


def _plain_gram(A: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    A = A + tf.zeros([weights.shape[0], 1, 1], A.dtype)
    return tf.matmul(A * weights[:, None, :], A, transpose_b=True)


def _values_and_gradients(function: Any, parts: list[tf.Tensor]) -> Any:
    """Of a weighted sum that is not symmetric."""
    with tf.GradientTape() as tape:
        tape.watch(parts)
        value = function(*parts)
        upstream = np.random.default_rng(0).standard_normal(value.shape)
        total = tf.reduce_sum(value * upstream)
    return [value, *tape.gradient(total, parts)]


def _check_same(actual: Any, expected: Any, of_lower: int | None = None) -> None:
    for place, (one, other) in enumerate(zip(actual, expected, strict=True)):
        other = tf.linalg.band_part(other, -1, 0) if place == of_lower else other
        assert_close(one, other, rtol=1e-12 if place else 1e-13)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("jit", [False, True])
def test_lower_matmul(size: int, jit: bool, rng: np.random.Generator) -> None:
    parts = _lower_and_wide(rng, size)
    expected = _values_and_gradients(tf.matmul, parts)
    if jit:
        own = tf.function(_values_and_gradients, jit_compile=True, autograph=False)
        _check_same(own(lower_matmul, parts), expected, of_lower=1)
    else:
        _check_same(_values_and_gradients(lower_matmul, parts), expected, of_lower=1)
        unknown = [tf.TensorSpec([1, None, None], tf.float64)] * 2
        for product, plain, some in (
            (lower_matmul, tf.matmul, parts),
            (lambda A, w: gram(A, w[:, 0]), lambda A, w: _plain_gram(A, w[:, 0]), [parts[1]] * 2),
        ):
            compiled = tf.function(product, input_signature=unknown, autograph=False)
            assert_close(compiled(*some), plain(*some), rtol=1e-13)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("num_weights", [1, 13])
def test_gram(size: int, num_weights: int, rng: np.random.Generator) -> None:
    weights = tf.constant(rng.standard_normal((1, num_weights)))  # of either sign
    parts = [_lower_and_wide(rng, size)[1], weights]
    actual = _values_and_gradients(gram, parts)
    _check_same(actual, _values_and_gradients(_plain_gram, parts))
    transposed = tf.linalg.matrix_transpose(actual[0])
    assert_close(actual[0], transposed, rtol=0.0 if size > 320 else 1e-15)


@pytest.mark.parametrize("L_of_A, L_of_other", [(1, 3), (3, 1)])
def test_one_matrix_for_all_latent_functions(
    L_of_A: int, L_of_other: int, rng: np.random.Generator
) -> None:
    """What they share gets the sum of their gradients."""
    A = tf.constant(rng.standard_normal((L_of_A, 5, 7)))
    W = tf.constant(np.tril(rng.standard_normal((L_of_other, 5, 5))))
    weights = tf.constant(rng.standard_normal((L_of_other, 7)))
    for own, plain, parts in (
        (lower_matmul, tf.matmul, [W, A]),
        (gram, _plain_gram, [A, weights]),
    ):
        expected = _values_and_gradients(plain, parts)
        _check_same(_values_and_gradients(own, parts), expected, 1 if own is lower_matmul else None)


def test_row_products(rng: np.random.Generator) -> None:
    A = [tf.constant(rng.standard_normal((3, 4, 6)))]
    expected = _values_and_gradients(lambda A: tf.einsum("ksm,ktm->kst", A, A), A)
    _check_same(_values_and_gradients(linalg.row_products, A), expected)


def _plain_factor(K: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    L = tf.linalg.cholesky(K)
    return L, tf.linalg.triangular_solve(L, tf.eye(K.shape[-1], batch_shape=[2], dtype=K.dtype))


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("weighted", [(1.0, 1.0), (1.0, 0.0), (0.0, 1.0)], ids=str)
@pytest.mark.parametrize("own", [linalg.factorise, linalg.factorise_with_jitter])
def test_a_factor_and_its_derivatives_of_first_and_second_order(
    rng: np.random.Generator,
    own: Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]],
    weighted: tuple[float, float],
    compiled: bool,
) -> None:
    root = rng.standard_normal((2, 6, 6))
    K = tf.constant(root @ root.transpose(0, 2, 1) + 0.1 * np.eye(6))
    upstream = [tf.constant(w * rng.standard_normal((2, 6, 6))) for w in weighted]
    direction = tf.constant(rng.standard_normal((2, 6, 6)))
    direction += tf.linalg.matrix_transpose(direction)

    def derivatives(factor: Callable[..., Any], K: tf.Tensor) -> list[tf.Tensor]:
        with tf.GradientTape() as outer:
            outer.watch(K)
            with tf.GradientTape() as tape:
                tape.watch(K)
                parts = factor(K)
                pairs = zip(parts, upstream, strict=True)
                total = tf.add_n([tf.reduce_sum(part * by) for part, by in pairs])
            first = tape.gradient(total, K)
            along = tf.reduce_sum(first * direction)
        second = outer.gradient(along, K)  # K stays symmetric
        return [*parts, first, 0.5 * (second + tf.linalg.matrix_transpose(second))]

    ours = (tf.function(derivatives, autograph=False) if compiled else derivatives)(own, K)
    expected = derivatives(_plain_factor, K)
    assert_all_close(ours[:2], expected[:2], rtol=1e-12)
    assert_all_close(ours[2:], expected[2:], rtol=1e-9)


def test_gradient_where_jitter_was_needed() -> None:
    x = tf.Variable(np.linspace(0.0, 1.0, 40)[:, None])

    def covariance() -> tf.Tensor:
        return tf.exp(-0.5 * (x - tf.transpose(x)) ** 2 / 9.0)

    with pytest.warns(JitterWarning):
        jitter = jitter_needed(covariance())
        with tf.GradientTape() as tape:
            value = tf.reduce_sum(linalg.factorise_with_jitter(covariance()[None]).L)
    with tf.GradientTape() as wanted:
        same = tf.reduce_sum(tf.linalg.cholesky(covariance() + jitter * tf.eye(40, dtype=x.dtype)))
    assert jitter > 0.0
    assert_close(value, same, rtol=1e-12)
    # K has a condition of 1e14 here.
    assert_close(tape.gradient(value, x), wanted.gradient(same, x), rtol=1e-2)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e8])
@pytest.mark.parametrize("kind", ["rank one", "indefinite by rounding", "zero"])
def test_jitter_is_enough_and_little(kind: str, scale: float, dtype: type) -> None:
    eps = np.finfo(dtype).eps
    if kind == "rank one":
        K = np.ones((40, 40), dtype)
    elif kind == "zero":
        K = np.diag(np.r_[np.ones(39), 0.0]).astype(dtype)
    else:
        x = np.linspace(0, 1, 40)[:, None]
        K = np.exp(-0.5 * (x - x.T) ** 2 / 9.0).astype(dtype) - np.eye(40, dtype=dtype) * 9 * eps
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
    compiled, singular = tf.function(jitter_needed, autograph=False), tf.ones([4, 4], tf.float64)
    for action, number in {"default": 1, "always": 3, "ignore": 0}.items():
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter(action)  # type: ignore[arg-type]
            jitters = [compiled(singular) for _ in range(3)]
        assert [warning.category for warning in caught] == [JitterWarning] * number
    by_xla = tf.function(jitter_needed, autograph=False, jit_compile=True)(singular)
    assert jitters[0] > 0.0 and by_xla == jitters[0]
    with warnings.catch_warnings():
        warnings.simplefilter("error", JitterWarning)
        with pytest.raises(tf.errors.UnknownError, match="JitterWarning: A covariance matrix"):
            compiled(singular)
        with linalg.warnings_of_graphs_dropped():
            assert compiled(singular) > 0.0
        assert compiled(tf.eye(4, dtype=tf.float64)) == 0.0


def test_an_exported_graph_calls_no_python() -> None:
    def operations() -> set[str]:
        matrix = tf.TensorSpec([4, 4], tf.float64)
        graph = tf.function(jitter_needed, autograph=False).get_concrete_function(matrix).graph
        functions = graph.as_graph_def().library.function
        inner = (node.op for function in functions for node in function.node_def)
        return {*(op.type for op in graph.get_operations()), *inner}

    assert "PyFunc" in operations()
    with linalg.graphs_exported():
        assert "PyFunc" not in operations()
