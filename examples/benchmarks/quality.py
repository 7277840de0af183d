"""Print how well PEP and GPflow's SVGP classify held-out rows, averaged over splits and data sets.

    python examples/benchmarks/quality.py --data DIRECTORY          # many minutes
    python examples/benchmarks/quality.py --data DIRECTORY pima --splits 2

Probit likelihood, squared exponential with a lengthscale for each input, M = 50 inducing inputs
from k-means; everything is optimised, with the defaults of the models: SVGP by L-BFGS until a step
improves the bound by less than 1e-6 nats for each row, or for 1000 steps; PEP by
``gpflow_pep.training.maximise`` as ``gpflow-pep compare`` does. Trained on 80% of the rows, at most
2000, and tested on the others. ``NLPD`` is the mean negative log predictive density.
"""

import argparse
import os
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import gpflow
import numpy as np
import tensorflow as tf
from classification import DATA_SETS, kernel, lbfgs, read
from multiclass import Problem, scores, split

from gpflow_pep.estimators.base import TOLERANCE, WINDOW
from gpflow_pep.models import PEPClassification
from gpflow_pep.selection import kmeans
from gpflow_pep.training import maximise

NUM_INDUCING, MOST_ROWS = 50, 2000
SVGP_STEPS = 1000
ALPHAS = (0.0, 0.5, 1.0)


def train(problem: Problem, alpha: float | None) -> tuple[float, float, float]:
    """Error rate, NLPD and seconds of training; SVGP where there is no alpha."""
    Z = kmeans(problem.X, NUM_INDUCING, seed=0).Z.numpy()
    parts = kernel(problem.X.shape[1]), gpflow.likelihoods.Bernoulli(), Z
    data = tf.constant(problem.X), tf.constant(problem.Y)
    if alpha is None:
        model: Any = gpflow.models.SVGP(*parts)
        loss = model.training_loss_closure(data)
        run = lbfgs(lambda: loss() / len(problem.X), model, SVGP_STEPS, 1e-6)
        return (*scores(model, problem), float(run.seconds[-1]))
    model = PEPClassification(data, *parts, alpha=alpha)
    record = maximise(model, tolerance=TOLERANCE, window=WINDOW, progress=False)
    return (*scores(model, problem), record.seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=DATA_SETS, help="data sets (default: all)")
    parser.add_argument("--data", type=Path, default=os.environ.get("GPFLOW_PEP_DATA", "."))
    parser.add_argument("--splits", type=int, default=5, help="how many, from seed 0")
    options = parser.parse_args()
    labels = {"SVGP": None, **{f"PEP alpha = {alpha:g}": alpha for alpha in ALPHAS}}
    means = []
    for name in options.names:
        X, Y = read(Path(options.data), name)
        rows = min(int(0.8 * len(X)), MOST_ROWS)
        print(f"\n{name}: {rows} of {len(X)} rows, D = {X.shape[1]}, {options.splits} split(s)")
        print(" " * 20 + "".join(f"{head:>9}" for head in ("error", "NLPD", "seconds")), flush=True)
        results = np.array(
            [
                [train(split(X, Y, rows, seed), alpha) for alpha in labels.values()]
                for seed in range(options.splits)
            ]
        )
        means.append(results.mean(axis=0))
        for label, (error, nlpd, seconds) in zip(labels, means[-1], strict=True):
            print(f"{label:20}{error:9.4f}{nlpd:9.4f}{seconds:9.1f}", flush=True)
    print(f"\naverage of {len(means)} data set(s)")
    for label, (error, nlpd, _) in zip(labels, np.mean(means, axis=0), strict=True):
        print(f"{label:20}{error:9.4f}{nlpd:9.4f}")


if __name__ == "__main__":
    main()
