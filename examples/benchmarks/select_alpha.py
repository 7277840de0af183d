"""Print how well a power chosen by leave-one-out density predicts, beside always the same power.

    python examples/benchmarks/select_alpha.py                      # scikit-learn's data, minutes
    python examples/benchmarks/select_alpha.py --data DIRECTORY boston concrete pima

A model with M = 15 inducing inputs is trained at alpha = 0, 0.5 and 1 on at most 300 rows of each
split; the others, at most 1000, are held out. ``chosen`` is what
``gpflow_pep.training.select_alpha`` takes, ``best`` the power that is best on the held-out rows
themselves, which nobody knows. Mean negative log densities over splits, targets standardised; the
last lines are means over all runs of how much worse another rule is, with 95% intervals.
"""

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "papers")]

import gpflow  # noqa: E402
import numpy as np  # noqa: E402
import sklearn.datasets  # noqa: E402
import tensorflow as tf  # noqa: E402
from data_sets import Problem, random_rows, read, standardised  # noqa: E402
from intervals import mean_interval  # noqa: E402

from gpflow_pep.compare import Dataset  # noqa: E402
from gpflow_pep.estimators.base import TOLERANCE, WINDOW  # noqa: E402
from gpflow_pep.models import PEPClassification, PEPRegression  # noqa: E402
from gpflow_pep.selection import kmeans  # noqa: E402
from gpflow_pep.tilted import log_power_expectation  # noqa: E402
from gpflow_pep.training import maximise, select_alpha  # noqa: E402

ALPHAS = (0.0, 0.5, 1.0)
TRAIN, HELD_OUT, NUM_INDUCING = 300, 1000, 15
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
    names = tuple(map(str, bunch.feature_names))
    return Dataset(bunch.data, bunch.target[:, None].astype(float), names, "y", classes)


def split(dataset: Dataset, seed: int) -> Problem:
    """Few rows that train, standardised."""
    labels = dataset.Y[:, 0] if dataset.classes else None
    train, test = random_rows(dataset.X, max(0.2, 1.0 - TRAIN / len(dataset.X)), seed, labels)
    test = np.random.default_rng(seed).permutation(test)[:HELD_OUT]
    problem = standardised(dataset, (train, test))
    spread = problem.train[0].std(axis=0) > 0.0
    return Problem(*((X[:, spread], Y) for X, Y in problem))


def build(problem: Problem, classes: bool, seed: int) -> Any:
    X, Y = problem.train
    kernel = gpflow.kernels.SquaredExponential(lengthscales=np.full(X.shape[1], X.shape[1] ** 0.5))
    Z = kmeans(X, NUM_INDUCING, seed=seed)
    if classes:
        return PEPClassification((X, Y), kernel, None, Z)
    return PEPRegression((X, Y), kernel, Z, noise_variance=0.1)


def nlpd(model: Any, problem: Problem) -> float:
    """Mean negative log density of the held-out rows."""
    X, Y = map(tf.constant, problem.test)
    one = tf.ones([1], X.dtype)
    return -float(np.mean(log_power_expectation(model.likelihood, X, *model.predict_f(X), Y, one)))


def compare(dataset: Dataset, num_splits: int) -> Any:
    """Negative log densities of each split: at each power, and which was chosen."""
    rows, chosen = [], []
    for seed in range(num_splits):
        problem, optimizer = split(dataset, seed), gpflow.optimizers.Scipy()
        model = build(problem, bool(dataset.classes), seed)
        scores: dict[float, float] = {}

        def train(model: Any, scores: Any = scores, of: Any = (problem, optimizer)) -> None:
            options = {"tolerance": TOLERANCE, "window": WINDOW, "progress": False}
            maximise(model, **options, optimizer=of[1])
            scores[float(model.alpha.numpy())] = nlpd(model, of[0])

        chosen.append(select_alpha(model, ALPHAS, refit=train).alpha)
        rows.append([scores[alpha] for alpha in ALPHAS])
    return np.array(rows), np.array(chosen)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", default=list(OWN), help="data sets")
    parser.add_argument("--data", type=Path, default=os.environ.get("GPFLOW_PEP_DATA", "."))
    parser.add_argument("--splits", type=int, default=4, help="how many, from seed 0")
    options = parser.parse_args()
    heads = (*(f"alpha={alpha:g}" for alpha in ALPHAS), "chosen", "best")
    print(f"{'':14}" + "".join(f"{head:>11}" for head in heads) + "   powers chosen")
    everything, picks = [], []
    for name in options.names:
        rows, chosen = compare(load(options.data, name), options.splits)
        own = rows[np.arange(len(rows)), np.searchsorted(ALPHAS, chosen)]
        everything.append(rows)
        picks.append(own)
        means = [*rows.mean(axis=0), own.mean(), rows.min(axis=1).mean()]
        powers = ", ".join(f"{alpha:g}" for alpha in chosen)
        print(
            f"{name:14}" + "".join(f"{value:11.3f}" for value in means) + f"   {powers}", flush=True
        )
    rows, own = np.concatenate(everything), np.concatenate(picks)
    print(f"\nworse than the chosen power by, over {len(own)} runs (negative: better)")
    for head, values in zip(heads, [*rows.T, None, rows.min(axis=1)]):
        if values is not None:
            value, low, high = mean_interval(values - own)
            print(f"{head:14}{value:+11.3f} [{low:+.3f}, {high:+.3f}]")


if __name__ == "__main__":
    main()
