"""The training loop: it trains, stops, says what went wrong, and resumes to the same numbers."""

import itertools
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from helpers import Array, assert_all_close, assert_close, uncompiled

import gpflow_pep as pep
from gpflow_pep.training import EarlyStopping, Evaluation, fit, shuffled_batches
from gpflow_pep.training.fitting.history import History
from gpflow_pep.training.fitting.natural import natural_step

N, BATCH = 24, 5
RNG = np.random.default_rng(3)
X = RNG.uniform(-2.0, 2.0, (N, 1))
Y = np.sin(2.0 * X) + 0.3 * RNG.standard_normal(X.shape)
#: Relative difference of numbers that must be those of another run.
SAME = 1e-12


def svgp(M: int = 4, **options: Any) -> gpflow.models.SVGP:
    kernel, likelihood = gpflow.kernels.SquaredExponential(), gpflow.likelihoods.Gaussian(0.3)
    return gpflow.models.SVGP(kernel, likelihood, X[:M].copy(), **{"num_data": N, **options})


def tied(name: str, likelihood: Any = None, alpha: float = 0.0) -> Any:
    likelihood = likelihood or gpflow.likelihoods.Gaussian(0.3)
    kernel = gpflow.kernels.SquaredExponential()
    return getattr(pep.models, name)(kernel, likelihood, X[:4].copy(), num_data=N, alpha=alpha)


def arpep() -> "pep.models.ARPEP":
    return tied("ARPEP", alpha=0.5)


def point_pep() -> "pep.models.PEP":
    kernel, likelihood = gpflow.kernels.SquaredExponential(), gpflow.likelihoods.Gaussian(0.3)
    return pep.models.PEP((X, Y), kernel, likelihood, X[:4].copy())


def adam(rate: Any = 0.05) -> tf_keras.optimizers.Optimizer:
    return tf_keras.optimizers.Adam(rate)


def batches() -> Callable[[int], tf.data.Dataset]:
    return shuffled_batches((X, Y), BATCH, seed=1)


def run(model: Any, num_steps: int, **options: Any) -> "pep.training.FitRecord":
    arguments = {"batches": batches(), "optimizer": adam(), "progress": False, **options}
    return fit(model, num_steps=num_steps, **arguments)


def variables(model: tf.Module) -> list[Array]:
    return [np.array(variable.numpy()) for variable in model.trainable_variables]


def log_density(model: Any) -> dict[str, float]:
    return {"nlpd": -float(np.mean(model.predict_log_density((X, Y))))}


def assert_same(model: tf.Module, expected: tf.Module) -> None:
    assert_all_close(variables(model), variables(expected), rtol=SAME)


_NATURAL = gpflow.optimizers.NaturalGradient(1.0)
ALL_ROWS = tf.data.Dataset.from_tensors((X, Y))


def exact(kernel: gpflow.kernels.Kernel) -> gpflow.models.SGPR:
    return gpflow.models.SGPR((X, Y), kernel, X[:4].copy(), noise_variance=0.3)


@pytest.mark.parametrize("way", [1.0, _NATURAL, True], ids=["number", "optimiser", "True"])
@pytest.mark.parametrize("name", ["SVGP", "ARPEP", "APEP"])
@pytest.mark.near_copies("SVGP-number", "ARPEP-optimiser", "APEP-True")
def test_natural_gradients_and_optimiser(name: str, way: Any) -> None:
    """One step of length 1 on all rows is the optimum where the likelihood is Gaussian."""
    model = svgp() if name == "SVGP" else tied(name)
    before, optimum = float(model.training_loss((X, Y))), -exact(model.kernel).elbo()
    run(model, 1, batches=ALL_ROWS, optimizer=tf_keras.optimizers.SGD(0.0), natural_gradient=way)
    if way is True:  # steps of 0.1
        assert optimum + 1.0 < model.training_loss((X, Y)) < before - 1.0
    else:
        assert_close(model.training_loss((X, Y)), optimum, rtol=1e-6)


@pytest.mark.slow
def test_natural_step_and_the_optimisers_have_one_gradient() -> None:
    model, by_hand = arpep(), arpep()
    schedule = tf_keras.optimizers.schedules.PiecewiseConstantDecay([0], [0.3, 0.05])
    record = run(model, 2, optimizer=adam(), natural_gradient=schedule)
    losses: list[float] = []
    optimizer, q = adam(), (by_hand.q_mu, by_hand.q_sqrt)
    taken = {id(part.unconstrained_variable) for part in q}
    others = [v for v in by_hand.trainable_variables if id(v) not in taken]
    for gamma, batch in zip((0.3, 0.05), batches()(0)):
        with tf.GradientTape() as tape:
            loss = by_hand.training_loss(batch)
        losses.append(float(loss))
        *gradients, by_mean, by_root = tape.gradient(
            loss, [*others, *(part.unconstrained_variable for part in q)]
        )
        by_root = by_hand.q_sqrt.transform.forward(by_root)
        step = natural_step(*map(tf.convert_to_tensor, q), by_mean, by_root, gamma)
        optimizer.apply_gradients(zip(gradients, others))
        by_hand.q_mu.assign(step.mean)
        by_hand.q_sqrt.assign(step.root)
    # Schedules are in single precision.
    assert_close(record.losses, losses, rtol=1e-6)
    assert_all_close(variables(model), variables(by_hand), rtol=1e-6)


def q_alone() -> "pep.models.ARPEP":
    """All hyperparameters are fixed, so that there is nothing left for the optimiser to train."""
    model = tied("ARPEP")
    gpflow.set_trainable(model, False)
    gpflow.set_trainable([model.q_mu, model.q_sqrt], True)
    return model


@pytest.mark.near_copies("1.0")
@pytest.mark.parametrize("way", [1.0, _NATURAL])
@uncompiled()
def test_q_alone_by_natural_gradients(way: Any) -> None:
    model = q_alone()
    fixed = {id(part): part.numpy() for part in model.parameters}
    run(model, 1, batches=ALL_ROWS, natural_gradient=way)
    assert_close(model.training_loss((X, Y)), -exact(model.kernel).elbo(), rtol=1e-6)
    moved = {id(model.q_mu), id(model.q_sqrt)}
    others = [part for part in model.parameters if id(part) not in moved]
    assert all(np.all(part.numpy() == fixed[id(part)]) for part in others)


@uncompiled()
def test_steps_of_q_alone_are_counted(tmp_path: Path) -> None:
    """A schedule of the step length goes on, also after the run was resumed."""
    schedule = tf_keras.optimizers.schedules.PiecewiseConstantDecay([0], [0.9, 0.0])
    model, resumed = q_alone(), q_alone()
    for each, num_steps in ((model, 1), (resumed, 1), (resumed, 3)):
        directory = tmp_path if each is resumed else None
        run(each, num_steps, natural_gradient=schedule, checkpoint_dir=directory)
    assert np.any(model.q_mu.numpy() != 0.0)
    assert_close(resumed.q_mu, model.q_mu, rtol=SAME)


@pytest.mark.parametrize("name", ["APEP", "ARPEP", "RPAPEP"])
@pytest.mark.slow
def test_natural_steps_go_on_where_q_would_be_improper(name: str) -> None:
    """Long steps with a power above 0 on a wrong label that stands for many rows."""
    labels = np.where(np.arange(N)[:, None] == 7, 1.0 - (Y > 0.0), Y > 0.0).astype(float)
    rows = tf.data.Dataset.from_tensors((X[5:8], labels[5:8]))

    def trained(way: Any) -> "pep.training.FitRecord":
        model = tied(name, gpflow.likelihoods.Bernoulli(), alpha=1.0)
        model.num_data = 5000
        return run(
            model, 20, batches=rows, optimizer=tf_keras.optimizers.SGD(0.0), natural_gradient=way
        )

    with pytest.raises(ValueError, match=r"Training stopped at step \d+"):
        trained(gpflow.optimizers.NaturalGradient(0.5))
    record = trained(0.5)
    assert np.all(np.isfinite(record.losses)) and record.losses[-1] < 0.1 * record.losses[0]


def test_every_row_once_an_epoch_in_an_order_of_the_seed() -> None:
    data = np.arange(6.0)[:, None], np.arange(6.0)[:, None]

    def rows(seed: int, epoch: int) -> list[float]:
        batches = shuffled_batches(data, 2, seed=seed)(epoch)
        return [float(x[0]) for x_batch, _ in batches for x in x_batch]

    assert sorted(rows(0, 0)) == list(range(6))
    assert rows(0, 0) == rows(0, 0) != rows(0, 1)
    assert rows(0, 0) != rows(1, 0)


KILLED = """
    import sys, time
    sys.path.insert(0, "..")  # of what the tests share
    import test_training as t

    def evaluate(model):
        time.sleep(0.1)
        print("evaluated", flush=True)
        return {"nlpd": 0.0}

    t.run(t.arpep(), 1000, checkpoint_dir=sys.argv[1], checkpoint_every=3, evaluate=evaluate,
          evaluate_every=1)
"""


@pytest.mark.slow
def test_resumes_after_it_was_killed(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(KILLED), str(tmp_path)],
        cwd=Path(__file__).parent,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    for _ in range(8):
        assert process.stdout.readline() == "evaluated\n"
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    first = int(Path(tf.train.latest_checkpoint(tmp_path)).name.partition("-")[2])
    assert 6 <= first < 1000 and first % 3 == 0
    num_steps = first + 4
    model, whole = arpep(), arpep()
    resumed = run(model, num_steps, checkpoint_dir=tmp_path)
    uninterrupted = run(whole, num_steps)
    assert len(resumed.evaluations) == first
    assert_close(resumed.losses, uninterrupted.losses, rtol=SAME)
    assert_same(model, whole)


@uncompiled()
def test_early_stopping_restores_the_best(tmp_path: Path) -> None:
    """And the same where it resumes when it had stopped."""
    values = {2: 3.0, 4: 1.0, 6: 2.0, 8: 1.0, 10: 0.0}
    at_evaluation: dict[int, list[Array]] = {}

    def evaluate(model: Any) -> dict[str, float]:
        step = 2 * (len(at_evaluation) + 1)
        at_evaluation[step] = variables(model)
        return {"score": values[step]}

    rule = EarlyStopping("score", patience=2)
    options = {"evaluate": evaluate, "evaluate_every": 2, "checkpoint_dir": tmp_path}
    for _ in range(2):
        model = svgp()
        record = run(model, 10, early_stopping=rule, **options)
        assert record.stopped_early and record.num_steps == 8 and record.best_step == 4
        assert_all_close(variables(model), at_evaluation[4], rtol=SAME)
    assert max(at_evaluation) == 8


def test_best_evaluation() -> None:
    def best(values: list[float], **options: Any) -> int | None:
        rule = EarlyStopping("a", patience=1, **options)
        evaluations = [Evaluation(k, {"a": v}) for k, v in enumerate(values)]
        return History(evaluations=evaluations).best_step(rule)

    assert best([]) is None
    assert best([2.0, 1.0, 1.5, 1.0]) == 1
    assert best([2.0, 1.5, 0.9], min_delta=1.0) == 2
    assert best([2.0, 3.0, 2.5], larger_is_better=True) == 1


def test_nan_stops_with_a_message() -> None:
    with pytest.raises(ValueError, match=r"(?s)step 2\b.*training loss: got NaN.*learning rate"):
        run(svgp(), 5, optimizer=tf_keras.optimizers.SGD(1e200))
    model = arpep()
    broken = np.where(np.arange(N)[:, None] == 7, np.nan, Y)
    before = variables(model)
    with pytest.raises(ValueError, match=r"step 1\b.*batch"):
        run(model, 5, batches=tf.data.Dataset.from_tensors((X, broken)))
    assert_all_close(variables(model), before)
    with uncompiled(), pytest.raises(ValueError, match=r"step 2\b.*'nlpd': got nan"):
        run(svgp(), 5, evaluate=lambda model: {"nlpd": np.nan}, evaluate_every=2)


@uncompiled()
def test_schedule_and_tensorboard(tmp_path: Path) -> None:
    """Steps after the learning rate has fallen to 0 change nothing; scalars tell of all steps."""
    schedule = tf_keras.optimizers.schedules.PiecewiseConstantDecay([3], [0.05, 0.0])
    changes: list[list[Array]] = []

    def evaluate(model: Any) -> dict[str, float]:
        changes.append(variables(model))
        return {"nlpd": float(len(changes))}

    options = {"optimizer": adam(schedule), "evaluate": evaluate, "evaluate_every": 1}
    record = run(svgp(), 6, **options, log_dir=tmp_path, log_every=2)
    moved = [not np.array_equal(a[-1], b[-1]) for a, b in itertools.pairwise(changes)]
    assert moved == [True, True, True, False, False]
    scalars: dict[str, list[tuple[int, float]]] = {}
    for path in tmp_path.glob("events*"):
        for record_bytes in tf.data.TFRecordDataset(str(path)):
            event = tf.compat.v1.Event.FromString(record_bytes.numpy())
            for value in event.summary.value:
                number = float(tf.make_ndarray(value.tensor))
                scalars.setdefault(value.tag, []).append((event.step, number))
    assert [step for step, _ in scalars["loss"]] == [2, 4, 6]
    assert_close([loss for _, loss in scalars["loss"]], record.losses[1::2], rtol=1e-6)
    assert all(seconds > 0.0 for _, seconds in scalars["step_seconds"])
    assert scalars["held_out/nlpd"] == [(k, float(k)) for k in range(1, 7)]


def test_the_bar_for_gpflows_monitor(capsys: pytest.CaptureFixture[str]) -> None:
    with pep.monitor.ProgressBar(3, lambda: {"sweeps": 2.0}) as bar:
        monitor = gpflow.monitor.Monitor(gpflow.monitor.MonitorTaskGroup(bar))
        for step in range(3):
            monitor(step)
    shown = capsys.readouterr().err
    assert "3/3" in shown and "sweeps 2" in shown
    with pytest.raises(ValueError, match="expected to be in use as"):
        pep.monitor.ProgressBar(3)(0)


@uncompiled()
def test_loss_falls_and_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    model = arpep()
    before = float(model.training_loss((X, Y)))
    options = {"evaluate": log_density, "evaluate_every": 5, "progress": True}
    record = run(model, 15, optimizer=adam(0.2), **options)
    shown = capsys.readouterr().err
    assert "15/15" in shown and "loss" in shown and "nlpd" in shown
    assert float(model.training_loss((X, Y))) < before - 2.0
    assert record.num_steps == len(record.losses) == 15
    assert record.seconds > 0.0
    assert record.best_step is None and not record.stopped_early


STOP = EarlyStopping("nlpd", 2)
NATURAL = {"natural_gradient": gpflow.optimizers.NaturalGradient(0.1)}
SCORED: dict[str, Any] = {"evaluate": log_density, "evaluate_every": 1}
REFUSED: dict[str, dict[str, Any]] = {
    "num_steps.*0.*positive": {"num_steps": 0},
    r"log_every.*2\.5.*positive": {"log_every": 2.5},
    r"optimizer.*adam.*tf_keras\.optimizers": {"optimizer": "adam"},
    "batches.*tuple.*shuffled_batches": {"batches": (X, Y)},
    "model.*PEP.*minibatch_training_loss_closure": {"model": point_pep},
    "model.*PEPRegression.*maximise": {
        "model": lambda: pep.models.PEPRegression((X, Y), gpflow.kernels.RBF(), X[:3])
    },
    "batches.*another model.*this": {
        "model": point_pep,
        "batches": point_pep().minibatch_training_loss_closure(4, seed=0),
    },
    "batches.*none.*at least one": {"batches": ALL_ROWS.take(0)},
    "early_stopping.*no evaluate.*Pass": {"early_stopping": STOP},
    "early_stopping.*100.*at most": {"early_stopping": STOP, "evaluate": log_density},
    "patience.*0.*positive": {"early_stopping": EarlyStopping("a", 0), **SCORED},
    "'error', expected one that evaluate returns: nlpd": {
        "early_stopping": EarlyStopping("error", 2),
        **SCORED,
    },
    "natural_gradient.*PEP.*Leave": {"model": point_pep, "batches": None, **NATURAL},
    r"natural_gradient.*\(4, 1\).*q_diag=False": {
        "model": lambda: svgp(q_diag=True),
        "natural_gradient": 0.1,
    },
    r"natural_gradient.*1\.5.*\(0, 1\]": {"natural_gradient": 1.5},
    r"natural_gradient.*yes.*0\.1": {"natural_gradient": "yes"},
}


@pytest.mark.parametrize("message", REFUSED)
@uncompiled()
def test_refused(message: str) -> None:
    options = dict(REFUSED[message])
    model = options.pop("model", svgp)()
    if options.get("batches", ()) is None:
        options["batches"] = model.minibatch_training_loss_closure(4, seed=0)
    with pytest.raises(ValueError, match=f"(?s){message}"):
        run(model, **{"num_steps": 5, **options})


@uncompiled()
def test_checkpoint_of_another_model_is_refused(tmp_path: Path) -> None:
    run(svgp(), 1, checkpoint_dir=tmp_path)
    with pytest.raises(ValueError, match=r"checkpoint_dir: got .* another directory"):
        run(svgp(6), 2, checkpoint_dir=tmp_path)


@pytest.mark.parametrize("size, rows", [(0, N), (N + 1, N), (3, N - 1)])
def test_bad_batches_are_refused(size: int, rows: int) -> None:
    with pytest.raises(ValueError, match=r"expected"):
        shuffled_batches((X, Y[:rows]), size, seed=0)
