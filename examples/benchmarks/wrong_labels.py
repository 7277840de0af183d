"""Print what the classifier gains by an error rate of labels that is estimated.

    python -m examples wrong_labels --data DIRECTORY           # half an hour
    python -m examples wrong_labels bands                      # generated, without data

``PEPClassifier`` with nothing set, beside the same with RobustMax's own epsilon of 0.001. Each set
is taken as it is, and with a tenth of all labels, of training and of test rows, drawn anew among
the classes. ``rate`` is the estimated epsilon. All numbers are means over splits; ``gain`` is the
difference of NLPD, with its standard error over splits.
"""

from pathlib import Path
from typing import Any

import gpflow
import numpy as np
from gpflow.base import AnyNDArray

from examples.benchmarks.classification import read
from examples.benchmarks.multiclass import split
from examples.common import arguments
from examples.data_sets import DIRECTORY, Labelled
from examples.papers.waveform import waveform
from gpflow_pep.estimators import PEPClassifier

#: How many rows train, or which part of them.
DATA_SETS = {
    "bands": 600,
    "waveform": 300,
    "wine": 0.8,
    "glass": 0.8,
    "svmguide2": 0.8,
    "vowel": 0.8,
    "vehicle": 0.8,
    "satimage": 600,
}
PARTS = (0.0, 0.1)


def bands(random: np.random.Generator) -> tuple[AnyNDArray, AnyNDArray]:
    """Make three classes in the plane, with boundaries that are waves."""
    X = random.uniform(-3.0, 3.0, (2600, 2))
    return X, np.digitize(1.5 * np.sin(X[:, :1]) + X[:, 1:], [-1.0, 1.0]).astype(float)


def load(directory: Path, name: str, part: float, seed: int) -> Labelled:
    """Split rows of which some have labels drawn anew."""
    random = np.random.default_rng(seed)
    if name == "bands":
        X, Y = bands(random)
    elif name == "waveform":
        X, classes = waveform(seed, 1000)
        Y = classes[:, None].astype(float)
    else:
        X, Y = read(directory, name)
    drawn = random.uniform(size=Y.shape) < part
    anew = random.integers(0, int(Y.max()) + 1, Y.shape)
    return split(X, np.where(drawn, anew, Y), DATA_SETS[name], seed)


def fit(problem: Labelled, likelihood: Any) -> tuple[float, float, float]:
    """NLPD and error rate of test rows, and epsilon."""
    estimator = PEPClassifier(likelihood=likelihood, random_state=0)
    estimator.fit(problem.X, problem.Y[:, 0])
    labels = problem.Y_test[:, 0]
    error = 1.0 - estimator.score(problem.X_test, labels)
    rate = float(estimator.likelihood_.invlink.epsilon.numpy())
    return -estimator.log_score(problem.X_test, labels), error, rate


def main() -> None:
    args = arguments(
        __doc__, names=DATA_SETS, data=DIRECTORY, splits=3, quick={"names": ["wine"], "splits": 1}
    )
    print(f"{'':11}{'drawn':>6}{'NLPD':>10}{'error':>7}{'rate':>10}{'NLPD':>8}{'error':>7}", end="")
    print(f"{'gain':>12}")
    for name in args.names:
        for part in PARTS:
            runs = []
            for seed in range(args.splits):
                problem = load(args.data, name, part, seed)
                own = gpflow.likelihoods.MultiClass(int(problem.Y.max()) + 1)
                runs.append([fit(problem, own), fit(problem, "auto")])
            fixed, free = np.mean(runs, axis=0)
            gains = np.array([before[0] - after[0] for before, after in runs])
            error = np.std(gains, ddof=1) / np.sqrt(len(gains)) if len(gains) > 1 else np.nan
            print(
                f"{name:11}{part:6.1f}{fixed[0]:10.3f}{fixed[1]:7.3f}{free[2]:10.4f}{free[0]:8.3f}"
                f"{free[1]:7.3f}{gains.mean():8.3f} ({error:.3f})",
                flush=True,
            )


if __name__ == "__main__":
    main()
