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
from helpers import Array, assert_all_close, assert_close, regression_problem

import gpflow_pep as pep
from gpflow_pep.engine.numerics import chunks
from gpflow_pep.engine.paths import Paths, prior, update

PROBLEM = regression_problem(3, num_data=15)
X = tf.constant(XNEW)
NUM_PATHS = 3
#: Inputs of each path.
BATCHES = tf.stack([X + 0.1 * k for k in range(NUM_PATHS)])


def model(**options: Any) -> pep.PEPRegression:
    mean = gpflow.functions.Linear(np.ones([2, 1]))
    options = {"noise_variance": 0.1, "mean_function": mean, **options}
    kernel = options.pop("kernel", None) or PROBLEM.kernel()
    return pep.PEPRegression(PROBLEM.data, kernel, Z.copy(), **options)


@pytest.fixture
def paths() -> Paths:
    return model().paths(NUM_PATHS, 50, seed=1)


def of_spec(function: Callable[..., Any], *sizes: int | None) -> Any:
    signature = [tf.TensorSpec([*sizes, 2], X.dtype)]
    return tf.function(lambda X: function(X), input_signature=signature)


def value_and_gradient(function: Callable[[Any], tf.Tensor], X: tf.Tensor) -> tuple[Array, Array]:
    with tf.GradientTape() as tape:
        tape.watch(X)
        values = function(X)
        total = tf.reduce_sum(tf.sin(values))
    return values.numpy(), tape.gradient(total, X).numpy()


def test_a_path_is_one_function(paths: Paths) -> None:
    """Whatever else it is evaluated at, and however often; also at inputs of its own."""
    whole = paths(X)
    assert np.array_equal(paths(X), whole)
    assert_close(paths(X[1:2]), whole[:, 1:2], rtol=1e-12)
    assert_close(paths(tf.concat([X, X], 0))[:, len(XNEW) :], whole, rtol=1e-12)
    assert paths(X[:0]).shape == (NUM_PATHS, 0, 1)
    values = paths.each(BATCHES)
    assert values.shape == (NUM_PATHS, len(XNEW), 1)
    assert_all_close(values, [paths(rows)[k] for k, rows in enumerate(BATCHES)], rtol=1e-12)


def test_resample_and_update_in_place() -> None:
    source = model()
    paths = source.paths(NUM_PATHS, 50, seed=1)
    compiled = of_spec(paths, None)
    first = compiled(X).numpy()
    assert np.array_equal(paths(X), model().paths(NUM_PATHS, 50, seed=1)(X))
    assert_close(paths(X), first, rtol=1e-12)
    paths.resample(2)
    other = compiled(X)
    assert np.min(np.abs(other - first)) > 1e-3
    assert_close(other, source.paths(NUM_PATHS, 50, seed=2)(X), rtol=1e-12)
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
    for function, rows in ((paths, X), (paths.each, BATCHES)):
        values, gradient = value_and_gradient(function, rows)
        step = 1e-4 * np.random.default_rng(0).standard_normal(rows.shape)
        near = [np.sum(np.sin(function(rows + k * step))) for k in (-2, -1, 1, 2)]
        difference = (near[0] - 8.0 * near[1] + 8.0 * near[2] - near[3]) / 12.0
        assert_close(np.sum(gradient * step), difference, rtol=1e-8)
        assert values.shape == (NUM_PATHS, len(XNEW), 1)


def test_gradient_where_a_rough_kernel_has_a_kink() -> None:
    paths = model(kernel=kernels.Matern12()).paths(NUM_PATHS, 20)
    assert np.all(np.isfinite(value_and_gradient(paths, tf.constant(Z))[1]))


@pytest.mark.slow
def test_xla(paths: Paths) -> None:
    compiled = tf.function(paths, jit_compile=True, autograph=False)
    both = (value_and_gradient(function, X) for function in (compiled, paths))
    assert_all_close(*both, rtol=1e-10)


def test_inputs_of_each_that_a_graph_does_not_know(paths: Paths) -> None:
    """Neither are other numbers of them split among the paths."""
    compiled = of_spec(paths.each, None, None)
    assert_close(compiled(BATCHES), paths.each(BATCHES), rtol=1e-12)
    with pytest.raises(tf.errors.InvalidArgumentError, match="Shape"):
        compiled(tf.tile(BATCHES, [2, 1, 1]))


class Slope(gpflow.functions.MeanFunction):
    def __init__(self) -> None:
        super().__init__()
        self.slope = tf.Variable(0.5, dtype=tf.float64)

    def __call__(self, X: tf.Tensor) -> tf.Tensor:
        if tf.reduce_sum(X) > 1e3:
            return 0.0 * X[:, :1]
        return self.slope * X[:, :1]


def test_mean_function_of_users() -> None:
    """Its conditions on tensors are translated; its variables are not trained by paths."""
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
    expected = [value_and_gradient(f, x) for f, x in ((whole, X), (whole.each, BATCHES))]
    monkeypatch.setattr(update, "CHUNK_ELEMENTS", 4 * 50 * NUM_PATHS)  # two rows
    pieces = source.paths(NUM_PATHS, 50)
    calls: list[Any] = [pieces, pieces.each]
    if compiled:
        calls = [of_spec(pieces, None), of_spec(pieces.each, NUM_PATHS, None)]
    for call, rows, others in zip(calls, (X, BATCHES), expected, strict=True):
        assert_all_close(value_and_gradient(call, rows), others, rtol=1e-12)


def test_no_features_outlive_a_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    """A value passes over all chunks, each row once, and so does its gradient."""
    sizes: list[int] = []
    evaluate = prior._ProductDraws.__call__

    def spy(self: Any, X: tf.Tensor, *blur: tf.Tensor) -> tf.Tensor:
        sizes.append(int(X.shape[1]))
        return evaluate(self, X, *blur)

    num_features, num_rows = 1000, 2000
    paths = model().paths(NUM_PATHS, num_features)
    monkeypatch.setattr(prior._ProductDraws, "__call__", spy)
    rows = tf.tile(X, [num_rows // len(XNEW), 1])
    limit = chunks.CHUNK_ELEMENTS // (NUM_PATHS * 2 * num_features)
    paths(rows)
    number = len(sizes)
    assert max(sizes) <= limit and number == -(-num_rows // limit) and sum(sizes) == num_rows
    value_and_gradient(paths, rows)
    assert len(sizes) == 3 * number and max(sizes) <= limit


def test_files(paths: Paths, tmp_path: Path) -> None:
    paths.compiled = of_spec(paths, None)
    paths.compiled_each = of_spec(paths.each, NUM_PATHS, None)
    tf.saved_model.save(paths, str(tmp_path / "saved"))
    loaded = tf.saved_model.load(str(tmp_path / "saved"))
    for rows in (X, X[:1], tf.concat([X, X], 0)):
        assert_close(loaded.compiled(rows), paths(rows), rtol=1e-12)
    assert_close(loaded.compiled_each(BATCHES), paths.each(BATCHES), rtol=1e-12)
    del paths.compiled, paths.compiled_each
    written = tf.train.Checkpoint(paths=paths).write(str(tmp_path / "paths"))
    other = model(alpha=0.0).paths(NUM_PATHS, 50, seed=5)
    tf.train.Checkpoint(paths=other).read(written).assert_existing_objects_matched()
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
    data, points = (
        tuple(p.astype(np.float32) for p in parts) for parts in (PROBLEM.data, (Z, XNEW))
    )
    mean = gpflow.functions.Linear(np.ones([2, 1], np.float32))
    options = {"noise_variance": 0.1, "mean_function": mean}
    values = pep.PEPRegression(data, PROBLEM.kernel(), points[0], **options).paths(NUM_PATHS, 50)(
        points[1]
    )
    assert values.dtype == tf.float32
    assert_close(values, in_double, rtol=1e-3)


def with_other_points() -> Paths:
    source = model()
    paths = source.paths(1, 1)
    source.inducing_variable = gpflow.inducing_variables.InducingPoints(Z[:2].copy())
    return paths


def with_multiscale() -> pep.PEPRegression:
    points = gpflow.inducing_variables.Multiscale(Z.copy(), 0.1 * np.ones_like(Z))
    return PROBLEM.model(pep.PEPRegression, points)


REFUSALS: list[tuple[Callable[[], Any], str]] = [
    (
        lambda: model(kernel=kernels.SquaredExponential() + kernels.White()).paths(2),
        "^kernel: got White, expected .*noise is in the likelihood",
    ),
    (lambda: model().paths(0), "^num_paths: got 0, expected a positive integer"),
    (lambda: model().paths(1, 1.5), "^num_features: got 1.5, expected"),
    (lambda: model().paths(1, 1, -1), "^seed: got -1, expected"),
    (lambda: model().paths(1, 1).resample(0.5), "^seed: got 0.5, expected"),
    (lambda: model().paths(1, 1)(XNEW[:, :1]), "^Xnew: got"),
    (lambda: model().paths(1, 1)(np.nan * XNEW), "^Xnew: got NaN"),
    (
        lambda: model().paths(2, 1).each(XNEW),
        r"^Xnew: got shape \(5, 2\), expected \[2, N, D\]",
    ),
    (
        lambda: model().paths(2, 1).each(np.stack([XNEW] * 3)),
        r"^Xnew: got shape \(3, 5, 2\), expected \[2, N, D\]",
    ),
    (
        lambda: tf.function(model().paths, autograph=False)(2),
        "paths: got a call inside a graph",
    ),
    (lambda: with_other_points().update(), "^update: got a model whose"),
    (
        lambda: with_multiscale().paths(1, 1),
        "^inducing_variable: got Multiscale, expected InducingPoints",
    ),
]


@pytest.mark.parametrize("call, message", REFUSALS)
def test_refused(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
