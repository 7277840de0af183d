"""Training that one process does alone, or several do together: what they come to, as
named arrays. As a script, one of several processes under TF_CONFIG, or with
``mirrored`` one with two devices.
"""

import itertools
import json
import os
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import gpflow
import numpy as np
import tensorflow as tf
import tf_keras
from gpflow.kernels import RBF
from gpflow.likelihoods import Gaussian

import gpflow_pep as pep

N = 40
BATCH = 5
STEPS = 8
RNG = np.random.default_rng(3)
X = RNG.uniform(-2.0, 2.0, (N, 1))
Y = np.sin(2.0 * X) + 0.3 * RNG.standard_normal(X.shape)
Z = np.linspace(-2.0, 2.0, 5)[:, None]

Arrays = dict[str, Any]
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
    return fitted(strategy, None)


def main(kind: str, output: str) -> None:
    checkpoints = Path(output).with_suffix(".checkpoints")
    if kind == "leaving":  # after the checkpoint, see fitted
        fitted(several(), checkpoints, evaluate=leave_at(3))
    elif kind == "mirrored":
        np.savez(output, **mirrored())
    else:
        np.savez(output, **fitted(several(), checkpoints))


if __name__ == "__main__":
    main(*sys.argv[1:])
