"""Models of one make, trained with one compilation, end as each does by itself."""

import functools
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from helpers import (
    assert_all_close,
    assert_close,
    refusals,
    uncompiled,
    value_and_gradients,
)

import gpflow_pep as pep
from gpflow_pep.engine.numerics import chunks
from gpflow_pep.models.arguments import set_unchecked
from gpflow_pep.training import maximise
from gpflow_pep.training.fitting import cheaper
from gpflow_pep.training.fitting.cheaper import SharedLosses
from gpflow_pep.training.fitting.objectives import WholeLoss

RNG = np.random.default_rng(8)
X = RNG.uniform(-2.0, 2.0, (40, 2))
Y = np.sin(2.0 * X[:, :1]) + 0.3 * RNG.standard_normal((40, 1))
LABELS = (0.3 * RNG.standard_normal(Y.shape) < Y).astype(float)
CLASSES = np.digitize(Y, [-0.4, 0.4]).astype(float)
OPTIONS: dict[str, Any] = {"max_iterations": 3, "progress": False}


class Counting(gpflow.kernels.SquaredExponential):
    """It counts in how many graphs it is, or how often it is used outside of any."""

    uses = 0

    def K(self, X: Any, X2: Any = None) -> tf.Tensor:
        Counting.uses += 1
        return super().K(X, X2)


def regression(
    rows: slice, alpha: float = 0.5, M: int = 5
) -> "pep.models.PEPRegression":
    data = X[rows], Y[rows]
    return pep.models.PEPRegression(data, Counting(), X[rows][:M].copy(), alpha=alpha)


def _of_sites(
    targets: Any, likelihood: Callable[[], Any], rows: slice, alpha: float
) -> Any:
    data = (X[rows], targets[rows])
    options = {"alpha": alpha, "tolerance": 1e-9}
    return pep.models.PEP(data, Counting(), likelihood(), X[rows][:5].copy(), **options)


binary = functools.partial(_of_sites, LABELS, gpflow.likelihoods.Bernoulli)
several = functools.partial(_of_sites, CLASSES, lambda: gpflow.likelihoods.Softmax(3))


def in_chunks(rows: slice, alpha: float) -> "pep.models.PEPRegression":
    model = regression(rows, alpha)
    model.chunk_size = 16
    return model


def exact(rows: slice, alpha: float) -> gpflow.models.GPR:
    return gpflow.models.GPR((X[rows], Y[rows]), Counting())


Make = Callable[[slice, float], Any]
FOLDS = slice(0, 30), slice(3, 40)
#: One for each kind of model, so that tests do not compile what others have.
shared_losses = functools.cache(lambda make: SharedLosses())


@pytest.mark.slow
def test_missing_targets_have_a_loss_of_their_own() -> None:
    losses = SharedLosses()
    for targets in (Y[:30], np.where(np.arange(30)[:, None] == 4, np.nan, Y[:30])):
        kernels = [gpflow.kernels.SquaredExponential() for _ in range(2)]
        Z = X[:5].copy()
        one, other = (
            pep.models.PEPRegression((X[:30], targets), k, Z) for k in kernels
        )
        with uncompiled():
            expected = maximise(other, **OPTIONS)
        assert_close(
            losses.maximise(one, **OPTIONS).objective, expected.objective, rtol=1e-7
        )


MAKES = {f.__name__: f for f in (regression, exact, in_chunks)} | {"binary": binary}


@pytest.mark.near_copies("binary")
@pytest.mark.parametrize("name", [*MAKES, "several"])
def test_models_end_as_by_themselves_with_one_compilation(name: str) -> None:
    make = {**MAKES, "several": several}[name]
    losses = shared_losses(make)
    for number, (rows, alpha) in enumerate(zip((*FOLDS, *FOLDS), (0.5, 0.8, 0.9, 0.2))):
        model = make(rows, alpha)
        alone = make(rows, alpha)
        Counting.uses = 0
        found = losses.maximise(model, **OPTIONS)
        assert number == 0 or name in ("in_chunks", "several") or Counting.uses == 0
        assert_close(-float(model.training_loss()), found.objective)
        if number != 1 or name == "binary":  # of which the next slow test is
            continue
        # Whose inner loop takes long outside a graph.
        sites = isinstance(alone, pep.models.PEP)
        with nullcontext() if sites else uncompiled():
            expected = maximise(alone, **OPTIONS)
        assert_close(found.objective, expected.objective, rtol=1e-7)
        assert found.iterations == expected.iterations
        assert_all_close(
            model.trainable_variables, alone.trainable_variables, rtol=1e-5
        )


def test_parameters_that_are_fixed_stay() -> None:
    """Although the model before, of the same shapes, had them trained."""
    losses = shared_losses(regression)
    model = regression(FOLDS[1])
    losses.maximise(regression(FOLDS[0]), **OPTIONS)
    gpflow.set_trainable(model.inducing_variable, False)
    losses.maximise(model, **OPTIONS)
    np.testing.assert_array_equal(model.inducing_variable.Z, X[FOLDS[1]][:5])


@pytest.mark.slow
def test_how_exact_training_is_is_that_of_each_model() -> None:
    losses = SharedLosses()
    gaps = (1e-2, 0.0)
    for gap in gaps:
        model = binary(FOLDS[0], 0.5)
        alone = binary(FOLDS[0], 0.5)
        for one in (model, alone):
            one.loss_tolerance.assign(gap)
        found = losses.maximise(model, **OPTIONS)
        expected = maximise(alone, **OPTIONS)
        assert_close(found.losses, expected.losses, rtol=1e-9)


@pytest.mark.slow
def test_other_shapes_are_compiled_anew() -> None:
    losses = SharedLosses()
    for number in (5, 6):
        model = regression(slice(None), M=number)
        record = losses.maximise(model, **OPTIONS)
        assert_close(-float(model.training_loss()), record.objective, rtol=1e-10)


@pytest.mark.slow
def test_the_newest_are_kept_and_no_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cheaper, "MOST", 2)
    losses = SharedLosses()
    for make in "abac":
        losses.maximise(regression(FOLDS[0]), cache_key=make, **OPTIONS)
    for make, uses in (("a", 0), ("c", 0), ("b", 1)):
        model = regression(FOLDS[1])
        Counting.uses = 0
        losses.maximise(model, cache_key=make, **OPTIONS)
        assert min(Counting.uses, 1) == uses
    kept = losses._losses.values()
    assert len(kept) == 2
    assert all(len(part.numpy()) == 0 for loss in kept for part in loss.model.data)


@pytest.mark.slow
def test_a_callback_may_train_another_model() -> None:
    losses = SharedLosses()
    models = [regression(rows) for rows in FOLDS]
    alone = regression(FOLDS[0])

    def train(step: pep.training.Step) -> None:
        if step.iteration == 1:
            losses.maximise(models[1], **OPTIONS)

    losses.maximise(models[0], **OPTIONS, callback=train)
    maximise(alone, **OPTIONS)
    assert_close(models[0].training_loss(), alone.training_loss(), rtol=1e-12)
    assert float(models[1].training_loss()) < float(
        regression(FOLDS[1]).training_loss()
    )


@pytest.mark.slow
def test_a_model_that_fails_leaves_the_next_ones_as_they_are() -> None:
    losses = SharedLosses()
    losses.maximise(regression(FOLDS[0]), **OPTIONS)
    hopeless = regression(FOLDS[0])
    hopeless.kernel.lengthscales.unconstrained_variable.assign(np.nan)
    with pytest.raises(ValueError, match="finite"):
        losses.maximise(hopeless, **OPTIONS)
    model = regression(FOLDS[0])
    alone = regression(FOLDS[0])
    found = losses.maximise(model, **OPTIONS)
    with uncompiled():
        expected = maximise(alone, **OPTIONS)
    assert_close(found.objective, expected.objective, rtol=1e-12)


@pytest.mark.slow
def test_one_loss_serves_many_runs() -> None:
    model = binary(FOLDS[0], 0.5)
    loss = WholeLoss(model)
    first = maximise(loss, max_iterations=3, progress=False)
    Counting.uses = 0
    second = maximise(loss, max_iterations=20, progress=False)
    assert Counting.uses == 0
    assert second.objective > first.objective
    assert_close(-float(model.training_loss()), second.objective)
    with pytest.raises(
        ValueError, match=r"optimizer: got .*expected None. Leave it out"
    ):
        maximise(loss, optimizer=gpflow.optimizers.Scipy())


@pytest.mark.near_copies("regression")
@pytest.mark.parametrize("make", [regression, binary])
def test_all_rows_in_one_chunk_where_their_number_is_not_known(make: Make) -> None:
    model = make(FOLDS[0], 0.5)
    expected = make(FOLDS[1], 0.5)
    rows = (
        tf.Variable(part, shape=[None, part.shape[1]], trainable=False)
        for part in model.data
    )
    set_unchecked(model, data=tuple(rows))
    model.chunk_size = chunks.ALL_ROWS
    variables = model.trainable_variables
    compiled = tf.function(
        lambda: value_and_gradients(model.training_loss, variables), autograph=False
    )
    compiled()
    model.data = expected.data
    model.inducing_variable.Z.assign(expected.inducing_variable.Z)
    value, wanted = value_and_gradients(
        expected.training_loss, expected.trainable_variables
    )
    loss, gradient = compiled()
    assert_close(loss, value)
    assert_all_close(gradient, wanted)


def test_rows_are_counted_as_they_are_now() -> None:
    """The copy that stands for models of any number of rows was made of one
    with more.
    """
    X = np.linspace(0.0, 1.0, 9)[:, None]
    model = pep.PEPRegression((X, X), gpflow.kernels.SquaredExponential(), X[:3].copy())
    loss = cheaper._loss_of_any_rows(model, (X, X), "evidence")
    assert loss.num_rows() == 9
    for variable in loss.model.data:
        variable.assign(X[:4])
    assert loss.num_rows() == 4


# On some rows: whose parameters change, which rows count, and what is refused.

_RANDOM = np.random.default_rng(0)
ROWS = _RANDOM.uniform(0.0, 6.0, (90, 1))
TARGETS = np.sin(2.0 * ROWS) + 0.1 * _RANDOM.standard_normal(ROWS.shape)


def of_numbers(data=(ROWS, TARGETS), **options) -> pep.PEPRegression:
    kernel = gpflow.kernels.SquaredExponential(lengthscales=0.8)
    return pep.PEPRegression(
        data, kernel, ROWS[:3].copy(), noise_variance=0.05, **options
    )


def assert_trained_on_subset(model: Any, other: Any) -> None:
    """As another of 20 rows, which evaluates as near to a fixed point of sites, not
    nearer.
    """
    record = cheaper.maximise_on_subset(model, 20, seed=3, **OPTIONS)
    expected = maximise(other, tolerance=1e-3, window=5, **OPTIONS)
    np.testing.assert_allclose(record.objective, expected.objective, rtol=1e-8)
    assert_all_close(model.trainable_variables, other.trainable_variables, rtol=1e-6)


SOME = np.random.default_rng(3).permutation(len(ROWS))[:20]


@pytest.mark.near_copies("0.5")
@pytest.mark.parametrize("alpha", [0.0, 0.5])
def test_it_is_training_of_a_model_of_these_rows(alpha: float) -> None:
    data = tuple(tf.Variable(part, trainable=False) for part in (ROWS, TARGETS))
    model = of_numbers(data, alpha=alpha)
    other = of_numbers((ROWS[SOME], TARGETS[SOME]), alpha=alpha)
    assert_trained_on_subset(model, other)
    # The model has all its rows: what it predicts is that of a model made with its
    # parameters.
    parts = model.kernel, model.inducing_variable
    options = {"likelihood": model.likelihood, "alpha": alpha}
    whole = pep.PEPRegression((ROWS, TARGETS), *parts, **options)
    np.testing.assert_allclose(
        model.predict_f(ROWS[:5]), whole.predict_f(ROWS[:5]), rtol=1e-8
    )


def test_the_default_number_follows_that_of_points(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trained = []
    monkeypatch.setattr(cheaper, "maximise", lambda model, **_: trained.append(model))
    large = of_numbers((np.tile(ROWS, [2, 1]), np.tile(TARGETS, [2, 1])))
    for model, number in ((large, None), (of_numbers(), None), (of_numbers(), 10**6)):
        cheaper.maximise_on_subset(model, number)  # at most half
    assert [len(each.data[0]) for each in trained] == [
        3 * cheaper.ROWS_PER_POINT,
        45,
        90,
    ]


def of_labels(rows=slice(None), **options) -> pep.PEP:
    labels = (TARGETS > 0.0).astype(float)
    likelihood = gpflow.likelihoods.Bernoulli()
    data = (ROWS[rows], labels[rows])
    kernel = gpflow.kernels.SquaredExponential(lengthscales=0.8)
    return pep.PEPClassification(data, kernel, likelihood, ROWS[:3].copy(), **options)


@pytest.mark.slow
def test_a_subset_of_classes() -> None:
    model = of_labels()
    assert_trained_on_subset(model, of_labels(SOME))
    assert model.data[0].shape[0] == 90 and model.last_inference.num_sweeps == 0


HALVES = np.full(90, 0.5)
on = cheaper.maximise_on_subset
MISSING = ROWS, np.where(np.arange(90)[:, None] == 0, np.nan, TARGETS)
GPR = gpflow.models.GPR((ROWS, TARGETS), gpflow.kernels.Matern32())
REFUSED = {
    "model: got GPR, expected a PEPRegression": lambda: on(GPR),
    "a power for each row": lambda: on(of_labels(alpha=HALVES)),
    "Call maximise directly": lambda: on(of_numbers(MISSING)),
    "got a model with blocks": lambda: on(of_numbers(blocks=np.arange(90) // 9)),
    "a memory or a power for each row": lambda: on(of_numbers(alpha=HALVES)),
    "num_rows: got 0, expected": lambda: on(of_numbers(), num_rows=0),
    "seed: got -1": lambda: on(of_numbers(), seed=-1),
    "num_inducing: got 'auto', expected no such argument": lambda: on(
        of_numbers(), num_inducing="auto"
    ),
}
test_subsets_are_refused = refusals(REFUSED)
