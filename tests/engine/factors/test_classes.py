"""Probabilities of classes: each beside the integral of its own density."""

import itertools

import numpy as np
import pytest
import scipy.integrate
import scipy.special
import scipy.stats
import tensorflow as tf
from cases.tilted import CASES
from helpers import assert_close

from gpflow_pep.engine.factors import classes, multiclass, num_classes
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


#: Margins [K, N] and rates of rows that need one to four panels of nodes, and none at all.
STEEP = (
    np.array(
        [[0.3, -0.4, 0.2, 0.5, np.nan], [1.0, 0.2, -0.8, -20.0, 0.0], [0.5, 2.0, 9.0, -0.1, 1]]
    ),
    np.array(
        [[1e-9, 1.5, 0.8, 1.0, 1.0], [1e-8, 1e8, 6.0, 2.0, 1.0], [1e-9, 0.3, 60.0, 1e-7, 1.0]]
    ),
)


def test_rows_that_need_few_panels_are_as_others() -> None:
    margin, rate = map(tf.constant, STEEP)
    with tf.GradientTape() as tape:
        tape.watch((margin, rate))
        actual = multiclass.prob_above_all(margin, rate)
    by_margin, by_rate = tape.gradient(actual, (margin, rate))
    expected = [_above_all(a, b) for a, b in zip(STEEP[0].T[:4], STEEP[1].T[:4])]
    assert_close(actual[:4], np.array(expected), rtol=1e-10)
    for by in (actual[None], by_margin, by_rate):
        assert np.isfinite(by[:, :4]).all() and np.isnan(by[:, 4]).all()
    for k, step in ((0, 1e-4), (2, 1e-4)):
        for argument, by in enumerate((by_margin, by_rate)):
            ends = []
            for sign in (-1.0, 1.0):
                shifted = [part[:, 2].copy() for part in STEEP]
                shifted[argument][k] += sign * step
                ends.append(_above_all(*shifted))
            assert_close(by[k, 2], (ends[1] - ends[0]) / (2.0 * step), rtol=1e-5)


def test_xla_has_panels_of_all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """It knows no sizes that depend on data; panels of rows that need no more are empty."""
    margin, rate = map(tf.constant, STEEP)
    expected = multiclass.prob_above_all(margin, rate)
    monkeypatch.setattr(multiclass, "positions", lambda condition: tf.range(len(condition)))
    assert_close(multiclass.prob_above_all(margin, rate)[:4], expected[:4], rtol=1e-14)


def _above_all(margin: np.ndarray, rate: np.ndarray) -> float:
    def integrand(t: float) -> float:
        return float(scipy.stats.norm.pdf(t) * np.prod(scipy.special.ndtr(margin + rate * t)))

    rises = np.concatenate([(end - margin) / rate for end in (-8.0, 0.0, 8.0)])
    ends = np.unique(np.clip([-9.0, *rises, 9.0], -9.0, 9.0))
    options = {"epsabs": 1e-13, "epsrel": 1e-12, "limit": 400}
    parts = itertools.pairwise(ends)
    return sum(scipy.integrate.quad(integrand, low, high, **options)[0] for low, high in parts)
