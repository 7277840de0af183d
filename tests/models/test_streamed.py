"""PEPRegression on a data set that is read in batches: the numbers of the same rows in memory."""

from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import partial
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from helpers import (
    Array,
    assert_all_close,
    assert_close,
    regression_problem,
    value_and_gradients,
)

import gpflow_pep as pep
from gpflow_pep.engine.numerics.chunks import Stream
from gpflow_pep.likelihoods import NoisyLabelBernoulli

N = 137
PROBLEM = regression_problem(num_data=N)
SAME = 1e-10


def dataset(X: Array = PROBLEM.X, Y: Array = PROBLEM.Y, batch_size: int = 10) -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices((X, Y)).batch(batch_size)


def streamed(data: Any = None, **options: Any) -> Any:
    """The model of the problem, on a data set."""
    return pep.PEPRegression(
        dataset() if data is None else data,
        PROBLEM.kernel(),
        PROBLEM.Z,
        noise_variance=PROBLEM.noise_variance,
        **{"chunk_size": 23, **options},
    )


def value_and_gradient(model: Any) -> list[tf.Tensor]:
    value, slopes = value_and_gradients(model.training_loss, model.trainable_variables)
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


@pytest.mark.parametrize(
    "options",
    [
        {"alpha": 0.5},
        {"alpha": 0.0},
        {"alpha": 1e-6, "bound": "tight"},
        {"alpha": 1.0},
        {"alpha": 0.3, "chunk_size": None},
    ],
    ids=str,
)
@pytest.mark.near_copies("*0.5*", "*scaled*", "*None*")
def test_value_and_gradient(options: dict[str, Any]) -> None:
    in_memory = {name: value for name, value in options.items() if name != "chunk_size"}
    expected = value_and_gradient(PROBLEM.model(pep.PEPRegression, **in_memory))
    compiled = tf.function(value_and_gradient, autograph=False)(streamed(**options))
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


def test_training() -> None:
    models = streamed(), PROBLEM.model(pep.PEPRegression)
    maximise = partial(pep.training.maximise, max_iterations=4, progress=False)
    assert_close(*(maximise(model).objective for model in models), rtol=1e-8)


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


Call = Callable[[], Any]
rows = np.arange(N)[:, None]
ROWS = ".*137 rows.*memory"
REFUSED: dict[str, tuple[str, Call]] = {
    "blocks": ("data: .*blocks.*memory", lambda: streamed(blocks=np.arange(N))),
    "powers": (r"alpha: .*\(137,\).*one number", lambda: streamed(alpha=np.full(N, 0.5))),
    "powers assigned": ("alpha: .*one number", lambda: setattr(streamed(), "alpha", [0.5] * N)),
    "no pairs": ("data: .*pairs", lambda: streamed(dataset().map(lambda X, Y: X))),
    "no batches": ("data: .*pairs", lambda: streamed(dataset().unbatch())),
    "precision": ("data: .*float64", lambda: streamed(dataset(*map(np.float32, PROBLEM.data)))),
    "without end": ("data: .*without end", lambda: streamed(dataset().repeat())),
    "no rows": ("data: .*without rows", lambda: streamed(dataset().take(0))),
    "NaN": ("X: .*NaN", lambda: streamed(dataset(PROBLEM.X * np.where(rows == 100, np.nan, 1)))),
    "left out": (f"data: {ROWS}", lambda: streamed().loo_log_density()),
    "near rows": (f"data: {ROWS}", lambda: streamed().predict_f(PROBLEM.Xnew, near=2)),
    "points": (f"data: {ROWS}", lambda: pep.training.maximise(streamed(), num_inducing="auto")),
    "arrays": ("data: .*as before", lambda: setattr(streamed(), "data", PROBLEM.data)),
    "PEP": (
        ".*PEPRegression",
        lambda: pep.PEP(dataset(), PROBLEM.kernel(), NoisyLabelBernoulli(0.1), PROBLEM.Z),
    ),
    "columns": ("X: .*as before", lambda: setattr(streamed(), "data", dataset(PROBLEM.X[:, :1]))),
}


@pytest.mark.parametrize("words, call", REFUSED.values(), ids=REFUSED)
def test_refused(words: str, call: Call) -> None:
    with pytest.raises(ValueError, match=f"(?s)^{words}"):
        call()
