"""Fits of one thread with the same settings compile once, and end as each does by itself."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import gpflow
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import cross_val_score

from gpflow_pep.engine.numerics import chunks
from gpflow_pep.estimators import PEPClassifier, PEPRegressor
from gpflow_pep.training.fitting import cheaper, objectives

RNG = np.random.default_rng(3)
X = RNG.uniform(-2.0, 2.0, (45, 2))
F = np.sin(2.0 * X[:, 0]) + 0.2 * RNG.standard_normal(len(X))
BINARY, SEVERAL = F > 0.0, np.digitize(F, [-0.4, 0.4])
SMALL: dict[str, Any] = {"num_inducing": 5, "alpha": 0.5, "max_iterations": 2, "random_state": 0}
pytestmark = pytest.mark.filterwarnings("ignore:Training ended")


@pytest.fixture(autouse=True)
def compiled(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """What was compiled since the test began, which begins with nothing."""
    monkeypatch.setattr(cheaper, "_of_thread", threading.local())
    made: list[Any] = []
    make = objectives.WholeLoss.__init__

    def tracked(loss: Any, model: Any, *arguments: Any, **options: Any) -> None:
        made.append(model)
        make(loss, model, *arguments, **options)

    monkeypatch.setattr(objectives.WholeLoss, "__init__", tracked)
    yield made


@pytest.mark.near_copies("estimator1*")
@pytest.mark.parametrize(
    "estimator, y", [(PEPRegressor(**SMALL), F), (PEPClassifier(**SMALL), BINARY)]
)
def test_cross_validation_compiles_once(estimator: Any, y: Any, compiled: list[Any]) -> None:
    cross_val_score(estimator, X, y, cv=4)
    assert len(compiled) == 1
    other = clone(estimator).set_params(alpha=1.0, random_state=1, standardize=False)
    cross_val_score(other, X, y, cv=3)
    assert len(compiled) == 1


@pytest.mark.slow
def test_the_same_end_as_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    estimator = PEPClassifier(**SMALL)
    estimator.fit(X[:30], BINARY[:30])
    second = clone(estimator).fit(X, BINARY)
    monkeypatch.setattr(cheaper, "_of_thread", threading.local())
    alone = clone(estimator).fit(X, BINARY)
    np.testing.assert_allclose(second.predict_proba(X), alone.predict_proba(X), rtol=1e-9)
    # The first one is as it was, whatever was trained after it.
    first = clone(estimator).fit(X[:30], BINARY[:30])
    np.testing.assert_allclose(first.predict_proba(X), estimator.predict_proba(X), rtol=1e-9)


KERNEL = gpflow.kernels.SquaredExponential(lengthscales=[1.0, 1.0])


@contextmanager
def another_jitter() -> Iterator[None]:
    config = gpflow.config.Config(jitter=1e-5)
    with gpflow.config.as_context(config):
        yield


@contextmanager
def nothing_else() -> Iterator[None]:
    yield


@pytest.mark.parametrize(
    "change, around",
    [
        ({"kernel": "matern32"}, nothing_else),
        ({"kernel": KERNEL}, nothing_else),
        ({"inducing": gpflow.inducing_variables.InducingPoints(X[:5])}, nothing_else),
        ({"num_inducing": 6}, nothing_else),
        ({}, another_jitter),
    ],
)
@pytest.mark.near_copies("change0*", "change4*")
def test_what_is_compiled_anew(
    change: dict[str, Any], around: Callable[[], Any], compiled: list[Any]
) -> None:
    PEPRegressor(**SMALL).fit(X, F)
    with around():
        PEPRegressor(**{**SMALL, **change}).fit(X, F)
    assert len(compiled) == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    "change, y",
    [
        ({"likelihood": gpflow.likelihoods.Bernoulli()}, BINARY),
        ({"likelihood": "softmax"}, SEVERAL),
        ({}, SEVERAL),
    ],
)
@pytest.mark.near_copies
def test_which_likelihoods_are_compiled_anew(
    change: dict[str, Any], y: Any, compiled: list[Any]
) -> None:
    PEPClassifier(**SMALL).fit(X, BINARY)
    PEPClassifier(**{**SMALL, **change}).fit(X, y)
    assert len(compiled) == 2


@pytest.mark.parametrize("most", [10, chunks.CHUNK_ELEMENTS])
@pytest.mark.near_copies
def test_several_powers_compile_once(
    most: int, compiled: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunks, "CHUNK_ELEMENTS", most)
    for _ in range(2):
        PEPRegressor(**{**SMALL, "alpha": "mix"}).fit(X, F)
    assert len(compiled) == (2 if most == 10 else 1)  # in chunks each fit compiles


@pytest.mark.slow
def test_as_many_classes_but_another_number(compiled: list[Any]) -> None:
    for number in (3, 4, 3):
        PEPClassifier(**SMALL, likelihood="softmax").fit(X, np.arange(len(X)) % number)
    assert len(compiled) == 2


def test_a_kind_of_ones_own(compiled: list[Any]) -> None:
    class Sharper(PEPRegressor):
        def _make_model(self, *arguments: Any, **options: Any) -> Any:
            model = super()._make_model(*arguments, **options)
            gpflow.set_trainable(model.kernel.variance, False)
            return model

    PEPRegressor(**SMALL).fit(X, F)
    own = Sharper(**SMALL).fit(X, F)
    assert len(compiled) == 2
    assert own.kernel_.variance.numpy() == 1.0


@pytest.mark.slow
def test_threads_have_their_own(compiled: list[Any]) -> None:
    found: dict[int, Any] = {}

    def fit(number: int) -> None:
        found[number] = PEPRegressor(**SMALL).fit(X[number:], F[number:]).predict(X)

    threads = [threading.Thread(target=fit, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(compiled) == 2
    for number in range(2):
        alone = PEPRegressor(**SMALL).fit(X[number:], F[number:]).predict(X)
        np.testing.assert_allclose(found[number], alone, rtol=1e-9)
    assert len(compiled) == 3
