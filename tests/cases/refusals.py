"""
What models refuse, in one table: the entry point, the bad argument, and the words that the message
must have for what was got and for what was expected.
"""

import re
from collections.abc import Callable
from typing import Any, NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.inducing_variables import (
    InducingPoints,
    SeparateIndependentInducingVariables,
    SharedIndependentInducingVariables,
)
from gpflow.kernels import (
    LinearCoregionalization,
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

#: What to do about it is in each message.
REMEDY = re.compile(
    r"\b(pass|give|use|set|assign|choose|make|reshape|remove|drop|convert|cast|check|replace|"
    r"supply|provide|leave|omit|add|recode|encode|create|wrap)\b|\[:, None\]",
    re.IGNORECASE,
)
#: For the numbers of the inner loop it is a good one.
GOOD_NUMBER = re.compile(r"^(max_sweeps|tolerance|damping):.*\b(usual|such as|undamped)\b")


class Refused(NamedTuple):
    """Arguments, and regular expressions (ignoring case) that the message must contain."""

    changes: Changes
    got: list[str]
    expected: list[str]


# Entry points. Each takes the changes to arguments that are accepted.


def regression(**changes: Any) -> "pep.models.PEPRegression":
    arguments = {
        "data": (X, Y),
        "kernel": SquaredExponential(),
        "inducing_variable": Z,
        **changes,
    }
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


REGRESSION = {
    "fewer rows in Y": Refused(lambda: {"data": (X, Y[:-2])}, [r"\b7\b", r"\b5\b"], ["rows|same"]),
    "more rows in Y": Refused(lambda: {"data": (X[:4], Y)}, [r"\b4\b", r"\b7\b"], ["rows|same"]),
    "1-D X": Refused(lambda: {"data": (X[:, 0], Y)}, [r"\bX\b", r"\(7,?\)|\[7\]"], [r"N, ?D"]),
    "1-D Y": Refused(lambda: {"data": (X, Y[:, 0])}, [r"\bY\b", r"\(7,?\)|\[7\]"], [r"N, ?P"]),
    "3-D X": Refused(lambda: {"data": (X[:, None, :], Y)}, [r"\bX\b", r"7, ?1, ?2"], [r"N, ?D"]),
    "NaN in X": Refused(
        lambda: {"data": (with_value(X, np.nan), Y)}, [r"\bX\b", "nan"], ["finite"]
    ),
    "NaN in Y": Refused(
        lambda: {"data": (X, with_value(Y, np.nan))}, [r"\bY\b", "nan"], ["finite"]
    ),
    "inf in X": Refused(
        lambda: {"data": (with_value(X, np.inf), Y)}, [r"\bX\b", "inf"], ["finite"]
    ),
    "-inf in Y": Refused(
        lambda: {"data": (X, with_value(Y, -np.inf))}, [r"\bY\b", "inf"], ["finite"]
    ),
    "NaN in a variable": Refused(
        lambda: {"data": (tf.Variable(with_value(X, np.nan)), tf.Variable(Y))},
        [r"\bX\b", "nan"],
        ["finite"],
    ),
    "no rows": Refused(lambda: {"data": (X[:0], Y[:0])}, [r"\b0\b|no rows|empty"], ["row"]),
    "no inputs": Refused(lambda: {"data": (X[:, :0], Y)}, [r"\bX\b", r"\b0\b"], ["column"]),
    "no outputs": Refused(lambda: {"data": (X, Y[:, :0])}, [r"\bY\b", r"\b0\b"], ["column"]),
    "alpha below 0": Refused(lambda: {"alpha": -0.1}, ["alpha", r"-0\.1"], [r"\[0, 1\]"]),
    "alpha above 1": Refused(lambda: {"alpha": 1.5}, ["alpha", r"1\.5"], [r"\[0, 1\]"]),
    "alpha NaN": Refused(lambda: {"alpha": np.nan}, ["alpha", "nan"], [r"\[0, 1\]"]),
    "alpha infinite": Refused(lambda: {"alpha": np.inf}, ["alpha", "inf"], [r"\[0, 1\]"]),
    "one alpha of a row above 1": Refused(
        lambda: {"alpha": np.where(np.arange(N) == 3, 1.25, 0.5)},
        ["alpha", r"1\.25"],
        [r"\[0, 1\]"],
    ),
    "alpha of the wrong length": Refused(
        lambda: {"alpha": np.full(N - 1, 0.5)}, ["alpha", r"\b6\b"], [r"\b7\b"]
    ),
    "alpha of two dimensions": Refused(
        lambda: {"alpha": np.full([N, 1], 0.5)}, ["alpha", r"7, ?1"], [r"\b7\b|one per row"]
    ),
    "alpha per row with fewer blocks": Refused(
        lambda: {"alpha": np.full(N, 0.5), "blocks": np.array([0, 0, 1, 1, 2, 2, 2])},
        ["alpha", r"\b7\b"],
        [r"\b3\b", "block"],
    ),
    "alpha per block of another count": Refused(
        lambda: {"alpha": np.full(4, 0.5), "blocks": np.array([0, 0, 1, 1, 2, 2, 2])},
        ["alpha", r"\b4\b"],
        [r"\b3\b", "block"],
    ),
    "too few block labels": Refused(
        lambda: {"blocks": np.zeros(N - 1, dtype=int)}, ["blocks", r"\b6\b"], [r"\b7\b"]
    ),
    "block labels of two dimensions": Refused(
        lambda: {"blocks": np.zeros([N, 1], dtype=int)}, ["blocks", r"7, ?1"], [r"\b7\b|\[N\]"]
    ),
    "block labels not integers": Refused(
        lambda: {"blocks": np.linspace(0.0, 1.0, N)}, ["blocks", "float"], ["int"]
    ),
    "chunk_size 0": Refused(
        lambda: {"chunk_size": 0}, ["chunk_size", r"\b0\b"], ["positive|at least 1"]
    ),
    "chunk_size negative": Refused(
        lambda: {"chunk_size": -3}, ["chunk_size", "-3"], ["positive|at least 1"]
    ),
    "chunk_size not an integer": Refused(
        lambda: {"chunk_size": 2.5}, ["chunk_size", r"2\.5|float"], ["int"]
    ),
    "chunk_size a string": Refused(
        lambda: {"chunk_size": "10"}, ["chunk_size", "'10'|str"], ["int"]
    ),
    "chunk_size a boolean": Refused(
        lambda: {"chunk_size": True}, ["chunk_size", "True|bool"], ["int"]
    ),
    "noise variance and likelihood": Refused(
        lambda: {"noise_variance": 0.1, "likelihood": gpflow.likelihoods.Gaussian(0.1)},
        ["noise_variance", "likelihood"],
        ["both|one of|either|only one"],
    ),
    "likelihood not Gaussian": Refused(
        lambda: {"likelihood": gpflow.likelihoods.StudentT()}, ["StudentT"], ["Gaussian"]
    ),
    "separate kernels per output": Refused(
        lambda: {
            "data": (X, np.hstack([Y, Y])),
            "kernel": gpflow.kernels.SeparateIndependent(
                [gpflow.kernels.SquaredExponential(), gpflow.kernels.SquaredExponential()]
            ),
        },
        ["SeparateIndependent"],
        ["single|one kernel|shared|multi"],
    ),
    "shared multi-output kernel": Refused(
        lambda: {
            "data": (X, np.hstack([Y, Y])),
            "kernel": gpflow.kernels.SharedIndependent(
                gpflow.kernels.SquaredExponential(), output_dim=2
            ),
        },
        ["SharedIndependent"],
        ["single|one kernel|shared|multi"],
    ),
    "float32 data": Refused(
        lambda: {"data": (X.astype(np.float32), Y.astype(np.float32))}, ["float32"], ["float64"]
    ),
    "float32 X only": Refused(
        lambda: {"data": (X.astype(np.float32), Y)}, ["float32"], ["float64"]
    ),
    "integer Y": Refused(lambda: {"data": (X, Y.astype(int))}, [r"\bY\b", "int"], ["float64"]),
    "Z with one column too many": Refused(
        lambda: {"inducing_variable": np.hstack([Z, Z[:, :1]])}, [r"\b3\b"], ["columns?", r"\b2\b"]
    ),
    "Z with one column too few": Refused(
        lambda: {"inducing_variable": Z[:, :1]}, [r"\b1\b"], ["columns?", r"\b2\b"]
    ),
    "1-D Z": Refused(lambda: {"inducing_variable": Z[:, 0]}, [r"\(3,?\)|\[3\]"], [r"M, ?D"]),
    "no inducing variables": Refused(
        lambda: {"inducing_variable": Z[:0]}, [r"\b0\b|no rows|empty"], ["inducing", "row|at least"]
    ),
    "several inducing variables": Refused(
        lambda: {
            "inducing_variable": gpflow.inducing_variables.SharedIndependentInducingVariables(
                gpflow.inducing_variables.InducingPoints(Z)
            )
        },
        ["SharedIndependentInducingVariables"],
        ["single|one|shared|multi"],
    ),
    "another number of latent functions": Refused(
        lambda: {"num_latent_gps": 2}, ["num_latent_gps", r"\b2\b"], [r"\b1\b"]
    ),
    "unknown conditional": Refused(
        lambda: {"conditional": "titsias"}, ["conditional", "'titsias'"], ["'prior', 'scaled'"]
    ),
    "conditional True": Refused(
        lambda: {"conditional": True}, ["conditional", "True"], ["'prior', 'scaled'"]
    ),
}


POINT = {
    "fewer rows in Y": Refused(
        lambda: {"data": (X, LABELS[:-2])}, [r"\b7\b", r"\b5\b"], ["rows|same"]
    ),
    "1-D Y": Refused(lambda: {"data": (X, LABELS[:, 0])}, [r"\bY\b", r"\(7,?\)"], [r"N, ?P"]),
    "NaN in X": Refused(lambda: {"data": (X * np.nan, LABELS)}, [r"\bX\b", "nan"], ["finite"]),
    "inf in Y": Refused(lambda: {"data": (X, LABELS * np.inf)}, [r"\bY\b", "inf"], ["finite"]),
    "label 2 of two": Refused(
        lambda: targets(2.0, Bernoulli()), [r"\bY\b", r"\b2\b", r"row 4"], ["0 or 1"]
    ),
    "label -1 of two": Refused(
        lambda: targets(-1.0, Bernoulli()), [r"\bY\b", "-1", "row 4"], ["0 or 1"]
    ),
    "label 0.5": Refused(
        lambda: targets(0.5, Bernoulli()), [r"\bY\b", r"0\.5", "row 4"], ["0 or 1"]
    ),
    "class 3 of three": Refused(
        lambda: targets(3.0, MultiClass(C)), [r"\bY\b", r"\b3\b"], [r"0 to 2", "MultiClass"]
    ),
    "class -1": Refused(
        lambda: targets(-1.0, MultiClass(C)), [r"\bY\b", "-1"], [r"0 to 2", "MultiClass"]
    ),
    "class 1.5 of a softmax": Refused(
        lambda: targets(1.5, Softmax(C)), [r"\bY\b", r"1\.5"], [r"0 to 2", "Softmax"]
    ),
    "ordinal class 3 of three": Refused(
        lambda: targets(3.0, Ordinal(np.array([0.0, 1.0]))), [r"\bY\b", r"\b3\b"], [r"0 to 2"]
    ),
    "negative count": Refused(
        lambda: targets(-2.0, Poisson()), [r"\bY\b", "-2"], ["whole numbers", "Poisson"]
    ),
    "half a count": Refused(
        lambda: targets(1.5, Poisson()), [r"\bY\b", r"1\.5"], ["whole numbers"]
    ),
    "negative duration": Refused(
        lambda: targets(-0.1, Exponential()), [r"\bY\b", r"-0\.1"], ["from 0", "Exponential"]
    ),
    "negative amount": Refused(
        lambda: targets(-0.1, Gamma()), [r"\bY\b", r"-0\.1"], ["from 0", "Gamma"]
    ),
    "fraction above 1": Refused(
        lambda: targets(1.2, Beta(), 0.5), [r"\bY\b", r"1\.2"], ["0 to 1", "Beta"]
    ),
    "not a likelihood": Refused(
        lambda: {"likelihood": "bernoulli"}, ["likelihood", "str"], [r"gpflow\.likelihoods"]
    ),
    "no likelihood": Refused(
        lambda: {"likelihood": None}, ["likelihood", "None"], [r"gpflow\.likelihoods"]
    ),
    "alpha above 1": Refused(lambda: {"alpha": 1.5}, ["alpha", r"1\.5"], [r"\[0, 1\]"]),
    "alpha of the wrong length": Refused(
        lambda: {"alpha": np.full(N - 1, 0.5)}, ["alpha", r"\b6\b"], [r"\b7\b"]
    ),
    "unknown conditional": Refused(
        lambda: {"conditional": "local"}, ["conditional", "'local'"], ["'prior', 'scaled'"]
    ),
    "neighbours": Refused(lambda: {"neighbours": 5}, ["neighbours", "5"], ["PEPRegression"]),
    "scaled conditional at alpha 0.5": Refused(
        lambda: {"conditional": "scaled"}, ["alpha", "between 0 and 1"], ["0 or 1"]
    ),
    "chunk_size 0": Refused(lambda: {"chunk_size": 0}, ["chunk_size", r"\b0\b"], ["at least 1"]),
    "max_sweeps 0": Refused(lambda: {"max_sweeps": 0}, ["max_sweeps", r"\b0\b"], ["at least 1"]),
    "max_sweeps negative": Refused(
        lambda: {"max_sweeps": -1}, ["max_sweeps", "-1"], ["at least 1"]
    ),
    "max_sweeps not an integer": Refused(
        lambda: {"max_sweeps": 2.5}, ["max_sweeps", r"2\.5"], ["integer"]
    ),
    "max_sweeps a boolean": Refused(
        lambda: {"max_sweeps": True}, ["max_sweeps", "True"], ["integer"]
    ),
    "tolerance 0": Refused(lambda: {"tolerance": 0.0}, ["tolerance", r"0\.0"], ["positive"]),
    "tolerance negative": Refused(
        lambda: {"tolerance": -1e-6}, ["tolerance", "-1e-0?6"], ["positive"]
    ),
    "tolerance NaN": Refused(lambda: {"tolerance": np.nan}, ["tolerance", "nan"], ["positive"]),
    "tolerance infinite": Refused(
        lambda: {"tolerance": np.inf}, ["tolerance", "inf"], ["positive"]
    ),
    "tolerance a string": Refused(
        lambda: {"tolerance": "1e-6"}, ["tolerance", "'1e-6'"], ["positive"]
    ),
    "kernel that mixes latent functions": Refused(
        lambda: _of_classes(
            kernel=LinearCoregionalization(_kernels(C), W=np.eye(C)),
            inducing_variable=SharedIndependentInducingVariables(InducingPoints(Z)),
        ),
        ["kernel", "LinearCoregionalization"],
        ["independent", "SharedIndependent"],
    ),
    "too few kernels": Refused(
        lambda: _of_classes(
            kernel=SeparateIndependent(_kernels(2)),
            inducing_variable=SharedIndependentInducingVariables(InducingPoints(Z)),
        ),
        ["kernel", r"\b2\b"],
        [r"\b3\b"],
    ),
    "too many inducing variables": Refused(
        lambda: _of_classes(
            kernel=SharedIndependent(SquaredExponential(), output_dim=C),
            inducing_variable=SeparateIndependentInducingVariables(
                [InducingPoints(Z) for _ in range(4)]
            ),
        ),
        ["inducing_variable", r"\b4\b"],
        [r"\b3\b"],
    ),
    "several kernels with plain inducing points": Refused(
        lambda: _of_classes(kernel=SeparateIndependent(_kernels(C))),
        ["SeparateIndependent", "InducingPoints"],
        ["both"],
    ),
    "plain kernel with several inducing variables": Refused(
        lambda: _of_classes(
            inducing_variable=SharedIndependentInducingVariables(InducingPoints(Z))
        ),
        ["SquaredExponential", "SharedIndependentInducingVariables"],
        ["both|pair"],
    ),
    "another number of latent functions than classes": Refused(
        lambda: _of_classes(num_latent_gps=2), ["num_latent_gps", r"\b2\b"], [r"\b3\b"]
    ),
    "two latent functions of one target": Refused(
        lambda: {"num_latent_gps": 2}, ["num_latent_gps", r"\b2\b"], [r"\b1\b"]
    ),
    "two label columns for classes": Refused(
        lambda: {"data": (X, np.hstack([LABELS, LABELS])), "likelihood": MultiClass(C)},
        [r"\bY\b", r"\b2\b"],
        [r"\b1\b|one column"],
    ),
    "float32 data": Refused(
        lambda: {"data": (X.astype(np.float32), LABELS.astype(np.float32))},
        ["float32"],
        ["float64"],
    ),
    "Z with one column too many": Refused(
        lambda: {"inducing_variable": np.hstack([Z, Z[:, :1]])}, [r"\b3\b"], ["columns?", r"\b2\b"]
    ),
}


UPDATE_SITES = {
    "damping 0": Refused(lambda: {"damping": 0.0}, ["damping", r"0\.0"], [r"\(0, 1\]"]),
    "damping above 1": Refused(lambda: {"damping": 1.1}, ["damping", r"1\.1"], [r"\(0, 1\]"]),
    "damping NaN": Refused(lambda: {"damping": np.nan}, ["damping", "nan"], [r"\(0, 1\]"]),
    "max_sweeps 0": Refused(lambda: {"max_sweeps": 0}, ["max_sweeps", r"\b0\b"], ["at least 1"]),
    "max_sweeps -2": Refused(lambda: {"max_sweeps": -2}, ["max_sweeps", "-2"], ["at least 1"]),
    "tolerance 0": Refused(lambda: {"tolerance": 0.0}, ["tolerance", r"\b0"], ["positive"]),
    "tolerance -1": Refused(lambda: {"tolerance": -1.0}, ["tolerance", "-1"], ["positive"]),
}


TIED = {
    "num_data missing": Refused(lambda: {"num_data": None}, ["None"], ["number of rows"]),
    "num_data 0": Refused(lambda: {"num_data": 0}, [r"\b0\b"], ["at least 1"]),
    "num_data 2.5": Refused(lambda: {"num_data": 2.5}, [r"2\.5"], ["number of rows"]),
    "num_data NaN": Refused(lambda: {"num_data": np.nan}, ["nan"], ["number of rows"]),
    "num_data of a wrong type": Refused(lambda: {"num_data": "7"}, ["'7'"], ["number of rows"]),
    "alpha 1.5": Refused(lambda: {"alpha": 1.5}, [r"1\.5"], [r"\[0, 1\]"]),
    "alpha for each row": Refused(lambda: {"alpha": np.ones(7)}, [r"\(7,\)"], ["one number"]),
    "no kernel": Refused(lambda: {"kernel": 1.0}, ["float"], ["Kernel"]),
    "no likelihood": Refused(lambda: {"likelihood": "probit"}, ["str"], ["likelihoods"]),
    "no inducing inputs": Refused(lambda: {"inducing_variable": X[:0]}, [r"\b0\b"], ["at least 1"]),
    "1-D inducing inputs": Refused(
        lambda: {"inducing_variable": X[:, 0]}, [r"\(7,\)"], [r"\[M, D\]"]
    ),
    "no latent functions": Refused(lambda: {"num_latent_gps": 0}, [r"\b0\b"], ["at least 1"]),
    "half a latent function": Refused(lambda: {"num_latent_gps": 0.5}, [r"0\.5"], ["whole"]),
    "q_mu too short": Refused(lambda: {"q_mu": np.zeros([2, 1])}, [r"\(2, 1\)"], [r"\(3, 1\)"]),
    "1-D q_mu": Refused(lambda: {"q_mu": np.zeros(3)}, [r"\(3,\)"], [r"\(3, 3\)"]),
    "NaN in q_mu": Refused(lambda: {"q_mu": np.full([3, 1], np.nan)}, ["NaN"], ["finite"]),
    "q_sqrt of other latents": Refused(
        lambda: {"q_mu": np.zeros([3, 1]), "q_sqrt": np.zeros([2, 3, 3])},
        [r"\(2, 3, 3\)"],
        [r"\(1, 3, 3\)"],
    ),
    "diagonal q_sqrt": Refused(
        lambda: {"q_sqrt": np.ones([3, 1])}, [r"\(3, 1\)"], [r"\(3, 3, 3\)"]
    ),
    "q_sqrt not triangular": Refused(
        lambda: {"q_sqrt": np.ones([1, 3, 3])}, ["above the diagonal"], ["lower triangular"]
    ),
    "float32 kernel": Refused(
        lambda: {"kernel": _kernel_in_single_precision()}, ["float32"], ["float64"]
    ),
}
BATCH = {
    "no pair": Refused(lambda: {"data": X}, ["ndarray"], ["pair"]),
    "NaN in X": Refused(lambda: {"data": (X * np.nan, LABELS)}, ["NaN"], ["finite"]),
    "label 2": Refused(lambda: {"data": (X, LABELS * 2)}, [r"\b2\b"], ["0 or 1"]),
    "integer label 2": Refused(
        lambda: {"data": (X, LABELS.astype(int) * 2)}, [r"\b2\b"], ["0 or 1"]
    ),
    "float32 X": Refused(
        lambda: {"data": (X.astype(np.float32), LABELS)}, ["float32"], ["float64"]
    ),
    "another column in X": Refused(
        lambda: {"data": (np.hstack([X, X]), LABELS)}, [r"\b2\b"], [r"\b4\b"]
    ),
    "two columns of labels": Refused(
        lambda: {"data": (X, np.hstack([LABELS, LABELS]))}, [r"\b2\b"], [r"\b1\b"]
    ),
    "fewer labels": Refused(lambda: {"data": (X, LABELS[:4])}, [r"\b7\b"], [r"\b4\b"]),
    "no rows": Refused(lambda: {"data": (X[:0], LABELS[:0])}, [r"\(0, 2\)"], ["one row"]),
    "too few latent functions": Refused(
        lambda: {"likelihood": MultiClass(3), "data": (X, LABELS)}, [r"\b1\b"], [r"\b3\b"]
    ),
    "negative count": Refused(
        lambda: {"likelihood": Poisson(), "data": (X, -LABELS)}, ["-1"], ["whole numbers"]
    ),
}


CLASSIFICATION = {
    "labels -1 and 1": Refused(
        lambda: {"Y": 2 * LABELS.astype(int) - 1},
        ["Y: got the labels -1, 1"],
        [r"expected 0 to C - 1.*Recode"],
    ),
    "labels 0 and 2": Refused(
        lambda: {"Y": 2 * LABELS.astype(int)},
        ["Y: got the labels 0, 2"],
        ["or pass the likelihood"],
    ),
    "one class": Refused(
        lambda: {"Y": 0 * LABELS.astype(int)}, ["Y: got the labels 0, "], ["two or more classes"]
    ),
    "fractions": Refused(
        lambda: {"Y": LABELS + 0.5}, [r"Y: got the labels 0\.5, 1\.5"], ["expected 0 to C - 1"]
    ),
    "words": Refused(
        lambda: {"Y": LABELS.astype(str)}, ["Y: got labels of type "], ["Encode them"]
    ),
    "class 2 of two": Refused(
        lambda: {"Y": CLASSES, "likelihood": Bernoulli()},
        ["Y: got 2 at row 2"],
        ["expected 0 or 1"],
    ),
    "likelihood of counts": Refused(
        lambda: {"Y": LABELS, "likelihood": Poisson()},
        ["likelihood: got Poisson"],
        [r"models\.PEP"],
    ),
}
MINIBATCHES = {
    "batch_size 0": Refused(lambda: {"batch_size": 0}, ["batch_size", r"\b0\b"], ["positive"]),
    "batch_size 2.5": Refused(lambda: {"batch_size": 2.5}, ["batch_size", r"2\.5"], ["positive"]),
    "batch_size above N": Refused(
        lambda: {"batch_size": N + 1}, ["batch_size", r"\b8\b", r"\b7\b"], ["less"]
    ),
    "refresh_every 0": Refused(
        lambda: {"batch_size": 2, "refresh_every": 0}, ["refresh_every", r"\b0\b"], ["positive"]
    ),
}
REFUSALS: dict[str, tuple[Callable[..., Any], dict[str, Refused]]] = {
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
#: Start of alpha, and what is assigned to it.
ALPHA_ASSIGNED = {
    "above 1": (0.5, 2.0, Refused(dict, ["alpha", r"\b2\b"], [r"\[0, 1\]"])),
    "below 0": (0.5, -1e-3, Refused(dict, ["alpha", r"-0?\.001|-1e-0?3"], [r"\[0, 1\]"])),
    "NaN": (0.5, np.nan, Refused(dict, ["alpha", "nan"], [r"\[0, 1\]"])),
    "one of several": (
        np.full(N, 0.5),
        np.where(np.arange(N) == 3, 1.25, 0.5),
        Refused(dict, ["alpha", r"1\.25"], [r"\[0, 1\]"]),
    ),
}
