"""Interrupts wait for the end of a step; what cannot be written says so; threads get along."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from test_training import arpep, assert_same, point_pep, run
from threadpoolctl import threadpool_info, threadpool_limits

from gpflow_pep.training.fitting import loop
from gpflow_pep.training.fitting.full_batch import one_blas_thread
from gpflow_pep.training.fitting.history import History, resumed
from gpflow_pep.training.fitting.loop import _delay_interrupts


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


@pytest.mark.parametrize("create", [arpep, pytest.param(point_pep, marks=pytest.mark.slow)])
def test_interrupted_fit_keeps_its_steps(create: Any, tmp_path: Path) -> None:
    """They are in the model and in a checkpoint, from which it goes on to the same numbers."""

    def options(model: Any) -> dict[str, Any]:
        if create is arpep:
            return {}
        return {"batches": model.minibatch_training_loss_closure(5, seed=1)}

    def evaluate(model: Any) -> dict[str, float]:
        model.kernel.variance.assign(7.0)
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
    assert run(restored, 3, checkpoint_dir=tmp_path).num_steps == 3  # there is none to take
    assert_same(model, restored)
    assert str(tf.train.latest_checkpoint(tmp_path)).endswith("-3")


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
        before = threads()
        first, second = one_blas_thread(), one_blas_thread()
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        assert threads() == {1}
        second.__exit__(None, None, None)
        assert threads() == before
