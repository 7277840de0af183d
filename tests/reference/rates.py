r"""The variational bound of counts whose log rate is f, and its slopes, in NumPy.

With v ~ N(0, I) the whitened inducing variables, q(v) = N(w, V) and rows
:math:`f_n = a_n^T v + e_n`, :math:`e_n \sim N(0, d_n)` (Hensman, Matthews & Ghahramani
2015, equation 19), where the expectations of a Poisson density are closed forms,

.. math::

    \sum_n \left[y_n m_n - r_n - \log y_n!\right] - KL, \qquad
    r_n = \exp(m_n + \tfrac12 (s_n + d_n)),
    \quad m_n = a_n^T w, \quad s_n = a_n^T V a_n.

As r is convex in (w, V) and KL too, where the slopes of the bound are 0 is its one
optimum.
"""

import numpy as np
import scipy.special

from reference.regression import Array


def bound_and_slopes(
    A: Array, prior: Array, y: Array, nu: Array, tau: Array
) -> tuple[float, float, float]:
    r"""The bound of the q that sites nu, tau [N] make, and norms of its slopes g in w
    and G in V, in the metric of q's precision, :math:`\sqrt{g^T V g}` and that of
    :math:`V^{1/2} G V^{1/2}`.

    :param A: [M, N], columns :math:`a_n`.
    :param prior: [N], variances of f.
    """
    identity = np.eye(len(A))
    B = identity + (A * tau) @ A.T
    root = np.linalg.inv(np.linalg.cholesky(B))
    V = root.T @ root
    w = V @ (A @ nu)
    m = A.T @ w
    s = np.sum((root @ A) ** 2, axis=0)
    r = np.exp(m + 0.5 * (s + prior - np.sum(A**2, axis=0)))
    divergence = 0.5 * (np.trace(V) - len(A) + w @ w) + 0.5 * np.linalg.slogdet(B)[1]
    bound = np.sum(y * m - r - scipy.special.gammaln(y + 1.0)) - divergence
    g = A @ (y - r) - w
    G = 0.5 * (B - identity - (A * r) @ A.T)
    return (
        float(bound),
        float(np.linalg.norm(root @ g)),
        float(np.linalg.norm(root @ G @ root.T)),
    )
