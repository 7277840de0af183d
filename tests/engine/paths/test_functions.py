"""What can be done with paths: the same functions everywhere, derivatives, graphs, files."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from cases.models import XNEW, Z
from gpflow import kernels
from helpers import Array, assert_close, regression_problem

import gpflow_pep as pep
from gpflow_pep.engine.numerics import chunks
from gpflow_pep.engine.paths import Paths, prior, update

PROBLEM = regression_problem(3, num_data=15)
X = tf.constant(XNEW)
NUM_PATHS = 3


def model(**options: Any) -> pep.PEPRegression:
    mean = gpflow.functions.Linear(np.ones([2, 1]))
    options = {"noise_variance": 0.1, "mean_function": mean, **options}
    kernel = options.pop("kernel", None) or PROBLEM.kernel()
    return pep.PEPRegression(PROBLEM.data, kernel, Z.copy(), **options)


@pytest.fixture
def paths() -> Paths:
    return model().paths(NUM_PATHS, 50, seed=1)


def batches() -> tf.Tensor:
    """Inputs of each path."""
    return tf.stack([X + 0.1 * k for k in range(NUM_PATHS)])


def value_and_gradient(function: Callable[[Any], tf.Tensor], X: tf.Tensor) -> tuple[Array, Array]:
    with tf.GradientTape() as tape:
        tape.watch(X)
        values = function(X)
        total = tf.reduce_sum(tf.sin(values))
    return values.numpy(), tape.gradient(total, X).numpy()


def test_each_path_at_inputs_of_its_own(paths: Paths) -> None:
    values = paths.each(batches())
    assert values.shape == (NUM_PATHS, len(XNEW), 1)
    for k, rows in enumerate(batches()):
        assert_close(values[k], paths(rows)[k], rtol=1e-12)


def test_a_path_is_one_function(paths: Paths) -> None:
    """Whatever else it is evaluated at, and however often."""
    whole = paths(X)
    assert np.array_equal(paths(X), whole)
    assert_close(paths(X[1:2]), whole[:, 1:2], rtol=1e-12)
    assert_close(paths(tf.concat([X, X], 0))[:, len(XNEW) :], whole, rtol=1e-12)
    assert paths(X[:0]).shape == (NUM_PATHS, 0, 1)


def test_the_seed_says_which_paths() -> None:
    same = [model().paths(NUM_PATHS, 50, seed=1)(X) for _ in range(2)]
    assert np.array_equal(*same)
    other = model().paths(NUM_PATHS, 50, seed=2)(X)
    assert np.min(np.abs(other - same[0])) > 1e-3


def test_resample_and_update_in_place() -> None:
    source = model()
    paths = source.paths(NUM_PATHS, 50, seed=1)
    compiled = tf.function(lambda X: paths(X), input_signature=[tf.TensorSpec([None, 2], X.dtype)])
    first = compiled(X).numpy()
    assert_close(paths(X), first, rtol=1e-12)
    paths.resample(2)
    assert_close(compiled(X), source.paths(NUM_PATHS, 50, seed=2)(X), rtol=1e-12)
    paths.resample(1)
    assert_close(compiled(X), first, rtol=1e-12)
    source.kernel.lengthscales.assign([0.5, 2.0])
    source.data = PROBLEM.X, PROBLEM.Y + 1.0
    assert_close(compiled(X), first, rtol=1e-12)  # until:
    paths.update()
    assert_close(compiled(X), source.paths(NUM_PATHS, 50, seed=1)(X), rtol=1e-12)
    assert np.max(np.abs(compiled(X) - first)) > 0.1
    assert compiled.experimental_get_tracing_count() == 1


@pytest.mark.parametrize("kernel", [kernels.Matern12(), kernels.RationalQuadratic(alpha=0.7)])
def test_update_moves_paths_no_further_than_the_posterior(kernel: kernels.Kernel) -> None:
    source = model(kernel=kernel)
    paths = source.paths(NUM_PATHS, 50)
    before = paths(X)
    for parameter in kernel.parameters:
        parameter.assign(parameter * (1.0 + 1e-7))
    paths.update()
    assert 0.0 < np.max(np.abs(paths(X) - before)) < 1e-4


KERNELS: dict[str, Callable[[], kernels.Kernel]] = {
    "SquaredExponential": kernels.SquaredExponential,
    "Matern32": kernels.Matern32,
    "Periodic times Linear": lambda: (
        kernels.Periodic(kernels.SquaredExponential(), period=2.0) * kernels.Linear()
    ),
    "Polynomial": kernels.Polynomial,
}


@pytest.mark.parametrize("name", KERNELS)
def test_gradient_by_finite_differences(name: str) -> None:
    paths = model(kernel=KERNELS[name]()).paths(NUM_PATHS, 20)
    for function, rows in ((paths, X), (paths.each, batches())):
        values, gradient = value_and_gradient(function, rows)
        random, step = np.random.default_rng(0), 1e-4
        direction = random.standard_normal(rows.shape)
        near = [
            np.sum(np.sin(function(rows + k * step * direction)))
            for k in (-2, -1, 1, 2)  # central, on five points
        ]
        difference = (near[0] - 8.0 * near[1] + 8.0 * near[2] - near[3]) / (12.0 * step)
        assert_close(np.sum(gradient * direction), difference, rtol=1e-8)
        assert values.shape == (NUM_PATHS, len(XNEW), 1)


def test_gradient_where_a_rough_kernel_has_a_kink() -> None:
    """At the inducing points."""
    paths = model(kernel=kernels.Matern12()).paths(NUM_PATHS, 20)
    assert np.all(np.isfinite(value_and_gradient(paths, tf.constant(Z))[1]))


@pytest.mark.slow
def test_xla(paths: Paths) -> None:
    compiled = tf.function(paths, jit_compile=True, autograph=False)
    got, expected = (value_and_gradient(function, X) for function in (compiled, paths))
    assert_close(got[0], expected[0], rtol=1e-10)
    assert_close(got[1], expected[1], rtol=1e-10)


def test_inputs_of_each_that_a_graph_does_not_know(paths: Paths) -> None:
    """Neither are other numbers of them split among the paths."""
    compiled = tf.function(paths.each, input_signature=[tf.TensorSpec([None, None, 2], X.dtype)])
    assert_close(compiled(batches()), paths.each(batches()), rtol=1e-12)
    with pytest.raises(tf.errors.InvalidArgumentError, match="Shape"):
        compiled(tf.tile(batches(), [2, 1, 1]))


def test_mean_function_of_users() -> None:
    """Its conditions on tensors are translated; its variables are not trained by paths."""

    class Slope(gpflow.functions.MeanFunction):
        def __init__(self) -> None:
            super().__init__()
            self.slope = tf.Variable(0.5, dtype=tf.float64)

        def __call__(self, X: tf.Tensor) -> tf.Tensor:
            if tf.reduce_sum(X) > 1e3:
                return 0.0 * X[:, :1]
            return self.slope * X[:, :1]

    source = model(mean_function=Slope())
    paths = source.paths(NUM_PATHS, 20)
    assert not paths.trainable_variables and source.mean_function.slope.trainable
    assert_close(tf.function(paths)(X), paths(X), rtol=1e-12)


def test_second_derivatives(paths: Paths) -> None:
    def derivative(x: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            tape.watch(x)
            value = tf.reduce_sum(paths(x))
        return tape.gradient(value, x)

    with tf.GradientTape() as tape:
        tape.watch(X)
        total = tf.reduce_sum(derivative(X))
    step = 1e-4
    difference = (derivative(X + step) - derivative(X - step)) / (2.0 * step)
    assert_close(tape.gradient(total, X), difference, rtol=1e-6)


@pytest.mark.near_copies("True")
@pytest.mark.parametrize("compiled", [False, True])
def test_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch, compiled: bool) -> None:
    source = model()
    whole = source.paths(NUM_PATHS, 50)
    expected = [value_and_gradient(f, x) for f, x in ((whole, X), (whole.each, batches()))]
    monkeypatch.setattr(update, "CHUNK_ELEMENTS", 4 * 50 * NUM_PATHS)  # two rows
    pieces = source.paths(NUM_PATHS, 50)
    calls: list[Callable[..., Any]] = [pieces, pieces.each]
    shapes = [None, 2], [NUM_PATHS, None, 2]
    if compiled:
        calls = [
            tf.function(call, input_signature=[tf.TensorSpec(shape, X.dtype)])
            for call, shape in zip(calls, shapes, strict=True)
        ]
    for call, rows, others in zip(calls, (X, batches()), expected, strict=True):
        for got, other in zip(value_and_gradient(call, rows), others, strict=True):
            assert_close(got, other, rtol=1e-12)


def test_no_features_outlive_a_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    """A value passes over all chunks, and so does its gradient: nothing is kept between them."""
    sizes: list[int] = []
    values = Paths._values

    def spy(self: Paths, X: tf.Tensor) -> tf.Tensor:
        sizes.append(int(X.shape[0]))
        return values(self, X)

    monkeypatch.setattr(Paths, "_values", spy)
    num_features, num_rows = 1000, 2000
    paths = model().paths(NUM_PATHS, num_features)
    rows = tf.tile(X, [num_rows // len(XNEW), 1])
    limit = chunks.CHUNK_ELEMENTS // (NUM_PATHS * 2 * num_features)
    paths(rows)
    number = len(sizes)
    assert max(sizes) <= limit and number == -(-num_rows // limit)
    value_and_gradient(paths, rows)
    assert len(sizes) == 3 * number and max(sizes) <= limit


def test_saved_model(paths: Paths, tmp_path: Path) -> None:
    paths.compiled = tf.function(
        lambda X: paths(X), input_signature=[tf.TensorSpec([None, 2], X.dtype)]
    )
    paths.compiled_each = tf.function(
        lambda X: paths.each(X), input_signature=[tf.TensorSpec([NUM_PATHS, None, 2], X.dtype)]
    )
    tf.saved_model.save(paths, str(tmp_path))
    loaded = tf.saved_model.load(str(tmp_path))
    for rows in (X, X[:1], tf.concat([X, X], 0)):
        assert_close(loaded.compiled(rows), paths(rows), rtol=1e-12)
    assert_close(loaded.compiled_each(batches()), paths.each(batches()), rtol=1e-12)


def test_checkpoint(paths: Paths, tmp_path: Path) -> None:
    saved = tf.train.Checkpoint(paths=paths).write(str(tmp_path / "paths"))
    other = model(alpha=0.0).paths(NUM_PATHS, 50, seed=5)
    tf.train.Checkpoint(paths=other).read(saved).assert_existing_objects_matched()
    assert_close(other(X), paths(X), rtol=1e-12)


def test_nothing_is_trained_and_the_model_is_left_alone() -> None:
    source = model()
    before = len(source.trainable_variables), source.predict_f(X)[0]
    paths = source.paths(NUM_PATHS, 50)
    assert not paths.trainable_variables
    assert len(source.trainable_variables) == before[0] > 0
    assert np.array_equal(source.predict_f(X)[0], before[1])
    source.kernel.variance.assign(3.0)
    assert_close(paths(X), model().paths(NUM_PATHS, 50)(X), rtol=1e-12)


def test_float32() -> None:
    """The same random numbers: what differs is rounding."""
    in_double = model().paths(NUM_PATHS, 50)(X)
    gpflow.config.set_default_float(np.float32)
    kernel = kernels.SquaredExponential(PROBLEM.variance, list(PROBLEM.lengthscales))
    single = pep.PEPRegression(
        tuple(part.astype(np.float32) for part in PROBLEM.data),
        kernel,
        Z.astype(np.float32),
        noise_variance=0.1,
        mean_function=gpflow.functions.Linear(np.ones([2, 1], np.float32)),
    )
    paths = single.paths(NUM_PATHS, 50)
    assert paths(XNEW.astype(np.float32)).dtype == tf.float32
    assert_close(paths(XNEW.astype(np.float32)), in_double, rtol=1e-3)


def test_time_is_that_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Linear: the features of each row are computed once."""
    rows: list[int] = []
    evaluate = prior._ProductDraws.__call__

    def spy(self: Any, X: tf.Tensor, *blur: tf.Tensor) -> tf.Tensor:
        rows.append(int(X.shape[1]))
        return evaluate(self, X, *blur)

    paths = model().paths(NUM_PATHS, 50)
    monkeypatch.setattr(prior._ProductDraws, "__call__", spy)
    for number in (100, 200):
        rows.clear()
        paths(tf.tile(X, [number // len(XNEW), 1]))
        assert sum(rows) == number


REFUSALS: dict[str, tuple[Callable[[], Any], str]] = {
    "kernel": (
        lambda: model(kernel=kernels.SquaredExponential() + kernels.White()).paths(2),
        "^kernel: got White, expected .*noise is in the likelihood",
    ),
    "num_paths": (lambda: model().paths(0), "^num_paths: got 0, expected a positive integer"),
    "num_features": (lambda: model().paths(1, 1.5), "^num_features: got 1.5, expected"),
    "seed": (lambda: model().paths(1, 1, -1), "^seed: got -1, expected"),
    "seed of others": (lambda: model().paths(1, 1).resample(0.5), "^seed: got 0.5, expected"),
    "columns": (lambda: model().paths(1, 1)(XNEW[:, :1]), "^Xnew: got"),
    "inputs that are not finite": (lambda: model().paths(1, 1)(np.nan * XNEW), "^Xnew: got NaN"),
    "inputs of each": (
        lambda: model().paths(2, 1).each(XNEW),
        r"^Xnew: got shape \(5, 2\), expected \[2, N, D\]",
    ),
    "inputs of others": (
        lambda: model().paths(2, 1).each(np.stack([XNEW] * 3)),
        r"^Xnew: got shape \(3, 5, 2\), expected \[2, N, D\]",
    ),
    "graph": (lambda: in_a_graph(model()), "paths: got a call inside a graph"),
    "other points": (lambda: with_other_points().update(), "^update: got a model whose"),
    "inducing variables": (
        lambda: with_multiscale().paths(1, 1),
        "^inducing_variable: got Multiscale, expected InducingPoints",
    ),
    "component": (
        lambda: pep.training.Ensemble([PROBLEM.model(gpflow.models.GPR)]).paths(1, 1),
        "^models: got a component of type GPR, expected models of gpflow_pep",
    ),
}


def in_a_graph(source: pep.PEPRegression) -> Any:
    return tf.function(source.paths, autograph=False)(2)


def with_other_points() -> Paths:
    source = model()
    paths = source.paths(1, 1)
    source.inducing_variable = gpflow.inducing_variables.InducingPoints(Z[:2].copy())
    return paths


def with_multiscale() -> pep.PEPRegression:
    points = gpflow.inducing_variables.Multiscale(Z.copy(), 0.1 * np.ones_like(Z))
    return PROBLEM.model(pep.PEPRegression, points)


@pytest.mark.parametrize("name", REFUSALS)
def test_refused(name: str) -> None:
    call, message = REFUSALS[name]
    with pytest.raises(ValueError, match=message):
        call()
