"""Print how well PEP and GPflow's SVGP classify several classes, and how long training
takes.

    python -m examples multiclass --data DIRECTORY           # minutes a data set
    python -m examples multiclass --data DIRECTORY wine waveform

RobustMax likelihood; a squared exponential with a lengthscale for each input, and
inducing inputs from k-means, M = 5% of the training rows, that the classes share, or
for each class of its own; everything is optimised from the same start (SVGP from q =
prior), with the defaults of the models. SVGP is trained by L-BFGS until a step improves
the bound by less than 1e-6 nats for each row, or for 1000 steps; PEP by
``gpflow_pep.training.maximise`` as ``gpflow-pep compare`` does. ``NLPD`` is the mean
negative log predictive density of the held-out rows, ``paper`` that of Villacampa-Calvo
& Hernandez-Lobato (2020), table C.4, alpha 0.5. Training rows: 20% of satimage, 300 of
1000 of waveform (Breiman's, generated here), 90% of vehicle, wine and the first six
classes of vowel. ``first`` is the first evaluation, which compiles and is not in
``seconds``. ``ms`` is ``seconds`` divided by ``evals``, the evaluations of loss and
gradient, and the last column its ratio to SVGP's.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
from sklearn.model_selection import train_test_split

from examples.benchmarks.classification import lbfgs, read
from examples.common import arguments, squared_exponential
from examples.data_sets import DIRECTORY, Labelled
from examples.papers.waveform import waveform
from gpflow_pep.estimators.single.trainer import TOLERANCE, WINDOW
from gpflow_pep.likelihoods import log_power_expectation
from gpflow_pep.models import PEPClassification
from gpflow_pep.training import maximise
from gpflow_pep.training.starts import kmeans

#: Fraction of rows that train, and the paper's NLPD.
DATA_SETS = {
    "wine": (0.9, 0.08),
    "vehicle": (0.9, 0.36),
    "waveform": (0.3, 0.40),
    "vowel": (0.9, 0.17),
    "satimage": (0.2, 0.31),
}
SVGP_STEPS = 1000


def load(directory: Path, name: str, seed: int) -> Labelled:
    if name == "waveform":
        X, classes = waveform(seed, 1000)
        Y = classes[:, None].astype(float)
    else:
        X, Y = read(directory, name)
    if name == "vowel":
        first_six = Y[:, 0] < 6
        X = X[first_six]
        Y = Y[first_six]
    return split(X, Y, DATA_SETS[name][0], seed)


def split(X: np.ndarray, Y: np.ndarray, train_size: float, seed: int) -> Labelled:
    """Training rows, a fraction or a number, with classes in proportion; and the
    others.
    """
    X, X_test, Y, Y_test = train_test_split(
        X, Y, train_size=train_size, random_state=seed, stratify=Y
    )
    mean = X.mean(0)
    scale = np.where(X.std(0) > 0.0, X.std(0), 1.0)
    return Labelled((X - mean) / scale, Y, (X_test - mean) / scale, Y_test)


def parts(problem: Labelled, shared: bool) -> tuple[Any, Any, Any]:
    """Kernel, likelihood and inducing variables that all start from."""
    num_classes = int(problem.Y.max()) + 1
    num_inducing = round(0.05 * len(problem.Y))
    Z = kmeans(problem.X, num_inducing, seed=0).Z.numpy()
    likelihood = gpflow.likelihoods.MultiClass(num_classes)
    if shared:
        return squared_exponential(problem.X.shape[1]), likelihood, Z
    kernels = [squared_exponential(problem.X.shape[1]) for _ in range(num_classes)]
    points = [
        gpflow.inducing_variables.InducingPoints(Z.copy()) for _ in range(num_classes)
    ]
    return (
        gpflow.kernels.SeparateIndependent(kernels),
        likelihood,
        gpflow.inducing_variables.SeparateIndependentInducingVariables(points),
    )


def scores(model: Any, problem: Labelled) -> tuple[float, float]:
    """Error rate and NLPD of the held-out rows, by accurate quadrature for all models."""
    F = model.predict_f(problem.X_test)
    one = tf.ones_like(F[0][:, 0])
    columns = [
        log_power_expectation(
            model.likelihood, problem.X_test, *F, label * one[:, None], one
        ).numpy()
        for label in range(int(problem.Y.max()) + 1)
    ]
    log_probability = np.stack(columns, axis=1)
    labels = problem.Y_test.astype(int)
    error = np.mean(np.argmax(log_probability, axis=1) != labels[:, 0])
    return float(error), -float(
        np.mean(np.take_along_axis(log_probability, labels, axis=1))
    )


class Trained(NamedTuple):
    """A model, and what its training took."""

    model: Any
    seconds: float
    first: float
    evaluations: int


def train_svgp(problem: Labelled, shared: bool) -> Trained:
    """GPflow's model, q whitened."""
    own, likelihood, Z = parts(problem, shared)
    model = gpflow.models.SVGP(
        own, likelihood, Z, num_latent_gps=likelihood.num_classes
    )
    loss = model.training_loss_closure((problem.X, problem.Y))
    run = lbfgs(lambda: loss() / len(problem.X), model, SVGP_STEPS, 1e-6)
    return Trained(model, run.seconds[-1], run.compile, len(run.loss))


def train_pep(problem: Labelled, shared: bool, alpha: float) -> Trained:
    """As ``gpflow-pep compare`` trains it."""
    data = tf.constant(problem.X), tf.constant(problem.Y)
    model = PEPClassification(data, *parts(problem, shared), alpha=alpha)
    record = maximise(model, tolerance=TOLERANCE, window=WINDOW, progress=False)
    return Trained(model, record.seconds, record.compile_seconds, record.evaluations)


def compare(directory: Path, name: str, shared: bool, num_splits: int) -> None:
    methods: dict[str, Callable[[Labelled], Trained]] = {
        "SVGP": lambda problem: train_svgp(problem, shared),
        "PEP alpha = 0": lambda problem: train_pep(problem, shared, 0.0),
        "PEP alpha = 0.5": lambda problem: train_pep(problem, shared, 0.5),
        "PEP alpha = 1": lambda problem: train_pep(problem, shared, 1.0),
    }
    totals: dict[str, list[list[float]]] = {label: [] for label in methods}
    for seed in range(num_splits):
        problem = load(directory, name, seed)
        if seed == 0:
            print(
                f"\n{name}, {'shared' if shared else 'separate'}: N = {len(problem.X)},"
                f" D = {problem.X.shape[1]}, C = {int(problem.Y.max()) + 1},"
                f" M = {round(0.05 * len(problem.X))}, {num_splits} split(s);"
                f" paper {DATA_SETS[name][1]}"
            )
            heads = (
                "error",
                "NLPD",
                "seconds",
                "/ SVGP",
                "first s",
                "evals",
                "ms",
                "/ SVGP",
            )
            print(" " * 20 + "".join(f"{head:>9}" for head in heads))
        for label, train in methods.items():
            model, *cost = train(problem)
            totals[label].append([*scores(model, problem), *cost])
    _, _, reference, _, reference_evaluations = np.mean(totals["SVGP"], axis=0)
    for label, rows in totals.items():
        error, nlpd, seconds, first, evaluations = np.mean(rows, axis=0)
        one = seconds / evaluations
        reference_one = reference / reference_evaluations
        print(
            f"{label:20}{error:9.3f}{nlpd:9.3f}{seconds:9.1f}{seconds / reference:9.2f}"
            f"{first:9.1f}{evaluations:9.0f}{1e3 * one:9.1f}{one / reference_one:9.2f}",
            flush=True,
        )


def main() -> None:
    args = arguments(
        __doc__, names=DATA_SETS, data=DIRECTORY, splits=1, quick={"names": ["wine"]}
    )
    for name in args.names:
        for shared in (True, False):
            compare(args.data, name, shared, args.splits)
