"""
What PEPRegression refuses, and that each message says what was got, what was expected and what to
do about it.
"""

import re
from collections.abc import Callable
from typing import Any, NamedTuple

import gpflow
import numpy as np
import pytest
import tensorflow as tf

import gpflow_pep as pep

N, D = 7, 2
X = np.linspace(-1.0, 1.0, N * D).reshape(N, D)
Y = np.sin(X[:, :1])
Z = X[::3]
Changes = Callable[[], dict[str, Any]]

REMEDY = re.compile(
    r"\b(pass|give|use|set|assign|choose|make|reshape|remove|drop|convert|cast|check|replace|"
    r"supply|provide|leave|omit|add)\b|\[:, None\]",
    re.IGNORECASE,
)


def _create(**changes: Any) -> "pep.models.PEPRegression":
    arguments: dict[str, Any] = {
        "data": (X, Y),
        "kernel": gpflow.kernels.SquaredExponential(),
        "inducing_variable": Z,
        **changes,
    }
    return pep.models.PEPRegression(**arguments)


def _with(array: Any, value: float) -> Any:
    array = array.copy()
    array[4, 0] = value
    return array


class Refused(NamedTuple):
    """Arguments, and regular expressions (ignoring case) that the message must contain."""

    changes: Changes
    got: list[str]
    expected: list[str]


REFUSED = {
    "fewer rows in Y": Refused(lambda: {"data": (X, Y[:-2])}, [r"\b7\b", r"\b5\b"], ["rows|same"]),
    "more rows in Y": Refused(lambda: {"data": (X[:4], Y)}, [r"\b4\b", r"\b7\b"], ["rows|same"]),
    "1-D X": Refused(lambda: {"data": (X[:, 0], Y)}, [r"\bX\b", r"\(7,?\)|\[7\]"], [r"N, ?D"]),
    "1-D Y": Refused(lambda: {"data": (X, Y[:, 0])}, [r"\bY\b", r"\(7,?\)|\[7\]"], [r"N, ?P"]),
    "3-D X": Refused(lambda: {"data": (X[:, None, :], Y)}, [r"\bX\b", r"7, ?1, ?2"], [r"N, ?D"]),
    "NaN in X": Refused(lambda: {"data": (_with(X, np.nan), Y)}, [r"\bX\b", "nan"], ["finite"]),
    "NaN in Y": Refused(lambda: {"data": (X, _with(Y, np.nan))}, [r"\bY\b", "nan"], ["finite"]),
    "inf in X": Refused(lambda: {"data": (_with(X, np.inf), Y)}, [r"\bX\b", "inf"], ["finite"]),
    "-inf in Y": Refused(lambda: {"data": (X, _with(Y, -np.inf))}, [r"\bY\b", "inf"], ["finite"]),
    "NaN in a variable": Refused(
        lambda: {"data": (tf.Variable(_with(X, np.nan)), tf.Variable(Y))},
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
}


def _check_message(message: str, refused: Refused) -> None:
    for part, patterns in (("got", refused.got), ("expected", refused.expected)):
        for pattern in patterns:
            assert re.search(pattern, message, re.IGNORECASE), (
                f"what was {part} ({pattern}) is missing in: {message}"
            )
    assert REMEDY.search(message), f"what to do is missing in: {message}"


@pytest.mark.parametrize("refused", REFUSED.values(), ids=REFUSED.keys())
def test_refused_at_construction(refused: Refused) -> None:
    changes = refused.changes()
    with pytest.raises(ValueError) as caught:
        _create(**changes)
    _check_message(str(caught.value), refused)


REFUSED_BY_GPFLOW: dict[str, Changes] = {
    "negative noise variance": lambda: {"noise_variance": -0.1},
    "NaN in Z": lambda: {"inducing_variable": _with(X, np.nan)},
}


@pytest.mark.parametrize("changes", REFUSED_BY_GPFLOW.values(), ids=REFUSED_BY_GPFLOW.keys())
def test_values_that_gpflows_parameters_refuse(changes: Changes) -> None:
    with pytest.raises((ValueError, tf.errors.InvalidArgumentError), match=r"(?i)nan|-0\.1"):
        _create(**changes())


ASSIGNED = {
    "above 1": (0.5, 2.0, Refused(dict, ["alpha", r"\b2\b"], [r"\[0, 1\]"])),
    "below 0": (0.5, -1e-3, Refused(dict, ["alpha", r"-0?\.001|-1e-0?3"], [r"\[0, 1\]"])),
    "NaN": (0.5, np.nan, Refused(dict, ["alpha", "nan"], [r"\[0, 1\]"])),
    "one of several": (
        np.full(N, 0.5),
        np.where(np.arange(N) == 3, 1.25, 0.5),
        Refused(dict, ["alpha", r"1\.25"], [r"\[0, 1\]"]),
    ),
}


@pytest.mark.parametrize("start, value, refused", ASSIGNED.values(), ids=ASSIGNED.keys())
def test_alpha_refused_when_assigned(start: Any, value: Any, refused: Refused) -> None:
    model = _create(alpha=start)
    with pytest.raises(ValueError) as caught:
        model.alpha.assign(value)
    _check_message(str(caught.value), refused)
    np.testing.assert_array_equal(model.alpha.numpy(), start)


@pytest.mark.parametrize("value", [0.0, 1e-300, 0.25, 1.0, 1, np.float64(0.5)])
def test_alpha_accepted_when_assigned(value: Any) -> None:
    model = _create()
    model.alpha.assign(value)
    assert float(model.alpha.numpy()) == value


ACCEPTED: dict[str, Changes] = {
    "more inducing points than rows": lambda: {
        "inducing_variable": np.random.default_rng(0).uniform(-1.0, 1.0, [N + 3, D])
    },
    "one row": lambda: {"data": (X[:1], Y[:1])},
    "one inducing point": lambda: {"inducing_variable": Z[:1]},
    "tensors": lambda: {"data": (tf.constant(X), tf.constant(Y))},
    "blocks as a list": lambda: {"blocks": [0, 0, 1, 1, 2, 2, 2]},
    "blocks as int32": lambda: {"blocks": np.array([0, 0, 1, 1, 2, 2, 2], dtype=np.int32)},
    "alpha as a list": lambda: {"alpha": [0.5] * N},
    "alpha as an integer": lambda: {"alpha": 1},
    "chunk_size as a NumPy integer": lambda: {"chunk_size": np.int64(3)},
}


@pytest.mark.parametrize("changes", ACCEPTED.values(), ids=ACCEPTED.keys())
def test_accepted(changes: Changes) -> None:
    model = _create(**changes())
    assert np.isfinite(model.training_loss())
    mean, variance = model.predict_f(X)
    assert np.all(np.isfinite(mean)) and np.all(variance.numpy() > -1e-12)
