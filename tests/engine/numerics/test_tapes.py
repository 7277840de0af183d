"""What tapes of eager mode keep of a loop whose results are constants."""

from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.eager import record

import gpflow_pep as pep
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


@pytest.mark.parametrize("watched", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_no_tape_records_the_inner_loop(
    name: str, watched: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the model's own tape nor that of a caller keeps q of any sweep."""
    kept, evaluate = [], sweep.sweep

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
