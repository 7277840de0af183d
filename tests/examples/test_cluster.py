"""The plan of a run on a cluster, and what it takes from the measurements."""

import sys
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from helpers import load_example

import gpflow_pep as pep
from gpflow_pep.training.fitting.distributed import Shards

cluster = load_example("benchmarks/cluster.py")
NETWORK = cluster.Network(bytes_per_second=1e6, latency=1e-3)


def test_a_plan() -> None:
    problem = cluster.Problem(num_rows=10_000, num_inducing=10, bytes_per_row=36, evaluations=6)
    costs = cluster.Costs(row=1e-3, serial=0.5)
    one = cluster.plan(problem, costs, NETWORK, 1)
    assert one == (1, 10.5, 10.0 / 10.5, 0.0, 63.0 / 3600.0, 63.0 / 3600.0, 3.6e5, 7.2e5 / 10.5)
    ten = cluster.plan(problem, costs, NETWORK, 10)
    size = 8 * (2 * (100 + 10 + 2) + 1 + 1 + 10 * 8 + 8 + 2)
    messages = 1.8 * size / 1e6 + 4 * 18 * 1e-3
    np.testing.assert_allclose(ten.message_seconds, messages)
    np.testing.assert_allclose(ten.evaluation_seconds, 1.5 + messages)
    np.testing.assert_allclose(ten.core_hours, 10 * ten.hours)
    assert ten.bytes_on_core == 3.6e4


def test_messages_are_those_of_an_evaluation() -> None:
    """All that processes add up passes one function: here one that notes sizes."""
    sizes = []

    class Strategy(tf.distribute.OneDeviceStrategy):
        def reduce(self, operation: str, value: tf.Tensor, axis: Any) -> tf.Tensor:
            sizes.append(int(tf.size(value)))
            return value

    rng = np.random.default_rng(0)
    X = rng.uniform(size=(20, cluster.parquet.NUM_INPUTS))
    Z = X[:6].copy()
    kernel = gpflow.kernels.SquaredExponential(lengthscales=np.ones(X.shape[1]))
    model = pep.PEPRegression((X, X[:, :1]), kernel, Z, chunk_size=7)
    model.reduction = Shards(Strategy("CPU:0"))
    with tf.GradientTape() as tape:
        loss = model.training_loss()
    gradient = tape.gradient(loss, model.trainable_variables)
    model.reduction.total([loss, *gradient])
    assert sorted(sizes) == sorted([36 + 6 + 2, 1, 36 + 6 + 2, 1 + 6 * 8 + 8 + 2])
    assert len(sizes) == cluster.NUM_MESSAGES
    assert 8 * sum(sizes) == cluster.message_bytes(num_inducing=6)


def test_the_table(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    options = "--rows 1e6 --inducing 10 --cores 1 4 --row-seconds 1e-5 --serial-seconds 1"
    monkeypatch.setattr(sys, "argv", ["cluster", *options.split(), "--price", "2"])
    cluster.main()
    *_, heads, one, four = capsys.readouterr().out.splitlines()
    assert heads.split()[-1] == "price"
    numbers = one.split()
    assert numbers[:3] == ["1", "11.00", "91%"]  # 10 s of rows and 1 s beside
    assert float(numbers[-1]) == pytest.approx(2.0 * 20 * 11.0 / 3600.0, abs=0.01)
    assert float(four.split()[1]) == pytest.approx(3.5, abs=0.01)


@pytest.mark.slow
def test_measured() -> None:
    pytest.importorskip("pyarrow")
    costs = cluster.measure(20, 5_000, 2)
    assert 1e-8 < costs.row < 1e-3 and 0.0 <= costs.serial < 1.0


@pytest.mark.slow
def test_rows_of_the_file(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    path = tmp_path / "new" / "rows.parquet"
    parquet = cluster.parquet
    for _ in range(2):  # the second finds them there
        parquet.write(path, 1000)
        (X, Y), *more = parquet.batches(path)
        assert not more
        expected = parquet.rows(1000, 0)
        for actual, part in zip((X, Y), expected):
            np.testing.assert_allclose(actual, part, rtol=1e-6, atol=1e-6)
    assert 36 <= path.stat().st_size / 1000 < 45
    noise = expected[1] - parquet.friedman(expected[0])
    assert 0.18 < np.std(noise) < 0.22 and np.std(expected[1]) == pytest.approx(1.0, abs=0.1)


@pytest.mark.slow
def test_quick_run_of_the_file(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyarrow")
    monkeypatch.setattr(sys, "argv", ["parquet", "--quick", "--folder", str(tmp_path)])
    cluster.parquet.main()
    _, heads, *lines = capfd.readouterr().out.splitlines()
    assert heads.split()[:2] == ["seconds", "processor"]
    labels = [line.split(",")[0].split()[0] for line in lines]
    assert labels == ["before", "PEPRegression", "...", "...", "...", *["ARPEP"] * 5, "the"]
    nlpd = [float(line.split()[-2]) for line in lines if line.startswith("ARPEP")]
    assert nlpd[-1] < nlpd[0]
    assert float(lines[-1].split()[-1]) < float(lines[3].split()[-2]) < 0.0
