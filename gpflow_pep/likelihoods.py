"""Likelihoods that GPflow lacks."""

from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from check_shapes import check_shapes, inherit_check_shapes
from gpflow import Parameter
from gpflow.base import MeanAndVariance, TensorType
from gpflow.functions import Function
from gpflow.kernels import Kernel
from gpflow.likelihoods import RobustMax, ScalarLikelihood
from gpflow.models.util import InducingVariablesLike, inducingpoint_wrapper
from gpflow.utilities import positive, to_default_float
from tensorflow import Tensor

from .checks import check_choice, check_real
from .covariances import project, whiten
from .tilted import implementations
from .tilted.bernoulli import (
    margin_of_step,
    normal_cdf,
    register_two_classes,
    squeezed_probit_log_power_expectation,
    step_log_power_expectation,
)

#: Enough for rates of errors down to 1e-12.
_PROBIT_NODES = 80


class NoisyLabelBernoulli(ScalarLikelihood):
    r"""
    Two classes, 0 and 1, whose labels are wrong at a rate :math:`\epsilon`.

    .. math::

       p(y | f) = (1 - \epsilon) \sigma(\pm f) + \epsilon \sigma(\mp f)

    with the upper sign for label 1 (Qi, Abdel-Gawad & Minka 2010, equation 3). :math:`\sigma` is
    the normal distribution function (``link="probit"``), or 1 for positive arguments and 0 for
    negative ones (``link="step"``).
    """

    def __init__(self, epsilon: float = 0.01, link: str = "probit", **kwargs: Any) -> None:
        r"""
        :param epsilon: The rate :math:`\epsilon`, in (0, 1/2). A parameter that is not trained
            unless it is made trainable.
        :param link: "probit" or "step".
        :raises ValueError: If epsilon is outside its range or the link is another.
        """
        super().__init__(**kwargs)
        check_real(
            "epsilon",
            float(epsilon),
            "(0, 0.5)",
            "It is a rate: for labels without errors choose a small one, such as 1e-6; above 0.5"
            " swap the labels.",
        )
        check_choice("link", link, ("probit", "step"))
        to_half = tfp.bijectors.Sigmoid(to_default_float(0.0), to_default_float(0.5))
        self.epsilon = Parameter(epsilon, transform=to_half, trainable=False)
        self.link = link

    def _prob_one(self, margin: Tensor) -> Tensor:
        return self.epsilon + (1.0 - 2.0 * self.epsilon) * margin

    def _margin(self, F: Tensor) -> Tensor:
        if self.link == "step":
            return tf.where(F >= 0.0, tf.ones_like(F), tf.zeros_like(F))
        return normal_cdf(F)

    @inherit_check_shapes
    def _scalar_log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> Tensor:
        # The margin of the label itself, so that small probabilities keep their digits.
        margin = tf.where(tf.equal(Y, 1.0), self._margin(F), 1.0 - self._margin(F))
        return tf.math.log(self._prob_one(margin))

    @inherit_check_shapes
    def _conditional_mean(self, X: TensorType, F: TensorType) -> Tensor:
        return self._prob_one(self._margin(F))

    @inherit_check_shapes
    def _conditional_variance(self, X: TensorType, F: TensorType) -> Tensor:
        p = self._conditional_mean(X, F)
        return p - p**2

    @inherit_check_shapes
    def _predict_mean_and_var(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType
    ) -> MeanAndVariance:
        step = self.link == "step"
        margin = margin_of_step(Fmu, Fvar) if step else Fmu / tf.sqrt(1.0 + Fvar)
        p = self._prob_one(normal_cdf(margin))
        return p, p - p**2

    @inherit_check_shapes
    def _predict_log_density(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> Tensor:
        p = self._predict_mean_and_var(X, Fmu, Fvar)[0]
        return tf.reduce_sum(tf.math.log(tf.where(tf.equal(Y, 1.0), p, 1.0 - p)), axis=-1)

    @inherit_check_shapes
    def _variational_expectations(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> Tensor:
        if self.link == "probit":
            return super()._variational_expectations(X, Fmu, Fvar, Y)
        return _noisy_label_bernoulli(self, X, Fmu, Fvar, Y, tf.zeros([1], Fmu.dtype))


@implementations.register(NoisyLabelBernoulli)
def _noisy_label_bernoulli(
    likelihood: NoisyLabelBernoulli, X: Tensor, Fmu: Tensor, Fvar: Tensor, Y: Tensor, alpha: Tensor
) -> Tensor:
    epsilon = tf.cast(likelihood.epsilon, Fmu.dtype)
    power = alpha[:, None]
    if likelihood.link == "step":
        terms = step_log_power_expectation(Fmu, Fvar, Y, epsilon, power)
    else:
        terms = squeezed_probit_log_power_expectation(Fmu, Fvar, Y, epsilon, power, _PROBIT_NODES)
    return tf.reduce_sum(terms, axis=-1)


register_two_classes(NoisyLabelBernoulli)


class UniformRobustMax(RobustMax):
    r"""
    The inverse link of Villacampa-Calvo & Hernández-Lobato (2020), equation 2: a wrong label comes
    from all C classes alike.

    .. math::

       p(y | f) = (1 - \epsilon) \, [f_y \text{ is the largest}] + \epsilon / C

    It is GPflow's :class:`gpflow.likelihoods.RobustMax`, in which a wrong label comes from the
    other classes, at the error rate :math:`\epsilon (C - 1) / C`. Use it as
    ``gpflow.likelihoods.MultiClass(C, invlink=UniformRobustMax(C))``.
    """

    @check_shapes(
        "epsilon: []",
    )
    def __init__(self, num_classes: int, epsilon: float = 1e-3, **kwargs: Any) -> None:
        r"""
        :param num_classes: C, at least 2.
        :param epsilon: The paper's :math:`\epsilon`, in (0, 1).
        :raises ValueError: If one of them is outside its range.
        """
        check_real("num_classes", int(num_classes), "[2, inf)", "One class needs no model.")
        check_real("epsilon", float(np.asarray(epsilon)), "(0, 1)", "It is a rate, often 1e-3.")
        super().__init__(num_classes, epsilon * (num_classes - 1.0) / num_classes, **kwargs)


class ResidualVariance(Function):
    r"""
    Noise variance :math:`\sigma^2 + d(x)`, where d is the variance of f(x) that is left when the
    inducing variables of the noise are known.

    Gaussian noise of this variance is the model that FITC's likelihood stands for, and with
    :math:`\alpha = 0` the objective is the variational bound of SPGP (Titsias 2009, appendix C,
    where noise and model have the same kernel and inducing variables)::

        points = gpflow.inducing_variables.InducingPoints(Z)
        noise = ResidualVariance(kernel, points, variance=0.1)
        likelihood = gpflow.likelihoods.Gaussian(variance=noise)
        model = PEPRegression((X, Y), kernel, points, alpha=0.0, likelihood=likelihood)

    It is a bound of the log marginal likelihood under that noise. Inducing variables shared with
    the model are parameters of both, and then trained as the noise's too; with others of its own,
    the model's are parameters of the approximation only.
    """

    def __init__(
        self, kernel: Kernel, inducing_variable: InducingVariablesLike, variance: float = 1.0
    ) -> None:
        r"""
        :param kernel: Of one output; the model's.
        :param inducing_variable: The inducing variables of the noise, or their inputs [M, D].
        :param variance: :math:`\sigma^2`, above 0; a trainable parameter.
        :raises ValueError: If the variance is not above 0.
        """
        super().__init__()
        check_real(
            "variance", float(variance), "(0, inf]", "Pass 0.1 times that of Y, for example."
        )
        self.kernel = kernel
        self.inducing_variable = inducingpoint_wrapper(inducing_variable)
        self.variance = Parameter(variance, transform=positive())

    @inherit_check_shapes
    def __call__(self, X: TensorType) -> Tensor:
        rows = tf.reshape(X, [-1, X.shape[-1]])
        W = whiten(self.inducing_variable, self.kernel).W
        d = project(W, self.inducing_variable, self.kernel, rows).D[0]
        shape = tf.concat([tf.shape(X)[:-1], [1]], axis=0)
        return tf.reshape(self.variance + d, shape)
