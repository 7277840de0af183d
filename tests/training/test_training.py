"""The training loop: it trains, stops, says what went wrong, and resumes to the same
numbers.
"""

import itertools
import os
import signal
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from helpers import Array, assert_all_close, assert_close, refusals, uncompiled
from threadpoolctl import threadpool_info, threadpool_limits

import gpflow_pep as pep
from gpflow_pep.engine.numerics.threads import one_blas_thread
from gpflow_pep.training import EarlyStopping, Evaluation, fit, shuffled_batches
from gpflow_pep.training.fitting import loop
from gpflow_pep.training.fitting.history import History, resumed
from gpflow_pep.training.fitting.natural import natural_step
from gpflow_pep.training.fitting.objectives import copy_of

pytestmark = pytest.mark.usefixtures("interrupts_arrive")
N = 24
BATCH = 5
RNG = np.random.default_rng(3)
X = RNG.uniform(-2.0, 2.0, (N, 1))
Y = np.sin(2.0 * X) + 0.3 * RNG.standard_normal(X.shape)
#: Relative difference of numbers that must be those of another run.
SAME = 1e-12


def parts(M: int = 4, likelihood: Any = None) -> tuple[Any, Any, Array]:
    likelihood = likelihood or gpflow.likelihoods.Gaussian(0.3)
    return gpflow.kernels.SquaredExponential(), likelihood, X[:M].copy()


def svgp(M: int = 4, **options: Any) -> gpflow.models.SVGP:
    return gpflow.models.SVGP(*parts(M), **{"num_data": N, **options})


def tied(name: str, likelihood: Any = None, alpha: float = 0.0) -> Any:
    return getattr(pep, name)(*parts(likelihood=likelihood), num_data=N, alpha=alpha)


def arpep() -> "pep.models.ARPEP":
    return tied("ARPEP", alpha=0.5)


def point_pep() -> "pep.models.PEP":
    return pep.PEP((X, Y), *parts())


def adam(rate: Any = 0.05) -> tf_keras.optimizers.Optimizer:
    return tf_keras.optimizers.Adam(rate)


def batches() -> Callable[[int], tf.data.Dataset]:
    return shuffled_batches((X, Y), BATCH, seed=1)


def run(model: Any, num_steps: int, **options: Any) -> "pep.training.FitRecord":
    arguments = {
        "batches": batches(),
        "optimizer": adam(),
        "progress": False,
        **options,
    }
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


@pytest.mark.near_copies("APEP-True", "ARPEP-optimiser")
@pytest.mark.parametrize(
    "way", [1.0, _NATURAL, True], ids=["number", "optimiser", "True"]
)
@pytest.mark.parametrize("name", ["SVGP", "ARPEP", "APEP"])
def test_natural_gradients_and_optimiser(name: str, way: Any) -> None:
    """One step of length 1 on all rows is the optimum where the likelihood is
    Gaussian.
    """
    model = svgp() if name == "SVGP" else tied(name)
    before = float(model.training_loss((X, Y)))
    optimum = -exact(model.kernel).elbo()
    run(
        model,
        1,
        batches=ALL_ROWS,
        optimizer=tf_keras.optimizers.SGD(0.0),
        natural_gradient=way,
    )
    if way is True:  # steps of 0.1
        assert optimum + 1.0 < model.training_loss((X, Y)) < before - 1.0
    else:
        assert_close(model.training_loss((X, Y)), optimum, rtol=1e-6)


@pytest.mark.slow
def test_natural_step_and_the_optimisers_have_one_gradient() -> None:
    model = arpep()
    by_hand = arpep()
    schedule = tf_keras.optimizers.schedules.PiecewiseConstantDecay([0], [0.3, 0.05])
    record = run(model, 2, optimizer=adam(), natural_gradient=schedule)
    losses: list[float] = []
    optimizer = adam()
    q = (by_hand.q_mu, by_hand.q_sqrt)
    taken = {id(part.unconstrained_variable) for part in q}
    others = [v for v in by_hand.trainable_variables if id(v) not in taken]
    for gamma, batch in zip((0.3, 0.05), batches()(0)):
        with tf.GradientTape() as tape:
            loss = by_hand.training_loss(batch)
        losses.append(float(loss))
        sources = [*others, *(part.unconstrained_variable for part in q)]
        *gradients, by_mean, by_root = tape.gradient(loss, sources)
        by_root = by_hand.q_sqrt.transform.forward(by_root)
        step = natural_step(*map(tf.convert_to_tensor, q), by_mean, by_root, gamma)
        optimizer.apply_gradients(zip(gradients, others))
        by_hand.q_mu.assign(step.mean)
        by_hand.q_sqrt.assign(step.root)
    # Schedules are in single precision.
    assert_close(record.losses, losses, rtol=1e-6)
    assert_all_close(variables(model), variables(by_hand), rtol=1e-6)


def q_alone() -> "pep.models.ARPEP":
    """All hyperparameters are fixed, so that there is nothing left for the optimiser to
    train.
    """
    model = tied("ARPEP")
    gpflow.set_trainable(model, False)
    gpflow.set_trainable([model.q_mu, model.q_sqrt], True)
    return model


@pytest.mark.near_copies("1.0")
@pytest.mark.parametrize("way", [1.0, _NATURAL])
@uncompiled()
def test_q_alone_by_natural_gradients(way: Any) -> None:
    model = q_alone()
    moved = {id(model.q_mu), id(model.q_sqrt)}
    others = [part for part in model.parameters if id(part) not in moved]
    before = [part.numpy() for part in others]
    run(model, 1, batches=ALL_ROWS, natural_gradient=way)
    assert_close(model.training_loss((X, Y)), -exact(model.kernel).elbo(), rtol=1e-6)
    assert all(
        np.all(part.numpy() == value)
        for part, value in zip(others, before, strict=True)
    )


@uncompiled()
def test_steps_of_q_alone_are_counted(tmp_path: Path) -> None:
    """A schedule of the step length goes on, also after the run was resumed."""
    schedule = tf_keras.optimizers.schedules.PiecewiseConstantDecay([0], [0.9, 0.0])
    model = q_alone()
    resumed = q_alone()
    for each, num_steps in ((model, 1), (resumed, 1), (resumed, 3)):
        directory = tmp_path if each is resumed else None
        run(each, num_steps, natural_gradient=schedule, checkpoint_dir=directory)
    assert np.any(model.q_mu.numpy() != 0.0)
    assert_close(resumed.q_mu, model.q_mu, rtol=SAME)


@pytest.mark.parametrize("name", ["APEP", "ARPEP", "RPAPEP"])
@pytest.mark.slow
def test_natural_steps_go_on_where_q_would_be_improper(name: str) -> None:
    """Long steps with a power above 0 on a wrong label that stands for many rows."""
    labels = np.where(np.arange(N)[:, None] == 7, 1.0 - (Y > 0.0), Y > 0.0).astype(
        float
    )
    rows = tf.data.Dataset.from_tensors((X[5:8], labels[5:8]))

    def trained(way: Any) -> "pep.training.FitRecord":
        model = tied(name, gpflow.likelihoods.Bernoulli(), alpha=1.0)
        model.num_data = 5000
        still = tf_keras.optimizers.SGD(0.0)
        return run(model, 20, batches=rows, optimizer=still, natural_gradient=way)

    with pytest.raises(ValueError, match=r"Training stopped at step \d+"):
        trained(gpflow.optimizers.NaturalGradient(0.5))
    record = trained(0.5)
    assert (
        np.all(np.isfinite(record.losses))
        and record.losses[-1] < 0.1 * record.losses[0]
    )


def test_every_row_once_an_epoch_in_an_order_of_the_seed() -> None:
    data = np.arange(6.0)[:, None], np.arange(6.0)[:, None]

    def rows(seed: int, epoch: int) -> list[float]:
        batches = shuffled_batches(data, 2, seed=seed)(epoch)
        return [float(x[0]) for x_batch, _ in batches for x in x_batch]

    assert sorted(rows(0, 0)) == list(range(6))
    assert rows(0, 0) == rows(0, 0) != rows(0, 1)
    assert rows(0, 0) != rows(1, 0)


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
    with pytest.raises(
        ValueError, match=r"(?s)step 2\b.*training loss: got NaN.*learning rate"
    ):
        run(svgp(), 5, optimizer=tf_keras.optimizers.SGD(1e200))
    model = arpep()
    broken = np.where(np.arange(N)[:, None] == 7, np.nan, Y)
    before = variables(model)
    with pytest.raises(ValueError, match=r"step 1\b.*batch"):
        run(model, 5, batches=tf.data.Dataset.from_tensors((X, broken)))
    assert_all_close(variables(model), before)
    with uncompiled(), pytest.raises(ValueError, match=r"step 2\b.*'nlpd': got nan"):
        run(svgp(), 5, evaluate=lambda model: {"nlpd": np.nan}, evaluate_every=2)


@pytest.mark.slow
@uncompiled()
def test_schedule_and_tensorboard(tmp_path: Path) -> None:
    """Steps after the learning rate has fallen to 0 change nothing; scalars tell of all
    steps.
    """
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


def test_the_bar_for_gpflows_monitor(capsys: Any) -> None:
    with pep.monitor.ProgressBar(3, lambda: {"sweeps": 2.0}) as bar:
        monitor = gpflow.monitor.Monitor(gpflow.monitor.MonitorTaskGroup(bar))
        for step in range(3):
            monitor(step)
    shown = capsys.readouterr().err
    assert "3/3" in shown and "sweeps 2" in shown
    with pytest.raises(ValueError, match="expected use inside of"):
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


@uncompiled()
def of_svgp(**options: Any) -> Any:
    return run(svgp(), **{"num_steps": 5, **options})


def of_point(model: Any, of_batches: Any = None, **options: Any) -> Any:
    batches = (of_batches or model).minibatch_training_loss_closure(4, seed=0)
    return run(model, 5, batches=batches, **options)


STOP = EarlyStopping("nlpd", 2)
GPFLOWS = gpflow.optimizers.NaturalGradient(0.1)
SCORED: dict[str, Any] = {"evaluate": log_density, "evaluate_every": 1}
REFUSED = {
    "num_steps.*0.*positive": lambda: of_svgp(num_steps=0),
    r"log_every.*2\.5.*positive": lambda: of_svgp(log_every=2.5),
    r"optimizer.*adam.*tf_keras\.optimizers": lambda: of_svgp(optimizer="adam"),
    "batches.*tuple.*shuffled_batches": lambda: of_svgp(batches=(X, Y)),
    "model.*PEP.*minibatch_training_loss_closure": lambda: run(point_pep(), 5),
    "model.*PEPRegression.*maximise": lambda: run(
        pep.PEPRegression((X, Y), gpflow.kernels.RBF(), X[:3]), 5
    ),
    "batches.*another model.*this": lambda: of_point(point_pep(), point_pep()),
    "batches.*no batch.*at least one": lambda: of_svgp(batches=ALL_ROWS.take(0)),
    "early_stopping.*no evaluate.*Pass": lambda: of_svgp(early_stopping=STOP),
    "early_stopping.*100.*at most": lambda: of_svgp(
        early_stopping=STOP, evaluate=log_density
    ),
    "patience.*0.*positive": lambda: of_svgp(
        early_stopping=EarlyStopping("a", 0), **SCORED
    ),
    "'error', expected a metric that evaluate returns: nlpd": lambda: of_svgp(
        early_stopping=EarlyStopping("error", 2), **SCORED
    ),
    "natural_gradient.*PEP.*Leave": lambda: of_point(
        point_pep(), natural_gradient=GPFLOWS
    ),
    r"natural_gradient.*\(4, 1\).*q_diag=False": lambda: run(
        svgp(q_diag=True), 5, natural_gradient=0.1
    ),
    r"natural_gradient.*1\.5.*\(0, 1\]": lambda: of_svgp(natural_gradient=1.5),
    r"natural_gradient.*yes.*0\.1": lambda: of_svgp(natural_gradient="yes"),
    "batch_size: got 0": lambda: shuffled_batches((X, Y), 0, seed=0),
    "data: got .*batches of 25 rows": lambda: shuffled_batches((X, Y), N + 1, seed=0),
    "data: got .*the same number of rows": lambda: shuffled_batches(
        (X, Y[:-1]), 3, seed=0
    ),
}
test_refused = refusals(REFUSED)


@uncompiled()
def test_checkpoint_of_another_model_is_refused(tmp_path: Path) -> None:
    run(svgp(), 1, checkpoint_dir=tmp_path)
    with pytest.raises(ValueError, match=r"checkpoint_dir: got .* another directory"):
        run(svgp(6), 2, checkpoint_dir=tmp_path)


# Interrupts wait for the end of a step; what cannot be written says so; threads get
# along.


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize("number", [1, 2])
def test_the_first_interrupt_waits_for_the_end_and_the_second_does_not(
    number: int,
) -> None:
    done = []
    with pytest.raises(KeyboardInterrupt), loop._delay_interrupts():
        for _ in range(number):
            interrupt()
        done.append("all of it")
    assert done == ["all of it"] * (number == 1)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def _by_batches(model: Any) -> dict[str, Any]:
    return {"batches": model.minibatch_training_loss_closure(5, seed=1)}


def _natural(model: Any) -> dict[str, Any]:
    """Ours, and GPflow's."""
    length = gpflow.optimizers.NaturalGradient(0.1)
    return {
        "natural_gradient": length if isinstance(model, gpflow.models.SVGP) else 0.1
    }


RUNS = [
    (arpep, _natural),
    (svgp, _natural),
    (arpep, lambda model: {}),
    (point_pep, _by_batches),
]


@pytest.mark.parametrize("create, options", RUNS)
@pytest.mark.near_copies
def test_interrupted_fit_keeps_its_steps(
    create: Any, options: Any, tmp_path: Path
) -> None:
    """From the model or a checkpoint it goes on to the same numbers, whatever
    evaluations move.
    """

    def evaluate(model: Any) -> dict[str, float]:
        for part in model.parameters:
            part.unconstrained_variable.assign_add(
                tf.ones_like(part.unconstrained_variable)
            )
        if not resumed:
            interrupt()
        return {"nlpd": 0.0}

    resumed: list[bool] = []
    looking = {"checkpoint_dir": tmp_path, "evaluate": evaluate, "evaluate_every": 4}
    model = create()
    whole = create()
    restored = create()
    with pytest.raises(KeyboardInterrupt):
        run(model, 9, **looking, **options(model))
    # There is no step to take.
    run(restored, 4, checkpoint_dir=tmp_path, **options(restored))
    assert_same(model, restored)
    assert str(tf.train.latest_checkpoint(tmp_path)).endswith("-4")
    resumed.append(True)
    model = create()
    record = run(model, 9, **looking, **options(model))
    expected = run(whole, 9, **options(whole))
    np.testing.assert_allclose(record.losses, expected.losses, rtol=1e-12)
    assert [evaluation.step for evaluation in record.evaluations] == [4, 8]
    assert_same(model, whole)


def test_interrupt_within_a_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The step is taken, noted, and in the checkpoint."""
    value = loop._checked_loss

    def interrupted(*arguments: Any) -> float:
        loss = value(*arguments)
        if arguments[-1] == 3:
            interrupt()
        return loss

    monkeypatch.setattr(loop, "_checked_loss", interrupted)
    model = arpep()
    restored = arpep()
    with pytest.raises(KeyboardInterrupt):
        run(model, 9, checkpoint_dir=tmp_path)
    assert str(tf.train.latest_checkpoint(tmp_path)).endswith("-3")
    monkeypatch.undo()
    # There is none to take.
    assert run(restored, 3, checkpoint_dir=tmp_path).num_steps == 3
    assert_same(model, restored)


def test_checkpoint_that_cannot_be_written_says_so(
    tmp_path: Path, monkeypatch: Any
) -> None:
    def full(*arguments: Any, **options: Any) -> None:
        raise tf.errors.ResourceExhaustedError(
            None,
            None,
            "{{function_node x}} /disk/ckpt; No space left on device [Op:SaveV2]",
        )

    monkeypatch.setattr(tf.train.CheckpointManager, "save", full)
    with pytest.raises(
        OSError, match=r"checkpoint_dir: got .*No space left.*Free some space"
    ) as error:
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
        return {
            pool["num_threads"]
            for pool in threadpool_info()
            if pool["user_api"] == "blas"
        }

    with threadpool_limits(2, user_api="blas"):
        before, (first, second) = threads(), (one_blas_thread(), one_blas_thread())
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        assert threads() == {1}
        second.__exit__(None, None, None)
        assert threads() == before


def test_threads_copy_at_the_same_time() -> None:
    """GPflow's own function fails where threads take turns all the time, with a
    KeyError.
    """

    def work(number: int) -> bool:
        kernel = gpflow.kernels.SquaredExponential(variance=1.0 + number)
        values = [kernel.variance + 0.0 for _ in range(3)]  # enter the table
        return float(copy_of(kernel).variance.numpy()) == float(values[0])

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            assert all(pool.map(work, range(120)))
    finally:
        sys.setswitchinterval(interval)


def test_a_copy_that_cannot_be_made_says_why() -> None:
    class Stubborn(gpflow.kernels.White):
        def __deepcopy__(self, memo: object) -> None:
            raise RuntimeError("not this one")

    with pytest.raises(RuntimeError, match="not this one"):
        copy_of(Stubborn())
