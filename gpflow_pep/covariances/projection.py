"""Rows of data seen through whitened inducing variables: the matrix A and what it leaves over."""

from typing import NamedTuple

import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import TensorType
from gpflow.config import default_jitter
from gpflow.covariances import Kuf, Kuu
from gpflow.inducing_variables import InducingVariables
from gpflow.kernels import Kernel

from ..ops.graph import converted_for
from ..ops.linalg import Factor, factorise, lower_matmul
from .well_conditioned import WellConditioned


class Projection(NamedTuple):
    """Prior of f at some rows given the whitened inducing variables, u = L v, v ~ N(0, I)."""

    A: tf.Tensor
    """[M, N], :math:`A = L^{-1} K_{uf}`: :math:`f_n = A_nᵀ v +` residual."""

    D: tf.Tensor
    """Residual prior covariance given u. [N]: its diagonal :math:`d_n = k_{nn} - |A_n|^2`, at
    least 0; or [B, S, S]: its diagonal blocks, for rows that come in B blocks of S."""


@check_shapes(
    "return.L: [M, M]",
    "return.W: [M, M]",
)
def prior_factor(inducing_variable: InducingVariables, kernel: Kernel) -> Factor:
    """
    Compute the Cholesky factor of ``Kuu`` with GPflow's default jitter, more if it needs more.

    :param inducing_variable: Any inducing variables that GPflow's ``Kuu`` knows.
    :param kernel: The kernel, of one output.
    """
    prior_covariance = converted_for((kernel, inducing_variable), _prior_covariance)
    return factorise(prior_covariance(WellConditioned(inducing_variable), kernel))


def _prior_covariance(inducing_variable: InducingVariables, kernel: Kernel) -> tf.Tensor:
    return Kuu(inducing_variable, kernel, jitter=default_jitter())


def _cross_covariance(
    inducing_variable: InducingVariables, kernel: Kernel, X: TensorType
) -> tf.Tensor:
    return Kuf(inducing_variable, kernel, X)


def _variance(kernel: Kernel, X: TensorType) -> tf.Tensor:
    return kernel(X, full_cov=False)


def _covariance(kernel: Kernel, X: TensorType) -> tf.Tensor:
    return kernel(X)


@check_shapes(
    "W: [M, M]",
    "X: [N, D]",
    "return.A: [M, N]",
    "return.D: [N]",
)
def project(
    W: tf.Tensor, inducing_variable: InducingVariables, kernel: Kernel, X: TensorType
) -> Projection:
    """
    Project single rows on the whitened inducing variables.

    :param W: Inverse Cholesky factor of ``Kuu``, see :func:`prior_factor`.
    :param inducing_variable: The inducing variables u.
    :param kernel: The kernel, of one output.
    :param X: Inputs of the rows.
    """
    cross_covariance = converted_for((kernel, inducing_variable), _cross_covariance)
    A = lower_matmul(W, cross_covariance(inducing_variable, kernel, X))
    d = converted_for((kernel,), _variance)(kernel, X) - tf.reduce_sum(tf.square(A), axis=0)
    return Projection(A, tf.maximum(d, tf.zeros_like(d)))  # rounding can make it negative


@check_shapes(
    "W: [M, M]",
    "X: [B, S, D]",
    "return.A: [M, N]",
    "return.D: [B, S, S]",
)
def project_blocks(
    W: tf.Tensor, inducing_variable: InducingVariables, kernel: Kernel, X: TensorType
) -> Projection:
    """
    Project B blocks of S rows each on the whitened inducing variables; N = B S.

    See :func:`project`; here the residual covariance is kept inside the blocks (PITC).
    """
    num_blocks, size = tf.shape(X)[0], tf.shape(X)[1]
    flat = tf.reshape(X, [num_blocks * size, X.shape[-1]])
    cross_covariance = converted_for((kernel, inducing_variable), _cross_covariance)
    A = lower_matmul(W, cross_covariance(inducing_variable, kernel, flat))
    blocks = tf.transpose(tf.reshape(A, [-1, num_blocks, size]), [1, 2, 0])  # [B, S, M]
    D = converted_for((kernel,), _covariance)(kernel, X) - tf.matmul(
        blocks, blocks, transpose_b=True
    )
    return Projection(A, D)
