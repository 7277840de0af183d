r"""Predictions from near training rows with NumPy.

The formulas are the same as in :mod:`gpflow_pep.engine.predictions.context_rows`: with
near rows h, their targets r and noise variances :math:`\Sigma`, and q(v) with mean m
and covariance :math:`B^{-1}`,

.. math::

    g = (D_{hh} + \Sigma)^{-1} D_{h*}, \qquad E = A_* - A_h g, \qquad
    f_* \sim N\bigl( E^T m + g^T r,\; D_{**} - g^T D_{h*} + E^T B^{-1} E \bigr) .

Labels get sites first, by Power EP at power 1 in each group of near rows
(:mod:`gpflow_pep.engine.sites.groups`); In this case u is not used, and M is 0.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from scipy.special import ndtr

from ..distributions.units import Array
from ..engine.numerics.nearest_in_numpy import nearest_rows
from .kernels import covariance_with, variance_of
from .likelihoods import SQUEEZE
from .triangles import solve_lower

#: Sweeps over the sites as in :mod:`gpflow_pep.engine.sites.groups`, with the same
#: constants.
TOLERANCE = 1e-4
MAX_SWEEPS = 30
DAMPING = 0.8
LEAST = 1e-10
#: The size of arrays that are computed at a time, large enough to hide the overhead of
#: Python.
_ELEMENTS = 2**20


def moments_from_near_rows(
    described: Mapping[str, Any],
) -> Callable[[Array], tuple[Array, Array]]:
    """Prepare the mean and variance of f, [N, P] each, at rows X [N, D].

    :param described: The description of a component: ``kernel`` and ``Z``; ``near``,
        the number of near rows; the training rows ``X``, their targets ``r`` minus the
        mean function, and their ``noise`` variances (not for labels); ``precision``, 1
        divided by the scales of the inputs; and ``L``, ``mean`` and ``root`` of u.
    """
    kernel = described["kernel"]
    near = described["near"]
    r = described["r"]
    noise = described["noise"]
    precision = described["precision"]
    M = len(described["L"])
    find = nearest_rows(described["X"] * precision)
    variance = variance_of(kernel)
    with_u = (
        covariance_with(kernel, described["Z"])
        if M
        else lambda X: np.zeros((len(X), 0))
    )
    group = np.arange(near + 1)

    def of_chunk(X: Array) -> tuple[Array, Array]:
        index = find(X * precision, near)
        # [N, 1 + m, D]
        rows = np.concatenate([X[:, None], described["X"][index]], axis=1)
        flat = rows.reshape(-1, X.shape[1])
        D = covariance_with(kernel, rows)(rows)
        D[:, group, group] = variance(flat).reshape(D.shape[:2])
        A = solve_lower(described["L"], with_u(flat).T).T.reshape(*D.shape[:2], M)
        D -= A @ A.swapaxes(1, 2)
        targets = r[index]
        if noise is None:
            targets, variances = _observe_by_sites(
                2.0 * targets[..., 0] - 1.0, D[:, 1:, 1:]
            )
        else:
            variances = noise[index]
        shared = D[:, 1:, 1:] + variances[..., None] * np.eye(near)
        g = np.linalg.solve(shared, D[:, 1:, :1])  # [N, m, 1]
        E = A[:, 0] - np.einsum("nm,nmk->nk", g[..., 0], A[:, 1:])
        residual = D[:, 0, 0] - np.einsum("nm,nm->n", g[..., 0], D[:, 1:, 0])
        mean = E @ described["mean"] + np.einsum("nm,nmp->np", g[..., 0], targets)
        spread = residual + np.sum((E @ described["root"]) ** 2, axis=1)
        return mean, spread[:, None] + np.zeros_like(mean)

    def moments(X: Array) -> tuple[Array, Array]:
        size = max(_ELEMENTS // ((near + 1) * max(M, near + 1)), 1)
        chunks = [
            of_chunk(X[start : start + size])
            for start in range(0, max(len(X), 1), size)
        ]
        mean, spread = (np.concatenate(moment) for moment in zip(*chunks, strict=True))
        return mean, spread

    return moments


def _observe_by_sites(signs: Array, C: Array) -> tuple[Array, Array]:
    """Compute the Gaussian observations, targets [N, m, 1] and variances [N, m], of
    labels.

    Labels are in groups with the prior N(0, C). A group whose sites have converged is
    not changed.

    :param signs: 1 or -1 for each label, [N, m].
    """
    prior = np.einsum("nmm->nm", C)
    nu = np.zeros_like(signs)
    tau = np.zeros_like(signs)
    moves = np.ones(len(signs), bool)
    for count in range(MAX_SWEEPS):
        step = 1.0 if count < 2 else DAMPING
        target = _sites(signs[moves], C[moves], nu[moves], tau[moves])
        change = [
            step * (new - old[moves])
            for new, old in zip(target, (nu, tau), strict=True)
        ]
        nu[moves] += change[0]
        tau[moves] += change[1]
        v = prior[moves]
        size = np.maximum(np.sqrt(v) * np.abs(change[0]), v * np.abs(change[1]))
        moves[moves] = np.max(size / (1.0 + v * tau[moves]), axis=1) > TOLERANCE
        if not moves.any():
            break
    nu, tau = _sites(signs, C, nu, tau)
    tau = np.maximum(tau, LEAST / prior)
    return (nu / tau)[..., None], 1.0 / tau


def _sites(signs: Array, C: Array, nu: Array, tau: Array) -> tuple[Array, Array]:
    """Compute sites that match the tilted moments of labels under the squeezed
    probit.
    """
    s = np.sqrt(tau)
    B = s[..., None] * C * s[:, None] + np.eye(C.shape[1])
    CB = C - C @ (s[..., None] * np.linalg.solve(B, s[..., None] * C))
    m = np.einsum("nij,nj->ni", CB, nu)
    v = np.einsum("nii->ni", CB)
    remaining = np.maximum(1.0 - tau * v, 1e-12)
    v_c = np.maximum(v, np.finfo(float).tiny) / remaining
    m_c = (m - v * nu) / remaining
    z = signs * m_c / np.sqrt(1.0 + v_c)
    bell = (1.0 - 2.0 * SQUEEZE) * np.exp(-0.5 * z * z) / np.sqrt(2.0 * np.pi)
    slope = bell / (SQUEEZE + (1.0 - 2.0 * SQUEEZE) * ndtr(z))
    delta1 = signs * slope / np.sqrt(1.0 + v_c)
    # A precision of 0 stays 0.
    shrinks = np.minimum(-slope * (z + slope) / (1.0 + v_c), 0.0)
    scale = 1.0 / (1.0 + shrinks * v_c)
    return scale * (delta1 - shrinks * m_c), -scale * shrinks
