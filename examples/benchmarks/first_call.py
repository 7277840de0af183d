"""Print what the first call costs: seconds to trace, compile and run a loss of few rows
once.

    python -m examples first_call               # two minutes on a quiet machine
    python -m examples first_call --quick PEP-probit

Each model is made and evaluated in a process of its own that has run TensorFlow's own
first function and nothing else; the numbers are the least of several processes, which
take turns. ``first s`` is value and gradient of the training loss, compiled, from the
call to the result. ``CPU s`` is the processor time of it, and ``/ SGPR`` and ``/ SVGP``
are the ratios of that to theirs. ``trace`` is the part of the processor time in which
Python makes the graph; in the rest TensorFlow optimises the graph and runs it. ``ops``
counts the operations of the value, and ``both`` those of value and gradient, with all
that loops, branches and other functions have. ``fit s`` is the time from the
constructor to the end of ``gpflow_pep.training.maximise``, in a process that has
compiled nothing, with its processor time and its steps.

The last line is of an estimator with nothing set, on rows of five inputs: the seconds
to import ``gpflow_pep.estimators``, after NumPy, SciPy and scikit-learn, and to fit for
the first time, with the processor time of both. It shows whether TensorFlow was loaded.
"""

import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from examples.common import arguments, in_own_process, seconds, value_and_gradient

NUM_INDUCING = 20
NUM_INPUTS = 2
INPUTS_OF_ESTIMATOR = 5
MODELS = (
    "SGPR",
    "SVGP",
    "PEPRegression",
    "PEP-probit",
    "PEP-Student-t",
    "PEP-3-classes",
)


class FirstCall(NamedTuple):
    """What the first evaluation of a loss took."""

    seconds: float
    processor: float
    tracing: float
    operations: int
    both: int


class Fit(NamedTuple):
    """What a fit took, from the constructor."""

    seconds: float
    processor: float
    steps: int


class FirstFit(NamedTuple):
    """What an estimator took from its import to the end of its first fit."""

    importing: float
    fitting: float
    processor: float
    loads_tensorflow: bool


def create(name: str, num_rows: int) -> tuple[Any, Callable[[], Any]]:
    """A model of a function of two inputs and its training loss."""
    import gpflow

    import gpflow_pep as pep

    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, (num_rows, NUM_INPUTS))
    Y = np.sin(2.0 * X[:, :1]) + 0.3 * rng.standard_normal((num_rows, 1))
    labels = (Y > 0.0).astype(float)
    classes = np.digitize(Y, [-0.4, 0.4]).astype(float)
    kernel = gpflow.kernels.SquaredExponential()
    Z = X[:NUM_INDUCING].copy()
    likelihoods = gpflow.likelihoods
    if name == "SVGP":
        svgp = gpflow.models.SVGP(kernel, likelihoods.Bernoulli(), Z, num_data=num_rows)
        return svgp, svgp.training_loss_closure((X, labels), compile=False)
    model: Any
    if name == "SGPR":
        model = gpflow.models.SGPR((X, Y), kernel, Z)
    elif name == "PEPRegression":
        model = pep.PEPRegression((X, Y), kernel, Z)
    elif name == "PEP-probit":
        model = pep.PEP((X, labels), kernel, likelihoods.Bernoulli(), Z)
    elif name == "PEP-Student-t":
        model = pep.PEP((X, Y), kernel, likelihoods.StudentT(), Z)
    else:
        model = pep.PEP((X, classes), kernel, likelihoods.MultiClass(3), Z)
    return model, model.training_loss


def first_call(name: str, num_rows: int) -> FirstCall:
    """Evaluate a loss and its gradient for the first time in this process."""
    model, loss = create(name, num_rows)
    _first_function()
    both = value_and_gradient(loss, model.trainable_variables)
    began = time.perf_counter()
    processor = time.process_time()
    graph = both.get_concrete_function().graph
    tracing = time.process_time() - processor
    seconds(both)
    times = time.perf_counter() - began, time.process_time() - processor, tracing
    import tensorflow as tf

    value = tf.function(loss, autograph=False).get_concrete_function().graph
    return FirstCall(*times, num_operations(value), num_operations(graph))


def fit(name: str, num_rows: int) -> Fit:
    """Fit once in this process."""
    from gpflow_pep.training import maximise

    _first_function()
    began = time.perf_counter()
    processor = time.process_time()
    model, _ = create(name, num_rows)
    steps = maximise(model, progress=False).iterations
    return Fit(time.perf_counter() - began, time.process_time() - processor, steps)


def first_fit(num_rows: int) -> FirstFit:
    """Import the estimators in this process, and fit one of them."""
    import scipy.optimize  # noqa: F401
    import sklearn.preprocessing  # noqa: F401

    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, (num_rows, INPUTS_OF_ESTIMATOR))
    y = np.sin(2.0 * X[:, 0]) + X[:, 1] + 0.3 * rng.standard_normal(num_rows)
    began = time.perf_counter()
    processor = time.process_time()
    from gpflow_pep.estimators import PEPRegressor

    imported = time.perf_counter()
    PEPRegressor(random_state=0).fit(X, y)
    ended = time.perf_counter()
    processor = time.process_time() - processor
    loads_tensorflow = "tensorflow" in sys.modules
    return FirstFit(imported - began, ended - imported, processor, loads_tensorflow)


def _first_function() -> None:
    import tensorflow as tf

    tf.function(tf.sin)(tf.constant(1.0))


def num_operations(graph: Any) -> int:
    """Count the operations of a graph and of the functions that it calls."""
    definition = graph.as_graph_def()
    return len(definition.node) + sum(
        len(part.node_def) for part in definition.library.function
    )


def least(results: list[Any]) -> Any:
    """The least of each number."""
    return type(results[0])(*map(min, zip(*results, strict=True)))


def main() -> None:
    args = arguments(
        __doc__, names=MODELS, rows=200, repeats=3, quick={"rows": 50, "repeats": 1}
    )
    names = list(dict.fromkeys([*MODELS[:2], *args.names]))
    calls: dict[str, list[FirstCall]] = {name: [] for name in names}
    fits: dict[str, list[Fit]] = {name: [] for name in names if name.startswith("PEP")}
    for _ in range(args.repeats):
        for name in names:
            calls[name].append(in_own_process(first_call, name, args.rows))
        for name in fits:
            fits[name].append(in_own_process(fit, name, args.rows))
    sgpr, svgp = (least(calls[name]).processor for name in MODELS[:2])
    print(f"{args.rows} rows, {NUM_INDUCING} inducing inputs, least of {args.repeats}")
    heads = (
        "first s",
        "CPU s",
        "/ SGPR",
        "/ SVGP",
        "trace",
        "ops",
        "both",
        "fit s",
        "CPU s",
    )
    print(" " * 14 + "".join(f"{head:>8}" for head in (*heads, "steps")))
    for name in names:
        call = least(calls[name])
        line = f"{name:14}{call.seconds:8.2f}{call.processor:8.2f}{call.processor / sgpr:8.2f}"
        line += f"{call.processor / svgp:8.2f}{call.tracing:8.2f}{call.operations:8}{call.both:8}"
        if name in fits:
            whole = least(fits[name])
            line += f"{whole.seconds:8.2f}{whole.processor:8.2f}{whole.steps:8}"
        print(line)
    import_and_fit = least(
        [in_own_process(first_fit, args.rows) for _ in range(args.repeats)]
    )
    with_or_without = "with" if import_and_fit.loads_tensorflow else "without"
    print(
        f"PEPRegressor(): import {import_and_fit.importing:.2f} s, fit"
        f" {import_and_fit.fitting:.2f} s, CPU {import_and_fit.processor:.2f} s,"
        f" {with_or_without} TensorFlow"
    )


if __name__ == "__main__":
    main()
