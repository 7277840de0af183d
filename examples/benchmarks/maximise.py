"""Print what it costs, and what it gains, to train until log Z hardly rises.

    python -m examples maximise --data DIRECTORY        # minutes
    python -m examples maximise --data DIRECTORY pima --splits 1

The models that the estimators build, with M = 50 inducing inputs from k-means, trained
by ``gpflow_pep.training.maximise`` on 80% of the rows (at most 800) and tested on the
others (at most 1000): until a step raises log Z by less than 1e-6 nats for each row,
or, as ``compare`` does, until the last ten steps do by less than 1e-4 on average; 500
steps at most. ``NLPD`` is the mean negative log predictive density of held-out rows,
where targets that are numbers are standardised. All numbers are means over the splits.
"""

from typing import Any

import gpflow
import numpy as np
import tensorflow as tf

from examples.common import arguments
from examples.data_sets import DIRECTORY, Dataset, Problem, random_split, read
from gpflow_pep.estimators.single.parts import make_kernel
from gpflow_pep.estimators.single.regression import NOISE_VARIANCE
from gpflow_pep.estimators.single.trainer import TOLERANCE, WINDOW
from gpflow_pep.models import PEPClassification, PEPRegression
from gpflow_pep.training import maximise
from gpflow_pep.training.starts import kmeans

DATA_SETS = ("pima", "ionosphere", "banana", "boston", "concrete")
ALPHAS = (0.0, 0.5, 1.0)
NUM_INDUCING = 50
MOST_TRAIN = 800
MOST_TEST = 1000
MOST_STEPS = 500
RULES: dict[str, dict[str, Any]] = {
    "step < 1e-6": {"tolerance": 1e-6},
    f"{WINDOW} steps < {TOLERANCE:.0e}".replace("e-0", "e-"): {
        "tolerance": TOLERANCE,
        "window": WINDOW,
    },
}


def problem_of(dataset: Dataset, split: int) -> Problem:
    """Some rows to train on and some to test on, standardised."""
    train, test = random_split(dataset, 0.2, split)
    rows = (train, MOST_TRAIN), (test, MOST_TEST)
    return Problem(*((X[:most], Y[:most]) for (X, Y), most in rows))


def train(
    dataset: Dataset, problem: Problem, alpha: float, rule: dict[str, Any]
) -> list[float]:
    """Evaluations, seconds, log Z, kernel variance and NLPD."""
    X, Y = map(tf.constant, problem.train)
    Z = kmeans(problem.train[0], NUM_INDUCING, seed=0).Z.numpy()
    kernel = make_kernel("rbf", X.shape[1])
    options = {"inducing_variable": Z, "alpha": alpha}
    if dataset.classes:
        options["likelihood"] = gpflow.likelihoods.Bernoulli()  # the data sets have two
        model: Any = PEPClassification((X, Y), kernel, **options)
    else:
        model = PEPRegression((X, Y), kernel, **options, noise_variance=NOISE_VARIANCE)
    record = maximise(model, max_iterations=MOST_STEPS, progress=False, **rule)
    nlpd = -np.mean(model.predict_log_density(tuple(map(tf.constant, problem.test))))
    return [
        float(number)
        for number in (
            record.evaluations,
            record.seconds,
            record.objective,
            model.kernel.variance.numpy(),
            nlpd,
        )
    ]


def main() -> None:
    args = arguments(
        __doc__,
        names=DATA_SETS,
        data=DIRECTORY,
        splits=3,
        quick={"names": ["pima"], "splits": 1},
    )
    for name in args.names:
        dataset = read(args.data, name)
        problems = [problem_of(dataset, split) for split in range(args.splits)]
        rows, inputs = problems[0].train[0].shape
        print(f"\n{name}: N = {rows}, D = {inputs}, {args.splits} split(s)")
        print(
            f"{'':28}{'evals':>7}{'seconds':>9}{'log Z':>10}{'variance':>10}{'NLPD':>9}"
        )
        for alpha in ALPHAS:
            for label, rule in RULES.items():
                results = [train(dataset, problem, alpha, rule) for problem in problems]
                evaluations, seconds, log_z, variance, nlpd = np.mean(results, axis=0)
                print(
                    f"alpha {alpha:<4g}"
                    f" {label:17}{evaluations:7.0f}{seconds:9.1f}{log_z:10.1f}"
                    f"{variance:10.1f}{nlpd:9.4f}",
                    flush=True,
                )
