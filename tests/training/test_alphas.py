"""The power chosen from data: scores against models trained one by one, and refusals."""

from typing import Any

import gpflow
import numpy as np
import pytest
from helpers import assert_close, regression_problem
from scipy.stats import norm

import gpflow_pep as pep
from gpflow_pep.training import maximise, select_alpha

PROBLEM = regression_problem(num_data=30)
HELD = regression_problem(seed=1, num_data=12)
ALPHAS = (0.0, 1.0)


def regression(alpha: Any = 0.3, **options: Any) -> pep.PEPRegression:
    return pep.PEPRegression(PROBLEM.data, PROBLEM.kernel(), PROBLEM.Z, alpha=alpha, **options)


def tied(name: str) -> Any:
    noise = gpflow.likelihoods.Gaussian(0.1)
    return getattr(pep, name)(PROBLEM.kernel(), noise, PROBLEM.Z, num_data=30)


def few_steps(model: Any) -> None:
    maximise(model, max_iterations=5, progress=False)


@pytest.mark.slow
def test_it_is_the_best_of_models_trained_alone() -> None:
    model = regression()
    found = select_alpha(model, ALPHAS, refit=few_steps)
    densities = []
    for alpha in ALPHAS:
        alone = regression(alpha)
        few_steps(alone)
        densities.append(alone.loo_log_density().numpy())
    means = np.mean(densities, axis=1)
    best = int(np.argmax(means))
    assert found.alpha == ALPHAS[best] == float(model.alpha.numpy())
    assert found.rows == "leave-one-out"

    errors = lambda values: np.std(values, axis=1, ddof=1) / np.sqrt(30)  # noqa: E731
    behind = densities[best] - np.array(densities)
    expected = [ALPHAS, means, errors(densities), behind.mean(axis=1), errors(behind)]
    got = np.array([score[:5] for score in found.scores]).T
    np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-9)
    assert_close(np.mean(model.loo_log_density()), means[best], rtol=1e-9)


def test_the_order_does_not_matter() -> None:
    def grow(model: Any) -> None:
        model.kernel.variance.assign(2.0 * model.kernel.variance)

    one, other = (select_alpha(regression(), order, refit=grow) for order in ((0, 1), (1, 0)))
    assert one.alpha == other.alpha
    scores = [[score.log_density for score in found.scores] for found in (one, other)]
    assert_close(scores[0], scores[1][::-1], rtol=1e-12)


def test_held_out_rows_without_refit() -> None:
    model = tied("APEP")
    before = model.q_mu.numpy()
    found = select_alpha(model, (0.5, 1.0), validation=HELD.data, refit=False)
    mean, variance = (part.numpy() for part in model.predict_f(HELD.X))
    expected = norm(mean, np.sqrt(variance + 0.1)).logpdf(HELD.Y).mean()
    assert_close([score.log_density for score in found.scores], [expected] * 2, rtol=1e-10)
    assert found.alpha == 0.5, "the first of equal ones"
    assert found.rows == "held-out"
    np.testing.assert_array_equal(before, model.q_mu.numpy())


def test_a_power_that_fails_is_told_and_left_out() -> None:
    model = regression(alpha=0.0)

    def refit(model: Any) -> None:
        if model.alpha.numpy() == 0.5:
            raise ValueError("alpha: got 0.5")

    with pytest.warns(UserWarning, match="alpha = 0.5 has no score: alpha: got"):
        found = select_alpha(model, (0.0, 0.5), refit=refit)
    assert found.alpha == 0.0 == float(model.alpha.numpy())
    assert np.isnan(found.scores[1].log_density)
    with pytest.raises(ValueError, match=r"alphas: got 0\.5, expected one at which"):
        select_alpha(model, (0.5,), refit=refit)
    assert float(model.alpha.numpy()) == 0.0


def test_an_error_leaves_the_model_as_it_was() -> None:
    model = regression()

    def spoil(model: Any) -> None:
        model.kernel.variance.assign(50.0)
        raise KeyError("of the user's")

    with pytest.raises(KeyError):
        select_alpha(model, refit=spoil)
    assert_close(model.kernel.variance.numpy(), PROBLEM.variance)
    assert float(model.alpha.numpy()) == 0.3


def gpr() -> gpflow.models.GPR:
    return gpflow.models.GPR(PROBLEM.data, PROBLEM.kernel())


@pytest.mark.parametrize(
    "model, options, message",
    [
        (regression, {"alphas": ()}, r"alphas: got \(\), expected powers in \[0, 1\]"),
        (regression, {"alphas": (0.5, 2.0)}, "alphas: got"),
        (regression, {"refit": "yes"}, "refit: got 'yes', expected True, False or a function"),
        (regression, {"validation": (HELD.X[:1], HELD.Y[:1])}, "validation: got one row"),
        (regression, {"validation": (HELD.X[:, :1], HELD.Y)}, "inducing_variable: got 2"),
        (
            lambda: regression(np.full(30, 0.5)),
            {},
            "model: got powers of shape .30,., expected one",
        ),
        (gpr, {}, "model: got GPR, expected one of gpflow_pep.models. Other models"),
        (pep.estimators.PEPRegressor, {}, "model: got PEPRegressor, .* alpha='auto'"),
        (lambda: tied("ARPEP"), {}, "validation: got none with ARPEP"),
        (lambda: tied("ARPEP"), {"validation": HELD.data}, "refit: got True with ARPEP"),
    ],
)
def test_refused(model: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        select_alpha(model(), **options)
