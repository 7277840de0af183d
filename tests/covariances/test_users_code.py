"""Graphs without AutoGraph, and with it where a user's own code needs it."""

from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from helpers import assert_close

import gpflow_pep as pep
from gpflow_pep.covariances.evaluate import is_plain, users_code


class Branching(gpflow.kernels.SquaredExponential):
    """A kernel whose Python code branches on a tensor, which needs AutoGraph in a graph."""

    def K(self, X: Any, X2: Any = None) -> tf.Tensor:
        if self.variance > 0.5:
            return super().K(X, X2)
        return 2.0 * super().K(X, X2)


class BranchingMean(gpflow.functions.MeanFunction):
    """So does this mean function."""

    def __call__(self, X: Any) -> tf.Tensor:
        if tf.reduce_sum(X) > 1e6:
            return tf.zeros_like(X[:, :1])
        return 0.3 * X[:, :1]


@users_code
def _branch(part: Any, x: tf.Tensor) -> tf.Tensor:
    if x > 0.0:
        return x
    return -x


@pytest.mark.parametrize("part", [Branching(), gpflow.kernels.White() + Branching(), lambda x: x])
def test_the_code_of_users_is_converted(part: Any) -> None:
    @tf.function
    @tf.autograph.experimental.do_not_convert
    def absolute(x: tf.Tensor) -> tf.Tensor:
        return _branch(part, x)

    assert absolute(tf.constant(-3.0)) == 3.0


def test_other_code_is_left_alone() -> None:
    kernel = gpflow.kernels.SquaredExponential() * gpflow.kernels.Linear()
    assert is_plain(kernel) and is_plain(gpflow.functions.Constant())
    assert not is_plain(Branching() + kernel)

    @tf.function(autograph=False)
    def absolute(x: tf.Tensor) -> tf.Tensor:
        return _branch(kernel, x)

    with pytest.raises(tf.errors.OperatorNotAllowedInGraphError):
        absolute(tf.constant(-3.0))


@pytest.mark.parametrize(
    "likelihood", [pytest.param(gpflow.likelihoods.Gaussian(), marks=pytest.mark.slow), None]
)
def test_models_take_kernels_and_means_that_branch_on_tensors(likelihood: Any) -> None:
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((20, 1)), rng.integers(0, 2, (20, 1)).astype(float)
    options: dict[str, Any] = {"alpha": 0.5, "mean_function": BranchingMean()}
    if likelihood is None:
        model = pep.models.PEPRegression((X, Y), Branching(), X[:5], noise_variance=0.1, **options)
    else:
        model = pep.models.PEP((X, Y), Branching(), likelihood, X[:5], **options)
    assert_close(tf.function(model.training_loss)(), model.training_loss(), rtol=1e-9)
    for actual, expected in zip(tf.function(model.predict_f)(X), model.predict_f(X)):
        assert_close(actual, expected, rtol=1e-9)
    if likelihood is None:
        with_rows = tf.function(lambda Xnew: model.predict_f(Xnew, neighbours=3))
        for actual, expected in zip(with_rows(X), model.predict_f(X, neighbours=3)):
            assert_close(actual, expected, rtol=1e-9)
