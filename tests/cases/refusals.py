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
BLOCKS = np.array([0, 0, 1, 1, 2, 2, 2])
TWO_OUTPUTS = X, np.hstack([Y, Y])
SHARED_POINTS = SharedIndependentInducingVariables(InducingPoints(Z))

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


def _of_classes(kernel: Any, inducing_variable: Any) -> dict[str, Any]:
    options = {"kernel": kernel, "inducing_variable": inducing_variable}
    return {"data": (X, LABELS), "likelihood": MultiClass(C), **options}


def _kernel_in_single_precision() -> SquaredExponential:
    with gpflow.config.as_context(gpflow.config.Config(float=np.float32)):
        return SquaredExponential()


# Words, and arguments in place of accepted ones.

REGRESSION = [
    ("X and Y | 7 | 5 | rows", {"data": (X, Y[:-2])}),
    ("X and Y | 4 | 7 | rows", {"data": (X[:4], Y)}),
    ("X | (7,) | N, D", {"data": (X[:, 0], Y)}),
    ("Y | (7,) | N, P", {"data": (X, Y[:, 0])}),
    ("X | 7, 1, 2 | N, D", {"data": (X[:, None, :], Y)}),
    ("X | NaN | finite", {"data": (with_value(X, np.nan), Y)}),
    ("Y | NaN | finite", {"data": (X, with_value(Y, np.inf))}),
    ("X | infinity | finite", {"data": (with_value(X, np.inf), Y)}),
    ("Y | infinity | finite", {"data": (X, with_value(Y, -np.inf))}),
    ("X | NaN | finite", {"data": (tf.Variable(with_value(X, np.nan)), tf.Variable(Y))}),
    ("data | 0 | row", {"data": (X[:0], Y[:0])}),
    ("data | X | 0 | column", {"data": (X[:, :0], Y)}),
    ("data | Y | 0 | column", {"data": (X, Y[:, :0])}),
    ("alpha | -0.1 | [0, 1]", {"alpha": -0.1}),
    ("alpha | 1.5 | [0, 1]", {"alpha": 1.5}),
    ("alpha | nan | [0, 1]", {"alpha": np.nan}),
    ("alpha | inf | [0, 1]", {"alpha": np.inf}),
    ("alpha | 1.25 | [0, 1]", {"alpha": np.where(np.arange(N) == 3, 1.25, 0.5)}),
    ("alpha | 6 | 7", {"alpha": np.full(N - 1, 0.5)}),
    ("alpha | 7, 1 | 7", {"alpha": np.full([N, 1], 0.5)}),
    ("alpha | 7 | 3 | block", {"alpha": np.full(N, 0.5), "blocks": BLOCKS}),
    ("alpha | 4 | 3 | block", {"alpha": np.full(4, 0.5), "blocks": BLOCKS}),
    ("blocks | 6 | 7", {"blocks": np.zeros(N - 1, dtype=int)}),
    ("blocks | 7, 1 | 7", {"blocks": np.zeros([N, 1], dtype=int)}),
    ("blocks | float64 | integers", {"blocks": np.linspace(0.0, 1.0, N)}),
    ("chunk_size | 0 | positive", {"chunk_size": 0}),
    ("chunk_size | -3 | positive", {"chunk_size": -3}),
    ("chunk_size | 2.5 | integer", {"chunk_size": 2.5}),
    ("chunk_size | '10' | integer", {"chunk_size": "10"}),
    ("chunk_size | True | integer", {"chunk_size": True}),
    (
        "noise_variance and likelihood | noise_variance | likelihood | both",
        {"noise_variance": 0.1, "likelihood": gpflow.likelihoods.Gaussian(0.1)},
    ),
    ("likelihood | StudentT | Gaussian", {"likelihood": gpflow.likelihoods.StudentT()}),
    (
        "kernel | SeparateIndependent | multi",
        {"data": TWO_OUTPUTS, "kernel": SeparateIndependent(_kernels(2))},
    ),
    (
        "kernel and inducing_variable | SharedIndependent | both of one output",
        {"data": TWO_OUTPUTS, "kernel": SharedIndependent(SquaredExponential(), output_dim=2)},
    ),
    ("X | float32 | float64", {"data": (X.astype(np.float32), Y.astype(np.float32))}),
    ("X | float32 | float64", {"data": (X.astype(np.float32), Y)}),
    ("Y | int64 | float64", {"data": (X, Y.astype(int))}),
    (
        "kernel | fails at a row of X with 1 column | shapes",  # two lengthscales
        {
            "data": (X[:, :1], Y),
            "kernel": SquaredExponential(lengthscales=[1.0, 1.0]),
            "inducing_variable": Z[:, :1],
        },
    ),
    ("inducing_variable | 3 | column | 2", {"inducing_variable": np.hstack([Z, Z[:, :1]])}),
    ("inducing_variable | 1 | column | 2", {"inducing_variable": Z[:, :1]}),
    ("inducing_variable | (3,) | M, D", {"inducing_variable": Z[:, 0]}),
    ("inducing_variable | 0 | inducing | at least", {"inducing_variable": Z[:0]}),
    (
        "inducing_variable and kernel | SharedIndependentInducingVariables | pair",
        {"inducing_variable": SHARED_POINTS},
    ),
    ("num_latent_gps | 2 | 1", {"num_latent_gps": 2}),
    ("bound | 'titsias' | 'standard' or 'tight'", {"bound": "titsias"}),
    ("bound | True | 'standard' or 'tight'", {"bound": True}),
]


POINT = [
    ("X and Y | 7 | 5 | rows", {"data": (X, LABELS[:-2])}),
    ("Y | (7,) | N, P", {"data": (X, LABELS[:, 0])}),
    ("X | NaN | finite", {"data": (X * np.nan, LABELS)}),
    ("Y | infinity | finite", {"data": (X, with_value(LABELS, np.inf))}),
    ("Y | 2 | row 4 | 0 or 1", targets(2.0, Bernoulli())),
    ("Y | -1 | row 4 | 0 or 1", targets(-1.0, Bernoulli())),
    ("Y | 0.5 | row 4 | 0 or 1", targets(0.5, Bernoulli())),
    ("Y | 3 | 0 to 2 | MultiClass", targets(3.0, MultiClass(C))),
    ("Y | -1 | 0 to 2 | MultiClass", targets(-1.0, MultiClass(C))),
    ("Y | 1.5 | 0 to 2 | Softmax", targets(1.5, Softmax(C))),
    ("Y | 3 | 0 to 2", targets(3.0, Ordinal(np.array([0.0, 1.0])))),
    ("Y | -2 | whole numbers | Poisson", targets(-2.0, Poisson())),
    ("Y | 1.5 | whole numbers", targets(1.5, Poisson())),
    ("Y | -0.1 | from 0 | Exponential", targets(-0.1, Exponential())),
    ("Y | -0.1 | from 0 | Gamma", targets(-0.1, Gamma())),
    ("Y | 1.2 | 0 to 1 | Beta", targets(1.2, Beta(), 0.5)),
    ("likelihood | str | gpflow.likelihoods", {"likelihood": "bernoulli"}),
    ("likelihood | NoneType | gpflow.likelihoods", {"likelihood": None}),
    ("alpha | 1.5 | [0, 1]", {"alpha": 1.5}),
    ("alpha | 6 | 7", {"alpha": np.full(N - 1, 0.5)}),
    ("chunk_size | 0 | at least 1", {"chunk_size": 0}),
    ("max_sweeps | 0 | at least 1", {"max_sweeps": 0}),
    ("max_sweeps | -1 | at least 1", {"max_sweeps": -1}),
    ("max_sweeps | 2.5 | integer", {"max_sweeps": 2.5}),
    ("max_sweeps | True | integer", {"max_sweeps": True}),
    ("tolerance | 0.0 | positive", {"tolerance": 0.0}),
    ("tolerance | -1e-06 | positive", {"tolerance": -1e-6}),
    ("tolerance | nan | positive", {"tolerance": np.nan}),
    ("tolerance | inf | positive", {"tolerance": np.inf}),
    ("tolerance | '1e-6' | positive", {"tolerance": "1e-6"}),
    (
        "W | (3, 3) | 1 rows | LinearCoregionalization",
        _of_classes(LinearCoregionalization(_kernels(C), W=np.eye(C)), SHARED_POINTS),
    ),
    ("kernel | 2 | 3", _of_classes(SeparateIndependent(_kernels(2)), SHARED_POINTS)),
    (
        "inducing_variable | 4 | 3",
        _of_classes(
            SharedIndependent(SquaredExponential(), output_dim=C),
            SeparateIndependentInducingVariables([InducingPoints(Z) for _ in range(4)]),
        ),
    ),
    (
        "kernel and inducing_variable | SeparateIndependent | InducingPoints | both",
        _of_classes(SeparateIndependent(_kernels(C)), Z),
    ),
    (
        "inducing_variable and kernel | SharedIndependentInducingVariables with | pair",
        _of_classes(SquaredExponential(), SHARED_POINTS),
    ),
    ("num_latent_gps | 2 | 3", {**_of_classes(SquaredExponential(), Z), "num_latent_gps": 2}),
    ("num_latent_gps | 2 | 1", {"num_latent_gps": 2}),
    ("Y | 2 | 1", {"data": (X, np.hstack([LABELS, LABELS])), "likelihood": MultiClass(C)}),
    ("X | float32 | float64", {"data": (X.astype(np.float32), LABELS.astype(np.float32))}),
    ("inducing_variable | 3 | column | 2", {"inducing_variable": np.hstack([Z, Z[:, :1]])}),
]


UPDATE_SITES = [
    ("damping | 0.0 | (0, 1]", {"damping": 0.0}),
    ("damping | 1.1 | (0, 1]", {"damping": 1.1}),
    ("damping | nan | (0, 1]", {"damping": np.nan}),
    ("max_sweeps | 0 | at least 1", {"max_sweeps": 0}),
    ("max_sweeps | -2 | at least 1", {"max_sweeps": -2}),
    ("tolerance | 0 | positive", {"tolerance": 0.0}),
    ("tolerance | -1 | positive", {"tolerance": -1.0}),
]


TIED = [
    ("num_data | None | number of rows", {"num_data": None}),
    ("num_data | 0 | at least 1", {"num_data": 0}),
    ("num_data | 2.5 | number of rows", {"num_data": 2.5}),
    ("num_data | nan | number of rows", {"num_data": np.nan}),
    ("num_data | '7' | number of rows", {"num_data": "7"}),
    ("alpha | 1.5 | [0, 1]", {"alpha": 1.5}),
    ("alpha | (7,) | one number", {"alpha": np.ones(7)}),
    ("kernel | float | gpflow.kernels.Kernel", {"kernel": 1.0}),
    ("likelihood | str | likelihoods", {"likelihood": "probit"}),
    ("inducing_variable | 0 | at least 1", {"inducing_variable": X[:0]}),
    ("inducing_variable | (7,) | [M, D]", {"inducing_variable": X[:, 0]}),
    ("num_latent_gps | 0 | at least 1", {"num_latent_gps": 0}),
    ("num_latent_gps | 0.5 | whole", {"num_latent_gps": 0.5}),
    (
        "num_latent_gps | 3 | 1 | wrap",
        {"kernel": SeparateIndependent(_kernels(3)), "num_latent_gps": 3},
    ),
    (
        "num_latent_gps | 1 | 3 | Pass",
        {
            "kernel": SeparateIndependent(_kernels(3)),
            "inducing_variable": SHARED_POINTS,
            "num_latent_gps": 1,
        },
    ),
    ("q_mu | (2, 1) | (3, 1)", {"q_mu": np.zeros([2, 1])}),
    ("q_mu | (3,) | (3, 3)", {"q_mu": np.zeros(3)}),
    ("q_mu | NaN | finite", {"q_mu": np.full([3, 1], np.nan)}),
    ("q_sqrt | (2, 3, 3) | (1, 3, 3)", {"q_mu": np.zeros([3, 1]), "q_sqrt": np.zeros([2, 3, 3])}),
    ("q_sqrt | (3, 1) | (3, 3, 3)", {"q_sqrt": np.ones([3, 1])}),
    ("q_sqrt | above the diagonal | lower triangular", {"q_sqrt": np.ones([1, 3, 3])}),
    ("kernel | float32 | float64", {"kernel": _kernel_in_single_precision()}),
]


BATCH = [
    ("data | ndarray | pair", {"data": X}),
    ("X | NaN | finite", {"data": (X * np.nan, LABELS)}),
    ("Y | 2 | 0 or 1", {"data": (X, LABELS * 2)}),
    ("Y | 2 | 0 or 1", {"data": (X, LABELS.astype(int) * 2)}),
    ("X | float32 | float64", {"data": (X.astype(np.float32), LABELS)}),
    ("inducing_variable | 2 | 4", {"data": (np.hstack([X, X]), LABELS)}),
    ("num_latent_gps | 2 | 1", {"data": (X, np.hstack([LABELS, LABELS]))}),
    ("X and Y | 7 | 4", {"data": (X, LABELS[:4])}),
    ("data | (0, 2) | one row", {"data": (X[:0], LABELS[:0])}),
    ("num_latent_gps | 1 | 3", {"likelihood": MultiClass(3), "data": (X, LABELS)}),
    (
        "Y | 3 columns | one-hot",
        {"likelihood": MultiClass(3), "data": (X, np.eye(3)[CLASSES[:, 0]])},
    ),
    ("Y | -1 | whole numbers", {"likelihood": Poisson(), "data": (X, -LABELS)}),
]


CLASSIFICATION = [
    ("Y | got the labels -1, 1 | expected 0 to C - 1 | Recode", {"Y": 2 * LABELS.astype(int) - 1}),
    ("Y | got the labels 0, 2 | or pass the likelihood", {"Y": 2 * LABELS.astype(int)}),
    ("Y | got the labels 0 | two or more classes", {"Y": 0 * LABELS.astype(int)}),
    ("Y | got the labels 0.5, 1.5 | expected 0 to C - 1", {"Y": LABELS + 0.5}),
    ("Y | got labels of type | Encode them", {"Y": LABELS.astype(str)}),
    ("Y | got 2 at row 2 | expected 0 or 1", {"Y": CLASSES, "likelihood": Bernoulli()}),
    ("likelihood | got Poisson | models.PEP", {"Y": LABELS, "likelihood": Poisson()}),
]


MINIBATCHES = [
    ("batch_size | 0 | from 1 to", {"batch_size": 0}),
    ("batch_size | 2.5 | from 1 to", {"batch_size": 2.5}),
    ("batch_size | 8 | from 1 to 7", {"batch_size": N + 1}),
    ("refresh_every | 0 | positive", {"batch_size": 2, "refresh_every": 0}),
]

ENTRIES: dict[str, tuple[Callable[..., Any], list[tuple[str, dict[str, Any]]]]] = {
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
    return pep.training.starts.greedy_variational(
        (X, Y), 2, kernel=SquaredExponential(), noise_variance=noise_variance, seed=0
    )


def _calibration(labels: Any, probability: Any, bins: Any = 10) -> Any:
    return pep.metrics.calibration(np.array(labels), np.array(probability), bins)


def _of(call: Any, **changes: Any) -> Any:
    return lambda: call(**changes)


#: By room: words, and a call.
BEYOND: dict[str, list[tuple[str, Callable[[], Any]]]] = {
    "parts of models": [
        (
            "kernel | SquaredExponential | 2 column | active_dims",
            partial(regression, kernel=SquaredExponential(active_dims=[5])),
        ),
        (
            "kernel | 2 column | Check",
            partial(point, kernel=SquaredExponential(lengthscales=[1.0, 1.0, 1.0])),
        ),
        (
            "kernel | 2 column | Check",
            partial(
                tied(pep.models.ARPEP), kernel=SquaredExponential(lengthscales=[1.0, 1.0, 1.0])
            ),
        ),
        ("mean_function | str | gpflow.functions", partial(regression, mean_function="zero")),
        (
            "mean_function | Linear | 2 column",
            partial(regression, mean_function=Linear(np.ones((3, 1)))),
        ),
        ("mean_function | (1, 2) | Use", partial(regression, mean_function=Constant(np.ones(2)))),
        ("X | list | Convert", partial(regression, data=(RAGGED, Y))),
        ("X | Convert", partial(regression, data=(X.astype(object), Y))),
        ("X | NoneType | Convert", partial(regression, data=(None, Y))),
        ("inducing_variable | NaN", partial(regression, inducing_variable=BAD)),
        (
            "inducing_variable | infinity",
            partial(tied(pep.models.ARPEP), inducing_variable=with_value(X, np.inf)),
        ),
        ("inducing_variable | Give", partial(regression, inducing_variable=Z.astype(str))),
        (
            "inducing_variable | complex128 | Give",
            partial(regression, inducing_variable=Z.astype(complex)),
        ),
        ("inducing_variable | Give", partial(regression, inducing_variable=RAGGED)),
        ("Z | NaN", lambda: pep.inducing_variables.BlurredInducingPoints(Z * np.nan, np.ones(3))),
        *(
            ("noise_variance | got | expected | Pass", partial(regression, noise_variance=value))
            for value in (-0.1, 0.0, np.nan, np.inf, "a", np.full(N, 0.1))
        ),
        (
            "data | batch | num_data is: 3 | Pass",
            partial(batch_of_arpep, data=(X, LABELS), num_data=3),
        ),
        ("damping | 'a' | (0, 1]", partial(update_sites, damping="a")),
    ],
    "predictions": [
        *(
            (words, partial(predict, bad))
            for predict in (
                lambda bad: regression().predict_y(bad),
                lambda bad: regression().posterior().predict_f(bad),
                lambda bad: point().predict_f(bad),
                lambda bad: tied(pep.models.ARPEP)().predict_f(bad),
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
            lambda: point(data=(X, 1.0 * CLASSES), likelihood=MultiClass(C)).predict_f(X, near=2),
        ),
        ("near | 0 | at least 1", lambda: point().posterior(near=2).predict_f(X, near=0)),
        ("blocks | without blocks", lambda: point().predict_f(X, blocks="nearest")),
        ("near | 0 | positive", lambda: regression().near_row_training_loss_closure(0)),
        ("near | 7 | 0 to 6", lambda: regression().near_row_training_loss_closure(7)),
        ("near | blocks", lambda: regression(blocks=BLOCKS).near_row_training_loss_closure(2)),
        ("batch_size | 0", lambda: point().near_row_training_loss_closure(2, batch_size=0)),
        ("num_samples | -1 | positive", lambda: regression().predict_f_samples(X, -1)),
    ],
    "selection": [
        ("X | Convert", lambda: pep.training.starts.random_subset(X.astype(str), 2, seed=0)),
        ("X | Convert", lambda: pep.training.starts.kmeans(X.astype(complex), 2, seed=0)),
        ("X | Convert", lambda: pep.training.starts.random_subset(RAGGED, 1, seed=0)),
        ("seed | 'a' | at least 0", lambda: pep.training.starts.random_subset(X, 2, seed="a")),
        ("seed | -1 | at least 0", lambda: pep.training.starts.kmeans(X, 2, seed=-1)),
        (
            "covariances | 'spherical' | Choose",
            lambda: pep.training.starts.kmeans(X, 2, seed=1, covariances=np.ones(3)),
        ),
        (
            "tolerance | 'a' | at least 0",
            lambda: pep.training.starts.greedy_variance(
                X, 2, kernel=SquaredExponential(), tolerance="a"
            ),
        ),
        (
            "kernel | Matern32 | 2 column",
            lambda: pep.training.starts.greedy_variance(
                X, 2, kernel=Matern32(lengthscales=[1.0, 1.0, 1.0])
            ),
        ),
        ("noise_variance | -1 | Pass", lambda: _variational(-1.0)),
    ],
    "training": [
        ("tolerance | 'a' | at least 0", partial(_maximise, tolerance="a")),
        ("seconds | 'a' | positive", partial(_maximise, seconds="a")),
        ("seed | 'a' | Pass", partial(_maximise, seed="a")),
        ("callback | 3 | Pass", partial(_maximise, callback=3)),
        ("evaluate | 3 | Pass", partial(_fit, evaluate=3)),
        ("evaluate | 3.0 | Return", lambda: _evaluated(3.0)),
        ("evaluate | b | Return", lambda: _evaluated({"a": "b"})),
        ("early_stopping | nlpd | Pass", partial(_fit, early_stopping="nlpd")),
        ("checkpoint_dir | cannot be written | Name", partial(_fit, checkpoint_dir=__file__)),
        ("log_dir | cannot be written | Name", partial(_fit, log_dir=__file__)),
        ("data | NoneType | Pass", lambda: _shuffled(None)),
        ("data | tuple | Pass", lambda: _shuffled((X, Y, Y))),
        ("data | () | Pass", lambda: _shuffled((1.0, 2.0))),
        ("seed | 'a' | Pass", lambda: _shuffled((X, Y), "a")),
        ("seed | -1 | Pass", lambda: point().minibatch_training_loss_closure(2, seed=-1)),
        ("strategy | None | Pass", lambda: pep.training.sharded_training_loss(regression(), None)),
    ],
    "estimators": [
        (
            "This PEPRegressor | not fitted | Call 'fit'",
            lambda: _regressor().predict_quantiles(ROWS),
        ),
        ("quantiles | between", lambda: _fitted().predict_quantiles(ROWS, [[0.1, 0.9]])),
        ("n_samples | 'a' | positive", lambda: _fitted().sample_y(ROWS, "a")),
        ("inducing | None | Choose", lambda: _regressor(inducing=None).fit(ROWS, TARGETS)),
        ("inducing | Convert", lambda: _regressor(inducing=["a"]).fit(ROWS, TARGETS)),
    ],
    "metrics": [
        ("Y | <U1 | convert", lambda: pep.metrics.smse(np.array(["a", "b"]), np.ones(2))),
        ("log_density | NoneType | object | convert", lambda: pep.metrics.mean_nlpd(None)),
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
