"""Regression whose conditionals know neighbours, beside the others: scores against training time.

    python -m examples neighbours                                        # generated data, a minute
    python -m examples neighbours --data DIRECTORY kin8nm --rows 6000 --inducing 100 200 400
    python -m examples neighbours --data DIRECTORY kin40k --rows 30000 --inducing 500 --seconds 600

Trains Titsias' (2009) bound by GPflow (``SGPR``), Power EP at power 0.5 and FITC (``PEP:0.5``,
``PEP:1``), and regression whose conditionals know the nearest predecessors of each row, at powers
0, 0.5 and 1 (``near:0``, ``near:0.5``, ``near:1``): all parameters, by ``pep.training.maximise``,
from the same start, k-means centres of the inputs. Data sets are kin8nm, kin40k, ccpp and abalone
of DIRECTORY, which may also be the environment variable GPFLOW_PEP_DATA: ROWS rows chosen at random
train, and at most 5000 others are held out; all is standardised.

Prints for each run SMSE and mean negative log density (NLPD) of the held-out rows, the noise
variance, the objective for each row, the seconds of training and the steps. Seconds are wall-clock
time without compilation. ``--fixed`` trains nothing: hyperparameters are those of exact regression
on the first 1000 rows, the same for all. ``--out`` draws NLPD against seconds (needs matplotlib).
"""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import gpflow
import numpy as np
from gpflow.base import AnyNDArray
from scipy.stats import norm

from examples.common import arguments
from examples.data_sets import DIRECTORY, Dataset, Problem, read, standardised
from gpflow_pep import plotting, selection
from gpflow_pep.metrics import mean_nlpd, smse
from gpflow_pep.models import PEPRegression
from gpflow_pep.training import maximise

SEED = 0
MOST_HELD_OUT = 5000
ROWS_OF_EXACT = 1000
DATA_SETS = ("generated", "kin8nm", "kin40k", "ccpp", "abalone")
SGPR = "SGPR"
METHODS = (SGPR, "PEP:0.5", "PEP:1", "near:0", "near:0.5", "near:1")


class Run(NamedTuple):
    """What came of one method with so many inducing inputs."""

    method: str
    num_inducing: int
    smse: float
    nlpd: float
    noise: float
    objective: float
    """For each row."""

    seconds: float
    steps: int


class Start(NamedTuple):
    """Where the parameters of all methods start."""

    variance: float
    lengthscales: AnyNDArray
    noise: float


def generated(num_rows: int) -> Dataset:
    """A function of three inputs that varies faster than a few inducing inputs can follow."""
    rng = np.random.default_rng(SEED)
    X = rng.uniform(-3.0, 3.0, (num_rows, 3))
    f = np.sin(4.0 * X[:, :1]) * np.cos(3.0 * X[:, 1:2]) + 0.3 * X[:, 2:]
    return Dataset(X, f + 0.1 * rng.standard_normal(f.shape))


def load(name: str, directory: Path, num_rows: int) -> Problem:
    """So many rows to train on, and others."""
    dataset = generated(2 * num_rows) if name == "generated" else read(directory, name)
    order = np.random.default_rng(SEED).permutation(len(dataset.X))
    if len(order) <= num_rows:
        sys.exit(f"Got --rows {num_rows} of {len(order)}, expected fewer: some are held out.")
    held_out = order[num_rows : num_rows + MOST_HELD_OUT]
    return standardised(dataset, (order[:num_rows], held_out))


def start(problem: Problem, fixed: bool) -> Start:
    """Plain parameters for standardised data, or those of exact regression on some rows."""
    D = problem.train[0].shape[1]
    plain = Start(1.0, np.full(D, np.sqrt(D)), 0.1)
    if not fixed:
        return plain
    some = tuple(part[:ROWS_OF_EXACT] for part in problem.train)
    exact = gpflow.models.GPR(some, kernel(plain), noise_variance=plain.noise)
    maximise(exact, progress=False)
    values = exact.kernel.variance, exact.kernel.lengthscales, exact.likelihood.variance
    return Start(*(value.numpy() for value in values))


def kernel(start: Start) -> gpflow.kernels.Kernel:
    """A squared exponential with a lengthscale for each input."""
    return gpflow.kernels.SquaredExponential(start.variance, start.lengthscales.copy())


def create(method: str, problem: Problem, Z: AnyNDArray, start: Start, neighbours: int) -> Any:
    """The model of a method, "SGPR" or "NAME:ALPHA"."""
    options = {"inducing_variable": Z.copy(), "noise_variance": start.noise}
    if method == SGPR:
        return gpflow.models.SGPR(problem.train, kernel(start), **options)
    name, alpha = method.split(":")
    m = neighbours if name == "near" else 0
    return PEPRegression(problem.train, kernel(start), **options, alpha=float(alpha), neighbours=m)


def evaluate(method: str, model: Any, problem: Problem, train: Callable[[Any], Any]) -> Run:
    """Train a model, unless its parameters are fixed, and score it."""
    record = train(model)
    X, Y = problem.test
    mean, variance = (part.numpy() for part in model.predict_f(X))
    noise = float(model.likelihood.variance.numpy())
    log_density = norm.logpdf(Y, mean, np.sqrt(variance + noise))
    objective = -float(model.training_loss()) / len(problem.train[0])
    seconds, steps = (0.0, 0) if record is None else (record.seconds, record.iterations)
    scores = smse(Y, mean), mean_nlpd(log_density)
    num_inducing = int(model.inducing_variable.num_inducing)
    return Run(method, num_inducing, *scores, noise, objective, seconds, steps)


def draw(runs: Sequence[Run], title: str, path: Path) -> None:
    """NLPD of held-out rows against the seconds of training, a line for each method."""
    figure = plotting.figure(7.0, 4.5)
    axes = figure.subplots()
    for method in dict.fromkeys(run.method for run in runs):
        of_method = [run for run in runs if run.method == method]
        seconds, nlpd = ([getattr(run, name) for run in of_method] for name in ("seconds", "nlpd"))
        axes.plot(seconds, nlpd, "o-" if method.startswith("near") else "s--", label=method)
        for run in of_method:
            axes.annotate(f" {run.num_inducing}", (run.seconds, run.nlpd), fontsize=7)
    axes.set(xscale="log", xlabel="seconds of training", ylabel="test NLPD", title=title)
    axes.legend(frameon=False)
    plotting.tidy(axes)
    figure.savefig(path)


def main() -> None:
    args = arguments(
        __doc__,
        name=DATA_SETS,
        data=DIRECTORY,
        rows=2000,
        inducing=[50],
        neighbours=10,
        methods=list(METHODS),
        seconds=float,
        steps=100,
        fixed=False,
        out=Path,
        quick={"rows": 200, "inducing": [10], "steps": 5},
    )

    def train(model: Any) -> Any:
        if args.fixed:
            return None
        limits = {"max_iterations": args.steps, "seconds": args.seconds}
        return maximise(model, **limits, progress=sys.stderr.isatty())

    problem = load(args.name, args.data, args.rows)
    begin = start(problem, args.fixed)
    X = problem.train[0]
    print(
        f"{args.name}: {len(X)} rows, {len(problem.test[0])} held out, D = {X.shape[1]},"
        f" {args.neighbours} neighbours\n{'':10}{'M':>5}{'SMSE':>9}{'NLPD':>9}{'noise':>9}"
        f"{'log Z / N':>11}{'seconds':>9}{'steps':>7}",
        flush=True,
    )
    runs: list[Run] = []
    for num_inducing in args.inducing:
        Z = selection.kmeans(X, num_inducing, seed=SEED).Z.numpy()
        for method in args.methods:
            model = create(method, problem, Z, begin, args.neighbours)
            run = evaluate(method, model, problem, train)
            runs.append(run)
            print(
                f"{method:10}{run.num_inducing:5}{run.smse:9.4f}{run.nlpd:9.4f}{run.noise:9.4f}"
                f"{run.objective:11.4f}{run.seconds:9.1f}{run.steps:7}",
                flush=True,
            )
            if args.out:
                draw(runs, f"{args.name}, N = {len(X)}", args.out)
