"""4 Reproducibility: the same seed, the same numbers."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import reproducible_worker as worker
from campaign import Size, Trial

#: The relative difference that sums in another order may make.
SAME = 1e-10


def _in_process(threads: int, output: Path) -> dict[str, Any]:
    """The worker's numbers, computed by so many threads in a process of its own."""
    number = str(threads)
    names = ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OPENBLAS_NUM_THREADS")
    subprocess.run(
        [sys.executable, worker.__file__, str(output)],
        env={**os.environ, **dict.fromkeys((*names, "OMP_NUM_THREADS"), number)},
        cwd=Path(worker.__file__).parent,
        check=True,
        capture_output=True,
    )
    return dict(np.load(output))


def _difference(found: Any, expected: Any) -> float:
    """Relative to the largest; absolute where all are 0, such as predictions of q(u) at first."""
    return float(np.max(np.abs(found - expected)) / (np.max(np.abs(expected)) or 1.0))


def _differences(found: dict[str, Any], expected: dict[str, Any]) -> dict[str, float]:
    assert found.keys() == expected.keys()
    return {name: _difference(found[name], wanted) for name, wanted in expected.items()}


def test_seeds(trial: Trial) -> None:
    """Selection, minibatches, fit, maximise and estimators, twice: equal to the last bit"""
    for name, compute in {**worker.FIXED, **worker.TRAINED}.items():
        with trial.case(name):
            first, second = compute(), compute()
            for one, other in zip(first, second, strict=True):
                np.testing.assert_array_equal(one, other)


def test_threads(trial: Trial, size: Size, tmp_path: Path) -> None:
    """Processes of 1, 2 and 4 threads: values, gradients and predictions within 1e-10"""
    expected = _in_process(1, tmp_path / "1.npz")
    trained = 0.0
    for threads in (1, 2, 4)[: size(quick=2, full=3)]:
        found = _in_process(threads, tmp_path / f"again{threads}.npz")
        for name, difference in _differences(found, expected).items():
            if name.split("/")[0] in worker.TRAINED and threads > 1:
                trained = max(trained, difference)
                continue  # steps of an optimiser make much of the last bit
            with trial.case(f"{name}, {threads} threads"):
                limit = 0.0 if threads == 1 else SAME
                assert difference <= limit, f"they differ by {difference:.1e}"
    trial.note(f"after training, by 2 or 4 threads instead of 1: within {trained:.1e}")


def test_chunks(trial: Trial) -> None:
    """Chunks of 1, 7, 64 rows and all rows: values, gradients and predictions within 1e-10"""
    for name, create in worker.CHUNKED.items():
        expected = worker.numbers(create(chunk_size=None))
        for chunk_size in (1, 7, 64):
            with trial.case(f"{name}, chunks of {chunk_size}"):
                for one, other in zip(worker.numbers(create(chunk_size=chunk_size)), expected):
                    difference = _difference(one, other)
                    assert difference <= SAME, f"they differ by {difference:.1e}"


def test_copies(trial: Trial, tmp_path: Path) -> None:
    """Copies, and models whose parameters went through a file: equal to the last bit"""
    import tensorflow as tf

    copies: dict[str, Callable[[Any], Any]] = {
        "deepcopy": gpflow.utilities.deepcopy,
        "parameter_dict": lambda model: _assigned(worker.CHUNKED["PEPRegression"](), model),
        "checkpoint": lambda model: _restored(
            worker.CHUNKED["PEPRegression"](), model, str(tmp_path / "file"), tf
        ),
    }
    model = worker.CHUNKED["PEPRegression"]()
    model.kernel.lengthscales.assign(0.7)
    for name, copy in copies.items():
        with trial.case(name):
            for one, other in zip(worker.numbers(copy(model)), worker.numbers(model)):
                np.testing.assert_array_equal(one, other)


def _assigned(target: Any, source: Any) -> Any:
    gpflow.utilities.multiple_assign(target, gpflow.utilities.parameter_dict(source))
    return target


def _restored(target: Any, source: Any, path: str, tf: Any) -> Any:
    written = tf.train.Checkpoint(model=source).write(path)
    tf.train.Checkpoint(model=target).read(written).assert_existing_objects_matched()
    return target
