"""Labels of two classes, some of which are wrong."""

from typing import Any

import tensorflow as tf
from check_shapes import inherit_check_shapes
from gpflow.base import MeanAndVariance, TensorType
from tensorflow import Tensor

from ..engine.checks import check_choice
from ..engine.factors import classes
from .integrated import LikelihoodWithMoments, parameter_between


class NoisyLabelBernoulli(LikelihoodWithMoments):
    r"""Two classes, 0 and 1, whose labels are wrong at a rate :math:`\epsilon`.

    .. math::

       p(y | f) = (1 - \epsilon) \sigma(\pm f) + \epsilon \sigma(\mp f)

    with the upper sign for label 1 (Qi, Abdel-Gawad & Minka 2010, equation 3).
    :math:`\sigma` is the normal distribution function (``link="probit"``), or 1 for
    positive arguments and 0 for negative ones (``link="step"``).
    """

    def __init__(
        self, epsilon: float = 0.01, link: str = "probit", **kwargs: Any
    ) -> None:
        r""":param epsilon: The rate :math:`\epsilon` of wrong labels, in (0, 1/2). The
        parameter is trained only if you make it trainable.
        :param link: The link, "probit" or "step".
        :raises ValueError: If epsilon is outside its range, or if the link is not one
            of these.
        """
        super().__init__(**kwargs)
        check_choice("link", link, ("probit", "step"))
        remedy = (
            "It is the rate of wrong labels: for labels without errors choose a small"
            " rate, such as 1e-6; rates above"
        )
        remedy += " 0.5 swap the labels."
        self.epsilon = parameter_between(
            0.0, "epsilon", epsilon, 0.5, remedy, trainable=False
        )
        self.link = link

    @inherit_check_shapes
    def _scalar_log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> Tensor:
        # The margin of the observed label, so that small probabilities keep their
        # digits.
        if self.link == "step":
            margin = tf.cast(tf.equal(F >= 0.0, tf.equal(Y, 1.0)), F.dtype)
        else:
            margin = classes.normal_cdf(classes.signs(Y) * F)
        return tf.math.log(self.epsilon + (1.0 - 2.0 * self.epsilon) * margin)

    def _moments(
        self, X: TensorType, mean: Tensor, variance: Tensor
    ) -> MeanAndVariance:
        return classes.moments_of_labels(self, 2, X, mean, variance)

    def _integral(
        self, X: Tensor, Fmu: Tensor, Fvar: Tensor, Y: Tensor, alpha: Tensor
    ) -> Tensor:
        epsilon = tf.cast(self.epsilon, Fmu.dtype)
        power = alpha[:, None]
        if self.link == "step":
            terms = classes.step_log_power_expectation(Fmu, Fvar, Y, epsilon, power)
        else:  # 80 nodes are enough for error rates down to 1e-12
            rule = classes.squeezed_probit_log_power_expectation
            terms = rule(Fmu, Fvar, Y, epsilon, power, 80)
        return tf.reduce_sum(terms, axis=-1)


classes.register_two_classes(NoisyLabelBernoulli)
