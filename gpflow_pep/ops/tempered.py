"""Gaussians to a power, times the standard normal to a power, by their square roots."""

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import TensorType

from .power import log1p_ratio, per_power


class Tempered(NamedTuple):
    r"""A product of powers of two Gaussians, and how its determinant changed."""

    root: tf.Tensor
    """[L, M, M], lower triangular square roots of the covariances."""

    logdet: tf.Tensor
    r"""[L], :math:`\tfrac{1}{b} \log|(1 - bs) I + b S|`: its limit :math:`\mathrm{tr}(S - sI)` at
    :math:`b = 0`."""


@tf.autograph.experimental.do_not_convert
@check_shapes(
    "root: [L, M, M]",
    "power: []",
    "return.root: [L, M, M]",
    "return.logdet: [L]",
)
def tempered(root: tf.Tensor, power: TensorType, shift: float) -> Tempered:
    r"""
    Compute :math:`N(0, S)^{1 - bs} N(0, I)^b`, whose precision is
    :math:`(1 - bs) S^{-1} + b I`, from :math:`S = R Rᵀ`.

    With :math:`P = (1 - bs) I + b Rᵀ R = U Uᵀ`, U upper triangular, the new covariance is
    :math:`R P^{-1} Rᵀ` and its square root :math:`R U^{-T}`. Everything keeps its digits as
    :math:`b \to 0`: with the Cholesky factor K of P, :math:`K_{jj}^2 = 1 + b y_j` with
    :math:`y_j = (Rᵀ R)_{jj} - s - \tfrac{1}{b} \sum_{k<j} K_{jk}^2`, where :math:`K_{jk}` is of the
    order of b.

    The derivative is in ``root`` alone: powers are constants here. With
    :math:`H = \mathrm{root}ᵀ \, \overline{\mathrm{root}}`, bars for what arrives from above, and
    :math:`\Phi` the lower triangle with half of the diagonal,

    .. math::

        \bar R = [\overline{\mathrm{root}} + \mathrm{root} (2 \, \overline{\mathrm{logdet}} \, I
            - b \Phi(H) - b \Phi(H)ᵀ)] \, U^{-1}.

    :param root: R, lower triangular.
    :param power: b, of either sign. NaN comes out where P is not positive definite.
    :param shift: s.
    """
    power = tf.stop_gradient(tf.convert_to_tensor(power, root.dtype))

    @tf.custom_gradient
    def product(
        root: tf.Tensor,
    ) -> tuple[tuple[tf.Tensor, tf.Tensor], Callable[..., tf.Tensor]]:
        # U is the Cholesky factor of P with rows and columns in reverse order, put in order again.
        reverse = tf.reverse(root, [-1])
        gram = tf.matmul(reverse, reverse, transpose_a=True)
        squares = tf.linalg.diag_part(gram)
        K = tf.linalg.cholesky(
            tf.linalg.set_diag(power * gram, (1.0 - power * shift) + power * squares)
        )
        half = tf.linalg.triangular_solve(K, tf.linalg.matrix_transpose(reverse))
        result = tf.reverse(tf.linalg.matrix_transpose(half), [-1])
        off_diagonal = tf.linalg.set_diag(K, tf.zeros_like(squares))
        y = squares - shift - per_power(tf.reduce_sum(tf.square(off_diagonal), -1), power)
        logdet = tf.reduce_sum(log1p_ratio(y, power), axis=-1)

        def gradient(by_root: tf.Tensor, by_logdet: tf.Tensor) -> tf.Tensor:
            by_root = tf.linalg.band_part(by_root, -1, 0)
            H = tf.matmul(result, by_root, transpose_a=True)
            lower = tf.linalg.set_diag(tf.linalg.band_part(H, -1, 0), tf.zeros_like(squares))
            middle = tf.linalg.set_diag(
                -power * (lower + tf.linalg.matrix_transpose(lower)),
                2.0 * by_logdet[:, None] - power * tf.linalg.diag_part(H),
            )
            total = tf.reverse(by_root + tf.matmul(result, middle), [-1])
            solved = tf.linalg.triangular_solve(K, tf.linalg.matrix_transpose(total), adjoint=True)
            ordered = tf.reverse(tf.linalg.matrix_transpose(solved), [-1])
            return tf.linalg.band_part(ordered, -1, 0)

        return (result, logdet), gradient

    return Tempered(*product(root))
