"""Labels that are wrong at a rate of their own: of two classes, and of several."""

from typing import Any

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes, inherit_check_shapes
from gpflow.base import MeanAndVariance, TensorType
from gpflow.likelihoods import RobustMax
from tensorflow import Tensor

from ..engine.checks import check_choice, check_real
from ..engine.factors import classes, implementations
from .integrated import LikelihoodWithMoments, parameter_between


class NoisyLabelBernoulli(LikelihoodWithMoments):
    r"""Two classes, 0 and 1, whose labels are wrong at a rate :math:`\epsilon`.

    .. math::

       p(y | f) = (1 - \epsilon) \sigma(\pm f) + \epsilon \sigma(\mp f)

    with the upper sign for label 1 (Qi, Abdel-Gawad & Minka 2010, equation 3). :math:`\sigma` is
    the normal distribution function (``link="probit"``), or 1 for positive arguments and 0 for
    negative ones (``link="step"``).
    """

    def __init__(self, epsilon: float = 0.01, link: str = "probit", **kwargs: Any) -> None:
        r""":param epsilon: The rate :math:`\epsilon`, in (0, 1/2). A parameter that is not trained
            unless it is made trainable.
        :param link: "probit" or "step".
        :raises ValueError: If epsilon is outside its range or the link is another.
        """
        super().__init__(**kwargs)
        check_choice("link", link, ("probit", "step"))
        remedy = "It is a rate: for labels without errors choose a small one, such as 1e-6; above"
        remedy += " 0.5 swap the labels."
        self.epsilon = parameter_between(0.0, "epsilon", epsilon, 0.5, remedy, trainable=False)
        self.link = link

    @inherit_check_shapes
    def _scalar_log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> Tensor:
        # The margin of the label itself, so that small probabilities keep their digits.
        if self.link == "step":
            margin = tf.cast(tf.equal(F >= 0.0, tf.equal(Y, 1.0)), F.dtype)
        else:
            margin = classes.normal_cdf(classes.signs(Y) * F)
        return tf.math.log(self.epsilon + (1.0 - 2.0 * self.epsilon) * margin)

    def _moments(self, X: TensorType, mean: Tensor, variance: Tensor) -> MeanAndVariance:
        return classes.moments_of_labels(self, 2, X, mean, variance)


@implementations.register(NoisyLabelBernoulli)
def _noisy_label_bernoulli(
    likelihood: NoisyLabelBernoulli, X: Tensor, Fmu: Tensor, Fvar: Tensor, Y: Tensor, alpha: Tensor
) -> Tensor:
    epsilon = tf.cast(likelihood.epsilon, Fmu.dtype)
    power = alpha[:, None]
    if likelihood.link == "step":
        terms = classes.step_log_power_expectation(Fmu, Fvar, Y, epsilon, power)
    else:  # 80 nodes are enough for rates of errors down to 1e-12
        terms = classes.squeezed_probit_log_power_expectation(Fmu, Fvar, Y, epsilon, power, 80)
    return tf.reduce_sum(terms, axis=-1)


classes.register_two_classes(NoisyLabelBernoulli, error_rate=lambda likelihood: likelihood.epsilon)


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

    @check_shapes("epsilon: []")
    def __init__(self, num_classes: int, epsilon: float = 1e-3, **kwargs: Any) -> None:
        r""":param num_classes: C, at least 2.
        :param epsilon: The paper's :math:`\epsilon`, in (0, 1).
        :raises ValueError: If one of them is outside its range.
        """
        check_real("num_classes", int(num_classes), "[2, inf)", "One class needs no model.")
        check_real("epsilon", float(np.asarray(epsilon)), "(0, 1)", "It is a rate, often 1e-3.")
        super().__init__(num_classes, epsilon * (num_classes - 1.0) / num_classes, **kwargs)
