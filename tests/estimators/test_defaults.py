"""Estimators where little is set: powers that are mixed, points that pay, what is
compiled once.
"""

import threading
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pytest
from cases.forms import check_forms, check_mixture
from gpflow.base import AnyNDArray
from helpers import before_calls
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import norm
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import cross_val_score

from gpflow_pep.engine.numerics import chunks
from gpflow_pep.engine.records import OVER
from gpflow_pep.estimators import PEPClassifier, PEPRegressor
from gpflow_pep.estimators.single import model as base
from gpflow_pep.estimators.single import trainer
from gpflow_pep.estimators.single.classes import SingleClassifier
from gpflow_pep.estimators.single.regression import SingleRegressor
from gpflow_pep.estimators.single.settings import ModelSettings
from gpflow_pep.models import PEP, PEPRegression
from gpflow_pep.training import Ensemble, ensemble_weights, maximise
from gpflow_pep.training.choosing import ensemble
from gpflow_pep.training.choosing.near import PRIOR_WEIGHT
from gpflow_pep.training.fitting import cheaper, points
from gpflow_pep.training.fitting.full_batch import NO_STEP
from gpflow_pep.training.fitting.objectives import WholeLoss

ALL: tuple[float, ...] = (0.0, 0.5, 1.0)
RNG = np.random.default_rng(3)
X = RNG.uniform(-2.0, 2.0, (45, 1))
Y = 50.0 + 9.0 * np.sin(3.0 * X[:, 0]) + RNG.standard_normal(45)
THREE = np.digitize(Y, np.quantile(Y, [0.3, 0.7]))
XNEW = np.linspace(-3.0, 3.0, 7)[:, None]
QUICK: dict[str, Any] = {"num_inducing": 3, "alpha": 0.5, "random_state": 0}
SHORT = {**QUICK, "max_iterations": 2}
pytestmark = pytest.mark.filterwarnings("ignore:Training ended")


@pytest.fixture(scope="module")
def mixed() -> PEPRegressor:
    return PEPRegressor(num_inducing=5, max_iterations=5, random_state=0).fit(X, Y)


def components(estimator: PEPRegressor) -> tuple[AnyNDArray, AnyNDArray, AnyNDArray]:
    """Weights [K, 1], means [K, N] and standard deviations of y, in original units."""
    model = estimator.model_
    assert isinstance(model, Ensemble)
    scaled = (XNEW - X.mean()) / X.std()
    parts = [[p.numpy()[:, 0] for p in one.predict_y(scaled)] for one in model.models]
    mean = np.stack([part[0] for part in parts]) * Y.std() + Y.mean()
    sd = np.sqrt(np.stack([part[1] for part in parts])) * Y.std()
    return model.weights.numpy()[:, None], mean, sd


def test_powers_are_mixed(mixed: PEPRegressor) -> None:
    check_mixture(mixed, XNEW, *components(mixed))


def test_attributes_are_those_of_the_heaviest(mixed: PEPRegressor) -> None:
    model = mixed.model_
    heaviest = model.models[int(np.argmax(model.weights))]
    assert mixed.alpha_ == heaviest.alpha.numpy() and mixed.kernel_ is heaviest.kernel
    assert tuple(mixed.alpha_scores_ or ()) == ALL
    assert mixed.record_ is not None and mixed.record_.iterations == mixed.n_iter_
    assert_allclose(mixed.record_.objective, -heaviest.training_loss(), rtol=1e-6)


def test_all_forms_of_a_mixture_predict_the_same(
    mixed: PEPRegressor, tmp_path: Path
) -> None:
    *estimators, _ = check_forms(mixed, tmp_path, XNEW, Y[:7])
    assert all(other.alpha_ == mixed.alpha_ for other in estimators)


def test_where_powers_are_mixed() -> None:
    def plan(own: Any, law: Any, batch: Any = None, rows: int = 45) -> Any:
        return own.attempts(rows, law, batch)[:2]

    default = SingleRegressor(ModelSettings())
    gaussian = gpflow.likelihoods.Gaussian()
    poisson = gpflow.likelihoods.Poisson()
    assert plan(default, gaussian) == (ALL, True)
    assert plan(default, gaussian, 1000) == ((0.5,), False)
    assert plan(default, poisson) == ((0.5,), False)
    for seconds, mixes in ((None, True), (9.0, False)):
        at_most = SingleRegressor(ModelSettings(max_seconds=seconds))
        assert plan(at_most, gaussian, rows=base.LEAST_ROWS)[1] == mixes
    two = SingleClassifier(ModelSettings(alpha="mix", likelihood="auto", num_classes=2))
    assert plan(two, gpflow.likelihoods.Bernoulli()) == (ALL, True)
    assert default.training().objective == two.training().objective == "evidence"


def test_points_are_added(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "FIRST_POINTS", 3)
    fitted = PEPRegressor(alpha=0.5, random_state=0).fit(X, Y)
    assert fitted.record_ is not None
    numbers = [score.num_inducing for score in fitted.record_.points]
    assert numbers[:2] == [3, 6] and fitted.inducing_variable_.num_inducing in numbers
    assert len(fitted.model_.data[0]) == 45
    objective = -float(fitted.model_.training_loss())  # of all rows
    assert_allclose(fitted.record_.objective, objective, rtol=1e-8)
    fixed = clone(fitted).set_params(inducing=X[:4], max_iterations=2).fit(X, Y)
    assert fixed.inducing_variable_.num_inducing == 4 and fixed.record_.points == ()


@pytest.mark.slow
def test_powers_of_many_rows_may_be_an_array(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (base, trainer):
        monkeypatch.setattr(module, "LEAST_ROWS", 45)
    monkeypatch.setattr(base, "MANY_POINTS", 4)
    monkeypatch.setattr(points, "MOST_POINTS", 4)
    options: dict[str, Any] = {"near_rows": 0, "random_state": 0, "max_iterations": 2}
    fitted = [
        PEPRegressor("rbf", alpha=a, **options).fit(X, Y) for a in (ALL, np.array(ALL))
    ]
    assert_array_equal(*(each.predict(XNEW) for each in fitted))


@pytest.mark.near_copies("True")
@pytest.mark.parametrize("is_much_work", [False, True])
def test_rows_left_out_judge_many(
    is_much_work: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number of points, the weights, densities; the models then have all rows."""
    limits = (
        (base, "LEAST_ROWS", 45),
        (trainer, "LEAST_ROWS", 45),
        (base, "MANY_POINTS", 4),
    )
    slow = (trainer, "WORK_OF_POWERS", 1.0), (trainer, "WORK_OF_STEPS", 1.0)
    for room, name, value in (
        *limits,
        (points, "MOST_POINTS", 8),
        *slow[: 2 * is_much_work],
    ):
        monkeypatch.setattr(room, name, value)
    alpha = "auto" if is_much_work else "mix"
    options: dict[str, Any] = {"alpha": alpha, "near_rows": 0, "random_state": 0}
    fitted = PEPRegressor(**options, batch_size=None).fit(X, Y)
    assert fitted.record_ is not None and fitted.record_.points[0].num_inducing == 4
    on_some = [score.objective for score in fitted.record_.points]
    # All rows do not train then.
    assert (fitted.record_.objective in on_some) == is_much_work
    judged = fitted.mixture_.heaviest.judged
    assert judged is not None and len(judged.left_out) == 9
    models, weights = ensemble.components(fitted.model_)
    alphas = [float(model.alpha.numpy()) for model in models]
    assert alphas == [0.5] if is_much_work else alphas[:3] == list(ALL)
    rest = np.setdiff1d(np.arange(45), judged.left_out)
    densities = []
    for model, (mean, variance) in zip(models, judged.moments, strict=True):
        x, y = map(np.asarray, model.data)
        assert len(x) == 45
        parts = model.kernel, model.inducing_variable
        settings: dict[str, Any] = {
            "alpha": model.alpha.numpy(),
            "likelihood": model.likelihood,
        }
        some = PEPRegression((x[rest], y[rest]), *parts, **settings)
        for found, expected in zip(
            (mean, variance), some.predict_y(x[judged.left_out])
        ):
            assert_allclose(found, expected, rtol=1e-6)
        densities.append(norm.logpdf(y[judged.left_out], mean, np.sqrt(variance))[:, 0])
    if not is_much_work:
        expected = ensemble_weights(np.stack(densities), prior_weight=PRIOR_WEIGHT)
        assert_allclose(weights, expected, rtol=1e-6)
        scores = [score - np.log(Y.std()) for score in np.mean(densities, axis=1)]
        assert_allclose([*(fitted.alpha_scores_ or {}).values()], scores, rtol=1e-6)


def test_much_work_begins_with_some(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    train = trainer.Trainer.on_some

    def counted(*args):
        return calls.append(args) or train(*args)

    monkeypatch.setattr(trainer, "WORK_OF_SUBSETS", 45.0)
    monkeypatch.setattr(trainer.Trainer, "on_some", counted)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        fitted = PEPRegressor(**QUICK).fit(X, Y)
        assert fitted.n_iter_ > 3 and len(calls) == 1
    with pytest.warns(ConvergenceWarning):
        PEPRegressor(**SHORT).fit(X, Y)


@pytest.mark.near_copies("2")
@pytest.mark.parametrize("num_classes", [2, 3])
def test_many_rows_of_several_classes_begin_with_some(
    num_classes: int, monkeypatch: Any
) -> None:
    some = []
    on_some = trainer.Trainer.on_some

    def noted(self: trainer.Trainer, model: Any, deadline: float) -> Any:
        some.append(model)
        return on_some(self, model, deadline)

    monkeypatch.setattr(trainer, "SOME_ROWS", 44)
    monkeypatch.setattr(trainer.Trainer, "on_some", noted)
    fitted = PEPClassifier(**SHORT).fit(X, np.minimum(THREE, num_classes - 1))
    kind = (
        gpflow.likelihoods.Softmax if num_classes == 3 else gpflow.likelihoods.Bernoulli
    )
    assert type(fitted.likelihood_) is kind
    assert [len(model.data[0]) for model in some] == [45] * (num_classes > 2)


@pytest.mark.near_copies("some")
@pytest.mark.parametrize(
    "seconds, alpha, num_inducing, labels",
    [
        (4.0, 0.5, "auto", THREE),  # the time ends while some rows are trained on
        (4.0, (0.5, 0.0, 1.0), 3, THREE),
        (7.0, "mix", 3, THREE),  # so do the weights, which take densities of all powers
        (0.5, 0.5, "auto", THREE > 0),
    ],
    ids=["some", "several", "mix", "two"],
)
def test_no_stage_begins_after_the_end(
    seconds: float,
    alpha: Any,
    num_inducing: Any,
    labels: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By a clock that evaluations alone move on, each by a second: the first is
    compilation.
    """
    clock = [0.0]
    densities = [0.0]
    before_calls(
        monkeypatch, WholeLoss, "__call__", lambda: clock.append(clock.pop() + 1.0)
    )
    before_calls(
        monkeypatch, PEP, "loo_log_density", lambda: densities.append(clock[0])
    )
    monkeypatch.setattr(trainer, "SOME_ROWS", 44)
    monkeypatch.setattr(base, "FIRST_POINTS", 2)
    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])
    options: dict[str, Any] = {
        "alpha": alpha,
        "num_inducing": num_inducing,
        "random_state": 0,
    }
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fitted = PEPClassifier(max_seconds=seconds, **options).fit(X, labels)
    assert any("The time ran out." in str(each.message) for each in caught)
    if alpha == "mix":
        assert (
            len(fitted.model_.models) == 3
            and fitted.model_.record.weights_from == "uniform"
        )
        assert any(
            "The powers have equal weights" in str(each.message) for each in caught
        )
    assert max(densities) <= seconds or np.ndim(alpha)  # to choose points, or weights
    assert clock[0] <= seconds + 2.0 and fitted.record_ is not None
    assert fitted.record_.message.startswith(OVER) and not fitted.record_.converged
    assert np.isfinite(fitted.predict_proba(X)).all()


def test_minibatches_end_in_time() -> None:
    with pytest.warns(ConvergenceWarning, match="The time ran out"):
        fitted = PEPRegressor(batch_size=10, max_seconds=1e-3, num_inducing=3).fit(X, Y)
    assert fitted.n_iter_ == 10 and np.isfinite(fitted.predict(XNEW)).all()


def test_seconds_are_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    training = SingleRegressor(ModelSettings(max_seconds=8.0)).training()
    train = trainer.Trainer(training, 4, time.perf_counter() + 8.0)
    monkeypatch.setattr(trainer.time, "perf_counter", lambda: train.end - 6.0)
    assert_allclose(train.share_ends() - (train.end - 6.0), 1.5)


@pytest.mark.parametrize(
    "second, gain, converged",
    [
        (NO_STEP, 1e-6, True),
        (NO_STEP, 1e-3, False),
        ("The time ran out.", 0.0, False),
    ],
)
def test_a_line_search_without_a_step_starts_once_more(
    second: str, gain: float, converged: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = maximise(PEPRegressor(**SHORT).fit(X, Y).model_, max_iterations=1)
    first = record._replace(
        objective=3.0, iterations=4, converged=False, message=NO_STEP
    )
    again = first._replace(objective=3.0 + gain * len(X), iterations=2, message=second)
    left = iter([first, again])
    monkeypatch.setattr(trainer.Trainer, "_maximise", lambda *_: next(left))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        record = PEPRegressor(**QUICK).fit(X, Y).record_
    assert (
        record is not None and record.iterations == 6 and record.converged == converged
    )
    assert any("Training ended" in str(each.message) for each in caught) != converged
    assert next(left, None) is None


# Fits of one thread with the same settings compile once, and end as each does by
# itself.
TWO = RNG.uniform(-2.0, 2.0, (45, 2))
F = np.sin(2.0 * TWO[:, 0]) + 0.2 * RNG.standard_normal(45)
SEVERAL = np.digitize(F, [-0.4, 0.4])
KERNEL = gpflow.kernels.SquaredExponential(lengthscales=[1.0, 1.0])


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """What was compiled since the test began, which begins with nothing."""
    monkeypatch.setattr(cheaper, "_of_thread", threading.local())
    made: list[Any] = []
    make = WholeLoss.__init__

    def tracked(loss: Any, model: Any, *arguments: Any, **options: Any) -> None:
        made.append(model)
        make(loss, model, *arguments, **options)

    monkeypatch.setattr(WholeLoss, "__init__", tracked)
    yield made


@pytest.mark.parametrize("kind, y", [(PEPRegressor, F), (PEPClassifier, F > 0.0)])
@pytest.mark.near_copies("PEPRegressor*")
def test_cross_validation_compiles_once(kind: Any, y: Any, compiled: list[Any]) -> None:
    cross_val_score(kind(**SHORT), TWO, y, cv=4)
    assert len(compiled) == 1
    other = kind(**{**SHORT, "alpha": 1.0, "random_state": 1, "standardize": False})
    cross_val_score(other, TWO, y, cv=3)
    assert len(compiled) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind, change, y",
    [
        (PEPRegressor, {"kernel": "matern32"}, F),
        (PEPRegressor, {"jitter": 1e-5}, F),
        (PEPRegressor, {"kernel": KERNEL}, F),
        (
            PEPRegressor,
            {"inducing": gpflow.inducing_variables.InducingPoints(TWO[:3])},
            F,
        ),
        (PEPRegressor, {"num_inducing": 6}, F),
        (PEPClassifier, {"likelihood": gpflow.likelihoods.Bernoulli()}, F > 0.0),
        (PEPClassifier, {"likelihood": "softmax"}, SEVERAL),
        (PEPClassifier, {}, SEVERAL),
    ],
)
@pytest.mark.near_copies("PEPRegressor-change0*")
def test_what_is_compiled_anew(
    kind: Any, change: Any, y: Any, compiled: list[Any]
) -> None:
    kind(**SHORT).fit(TWO, F if kind is PEPRegressor else F > 0.0)
    with gpflow.config.as_context(
        gpflow.config.Config(jitter=change.pop("jitter", 1e-6))
    ):
        kind(**{**SHORT, **change}).fit(TWO, y)
    assert len(compiled) == 2


@pytest.mark.slow
@pytest.mark.parametrize("most", [10, chunks.CHUNK_ELEMENTS])
@pytest.mark.near_copies
def test_several_powers_compile_once(
    most: int, compiled: list[Any], monkeypatch: Any
) -> None:
    monkeypatch.setattr(chunks, "CHUNK_ELEMENTS", most)
    for _ in range(2):
        PEPRegressor(**{**SHORT, "alpha": "mix"}).fit(TWO, F)
    assert len(compiled) == (2 if most == 10 else 1)  # in chunks each fit compiles


@pytest.mark.parametrize(
    "kernel", ["rbf", gpflow.kernels.Matern52()], ids=["rbf", "own"]
)
@pytest.mark.near_copies("rbf")
def test_some_rows_and_all_share_what_is_compiled(
    kernel: Any, compiled: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the kernel is named; one of the user's own is compiled for either."""
    monkeypatch.setattr(trainer, "SOME_ROWS", 44)
    with pytest.warns(ConvergenceWarning):
        fitted = PEPClassifier(kernel, **{**SHORT, "max_iterations": 1}).fit(X, THREE)
    assert len(compiled) == (1 if kernel == "rbf" else 2)
    log_z = float(fitted.model_.pep_log_marginal_likelihood())
    assert_allclose(fitted.record_.objective, log_z, rtol=1e-5)


def test_a_kind_of_ones_own(compiled: list[Any]) -> None:
    class Sharper(SingleClassifier):
        def make_model(self, *arguments: Any, **options: Any) -> Any:
            model: Any = super().make_model(*arguments, **options)
            gpflow.set_trainable(model.kernel.variance, False)
            return model

    class OfSharper(PEPClassifier):
        single_model = Sharper

    PEPClassifier(**SHORT).fit(TWO, F > 0.0)
    own: Any = OfSharper(**SHORT).fit(TWO, F > 0.0)
    assert len(compiled) == 2 and own.kernel_.variance.numpy() == 1.0


@pytest.mark.slow
def test_threads_have_their_own(compiled: list[Any]) -> None:
    def fit(number: int) -> AnyNDArray:
        return PEPRegressor(**SHORT).fit(TWO[number:], F[number:]).predict(TWO)

    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(fit, range(2)))
    assert len(compiled) == 2
    assert_allclose(found, [fit(number) for number in range(2)], rtol=1e-9)
    assert len(compiled) == 3
