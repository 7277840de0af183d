"""Redo Villacampa-Calvo & Hernández-Lobato (2020): Power EP for several classes.

    python -m examples vh20 --data DIRECTORY --out results           # minutes
    python -m examples vh20 --data DIRECTORY --out results --full    # the paper's protocol
    python -m examples vh20 --table docs/results/vh20.csv --out docs/results/vh20

Experiments, for ``--only``:

``uci``
    Section 5.1, Figure 1, and appendix C: error and negative log density of held-out rows on seven
    data sets, M = 5, 10 and 20% of the training rows, for PEP, APEP, ARPEP and RPAPEP at several
    powers, and for baselines. (The eighth, new-thyroid, is not among the data sets here.) 90% of
    the rows train; 20% of satimage, and 30% of waveform, 1000 rows of Breiman's that are generated
    for each split. The column ``M`` is the percentage.
``places``
    Section 5.2: where inducing inputs go, on a synthetic problem in the plane.
``time``
    Section 5.3: error and negative log density along the training, for M = 4, 20 and 100. The
    paper has satimage; here the full grid has all seven sets.
``active``
    Section 5.6: rows labelled one at a time, those of the highest predictive entropy or random
    ones.

Inputs are standardised by the training rows; classes have the same proportions on both
sides of a split. The likelihood is RobustMax with labels that are wrong at a rate of
0.001, which is not trained. All latent functions share one squared exponential with a
lengthscale for each input, plus noise of the latent function (``White``), and the
inducing inputs, which start from k-means centres; all of it is trained by L-BFGS until
ten steps improve log Z by less than 1e-4 nats for each row on average, 500 steps at
most. The paper has a kernel and inducing inputs for each class; that is many times as
slow here.

alpha -> 0 is alpha = 0, the limit itself, where PEP is the bound of SVGP at its best q.
Smaller grids than the full one let GPflow's SVGP find that q by L-BFGS: at alpha = 0
the likelihood is far from log-concave, and PEP's sweeps are many.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import gpflow
import numpy as np

from examples.common import squared_exponential
from examples.data_sets import Labelled, labelled, random_rows, read
from examples.papers import runner
from examples.papers.baselines import fit, predict, started
from examples.papers.runner import Cell, Evaluate, Outcome
from examples.papers.tasks import (
    Budget,
    Fitted,
    Task,
    classification_scores,
)
from examples.papers.vh20_active import learn
from examples.papers.vh20_plane import PLACES_LENGTHSCALE, plane
from examples.papers.vh20_summary import summarise
from examples.papers.waveform import waveform
from gpflow_pep.training import Step, maximise
from gpflow_pep.training.starts import kmeans, random_subset

#: Fraction of the rows that is held out.
DATA_SETS = {
    "wine": 0.1,
    "glass": 0.1,
    "svmguide2": 0.1,
    "waveform": 0.7,
    "vowel": 0.1,
    "vehicle": 0.1,
    "satimage": 0.8,
}
#: Where smaller grids than the full one try many powers.
TRIED = ("wine", "glass", "vowel", "vehicle")
TIED = ("APEP", "ARPEP", "RPAPEP")
#: The powers that the paper speaks of: the full grid begins with them, in rounds of
#: splits.
FIRST = (0.5, 1.0, 0.8, 0.0)
#: Of the learning that asks for labels, in the full grid's first rounds.
ENDS_AND_MIDDLE = (0.0, 0.5, 1.0)
#: Without a power.
ONCE = ("SVGP", "labels", "Laplace of EP", "Gibbs of EP")
LATENT_NOISE = 0.1
#: The most steps of training: the paper's.
STEPS = 500
#: Evaluations along a run for ``time``.
LOOKS = 40


def kernel(num_inputs: int) -> gpflow.kernels.Kernel:
    """The paper's: a lengthscale for each input, an amplitude, and additive noise."""
    return squared_exponential(num_inputs) + gpflow.kernels.White(LATENT_NOISE)


def fixed_kernel(num_inputs: int) -> gpflow.kernels.Kernel:
    """The one that the synthetic problem was drawn from, not trained."""
    true = gpflow.kernels.SquaredExponential(lengthscales=PLACES_LENGTHSCALE)
    gpflow.set_trainable(true, False)
    return true


def load(directory: Path, name: str, split: int) -> Labelled:
    """One split of a data set, standardised."""
    if name == "waveform":
        X, labels = waveform(split, 1000)
    else:
        dataset = read(directory, name, "classification")
        # Classes come in the order of their names, of which "10" is before "2".
        X = dataset.X
        labels = np.array(dataset.classes, dtype=float)[dataset.Y[:, 0].astype(int)]
    if name == "vowel":
        X = X[labels < 6]
        labels = labels[labels < 6]
    return labelled(
        X, labels.astype(float), random_rows(X, DATA_SETS[name], split, labels)
    )


def task_of(problem: Labelled, num_inducing: int, seed: int) -> Task:
    Z = kmeans(problem.X, num_inducing, seed=seed).Z.numpy()
    return Task(problem.X, problem.Y, problem.X_test, Z, problem.num_classes, seed)


def uci(directory: Path, cell: Cell) -> Outcome:
    """The scores of one fit; of PEP the leave-one-out density of the training rows too."""
    problem = load(directory, cell.data, cell.split)
    num_inducing = max(2, round(cell.M / 100.0 * len(problem.X)))
    task = task_of(problem, num_inducing, cell.seed)
    fitted = fit(cell.method, task, cell.alpha, Budget(cell.steps), kernel)
    row: dict[str, Any] = {"num_inducing": num_inducing}
    if cell.method == "PEP":
        row["left_out"] = -float(np.mean(fitted.model.loo_log_density()))
    return {
        **row,
        **classification_scores(fitted, problem.Y_test),
        "seconds": fitted.seconds,
        "iterations": fitted.iterations,
        "objective": fitted.objective,
    }


def places(directory: Path, cell: Cell) -> Outcome:
    """A row for each inducing input: where it started, where it ended, and the margin
    there.
    """
    X, labels, functions = plane(cell.split)
    Z = random_subset(X, cell.M, seed=cell.seed).Z.numpy()
    task = Task(X, labels[:, None], X, Z, 3, cell.seed)
    model = fit(cell.method, task, cell.alpha, Budget(cell.steps), fixed_kernel).model
    ended = getattr(model, "inner", model).inducing_variable.Z.numpy()
    margins = np.sort(functions(ended), axis=1)
    nearest = np.sort(np.linalg.norm(ended[:, None] - ended, axis=2), axis=1)[:, 1]
    return [
        {
            "start_x": z[0],
            "start_y": z[1],
            "x": e[0],
            "y": e[1],
            "margin": m[2] - m[1],
            "nearest": n,
        }
        for z, e, m, n in zip(Z, ended, margins, nearest)
    ]


def along_the_run(directory: Path, cell: Cell) -> Outcome:
    """A row for each of some steps: processor seconds so far without scoring, and the
    scores.
    """
    problem = load(directory, cell.data, cell.split)
    task = task_of(problem, cell.M, cell.seed)
    looks = set(np.unique(np.geomspace(1, cell.steps, LOOKS).astype(int)).tolist())
    rows: list[dict[str, float]] = []

    def train(steps: int, look: Callable[[Step], None] | None) -> None:
        """Take all the steps, as the paper's runs do, from the start."""
        compiled = started(cell.method, task, cell.alpha, kernel)
        maximise(
            compiled.model,
            tolerance=0.0,
            max_iterations=steps,
            callback=look,
            progress=False,
            optimizer=compiled.optimizer,
        )

    train(1, None)  # compiles
    model = started(cell.method, task, cell.alpha, kernel).model
    scoring = 0.0
    began = time.process_time()

    def look(step: Step) -> None:
        nonlocal scoring
        if step.iteration in looks:
            now = time.process_time()
            found = Fitted(*predict(model, model.likelihood, task), 0.0, 0.0, 0, model)
            scores = classification_scores(found, problem.Y_test)
            rows.append(
                {"step": step.iteration, "seconds": now - began - scoring, **scores}
            )
            scoring += time.process_time() - now

    train(cell.steps, look)
    return rows


def active(directory: Path, cell: Cell) -> Outcome:
    """A row for each number of labels; the method is the rule that chooses."""
    assert cell.alpha is not None
    return learn(cell.split, cell.M, cell.method, cell.alpha, kernel)


EXPERIMENTS: dict[str, Callable[[Path, Cell], Outcome]] = {
    "uci": uci,
    "places": places,
    "time": along_the_run,
    "active": active,
}


def evaluate(directory: Path, cell: Cell) -> Outcome:
    return EXPERIMENTS[cell.experiment](directory, cell)


def evaluate_in(directory: Path) -> Evaluate:
    """For the data sets of a directory."""
    return partial(evaluate, directory)


def _uci(
    names: Sequence[str],
    splits: int | Sequence[int],
    percentages: Sequence[int],
    methods: Sequence[str],
    alphas: Sequence[float | None],
) -> list[Cell]:
    """
    Cells of the same shapes of data beside each other: they share what was compiled.

    :param splits: How many, or which.
    """
    splits = range(splits) if isinstance(splits, int) else splits
    grid = product(percentages, names, methods, splits, alphas)
    return [
        Cell("uci", name, split, M, method, alpha, STEPS)
        for M, name, method, split, alpha in grid
    ]


def _active(
    alphas: Sequence[float], repetitions: Iterable[int], num_labels: int
) -> list[Cell]:
    """The column ``M`` is the number of labels, the method the rule that chooses."""
    grid = product(alphas, repetitions, ("entropy", "random"))
    return [
        Cell("active", "waveform", r, num_labels, rule, alpha)
        for alpha, r, rule in grid
    ]


def _places(M: int, methods: Sequence[str], alphas: Sequence[float]) -> list[Cell]:
    return [
        Cell("places", "plane", 0, M, method, a, STEPS)
        for method, a in product(methods, alphas)
    ]


def _time(
    names: Sequence[str],
    splits: Iterable[int],
    sizes: Sequence[int],
    methods: Sequence[str],
    alphas: Sequence[float],
    steps: int = STEPS,
) -> list[Cell]:
    """And GPflow's SVGP, which has no power. The column ``M`` is a number here."""
    curves = [*product(methods, alphas), ("SVGP", None)]
    grid = product(names, sizes, curves, splits)
    return [Cell("time", name, s, M, *curve, steps) for name, M, curve, s in grid]


def grid(size: str) -> list[Cell]:
    """The cells of ``"quick"``, ``"reduced"`` and ``"full"``; what matters most comes
    first.
    """
    if size == "quick":
        return [
            *_uci(("wine", "glass"), 2, (5,), ("PEP",), (0.5, 1.0)),
            *_uci(("wine", "glass"), 2, (5,), ("SVGP",), (None,)),
            *_uci(("wine",), 1, (5,), TIED, (0.5,)),
            *_uci(
                ("wine",), 1, (5,), ("labels", "Laplace of EP", "Gibbs of EP"), (None,)
            ),
            *_places(16, ("PEP",), (0.5, 1.0)),
            *_time(("wine",), [0], (4,), ("PEP", "ARPEP"), (0.5,), 60),
            *_active((0.5,), range(2), 10),
        ]
    if size == "reduced":
        small = list(DATA_SETS)[:-1]
        return [
            *_uci(small[:-1], 5, (5,), ("PEP",), (0.5, 1.0)),
            *_uci(["vehicle"], 5, (5,), ("PEP",), (0.5,)),
            *_uci(("glass", "waveform"), 5, (5,), ("SVGP",), (None,)),
            *_active((0.5,), range(20), 25),
            *_uci(["satimage"], 5, (5,), ("PEP",), (0.5,)),
            *_uci(["satimage"], 5, (5,), ("SVGP",), (None,)),
            *_uci(small, 5, (10, 20), ("PEP",), (0.5,)),
            *_uci(["vehicle", "satimage"], 5, (5,), ("PEP",), (1.0,)),
            *_places(32, ("PEP", "ARPEP"), (0.5, 1.0)),
            *_uci(
                ("wine", "vowel", "svmguide2", "vehicle"), 5, (5,), ("SVGP",), (None,)
            ),
            *_uci(small, 5, (5,), ("labels",), (None,)),
            *_uci(["satimage"], 5, (10,), ("PEP",), (0.5,)),
            *_time(
                ("vehicle", *small[:-1]), [0], (20,), ("PEP", *TIED), (0.5, 1.0), 300
            ),
            *_uci(("wine", "glass"), 5, (5,), ("Laplace of EP", "MCMC"), (None,)),
            *_uci(("wine",), 2, (5,), ("Laplace",), (None,)),
            *_uci(TRIED, 3, (5,), TIED, (0.0, 0.5, 0.8, 1.0)),
            *_uci(TRIED, 3, (5,), ("PEP",), (0.8,)),
            *_uci(small, 5, (5,), ("Gibbs of EP",), (None,)),
            *_time(("satimage",), [0], (20,), ("PEP", *TIED), (0.5,), 100),
            *_uci(["satimage"], 5, (20,), ("PEP",), (0.5,)),
            *_uci(small[2:], 5, (5,), ("Laplace of EP",), (None,)),
            *_uci(["satimage"], 5, (10,), ("PEP",), (1.0,)),
            *_uci(small, 5, (10, 20), ("PEP",), (1.0,)),
            *_uci(("wine", "glass"), 2, (5,), ("PEP",), (0.0,)),
            *_time(("satimage",), [0], (4, 100), ("PEP", *TIED), (0.5, 1.0)),
            *_uci(["satimage"], 5, (20,), ("PEP",), (1.0,)),
            *_active((0.0, 1.0), range(20), 50),
        ]
    powers = tuple(np.linspace(0.0, 1.0, 11).round(1).tolist())
    every = list(DATA_SETS), 20, (5, 10, 20)
    return [
        *(
            cell
            for split in range(20)
            for methods in (("PEP",), TIED)
            for cell in _uci(every[0], [split], every[2], methods, FIRST)
        ),
        *_uci(*every, ONCE, (None,)),
        *_uci(
            *every, ("PEP", *TIED), [alpha for alpha in powers if alpha not in FIRST]
        ),
        *_places(128, ("PEP", *TIED), powers),
        *(
            cell
            for split in range(100)
            for M in (20, 4, 100)
            for names, alphas in ((every[0][:-1], FIRST), (["satimage"], (*FIRST, 0.3)))
            for cell in _time(names, [split], (M,), ("PEP", *TIED), alphas)
        ),
        *(cell for r in range(100) for cell in _active(ENDS_AND_MIDDLE, [r], 100)),
        *_active(
            [alpha for alpha in powers if alpha not in ENDS_AND_MIDDLE], range(100), 100
        ),
    ]


def main() -> None:
    runner.command(__doc__, grid, evaluate_in, summarise)
