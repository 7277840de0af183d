"""Noise whose variance depends on the inputs."""

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from check_shapes import inherit_check_shapes
from gpflow import Parameter
from gpflow.base import TensorType
from gpflow.config import default_float
from gpflow.functions import Function
from tensorflow import Tensor

from ..engine.checks import check_positive, check_real, refusal
from ..scoring.likelihoods import FARTHEST_INPUT, LARGEST_EXPONENT

#: The standard deviation of the prior on each weight: over two standard deviations of an input the
#: noise variance changes by a factor of 1.8 or less with probability 2/3.
PRIOR_DEVIATION = 0.3


class LogLinear(Function):
    r"""
    Noise variance whose logarithm is linear in the inputs,

    .. math::

       \sigma^2(x) = \sigma_0^2 \exp(w^\top \operatorname{clip}(x, -3, 3)), \qquad
       w_d \sim N(0, 0.3^2)

    for inputs that are standardised: beyond 3 standard deviations the noise stays as it is there.
    The exponent is between -10 and 10. In a Gaussian likelihood everything stays in closed form::

        likelihood = gpflow.likelihoods.Gaussian(variance=LogLinear(D))
        model = PEPRegression((X, Y), kernel, Z, likelihood=likelihood)

    Training maximises the objective plus the log density of the prior, which draws w towards 0,
    where the noise is constant. Inputs that are NaN count as 0, their mean.
    """

    def __init__(self, num_inputs: int, variance: float = 0.1) -> None:
        r"""
        :param num_inputs: D.
        :param variance: :math:`\sigma_0^2`, above 0, the noise variance at x = 0; a trainable
            parameter, as are the weights w, [D, 1], which start at 0.
        :raises ValueError: If an argument is outside its range.
        """
        super().__init__()
        self.num_inputs = check_positive("num_inputs", num_inputs)
        check_real(
            "variance", float(variance), "(0, inf)", "Pass 0.1 times that of Y, for example."
        )
        self.variance = Parameter(variance, transform=tfp.bijectors.Exp())
        prior = tfp.distributions.Normal(
            tf.constant(0.0, default_float()), tf.constant(PRIOR_DEVIATION, default_float())
        )
        self.weights = Parameter(np.zeros([num_inputs, 1]), prior=prior)

    @inherit_check_shapes
    def __call__(self, X: TensorType) -> Tensor:
        if X.shape[-1] != self.num_inputs:
            got, remedy = f"{X.shape[-1]} inputs", "Pass LogLinear their number."
            raise refusal("LogLinear", got, f"{self.num_inputs}, as it was made for", remedy)
        X = tf.where(tf.math.is_nan(X), tf.zeros_like(X), X)
        exponent = tf.clip_by_value(X, -FARTHEST_INPUT, FARTHEST_INPUT) @ self.weights
        return self.variance * tf.exp(
            tf.clip_by_value(exponent, -LARGEST_EXPONENT, LARGEST_EXPONENT)
        )
