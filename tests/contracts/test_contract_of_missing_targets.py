"""What models of mixtures and of missing targets have beside
`test_models_contract.py`.
"""

from functools import partial
from typing import Any

import numpy as np
import pytest
import scipy.stats
import tensorflow as tf
from cases.models import OUTPUTS, XNEW, ModelCase, N, Z
from helpers import assert_all_close, assert_close, assert_gradients, gradients

import gpflow_pep as pep
from gpflow_pep.engine.factors.entries import has_gaussian_noise

#: For the fast tests the mixture in closed form.
pytestmark = pytest.mark.near_copies("mixed regression")
each = pytest.mark.parametrize(
    "case", [pytest.param(case, id=case.name) for case in OUTPUTS]
)
POWERS = np.linspace(0.0, 1.0, N)


@pytest.fixture
def create(case: ModelCase) -> Any:
    def with_options(data: Any = None, **options: Any) -> Any:
        return case.create(case.data(0) if data is None else data, Z, **options)

    return with_options


@each
@pytest.mark.slow
def test_powers_of_rows_chunks_and_graphs(create: Any) -> None:
    model = create(alpha=POWERS)
    in_chunks = create(alpha=POWERS, chunk_size=4)
    assert_close(in_chunks.training_loss(), model.training_loss(), rtol=1e-9)
    both = (
        gradients(one.training_loss, one.trainable_variables)
        for one in (in_chunks, model)
    )
    assert_all_close(*both, rtol=1e-7)
    model = create()
    assert_close(
        create(alpha=np.full(N, 0.7)).training_loss(), model.training_loss(), rtol=1e-9
    )
    assert_close(
        tf.function(model.loo_log_density)(), model.loo_log_density(), rtol=1e-9
    )


@each
def test_other_rows_and_powers(case: ModelCase, create: Any) -> None:
    X, Y = case.data(0)
    model = create()
    of_rows = create(alpha=POWERS)
    fewer = create((X[3:], Y[3:]))
    whole = float(model.training_loss())

    def check(actual: Any, expected: Any) -> None:
        assert_close(actual.training_loss(), expected.training_loss(), rtol=1e-9)

    if isinstance(model, pep.PEP):
        of_rows.training_loss()
        of_rows.update_data((X[3:], Y[3:]))
        check(of_rows, create((X[3:], Y[3:]), alpha=POWERS[3:]))
        of_rows.condition_on((X[:3], Y[:3]), alpha=0.2)
        powers = np.concatenate([POWERS[3:], np.full(3, 0.2)])
        rows = np.roll(np.arange(N), -3)
        check(of_rows, create((X[rows], Y[rows]), alpha=powers))
    model.data = X[3:], Y[3:]
    check(model, fewer)
    for bad, said in (
        ((X, Y[:3]), "got 15 and 3 rows"),
        ((X[:, :1], Y), "X: got 1 column"),
        ((X, Y[:, :1]), "got 1 column|got 2, expected 1"),
        ((X, Y * np.nan), "Y: got NaN alone"),
        ((X * np.nan, Y), "X: got NaN"),
    ):
        with pytest.raises(ValueError, match=said):
            model.data = bad
    check(model, fewer)
    model.data = X, Y
    assert_close(model.training_loss(), whole, rtol=1e-9)
    for alpha in (0.2, POWERS):
        model.alpha = alpha
        check(model, create(alpha=alpha))


@each
def test_density_of_a_mixture_of_models(case: ModelCase, create: Any) -> None:
    model, (X, Y) = create(), case.data(0)
    mixture = pep.training.Ensemble([model, model])
    density = model.predict_log_density((X, Y))
    assert_close(mixture.predict_log_density((X, Y)), density, rtol=1e-5)
    quantiles = partial(mixture.predict_quantiles, XNEW, [0.5, 0.975])
    if has_gaussian_noise(model.likelihood):
        mean, variance = mixture.predict_y(XNEW)
        normal = np.stack(
            [mean, mean + scipy.stats.norm.ppf(0.975) * np.sqrt(variance)], axis=2
        )
        assert_close(quantiles(), normal, rtol=1e-7)
    else:
        with pytest.raises(ValueError, match="PerOutput, expected Gaussian noise"):
            quantiles()


@each
@pytest.mark.slow
def test_powers_that_are_mixed_and_chosen(case: ModelCase, create: Any) -> None:
    model, (X, Y) = create(), case.data(0)
    alone = pep.training.ensemble_of_powers(model, [0.3], refit=False)
    model.alpha = 0.3
    density = model.predict_log_density((X, Y))
    for mixture in (alone, alone.posterior()):
        assert_all_close(mixture.predict_y(XNEW), model.predict_y(XNEW), rtol=1e-7)
        assert_close(mixture.predict_log_density((X, Y)), density, rtol=1e-5)
    mixed = pep.training.ensemble_of_powers(model, [0.0, 1.0], refit=False)
    densities = np.stack([one.predict_log_density((X, Y)) for one in mixed.models])
    expected = np.log(mixed.weights.numpy() @ np.exp(densities))
    assert_close(mixed.predict_log_density((X, Y)), expected, rtol=1e-5)
    assert mixed.predict_f_samples(XNEW, 3).shape == (3, 5, 2)

    new = case.data(1)
    each_power = [create(case.data(1), alpha=alpha) for alpha in (0.0, 1.0)]
    chosen = pep.training.select_alpha(create(new), [0.0, 1.0], refit=False)
    scores = [float(np.mean(one.loo_log_density())) for one in each_power]
    assert_close([score.log_density for score in chosen.scores], scores, rtol=1e-8)
    chosen = pep.training.select_alpha(
        create(), [0.0, 1.0], validation=new, refit=False
    )
    scores = [
        float(np.mean(create(alpha=a).predict_log_density(new))) for a in (0.0, 1.0)
    ]
    assert_close([score.log_density for score in chosen.scores], scores, rtol=1e-5)


@pytest.mark.parametrize(
    "case", [pytest.param(case, id=case.name) for case in OUTPUTS[1:]]
)
def test_derivatives_in_the_mixing(case: ModelCase, create: Any) -> None:
    """Of predictions, which are right, or refused where the sites would have to be
    followed.
    """
    model = create()
    total, variables = (
        lambda: tf.reduce_sum(model.predict_f(XNEW)[0]),
        model.kernel.W.variables,
    )
    if isinstance(model, pep.PEP):
        with pytest.raises(ValueError, match="derivative of q"):
            gradients(total, variables)
    else:
        assert_gradients(total, variables, rtol=1e-6)
