"""Variances of models whose ``Kuu`` is nearly singular, against long double arithmetic:
by TensorFlow, cached or not, and by NumPy, whatever rows are beside a row.
"""

import itertools
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import gpflow
import numpy as np
import numpy.typing as npt
import pytest
from gpflow import kernels as k
from gpflow.config import Config, as_context
from numpy.testing import assert_allclose
from scipy.linalg import solve_triangular

import gpflow_pep as pep
from gpflow_pep.distributions import Units
from gpflow_pep.engine.numerics.linalg import JitterWarning
from gpflow_pep.estimators.single.numpy_parts import numpy_components
from gpflow_pep.scoring.components import predictive
from gpflow_pep.training import Ensemble, NearRows
from gpflow_pep.training.choosing.ensemble import ensemble_posterior

Array = npt.NDArray[Any]
RNG = np.random.default_rng(5)
X = np.sort(RNG.uniform(-2.0, 2.0, (30, 1)), axis=0)
XNEW = np.concatenate([X[::6], np.linspace(-2.1, 2.1, 12)[:, None]])
Y = np.sin(2.0 * X) + 0.3 * X
#: Rows that a point is next to; all of them: inference is exact.
POINTS = {"sparse": X[::2].copy(), "exact": X.copy()}


def _noise(variance: float) -> gpflow.likelihoods.Gaussian:
    return gpflow.likelihoods.Gaussian(variance, variance_lower_bound=0.5 * variance)


def _distance(A: Array, B: Array) -> Array:
    return np.abs(A[:, None, 0] - B[None, :, 0])


def _matern(order: int, t: Array) -> Array:
    return [1.0 + 0.0 * t, 1.0 + t, 1.0 + t + t * t / 3.0][order] * np.exp(-t)


#: GPflow's kernels, and the same of rows of any precision.
KERNELS: dict[str, tuple[Callable[[], k.Kernel], Callable[[Array], Array]]] = {
    "squared exponential": (
        lambda: k.SquaredExponential(lengthscales=0.8),
        lambda r: np.exp(-((r / 0.8) ** 2) / 2),
    ),
    "Matern12": (lambda: k.Matern12(lengthscales=2.0), lambda r: _matern(0, r / 2)),
    "Matern32": (
        lambda: k.Matern32(lengthscales=2.0),
        lambda r: _matern(1, np.sqrt(r.dtype.type(3)) * r / 2),
    ),
    "Matern52": (
        lambda: k.Matern52(lengthscales=4.0),
        lambda r: _matern(2, np.sqrt(r.dtype.type(5)) * r / 4),
    ),
    "sum": (
        lambda: k.Matern52(0.5, 4.0) + k.SquaredExponential(0.5, 2.0),
        lambda r: (
            0.5 * _matern(2, np.sqrt(r.dtype.type(5)) * r / 4)
            + 0.5 * np.exp(-((r / 2) ** 2) / 2)
        ),
    ),
    "Periodic": (
        lambda: k.Periodic(k.SquaredExponential(), period=4.0),
        lambda r: np.exp(-(np.sin(np.arctan(r.dtype.type(1)) * r) ** 2) / 2),
    ),
}


class Cell(NamedTuple):
    kernel: str
    points: str
    jitter: float  #: The condition number of Kuu is about M over it.
    noise: float

    def model(self) -> Any:
        return pep.PEPRegression(
            (X, Y),
            KERNELS[self.kernel][0](),
            POINTS[self.points],
            likelihood=_noise(self.noise),
        )

    def covariance(self, A: Array, B: Array, kind: Any) -> Array:
        """Compute prior covariances of f with numbers of some kind."""
        covariance = KERNELS[self.kernel][1]
        return covariance(_distance(A.astype(kind), B.astype(kind)))

    def factors(self, kind: Any) -> tuple[Array, Array, Array]:
        """Compute what moments are made of.

        :return: L, the factor of Kuu; the factor R of B = I + A S^-1 A^T, where A is
            L^-1 Kuf and S the variances of y given u; and c, by which the mean is
            c^T R^-1 L^-1 k(Z, x).
        """
        Z = POINTS[self.points]
        eye = np.eye(len(Z), dtype=kind)
        L = _cholesky(self.covariance(Z, Z, kind) + kind(self.jitter) * eye)
        A = _solve(L, self.covariance(Z, X, kind))
        scale = kind(self.noise) + np.maximum(1 - np.sum(A * A, axis=0), 0) / 2
        R = _cholesky(eye + A / scale @ A.T)
        return L, R, _solve(R, A / scale @ Y.astype(kind))

    def moments(self, kind: Any) -> tuple[Array, Array]:
        """Compute mean and variance of y densely with numbers of some kind."""
        L, R, c = self.factors(kind)
        new = _solve(L, self.covariance(POINTS[self.points], XNEW, kind))
        rest = _solve(R, new)
        explained = np.sum(new * new, axis=0) - np.sum(rest * rest, axis=0)
        return rest.T @ c[:, 0], 1 - explained + kind(self.noise)

    def means_by_rounding(self) -> Array:
        """Compute how much the exact means change if each covariance k(Z, x) of double
        precision is off by one unit in its last place.

        The mean is the sum of k(z_i, x) a_i. No arithmetic makes it more certain than
        eps times the sum of their magnitudes, which cancel: where y is no function of
        the period (Periodic, noise 1e-8) they have a sum of 8e7.
        """
        L, R, c = self.factors(np.longdouble)
        a = _solve_transposed(L, _solve_transposed(R, c))
        new = self.covariance(POINTS[self.points], XNEW, np.longdouble)
        eps = np.finfo(np.float64).eps
        return np.asarray(eps * (np.abs(new).T @ np.abs(a))[:, 0], np.float64)


def _cholesky(K: Array) -> Array:
    if K.dtype == np.float64:
        return np.linalg.cholesky(K)
    L = np.zeros_like(K)
    for j in range(len(K)):
        L[j:, j] = K[j:, j] - L[j:, :j] @ L[j, :j]
        L[j:, j] /= np.sqrt(L[j, j])
    return L


def _solve(L: Array, B: Array) -> Array:
    if L.dtype == np.float64:
        return solve_triangular(L, B, lower=True)
    solution = np.zeros_like(B)
    for i in range(len(L)):
        solution[i] = (B[i] - L[i, :i] @ solution[:i]) / L[i, i]
    return solution


def _solve_transposed(L: Array, B: Array) -> Array:
    """Solve L^T X = B: in the reverse order of rows L^T is a lower triangle."""
    return _solve(L.T[::-1, ::-1], B[::-1])[::-1]


def _error(moments: Any, exact: tuple[Array, Array]) -> float:
    """Measure means and standard deviations by the standard deviations."""
    mean, variance = (np.ravel(np.asarray(part)) for part in moments)
    sd = np.sqrt(exact[1])
    with np.errstate(invalid="ignore"):
        errors = np.abs([(mean - exact[0]) / sd, np.sqrt(variance) / sd - 1])
    return float(np.max(np.where(np.isnan(errors), np.inf, errors)))


def _one_by_one(predict: Callable[[Array], Any]) -> list[Array]:
    parts = [predict(row[None]) for row in XNEW]
    return [np.concatenate([np.ravel(p[i]) for p in parts]) for i in range(2)]


def check_rows_alone(
    predict: Callable[[Array], Any], means_by_rounding: float | Array = 0.0
) -> None:
    """A row has what it has among others, to 1e-9 of the prior's deviation, 1; means
    only to the rounding of covariances where that is more.
    """
    mean, variance = (np.ravel(np.asarray(part)) for part in predict(XNEW))
    alone = _one_by_one(predict)
    assert np.all(np.abs(alone[0] - mean) <= np.maximum(1e-9, means_by_rounding))
    assert_allclose(np.sqrt(alone[1]), np.sqrt(variance), rtol=0.0, atol=1e-9)


def _by_numpy(prepared: Any) -> Callable[[Array], Any]:
    def predict(rows: Array) -> Any:
        found = predictive(prepared, np.ones(1), rows, Units())
        return found.means[0], found.variances[0]

    return predict


def check(cell: Cell) -> None:
    with as_context(Config(jitter=cell.jitter)), warnings.catch_warnings():
        warnings.simplefilter("error", JitterWarning)
        model = cell.model()
        posterior = ensemble_posterior(model)
        cached = _by_numpy(numpy_components(posterior))
        predictions = {
            "predict_y": model.predict_y,
            "posterior": posterior.predict_y,
            "NumPy": cached,
        }
        exact = cell.moments(np.longdouble)
        # What double can, by substitution; GPflow's distances round a few times more.
        possible = _error(cell.moments(np.float64), exact)
        rounding = cell.means_by_rounding()
        for name, predict in predictions.items():
            error = _error(predict(XNEW), exact)
            assert error <= max(1e-6, 20.0 * possible), f"{cell} {name}: {error:.1e}"
            check_rows_alone(predict, rounding)


HARD = [
    Cell("Matern52", "sparse", 1e-12, 1e-8),
    Cell("Matern52", "exact", 1e-12, 1e-8),
    Cell("squared exponential", "exact", 1e-12, 1e-6),
    # By the inverse of the factor of B its means were wrong by 7e-6 deviations.
    Cell("squared exponential", "exact", 1e-9, 1e-8),
    Cell("Periodic", "sparse", 1e-10, 1e-8),
]


@pytest.mark.near_copies("cell0", "cell4")
@pytest.mark.parametrize("cell", HARD)
def test_hard_cells(cell: Cell) -> None:
    """With an explicit matrix Q the deviations are wrong by factors there."""
    check(cell)


def _all_cells() -> Iterator[Cell]:
    jitters = (1e-6, 1e-9, 1e-12)
    noises = (1e-2, 1e-5, 1e-8)
    for cell in itertools.product(KERNELS, POINTS, jitters, noises):
        yield Cell(*cell)


@pytest.mark.slow
@pytest.mark.parametrize("cell", _all_cells())
def test_all_cells(cell: Cell) -> None:
    check(cell)


def test_joint_covariance() -> None:
    """The cached one is that of the model itself, which GPflow computes."""
    with as_context(Config(jitter=1e-12)):
        model = HARD[0].model()
        expected = model.predict_f(XNEW, full_cov=True)[1]
        found = model.posterior().predict_f(XNEW, full_cov=True)[1]
    assert_allclose(found, expected, rtol=0.0, atol=1e-13)


def test_near_rows() -> None:
    with as_context(Config(jitter=1e-12)):
        model = HARD[0].model()
        near = Ensemble([model], near=[NearRows(5)]).posterior()
        prepared = _by_numpy(numpy_components(near))
        expected = model.predict_f(XNEW, near=5)
        variance = expected[1].numpy()[:, 0] + HARD[0].noise
    exact = expected[0].numpy()[:, 0], variance
    assert _error(prepared(XNEW), exact) < 1e-6
    assert _error(near.predict_y(XNEW), exact) < 1e-6
    check_rows_alone(prepared)


def test_mixed_outputs() -> None:
    """One column that is mixed from one latent function is that function."""
    with as_context(Config(jitter=1e-12)):
        kernel = k.LinearCoregionalization([k.Matern52(lengthscales=4.0)], W=[[1.0]])
        points = gpflow.inducing_variables.SharedIndependentInducingVariables(
            gpflow.inducing_variables.InducingPoints(POINTS["sparse"])
        )
        model = pep.PEPRegression(
            (X, Y), kernel, points, likelihood=_noise(HARD[0].noise)
        )
        exact = HARD[0].moments(np.longdouble)
        f = model.posterior().predict_f(XNEW)
    possible = _error(HARD[0].moments(np.float64), exact)
    found = f[0], f[1] + HARD[0].noise
    assert _error(found, exact) < max(1e-6, 20.0 * possible)
