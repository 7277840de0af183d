"""2 Numerics: finite values, gradients and predictions, or a message, far from where
data live.
"""

import itertools
import warnings
from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from campaign import Size, Trial
from cases import pep as pep_cases
from gpflow.kernels import SquaredExponential
from gpflow.likelihoods import Bernoulli, Gaussian
from helpers import load_example

import gpflow_pep as pep

VARIANCES = (1e-4, 1e-2, 1.0, 1e2, 1e4, 1e6)
LENGTHSCALES = (1e-3, 1e-1, 1.0, 10.0, 1e3)
ALPHAS = (0.0, 0.5, 1.0)
N = 30


RANDOM = np.random.default_rng(0)
X = RANDOM.uniform(-2.0, 2.0, (N, 2))
ROWS = X, np.sin(2.0 * X[:, :1]) + 0.2 * RANDOM.standard_normal((N, 1))


def inducing(X: Any) -> dict[str, Any]:
    """Near repeats, so that Kuu is nearly singular; spread; all rows."""
    near = X[:4] + 1e-6 * np.random.default_rng(1).standard_normal((len(X[:4]), 2))
    return {
        "near repeats": np.r_[X[:4], near],
        "spread": X[:6].copy(),
        "all rows": X.copy(),
    }


def left_out(trial: Trial, size: Size, name: str, quick: tuple[str, ...]) -> bool:
    """Whether the quick campaign goes without."""
    is_out = bool(size(quick=1, full=0)) and name not in quick
    if is_out:
        trial.skip(f"{name}, by the quick campaign")
    return is_out


def regression(rows: Any, Z: Any, **options: Any) -> Any:
    return pep.PEPRegression(
        rows, SquaredExponential(), Z, noise_variance=0.1, **options
    )


def point(rows: Any, Z: Any) -> Any:
    labels = (rows[1] > 0).astype(rows[1].dtype)
    return pep.PEP((rows[0], labels), SquaredExponential(), Bernoulli(), Z)


def tied(kind: Any) -> Callable[..., Any]:
    return lambda rows, Z: kind(
        SquaredExponential(), Gaussian(), Z, num_data=len(rows[0])
    )


MODELS: dict[str, Callable[..., Any]] = {
    "PEPRegression": regression,
    "PEPRegression, blocks": lambda rows, Z: regression(
        rows, Z, blocks=np.arange(len(rows[0])) // 4
    ),
    "PEP": point,
    **{kind.__name__: tied(kind) for kind in (pep.APEP, pep.ARPEP, pep.RPAPEP)},
}


def evaluation(model: Any, rows: Any) -> Callable[[], None]:
    """Compile loss, gradient and predictions; the call raises unless all are finite."""
    variables = model.trainable_variables
    tensors = tuple(map(tf.constant, rows))
    if isinstance(model, pep.models.PEP):
        tensors = model.data
    loss = gpflow.models.training_loss_closure(model, tensors, compile=False)

    @tf.function(autograph=False)
    def all_of_it() -> Any:
        with tf.GradientTape() as tape:
            value = loss()
        gradients = tape.gradient(value, variables, unconnected_gradients="zero")
        mean, variance = model.predict_f(tensors[0])
        return [value, *gradients, mean, variance], tf.reduce_min(variance)

    def call() -> None:
        numbers, least = all_of_it()
        assert all(np.isfinite(number).all() for number in numbers), (
            "NaN or infinity came out"
        )
        largest = max(1.0, float(np.asarray(model.kernel.variance)))
        assert least > -1e-6 * largest, f"a variance of {least}"

    return call


def refuses(call: Callable[[], None]) -> bool:
    """Whether an error that is a message of ours comes of a call."""
    try:
        call()
    except (ValueError, tf.errors.InvalidArgumentError) as error:
        if not any(
            words in str(error) for words in ("got NaN or infinity", "expected")
        ):
            raise
        return True
    return False


@pytest.mark.parametrize("name", MODELS)
def test_grid(trial: Trial, size: Size, name: str) -> None:
    """Kernel variances 1e-4 to 1e6, lengthscales 1e-3 to 1e3, singular Kuu"""
    refused = 0
    cells = list(itertools.product(ALPHAS, VARIANCES, LENGTHSCALES))
    for label, Z in list(inducing(X).items())[:: size(quick=3, full=1)]:
        model = MODELS[name](ROWS, Z)
        evaluate = evaluation(model, ROWS)
        for alpha, variance, lengthscale in cells[:: size(quick=4, full=1)]:
            model.alpha.assign(alpha)
            model.kernel.variance.assign(variance)
            model.kernel.lengthscales.assign(lengthscale)
            with trial.case(
                f"{name}, {label}, alpha {alpha}, {variance:g}, {lengthscale:g}"
            ):
                refused += refuses(evaluate)
    if refused:
        trial.note(f"{name}: {refused} of these by a message")


@pytest.mark.parametrize("name", pep_cases.CASES)
def test_likelihoods(trial: Trial, size: Size, name: str) -> None:
    """The inner loop of PEP for each likelihood, over the grid of stress.py: log Z is
    finite
    """
    if left_out(trial, size, name, ("probit", "Student-t", "RobustMax")):
        return
    stress = load_example("benchmarks/stress.py")
    stress.VARIANCES = VARIANCES
    stress.LENGTHSCALES = LENGTHSCALES
    if size(quick=1, full=0):
        stress.VARIANCES = VARIANCES[::2]
        stress.LENGTHSCALES = (1e-3, 1.0, 1e3)
    case = pep_cases.CASES[name]
    converged = []
    problem = stress.Problem(case.problem.X, case.Y, case.likelihood())
    for label, Z in list(inducing(problem.X).items())[: size(quick=1, full=2, long=3)]:
        # No search for a fixed point where a cell has not converged.
        for key, cell in stress.cells(problem, Z, lambda *_: "").items():
            with trial.case(f"{name}, {label}, {key}"):
                assert cell.finite, "log Z is not finite"
            converged.append(bool(cell.converged))
    trial.note(f"{name}: the sites converged in {sum(converged)} of {len(converged)}")


Y = ROWS[1]
OUTLIER = (np.arange(N) == 3)[:, None]
SCALED: dict[str, tuple[Any, Any]] = {
    "inputs of scale 1e6": (1e6 * X, Y),
    "inputs of scale 1e-6": (1e-6 * X, Y),
    "inputs offset by 1e8": (X + 1e8, Y),
    "targets of scale 1e6": (X, 1e6 * Y),
    "targets of scale 1e-6": (X, 1e-6 * Y),
    "a target 1e4 standard deviations off": (X, Y + 1e4 * np.std(Y) * OUTLIER),
    "an input 1e4 standard deviations off": (X + 1e4 * OUTLIER, Y),
    "N = 1": (X[:1], Y[:1]),
    "constant targets": (X, 0.0 * Y + 1.0),
    "rows twice": (np.r_[X, X], np.r_[Y, Y]),
}


def train(model: Any, rows: Any) -> None:
    if isinstance(model, gpflow.models.InternalDataTrainingLossMixin):
        record = pep.training.maximise(model, max_iterations=5, progress=False)
        assert np.isfinite(record.objective)
    else:
        batches = tf.data.Dataset.from_tensors(rows)
        optimizer = tf_keras.optimizers.Adam(0.01)
        options = {"num_steps": 5, "progress": False, "natural_gradient": True}
        record = pep.training.fit(model, batches, optimizer=optimizer, **options)
        assert np.isfinite(record.losses).all()
    assert all(np.isfinite(part).all() for part in model.predict_y(rows[0]))


def _trained(trial: Trial, name: str, rows: Any, Z: Any, label: str) -> bool:
    """A case; whether it was refused by a message."""
    with trial.case(f"{name}, {label}"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = MODELS[name](rows, Z)
        return refuses(lambda: train(model, rows))
    return False


@pytest.mark.parametrize("name", MODELS)
def test_scales(trial: Trial, size: Size, name: str) -> None:
    """Data of odd scales, outliers, N = 1, M = 1, single precision: five steps of
    training
    """
    if left_out(trial, size, name, ("PEPRegression", "PEP", "ARPEP")):
        return
    refused = _trained(trial, name, ROWS, X[:1].copy(), "M = 1")
    for label, rows in list(SCALED.items())[:: size(quick=3, full=1)]:
        refused += _trained(trial, name, rows, rows[0][:6].copy(), label)
    with gpflow.config.as_context(gpflow.config.Config(float=np.float32, jitter=1e-4)):
        single = tuple(part.astype(np.float32) for part in ROWS)
        refused += _trained(
            trial, name, single, single[0][:6].copy(), "single precision"
        )
    if refused:
        trial.note(f"{name}: {refused} of these by a message")
