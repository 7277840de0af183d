"""PEPClassification: the likelihood that it chooses, and the labels that it takes."""

from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.likelihoods import Bernoulli, MultiClass, Poisson, Softmax
from helpers import assert_close

import gpflow_pep as pep

RNG = np.random.default_rng(1)
X = RNG.standard_normal([12, 2])
BINARY = np.arange(12)[:, None] % 2
CLASSES = np.arange(12)[:, None] % 3


def _model(Y: Any, likelihood: Any = None) -> pep.models.PEPClassification:
    kernel = gpflow.kernels.SquaredExponential()
    return pep.models.PEPClassification((X, Y), kernel, likelihood, X[:3])


@pytest.mark.parametrize(
    "labels, chosen, num_latent",
    [
        *((BINARY.astype(dtype), Bernoulli, 1) for dtype in (int, bool, np.uint8, float)),
        *((convert(CLASSES), MultiClass, 3) for convert in (np.asarray, tf.constant)),
    ],
)
def test_likelihood_of_labels(labels: Any, chosen: type, num_latent: int) -> None:
    model = _model(labels)
    assert type(model.likelihood) is chosen and model.num_latent_gps == num_latent
    assert model.data[1].dtype == tf.float64


def test_it_is_pep() -> None:
    model = _model(BINARY)
    expected = pep.models.PEP((X, BINARY.astype(float)), model.kernel, Bernoulli(), X[:3])
    assert_close(model.pep_log_marginal_likelihood(), expected.pep_log_marginal_likelihood())


@pytest.mark.near_copies("counts")
@pytest.mark.parametrize("likelihood", [MultiClass(3), Poisson()], ids=["classes", "counts"])
def test_pep_takes_integers_as_svgp_does(likelihood: Any) -> None:
    kernel = gpflow.kernels.SquaredExponential()
    whole, real = (
        pep.PEP((X, CLASSES.astype(dtype)), kernel, likelihood, X[:3]) for dtype in (int, float)
    )
    assert_close(whole.training_loss(), real.training_loss())
    for model, dtype in ((whole, int), (real, float)):
        model.condition_on((X[:4] + 0.1, CLASSES[:4].astype(dtype)))
    assert_close(whole.training_loss(), real.training_loss())
    new = X[:4], CLASSES[:4]
    assert_close(whole.predict_log_density(new), real.predict_log_density(new))


@pytest.mark.parametrize(
    "likelihood",
    [Bernoulli(), pep.likelihoods.NoisyLabelBernoulli(0.05), MultiClass(2), Softmax(2)],
)
def test_a_likelihood_of_classes_is_kept(likelihood: Any) -> None:
    assert _model(BINARY, likelihood).likelihood is likelihood


def test_a_class_may_be_empty_where_the_likelihood_is_given() -> None:
    assert _model(2 * BINARY, MultiClass(3)).num_latent_gps == 3


@pytest.mark.parametrize("convert", [np.asarray, tf.constant, np.ndarray.tolist])
def test_integer_labels_of_other_rows(convert: Any) -> None:
    """They are converted as the constructor converts them; they were refused."""
    model = _model(BINARY)
    more = X[::-1] + 0.1, convert(BINARY)
    model.condition_on(more)
    assert model.num_data == 24
    model.update_data(more)
    assert model.num_data == 12
    model.data = (X, convert(1 - BINARY))
    np.testing.assert_array_equal(model.data[1], 1.0 - BINARY)
    with pytest.raises(ValueError, match=r"Y: got labels of type <U1, expected whole numbers"):
        model.data = (X, np.array([["a"]] * 12))
