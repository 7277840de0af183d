"""Rows of Parquet files: every row once, in batches, in parts."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pandas as pd
import pytest
import tf_keras
from helpers import Array

import gpflow_pep as pep
from gpflow_pep.training import ParquetRows

pytest.importorskip("pyarrow", reason="needs pip install 'gpflow-pep[parquet]'")

N = 230
RNG = np.random.default_rng(0)
TABLE = pd.DataFrame(
    {
        "a": RNG.standard_normal(N).astype(np.float32),
        "name": ["text"] * N,
        "row": np.arange(N),
        "y": RNG.standard_normal(N),
    }
)
INPUTS, TARGETS = ["row", "a"], ["y"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two files of several row groups each."""
    path = tmp_path_factory.mktemp("rows")
    TABLE[:140].to_parquet(path / "0.parquet", row_group_size=50)
    TABLE[140:].to_parquet(path / "1.parquet", row_group_size=40)
    return path


def all_rows(batches: Any) -> Array:
    return np.concatenate([np.hstack([X, Y]) for X, Y in batches])


def test_all_rows_in_their_order(folder: Path) -> None:
    rows = ParquetRows(folder, INPUTS, TARGETS)
    assert rows.num_rows == N
    batches = rows.batches(60)
    assert [len(X) for X, _ in batches] == [60, 60, 60, 50]
    for _ in range(2):  # each iteration starts anew
        np.testing.assert_array_equal(all_rows(batches), TABLE[[*INPUTS, *TARGETS]].to_numpy())
    (X, Y), *_ = batches
    assert X.dtype == Y.dtype == gpflow.default_float() and Y.shape[1] == 1


def test_shuffled_batches(folder: Path) -> None:
    rows = ParquetRows(folder, INPUTS, TARGETS)
    epochs = rows.shuffled_batches(40, seed=1)
    assert epochs(0).element_spec[0].shape == (40, 2)
    first, again, second = (all_rows(epochs(k)) for k in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    for some in (first, second):
        assert len(some) == 200 == len(np.unique(some[:, 0]))
        expected = TABLE[[*INPUTS, *TARGETS]].to_numpy()[some[:, 0].astype(int)]
        np.testing.assert_array_equal(some, expected)
        assert np.mean(np.abs(np.diff(some[:, 0])) == 1.0) < 0.2
    assert not np.array_equal(first, second)
    assert not np.array_equal(first, all_rows(rows.shuffled_batches(40, seed=2)(0)))


def test_parts_have_each_row_once(folder: Path) -> None:
    parts = [ParquetRows(folder, INPUTS, TARGETS, part=(k, 3)) for k in range(3)]
    rows = np.concatenate([all_rows(part.batches())[:, 0] for part in parts])
    np.testing.assert_array_equal(np.sort(rows), np.arange(N))
    assert sum(part.num_rows for part in parts) == N and parts[0].num_rows < N


def test_minibatches_of_a_file(folder: Path) -> None:
    rows = ParquetRows(folder / "0.parquet", ["a"], TARGETS)
    Z = np.linspace(-2.0, 2.0, 4)[:, None]
    kernel, likelihood = gpflow.kernels.SquaredExponential(), gpflow.likelihoods.Gaussian()
    model = pep.ARPEP(kernel, likelihood, Z, num_data=rows.num_rows)
    record = pep.training.fit(
        model,
        rows.shuffled_batches(60, seed=0),
        num_steps=5,  # in three epochs
        optimizer=tf_keras.optimizers.Adam(0.01),
        progress=False,
    )
    assert record.num_steps == 5 and np.isfinite(record.losses).all()


Call = Callable[[Path], Any]
REFUSED: dict[str, tuple[str, Call]] = {
    "no such column": ("'b' in .*0.parquet.*a, name", lambda f: ParquetRows(f, ["b"], TARGETS)),
    "text": ("'name' of type .*numbers", lambda f: ParquetRows(f, ["name"], TARGETS)),
    "no file": ("nothing.parquet", lambda f: ParquetRows(f / "nothing.parquet", INPUTS, TARGETS)),
    "another file": ("Parquet", lambda f: ParquetRows(__file__, INPUTS, TARGETS)),
    "an empty folder": (r"without \*.parquet", lambda f: ParquetRows(f / "empty", INPUTS, TARGETS)),
    "one name": ("inputs: .*list of names", lambda f: ParquetRows(f, "a", TARGETS)),
    "no target": ("targets: .*list of names", lambda f: ParquetRows(f, INPUTS, [])),
    "part": (r"part: .*\(2, 2\)", lambda f: ParquetRows(f, INPUTS, TARGETS, part=(2, 2))),
    "many parts": ("no rows in part", lambda f: ParquetRows(f, INPUTS, TARGETS, part=(8, 9))),
    "a large batch": (
        "batch_size: .*1000.*from 1 to 230",
        lambda f: ParquetRows(f, INPUTS, TARGETS).shuffled_batches(1000, seed=0),
    ),
}


@pytest.mark.parametrize("words, call", REFUSED.values(), ids=REFUSED)
def test_refused(words: str, call: Call, folder: Path) -> None:
    (folder / "empty").mkdir(exist_ok=True)
    with pytest.raises(ValueError, match=f"(?s){words}"):
        call(folder)


def test_pyarrow_is_not_installed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ValueError, match=r"pip install 'gpflow-pep\[parquet\]'"):
        ParquetRows(folder, INPUTS, TARGETS)
