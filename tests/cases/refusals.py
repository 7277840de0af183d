"""What is refused: calls, and words of the message, which begins with the first of
them.
"""

import functools
from collections.abc import Callable
from functools import partial
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from helpers import skip_training, uncompiled

import gpflow_pep as pep

iv = gpflow.inducing_variables
k = gpflow.kernels
lik = gpflow.likelihoods
functions = gpflow.functions
starts = pep.training.starts
N = 7
D = 2
C = 3
X = np.linspace(-1.0, 1.0, N * D).reshape(N, D)
Y = np.sin(X[:, :1])
LABELS = np.array([0.0, 1.0, 1.0, 0.0, 1.0, 0.0, 1.0])[:, None]
CLASSES = np.arange(N)[:, None] % C
Z = X[::3]
BLOCKS = np.array([0, 0, 1, 1, 2, 2, 2])
TWO_OUTPUTS = X, np.hstack([Y, Y])
BAD = np.where(np.eye(N, D) > 0.0, np.nan, X)
RAGGED = [[1.0], [1.0, 2.0]]
SHARED_POINTS = iv.SharedIndependentInducingVariables(iv.InducingPoints(Z))

# Entry points. Each takes the changes to arguments that are accepted.


def regression(**changes: Any) -> "pep.PEPRegression":
    arguments = {"data": (X, Y), "kernel": k.RBF(), "inducing_variable": Z, **changes}
    return pep.PEPRegression(**arguments)


def point(**changes: Any) -> "pep.PEP":
    parts = {"kernel": k.RBF(), "likelihood": lik.Bernoulli(), "inducing_variable": Z}
    return pep.PEP(**{"data": (X, LABELS), **parts, **changes})


def classification(**changes: Any) -> "pep.PEPClassification":
    data = X, changes.pop("Y")
    likelihood = changes.pop("likelihood", None)
    return pep.PEPClassification(data, k.RBF(), likelihood, Z, **changes)


def tied(model_class: Any) -> Callable[..., Any]:
    def create(**changes: Any) -> Any:
        parts = {
            "kernel": k.RBF(),
            "likelihood": lik.Bernoulli(),
            "inducing_variable": Z,
        }
        return model_class(**{"num_data": N, **parts, **changes})

    return create


def batch_of_arpep(data: Any, **changes: Any) -> tf.Tensor:
    return tied(pep.ARPEP)(**changes).pep_log_marginal_likelihood(data)


def minibatches(**arguments: Any) -> Any:
    return point().minibatch_training_loss_closure(seed=0, **arguments)


def with_value(array: Any, value: float) -> Any:
    array = array.copy()
    array[4, 0] = value
    return array


def targets(value: float, likelihood: Any, others: float = 1.0) -> dict[str, Any]:
    """The fifth target is not in the support."""
    return {
        "data": (X, with_value(np.full([N, 1], others), value)),
        "likelihood": likelihood,
    }


def _kernels(count: int) -> list[Any]:
    return [k.RBF() for _ in range(count)]


def _of_classes(kernel: Any, inducing_variable: Any) -> dict[str, Any]:
    options = {"kernel": kernel, "inducing_variable": inducing_variable}
    return {"data": (X, LABELS), "likelihood": lik.MultiClass(C), **options}


def _kernel_in_single_precision() -> Any:
    with gpflow.config.as_context(gpflow.config.Config(float=np.float32)):
        return k.RBF()


TWO_KERNELS, THREE_KERNELS = (
    k.SeparateIndependent(_kernels(count)) for count in (2, C)
)


def _row(words: str, **changes: Any) -> tuple[str, dict[str, Any]]:
    return words, changes


def _each(name: str, expected: str, *values: Any) -> list[tuple[str, dict[str, Any]]]:
    """One argument with one of these values, which the message repeats."""
    return [(f"{name} | {value!r} | {expected}", {name: value}) for value in values]


# Words, and arguments in place of accepted ones.

#: Of both models that hold their rows.
OF_ROWS = [
    _row("kernel | 2 column | Check", kernel=k.RBF(lengthscales=[1.0, 1.0, 1.0])),
    _row("X and Y | 7 | 5 | rows", data=(X, LABELS[:-2])),
    _row("Y | (7,) | N, P", data=(X, LABELS[:, 0])),
    _row("X | NaN | finite", data=(with_value(X, np.nan), LABELS)),
    _row("Y | infinity | finite", data=(X, with_value(LABELS, -np.inf))),
    _row(
        "X | float32 | float64", data=(X.astype(np.float32), LABELS.astype(np.float32))
    ),
    *_each("alpha", "[0, 1]", 1.5),
    _row("alpha | 6 | 7", alpha=np.full(N - 1, 0.5)),
    *_each("chunk_size", "positive", 0),
    _row("num_latent_gps | 2 | 1", num_latent_gps=2),
    _row(
        "inducing_variable | 3 | column | 2", inducing_variable=np.hstack([Z, Z[:, :1]])
    ),
]
REGRESSION = [
    *OF_ROWS,
    _row("X and Y | 4 | 7 | rows", data=(X[:4], Y)),
    _row("X | (7,) | N, D", data=(X[:, 0], Y)),
    _row("X | 7, 1, 2 | N, D", data=(X[:, None, :], Y)),
    _row("Y | NaN | finite", data=(X, with_value(Y, np.inf))),
    _row("X | infinity | finite", data=(with_value(X, np.inf), Y)),
    _row("X | NaN | finite", data=(tf.Variable(with_value(X, np.nan)), tf.Variable(Y))),
    _row("data | 0 | row", data=(X[:0], Y[:0])),
    _row("data | X | 0 | column", data=(X[:, :0], Y)),
    _row("data | Y | 0 | column", data=(X, Y[:, :0])),
    *_each("alpha", "[0, 1]", -0.1, np.nan, np.inf),
    _row("alpha | 1.25 | [0, 1]", alpha=np.where(np.arange(N) == 3, 1.25, 0.5)),
    _row("alpha | 7, 1 | 7", alpha=np.full([N, 1], 0.5)),
    _row("alpha | 7 | 3 | block", alpha=np.full(N, 0.5), blocks=BLOCKS),
    _row("alpha | 4 | 3 | block", alpha=np.full(4, 0.5), blocks=BLOCKS),
    _row("blocks | 6 | 7", blocks=np.zeros(N - 1, dtype=int)),
    _row("blocks | 7, 1 | 7", blocks=np.zeros([N, 1], dtype=int)),
    _row("blocks | float64 | integers", blocks=np.linspace(0.0, 1.0, N)),
    *_each("chunk_size", "positive", -3),
    *_each("chunk_size", "integer", 2.5, "10", True),
    _row(
        "noise_variance and likelihood | both",
        noise_variance=0.1,
        likelihood=lik.Gaussian(0.1),
    ),
    _row("likelihood | StudentT | Gaussian", likelihood=lik.StudentT()),
    _row("kernel | SeparateIndependent | multi", data=TWO_OUTPUTS, kernel=TWO_KERNELS),
    _row(
        "kernel and inducing_variable | SharedIndependent | both of one output",
        data=TWO_OUTPUTS,
        kernel=k.SharedIndependent(k.RBF(), output_dim=2),
    ),
    _row("X | float32 | float64", data=(X.astype(np.float32), Y)),
    _row("Y | int64 | float64", data=(X, Y.astype(int))),
    _row(
        "kernel | fails at a row of X with 1 column | shapes",
        data=(X[:, :1], Y),
        kernel=k.RBF(lengthscales=[1.0, 1.0]),
        inducing_variable=Z[:, :1],
    ),
    _row("inducing_variable | 1 | column | 2", inducing_variable=Z[:, :1]),
    _row("inducing_variable | (3,) | M, D", inducing_variable=Z[:, 0]),
    _row("inducing_variable | 0 | inducing | at least", inducing_variable=Z[:0]),
    _row("inducing_variable and kernel | pair", inducing_variable=SHARED_POINTS),
    _row("mean_function | str | gpflow.functions", mean_function="zero"),
    _row(
        "mean_function | Linear | 2 column",
        mean_function=functions.Linear(np.ones((3, 1))),
    ),
    _row("mean_function | (1, 2) | Use", mean_function=functions.Constant(np.ones(2))),
    _row(
        "kernel | SquaredExponential | 2 column | active_dims",
        kernel=k.RBF(active_dims=[5]),
    ),
    _row("X | list | Convert", data=(RAGGED, Y)),
    _row("X | Convert", data=(X.astype(object), Y)),
    _row("X | NoneType | Convert", data=(None, Y)),
    _row("inducing_variable | NaN", inducing_variable=BAD),
    _row("inducing_variable | Pass a matrix", inducing_variable=Z.astype(str)),
    _row(
        "inducing_variable | complex128 | Pass a matrix",
        inducing_variable=Z.astype(complex),
    ),
    _row("inducing_variable | Pass a matrix", inducing_variable=RAGGED),
    *(
        ("noise_variance | got | expected | Pass", {"noise_variance": value})
        for value in (-0.1, 0.0, np.nan, np.inf, "a", np.full(N, 0.1))
    ),
]
POINT = [
    *OF_ROWS,
    ("Y | 2 | row 4 | 0 or 1", targets(2.0, lik.Bernoulli())),
    ("Y | 1.2 | 0 to 1 | Beta", targets(1.2, lik.Beta(), 0.5)),
    _row("likelihood | str | gpflow.likelihoods", likelihood="bernoulli"),
    _row("likelihood | NoneType | gpflow.likelihoods", likelihood=None),
    *_each("max_sweeps", "at least 1", 0, -1),
    *_each("max_sweeps", "integer", 2.5, True),
    *_each("tolerance", "positive", 0.0, -1e-6, np.nan, np.inf, "1e-6"),
    (
        "W | (3, 3) | 1 rows | LinearCoregionalization",
        _of_classes(k.LinearCoregionalization(_kernels(C), W=np.eye(C)), SHARED_POINTS),
    ),
    ("kernel | 2 | 3", _of_classes(TWO_KERNELS, SHARED_POINTS)),
    (
        "inducing_variable | 4 | 3",
        _of_classes(
            k.SharedIndependent(k.RBF(), output_dim=C),
            iv.SeparateIndependentInducingVariables(
                [iv.InducingPoints(Z) for _ in range(4)]
            ),
        ),
    ),
    (
        "kernel and inducing_variable | SeparateIndependent | InducingPoints | both",
        _of_classes(THREE_KERNELS, Z),
    ),
    ("inducing_variable and kernel | pair", _of_classes(k.RBF(), SHARED_POINTS)),
    ("num_latent_gps | 2 | 3", {**_of_classes(k.RBF(), Z), "num_latent_gps": 2}),
    _row(
        "Y | 2 | 1", data=(X, np.hstack([LABELS, LABELS])), likelihood=lik.MultiClass(C)
    ),
]
UPDATE_SITES = [
    *_each("damping", "(0, 1]", 0.0, 1.1, np.nan, "a"),
    *_each("max_sweeps", "at least 1", 0, -2),
    *_each("tolerance", "positive", 0.0, -1.0),
]
TIED = [
    OF_ROWS[0],
    _row("inducing_variable | infinity", inducing_variable=with_value(X, np.inf)),
    *_each("num_data", "number of rows", None, 2.5, np.nan, "7"),
    *_each("num_data", "at least 1", 0),
    *_each("alpha", "[0, 1]", 1.5),
    _row("alpha | (7,) | one number", alpha=np.ones(7)),
    _row("kernel | float | gpflow.kernels.Kernel", kernel=1.0),
    _row("likelihood | str | likelihoods", likelihood="probit"),
    _row("inducing_variable | 0 | at least 1", inducing_variable=X[:0]),
    _row("inducing_variable | (7,) | [M, D]", inducing_variable=X[:, 0]),
    *_each("num_latent_gps", "at least 1", 0),
    *_each("num_latent_gps", "whole", 0.5),
    _row("num_latent_gps | 3 | 1 | wrap", kernel=THREE_KERNELS, num_latent_gps=3),
    _row(
        "num_latent_gps | 1 | 3 | Pass",
        kernel=THREE_KERNELS,
        inducing_variable=SHARED_POINTS,
        num_latent_gps=1,
    ),
    _row("q_mu | (2, 1) | (3, 1)", q_mu=np.zeros([2, 1])),
    _row("q_mu | (3,) | (3, 3)", q_mu=np.zeros(3)),
    _row("q_mu | NaN | finite", q_mu=np.full([3, 1], np.nan)),
    _row(
        "q_sqrt | (2, 3, 3) | (1, 3, 3)",
        q_mu=np.zeros([3, 1]),
        q_sqrt=np.zeros([2, 3, 3]),
    ),
    _row("q_sqrt | (3, 1) | (3, 3, 3)", q_sqrt=np.ones([3, 1])),
    _row("q_sqrt | above the diagonal | lower triangular", q_sqrt=np.ones([1, 3, 3])),
    _row("kernel | float32 | float64", kernel=_kernel_in_single_precision()),
]
BATCH = [
    _row("data | batch | num_data is: 3 | Pass", data=(X, LABELS), num_data=3),
    _row("data | ndarray | pair", data=X),
    _row("X | NaN | finite", data=(X * np.nan, LABELS)),
    _row("Y | 2 | 0 or 1", data=(X, LABELS * 2)),
    _row("Y | 2 | 0 or 1", data=(X, LABELS.astype(int) * 2)),
    _row("X | float32 | float64", data=(X.astype(np.float32), LABELS)),
    _row("inducing_variable | 2 | 4", data=(np.hstack([X, X]), LABELS)),
    _row("num_latent_gps | 2 | 1", data=(X, np.hstack([LABELS, LABELS]))),
    _row("X and Y | 7 | 4", data=(X, LABELS[:4])),
    _row("data | (0, 2) | one row", data=(X[:0], LABELS[:0])),
    _row("num_latent_gps | 1 | 3", likelihood=lik.MultiClass(3), data=(X, LABELS)),
    _row(
        "Y | 3 columns | one-hot",
        likelihood=lik.MultiClass(3),
        data=(X, np.eye(3)[CLASSES.T[0]]),
    ),
    _row("Y | -1 | whole numbers", likelihood=lik.Poisson(), data=(X, -LABELS)),
]
CLASSIFICATION = [
    _row(
        "Y | got the labels -1, 1 | expected labels 0 to C - 1 | Recode",
        Y=2 * LABELS.astype(int) - 1,
    ),
    _row("Y | got the labels 0, 2 | or pass a likelihood", Y=2 * LABELS.astype(int)),
    _row("Y | got the labels 0 | two or more classes", Y=0 * LABELS.astype(int)),
    _row("Y | got the labels 0.5, 1.5 | expected labels 0 to C - 1", Y=LABELS + 0.5),
    _row("Y | got labels of type | Encode the labels", Y=LABELS.astype(str)),
    _row("Y | got 2 at row 2 | expected 0 or 1", Y=CLASSES, likelihood=lik.Bernoulli()),
    _row("likelihood | got Poisson | models.PEP", Y=LABELS, likelihood=lik.Poisson()),
]
MINIBATCHES = [
    _row("batch_size | 0 | from 1 to", batch_size=0),
    _row("batch_size | 2.5 | from 1 to", batch_size=2.5),
    _row("batch_size | 8 | from 1 to 7", batch_size=N + 1),
    _row("refresh_every | 0 | positive", batch_size=2, refresh_every=0),
]
ENTRIES: dict[str, tuple[Callable[..., Any], list[tuple[str, dict[str, Any]]]]] = {
    "PEPRegression": (regression, REGRESSION),
    "PEP": (point, POINT),
    "PEPClassification": (classification, CLASSIFICATION),
    "ARPEP": (tied(pep.ARPEP), TIED),
    # Their constructor is that of ARPEP.
    "APEP": (tied(pep.APEP), TIED[:3]),
    "RPAPEP": (tied(pep.RPAPEP), TIED[:3]),
    "batch of ARPEP": (batch_of_arpep, BATCH),
    "update_sites": (lambda **changes: point().update_sites(**changes), UPDATE_SITES),
    "minibatch loss of PEP": (minibatches, MINIBATCHES),
}
#: Start of alpha, what is assigned to it, and the words that matter.
ALPHA_ASSIGNED = [
    *((0.5, v, f"alpha | {v} | [0, 1]") for v in (2.0, -0.001, np.nan)),
    (np.full(N, 0.5), np.where(np.arange(N) == 3, 1.25, 0.5), "alpha | 1.25 | [0, 1]"),
]


# Beyond a model's own arguments.

ROWS = np.random.default_rng(0).standard_normal((12, 2))
TARGETS = np.sin(ROWS[:, 0]) + ROWS[:, 1]


def _regressor(**options: Any) -> "pep.estimators.PEPRegressor":
    return pep.estimators.PEPRegressor(num_inducing=3, max_iterations=1, **options)


@functools.cache
def _fitted() -> "pep.estimators.PEPRegressor":
    with pytest.MonkeyPatch.context() as patch:
        skip_training(patch)
        return _regressor().fit(ROWS, TARGETS)


def _fit(**changes: Any) -> Any:
    options = {
        "num_steps": 1,
        "optimizer": tf_keras.optimizers.Adam(),
        "progress": False,
    }
    batches = pep.training.shuffled_batches((X, LABELS), 3, seed=0)
    with uncompiled():
        return pep.training.fit(tied(pep.ARPEP)(), batches, **{**options, **changes})


def _maximise(**changes: Any) -> Any:
    return pep.training.maximise(regression(), **{"progress": False, **changes})


def _shuffled(data: Any, seed: Any = 0) -> Any:
    return pep.training.shuffled_batches(data, 2, seed=seed)


def _greedy(kind: str = "variance", **options: Any) -> Any:
    data = X if kind == "variance" else (X, Y)
    return getattr(starts, f"greedy_{kind}")(data, 2, **{"kernel": k.RBF(), **options})


def _calibration(labels: Any, probability: Any, bins: Any = 10) -> Any:
    return pep.metrics.calibration(np.array(labels), np.array(probability), bins)


#: By room: words, and a call.
BEYOND: dict[str, list[tuple[str, Callable[[], Any]]]] = {
    "predictions": [
        *(
            (words, partial(predict, bad))
            for predict in (
                lambda bad: regression().predict_y(bad),
                lambda bad: regression().posterior().predict_f(bad),
                lambda bad: point().predict_f(bad),
                lambda bad: tied(pep.ARPEP)().predict_f(bad),
            )
            for words, bad in (
                ("Xnew | NaN | row", BAD),
                ("Xnew | (3, 5) | 2", np.ones((3, 5))),
                ("Xnew | int64 | float64 | Cast", np.ones((3, 2), int)),
            )
        ),
        ("Xnew | string | Cast", lambda: regression().predict_f(X.astype(str))),
        ("Xnew | NoneType | Convert", lambda: regression().predict_f(None)),
        ("Y | got 7 | 0 or 1", lambda: point().predict_log_density((X, LABELS + 7.0))),
        ("Y | nan | finite", lambda: regression().predict_log_density((X, Y * np.nan))),
        ("near | 8 | 0 to 7", lambda: point().predict_f(X, near=8)),
        (
            "near | 3 latent functions | one latent function",
            lambda: point(**_of_classes(k.RBF(), Z)).predict_f(X, near=2),
        ),
        (
            "near | 0 | at least 1",
            lambda: point().posterior(near=2).predict_f(X, near=0),
        ),
        ("blocks | without blocks", lambda: point().predict_f(X, blocks="nearest")),
        ("near | 0 | positive", lambda: regression().near_row_training_loss_closure(0)),
        ("near | 7 | 0 to 6", lambda: regression().near_row_training_loss_closure(7)),
        (
            "near | blocks",
            lambda: regression(blocks=BLOCKS).near_row_training_loss_closure(2),
        ),
        (
            "batch_size | 0",
            lambda: point().near_row_training_loss_closure(2, batch_size=0),
        ),
        ("num_samples | -1 | positive", lambda: regression().predict_f_samples(X, -1)),
    ],
    "selection": [
        (
            "Z | NaN",
            lambda: pep.inducing_variables.BlurredInducingPoints(
                Z * np.nan, np.ones(3)
            ),
        ),
        ("X | Convert", lambda: starts.random_subset(X.astype(str), 2, seed=0)),
        ("X | Convert", lambda: starts.kmeans(X.astype(complex), 2, seed=0)),
        ("X | Convert", lambda: starts.random_subset(RAGGED, 1, seed=0)),
        ("seed | 'a' | at least 0", lambda: starts.random_subset(X, 2, seed="a")),
        ("seed | -1 | at least 0", lambda: starts.kmeans(X, 2, seed=-1)),
        (
            "covariances | 'spherical' | Choose",
            lambda: starts.kmeans(X, 2, seed=1, covariances=np.ones(3)),
        ),
        ("tolerance | 'a' | at least 0", lambda: _greedy(tolerance="a")),
        (
            "kernel | Matern32 | 2 column",
            lambda: _greedy(kernel=k.Matern32(lengthscales=[1.0] * 3)),
        ),
        (
            "noise_variance | -1 | Pass",
            lambda: _greedy("variational", noise_variance=-1.0, seed=0),
        ),
    ],
    "training": [
        ("tolerance | 'a' | at least 0", partial(_maximise, tolerance="a")),
        ("seconds | 'a' | positive", partial(_maximise, seconds="a")),
        ("seed | 'a' | Pass", partial(_maximise, seed="a")),
        ("callback | 3 | Pass", partial(_maximise, callback=3)),
        ("evaluate | 3 | Pass", partial(_fit, evaluate=3)),
        (
            "evaluate | 3.0 | Return",
            partial(_fit, evaluate=lambda model: 3.0, evaluate_every=1),
        ),
        (
            "evaluate | b | Return",
            partial(_fit, evaluate=lambda model: {"a": "b"}, evaluate_every=1),
        ),
        ("early_stopping | nlpd | Pass", partial(_fit, early_stopping="nlpd")),
        (
            "checkpoint_dir | cannot be written | Name",
            partial(_fit, checkpoint_dir=__file__),
        ),
        ("log_dir | cannot be written | Name", partial(_fit, log_dir=__file__)),
        ("data | NoneType | Pass", lambda: _shuffled(None)),
        ("data | tuple | Pass", lambda: _shuffled((X, Y, Y))),
        ("data | () | Pass", lambda: _shuffled((1.0, 2.0))),
        ("seed | 'a' | Pass", lambda: _shuffled((X, Y), "a")),
        (
            "seed | -1 | Pass",
            lambda: point().minibatch_training_loss_closure(2, seed=-1),
        ),
    ],
    "estimators": [
        (
            "This PEPRegressor | not fitted | Call 'fit'",
            lambda: _regressor().sample_y(ROWS),
        ),
        (
            "quantiles | between",
            lambda: _fitted().predict_quantiles(ROWS, [[0.1, 0.9]]),
        ),
        ("n_samples | 'a' | positive", lambda: _fitted().sample_y(ROWS, "a")),
        (
            "inducing | None | Choose",
            lambda: _regressor(inducing=None).fit(ROWS, TARGETS),
        ),
        ("inducing | Convert", lambda: _regressor(inducing=["a"]).fit(ROWS, TARGETS)),
    ],
    "metrics": [
        (
            "Y | <U1 | convert",
            lambda: pep.metrics.smse(np.array(["a", "b"]), np.ones(2)),
        ),
        (
            "log_density | NoneType | object | convert",
            lambda: pep.metrics.mean_nlpd(None),
        ),
        ("labels | 0 to 1 | encode", lambda: _calibration([0, 7], [[0.5, 0.5]] * 2)),
        ("probability | 4.0 | pass", lambda: _calibration([0, 1], [[4.0, 4.0]] * 2)),
        ("num_bins | 2.5 | whole", lambda: _calibration([0, 1], [[0.5, 0.5]] * 2, 2.5)),
    ],
}
#: The entry point or room, words of the message, and the call. All are ``ValueError``.
REFUSALS: list[tuple[str, str, Callable[[], Any]]] = [
    *(
        (entry, words, partial(call, **changes))
        for entry, (call, table) in ENTRIES.items()
        for words, changes in table
    ),
    *((room, words, call) for room, table in BEYOND.items() for words, call in table),
]
