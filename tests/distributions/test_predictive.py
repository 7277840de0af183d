"""Units, mixtures in several units, and recalibration: against quadrature, differences,
SciPy.
"""

from typing import Any

import numpy as np
import pytest
from numpy.polynomial.legendre import leggauss
from numpy.testing import assert_allclose, assert_array_equal
from scipy.integrate import quad
from scipy.optimize import minimize_scalar
from scipy.special import ndtr, ndtri
from scipy.stats import norm
from scipy.stats import t as student

from gpflow_pep.distributions import Predictive, Recalibration, Units

RNG = np.random.default_rng(0)
UNITS = {
    "linear": Units(2.5, -1.0),
    "logarithm": Units(0.7, 0.2, True),
    "warped": Units(2.5, -1.0, False, 0.6, -0.4),
    "light tails": Units(0.3, 4.0, False, -0.8, 0.5),
    "logarithm, warped": Units(0.7, 0.2, True, 0.3, 0.2),
    "two outputs": Units.of_columns(
        np.array([2.0, 0.1]), np.array([1.0, -3.0])
    )._replace(skew=np.array([0.5, 0.0]), tails=np.array([-0.2, 0.0])),
}
W = np.array([0.2, 0.5, 0.3])
Q = np.array([1e-6, 0.05, 0.5, 0.95, 1.0 - 1e-6])


@pytest.mark.parametrize("name", UNITS)
def test_units_and_their_slopes(name: str) -> None:
    units = UNITS[name]
    t = np.linspace(-4.0, 4.0, 33)[:, None] * np.ones(np.shape(units.scale) or 1)
    y = units.inverse_transform(t)
    assert_allclose(units.transform(y), t, rtol=1e-12, atol=1e-13)
    step = 1e-5 * np.abs(y) + 1e-7
    difference = (units.transform(y + step) - units.transform(y - step)) / (2.0 * step)
    assert_allclose(units.log_slope(y), np.log(difference), atol=1e-7)


@pytest.mark.parametrize("weights", [[1.0], [0.5, 0.5], [1.0, 0.0], [0.1, 0.1, 0.8]])
def test_quantiles_invert_the_distribution_function(weights: list[float]) -> None:
    """Of components that are narrow or wide, near each other or far apart."""
    w = np.array(weights)
    shape = (len(weights), 300)
    m = RNG.normal(size=shape) * 10.0 ** RNG.uniform(-3.0, 4.0, 300)
    s = 10.0 ** RNG.uniform(-6.0, 1.0, shape)
    q = np.array([1e-9, 0.05, 0.2500001, 0.5, 0.9, 1.0 - 1e-6])
    y = Predictive(m, s**2, w).quantiles(q)
    # The function may be steep where y is rounded, and flat between components.
    error = 1e-13 * np.max(np.abs(m), axis=0)[:, None]
    low, high = (
        np.einsum("k,knq->nq", w, norm.cdf(y + d, m[..., None], s[..., None]))
        for d in (-error, error)
    )
    assert np.all(low <= q * (1.0 + 1e-7) + 1e-13) and np.all(
        q * (1.0 - 1e-7) - 1e-13 <= high
    )


def test_without_a_warp_units_are_linear_bit_for_bit() -> None:
    y = RNG.uniform(0.1, 9.0, 50)
    v = RNG.uniform(0.1, 2.0, 50)
    for logarithm in (False, True):
        units = Units(0.7, 0.3, logarithm, 0.0, 0.0)
        g = ((np.log(y) if logarithm else y) - 0.3) / 0.7
        assert_array_equal(units.transform(y), g)
        back = 0.7 * g + 0.3
        assert_array_equal(
            units.inverse_transform(g), np.exp(back) if logarithm else back
        )
        slope = np.full(50, -np.log(0.7))
        assert_array_equal(
            units.log_slope(y), slope - np.log(y) if logarithm else slope
        )
    assert_array_equal(Units(0.7, 0.3).moments(y, v), (0.7 * y + 0.3, 0.7**2 * v))
    # A warp is continuous where it is none.
    nearly = Units(2.0, 1.0, False, 1e-13, -1e-13)
    assert_allclose(
        nearly.transform(y), Units(2.0, 1.0).transform(y), rtol=1e-12, atol=1e-12
    )
    assert_allclose(nearly.log_slope(y), np.full(50, -np.log(2.0)), atol=1e-12)


@pytest.mark.parametrize("name", ["warped", "light tails", "logarithm, warped"])
@pytest.mark.parametrize("sd, precision", [(0.2, 1e-8), (1.0, 1e-3)])
def test_moments_of_warped_targets(name: str, sd: float, precision: float) -> None:
    units = UNITS[name]
    for m in (-1.5, 0.0, 2.0):
        found = units.moments(np.array([m]), np.array([sd**2]))

        def moment(power: int, m: float = m) -> float:
            def term(z: float) -> float:
                y = float(units.inverse_transform(np.array([m + sd * z]))[0])
                return float(norm.pdf(z)) * y**power

            return float(
                quad(term, -9.0, 9.0, epsabs=1e-12, epsrel=1e-12, limit=200)[0]
            )

        mean = moment(1)
        assert_allclose(found[0], mean, rtol=precision)
        assert_allclose(found[1], moment(2) - mean**2, rtol=10.0 * precision)


SEVERAL = UNITS["warped"], Units(2.0), UNITS["light tails"]
LOGARITHMS = UNITS["logarithm"], UNITS["logarithm, warped"], Units(1.0, 0.0, True)
PREDICTIVES: dict[str, tuple[Any, tuple[int, ...], Recalibration | None]] = {
    "warped": (UNITS["warped"], (), None),
    "logarithm": (UNITS["logarithm"], (2,), None),
    "two outputs": (UNITS["two outputs"], (2,), None),
    "several units": (SEVERAL, (), None),
    "several units of two outputs": (
        (UNITS["two outputs"], Units(), Units(0.5)),
        (2,),
        None,
    ),
    "narrower": (UNITS["linear"], (), Recalibration(None, 0.7)),
    "heavy tails": (UNITS["linear"], (), Recalibration(3.0, 0.6)),
    "all": (SEVERAL, (), Recalibration(7.0, 1.1)),
    "logarithms": (LOGARITHMS, (), None),
}


@pytest.mark.parametrize("name", PREDICTIVES)
def test_one_distribution_has_quantiles_densities_moments_and_scores(name: str) -> None:
    units, shape, recalibration = PREDICTIVES[name]
    means = RNG.normal(size=(3, 4, *shape))
    sds = RNG.uniform(0.2, 1.0, (3, 4, *shape))
    predictive = Predictive(means, sds**2, W, units, recalibration=recalibration)
    each = [units] * 3 if isinstance(units, Units) else units

    def cdf(y: Any) -> Any:
        parts = zip(W, each, means, sds, strict=True)
        below = sum(w * norm.cdf(u.transform(y), m, s) for w, u, m, s in parts)
        if recalibration is None:
            return below
        z = norm.ppf(below) / recalibration.scale
        nu = recalibration.nu
        return norm.cdf(z) if nu is None else student.cdf(z, nu)

    farthest = 1e-6 if recalibration is None else 1e-3
    q = np.array([farthest, 0.05, 0.5, 0.95, 1.0 - farthest])
    ends = predictive.quantiles(q)
    assert ends.shape == (4, *shape, 5)
    for place, probability in enumerate(q):
        assert_allclose(cdf(ends[..., place]), probability, rtol=1e-8)
        assert_allclose(
            predictive.normal_scores(ends[..., place]), ndtri(probability), atol=1e-8
        )
    # By Gauss-Legendre panels between quantiles of the components.
    grid = np.linspace(-7.0, 7.0, 141).reshape(-1, 1, *[1] * len(shape))
    inside = [
        u.inverse_transform(m + s * grid)
        for u, m, s in zip(each, means, sds, strict=True)
    ]
    edges = np.clip(
        np.sort(np.concatenate(inside), axis=0), ends[..., 0], ends[..., -1]
    )
    nodes, weights = (part.reshape(-1, *[1] * edges.ndim) for part in leggauss(16))
    half = 0.5 * np.diff(edges, axis=0)
    y = edges[:-1] + half + nodes * half  # [16, 422, N, ...]
    rows = predictive._replace(
        means=means[:, None, None], variances=sds[:, None, None] ** 2
    )
    mass = weights * half * np.exp(rows.log_densities(y))
    below = np.cumsum(mass.sum(axis=0), axis=0)
    assert_allclose(below, cdf(edges[1:]) - farthest, rtol=1e-7, atol=1e-11)
    # The moments of a recalibrated distribution are those of no integral.
    if recalibration is None:
        mean, variance = predictive.moments()
        assert_allclose(mean, (mass * y).sum(axis=(0, 1)), rtol=1e-3, atol=1e-3)
        assert_allclose(variance, (mass * (y - mean) ** 2).sum(axis=(0, 1)), rtol=1e-2)


def test_far_quantiles_and_scores_keep_their_digits() -> None:
    heavy = Predictive(
        np.zeros((1, 1)),
        np.ones((1, 1)),
        np.ones(1),
        Units(),
        "Gaussian",
        None,
        Recalibration(3.0, 0.5),
    )
    q = np.array([1e-200, 1e-9, 0.5, 1.0 - 1e-9])
    assert_allclose(heavy.quantiles(q)[0, 1:], 0.5 * student.ppf(q[1:], 3.0), rtol=1e-9)
    # T_3(-x) = 2 sqrt(3) / (pi x^3) (1 + O(x^-2))
    far = -0.5 * (2.0 * np.sqrt(3.0) / (np.pi * 1e-200)) ** (1.0 / 3.0)
    assert_allclose(heavy.quantiles(q)[0, 0], far, rtol=1e-9)
    two = Predictive(np.array([[0.0], [1.0]]), np.ones((2, 1)), np.array([0.5, 0.5]))
    assert_allclose(two.at_scores(np.array([60.0])), 61.0, rtol=1e-3)
    assert_allclose(
        two.normal_scores(two.at_scores(np.array([-60.0, 60.0]))[0, 1:]), 60.0
    )


@pytest.mark.parametrize(
    "nu, scale", [(None, 0.8), (3.0, 0.6), (7.0, 1.3), (50.0, 1.0)]
)
def test_recalibration_is_a_change_of_the_normal_score(
    nu: float | None, scale: float
) -> None:
    recalibration = Recalibration(nu, scale)
    z = np.array([-30.0, -4.0, -0.3, -1e-9, 0.0, 1e-4, 2.0, 9.0])
    law = norm(scale=scale) if nu is None else student(nu, scale=scale)
    assert_allclose(
        recalibration.scores(z[1:-1]), ndtri(law.cdf(z[1:-1])), rtol=1e-7, atol=1e-16
    )
    assert_allclose(
        recalibration.original(recalibration.scores(z)), z, rtol=1e-9, atol=1e-12
    )
    ratio = law.logpdf(z) - norm.logpdf(z)
    assert_allclose(recalibration.log_ratio(z), ratio, rtol=1e-12, atol=1e-12)
    assert_allclose(recalibration.spread, law.var(), rtol=1e-12)


@pytest.mark.parametrize("nu", [3.0, None])
@pytest.mark.parametrize("variance", [0.5, 2.0])
def test_a_recalibration_that_does_not_narrow(nu: Any, variance: float) -> None:
    scale = np.sqrt(variance / Recalibration(nu).spread)
    found = Recalibration(nu, scale).not_narrower()
    assert found.nu == nu
    assert_allclose(found.spread, max(variance, 1.0), rtol=1e-12)


@pytest.mark.parametrize("nu", [3.0, 7.0, None])
def test_recalibration_maximises_the_likelihood(nu: float | None) -> None:
    z = 0.7 * (RNG.standard_normal(4000) if nu is None else RNG.standard_t(nu, 4000))
    without = Recalibration.fit(z, errors=0.0)

    def loss(log_scale: float, nu: float | None) -> float:
        scale = np.exp(log_scale)
        law = norm(scale=scale) if nu is None else student(nu, scale=scale)
        return -float(np.sum(law.logpdf(z)))

    best = {
        nu: minimize_scalar(
            loss, args=(nu,), bracket=(-1.0, 0.0), options={"xtol": 1e-10}
        )
        for nu in (3.0, 4.0, 5.0, 7.0, 10.0, 20.0, 50.0, None)
    }
    chosen = min(best, key=lambda nu: best[nu].fun)
    assert without.nu == chosen
    assert_allclose(np.log(without.scale), best[chosen].x, atol=1e-6)
    # The standard error by the curvature of the likelihood in log s.
    curvature = [loss(best[chosen].x + step, chosen) for step in (-1e-3, 0.0, 1e-3)]
    error = 1.0 / np.sqrt(np.sum(np.array([1.0, -2.0, 1.0]) * curvature) / 1e-6)
    for D, margin in ((40, 0.01), (9000, 0.7)):
        wider = np.log(Recalibration.fit(z, D=D).scale / without.scale)
        assert_allclose(wider - margin - 2.0 / 4000.0, error, rtol=0.05)


@pytest.mark.parametrize("N", [2, 5, 12, 51, 52])
def test_recalibration_of_few_rows_has_their_degrees_of_freedom(N: int) -> None:
    """So few scores do not show that tails are Gaussian, nor do columns of a row."""
    z = ndtri((np.arange(N) + 0.5) / N)  # as Gaussian as N scores can be
    nu, scale = Recalibration.fit(z, D=1)
    assert nu == (None if N == 52 else max(N - 1.0, 3.0))
    without = Recalibration.fit(z, errors=0.0)
    relative = 1.0 if nu is None else (nu + 3.0) / nu
    margin = np.sqrt(relative / (2.0 * N)) + 2.0 / N + min(1.0 / N, 0.7)
    assert_allclose(np.log(scale / without.scale), margin, rtol=1e-9)
    # Four columns of the same scores are as good as one.
    of_four = Recalibration.fit(np.tile(z, 4), D=1, num_rows=N)
    assert of_four.nu == nu
    assert_allclose(of_four.scale, scale, rtol=1e-12)


def test_draws_become_draws_of_what_is_recalibrated() -> None:
    means = RNG.normal(size=(3, 4))
    sds = RNG.uniform(0.2, 1.0, (3, 4))
    before = Predictive(means, sds**2, W, SEVERAL)
    after = before._replace(recalibration=Recalibration(4.0, 0.8))
    draws = before.quantiles(Q).T  # [Q, N]
    expected = after.quantiles(Q).T
    # By scores: in a gap between components y hardly depends on the distribution.
    for found, right in zip(after.recalibrated(draws), expected, strict=True):
        scores = before.normal_scores(found), before.normal_scores(right)
        assert_allclose(*scores, rtol=1e-8, atol=1e-8)
    assert_array_equal(before.recalibrated(draws), draws)


def test_a_mixture_of_mixtures() -> None:
    def part(number: int, units: Units) -> Predictive:
        means = RNG.normal(size=(number, 4))
        sds = RNG.uniform(0.2, 1.0, (number, 4))
        return Predictive(means, sds**2, RNG.dirichlet(np.ones(number)), units)

    parts = [part(2, UNITS["warped"]), part(1, Units(2.0, 1.0))]
    w = np.array([0.3, 0.7])
    u = np.array([0.8, 0.2])
    mixed = Predictive.mixed(parts, w, u)
    y = RNG.normal(size=4)
    density = sum(share * np.exp(p.log_densities(y)) for share, p in zip(w, parts))
    assert_allclose(np.exp(mixed.log_densities(y)), density, rtol=1e-12)
    below = sum(share * ndtr(p.normal_scores(y)) for share, p in zip(w, parts))
    assert_allclose(ndtr(mixed.normal_scores(y)), below, rtol=1e-12)
    mean, variance = mixed.moments()
    moments = [p.moments() for p in parts]
    assert_allclose(mean, u[0] * moments[0][0] + u[1] * moments[1][0], rtol=1e-12)
    about = sum(share * (v + (m - mean) ** 2) for share, (m, v) in zip(w, moments))
    assert_allclose(variance, about, rtol=1e-12)
    recalibrated = Predictive.mixed(parts, w, recalibration=Recalibration(5.0, 0.9))
    inner = sum(share * (v + m**2) for share, (m, v) in zip(w, moments))
    centre = sum(share * m for share, (m, _) in zip(w, moments))
    assert_allclose(recalibrated.moments()[0], centre, rtol=1e-12)
    assert_allclose(
        recalibrated.moments()[1], 0.81 * 5.0 / 3.0 * (inner - centre**2), rtol=1e-12
    )
