"""The comparison: candidates, what is saved, failures that stay with their fit, shares
of time.
"""

import time
import warnings
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import gpflow
import numpy as np
import pandas as pd
import pytest
import scipy.stats
import tensorflow as tf
from compare.small_comparison import (
    real,
    small_classification,
    small_comparison,
    small_table,
)
from helpers import before_calls
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.dummy import DummyRegressor
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import Pipeline

from gpflow_pep.compare import (
    Settings,
    candidates,
    clean,
    compare,
    run,
    schedule,
    trials,
)
from gpflow_pep.compare.candidates import WholeSVGP, make_candidates
from gpflow_pep.compare.findings import findings
from gpflow_pep.compare.run import IMPORTANCE
from gpflow_pep.compare.terminal import legend
from gpflow_pep.compare.trials import Trial, Trials
from gpflow_pep.estimators import PEPClassifier, PEPRegressor
from gpflow_pep.estimators.recipe import regression as stack
from gpflow_pep.models import PEPRegression
from gpflow_pep.training.fitting.objectives import WholeLoss

X40 = small_table()[["time"]]
Y40 = small_table()["load"]
NUMBERS = clean(small_table(), "load")
SMALL: dict[str, Any] = {
    "num_inducing": 4,
    "alphas": (0.5,),
    "baselines": False,
    "details": False,
}


def test_the_saved_model_is_trained_on_all_rows_of_the_users_table() -> None:
    comparison = small_comparison()
    model = comparison.model
    final = comparison.final
    assert final.model == comparison.best == "default" and final.num_rows == 40
    assert isinstance(model, Pipeline) and list(model.feature_names_in_) == ["time"]
    alone = PEPRegressor(max_iterations=15, random_state=2).fit(
        model[:-1].transform(X40), Y40
    )
    assert_allclose(model.predict(X40), alone.predict(X40.to_numpy()), rtol=1e-6)


def with_scores(**nlpd: Any) -> Any:
    """The small comparison with an NLPD of each fold for some models."""
    comparison = small_comparison()
    values = {name.replace("alpha_", "alpha "): scores for name, scores in nlpd.items()}
    fits = [
        (
            fit._replace(scores={**fit.scores, "nlpd": values[fit.model][fit.part - 1]})
            if fit.model in values
            else fit
        )
        for fit in comparison.fits
    ]
    return replace(comparison, fits=fits)


@pytest.mark.parametrize(
    "alpha_0, alpha_1, saved",
    [
        ([1.0, 1.0], [2.0, 2.0], "default"),  # the same
        ([0.9, 0.5], [2.0, 2.0], "default"),  # by .3 +- .35
        ([0.8, 0.801], [2.0, 2.0], "alpha 0"),  # by .2 +- .0009
        # Of two that are better the better one.
        (
            [0.8, 0.801],
            [0.6, 0.601],
            "alpha 1",
        ),
        # If one model is clearly better, the best score of all decides.
        (
            [0.8, 0.801],
            [0.9, 0.2],
            "alpha 1",
        ),
        ([np.nan, 0.5], [2.0, 2.0], "default"),
    ],
)
def test_the_default_is_saved_unless_another_is_clearly_better(
    alpha_0: list[float], alpha_1: list[float], saved: str
) -> None:
    """By Student's t of two folds, whose limit at 5% is 12.7 standard errors; no
    baseline is.
    """
    baseline = {"linear": [0.1, 0.1]}
    comparison = with_scores(
        default=[1.0, 1.0], alpha_0=alpha_0, alpha_1=alpha_1, **baseline
    )
    assert run.best_of(comparison) == saved
    assert comparison.choices == ["default", "alpha 1", "alpha 0"]
    failed = with_scores(default=[np.nan, 1.0], alpha_0=alpha_0, alpha_1=alpha_1)
    losses = {"alpha 0": np.mean(alpha_0), "alpha 1": np.mean(alpha_1)}
    assert run.best_of(failed) == min(
        losses, key=lambda n: np.nan_to_num(losses[n], nan=9.0)
    )


@pytest.mark.slow
def test_the_default_has_nothing_set() -> None:
    """But the seed and, where they are named, the likelihood and no near rows."""
    classes = clean(real("two classes").table, "mail")
    for data, kind in ((NUMBERS, PEPRegressor), (classes, PEPClassifier)):
        for near_rows in (True, False):
            settings = Settings(num_inducing=7, kernel="matern32", near_rows=near_rows)
            made = {
                name: each
                for name, (_, each) in make_candidates(data, settings).items()
            }
            asked = {
                n: each.get_params().get("near_rows", 0) for n, each in made.items()
            }
            estimator = made["default"]
            near = {} if near_rows else {"near_rows": 0}
            assert type(estimator) is kind
            assert estimator.get_params() == kind(random_state=0, **near).get_params()
            assert asked.pop("default") == ("auto" if near_rows else 0)
            assert not any(asked.values())
    named = make_candidates(NUMBERS, Settings(likelihood="student_t"))["default"][1]
    expected = PEPRegressor(likelihood="student_t", random_state=0)
    assert named.get_params() == expected.get_params()


def test_settings_reach_the_estimators() -> None:
    given: dict[str, Any] = {
        "alphas": (0.3,),
        "num_inducing": 7,
        "seed": 5,
        "max_iterations": 9,
    }
    given |= {"init": "variance", "near_rows": False, "kernel": "matern32"}
    found = make_candidates(NUMBERS, Settings(**given))
    options = found["alpha 0.3"][1].get_params()
    expected = {
        "alpha": 0.3,
        "num_inducing": 7,
        "random_state": 5,
        "max_iterations": 9,
        "near_rows": 0,
        "inducing": "greedy_variance",
        "kernel": "matern32",
        "likelihood": "gaussian",
    }
    assert {name: options[name] for name in expected} == expected
    options = found["exact GP"][1].get_params()
    assert (options["kernel"], options["inducing"], options["near_rows"]) == (
        "matern52",
        "rows",
        0,
    )
    many = make_candidates(NUMBERS, Settings())
    numbers = {name: many[name][1].get_params().get("num_inducing") for name in many}
    assert numbers["alpha 0.5"] == numbers["default"] == "auto"


def test_which_baselines_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    def names(**settings: Any) -> list[str]:
        return list(make_candidates(NUMBERS, Settings(**settings)))

    assert "exact GP" in names() and "exact GP" in names(likelihood="log_normal")
    assert "exact GP" not in names(likelihood="student_t")
    assert "linear" not in names(likelihood="negative_binomial")
    assert names(baselines=False) == [
        "default",
        "alpha 0",
        "alpha 0.5",
        "alpha 1",
        "mean",
    ]
    monkeypatch.setattr(candidates, "EXACT_ROWS", 39)
    assert "exact GP" not in names()


def test_the_spread_is_of_rows_held_out_or_of_all() -> None:
    X = np.random.default_rng(0).normal(size=(50, 2))
    y = np.random.default_rng(1).normal(size=50)
    train, test = train_test_split(np.arange(50), test_size=0.2, random_state=0)
    held_out = np.isin(np.arange(50), test)
    fitted = candidates.WithSpread(LinearRegression()).fit(X, y, held_out)
    other = LinearRegression().fit(X[train], y[train])
    mean, deviation = fitted.predict(X[:3], return_std=True)
    assert_allclose(mean, LinearRegression().fit(X, y).predict(X[:3]))
    assert_allclose(
        deviation, np.sqrt(np.mean((y[test] - other.predict(X[test])) ** 2))
    )
    quantiles = fitted.predict_quantiles(X[:3], [0.1])[:, 0]
    assert_allclose(quantiles, scipy.stats.norm.ppf(0.1, mean, deviation))
    y = np.array([1.0, 3.0, 8.0])
    constant = candidates.WithSpread(DummyRegressor()).fit(np.zeros([3, 1]), y)
    trivial = scipy.stats.norm(4.0, np.std(y))
    densities = constant.log_densities(np.zeros([2, 1]), [0.0, 5.0])
    assert_allclose(densities, trivial.logpdf([0.0, 5.0]))
    ends = constant.predict_quantiles(np.zeros([1, 1]), [0.1, 0.9])
    assert_allclose(ends, [trivial.ppf([0.1, 0.9])])


@pytest.mark.slow
@pytest.mark.parametrize("excess", [0.0, 0.5])
def test_baselines_of_counts_predict_probabilities(excess: float) -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (400, 1))
    mean = np.exp(1.0 + X[:, 0])
    noise = rng.gamma(1.0 / excess, excess, 400) if excess else 1.0
    y = rng.poisson(mean * noise).astype(float)
    data = clean(pd.DataFrame(X, columns=["x"]).assign(y=y), "y")
    made = make_candidates(data, Settings(likelihood="poisson"))
    *_, mean_alone, line, trees = (estimator for _, estimator in made.values())
    counts = np.arange(2000.0)
    for model in (mean_alone, line, trees):
        model.fit(X, y)
        densities = model.log_densities(np.full((2000, 1), X[0]), counts)
        assert_allclose(np.exp(densities).sum(), 1.0, atol=1e-6)
        centre, spread = model.predict(X[:1], return_std=True)
        assert_allclose(spread**2, centre + model.excess_ * centre**2, rtol=1e-6)
        assert np.all(model.predict_quantiles(X, [0.05, 0.95]) % 1.0 == 0.0)
    assert_allclose(line.predict(X), mean, rtol=0.3)
    assert_allclose(line.excess_, excess, atol=0.25)
    assert np.mean(line.log_densities(X, y) - mean_alone.log_densities(X, y)) > 0.05


def test_classes_are_split_in_proportion_and_predicted_better_than_by_frequencies() -> (
    None
):
    comparison = small_classification()
    table = real("two classes").table
    labels = table["mail"]
    nlpd = {fit.model: fit.scores["nlpd"] for fit in comparison.fits}
    trained = ("default", "alpha 0.5", "SVGP")
    assert all(nlpd[name] < nlpd["class frequencies"] for name in trained)
    held_out = comparison.held_out["class frequencies"]
    expected = 0.2 * labels.value_counts()
    assert np.all(np.abs(held_out["true"].value_counts() - expected) < 1.0)
    train = labels.drop(held_out.index).value_counts(normalize=True)
    for name in ("ham", "spam"):
        assert_allclose(held_out[f"p({name})"], train[name])


def test_svgp_of_three_classes_converges_where_a_line_separates_them() -> None:
    x = np.linspace(-1.0, 1.0, 90)
    options: dict[str, Any] = {"num_inducing": 6, "alpha": 0.0, "max_seconds": 60.0}
    peer = WholeSVGP("rbf", **options).fit(x[:, None], np.digitize(x, [-0.3, 0.3]))
    assert peer.record_.converged
    assert_allclose(peer.likelihood_.invlink.epsilon, 0.03)


def test_arrays_are_compared_as_tables_are(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(run, "compare_table", lambda data, *_: seen.append(data))
    compare(small_table(), "load")
    compare(X40, Y40)
    compare(X40.to_numpy(), Y40.to_numpy())
    for data, names in zip(
        seen, (("time", "load"), ("time", "load"), ("x0", "y")), strict=True
    ):
        assert (*data.X, data.y.name) == names
        assert_array_equal(data.X, seen[0].X)
        assert_array_equal(data.y, seen[0].y)


ZEROS = np.zeros([12, 1])
FRACTIONS = small_table().round().assign(load=lambda table: table["load"] + 0.5)


@pytest.mark.parametrize(
    "X, y, likelihood, message",
    [
        (
            ZEROS,
            "load",
            "auto",
            r"y: got 'load', expected \[12\] for 12 rows of X. Pass a target",
        ),
        (
            np.zeros(12),
            np.zeros(12),
            "auto",
            r"X: got shape \(12,\), expected \[N, D\]. Reshape",
        ),
        (
            ZEROS,
            np.zeros(11),
            "auto",
            r"y: got shape \(11,\), expected \[12\] .* Pass a target",
        ),
        (
            X40,
            Y40 - Y40.min(),
            "log_normal",
            "got 0 at row .*, expected numbers above 0",
        ),
        (FRACTIONS, "load", "negative_binomial", "expected whole numbers from 0"),
        (
            small_table(),
            "price",
            "auto",
            r"target: got 'price', expected one of the columns 'load'",
        ),
    ],
)
def test_what_does_not_fit_is_refused_first(
    X: Any, y: Any, likelihood: str, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        compare(X, y, likelihood=likelihood, callback=lambda progress: pytest.fail())


def test_callback_is_told_before_and_after_each_fit() -> None:
    comparison = small_comparison()
    progress = real("numbers").progress
    fits = [each.fit for each in progress[1::2]]
    assert fits[: len(comparison.fits) + 1] == [*comparison.fits, comparison.final]
    assert all(each.fit is None for each in progress[::2])
    assert [each.number for each in progress[1::2]] == list(range(1, 17))
    labels = [each.label for each in progress[1::2]]
    assert labels[0] == "default, fold 1 of 2" and progress[0].total == 17
    best = comparison.best
    assert labels[-2:] == [f"{best}, all rows", f"{best}, fold 1 of 2, 50% of its rows"]
    # After the last fit.
    assert progress[-1][:3] == (
        17,
        17,
        "how much each input matters",
    )


SEEN: list[tuple[Any, Any]] = []


class Broken(PEPRegressor):
    """Fails at power 1 and where nothing is set, and has no time otherwise."""

    def fit(self, X: Any, y: Any, **refused: Any) -> PEPRegressor:
        if self.alpha in (1.0, "auto"):
            raise tf.errors.InvalidArgumentError(
                None, None, "assertion failed: [it was too hard.]"
            )
        assert self.max_seconds is not None
        self.max_seconds = 1e-9
        SEEN.append((X[:, 0], y))
        return super().fit(X, y)


def test_a_fit_that_fails_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which are trained on the other rows alone, and at last on all."""
    monkeypatch.setattr(candidates, "PEPRegressor", Broken)
    options = {**SMALL, "num_inducing": 2, "alphas": (1.0, 0.0), "max_iterations": 15}
    comparison = compare(small_table(), "load", splits=1, **options)
    (failed,), (good,) = (comparison.fits_of(name) for name in ("alpha 1", "alpha 0"))
    assert (
        failed.failed and not failed.converged and failed.message == "it was too hard."
    )
    assert not good.failed and not good.converged and good.iterations <= 1
    assert good.message.startswith("The time ran out.")
    assert comparison.best == "alpha 0" and "alpha 1" not in comparison.held_out
    rest = small_table().drop(comparison.held_out["alpha 0"].index)
    for (X, y), expected in zip(SEEN, (rest, small_table()), strict=True):
        assert_array_equal(X, expected["time"])
        assert_array_equal(y, expected["load"])


def test_sites_that_do_not_converge_are_reported() -> None:
    model = gpflow.utilities.deepcopy(small_classification().model[-1].model_)
    estimator = SimpleNamespace(model_=model)
    assert trials._sites_message(estimator) == ""
    model.max_sweeps = 1
    model.tolerance = 1e-12
    with pytest.warns(match="did not converge"):
        model.posterior()
    trouble = trials._sites_message(estimator)
    assert (
        "the sites did not converge: residual" in trouble and "below 1e-12" in trouble
    )


def test_no_gpflow_model_is_made_to_look_for_sites() -> None:
    X = np.linspace(0.0, 1.0, 30)[:, None]
    estimator = PEPRegressor(random_state=0).fit(X, np.sin(6.0 * X[:, 0]))
    assert trials._sites_message(estimator) == ""
    assert estimator.mixture_.heaviest._model is None


def test_training_of_other_components_is_not_compilation() -> None:
    """The default had half a second for its steps after a first fit of 30 seconds."""
    settings = Settings(splits=1, alphas=(0.5,), num_inducing=3, max_iterations=2)
    of_table = Trials(NUMBERS, settings)
    default = of_table.run(Trial("default", 1), 1.0)
    single = of_table.run(Trial("alpha 0.5", 1), 1.0)
    assert default.overhead == 0.0 < single.overhead < single.fit.seconds


def test_time_is_shared_among_the_fits_that_are_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
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
    # And the next one, which begins at the same time.
    assert two_at_once.share("a") == 60.0
    now += 60.0 - 15.0
    assert two_at_once.share("a") == 15.0  # the last one cannot take more than there is


@pytest.mark.parametrize(
    "minutes, left_out", [(1e-6, ["alpha 0.5", "fold 2 of 2"]), (0.07, ["fold 2 of 2"])]
)
def test_no_fit_begins_after_the_end(
    minutes: float, left_out: list[str], monkeypatch: Any
) -> None:
    """By a clock that evaluations alone move on, each by a second. Only the model of
    all rows.
    """
    clock = [0.0]
    begun = []
    densities = [0.0]
    before_calls(
        monkeypatch, WholeLoss, "__call__", lambda: clock.append(clock.pop() + 1.0)
    )
    before_calls(monkeypatch, PEPRegressor, "fit", lambda: begun.append(clock[0]))

    def note():
        return densities.append(clock[0])

    before_calls(monkeypatch, PEPRegression, "loo_log_density", note)
    monkeypatch.setattr(stack, "EXACT_ROWS", 0)  # whose losses are others
    monkeypatch.setattr(stack, "LEAST_SECONDS", np.inf)
    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])
    shown: list[Any] = []
    options = {
        **SMALL,
        "num_inducing": 2,
        "max_iterations": 2,
        "folds": 2,
        "details": True,
    }
    comparison = compare(
        small_table(), "load", callback=shown.append, minutes=minutes, **options
    )
    end = 60.0 * minutes
    assert sum(second > end for second in begun) <= 1 and max(densities) <= end
    # Each that begins late compiles, and has one evaluation.
    assert clock[0] <= end + 2.0 * sum(second >= end - 1.0 for second in begun)
    assert comparison.left_out == (*left_out, "the learning curve")
    # It takes no second of this clock.
    assert comparison.details is not None and comparison.details.importance is not None
    assert len(comparison.details.learning) == 1
    kept = {(fit.model, fit.part) for fit in comparison.fits}
    assert kept == {(name, part) for name in comparison.candidates for _, part in kept}
    assert len(kept) == len(comparison.fits) and not any(
        fit.failed for fit in comparison.fits
    )
    assert comparison.model is not None
    assert shown[-1][:3] == (shown[-1].total, shown[-1].total, IMPORTANCE)
    assert not any("of its rows" in each.label for each in shown)
    assert not any(each.fit is not None and each.fit.failed for each in shown)
    assert "standard error over 1 fold" in legend(comparison)
    told = "".join(kind + text for kind, text in findings(comparison))
    assert "Do not use it yet: in 1 of 1 fold the time ran out" in told
    assert "the learning curve. Raise --minutes" in told
    assert "most important of" not in told  # there is one input


def test_densities_of_logarithms_are_those_of_the_target() -> None:
    """So that they can be compared with those of baselines, which predict the
    target.
    """
    logarithm = Y40 / 1000.0
    options = {**SMALL, "splits": 1, "max_iterations": 2}
    of_target, by_hand = (
        compare(X40.assign(load=y), "load", likelihood=likelihood, **options)
        for y, likelihood in (
            (np.exp(logarithm), "log_normal"),
            (logarithm, "gaussian"),
        )
    )
    held_out = of_target.held_out["alpha 0.5"]
    expected = by_hand.held_out["alpha 0.5"]
    assert_allclose(held_out["true"], np.exp(expected["true"]))
    shift = expected["log_density"] - expected["true"]
    assert_allclose(held_out["log_density"], shift, rtol=1e-6)
    assert_allclose(held_out["lower_90"], np.exp(expected["lower_90"]), rtol=1e-6)
    assert_allclose(held_out["pit"], expected["pit"], rtol=1e-6)


def test_wild_inputs_and_copies_are_named_by_the_rows_of_the_table_alone() -> None:
    """Rows of a fold have other numbers."""
    wild = small_table()
    wild.iloc[10:20] = wild.iloc[20:30].to_numpy()
    wild.loc[7, "time"] = 1e9
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        comparison = compare(wild, "load", splits=1, max_iterations=2, **SMALL)
    assert not [
        w for w in caught if "X: got" in str(w.message) or "copies" in str(w.message)
    ]
    assert any(
        "20 of 40 rows have the same inputs" in note for note in comparison.data.notes
    )
    assert "Column 'time' is 1e+09 in row 7" in comparison.data.warnings[0]
