"""Graphs without AutoGraph, and with it where a user's own code needs it."""

from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from helpers import assert_all_close, assert_close

import gpflow_pep as pep
from gpflow_pep.engine.prior.evaluate import convert_user_code, is_plain


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


@convert_user_code
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


def _branching_model(likelihood: Any = None) -> Any:
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((20, 1)), rng.integers(0, 2, (20, 1)).astype(float)
    options: dict[str, Any] = {"alpha": 0.5, "mean_function": BranchingMean()}
    if likelihood is None:
        return pep.models.PEPRegression((X, Y), Branching(), X[:5], noise_variance=0.1, **options)
    return pep.models.PEP((X, Y), Branching(), likelihood, X[:5], **options)


@pytest.mark.parametrize("likelihood", [None, gpflow.likelihoods.Gaussian()])
@pytest.mark.near_copies
def test_losses_take_kernels_and_means_that_branch_on_tensors(likelihood: Any) -> None:
    model = _branching_model(likelihood)
    assert_close(tf.function(model.training_loss)(), model.training_loss(), rtol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("likelihood, near", [(None, {}), (None, {"near": 3}), (1, {})])
def test_so_do_predictions(likelihood: Any, near: dict[str, int]) -> None:
    model = _branching_model(likelihood and gpflow.likelihoods.Gaussian())
    predict = tf.function(lambda Xnew: model.predict_f(Xnew, **near))
    assert_all_close(predict(model.data[0]), model.predict_f(model.data[0], **near), rtol=1e-9)
