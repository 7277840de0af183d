"""Structured products against plain ones, and Cholesky factors of matrices that are hard."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from helpers import assert_all_close, assert_close

from gpflow_pep.engine.numerics.linalg import (
    JitterWarning,
    factorise,
    factorise_with_jitter,
    gram,
    graphs_exported,
    jitter_needed,
    lower_matmul,
    row_products,
    warnings_of_graphs_dropped,
)

SIZES = [1, 7, 159, 160, 321, 500]


@pytest.fixture
def lower(rng: np.random.Generator, size: int) -> tf.Tensor:
    return tf.constant(np.tril(rng.standard_normal((1, size, size))))


@pytest.fixture
def wide(rng: np.random.Generator, size: int) -> tf.Tensor:
    return tf.constant(rng.standard_normal((1, size, 13)))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("jit", [False, True])
def test_lower_matmul(lower: tf.Tensor, wide: tf.Tensor, jit: bool) -> None:
    weight = tf.cos(wide)

    def value_and_gradients(product):  # type: ignore[no-untyped-def]
        with tf.GradientTape() as tape:
            tape.watch([lower, wide])
            value = product(lower, wide)
            total = tf.reduce_sum(value * weight)
        return value, tape.gradient(total, [lower, wide])

    value, gradients = tf.function(
        lambda: value_and_gradients(lower_matmul), jit_compile=jit, autograph=False
    )()
    expected, expected_gradients = value_and_gradients(tf.matmul)
    assert_close(value, expected, rtol=1e-13)
    assert_close(gradients[0], tf.linalg.band_part(expected_gradients[0], -1, 0), rtol=1e-13)
    assert_close(gradients[1], expected_gradients[1], rtol=1e-13)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("num_weights", [(1, 1), (1, 13)])
def test_gram(
    wide: tf.Tensor, size: int, num_weights: tuple[int, ...], rng: np.random.Generator
) -> None:
    upstream = tf.constant(rng.standard_normal((1, size, size)))  # not symmetric
    weights = tf.constant(rng.standard_normal(num_weights))  # of either sign
    with tf.GradientTape(persistent=True) as tape:
        tape.watch([wide, weights])
        value = gram(wide, weights)
        total = tf.reduce_sum(value * upstream)
        expected = tf.matmul(wide * weights[:, None, :], wide, transpose_b=True)
        expected_total = tf.reduce_sum(expected * upstream)
    assert_close(value, expected, rtol=1e-13)
    assert_close(value, tf.linalg.matrix_transpose(value), rtol=0.0 if size > 320 else 1e-15)
    for x in (wide, weights):
        assert_close(tape.gradient(total, x), tape.gradient(expected_total, x), rtol=1e-12)


def test_row_products(rng: np.random.Generator) -> None:
    A = tf.constant(rng.standard_normal((3, 4, 6)))
    upstream = tf.constant(rng.standard_normal((3, 4, 4)))  # not symmetric
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(A)
        value, expected = row_products(A), tf.einsum("ksm,ktm->kst", A, A)
        total, expected_total = (tf.reduce_sum(x * upstream) for x in (value, expected))
    assert_close(value, expected, rtol=1e-13)
    assert_close(tape.gradient(total, A), tape.gradient(expected_total, A), rtol=1e-13)


@pytest.mark.parametrize("size", [4, 200])
def test_products_of_unknown_size(lower: tf.Tensor, wide: tf.Tensor) -> None:
    spec = tf.TensorSpec([1, None, None], tf.float64)
    compiled = tf.function(lower_matmul, input_signature=[spec, spec])
    assert_close(compiled(lower, wide), tf.matmul(lower, wide), rtol=1e-13)
    compiled = tf.function(lambda A: gram(A, tf.ones([1, 1], tf.float64)), input_signature=[spec])
    assert_close(compiled(wide), tf.matmul(wide, wide, transpose_b=True), rtol=1e-13)


@pytest.mark.parametrize("shared", ["A", "other"])
def test_one_matrix_for_all_latent_functions(shared: str, rng: np.random.Generator) -> None:
    """What they share gets the sum of their gradients."""
    L, M, N = 3, 5, 7
    A = tf.constant(rng.standard_normal((1 if shared == "A" else L, M, N)))
    W = tf.constant(np.tril(rng.standard_normal((1 if shared == "other" else L, M, M))))
    weights = tf.constant(rng.standard_normal((1 if shared == "other" else L, N)))
    with tf.GradientTape(persistent=True) as tape:
        tape.watch([A, W, weights])
        pairs = [
            (lower_matmul(W, A), tf.matmul(W, A)),
            (gram(A, weights), tf.einsum("lmn,ln,lkn->lmk", *_tiled(L, A, weights, A))),
        ]
        totals = [[tf.reduce_sum(tf.sin(value)) for value in pair] for pair in pairs]
    for (value, expected), (total, wanted) in zip(pairs, totals):
        assert_close(value, expected, rtol=1e-13)
        for x in (A, W, weights):
            gradient, other = (tape.gradient(y, x) for y in (total, wanted))
            if other is not None:
                lower = tf.linalg.band_part(other, -1, 0) if x is W else other
                assert_close(gradient, lower, rtol=1e-12)


def _tiled(L: int, *tensors: tf.Tensor) -> list[tf.Tensor]:
    return [tf.concat([x] * (L // x.shape[0]), axis=0) for x in tensors]


def test_factorise_and_its_gradient(rng: np.random.Generator) -> None:
    root = rng.standard_normal((2, 6, 6))
    K = tf.constant(root @ root.transpose(0, 2, 1) + 0.1 * np.eye(6))
    L, W = factorise(K)
    assert_close(L, np.linalg.cholesky(K.numpy()), rtol=1e-14)
    assert_close(W, np.linalg.inv(L.numpy()), rtol=1e-12)


def _plain_factor(K: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """As TensorFlow differentiates it."""
    L = tf.linalg.cholesky(K)
    return L, tf.linalg.triangular_solve(L, tf.eye(K.shape[-1], batch_shape=[2], dtype=K.dtype))


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("weighted", [(1.0, 1.0), (1.0, 0.0), (0.0, 1.0)], ids=str)
@pytest.mark.parametrize("own", [factorise, factorise_with_jitter])
def test_derivatives_of_a_factor_of_first_and_second_order(
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

    def derivatives(factor: Callable[..., Any], K: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        with tf.GradientTape() as outer:
            outer.watch(K)
            with tf.GradientTape() as tape:
                tape.watch(K)
                parts = zip(factor(K), upstream, strict=True)
                total = tf.add_n([tf.reduce_sum(part * by) for part, by in parts])
            first = tape.gradient(total, K)
            along = tf.reduce_sum(first * direction)
        second = outer.gradient(along, K)
        return first, 0.5 * (second + tf.linalg.matrix_transpose(second))  # K stays symmetric

    ours = (tf.function(derivatives, autograph=False) if compiled else derivatives)(own, K)
    assert_all_close(ours, derivatives(_plain_factor, K), rtol=1e-9)


def test_gradient_where_jitter_was_needed() -> None:
    x = tf.Variable(np.linspace(0.0, 1.0, 40)[:, None])

    def covariance() -> tf.Tensor:
        return tf.exp(-0.5 * (x - tf.transpose(x)) ** 2 / 9.0)

    with pytest.warns(JitterWarning):
        jitter = jitter_needed(covariance())
        with tf.GradientTape() as tape:
            value = tf.reduce_sum(factorise_with_jitter(covariance()[None]).L)
    with tf.GradientTape() as wanted:
        same = tf.reduce_sum(tf.linalg.cholesky(covariance() + jitter * tf.eye(40, dtype=x.dtype)))
    assert jitter > 0.0
    assert_close(value, same, rtol=1e-12)
    # K has a condition of 1e14 here.
    assert_close(tape.gradient(value, x), wanted.gradient(same, x), rtol=1e-2)


def test_no_jitter_where_none_is_needed(rng: np.random.Generator) -> None:
    root = rng.standard_normal((3, 5, 9))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        jitter = jitter_needed(tf.constant(root @ root.transpose(0, 2, 1)))
    assert_close(jitter, np.zeros(3))


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


def test_jitter_only_for_the_matrix_that_needs_it() -> None:
    K = np.stack([np.eye(4), np.ones((4, 4)), 2.0 * np.eye(4)])
    with pytest.warns(JitterWarning):
        jitter = jitter_needed(tf.constant(K)).numpy()
    assert jitter[0] == 0.0 and jitter[2] == 0.0 and jitter[1] > 0.0


def test_jitter_gives_up_on_nan_and_ends() -> None:
    K = np.eye(3)
    K[1, 1] = np.nan
    jitter_needed(tf.constant(K))  # ends; the caller sees NaN in the factor
    assert np.isnan(factorise(tf.constant(K)).L.numpy()).any()


def test_a_compiled_graph_warns_by_pythons_rules() -> None:
    compiled, singular = tf.function(jitter_needed, autograph=False), tf.ones([4, 4], tf.float64)
    for action, number in {"default": 1, "always": 3, "ignore": 0}.items():
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter(action)  # type: ignore[arg-type]
            for _ in range(3):
                assert compiled(singular) > 0.0
        assert [warning.category for warning in caught] == [JitterWarning] * number
    with warnings.catch_warnings():
        warnings.simplefilter("error", JitterWarning)
        with pytest.raises(tf.errors.UnknownError, match="JitterWarning: A covariance matrix"):
            compiled(singular)
        with warnings_of_graphs_dropped():
            assert compiled(singular) > 0.0
        assert compiled(tf.eye(4, dtype=tf.float64)) == 0.0


def test_an_exported_graph_calls_no_python() -> None:
    def operations() -> set[str]:
        matrix = tf.TensorSpec([4, 4], tf.float64)
        graph = tf.function(jitter_needed, autograph=False).get_concrete_function(matrix).graph
        names = {op.type for op in graph.get_operations()}
        for function in graph.as_graph_def().library.function:
            names |= {node.op for node in function.node_def}
        return names

    assert "PyFunc" in operations()
    with graphs_exported():
        assert "PyFunc" not in operations()


def test_jitter_compiles_with_xla() -> None:
    K = tf.ones([4, 4], tf.float64)
    with pytest.warns(JitterWarning):
        expected = jitter_needed(K)
    assert_close(tf.function(jitter_needed, autograph=False, jit_compile=True)(K), expected)
