"""What likelihoods of this folder have in common: expectations by their own tilted integrals."""

import abc

import tensorflow as tf
from check_shapes import inherit_check_shapes
from gpflow.base import MeanAndVariance, TensorType
from gpflow.likelihoods import ScalarLikelihood
from tensorflow import Tensor

from ..engine.factors.moments import log_power_expectation_of_batches


class IntegratedLikelihood(ScalarLikelihood):
    """
    A likelihood whose expectations are tilted integrals, where GPflow takes 20 Gauss-Hermite nodes.
    """

    @inherit_check_shapes
    def _variational_expectations(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> Tensor:
        return log_power_expectation_of_batches(self, X, Fmu, Fvar, Y, 0.0)

    @inherit_check_shapes
    def _predict_log_density(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> Tensor:
        return log_power_expectation_of_batches(self, X, Fmu, Fvar, Y, 1.0)


class LikelihoodWithMoments(IntegratedLikelihood):
    """One of these whose mean and variance of y have a closed form under any Gaussian f."""

    @abc.abstractmethod
    def _moments(self, mean: Tensor, variance: Tensor) -> MeanAndVariance:
        """Compute mean and variance of y for f of such means and variances, which may be 0."""

    @inherit_check_shapes
    def _conditional_mean(self, X: TensorType, F: TensorType) -> Tensor:
        return self._moments(F, tf.zeros_like(F))[0]

    @inherit_check_shapes
    def _conditional_variance(self, X: TensorType, F: TensorType) -> Tensor:
        return self._moments(F, tf.zeros_like(F))[1]

    @inherit_check_shapes
    def _predict_mean_and_var(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType
    ) -> MeanAndVariance:
        return self._moments(Fmu, Fvar)
