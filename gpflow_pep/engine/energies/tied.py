r"""Power EP energies with tied sites, whose size does not grow with the number of rows.

Villacampa-Calvo & Hernández-Lobato (2020), sections 3.2 to 3.4. Everything is in
whitened coordinates v with the prior N(0, I), where :math:`q = N(m, S)` for each latent
function. Each energy is

.. math::

    \log Z = \sum_n \ell_n(q^c) + \text{rest}

with the tilted integrals :math:`\ell_n` under the cavity :math:`q^c`, which is the same
for all rows, and a rest that depends on q, :math:`\alpha` and the number of rows N
alone. At :math:`\alpha = 0` each is the variational bound of
:class:`gpflow.models.SVGP` at the same q.

Constants, normalisers and quadratic forms in :math:`S^{-1}` are cancelled on paper, so
that each term has a finite limit as :math:`\alpha / N \to 0` and keeps its digits for
any N.

Cavities are products of powers of two Gaussians, computed by their square roots:
:func:`_tempered`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import TensorType
from gpflow.kullback_leiblers import gauss_kl

from ..numerics.power import divide_by_power, log1p_over_power
from ..sites.posterior import WhitenedGaussian


class _Tempered(NamedTuple):
    r"""A product of powers of two Gaussians, and how its determinant changed."""

    root: tf.Tensor  #: [L, M, M], lower triangular square roots of the covariances.
    logdet: tf.Tensor
    r"""[L], :math:`\tfrac{1}{b} \log|(1 - b) I + b S|`: its limit
    :math:`\mathrm{tr}(S - I)` at :math:`b = 0`.
    """


@check_shapes(
    "root: [L, M, M]", "power: []", "return.root: [L, M, M]", "return.logdet: [L]"
)
def _tempered(root: tf.Tensor, power: TensorType) -> _Tempered:
    r"""Compute :math:`N(0, S)^{1 - b} N(0, I)^b`, whose precision is
    :math:`(1 - b) S^{-1} + b I`, from :math:`S = R Rᵀ`.

    With :math:`P = (1 - b) I + b Rᵀ R = U Uᵀ`, U upper triangular (it is a Cholesky
    factor with rows and columns in reverse order), the new covariance is
    :math:`R P^{-1} Rᵀ` and its square root :math:`R U^{-T}`. Everything keeps its
    digits as :math:`b \to 0`: with the Cholesky factor K of P,
    :math:`K_{jj}^2 = 1 + b y_j` with
    :math:`y_j = (Rᵀ R)_{jj} - 1 - \tfrac{1}{b} \sum_{k<j} K_{jk}^2`, where
    :math:`K_{jk}` is of the order of b.

    The derivative is in ``root`` alone: powers are constants here. With
    :math:`H = \mathrm{root}ᵀ \, \overline{\mathrm{root}}`, bars for what arrives from
    above, and :math:`\Phi` the lower triangle with half of the diagonal,

    .. math::

        \bar R = [\overline{\mathrm{root}}
            + \mathrm{root} (2 \, \overline{\mathrm{logdet}} \, I
            - b \Phi(H) - b \Phi(H)ᵀ)] \, U^{-1}.

    :param power: b, of either sign. NaN comes out where P is not positive definite.
    """
    power = tf.stop_gradient(tf.convert_to_tensor(power, root.dtype))

    @tf.custom_gradient
    def product(
        root: tf.Tensor,
    ) -> tuple[tuple[tf.Tensor, tf.Tensor], Callable[..., Any]]:
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
            solved = tf.linalg.triangular_solve(
                K, tf.linalg.matrix_transpose(total), adjoint=True
            )
            ordered = tf.reverse(tf.linalg.matrix_transpose(solved), [-1])
            return tf.linalg.band_part(ordered, -1, 0)

        return (result, logdet), gradient

    return _Tempered(*product(root))


class _Normaliser(NamedTuple):
    """What is left of a Gaussian and a power of the standard normal, integrated."""

    logdet: tf.Tensor
    r"""[L], :math:`\tfrac{1}{b} \log|I + b S|`: its limit :math:`\mathrm{tr} \, S` at
    :math:`b = 0`."""
    quadratic: tf.Tensor  #: [L], :math:`mᵀ (I + b S)^{-1} m`.


@check_shapes(
    "root: [L, M, M]",
    "mean: [L, M, 1]",
    "power: []",
    "return.logdet: [L]",
    "return.quadratic: [L]",
)
def _normaliser(root: tf.Tensor, mean: tf.Tensor, power: TensorType) -> _Normaliser:
    r"""Compute what :math:`\int N(v; m, S) N(v; 0, I)^b dv` depends on, from
    :math:`S = R Rᵀ`.

    It keeps its digits as :math:`b \to 0` as :func:`_tempered` does, for less work.
    With :math:`P = I + b Rᵀ R` and :math:`w = (I + b S)^{-1} m = m - b R P^{-1} Rᵀ m`,
    and bars for what arrives from above,

    .. math::

        \bar R = 2 \, \overline{\mathrm{logdet}} \, R P^{-1}
            - 2 b \, \overline{\mathrm{quadratic}} \, w wᵀ R, \qquad
        \bar m = 2 \, \overline{\mathrm{quadratic}} \, w.

    The power is a constant here.

    :param power: b, of either sign. NaN comes out where P is not positive definite.
    """
    power = tf.stop_gradient(tf.convert_to_tensor(power, root.dtype))

    @tf.custom_gradient
    def terms(
        root: tf.Tensor, mean: tf.Tensor
    ) -> tuple[tuple[tf.Tensor, ...], Callable[..., Any]]:
        reverse, K, logdet = _factor(root, power, 0.0)
        along = tf.linalg.cholesky_solve(K, tf.matmul(reverse, mean, transpose_a=True))
        w = mean - power * tf.matmul(reverse, along)

        def gradient(
            by_logdet: tf.Tensor, by_quadratic: tf.Tensor
        ) -> tuple[tf.Tensor, tf.Tensor]:
            solved = tf.linalg.cholesky_solve(K, tf.linalg.matrix_transpose(reverse))
            by_root = tf.reverse(tf.linalg.matrix_transpose(solved), [-1])
            by_root *= 2.0 * by_logdet[:, None, None]
            scaled = 2.0 * by_quadratic[:, None, None] * w
            by_root -= power * tf.matmul(scaled, tf.matmul(w, root, transpose_a=True))
            return tf.linalg.band_part(by_root, -1, 0), scaled

        return (logdet, tf.reduce_sum(mean * w, axis=[1, 2])), gradient

    return _Normaliser(*terms(root, mean))


def _factor(
    root: tf.Tensor, power: tf.Tensor, shift: float
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    r"""
    R with columns in reverse order, the Cholesky factor of
    :math:`P = (1 - bs) I + b Rᵀ R` with rows and columns in that order, and
    :math:`\tfrac{1}{b} \log|P|`.
    """
    reverse = tf.reverse(root, [-1])
    gram = tf.matmul(reverse, reverse, transpose_a=True)
    squares = tf.linalg.diag_part(gram)
    K = tf.linalg.cholesky(
        tf.linalg.set_diag(power * gram, (1.0 - power * shift) + power * squares)
    )
    below = tf.linalg.set_diag(K, tf.zeros_like(squares))
    y = (
        squares
        - shift
        - divide_by_power(tf.reduce_sum(tf.square(below), axis=-1), power)
    )
    return reverse, K, tf.reduce_sum(log1p_over_power(y, power), axis=-1)


class TiedEnergy(NamedTuple):
    """The parts of an energy with tied sites apart from the likelihood."""

    #: The Gaussian under which the tilted integral of every row is taken.
    cavity: WhitenedGaussian
    rest: tf.Tensor  #: [], all terms of the energy but the sum over rows.


_check_shapes_of_energy = check_shapes(
    "q.q_mu: [M, L]",
    "q.q_sqrt: [L, M, M]",
    "alpha: []",
    "num_data: []",
    "return.cavity.q_mu: [M, L]",
    "return.cavity.q_sqrt: [L, M, M]",
    "return.rest: []",
)


@_check_shapes_of_energy
def apep(q: WhitenedGaussian, alpha: TensorType, num_data: TensorType) -> TiedEnergy:
    r"""Compute the energy of approximate Power EP (equation 8 with the factors of
    section 3.2).

    q is the prior times N equal Gaussian factors, and the cavity is q without the power
    :math:`\alpha` of one of them: see :doc:`/many_rows`. The energy follows from
    :math:`G(q) - G(\text{prior}) + \sum_n [\ell_n + (G(q^c) - G(q)) / \alpha]` with the
    log-normaliser :math:`G = \tfrac12 \log|S| + \tfrac12 mᵀ S^{-1} m`.

    :param q: The approximate posterior. The cavity is proper for any q. The factors are
        proper if :math:`I - S` is positive semi-definite.
    """
    dtype = q.q_mu.dtype
    power = tf.convert_to_tensor(alpha, dtype) / tf.convert_to_tensor(num_data, dtype)
    root, logdet = _tempered(q.q_sqrt, power)
    # c P⁻¹ = I - κ S P⁻¹
    m = tf.transpose(q.q_mu)[:, :, None]
    shrunk = m - power * tf.matmul(root, tf.matmul(root, m, transpose_a=True))
    rest = _half_logdet(q) - 0.5 * (tf.reduce_sum(logdet) + tf.reduce_sum(m * shrunk))
    return TiedEnergy(WhitenedGaussian(tf.transpose(shrunk[:, :, 0]), root), rest)


@_check_shapes_of_energy
def arpep(q: WhitenedGaussian, alpha: TensorType, num_data: TensorType) -> TiedEnergy:
    r"""Compute the energy of approximate reparameterised Power EP (equation 9).

    It is the limit of many rows, in which the cavity is q itself:
    :math:`\log Z = \sum_n \ell_n(q) - \mathrm{KL}[q \| \text{prior}]`. For the
    parameters see :func:`apep`; ``alpha`` and ``num_data`` are used only in the sum
    over rows.
    """
    del alpha, num_data
    return TiedEnergy(q, -gauss_kl(*q))


@_check_shapes_of_energy
def rpapep(q: WhitenedGaussian, alpha: TensorType, num_data: TensorType) -> TiedEnergy:
    r"""Compute the energy of refined prior approximate Power EP (equation 10).

    The prior is a further factor, whose tilted integral is Gaussian: q is the product
    of N + 1 equal factors; see :doc:`/many_rows`. For the parameters see :func:`apep`.
    """
    alpha = tf.convert_to_tensor(alpha, q.q_mu.dtype)
    fraction = alpha / (tf.convert_to_tensor(num_data, q.q_mu.dtype) + 1.0)
    c = 1.0 - fraction
    logdet, quadratic = _normaliser(
        q.q_sqrt, tf.transpose(q.q_mu)[:, :, None], alpha / c
    )
    size = tf.cast(tf.size(q.q_mu), q.q_mu.dtype)
    minus_one = -tf.ones_like(fraction)
    rest = _half_logdet(q) - 0.5 * (
        size * log1p_over_power(minus_one, fraction)
        + tf.reduce_sum(logdet) / c
        + tf.reduce_sum(quadratic)
    )
    return TiedEnergy(WhitenedGaussian(q.q_mu, q.q_sqrt * tf.math.rsqrt(c)), rest)


def _half_logdet(q: WhitenedGaussian) -> tf.Tensor:
    """Half of the log-determinants of the covariances of q."""
    return tf.reduce_sum(tf.math.log(tf.abs(tf.linalg.diag_part(q.q_sqrt))))
