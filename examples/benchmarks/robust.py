"""Outliers: robust regression in closed form beside Student's t and Gaussian noise.

    python -m examples robust
    python -m examples robust generated --outliers 0.3 --threshold 1.5

Of each data set a fraction of the training targets is moved by 3 to 8 standard deviations, to one
side ("above") or to both ("both"); held-out targets stay as they are. All models have the same
kernel, inducing points and power. Scores are of the held-out rows: root mean squared error and
mean negative log density, the noise included, both in standard deviations of the clean training
targets; means over seeds. ``compile`` and ``train`` are seconds of the first evaluations and of all
else, ``x`` how many times the training of ``RobustGaussian`` it takes, the least of the seeds each.
``clean`` is Gaussian noise without outliers: what can be reached.
"""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import gpflow
import numpy as np
from gpflow.base import AnyNDArray
from sklearn.datasets import load_diabetes

import gpflow_pep as pep
from examples.common import arguments, squared_exponential
from gpflow_pep.selection import kmeans

#: Noise variance to start from, of targets of unit variance.
START = 0.1
Data = tuple[AnyNDArray, AnyNDArray]


class Task(NamedTuple):
    """Rows to train on, with outliers and without, and others."""

    X: AnyNDArray
    clean: AnyNDArray
    dirty: AnyNDArray
    test: Data


class Score(NamedTuple):
    """What a model reached."""

    rmse: float
    nlpd: float
    compiled: float
    trained: float


def generated(num_rows: int, random: np.random.Generator) -> Data:
    X = random.uniform(-3.0, 3.0, (num_rows, 2))
    f = np.sin(2.0 * X[:, :1]) + 0.5 * X[:, 1:]
    return X, f + 0.2 * random.standard_normal(f.shape)


def diabetes(num_rows: int, random: np.random.Generator) -> Data:
    X, y = load_diabetes(return_X_y=True)
    order = random.permutation(len(X))[:num_rows]
    return X[order], y[order, None]


DATA: dict[str, Callable[[int, np.random.Generator], Data]]
DATA = {"generated": generated, "diabetes": diabetes}


def task(name: str, side: str, fraction: float, num_rows: int, seed: int) -> Task:
    """Rows of unit scale, a quarter of them held out, and outliers among the others."""
    random = np.random.default_rng(seed)
    X, Y = DATA[name](num_rows, random)
    train, test = slice(len(X) // 4, None), slice(len(X) // 4)
    X = (X - X[train].mean(axis=0)) / X[train].std(axis=0)
    Y = (Y - Y[train].mean()) / Y[train].std()
    shift = random.uniform(3.0, 8.0, Y[train].shape)
    if side == "both":
        shift *= random.choice([-1.0, 1.0], shift.shape)
    dirty = Y[train] + np.where(random.random(shift.shape) < fraction, shift, 0.0)
    return Task(X[train], Y[train], dirty, (X[test], Y[test]))


def robust(data: Data, *parts: Any, threshold: float, **options: Any) -> tuple[Any, Any]:
    likelihood = pep.likelihoods.RobustGaussian(START)
    model = pep.PEPRegression(data, *parts, likelihood=likelihood, **options)
    return model, pep.training.maximise_robust(model, threshold=threshold, progress=False)


def student_t(
    data: Data, kernel: Any, points: Any, *, threshold: float, **options: Any
) -> tuple[Any, Any]:
    likelihood = gpflow.likelihoods.StudentT(START**0.5, df=4.0)
    model = pep.PEP(data, kernel, likelihood, points, **options)
    return model, [pep.training.maximise(model, progress=False)]


def gaussian(data: Data, *parts: Any, threshold: float, **options: Any) -> tuple[Any, Any]:
    model = pep.PEPRegression(data, *parts, noise_variance=START, **options)
    return model, [pep.training.maximise(model, progress=False)]


MODELS: dict[str, Callable[..., tuple[Any, Any]]]
MODELS = {"RobustGaussian": robust, "StudentT": student_t, "Gaussian": gaussian, "clean": gaussian}


def score(name: str, task: Task, num_inducing: int, threshold: float, alpha: float) -> Score:
    """Train a model and score it on the held-out rows."""
    kernel = squared_exponential(task.X.shape[1])
    points = kmeans(task.X, num_inducing, seed=0)
    data = task.X, task.clean if name == "clean" else task.dirty
    began = time.perf_counter()
    model, records = MODELS[name](data, kernel, points, threshold=threshold, alpha=alpha)
    seconds = time.perf_counter() - began
    compiled = sum(record.compile_seconds for record in records)
    mean, _ = model.predict_y(task.test[0])
    error = float(np.sqrt(np.mean((mean - task.test[1]) ** 2)))
    nlpd = -float(np.mean(model.predict_log_density(task.test)))
    return Score(error, nlpd, compiled, seconds - compiled)


def main() -> None:
    args = arguments(
        __doc__,
        names=DATA,
        outliers=0.15,
        threshold=2.0,
        alpha=0.5,
        rows=1000,
        inducing=50,
        seeds=2,
        quick={"rows": 80, "inducing": 8, "seeds": 1, "names": ["generated"]},
    )
    print(f"{args.outliers:.0%} outliers, threshold {args.threshold:g}, alpha {args.alpha:g}")
    columns = f"{'rmse':>6} {'nlpd':>7} {'compile':>8} {'train':>7} {'x':>6}"
    print(f"{'data':10} {'side':6} {'noise':15} {columns}")
    for name in args.names:
        for side in ("above", "both"):
            tasks = [task(name, side, args.outliers, args.rows, seed) for seed in range(args.seeds)]
            fastest = None
            for noise in MODELS:
                scores = [score(noise, t, args.inducing, args.threshold, args.alpha) for t in tasks]
                error, nlpd, *_ = np.mean(scores, axis=0)
                *_, compiled, trained = np.min(scores, axis=0)
                fastest = fastest or trained
                print(
                    f"{name:10} {side:6} {noise:15} {error:6.3f} {nlpd:7.3f}"
                    f" {compiled:8.1f} {trained:7.1f} {trained / fastest:6.1f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
