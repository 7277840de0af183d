r"""Natural parameters of the sites: the one place that states the convention.

The site of row n and latent function l is
:math:`t_{nl}(u) \propto \exp(\nu_{nl} h_{nl} - \tfrac12 \tau_{nl} h_{nl}^2)`, a function of
:math:`h_{nl} = A_{nl}ᵀ v_l` alone, the one direction of the whitened inducing variables that the
row sees. Bui, Yan & Turner (2017), appendix F, write g for :math:`\nu / \tau` and v for
:math:`1 / \tau`; natural parameters stay finite for a site that says nothing.
"""

from typing import NamedTuple

import tensorflow as tf
from check_shapes import check_shapes


class Sites(NamedTuple):
    """Natural parameters of all sites."""

    nu: tf.Tensor
    r"""[N, L], :math:`\nu`."""

    tau: tf.Tensor
    r"""[N, L], :math:`\tau`; may be negative where the likelihood is not log-concave."""


class Marginals(NamedTuple):
    """Moments of h under q(v), a row and latent function each."""

    m: tf.Tensor
    """[N, L], means."""

    s: tf.Tensor
    """[N, L], variances."""


@check_shapes(
    "return.nu: [N, L]",
    "return.tau: [N, L]",
)
def no_sites(num_rows: tf.Tensor, num_latent: int, dtype: tf.DType) -> Sites:
    """
    Sites that say nothing: q is the prior.

    :param num_rows: N.
    :param num_latent: L.
    :param dtype: Their float.
    """
    zeros = tf.zeros([num_rows, num_latent], dtype)
    return Sites(zeros, zeros)
