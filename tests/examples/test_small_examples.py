"""The scripts of the examples on few rows: what they compute, print and draw
is true.
"""

import argparse
import gzip
import itertools
import sys
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pytest
import scipy.stats
from gpflow.covariances import Kuf, Kuu
from gpflow.kernels import SquaredExponential
from gpflow.likelihoods import Bernoulli, Likelihood, StudentT
from helpers import Array, assert_close, load_example, regression_problem

import gpflow_pep as pep
from examples.ivm import ivm
from gpflow_pep.training.starts import saspa

PROBLEM = regression_problem(num_data=14)
LABELS = (PROBLEM.Y > 0.4).astype(float)


@pytest.mark.slow
@pytest.mark.parametrize("jitter, expected", [(1e-8, -55.5708), (1e-6, -55.5719)])
def test_titsias_optimum_of_snelsons_data(
    data_directory: Path, jitter: float, expected: float
) -> None:
    snelson = load_example("snelson.py")
    data = snelson.load(data_directory)
    exact = snelson.exact(data)
    assert_close(exact.log_marginal_likelihood(), -55.5647, rtol=1e-6)
    gpflow.config.set_default_jitter(jitter)
    model, value = snelson.sparse(data, 0.0, snelson.initial_inputs(data[0]))
    np.testing.assert_allclose(value, expected, atol=5e-5)
    assert_close(model.likelihood.variance, exact.likelihood.variance, rtol=1e-3)


@pytest.mark.parametrize("alpha", [0.0, 0.5])
def test_the_bound_in_numpy_is_that_of_the_model(alpha: float) -> None:
    single_precision = load_example("benchmarks/single_precision.py")
    data = single_precision.generated(60)
    setting = (data, 10, 0.5, 0.01, alpha)
    value = single_precision.collapsed_bound(*setting, np.float64, np.float64)
    X = data.X.astype(float)
    Y = data.Y.astype(float)
    options = {"alpha": alpha, "noise_variance": 0.01}
    model = pep.PEPRegression(
        (X, Y), SquaredExponential(lengthscales=0.5), X[:10], **options
    )
    np.testing.assert_allclose(value, model.pep_log_marginal_likelihood(), rtol=1e-9)
    both = single_precision.collapsed_bound(*setting, np.float32, np.float32)
    assert 0.0 < abs(both - value) < 1e-3


# Figures of the papers: with a basis point at every row all is exact.


@pytest.mark.slow
def test_basis_points() -> None:
    example = load_example("basis_points.py")
    Ynew = np.array([0.0, 1.0, 1.0, 0.0, 1.0, 0.0])[:, None]
    problem = example.Problem((PROBLEM.X, LABELS), (PROBLEM.Xnew, Ynew))
    result = example.compare(
        problem, PROBLEM.kernel(), Bernoulli(), (len(PROBLEM.X),), 0
    )
    assert result.shape == (1 + len(example.METHODS), 1, 2)
    assert_close(result, np.broadcast_to(result[0], result.shape), 1e-4, scale=1.0)


@pytest.mark.slow
def test_titsias() -> None:
    example = load_example("titsias.py")
    problem = example.Problem(PROBLEM.data, (PROBLEM.Xnew, np.sin(PROBLEM.Xnew[:, :1])))
    optimize = example.lbfgs(5)
    exact = example.exact_regression(problem.train, optimize)
    values = example.fixed_hyperparameters(
        problem, exact, (len(PROBLEM.X),), 0, optimize
    )
    assert values.shape == (3 * (len(example.RULES) + 1) + 1, 1)
    # What Titsias observes of SPGP: trained, it leaves the exact posterior that it
    # started from.
    *others, spgp, subset = np.abs(values[:, 0])
    assert np.max([*others, subset]) < 1e-3 < spgp
    of_exact, *sparse = example.all_optimised(problem, exact, (4,), 0, optimize)
    assert len(sparse) == 3 and np.all(np.isfinite([of_exact, *sparse]))
    assert sparse[0][2] < of_exact[2]  # the bound


def test_split_and_rows() -> None:
    example = load_example("data_sets.py")
    (X, Y), (Xnew, _) = example.random_split(
        example.Dataset(PROBLEM.X, PROBLEM.Y), 0.3, 0
    )
    assert len(X) == 9 and len(Xnew) == 5
    for chosen, part in zip(example.rows_of((X, Y), X[[4, 1]]), (X, Y)):
        assert_close(part.mean(axis=0), np.zeros(part.shape[1]), 1e-12, scale=1.0)
        assert_close(part.std(axis=0), np.ones(part.shape[1]))
        np.testing.assert_array_equal(chosen, part[[4, 1]])
    with pytest.raises(
        SystemExit, match=r"Name the directory that holds it with --data"
    ):
        example.read(Path("nowhere"), "boston")


@pytest.mark.slow
def test_pic(
    capsys: pytest.CaptureFixture[str], monkeypatch: Any, tmp_path: Path
) -> None:
    monkeypatch.setattr(
        sys, "argv", ["pic.py", "--rows", "200", "--out", f"{tmp_path}/pic.png"]
    )
    load_example("pic.py").main()
    lines = capsys.readouterr().out.splitlines()
    table = {line[:20].strip(): float(line.split()[-2]) for line in lines[2:7]}
    assert table["PITC"] > 0.4 and table["FITC"] > 0.4
    for name in ("PIC", "FITC, 10 neighbours"):
        assert table["exact"] < table[name] < 0.1


def test_batches_are_in_the_order_of_time() -> None:
    forget = load_example("forget.py")
    batches, held_out = forget.batches_of(forget.generated(48))
    for earlier, later in itertools.pairwise(batches):
        assert earlier[0].max() < later[0].min()
    assert [len(batch[0]) for batch in batches] == [11] * 4
    assert sum(len(batch[0]) for batch in held_out) == 4


def _assumed_density_filtering(K: Array, labels: Array) -> tuple[Array, Array]:
    """Mean and covariance of f after each label once, for the probit link without
    errors.
    """
    mean = np.zeros(len(K))
    covariance = K.copy()
    for n, label in enumerate(labels):
        sign = 2.0 * label - 1.0
        variance = covariance[n, n]
        z = sign * mean[n] / np.sqrt(1.0 + variance)
        ratio = scipy.stats.norm.pdf(z) / scipy.stats.norm.cdf(z)
        column = covariance[:, n]
        mean = mean + column * sign * ratio / np.sqrt(1.0 + variance)
        covariance = covariance - np.outer(column, column) * ratio * (z + ratio) / (
            1.0 + variance
        )
    return mean, covariance


def test_a_filter_sees_each_row_once() -> None:
    """In two batches, with inducing inputs at the rows."""
    rng = np.random.default_rng(0)
    kernel = gpflow.kernels.Matern32(variance=2.0)
    X = np.linspace(-3.0, 3.0, 8)[:, None]
    Y = rng.integers(0, 2, [8, 1]).astype(float)
    parts = kernel, pep.likelihoods.NoisyLabelBernoulli(1e-12), X.copy()
    filtered = load_example("streaming.py").Filter(pep.PEP((X, Y), *parts, alpha=1.0))
    filtered.update((X[:5], Y[:5]))
    filtered.update((X[5:], Y[5:]))
    assert filtered.num_refused == 0
    mean, covariance = filtered.posterior().predict_f(X, full_cov=True)
    expected, expected_covariance = _assumed_density_filtering(
        kernel(X).numpy(), Y[:, 0]
    )
    assert_close(mean[:, 0], expected, rtol=1e-4)
    assert_close(covariance[0], expected_covariance, rtol=1e-4)


@pytest.fixture
def three_classes(tmp_path: Path) -> Path:
    """One beside the other, in a file."""
    x = np.random.default_rng(0).uniform(-3.0, 3.0, (150, 2))
    rows = np.hstack([x, np.digitize(x[:, :1], [-1.0, 1.0])])
    with gzip.open(tmp_path / "three.csv.gz", "wt") as file:
        np.savetxt(file, rows, delimiter=",", header="a,b,y", comments="", fmt="%.8g")
    return tmp_path


def test_problem_of_a_file(three_classes: Path) -> None:
    minibatch = load_example("minibatch.py")
    problem = minibatch.load("three", three_classes)
    assert (
        problem.num_classes == 3 and len(problem.X) == 120 and len(problem.X_test) == 30
    )
    np.testing.assert_allclose(problem.X.mean(axis=0), 0.0, atol=1e-12)
    with pytest.raises(SystemExit, match="does not exist"):
        minibatch.load("three", Path("nowhere"))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["three", "generated"])
def test_minibatches_by_all_methods(three_classes: Path, name: str) -> None:
    minibatch = load_example("minibatch.py")
    problem = minibatch.load(name, three_classes)
    options = {
        "inducing": 6,
        "alpha": 0.5,
        "batch_size": 20,
        "iterations": 15,
        "steps": 60,
    }
    options = argparse.Namespace(**options, rate=0.05)
    for train in minibatch.METHODS.values():
        found = minibatch.scores(train(problem, options), problem)
        assert found["error"] < 0.5 * (1.0 - 1.0 / problem.num_classes)
        assert found["nlpd"] < np.log(problem.num_classes)


def test_covariances_of_values_and_slopes_are_those_of_differences() -> None:
    kernel = SquaredExponential(1.3, lengthscales=0.7)
    Z = np.array([[-0.4], [0.1], [0.9]])
    X = np.linspace(-1.0, 1.0, 5)[:, None]
    h = 1e-3
    u = load_example("interdomain.py").ValuesAndSlopes(Z)
    points = np.concatenate([Z, Z + h, Z - h])
    eye = np.eye(3)
    zero = np.zeros([3, 3])
    D = np.block([[eye, zero, zero], [zero, eye / (2.0 * h), -eye / (2.0 * h)]])
    assert_close(Kuu(u, kernel), D @ kernel(points).numpy() @ D.T, rtol=1e-5)
    assert_close(Kuf(u, kernel, X), D @ kernel(points, X).numpy(), rtol=1e-5)


@pytest.mark.slow
def test_values_and_slopes_serve_in_models() -> None:
    interdomain = load_example("interdomain.py")
    data = interdomain.wave(30)
    kernel = SquaredExponential()
    u = interdomain.ValuesAndSlopes(np.linspace(0.0, 10.0, 4)[:, None])
    model = pep.models.PEPRegression(data, kernel, u, alpha=0.0)
    sgpr = gpflow.models.SGPR(data, kernel, u, likelihood=model.likelihood)
    log_z = model.pep_log_marginal_likelihood()
    assert_close(log_z, sgpr.maximum_log_likelihood_objective())
    of_sites = pep.models.PEP(data, kernel, model.likelihood, u, alpha=0.0)
    assert_close(of_sites.pep_log_marginal_likelihood(), log_z, rtol=1e-6)
    assert_close(of_sites.predict_f(data[0])[1], model.predict_f(data[0])[1], rtol=1e-6)
    with pytest.raises(ValueError, match="no covariance is registered"):
        pep.models.PEP(data, gpflow.kernels.Matern32(), model.likelihood, u)


@pytest.mark.slow
def test_blur_brings_the_circle_nearer() -> None:
    """QAM10, Figure 1, and at every alpha."""
    points, spherical, full = load_example("saspa.py").distances(0)
    assert np.all(full < spherical) and np.all(spherical < points)


@pytest.mark.parametrize("epsilon", [0.01, 0.1])
@pytest.mark.parametrize("name", ["gaussians", "ionosphere"])
@pytest.mark.near_copies("gaussians-0.01")
def test_the_papers_own_likelihood_converges(
    name: str, epsilon: float, request: Any
) -> None:
    if name == "gaussians":
        (X, Y), scale, M = load_example("saspa.py").gaussians(0, 100), 1.0, 10
    else:
        path = request.getfixturevalue("data_directory") / "ionosphere.csv.gz"
        X, Y = np.split(np.loadtxt(path, delimiter=",", skiprows=1), [-1], axis=1)
        scale = np.sqrt(X.shape[1])
        M = 40
    likelihood = pep.likelihoods.NoisyLabelBernoulli(epsilon, link="step")
    model = saspa((X, Y), SquaredExponential(lengthscales=scale), likelihood, M, seed=0)
    assert np.isfinite(model.pep_log_marginal_likelihood())
    assert model.last_inference.converged and not model.last_inference.fallback


def test_quality_of_classification() -> None:
    p = np.array([0.2, 0.6])
    full = np.array([0.5, 0.6])
    Y = np.array([1.0, 1.0])
    error, divergence = load_example("saspa.py").quality(p, full, Y)
    assert error == 0.5
    np.testing.assert_allclose(
        divergence, 0.5 * np.log(0.5 / 0.2) + 0.5 * np.log(0.5 / 0.8)
    )


def _log_evidence(
    likelihood: Likelihood, y: float, mean: float, variance: float
) -> float:
    f = mean + np.sqrt(variance) * np.linspace(-9.0, 9.0, 4001)[:, None]
    log_p = likelihood.log_prob(np.zeros_like(f), f, np.full_like(f, y)).numpy()
    density = np.exp(log_p - 0.5 * np.square(f[:, 0] - mean) / variance)
    return float(
        np.log(np.sum(density) * (f[1, 0] - f[0, 0]) / np.sqrt(2.0 * np.pi * variance))
    )


@pytest.mark.near_copies("labels")
@pytest.mark.parametrize(
    "likelihood, targets",
    [
        (Bernoulli(), LABELS),
        (StudentT(0.3, 4.0), PROBLEM.Y),
    ],
    ids=["labels", "heavy"],
)
def test_informative_vector_machine(likelihood: Likelihood, targets: Array) -> None:
    """Assumed-density filtering with explicit sites, and derivatives by finite
    differences.
    """
    kernel = PROBLEM.kernel() + gpflow.kernels.Linear(0.3)
    step = 1e-3
    inputs = PROBLEM.X[:8]
    targets = targets[:8]
    K = kernel(inputs).numpy()
    Z = ivm(
        (inputs, targets), 4, kernel=kernel, likelihood=likelihood, seed=0
    ).Z.numpy()
    nu = np.zeros(8)
    tau = np.zeros(8)
    chosen = list[int]()
    for row in Z:
        place = int(np.flatnonzero((inputs == row).all(axis=1))[0])
        covariance = K @ np.linalg.inv(np.eye(8) + tau[:, None] * K)
        mean = covariance @ nu
        variance = np.diagonal(covariance)
        falls = np.full(8, -np.inf)
        sites = {}
        for n in set(range(8)) - set(chosen):
            at = mean[n] + step * np.array([-1.0, 0.0, 1.0])
            low, middle, high = (
                _log_evidence(likelihood, targets[n, 0], m, variance[n]) for m in at
            )
            delta1 = (high - low) / (2.0 * step)
            delta2 = (high - 2.0 * middle + low) / step**2
            falls[n] = -0.5 * np.log1p(delta2 * variance[n])
            sites[n] = np.array([-delta2, delta1 - delta2 * mean[n]]) / (
                1.0 + delta2 * variance[n]
            )
        assert falls[place] >= falls.max() - 1e-4
        tau[place], nu[place] = sites[place]
        chosen.append(place)
