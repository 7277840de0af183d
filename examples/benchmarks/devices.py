"""Print which operations of the losses a GPU cannot run, and the seconds on each device
there is.

    python -m examples devices                  # two minutes
    python -m examples devices --rows 20000 --inducing 500

``operations`` counts those of value and gradient of the training loss, in double and in
single precision, with all that loops and branches run. ``without`` counts operations
that have no GPU kernel for their types in TensorFlow's registry, ``in loops`` those of
them within a loop over rows or sweeps, where each pass would wait for the host.
``row loop`` counts the operations within loops over chunks of rows, and ``copies``
those of them that need a number in the host's memory which another one leaves in the
device's: each chunk would wait for it. Both are listed below. Texts of messages and the
Python function that warns stay on the host on every device: they are of no size, run
once in an evaluation at most, and are counted apart, as ``messages``.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import chain
from textwrap import fill
from typing import Any, NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from tensorflow.core.framework.graph_pb2 import GraphDef
from tensorflow.core.framework.node_def_pb2 import NodeDef
from tensorflow.python.framework import kernels, op_def_registry

import gpflow_pep as pep
from examples.common import arguments, seconds_by_turns, value_and_gradient
from gpflow_pep.engine.numerics.chunks import ROW_LOOP

Loss = Callable[[], tf.Tensor]
LOOPS = ("While", "StatelessWhile")


class Operations(NamedTuple):
    """How many operations a graph has, and which of them have no kernel of a device."""

    number: int
    without: frozenset[str]
    without_in_loops: frozenset[str]
    num_messages: int
    in_row_loops: Counter[str]
    """How often each operation is there within loops over chunks of rows."""

    copied_in_row_loops: frozenset[str]
    """Pairs of operations there, of which one needs what the other computes in host
    memory.
    """


def is_known(operation: str, device: str = "GPU") -> bool:
    """Is this TensorFlow built with kernels of the device, for this operation?"""
    return any(kernel.device_type == device for kernel in _kernels(operation))


@cache
def _kernels(operation: str) -> Any:
    return kernels.get_registered_kernels_for_op(operation).kernel


def has_kernel(node: NodeDef, device: str = "GPU") -> bool:
    """Is there a kernel of the device for the operation at its types?"""
    return kernel_of(node, device) is not None


def kernel_of(node: NodeDef, device: str = "GPU") -> Any:
    """The kernel of the device for the operation at its types, or None."""
    suiting = (
        kernel
        for kernel in _kernels(node.op)
        if kernel.device_type in (device, "DEFAULT")
        and all(
            node.attr[constraint.name].type in constraint.allowed_values.list.type
            for constraint in kernel.constraint
        )
    )
    return next(suiting, None)


def is_message(node: NodeDef) -> bool:
    """A text, or the Python function that warns with it."""
    return node.op == "PyFunc" or node.attr["dtype"].type == tf.string.as_datatype_enum


def operations_of(graph: GraphDef, device: str = "GPU") -> Operations:
    """Count the operations of a graph and of all functions that it calls."""
    functions = {
        function.signature.name: function for function in graph.library.function
    }
    nodes = [
        *graph.node,
        *(node for part in functions.values() for node in part.node_def),
    ]

    def within(loops: Iterable[NodeDef]) -> set[str]:
        """Names of functions that loops call, and that these call."""
        met: set[str] = set()
        waiting = [name for loop in loops for name in _called(loop)]
        while waiting:
            name = waiting.pop()
            if name not in met:
                met.add(name)
                waiting += [
                    call for node in functions[name].node_def for call in _called(node)
                ]
        return met

    loops = [node for node in nodes if node.op in LOOPS]
    in_loops = [node for name in within(loops) for node in functions[name].node_def]
    over_rows = within(
        loop for loop in loops if ROW_LOOP in re.split("[/_]", loop.name)
    )
    in_row_loops = [node for name in over_rows for node in functions[name].node_def]
    copies = (copied_to_host(functions[name].node_def, device) for name in over_rows)
    without = frozenset(
        n.op for n in nodes if not is_message(n) and not has_kernel(n, device)
    )
    waits = frozenset(n.op for n in in_loops if n.op == "PyFunc" or n.op in without)
    return Operations(
        len(nodes),
        without,
        waits,
        sum(map(is_message, nodes)),
        Counter(node.op for node in in_row_loops),
        frozenset(chain.from_iterable(copies)),
    )


def _called(node: NodeDef) -> Iterator[str]:
    for value in node.attr.values():
        if value.func.name:
            yield value.func.name
        for function in value.list.func:
            yield function.name


def copied_to_host(nodes: Sequence[NodeDef], device: str) -> Iterator[str]:
    """Pairs of operations of a function of which one computes what the other needs on
    the host.
    """
    by_name = {node.name: node for node in nodes}
    for node in nodes:
        kernel = kernel_of(node, device)
        on_host = kernel.host_memory_arg if kernel else ()
        for argument, source in zip(_arguments(node), _sources(node)):
            name, output, *_ = (*source.split(":"), "")
            maker = by_name.get(name)
            if argument in on_host and maker is not None and maker.op != "Const":
                kernel_of_maker = kernel_of(maker, device)
                if kernel_of_maker and output not in kernel_of_maker.host_memory_arg:
                    yield f"{maker.op} for {node.op}"


def _sources(node: NodeDef) -> list[str]:
    return [source for source in node.input if not source.startswith("^")]


def _arguments(node: NodeDef) -> Iterator[str]:
    """The name of the argument that each input is of."""
    definition = op_def_registry.get(node.op)
    for argument in definition.input_arg if definition else ():
        several = (
            node.attr[argument.type_list_attr].list.type
            if argument.type_list_attr
            else [1]
        )
        number = (
            node.attr[argument.number_attr].i if argument.number_attr else len(several)
        )
        yield from [argument.name] * number


def losses(
    num_rows: int, num_inducing: int
) -> dict[str, Callable[[], tuple[Loss, Any]]]:
    """Losses with the variables that they are trained by, of GPflow's default float."""
    kind = gpflow.default_float()
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, (num_rows, 2)).astype(kind)
    Y = (np.sin(X[:, :1]) + 0.1 * rng.standard_normal((num_rows, 1))).astype(kind)
    labels = (Y > 0.0).astype(kind)
    counts = np.digitize(Y, [-0.3, 0.3]).astype(kind)
    bands = np.digitize(np.sin(X[:, :1]), [-0.3, 0.3])
    wrong = (rng.random(bands.shape) < 0.05) * rng.integers(1, 3, bands.shape)
    classes = ((bands + wrong) % 3).astype(kind)
    three = gpflow.likelihoods.MultiClass(
        3, gpflow.likelihoods.RobustMax(3, epsilon=0.05)
    )
    Z = X[:num_inducing]
    blocks = np.arange(num_rows) // 5
    chunk_size = -(-num_rows // 3)
    bernoulli = gpflow.likelihoods.Bernoulli

    def regression(**options: Any) -> tuple[Loss, Any]:
        model = pep.PEPRegression((X, Y), _kernel(), Z.copy(), alpha=0.5, **options)
        return model.training_loss, model.trainable_variables

    def sites(likelihood: Any, targets: AnyNDArray, **options: Any) -> tuple[Loss, Any]:
        model = pep.PEP(
            (X, targets), _kernel(), likelihood, Z.copy(), alpha=0.5, **options
        )
        return model.training_loss, model.trainable_variables

    def minibatch(name: str) -> tuple[Loss, Any]:
        model = getattr(pep, name)(
            _kernel(), bernoulli(), Z.copy(), num_data=num_rows, alpha=0.5
        )
        rows = tuple(map(tf.constant, (X, labels)))
        return lambda: model.training_loss(rows), model.trainable_variables

    def of_svgp() -> tuple[Loss, Any]:
        model = gpflow.models.SVGP(_kernel(), bernoulli(), Z.copy(), num_data=num_rows)
        rows = tuple(map(tf.constant, (X, labels)))
        return lambda: model.training_loss(rows), model.trainable_variables

    return {
        "GPflow's SVGP, labels": of_svgp,
        "PEPRegression": regression,
        "... in chunks": lambda: regression(chunk_size=chunk_size),
        "... with blocks": lambda: regression(blocks=blocks),
        "PEP, labels": lambda: sites(bernoulli(), labels),
        "... labels in chunks": lambda: sites(
            bernoulli(), labels, chunk_size=chunk_size
        ),
        "... counts": lambda: sites(gpflow.likelihoods.Poisson(), counts),
        "... Student's t": lambda: sites(gpflow.likelihoods.StudentT(), Y),
        "... three classes": lambda: sites(three, classes),
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
        print(
            "This TensorFlow is built without kernels for GPUs: nothing can be said of"
            " them."
        )
        return
    heads = (
        f"{'without':>8} {'in loops':>9} {'messages':>9} {'row loop':>9} {'copies':>7}"
    )
    print(f"{'model':24} {'operations':>18} {heads}")
    counts: dict[str, list[Operations]] = {}
    for kind in (np.float64, np.float32):
        with gpflow.config.as_context(gpflow.config.Config(float=kind)):
            for name, create in losses(60, 10).items():
                counts.setdefault(name, []).append(operations_of_loss(*create()))
    for name, (double, single) in counts.items():
        number = f"{double.number} / {single.number}"
        without = len(double.without | single.without)
        loops = len(double.without_in_loops | single.without_in_loops)
        row_loop = double.in_row_loops.total()
        copies = len(double.copied_in_row_loops)
        numbers = (
            f"{without:>8} {loops:>9} {double.num_messages:>9} {row_loop:>9}"
            f" {copies:>7}"
        )
        print(f"{name:24} {number:>18} {numbers}")
    for name, (double, _) in counts.items():
        if double.copied_in_row_loops:
            print(
                f"\nCopies in the row loop of {name}:"
                f" {', '.join(double.copied_in_row_loops)}"
            )
    in_chunks = counts["... in chunks"][0].in_row_loops
    print("\nThe row loops of PEPRegression in chunks, value and gradient:")
    print(
        fill(
            ", ".join(f"{name} {number}" for name, number in sorted(in_chunks.items())),
            100,
        )
    )


def on_device(device: str, function: Callable[[], Any]) -> Callable[[], Any]:
    """Call a compiled function on a device: outside of its scope it is compiled anew
    for others.
    """

    def call() -> Any:
        with tf.device(device):
            return function()

    return call


def print_seconds(num_rows: int, num_inducing: int, repeats: int) -> None:
    """Print the seconds of value and gradient on the CPU and on each GPU."""
    devices = [
        "CPU:0",
        *(f"GPU:{k}" for k in range(len(tf.config.list_physical_devices("GPU")))),
    ]
    if len(devices) == 1:
        print(
            "\nThis machine has no GPU that TensorFlow sees: there are no seconds of"
            " one."
        )
    print(f"\nMilliseconds of value and gradient, N = {num_rows}, M = {num_inducing}")
    print(f"{'model':24}" + "".join(f" {device:>9}" for device in devices))
    for name in losses(num_rows, num_inducing):
        functions = {}
        for device in devices:
            with tf.device(device):
                create = losses(num_rows, num_inducing)[name]
                functions[device] = on_device(device, value_and_gradient(*create()))
            functions[device]()
        times = seconds_by_turns(functions, repeats)
        print(
            f"{name:24}"
            + "".join(f" {1e3 * min(times[device]):9.1f}" for device in devices)
        )


def main() -> None:
    args = arguments(
        __doc__,
        rows=5_000,
        inducing=200,
        repeats=5,
        quick={"rows": 500, "inducing": 20},
    )
    print_operations()
    print_seconds(args.rows, args.inducing, args.repeats)
