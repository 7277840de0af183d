"""Print how long PEP and GPflow's SVGP take to train binary classifiers, beside each
other.

    python -m examples classification --data DIRECTORY        # minutes a data set
    python -m examples classification --data DIRECTORY banana pima

Probit likelihood, squared exponential with a lengthscale for each input, M = 50
inducing inputs from k-means; everything is optimised, from the same start, and all
settings of the models are their defaults. SVGP is trained by L-BFGS over q and all else
together, by Adam (rate 0.1), and by natural gradients for q with Adam for all else
(full batches); PEP by L-BFGS. L-BFGS remembers 50 steps, which helps both. ``goal`` is
the time to come within 0.5 nats of SVGP's best bound for SVGP and alpha 0, which share
their optimum, and of its own best value for other alphas; ``early`` the time to the
bound that SVGP has after 1000 evaluations. ``first`` is the first evaluation, which
compiles and is not in the other times. Each row is a process of its own.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
import tf_keras

from examples import common
from examples.common import arguments, in_own_process, squared_exponential
from examples.data_sets import DIRECTORY, numbers
from gpflow_pep.models import PEP
from gpflow_pep.training.starts import kmeans

DATA_SETS = ("banana", "pima", "ionosphere", "spambase")
NATS = 0.5
EARLY = 1000
ITERATIONS = {"SVGP": 5000, "PEP": 1500}
MEMORY = 50
ADAM_RATE = 0.1


class Run(NamedTuple):
    """One way to train: seconds and loss of each evaluation, and what came before."""

    compile: float
    seconds: np.ndarray
    loss: np.ndarray
    sweeps: float


def read(directory: Path, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Standardised inputs, and labels."""
    X, Y = numbers(directory, name)
    X = X[:, np.ptp(X, axis=0) > 0.0]
    return (X - X.mean(0)) / X.std(0), Y


def lbfgs(
    loss: Callable[[], tf.Tensor], model: Any, iterations: int, tolerance: float = 1e-9
) -> Run:
    optimizer = gpflow.optimizers.Scipy()
    variables = model.trainable_variables
    seconds: list[float] = []
    losses: list[float] = []
    sweeps: list[float] = []
    evaluate = optimizer.eval_func(loss, variables, tf_fun_args={})
    compiling = common.seconds(
        lambda: evaluate(optimizer.initial_parameters(variables))
    )

    def recorded(x: np.ndarray) -> Any:
        result = evaluate(x)
        seconds.append(time.perf_counter() - start)
        losses.append(float(result[0]))
        sweeps.append(getattr(model, "last_inference", (0,))[0])
        return result

    optimizer.eval_func = lambda *args, **kwargs: recorded  # type: ignore[method-assign]
    start = time.perf_counter()
    options = {
        "maxiter": iterations,
        "maxfun": 100_000,
        "maxcor": MEMORY,
        "ftol": tolerance,
    }
    optimizer.minimize(loss, variables, options=options)
    return Run(compiling, np.array(seconds), np.array(losses), float(np.mean(sweeps)))


def stepwise(
    loss: Callable[[], tf.Tensor], model: Any, natural: bool, goal: float, limit: float
) -> Run:
    """Adam, with natural gradients (0.1) for q or without, until the goal or the limit."""
    adam = tf_keras.optimizers.Adam(ADAM_RATE)
    gradient = gpflow.optimizers.NaturalGradient(0.1)
    if natural:
        for part in (model.q_mu, model.q_sqrt):
            gpflow.set_trainable(part, False)
    variables = model.trainable_variables

    @tf.function
    def step() -> tf.Tensor:
        if natural:
            gradient.minimize(loss, [(model.q_mu, model.q_sqrt)])
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(variables)
            value = loss()
        adam.apply_gradients(zip(tape.gradient(value, variables), variables))
        return value

    compiling = common.seconds(step)
    seconds: list[float] = []
    losses: list[float] = []
    start = time.perf_counter()
    while not losses or (losses[-1] > goal and seconds[-1] < limit):
        losses.append(float(step()))
        seconds.append(time.perf_counter() - start)
    return Run(compiling, np.array(seconds), np.array(losses), 0.0)


class Task(NamedTuple):
    """What to train on, from where."""

    directory: Path
    name: str
    num_inducing: int

    def load(
        self,
    ) -> tuple[tuple[tf.Tensor, tf.Tensor], gpflow.kernels.Kernel, np.ndarray]:
        X, Y = read(self.directory, self.name)
        Z = kmeans(X, self.num_inducing, seed=0).Z.numpy()
        return (tf.constant(X), tf.constant(Y)), squared_exponential(X.shape[1]), Z


def run_svgp(task: Task, method: str, goal: float, limit: float) -> Run:
    """SVGP by L-BFGS, or by the other methods until the goal or the limit."""
    data, start, Z = task.load()
    model = gpflow.models.SVGP(start, gpflow.likelihoods.Bernoulli(), Z)
    loss = model.training_loss_closure(data)
    if method == "L-BFGS":
        return lbfgs(loss, model, ITERATIONS["SVGP"])
    return stepwise(loss, model, method == "natural + Adam", goal, limit)


def run_pep(task: Task, alpha: float) -> Run:
    data, start, Z = task.load()
    likelihood = gpflow.likelihoods.Bernoulli()
    model = PEP(data, start, likelihood, Z, alpha=alpha)
    return lbfgs(model.training_loss, model, ITERATIONS["PEP"])


def seconds_to(run: Run, goal: float) -> float:
    """Infinite where it did not come so far."""
    reached = np.flatnonzero(run.loss <= goal)
    return float(run.seconds[reached[0]]) if reached.size else np.inf


def report(label: str, run: Run, goals: tuple[float, float], best: Run) -> None:
    """One line of the table."""
    own, early = (seconds_to(run, goal) for goal in goals)
    of_best, of_early = (
        seconds_to(best, goal) for goal in (best.loss.min() + NATS, goals[1])
    )
    evaluations = len(run.loss)
    print(
        f"{label:28}{run.compile:8.1f}"
        + (
            f"{'-':>8}{'-':>7}"
            if np.isnan(goals[1])
            else f"{early:8.1f}{early / of_early:7.2f}"
        )
        + f"{own:8.1f}{own / of_best:7.2f}{run.seconds[-1]:8.1f}{evaluations:7d}"
        f"{1e3 * run.seconds[-1] / evaluations:6.0f}{run.loss.min():10.2f}{run.sweeps:8.1f}",
        flush=True,
    )


def compare(directory: Path, name: str, num_inducing: int, limit: float) -> None:
    num_rows, num_inputs = read(directory, name)[0].shape
    print(f"\n{name}: N = {num_rows}, D = {num_inputs}, M = {num_inducing}")
    task = Task(directory, name, num_inducing)
    heads = {
        "first s": 8,
        "early s": 8,
        "/SVGP": 7,
        "goal s": 8,
        "/ SVGP": 7,
        "end s": 8,
    }
    heads |= {"evals": 7, "ms": 6, "best": 10, "sweeps": 8}
    print(" " * 28 + "".join(f"{head:>{width}}" for head, width in heads.items()))

    def svgp(method: str, goal: float = 0.0) -> Run:
        return in_own_process(run_svgp, task, method, goal, limit)

    best = svgp("L-BFGS")
    goal = best.loss.min() + NATS
    early = best.loss[:EARLY].min()
    report("SVGP, L-BFGS", best, (goal, early), best)
    for alpha in (0.0, 0.5, 1.0):
        run = in_own_process(run_pep, task, alpha)
        goals = (goal, early) if alpha == 0.0 else (run.loss.min() + NATS, np.nan)
        report(f"PEP alpha = {alpha:g}, L-BFGS", run, goals, best)
    for method in ("natural + Adam", "Adam"):
        report(f"SVGP, {method}", svgp(method, goal), (goal, early), best)


def main() -> None:
    args = arguments(
        __doc__,
        names=DATA_SETS,
        data=DIRECTORY,
        inducing=50,
        limit=60.0,
        quick={"names": ["pima"], "inducing": 10, "limit": 5.0},
    )
    for name in args.names:
        compare(args.data, name, args.inducing, args.limit)
