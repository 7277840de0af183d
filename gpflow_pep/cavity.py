r"""The approximate posterior of each row with a power of the row's own site removed."""

from typing import NamedTuple

import tensorflow as tf
from check_shapes import check_shapes

from .sites import Marginals, Sites


class Cavity(NamedTuple):
    """Moments of h under the cavity."""

    m: tf.Tensor
    r"""[N, L], :math:`m^{-} = (m - \alpha \nu s) / e`."""

    s: tf.Tensor
    r"""[N, L], :math:`s^{-} = s / e`."""

    e: tf.Tensor
    r"""[N, L], :math:`e = 1 - \alpha \tau s`. The cavity is proper where it is positive; where it
    is not, ``m`` and ``s`` mean nothing."""


@tf.autograph.experimental.do_not_convert
@check_shapes(
    "marginals.m: [N, L]",
    "marginals.s: [N, L]",
    "sites.nu: [N, L]",
    "sites.tau: [N, L]",
    "alpha: [broadcast N, 1]",
    "return.m: [N, L]",
    "return.s: [N, L]",
    "return.e: [N, L]",
)
def remove(marginals: Marginals, sites: Sites, alpha: tf.Tensor) -> Cavity:
    """
    Remove the power alpha of each row's site (Bui, Yan & Turner 2017, section 3.3).

    :param marginals: Moments of h under q.
    :param sites: The sites in q.
    :param alpha: The power, in [0, 1]; 1 removes the site, 0 removes nothing.
    """
    m, s = marginals
    e = 1.0 - alpha * sites.tau * s
    return Cavity((m - alpha * sites.nu * s) / e, s / e, e)
