"""GPUs have a kernel for each operation of the losses."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from helpers import load_example

devices = load_example("benchmarks/devices.py")

pytestmark = pytest.mark.skipif(
    not devices.is_known("MatMul"), reason="this TensorFlow is built without kernels for GPUs"
)


def test_a_copy_in_a_row_loop_is_seen() -> None:
    @tf.function(autograph=False)
    def function(x: tf.Tensor) -> tf.Tensor:
        def add(k: tf.Tensor, x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            return k + 1, tf.cond(tf.reduce_any(x > 2.0), lambda: x, lambda: x + 1.0)

        return tf.while_loop(lambda k, _: k < 3, add, [tf.constant(0), x], name="rows")[1]

    graph = function.get_concrete_function(tf.zeros(2, tf.float64)).graph
    operations = devices.operations_of(graph.as_graph_def())
    assert operations.copied_in_row_loops == {"Any for StatelessIf"}
    assert operations.in_row_loops["Greater"] == 1


def test_row_loops_wait_for_no_number() -> None:
    """Value and gradient of regression in chunks; of rows from a data set, but for shapes."""
    copies = {"... in chunks": set(), "... from a data set": {"DynamicStitch for Reshape"}}
    for name, expected in copies.items():
        operations = devices.operations_of_loss(*devices.losses(60, 10)[name]())
        assert operations.without == frozenset()
        assert operations.in_row_loops["BatchMatMulV2"] > 2  # the loop was found
        assert operations.copied_in_row_loops == expected


def test_what_a_gpu_cannot_run_is_seen() -> None:
    @tf.function(autograph=False)
    def function(x: tf.Tensor) -> tuple[tf.Tensor, ...]:
        def by_the_host(k: tf.Tensor, x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            return k + 1, tf.ensure_shape(tf.numpy_function(np.sin, [x], x.dtype), [2])

        _, x = tf.while_loop(lambda k, _: k < 3, by_the_host, [tf.constant(0), x])
        return tf.sin(x), *tf.raw_ops.ListDiff(x=x, y=x)

    graph = function.get_concrete_function(tf.zeros(2, tf.float64)).graph
    operations = devices.operations_of(graph.as_graph_def())
    assert "ListDiff" in operations.without and "Sin" not in operations.without
    assert operations.without_in_loops == {"PyFunc"} and operations.num_messages == 1


@pytest.mark.near_copies(
    "float64-PEPRegression", "float64-... three classes", "float64-ARPEP*", "float64-*data set"
)
@pytest.mark.parametrize("name", devices.losses(3, 2))
@pytest.mark.parametrize("kind", [np.float64, np.float32])
def test_a_gpu_runs_all_of_a_loss(name: str, kind: type) -> None:
    with gpflow.config.as_context(gpflow.config.Config(float=kind)):
        operations = devices.operations_of_loss(*devices.losses(60, 10)[name]())
    assert operations.number > 500
    assert operations.without == operations.without_in_loops == frozenset()
