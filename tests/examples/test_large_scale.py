"""The large-scale experiments in small: what they load, train, score, write and draw."""

import csv
from pathlib import Path
from types import ModuleType
from typing import Any

import gpflow
import numpy as np
import pytest
from helpers import load_example


@pytest.fixture(scope="module")
def large_scale() -> ModuleType:
    return load_example("large_scale.py")


@pytest.fixture(scope="module")
def small(large_scale: ModuleType) -> Any:
    return large_scale.Labelled(*(part[:60] for part in large_scale.load("generated", Path())))


@pytest.mark.slow
def test_a_run(large_scale: ModuleType, small: Any, tmp_path: Path) -> None:
    run = "ARPEP:0.5"
    model = large_scale.create(run, small, small.X[:5], large_scale.SUBJECTS["generated"])
    before = model.inducing_variable.Z.numpy()
    training = large_scale.Training(
        3, batch_size=20, rate=0.1, natural=0.1, natural_rate=0.1, evaluations=20
    )
    found = large_scale.train(run, model, small, training)
    assert [(e.step, e.rows) for e in found] == [(1, 60), (2, 60), (3, 60), (3, 60)]
    assert 0.0 < found[0].seconds < found[1].seconds < found[2].seconds
    # All test rows are those along the run here.
    assert found[2][3:] == found[3][3:]
    assert not np.array_equal(before, model.inducing_variable.Z.numpy())

    large_scale.write(found, tmp_path / "scores.csv")
    with (tmp_path / "scores.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert [float(line["nlpd"]) for line in lines] == [round(e.nlpd, 4) for e in found]
    assert large_scale.reached(found, found[1].nlpd).split()[0] in ("1", "2")
    assert large_scale.reached(found, -1.0).split() == ["-", "-"]
    model = large_scale.create(run, small, small.X[:5], large_scale.SUBJECTS["generated"])
    found += large_scale.train(f"{run} natural", model, small, training)
    assert found[4].nlpd != found[0].nlpd
    pytest.importorskip("matplotlib")
    large_scale.draw(found, "generated", tmp_path / "scores.png")
    assert (tmp_path / "scores.png").stat().st_size > 0


@pytest.mark.slow
def test_scores_are_those_of_gpflow(large_scale: ModuleType, small: Any) -> None:
    model = large_scale.create("VB", small, small.X[:5], large_scale.SUBJECTS["generated"])
    model.q_mu.assign(np.random.default_rng(0).standard_normal(model.q_mu.shape))
    error, nlpd = large_scale.scorer(model, 3)(small.X_test, small.Y_test)
    probability = model.predict_y(small.X_test)[0].numpy()
    labels = small.Y_test[:, 0].astype(int)
    assert error == np.mean(probability.argmax(axis=1) != labels)
    # GPflow's 20 nodes.
    expected = -np.mean(np.log(probability[np.arange(60), labels]))
    np.testing.assert_allclose(nlpd, expected, rtol=0.01)


def test_data_of_the_papers(
    large_scale: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    images, digits = (
        rng.integers(0, 256, (14, 28, 28), np.uint8),
        np.arange(14, dtype=np.uint8) % 10,
    )
    parts = {"x_train": images[:10], "y_train": digits[:10]}
    np.savez(tmp_path / "mnist.npz", **parts, x_test=images[10:], y_test=digits[10:])
    problem = large_scale.load("mnist", tmp_path)
    assert problem.X.dtype == problem.Y.dtype == gpflow.default_float()
    np.testing.assert_array_equal(problem.X, images[:10].reshape(10, 784) / 255.0)
    # Test rows in another order, with their labels.
    order = [
        int(np.argmin(np.abs(images.reshape(14, -1) / 255.0 - x).sum(1))) for x in problem.X_test
    ]
    assert sorted(order) == [10, 11, 12, 13]
    np.testing.assert_array_equal(problem.Y_test[:, 0], digits[order])
    assert problem.num_classes == 10

    monkeypatch.setattr(large_scale, "FLIGHTS_HELD_OUT", 6)
    X, labels = rng.normal(3.0, 2.0, (30, 8)).astype(np.float32), np.arange(30, dtype=np.int8) % 3
    np.savez(tmp_path / "airline_nyc13.npz", X=X, y=labels)
    problem = large_scale.load("airline", tmp_path)
    assert problem.X.shape == (24, 8) and problem.Y_test.shape == (6, 1)
    np.testing.assert_allclose(problem.X.mean(axis=0), 0.0, atol=1e-12)
    late = large_scale.load("late", tmp_path)
    np.testing.assert_array_equal(late.Y == 1.0, problem.Y == 1.0)
    assert late.num_classes == large_scale.load("parity", tmp_path).num_classes == 2
    model = large_scale.create("VB", late, late.X[:3], large_scale.SUBJECTS["late"])
    assert isinstance(model.likelihood, gpflow.likelihoods.Bernoulli)
    with pytest.raises(SystemExit, match="does not exist"):
        large_scale.load("mnist", Path("nowhere"))


@pytest.mark.slow
def test_stream(capsys: pytest.CaptureFixture[str]) -> None:
    stream = load_example("benchmarks/stream.py")
    batches = [(X.numpy(), Y.numpy()) for X, Y in stream.stream(3, 50)]
    assert [X.shape for X, _ in batches] == [(50, 5)] * 3
    assert len(np.unique(np.concatenate([X for X, _ in batches]), axis=0)) == 150
    for (X, Y), (again, _) in zip(batches, stream.stream(3, 50)):
        np.testing.assert_array_equal(X, again)
        assert set(np.unique(Y)) == {0.0, 1.0}
    stream.train(200, 50, 4)
    header, *lines, rule = capsys.readouterr().out.splitlines()
    assert header.split()[0] == "rows"
    assert [int(line.split()[0]) for line in lines] == [50, 100, 150, 200]
    assert float(rule.split()[-1]) < float(lines[-1].split()[-1])
