"""Gaussians to a power, times the standard normal to a power, by their square roots."""

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import TensorType

from .power import divide_by_power, log1p_over_power


class Tempered(NamedTuple):
    r"""A product of powers of two Gaussians, and how its determinant changed."""

    root: tf.Tensor
    """[L, M, M], lower triangular square roots of the covariances."""

    logdet: tf.Tensor
    r"""[L], :math:`\tfrac{1}{b} \log|(1 - b) I + b S|`: its limit :math:`\mathrm{tr}(S - I)` at
    :math:`b = 0`."""


@check_shapes("root: [L, M, M]", "power: []", "return.root: [L, M, M]", "return.logdet: [L]")
def tempered(root: tf.Tensor, power: TensorType) -> Tempered:
    r"""
    Compute :math:`N(0, S)^{1 - b} N(0, I)^b`, whose precision is
    :math:`(1 - b) S^{-1} + b I`, from :math:`S = R Rᵀ`.

    With :math:`P = (1 - b) I + b Rᵀ R = U Uᵀ`, U upper triangular (it is a Cholesky factor with
    rows and columns in reverse order), the new covariance is
    :math:`R P^{-1} Rᵀ` and its square root :math:`R U^{-T}`. Everything keeps its digits as
    :math:`b \to 0`: with the Cholesky factor K of P, :math:`K_{jj}^2 = 1 + b y_j` with
    :math:`y_j = (Rᵀ R)_{jj} - 1 - \tfrac{1}{b} \sum_{k<j} K_{jk}^2`, where :math:`K_{jk}` is of the
    order of b.

    The derivative is in ``root`` alone: powers are constants here. With
    :math:`H = \mathrm{root}ᵀ \, \overline{\mathrm{root}}`, bars for what arrives from above, and
    :math:`\Phi` the lower triangle with half of the diagonal,

    .. math::

        \bar R = [\overline{\mathrm{root}} + \mathrm{root} (2 \, \overline{\mathrm{logdet}} \, I
            - b \Phi(H) - b \Phi(H)ᵀ)] \, U^{-1}.

    :param power: b, of either sign. NaN comes out where P is not positive definite.
    """
    power = tf.stop_gradient(tf.convert_to_tensor(power, root.dtype))

    @tf.custom_gradient
    def product(root: tf.Tensor) -> tuple[tuple[tf.Tensor, tf.Tensor], Callable[..., Any]]:
        reverse, K, logdet = _factor(root, power, 1.0)
        half = tf.linalg.triangular_solve(K, tf.linalg.matrix_transpose(reverse))
        result = tf.reverse(tf.linalg.matrix_transpose(half), [-1])

        def gradient(by_root: tf.Tensor, by_logdet: tf.Tensor) -> tf.Tensor:
            by_root = tf.linalg.band_part(by_root, -1, 0)
            H = tf.matmul(result, by_root, transpose_a=True)
            lower = tf.linalg.band_part(H, -1, 0)
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


class Normaliser(NamedTuple):
    """What is left of a Gaussian and a power of the standard normal, integrated."""

    logdet: tf.Tensor
    r"""[L], :math:`\tfrac{1}{b} \log|I + b S|`: its limit :math:`\mathrm{tr} \, S` at
    :math:`b = 0`."""

    quadratic: tf.Tensor
    r"""[L], :math:`mᵀ (I + b S)^{-1} m`."""


@check_shapes(
    "root: [L, M, M]",
    "mean: [L, M, 1]",
    "power: []",
    "return.logdet: [L]",
    "return.quadratic: [L]",
)
def normaliser(root: tf.Tensor, mean: tf.Tensor, power: TensorType) -> Normaliser:
    r"""
    Compute what :math:`\int N(v; m, S) N(v; 0, I)^b dv` depends on, from :math:`S = R Rᵀ`.

    It keeps its digits as :math:`b \to 0` as :func:`tempered` does, for less work. With
    :math:`P = I + b Rᵀ R` and :math:`w = (I + b S)^{-1} m = m - b R P^{-1} Rᵀ m`, and bars for what
    arrives from above,

    .. math::

        \bar R = 2 \, \overline{\mathrm{logdet}} \, R P^{-1}
            - 2 b \, \overline{\mathrm{quadratic}} \, w wᵀ R, \qquad
        \bar m = 2 \, \overline{\mathrm{quadratic}} \, w.

    The power is a constant here.

    :param power: b, of either sign. NaN comes out where P is not positive definite.
    """
    power = tf.stop_gradient(tf.convert_to_tensor(power, root.dtype))

    @tf.custom_gradient
    def terms(root: tf.Tensor, mean: tf.Tensor) -> tuple[tuple[tf.Tensor, ...], Callable[..., Any]]:
        reverse, K, logdet = _factor(root, power, 0.0)
        along = tf.linalg.cholesky_solve(K, tf.matmul(reverse, mean, transpose_a=True))
        w = mean - power * tf.matmul(reverse, along)

        def gradient(by_logdet: tf.Tensor, by_quadratic: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            solved = tf.linalg.cholesky_solve(K, tf.linalg.matrix_transpose(reverse))
            by_root = tf.reverse(tf.linalg.matrix_transpose(solved), [-1])
            by_root *= 2.0 * by_logdet[:, None, None]
            scaled = 2.0 * by_quadratic[:, None, None] * w
            by_root -= power * tf.matmul(scaled, tf.matmul(w, root, transpose_a=True))
            return tf.linalg.band_part(by_root, -1, 0), scaled

        return (logdet, tf.reduce_sum(mean * w, axis=[1, 2])), gradient

    return Normaliser(*terms(root, mean))


def _factor(
    root: tf.Tensor, power: tf.Tensor, shift: float
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    r"""
    R with columns in reverse order, the Cholesky factor of :math:`P = (1 - bs) I + b Rᵀ R` with
    rows and columns in that order, and :math:`\tfrac{1}{b} \log|P|`.
    """
    reverse = tf.reverse(root, [-1])
    gram = tf.matmul(reverse, reverse, transpose_a=True)
    squares = tf.linalg.diag_part(gram)
    K = tf.linalg.cholesky(
        tf.linalg.set_diag(power * gram, (1.0 - power * shift) + power * squares)
    )
    below = tf.linalg.set_diag(K, tf.zeros_like(squares))
    y = squares - shift - divide_by_power(tf.reduce_sum(tf.square(below), axis=-1), power)
    return reverse, K, tf.reduce_sum(log1p_over_power(y, power), axis=-1)
