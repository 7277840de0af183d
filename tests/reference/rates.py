r"""The variational bound of counts whose log rate is f, and its slopes, in NumPy.

With v ~ N(0, I) the whitened inducing variables, q(v) = N(w, V) and rows
:math:`f_n = a_n^T v + e_n`, :math:`e_n \sim N(0, d_n)` (Hensman, Matthews & Ghahramani 2015,
equation 19), where the expectations of a Poisson density are closed forms,

.. math::

    \sum_n \left[y_n m_n - r_n - \log y_n!\right] - KL, \qquad
    r_n = \exp(m_n + \tfrac12 (s_n + d_n)), \quad m_n = a_n^T w, \quad s_n = a_n^T V a_n.

As r is convex in (w, V) and KL too, the bound is concave in both: where its slopes are 0 is its
one optimum.
"""

from typing import NamedTuple

import numpy as np
import scipy.special

from reference.regression import Array


class AtSites(NamedTuple):
    """The bound of the q that sites make."""

    bound: float

    of_mean: float
    """The slope in w, in the metric of q's precision: :math:`\\sqrt{g^T V g}`."""

    of_covariance: float
    """The slope in V, in the same: the norm of :math:`V^{1/2} G V^{1/2}`."""


def bound_and_slopes(A: Array, prior: Array, y: Array, nu: Array, tau: Array) -> AtSites:
    """:param A: [M, N], columns :math:`a_n`.
    :param prior: [N], variances of f.
    :param nu: [N], with ``tau`` the natural parameters of the sites.
    """
    identity = np.eye(len(A))
    B = identity + (A * tau) @ A.T
    root = np.linalg.inv(np.linalg.cholesky(B))
    V = root.T @ root
    w = V @ (A @ nu)
    m, s = A.T @ w, np.sum((root @ A) ** 2, axis=0)
    d = prior - np.sum(A**2, axis=0)
    r = np.exp(m + 0.5 * (s + d))
    divergence = 0.5 * (np.trace(V) - len(A) + w @ w) + 0.5 * np.linalg.slogdet(B)[1]
    g = A @ (y - r) - w
    G = 0.5 * (B - identity - (A * r) @ A.T)
    return AtSites(
        float(np.sum(y * m - r - scipy.special.gammaln(y + 1.0)) - divergence),
        float(np.linalg.norm(root @ g)),
        float(np.linalg.norm(root @ G @ root.T)),
    )
