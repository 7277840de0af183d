"""Full-batch training: it reaches SciPy's optimum, keeps the best, and its record is
true.
"""

import time
import warnings
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from helpers import (
    Array,
    assert_all_close,
    assert_close,
    refusals,
    regression_problem,
    uncompiled,
)
from threadpoolctl import threadpool_info, threadpool_limits

import gpflow_pep as pep
from gpflow_pep.training import MaximiseRecord, Step, maximise
from gpflow_pep.training.fitting.objectives import WholeLoss

N = 30
RNG = np.random.default_rng(5)
X = RNG.uniform(-2.0, 2.0, (N, 1))
Y = np.sin(2.0 * X) + 0.2 * RNG.standard_normal(X.shape)
NOISE = 0.3 * RNG.standard_normal(X.shape)
LABELS = (Y > NOISE).astype(float)
Z = X[:5].copy()
#: Nats: the optimum that SciPy's own tolerance of 2e-9 reaches, and that of 1e-8 for
#: each row.
CLOSE = 1e-4


kernel = gpflow.kernels.SquaredExponential
bernoulli = gpflow.likelihoods.Bernoulli


def classifier(**options: Any) -> "pep.models.PEPClassification":
    options = {"alpha": 0.5, **options}
    return pep.models.PEPClassification(
        (X, LABELS), kernel(), bernoulli(), Z.copy(), **options
    )


MODELS = {
    "PEPRegression": lambda: pep.PEPRegression((X, Y), kernel(), Z.copy(), alpha=0.5),
    "PEP": lambda: pep.PEP(
        (X, Y), kernel(), gpflow.likelihoods.Gaussian(), Z.copy(), alpha=0.5
    ),
    "PEPClassification": classifier,
    "SGPR": lambda: gpflow.models.SGPR((X, Y), kernel(), Z.copy()),
    "GPR": lambda: gpflow.models.GPR((X, Y), kernel()),
    "GPRFITC": lambda: gpflow.models.GPRFITC((X, Y), kernel(), Z.copy()),
    "VGP": lambda: gpflow.models.VGP((X, LABELS), kernel(), bernoulli()),
}
regression, sgpr, exact = (MODELS[name] for name in ("PEPRegression", "SGPR", "GPR"))


def quiet(model: Any, **options: Any) -> MaximiseRecord:
    return maximise(model, progress=False, **options)


def objective(model: Any) -> float:
    return -float(model.training_loss())


class Walled(gpflow.models.GPR):
    """Its objective raises where the noise is below a wall, or is NaN there."""

    wall = 0.0
    silent = False
    traces = 0

    def maximum_log_likelihood_objective(self) -> tf.Tensor:
        type(self).traces += 1
        value = super().maximum_log_likelihood_objective()
        beyond = self.likelihood.variance < self.wall
        if self.silent:
            return tf.where(beyond, tf.constant(np.nan, value.dtype), value)
        check = tf.debugging.assert_equal(beyond, False, message="beyond the wall")
        with tf.control_dependencies([] if check is None else [check]):
            return tf.identity(value)


def walled(wall: float, silent: bool = False) -> Walled:
    model = Walled((X, Y), kernel())
    model.wall = wall
    model.silent = silent
    return model


class Misleading(gpflow.models.GPR):
    """Its gradient points the wrong way."""

    def training_loss(self) -> tf.Tensor:
        turned = tf.custom_gradient(lambda loss: (loss, lambda upstream: -upstream))
        return turned(super().training_loss())


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.near_copies
def test_reaches_the_optimum_of_scipy(name: str) -> None:
    ours = MODELS[name]()
    other = MODELS[name]()
    # Where inducing inputs are trained, one of several optima.
    for model in (
        ours,
        other,
    ):
        if hasattr(model, "inducing_variable"):
            gpflow.set_trainable(model.inducing_variable, False)
    before = objective(ours)
    record = quiet(ours, tolerance=1e-8)
    scipy = gpflow.optimizers.Scipy().minimize
    compile = isinstance(other, pep.models.PEP)  # which is slow without
    scipy(other.training_loss, other.trainable_variables, compile=compile)
    assert record.converged
    assert record.objective > before + 1.0
    assert abs(record.objective - objective(other)) < CLOSE
    assert_close(objective(ours), record.objective)


def test_the_record_is_true() -> None:
    steps: list[Step] = []
    model = regression()
    before = objective(model)
    record = quiet(model, callback=steps.append)
    assert [step.iteration for step in steps] == list(range(1, record.iterations + 1))
    assert {step.start for step in steps} == {0}
    expected = [before, *(step.objective for step in steps)]
    assert_close(-record.losses, expected)
    assert_close(-record.losses[-1], record.objective)
    # It stopped at the first step that gained too little.
    assert record.converged and "less than 1e-06 nats" in record.message
    gains = -np.diff(record.losses) / N
    assert 0.0 < gains[-1] < 1e-6 and np.all(gains[:-1] >= 1e-6)
    assert record.evaluations >= record.iterations + 1 and record.failures == 0
    assert record.seconds > 0.0 and record.compile_seconds > 0.0
    (start,) = record.starts
    assert start[:7] == record[:7]


def test_what_was_done_is_shown_and_logged(caplog: Any, capsys: Any) -> None:
    with caplog.at_level("INFO", logger="gpflow_pep"):
        record = maximise(exact(), max_iterations=2)
    (line,) = [
        r.getMessage() for r in caplog.records if r.name.startswith("gpflow_pep")
    ]
    assert f"GPR: objective {record.objective:.6g} after 2 steps in" in line
    shown = capsys.readouterr().err
    assert "2/2" in shown and "objective" in shown


def test_it_ends_with_sites_as_exact_as_predictions_need_them(monkeypatch: Any) -> None:
    model = classifier()
    record = quiet(model, max_iterations=5)
    assert model.update_sites().num_sweeps == 1
    assert_close(
        float(model.pep_log_marginal_likelihood()), record.objective, rtol=1e-10
    )
    assert model.loss_tolerance.numpy() > 0.0
    # While it climbed it was less exact.
    (start,) = record.starts
    assert 0.0 < abs(start.objective - record.objective) < 1e-5 * N
    # Where they cannot be had, the model ends as it was found.
    failing = classifier()

    def fail(_: WholeLoss) -> float:
        failing.sites.nu.unconstrained_variable.assign(np.full([N, 1], np.nan))
        raise tf.errors.InvalidArgumentError(None, None, "no sites")

    monkeypatch.setattr(WholeLoss, "settle", fail)
    failed = quiet(failing, max_iterations=5)
    assert failed.objective == failed.starts[0].objective
    assert_close(
        float(failing.pep_log_marginal_likelihood()), record.objective, rtol=1e-8
    )


@uncompiled()
def test_where_training_stops() -> None:
    record = quiet(exact(), tolerance=1e-3, window=4)  # the mean gain is small
    means = (record.losses[:-4] - record.losses[4:]) / (4 * N)
    assert record.converged and means[-1] < 1e-3 and np.all(means[:-1] >= 1e-3)
    record = quiet(exact(), max_iterations=3)
    assert record.iterations == 3 and len(record.losses) == 4
    assert not record.converged and "ITERATIONS" in record.message
    record = quiet(Misleading((X, Y), kernel()))
    assert not record.converged and record.iterations == 0
    assert record.message == "The line search found no step that raises the objective."
    model = exact()
    before = objective(model)
    record = quiet(model, seconds=1e-9, starts=3)
    assert record.message == "The time ran out." and not record.converged
    assert (
        record.evaluations == 1 and record.iterations == 0 and len(record.starts) == 1
    )
    assert_all_close([objective(model), record.objective], [before] * 2)
    quiet(model, tolerance=1e-9)
    record = quiet(model, tolerance=1e-5)
    assert record.iterations == 0 and record.converged
    assert record.message.startswith(
        "No step was made, because the objective is nearly flat"
    )


def test_nothing_is_evaluated_after_the_end_but_what_is_under_way(
    monkeypatch: Any,
) -> None:
    """By a clock that each evaluation moves on by a second."""
    clock = [0.0]
    evaluated = WholeLoss.__call__

    def call(self: WholeLoss, x: Array) -> Any:
        clock[0] += 1.0
        return evaluated(self, x)

    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])
    monkeypatch.setattr(WholeLoss, "__call__", call)
    record = quiet(classifier(), seconds=3.0, starts=3)
    assert record.message == "The time ran out." and record.compile_seconds == 1.0
    assert 3.0 < clock[0] <= 3.0 + 1.0


@pytest.mark.near_copies("default")
@pytest.mark.parametrize("filter", ["always", "default"])
def test_sites_that_do_not_converge_warn_once(filter: Any) -> None:
    """By our training; by GPflow's, under Python's own filter: equal warnings once."""
    model = classifier(alpha=1.0, max_sweeps=1, reset_sites=True)
    scipy = gpflow.optimizers.Scipy()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter(filter)
        if filter == "always":
            record = quiet(model, tolerance=1e-2, max_iterations=20)
            assert not record.converged and not any(
                start.converged for start in record.starts
            )
            said = "The sites did not converge at the last evaluation(s)"
            assert record.message.startswith(said)
        else:
            options = {"options": {"maxiter": 5}}
            scipy.minimize(model.training_loss, model.trainable_variables, **options)
    said = [w.message for w in caught if w.category is pep.models.ConvergenceWarning]
    assert len(said) == 1 and "lower alpha" in str(said[0])


@pytest.mark.near_copies("GPR*")
@pytest.mark.parametrize("name, starts", [("PEPClassification", 1), ("GPR", 2)])
def test_interrupt_keeps_the_best_of_all_starts(name: str, starts: int) -> None:
    model = MODELS[name]()
    if starts == 1:
        model.loss_tolerance.assign(0.0)  # so that losses can be compared
    seen: list[float] = []

    def interrupt(step: Step) -> None:
        seen.append(step.objective)
        if step.start == starts - 1 and step.iteration == 2:
            # What else happened does not matter.
            for variable in model.trainable_variables:
                variable.assign_add(tf.ones_like(variable))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        quiet(model, callback=interrupt, starts=starts)
    assert_close(objective(model), max(seen), rtol=1e-7)


#: The path without a wall goes below the first wall, and its end is at 0.04: below the
#: second.
@pytest.mark.near_copies("NaN-0.2")
@pytest.mark.parametrize("wall", [0.03, 0.2])
@pytest.mark.parametrize("silent", [False, True], ids=["raises", "NaN"])
def test_steps_go_back_from_where_the_model_fails(silent: bool, wall: float) -> None:
    model = walled(wall, silent)
    before = objective(model)
    record = quiet(model, max_iterations=50)
    assert record.failures > 0 and model.likelihood.variance > wall
    assert record.objective > before + 1.0
    assert_close(objective(model), record.objective)
    if wall == 0.03:
        assert (
            record.converged
            and abs(record.objective - quiet(exact()).objective) < CLOSE
        )
    else:
        said = "not finite" if silent else "beyond the wall"
        assert record.converged or said in record.message


@pytest.mark.slow
def test_a_start_that_fails_leaves_the_others() -> None:
    """If it is the first, nothing is lost."""
    model = walled(0.03)
    record = quiet(model, starts=[lambda model: model.likelihood.variance.assign(0.01)])
    first, second = record.starts
    assert (
        second.objective == -np.inf and second.iterations == 0 and not second.converged
    )
    assert (
        second.failures == second.evaluations == 1
        and "beyond the wall" in second.message
    )
    assert record[:7] == first[:7]
    assert_close(objective(model), first.objective)
    for silent, said in ((False, "beyond the wall"), (True, "loss: got nan")):
        model = walled(2.0, silent)
        before = [variable.numpy() for variable in model.trainable_variables]
        with pytest.raises(ValueError, match=said):
            quiet(model)
        assert_all_close(model.trainable_variables, before)


@pytest.mark.slow
def test_one_optimizer_compiles_once() -> None:
    """The second run traces nothing, and other data in the variables give their own
    optimum.
    """
    problem = regression_problem(num_data=14)
    data = [tf.Variable(part, trainable=False) for part in problem.data]
    turned = -problem.Y[::-1]

    def build(*data):
        return pep.PEPRegression(data, problem.kernel(), problem.Z.copy())

    model = build(*data)
    optimizer = gpflow.optimizers.Scipy()
    start = gpflow.utilities.read_values(model)
    quiet(model, optimizer=optimizer, max_iterations=3)
    (compiled,) = optimizer.compile_cache.values()
    traces = compiled.experimental_get_tracing_count()
    gpflow.utilities.multiple_assign(model, start)
    data[1].assign(turned)
    record = quiet(model, optimizer=optimizer, max_iterations=3)
    assert compiled.experimental_get_tracing_count() == traces
    fresh = quiet(build(problem.X, turned), max_iterations=3)
    np.testing.assert_allclose(record.objective, fresh.objective, rtol=1e-10)


def test_random_starts_follow_from_the_seed() -> None:
    records = [
        quiet(exact(), starts=3, seed=seed, max_iterations=3) for seed in (1, 1, 2)
    ]
    first, again, other = (
        [start.losses for start in record.starts] for record in records
    )
    for losses, same in zip(first, again, strict=True):
        assert_close(losses, same)
    assert_close(first[0], other[0])  # the parameters as they are
    assert abs(first[1][0] - first[2][0]) > 0.1
    assert abs(first[1][0] - other[1][0]) > 0.1


def test_the_best_start_wins() -> None:
    def hopeless(model: Any) -> None:
        model.kernel.lengthscales.assign(50.0)

    def good(model: Any) -> None:
        # As it was, not where another start ended.
        assert model.kernel.lengthscales.numpy() == 1.0
        model.kernel.lengthscales.assign(0.8)
        model.likelihood.variance.assign(0.05)

    Walled.traces = 0
    model = walled(0.0)
    record = quiet(model, starts=[hopeless, good, hopeless], max_iterations=4)
    assert Walled.traces == 1  # compiled once
    ends = [start.objective for start in record.starts]
    assert int(np.argmax(ends)) == 2 and len(ends) == 4
    assert record.objective == ends[2]
    assert_close(objective(model), record.objective)


def test_single_precision() -> None:
    gpflow.config.set_default_float(np.float32)
    model = gpflow.models.GPR((X.astype(np.float32), Y.astype(np.float32)), kernel())
    before = objective(model)
    record = quiet(model, starts=2, max_iterations=5)
    assert record.objective > before + 1.0
    assert_close(objective(model), record.objective, rtol=1e-5)


def test_one_thread_of_scipys_linear_algebra() -> None:
    def threads() -> list[int]:
        return [
            pool["num_threads"]
            for pool in threadpool_info()
            if pool["user_api"] == "blas"
        ]

    seen: list[list[int]] = []
    with threadpool_limits(2, user_api="blas"):
        assert max(threads()) == 2
        quiet(exact(), max_iterations=1, callback=lambda step: seen.append(threads()))
        assert max(threads()) == 2
    assert seen and all(number == 1 for number in seen[0])


def changed(name: str, change: Any) -> Any:
    model = MODELS[name]()
    change(model)
    return quiet(model)


SVGP = gpflow.models.SVGP(kernel(), gpflow.likelihoods.Gaussian(), Z)
REFUSED = {
    r"model: got SVGP.*holds its data.*gpflow_pep\.training\.fit": lambda: quiet(SVGP),
    "model: got SquaredExponential.*PEPRegression": lambda: quiet(kernel()),
    r"tolerance.*-1\.0.*at least 0": lambda: quiet(exact(), tolerance=-1.0),
    "tolerance.*nan.*at least 0": lambda: quiet(exact(), tolerance=np.nan),
    "window.*0.*at least 1": lambda: quiet(exact(), window=0),
    "max_iterations.*0.*at least 1": lambda: quiet(exact(), max_iterations=0),
    r"seconds.*0\.0.*positive": lambda: quiet(exact(), seconds=0.0),
    "starts.*0.*at least 1": lambda: quiet(exact(), starts=0),
    r"starts.*3\.0.*functions of the model": lambda: quiet(exact(), starts=[3.0]),
    "set_trainable": lambda: changed(
        "SGPR", lambda one: gpflow.set_trainable(one, False)
    ),
}
test_refused = refusals(REFUSED)
