"""Training of a model whose conditionals know neighbours, which are found anew on the way."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf

import gpflow_pep as pep
from gpflow_pep.covariances import nearest
from gpflow_pep.training import Step, full_batch, maximise

N = 40
RNG = np.random.default_rng(7)
X = RNG.uniform(-2.0, 2.0, (N, 2))
Y = np.sin(5.0 * X[:, :1]) + 0.1 * RNG.standard_normal([N, 1])


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> "pep.models.PEPRegression":
    """The first input matters, the second does not: what is near changes in training."""
    monkeypatch.setattr(nearest, "GROUP_SIZE", 1)
    kernel = gpflow.kernels.SquaredExponential(lengthscales=[2.0, 0.5])
    return pep.models.PEPRegression((X, Y), kernel, X[:4].copy(), neighbours=3, alpha=1.0)


def test_neighbours_are_refreshed(model: "pep.models.PEPRegression") -> None:
    started_with = model.neighbour_plan.rows.numpy()
    steps: list[Step] = []
    record = maximise(model, progress=False, callback=steps.append, max_iterations=60)
    assert not np.array_equal(model.neighbour_plan.rows.numpy(), started_with)
    assert record.objective == pytest.approx(-float(model.training_loss()), rel=1e-10)
    assert record.objective == pytest.approx(-np.min(record.losses), rel=1e-10)
    assert [step.iteration for step in steps] == list(range(1, record.iterations + 1))
    rounds = len(record.losses) - record.iterations
    assert rounds == 1 + sum(end < 60 for end in full_batch.REFRESHES) == 3
    assert record.iterations <= 60


@pytest.mark.slow
def test_the_best_has_its_own_neighbours(model: "pep.models.PEPRegression") -> None:
    """Parameters that are seen to be worse are given up with the neighbours found for them."""
    model.alpha.assign(0.0)  # a bound, which is lower without neighbours
    rows, places = model.neighbour_plan.rows, model.neighbour_plan.neighbours
    first = rows.numpy(), places.numpy()
    before = -float(model.training_loss())

    def none_are_near() -> None:
        places.assign(tf.fill(places.shape, -1))

    gpflow.set_trainable(model, False)
    gpflow.set_trainable(model.likelihood, True)
    model.refresh_neighbours = none_are_near  # type: ignore[method-assign]
    record = maximise(model, progress=False)
    assert record.objective >= before
    assert record.objective == pytest.approx(-float(model.training_loss()), rel=1e-10)
    assert np.array_equal(rows.numpy(), first[0]) and np.array_equal(places.numpy(), first[1])


def test_no_refresh_where_the_time_is_over(model: "pep.models.PEPRegression") -> None:
    first = model.neighbour_plan.rows.numpy()
    record = maximise(model, progress=False, seconds=1e-9)
    assert len(record.losses) == record.iterations + 1
    assert np.array_equal(model.neighbour_plan.rows.numpy(), first)
