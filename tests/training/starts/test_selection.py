"""Selection of inducing variables, against naive dense references."""

from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np
import pytest
from gpflow.inducing_variables import InducingPoints
from gpflow.kernels import SharedIndependent
from helpers import Array, assert_close, regression_problem
from sklearn.cluster import KMeans, MiniBatchKMeans

import gpflow_pep as pep
from gpflow_pep.training.starts import greedy

starts = pep.training.starts
N, NOISE = 24, 0.09
PROBLEM = regression_problem(num_data=N)
X, Y = PROBLEM.X, PROBLEM.Y
BOUND: dict[str, Any] = {"kernel": PROBLEM.kernel(), "noise_variance": NOISE, "seed": 0}


def _kernel() -> gpflow.kernels.Kernel:
    """Not stationary, so that no two rows are equally good for the first."""
    return PROBLEM.kernel() + gpflow.kernels.Linear(0.3)


def _variance(X: Any, M: int, seed: int, kernel: Any = None) -> Any:
    return starts.greedy_variance(X, M, kernel=kernel or _kernel(), seed=seed)


def _variational(X: Any, M: int, seed: int, **options: Any) -> Any:
    options = {"kernel": _kernel(), "noise_variance": NOISE, **options}
    return starts.greedy_variational((X, Y[: len(X)]), M, seed=seed, **options)


def _blurred(X: Any, M: int, seed: int) -> Any:
    return starts.kmeans(X, M, seed=seed, covariances=True)


BY_ROWS: dict[str, Callable[..., Any]] = {
    "random_subset": lambda X, M, seed: starts.random_subset(X, M, seed=seed),
    "greedy_variance": _variance,
    "greedy_variational": _variational,
}
ALL = {
    **BY_ROWS,
    "kmeans": lambda X, M, seed: starts.kmeans(X, M, seed=seed),
    "kmeans with covariances": _blurred,
}
every_rule = pytest.mark.parametrize("select", ALL.values(), ids=ALL)
every_rule_by_rows = pytest.mark.parametrize("select", BY_ROWS.values(), ids=BY_ROWS)


def _points(inducing_variable: Any) -> Array:
    return inducing_variable.Z.numpy()


def _places(Z: Array, X: Array = X) -> list[int]:
    """Which rows of X the points are."""
    equal = np.all(Z[:, None] == X, axis=2)
    assert np.all(equal.any(axis=1)), "a point is not a row"
    return [int(place) for place in np.argmax(equal, axis=1)]


#: What the room has that chooses no inducing variables, or more than these.
NO_RULES = {"predictive_entropy", "saspa", "coregionalization"}


def test_no_rule_is_forgotten() -> None:
    assert set(starts.__all__) - NO_RULES <= set(ALL)


@every_rule
def test_same_seed_same_choice(select: Callable[..., Any]) -> None:
    first, again = _points(select(X, 5, 0)), _points(select(X, 5, 0))
    assert np.array_equal(first, again) and first.shape == (5, 2)


@every_rule
@pytest.mark.parametrize("M", [1, N])
def test_from_one_to_all(select: Callable[..., Any], M: int) -> None:
    inducing_variable = select(X, M, 0)
    assert len(np.unique(_points(inducing_variable), axis=0)) == M
    options = {"inducing_variable": inducing_variable, "noise_variance": NOISE}
    model = pep.models.PEPRegression((X, Y), PROBLEM.kernel(), **options)
    assert np.isfinite(model.pep_log_marginal_likelihood())


@every_rule_by_rows
def test_all_rows_once_and_fewer_come_first(select: Callable[..., Any]) -> None:
    assert sorted(_places(_points(select(X, N, 0)))) == list(range(N))
    assert np.array_equal(_points(select(X, 4, 1)), _points(select(X, 9, 1))[:4])


@every_rule
def test_duplicated_rows(select: Callable[..., Any]) -> None:
    repeated = np.concatenate([X[:3], X[:3], -0.0 * X[:1], X[:3], 0.0 * X[:1]])
    Z = _points(select(repeated, 4, 0))
    assert_close(np.sort(Z, axis=0), np.sort(np.concatenate([X[:3], 0.0 * X[:1]]), axis=0))
    with pytest.raises(ValueError, match=r"M: got 5, .* at most 4, the number of rows of X that d"):
        select(repeated, 5, 0)


BAD_INPUT: dict[str, tuple[Any, Any, str]] = {
    "none": (X, 0, "M: got 0, expected an integer from 1 to 24"),
    "too many": (X, N + 1, "M: got 25, expected an integer from 1 to 24"),
    "no integer": (X, 2.0, "M: got 2.0, expected an integer"),
    "NaN": (np.where(X > 1.5, np.nan, X), 2, "X: got NaN or infinity"),
    "one axis": (X[:, 0], 2, r"X: got shape \(24,\), expected two axes"),
}


@every_rule
@pytest.mark.parametrize("inputs, M, message", BAD_INPUT.values(), ids=BAD_INPUT)
def test_bad_input_is_refused(
    select: Callable[..., Any], inputs: Any, M: Any, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        select(inputs, M, 0)


def _without_variance() -> gpflow.kernels.Kernel:
    kernel = gpflow.kernels.Linear()
    kernel.variance.unconstrained_variable.assign(np.nan)
    return kernel


BAD_OPTIONS: list[tuple[str, Any]] = [
    ("kernel: got str, expected a gpflow", lambda: _variance(X, 3, 0, "RBF")),
    ("got a variance of NaN", lambda: _variance(X, 3, 0, _without_variance())),
    ("a kernel of one output", lambda: _variance(X, 3, 0, SharedIndependent(_kernel(), 2))),
    (
        "tolerance: got -1.0",
        lambda: starts.greedy_variance(X, 3, kernel=_kernel(), tolerance=-1.0),
    ),
    ("covariances: got 'round'", lambda: starts.kmeans(X, 3, seed=0, covariances="round")),
    ("minibatches: got 'auto'", lambda: starts.kmeans(X, 3, seed=0, minibatches="auto")),
    ("data: got ndarray, expected a pair", lambda: starts.greedy_variational(X, 3, **BOUND)),
    ("got 24 and 23 rows", lambda: starts.greedy_variational((X, Y[1:]), 3, **BOUND)),
    ("num_candidates: got 30", lambda: _variational(X, 3, 0, num_candidates=30)),
]


@pytest.mark.parametrize("message, attempt", BAD_OPTIONS)
def test_bad_options_are_refused(message: str, attempt: Callable[[], Any]) -> None:
    with pytest.raises(ValueError, match=message):
        attempt()


def test_kmeans_is_that_of_scikit_learn() -> None:
    clusters = KMeans(5, n_init=1, random_state=3).fit(X)
    full = np.stack([np.cov(X[clusters.labels_ == m].T, bias=True) for m in range(5)])
    round = np.trace(full, axis1=1, axis2=2)[:, None, None] / 2 * np.eye(2)
    expected = {False: None, True: full, "diagonal": full * np.eye(2), "spherical": round}
    for covariances, of_clusters in expected.items():
        found = starts.kmeans(X, 5, seed=3, covariances=covariances)
        assert np.array_equal(_points(found), clusters.cluster_centers_)
        if of_clusters is not None:
            assert_close(found.covariance, of_clusters)


def test_kmeans_in_minibatches(monkeypatch: pytest.MonkeyPatch) -> None:
    clusters = MiniBatchKMeans(5, n_init=1, random_state=3).fit(X - X.mean(axis=0))
    centres = clusters.cluster_centers_ + X.mean(axis=0)
    blurred = starts.kmeans(X, 5, seed=3, covariances=True, minibatches=True)
    assert np.array_equal(_points(blurred), centres)
    deviation = X[clusters.labels_ == 0] - centres[0]
    assert_close(blurred.covariance[0], deviation.T @ deviation / len(deviation))
    for most, in_minibatches in ((5 * len(X) - 1, True), (5 * len(X), False)):
        monkeypatch.setattr(starts.rows, "MOST_DISTANCES", most)
        found = _points(starts.kmeans(X, 5, seed=3))
        assert np.array_equal(found, centres) == in_minibatches


def _residual_variances(kernel: gpflow.kernels.Kernel, X: Array, Z: Array, added: float) -> Array:
    """Densely, given Z observed with some noise."""
    Kzx = kernel(Z, X).numpy()
    Kzz = kernel(Z).numpy() + added * np.eye(len(Z))
    return np.diag(kernel(X).numpy() - Kzx.T @ np.linalg.solve(Kzz, Kzx)).copy()


def _assert_largest_first(Z: Array, X: Array, kernel: Any, added: float) -> None:
    for m, place in enumerate(_places(Z, X)):
        d = _residual_variances(kernel, X, Z[:m], added)
        d[_places(Z[:m], X)] = -np.inf
        assert d[place] >= d.max() - 1e-9


@pytest.mark.parametrize("pool", [2**22, 40, 11, 1])
@pytest.mark.near_copies("4194304", "11")
def test_largest_residual_variance_first(pool: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(greedy, "POOL_ELEMENTS", pool)
    for kernel in (_kernel(), PROBLEM.kernel()):
        Z = _points(starts.greedy_variance(X, 10, kernel=kernel))
        _assert_largest_first(Z, X, kernel, gpflow.config.default_jitter())


def test_pools_make_no_difference(
    monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    many = np.concatenate([rng.normal(size=[400, 2])] * 2)
    whole = _points(_variance(many, 30, 0))
    for rows_in_pool in (20, 100):
        monkeypatch.setattr(greedy, "POOL_ELEMENTS", 30 * rows_in_pool)
        assert np.array_equal(_points(_variance(many, 30, 1)), whole)


def test_tolerance_chooses_the_number() -> None:
    kernel, jitter = PROBLEM.kernel(), gpflow.config.default_jitter()
    Z = _points(starts.greedy_variance(X, N, kernel=kernel, tolerance=0.2))
    assert 1 < len(Z) < N
    assert _residual_variances(kernel, X, Z, jitter).max() <= 0.2
    assert _residual_variances(kernel, X, Z[:-1], jitter).max() > 0.2
    one = starts.greedy_variance(X, N, kernel=kernel, tolerance=10.0)
    assert len(_points(one)) == 1


def test_seed_chooses_among_equals() -> None:
    """Under a stationary kernel that is the first row."""
    firsts = {tuple(_points(_variance(X, 1, seed, PROBLEM.kernel()))[0]) for seed in range(4)}
    assert len(firsts) > 1


def _bound(kernel: gpflow.kernels.Kernel, Y: Array, Z: Array) -> float:
    """Titsias (2009), equation (9), densely."""
    Kxz = kernel(X, Z).numpy()
    Kzz = kernel(Z).numpy() + gpflow.config.default_jitter() * np.eye(len(Z))
    Q = Kxz @ np.linalg.solve(Kzz, Kxz.T)
    S = Q + NOISE * np.eye(N)
    split_outputs = np.linalg.slogdet(2.0 * np.pi * S)[1] + np.trace(kernel(X).numpy() - Q) / NOISE
    return -0.5 * float(Y.shape[1] * split_outputs + np.sum(Y * np.linalg.solve(S, Y)))


def test_highest_bound_first() -> None:
    kernel, targets = _kernel(), regression_problem(num_data=N, num_outputs=2).Y
    options = {**BOUND, "kernel": kernel}
    Z = _points(starts.greedy_variational((X, targets), 4, **options))
    reached = -np.inf
    for m in range(len(Z)):
        bounds = [_bound(kernel, targets, np.concatenate([Z[:m], x[None]])) for x in X]
        last, reached = reached, _bound(kernel, targets, Z[: m + 1])
        assert reached >= max(last, max(bounds) - 1e-6)


def test_bound_never_falls_among_few_candidates() -> None:
    Z = _points(_variational(X, 8, 0, num_candidates=8))
    assert len(np.unique(Z, axis=0)) == 8
    bounds = [_bound(_kernel(), Y, Z[: m + 1]) for m in range(8)]
    assert np.all(np.diff(bounds) >= -1e-9)


@every_rule
def test_float32(select: Callable[..., Any]) -> None:
    gpflow.config.set_default_float(np.float32)
    gpflow.config.set_default_jitter(1e-4)
    inducing_variable = select(X, 6, 0)
    kinds = InducingPoints, pep.inducing_variables.BlurredInducingPoints
    assert isinstance(inducing_variable, kinds) and inducing_variable.Z.dtype == np.float32
