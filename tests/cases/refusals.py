"""
What is refused, in one table: a call, and words of its message, with " | " between them. The first
is the name that the message begins with; the others are what was got, expected, and to be done.
"""

import functools
from collections.abc import Callable
from functools import partial
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
import tf_keras
from gpflow.functions import Constant, Linear
from gpflow.inducing_variables import (
    InducingPoints,
    SeparateIndependentInducingVariables,
    SharedIndependentInducingVariables,
)
from gpflow.kernels import (
    LinearCoregionalization,
    Matern32,
    SeparateIndependent,
    SharedIndependent,
    SquaredExponential,
)
from gpflow.likelihoods import (
    Bernoulli,
    Beta,
    Exponential,
    Gamma,
    MultiClass,
    Ordinal,
    Poisson,
    Softmax,
)

import gpflow_pep as pep

N, D, C = 7, 2, 3
X = np.linspace(-1.0, 1.0, N * D).reshape(N, D)
Y = np.sin(X[:, :1])
LABELS = np.array([0.0, 1.0, 1.0, 0.0, 1.0, 0.0, 1.0])[:, None]
CLASSES = np.arange(N)[:, None] % C
Z = X[::3]
Changes = Callable[[], dict[str, Any]]

# Entry points. Each takes the changes to arguments that are accepted.


def regression(**changes: Any) -> "pep.models.PEPRegression":
    arguments = {"data": (X, Y), "kernel": SquaredExponential(), "inducing_variable": Z, **changes}
    return pep.models.PEPRegression(**arguments)


def point(**changes: Any) -> "pep.models.PEP":
    arguments: dict[str, Any] = {
        "data": (X, LABELS),
        "kernel": SquaredExponential(),
        "likelihood": Bernoulli(),
        "inducing_variable": Z,
        **changes,
    }
    return pep.models.PEP(**arguments)


def classification(**changes: Any) -> "pep.models.PEPClassification":
    data = X, changes.pop("Y")
    likelihood = changes.pop("likelihood", None)
    return pep.models.PEPClassification(data, SquaredExponential(), likelihood, Z, **changes)


def tied(model_class: Any) -> Callable[..., Any]:
    def create(**changes: Any) -> Any:
        arguments = {
            "kernel": SquaredExponential(),
            "likelihood": Bernoulli(),
            "inducing_variable": Z,
            "num_data": N,
            **changes,
        }
        return model_class(**arguments)

    return create


def batch_of_arpep(data: Any, **changes: Any) -> tf.Tensor:
    return tied(pep.models.ARPEP)(**changes).pep_log_marginal_likelihood(data)


def update_sites(**arguments: Any) -> Any:
    return point().update_sites(**arguments)


def minibatches(**arguments: Any) -> Any:
    return point().minibatch_training_loss_closure(seed=0, **arguments)


def with_value(array: Any, value: float) -> Any:
    array = array.copy()
    array[4, 0] = value
    return array


def targets(value: float, likelihood: Any, others: float = 1.0) -> dict[str, Any]:
    """The fifth target is not in the support."""
    return {"data": (X, with_value(np.full([N, 1], others), value)), "likelihood": likelihood}


def _kernels(count: int) -> list[SquaredExponential]:
    return [SquaredExponential() for _ in range(count)]


def _of_classes(**changes: Any) -> dict[str, Any]:
    return {"data": (X, LABELS), "likelihood": MultiClass(C), **changes}


def _kernel_in_single_precision() -> SquaredExponential:
    with gpflow.config.as_context(gpflow.config.Config(float=np.float32)):
        return SquaredExponential()


# Arguments in place of accepted ones, and words.

REGRESSION = {
    "fewer rows in Y": ({"data": (X, Y[:-2])}, "X and Y | 7 | 5 | rows"),
    "more rows in Y": ({"data": (X[:4], Y)}, "X and Y | 4 | 7 | rows"),
    "1-D X": ({"data": (X[:, 0], Y)}, "X | (7,) | N, D"),
    "1-D Y": ({"data": (X, Y[:, 0])}, "Y | (7,) | N, P"),
    "3-D X": ({"data": (X[:, None, :], Y)}, "X | 7, 1, 2 | N, D"),
    "NaN in X": ({"data": (with_value(X, np.nan), Y)}, "X | NaN | finite"),
    "NaN in Y": ({"data": (X, with_value(Y, np.nan))}, "Y | NaN | finite"),
    "inf in X": ({"data": (with_value(X, np.inf), Y)}, "X | infinity | finite"),
    "-inf in Y": ({"data": (X, with_value(Y, -np.inf))}, "Y | infinity | finite"),
    "NaN in a variable": (
        {"data": (tf.Variable(with_value(X, np.nan)), tf.Variable(Y))},
        "X | NaN | finite",
    ),
    "no rows": ({"data": (X[:0], Y[:0])}, "data | 0 | row"),
    "no inputs": ({"data": (X[:, :0], Y)}, "data | X | 0 | column"),
    "no outputs": ({"data": (X, Y[:, :0])}, "data | Y | 0 | column"),
    "alpha below 0": ({"alpha": -0.1}, "alpha | -0.1 | [0, 1]"),
    "alpha above 1": ({"alpha": 1.5}, "alpha | 1.5 | [0, 1]"),
    "alpha NaN": ({"alpha": np.nan}, "alpha | nan | [0, 1]"),
    "alpha infinite": ({"alpha": np.inf}, "alpha | inf | [0, 1]"),
    "one alpha of a row above 1": (
        {"alpha": np.where(np.arange(N) == 3, 1.25, 0.5)},
        "alpha | 1.25 | [0, 1]",
    ),
    "alpha of the wrong length": ({"alpha": np.full(N - 1, 0.5)}, "alpha | 6 | 7"),
    "alpha of two dimensions": ({"alpha": np.full([N, 1], 0.5)}, "alpha | 7, 1 | 7"),
    "alpha per row with fewer blocks": (
        {"alpha": np.full(N, 0.5), "blocks": np.array([0, 0, 1, 1, 2, 2, 2])},
        "alpha | 7 | 3 | block",
    ),
    "alpha per block of another count": (
        {"alpha": np.full(4, 0.5), "blocks": np.array([0, 0, 1, 1, 2, 2, 2])},
        "alpha | 4 | 3 | block",
    ),
    "too few block labels": ({"blocks": np.zeros(N - 1, dtype=int)}, "blocks | 6 | 7"),
    "block labels of two dimensions": (
        {"blocks": np.zeros([N, 1], dtype=int)},
        "blocks | 7, 1 | 7",
    ),
    "block labels not integers": (
        {"blocks": np.linspace(0.0, 1.0, N)},
        "blocks | float64 | integers",
    ),
    "chunk_size 0": ({"chunk_size": 0}, "chunk_size | 0 | positive"),
    "chunk_size negative": ({"chunk_size": -3}, "chunk_size | -3 | positive"),
    "chunk_size not an integer": ({"chunk_size": 2.5}, "chunk_size | 2.5 | integer"),
    "chunk_size a string": ({"chunk_size": "10"}, "chunk_size | '10' | integer"),
    "chunk_size a boolean": ({"chunk_size": True}, "chunk_size | True | integer"),
    "noise variance and likelihood": (
        {"noise_variance": 0.1, "likelihood": gpflow.likelihoods.Gaussian(0.1)},
        "noise_variance and likelihood | noise_variance | likelihood | both",
    ),
    "likelihood not Gaussian": (
        {"likelihood": gpflow.likelihoods.StudentT()},
        "likelihood | StudentT | Gaussian",
    ),
    "separate kernels per output": (
        {
            "data": (X, np.hstack([Y, Y])),
            "kernel": SeparateIndependent([SquaredExponential(), SquaredExponential()]),
        },
        "kernel | SeparateIndependent | multi",
    ),
    "shared multi-output kernel": (
        {
            "data": (X, np.hstack([Y, Y])),
            "kernel": SharedIndependent(SquaredExponential(), output_dim=2),
        },
        "kernel and inducing_variable | SharedIndependent | both of one output",
    ),
    "float32 data": (
        {"data": (X.astype(np.float32), Y.astype(np.float32))},
        "X | float32 | float64",
    ),
    "float32 X only": ({"data": (X.astype(np.float32), Y)}, "X | float32 | float64"),
    "integer Y": ({"data": (X, Y.astype(int))}, "Y | int64 | float64"),
    "Z with one column too many": (
        {"inducing_variable": np.hstack([Z, Z[:, :1]])},
        "inducing_variable | 3 | column | 2",
    ),
    "Z with one column too few": (
        {"inducing_variable": Z[:, :1]},
        "inducing_variable | 1 | column | 2",
    ),
    "1-D Z": ({"inducing_variable": Z[:, 0]}, "inducing_variable | (3,) | M, D"),
    "no inducing variables": (
        {"inducing_variable": Z[:0]},
        "inducing_variable | 0 | inducing | at least",
    ),
    "several inducing variables": (
        {"inducing_variable": SharedIndependentInducingVariables(InducingPoints(Z))},
        "inducing_variable and kernel | SharedIndependentInducingVariables | pair",
    ),
    "another number of latent functions": ({"num_latent_gps": 2}, "num_latent_gps | 2 | 1"),
    "unknown conditional": (
        {"conditional": "titsias"},
        "conditional | 'titsias' | 'prior', 'scaled'",
    ),
    "conditional True": ({"conditional": True}, "conditional | True | 'prior', 'scaled'"),
}


POINT = {
    "fewer rows in Y": ({"data": (X, LABELS[:-2])}, "X and Y | 7 | 5 | rows"),
    "1-D Y": ({"data": (X, LABELS[:, 0])}, "Y | (7,) | N, P"),
    "NaN in X": ({"data": (X * np.nan, LABELS)}, "X | NaN | finite"),
    "inf in Y": ({"data": (X, with_value(LABELS, np.inf))}, "Y | infinity | finite"),
    "label 2 of two": (targets(2.0, Bernoulli()), "Y | 2 | row 4 | 0 or 1"),
    "label -1 of two": (targets(-1.0, Bernoulli()), "Y | -1 | row 4 | 0 or 1"),
    "label 0.5": (targets(0.5, Bernoulli()), "Y | 0.5 | row 4 | 0 or 1"),
    "class 3 of three": (targets(3.0, MultiClass(C)), "Y | 3 | 0 to 2 | MultiClass"),
    "class -1": (targets(-1.0, MultiClass(C)), "Y | -1 | 0 to 2 | MultiClass"),
    "class 1.5 of a softmax": (targets(1.5, Softmax(C)), "Y | 1.5 | 0 to 2 | Softmax"),
    "ordinal class 3 of three": (targets(3.0, Ordinal(np.array([0.0, 1.0]))), "Y | 3 | 0 to 2"),
    "negative count": (targets(-2.0, Poisson()), "Y | -2 | whole numbers | Poisson"),
    "half a count": (targets(1.5, Poisson()), "Y | 1.5 | whole numbers"),
    "negative duration": (targets(-0.1, Exponential()), "Y | -0.1 | from 0 | Exponential"),
    "negative amount": (targets(-0.1, Gamma()), "Y | -0.1 | from 0 | Gamma"),
    "fraction above 1": (targets(1.2, Beta(), 0.5), "Y | 1.2 | 0 to 1 | Beta"),
    "not a likelihood": ({"likelihood": "bernoulli"}, "likelihood | str | gpflow.likelihoods"),
    "no likelihood": ({"likelihood": None}, "likelihood | NoneType | gpflow.likelihoods"),
    "alpha above 1": ({"alpha": 1.5}, "alpha | 1.5 | [0, 1]"),
    "alpha of the wrong length": ({"alpha": np.full(N - 1, 0.5)}, "alpha | 6 | 7"),
    "unknown conditional": ({"conditional": "local"}, "conditional | 'local' | 'prior', 'scaled'"),
    "neighbours": ({"neighbours": 5}, "neighbours | 5 | PEPRegression"),
    "scaled conditional at alpha 0.5": (
        {"conditional": "scaled"},
        "alpha | between 0 and 1 | 0 or 1",
    ),
    "chunk_size 0": ({"chunk_size": 0}, "chunk_size | 0 | at least 1"),
    "max_sweeps 0": ({"max_sweeps": 0}, "max_sweeps | 0 | at least 1"),
    "max_sweeps negative": ({"max_sweeps": -1}, "max_sweeps | -1 | at least 1"),
    "max_sweeps not an integer": ({"max_sweeps": 2.5}, "max_sweeps | 2.5 | integer"),
    "max_sweeps a boolean": ({"max_sweeps": True}, "max_sweeps | True | integer"),
    "tolerance 0": ({"tolerance": 0.0}, "tolerance | 0.0 | positive"),
    "tolerance negative": ({"tolerance": -1e-6}, "tolerance | -1e-06 | positive"),
    "tolerance NaN": ({"tolerance": np.nan}, "tolerance | nan | positive"),
    "tolerance infinite": ({"tolerance": np.inf}, "tolerance | inf | positive"),
    "tolerance a string": ({"tolerance": "1e-6"}, "tolerance | '1e-6' | positive"),
    "kernel that mixes latent functions": (
        _of_classes(
            kernel=LinearCoregionalization(_kernels(C), W=np.eye(C)),
            inducing_variable=SharedIndependentInducingVariables(InducingPoints(Z)),
        ),
        "kernel | LinearCoregionalization | independent | SharedIndependent",
    ),
    "too few kernels": (
        _of_classes(
            kernel=SeparateIndependent(_kernels(2)),
            inducing_variable=SharedIndependentInducingVariables(InducingPoints(Z)),
        ),
        "kernel | 2 | 3",
    ),
    "too many inducing variables": (
        _of_classes(
            kernel=SharedIndependent(SquaredExponential(), output_dim=C),
            inducing_variable=SeparateIndependentInducingVariables(
                [InducingPoints(Z) for _ in range(4)]
            ),
        ),
        "inducing_variable | 4 | 3",
    ),
    "several kernels with plain inducing points": (
        _of_classes(kernel=SeparateIndependent(_kernels(C))),
        "kernel and inducing_variable | SeparateIndependent | InducingPoints | both",
    ),
    "plain kernel with several inducing variables": (
        _of_classes(inducing_variable=SharedIndependentInducingVariables(InducingPoints(Z))),
        "inducing_variable and kernel | SharedIndependentInducingVariables with | pair",
    ),
    "another number of latent functions than classes": (
        _of_classes(num_latent_gps=2),
        "num_latent_gps | 2 | 3",
    ),
    "two latent functions of one target": ({"num_latent_gps": 2}, "num_latent_gps | 2 | 1"),
    "two label columns for classes": (
        {"data": (X, np.hstack([LABELS, LABELS])), "likelihood": MultiClass(C)},
        "Y | 2 | 1",
    ),
    "float32 data": (
        {"data": (X.astype(np.float32), LABELS.astype(np.float32))},
        "X | float32 | float64",
    ),
    "Z with one column too many": (
        {"inducing_variable": np.hstack([Z, Z[:, :1]])},
        "inducing_variable | 3 | column | 2",
    ),
}


UPDATE_SITES = {
    "damping 0": ({"damping": 0.0}, "damping | 0.0 | (0, 1]"),
    "damping above 1": ({"damping": 1.1}, "damping | 1.1 | (0, 1]"),
    "damping NaN": ({"damping": np.nan}, "damping | nan | (0, 1]"),
    "max_sweeps 0": ({"max_sweeps": 0}, "max_sweeps | 0 | at least 1"),
    "max_sweeps -2": ({"max_sweeps": -2}, "max_sweeps | -2 | at least 1"),
    "tolerance 0": ({"tolerance": 0.0}, "tolerance | 0 | positive"),
    "tolerance -1": ({"tolerance": -1.0}, "tolerance | -1 | positive"),
}


TIED = {
    "num_data missing": ({"num_data": None}, "num_data | None | number of rows"),
    "num_data 0": ({"num_data": 0}, "num_data | 0 | at least 1"),
    "num_data 2.5": ({"num_data": 2.5}, "num_data | 2.5 | number of rows"),
    "num_data NaN": ({"num_data": np.nan}, "num_data | nan | number of rows"),
    "num_data of a wrong type": ({"num_data": "7"}, "num_data | '7' | number of rows"),
    "alpha 1.5": ({"alpha": 1.5}, "alpha | 1.5 | [0, 1]"),
    "alpha for each row": ({"alpha": np.ones(7)}, "alpha | (7,) | one number"),
    "no kernel": ({"kernel": 1.0}, "kernel | float | gpflow.kernels.Kernel"),
    "no likelihood": ({"likelihood": "probit"}, "likelihood | str | likelihoods"),
    "no inducing inputs": ({"inducing_variable": X[:0]}, "inducing_variable | 0 | at least 1"),
    "1-D inducing inputs": ({"inducing_variable": X[:, 0]}, "inducing_variable | (7,) | [M, D]"),
    "no latent functions": ({"num_latent_gps": 0}, "num_latent_gps | 0 | at least 1"),
    "half a latent function": ({"num_latent_gps": 0.5}, "num_latent_gps | 0.5 | whole"),
    "q_mu too short": ({"q_mu": np.zeros([2, 1])}, "q_mu | (2, 1) | (3, 1)"),
    "1-D q_mu": ({"q_mu": np.zeros(3)}, "q_mu | (3,) | (3, 3)"),
    "NaN in q_mu": ({"q_mu": np.full([3, 1], np.nan)}, "q_mu | NaN | finite"),
    "q_sqrt of other latents": (
        {"q_mu": np.zeros([3, 1]), "q_sqrt": np.zeros([2, 3, 3])},
        "q_sqrt | (2, 3, 3) | (1, 3, 3)",
    ),
    "diagonal q_sqrt": ({"q_sqrt": np.ones([3, 1])}, "q_sqrt | (3, 1) | (3, 3, 3)"),
    "q_sqrt not triangular": (
        {"q_sqrt": np.ones([1, 3, 3])},
        "q_sqrt | above the diagonal | lower triangular",
    ),
    "float32 kernel": ({"kernel": _kernel_in_single_precision()}, "kernel | float32 | float64"),
}


BATCH = {
    "no pair": ({"data": X}, "data | ndarray | pair"),
    "NaN in X": ({"data": (X * np.nan, LABELS)}, "X | NaN | finite"),
    "label 2": ({"data": (X, LABELS * 2)}, "Y | 2 | 0 or 1"),
    "integer label 2": ({"data": (X, LABELS.astype(int) * 2)}, "Y | 2 | 0 or 1"),
    "float32 X": ({"data": (X.astype(np.float32), LABELS)}, "X | float32 | float64"),
    "another column in X": ({"data": (np.hstack([X, X]), LABELS)}, "inducing_variable | 2 | 4"),
    "two columns of labels": ({"data": (X, np.hstack([LABELS, LABELS]))}, "num_latent_gps | 2 | 1"),
    "fewer labels": ({"data": (X, LABELS[:4])}, "X and Y | 7 | 4"),
    "no rows": ({"data": (X[:0], LABELS[:0])}, "data | (0, 2) | one row"),
    "too few latent functions": (
        {"likelihood": MultiClass(3), "data": (X, LABELS)},
        "num_latent_gps | 1 | 3",
    ),
    "negative count": ({"likelihood": Poisson(), "data": (X, -LABELS)}, "Y | -1 | whole numbers"),
}


CLASSIFICATION = {
    "labels -1 and 1": (
        {"Y": 2 * LABELS.astype(int) - 1},
        "Y | got the labels -1, 1 | expected 0 to C - 1 | Recode",
    ),
    "labels 0 and 2": (
        {"Y": 2 * LABELS.astype(int)},
        "Y | got the labels 0, 2 | or pass the likelihood",
    ),
    "one class": ({"Y": 0 * LABELS.astype(int)}, "Y | got the labels 0 | two or more classes"),
    "fractions": ({"Y": LABELS + 0.5}, "Y | got the labels 0.5, 1.5 | expected 0 to C - 1"),
    "words": ({"Y": LABELS.astype(str)}, "Y | got labels of type | Encode them"),
    "class 2 of two": (
        {"Y": CLASSES, "likelihood": Bernoulli()},
        "Y | got 2 at row 2 | expected 0 or 1",
    ),
    "likelihood of counts": (
        {"Y": LABELS, "likelihood": Poisson()},
        "likelihood | got Poisson | models.PEP",
    ),
}


MINIBATCHES = {
    "batch_size 0": ({"batch_size": 0}, "batch_size | 0 | positive"),
    "batch_size 2.5": ({"batch_size": 2.5}, "batch_size | 2.5 | positive"),
    "batch_size above N": ({"batch_size": N + 1}, "batch_size | 8 | 7 | less"),
    "refresh_every 0": ({"batch_size": 2, "refresh_every": 0}, "refresh_every | 0 | positive"),
}

ENTRIES: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "PEPRegression": (regression, REGRESSION),
    "PEP": (point, POINT),
    "PEPClassification": (classification, CLASSIFICATION),
    "APEP": (tied(pep.models.APEP), TIED),
    "ARPEP": (tied(pep.models.ARPEP), TIED),
    "RPAPEP": (tied(pep.models.RPAPEP), TIED),
    "batch of ARPEP": (batch_of_arpep, BATCH),
    "update_sites": (update_sites, UPDATE_SITES),
    "minibatch loss of PEP": (minibatches, MINIBATCHES),
}
#: Start of alpha, what is assigned to it, and the words that matter.
ALPHA_ASSIGNED = {
    "above 1": (0.5, 2.0, "alpha | 2.0 | [0, 1]"),
    "below 0": (0.5, -1e-3, "alpha | -0.001 | [0, 1]"),
    "NaN": (0.5, np.nan, "alpha | nan | [0, 1]"),
    "one of several": (
        np.full(N, 0.5),
        np.where(np.arange(N) == 3, 1.25, 0.5),
        "alpha | 1.25 | [0, 1]",
    ),
}


# Beyond a model's own arguments; and parts of models that only fail when they meet the data.

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


#: By room and name: a call, and words.
BEYOND: dict[str, dict[str, tuple[Callable[[], Any], str]]] = {
    "parts of models": {
        "kernel of an input that is not there": (
            partial(regression, kernel=SquaredExponential(active_dims=[5])),
            "kernel | SquaredExponential | 2 column | active_dims",
        ),
        "too many lengthscales": (
            partial(point, kernel=SquaredExponential(lengthscales=[1.0, 1.0, 1.0])),
            "kernel | 2 column | Check",
        ),
        "too many lengthscales of a tied model": (
            partial(
                tied(pep.models.ARPEP), kernel=SquaredExponential(lengthscales=[1.0, 1.0, 1.0])
            ),
            "kernel | 2 column | Check",
        ),
        "mean function that is text": (
            partial(regression, mean_function="zero"),
            "mean_function | str | gpflow.functions",
        ),
        "mean of other columns": (
            partial(regression, mean_function=Linear(np.ones((3, 1)))),
            "mean_function | Linear | 2 column",
        ),
        "mean of two outputs for one": (
            partial(regression, mean_function=Constant(np.ones(2))),
            "mean_function | (1, 2) | Use",
        ),
        "X ragged": (partial(regression, data=(RAGGED, Y)), "X | list | Convert"),
        "X of objects": (partial(regression, data=(X.astype(object), Y)), "X | Convert"),
        "X None": (partial(regression, data=(None, Y)), "X | NoneType | Convert"),
        "Z NaN": (partial(regression, inducing_variable=BAD), "inducing_variable | NaN"),
        "Z infinite": (
            partial(tied(pep.models.ARPEP), inducing_variable=with_value(X, np.inf)),
            "inducing_variable | infinity",
        ),
        "Z text": (
            partial(regression, inducing_variable=Z.astype(str)),
            "inducing_variable | Give",
        ),
        "Z complex": (
            partial(regression, inducing_variable=Z.astype(complex)),
            "inducing_variable | complex128 | Give",
        ),
        "Z ragged": (partial(regression, inducing_variable=RAGGED), "inducing_variable | Give"),
        "blurred Z NaN": (
            lambda: pep.inducing_variables.BlurredInducingPoints(Z * np.nan, np.ones(3)),
            "Z | NaN",
        ),
        **{
            f"noise variance {value!r}"[:40]: (
                partial(regression, noise_variance=value),
                "noise_variance | above 1e-06 | Pass",
            )
            for value in (-0.1, 0.0, np.nan, np.inf, "a", np.full(N, 0.1))
        },
        "batch of more rows than there are": (
            partial(batch_of_arpep, data=(X, LABELS), num_data=3),
            "data | batch | num_data is: 3 | Pass",
        ),
        "damping that is text": (partial(update_sites, damping="a"), "damping | 'a' | (0, 1]"),
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
            ("NaN", BAD, "Xnew | NaN | row"),
            ("5 columns", np.ones((3, 5)), "Xnew | (3, 5) | 2"),
            ("integers", np.ones((3, 2), int), "Xnew | int64 | float64 | Cast"),
        )
    }
    | {
        "text": (lambda: regression().predict_f(X.astype(str)), "Xnew | string | Cast"),
        "None": (lambda: regression().predict_f(None), "Xnew | NoneType | Convert"),
        "label 7 of two": (
            lambda: point().predict_log_density((X, LABELS + 7.0)),
            "Y | got 7 | 0 or 1",
        ),
        "target NaN": (
            lambda: regression().predict_log_density((X, Y * np.nan)),
            "Y | nan | finite",
        ),
        "-1 samples": (
            lambda: regression().predict_f_samples(X, -1),
            "num_samples | -1 | positive",
        ),
    },
    "selection": {
        "text for X": (
            lambda: pep.selection.random_subset(X.astype(str), 2, seed=0),
            "X | Convert",
        ),
        "complex X": (lambda: pep.selection.kmeans(X.astype(complex), 2, seed=0), "X | Convert"),
        "ragged X": (lambda: pep.selection.random_subset(RAGGED, 1, seed=0), "X | Convert"),
        "text for a seed": (
            lambda: pep.selection.random_subset(X, 2, seed="a"),
            "seed | 'a' | at least 0",
        ),
        "seed -1": (lambda: pep.selection.kmeans(X, 2, seed=-1), "seed | -1 | at least 0"),
        "array for covariances": (
            lambda: pep.selection.kmeans(X, 2, seed=1, covariances=np.ones(3)),
            "covariances | 'spherical' | Choose",
        ),
        "text for a tolerance": (
            lambda: pep.selection.greedy_variance(X, 2, kernel=SquaredExponential(), tolerance="a"),
            "tolerance | 'a' | from 0",
        ),
        "too many lengthscales": (
            lambda: pep.selection.greedy_variance(
                X, 2, kernel=Matern32(lengthscales=[1.0, 1.0, 1.0])
            ),
            "kernel | Matern32 | 2 column",
        ),
        "noise variance -1": (lambda: _variational(-1.0), "noise_variance | -1 | Pass"),
    },
    "training": {
        "tolerance text": (partial(_maximise, tolerance="a"), "tolerance | 'a' | at least 0"),
        "seconds text": (partial(_maximise, seconds="a"), "seconds | 'a' | positive"),
        "seed text": (partial(_maximise, seed="a"), "seed | 'a' | Pass"),
        "callback 3": (partial(_maximise, callback=3), "callback | 3 | Pass"),
        "evaluate 3": (partial(_fit, evaluate=3), "evaluate | 3 | Pass"),
        "evaluate returns a number": (lambda: _evaluated(3.0), "evaluate | 3.0 | Return"),
        "evaluate returns text": (lambda: _evaluated({"a": "b"}), "evaluate | b | Return"),
        "early stopping by name": (
            partial(_fit, early_stopping="nlpd"),
            "early_stopping | nlpd | Pass",
        ),
        "checkpoints in a file": (
            partial(_fit, checkpoint_dir=__file__),
            "checkpoint_dir | cannot be written | Name",
        ),
        "scalars in a file": (
            partial(_fit, log_dir=__file__),
            "log_dir | cannot be written | Name",
        ),
        "no pair": (lambda: _shuffled(None), "data | NoneType | Pass"),
        "three arrays": (lambda: _shuffled((X, Y, Y)), "data | tuple | Pass"),
        "numbers for arrays": (lambda: _shuffled((1.0, 2.0)), "data | () | Pass"),
        "seed of batches": (lambda: _shuffled((X, Y), "a"), "seed | 'a' | Pass"),
        "seed of minibatches": (
            lambda: point().minibatch_training_loss_closure(2, seed=-1),
            "seed | -1 | Pass",
        ),
        "no strategy": (
            lambda: pep.training.sharded_training_loss(regression(), None),
            "strategy | None | Pass",
        ),
    },
    "estimators": {
        "quantiles before fit": (
            lambda: _regressor().predict_quantiles(ROWS),
            "This PEPRegressor | not fitted | Call 'fit'",
        ),
        "quantiles in a matrix": (
            lambda: _fitted().predict_quantiles(ROWS, [[0.1, 0.9]]),
            "quantiles | between",
        ),
        "samples text": (lambda: _fitted().sample_y(ROWS, "a"), "n_samples | 'a' | positive"),
        "inducing None": (
            lambda: _regressor(inducing=None).fit(ROWS, TARGETS),
            "inducing | None | Choose",
        ),
        "inducing names": (
            lambda: _regressor(inducing=["a"]).fit(ROWS, TARGETS),
            "inducing | Convert",
        ),
    },
    "metrics": {
        "text": (lambda: pep.metrics.smse(np.array(["a", "b"]), np.ones(2)), "Y | <U1 | convert"),
        "None": (lambda: pep.metrics.mean_nlpd(None), "log_density | NoneType | object | convert"),
        "label that is no class": (
            lambda: _calibration([0, 7], [[0.5, 0.5]] * 2),
            "labels | 0 to 1 | encode",
        ),
        "probability of 4": (
            lambda: _calibration([0, 1], [[4.0, 4.0]] * 2),
            "probability | 4.0 | pass",
        ),
        "half a bin": (
            lambda: _calibration([0, 1], [[0.5, 0.5]] * 2, 2.5),
            "num_bins | 2.5 | whole",
        ),
    },
}

#: By entry point or room, and name: a call, and words. All are ``ValueError``.
REFUSALS: dict[str, dict[str, tuple[Callable[[], Any], str]]] = {
    **{
        entry: {name: (partial(call, **changes), words) for name, (changes, words) in table.items()}
        for entry, (call, table) in ENTRIES.items()
    },
    **BEYOND,
}
