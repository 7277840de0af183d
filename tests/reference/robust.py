"""Robust and conjugate regression as in Altamirano, Briol & Knoblauch (2024), densely, in NumPy: by
the weights w and by the loss that defines it.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.stats import multivariate_normal

Array = npt.NDArray[np.float64]


def weight(y: Array, centre: Array, noise: float, threshold: float) -> Array:
    """The inverse multiquadric with beta = sigma / sqrt(2)."""
    return np.sqrt(noise / 2.0) * (1.0 + ((y - centre) / threshold) ** 2) ** -0.5


def loss(y: float, f: Array, centre: float, noise: float, threshold: float) -> Array:
    """w² s² + 2 d(w² s) / dy, where s is the score of N(y; f, noise), by a complex step."""
    step = 1e-30

    def weighted_score(y: complex) -> Array:
        square = noise / 2.0 / (1.0 + ((y - centre) / threshold) ** 2)
        return square * (f - y) / noise

    score = (f - y) / noise
    return weighted_score(y).real * score + 2.0 * weighted_score(y + 1j * step).imag / step


class Robust(NamedTuple):
    """The posterior of f at new rows, and leave-one-out moments of the targets."""

    mean: Array
    covariance: Array
    log_evidence: float
    left_out: tuple[Array, Array]


def regression(
    K: Array, K_new: Array, K_both: Array, y: Array, m: Array, noise: float, threshold: float
) -> Robust:
    """
    The paper's proposition 3.1, for weights around the prior mean, and leave-one-out by omission.

    :param K: Prior covariance of the rows.
    :param K_new: That of new rows.
    :param K_both: Of new rows with the rows.
    :param m: The prior mean at the rows; 0 at new ones.
    """
    w = weight(y, m, noise, threshold)
    J = np.diag(noise / (2.0 * w**2))
    slope = -2.0 * (y - m) / (threshold**2 + (y - m) ** 2)  # of log w² in y
    z = y - m - noise * slope
    S = K + noise * J

    def left_out(n: int) -> tuple[float, float]:
        others = np.arange(len(y)) != n
        gain = np.linalg.solve(S[np.ix_(others, others)], K[others, n])
        return m[n] + gain @ z[others], K[n, n] - gain @ K[others, n] + noise

    moments = np.transpose([left_out(n) for n in range(len(y))])
    return Robust(
        K_both @ np.linalg.solve(S, z),
        K_new - K_both @ np.linalg.solve(S, K_both.T),
        float(multivariate_normal.logpdf(z, cov=S)),
        (moments[0], moments[1]),
    )
