"""Base classes of the likelihoods of this folder: expectations computed from their
tilted integrals.
"""

import abc
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from check_shapes import inherit_check_shapes
from gpflow import Parameter
from gpflow.base import MeanAndVariance, TensorType
from gpflow.likelihoods import Likelihood, ScalarLikelihood
from gpflow.utilities import positive, to_default_float
from tensorflow import Tensor

from ..engine.checks import check_real
from ..engine.factors import implementations, layout, scalar_factor, support, traits
from ..engine.factors.moments import log_power_expectation_of_batches

#: The methods of a likelihood, and the functions with which they are registered.
_METHODS = {
    "_factor": scalar_factor,
    "_integral": implementations,
    "_support": support,
    "_layout": layout,
    "_traits": traits,
}


def parameter_between(
    low: float, name: str, value: float, high: float, remedy: str, **options: Any
) -> Parameter:
    """Make a parameter of a likelihood that stays between two numbers, both
    excluded.
    """
    check_real(name, float(value), f"({low:g}, {high:g})", remedy)
    ends = map(to_default_float, (low, high))
    transform = positive(lower=low) if high == np.inf else tfp.bijectors.Sigmoid(*ends)
    return Parameter(value, transform=transform, **options)


class IntegratedLikelihood(Likelihood, abc.ABC):
    """A likelihood whose expectations are tilted integrals, instead of GPflow's 20
    Gauss-Hermite nodes. Methods with the names ``_factor`` or ``_integral``,
    ``_support``, ``_layout`` and ``_traits`` are registered automatically.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name in _METHODS.keys() & vars(cls).keys():
            _METHODS[name].register(cls)(vars(cls)[name])

    @inherit_check_shapes
    def _variational_expectations(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> Tensor:
        return log_power_expectation_of_batches(self, X, Fmu, Fvar, Y, alpha=0.0)

    @inherit_check_shapes
    def _predict_log_density(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> Tensor:
        return log_power_expectation_of_batches(self, X, Fmu, Fvar, Y, alpha=1.0)


class LikelihoodWithMoments(IntegratedLikelihood, ScalarLikelihood):
    """An :class:`IntegratedLikelihood` with formulas for the mean and variance of y
    under a Gaussian f. Its log density is the log density of its factor, if it has one.
    """

    @inherit_check_shapes
    def _scalar_log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> Tensor:
        F = tf.convert_to_tensor(F)
        Y = tf.cast(Y, F.dtype)
        make_factor = scalar_factor.dispatch_or_raise(type(self))
        return make_factor(self, X, Y, tf.ones([], F.dtype)).log_prob(F)

    @abc.abstractmethod
    def _moments(
        self, X: TensorType, mean: Tensor, variance: Tensor
    ) -> MeanAndVariance:
        """Compute mean and variance of y for f with these means and variances.
        Variances may be 0.
        """

    @inherit_check_shapes
    def _conditional_mean(self, X: TensorType, F: TensorType) -> Tensor:
        return self._moments(X, F, tf.zeros_like(F))[0]

    @inherit_check_shapes
    def _conditional_variance(self, X: TensorType, F: TensorType) -> Tensor:
        return self._moments(X, F, tf.zeros_like(F))[1]

    @inherit_check_shapes
    def _predict_mean_and_var(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType
    ) -> MeanAndVariance:
        return self._moments(X, Fmu, Fvar)
