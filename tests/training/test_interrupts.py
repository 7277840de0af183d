"""Interrupts wait for the end of a step; what cannot be written says so; threads get along."""

import os
import signal
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from test_training import arpep, assert_same, point_pep, run, svgp
from threadpoolctl import threadpool_info, threadpool_limits

from gpflow_pep.training.fitting import loop
from gpflow_pep.training.fitting.full_batch import one_blas_thread
from gpflow_pep.training.fitting.history import History, resumed
from gpflow_pep.training.fitting.loop import _delay_interrupts
from gpflow_pep.training.fitting.objectives import copy_of


@pytest.fixture(autouse=True)
def interrupts_arrive() -> Iterator[None]:
    """A shell that starts the tests in the background has them ignore interrupts."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize("number", [1, 2])
def test_the_first_interrupt_waits_for_the_end_and_the_second_does_not(number: int) -> None:
    done = []
    with pytest.raises(KeyboardInterrupt), _delay_interrupts():
        for _ in range(number):
            interrupt()
        done.append("all of it")
    assert done == ["all of it"] * (number == 1)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def _by_minibatches(model: Any) -> dict[str, Any]:
    return {"batches": model.minibatch_training_loss_closure(5, seed=1)}


def _natural(model: Any) -> dict[str, Any]:
    """Ours, and GPflow's."""
    length = gpflow.optimizers.NaturalGradient(0.1)
    return {"natural_gradient": length if isinstance(model, gpflow.models.SVGP) else 0.1}


@pytest.mark.parametrize(
    "create, options",
    [
        *((arpep, _natural), (svgp, _natural), (arpep, lambda model: {})),
        (point_pep, _by_minibatches),
    ],
)
@pytest.mark.near_copies
def test_interrupted_fit_keeps_its_steps(create: Any, options: Any, tmp_path: Path) -> None:
    """From the model or a checkpoint it goes on to the same numbers, whatever evaluations move."""

    def evaluate(model: Any) -> dict[str, float]:
        for part in model.parameters:
            part.unconstrained_variable.assign_add(tf.ones_like(part.unconstrained_variable))
        if not resumed:
            interrupt()
        return {"nlpd": 0.0}

    resumed: list[bool] = []
    looking = {"checkpoint_dir": tmp_path, "evaluate": evaluate, "evaluate_every": 4}
    model, whole, restored = create(), create(), create()
    with pytest.raises(KeyboardInterrupt):
        run(model, 9, **looking, **options(model))
    run(restored, 4, checkpoint_dir=tmp_path, **options(restored))  # there is no step to take
    assert_same(model, restored)
    assert str(tf.train.latest_checkpoint(tmp_path)).endswith("-4")
    resumed.append(True)
    model = create()
    record = run(model, 9, **looking, **options(model))
    expected = run(whole, 9, **options(whole))
    np.testing.assert_allclose(record.losses, expected.losses, rtol=1e-12)
    assert [evaluation.step for evaluation in record.evaluations] == [4, 8]
    assert_same(model, whole)


def test_interrupt_within_a_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The step is taken, noted, and in the checkpoint."""
    value = loop._checked_loss

    def interrupted(*arguments: Any) -> float:
        loss = value(*arguments)
        if arguments[-1] == 3:
            interrupt()
        return loss

    monkeypatch.setattr(loop, "_checked_loss", interrupted)
    model, restored = arpep(), arpep()
    with pytest.raises(KeyboardInterrupt):
        run(model, 9, checkpoint_dir=tmp_path)
    assert str(tf.train.latest_checkpoint(tmp_path)).endswith("-3")
    monkeypatch.undo()
    assert run(restored, 3, checkpoint_dir=tmp_path).num_steps == 3  # there is none to take
    assert_same(model, restored)


def test_checkpoint_that_cannot_be_written_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: Any, **options: Any) -> None:
        raise tf.errors.ResourceExhaustedError(
            None, None, "{{function_node x}} /disk/ckpt; No space left on device [Op:SaveV2]"
        )

    monkeypatch.setattr(tf.train.CheckpointManager, "save", full)
    with pytest.raises(OSError, match=r"checkpoint_dir: got .*No space left.*Make room") as error:
        run(arpep(), 2, checkpoint_dir=tmp_path)
    assert "{{" not in str(error.value) and "[Op" not in str(error.value)


def test_unfinished_checkpoints_of_a_killed_run_are_removed(tmp_path: Path) -> None:
    for name in ("ckpt-12_temp", "ckpt-12_temp2", "mine_temp"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "part-00000-of-00001.index").write_text("half")
    (tmp_path / "ckpt-3_temp").write_text("no folder")
    resumed(tf.train.Checkpoint(), tmp_path, History())
    found = {path.name for path in tmp_path.iterdir()}
    assert found == {"ckpt-12_temp2", "mine_temp", "ckpt-3_temp"}


def test_threads_of_linear_algebra_are_put_back_by_the_last() -> None:
    def threads() -> set[int]:
        return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}

    with threadpool_limits(2, user_api="blas"):
        before, (first, second) = threads(), (one_blas_thread(), one_blas_thread())
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        assert threads() == {1}
        second.__exit__(None, None, None)
        assert threads() == before


@pytest.fixture
def hurried() -> Iterator[None]:
    """Threads that take turns all the time."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.usefixtures("hurried")
def test_threads_copy_at_the_same_time() -> None:
    """GPflow's own function fails here with a KeyError, in most threads."""

    def work(number: int) -> bool:
        kernel = gpflow.kernels.SquaredExponential(variance=1.0 + number)
        values = [kernel.variance + 0.0 for _ in range(3)]  # enter the table
        return float(copy_of(kernel).variance.numpy()) == float(values[0])

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(120)))


def test_a_copy_that_cannot_be_made_says_why() -> None:
    class Stubborn(gpflow.kernels.White):
        def __deepcopy__(self, memo: object) -> None:
            raise RuntimeError("not this one")

    with pytest.raises(RuntimeError, match="not this one"):
        copy_of(Stubborn())
