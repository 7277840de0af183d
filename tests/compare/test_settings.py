"""What can be asked for, and what is refused before anything is loaded."""

import inspect
from typing import Any

import numpy as np
import pandas as pd
import pytest

from gpflow_pep.compare import Settings, cli
from gpflow_pep.compare.run import table_of
from gpflow_pep.compare.settings import COUNTS, GAUSSIAN, INITS, KERNELS, LIKELIHOODS
from gpflow_pep.estimators.single import parts
from gpflow_pep.tables.cleaning import clean


@pytest.mark.parametrize(
    "options, got, expected, remedy",
    [
        ({"alphas": []}, "got []", "one or more distinct numbers", "Try 0"),
        ({"alphas": [0.5, 1.1]}, "got [0.5, 1.1]", "[0, 1]", "Try 0"),
        ({"alphas": [float("nan")]}, "got [nan]", "[0, 1]", "Try 0"),
        ({"alphas": [0.5, 0.5]}, "got [0.5, 0.5]", "distinct", "Try 0"),
        ({"num_inducing": 0}, "num_inducing: got 0", "at least 1", "Choose another"),
        ({"num_inducing": True}, "got True", "a whole number", "Choose another"),
        (
            {"num_inducing": "many"},
            "got 'many'",
            "at least 1, or 'auto'",
            "Choose another",
        ),
        ({"init": "best"}, "init: got 'best'", "kmeans, random", "Choose one"),
        ({"kernel": "cubic"}, "kernel: got 'cubic'", "rbf, matern12", "Choose one"),
        (
            {"likelihood": "cauchy"},
            "likelihood: got 'cauchy'",
            "student_t",
            "Choose one",
        ),
        (
            {"max_iterations": 0},
            "max_iterations: got 0",
            "at least 1",
            "Choose another",
        ),
        ({"near_rows": 3}, "near_rows: got 3", "True or False", "Choose one"),
        ({"seed": 0.5}, "seed: got 0.5", "a whole number", "Choose another"),
        (
            {"seed": 2**32},
            "seed: got 4294967296",
            "at most 4294967295",
            "Choose another",
        ),
        ({"baselines": "no"}, "baselines: got 'no'", "True or False", "Choose one"),
        ({"test_fraction": 1.5}, "test_fraction: got 1.5", "(0, 1)", "Choose 0.2"),
        ({"folds": 1}, "folds: got 1", "at least 2", "Choose another"),
        ({"splits": 0}, "splits: got 0", "at least 1", "Choose another"),
        (
            {"folds": 5, "splits": 2},
            "folds: got 5 and splits",
            "one of them",
            "Leave one out",
        ),
        (
            {"folds": 5, "test_fraction": 0.2},
            "and test_fraction=0.2",
            "one of",
            "Leave one out",
        ),
        (
            {"time_column": "a", "group_column": "b"},
            "'a' and group_c",
            "one of",
            "Leave one",
        ),
        (
            {"group_column": 3},
            "group_column: got 3",
            "the name of a column",
            "Choose another",
        ),
        ({"minutes": 0.0}, "minutes: got 0.0", "a positive number", "Raise it"),
        (
            {"minutes": float("inf")},
            "minutes: got inf",
            "a positive number",
            "Raise it",
        ),
    ],
)
def test_refused(options: dict[str, Any], got: str, expected: str, remedy: str) -> None:
    with pytest.raises(ValueError) as error:
        Settings(**options)
    assert all(part in str(error.value) for part in (got, expected, remedy))


def test_likelihoods_and_metrics_of_numbers_and_of_classes() -> None:
    for name, value, kind in (
        ("likelihood", "softmax", "numbers"),
        ("likelihood", "poisson", "classes"),
        ("metric", "auc", "numbers"),
    ):
        with pytest.raises(ValueError, match=f"{name} of {kind}: got '{value}'"):
            Settings(**{name: value}).check_data(kind, 1)
    assert {*COUNTS, *GAUSSIAN} <= {"auto", *LIKELIHOODS["numbers"]}


@pytest.mark.parametrize(
    "options, parts",
    [
        ({}, ("fold", 5, 0.2)),
        ({"folds": 10}, ("fold", 10, 0.1)),
        ({"splits": 3}, ("split", 3, 0.2)),
        ({"test_fraction": 0.4}, ("split", 1, 0.4)),
        ({"time_column": "day"}, ("window", 5, 1.0 / 6.0)),
        ({"time_column": "day", "splits": 1}, ("window", 1, 0.2)),
        ({"time_column": "day", "test_fraction": 0.4}, ("window", 1, 0.4)),
        ({"group_column": "patient"}, ("fold", 5, 0.2)),
    ],
)
def test_what_is_held_out(
    options: dict[str, Any], parts: tuple[str, int, float]
) -> None:
    assert Settings(**options).parts() == parts


def test_names_are_those_of_the_estimators() -> None:
    assert set(KERNELS) == set(parts.KERNELS)
    assert {*INITS.values(), "rows"} == set(parts.RULES)  # at all rows is the exact GP
    assert set(LIKELIHOODS["numbers"]) == set(parts.NUMBERS)
    assert set(LIKELIHOODS["classes"]) == set(parts.CLASSES)


def test_the_command_line_has_the_defaults_and_the_words_of_the_reference() -> None:
    parent = cli.main.make_context("gpflow-pep", ["compare"])
    values = cli.compare.make_context("compare", [], parent=parent).params
    options = {option.name: option for option in cli.compare.params}
    for name, parameter in inspect.signature(Settings).parameters.items():
        assert values[name] == parameter.default, name
        assert f"    :param {name}: {options[name].help}\n" in str(Settings.__doc__)
    assert Settings().kernel in KERNELS


def test_scalars_of_numpy_are_plain_settings() -> None:
    settings = Settings(
        num_inducing=np.int64(5),
        alphas=np.array([0.0, 1.0]),
        folds=np.int32(3),
        seed=np.int64(1),
        minutes=np.float64(2.0),
        details=np.bool_(False),
    )
    plain = Settings(
        num_inducing=5, alphas=(0.0, 1.0), folds=3, seed=1, minutes=2.0, details=False
    )
    assert settings == plain and type(settings.num_inducing) is int
    assert Settings(num_inducing=[5, np.int64(9)]).num_inducing == (5, 9)
    for value in (np.float64(5.5), None):
        with pytest.raises(ValueError, match="num_inducing: got"):
            Settings(num_inducing=value)
    with pytest.raises(ValueError, match=r"alphas: got 0\.5, expected one or more"):
        Settings(alphas=np.float64(0.5))


def test_a_target_may_be_a_place() -> None:
    values = np.arange(12.0) ** 2
    frame = pd.DataFrame({"a": values + 0.5, "b": np.sqrt(values + 0.7)})
    for place in (1, np.int64(1), -1):
        table, target = table_of(frame, place)
        assert table is frame and clean(table, target).y.name == "b"
    with pytest.raises(ValueError, match=r"y: got 1, expected .* table that has"):
        table_of(frame.to_numpy(), 1)
