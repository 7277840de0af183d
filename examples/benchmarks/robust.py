"""Outliers: Student's t noise beside Gaussian noise.

    python -m examples robust
    python -m examples robust generated --outliers 0.3

Of each data set a fraction of the training targets is moved by 3 to 8 standard
deviations, to one side ("above") or to both ("both"); held-out targets stay as they
are. All models have the same kernel, inducing points and power. Scores are of the
held-out rows: root mean squared error and mean negative log density, the noise
included, both in standard deviations of the clean training targets; means over seeds.
``clean`` is Gaussian noise without outliers: what can be reached.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import gpflow
import numpy as np
from gpflow.base import AnyNDArray
from sklearn.datasets import load_diabetes

import gpflow_pep as pep
from examples.common import arguments, squared_exponential
from gpflow_pep.training.starts import kmeans

#: Noise variance to start from, of targets of unit variance.
START = 0.1
Data = tuple[AnyNDArray, AnyNDArray]


class Task(NamedTuple):
    """Rows to train on, with outliers and without, and others."""

    X: AnyNDArray
    clean: AnyNDArray
    dirty: AnyNDArray
    test: Data


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
    train = slice(len(X) // 4, None)
    test = slice(len(X) // 4)
    X = (X - X[train].mean(axis=0)) / X[train].std(axis=0)
    Y = (Y - Y[train].mean()) / Y[train].std()
    shift = random.uniform(3.0, 8.0, Y[train].shape)
    if side == "both":
        shift *= random.choice([-1.0, 1.0], shift.shape)
    dirty = Y[train] + np.where(random.random(shift.shape) < fraction, shift, 0.0)
    return Task(X[train], Y[train], dirty, (X[test], Y[test]))


def student_t(data: Data, kernel: Any, points: Any, alpha: float) -> Any:
    return pep.PEP(
        data,
        kernel,
        gpflow.likelihoods.StudentT(START**0.5, df=4.0),
        points,
        alpha=alpha,
    )


def gaussian(data: Data, kernel: Any, points: Any, alpha: float) -> Any:
    return pep.PEPRegression(data, kernel, points, noise_variance=START, alpha=alpha)


MODELS: dict[str, Callable[..., Any]]
MODELS = {"StudentT": student_t, "Gaussian": gaussian, "clean": gaussian}


def score(
    name: str, task: Task, num_inducing: int, alpha: float
) -> tuple[float, float]:
    """Train a model; its error and negative log density of the held-out rows."""
    kernel = squared_exponential(task.X.shape[1])
    points = kmeans(task.X, num_inducing, seed=0)
    model = MODELS[name](
        (task.X, task.clean if name == "clean" else task.dirty), kernel, points, alpha
    )
    pep.training.maximise(model, progress=False)
    mean, _ = model.predict_y(task.test[0])
    error = float(np.sqrt(np.mean((mean - task.test[1]) ** 2)))
    return error, -float(np.mean(model.predict_log_density(task.test)))


def main() -> None:
    args = arguments(
        __doc__,
        names=DATA,
        outliers=0.15,
        alpha=0.5,
        rows=1000,
        inducing=50,
        seeds=2,
        quick={"rows": 80, "inducing": 8, "seeds": 1, "names": ["generated"]},
    )
    print(f"{args.outliers:.0%} outliers, alpha {args.alpha:g}")
    print(f"{'data':10} {'side':6} {'noise':9} {'rmse':>6} {'nlpd':>7}")
    for name in args.names:
        for side in ("above", "both"):
            tasks = [
                task(name, side, args.outliers, args.rows, seed)
                for seed in range(args.seeds)
            ]
            for noise in MODELS:
                scores = [score(noise, t, args.inducing, args.alpha) for t in tasks]
                error, nlpd = np.mean(scores, axis=0)
                print(
                    f"{name:10} {side:6} {noise:9} {error:6.3f} {nlpd:7.3f}", flush=True
                )


if __name__ == "__main__":
    main()
