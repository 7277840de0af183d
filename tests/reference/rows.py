"""Dense NumPy references for predictions that use training rows, in terms of u and not
of v.

Letters as in :mod:`reference`; rows 0 .. N-1 are the training rows, the S new ones come
after them.
"""

from typing import NamedTuple

import numpy as np
from cases.regression import Case
from helpers import Array

from reference import regression as reference
from reference.regression import IntArray


class Dense(NamedTuple):
    """All that the formulas need, of training rows and then new ones."""

    C: Array  # [N + S, M], Kfu Kuu^-1
    Q: Array  # [N + S, N + S]
    D: Array  # [N + S, N + S], residual prior covariance given u
    R: Array  # [N, P], residual targets
    noise: Array  # [N]
    qu_mean: Array  # [M, P]
    qu_cov: Array  # [M, M]


def dense(case: Case, Xnew: Array) -> Dense:
    """What a case of PEPRegression says of its rows and of new ones."""
    problem, (prior, R, noise, factors) = case.problem, case.reference_arguments()
    everything = np.vstack([problem.X, Xnew])
    Kuf = problem.covariance(problem.Z, everything)
    C = np.linalg.solve(prior.Kuu, Kuf).T
    Q = C @ Kuf
    D = problem.covariance(everything, everything) - Q
    return Dense(C, Q, D, R, noise, *reference.pep_qu(prior, R, noise, factors))


def weights(of: Dense, held: list[IntArray]) -> Array:
    """g of each new row as a column of zeros but for the rows that it is
    given, [N, S].
    """
    N = len(of.R)
    G = np.zeros([N, len(held)])
    for s, rows in enumerate(held):
        noisy = of.D[np.ix_(rows, rows)] + np.diag(of.noise[rows])
        G[rows, s] = np.linalg.inv(noisy) @ of.D[rows, N + s]
    return G


def predict(of: Dense, held: list[IntArray], same: Array | None) -> tuple[Array, Array]:
    """Mean [S, P] and covariance [S, S] of new rows, each given rows of its own; same
    [S, S] is 1 where the residual covariance of two is part of the model, or None:
    errors of predictions from residuals and noise, whatever rows they share.
    """
    N = len(of.R)
    G = weights(of, held)
    E = of.C[N:] - G.T @ of.C[:N]
    residual = of.D[N:, N:] - G.T @ of.D[:N, N:]
    if same is None:
        noisy = of.D[:N, :N] + np.diag(of.noise)
        residual, same = (
            residual - of.D[N:, :N] @ G + G.T @ noisy @ G,
            np.ones_like(residual),
        )
    return (
        E @ of.qu_mean + G.T @ of.R,
        np.where(same, residual, 0.0) + E @ of.qu_cov @ E.T,
    )


def pitc_conditional(
    of: Dense, blocks: IntArray, new_blocks: IntArray
) -> tuple[Array, Array]:
    """Mean and covariance of new rows given all targets, by the joint Gaussian of
    PITC's model.
    """
    N = len(of.R)
    labels = np.concatenate([blocks, new_blocks])
    K = of.Q + np.where(labels[:, None] == labels[None, :], of.D, 0.0)
    noisy = K[:N, :N] + np.diag(of.noise)
    gain = np.linalg.solve(noisy, K[:N, N:]).T
    return gain @ of.R, K[N:, N:] - gain @ K[:N, N:]


def nearest(X: Array, Xnew: Array, m: int) -> list[IntArray]:
    """The m nearest rows of each new one, by all distances."""
    distances = np.sum((Xnew[:, None] - X[None]) ** 2, axis=-1)
    return list(np.argsort(distances, axis=1, kind="stable")[:, :m])


def vecchia_qu(of: Dense, Kuu: Array) -> tuple[Array, Array]:
    """q(u) where each training row is given v and all rows before it: the exact one."""
    N = len(of.R)
    precision = np.linalg.inv(Kuu)
    first = np.zeros_like(of.qu_mean)
    for n in range(N):
        noisy = of.D[:n, :n] + np.diag(of.noise[:n])
        g = np.linalg.solve(noisy, of.D[:n, n])
        c = of.C[n] - g @ of.C[:n]
        r = of.R[n] - g @ of.R[:n]
        s = of.noise[n] + of.D[n, n] - g @ of.D[:n, n]
        precision = precision + np.outer(c, c) / s
        first = first + np.outer(c, r) / s
    cov = np.linalg.inv(precision)
    return cov @ first, cov
