"""Probabilities of classes: each beside the integral of its own density."""

import numpy as np
import pytest
import tensorflow as tf
from cases.tilted import CASES
from helpers import assert_close

from gpflow_pep.engine.factors import classes, num_classes
from gpflow_pep.likelihoods import class_probabilities


@pytest.mark.near_copies("*-6-*")
@pytest.mark.parametrize(
    "name, rtol",
    [
        ("Bernoulli 0", 1e-8),
        ("Bernoulli logit", 1e-8),
        ("MultiClass", 1e-8),
        ("Softmax", 1e-6),  # less accurate everywhere, docs/derivations.rst
    ],
)
@pytest.mark.parametrize("rows_at_a_time", [10_000, 6])
@pytest.mark.parametrize("compiled", [False, True])
def test_probability_of_a_class_is_its_integral(
    name: str, rtol: float, compiled: bool, rows_at_a_time: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(classes, "_ROWS", rows_at_a_time)
    case = CASES[name]
    random = np.random.default_rng(3)
    likelihood, num_rows = case.create(), 7
    count = num_classes(likelihood)
    X = np.zeros([num_rows, 2])
    mean = random.normal(size=[num_rows, case.num_latent])
    variance = random.uniform(0.1, 3.0, size=[num_rows, case.num_latent])

    def found(X: tf.Tensor, mean: tf.Tensor, variance: tf.Tensor) -> tf.Tensor:
        return class_probabilities(likelihood, X, mean, variance, count)

    if compiled:  # of any number of rows, as in a model that was exported
        rows = [tf.TensorSpec([None, part.shape[1]], tf.float64) for part in (X, mean, variance)]
        found = tf.function(found, rows, autograph=False)
    probability = found(X, mean, variance).numpy()
    assert probability.shape == (num_rows, count)
    assert_close(probability.sum(axis=1), np.ones(num_rows), rtol=rtol)
    expected = [np.exp(case.reference(m, v, 1.0)) for m, v in zip(mean, variance)]
    assert_close(probability[:, int(case.target[0])], np.array(expected), rtol=rtol)


def test_no_rows_have_no_probabilities() -> None:
    case = CASES["MultiClass"]
    nothing = np.zeros([0, 3])
    assert class_probabilities(case.create(), nothing, nothing, nothing, 3).shape == (0, 3)
