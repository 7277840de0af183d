"""Noise whose variance contains what the inducing variables leave open."""

import tensorflow as tf
from check_shapes import inherit_check_shapes
from gpflow import Parameter
from gpflow.base import TensorType
from gpflow.functions import Function
from gpflow.kernels import Kernel
from gpflow.models.util import InducingVariablesLike, inducingpoint_wrapper
from gpflow.utilities import positive
from tensorflow import Tensor

from ..engine.checks import check_real
from ..engine.prior import project, whiten


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
        r""":param kernel: Of one output; the model's.
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
