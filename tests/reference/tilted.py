"""Tilted integrals by adaptive Gauss-Legendre quadrature, which share no code with the
package.

Intervals are halved until a rule of 20 points agrees with itself on both halves.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import optimize

Array = npt.NDArray[np.float64]
LogDensity = Callable[[Array], Array]
_POINTS, _WEIGHTS = np.polynomial.legendre.leggauss(20)
_TOLERANCE = 1e-12


def _panel_sums(integrand: LogDensity, low: Array, high: Array) -> tuple[Array, Array]:
    half = 0.5 * (high - low)
    values = integrand(0.5 * (low + high) + half * _POINTS[:, None])
    return half * (_WEIGHTS @ values), half * (_WEIGHTS @ np.abs(values))


def adaptive_integral(integrand: LogDensity, edges: Array) -> float:
    """The integral of `integrand` from the first to the last of the sorted `edges`.

    :raises ValueError: If the integrand is infinite or NaN somewhere.
    """
    low = edges[:-1]
    high = edges[1:]
    coarse, _ = _panel_sums(integrand, low, high)
    done = 0.0
    magnitude = 0.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        left, left_size = _panel_sums(integrand, low, middle)
        right, right_size = _panel_sums(integrand, middle, high)
        finite = np.isfinite(left + right)
        if not finite.all():  # no panel would ever be small enough
            panel = float(low[~finite][0]), float(high[~finite][0])
            raise ValueError(f"the integrand is infinite or NaN between {panel}")
        magnitude = max(magnitude, float(np.sum(left_size + right_size)))
        # Either is enough: rounding of a large exponent keeps a panel from ever
        # reaching the first.
        error = np.abs(coarse - left - right)
        good = (error <= _TOLERANCE * magnitude) | (
            error <= 1e-10 * (left_size + right_size)
        )
        done += float(np.sum((left + right)[good]))
        low = np.concatenate([low[~good], middle[~good]])
        high = np.concatenate([middle[~good], high[~good]])
        coarse = np.concatenate([left[~good], right[~good]])
        if not low.size:
            return done
    raise ArithmeticError(
        f"no convergence in {low.size} intervals, the first {low[0], high[0]}"
    )


def _edges(
    log_density: LogDensity,
    mean: float,
    variance: float,
    alpha: float,
    places: Sequence[float],
) -> Array:
    """Sorted points, geometrically spaced from the mean, the places of structure and
    the mode.
    """
    ladder = np.concatenate([[0.0], np.geomspace(1e-8, 1e8, 33)])
    ladder = np.concatenate([-ladder[:0:-1], ladder])
    deviation = np.sqrt(variance)

    def exponent(f: Array) -> Array:
        return alpha * log_density(f) - 0.5 * (f - mean) ** 2 / variance

    grid = np.unique(np.concatenate([p + ladder for p in (mean, *places)]))
    best = int(np.argmax(exponent(grid)))
    around = grid[max(best - 1, 0)], grid[min(best + 1, grid.size - 1)]
    found = optimize.minimize_scalar(
        lambda f: -float(exponent(np.array([f]))[0]),
        bounds=around,
        method="bounded",
        options={"xatol": 1e-13 * max(1.0, abs(grid[best]))},
    )
    mode = float(found.x) if -found.fun > exponent(grid)[best] else float(grid[best])
    edges = np.unique(np.concatenate([p + ladder for p in (mean, mode, *places)]))
    # Where the integrand is below exp(-90) of its maximum there is nothing to add,
    # unless it is within the Gaussian's own range.
    values = exponent(edges)
    keep = (values > np.max(values) - 90.0) | (np.abs(edges - mean) < 14.0 * deviation)
    first, last = np.flatnonzero(keep)[[0, -1]]
    return edges[max(first - 1, 0) : last + 2]


def _log_gaussian(f: Array, mean: float, variance: float) -> Array:
    return -0.5 * (f - mean) ** 2 / variance - 0.5 * np.log(2.0 * np.pi * variance)


def log_power_expectation(
    log_density: LogDensity,
    mean: float,
    variance: float,
    alpha: float,
    places: Any = (0.0,),
) -> float:
    """(1 / alpha) log E[exp(alpha log_density(f))], f normal, with structure at the
    places.
    """
    edges = _edges(log_density, mean, variance, alpha, places)

    def exponent(f: Array) -> Array:
        return alpha * log_density(f) + _log_gaussian(f, mean, variance)

    if alpha > 0.0:
        top = float(
            np.max(exponent(np.concatenate([edges, 0.5 * (edges[1:] + edges[:-1])])))
        )
        integral = adaptive_integral(lambda f: np.exp(exponent(f) - top), edges)
        if abs(top + np.log(integral)) > 0.5:
            return (top + np.log(integral)) / alpha

    def excess(f: Array) -> Array:
        values = log_density(f)
        weights = np.exp(_log_gaussian(f, mean, variance))
        return weights * (np.expm1(alpha * values) / alpha if alpha else values)

    mean_excess = adaptive_integral(excess, edges)
    return np.log1p(alpha * mean_excess) / alpha if alpha else mean_excess


def moments(
    first: LogDensity,
    second: LogDensity,
    mean: float,
    variance: float,
    places: Any = (0.0,),
) -> tuple[float, float]:
    """Mean and variance of y from those given f ~ N(mean, variance), with structure at
    places.
    """

    def expected(values: LogDensity) -> float:
        def log_size(f: Array) -> Array:
            with np.errstate(divide="ignore"):
                return np.log(np.abs(values(f)))

        def integrand(f: Array) -> Array:
            return np.sign(values(f)) * np.exp(
                log_size(f) + _log_gaussian(f, mean, variance)
            )

        return adaptive_integral(
            integrand, _edges(log_size, mean, variance, 1.0, places)
        )

    centre = expected(first)
    return centre, expected(lambda f: second(f) + (first(f) - centre) ** 2)
