r"""The update of functions from the prior to functions from the posterior (Wilson et
al. 2020): see :doc:`/paths`. If :math:`u_0` is the value of the inducing variables for
a function of the prior, the update is :math:`k(x, u)\, c` with
:math:`c = L^{-T} (v - L^{-1} u_0)`, for all x. ``Kuu`` has jitter, so :math:`u_0` has
noise with this variance.
"""

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import AnyNDArray
from gpflow.config import default_jitter
from gpflow.inducing_variables import InducingPoints, InducingVariables
from gpflow.kernels import Kernel, MultioutputKernel
from scipy.linalg import cholesky, solve_triangular

from ..numerics.chunks import CHUNK_ELEMENTS, map_over_chunks, row_chunks
from ..numerics.linalg import jitter_needed
from ..prior.blurred import BlurredInducingPoints
from ..prior.evaluate import kuf, kuu
from ..refusals import refusal
from .factors import Generator
from .prior import Draws, PriorDraws, assign, variable


class PosteriorDraws(tf.Module):
    """Draws from the posterior of functions that share kernel and inducing variables.

    :param kernel: A kernel of one output.
    :param inducing_variable: Points or blurred points.
    :raises ValueError: If the kernel or the inducing variables are of another kind.
    """

    def __init__(
        self, kernel: Kernel, inducing_variable: InducingVariables, draws: Draws
    ) -> None:
        super().__init__()
        if isinstance(kernel, MultioutputKernel):
            got = f"{type(kernel).__name__} with inducing variables of one output"
            remedy = (
                "Wrap these in"
                " gpflow.inducing_variables.SharedIndependentInducingVariables."
            )
            raise refusal(
                "kernel", got, "inducing variables of its latent functions", remedy
            )
        self.kernel = kernel
        self.inducing_variable = inducing_variable
        self.prior = PriorDraws(kernel, draws)
        size = int(inducing_variable.num_inducing)
        self.coefficients = variable(draws.num_paths, draws.num_functions, size)
        """[S, C, M], c."""
        self.chunk_size = max(
            CHUNK_ELEMENTS // max(self.prior.row_size, draws.num_paths * size), 1
        )
        """The largest number of rows that are computed at a time."""

    def resample(self, random: Generator) -> AnyNDArray:
        """Draw other functions of the prior, in place, and return the values of the
        inducing variables.
        """
        self.prior.resample(random)
        _, jitter = self._covariance()
        noise = np.sqrt(jitter) * random.standard_normal(tuple(self.coefficients.shape))
        return np.asarray(self._prior_values(), np.float64) + noise

    def update(self, u: AnyNDArray, v: AnyNDArray) -> None:
        """Update the functions of the prior, in place.

        :param u: The result of :meth:`resample`, [S, C, M].
        :param v: Draws of the whitened inducing variables, [S, C, M].
        """
        # Always in double precision, because c is large if points are close.
        K, _ = self._covariance()
        assign(self.coefficients, _solved(cholesky(K, lower=True), v, u))

    @check_shapes("X: [B, N, D]  # B is 1 or S", "return: [S, P, N]")
    def __call__(self, X: tf.Tensor) -> tf.Tensor:
        """Evaluate the functions at inputs for all paths, or for each path."""
        K = kuf(self.inducing_variable, self.kernel, tf.reshape(X, [-1, X.shape[-1]]))
        K = tf.reshape(K, [self.coefficients.shape[2], *tf.unstack(tf.shape(X)[:2])])
        return self.prior(X) + tf.matmul(self.coefficients, tf.transpose(K, [1, 0, 2]))

    def _covariance(self) -> tuple[AnyNDArray, float]:
        """Compute the prior covariance of u, [M, M], and the noise on its diagonal."""
        K = kuu(self.inducing_variable, self.kernel)
        more = float(jitter_needed(K[None])[0])
        return (
            np.asarray(K, np.float64) + more * np.eye(len(K)),
            default_jitter() + more,
        )

    def _prior_values(self) -> tf.Tensor:
        """Compute the values of the inducing variables for the functions of the prior,
        [S, C, M].
        """

        def values(points: tuple[tf.Tensor, ...]) -> tf.Tensor:
            Z, *blur = points
            return tf.transpose(self.prior(Z[None], *blur), [2, 0, 1])

        pieces = row_chunks(points_and_blur(self.inducing_variable), self.chunk_size)
        return tf.transpose(map_over_chunks(values, pieces), [1, 2, 0])


def _solved(L: AnyNDArray, v: AnyNDArray, u: AnyNDArray) -> AnyNDArray:
    """Compute c, [S, C, M]."""
    columns = [values.reshape(-1, len(L)).T for values in (v, u)]
    whitened = columns[0] - solve_triangular(L, columns[1], lower=True)
    return solve_triangular(L, whitened, lower=True, trans=1).T.reshape(v.shape)


def points_and_blur(inducing_variable: InducingVariables) -> tuple[tf.Tensor, ...]:
    """
    Return the inducing inputs, [M, D], and if they are blurred their covariances, [M,
    D, D]. Refuse other inducing variables, whose values for a function are not known.
    """
    if type(inducing_variable) is InducingPoints:
        return (tf.convert_to_tensor(inducing_variable.Z),)
    if type(inducing_variable) is BlurredInducingPoints:
        return tf.convert_to_tensor(inducing_variable.Z), inducing_variable.covariance
    raise refusal(
        "inducing_variable",
        type(inducing_variable).__name__,
        "InducingPoints or BlurredInducingPoints, because the features of a function"
        " that others measure are not known",
        "Draw f at all rows jointly with predict_f_samples, or use one of these.",
    )
