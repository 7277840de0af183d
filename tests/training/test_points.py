"""The number of inducing points chosen from data: what is tried, what stays, what is refused."""

import time
from typing import Any, NamedTuple

import gpflow
import numpy as np
import pytest
from gpflow.models import GPModel
from scipy.stats import norm

from gpflow_pep.models import ARPEP, PEP, PEPRegression
from gpflow_pep.models.base import q_once
from gpflow_pep.training import maximise
from gpflow_pep.training.fitting import points
from gpflow_pep.training.fitting.objectives import WholeLoss
from gpflow_pep.training.fitting.points import PointsScore, add_points, leave_rows_out

RNG = np.random.default_rng(0)
X = RNG.uniform(0.0, 6.0, (30, 1))
F = np.sin(2.0 * X)
XOUT = RNG.uniform(0.0, 6.0, (200, 1))
LEFT_OUT = XOUT, np.sin(2.0 * XOUT) + 0.1 * RNG.standard_normal(XOUT.shape)


def regression(M: int = 2, Z: Any = None, **options) -> PEPRegression:
    data = X, F + 0.1 * RNG.standard_normal(X.shape)
    kernel, Z = gpflow.kernels.SquaredExponential(lengthscales=0.8), X[:M] if Z is None else Z
    return PEPRegression(data, kernel, Z, **{"noise_variance": 0.01, **options})


def classification() -> PEP:
    data = X, (F > 0.0).astype(float)
    kernel = gpflow.kernels.SquaredExponential(10.0, 0.5)
    # A tolerance that is given is that of losses too, which otherwise are exact to 30 * 30 * 1e-7.
    return PEP(data, kernel, gpflow.likelihoods.Bernoulli(), X[:2], tolerance=1e-6)


class Record(NamedTuple):
    objective: float
    converged: bool = True
    message: str = ""


def no_training(model: GPModel, _: float = np.inf) -> Record:
    return Record(-float(model.training_loss()))


def numbers_of(scores: tuple[PointsScore, ...]) -> list[int]:
    return [score.num_inducing for score in scores]


def tried(model: GPModel, train: Any = no_training, **options: Any) -> list[int]:
    return numbers_of(add_points(model, train, LEFT_OUT, seed=0, **options)[0])


@pytest.mark.near_copies("regression")
@pytest.mark.parametrize("model", [regression, classification])
def test_points_are_doubled_as_long_as_rows_left_out_gain(model: Any) -> None:
    model = model()
    is_gaussian = isinstance(model, PEPRegression)
    X_out, y = XOUT, LEFT_OUT[1] if is_gaussian else (LEFT_OUT[1] > 0.0).astype(float)
    densities: list[Any] = []

    def train(model: GPModel, _: float) -> Record:
        mean, variance = (part.numpy() for part in model.predict_f(X_out))
        if is_gaussian:
            each = norm.logpdf(y, mean, np.sqrt(variance + 0.01))
        else:
            each = norm.logcdf((2.0 * y - 1.0) * mean / np.sqrt(1.0 + variance))
        densities.append(each[:, 0])
        return no_training(model)

    scores, record = add_points(model, train, (X_out, y), seed=0)
    numbers = numbers_of(scores)
    assert numbers == [min(2 * 2**k, 30) for k in range(len(numbers))] and len(numbers) > 2
    rtol = 1e-6 if is_gaussian else 3e-3  # GPflow's Bernoulli has probabilities in [.001, .999]
    means = [score.log_density for score in scores]
    np.testing.assert_allclose(means, np.mean(densities, axis=1), rtol=rtol)
    gains = np.diff(densities, axis=0)
    error = gains.std(axis=1, ddof=1) / np.sqrt(len(X_out))
    pays = gains.mean(axis=1) > np.maximum(error, points.GAIN)
    assert pays[:-1].all() and not pays[-1]
    Z = model.inducing_variable.Z.numpy()
    assert len(Z) == numbers[-2] == len(np.unique(Z))
    np.testing.assert_array_equal(Z[: numbers[0]], X[: numbers[0]])
    np.testing.assert_allclose(record.objective, -model.training_loss(), rtol=1e-5)


def test_q_is_computed_once_where_no_model_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    model, passes, natural = regression(), [], PEPRegression.natural_of_v
    counted = lambda model: passes.append(model) or natural(model)  # noqa: E731
    monkeypatch.setattr(PEPRegression, "natural_of_v", counted)
    with q_once():
        kept = model.predict_f(XOUT)[0], model.posterior().predict_f(XOUT)[0]
    assert passes == [model]
    np.testing.assert_allclose(kept, [model.predict_f(XOUT)[0]] * 2, rtol=1e-9)
    model.data = X[:20], -F[:20]
    assert not np.allclose(model.predict_f(XOUT)[0], kept[0]) and len(passes) == 3


def test_points_that_are_not_trained_stay_so() -> None:
    model = regression()
    gpflow.set_trainable(model.inducing_variable, False)
    assert len(tried(model)) > 2
    assert not model.inducing_variable.Z.trainable


def test_rows_are_left_out() -> None:
    """A fifth of them, by a model that shares the others and all parameters."""
    model = regression(mean_function=gpflow.functions.Constant(2.0))
    some, rows = leave_rows_out(model, seed=3)
    rest = np.setdiff1d(np.arange(30), rows)
    assert len(rows) == 6 and len(rest) == 24
    np.testing.assert_array_equal(np.sort(some.data[0], axis=0), np.sort(X[rest], axis=0))
    for part in ("kernel", "mean_function", "likelihood", "inducing_variable"):
        assert getattr(some, part) is getattr(model, part)


def test_the_number_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a number in closed form, otherwise by work, and by rows that differ; by the time."""
    monkeypatch.setattr(points, "gains", lambda *_, **__: True)
    assert tried(regression())[-1] == 30
    monkeypatch.setattr(points, "MOST_POINTS", 7)
    assert tried(regression()) == [2, 4, 7]
    ends = {"deadline": time.perf_counter() + 1e6}
    assert tried(regression(), **ends) == [2, 4, 8, 15]
    assert tried(regression(), **ends, after=1e12) == [2]  # what follows takes all the time
    monkeypatch.setattr(points, "CHEAP_POINTS", 2)
    monkeypatch.setattr(points, "MOST_WORK", 30.0 * 5.5**2)
    assert points._most_points(classification()) == 5


def test_the_end_is_a_deadline() -> None:
    late = time.perf_counter()
    (score,), record = add_points(regression(), no_training, LEFT_OUT, seed=0, deadline=late)
    assert score.num_inducing == 2 and np.isnan(score.log_density)
    assert not record.converged and record.message.startswith(points.OVER)


def test_copies_are_left_out_together() -> None:
    """Those of the same inputs and targets; not measurements at the same inputs, or settings."""
    rows, Y = np.array([[0.0], [1.0], [0.0], [2.0], [1.0]]), np.array([[3.0], [4.0], [3.0]])
    assert len(set(points.copies_of(rows, np.concatenate([Y, [[5.0], [6.0]]])))) == 4
    missing = np.array([[np.nan, 1.0]] * 2)
    assert len(set(points.copies_of(rows[[0, 2]], missing))) == 1
    assert len(set(points.copies_of(np.zeros([9, 1]), np.zeros([9, 1])))) == 9
    data, parts = (np.tile(X, (2, 1)), np.tile(F, (2, 1))), (gpflow.kernels.RBF(), X[:3])
    some, out = leave_rows_out(PEPRegression(data, *parts), 0)
    assert len(out) == 12 and not np.isin(data[0][out], some.data[0]).any()


def test_training_that_fails_goes_back() -> None:
    model = regression()

    def train(model: GPModel, _: float) -> Record:
        if model.inducing_variable.Z.shape[0] > 4:
            model.kernel.lengthscales.assign(9.0)
            raise ValueError("no")
        return no_training(model)

    scores, _ = add_points(model, train, LEFT_OUT, seed=0)
    assert numbers_of(scores) == [2, 4, 8] and np.isnan(scores[-1].log_density)
    assert model.inducing_variable.Z.shape[0] in (2, 4)
    np.testing.assert_allclose(model.kernel.lengthscales, 0.8)
    with pytest.raises(ValueError, match="no"):
        add_points(regression(8), train, LEFT_OUT, seed=0)


def test_maximise_chooses_the_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(points, "MOST_POINTS", 4)
    model = regression(2)
    record = maximise(model, num_inducing="auto", progress=False, max_iterations=5)
    assert numbers_of(record.points) == [2, 4] and len(model.data[0]) == 30
    assert model.inducing_variable.Z.shape[0] in (2, 4)
    np.testing.assert_allclose(record.objective, -model.training_loss(), rtol=1e-8)


def multiscale() -> PEPRegression:
    return regression(Z=gpflow.inducing_variables.Multiscale(X[:3], X[:3] ** 0))


def sgpr() -> gpflow.models.SGPR:
    return gpflow.models.SGPR((X, F), gpflow.kernels.RBF(), X[:3])


def arpep() -> ARPEP:
    return ARPEP(gpflow.kernels.RBF(), gpflow.likelihoods.Gaussian(), X[:3], num_data=30)


@pytest.mark.parametrize("model, number, words", [
    (lambda: regression(blocks=np.arange(30) // 5), "auto", "'auto' with blocks"),
    (sgpr, "auto", "'auto' with SGPR, expected PEPRegression"),
    (multiscale, "auto", "'auto' with Multiscale"), (arpep, "auto", "'auto' with ARPEP"),
    (lambda: WholeLoss(regression()), "auto", "'auto' for WholeLoss"),
    (regression, 50, "num_inducing: got 50"),
])  # fmt: skip
def test_refused(model: Any, number: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        maximise(model(), num_inducing=number, progress=False)
