"""Sums over chunks of rows: every row once, and gradients that do not depend on the chunks."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from helpers import assert_close

from gpflow_pep.ops import chunks

CASES = [(1, 1), (1, 9), (2, 1), (10, 2), (10, 3), (10, 7), (10, 9), (10, 10), (10, 11), (23, 5)]


def all_rows(pieces: chunks.Chunks) -> list[Any]:
    """The first tensor of each chunk, taken by number as the loop does."""
    return [pieces.take(k if k == 0 else tf.constant(k))[0].numpy() for k in range(pieces.count)]


@pytest.mark.parametrize("num_rows, chunk_size", CASES)
def test_row_chunks_hold_every_row_once(num_rows: int, chunk_size: int) -> None:
    taken = all_rows(chunks.row_chunks([tf.range(num_rows)], chunk_size))
    np.testing.assert_array_equal(np.concatenate(taken), np.arange(num_rows))
    assert max(map(len, taken)) <= chunk_size and min(map(len, taken)) >= 1


@pytest.mark.parametrize(
    "sizes", [[1], [5], [1, 1, 1], [3, 1, 4, 1, 5], [2, 2, 2, 2], [9, 1], list(range(1, 12))]
)
@pytest.mark.parametrize("chunk_size", [1, 4, 6, 1000])
def test_block_chunks_hold_every_row_once(
    sizes: list[int], chunk_size: int, rng: np.random.Generator
) -> None:
    names = rng.permutation(100)[: len(sizes)] - 50
    labels = rng.permutation(np.repeat(names, sizes))
    plan = chunks.plan_blocks(labels, chunk_size)
    pieces = chunks.block_chunks(plan)
    np.testing.assert_array_equal(plan.names, np.sort(names))
    seen = []
    for k in range(pieces.count):
        blocks, rows = (value.numpy() for value in pieces.take(tf.constant(k)))
        assert rows.shape[0] == 1 or rows.size <= chunk_size
        for block, members in zip(blocks, rows):
            members = members[members >= 0]
            assert set(labels[members]) == {plan.names[block]}
            seen.extend(members)
    assert sorted(seen) == list(range(len(labels)))


class Terms:
    """A sum over rows with a variable and a shared tensor in it."""

    def __init__(self, rng: np.random.Generator, num_rows: int) -> None:
        self.X = tf.constant(rng.standard_normal((num_rows, 2)))
        self.weight = tf.Variable([0.3, -0.7], dtype=tf.float64)
        self.unused = tf.Variable(1.0, dtype=tf.float64)
        self.shared = tf.constant([0.2, 1.5], tf.float64)

    def of_rows(self, rows: chunks.Rows, shared: tf.Tensor) -> chunks.Sums:
        f = tf.sin(rows[0] * self.weight + shared)
        return tf.reduce_sum(f), tf.matmul(f, tf.exp(f), transpose_a=True)

    def total(self, chunk_size: int, keep: bool) -> tf.Tensor:
        pieces = chunks.row_chunks([self.X], chunk_size)
        a, b = chunks.sum_over_chunks(self.of_rows, pieces, (self.shared,), keep=keep)
        return tf.square(a) + tf.reduce_sum(tf.sin(b))

    def derivatives(self, chunk_size: int, keep: bool) -> list[tf.Tensor]:
        """Value, gradients, and second derivatives in the variable."""
        with tf.GradientTape(persistent=True) as outer:
            with tf.GradientTape() as tape:
                tape.watch(self.shared)
                value = self.total(chunk_size, keep)
            gradients = tape.gradient(value, [self.weight, self.shared])
            first = tf.unstack(gradients[0])
        return [value, *gradients, *[outer.gradient(g, self.weight) for g in first]]


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("mode", ["eager", "graph"])
@pytest.mark.parametrize("num_rows, chunk_size", [(10, 3), (10, 1), (9, 10)])
def test_derivatives_do_not_depend_on_chunks(
    num_rows: int, chunk_size: int, mode: str, keep: bool, rng: np.random.Generator
) -> None:
    terms = Terms(rng, num_rows)
    expected = terms.derivatives(num_rows, True)
    function = terms.derivatives if mode == "eager" else tf.function(terms.derivatives)
    for actual, wanted in zip(function(chunk_size, keep), expected):
        assert_close(actual, wanted, rtol=1e-12)


def test_gradient_by_differences(rng: np.random.Generator) -> None:
    terms = Terms(rng, 11)
    gradient = terms.derivatives(4, False)[1].numpy()
    base, step = terms.weight.numpy(), 1e-5
    for i in range(2):
        values = []
        for sign in (1.0, -1.0):
            terms.weight.assign(base + sign * step * np.eye(2)[i])
            values.append(float(terms.total(4, False)))
        assert_close(gradient[i], (values[0] - values[1]) / (2 * step), rtol=1e-7)


def test_rows_of_unknown_number(rng: np.random.Generator) -> None:
    terms = Terms(rng, 1)

    @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.float64)])
    def total(X: tf.Tensor) -> tf.Tensor:
        terms.X = X
        with tf.GradientTape() as tape:
            value = terms.total(4, False)
        return value, tape.gradient(value, terms.weight)

    X = tf.constant(rng.standard_normal((9, 2)))
    for num_rows in (1, 4, 5, 9):
        actual = total(X[:num_rows])
        terms.X = X[:num_rows]
        expected = terms.derivatives(num_rows, True)
        assert_close(actual[0], expected[0], rtol=1e-12)
        assert_close(actual[1], expected[1], rtol=1e-12)


def test_rows_are_constants(rng: np.random.Generator) -> None:
    terms = Terms(rng, 6)
    with tf.GradientTape() as tape:
        tape.watch(terms.X)
        value = terms.total(6, True)
    assert tape.gradient(value, terms.X) is None


def test_memory_and_chunk_size() -> None:
    assert chunks.fits_memory(500, 20_000, 8, 4)
    assert not chunks.fits_memory(500, 1_000_000, 8, 4)
    assert not chunks.fits_memory(500, None, 8, 4)
    assert chunks.default_chunk_size(500) == 2000
    assert chunks.default_chunk_size(10**6) == chunks.MIN_CHUNK
