"""Training that one process does alone, or several do together: what they come to, as
named arrays. As a script, one of several processes under TF_CONFIG, or with
``mirrored`` one with two devices.
"""

import itertools
import json
import os
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import gpflow
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
import tf_keras
from gpflow.kernels import RBF, LinearCoregionalization, Matern12, Matern32
from gpflow.likelihoods import Bernoulli, Gaussian, MultiClass, StudentT

import gpflow_pep as pep

N, BATCH, STEPS = 40, 5, 8
RNG = np.random.default_rng(3)
X = RNG.uniform(-2.0, 2.0, (N, 1))
Y = np.sin(2.0 * X) + 0.3 * RNG.standard_normal(X.shape)
LABELS = np.where(Y > 0.0, 1.0, 0.0)
Z = np.linspace(-2.0, 2.0, 5)[:, None]
BLOCKS = np.arange(N) // 3
#: Rows of each of two processes; block 4 ends where the second begins.
SHARDS = slice(0, 15), slice(15, N)

Arrays = dict[str, Any]
Models = Iterator[tuple[str, Any]]
several = tf.distribute.MultiWorkerMirroredStrategy


def index_of_worker() -> int:
    return int(json.loads(os.environ["TF_CONFIG"])["task"]["index"])


def log_density(model: Any) -> dict[str, float]:
    return {"nlpd": -float(np.mean(model.predict_log_density((X, Y))))}


def fitted(
    strategy: Any, checkpoint_dir: Path | None, evaluate: Any = log_density
) -> Arrays:
    """ARPEP by minibatches; with a directory, stopped and resumed on the way."""
    options: dict[str, Any] = {
        "evaluate": evaluate,
        "evaluate_every": 2,
        "strategy": strategy,
    }
    options |= {
        "checkpoint_dir": checkpoint_dir,
        "checkpoint_every": STEPS,
        "progress": False,
    }
    options["early_stopping"] = pep.training.EarlyStopping("nlpd", patience=STEPS)
    options["log_dir"] = checkpoint_dir and checkpoint_dir / "log"
    for num_steps in (STEPS - 3, STEPS) if checkpoint_dir else (STEPS,):
        with strategy.scope() if strategy else nullcontext():
            kernel = RBF()
            kernel.variance = gpflow.Parameter(kernel.variance, trainable=False)
            model = pep.models.ARPEP(
                kernel, Gaussian(0.3), Z.copy(), num_data=N, alpha=0.5
            )
            schedule = tf_keras.optimizers.schedules.CosineDecay(0.05, STEPS)
            optimizer = tf_keras.optimizers.Adam(schedule, clipnorm=5.0)
        batches = pep.training.shuffled_batches((X, Y), BATCH, seed=1)
        record = pep.training.fit(
            model, batches, num_steps=num_steps, optimizer=optimizer, **options
        )
    return {
        "losses": record.losses,
        "metrics": [evaluation.metrics["nlpd"] for evaluation in record.evaluations],
        "best_step": record.best_step,
        **{f"variable{k}": v.numpy() for k, v in enumerate(model.trainable_variables)},
    }


def full_batch_models(rows: slice) -> Models:
    """Models of some rows, with parameters that do not depend on which."""

    def kernel() -> Any:
        kernel = RBF()
        # A term of the loss that is no sum over rows.
        kernel.lengthscales.prior = tfp.distributions.LogNormal(
            np.float64(0.0), np.float64(1.0)
        )
        return kernel

    data, labels = (X[rows], Y[rows]), (X[rows], LABELS[rows])
    alpha = np.linspace(0.0, 1.0, N)[rows]
    chunked: dict[str, Any] = {"noise_variance": 0.2, "chunk_size": 7}
    yield (
        "regression",
        pep.PEPRegression(data, kernel(), Z.copy(), alpha=alpha, **chunked),
    )
    batches = tf.data.Dataset.from_tensor_slices(data).batch(4)
    yield "streamed", pep.PEPRegression(batches, kernel(), Z.copy(), **chunked)
    model = pep.PEPClassification(
        labels, kernel(), Bernoulli(), Z.copy(), tolerance=1e-9
    )
    yield "classification", model


def models_of_classes_and_of_missing_targets(rows: slice) -> Models:
    """One whose latent functions an inner loop moves together; mixtures, and outputs
    that share nothing: the first process has seen nothing of the third.
    """
    bins = np.digitize(Y, [-0.3, 0.5]).astype(float)[rows]
    yield (
        "classes",
        pep.PEP((X[rows], bins), RBF(), MultiClass(3), Z.copy(), tolerance=1e-9),
    )
    targets = np.hstack([Y, LABELS, Y**2])
    targets[::3, 0] = targets[SHARDS[0], 2] = np.nan
    data, W = (X[rows], targets[rows]), [[1.0, 0.3], [0.5, -0.8], [0.2, 0.6]]
    mixing = [
        LinearCoregionalization([RBF(), Matern32(lengthscales=2.0)], W)
        for _ in range(2)
    ]
    options: dict[str, Any] = {"noise_variance": 0.2, "chunk_size": 7}
    yield "incomplete", pep.PEPRegression(data, RBF(), Z.copy(), **options)
    yield "mixture", pep.PEPRegression(data, mixing[0], Z.copy(), **options)
    likelihood = pep.likelihoods.PerOutput([Gaussian(0.2), Bernoulli(), StudentT()])
    yield "rows", pep.PEP(data, mixing[1], likelihood, Z.copy(), tolerance=1e-10)


def together(model: Any, strategy: Any) -> Any:
    return pep.training.sharded(model, strategy) if strategy else nullcontext()


def full_batch(strategy: Any, models: Any = full_batch_models) -> Arrays:
    """Value and gradient at first, and after a few steps of L-BFGS; predictions then."""
    rows = SHARDS[index_of_worker()] if strategy else slice(None)
    found: Arrays = {}
    for name, model in models(rows):
        variables = model.trainable_variables
        loss = model.training_loss
        if strategy:
            loss = pep.training.sharded_training_loss(model, strategy)
        with tf.GradientTape() as tape:
            value = loss()
        gradient = tape.gradient(value, variables)
        result = gpflow.optimizers.Scipy().minimize(
            loss, variables, options={"maxiter": 5}
        )
        with together(model, strategy):
            posterior = model.posterior()
        found |= {
            f"{name} value": value,
            f"{name} gradient": np.concatenate([np.ravel(part) for part in gradient]),
            f"{name} evaluations": result.nfev,
            f"{name} best": result.fun,
            f"{name} parameters": result.x,
            f"{name} predictions": np.stack(posterior.predict_f(X[:4])),
        }
    blocks = pep.PEPRegression(
        (X[rows], Y[rows]), Matern32(), Z.copy(), blocks=BLOCKS[rows]
    )
    with together(blocks, strategy):
        found |= {
            "blocks": blocks.pep_log_marginal_likelihood(),
            "bound": blocks.upper_bound(),
        }
    return found


def refusals(strategy: Any) -> Arrays:
    """What ValueErrors say to users whose processes do not suit each other, or the
    model.
    """
    row, index = (X[:1], LABELS[:1]), index_of_worker()
    missing = np.array([[1.0, np.nan if index else 1.0]])
    model = pep.PEP(row, Matern12(), Bernoulli(), Z.copy())
    unlike = {
        "parameters": pep.PEPRegression(row, RBF(lengthscales=1.0 + index), Z.copy()),
        "shapes": pep.PEPRegression(row, Matern12(), Z[: 2 + index].copy()),
        "kinds": pep.PEPRegression((X[:1], missing), Matern12(), Z.copy()),
    }
    loss = pep.training.sharded_training_loss
    calls = {
        **{name: lambda m=m: loss(m, strategy) for name, m in unlike.items()},
        "minibatches": model.minibatch_training_loss_closure(1, seed=0, compile=False),
    }
    said = {}
    for name, call in calls.items():
        with together(model, strategy):
            try:
                call()
            except ValueError as error:
                said[f"refused {name}"] = str(error)
    return said


def leave_at(evaluation: int) -> Any:
    """Make an evaluation of which the second of two processes does not live to see the
    end.
    """
    calls = itertools.count(1)

    def evaluate(model: Any) -> dict[str, float]:
        if next(calls) == evaluation and index_of_worker() == 1:
            os._exit(3)
        return log_density(model)

    return evaluate


def mirrored() -> Arrays:
    cpu = tf.config.list_physical_devices("CPU")[0]
    two = [tf.config.LogicalDeviceConfiguration()] * 2
    tf.config.set_logical_device_configuration(cpu, two)
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    found = fitted(strategy, None)
    try:
        pep.training.sharded(None, strategy).__enter__()
    except ValueError as error:
        found["refused replicas"] = str(error)
    return found


def main(kind: str, output: str) -> None:
    checkpoints = Path(output).with_suffix(".checkpoints")
    if kind == "leaving":  # after the checkpoint, see fitted
        fitted(several(), checkpoints, evaluate=leave_at(3))
    elif kind == "mirrored":
        np.savez(output, **mirrored())
    elif kind == "others":
        np.savez(
            output, **full_batch(several(), models_of_classes_and_of_missing_targets)
        )
    else:
        strategy = several()
        found = (
            fitted(strategy, checkpoints) | full_batch(strategy) | refusals(strategy)
        )
        np.savez(output, **found)


if __name__ == "__main__":
    main(*sys.argv[1:])
