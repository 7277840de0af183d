"""What is refused, with what was got, expected and to be done; and what is odd but
accepted.
"""

import inspect
import re
from typing import Any

import gpflow
import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from cases import refusals as cases
from cases.refusals import (
    LABELS,
    REFUSALS,
    D,
    N,
    X,
    Y,
    Z,
    point,
    regression,
    with_value,
)
from cases.tied import MODELS

from gpflow_pep.engine.checks import (
    as_code,
    check_choice,
    check_positive,
    check_real,
    check_seed,
)
from gpflow_pep.engine.refusals.numbers import as_probabilities
from gpflow_pep.models import PEP, PEPClassification, PEPRegression


def _check(message: str, words: str) -> None:
    name, *others = words.split(" | ")
    assert message.startswith(name)
    for word in others:
        assert re.search(rf"(?i)(?<!\w){re.escape(word)}(?!\w)", message), (
            f"no {word}: {message}"
        )


@pytest.mark.parametrize("entry, words, call", REFUSALS)
def test_refused(entry: str, words: str, call: Any) -> None:
    with pytest.raises(ValueError) as caught:
        call()
    _check(str(caught.value), words)


@pytest.mark.parametrize(
    "changes", [{"noise_variance": -0.1}, {"inducing_variable": with_value(X, np.nan)}]
)
def test_values_that_gpflows_parameters_refuse(changes: dict[str, Any]) -> None:
    with pytest.raises(
        (ValueError, tf.errors.InvalidArgumentError), match=r"(?i)nan|-0\.1"
    ):
        regression(**changes)


@pytest.mark.parametrize("start, value, words", cases.ALPHA_ASSIGNED)
def test_alpha_when_assigned(start: Any, value: Any, words: str) -> None:
    model = regression(alpha=start)
    with pytest.raises(ValueError) as caught:
        model.alpha.assign(value)
    _check(str(caught.value), words)
    np.testing.assert_array_equal(model.alpha.numpy(), start)
    for accepted in (
        (0.0, 1e-300, 0.25, 1.0, 1, np.float64(0.5)) if np.ndim(start) == 0 else ()
    ):
        model.alpha.assign(accepted)
        assert float(model.alpha.numpy()) == accepted


def test_a_likelihood_that_nobody_registered_is_named() -> None:
    methods = ("_log_prob", "_conditional_mean", "_conditional_variance")
    density = dict.fromkeys(methods, lambda self, X, F, *Y: -(F[..., 0] ** 2))
    kind = type("Unheard", (gpflow.likelihoods.MonteCarloLikelihood,), density)
    with pytest.raises(NotImplementedError, match=r"Unheard.*register"):
        point(
            likelihood=kind(input_dim=None, latent_dim=1, observation_dim=1)
        ).training_loss()


def test_hyperparameters_that_ran_off_are_an_error_that_says_what_to_try() -> None:
    model = point(max_sweeps=3)
    model.kernel.variance.unconstrained_variable.assign(np.nan)
    with (
        pytest.warns(UserWarning, match="log Z is not known to within a nat"),
        pytest.raises(ValueError, match=r"NaN or infinity(.|\n)*(priors|lower alpha)"),
    ):
        model.training_loss()


@pytest.mark.near_copies("ARPEP")
@pytest.mark.parametrize("model_class", MODELS.values(), ids=MODELS)
def test_nan_in_a_parameter_is_named(model_class: Any) -> None:
    model = cases.tied(model_class)()
    compiled = tf.function(model.pep_log_marginal_likelihood)
    # As an optimiser might.
    model.q_mu.unconstrained_variable.assign(model.q_mu * np.nan)
    for function in (
        lambda: model.pep_log_marginal_likelihood((X, LABELS)),
        model.posterior,
    ):
        with pytest.raises(ValueError, match="q: got NaN"):
            function()
    with pytest.raises(tf.errors.InvalidArgumentError, match="got NaN"):
        compiled((tf.constant(X), tf.constant(LABELS)))
    model.q_mu.assign(np.zeros([3, 1]))
    model.kernel.variance.unconstrained_variable.assign(np.nan)
    with pytest.raises(ValueError, match="log marginal likelihood: got NaN"):
        model.pep_log_marginal_likelihood((X, LABELS))
    for off in (np.nan, np.inf):
        model.kernel.variance.unconstrained_variable.assign(off)
        with pytest.raises(
            ValueError, match=r"posterior: got .*expected finite.*priors"
        ):
            model.posterior()
        with pytest.raises(
            ValueError, match=r"prediction: got NaN or infinity.*priors"
        ):
            model.predict_f(X)


MANY = np.random.default_rng(0).uniform(-1.0, 1.0, [N + 3, D])
#: Of PEPRegression and of PEP.
ACCEPTED: list[tuple[Any, dict[str, Any]]] = [
    *(
        (entry, {"inducing_variable": A})
        for entry in (regression, point)
        for A in (MANY, Z[:1])
    ),
    *((entry, {"alpha": [0.5] * N}) for entry in (regression, point)),
    (regression, {"data": (X[:1], Y[:1])}),
    (regression, {"data": (tf.constant(X), tf.constant(Y))}),
    (regression, {"blocks": [0, 0, 1, 1, 2, 2, 2]}),
    (regression, {"blocks": np.array([0, 0, 1, 1, 2, 2, 2], dtype=np.int32)}),
    (regression, {"alpha": 1}),
    (regression, {"chunk_size": np.int64(3)}),
    (point, {"data": (X[:1], LABELS[:1])}),
    (point, {"data": (X, np.ones([N, 1]))}),  # all labels equal
    (point, {"max_sweeps": np.int64(50)}),
    # The edges of the support.
    (
        point,
        cases.targets(0.0, gpflow.likelihoods.Beta(), 1.0),
    ),
    (point, {"data": (X, np.hstack([LABELS, 1.0 - LABELS]))}),
    # A row twice.
    (
        point,
        {"data": (np.vstack([X, X[:1]]), np.vstack([LABELS, [[1.0]]]))},
    ),
]


@pytest.mark.near_copies("regression-*", "point-changes[235]")
@pytest.mark.parametrize("entry, changes", ACCEPTED)
def test_accepted(entry: Any, changes: dict[str, Any]) -> None:
    model = entry(**changes)
    assert np.isfinite(model.training_loss())
    assert entry is regression or model.last_inference.converged
    mean, variance = model.predict_f(X)
    assert np.all(np.isfinite(mean)) and np.all(variance.numpy() > -1e-12)


def test_tables_and_lists_are_data_and_predictions_stay_in_the_float_of_the_model() -> (
    None
):
    expected = regression().predict_f(X)[0]
    for data in ((pd.DataFrame(X), pd.DataFrame(Y)), (X.tolist(), Y.tolist())):
        np.testing.assert_array_equal(
            regression(data=data).predict_f(data[0])[0], expected
        )
    with gpflow.config.as_context(gpflow.config.Config(float=np.float32)):
        rows = X.astype(np.float32)
        model = regression(
            data=(rows, Y.astype(np.float32)), inducing_variable=rows[::3]
        )
    mean, _ = model.predict_f(rows)
    assert mean.dtype == np.float32 and mean.shape == (N, 1)


def test_predictions_are_never_nan(monkeypatch: pytest.MonkeyPatch) -> None:
    """Variances of f that rounding made negative were NaN probabilities."""
    model = PEPClassification(
        (X, (Y > 0.0).astype(float)), gpflow.kernels.RBF(), None, X[::3]
    )
    moments = -3.0 * np.ones((N, 1)), -3.3 * np.ones((N, 1))
    monkeypatch.setattr(
        model, "predict_f", lambda *_, **__: tuple(map(tf.constant, moments))
    )
    with pytest.raises(ValueError, match=r"prediction: got NaN.*Standardise"):
        model.predict_y(X)


@pytest.mark.parametrize("model", [PEPRegression, PEP])
def test_constructors_show_arguments(model: type) -> None:
    arguments = inspect.signature(model).parameters
    assert {"data", "kernel", "inducing_variable", "alpha"} <= set(arguments)


@pytest.mark.parametrize(
    "value, expected",
    [
        (np.float64(0.5), "0.5"),
        (np.int64(3), "3"),
        (np.bool_(True), "True"),
        (np.str_("a"), "'a'"),
        ([np.float32(0.5), "b"], "[0.5, 'b']"),
        ((np.float64(2.0),), "(2.0,)"),
        ({"nlpd": [np.float64(np.nan)]}, "{'nlpd': [nan]}"),
        (np.array([0.5, 1.0]), "array([0.5, 1. ])"),
        (None, "None"),
    ],
)
def test_numbers_of_numpy_are_written_as_those_of_python(
    value: object, expected: str
) -> None:
    """NumPy 2 writes np.float64(0.5)."""
    assert as_code(value) == expected


def test_messages_have_no_types_of_numpy() -> None:
    bad = np.float64(-2.5)
    for refuse in (
        lambda: check_positive("M", bad),
        lambda: check_real("level", bad, "(0, 1)", "Pass 0.9."),
        lambda: check_seed(bad),
        lambda: check_choice("way", bad, ("a", np.str_("b"))),
        lambda: as_probabilities([bad]),
    ):
        with pytest.raises(ValueError) as caught:
            refuse()
        assert "-2.5" in str(caught.value) and "np." not in str(caught.value)
