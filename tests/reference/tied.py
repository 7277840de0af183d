"""Power EP energies with tied sites from their definitions, in 100 decimal digits.

From Villacampa-Calvo & Hernández-Lobato (2020), sections 3.2 to 3.4, over inducing
variables u as they are; no code of the package. At so many digits nothing cancels, for
any alpha and N, and 1e-40 is the limit for alpha -> 0. Arrays of decimals are of
objects. M inducing variables, L functions.
"""

import decimal
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import numpy as np

from reference import sites
from reference.regression import Array
from reference.sites import Problem

decimal.getcontext().prec = 100
Decimals = Any
_LOG_TWO_PI = (
    2 * Decimal("3.14159265358979323846264338327950288419716939937510582097494459")
).ln()
to_decimals: Callable[[Any], Decimals] = np.vectorize(
    lambda x: Decimal(float(x)), otypes=[object]
)


def to_floats(values: Decimals) -> Array:
    return np.vectorize(float)(values)


def _eliminate(matrix: Decimals) -> tuple[Decimals, Decimal]:
    """Inverse and determinant of a symmetric positive definite matrix, by Gauss and
    Jordan.
    """
    size = len(matrix)
    rows = np.concatenate([matrix, to_decimals(np.eye(size))], axis=1)
    determinant = Decimal(1)
    for i in range(size):
        pivot = rows[i, i]
        if pivot <= 0:
            raise ValueError("expected a positive definite matrix.")
        determinant *= pivot
        rows[i] = rows[i] / pivot
        for j in range(size):
            if j != i:
                rows[j] = rows[j] - rows[j, i] * rows[i]
    return rows[:, size:], determinant


class Natural(sites.Natural):
    """The same in decimals."""

    def moments(self) -> tuple[Decimals, Decimals]:
        """Mean and covariance."""
        covariance, _ = _eliminate(self.T2)
        return covariance @ self.T1, covariance

    def log_normaliser(self) -> Any:
        """log of the integral over u, the paper's g."""
        covariance, determinant = _eliminate(self.T2)
        quadratic = self.T1 @ covariance @ self.T1
        return (len(self.T1) * _LOG_TWO_PI - determinant.ln() + quadratic) / 2


def natural(mean: Array, covariance: Array) -> Natural:
    precision, _ = _eliminate(to_decimals(covariance))
    return Natural(precision @ to_decimals(mean), precision)


def prior_of_u(problem: Problem, latent: int) -> Natural:
    Kuu = problem.priors[latent].Kuu
    return natural(np.zeros(len(Kuu)), Kuu)


def _decimal_power(alpha: float) -> Decimal:
    return Decimal(alpha) if alpha > 0.0 else Decimal("1e-40")


def _sum_of_tilted(
    problem: Problem,
    of_u: Sequence[Natural],
    alpha: float,
    num_data: int,
    rows: Sequence[int],
) -> Decimal:
    """N / |rows| times the sum over the rows of log E[p^alpha] / alpha where u has this
    law.
    """
    moments = [tuple(map(to_floats, one.moments())) for one in of_u]
    total = 0.0
    for row in rows:
        mean = []
        variance = []
        for latent, (m, V) in enumerate(moments):
            w = problem.direction(row, latent)
            mean.append(w @ m + problem.means[row, latent])
            variance.append(w @ V @ w + problem.residual_variance(row, latent))
        zeroth = problem.factors[row](np.array(mean), np.array(variance), alpha).zeroth
        total += np.log(zeroth) / alpha if alpha > 0.0 else zeroth
    return Decimal(num_data) / len(rows) * Decimal(total)


def cavity(
    model: str, prior: Natural, q: Natural, alpha: float, num_data: int
) -> Natural:
    """Each of N factors of APEP is the site, q over the prior, to the power 1 / N;
    ARPEP has none; of RPAPEP's N + 1 equal ones the last stands for the prior.
    """
    power = _decimal_power(alpha)
    if model == "APEP":
        return q.plus(q.plus(prior, -1), -power / num_data)
    return q if model == "ARPEP" else q.times(1 - power / (num_data + 1))


def rest(
    model: str, prior: Natural, q: Natural, alpha: float, num_data: int
) -> Decimal:
    """What the energy of one latent function has beside the tilted integrals of the
    rows.
    """
    if model == "ARPEP":
        mean, covariance = q.moments()
        trace = np.sum(prior.T2 * (covariance + np.outer(mean, mean)))
        logdets = _eliminate(q.T2)[1].ln() - _eliminate(prior.T2)[1].ln()
        return -(trace - len(mean) + logdets) / 2  # KL
    power = _decimal_power(alpha)
    of_cavity = cavity(model, prior, q, alpha, num_data)
    G, G_cavity, G_prior = (one.log_normaliser() for one in (q, of_cavity, prior))
    if model == "APEP":
        return G - G_prior + num_data / power * (G_cavity - G)
    # log E[p(u)^alpha] under the cavity, p normalised
    tilted = of_cavity.plus(prior, power).log_normaliser() - G_cavity - power * G_prior
    return G + (tilted + (num_data + 1) * (G_cavity - G)) / power


def log_z(
    model: str,
    problem: Problem,
    q: Sequence[Natural],
    alpha: float,
    num_data: int,
    rows: Any,
) -> float:
    """Equation (8) of APEP, (9) of ARPEP, (10) of RPAPEP, at q(u) of each latent
    function.
    """
    pairs = [(prior_of_u(problem, latent), one) for latent, one in enumerate(q)]
    cavities = [cavity(model, *pair, alpha, num_data) for pair in pairs]
    value = _sum_of_tilted(problem, cavities, alpha, num_data, rows)
    return float(value + sum(rest(model, *pair, alpha, num_data) for pair in pairs))
