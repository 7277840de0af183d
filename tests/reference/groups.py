"""Power EP in a group of rows with a dense Gaussian prior: one row after the other, by
a grid.
"""

from collections.abc import Callable

import numpy as np
from gpflow.base import AnyNDArray

Density = Callable[[AnyNDArray], AnyNDArray]


def slopes(log_prob: Density, m: float, v: float, alpha: float) -> tuple[float, float]:
    """First and second derivative in m of (1 / alpha) log E[p(y | f)^alpha], f ~ N(m,
    v).
    """
    z = np.linspace(-12.0, 12.0, 1501)
    weights = np.exp(-0.5 * z**2)
    weights /= weights.sum()
    log_p = log_prob(m + np.sqrt(v) * z)
    g = log_p if alpha == 0.0 else np.expm1(alpha * log_p) / alpha
    Z = 1.0 + alpha * weights @ g
    first = weights @ (g * z) / np.sqrt(v) / Z
    return first, weights @ (g * (z**2 - 1.0)) / v / Z - alpha * first**2


def fixed_point(
    log_probs: list[Density],
    mean: AnyNDArray,
    C: AnyNDArray,
    alpha: float,
    sweeps: int = 300,
) -> tuple[AnyNDArray, AnyNDArray]:
    """Sites nu and tau [S] of f ~ N(mean, C) with one factor for each row."""
    size = len(mean)
    nu = np.zeros(size)
    tau = np.zeros(size)
    inverse = np.linalg.inv(C)
    for _ in range(sweeps):
        for n in range(size):
            covariance = np.linalg.inv(inverse + np.diag(tau))
            m = covariance @ (inverse @ mean + nu)
            v_c = 1.0 / (1.0 / covariance[n, n] - alpha * tau[n])
            m_c = v_c * (m[n] / covariance[n, n] - alpha * nu[n])
            first, second = slopes(log_probs[n], m_c, v_c, alpha)
            scale = 1.0 / (1.0 + alpha * second * v_c)
            nu[n] += 0.7 * (scale * (first - second * m_c) - nu[n])
            tau[n] += 0.7 * (-scale * second - tau[n])
    return nu, tau
