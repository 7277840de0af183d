r"""Power EP energies whose sites are tied: nothing in them grows with the number of rows.

Villacampa-Calvo & Hernández-Lobato (2020), sections 3.2 to 3.4. Everything is in whitened
coordinates v with the prior N(0, I), where :math:`q = N(m, S)` for each latent function. Each
energy is

.. math::

    \log Z = \sum_n \ell_n(q^c) + \text{rest}

with the tilted integrals :math:`\ell_n` under the cavity :math:`q^c`, which is the same for all
rows, and a rest that depends on q, :math:`\alpha` and the number of rows N alone. At
:math:`\alpha = 0` each is the variational bound of :class:`gpflow.models.SVGP` at the same q.

Constants, normalisers and quadratic forms in :math:`S^{-1}` are cancelled on paper, so that each
term has a finite limit as :math:`\alpha / N \to 0` and keeps its digits for any N.
"""

from typing import NamedTuple

import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import TensorType
from gpflow.kullback_leiblers import gauss_kl

from ..numerics.power import log1p_over_power
from ..numerics.tempered import normaliser, tempered
from ..sites.posterior import WhitenedGaussian


class TiedEnergy(NamedTuple):
    """What an energy with tied sites needs beside the likelihood."""

    cavity: WhitenedGaussian
    """The Gaussian under which the tilted integral of every row is taken."""

    rest: tf.Tensor
    """[], all terms of the energy but the sum over rows."""


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
    r"""
    Compute the energy of approximate Power EP (equation 8 with the factors of section 3.2).

    q is the prior times N equal Gaussian factors, and the cavity is q without the power
    :math:`\alpha` of one of them. With :math:`\kappa = \alpha / N`, :math:`c = 1 - \kappa` and
    :math:`P = cI + \kappa S` that is :math:`q^c = N(c P^{-1} m, S P^{-1})`, and

    .. math::

        \log Z = \sum_n \ell_n(q^c) + \tfrac12 \log|S| - \tfrac{1}{2 \kappa} \log|P|
            - \tfrac{c}{2} mᵀ P^{-1} m.

    It follows from :math:`G(q) - G(\text{prior}) + \sum_n [\ell_n + (G(q^c) - G(q)) / \alpha]`
    with the log-normaliser :math:`G = \tfrac12 \log|S| + \tfrac12 mᵀ S^{-1} m`.

    :param q: The approximate posterior. The cavity is proper for any; its factors are where
        :math:`I - S` is positive semi-definite.
    """
    dtype = q.q_mu.dtype
    power = tf.convert_to_tensor(alpha, dtype) / tf.convert_to_tensor(num_data, dtype)
    root, logdet = tempered(q.q_sqrt, power)
    # c P⁻¹ = I - κ S P⁻¹
    m = tf.transpose(q.q_mu)[:, :, None]
    shrunk = m - power * tf.matmul(root, tf.matmul(root, m, transpose_a=True))
    rest = _half_logdet(q) - 0.5 * (tf.reduce_sum(logdet) + tf.reduce_sum(m * shrunk))
    return TiedEnergy(WhitenedGaussian(tf.transpose(shrunk[:, :, 0]), root), rest)


@_check_shapes_of_energy
def arpep(q: WhitenedGaussian, alpha: TensorType, num_data: TensorType) -> TiedEnergy:
    r"""
    Compute the energy of approximate reparameterised Power EP (equation 9).

    It is the limit of many rows, where the cavity is q itself:
    :math:`\log Z = \sum_n \ell_n(q) - \mathrm{KL}[q \| \text{prior}]`. For the parameters see
    :func:`apep`; ``alpha`` and ``num_data`` enter by the sum over rows only.
    """
    del alpha, num_data
    return TiedEnergy(q, -gauss_kl(*q))


@_check_shapes_of_energy
def rpapep(q: WhitenedGaussian, alpha: TensorType, num_data: TensorType) -> TiedEnergy:
    r"""
    Compute the energy of refined prior approximate Power EP (equation 10).

    The prior is one factor more: q is the product of N + 1 equal ones, and the cavity is
    :math:`q^c = N(m, S / c)`, :math:`c = 1 - \alpha / (N + 1)`. The prior's own tilted integral is
    Gaussian:

    .. math::

        \log Z = {} & \sum_n \ell_n(q^c) + \tfrac12 \log|S| - \tfrac{M (N + 1)}{2 \alpha} \log c \\
            & - \tfrac{1}{2 \alpha} \log|I + \tfrac{\alpha}{c} S|
            - \tfrac12 mᵀ (I + \tfrac{\alpha}{c} S)^{-1} m.

    For the parameters see :func:`apep`.
    """
    alpha = tf.convert_to_tensor(alpha, q.q_mu.dtype)
    fraction = alpha / (tf.convert_to_tensor(num_data, q.q_mu.dtype) + 1.0)
    c = 1.0 - fraction
    logdet, quadratic = normaliser(q.q_sqrt, tf.transpose(q.q_mu)[:, :, None], alpha / c)
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
