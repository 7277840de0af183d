"""The comparison: scores in original units, failures that stay with their alpha."""

from dataclasses import replace
from typing import Any

import gpflow
import numpy as np
import pytest
import scipy.stats
import tensorflow as tf
from compare.small_comparison import (
    ALPHAS,
    CLASSES,
    PROGRESS,
    small_classes,
    small_classification,
    small_comparison,
    small_dataset,
)
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.preprocessing import StandardScaler

import gpflow_pep.compare.cli
import gpflow_pep.compare.fitted
from gpflow_pep.compare import Dataset, FittedClassifier, FittedRegression, compare, run
from gpflow_pep.compare.datasets import EXAMPLES
from gpflow_pep.compare.fitted import build_regression
from gpflow_pep.compare.run import initial_inducing_points
from gpflow_pep.models import PEPRegression


def test_one_result_per_alpha_in_order() -> None:
    results = small_comparison().results
    assert tuple(result.alpha for result in results) == ALPHAS
    for result in results:
        assert np.all(np.isfinite([result.log_z, *result.scores.values()]))
        assert 1 <= result.iterations <= 15
        assert result.seconds > 0.0
        assert not result.failed


def test_best_has_the_lowest_smll() -> None:
    comparison = small_comparison()
    assert comparison.best is not None
    lowest = min(result.scores["smll"] for result in comparison.results)
    assert comparison.best.scores["smll"] == lowest


@pytest.mark.parametrize("alpha", ALPHAS)
def test_scores_recomputed_from_the_predictions(alpha: float) -> None:
    comparison = small_comparison()
    result = comparison.results[ALPHAS.index(alpha)]
    dataset, split = comparison.dataset, comparison.split
    held_out = comparison.held_out_predictions(alpha)
    assert_array_equal(held_out["row"], split.test)
    assert_array_equal(held_out["true"], dataset.Y[split.test, 0])

    assert_allclose(
        result.scores["smse"],
        np.mean((held_out["true"] - held_out["mean"]) ** 2) / np.var(held_out["true"]),
    )
    ours = scipy.stats.norm(held_out["mean"], held_out["sd"]).logpdf(held_out["true"])
    Y_train = dataset.Y[split.train]
    trivial = scipy.stats.norm(np.mean(Y_train), np.std(Y_train)).logpdf(held_out["true"])
    assert_allclose(result.scores["smll"], np.mean(trivial - ours))
    inside = np.abs(held_out["true"] - held_out["mean"]) <= 1.6448536269514722 * held_out["sd"]
    assert_allclose(result.scores["coverage"], np.mean(inside))
    assert_allclose(
        held_out["upper_90"] - held_out["lower_90"], 2 * 1.6448536269514722 * held_out["sd"]
    )


@pytest.mark.parametrize("alpha", ALPHAS)
def test_same_as_a_model_in_original_units(alpha: float) -> None:
    comparison = small_comparison()
    dataset, split = comparison.dataset, comparison.split
    X, Y = dataset.X[split.train], dataset.Y[split.train]
    fitted = comparison.models[alpha]
    assert isinstance(fitted, FittedRegression)
    assert_allclose([fitted.target.mean_, fitted.target.scale_], [Y.mean(axis=0), Y.std(axis=0)])
    x_scale, y_scale = X.std(), Y.std()
    kernel = gpflow.kernels.SquaredExponential(
        variance=fitted.model.kernel.variance.numpy() * y_scale**2,
        lengthscales=fitted.model.kernel.lengthscales.numpy() * x_scale,
    )
    original = PEPRegression(
        (X, Y),
        kernel,
        fitted.model.inducing_variable.Z.numpy() * x_scale + X.mean(),
        alpha=alpha,
        mean_function=gpflow.functions.Constant(Y.mean()),
        noise_variance=fitted.model.likelihood.variance.numpy() * y_scale**2,
    )
    # The jitter on Kuu is a variance: the same model has it in the square of the target's unit.
    jitter = gpflow.config.default_jitter() * y_scale**2
    with gpflow.config.as_context(gpflow.config.Config(jitter=jitter)):
        log_z = original.pep_log_marginal_likelihood().numpy()
        mean, variance = original.predict_y(dataset.X[split.test])
    prediction = fitted.predict(dataset.X[split.test])
    assert_allclose(comparison.results[ALPHAS.index(alpha)].log_z, log_z, rtol=1e-7)
    assert_allclose(prediction.mean, mean, rtol=1e-7)
    assert_allclose(prediction.variance, variance, rtol=1e-7)


def test_inputs_are_standardised_by_the_training_rows() -> None:
    comparison = small_comparison()
    X = comparison.dataset.X[comparison.split.train]
    fitted = comparison.models[0.5]
    standard = fitted.standardise(X)
    assert_allclose(np.mean(standard, axis=0), 0.0, atol=1e-13)
    assert_allclose(np.std(standard, axis=0), 1.0)
    assert_allclose(standard, (X - X.mean(axis=0)) / X.std(axis=0))
    assert_array_equal(standard, fitted.model.data[0])
    tensor = fitted.standardise(tf.constant(X))
    assert isinstance(tensor, tf.Tensor)
    assert_allclose(tensor, standard)


def test_a_column_that_is_constant_in_the_training_rows_keeps_its_unit() -> None:
    X = np.array([[0.1, 1.0], [0.1, 2.0], [0.1, 3.0]])
    fitted = replace(small_comparison().models[0.5], inputs=StandardScaler().fit(X))
    assert fitted.inputs.scale_[0] == 1.0
    assert_allclose(fitted.standardise(np.array([[0.4, 2.0]])), [[0.3, 0.0]])


def test_log_density_is_in_original_units() -> None:
    fitted, y = small_comparison().models[0.5], np.array([[2100.0], [1900.0]])
    X = np.array([[101.0], [103.0]])
    standard = fitted.standardise(X), fitted.target.transform(y)
    expected = fitted.model.predict_log_density(standard) - np.log(fitted.target.scale_)
    assert_allclose(fitted.predict_log_density(X, y), expected)


def test_training_raises_log_z_from_the_same_start() -> None:
    comparison = small_comparison()
    fitted = comparison.models[0.0]
    X, Y = fitted.model.data
    for alpha, trained in comparison.models.items():
        Z = initial_inducing_points(X.numpy(), 6, seed=2)
        start = build_regression(X, Y, Z, alpha)
        gain = trained.model.pep_log_marginal_likelihood() - start.pep_log_marginal_likelihood()
        assert gain > 1.0


def test_callback_counts_the_steps_and_ends_with_the_result() -> None:
    comparison = small_comparison()
    for result in comparison.results:
        events = [event for event in PROGRESS if event.alpha == result.alpha]
        assert [event.iteration for event in events] == [
            *range(1, result.iterations + 1),
            result.iterations,
        ]
        assert [event.result for event in events] == [None] * result.iterations + [result]


def test_a_fit_that_fails_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    build = gpflow_pep.compare.fitted.build_regression

    def build_bad_at_one(X: Any, Y: Any, Z: Any, alpha: float, **options: Any) -> PEPRegression:
        model = build(X, Y, Z, alpha, **options)
        if alpha == 1.0:
            model.kernel.lengthscales.assign([1e-300])
        return model

    monkeypatch.setattr(gpflow_pep.compare.fitted, "build_regression", build_bad_at_one)
    comparison = compare(
        small_dataset(), alphas=(1.0, 0.0), num_inducing=6, max_iterations=1, seed=2
    )
    failed, good = comparison.results
    assert failed.failed and not failed.converged and np.isnan(failed.log_z)
    # Our sentence, without TensorFlow's trace around it.
    assert failed.message.startswith("log marginal likelihood: got NaN or infinity")
    assert failed.message.endswith(".")
    assert "\\" not in failed.message
    assert not good.failed
    assert comparison.best == good
    assert set(comparison.models) == {0.0}
    with pytest.raises(ValueError, match=r"no fitted model for alpha 1.0, expected one of 0.0"):
        comparison.held_out_predictions(1.0)


def test_non_finite_loss_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere(x: Any) -> Any:
        return np.array(np.nan), np.zeros_like(x)

    monkeypatch.setattr(gpflow.optimizers.Scipy, "eval_func", lambda *_, **__: nowhere)
    comparison = compare(small_dataset(), alphas=[0.5], num_inducing=6)
    assert comparison.best is None
    assert "training loss: got nan" in comparison.results[0].message
    assert "expected finite numbers. Start from" in comparison.results[0].message


@pytest.mark.parametrize("num_classes", [pytest.param(2, marks=pytest.mark.slow), 3])
def test_scores_of_classes_recomputed_from_the_predictions(num_classes: int) -> None:
    comparison = small_classification(num_classes)
    names, dataset = CLASSES[:num_classes], comparison.dataset
    labels = dataset.Y[comparison.split.test, 0].astype(int)
    assert comparison.best is not None
    assert comparison.best.scores["nlpd"] == min(r.scores["nlpd"] for r in comparison.results)
    for result in comparison.results:
        held_out = comparison.held_out_predictions(result.alpha)
        probability = held_out[[f"p({name})" for name in names]].to_numpy()
        assert_allclose(np.sum(probability, axis=1), 1.0, rtol=1e-9)
        assert list(held_out["true"]) == [names[label] for label in labels]
        assert list(held_out["predicted"]) == [names[c] for c in np.argmax(probability, axis=1)]
        own = probability[np.arange(len(labels)), labels]
        assert_allclose(result.scores["nlpd"], -np.mean(np.log(own)))
        wrong = np.argmax(probability, axis=1) != labels
        assert_allclose(result.scores["error_rate"], np.mean(wrong))
        # Better than the frequencies of the classes, whatever these few steps have reached.
        frequency = np.bincount(labels) / len(labels)
        assert result.scores["nlpd"] < -np.sum(frequency * np.log(frequency))


@pytest.mark.parametrize("num_classes", [pytest.param(2, marks=pytest.mark.slow), 3])
def test_classes_are_split_in_proportion(num_classes: int) -> None:
    comparison = small_classification(num_classes)
    whole, held_out = (
        np.bincount(Y[:, 0].astype(int), minlength=num_classes)
        for Y in (comparison.dataset.Y, comparison.dataset.Y[comparison.split.test])
    )
    assert np.all(np.abs(held_out - 0.2 * whole) < 1.0)


def test_probabilities_are_those_of_the_model() -> None:
    fitted = small_classification(2).models[1.0]
    X = small_classes(2).X[:7]
    probability, _ = fitted.model.predict_y(fitted.inputs.transform(X))
    assert_allclose(fitted.predict(X).probability[:, 1:], probability, rtol=1e-9)


def test_sites_that_do_not_converge_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    start = run.start

    def start_impatiently(*arguments: Any) -> FittedClassifier:
        fitted = start(*arguments)
        fitted.model.max_sweeps, fitted.model.tolerance = 1, 1e-12
        return fitted

    monkeypatch.setattr(run, "start", start_impatiently)
    dataset = small_classes(2)
    (result,) = compare(dataset, alphas=[0.5], num_inducing=3, max_iterations=1, seed=1).results
    assert not result.failed and not result.converged
    assert "the sites did not converge: residual" in result.message
    assert "expected below 1e-12" in result.message


@pytest.mark.parametrize("num_inducing", [1, 7, 20])
def test_initial_inducing_points(num_inducing: int) -> None:
    X = np.random.default_rng(0).normal(size=(20, 3))
    Z = initial_inducing_points(X, num_inducing, seed=5)
    assert Z.shape == (num_inducing, 3)
    assert len(np.unique(Z, axis=0)) == num_inducing
    assert np.all((X.min(axis=0) - 1e-12 <= Z) & (X.max(axis=0) + 1e-12 >= Z))
    assert_array_equal(Z, initial_inducing_points(X, num_inducing, seed=5))


@pytest.mark.parametrize("init", ["random", "variance"])
def test_initial_inducing_points_that_are_rows(init: str) -> None:
    X = np.random.default_rng(0).normal(size=(20, 3))
    Z = initial_inducing_points(X, 7, 5, init)
    assert_array_equal(Z, initial_inducing_points(X, 7, 5, init))
    assert len(np.unique(Z, axis=0)) == 7
    assert all(np.any(np.all(z == X, axis=1)) for z in Z)


def test_choices_on_the_command_line() -> None:
    assert list(gpflow_pep.compare.cli.EXAMPLES) == list(EXAMPLES)
    assert set(gpflow_pep.compare.cli.INITS) == set(run.INITS)


def test_inducing_points_that_are_asked_for_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(X: Any, Y: Any, Z: Any, alpha: float, **options: Any) -> PEPRegression:
        assert Z.shape == (4, 1)
        assert np.all(np.isin(Z, X))
        raise InterruptedError

    monkeypatch.setattr(gpflow_pep.compare.fitted, "build_regression", stop)
    with pytest.raises(InterruptedError):
        compare(small_dataset(), alphas=[0.5], num_inducing=4, init="random")


def test_k_means_finds_clusters() -> None:
    centres = np.array([[-9.0, 0.0], [0.0, 9.0], [9.0, 0.0]])
    X = np.concatenate([centres + shift for shift in ([0.1, 0.0], [-0.1, 0.0])])
    Z = initial_inducing_points(X, 3, seed=0)
    assert_allclose(Z[np.argsort(Z[:, 0])], centres, atol=1e-12)


def repeated_inputs() -> Dataset:
    X = np.repeat(np.arange(4.0), 10)[:, None]
    return Dataset(X, np.sin(np.arange(40.0))[:, None], ("x",), "y")


def rare_target() -> Dataset:
    Y = np.zeros((40, 1))
    Y[0] = 1.0
    return Dataset(small_dataset().X, Y, ("x",), "y")


@pytest.mark.parametrize(
    "dataset, options, got, expected, remedy",
    [
        (small_dataset, {"alphas": []}, "got alphas []", "one or more numbers", "0.5 and 1"),
        (small_dataset, {"alphas": [0.5, 1.1]}, "got alphas [0.5, 1.1]", "[0, 1]", "0.5 and 1"),
        (small_dataset, {"alphas": [np.nan]}, "got alphas [nan]", "[0, 1]", "0.5 and 1"),
        (small_dataset, {"alphas": [0.5, 0.5]}, "got alphas [0.5, 0.5]", "different", "only once"),
        (small_dataset, {"num_inducing": 33}, "33 inducing points for 32 training rows",
         "expected 1 to 32", "choose another number"),
        (small_dataset, {"num_inducing": 0}, "0 inducing points", "1 to 32", "choose another"),
        (repeated_inputs, {"num_inducing": 5}, "with 4 distinct inputs", "1 to 4", "choose"),
        (small_dataset, {"init": "best"}, "init is 'best'", "kmeans, random", "choose one"),
        (small_dataset, {"max_iterations": 0}, "max_iterations is 0", "at least 1", "raise it"),
        (small_dataset, {"test_fraction": 1.5}, "fraction of 1.5", "at least 2 rows", "as 0.2"),
        (rare_target, {"num_inducing": 5}, "held-out targets are all 0.0", "differ", "choose"),
    ],
)  # fmt: skip
def test_bad_arguments(
    dataset: Any, options: dict[str, Any], got: str, expected: str, remedy: str
) -> None:
    with pytest.raises(ValueError) as error:
        compare(dataset(), **options)
    for part in (got, expected, remedy):
        assert part in str(error.value)
