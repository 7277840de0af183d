"""Graphs that no one uses any more are collected; those of others stay."""

import gc
import tempfile
import warnings
import weakref
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from sklearn.exceptions import ConvergenceWarning

import gpflow_pep as pep
from gpflow_pep.engine.numerics.graphs import OneUseGraphs, without_collector

X = np.linspace(-1.0, 1.0, 12)[:, None]
Y = np.sin(3.0 * X)


@pytest.fixture(autouse=True)
def only_new_objects() -> Iterator[None]:
    """Collect and count nothing that was there before, which takes seconds after many tests."""
    _regressor()
    gc.freeze()
    yield
    gc.unfreeze()


@tf.custom_gradient
def doubled(x: tf.Tensor) -> Any:
    return 2.0 * x, lambda upstream: 2.0 * upstream


def looped(x: tf.Tensor) -> tf.Tensor:
    """Of gradients and transforms in the body of a loop, in a branch, and in neither."""
    positive = gpflow.utilities.positive()

    def body(k: tf.Tensor, x: tf.Tensor) -> Any:
        return k + 1, doubled(positive(x))

    x = tf.while_loop(lambda k, _: k < 3, body, (tf.constant(0), x))[1]
    return tf.cond(x > 0.0, lambda: doubled(positive(doubled(x))), lambda: x)


def graph_of(function: Callable[[tf.Tensor], tf.Tensor], graphs: OneUseGraphs) -> Any:
    """Compile and differentiate it inside, and refer to the graph without keeping it."""

    def gradient(x: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            tape.watch(x)
            value = function(x)
        return tape.gradient(value, x)

    compiled = tf.function(graphs.tracked(gradient), autograph=False)
    x = tf.constant(0.3, tf.float64)
    assert compiled(x) > 0.0
    return weakref.ref(compiled.get_concrete_function(x).graph)


def test_a_graph_is_released() -> None:
    with OneUseGraphs() as graphs:
        graph = graph_of(looped, graphs)
    gc.collect()
    assert graph() is None


def test_a_graph_is_released_with_its_owner() -> None:
    class Owner:
        pass

    owner, graphs = Owner(), OneUseGraphs()
    graph = graph_of(looped, graphs)
    graphs.release_with_owner(owner)
    gc.collect()
    assert graph() is not None
    del owner
    gc.collect()
    assert graph() is None


def test_functions_of_others_keep_their_gradients() -> None:
    """One that was compiled before, and one that was compiled while another graph was made."""
    x = tf.constant(0.3, tf.float64)
    before, within = tf.function(looped), tf.function(looped)
    before(x)
    with OneUseGraphs() as graphs:
        graph_of(lambda x: within(x) + doubled(x), graphs)
    expected = None
    for function in (looped, before, within):
        with tf.GradientTape() as tape:
            tape.watch(x)
            value = function(x)
        gradient = float(tape.gradient(value, x))
        expected = gradient if expected is None else expected
        assert gradient == pytest.approx(expected, rel=1e-12)


def maximised() -> None:
    model = pep.models.PEPRegression((X, Y), gpflow.kernels.Matern32(), X[::3].copy())
    pep.training.maximise(model, max_iterations=1, progress=False)


def fitted() -> None:
    likelihood = gpflow.likelihoods.Gaussian(0.1)
    model = pep.models.ARPEP(gpflow.kernels.Matern32(), likelihood, X[::3].copy(), num_data=len(X))
    batches = pep.training.shuffled_batches((X, Y), 4, seed=0)
    optimizer = tf_keras.optimizers.Adam()
    pep.training.fit(model, batches, num_steps=1, optimizer=optimizer, progress=False)


def selected() -> None:
    pep.training.starts.greedy_variance(X, 3, kernel=gpflow.kernels.Matern32())


def informative() -> None:
    kernel, likelihood = gpflow.kernels.Matern32(), gpflow.likelihoods.Bernoulli()
    data = X, (Y > 0.0).astype(float)
    pep.training.starts.ivm(data, 3, kernel=kernel, likelihood=likelihood, seed=0)


def probit() -> pep.models.PEP:
    kernel, likelihood = gpflow.kernels.Matern32(), gpflow.likelihoods.Bernoulli()
    return pep.models.PEP((X, (Y > 0.0).astype(float)), kernel, likelihood, X[::3].copy())


def updated_row_after_row() -> None:
    probit().update_sites(1, sequential=True)


def minibatch_loss() -> None:
    """Dropped after its gradient was taken from outside."""
    model = probit()
    loss = model.minibatch_training_loss_closure(4, seed=0)
    with tf.GradientTape() as tape:
        value = loss()
    assert all(part is not None for part in tape.gradient(value, model.trainable_variables))


def exported() -> None:
    with tempfile.TemporaryDirectory() as folder:
        pep.estimators.export_saved_model(f"{folder}/model", _regressor())


@cache
def _regressor() -> pep.estimators.PEPRegressor:
    regressor = pep.estimators.PEPRegressor(num_inducing=3, max_iterations=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return regressor.fit(X, Y[:, 0])


@pytest.mark.parametrize(
    "call",
    [
        selected,
        informative,
        maximised,
        updated_row_after_row,
        pytest.param(exported, marks=pytest.mark.slow),
        pytest.param(minibatch_loss, marks=pytest.mark.slow),
        pytest.param(fitted, marks=pytest.mark.slow),
    ],
)
def test_nothing_is_kept(call: Callable[[], None]) -> None:
    """TensorFlow's and TensorFlow Probability's tables kept each graph before."""
    call()
    assert num_graphs() == 0


def num_graphs() -> int:
    """New ones that are left."""
    # The functions, which SciPy before 1.14 has in cycles; then their graphs, and what these held.
    for _ in range(3):
        gc.collect()
    return sum(isinstance(one, tf.Graph) for one in gc.get_objects())


@pytest.mark.parametrize("enabled", [True, False])
def test_no_garbage_is_searched_for_while_tracing(enabled: bool) -> None:
    searches, due = [], []

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
        # What follows does not at once search for what came before: see `without_collector`.
        assert not enabled or due == [0, 0]
    finally:
        gc.enable()
