r"""
What near training rows add to functions, for models with neighbours.

A function :math:`f_u`, which u alone has updated, is conditioned at each x on the m nearest
training rows N(x), as predictions are (:mod:`gpflow_pep.predictions.context_rows`):

.. math::

    f(x) = f_u(x) + g(x)ᵀ \big( r_N - f_u(X_N) - \Sigma_N^{1/2} \epsilon_N \big), \qquad
    g(x) = (D_{NN} + \Sigma_N)^{-1} D_{Nx}

with targets less the mean function r, residual prior covariances D, noise variances
:math:`\Sigma`, and one standard normal :math:`\epsilon` for each training row and path. At each x
mean and variance are those of predictions. The function jumps where N(x) changes.
"""

from typing import NamedTuple

import tensorflow as tf
from check_shapes import check_shapes
from gpflow.inducing_variables import InducingVariables
from gpflow.kernels import Kernel

from ..covariances import nearest_by_products, project_blocks
from ..ops.chunks import CHUNK_ELEMENTS
from ..predictions.context_rows import Context
from .factors import Generator
from .prior import assign


class NearRowsOfModel(NamedTuple):
    """The training rows of a model with neighbours."""

    context: Context

    num_neighbours: int
    """m, which each new row is given."""


class NearRowsUpdate(tf.Module):
    """
    The difference that near training rows make to functions.

    :param kernel: Of one output.
    :param inducing_variable: Of one output.
    :param num_paths: S.
    """

    def __init__(
        self,
        kernel: Kernel,
        inducing_variable: InducingVariables,
        rows: NearRowsOfModel,
        num_paths: int,
    ) -> None:
        super().__init__()
        self.kernel, self.inducing_variable = kernel, inducing_variable
        context, self.num_neighbours = rows
        self.W = tf.Variable(context.W, trainable=False)
        self.scales = tf.Variable(context.scales, trainable=False)
        self.X, self.r, self.noise = (  # of which there may be more later
            tf.Variable(part, shape=[None, *part.shape[1:]], trainable=False)
            for part in (context.X, context.r, context.noise)
        )
        num_outputs, size = context.r.shape[1], self.num_neighbours + 1
        self.errors = tf.Variable(
            tf.zeros([num_paths, *context.r.shape], context.r.dtype),
            shape=[num_paths, None, num_outputs],
            trainable=False,
        )
        """[S, N, P], at each training row the target, with noise, less the function that u alone
        has updated."""
        of_row = size * max(size, int(context.W.shape[1]), num_paths * num_outputs)
        self.chunk_size = max(CHUNK_ELEMENTS // of_row, 1)

    def assign(self, rows: NearRowsOfModel) -> None:
        """Take other rows, or other values of parameters."""
        for name in ("W", "scales", "X", "r", "noise"):
            getattr(self, name).assign(getattr(rows.context, name))

    def resample(self, random: Generator, values: tf.Tensor) -> None:
        """Draw the noise of the rows, in place, beside values [N, S, P] of functions at them."""
        values = tf.transpose(values, [1, 0, 2])
        noise = tf.sqrt(self.noise)[:, None] * random.standard_normal(tuple(values.shape))
        assign(self.errors, self.r - values - tf.cast(noise, values.dtype))

    @check_shapes("X: [B, N, D]  # B is 1 or S", "return: [S, P, N]")
    def __call__(self, X: tf.Tensor) -> tf.Tensor:
        """Evaluate the difference at inputs of all paths, or of each."""
        num_batch, num_rows, m = tf.shape(X)[0], tf.shape(X)[1], self.num_neighbours
        flat = tf.reshape(X, [-1, X.shape[2]])
        rows, scales = tf.convert_to_tensor(self.X), tf.convert_to_tensor(self.scales)
        index = nearest_by_products(rows / scales, flat / scales, m)
        groups = tf.concat([flat[:, None], tf.gather(rows, index)], axis=1)
        D = project_blocks(self.W, self.inducing_variable, self.kernel, groups).D
        L = tf.linalg.cholesky(D[:, 1:, 1:] + tf.linalg.diag(tf.gather(self.noise, index)))
        g = tf.reshape(tf.linalg.cholesky_solve(L, D[:, 1:, :1]), [num_batch, num_rows, m])
        index = tf.reshape(index, [num_batch, num_rows, m])
        num_paths = self.errors.shape[0]
        index = tf.broadcast_to(index, [num_paths, num_rows, m])
        errors = tf.gather(self.errors, index, batch_dims=1)  # [S, N, m, P]
        return tf.einsum("snm,snmp->spn", tf.broadcast_to(g, tf.shape(index)), errors)
