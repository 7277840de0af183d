"""What likelihoods of this folder have in common: expectations by their own tilted integrals."""

import abc

import tensorflow as tf
from check_shapes import inherit_check_shapes
from gpflow.base import MeanAndVariance, TensorType
from gpflow.likelihoods import ScalarLikelihood
from tensorflow import Tensor

from ..tilted import log_power_expectation


class IntegratedLikelihood(ScalarLikelihood):
    """
    A likelihood whose expectations are tilted integrals, where GPflow takes 20 Gauss-Hermite nodes.

    Derived classes do not depend on X.
    """

    @inherit_check_shapes
    def _variational_expectations(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> Tensor:
        return self._integral(Fmu, Fvar, Y, 0.0)

    @inherit_check_shapes
    def _predict_log_density(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> Tensor:
        return self._integral(Fmu, Fvar, Y, 1.0)

    def _integral(self, Fmu: Tensor, Fvar: Tensor, Y: Tensor, alpha: float) -> Tensor:
        """Compute the tilted integrals of rows in any number of batches."""
        shape = tf.shape(Fmu)
        of_targets = tf.concat([shape[:-1], [max(Y.shape[-1], Fmu.shape[-1])]], axis=0)
        mean, variance, targets = (
            tf.reshape(part, [-1, part.shape[-1]])
            for part in (Fmu, Fvar, tf.broadcast_to(Y, of_targets))
        )
        # The means stand for the inputs, on which nothing depends.
        ell = log_power_expectation(self, mean, mean, variance, targets, alpha)
        return tf.reshape(ell, shape[:-1])


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


def moments_of_exponential(mean: Tensor, variance: Tensor) -> MeanAndVariance:
    r"""
    Compute mean and variance of :math:`e^x` for Gaussian x,

    .. math:: e^{m + v / 2}, \qquad (e^v - 1) \, e^{2 m + v}.
    """
    expected = tf.exp(mean + 0.5 * variance)
    return expected, tf.math.expm1(variance) * tf.square(expected)
