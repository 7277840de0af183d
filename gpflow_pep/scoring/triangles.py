"""Substitution with triangular matrices, for one or many rows."""

import numpy as np
from scipy.linalg.blas import dtrsm, dtrsv

from ..distributions.units import Array


def solve_lower(L: Array, K: Array) -> Array:
    """Compute :math:`L^{-1} K`.

    The error of each column is as if L had an error of the machine's epsilon times its
    size, for any condition number. Products with an explicit :math:`L^{-1}` have larger
    errors.

    :param L: A lower triangular matrix, [M, M], in C order. Entries above the diagonal
        are not read.
    :param K: The right sides, [M, N].
    """
    if len(L) == 0 or K.shape[1] == 0:
        return np.zeros(K.shape)
    # The transpose of L is in LAPACK's order, so L is not copied.
    if K.shape[1] == 1:
        return dtrsv(L.T, K[:, 0], lower=0, trans=1)[:, None]
    return np.asarray(dtrsm(1.0, L.T, K, lower=0, trans_a=1))
