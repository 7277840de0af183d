"""PEPRegression on a data set that is read in batches: the numbers of the same rows in memory."""

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import helpers
import numpy as np
import pytest
import tensorflow as tf
from helpers import Array, assert_all_close, assert_close

import gpflow_pep as pep
from gpflow_pep.engine.numerics.chunks import Stream
from gpflow_pep.likelihoods import NoisyLabelBernoulli

N = 137
PROBLEM = helpers.regression_problem(num_data=N)
SAME = 1e-10


def dataset(X: Array = PROBLEM.X, Y: Array = PROBLEM.Y, batch_size: int = 10) -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices((X, Y)).batch(batch_size)


def streamed(data: Any = None, **options: Any) -> Any:
    """The model of the problem, on a data set."""
    options = {"noise_variance": PROBLEM.noise_variance, "chunk_size": 23, **options}
    data = dataset() if data is None else data
    return pep.PEPRegression(data, PROBLEM.kernel(), PROBLEM.Z, **options)


def value_and_gradient(model: Any) -> list[tf.Tensor]:
    value, slopes = helpers.value_and_gradients(model.training_loss, model.trainable_variables)
    return [value, *slopes]


@pytest.mark.parametrize("num_rows", [1, 2, 3, 6, 12, 24, 97])
def test_chunks_have_every_row_once(num_rows: int) -> None:
    rows = np.arange(num_rows)
    batches = tf.data.Dataset.from_tensor_slices((rows,)).batch(5)
    for chunk_size in (1, 2, 3, 4, 7, 12, 24, 100):
        stream = Stream(batches, num_rows, chunk_size)
        take = stream.one_pass()
        chunks = [take(k)[0].numpy() for k in range(stream.count)]
        np.testing.assert_array_equal(np.concatenate(chunks), rows)
        assert max(map(len, chunks)) <= max(chunk_size + 1, 5) and len(chunks[-1]) < stream.size


CASES = [*((alpha, "standard", 23) for alpha in (0.5, 0.0, 1.0))]
CASES += [(1e-6, "tight", 23), (0.3, "standard", None)]


@pytest.mark.parametrize("alpha, bound, chunk_size", CASES)
@pytest.mark.near_copies("0.5-*", "*-tight-*", "*-None")
def test_value_and_gradient(alpha: float, bound: str, chunk_size: int | None) -> None:
    options = {"alpha": alpha, "bound": bound}
    expected = value_and_gradient(PROBLEM.model(pep.PEPRegression, **options))
    model = streamed(**options, chunk_size=chunk_size)
    compiled = tf.function(value_and_gradient, autograph=False)(model)
    assert_all_close(compiled, expected, rtol=SAME)


def test_all_else_that_needs_sums_alone() -> None:
    model, other = streamed(), PROBLEM.model(pep.PEPRegression)
    assert (type(model).__name__, model.num_data) == ("PEPRegression", N)
    assert_all_close(value_and_gradient(model), value_and_gradient(other), rtol=SAME)  # eager
    for name in ("upper_bound", "compute_qu", "evidence_and_left_out"):
        actual, expected = (getattr(which, name)() for which in (model, other))
        assert_all_close(tf.nest.flatten(actual), tf.nest.flatten(expected), rtol=SAME)
    predict, expected = model.posterior().predict_f, other.predict_f(PROBLEM.Xnew)
    assert_all_close(predict(PROBLEM.Xnew), expected, rtol=SAME)
    memory = other.remember()
    assert_close(model.remember().first, memory.first, rtol=1e-8)
    copied = deepcopy(model)
    copied.kernel.variance.assign(2.0 * model.kernel.variance)
    assert copied.training_loss() != model.training_loss()
    expected = PROBLEM.model(pep.PEPRegression, memory=memory).training_loss()
    assert_close(streamed(memory=memory).training_loss(), expected, rtol=SAME)


def test_other_rows() -> None:
    model = streamed()
    loss = tf.function(model.training_loss, autograph=False)
    loss()
    rows = {"X": PROBLEM.X[:60], "Y": PROBLEM.Y[:60]}
    model.data = dataset(**rows)
    few = PROBLEM._replace(**rows).model(pep.PEPRegression)
    assert model.num_data == 60
    assert_close(model.training_loss(), few.training_loss(), rtol=SAME)
    with pytest.raises(tf.errors.InvalidArgumentError, match="compiled for rows"):
        loss()


@pytest.mark.parametrize("later", [slice(0, 0), slice(0, 60), slice(0, 2 * N)])
@pytest.mark.near_copies("later1")
def test_a_data_set_that_gives_other_rows(later: slice) -> None:
    """None, as from a generator that was used up; fewer; more."""
    X, Y = (np.concatenate([part, part]) for part in PROBLEM.data)
    present = slice(0, N)

    def batches() -> Iterator[Any]:
        if len(X[present]):
            yield X[present], Y[present]

    signature = tuple(tf.TensorSpec([None, part.shape[1]], part.dtype) for part in (X, Y))
    data = tf.data.Dataset.from_generator(batches, output_signature=signature)
    model = streamed(data)
    compiled = tf.function(model.training_loss, autograph=False)
    compiled()
    present = later
    with pytest.raises(ValueError, match="other than its 137 rows"):
        model.training_loss()
    with pytest.raises(tf.errors.InvalidArgumentError, match="other than its 137 rows"):
        compiled()


WITH_NAN = np.where(np.arange(N)[:, None] == 100, np.nan, PROBLEM.X)
PARTS = PROBLEM.kernel(), NoisyLabelBernoulli(0.1), PROBLEM.Z
REFUSED = {
    "^data: .*blocks.*memory": lambda: streamed(blocks=np.arange(N)),
    r"^alpha: .*\(137,\).*one number": lambda: streamed(alpha=np.full(N, 0.5)),
    "^alpha: .*one number": lambda: setattr(streamed(), "alpha", [0.5] * N),
    "^data: .*pairs": lambda: streamed(dataset().map(lambda X, Y: X)),
    "^data: .* pairs": lambda: streamed(dataset().unbatch()),
    "^data: .*float64": lambda: streamed(dataset(*map(np.float32, PROBLEM.data))),
    "^data: .*without end": lambda: streamed(dataset().repeat()),
    "^data: .*without rows": lambda: streamed(dataset().take(0)),
    "^X: .*NaN": lambda: streamed(dataset(WITH_NAN)),
    "^data: .*137 rows.*memory": lambda: streamed().loo_log_density(),
    "^data: .*137 rows .*memory": lambda: streamed().predict_f(PROBLEM.Xnew, near=2),
    "^data: .* 137 rows .*memory": lambda: pep.training.maximise(streamed(), num_inducing="auto"),
    "^data: .*as before": lambda: setattr(streamed(), "data", PROBLEM.data),
    ".*PEPRegression": lambda: pep.PEP(dataset(), *PARTS),
    "^X: .*as before": lambda: setattr(streamed(), "data", dataset(PROBLEM.X[:, :1])),
}
test_refused = helpers.refusals(REFUSED)
