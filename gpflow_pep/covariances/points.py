"""Inducing points of another model, seen through the inducing variables of this one."""

import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import TensorType
from gpflow.config import default_jitter
from gpflow.inducing_variables import InducingPoints, InducingVariables
from gpflow.kernels import Kernel, MultioutputKernel

from .. import checks
from ..ops.linalg import lower_matmul
from .evaluate import Projection, covariance, kuf, with_latent_axis
from .priors import split_outputs


def inducing_inputs(inducing_variable: InducingVariables, name: str) -> tf.Tensor:
    """
    Take the locations of inducing points, [K, M, D]: K is 1 where all latent functions share them.

    :param inducing_variable: Inducing points, of one output or of several that are independent.
    :raises ValueError: If they are something else.
    """
    parts = split_outputs(inducing_variable)
    for part in parts:
        if not isinstance(part, InducingPoints):
            raise checks.refusal(
                name,
                f"inducing variables of type {type(part).__name__}",
                "inducing points: only their covariance with those of a later model is known for"
                " every kernel",
                "Use gpflow.inducing_variables.InducingPoints.",
            )
    return tf.stack([tf.convert_to_tensor(part.Z) for part in parts])


def take_latent(values: tf.Tensor, latent: int) -> tf.Tensor:
    """Take what belongs to one latent function, of values [1 or L, ...] for all or for each."""
    return values[latent if values.shape[0] > 1 else 0]


@check_shapes(
    "W: [broadcast K, M, M]",
    "Z: [broadcast K, R, D]",
    "same_point: [broadcast K, M, R]",
    "return.A: [K, M, R]",
    "return.D: [K, R, R]",
)
def project_points(
    W: tf.Tensor,
    inducing_variable: InducingVariables,
    kernel: Kernel,
    Z: TensorType,
    same_point: TensorType,
) -> Projection:
    r"""
    Project inducing points of another model on the whitened inducing variables of this one.

    Inducing variables are :math:`u_i = f(z_i) + \epsilon_i`, where :math:`\epsilon` has GPflow's
    default jitter for its variance. A point that is kept takes its own :math:`\epsilon_i` along,
    wherever it moves: so points that are all kept and have not moved are projected exactly, and
    everything is smooth in where they are.

    :param W: Inverse Cholesky factors of ``Kuu``, see
        :func:`~gpflow_pep.covariances.evaluate.whiten`.
    :param kernel: Its kernel, of one output, or of several that are independent.
    :param same_point: 1 where an inducing variable of this model continues a point of the other
        one; no more than one 1 in a row or column.
    :return: D in full for each latent function, [K, R, R].
    """
    kernels = kernel.latent_kernels if isinstance(kernel, MultioutputKernel) else [kernel]
    jitter = tf.constant(default_jitter(), W.dtype)
    A, D = [], []
    for latent in range(max(len(kernels), *(part.shape[0] for part in (W, Z, same_point)))):
        Z_latent = take_latent(Z, latent)
        Kuf = take_latent(with_latent_axis(kuf(inducing_variable, kernel, Z_latent), 3), latent)
        Kuf += jitter * take_latent(same_point, latent)
        A.append(lower_matmul(take_latent(W, latent)[None], Kuf[None])[0])
        K = covariance(kernels[min(latent, len(kernels) - 1)], Z_latent)
        K += jitter * tf.eye(tf.shape(Z_latent)[0], dtype=K.dtype)
        D.append(K - tf.matmul(A[-1], A[-1], transpose_a=True))
    return Projection(tf.stack(A), tf.stack(D))
