"""Several processes or devices come to the numbers of one process with all rows."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import distributed_worker as worker
import gpflow
import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from distributed_worker import STEPS, N, X, Y, Z
from helpers import assert_close

import gpflow_pep as pep
from examples.distributed import free_addresses

#: Seconds after which workers are taken for stuck.
LIMIT = 300
#: Relative difference of sums in another order.
SAME = 1e-10


@contextmanager
def started(kind: str, outputs: list[Path]) -> Iterator[list[Any]]:
    """Processes of the worker's script, in one cluster if there are several."""
    pipes: dict[str, Any] = {
        "stdout": subprocess.PIPE,
        "stderr": subprocess.STDOUT,
        "text": True,
    }
    processes: list[Any] = []
    cluster = {"worker": free_addresses(len(outputs))}
    try:
        for k, output in enumerate(outputs):
            configuration = {"cluster": cluster, "task": {"type": "worker", "index": k}}
            variable = (
                {"TF_CONFIG": json.dumps(configuration)} if len(outputs) > 1 else {}
            )
            options = {"cwd": Path(__file__).parent, "env": {**os.environ, **variable}}
            command = [sys.executable, worker.__file__, kind, str(output)]
            processes.append(subprocess.Popen(command, **options, **pipes))
        yield processes
    finally:
        for process in processes:
            process.kill()


def run(kind: str, outputs: list[Path]) -> list[tuple[int, str]]:
    """Their exit codes and messages."""
    with started(kind, outputs) as processes:
        said = [process.communicate(timeout=LIMIT)[0] for process in processes]
        return [(process.returncode, text) for process, text in zip(processes, said)]


def results(kind: str, directory: Path, number: int = 2) -> list[Any]:
    """What processes of the worker's script wrote."""
    outputs = [directory / f"{kind}{k}.npz" for k in range(number)]
    for code, said in run(kind, outputs):
        assert code == 0, said
    return [dict(np.load(output)) for output in outputs]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("workers")


@pytest.fixture(scope="module")
def workers(directory: Path) -> list[Any]:
    """Of two processes; one pair serves all tests, because each takes seconds
    to start.
    """
    return results("workers", directory)


@pytest.fixture(scope="module")
def fitted_alone() -> Any:
    return worker.fitted(None, None)


def assert_fitted(actual: Any, expected: Any) -> None:
    assert actual["best_step"] == expected["best_step"]
    for name in expected:
        assert_close(actual[name], expected[name], rtol=SAME)


@pytest.mark.slow
def test_fit_of_two_processes(
    workers: list[Any], fitted_alone: Any, directory: Path
) -> None:
    """Step for step, with a schedule, clipped gradients, early stopping, stopped and
    resumed. The chief alone writes: the other resumed without a checkpoint of its own.
    """
    for found in workers:
        assert_fitted(found, fitted_alone)
    chiefs = directory / "workers0.checkpoints"
    assert tf.train.latest_checkpoint(chiefs).endswith(f"-{STEPS}")
    assert list((chiefs / "log").glob("events*"))
    assert not (directory / "workers1.checkpoints").exists()


@pytest.mark.slow
def test_two_devices_of_one_process(directory: Path, fitted_alone: Any) -> None:
    (found,) = results("mirrored", directory, 1)
    assert_fitted(found, fitted_alone)


def one_device() -> tf.distribute.Strategy:
    return tf.distribute.MirroredStrategy(["CPU:0"])


def svgp(num_data: int | None = N, fixed: bool = False) -> gpflow.models.SVGP:
    kernel = gpflow.kernels.SquaredExponential()
    likelihood = gpflow.likelihoods.Gaussian(0.3)
    gpflow.set_trainable(kernel.variance, not fixed)
    return gpflow.models.SVGP(kernel, likelihood, Z.copy(), num_data=num_data)


def point_pep() -> "pep.models.PEP":
    return pep.models.PEP(
        (X, Y), gpflow.kernels.RBF(), gpflow.likelihoods.Gaussian(), Z.copy()
    )


@pytest.mark.parametrize(
    "create, options, message",
    [
        (
            svgp,
            {"strategy": tf.distribute.OneDeviceStrategy("CPU:0")},
            "OneDevice.*Mirrored",
        ),
        (
            svgp,
            {"natural_gradient": gpflow.optimizers.NaturalGradient(0.1)},
            "q_mu.*Leave",
        ),
        (svgp, {"optimizer": tf_keras.optimizers.Adam()}, "optimizer.*scope"),
        (lambda: svgp(None), {}, "SVGP.*num_data=None.*Pass"),
        (
            lambda: svgp(fixed=True),
            {},
            r"(?=.*set_trainable)(?=.*no effect).*gpflow\.Parameter",
        ),
        (point_pep, {"minibatches": True}, "minibatches of PEP.*Train ARPEP"),
        (
            svgp,
            {"outside": True},
            r"model: got an object made outside .* strategy\.scope",
        ),
    ],
)
def test_fit_refuses(create: Any, options: dict[str, Any], message: str) -> None:
    strategy = one_device()
    with strategy.scope():
        model = create()
        optimizer = tf_keras.optimizers.Adam()
    batches: Any = pep.training.shuffled_batches((X, Y), 5, seed=0)
    if options.pop("outside", False):
        model = create()
    if options.pop("minibatches", False):
        batches = model.minibatch_training_loss_closure(5, seed=0)
    arguments = {
        "optimizer": optimizer,
        "strategy": strategy,
        "progress": False,
        **options,
    }
    with pytest.raises(ValueError, match=f"(?s){message}"):
        pep.training.fit(model, batches, num_steps=1, **arguments)
