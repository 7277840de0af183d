"""Train PEP and ARPEP by minibatches beside PEP by full batches, and classify held-out
rows.

    python -m examples minibatch                                    # generated data, a minute
    python -m examples minibatch --data DIRECTORY spambase          # spambase.csv.gz in there
    python -m examples minibatch --data DIRECTORY satimage --steps 4000

The kernel is a squared exponential with a lengthscale for each input, inducing inputs
start from k-means; several classes share both. PEP trains by L-BFGS on all rows, for at
most so many iterations as ``--iterations`` says, and by Adam on batches with
``minibatch_training_loss_closure``; ARPEP, whose sites are tied, by Adam too. Adam's
learning rate falls to 0. Prints seconds of training, error and mean negative log
density. DIRECTORY may also be the environment variable GPFLOW_PEP_DATA.
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
import tf_keras
from gpflow.base import AnyNDArray
from sklearn.datasets import make_moons

from examples.common import arguments, squared_exponential
from examples.data_sets import DIRECTORY, Labelled, labelled, random_rows, read
from gpflow_pep.metrics import error_rate, mean_nlpd
from gpflow_pep.models import ARPEP, PEPClassification
from gpflow_pep.training import fit, shuffled_batches
from gpflow_pep.training.starts import kmeans

SEED = 0
GENERATED = "generated"


def load(name: str, directory: Path) -> Labelled:
    """A data set of the directory, or two half moons that overlap; a fifth is held out."""
    if name == GENERATED:
        X, labels = make_moons(1500, noise=0.35, random_state=SEED)
        Y = labels[:, None].astype(float)
    else:
        X, Y, _ = read(directory, name, "classification")
    labels = Y[:, 0]
    return labelled(X, labels, random_rows(X, 0.2, SEED, labels))


def parts(problem: Labelled, num_inducing: int) -> tuple[Any, Any, AnyNDArray]:
    """Kernel, likelihood and inducing inputs that all start from."""
    C = problem.num_classes
    several = gpflow.likelihoods.MultiClass(C)
    return (
        squared_exponential(problem.X.shape[1]),
        gpflow.likelihoods.Bernoulli() if C == 2 else several,
        kmeans(problem.X, num_inducing, seed=SEED).Z.numpy(),
    )


def scores(model: Any, problem: Labelled) -> dict[str, float]:
    """Error rate and mean negative log density of the held-out rows."""

    @tf.function(autograph=False)
    def predict() -> tuple[tf.Tensor, tf.Tensor]:
        probability, _ = model.predict_y(problem.X_test)
        return probability, model.predict_log_density((problem.X_test, problem.Y_test))

    probability, log_density = (value.numpy() for value in predict())
    binary = problem.num_classes == 2
    labels = probability[:, 0] > 0.5 if binary else np.argmax(probability, axis=1)
    return {
        "error": error_rate(problem.Y_test[:, 0], labels),
        "nlpd": mean_nlpd(log_density),
    }


def adam(num_steps: int, rate: float) -> tf_keras.optimizers.Optimizer:
    """Adam with a learning rate that falls to 0 along a cosine."""
    return tf_keras.optimizers.Adam(
        tf_keras.optimizers.schedules.CosineDecay(rate, num_steps)
    )


def pep(problem: Labelled, options: argparse.Namespace) -> PEPClassification:
    data = tf.constant(problem.X), tf.constant(problem.Y)
    built = parts(problem, options.inducing)
    return PEPClassification(data, *built, alpha=options.alpha, tolerance=1e-4)


def pep_full_batch(problem: Labelled, options: argparse.Namespace) -> Any:
    model = pep(problem, options)
    num_rows = len(problem.X)
    gpflow.optimizers.Scipy().minimize(
        lambda: model.training_loss() / num_rows,
        model.trainable_variables,
        options={"maxiter": options.iterations, "ftol": 1e-6},
    )
    return model


def pep_minibatch(problem: Labelled, options: argparse.Namespace) -> Any:
    model = pep(problem, options)
    batches = model.minibatch_training_loss_closure(options.batch_size, seed=SEED)
    optimizer = adam(options.steps, options.rate)
    fit(model, batches, num_steps=options.steps, optimizer=optimizer)
    return model


def arpep_minibatch(problem: Labelled, options: argparse.Namespace) -> Any:
    num_latent = 1 if problem.num_classes == 2 else problem.num_classes
    model = ARPEP(
        *parts(problem, options.inducing),
        alpha=options.alpha,
        num_data=len(problem.X),
        num_latent_gps=num_latent,
    )
    batches = shuffled_batches((problem.X, problem.Y), options.batch_size, seed=SEED)
    optimizer = adam(options.steps, options.rate)
    fit(model, batches, num_steps=options.steps, optimizer=optimizer)
    return model


METHODS: dict[str, Callable[[Labelled, argparse.Namespace], Any]] = {
    "PEP, full batch": pep_full_batch,
    "PEP, minibatch": pep_minibatch,
    "ARPEP, minibatch": arpep_minibatch,
}


def main() -> None:
    args = arguments(
        __doc__,
        name=GENERATED,
        data=DIRECTORY,
        inducing=50,
        alpha=0.5,
        batch_size=100,
        iterations=200,
        steps=2000,
        rate=0.02,
        quick={"inducing": 10, "iterations": 5, "steps": 50},
    )
    problem = load(args.name, args.data)
    print(
        f"{args.name}: {len(problem.X)} rows, {len(problem.X_test)} held out, D ="
        f" {problem.X.shape[1]}, {problem.num_classes} classes, M = {args.inducing},"
        f" alpha = {args.alpha:g}, {args.steps} steps of {args.batch_size} rows"
    )
    print(f"{'':18}{'seconds':>9}{'error':>9}{'NLPD':>9}", flush=True)
    for label, train in METHODS.items():
        start = time.perf_counter()
        model = train(problem, args)
        seconds = time.perf_counter() - start
        found = scores(model, problem)
        print(
            f"{label:18}{seconds:9.1f}{found['error']:9.4f}{found['nlpd']:9.4f}",
            flush=True,
        )
