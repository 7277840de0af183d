"""Sums over chunks of rows: every row once, and gradients that do not depend on the
chunks.
"""

import gc
from typing import Any, NamedTuple

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from helpers import assert_all_close, assert_close
from hypothesis import given, settings
from hypothesis import strategies as st

from gpflow_pep.engine.numerics import chunks
from gpflow_pep.engine.numerics.graphs import without_collector
from gpflow_pep.models import rows as model_rows


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 25), st.integers(1, 12))
def test_row_chunks_hold_every_row_once(num_rows: int, chunk_size: int) -> None:
    pieces = chunks.row_chunks([tf.range(num_rows)], chunk_size)
    numbers = [k if k == 0 else tf.constant(k) for k in range(pieces.count)]
    taken = [pieces.take(k)[0].numpy() for k in numbers]
    np.testing.assert_array_equal(np.concatenate(taken), np.arange(num_rows))
    assert max(map(len, taken)) <= chunk_size and min(map(len, taken)) >= 1


def test_rows_of_unknown_number(rng: np.random.Generator) -> None:
    """Where there are none, there is one chunk, which has none."""
    spec = [tf.TensorSpec([None, 2], tf.float64)]
    terms = Terms(rng, 1)
    X = tf.constant(rng.standard_normal((9, 2)))

    def double(rows: tf.Tensor) -> tf.Tensor:
        return chunks.map_over_chunks(
            lambda some: 2.0 * some, chunks.row_chunks(rows, 3)
        )

    @tf.function(input_signature=spec)
    def total(X: tf.Tensor) -> tf.Tensor:
        terms.X = X
        with tf.GradientTape() as tape:
            value = terms.total(4, False)
        return value, tape.gradient(value, terms.weight)

    unknown = tf.function(double, input_signature=spec)
    for num_rows in (0, 1, 3, 4, 5, 9):
        for function in (double, unknown):
            np.testing.assert_array_equal(function(X[:num_rows]), 2.0 * X[:num_rows])
        if num_rows:
            actual = total(X[:num_rows])
            terms.X = X[:num_rows]
            assert_all_close(actual, terms.derivatives()[:2], rtol=1e-12)


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=8),
    st.sampled_from([1, 4, 6, 1000]),
)
def test_block_chunks_hold_every_row_once(sizes: list[int], chunk_size: int) -> None:
    rng = np.random.default_rng(len(sizes))
    names = rng.permutation(100)[: len(sizes)] - 50
    labels = rng.permutation(np.repeat(names, sizes))
    blocks = model_rows.Blocks(labels, chunk_size)
    pieces = blocks.chunks()
    ascending = np.asarray(blocks.block_rows.names)
    np.testing.assert_array_equal(ascending, np.sort(names))
    seen = []
    for k in range(pieces.count):
        some, rows = (value.numpy() for value in pieces.take(tf.constant(k)))
        assert rows.shape[0] == 1 or rows.size <= chunk_size
        for block, members in zip(some, rows):
            members = members[members >= 0]
            assert set(labels[members]) == {ascending[block]}
            seen.extend(members)
    assert sorted(seen) == list(range(len(labels)))


class Terms:
    """A sum over rows with a variable and a shared tensor in it."""

    def __init__(self, rng: np.random.Generator, num_rows: int) -> None:
        self.X = tf.constant(rng.standard_normal((num_rows, 2)))
        self.weight = tf.Variable([0.3, -0.7], dtype=tf.float64)
        self.shared = tf.constant([0.2, 1.5], tf.float64)

    def of_rows(
        self, rows: list[tf.Tensor], shared: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        f = tf.sin(rows[0] * self.weight + shared)
        return tf.reduce_sum(f), tf.matmul(f, tf.exp(f), transpose_a=True)

    def total(
        self, chunk_size: int = 0, keep: bool = False, parts: Any = ()
    ) -> tf.Tensor:
        """Written out where there are no chunks."""
        if chunk_size:
            pieces = chunks.row_chunks([self.X], chunk_size)
            options = {"keep": keep, "parts": parts}
            a, b = chunks.sum_over_chunks(
                self.of_rows, pieces, (self.shared,), **options
            )
        else:
            a, b = self.of_rows([self.X], self.shared)
        return tf.square(a) + tf.reduce_sum(tf.sin(b))

    def derivatives(self, *how: Any) -> list[tf.Tensor]:
        """Value, gradients, and second derivatives in the variable; written out by
        default.
        """
        with tf.GradientTape(persistent=True) as outer:
            with tf.GradientTape() as tape:
                tape.watch([self.shared, self.X])
                value = self.total(*how)
            gradients = tape.gradient(value, [self.weight, self.shared, self.X])
            first = tf.unstack(gradients[0])
        if how and tf.executing_eagerly():
            assert gradients[2] is None  # rows are constants
        return [value, *gradients[:2], *[outer.gradient(g, self.weight) for g in first]]


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("mode", ["eager", "graph"])
@pytest.mark.parametrize("num_rows, chunk_size", [(10, 3), (10, 1), (9, 10)])
@pytest.mark.near_copies("10-3-eager-*", "10-3-graph-True", "9-10-eager-False")
def test_derivatives_do_not_depend_on_chunks(
    num_rows: int, chunk_size: int, mode: str, keep: bool, rng: np.random.Generator
) -> None:
    terms = Terms(rng, num_rows)
    function: Any = terms.derivatives
    function = function if mode == "eager" else tf.function(function, autograph=False)
    assert_all_close(function(chunk_size, keep), terms.derivatives(), rtol=1e-12)


@pytest.mark.near_copies("watched")
@pytest.mark.parametrize("late", [False, True], ids=["watched", "made trainable later"])
def test_variables_that_are_not_trainable(late: bool, rng: np.random.Generator) -> None:
    """A custom gradient overlooks them, and a graph keeps what it found."""
    terms = Terms(rng, 10)
    expected = terms.derivatives()
    part = gpflow.Parameter(terms.weight, trainable=False)
    terms.weight = part.unconstrained_variable

    @tf.function(autograph=False)
    def second() -> Any:
        with tf.GradientTape() as outer:
            outer.watch(terms.weight)
            with tf.GradientTape() as tape:
                tape.watch(terms.weight)
                value = terms.total(3, False, [part, part])
                gpflow.set_trainable(part, late)
            gradient = tape.gradient(value, terms.weight)
        return gradient, outer.jacobian(
            gradient, terms.weight, experimental_use_pfor=False
        )

    by_chunks = second()
    assert_close(by_chunks[0], expected[1], rtol=1e-12)
    assert_close(by_chunks[1], tf.stack(expected[3:]), rtol=1e-12)


def test_memory_and_chunk_size() -> None:
    few, many = (tf.zeros([n, 1], tf.float64) for n in (20_000, 1_000_000))
    unknown = tf.Variable(few, shape=[None, 1])
    assert chunks.plan(None, 500, few, 4) == (2000, True)
    assert chunks.plan(None, 500, many, 4) == (2000, False)
    assert chunks.plan(None, 500, unknown, 4) == (2000, False)
    assert chunks.plan(None, 10**6, few, 4).chunk_size == chunks.MIN_CHUNK
    assert chunks.plan(300, 500, few, 4) == (300, False)
    assert chunks.plan(None, 500, few, 4, num_latents=4) == (500, True)


class Pair(NamedTuple):
    """Any structure of tensors."""

    once: tf.Tensor
    twice: list[tf.Tensor]


@pytest.mark.parametrize("keep", [False, True])
def test_structures_of_tensors(keep: bool, rng: np.random.Generator) -> None:
    X = tf.constant(rng.standard_normal((7, 2)))
    A = tf.constant(rng.standard_normal((3, 4, 7)))
    pieces = chunks.row_chunks({"X": X}, 3, columns=(A,))

    def of_chunk(piece: Any, factor: tf.Tensor) -> Pair:
        rows, (columns,) = piece
        return Pair(factor * tf.reduce_sum(rows["X"], 0), [tf.reduce_sum(columns, 2)])

    factor = tf.constant(2.0, tf.float64)
    with tf.GradientTape() as tape:
        tape.watch(factor)
        sums = chunks.sum_over_chunks(of_chunk, pieces, (factor,), keep=keep)
        total = tf.reduce_sum(sums.once)
    assert_close(sums.once, 2.0 * np.sum(X, axis=0), rtol=1e-14)
    assert_close(sums.twice[0], np.sum(A, axis=2), rtol=1e-13)
    assert_close(tape.gradient(total, factor), np.sum(X), rtol=1e-13)
    mapped = chunks.map_over_chunks(lambda piece: Pair(piece[0]["X"], []), pieces)
    assert_close(mapped.once, X)


def test_chunks_that_know_less_of_their_shape() -> None:
    """As blocks do, whose number and size are tensors."""
    X = tf.reshape(tf.range(12.0), [6, 2])

    @tf.function(autograph=False)
    def total() -> tf.Tensor:
        start = tf.constant([0, 2, 5, 6])
        pieces = chunks.Chunks(3, lambda k: (X[start[k] : start[k + 1]],))

        def of_chunk(rows: Any) -> tf.Tensor:
            return tf.reduce_sum(
                tf.reshape(rows[0], [tf.size(rows[0]) // 2, -1]), axis=0
            )

        return chunks.sum_over_chunks(of_chunk, pieces, (), keep=False)

    assert_close(total(), np.sum(X, axis=0), rtol=1e-7)


@pytest.mark.parametrize("enabled", [True, False])
def test_no_garbage_is_searched_for_while_tracing(enabled: bool) -> None:
    searches = []
    due = []

    @without_collector
    def function(x: tf.Tensor) -> tf.Tensor:
        searches.append(gc.isenabled())
        due.append(gc.get_count()[1])
        if x.dtype == tf.int32:
            raise ValueError("refused")
        return 2.0 * x

    try:
        if not enabled:
            gc.disable()
        compiled = tf.function(function)
        gc.collect(0)
        compiled(tf.constant(1.0))
        with pytest.raises(ValueError, match="refused"):
            compiled(tf.constant(1))
        assert searches == [False, False] and gc.isenabled() is enabled
        # What follows does not at once search for what came before: see
        # `without_collector`.
        assert not enabled or due == [0, 0]
    finally:
        gc.enable()
