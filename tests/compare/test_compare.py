"""The comparison: scores in original units, failures that stay with their fit, shares of time."""

import time
import warnings
from dataclasses import replace
from typing import Any

import gpflow
import numpy as np
import pandas as pd
import pytest
import scipy.stats
import tensorflow as tf
from compare.small_comparison import (
    ALPHAS,
    CLASSES,
    OPTIONS,
    PROGRESS,
    small_classes,
    small_classification,
    small_comparison,
    small_table,
)
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.dummy import DummyRegressor
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import Pipeline
from threadpoolctl import threadpool_limits

from gpflow_pep.compare import (
    Comparison,
    Settings,
    candidates,
    clean,
    compare,
    findings,
    run,
    schedule,
    trials,
)
from gpflow_pep.compare.terminal import legend
from gpflow_pep.estimators import PEPClassifier, PEPRegressor, stack
from gpflow_pep.models import PEPRegression
from gpflow_pep.training.fitting.objectives import WholeLoss


def made_candidates(data: Any, settings: Settings) -> dict[str, tuple[float, Any]]:
    return candidates.make_candidates(data, settings)


X40, Y40 = small_table()[["time"]], small_table()["load"]
MODELS = ["default", "alpha 1", "alpha 0", "mean", "linear", "boosted trees", "exact GP"]
TRAINED = {"default", "alpha 1", "alpha 0", "exact GP"}


def test_every_model_is_fitted_in_every_fold() -> None:
    comparison = small_comparison()
    assert list(comparison.candidates) == MODELS
    assert [(fit.part, fit.model) for fit in comparison.fits] == [
        (part, model) for part in (1, 2) for model in MODELS
    ]
    for fit in comparison.fits:
        assert np.all(np.isfinite(list(fit.scores.values()))) and not fit.failed
        assert fit.seconds > 0.0
        assert (1 <= fit.iterations <= 15) == (fit.model in TRAINED)
        assert np.isfinite(fit.log_z) == fit.model.startswith("alpha")


@pytest.mark.parametrize("model", MODELS)
def test_folds_hold_out_every_row_once(model: str) -> None:
    table = small_comparison().held_out[model]
    assert sorted(table.index) == list(range(40))
    assert_array_equal(table["part"].value_counts(), [20, 20])
    assert_array_equal(table["true"], small_table()["load"].loc[table.index])


@pytest.mark.parametrize("model", MODELS)
def test_scores_recomputed_from_the_predictions(model: str) -> None:
    comparison = small_comparison()
    for fit in comparison.fits_of(model):
        held_out = comparison.held_out[model].query("part == @fit.part")
        y, mean, sd = (held_out[name].to_numpy() for name in ("true", "mean", "sd"))
        density, low, high = (held_out[n] for n in ("log_density", "lower_90", "upper_90"))
        assert_allclose(fit.scores["nlpd"], -np.mean(density), rtol=1e-8)
        assert_allclose(fit.scores["rmse"], np.sqrt(np.mean((y - mean) ** 2)))
        assert_allclose(fit.scores["coverage"], np.mean((low <= y) & (y <= high)))
        if model != "default":  # which is no single Gaussian
            assert_allclose(density, scipy.stats.norm(mean, sd).logpdf(y), rtol=1e-8)
            assert_allclose(high - mean, 1.6448536269514722 * sd)
            assert_allclose(mean - low, 1.6448536269514722 * sd)


def test_the_saved_model_is_trained_on_all_rows() -> None:
    comparison = small_comparison()
    model, final = comparison.model, comparison.final
    assert model is not None and final is not None and final.part == 0 and not final.failed
    assert final.model == comparison.best == "default"
    assert final.num_rows == 40
    alone = PEPRegressor(max_iterations=15, random_state=2).fit(model[:-1].transform(X40), Y40)
    assert_allclose(model.predict(X40), alone.predict(X40.to_numpy()), rtol=1e-6)


def with_scores(**nlpd: Any) -> Comparison:
    """The small comparison with an NLPD of each fold for some models."""
    comparison = small_comparison()
    values = {name.replace("alpha_", "alpha "): scores for name, scores in nlpd.items()}
    fits = [
        fit._replace(scores={**fit.scores, "nlpd": values[fit.model][fit.part - 1]})
        if fit.model in values else fit for fit in comparison.fits
    ]  # fmt: skip
    return replace(comparison, fits=fits)


@pytest.mark.parametrize(
    "alpha_0, alpha_1, saved",
    [
        ([1.0, 1.0], [2.0, 2.0], "default"),  # the same
        ([0.9, 0.5], [2.0, 2.0], "default"),  # by .3 +- .35
        ([0.8, 0.801], [2.0, 2.0], "alpha 0"),  # by .2 +- .0009
        ([0.8, 0.801], [0.6, 0.601], "alpha 1"),  # of two that are better the better one
        ([0.8, 0.801], [0.9, 0.2], "alpha 0"),  # and not one with a lower mean by chance
        ([np.nan, 0.5], [2.0, 2.0], "default"),
    ],
)
def test_the_default_is_saved_unless_another_model_is_clearly_better(
    alpha_0: list[float], alpha_1: list[float], saved: str
) -> None:
    """By Student's t of two folds, whose limit at 5% is 12.7 standard errors."""
    comparison = with_scores(default=[1.0, 1.0], alpha_0=alpha_0, alpha_1=alpha_1)
    assert run.best_of(comparison) == saved
    failed = with_scores(default=[np.nan, 1.0], alpha_0=alpha_0, alpha_1=alpha_1)
    losses = {"alpha 0": np.mean(alpha_0), "alpha 1": np.mean(alpha_1)}
    assert run.best_of(failed) == min(losses, key=lambda n: np.nan_to_num(losses[n], nan=9.0))


def test_no_baseline_is_saved() -> None:
    comparison = with_scores(default=[1.0, 1.0], linear=[0.1, 0.1])
    assert run.best_of(comparison) == "default"
    assert comparison.choices == ["default", "alpha 1", "alpha 0"]


def test_the_default_has_nothing_set() -> None:
    """But the seed and, where they are named, the likelihood and no near rows."""
    numbers, classes = clean(small_table(), "load"), clean(small_classes(), "mail")
    for data, kind in ((numbers, PEPRegressor), (classes, PEPClassifier)):
        estimator = made_candidates(data, Settings(num_inducing=7, kernel="matern32"))["default"][1]
        assert type(estimator) is kind
        assert estimator.get_params() == kind(random_state=0).get_params()
    named = made_candidates(numbers, Settings(likelihood="student_t", near_rows=False))
    estimator = named["default"][1]
    expected = PEPRegressor(likelihood="student_t", near_rows=0, random_state=0)
    assert estimator.get_params() == expected.get_params()


def test_the_exact_gp_is_gpflows() -> None:
    table = small_table()
    X, y = table[["time"]].to_numpy(), table["load"].to_numpy()
    exact = made_candidates(clean(table, "load"), Settings(max_iterations=3))["exact GP"][1]
    with pytest.warns(match="Training ended after 3 steps"):
        exact.fit(X, y)
    standard, scale = (X - X.mean()) / X.std(), y.std()
    kernel, noise = exact.kernel_, exact.likelihood_.variance
    data = standard, (y[:, None] - y.mean()) / scale
    model = gpflow.models.GPR(data, kernel, likelihood=gpflow.likelihoods.Gaussian(noise))
    mean, variance = model.predict_y(standard[:5])
    found, sd = exact.predict(X[:5], return_std=True)
    # Up to the jitter of the covariance at the rows, some 1e-6 of the kernel's variance.
    assert_allclose(found, mean[:, 0] * scale + y.mean(), atol=1e-5 * scale)
    assert_allclose(sd, np.sqrt(variance[:, 0]) * scale, atol=1e-5 * scale)


def test_the_spread_is_of_rows_held_out() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(50, 2)), rng.normal(size=50)
    fitted = candidates.WithSpread(LinearRegression()).fit(X, y)
    train, test = train_test_split(np.arange(50), test_size=0.2, random_state=0)
    other = LinearRegression().fit(X[train], y[train])
    sd = np.sqrt(np.mean((y[test] - other.predict(X[test])) ** 2))
    mean, deviation = fitted.predict(X[:3], return_std=True)
    assert_allclose(mean, LinearRegression().fit(X, y).predict(X[:3]))
    assert_allclose(deviation, sd)
    assert_allclose(
        fitted.predict_quantiles(X[:3], [0.1])[:, 0], scipy.stats.norm.ppf(0.1, mean, sd)
    )


def test_the_mean_is_a_gaussian_of_the_training_rows() -> None:
    y = np.array([1.0, 3.0, 8.0])
    mean = candidates.WithSpread(DummyRegressor(), 0.0).fit(np.zeros([3, 1]), y)
    trivial = scipy.stats.norm(4.0, np.std(y))
    assert_allclose(mean.log_densities(np.zeros([2, 1]), [0.0, 5.0]), trivial.logpdf([0.0, 5.0]))
    assert_allclose(mean.predict_quantiles(np.zeros([1, 1]), [0.1, 0.9]), [trivial.ppf([0.1, 0.9])])


def test_scores_of_classes_recomputed_from_the_predictions() -> None:
    comparison = small_classification()
    assert list(comparison.candidates) == [
        "default", "alpha 0.5", "class frequencies", "linear", "boosted trees", "SVGP",
    ]  # fmt: skip
    for model in comparison.candidates:
        (fit,), held_out = comparison.fits_of(model), comparison.held_out[model]
        labels = held_out["true"].map(CLASSES.index).to_numpy()
        probability = held_out[[f"p({name})" for name in CLASSES]].to_numpy()
        assert_allclose(np.sum(probability, axis=1), 1.0, rtol=1e-9)
        own = probability[np.arange(len(labels)), labels]
        assert_allclose(held_out["log_density"], np.log(own))
        assert_allclose(fit.scores["nlpd"], -np.mean(np.log(own)))
        assert list(held_out["predicted"]) == [CLASSES[c] for c in np.argmax(probability, axis=1)]
        wrong = held_out["predicted"] != held_out["true"]
        assert_allclose(fit.scores["error"], np.mean(wrong))
    nlpd = {fit.model: fit.scores["nlpd"] for fit in comparison.fits}
    trained = ("default", "alpha 0.5", "SVGP")
    assert all(nlpd[name] < nlpd["class frequencies"] for name in trained)


def test_classes_are_split_in_proportion() -> None:
    whole = small_classes()["mail"].value_counts()
    held_out = small_classification().held_out["SVGP"]["true"].value_counts()
    assert np.all(np.abs(held_out - 0.2 * whole) < 1.0)


def test_frequencies_are_those_of_the_training_rows() -> None:
    table = small_classification().held_out["class frequencies"]
    train = small_classes()["mail"].drop(table.index).value_counts(normalize=True)
    for name in CLASSES:
        assert_allclose(table[f"p({name})"], train[name])


def test_columns_in_another_order_give_the_same_predictions() -> None:
    model, X = small_classification().model, small_classes()[["length", "width"]]
    assert model is not None
    assert_array_equal(model.predict_proba(X[["width", "length"]]), model.predict_proba(X))
    with pytest.raises(ValueError, match="columns"):
        model.predict(X.rename(columns={"width": "height"}))


def test_arrays_are_compared_as_tables_are(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(run, "compare_table", lambda data, *_: seen.append(data))
    table = small_table()
    compare(table, "load")
    compare(table[["time"]], table["load"])
    compare(table[["time"]].to_numpy(), table["load"].to_numpy())
    assert [(list(data.X), data.y.name) for data in seen] == [
        (["time"], "load"), (["time"], "load"), (["x0"], "y"),
    ]  # fmt: skip
    for data in seen:
        assert_array_equal(data.X, seen[0].X)
        assert_array_equal(data.y, seen[0].y)


@pytest.mark.parametrize(
    "X, y, message",
    [
        (np.zeros([12, 1]), "load", r"X: got ndarray and the name 'load' .* Pass a DataFrame"),
        (np.zeros(12), np.zeros(12), r"X: got shape \(12,\), expected \[N, D\]. Reshape"),
        (
            np.zeros([12, 1]),
            np.zeros(11),
            r"y: got shape \(11,\), expected \[12\] .* Pass a target",
        ),
        (small_table(), "price", r"target: got 'price', expected one of the columns 'load'"),
    ],
)
def test_inputs_and_targets_that_do_not_fit(X: Any, y: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        compare(X, y)


def test_callback_is_told_before_and_after_each_fit() -> None:
    comparison = small_comparison()
    fits = [progress.fit for progress in PROGRESS[1::2]]
    assert fits[: len(comparison.fits) + 1] == [*comparison.fits, comparison.final]
    assert all(progress.fit is None for progress in PROGRESS[::2])
    assert [progress.number for progress in PROGRESS[1::2]] == list(range(1, 17))
    labels = [progress.label for progress in PROGRESS[1::2]]
    assert labels[0] == "default, fold 1 of 2" and PROGRESS[0].total == 17
    best = comparison.best
    assert labels[-2:] == [f"{best}, all rows", f"{best}, fold 1 of 2, 50% of its rows"]
    assert PROGRESS[-1][:3] == (17, 17, "how much each input matters")  # after the last fit


SEEN: list[tuple[Any, Any]] = []


class Broken(PEPRegressor):
    """Fails at power 1 and where nothing is set, and has no time otherwise."""

    def fit(self, X: Any, y: Any, **refused: Any) -> PEPRegressor:
        if self.alpha in (1.0, "auto"):
            raise tf.errors.InvalidArgumentError(None, None, "assertion failed: [it was too hard.]")
        assert self.max_seconds is not None
        self.max_seconds = 1e-9
        SEEN.append((X[:, 0], y))
        return super().fit(X, y)


@pytest.fixture(scope="module")
def with_failure() -> Comparison:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(candidates, "PEPRegressor", Broken)
        options = {**OPTIONS, "num_inducing": 2, "details": False}
        return compare(small_table(), "load", alphas=ALPHAS, splits=1, baselines=False, **options)


def test_a_fit_that_fails_leaves_the_others(with_failure: Comparison) -> None:
    (failed,), (good,) = (with_failure.fits_of(name) for name in ("alpha 1", "alpha 0"))
    assert failed.failed and not failed.converged and failed.message == "it was too hard."
    assert not good.failed and not good.converged and good.iterations <= 1
    assert good.message.startswith("The time was over.")
    assert with_failure.best == "alpha 0" and "alpha 1" not in with_failure.held_out


def test_trained_on_the_other_rows_alone(with_failure: Comparison) -> None:
    table, held_out = small_table(), with_failure.held_out["alpha 0"]
    rest = table.drop(held_out.index)
    for (X, y), expected in zip(SEEN, (rest, table), strict=True):  # and at last on all rows
        assert_array_equal(X, expected["time"])
        assert_array_equal(y, expected["load"])


def test_sites_that_do_not_converge_are_reported() -> None:
    pipeline = small_classification().model
    assert pipeline is not None
    model = gpflow.utilities.deepcopy(pipeline[-1].model_)
    assert trials._sites_message(model) == ""
    model.max_sweeps, model.tolerance = 1, 1e-12
    with pytest.warns(match="did not converge"):
        model.posterior()
    trouble = trials._sites_message(model)
    assert "the sites did not converge: residual" in trouble and "below 1e-12" in trouble


def test_time_is_shared_among_the_fits_that_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(time, "perf_counter", lambda: now)
    clock = schedule.TimeBudget(60.0, 4)
    assert clock.share("a") == 15.0
    now += 3.0  # it has converged early
    clock.overhead["a"] = 2.0  # of which so much was compiling
    assert clock.share("b") == pytest.approx(57.0 / 3)
    assert clock.share("a") == pytest.approx(57.0 / 2 - 2.0)
    now += 100.0
    assert clock.share("b") == 1e-3  # for one evaluation
    two_at_once = schedule.TimeBudget(60.0, 3, at_once=2)
    two_at_once.overhead |= {"b": 2.0, "c": 10.0}  # c has compiled what others share
    now += 60.0 - 4.5
    assert not two_at_once.is_over()
    now += 1.0  # no time for another fit, and for the model of all rows
    assert two_at_once.is_over()
    now -= 60.0 - 3.5
    assert two_at_once.share("a") == 40.0
    assert two_at_once.share("a") == 60.0  # and the next one, which begins at the same time
    now += 60.0 - 15.0
    assert two_at_once.share("a") == 15.0  # the last one cannot take more than there is


def test_no_learning_curve_after_the_end() -> None:
    """The last of all steps is shown in any case."""
    shown: list[Any] = []
    options = {**OPTIONS, "num_inducing": 2, "details": True, "minutes": 1e-6}
    options |= {"alphas": (0.5,), "baselines": False, "folds": 2}
    comparison = compare(small_table(), "load", callback=shown.append, **options)
    assert comparison.details is not None and len(comparison.details.learning) == 1
    assert not any("of its rows" in progress.label for progress in shown)
    assert shown[-1][:3] == (shown[-1].total, shown[-1].total, "how much each input matters")


@pytest.mark.parametrize(
    "minutes, left_out",
    [
        (1e-6, ["alpha 0", "alpha 0.5", "alpha 1", "fold 2 of 3", "fold 3 of 3"]),
        (0.2, ["fold 2 of 3", "fold 3 of 3"]),
        (60.0, []),
    ],
)
def test_no_fit_begins_after_the_end(
    minutes: float, left_out: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a clock that evaluations alone move on, each by a second. Only the model of all rows."""
    clock, evaluated, fitted = [0.0], WholeLoss.__call__, PEPRegressor.fit
    begun: list[float] = []
    densities: list[float] = []
    of_left_out = PEPRegression.loo_log_density

    def call(self: WholeLoss, x: Any) -> Any:
        clock[0] += 1.0
        return evaluated(self, x)

    def fit(self: PEPRegressor, *data: Any, **refused: Any) -> PEPRegressor:
        begun.append(clock[0])
        return fitted(self, *data, **refused)

    def left_out_densities(self: PEPRegression) -> Any:
        densities.append(clock[0])
        return of_left_out(self)

    monkeypatch.setattr(stack, "EXACT_ROWS", 0)  # whose losses are others
    monkeypatch.setattr(stack, "LEAST_SECONDS", np.inf)
    monkeypatch.setattr(WholeLoss, "__call__", call)
    monkeypatch.setattr(PEPRegressor, "fit", fit)
    monkeypatch.setattr(PEPRegression, "loo_log_density", left_out_densities)
    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])
    shown: list[Any] = []
    options = {**OPTIONS, "num_inducing": 2, "baselines": False, "folds": 3, "minutes": minutes}
    options |= {"max_iterations": 2}
    comparison = compare(small_table(), "load", callback=shown.append, **options)
    end = 60.0 * minutes
    assert sum(second > end for second in begun) <= 1 and max([0.0, *densities]) <= end
    late = sum(second >= end - 1.0 for second in begun)  # each compiles, and has one evaluation
    assert clock[0] <= end + 2.0 * late
    is_over = minutes < 1.0
    assert comparison.left_out[: len(left_out)] == tuple(left_out)
    assert ("how much each input matters" in comparison.left_out) == is_over
    assert comparison.details is not None and (comparison.details.importance is None) == is_over
    kept = {(fit.model, fit.part) for fit in comparison.fits}
    assert kept == {(name, part) for name in comparison.candidates for _, part in kept}
    assert len(kept) == len(comparison.fits) and not any(fit.failed for fit in comparison.fits)
    assert comparison.model is not None and shown[-1].number == shown[-1].total
    assert not any(each.fit is not None and each.fit.failed for each in shown)
    folds = 3 - sum(name.startswith("fold") for name in left_out)
    assert f"standard error over {folds} fold" in legend(comparison)
    told = "".join(kind + text for kind, text in findings.findings(comparison))
    assert ("Do not use it yet: the time was over" in told) == is_over
    assert ("how much each input matters. Raise --minutes" in told) == is_over


def test_exact_gp_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    def names(**settings: Any) -> list[str]:
        return list(made_candidates(clean(small_table(), "load"), Settings(**settings)))

    assert "exact GP" in names()
    assert "exact GP" not in names(likelihood="student_t")
    assert "exact GP" in names(likelihood="log_normal")
    assert "linear" not in names(likelihood="negative_binomial")
    assert names(baselines=False) == ["default", "alpha 0", "alpha 0.5", "alpha 1", "mean"]
    monkeypatch.setattr(candidates, "EXACT_ROWS", 39)
    assert "exact GP" not in names()


@pytest.mark.parametrize(
    "likelihood, target, message",
    [
        ("log_normal", lambda y: y - y.min(), "got 0 at row .*, expected numbers above 0"),
        ("zero_inflated_poisson", lambda y: y + 0.5, "expected whole numbers from 0"),
    ],
)
def test_targets_of_another_likelihood_are_refused_first(
    likelihood: str, target: Any, message: str
) -> None:
    table = small_table()
    table["load"] = target(table["load"].round())
    with pytest.raises(ValueError, match=message):
        compare(table, "load", likelihood=likelihood, callback=lambda progress: pytest.fail())


@pytest.mark.slow
@pytest.mark.parametrize("excess", [0.0, 0.5])
@threadpool_limits.wrap(limits=1, user_api="openmp")
def test_baselines_of_counts_predict_probabilities(excess: float) -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (400, 1))
    mean = np.exp(1.0 + X[:, 0])
    noise = rng.gamma(1.0 / excess, excess, 400) if excess else 1.0
    y = rng.poisson(mean * noise).astype(float)
    data = clean(pd.DataFrame(X, columns=["x"]).assign(y=y), "y")
    made = made_candidates(data, Settings(likelihood="poisson"))
    *_, mean_alone, line, trees = (estimator for _, estimator in made.values())
    assert list(made)[-3:] == ["mean", "log-linear", "boosted trees"]
    for model in (mean_alone, line, trees):
        model.fit(X, y)
        counts = np.arange(2000.0)
        ones = np.ones_like(counts)[:, None]
        assert_allclose(np.exp(model.log_densities(X[0] * ones, counts)).sum(), 1.0, atol=1e-6)
        centre, spread = model.predict(X[:1], return_std=True)
        assert_allclose(spread**2, centre + model.excess_ * centre**2, rtol=1e-6)
        assert np.all(model.predict_quantiles(X, [0.05, 0.95]) % 1.0 == 0.0)
    assert_allclose(line.predict(X), mean, rtol=0.3)
    assert_allclose(line.excess_, excess, atol=0.25)
    assert np.mean(line.log_densities(X, y) - mean_alone.log_densities(X, y)) > 0.05


def test_densities_of_logarithms_are_those_of_the_target() -> None:
    """So that they can be compared with those of baselines, which predict the target."""
    table = small_table()
    logarithm = table["load"] / 1000.0
    options = {"alphas": (0.5,), "baselines": False, "num_inducing": 5}
    options |= {"folds": 2, "max_iterations": 2}
    of_target, by_hand = (
        compare(table.assign(load=y), "load", likelihood=likelihood, **options)
        for y, likelihood in ((np.exp(logarithm), "log_normal"), (logarithm, "gaussian"))
    )
    held_out, expected = of_target.held_out["alpha 0.5"], by_hand.held_out["alpha 0.5"]
    assert_allclose(held_out["true"], np.exp(expected["true"]))
    shift = expected["log_density"] - expected["true"]
    assert_allclose(held_out["log_density"], shift, rtol=1e-6)
    assert_allclose(held_out["lower_90"], np.exp(expected["lower_90"]), rtol=1e-6)
    assert_allclose(held_out["pit"], expected["pit"], rtol=1e-6)


def test_settings_reach_the_estimators() -> None:
    settings = Settings(
        alphas=(0.3,), num_inducing=7, seed=5, max_iterations=9, init="variance", near_rows=False,
        kernel="matern32",
    )  # fmt: skip
    found = made_candidates(clean(small_table(), "load"), settings)
    options = found["alpha 0.3"][1].get_params()
    expected = {
        "alpha": 0.3, "num_inducing": 7, "random_state": 5, "max_iterations": 9, "near_rows": 0,
        "inducing": "greedy_variance", "kernel": "matern32", "likelihood": "gaussian",
    }  # fmt: skip
    assert {name: options[name] for name in expected} == expected
    options = found["exact GP"][1].get_params()
    assert (options["kernel"], options["inducing"], options["near_rows"]) == ("matern52", "rows", 0)
    many = made_candidates(clean(small_table(), "load"), Settings())
    numbers = {name: many[name][1].get_params().get("num_inducing") for name in many}
    assert numbers["alpha 0.5"] == numbers["default"] == "auto"


def test_the_model_is_a_pipeline_of_the_users_table() -> None:
    model = small_comparison().model
    assert isinstance(model, Pipeline)
    assert list(model.feature_names_in_) == ["time"]
    mean, sd = model.predict(pd.DataFrame({"time": [101.0, 103.0]}), return_std=True)
    assert mean.shape == sd.shape == (2,)
    assert np.all(np.abs(mean - 2000.0) < 600.0)


def test_a_wild_input_is_named_by_the_row_of_the_table_alone() -> None:
    """Rows of a fold have other numbers."""
    wild = small_table()
    wild.loc[7, "time"] = 1e9
    options = {**OPTIONS, "max_iterations": 3, "baselines": False, "details": False}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        comparison = compare(wild, "load", alphas=(0.5,), folds=2, **options)
    assert not [w for w in caught if "X: got" in str(w.message)]
    assert "Column 'time' is 1e+09 in row 7" in comparison.data.warnings[0]
