"""
What PEP refuses, and that each message says what was got, what was expected and what to do about
it. What it shares with PEPRegression is tested there; here is one of each kind.
"""

import re
from collections.abc import Callable
from typing import Any, NamedTuple

import gpflow
import numpy as np
import pytest
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
LABELS = np.array([0.0, 1.0, 1.0, 0.0, 1.0, 0.0, 1.0])[:, None]
Z = X[::3]
Changes = Callable[[], dict[str, Any]]

REMEDY = re.compile(
    r"\b(pass|give|use|set|assign|choose|make|reshape|remove|drop|convert|cast|check|replace|"
    r"supply|provide|leave|omit|add|recode|wrap|usual|such as|undamped)\b|\[:, None\]",
    re.IGNORECASE,
)


def _create(**changes: Any) -> "pep.models.PEP":
    arguments: dict[str, Any] = {
        "data": (X, LABELS),
        "kernel": SquaredExponential(),
        "likelihood": Bernoulli(),
        "inducing_variable": Z,
        **changes,
    }
    return pep.models.PEP(**arguments)


def _targets(value: float, likelihood: Any, others: float = 1.0) -> dict[str, Any]:
    """The fifth target is not in the support."""
    Y = np.full([N, 1], others)
    Y[4] = value
    return {"data": (X, Y), "likelihood": likelihood}


def _kernels(count: int) -> list[SquaredExponential]:
    return [SquaredExponential() for _ in range(count)]


def _of_classes(**changes: Any) -> dict[str, Any]:
    return {"data": (X, LABELS), "likelihood": MultiClass(C), **changes}


class Refused(NamedTuple):
    """Arguments, and regular expressions (ignoring case) that the message must contain."""

    changes: Changes
    got: list[str]
    expected: list[str]


REFUSED = {
    "fewer rows in Y": Refused(
        lambda: {"data": (X, LABELS[:-2])}, [r"\b7\b", r"\b5\b"], ["rows|same"]
    ),
    "1-D Y": Refused(lambda: {"data": (X, LABELS[:, 0])}, [r"\bY\b", r"\(7,?\)"], [r"N, ?P"]),
    "NaN in X": Refused(lambda: {"data": (X * np.nan, LABELS)}, [r"\bX\b", "nan"], ["finite"]),
    "inf in Y": Refused(lambda: {"data": (X, LABELS * np.inf)}, [r"\bY\b", "inf"], ["finite"]),
    "label 2 of two": Refused(
        lambda: _targets(2.0, Bernoulli()), [r"\bY\b", r"\b2\b", r"row 4"], ["0 or 1"]
    ),
    "label -1 of two": Refused(
        lambda: _targets(-1.0, Bernoulli()), [r"\bY\b", "-1", "row 4"], ["0 or 1"]
    ),
    "label 0.5": Refused(
        lambda: _targets(0.5, Bernoulli()), [r"\bY\b", r"0\.5", "row 4"], ["0 or 1"]
    ),
    "class 3 of three": Refused(
        lambda: _targets(3.0, MultiClass(C)), [r"\bY\b", r"\b3\b"], [r"0 to 2", "MultiClass"]
    ),
    "class -1": Refused(
        lambda: _targets(-1.0, MultiClass(C)), [r"\bY\b", "-1"], [r"0 to 2", "MultiClass"]
    ),
    "class 1.5 of a softmax": Refused(
        lambda: _targets(1.5, Softmax(C)), [r"\bY\b", r"1\.5"], [r"0 to 2", "Softmax"]
    ),
    "ordinal class 3 of three": Refused(
        lambda: _targets(3.0, Ordinal(np.array([0.0, 1.0]))), [r"\bY\b", r"\b3\b"], [r"0 to 2"]
    ),
    "negative count": Refused(
        lambda: _targets(-2.0, Poisson()), [r"\bY\b", "-2"], ["whole numbers", "Poisson"]
    ),
    "half a count": Refused(
        lambda: _targets(1.5, Poisson()), [r"\bY\b", r"1\.5"], ["whole numbers"]
    ),
    "negative duration": Refused(
        lambda: _targets(-0.1, Exponential()), [r"\bY\b", r"-0\.1"], ["from 0", "Exponential"]
    ),
    "negative amount": Refused(
        lambda: _targets(-0.1, Gamma()), [r"\bY\b", r"-0\.1"], ["from 0", "Gamma"]
    ),
    "fraction above 1": Refused(
        lambda: _targets(1.2, Beta(), 0.5), [r"\bY\b", r"1\.2"], ["0 to 1", "Beta"]
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


LOOP: dict[str, tuple[dict[str, Any], Refused]] = {
    "damping 0": ({"damping": 0.0}, Refused(dict, ["damping", r"0\.0"], [r"\(0, 1\]"])),
    "damping above 1": ({"damping": 1.1}, Refused(dict, ["damping", r"1\.1"], [r"\(0, 1\]"])),
    "damping NaN": ({"damping": np.nan}, Refused(dict, ["damping", "nan"], [r"\(0, 1\]"])),
    "max_sweeps 0": ({"max_sweeps": 0}, Refused(dict, ["max_sweeps", r"\b0\b"], ["at least 1"])),
    "max_sweeps -2": ({"max_sweeps": -2}, Refused(dict, ["max_sweeps", "-2"], ["at least 1"])),
    "tolerance 0": ({"tolerance": 0.0}, Refused(dict, ["tolerance", r"\b0"], ["positive"])),
    "tolerance -1": ({"tolerance": -1.0}, Refused(dict, ["tolerance", "-1"], ["positive"])),
}


@pytest.mark.parametrize("arguments, refused", LOOP.values(), ids=LOOP.keys())
def test_refused_by_update_sites(arguments: dict[str, Any], refused: Refused) -> None:
    with pytest.raises(ValueError) as caught:
        _create().update_sites(**arguments)
    _check_message(str(caught.value), refused)


def test_a_likelihood_that_nobody_registered_is_named() -> None:
    class Unheard(gpflow.likelihoods.ScalarLikelihood):
        def _scalar_log_prob(self, X: Any, F: Any, Y: Any) -> Any:
            return -((F - Y) ** 2)

        def _conditional_mean(self, X: Any, F: Any) -> Any:
            return F

        def _conditional_variance(self, X: Any, F: Any) -> Any:
            return 0.0 * F + 0.5

    with pytest.raises(NotImplementedError, match=r"Unheard.*register"):
        _create(likelihood=Unheard()).training_loss()


ACCEPTED: dict[str, Changes] = {
    "more inducing points than rows": lambda: {
        "inducing_variable": np.random.default_rng(0).uniform(-1.0, 1.0, [N + 3, D])
    },
    "one row": lambda: {"data": (X[:1], LABELS[:1])},
    "one inducing point": lambda: {"inducing_variable": Z[:1]},
    "all labels equal": lambda: {"data": (X, np.ones([N, 1]))},
    "alpha as a list": lambda: {"alpha": [0.5] * N},
    "max_sweeps as a NumPy integer": lambda: {"max_sweeps": np.int64(50)},
    "targets at the edges of the support": lambda: _targets(0.0, Beta(), 1.0),
    "two columns of labels": lambda: {"data": (X, np.hstack([LABELS, 1.0 - LABELS]))},
    "the same row twice": lambda: {"data": (np.vstack([X, X[:1]]), np.vstack([LABELS, [[1.0]]]))},
}


@pytest.mark.parametrize("changes", ACCEPTED.values(), ids=ACCEPTED.keys())
def test_accepted(changes: Changes) -> None:
    model = _create(**changes())
    assert np.isfinite(model.training_loss())
    assert model.last_inference.converged
    mean, variance = model.predict_f(X)
    assert np.all(np.isfinite(mean)) and np.all(variance.numpy() > 0.0)


def test_hyperparameters_that_ran_off_are_an_error_that_says_what_to_try() -> None:
    model = _create(max_sweeps=3)
    model.kernel.variance.unconstrained_variable.assign(np.nan)
    with (
        pytest.warns(UserWarning, match="did not converge"),
        pytest.raises(ValueError, match=r"NaN or infinity(.|\n)*(priors|lower alpha)"),
    ):
        model.training_loss()
