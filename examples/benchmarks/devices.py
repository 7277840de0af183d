"""Print which operations of the losses a GPU cannot run, and the seconds on each device there is.

    python -m examples devices                  # two minutes
    python -m examples devices --rows 20000 --inducing 500

``operations`` counts those of value and gradient of the training loss, in double and in single
precision, with all that loops and branches run. ``without`` counts operations that have no GPU
kernel for their types in TensorFlow's registry, ``in loops`` those of them within a loop over rows
or sweeps, where each pass would wait for the host. Texts of messages and the Python function that
warns stay on the host on every device: they are of no size, run once in an evaluation at most, and
are counted apart, as ``messages``.
"""

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from tensorflow.core.framework.graph_pb2 import GraphDef
from tensorflow.core.framework.node_def_pb2 import NodeDef
from tensorflow.python.framework import kernels

import gpflow_pep as pep
from examples.common import arguments, seconds_by_turns, value_and_gradient

Loss = Callable[[], tf.Tensor]
LOOPS = ("While", "StatelessWhile")


class Operations(NamedTuple):
    """How many operations a graph has, and which of them have no kernel of a device."""

    number: int
    without: frozenset[str]
    without_in_loops: frozenset[str]
    num_messages: int


def is_known(operation: str, device: str = "GPU") -> bool:
    """Is this TensorFlow built with kernels of the device, for this operation?"""
    return any(kernel.device_type == device for kernel in _kernels(operation))


@cache
def _kernels(operation: str) -> Any:
    return kernels.get_registered_kernels_for_op(operation).kernel


def has_kernel(node: NodeDef, device: str = "GPU") -> bool:
    """Is there a kernel of the device for the operation at its types?"""
    return any(
        kernel.device_type in (device, "DEFAULT")
        and all(
            node.attr[constraint.name].type in constraint.allowed_values.list.type
            for constraint in kernel.constraint
        )
        for kernel in _kernels(node.op)
    )


def is_message(node: NodeDef) -> bool:
    """A text, or the Python function that warns with it."""
    return node.op == "PyFunc" or node.attr["dtype"].type == tf.string.as_datatype_enum


def operations_of(graph: GraphDef, device: str = "GPU") -> Operations:
    """Count the operations of a graph and of all functions that it calls."""
    functions = {function.signature.name: function for function in graph.library.function}
    nodes = [*graph.node, *(node for part in functions.values() for node in part.node_def)]

    def within(name: str, met: set[str]) -> Iterator[NodeDef]:
        if name in met:
            return
        met.add(name)
        for node in functions[name].node_def:
            yield node
            for called in _called(node):
                yield from within(called, met)

    met: set[str] = set()
    in_loops = [
        node
        for loop in nodes
        if loop.op in LOOPS
        for name in _called(loop)
        for node in within(name, met)
    ]
    without = frozenset(n.op for n in nodes if not is_message(n) and not has_kernel(n, device))
    waits = frozenset(n.op for n in in_loops if n.op == "PyFunc" or n.op in without)
    return Operations(len(nodes), without, waits, sum(map(is_message, nodes)))


def _called(node: NodeDef) -> Iterator[str]:
    for value in node.attr.values():
        if value.func.name:
            yield value.func.name
        for function in value.list.func:
            yield function.name


def losses(num_rows: int, num_inducing: int) -> dict[str, Callable[[], tuple[Loss, Any]]]:
    """Losses with the variables that they are trained by, of GPflow's default float."""
    kind = gpflow.default_float()
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, (num_rows, 2)).astype(kind)
    Y = (np.sin(X[:, :1]) + 0.1 * rng.standard_normal((num_rows, 1))).astype(kind)
    labels, counts = (Y > 0.0).astype(kind), np.digitize(Y, [-0.3, 0.3]).astype(kind)
    Z = X[:num_inducing]
    blocks = np.arange(num_rows) // 5
    bernoulli = gpflow.likelihoods.Bernoulli

    def regression(**options: Any) -> tuple[Loss, Any]:
        model = pep.PEPRegression((X, Y), _kernel(), Z.copy(), alpha=0.5, **options)
        return model.training_loss, model.trainable_variables

    def sites(likelihood: Any, targets: AnyNDArray) -> tuple[Loss, Any]:
        model = pep.PEP((X, targets), _kernel(), likelihood, Z.copy(), alpha=0.5)
        return model.training_loss, model.trainable_variables

    def minibatch(name: str) -> tuple[Loss, Any]:
        model = getattr(pep, name)(_kernel(), bernoulli(), Z.copy(), num_data=num_rows, alpha=0.5)
        rows = tuple(map(tf.constant, (X, labels)))
        return lambda: model.training_loss(rows), model.trainable_variables

    def of_svgp() -> tuple[Loss, Any]:
        model = gpflow.models.SVGP(_kernel(), bernoulli(), Z.copy(), num_data=num_rows)
        rows = tuple(map(tf.constant, (X, labels)))
        return lambda: model.training_loss(rows), model.trainable_variables

    return {
        "GPflow's SVGP, labels": of_svgp,
        "PEPRegression": regression,
        "... with blocks": lambda: regression(blocks=blocks),
        "... with neighbours": lambda: regression(neighbours=5),
        "PEP, labels": lambda: sites(bernoulli(), labels),
        "... counts": lambda: sites(gpflow.likelihoods.Poisson(), counts),
        "... Student's t": lambda: sites(gpflow.likelihoods.StudentT(), Y),
        "... three classes": lambda: sites(gpflow.likelihoods.MultiClass(3), counts),
        "ARPEP, labels": lambda: minibatch("ARPEP"),
        "APEP, labels": lambda: minibatch("APEP"),
        "RPAPEP, labels": lambda: minibatch("RPAPEP"),
    }


def _kernel() -> gpflow.kernels.Kernel:
    return gpflow.kernels.SquaredExponential()


def operations_of_loss(loss: Loss, variables: Any) -> Operations:
    """Those of value and gradient."""
    graph = value_and_gradient(loss, variables).get_concrete_function().graph
    return operations_of(graph.as_graph_def())


def print_operations() -> None:
    """Print the table of operations, in double and in single precision."""
    if not is_known("MatMul"):
        print("This TensorFlow is built without kernels for GPUs: nothing can be said of them.")
        return
    print(f"{'model':24} {'operations':>18} {'without':>8} {'in loops':>9} {'messages':>9}")
    counts: dict[str, list[Operations]] = {}
    for kind in (np.float64, np.float32):
        with gpflow.config.as_context(gpflow.config.Config(float=kind)):
            for name, create in losses(60, 10).items():
                counts.setdefault(name, []).append(operations_of_loss(*create()))
    for name, (double, single) in counts.items():
        number = f"{double.number} / {single.number}"
        without = len(double.without | single.without)
        loops = len(double.without_in_loops | single.without_in_loops)
        print(f"{name:24} {number:>18} {without:>8} {loops:>9} {double.num_messages:>9}")


def print_seconds(num_rows: int, num_inducing: int, repeats: int) -> None:
    """Print the seconds of value and gradient on the CPU and on each GPU."""
    devices = ["CPU:0", *(f"GPU:{k}" for k in range(len(tf.config.list_physical_devices("GPU"))))]
    if len(devices) == 1:
        print("\nThis machine has no GPU that TensorFlow sees: there are no seconds of one.")
    print(f"\nMilliseconds of value and gradient, N = {num_rows}, M = {num_inducing}")
    print(f"{'model':24}" + "".join(f" {device:>9}" for device in devices))
    for name in losses(num_rows, num_inducing):
        functions = {}
        for device in devices:
            with tf.device(device):
                create = losses(num_rows, num_inducing)[name]
                functions[device] = value_and_gradient(*create())
                functions[device]()
        times = seconds_by_turns(functions, repeats)
        print(f"{name:24}" + "".join(f" {1e3 * min(times[device]):9.1f}" for device in devices))


def main() -> None:
    args = arguments(
        __doc__, rows=5_000, inducing=200, repeats=5, quick={"rows": 500, "inducing": 20}
    )
    print_operations()
    print_seconds(args.rows, args.inducing, args.repeats)
