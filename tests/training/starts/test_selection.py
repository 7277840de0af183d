"""Selection of inducing variables, SASPA in one call, entropies: against dense
references.
"""

from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.inducing_variables import InducingPoints
from gpflow.kernels import Matern32, SharedIndependent, SquaredExponential
from gpflow.likelihoods import Bernoulli, Gaussian, Poisson
from helpers import Array, assert_close, refusals, regression_problem
from scipy.stats import entropy, norm
from sklearn.cluster import KMeans, MiniBatchKMeans

import gpflow_pep as pep
from gpflow_pep.inducing_variables import BlurredInducingPoints
from gpflow_pep.training.starts import acquisition, greedy

starts = pep.training.starts
N = 24
NOISE = 0.09
PROBLEM = regression_problem(num_data=N)
X = PROBLEM.X
Y = PROBLEM.Y
BOUND: dict[str, Any] = {"kernel": PROBLEM.kernel(), "noise_variance": NOISE, "seed": 0}


def _kernel() -> gpflow.kernels.Kernel:
    """Not stationary, so that no two rows are equally good for the first."""
    return PROBLEM.kernel() + gpflow.kernels.Linear(0.3)


def _variance(X: Any, M: int, seed: int, kernel: Any = None, **options: Any) -> Any:
    return starts.greedy_variance(
        X, M, kernel=kernel or _kernel(), seed=seed, **options
    )


def _variational(X: Any, M: int, seed: int, **options: Any) -> Any:
    options = {"kernel": _kernel(), "noise_variance": NOISE, **options}
    return starts.greedy_variational((X, Y[: len(X)]), M, seed=seed, **options)


BY_ROWS: dict[str, Callable[..., Any]] = {
    "random_subset": lambda X, M, seed: starts.random_subset(X, M, seed=seed),
    "greedy_variance": _variance,
    "greedy_variational": _variational,
}
ALL = {
    **BY_ROWS,
    "kmeans": lambda X, M, seed: starts.kmeans(X, M, seed=seed),
    "blurred": lambda X, M, seed: starts.kmeans(X, M, seed=seed, covariances=True),
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


@pytest.mark.near_copies("greedy_variance", "kmeans", "blurred")
@every_rule
def test_from_one_to_all(select: Callable[..., Any]) -> None:
    """The same seed makes the same choice."""
    for M in (1, 5, N):
        inducing_variable = select(X, M, 0)
        again = select(X, M, 0)
        assert np.array_equal(_points(inducing_variable), _points(again))
        assert len(np.unique(_points(inducing_variable), axis=0)) == M
        options = {"inducing_variable": inducing_variable, "noise_variance": NOISE}
        model = pep.models.PEPRegression((X, Y), PROBLEM.kernel(), **options)
        assert np.isfinite(model.pep_log_marginal_likelihood())


@pytest.mark.near_copies("greedy_variance")
@every_rule_by_rows
def test_all_rows_once_and_fewer_come_first(select: Callable[..., Any]) -> None:
    assert sorted(_places(_points(select(X, N, 0)))) == list(range(N))
    assert np.array_equal(_points(select(X, 4, 1)), _points(select(X, 9, 1))[:4])


@every_rule
def test_duplicated_rows(select: Callable[..., Any]) -> None:
    repeated = np.concatenate([X[:3], X[:3], -0.0 * X[:1], X[:3], 0.0 * X[:1]])
    Z = _points(select(repeated, 4, 0))
    assert_close(
        np.sort(Z, axis=0), np.sort(np.concatenate([X[:3], 0.0 * X[:1]]), axis=0)
    )
    with pytest.raises(
        ValueError, match=r"M: got 5, .* at most 4, the number of distinct rows of X"
    ):
        select(repeated, 5, 0)


BAD_INPUT: dict[str, tuple[Any, Any, str]] = {
    "none": (X, 0, "M: got 0, expected an integer from 1 to 24"),
    "too many": (X, N + 1, "M: got 25, expected an integer from 1 to 24"),
    "no integer": (X, 2.0, "M: got 2.0, expected an integer"),
    "NaN": (np.where(X > 1.5, np.nan, X), 2, "X: got NaN or infinity"),
    "one axis": (X[:, 0], 2, r"X: got shape \(24,\), expected two axes"),
}


@every_rule
@pytest.mark.parametrize("name", BAD_INPUT)
def test_bad_input_is_refused(select: Callable[..., Any], name: str) -> None:
    inputs, M, message = BAD_INPUT[name]
    with pytest.raises(ValueError, match=message):
        select(inputs, M, 0)


def _without_variance() -> gpflow.kernels.Kernel:
    kernel = gpflow.kernels.Linear()
    kernel.variance.unconstrained_variable.assign(np.nan)
    return kernel


REFUSED = {
    "kernel: got str, expected a gpflow": lambda: _variance(X, 3, 0, "RBF"),
    "got a variance of NaN": lambda: _variance(X, 3, 0, _without_variance()),
    "a kernel of one output": lambda: _variance(
        X, 3, 0, SharedIndependent(_kernel(), 2)
    ),
    "tolerance: got -1.0": lambda: _variance(X, 3, 0, tolerance=-1.0),
    "covariances: got 'round'": lambda: starts.kmeans(
        X, 3, seed=0, covariances="round"
    ),
    "minibatches: got 'auto'": lambda: starts.kmeans(X, 3, seed=0, minibatches="auto"),
    "data: got ndarray, expected a pair": lambda: starts.greedy_variational(
        X, 3, **BOUND
    ),
    "got 24 and 23 rows": lambda: starts.greedy_variational((X, Y[1:]), 3, **BOUND),
    "num_candidates: got 30": lambda: _variational(X, 3, 0, num_candidates=30),
}
test_bad_options_are_refused = refusals(REFUSED)


def test_kmeans_is_that_of_scikit_learn() -> None:
    clusters = KMeans(5, n_init=1, random_state=3).fit(X)
    full = np.stack([np.cov(X[clusters.labels_ == m].T, bias=True) for m in range(5)])
    round = np.trace(full, axis1=1, axis2=2)[:, None, None] / 2 * np.eye(2)
    expected = {
        False: None,
        True: full,
        "diagonal": full * np.eye(2),
        "spherical": round,
    }
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


def _residual_variances(
    kernel: gpflow.kernels.Kernel, X: Array, Z: Array, added: float
) -> Array:
    """Densely, given Z observed with some noise."""
    Kzx = kernel(Z, X).numpy()
    Kzz = kernel(Z).numpy() + added * np.eye(len(Z))
    return np.diag(kernel(X).numpy() - Kzx.T @ np.linalg.solve(Kzz, Kzx)).copy()


def _assert_largest_first(Z: Array, X: Array, kernel: Any, added: float) -> None:
    for m, place in enumerate(_places(Z, X)):
        d = _residual_variances(kernel, X, Z[:m], added)
        d[_places(Z[:m], X)] = -np.inf
        assert d[place] >= d.max() - 1e-9


@pytest.mark.near_copies("11")
@pytest.mark.parametrize("pool", [2**22, 40, 11, 1])
def test_largest_residual_variance_first(
    pool: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(greedy, "POOL_ELEMENTS", pool)
    for kernel in (_kernel(), PROBLEM.kernel()):
        Z = _points(starts.greedy_variance(X, 10, kernel=kernel))
        _assert_largest_first(Z, X, kernel, gpflow.config.default_jitter())


def test_tolerance_chooses_the_number() -> None:
    kernel = PROBLEM.kernel()
    jitter = gpflow.config.default_jitter()
    Z = _points(starts.greedy_variance(X, N, kernel=kernel, tolerance=0.2))
    assert 1 < len(Z) < N
    assert _residual_variances(kernel, X, Z, jitter).max() <= 0.2
    assert _residual_variances(kernel, X, Z[:-1], jitter).max() > 0.2
    one = starts.greedy_variance(X, N, kernel=kernel, tolerance=10.0)
    assert len(_points(one)) == 1


def test_seed_chooses_among_equals() -> None:
    """Under a stationary kernel that is the first row."""
    firsts = {
        tuple(_points(_variance(X, 1, seed, PROBLEM.kernel()))[0]) for seed in range(4)
    }
    assert len(firsts) > 1


def _bound(kernel: gpflow.kernels.Kernel, Y: Array, Z: Array) -> float:
    """Titsias (2009), equation (9), densely."""
    Kxz = kernel(X, Z).numpy()
    Kzz = kernel(Z).numpy() + gpflow.config.default_jitter() * np.eye(len(Z))
    Q = Kxz @ np.linalg.solve(Kzz, Kxz.T)
    S = Q + NOISE * np.eye(N)
    split_outputs = (
        np.linalg.slogdet(2.0 * np.pi * S)[1] + np.trace(kernel(X).numpy() - Q) / NOISE
    )
    return -0.5 * float(Y.shape[1] * split_outputs + np.sum(Y * np.linalg.solve(S, Y)))


def test_highest_bound_first() -> None:
    kernel = _kernel()
    targets = regression_problem(num_data=N, num_outputs=2).Y
    options = {**BOUND, "kernel": kernel}
    Z = _points(starts.greedy_variational((X, targets), 4, **options))
    reached = -np.inf
    for m in range(len(Z)):
        bounds = [_bound(kernel, targets, np.concatenate([Z[:m], x[None]])) for x in X]
        last = reached
        reached = _bound(kernel, targets, Z[: m + 1])
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
    kinds = InducingPoints, BlurredInducingPoints
    assert (
        isinstance(inducing_variable, kinds) and inducing_variable.Z.dtype == np.float32
    )


# SASPA: which model and points it makes.

BINARY = (Y > 0.4).astype(float)
NOISY = Gaussian(NOISE)


def of_problem(**changes: Any) -> Any:
    good = {
        "data": PROBLEM.data,
        "kernel": PROBLEM.kernel(),
        "likelihood": NOISY,
        "M": 4,
    }
    return starts.saspa(**{**good, "seed": 3, **changes})


def log_z(model: Any) -> float:
    return float(model.pep_log_marginal_likelihood())


@pytest.mark.parametrize("covariances", ["full", "spherical", False])
def test_regression_is_in_closed_form(covariances: Any) -> None:
    model = of_problem(covariances=covariances)
    assert isinstance(model, pep.models.PEPRegression) and model.likelihood is NOISY
    points = starts.kmeans(PROBLEM.X, 4, seed=3, covariances=covariances)
    assert type(model.inducing_variable) is type(points)
    options = {"alpha": 1.0, "noise_variance": 0.09}
    expected = pep.models.PEPRegression(
        PROBLEM.data, PROBLEM.kernel(), points, **options
    )
    assert_close(log_z(model), log_z(expected))


STEP = pep.likelihoods.NoisyLabelBernoulli(0.05, link="step")


@pytest.mark.near_copies("likelihood1")
@pytest.mark.parametrize("likelihood", [Bernoulli(), STEP, Poisson()])
def test_other_likelihoods(likelihood: gpflow.likelihoods.Likelihood) -> None:
    options = {"likelihood": likelihood, "alpha": 0.5, "max_sweeps": 300}
    model = of_problem(data=(X, BINARY), **options)
    assert isinstance(model, pep.models.PEP) and model.max_sweeps == 300
    assert isinstance(model.inducing_variable, BlurredInducingPoints)
    assert model.alpha.numpy() == 0.5
    assert np.isfinite(log_z(model)) and model.last_inference.converged


def test_latent_functions_share_the_points() -> None:
    kernel = gpflow.kernels.SeparateIndependent(
        [SquaredExponential(), SquaredExponential(2.0)]
    )
    both = [(Y, kernel.kernels[0]), (BINARY, kernel.kernels[1])]
    each = [log_z(of_problem(data=(X, targets), kernel=part)) for targets, part in both]
    model = of_problem(data=(X, np.hstack([Y, BINARY])), kernel=kernel)
    assert_close(log_z(model), sum(each), rtol=1e-6)


REFUSED_BY_SASPA = {
    "expected a pair": lambda: of_problem(data=PROBLEM.X),
    "Matern32 with BlurredInducingPoints": lambda: of_problem(kernel=Matern32()),
    "M: got 25": lambda: of_problem(M=25),
    "covariances: got 'round'": lambda: of_problem(covariances="round"),
    "alpha: got 2": lambda: of_problem(alpha=2.0),
}
test_saspa_refuses = refusals(REFUSED_BY_SASPA)


def test_defaults_and_how_many_points_models_have() -> None:
    X = np.linspace(0.0, 1.0, 7)[:, None]
    kernel = SquaredExponential()
    model = pep.PEPRegression((X, X), kernel, X[:3].copy())
    assert model.num_inducing == 3 and model.alpha.numpy() == 0.5
    assert pep.ARPEP(kernel, NOISY, X[:4].copy(), num_data=7).num_inducing == 4


# Entropies of predictions, against SciPy and draws.

CLASSES = np.digitize(Y, np.quantile(Y, [0.3, 0.7])).astype(float)


def trained_on(kind: str) -> Any:
    if kind == "numbers":
        likelihood = Gaussian(
            scale=gpflow.functions.Linear(A=0.1 * np.ones([2, 1]), b=[0.5])
        )
        return pep.PEPRegression(
            (X, Y), PROBLEM.kernel(), PROBLEM.Z, likelihood=likelihood
        )
    likelihood = Bernoulli() if kind == "two" else gpflow.likelihoods.MultiClass(3)
    labels = 1.0 * (CLASSES > 0.5) if kind == "two" else CLASSES
    return pep.PEP((X, labels), PROBLEM.kernel(), likelihood, PROBLEM.Z)


def expected_entropy(trained: Any, kind: str) -> Array:
    mean, variance = (part.numpy() for part in trained.predict_f(PROBLEM.Xnew))
    if kind == "numbers":
        deviation = (0.1 * PROBLEM.Xnew.sum(axis=1) + 0.5)[:, None]
        return norm(scale=np.sqrt(variance + deviation**2)).entropy()[:, 0]
    draws = np.random.default_rng(0).standard_normal([200_000, 1, mean.shape[1]])
    f = mean + np.sqrt(variance) * draws  # [draws, rows, latent]
    if kind == "two":
        p = np.concatenate([norm.cdf(-f), norm.cdf(f)], axis=-1)
    else:
        p = np.where(np.arange(3) == f.argmax(axis=-1)[..., None], 1.0 - 1e-3, 0.5e-3)
    return entropy(p.mean(axis=0), axis=-1)


@pytest.mark.parametrize("kind", ["numbers", "two", "several"])
@pytest.mark.near_copies
def test_entropy(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acquisition, "_CHUNK", 2)
    trained = trained_on(kind)
    of_y = expected_entropy(trained, kind)
    tolerance = 1e-9 if kind == "numbers" else 5e-3  # of the draws
    Xnew = tf.constant(PROBLEM.Xnew)
    assert_close(starts.predictive_entropy(trained, Xnew), of_y, rtol=tolerance)
    if kind == "numbers":
        compiled = tf.function(lambda: starts.predictive_entropy(trained, Xnew))
        assert_close(compiled(), of_y, rtol=tolerance)


def test_likelihoods_without() -> None:
    parts = PROBLEM.kernel(), Poisson(), PROBLEM.Z
    other = pep.PEP((X, np.floor(np.abs(Y))), *parts, max_sweeps=1)
    with pytest.raises(
        ValueError, match="likelihood: got Poisson, expected a likelihood of classes"
    ):
        starts.predictive_entropy(other, PROBLEM.Xnew)
    with pytest.raises(ValueError, match="Pass inducing inputs in the space of X"):
        starts.predictive_entropy(trained_on("several"), PROBLEM.Xnew[:, :1])
