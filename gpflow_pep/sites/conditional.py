r"""The conditional of f given u in the approximation, scaled row by row where alpha is 0.

Variational inference takes the prior's p(f | u), with residual covariance D, for q(f | u). Here the
residuals have :math:`S = (D^{-1} + \mathrm{diag}(\lambda))^{-1}` instead. With
:math:`\phi_n(S) = E[\log p(y_n | f)]` under :math:`N(m_n, s_n + S)`, for any q(u) and
:math:`\lambda \ge 0`, and :math:`w_n = d_n / (1 + \lambda_n d_n)`,

.. math::

    \log p(y) \ge \sum_n \min_{0 \le S \le w_n} [\phi_n(S) + \tfrac12 \lambda_n S]
        - \tfrac12 \sum_n \log(1 + \lambda_n d_n) - KL[q(u) \| p(u)],

because the divergence of q(f | u) from p(f | u) is
:math:`\tfrac12 (\log|I + D \Lambda| - \sum_n \lambda_n S_{nn})`, with
:math:`\log|I + D \Lambda| \le \sum_n \log(1 + \lambda_n d_n)` (Hadamard), and
:math:`0 \le S_{nn} \le w_n`: more observations leave less variance. S itself is never formed. Where
the minimum is at :math:`w_n`, the row's terms are

.. math::

    \phi_n(v_n d_n) + \tfrac12 (\log v_n - v_n + 1), \qquad v_n = \frac{1}{1 + \lambda_n d_n}.

They are stationary in :math:`v_n` where :math:`\lambda_n = -2 \phi_n'(w_n)`, which is the precision
:math:`\tau_n` of the row's own site: this is what :func:`conditional_scale` takes, at least 0, at
no cost. Whether the minimum is at :math:`w_n` then is for
:func:`~gpflow_pep.energies.certificate.certify` to check; for Gaussian noise it is, and the result
is the bound of Titsias (2025). The bound for other likelihoods, and the check, are this package's
own.

At :math:`\alpha = 1` any scale drops out of Power EP, so that rows of power 1 keep
:math:`v_n = 1`. Between 0 and 1 no rule is known that is right for Gaussian noise and behaves for
counts: models refuse these powers with a scaled conditional.
"""

import tensorflow as tf
from check_shapes import check_shapes


@check_shapes(
    "d: [broadcast N, broadcast L]",
    "tau: [N, L]",
    "alpha: [broadcast N, 1]",
    "return: [N, L]",
)
def conditional_scale(d: tf.Tensor, tau: tf.Tensor, alpha: tf.Tensor) -> tf.Tensor:
    r"""
    Compute v, in (0, 1]: what the residual variances are multiplied by; 1 where alpha is not 0.
    """
    precision = tf.where(alpha == 0.0, tf.nn.relu(tau), tf.zeros_like(tau))
    return 1.0 / (1.0 + precision * d)


@check_shapes(
    "v: [N, L]",
    "return: [N]",
)
def scale_terms(v: tf.Tensor) -> tf.Tensor:
    r"""
    Compute what the scale of each row adds to the energy, :math:`\tfrac12 \sum_l
    (\log v - v + 1)`, at most 0.
    """
    return 0.5 * tf.reduce_sum(tf.math.log(v) - v + 1.0, axis=1)
