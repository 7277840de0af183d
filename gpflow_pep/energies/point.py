r"""The Power EP energy with a site for each row, for any likelihood.

Bui, Yan & Turner (2017), equation (8), with every difference of normalisers reduced to the one
direction :math:`h_n` that the site of row n sees:

.. math::

    \log Z = \sum_l [ -\tfrac12 \log|B_l| + \tfrac12 b_lᵀ B_l^{-1} b_l ]
        + \sum_n \ell_n
        + \sum_{nl} \Big[ \frac{\alpha \nu^2 s + \tau m^2 - 2 \nu m}{2 e}
        - \frac{1}{2 \alpha} \log(1 - \alpha \tau s) \Big]_{nl}

with :math:`B = I + A \,\mathrm{diag}(\tau) Aᵀ`, :math:`b = A \nu`, and :math:`\ell_n` the tilted
integral at the cavity. Nothing in it divides by :math:`\alpha` or by s.

At a fixed point it is stationary in the sites, and in the marginals (m, s) too: the derivative of
the second and third sum in the natural parameters of a marginal is 1 / alpha times the difference
of the moments of tilted distribution and q, which is zero there. So the gradient in kernel,
likelihood and inducing parameters is that of :func:`prior_terms` and of :math:`\ell_n` through the
residual variance, mean function and likelihood, with sites and cavities held fixed: one pass over
the rows that costs what regression costs.
"""

import tensorflow as tf
from check_shapes import check_shapes

from ..cavity import Cavity
from ..ops.linalg import factorise, lower_matmul
from ..ops.power import log1p_ratio
from ..sites import Marginals, Sites


@tf.autograph.experimental.do_not_convert
@check_shapes(
    "gram: [M, M]",
    "moment: [M, 1]",
    "return: []",
)
def prior_terms(gram: tf.Tensor, moment: tf.Tensor) -> tf.Tensor:
    r"""
    Compute :math:`-\tfrac12 \log|I + G| + \tfrac12 bᵀ (I + G)^{-1} b` of one latent function.

    :param gram: G, :math:`A \,\mathrm{diag}(\tau) Aᵀ`.
    :param moment: b, :math:`A \nu`.
    """
    factor = factorise(tf.eye(tf.shape(gram)[0], dtype=gram.dtype) + gram)
    logdet = tf.reduce_sum(tf.math.log(tf.linalg.diag_part(factor.L)))
    return 0.5 * tf.reduce_sum(tf.square(lower_matmul(factor.W, moment))) - logdet


@tf.autograph.experimental.do_not_convert
@check_shapes(
    "marginals.m: [N, L]",
    "marginals.s: [N, L]",
    "sites.nu: [N, L]",
    "sites.tau: [N, L]",
    "cavity.e: [N, L]",
    "alpha: [broadcast N, 1]",
    "return: []",
)
def site_terms(marginals: Marginals, sites: Sites, cavity: Cavity, alpha: tf.Tensor) -> tf.Tensor:
    """
    Compute the third sum of the energy, see this module.

    :param marginals: Moments of h under q.
    :param sites: The sites in q.
    :param cavity: Their cavities, all proper.
    :param alpha: The power of each row.
    """
    m, s = marginals
    nu, tau = sites
    quadratic = (alpha * tf.square(nu) * s + tau * tf.square(m) - 2.0 * nu * m) / cavity.e
    return 0.5 * tf.reduce_sum(quadratic - log1p_ratio(-tau * s, alpha))
