"""4 Reproducibility: the same seed, the same numbers."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import reproducible_worker as worker
from campaign import Size, Trial

#: The relative difference that sums in another order may make.
SAME = 1e-10


def _in_process(threads: int, output: Path) -> dict[str, Any]:
    """The worker's numbers, computed by so many threads in a process of its own."""
    names = ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OPENBLAS_NUM_THREADS")
    env = {**os.environ, **dict.fromkeys((*names, "OMP_NUM_THREADS"), str(threads))}
    options = {"env": env, "cwd": Path(worker.__file__).parent, "capture_output": True}
    subprocess.run(
        [sys.executable, worker.__file__, str(output)], check=True, **options
    )
    return dict(np.load(output))


def _difference(found: Any, expected: Any) -> float:
    """Relative to the largest; absolute where all are 0, such as predictions of q(u) at
    first.
    """
    return float(np.max(np.abs(found - expected)) / (np.max(np.abs(expected)) or 1.0))


def test_seeds(trial: Trial) -> None:
    """Selection, minibatches, fit, maximise and estimators, twice: equal to the last
    bit
    """
    for name, compute in {**worker.FIXED, **worker.TRAINED}.items():
        with trial.case(name):
            first = compute()
            second = compute()
            for one, other in zip(first, second, strict=True):
                np.testing.assert_array_equal(one, other)


def test_threads(trial: Trial, size: Size, tmp_path: Path) -> None:
    """Processes of 1, 2 and 4 threads: values, gradients and predictions
    within 1e-10
    """
    expected = _in_process(1, tmp_path / "1.npz")
    trained = 0.0
    for threads in (1, 2, 4)[: size(quick=2, full=3)]:
        found = _in_process(threads, tmp_path / f"again{threads}.npz")
        assert found.keys() == expected.keys()
        for name, wanted in expected.items():
            difference = _difference(found[name], wanted)
            if name.split("/")[0] in worker.TRAINED and threads > 1:
                trained = max(trained, difference)
                continue  # steps of an optimiser make much of the last bit
            with trial.case(f"{name}, {threads} threads"):
                limit = 0.0 if threads == 1 else SAME
                assert difference <= limit, f"they differ by {difference:.1e}"
    trial.note(f"after training, by 2 or 4 threads instead of 1: within {trained:.1e}")
