"""Print what softmax gains over RobustMax for several classes, with right and with
wrong labels.

    python -m examples wrong_labels --data DIRECTORY           # half an hour
    python -m examples wrong_labels bands                      # generated, without data

``PEPClassifier`` with ``likelihood="multiclass"``, then ``"softmax"``. Each set is
taken as it is, and with a tenth of all labels, of training and of test rows, drawn anew
among the classes. All numbers are means over splits; ``gain`` is the difference of
NLPD, with its standard error over splits.
"""

import time
from pathlib import Path

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


def fit(problem: Labelled, likelihood: str) -> tuple[float, float, float]:
    """NLPD and error rate of test rows, and seconds."""
    began = time.perf_counter()
    estimator = PEPClassifier(likelihood=likelihood, alpha=0.5, random_state=0)
    estimator.fit(problem.X, problem.Y[:, 0])
    seconds = time.perf_counter() - began
    labels = problem.Y_test[:, 0]
    error = 1.0 - estimator.score(problem.X_test, labels)
    return -estimator.log_score(problem.X_test, labels), error, seconds


def main() -> None:
    args = arguments(
        __doc__,
        names=DATA_SETS,
        data=DIRECTORY,
        splits=3,
        quick={"names": ["wine"], "splits": 1},
    )
    print(f"{'':17}" + f"{'NLPD':>8}{'error':>7}{'s':>6}" * 2 + f"{'gain':>9}")
    for name in args.names:
        for part in PARTS:
            runs = []
            for seed in range(args.splits):
                problem = load(args.data, name, part, seed)
                runs.append([fit(problem, name) for name in ("multiclass", "softmax")])
            scores = np.mean(runs, axis=0)
            gains = np.array([before[0] - after[0] for before, after in runs])
            error = (
                np.std(gains, ddof=1) / np.sqrt(len(gains))
                if len(gains) > 1
                else np.nan
            )
            line = "".join(
                f"{nlpd:8.3f}{wrong:7.3f}{s:6.1f}" for nlpd, wrong, s in scores
            )
            print(
                f"{name:11}{part:6.1f}{line}{gains.mean():9.3f} ({error:.3f})",
                flush=True,
            )


if __name__ == "__main__":
    main()
