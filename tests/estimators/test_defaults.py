"""Estimators with nothing set: powers that are mixed, and as many inducing points as pay."""

import pickle
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.base import AnyNDArray
from scipy.special import logsumexp
from scipy.stats import norm
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from gpflow_pep.estimators import (
    PEPClassifier,
    PEPRegressor,
    base,
    export_saved_model,
    load_estimator,
    save_estimator,
    trainer,
)
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
XNEW = np.linspace(-3.0, 3.0, 7)[:, None]
QUICK: dict[str, Any] = {"num_inducing": 3, "alpha": 0.5, "max_iterations": 20, "random_state": 0}
pytestmark = pytest.mark.filterwarnings("ignore:Training ended")


@pytest.fixture(scope="module")
def mixed() -> PEPRegressor:
    options: dict[str, Any] = {"num_inducing": 5, "max_iterations": 5, "random_state": 0}
    return PEPRegressor(**options).fit(X, Y)


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
    w, m, s = components(mixed)
    mean, sd = mixed.predict(XNEW, return_std=True)
    np.testing.assert_allclose(mean, (w * m).sum(0), rtol=1e-9)
    np.testing.assert_allclose(sd**2, (w * (s**2 + (m - mean) ** 2)).sum(0), rtol=1e-7)
    y = mean + 1.0
    density = logsumexp(norm.logpdf(y, m, s), axis=0, b=w)
    np.testing.assert_allclose(mixed.log_densities(XNEW, y), density, rtol=1e-8)
    low, high = mixed.predict_quantiles(XNEW, [0.1, 0.7]).T
    np.testing.assert_allclose((w * norm.cdf(low, m, s)).sum(0), 0.1, rtol=1e-8)
    np.testing.assert_allclose((w * norm.cdf(high, m, s)).sum(0), 0.7, rtol=1e-8)
    _, covariance = mixed.predict(XNEW, return_cov=True)
    np.testing.assert_allclose(np.diag(covariance), sd**2, rtol=1e-7)
    draws = mixed.sample_y(XNEW, 4000, random_state=1)
    assert draws.shape == (7, 4000)
    assert (np.abs(draws.mean(1) - mean) < 5.0 * sd / np.sqrt(4000)).all()
    assert (np.abs(draws.std(1) / sd - 1.0) < 0.15).all()


def test_attributes_are_those_of_the_heaviest(mixed: PEPRegressor) -> None:
    model = mixed.model_
    assert isinstance(model, Ensemble)
    heaviest = model.models[int(np.argmax(model.weights))]
    assert mixed.alpha_ == heaviest.alpha.numpy() and mixed.kernel_ is heaviest.kernel
    assert tuple(mixed.alpha_scores_ or ()) == ALL
    assert mixed.record_ is not None and mixed.record_.iterations == mixed.n_iter_
    np.testing.assert_allclose(mixed.record_.objective, -heaviest.training_loss(), rtol=1e-6)


@pytest.mark.slow
def test_a_mixture_is_saved(mixed: PEPRegressor, tmp_path: Path) -> None:
    expected = mixed.predict(XNEW, return_std=True)
    save_estimator(tmp_path / "model", mixed)
    for other in (load_estimator(tmp_path / "model"), pickle.loads(pickle.dumps(mixed))):
        np.testing.assert_allclose(other.predict(XNEW, return_std=True), expected, rtol=1e-9)
        assert other.alpha_ == mixed.alpha_
    export_saved_model(tmp_path / "saved", mixed)
    predictor = tf.saved_model.load(str(tmp_path / "saved"))
    mean, variance = predictor.predict_y(XNEW)
    np.testing.assert_allclose(mean[:, 0], expected[0], rtol=1e-7)
    np.testing.assert_allclose(np.sqrt(variance[:, 0]), expected[1], rtol=1e-7)


def test_where_powers_are_mixed() -> None:
    def plan(estimator: Any, likelihood: Any, batch_size: int | None = None) -> Any:
        return estimator._attempts(45, likelihood, batch_size)[:2]

    gaussian, poisson = gpflow.likelihoods.Gaussian(), gpflow.likelihoods.Poisson()
    assert plan(PEPRegressor(), gaussian) == (ALL, True)
    assert plan(PEPRegressor(), gaussian, 1000) == ((0.5,), False)
    assert plan(PEPRegressor(), poisson) == ((0.5,), False)
    assert plan(PEPClassifier(alpha="mix"), gpflow.likelihoods.Bernoulli()) == (ALL, True)
    assert PEPRegressor()._objective() == PEPClassifier()._objective() == "evidence"
    with pytest.raises(ValueError, match=r"alpha: got 'mixed', .*'mix' or 'auto'"):
        PEPRegressor("rbf", alpha="mixed").fit(X, Y)


@pytest.mark.slow
def test_other_objectives_with_other_likelihoods() -> None:
    options: dict[str, Any] = {"num_inducing": 4, "max_iterations": 3, "random_state": 0}
    fitted = PEPRegressor(likelihood="student_t", objective="evidence+loo", **options).fit(X, Y)
    assert fitted.record_ is not None
    both = float(tf.add_n(fitted.model_.evidence_and_left_out()))
    np.testing.assert_allclose(fitted.record_.objective, both, rtol=1e-6)


def test_classes_are_mixed() -> None:
    labels = np.where(Y > 50.0, "high", "low")
    options: dict[str, Any] = {"num_inducing": 4, "max_iterations": 2, "random_state": 0}
    fitted = PEPClassifier(**options, alpha="mix").fit(X, labels)
    model = fitted.model_
    scaled = (XNEW - X.mean()) / X.std()
    low = sum(w * one.predict_y(scaled)[0] for w, one in zip(model.weights.numpy(), model.models))
    np.testing.assert_allclose(fitted.predict_proba(XNEW)[:, 1], low[:, 0], rtol=1e-7)


def test_points_are_added(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "FIRST_POINTS", 3)
    fitted = PEPRegressor(alpha=0.5, random_state=0).fit(X, Y)
    assert fitted.record_ is not None
    numbers = [score.num_inducing for score in fitted.record_.points]
    assert numbers[:2] == [3, 6]
    assert fitted.inducing_variable_.num_inducing in numbers
    assert len(fitted.model_.data[0]) == 45
    objective = -float(fitted.model_.training_loss())  # of all rows
    np.testing.assert_allclose(fitted.record_.objective, objective, rtol=1e-8)
    fixed = clone(fitted).set_params(inducing=X[:4], max_iterations=2).fit(X, Y)
    assert fixed.inducing_variable_.num_inducing == 4 and fixed.record_.points == ()


@pytest.mark.parametrize("is_much_work", [False, True])
def test_rows_left_out_judge_many(is_much_work: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of points, the weights, densities; the models then have all rows."""
    monkeypatch.setattr(base, "LEAST_ROWS", 45)
    monkeypatch.setattr(trainer, "LEAST_ROWS", 45)
    monkeypatch.setattr(base, "MANY_POINTS", 4)
    monkeypatch.setattr(points, "MOST_POINTS", 8)
    if is_much_work:
        monkeypatch.setattr(trainer, "WORK_OF_POWERS", 1.0)
    fitted = PEPRegressor("rbf", near_rows=0, random_state=0).fit(X, Y)
    assert fitted.record_ is not None and fitted.record_.points[0].num_inducing == 4
    judged = fitted._judged
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
        options: dict[str, Any] = {"alpha": model.alpha.numpy(), "likelihood": model.likelihood}
        some = PEPRegression((x[rest], y[rest]), *parts, **options)
        expected = some.predict_y(x[judged.left_out])
        np.testing.assert_allclose(mean, expected[0], rtol=1e-6)
        np.testing.assert_allclose(variance, expected[1], rtol=1e-6)
        densities.append(norm.logpdf(y[judged.left_out], mean, np.sqrt(variance))[:, 0])
    if not is_much_work:
        expected = ensemble_weights(np.stack(densities), prior_weight=PRIOR_WEIGHT)
        np.testing.assert_allclose(weights, expected, rtol=1e-6)
        scores = [score - np.log(Y.std()) for score in np.mean(densities, axis=1)]
        np.testing.assert_allclose([*(fitted.alpha_scores_ or {}).values()], scores, rtol=1e-6)


def test_much_work_begins_with_some(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    monkeypatch.setattr(trainer, "WORK_OF_SUBSETS", 45.0)
    train = trainer.Trainer.on_some
    monkeypatch.setattr(
        trainer.Trainer, "on_some", lambda *args: calls.append(args) or train(*args)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        fitted = PEPRegressor(alpha=0.5, num_inducing=4, random_state=0).fit(X, Y)
        assert fitted.n_iter_ > 3 and len(calls) == 1
    with pytest.warns(ConvergenceWarning):
        PEPRegressor(alpha=0.5, num_inducing=4, max_iterations=2, random_state=0).fit(X, Y)


@pytest.mark.parametrize("num_classes", [2, 3])
def test_many_rows_of_several_classes_begin_with_some(
    num_classes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    some, on_some = [], trainer.Trainer.on_some

    def noted(self: trainer.Trainer, model: Any, deadline: float) -> Any:
        some.append(model)
        return on_some(self, model, deadline)

    monkeypatch.setattr(trainer, "SOME_ROWS", 44)
    monkeypatch.setattr(trainer.Trainer, "on_some", noted)
    labels = np.digitize(Y, np.quantile(Y, [[0.5], [0.3, 0.7]][num_classes - 2]))
    options: dict[str, Any] = {"alpha": 0.5, "num_inducing": 3, "max_iterations": 1}
    with pytest.warns(ConvergenceWarning):
        fitted = PEPClassifier(random_state=0, **options).fit(X, labels)
    kind = gpflow.likelihoods.Softmax if num_classes == 3 else gpflow.likelihoods.Bernoulli
    assert type(fitted.likelihood_) is kind
    assert [len(model.data[0]) for model in some] == [45] * (num_classes > 2)


@pytest.mark.parametrize("kernel", ["rbf", gpflow.kernels.Matern52()])
def test_some_rows_and_all_share_what_is_compiled(
    kernel: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the kernel is named; one of the user's own is compiled for either."""
    made: list[int] = []
    make = WholeLoss.__init__

    def count(self: WholeLoss, model: Any, *args: Any, **options: Any) -> None:
        made.append(1)
        make(self, model, *args, **options)

    monkeypatch.setattr(trainer, "SOME_ROWS", 44)
    monkeypatch.setattr(WholeLoss, "__init__", count)
    monkeypatch.setattr(cheaper, "_of_thread", threading.local())
    labels = np.digitize(Y, np.quantile(Y, [0.3, 0.7]))
    options: dict[str, Any] = {"alpha": 0.5, "num_inducing": 2, "max_iterations": 1}
    with pytest.warns(ConvergenceWarning):
        fitted = PEPClassifier(kernel, random_state=0, **options).fit(X, labels)
    assert len(made) == (1 if kernel == "rbf" else 2)
    log_z = float(fitted.model_.pep_log_marginal_likelihood())
    np.testing.assert_allclose(fitted.record_.objective, log_z, rtol=1e-5)


@pytest.mark.parametrize(
    "seconds, alpha, num_inducing, num_classes",
    [
        (4.0, 0.5, "auto", 3),  # the time ends while some rows are trained on
        (4.0, (0.5, 0.0, 1.0), 3, 3),
        (7.0, "mix", 3, 3),  # so do the weights of an ensemble, which take densities of all powers
        (0.5, 0.5, "auto", 2),
    ],
)
def test_no_stage_begins_after_the_end(
    seconds: float, alpha: Any, num_inducing: Any, num_classes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a clock that evaluations alone move on, each by a second: the first is compilation."""
    clock, evaluated, densities = [0.0], WholeLoss.__call__, PEP.loo_log_density

    def call(self: WholeLoss, x: Any) -> Any:
        clock[0] += 1.0
        return evaluated(self, x)

    def left_out(self: PEP) -> Any:
        assert clock[0] <= seconds or np.ndim(alpha)  # to choose points, or weights
        return densities(self)

    monkeypatch.setattr(WholeLoss, "__call__", call)
    monkeypatch.setattr(PEP, "loo_log_density", left_out)
    monkeypatch.setattr(trainer, "SOME_ROWS", 44)
    monkeypatch.setattr(base, "FIRST_POINTS", 2)
    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])
    labels = np.digitize(Y, np.quantile(Y, [0.5] if num_classes == 2 else [0.3, 0.7]))
    options: dict[str, Any] = {"alpha": alpha, "num_inducing": num_inducing, "random_state": 0}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fitted = PEPClassifier(max_seconds=seconds, **options).fit(X, labels)
    assert any("The time was over." in str(each.message) for each in caught)
    if alpha == "mix":
        assert len(fitted.model_.models) == 3 and fitted.model_.record.weights_from == "uniform"
        assert any("The powers have equal weights" in str(each.message) for each in caught)
    assert clock[0] <= seconds + 2.0 and fitted.record_ is not None
    assert fitted.record_.message == "The time was over."
    assert np.isfinite(fitted.predict_proba(X)).all()


def test_seconds_are_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    estimator = PEPRegressor(max_seconds=8.0)
    train = trainer.Trainer(estimator, 4, estimator.max_seconds)
    monkeypatch.setattr(trainer.time, "perf_counter", lambda: train.end - 6.0)
    np.testing.assert_allclose(train.share_ends() - (train.end - 6.0), 1.5)


@pytest.mark.parametrize(
    "second, gain, converged",
    [(NO_STEP, 1e-6, True), (NO_STEP, 1e-3, False), ("The time was over.", 0.0, False)],
)
def test_a_line_search_without_a_step_starts_once_more(
    second: str, gain: float, converged: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = maximise(PEPRegressor(**QUICK).fit(X, Y).model_, max_iterations=1)
    first = record._replace(objective=3.0, iterations=4, converged=False, message=NO_STEP)
    again = first._replace(objective=3.0 + gain * len(X), iterations=2, message=second)
    left = iter([first, again])
    monkeypatch.setattr(trainer.Trainer, "_maximise", lambda *_: next(left))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        record = PEPRegressor(**QUICK).fit(X, Y).record_
    assert record is not None and record.iterations == 6 and record.converged == converged
    assert any("Training ended" in str(each.message) for each in caught) != converged
    assert next(left, None) is None
