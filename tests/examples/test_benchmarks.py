"""The benchmarks in small: what they load, train, score, plan, print and draw
is true.
"""

from functools import cache
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from helpers import load_example
from scipy import stats

from examples import large_scale
from examples.common import value_and_gradient

calibration = load_example("benchmarks/calibration.py")
devices = load_example("benchmarks/devices.py")
first_call = load_example("benchmarks/first_call.py")


@pytest.fixture(scope="module")
def small() -> Any:
    return large_scale.Labelled(
        *(part[:60] for part in large_scale.load("generated", Path()))
    )


@pytest.mark.slow
def test_a_run(small: Any, tmp_path: Path) -> None:
    run = "ARPEP:0.5"
    subject = large_scale.SUBJECTS["generated"]
    first, second = (
        large_scale.create(run, small, small.X[:5], subject) for _ in range(2)
    )
    before = first.inducing_variable.Z.numpy()
    rates = {"rate": 0.1, "natural": 0.1, "natural_rate": 0.1}
    training = large_scale.Training(3, batch_size=20, evaluations=20, **rates)
    found = large_scale.train(run, first, small, training)
    assert [(e.step, e.rows) for e in found] == [(1, 60), (2, 60), (3, 60), (3, 60)]
    assert 0.0 < found[0].seconds < found[1].seconds < found[2].seconds
    assert found[2][3:] == found[3][3:]  # all test rows are those along the run here
    assert not np.array_equal(before, first.inducing_variable.Z.numpy())
    large_scale.write(found, tmp_path / "scores.csv")
    written = pd.read_csv(tmp_path / "scores.csv")["nlpd"]
    assert list(written) == [round(e.nlpd, 4) for e in found]
    assert large_scale.reached(found, found[1].nlpd).split()[0] in ("1", "2")
    assert large_scale.reached(found, -1.0).split() == ["-", "-"]
    found += large_scale.train(f"{run} natural", second, small, training)
    assert found[4].nlpd != found[0].nlpd
    pytest.importorskip("matplotlib")
    large_scale.draw(found, "generated", tmp_path / "scores.png")
    assert (tmp_path / "scores.png").stat().st_size > 0


@pytest.mark.slow
def test_scores_are_those_of_gpflow(small: Any) -> None:
    model = large_scale.create(
        "VB", small, small.X[:5], large_scale.SUBJECTS["generated"]
    )
    model.q_mu.assign(np.random.default_rng(0).standard_normal(model.q_mu.shape))
    error, nlpd = large_scale.scorer(model, 3)(small.X_test, small.Y_test)
    probability = model.predict_y(small.X_test)[0].numpy()
    labels = small.Y_test[:, 0].astype(int)
    assert error == np.mean(probability.argmax(axis=1) != labels)
    # GPflow's 20 nodes.
    expected = -np.mean(np.log(probability[np.arange(60), labels]))
    np.testing.assert_allclose(nlpd, expected, rtol=0.01)


def test_data_of_the_papers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    digits = np.arange(14, dtype=np.uint8) % 10
    images = rng.integers(0, 256, (14, 28, 28), np.uint8)
    parts = {"x_train": images[:10], "y_train": digits[:10]}
    np.savez(tmp_path / "mnist.npz", **parts, x_test=images[10:], y_test=digits[10:])
    problem = large_scale.load("mnist", tmp_path)
    assert problem.X.dtype == problem.Y.dtype == gpflow.default_float()
    pixels = images.reshape(14, -1) / 255.0
    np.testing.assert_array_equal(problem.X, pixels[:10])
    # Test rows in another order, with their labels.
    order = [int(np.argmin(np.abs(pixels - x).sum(1))) for x in problem.X_test]
    assert sorted(order) == [10, 11, 12, 13] and problem.num_classes == 10
    np.testing.assert_array_equal(problem.Y_test[:, 0], digits[order])
    monkeypatch.setattr(large_scale, "FLIGHTS_HELD_OUT", 6)
    X = rng.normal(3.0, 2.0, (30, 8)).astype(np.float32)
    labels = np.arange(30, dtype=np.int8) % 3
    np.savez(tmp_path / "airline_nyc13.npz", X=X, y=labels)
    problem, late, parity = (
        large_scale.load(n, tmp_path) for n in ("airline", "late", "parity")
    )
    assert problem.X.shape == (24, 8) and problem.Y_test.shape == (6, 1)
    np.testing.assert_allclose(problem.X.mean(axis=0), 0.0, atol=1e-12)
    np.testing.assert_array_equal(late.Y == 1.0, problem.Y == 1.0)
    assert late.num_classes == parity.num_classes == 2
    model = large_scale.create("VB", late, late.X[:3], large_scale.SUBJECTS["late"])
    assert isinstance(model.likelihood, gpflow.likelihoods.Bernoulli)
    with pytest.raises(SystemExit, match="does not exist"):
        large_scale.load("mnist", Path("nowhere"))


needs_kernels = pytest.mark.skipif(
    not devices.is_known("MatMul"),
    reason="this TensorFlow is built without kernels for GPUs",
)


def operations_of(function: Any) -> Any:
    compiled = tf.function(function, autograph=False)
    graph = compiled.get_concrete_function(tf.zeros(2, tf.float64)).graph
    return devices.operations_of(graph.as_graph_def())


@needs_kernels
def test_what_a_gpu_cannot_run_and_copies_in_a_row_loop_are_seen() -> None:
    def add(k: tf.Tensor, x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return k + 1, tf.cond(tf.reduce_any(x > 2.0), lambda: x, lambda: x + 1.0)

    def by_the_host(k: tf.Tensor, x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return k + 1, tf.ensure_shape(tf.numpy_function(np.sin, [x], x.dtype), [2])

    def loop(body: Any, x: tf.Tensor, **options: Any) -> tf.Tensor:
        return tf.while_loop(lambda k, _: k < 3, body, [tf.constant(0), x], **options)[
            1
        ]

    found = operations_of(lambda x: loop(add, x, name="rows"))
    assert found.copied_in_row_loops == {"Any for StatelessIf"}
    assert found.in_row_loops["Greater"] == 1
    found = operations_of(
        lambda x: (tf.sin(loop(by_the_host, x)), *tf.raw_ops.ListDiff(x=x, y=x))
    )
    assert "ListDiff" in found.without and "Sin" not in found.without
    assert found.without_in_loops == {"PyFunc"} and found.num_messages == 1


@needs_kernels
def test_row_loops_wait_for_no_number() -> None:
    """Value and gradient of regression in chunks."""
    loss = devices.losses(60, 10)["... in chunks"]
    operations = devices.operations_of_loss(*loss())
    assert operations.without == frozenset()
    assert operations.in_row_loops["BatchMatMulV2"] > 2  # the loop was found
    assert operations.copied_in_row_loops == set()


@needs_kernels
@pytest.mark.near_copies(
    "float64-PEPRegression",
    "float64-... three classes",
    "float64-ARPEP*",
)
@pytest.mark.parametrize("name", devices.losses(3, 2))
@pytest.mark.parametrize("kind", [np.float64, np.float32])
def test_a_gpu_runs_all_of_a_loss(name: str, kind: type) -> None:
    with gpflow.config.as_context(gpflow.config.Config(float=kind)):
        operations = devices.operations_of_loss(*devices.losses(60, 10)[name]())
    assert operations.number > 500
    assert operations.without == operations.without_in_loops == frozenset()


#: The most operations of value and gradient, beside those of a model of GPflow: tracing
#: and compiling are most of what a small fit waits for.
MOST = {
    "PEPRegression": ("SGPR", 1.2),
    "PEP-probit": ("SVGP", 1.85),
    "PEP-Student-t": ("SVGP", 3.0),
    "PEP-3-classes": ("SVGP", 2.75),
}


@cache
def num_operations(name: str) -> int:
    model, loss = first_call.create(name, 50)
    both = value_and_gradient(loss, model.trainable_variables)
    number: int = first_call.num_operations(both.get_concrete_function().graph)
    return number


@pytest.mark.near_copies("PEP-probit", "PEPRegression")
@pytest.mark.parametrize("name", MOST)
def test_a_loss_has_few_operations(name: str) -> None:
    gpflow_name, ratio = MOST[name]
    assert num_operations(name) < ratio * num_operations(gpflow_name)


def test_the_true_distribution_has_no_regret() -> None:
    """Its intervals hold what they should, to four standard errors of 400 rows."""
    _, new = calibration.draw("pure_noise", 5, 0)
    quantiles = np.tile(stats.norm.ppf(calibration.tails()), (len(new.y), 1))
    found = calibration.scores(new, new.mean, quantiles, new.log_density)
    levels = np.array(calibration.LEVELS)
    errors = np.sqrt(levels * (1.0 - levels) / len(new.y))
    assert np.all(np.abs(np.array(found.covers) - levels) < 4.0 * errors)
    assert found.regret == found.rmse == 0.0
