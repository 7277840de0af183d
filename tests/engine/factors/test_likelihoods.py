"""The likelihoods that GPflow lacks."""

from typing import Any

import numpy as np
import pytest
from helpers import assert_close
from scipy.stats import norm

from gpflow_pep.likelihoods import NoisyLabelBernoulli

F = np.array([[-2.0], [-0.1], [0.4], [3.0]])
X = np.zeros_like(F)
V = np.array([[0.2], [1.0], [3.0], [0.5]])
EPSILON = 0.07


def _sigma(link: str, f: Any) -> Any:
    return norm.cdf(f) if link == "probit" else np.where(f >= 0.0, 1.0, 0.0)


@pytest.mark.parametrize("link", ["probit", "step"])
@pytest.mark.parametrize("label", [0.0, 1.0])
def test_noisy_label_density(link: str, label: float) -> None:
    likelihood = NoisyLabelBernoulli(EPSILON, link)
    sign = 2.0 * label - 1.0
    p = (1 - EPSILON) * _sigma(link, sign * F) + EPSILON * _sigma(link, -sign * F)
    assert_close(likelihood.log_prob(X, F, np.full_like(F, label)), np.log(p[:, 0]), rtol=1e-12)


@pytest.mark.parametrize("link", ["probit", "step"])
def test_noisy_label_predictions_equal_quadrature(link: str) -> None:
    likelihood = NoisyLabelBernoulli(EPSILON, link)
    z = np.linspace(-9.0, 9.0, 200_001)
    weights = norm.pdf(z) / norm.pdf(z).sum()
    f = F + np.sqrt(V) * z
    p = EPSILON + (1 - 2 * EPSILON) * _sigma(link, f)
    expected = (p @ weights)[:, None]
    mean, variance = likelihood.predict_mean_and_var(X, F, V)
    assert_close(mean, expected, rtol=5e-5)  # a step ends between two nodes
    assert_close(variance, mean.numpy() * (1 - mean.numpy()), rtol=1e-12)
    one = np.ones_like(F)
    assert_close(likelihood.predict_log_density(X, F, V, one), np.log(expected[:, 0]), rtol=5e-5)
    assert_close(likelihood.variational_expectations(X, F, V, one), np.log(p) @ weights, rtol=3e-4)
    assert_close(likelihood.conditional_mean(X, F), EPSILON + (1 - 2 * EPSILON) * _sigma(link, F))


def test_the_rate_can_be_trained_and_stays_in_its_range() -> None:
    likelihood = NoisyLabelBernoulli(EPSILON)
    assert not likelihood.epsilon.trainable
    likelihood.epsilon.unconstrained_variable.assign(30.0)
    assert 0.49 < float(likelihood.epsilon.numpy()) <= 0.5


@pytest.mark.parametrize("epsilon", [0.0, 0.5, -0.1, float("nan")])
def test_rates_outside_the_range_are_refused(epsilon: float) -> None:
    with pytest.raises(ValueError, match=r"epsilon: got .*expected a number in .0, 0.5.*a rate"):
        NoisyLabelBernoulli(epsilon)


def test_other_links_are_refused() -> None:
    with pytest.raises(ValueError, match="link: got 'logit', expected 'probit' or 'step'"):
        NoisyLabelBernoulli(0.1, "logit")
