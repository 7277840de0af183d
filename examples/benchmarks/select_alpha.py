"""Print how well a power chosen by leave-one-out density predicts, compared with fixed
powers.

    python -m examples select_alpha                      # scikit-learn's data, minutes
    python -m examples select_alpha --data DIRECTORY boston concrete pima

A model with M = 15 inducing inputs is trained at alpha = 0, 0.5 and 1 on at most 300
rows of each split; the others, at most 1000, are held out. ``left out`` is what
``gpflow_pep.training.select_alpha`` takes by leaving single rows out; ``fifth`` what it
takes for a model of four fifths of those rows by the density of the others; ``best``
the power that is best on the held-out rows themselves, which nobody knows. Whichever is
chosen, the model is that of all 300 rows. Mean negative log densities over splits,
targets standardised; the last lines are means over all runs of how much worse than
always 0.5 a rule is, with 95% intervals.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import sklearn.datasets
import tensorflow as tf

from examples.common import arguments, squared_exponential
from examples.data_sets import (
    DIRECTORY,
    Dataset,
    Problem,
    random_rows,
    read,
    standardised,
)
from examples.papers.summaries import mean_interval
from gpflow_pep.estimators.single.trainer import TOLERANCE, WINDOW
from gpflow_pep.likelihoods import log_power_expectation
from gpflow_pep.models import PEPClassification, PEPRegression
from gpflow_pep.training import maximise, select_alpha
from gpflow_pep.training.starts import kmeans

ALPHAS = (0.0, 0.5, 1.0)
TRAIN = 300
HELD_OUT = 1000
NUM_INDUCING = 15
OWN: dict[str, Callable[..., Any]] = {
    "diabetes": sklearn.datasets.load_diabetes,
    "breast_cancer": sklearn.datasets.load_breast_cancer,
    "wine": sklearn.datasets.load_wine,
}


def load(directory: Path, name: str) -> Dataset:
    """A data set of scikit-learn, or of the directory."""
    if name not in OWN:
        return read(directory, name)
    bunch = OWN[name]()
    classes = tuple(map(str, getattr(bunch, "target_names", ())))
    return Dataset(bunch.data, bunch.target[:, None].astype(float), classes)


def split(dataset: Dataset, seed: int) -> Problem:
    """Few rows that train, standardised."""
    labels = dataset.Y[:, 0] if dataset.classes else None
    train, test = random_rows(
        dataset.X, max(0.2, 1.0 - TRAIN / len(dataset.X)), seed, labels
    )
    test = np.random.default_rng(seed).permutation(test)[:HELD_OUT]
    problem = standardised(dataset, (train, test))
    spread = problem.train[0].std(axis=0) > 0.0
    return Problem(*((X[:, spread], Y) for X, Y in problem))


def build(problem: Problem, classes: bool, seed: int) -> Any:
    X, Y = problem.train
    kernel = squared_exponential(X.shape[1])
    Z = kmeans(X, NUM_INDUCING, seed=seed)
    if classes:
        return PEPClassification((X, Y), kernel, None, Z)
    return PEPRegression((X, Y), kernel, Z, noise_variance=0.1)


def nlpd(model: Any, problem: Problem) -> float:
    """Mean negative log density of the held-out rows."""
    X, Y = map(tf.constant, problem.test)
    one = tf.ones([1], X.dtype)
    return -float(
        np.mean(log_power_expectation(model.likelihood, X, *model.predict_f(X), Y, one))
    )


def choose(
    problem: Problem, classes: bool, seed: int, validation: Any = None
) -> tuple[float, dict[float, float]]:
    """The power that is chosen, and the negative log density of the held-out rows at
    each.
    """
    model = build(problem, classes, seed)
    optimizer = gpflow.optimizers.Scipy()
    scores: dict[float, float] = {}

    def train(model: Any) -> None:
        options = {"tolerance": TOLERANCE, "window": WINDOW, "progress": False}
        maximise(model, **options, optimizer=optimizer)
        scores[float(model.alpha.numpy())] = nlpd(model, problem)

    found = select_alpha(model, ALPHAS, refit=train, validation=validation)
    return found.alpha, scores


def compare(dataset: Dataset, seed: int) -> tuple[dict[str, float], str]:
    """Negative log densities by each rule, and the powers that were chosen."""
    classes = bool(dataset.classes)
    problem = split(dataset, seed)
    left_out, scores = choose(problem, classes, seed)
    X, Y = problem.train
    most, few = random_rows(X, 0.2, seed, Y[:, 0] if classes else None)
    part = Problem((X[most], Y[most]), problem.test)
    fifth, _ = choose(part, classes, seed, validation=(X[few], Y[few]))
    by_rule = {
        **{f"alpha={alpha:g}": scores[alpha] for alpha in ALPHAS},
        "left out": scores[left_out],
        "fifth": scores[fifth],
        "best": min(scores.values()),
    }
    return by_rule, f"{left_out:g}/{fifth:g}"


def main() -> None:
    args = arguments(
        __doc__,
        names=OWN,
        data=DIRECTORY,
        splits=3,
        quick={"names": ["wine"], "splits": 1},
    )
    rows: list[dict[str, float]] = []
    for name in args.names:
        dataset = load(args.data, name)
        found, chosen = zip(*(compare(dataset, seed) for seed in range(args.splits)))
        if not rows:
            print(
                f"{'':14}"
                + "".join(f"{rule:>10}" for rule in found[0])
                + "   left out/fifth"
            )
        rows += found
        means = [np.mean([one[rule] for one in found]) for rule in found[0]]
        print(
            f"{name:14}" + "".join(f"{v:10.3f}" for v in means),
            " ",
            *chosen,
            flush=True,
        )
    print(f"\nworse than always 0.5 by, over {len(rows)} runs (negative: better)")
    for rule in rows[0]:
        if rule != "alpha=0.5":
            value, low, high = mean_interval(
                [one[rule] - one["alpha=0.5"] for one in rows]
            )
            print(f"{rule:14}{value:+10.3f} [{low:+.3f}, {high:+.3f}]")
