"""Substitution in triangles, of one row or of many."""

import numpy as np
from scipy.linalg.blas import dtrsm, dtrsv

from ..distributions.units import Array


def solve_lower(L: Array, K: Array) -> Array:
    """Compute :math:`L^{-1} K`.

    Each column has an error as if L had one of the machine's epsilon times its size,
    whatever the condition number: products with an explicit :math:`L^{-1}` have not.

    :param L: Lower triangular, [M, M], in the order of C; nothing above is read.
    :param K: [M, N].
    """
    if len(L) == 0 or K.shape[1] == 0:
        return np.zeros(K.shape)
    # The transpose of L is in LAPACK's order, so that it is not copied.
    if K.shape[1] == 1:
        return dtrsv(L.T, K[:, 0], lower=0, trans=1)[:, None]
    return np.asarray(dtrsm(1.0, L.T, K, lower=0, trans_a=1))
