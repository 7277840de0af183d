"""What tapes of eager mode keep of a loop whose results are constants."""

from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.eager import record

import gpflow_pep as pep
from gpflow_pep.engine.factors import derivatives_in_moments_and_parameters, moments
from gpflow_pep.engine.numerics.tapes import own_tape, unrecorded, without_gradient
from gpflow_pep.engine.sites import sweep

RNG = np.random.default_rng(0)
X = RNG.uniform(-2.0, 2.0, (30, 1))
F = np.sin(2.0 * X)
Z = X[:5].copy()


def mixed() -> pep.PEP:
    kernels = [gpflow.kernels.SquaredExponential() for _ in range(2)]
    kernel = gpflow.kernels.LinearCoregionalization(kernels, W=np.eye(2))
    parts = [gpflow.likelihoods.Gaussian(0.1), gpflow.likelihoods.StudentT()]
    likelihood = pep.likelihoods.PerOutput(parts)
    return pep.PEP((X, np.hstack([F, -F])), kernel, likelihood, Z)


def of(likelihood: Any, Y: Any, **options: Any) -> pep.PEP:
    kernel = gpflow.kernels.SquaredExponential()
    return pep.PEP((X, Y), kernel, likelihood, Z, **options)


MODELS: dict[str, Callable[[], pep.PEP]] = {
    "labels": lambda: of(gpflow.likelihoods.Bernoulli(), (F > 0.0) * 1.0),
    "chunks": lambda: of(gpflow.likelihoods.StudentT(), F, chunk_size=11),
    "classes": lambda: of(
        gpflow.likelihoods.MultiClass(3), np.digitize(F, [-0.4, 0.4]) * 1.0
    ),
    "mixed": mixed,
}


@pytest.mark.near_copies("labels-*", "classes-True")
@pytest.mark.parametrize("watched", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_no_tape_records_the_inner_loop(
    name: str, watched: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the model's own tape nor that of a caller keeps q of any sweep."""
    kept = []
    evaluate = sweep.sweep

    def observed(problem: Any, *arguments: Any, **options: Any) -> Any:
        kept.append(record.should_record_backprop([problem.W]))
        return evaluate(problem, *arguments, **options)

    monkeypatch.setattr(sweep, "sweep", observed)
    model = MODELS[name]()
    expected = float(tf.function(model.training_loss)())
    kept.clear()
    model.sites.nu.assign(tf.zeros_like(model.sites.nu))
    model.sites.tau.assign(tf.zeros_like(model.sites.tau))
    if watched:
        with tf.GradientTape():
            value = float(model.training_loss())
    else:
        value = float(model.training_loss())
    assert kept and not any(kept)
    np.testing.assert_allclose(value, expected, rtol=1e-5)


def test_tapes_inside_of_what_is_not_recorded() -> None:
    x = tf.Variable(3.0, dtype=tf.float64)

    def slope() -> tf.Tensor:
        with own_tape([x]) as tape:
            y = tf.square(x)
        return tape.gradient(y, x)

    with tf.GradientTape() as outer:
        value = x * without_gradient(slope)
    assert float(value) == 18.0
    assert float(outer.gradient(value, x)) == 6.0
    with tf.GradientTape() as outer, unrecorded():
        value = tf.square(x)
    assert outer.gradient(value, x) is None


CUTS = np.array([-0.4, 0.4])
NOISES: dict[str, tuple[Any, Any]] = {
    "Student-t": (lambda: gpflow.likelihoods.StudentT(), F),
    "noise of rows": (
        lambda: gpflow.likelihoods.StudentT(gpflow.functions.Linear([[0.1]], [1.0])),
        F,
    ),
    "labels that are wrong": (
        lambda: gpflow.likelihoods.MultiClass(
            3, gpflow.likelihoods.RobustMax(3, epsilon=0.03)
        ),
        np.digitize(F, CUTS) * 1.0,
    ),
    "grades": (lambda: pep.likelihoods.Ordinal(CUTS), np.digitize(F, CUTS) * 1.0),
    "counts": (lambda: pep.likelihoods.NegativeBinomial(), np.round(4.0 + 3.0 * F)),
}


@pytest.mark.parametrize("name", NOISES)
def test_no_tape_watches_a_likelihood_that_the_loop_differentiates(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the loop the derivatives are the same, also of some rows at a time."""
    make, Y = NOISES[name]
    likelihood = make()
    width = 3 if isinstance(likelihood, gpflow.likelihoods.MultiClass) else 1
    mean = tf.constant(np.repeat(F, width, axis=1) * np.arange(1.0, width + 1.0))
    variables = list(likelihood.variables)
    parts = likelihood, X, mean, 0.3 + 0.0 * mean, Y, 0.5, variables
    expected = derivatives_in_moments_and_parameters(*parts)
    monkeypatch.setattr(moments, "ROWS_OF_A_TAPE", 11)
    with tf.GradientTape() as outer, unrecorded():
        found = derivatives_in_moments_and_parameters(*parts)
    assert variables and not outer.watched_variables()
    pairs = zip(*map(tf.nest.flatten, (found, expected)), strict=True)
    for one, other in pairs:
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)
