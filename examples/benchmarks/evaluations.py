"""Print what one evaluation of the training loss costs, PEP's beside that of GPflow's
SVGP.

    python -m examples evaluations --data DIRECTORY             # a minute a data set
    python -m examples evaluations --data DIRECTORY banana vowel

Value and gradient as L-BFGS asks for them, with the defaults of both packages. Each
model is trained for a number of evaluations, and the parameters that it met are then
visited again from the start, several times, the models taking turns: ``step`` is the
median over this path, where PEP's sites follow each step to their new fixed point, of
the shortest time of each evaluation, and ``at rest`` the shortest at parameters that
stay as they are. Times are of the processor. ``first`` is the first evaluation, with
tracing, in a process that has used TensorFlow before; ``ops`` counts the operations of
the graph, those of functions that it calls included. Binary data sets have a probit
likelihood and 50 inducing inputs; the others RobustMax, inducing inputs that are 5% of
the rows, and kernel and inducing inputs that the classes share or not.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf

from examples.benchmarks.classification import read
from examples.benchmarks.multiclass import load, parts
from examples.common import arguments, in_own_process, squared_exponential
from examples.data_sets import DIRECTORY
from gpflow_pep.models import PEP
from gpflow_pep.training.starts import kmeans

BINARY = ("banana", "pima", "ionosphere", "spambase")
CLASSES = ("wine", "vowel", "vehicle", "satimage")
ALPHAS = (0.0, 0.5, 1.0)
NUM_INDUCING = 50
TURNS = 3
RESTS = 8


class Evaluated:
    """A model, its compiled value and gradient, and the path of an optimiser."""

    def __init__(self, model: Any, loss: Callable[[], tf.Tensor], length: int) -> None:
        optimizer = gpflow.optimizers.Scipy()
        variables = model.trainable_variables
        start = time.process_time()
        compiled = tf.function(loss)
        self.evaluate = optimizer.eval_func(compiled, variables, tf_fun_args={})
        self.path = [optimizer.initial_parameters(variables)]
        self.evaluate(self.path[0])
        self.first = time.process_time() - start
        graph = compiled.get_concrete_function().graph.as_graph_def()
        self.num_operations = len(graph.node) + sum(
            len(f.node_def) for f in graph.library.function
        )

        def recorded(x: np.ndarray) -> Any:
            self.path.append(x.copy())
            return self.evaluate(x)

        optimizer.eval_func = lambda *args, **kwargs: recorded  # type: ignore[method-assign]
        options = {"maxfun": length, "maxcor": 50}
        optimizer.minimize(loss, variables, options=options)
        self.seconds = np.full(len(self.path) - 1, np.inf)

    def visit(self) -> None:
        """Follow the path once more."""
        self.evaluate(self.path[0])
        for k, x in enumerate(self.path[1:]):
            start = time.process_time()
            self.evaluate(x)
            self.seconds[k] = min(self.seconds[k], time.process_time() - start)

    def rest(self) -> float:
        """The shortest evaluation where nothing changes."""
        times = []
        for _ in range(RESTS):
            start = time.process_time()
            self.evaluate(self.path[-1])
            times.append(time.process_time() - start)
        return min(times)


def problems(directory: Path, name: str) -> dict[str, tuple[Any, ...]]:
    """Data, kernel, likelihood and inducing variables: by how the classes share them."""
    if name in BINARY:
        X, Y = read(directory, name)
        Z = kmeans(X, NUM_INDUCING, seed=0).Z.numpy()
        return {
            "": (
                X,
                Y,
                squared_exponential(X.shape[1]),
                gpflow.likelihoods.Bernoulli(),
                Z,
            )
        }
    problem = load(directory, name, 0)
    X = problem.X
    Y = problem.Y
    return {
        "shared": (X, Y, *parts(problem, shared=True)),
        "separate": (X, Y, *parts(problem, shared=False)),
    }


def table(directory: Path, name: str, length: int) -> None:
    tf.function(tf.linalg.cholesky, jit_compile=False)(tf.eye(3, dtype=tf.float64))
    gpflow.models.GPR(
        (np.eye(3), np.eye(3)[:, :1]), gpflow.kernels.RBF()
    ).training_loss()
    for sharing, (X, Y, own, likelihood, Z) in problems(directory, name).items():
        num_latent = getattr(likelihood, "num_classes", 1)
        data = tf.constant(X), tf.constant(Y)
        print(
            f"\n{name} {sharing}: N = {len(X)}, D = {X.shape[1]}, C ="
            f" {max(num_latent, 2)}"
        )
        heads = (
            "first s",
            "/ SVGP",
            "step ms",
            "/ SVGP",
            "rest ms",
            "/ SVGP",
            "evals",
            "ops",
        )
        print(" " * 16 + "".join(f"{head:>9}" for head in heads), flush=True)
        svgp = gpflow.models.SVGP(
            *gpflow.utilities.deepcopy((own, likelihood, Z)), num_latent_gps=num_latent
        )
        models: dict[str, Evaluated] = {
            "SVGP": Evaluated(
                svgp, svgp.training_loss_closure(data, compile=False), length
            )
        }
        for alpha in ALPHAS:
            pep = PEP(
                data, *gpflow.utilities.deepcopy((own, likelihood, Z)), alpha=alpha
            )
            models[f"PEP alpha = {alpha:g}"] = Evaluated(pep, pep.training_loss, length)
        for _ in range(TURNS):
            for model in models.values():
                model.visit()
        reference = models["SVGP"]
        rest = reference.rest()
        step = float(np.median(reference.seconds))
        for label, model in models.items():
            own_rest = model.rest()
            own_step = float(np.median(model.seconds))
            print(
                f"{label:16}{model.first:9.1f}{model.first / reference.first:9.2f}"
                f"{1e3 * own_step:9.1f}{own_step / step:9.2f}{1e3 * own_rest:9.1f}"
                f"{own_rest / rest:9.2f}{len(model.path):9d}{model.num_operations:9d}",
                flush=True,
            )


def main() -> None:
    args = arguments(
        __doc__,
        names=(*BINARY, *CLASSES),
        data=DIRECTORY,
        length=60,
        quick={"names": ["pima"], "length": 10},
    )
    for name in args.names:
        in_own_process(table, args.data, name, args.length)
