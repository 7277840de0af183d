"""The streaming example: its filter is one sequential pass, and its table tells the truth."""

from types import ModuleType

import gpflow
import numpy as np
import pytest
from helpers import assert_close, load_example

import gpflow_pep as pep
from gpflow_pep.engine.prior import project


@pytest.fixture(scope="module")
def streaming() -> ModuleType:
    return load_example("streaming.py")


@pytest.mark.slow
def test_batch_after_batch_is_one_sequential_pass(streaming: ModuleType) -> None:
    X, Y = streaming.generated(24)
    kernel = gpflow.kernels.SquaredExponential()
    mean = gpflow.functions.Constant(0.4)
    model = pep.models.PEPClassification(
        (X, Y), kernel, None, X[:5], alpha=0.5, mean_function=mean, max_sweeps=1
    )
    filtered = streaming.Filter(model)
    for part in (slice(0, 12), slice(12, 24)):
        filtered.update((X[part], Y[part]))
    model.update_sites(sequential=True)
    problem = model.site_problem()
    A = project(problem.W, model.inducing_variable, kernel, X).A.numpy()[0]
    nu, tau = (part.numpy() for part in model.read_sites())
    assert_close(filtered.sums.G[0], (A * tau[:, 0]) @ A.T)
    assert_close(filtered.sums.b[0], A @ nu)
    # Predictions are those of f, mean function included.
    v = np.linalg.solve(np.eye(5) + (A * tau[:, 0]) @ A.T, A @ nu)
    actual, _ = filtered.posterior().predict_f(X)
    assert_close(actual, A.T @ v + 0.4)


@pytest.mark.slow
def test_the_table(streaming: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    X, Y = streaming.generated(400)
    test = X[200:], Y[200:]
    model, filtered = streaming.stream((X[:200], Y[:200]), test, 50, 15, 1.0)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:-1]] == ["50", "100", "150", "200"]
    assert lines[-1].endswith(": 0")
    whole = pep.models.PEPClassification(
        (X[:200], Y[:200]), model.kernel, model.likelihood, model.inducing_variable, alpha=1.0
    )
    expected = streaming.scores(whole.predict_y(test[0])[0], test[1])
    np.testing.assert_allclose(streaming.scores(model.predict_y(test[0])[0], test[1]), expected)
    once = streaming.scores(filtered.posterior().predict_y(test[0])[0], test[1])
    np.testing.assert_allclose(once, expected, atol=0.05)
