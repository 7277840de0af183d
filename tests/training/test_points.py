"""The number of inducing points chosen from data: what is tried, what stays, what is refused."""

import time
from types import SimpleNamespace

import gpflow
import numpy as np
import pytest
from gpflow.models import GPModel

from gpflow_pep.models import ARPEP, PEP, PEPRegression
from gpflow_pep.training import maximise
from gpflow_pep.training.fitting import points
from gpflow_pep.training.fitting.objectives import WholeLoss
from gpflow_pep.training.fitting.points import CHARGE, GAIN, PointsScore, add_points

RNG = np.random.default_rng(0)
X = RNG.uniform(0.0, 6.0, (30, 1))
F = np.sin(2.0 * X)


def regression(M: int = 2, **options) -> PEPRegression:
    data = X, F + 0.1 * RNG.standard_normal(X.shape)
    options = {"noise_variance": 0.01, **options}
    return PEPRegression(
        data, gpflow.kernels.SquaredExponential(lengthscales=0.8), X[:M], **options
    )


def classification() -> PEP:
    data = X, (F > 0.0).astype(float)
    kernel = gpflow.kernels.SquaredExponential(10.0, 0.5)
    # A tolerance that is given is that of losses too, which otherwise are exact to 30 * 30 * 1e-7.
    return PEP(data, kernel, gpflow.likelihoods.Bernoulli(), X[:2], tolerance=1e-6)


def no_training(model: GPModel) -> SimpleNamespace:
    return SimpleNamespace(objective=-float(model.training_loss()))


@pytest.mark.near_copies("regression")
@pytest.mark.parametrize("model", [regression, classification])
def test_points_are_doubled_as_long_as_that_pays(model) -> None:
    model = model()
    scores, record = add_points(model, no_training, seed=0)
    numbers = [score.num_inducing for score in scores]
    assert numbers == [min(2 * 2**k, 30) for k in range(len(numbers))] and len(numbers) > 2
    gains = np.diff([score.score for score in scores])
    assert (gains[:-1] > GAIN).all() and gains[-1] <= GAIN
    Z = model.inducing_variable.Z.numpy()
    assert len(Z) == numbers[-2] == len(np.unique(Z))
    np.testing.assert_array_equal(Z[: numbers[0]], X[: numbers[0]])
    density = np.mean(model.loo_log_density())
    np.testing.assert_allclose(scores[-2].log_density, density, rtol=1e-6)
    charge = CHARGE * len(Z) / len(X)
    np.testing.assert_allclose(scores[-2].score, density - charge, rtol=1e-5)
    np.testing.assert_allclose(record.objective, -model.training_loss(), rtol=1e-5)


def test_the_certificate_is_that_of_the_tighter_bound() -> None:
    model = regression(12)
    first = model.inducing_variable
    (score, *_), _ = add_points(model, no_training, seed=0)
    model.inducing_variable = first
    parts = model.data, model.kernel, model.inducing_variable
    bounds = PEPRegression(*parts, alpha=0.0, likelihood=model.likelihood, bound="tight")
    np.testing.assert_allclose(score.bound_gap, bounds.bound_gap() / 30.0, rtol=1e-10)
    exact = gpflow.models.GPR(model.data, model.kernel, likelihood=model.likelihood)
    lower, upper = bounds.elbo(), model.upper_bound()
    assert lower <= exact.log_marginal_likelihood() <= upper
    assert np.isnan(add_points(classification(), no_training, seed=0)[0][0].bound_gap)


def test_points_that_are_not_trained_cost_nothing() -> None:
    model = regression()
    gpflow.set_trainable(model.inducing_variable, False)
    scores, _ = add_points(model, no_training, seed=0)
    assert all(score.score == score.log_density for score in scores)
    assert not model.inducing_variable.Z.trainable


def test_rows_that_training_has_not_seen_are_not_charged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(points, "GAIN", -np.inf)  # up to as many as there are rows
    model, unseen = regression(), np.arange(0, 30, 3)
    scores, _ = add_points(model, no_training, seed=0, unseen=unseen)
    assert [score.num_inducing for score in scores] == [2, 4, 8, 16, 30]
    assert all(score.score == score.log_density for score in scores)
    density = np.mean(np.asarray(model.loo_log_density())[unseen])
    np.testing.assert_allclose(scores[-1].log_density, density, rtol=1e-6)


def test_work_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to more where rows that training has not seen decide."""
    monkeypatch.setattr(points, "_CHEAP", 2)
    monkeypatch.setattr(points, "MOST_WORK", 30.0 * 4**2)
    monkeypatch.setattr(points, "MOST_WORK_UNSEEN", 30.0 * 8**2)
    for unseen, last in ((None, 4), (np.arange(30), 8)):
        scores, _ = add_points(regression(), no_training, seed=0, unseen=unseen)
        assert scores[-1].num_inducing == last


def test_the_end_is_all_rows_or_a_deadline() -> None:
    data = np.linspace(0.0, 9.0, 8)[:, None], np.sin(9.0 * np.arange(8.0))[:, None]
    kernel = gpflow.kernels.SquaredExponential(lengthscales=0.1)
    model = PEPRegression(data, kernel, data[0][:3] + 0.01, noise_variance=1e-3)
    gpflow.set_trainable(model.inducing_variable, False)
    scores, _ = add_points(model, no_training, seed=0)
    assert max(score.num_inducing for score in scores) <= 8
    scores, _ = add_points(regression(), no_training, seed=0, deadline=time.perf_counter())
    assert [score.num_inducing for score in scores] == [2]
    assert np.isnan(scores[0].bound_gap)  # it only describes, and would take an evaluation


def test_hyperparameters_start_anew_with_more_points() -> None:
    model, starts, ends = regression(), [], {}

    def train(model: GPModel) -> SimpleNamespace:
        starts.append(float(model.kernel.lengthscales.numpy()))
        model.kernel.lengthscales.assign(0.6 + 0.1 * len(starts))
        ends[model.inducing_variable.Z.shape[0]] = float(model.kernel.lengthscales.numpy())
        return no_training(model)

    scores, _ = add_points(model, train, seed=0)
    assert len(scores) > 2
    np.testing.assert_allclose(starts, 0.8, rtol=1e-12)
    np.testing.assert_allclose(
        float(model.kernel.lengthscales.numpy()),
        ends[model.inducing_variable.Z.shape[0]],
        rtol=1e-12,
    )


def test_training_that_fails_goes_back() -> None:
    model = regression()

    def train(model: GPModel) -> SimpleNamespace:
        if model.inducing_variable.Z.shape[0] > 4:
            model.kernel.lengthscales.assign(9.0)
            raise ValueError("no")
        return no_training(model)

    scores, _ = add_points(model, train, seed=0)
    assert [score.num_inducing for score in scores] == [2, 4, 8]
    assert np.isnan(scores[-1].score)
    assert model.inducing_variable.Z.shape[0] == 4
    np.testing.assert_allclose(model.kernel.lengthscales, 0.8)
    with pytest.raises(ValueError, match="no"):
        add_points(regression(8), train, seed=0)


def test_maximise_chooses_the_number() -> None:
    model = regression(4)
    record = maximise(
        model, num_inducing="auto", tolerance=1e-3, window=3, max_iterations=10, progress=False
    )
    assert all(isinstance(score, PointsScore) for score in record.points)
    best = max(record.points[:2], key=lambda score: score.score)
    assert model.inducing_variable.Z.shape[0] >= best.num_inducing > 4
    np.testing.assert_allclose(record.objective, -model.training_loss(), rtol=1e-8)
    assert record.seconds < sum(score.seconds for score in record.points)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (lambda: regression(blocks=np.arange(30) // 5), "'auto' with blocks"),
        (
            lambda: gpflow.models.SGPR((X, F), gpflow.kernels.RBF(), X[:3]),
            "'auto' with SGPR, expected PEPRegression",
        ),
        (
            lambda: PEPRegression(
                (X, F),
                gpflow.kernels.RBF(),
                gpflow.inducing_variables.Multiscale(X[:3], X[:3] ** 0),
            ),
            "'auto' with Multiscale",
        ),
        (
            lambda: ARPEP(gpflow.kernels.RBF(), gpflow.likelihoods.Gaussian(), X[:3], num_data=30),
            "'auto' with ARPEP",
        ),
        (lambda: WholeLoss(regression()), "'auto' for WholeLoss"),
    ],
)
def test_refused(model, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        maximise(model(), num_inducing="auto", progress=False)
    with pytest.raises(ValueError, match="num_inducing: got 50"):
        maximise(regression(), num_inducing=50)  # type: ignore[arg-type]
