"""What is refused beyond a model's own arguments says what was got, expected, and what to do."""

import gpflow
import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from cases.refusals import N, X, Y, regression
from cases.refusals_beyond import ALL, BEYOND

from gpflow_pep.models import APEP, ARPEP, RPAPEP, PEPClassification


@pytest.mark.parametrize("room, name", ALL)
def test_refused(room: str, name: str) -> None:
    call, words = BEYOND[room][name]
    with pytest.raises(ValueError) as caught:
        call()
    for word in words:
        assert word in str(caught.value)


def test_tables_and_lists_are_data() -> None:
    expected = regression().predict_f(X)[0]
    for data in ((pd.DataFrame(X), pd.DataFrame(Y)), (X.tolist(), Y.tolist())):
        np.testing.assert_array_equal(regression(data=data).predict_f(data[0])[0], expected)


def test_predictions_stay_in_the_float_of_the_model() -> None:
    """Also where GPflow's default float is another by then."""
    with gpflow.config.as_context(gpflow.config.Config(float=np.float32)):
        rows = X.astype(np.float32)
        model = regression(data=(rows, Y.astype(np.float32)), inducing_variable=rows[::3])
    mean, _ = model.predict_f(rows)
    assert mean.dtype == np.float32 and mean.shape == (N, 1)


def test_predictions_are_never_nan(monkeypatch: pytest.MonkeyPatch) -> None:
    """Variances of f that rounding made negative were NaN probabilities."""
    model = PEPClassification((X, (Y > 0.0).astype(float)), gpflow.kernels.RBF(), None, X[::3])
    moments = -3.0 * np.ones((N, 1)), -3.3 * np.ones((N, 1))
    monkeypatch.setattr(model, "predict_f", lambda *_, **__: tuple(map(tf.constant, moments)))
    with pytest.raises(ValueError, match=r"prediction: got NaN.*Standardise"):
        model.predict_y(X)


@pytest.mark.parametrize("kind", [APEP, ARPEP, RPAPEP])
def test_predictions_of_f_are_never_nan(kind: type) -> None:
    """A variance of the kernel that ran off to infinity was a NaN without a word."""
    kernel = gpflow.kernels.RBF()
    model = kind(kernel, gpflow.likelihoods.Gaussian(), X[::3], num_data=N)
    kernel.variance.unconstrained_variable.assign(np.inf)
    with pytest.raises(ValueError, match=r"prediction: got NaN.*Standardise"):
        model.predict_f(X)
