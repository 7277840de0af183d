"""The rate of wrong labels, estimated by rows that are left out."""

from typing import Any

import gpflow
import numpy as np
import pytest
from gpflow.base import AnyNDArray

import gpflow_pep as pep
from gpflow_pep.likelihoods import NoisyLabelBernoulli
from gpflow_pep.training import raise_error_rate
from gpflow_pep.training.choosing.wrong_labels import likeliest_error_rate
from tests.helpers import assert_close

RNG = np.random.default_rng(4)
X = RNG.uniform(-3.0, 3.0, (200, 2))


def _bands(inputs: AnyNDArray) -> AnyNDArray:
    return np.digitize(inputs[:, :1] + 0.5 * np.sin(inputs[:, 1:]), [-1.0, 1.0]).astype(float)


def _with_errors(labels: AnyNDArray) -> AnyNDArray:
    """Change a tenth of them to the next class."""
    return np.where(np.arange(len(labels))[:, None] % 10 == 0, (labels + 1.0) % 3.0, labels)


RIGHT = _bands(X)
WRONG = _with_errors(RIGHT)
XNEW = RNG.uniform(-3.0, 3.0, (400, 2))
YNEW = _with_errors(_bands(XNEW))


def _robust_max(rate: float) -> gpflow.likelihoods.MultiClass:
    return gpflow.likelihoods.MultiClass(3, gpflow.likelihoods.RobustMax(3, epsilon=rate))


def _model(labels: AnyNDArray) -> pep.PEPClassification:
    kernel = gpflow.kernels.SquaredExponential(lengthscales=[1.5, 1.5])
    return pep.PEPClassification((X, labels), kernel, None, X[:12].copy(), alpha=0.5)


def _train(model: Any) -> Any:
    options = {"tolerance": 1e-4, "window": 10, "max_iterations": 30, "progress": False}
    return pep.training.maximise(model, **options)


@pytest.fixture(scope="module")
def trained() -> pep.PEPClassification:
    model = _model(WRONG)
    _train(model)
    return model


@pytest.mark.parametrize(("likelihood", "num_latent"), [(_robust_max, 3), (NoisyLabelBernoulli, 1)])
@pytest.mark.parametrize("start", [0.001, 0.02])
def test_likeliest_rate(likelihood: Any, num_latent: int, start: float) -> None:
    """Among all rates, those of predictions from the same moments under the likelihood itself."""
    mean = 3.0 * RNG.standard_normal((300, num_latent))
    variance = RNG.uniform(0.1, 0.5, mean.shape)
    largest = np.argmax(mean, axis=1) if num_latent > 1 else mean[:, 0] > 0.0
    num_classes = max(num_latent, 2)
    labels = np.where(np.arange(300) % 10 == 0, (largest + 1) % num_classes, largest)

    def densities(rate: float) -> AnyNDArray:
        arguments = np.zeros((300, 2)), mean, variance, 1.0 * labels[:, None], 1.0
        return pep.likelihoods.log_power_expectation(likelihood(rate), *arguments).numpy()

    rate, gain = likeliest_error_rate(densities(start), start, num_classes)
    assert 0.05 < rate < 0.15
    assert_close(gain, np.sum(densities(rate) - densities(start)), rtol=1e-6)
    totals = [np.sum(densities(other)) for other in np.linspace(start, 0.4, 40)]
    assert np.sum(densities(rate)) >= np.max(totals) - 1e-6


KNOWN = np.log(np.append(np.full(30, 0.99), np.full(3, 0.0006)))
DENSITIES = {
    "sure": (np.log(np.full(40, 0.999)), -1e-3, 1e-3),
    "unsure": (np.log(np.tile([0.9, 0.6, 0.35], 20)), -1e-3, 0.1),
    "a few far too small": (KNOWN, 1.0, np.inf),
}


@pytest.mark.parametrize("name", DENSITIES)
def test_the_gain_of_another_rate(name: str) -> None:
    """Rows without a density change nothing."""
    densities, low, high = DENSITIES[name]
    found = likeliest_error_rate(densities, 0.001, 3)
    assert low <= found.gain < high
    assert likeliest_error_rate(np.append(densities, [np.nan, -np.inf]), 0.001, 3) == found


@pytest.mark.parametrize("rate", [0.0, 0.7, np.nan])
def test_rates_outside_their_range(rate: float) -> None:
    with pytest.raises(ValueError, match=r"error_rate: got .*expected"):
        likeliest_error_rate(np.log([0.5]), rate, 3)


def test_training_goes_on_with_the_rate_of_wrong_labels(trained: pep.PEPClassification) -> None:
    model = gpflow.utilities.deepcopy(trained)
    before = model.predict_log_density((XNEW, YNEW))
    record = raise_error_rate(model, _train)
    assert record.iterations > 0
    assert 0.07 < model.likelihood.invlink.epsilon.numpy() < 0.13
    after = model.predict_log_density((XNEW, YNEW))
    assert np.mean(after) > np.mean(before) + 0.05


def test_right_labels_train_nothing_and_a_rate_whose_training_fails_is_left(
    trained: pep.PEPClassification,
) -> None:
    def fail(_: Any) -> None:
        raise ValueError("no density")

    right = _model(RIGHT)
    _train(right)
    for model, train in ((right, lambda _: pytest.fail("trained")), (trained, fail)):
        assert raise_error_rate(model, train) is None
        assert_close(model.likelihood.invlink.epsilon, 1e-3)
    expected = "model: got one with the likelihood Bernoulli, expected one with MultiClass or Noisy"
    with pytest.raises(ValueError, match=expected):
        raise_error_rate(_model((RIGHT > 0.0).astype(float)), _train)
