"""
What is refused beyond a model's own arguments: by predictions, selection, training, estimators and
metrics; and parts of models that only fail when they meet the data.
"""

import functools
from typing import Any

import numpy as np
import tf_keras
from gpflow.functions import Constant, Linear
from gpflow.kernels import Matern32, SquaredExponential

import gpflow_pep as pep
from cases.refusals import (
    LABELS,
    N,
    X,
    Y,
    Z,
    batch_of_arpep,
    point,
    regression,
    tied,
    update_sites,
    with_value,
)

ROWS = np.random.default_rng(0).standard_normal((12, 2))
TARGETS = np.sin(ROWS[:, 0]) + ROWS[:, 1]
BAD = with_value(X, np.nan)
RAGGED = [[1.0], [1.0, 2.0]]


def _regressor(**options: Any) -> "pep.estimators.PEPRegressor":
    return pep.estimators.PEPRegressor(num_inducing=3, max_iterations=1, **options)


@functools.cache
def _fitted() -> "pep.estimators.PEPRegressor":
    return _regressor().fit(ROWS, TARGETS)


def _fit(**changes: Any) -> Any:
    options = {"num_steps": 1, "optimizer": tf_keras.optimizers.Adam(), "progress": False}
    batches = pep.training.shuffled_batches((X, LABELS), 3, seed=0)
    return pep.training.fit(tied(pep.models.ARPEP)(), batches, **{**options, **changes})


def _evaluated(result: Any) -> Any:
    return _fit(evaluate=lambda model: result, evaluate_every=1)


def _maximise(**changes: Any) -> Any:
    return pep.training.maximise(regression(), **{"progress": False, **changes})


def _shuffled(data: Any, seed: Any = 0) -> Any:
    return pep.training.shuffled_batches(data, 2, seed=seed)


def _variational(noise_variance: Any) -> Any:
    return pep.selection.greedy_variational(
        (X, Y), 2, kernel=SquaredExponential(), noise_variance=noise_variance, seed=0
    )


def _calibration(labels: Any, probability: Any, bins: Any = 10) -> Any:
    return pep.metrics.calibration(np.array(labels), np.array(probability), bins)


def _of(call: Any, **changes: Any) -> Any:
    return lambda: call(**changes)


#: By room and name: a call, and words that its message must have. All are ``ValueError``.
BEYOND: dict[str, dict[str, tuple[Any, list[str]]]] = {
    "parts of models": {
        "kernel of an input that is not there": (
            _of(regression, kernel=SquaredExponential(active_dims=[5])),
            ["kernel", "SquaredExponential", "2 column", "active_dims"],
        ),
        "too many lengthscales": (
            _of(point, kernel=SquaredExponential(lengthscales=[1.0, 1.0, 1.0])),
            ["kernel", "2 column", "Check"],
        ),
        "too many lengthscales of a tied model": (
            _of(tied(pep.models.ARPEP), kernel=SquaredExponential(lengthscales=[1.0, 1.0, 1.0])),
            ["kernel", "2 column", "Check"],
        ),
        "mean function that is text": (
            _of(regression, mean_function="zero"),
            ["mean_function", "str", "gpflow.functions"],
        ),
        "mean of other columns": (
            _of(regression, mean_function=Linear(np.ones((3, 1)))),
            ["mean_function", "Linear", "2 column"],
        ),
        "mean of two outputs for one": (
            _of(regression, mean_function=Constant(np.ones(2))),
            ["mean_function", "(1, 2)", "Use"],
        ),
        "X ragged": (_of(regression, data=(RAGGED, Y)), ["X", "list", "Convert"]),
        "X of objects": (_of(regression, data=(X.astype(object), Y)), ["X", "Convert"]),
        "X None": (_of(regression, data=(None, Y)), ["X", "NoneType", "Convert"]),
        "Z NaN": (_of(regression, inducing_variable=BAD), ["inducing_variable", "NaN"]),
        "Z infinite": (
            _of(tied(pep.models.ARPEP), inducing_variable=with_value(X, np.inf)),
            ["inducing_variable", "infinity"],
        ),
        "Z text": (_of(regression, inducing_variable=Z.astype(str)), ["inducing_variable", "Give"]),
        "Z complex": (_of(regression, inducing_variable=Z.astype(complex)), ["complex", "Give"]),
        "Z ragged": (_of(regression, inducing_variable=RAGGED), ["inducing_variable", "Give"]),
        "blurred Z NaN": (
            lambda: pep.inducing_variables.BlurredInducingPoints(Z * np.nan, np.ones(3)),
            ["Z", "NaN"],
        ),
        **{
            f"noise variance {value!r}"[:40]: (
                _of(regression, noise_variance=value),
                ["noise_variance", "above 1e-06", "Pass"],
            )
            for value in (-0.1, 0.0, np.nan, np.inf, "a", np.full(N, 0.1))
        },
        "batch of more rows than there are": (
            _of(batch_of_arpep, data=(X, LABELS), num_data=3),
            ["batch", "num_data is: 3", "Pass"],
        ),
        "damping that is text": (_of(update_sites, damping="a"), ["damping", "'a'", "(0, 1]"]),
    },
    "predictions": {
        f"{what} of {name}": (lambda f=f, bad=bad: f(bad), words)
        for name, f in {
            "PEPRegression": lambda bad: regression().predict_y(bad),
            "its posterior": lambda bad: regression().posterior().predict_f(bad),
            "PEP": lambda bad: point().predict_f(bad),
            "ARPEP": lambda bad: tied(pep.models.ARPEP)().predict_f(bad),
        }.items()
        for what, bad, words in (
            ("NaN", BAD, ["Xnew", "NaN", "row"]),
            ("5 columns", np.ones((3, 5)), ["Xnew", "(3, 5)", "2"]),
            ("integers", np.ones((3, 2), int), ["Xnew", "int64", "float64", "Cast"]),
        )
    }
    | {
        "text": (lambda: regression().predict_f(X.astype(str)), ["Xnew", "string", "Cast"]),
        "None": (lambda: regression().predict_f(None), ["Xnew", "NoneType", "Convert"]),
        "label 7 of two": (
            lambda: point().predict_log_density((X, LABELS + 7.0)),
            ["Y", "got 7", "0 or 1"],
        ),
        "target NaN": (
            lambda: regression().predict_log_density((X, Y * np.nan)),
            ["Y", "nan", "finite"],
        ),
        "-1 samples": (
            lambda: regression().predict_f_samples(X, -1),
            ["num_samples", "-1", "positive"],
        ),
    },
    "selection": {
        "text for X": (
            lambda: pep.selection.random_subset(X.astype(str), 2, seed=0),
            ["X", "Convert"],
        ),
        "complex X": (
            lambda: pep.selection.kmeans(X.astype(complex), 2, seed=0),
            ["X", "Convert"],
        ),
        "ragged X": (lambda: pep.selection.random_subset(RAGGED, 1, seed=0), ["X", "Convert"]),
        "text for a seed": (
            lambda: pep.selection.random_subset(X, 2, seed="a"),
            ["seed", "'a'", "at least 0"],
        ),
        "seed -1": (lambda: pep.selection.kmeans(X, 2, seed=-1), ["seed", "-1", "at least 0"]),
        "array for covariances": (
            lambda: pep.selection.kmeans(X, 2, seed=1, covariances=np.ones(3)),
            ["covariances", "'spherical'", "Choose"],
        ),
        "text for a tolerance": (
            lambda: pep.selection.greedy_variance(X, 2, kernel=SquaredExponential(), tolerance="a"),
            ["tolerance", "'a'", "from 0"],
        ),
        "too many lengthscales": (
            lambda: pep.selection.greedy_variance(
                X, 2, kernel=Matern32(lengthscales=[1.0, 1.0, 1.0])
            ),
            ["kernel", "Matern32", "2 column"],
        ),
        "noise variance -1": (lambda: _variational(-1.0), ["noise_variance", "-1", "Pass"]),
    },
    "training": {
        "tolerance text": (_of(_maximise, tolerance="a"), ["tolerance", "'a'", "at least 0"]),
        "seconds text": (_of(_maximise, seconds="a"), ["seconds", "'a'", "positive"]),
        "seed text": (_of(_maximise, seed="a"), ["seed", "'a'", "Pass"]),
        "callback 3": (_of(_maximise, callback=3), ["callback", "3", "Pass"]),
        "evaluate 3": (_of(_fit, evaluate=3), ["evaluate", "3", "Pass"]),
        "evaluate returns a number": (lambda: _evaluated(3.0), ["evaluate", "3.0", "Return"]),
        "evaluate returns text": (lambda: _evaluated({"a": "b"}), ["evaluate", "b", "Return"]),
        "early stopping by name": (
            _of(_fit, early_stopping="nlpd"),
            ["early_stopping", "nlpd", "Pass"],
        ),
        "checkpoints in a file": (
            _of(_fit, checkpoint_dir=__file__),
            ["checkpoint_dir", "cannot be written", "Name"],
        ),
        "scalars in a file": (
            _of(_fit, log_dir=__file__),
            ["log_dir", "cannot be written", "Name"],
        ),
        "no pair": (lambda: _shuffled(None), ["data", "NoneType", "Pass"]),
        "three arrays": (lambda: _shuffled((X, Y, Y)), ["data", "tuple", "Pass"]),
        "numbers for arrays": (lambda: _shuffled((1.0, 2.0)), ["data", "()", "Pass"]),
        "seed of batches": (lambda: _shuffled((X, Y), "a"), ["seed", "'a'", "Pass"]),
        "seed of minibatches": (
            lambda: point().minibatch_training_loss_closure(2, seed=-1),
            ["seed", "-1", "Pass"],
        ),
        "no strategy": (
            lambda: pep.training.sharded_training_loss(regression(), None),
            ["strategy", "None", "Pass"],
        ),
    },
    "estimators": {
        "quantiles before fit": (
            lambda: _regressor().predict_quantiles(ROWS),
            ["not fitted", "Call 'fit'"],
        ),
        "quantiles in a matrix": (
            lambda: _fitted().predict_quantiles(ROWS, [[0.1, 0.9]]),
            ["quantiles", "between"],
        ),
        "samples text": (lambda: _fitted().sample_y(ROWS, "a"), ["n_samples", "'a'", "positive"]),
        "inducing None": (
            lambda: _regressor(inducing=None).fit(ROWS, TARGETS),
            ["inducing", "None", "Choose"],
        ),
        "inducing names": (
            lambda: _regressor(inducing=["a"]).fit(ROWS, TARGETS),
            ["inducing", "Convert"],
        ),
    },
    "metrics": {
        "text": (
            lambda: pep.metrics.smse(np.array(["a", "b"]), np.ones(2)),
            ["Y", "<U1", "convert"],
        ),
        "None": (lambda: pep.metrics.mean_nlpd(None), ["log_density", "object", "convert"]),
        "label that is no class": (
            lambda: _calibration([0, 7], [[0.5, 0.5]] * 2),
            ["labels", "0 to 1", "encode"],
        ),
        "probability of 4": (
            lambda: _calibration([0, 1], [[4.0, 4.0]] * 2),
            ["probability", "4.0", "pass"],
        ),
        "half a bin": (
            lambda: _calibration([0, 1], [[0.5, 0.5]] * 2, 2.5),
            ["num_bins", "2.5", "whole"],
        ),
    },
}
ALL = [(room, name) for room, cases in BEYOND.items() for name in cases]
