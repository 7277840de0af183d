"""What can be done with paths: the same functions everywhere, derivatives, graphs,
files.
"""

from functools import partial
from pathlib import Path
from typing import Any

import gpflow
import helpers
import numpy as np
import pytest
import tensorflow as tf
from cases.models import OUTPUTS, XNEW, Z, first_kernel
from gpflow import kernels
from helpers import assert_all_close, assert_close, assert_gradients, regression_problem

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


#: Of one output, and of two that are mixed, some of whose targets are missing.
CREATE: dict[str, Any] = {
    "one output": model,
    "mixture": partial(OUTPUTS[1].create, OUTPUTS[1].data(0), Z.copy()),
}


@pytest.fixture(params=CREATE)
def create(request: pytest.FixtureRequest) -> Any:
    return CREATE[request.param]


@pytest.fixture
def paths(create: Any) -> Paths:
    return create().paths(NUM_PATHS, 50, seed=1)


def of_spec(function: Any, *sizes: int | None) -> Any:
    signature = [tf.TensorSpec([*sizes, 2], X.dtype)]
    return tf.function(lambda X: function(X), input_signature=signature)


def value_and_gradient(function: Any, X: tf.Tensor) -> Any:
    with tf.GradientTape() as tape:
        tape.watch(X)
        values = function(X)
        total = tf.reduce_sum(tf.sin(values))
    return values.numpy(), tape.gradient(total, X).numpy()


def test_a_path_is_one_function(paths: Paths) -> None:
    """Whatever else it is evaluated at, and however often; also at inputs of
    its own.
    """
    whole = paths(X)
    assert np.array_equal(paths(X), whole)
    assert_close(paths(X[1:2]), whole[:, 1:2], rtol=1e-12)
    assert_close(paths(tf.concat([X, X], 0))[:, len(XNEW) :], whole, rtol=1e-12)
    assert paths(X[:0]).shape == (NUM_PATHS, 0, whole.shape[2])
    values = paths.each(BATCHES)
    assert_all_close(
        values, [paths(rows)[k] for k, rows in enumerate(BATCHES)], rtol=1e-12
    )


def test_resample_and_update_in_place(create: Any) -> None:
    source = create()
    paths = source.paths(NUM_PATHS, 50, seed=1)
    compiled = of_spec(paths, None)
    first = compiled(X).numpy()
    assert np.array_equal(paths(X), create().paths(NUM_PATHS, 50, seed=1)(X))
    assert_close(paths(X), first, rtol=1e-12)
    paths.resample(2)
    other = compiled(X)
    assert np.min(np.abs(other - first)) > 1e-3
    assert_close(other, source.paths(NUM_PATHS, 50, seed=2)(X), rtol=1e-12)
    paths.resample(1)
    assert_close(compiled(X), first, rtol=1e-12)
    first_kernel(source).lengthscales.assign([0.5, 2.0])
    source.data = source.data[0], source.data[1] + 1.0
    assert_close(compiled(X), first, rtol=1e-12)  # until:
    paths.update()
    assert_close(compiled(X), source.paths(NUM_PATHS, 50, seed=1)(X), rtol=1e-9)
    assert np.max(np.abs(compiled(X) - first)) > 0.1
    assert compiled.experimental_get_tracing_count() == 1


@pytest.mark.parametrize(
    "kernel", [kernels.Matern12(), kernels.RationalQuadratic(alpha=0.7)]
)
def test_update_moves_paths_no_further_than_the_posterior(
    kernel: kernels.Kernel,
) -> None:
    paths = model(kernel=kernel).paths(NUM_PATHS, 50)
    before = paths(X)
    for parameter in kernel.parameters:
        parameter.assign(parameter * (1.0 + 1e-7))
    paths.update()
    assert 0.0 < np.max(np.abs(paths(X) - before)) < 1e-4


KERNELS: dict[str, Any] = {
    "SquaredExponential": kernels.SquaredExponential,
    "Matern32": kernels.Matern32,
    "Periodic times Linear": lambda: (
        kernels.Periodic(kernels.SquaredExponential(), period=2.0) * kernels.Linear()
    ),
    "Polynomial": kernels.Polynomial,
}


@pytest.mark.parametrize("name", [*KERNELS, "mixture"])
def test_gradient_by_finite_differences(name: str) -> None:
    source = CREATE[name]() if name in CREATE else model(kernel=KERNELS[name]())
    paths = source.paths(NUM_PATHS, 20)
    for function, rows in ((paths, tf.Variable(X)), (paths.each, tf.Variable(BATCHES))):

        def total(f=function, x=rows):
            return tf.reduce_sum(tf.sin(f(x)))

        assert_gradients(total, [rows], step=1e-4, rtol=1e-8)


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


def test_second_derivatives(paths: Paths) -> None:
    x = tf.Variable(X)

    def slopes() -> tf.Tensor:
        return tf.reduce_sum(helpers.value_and_gradients(lambda: paths(x), [x])[1][0])

    assert_gradients(slopes, [x], step=1e-4, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.near_copies("True")
@pytest.mark.parametrize("compiled", [False, True])
def test_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch, compiled: bool) -> None:
    source = model()
    whole = source.paths(NUM_PATHS, 50)
    expected = [
        value_and_gradient(f, x) for f, x in ((whole, X), (whole.each, BATCHES))
    ]
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

    num_features = 1000
    num_rows = 2000
    paths = model().paths(NUM_PATHS, num_features)
    monkeypatch.setattr(prior._ProductDraws, "__call__", spy)
    rows = tf.tile(X, [num_rows // len(XNEW), 1])
    limit = chunks.CHUNK_ELEMENTS // (NUM_PATHS * 2 * num_features)
    paths(rows)
    number = len(sizes)
    assert (
        max(sizes) <= limit
        and number == -(-num_rows // limit)
        and sum(sizes) == num_rows
    )
    value_and_gradient(paths, rows)
    assert len(sizes) == 3 * number and max(sizes) <= limit


@pytest.mark.near_copies
def test_files(create: Any, paths: Paths, tmp_path: Path) -> None:
    paths.compiled = of_spec(paths, None)
    paths.compiled_each = of_spec(paths.each, NUM_PATHS, None)
    tf.saved_model.save(paths, str(tmp_path / "saved"))
    loaded = tf.saved_model.load(str(tmp_path / "saved"))
    for rows in (X, X[:1], tf.concat([X, X], 0)):
        assert_close(loaded.compiled(rows), paths(rows), rtol=1e-12)
    assert_close(loaded.compiled_each(BATCHES), paths.each(BATCHES), rtol=1e-12)
    del paths.compiled, paths.compiled_each
    written = tf.train.Checkpoint(paths=paths).write(str(tmp_path / "paths"))
    other = create(alpha=0.0).paths(NUM_PATHS, 50, seed=5)
    tf.train.Checkpoint(paths=other).read(written).assert_existing_objects_matched()
    assert_close(other(X), paths(X), rtol=1e-12)


def test_nothing_is_trained_and_the_model_is_left_alone() -> None:
    """Conditions on tensors of a user's mean function are translated."""
    source = model(mean_function=Slope())
    before = len(source.trainable_variables), source.predict_f(X)[0]
    paths = source.paths(NUM_PATHS, 50)
    assert not paths.trainable_variables and source.mean_function.slope.trainable
    assert len(source.trainable_variables) == before[0] > 0
    assert np.array_equal(source.predict_f(X)[0], before[1])
    source.kernel.variance.assign(3.0)
    assert_close(
        paths(X), model(mean_function=Slope()).paths(NUM_PATHS, 50)(X), rtol=1e-12
    )
    assert_close(tf.function(paths)(X), paths(X), rtol=1e-12)


def test_float32() -> None:
    """The same random numbers: what differs is rounding."""
    in_double = model().paths(NUM_PATHS, 50)(X)
    gpflow.config.set_default_float(np.float32)
    *data, points, rows = (part.astype(np.float32) for part in (*PROBLEM.data, Z, XNEW))
    mean = gpflow.functions.Linear(np.ones([2, 1], np.float32))
    options = {"noise_variance": 0.1, "mean_function": mean}
    source = pep.PEPRegression(tuple(data), PROBLEM.kernel(), points, **options)
    values = source.paths(NUM_PATHS, 50)(rows)
    assert values.dtype == tf.float32
    assert_close(values, in_double, rtol=1e-3)


def with_other_points() -> Paths:
    source = model()
    paths = source.paths(1, 1)
    source.inducing_variable = gpflow.inducing_variables.InducingPoints(Z[:2].copy())
    return paths


MULTISCALE = gpflow.inducing_variables.Multiscale(Z.copy(), 0.1 * np.ones_like(Z))
WHITE = kernels.SquaredExponential() + kernels.White()
REFUSALS: list[tuple[Any, str]] = [
    (
        lambda: model(kernel=WHITE).paths(2),
        "^kernel: got White, .*noise is in the likelihood",
    ),
    (lambda: model().paths(0), "^num_paths: got 0, expected a positive integer"),
    (lambda: model().paths(1, 1.5), "^num_features: got 1.5, expected"),
    (lambda: model().paths(1, 1, -1), "^seed: got -1, expected"),
    (lambda: model().paths(1, 1).resample(0.5), "^seed: got 0.5, expected"),
    (lambda: model().paths(1, 1)(XNEW[:, :1]), "^Xnew: got"),
    (lambda: model().paths(1, 1)(np.nan * XNEW), "^Xnew: got NaN"),
    *(
        (
            lambda new=new: model().paths(2, 1).each(new),
            rf"got shape \({size}, expected \[2, N, D",
        )
        for new, size in ((XNEW, r"5, 2\)"), (np.stack([XNEW] * 3), r"3, 5, 2\)"))
    ),
    (
        lambda: tf.function(model().paths, autograph=False)(2),
        "paths: got a call inside a graph",
    ),
    (lambda: with_other_points().update(), "^update: got a model whose"),
    (
        lambda: PROBLEM.model(pep.PEPRegression, MULTISCALE).paths(1, 1),
        "^inducing_variable: got Multiscale, expected InducingPoints",
    ),
]


@pytest.mark.parametrize("call, message", REFUSALS)
def test_refused(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
