"""The settings of a comparison, in one table for the command line, the checks and the
reference.

This module does not load slow packages, so that help and messages about mistakes appear
at once.
"""

import csv
import math
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import Any, Literal, NamedTuple

import click
import numpy as np

from ..engine.refusals import as_code, refusal

#: The rules for initial inducing points, and their names in the estimators.
INITS = {"kmeans": "kmeans", "random": "random", "variance": "greedy_variance"}
KERNELS = ("rbf", "matern12", "matern32", "matern52", "rational_quadratic")
#: Likelihoods of counts, whose probabilities are not densities; and likelihoods with
#: Gaussian noise on numbers or on their logarithms, for which models are exact.
COUNTS = ("poisson", "negative_binomial")
GAUSSIAN = ("auto", "gaussian", "log_normal")
LIKELIHOODS = {
    "numbers": ("gaussian", "student_t", "log_normal", "tobit", *COUNTS),
    "classes": ("bernoulli", "multiclass", "noisy_multiclass", "softmax", "ordinal"),
}
#: Adds inducing points as long as they improve the score.
AUTO = "auto"
#: Scores that can decide which model is saved.
DECISIVE = {"numbers": ("nlpd", "rmse", "mae"), "classes": ("nlpd", "error", "auc")}
TASKS = ("regression", "classification")
#: Orders of day, month and year.
DATES = ("dmy", "mdy", "ymd")


class Range(NamedTuple):
    """The values that a setting may have."""

    type: click.ParamType
    expected: str
    remedy: str = "Choose another."

    def allows(self, value: Any) -> bool:
        """Return whether the command line reads this value from its text."""
        text = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
        try:
            return bool(self.type.convert(text, None, None) == value)
        except click.BadParameter:
            return False


class _NumberOrAuto(click.IntRange):
    name = "M|auto"

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        return AUTO if value == AUTO else super().convert(value, param, ctx)


class _Several(click.ParamType):
    """Distinct values, separated by commas, also with quotes around them; a single
    value is returned without a tuple if ``single``.
    """

    name = "A,B,..."

    def __init__(self, each: click.ParamType, single: bool = True) -> None:
        self.each = each
        self.single = single

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        if not isinstance(value, str):
            return value
        (parts,) = csv.reader([value], skipinitialspace=True)
        values = tuple(
            self.each.convert(part.strip(), param, ctx) for part in parts or [""]
        )
        if len(set(values)) < len(values):
            self.fail(f"got '{value}', expected distinct values", param)
        return values[0] if self.single and len(values) == 1 else values


#: Names of columns or classes.
NAMES = _Several(click.STRING, single=False)


def _whole(least: int, most: int | None = None) -> Range:
    limit = "" if most is None else f" and at most {most}"
    return Range(
        click.IntRange(least, most), f"a whole number, at least {least}{limit}"
    )


def _plain(value: Any) -> Any:
    """Convert NumPy's scalars to plain Python, and several values to tuples."""
    # For scalars and arrays of NumPy, and columns of pandas.
    if hasattr(value, "tolist"):
        value = value.tolist()
    several = isinstance(value, Iterable) and not isinstance(value, str)
    return tuple(map(_plain, value)) if several else value


def _as_read(name: str, value: Any) -> Any:
    """Convert the value of a setting to the form that the command line reads."""
    value = _plain(value)
    if name in ("kernel", "num_inducing") and np.shape(value) == (1,):
        return value[0]
    if name == "order" and isinstance(value, tuple):
        return tuple(str(label).strip() for label in value)
    return value


def _choice(names: Iterable[str]) -> Range:
    names = tuple(names)
    return Range(click.Choice(names), f"one of {', '.join(names)}", "Choose one.")


#: Ranges between 0 and an upper limit, both excluded.
_FRACTION, _POSITIVE = (click.FloatRange(0, most, True, True) for most in (1, math.inf))


def _setting(default: Any, allowed: Range, description: str, flag: str = "") -> Any:
    """Define a setting; its flag on the command line is its name unless ``flag`` is
    given.
    """
    return field(
        default=default, metadata={"range": allowed, "help": description, "flag": flag}
    )


def _switch(description: str) -> Any:
    return _setting(
        True, Range(click.BOOL, "True or False", "Choose one."), description
    )


def flags_of(setting: Any) -> list[str]:
    """Return the flags of a setting on the command line."""
    name = setting.name.replace("_", "-")
    usual = f"--{name}/--no-{name}" if setting.type in (bool, "bool") else f"--{name}"
    return (setting.metadata["flag"] or usual).split()


#: Pairs of settings that exclude each other: both choose the parts, or their length, or
#: the rows that are held out together.
_EXCLUSIVE = (
    ("folds", "splits"),
    ("folds", "test_fraction"),
    ("horizon", "test_fraction"),
    ("time_column", "group_column"),
)


@dataclass(frozen=True)
class Settings:
    """Settings of a comparison.

    :raises ValueError: If a setting is outside its range, or two settings exclude each
        other.
    """

    alphas: tuple[float, ...] = _setting(
        (0.0, 0.5, 1.0),
        Range(
            _Several(click.FloatRange(0, 1), single=False),
            "one or more distinct numbers in [0, 1]",
            "Try 0 (variational), 0.5 and 1 (EP, FITC).",
        ),
        "Powers, in [0, 1], of the single models that are compared with the default."
        " 0 is the variational approximation, 1 is EP / FITC.",
    )
    num_inducing: int | str | tuple[int | str, ...] = _setting(
        AUTO,
        Range(
            _Several(_NumberOrAuto(1)),
            f"a whole number, at least 1, or '{AUTO}', or several distinct ones",
        ),
        "Number of inducing points in each single model, at most the number of"
        " distinct training rows. 'auto' lets each fit choose. A list such as 50,200"
        " trains one model for every number and kernel.",
        "--inducing",
    )
    folds: int | None = _setting(
        None,
        _whole(2),
        "Number of folds. The rows are split at random, with equal proportions of the"
        " classes, and each fold is held out once.  [default: 5]",
    )
    splits: int | None = _setting(
        None,
        _whole(1),
        "Number of random splits, which replace the folds. Each split holds out a"
        " random part of the rows.",
    )
    test_fraction: float | None = _setting(
        None,
        Range(_FRACTION, "a number in (0, 1)", "Choose 0.2 to hold out a fifth."),
        "Fraction of the rows that each split holds out. Given alone, it makes one"
        " split.  [default: 0.2]",
    )
    time_column: str | None = _setting(
        None,
        Range(click.STRING, "the name of a column"),
        "Column of dates or numbers that orders the rows in time. Each fold or split"
        " then trains on the rows up to a time and is tested on the rows that follow,"
        " like a forecast.",
    )
    horizon: int | None = _setting(
        None,
        _whole(1),
        "Length of a forecast: the number of distinct values of the time column that"
        " each test covers. In a monthly table, 3 means three months.",
    )
    group_column: str | None = _setting(
        None,
        Range(click.STRING, "the name of a column"),
        "Column that says which patient, site or other group a row belongs to. All"
        " rows of a group are held out together, as if the group were new. The column"
        " is not an input.",
    )
    together: bool = _switch(
        "Hold out rows with the same inputs together, so that no row is predicted"
        " from its copy."
    )
    seed: int = _setting(
        0,
        _whole(0, 2**32 - 1),
        "Seed for folds, splits and initial inducing points.",
    )
    minutes: float = _setting(
        10.0,
        Range(_POSITIVE, "a positive number", "Raise it, to 10 for example."),
        "Time limit for all fits together. Each fit gets an equal share of the"
        " remaining time and stops when it converges. After that only one more fit"
        " starts: the saved model on all rows. Above 100,000 rows, fits use"
        " minibatches and a fixed number of steps instead.",
    )
    max_iterations: int = _setting(
        1000, _whole(1), "Largest number of L-BFGS-B steps in each fit."
    )
    init: str = _setting(
        "kmeans",
        _choice(INITS),
        "Initial inducing points of the single models: centres of k-means clusters,"
        " random rows, or rows that are chosen one by one, each with the largest"
        " variance given the rows before it.",
    )
    kernel: str | tuple[str, ...] = _setting(
        "rbf",
        Range(
            _Several(click.Choice(KERNELS)),
            f"one of {', '.join(KERNELS)}, or several distinct ones",
            "Choose one.",
        ),
        "Kernel of the single models, with a lengthscale for each input:"
        f" {', '.join(KERNELS)}. A list such as rbf,matern32 trains single models with"
        " each kernel.",
        "--kernels --kernel",
    )
    likelihood: str = _setting(
        "auto",
        _choice(["auto", *(name for names in LIKELIHOODS.values() for name in names)]),
        "Noise model. For numbers: gaussian to negative_binomial; for classes:"
        " bernoulli to ordinal. 'auto' is gaussian for numbers, bernoulli for two"
        " classes and softmax for more. tobit is for numbers if some of them are only"
        " limits, such as <5.8.",
    )
    order: tuple[str, ...] | None = _setting(
        None,
        Range(
            NAMES,
            "distinct classes, from the lowest to the highest",
            "List each class once.",
        ),
        "Order of the classes for the likelihood ordinal, from the lowest to the"
        " highest, such as stable,worse,admitted. Without it, numbers are ordered by"
        " value, and grades such as low,medium,high are recognised.",
    )
    near_rows: bool = _switch(
        "With 1000 rows or more, let the default also use the nearest training rows"
        " if that improves predictions of left-out rows."
    )
    metric: str | None = _setting(
        None,
        _choice(sorted({name for names in DECISIVE.values() for name in names})),
        "Score that decides which model is saved: nlpd, rmse or mae for a number;"
        " nlpd, error or auc for a class. The default is saved unless a single model"
        " is clearly better by this score.  [default: nlpd]",
    )
    details: bool = _switch(
        "Fit the saved model a few more times, to show how much each input matters"
        " and whether more rows would help."
    )
    baselines: bool = _switch(
        "Also train a linear model, boosted trees, an exact GP (up to 1000 rows) and,"
        " for classes, SVGP (up to 100,000 rows)."
    )

    def __post_init__(self) -> None:
        for setting in fields(self):
            value = _as_read(setting.name, getattr(self, setting.name))
            object.__setattr__(self, setting.name, value)
            if value is None and setting.default is None:
                continue
            allowed = setting.metadata["range"]
            if not allowed.allows(value):
                shown = list(value) if isinstance(value, tuple) else value
                raise refusal(
                    setting.name, as_code(shown), allowed.expected, allowed.remedy
                )
        self._check_together()

    def _check_together(self) -> None:
        """Refuse settings that exclude each other, or that need another one."""
        for name, other in _EXCLUSIVE:
            value = getattr(self, name)
            other_value = getattr(self, other)
            if None not in (value, other_value):
                got = f"{as_code(value)} and {other}={as_code(other_value)}"
                raise refusal(name, got, "one of them", "Leave one out.")
        if self.horizon is not None and self.time_column is None:
            got = f"{self.horizon} without a time_column"
            remedy = "Set time_column to the column of times."
            raise refusal("horizon", got, "both", remedy)

    @property
    def configurations(self) -> list[tuple[str, int | str]]:
        """The pairs of a kernel and a number of inducing points that are to be
        compared.
        """
        pair: Any = self.kernel, self.num_inducing
        kernels, numbers = (
            part if isinstance(part, tuple) else (part,) for part in pair
        )
        return [(kernel, number) for number in numbers for kernel in kernels]

    def label(self, kernel: str, num_inducing: int | str) -> str:
        """Return the label of a pair: the values that it does not share with all other
        pairs; empty if it is the only pair.
        """
        values = []
        if isinstance(self.kernel, tuple):
            values.append(kernel)
        if isinstance(self.num_inducing, tuple):
            values.append(f"M {num_inducing}")
        return ", ".join(values)

    def check_data(
        self, kind: Literal["numbers", "classes"], num_targets: int = 1
    ) -> None:
        """Check the settings against the data.

        :param kind: Whether targets are numbers or classes.
        :param num_targets: Number of targets, P.
        :raises ValueError: If the likelihood or the metric does not suit the target.
        """
        for name, usual, names in (
            ("likelihood", "auto", LIKELIHOODS[kind]),
            ("metric", None, DECISIVE[kind]),
        ):
            if getattr(self, name) not in (usual, *names):
                got = repr(getattr(self, name))
                expected = f"one of {', '.join(names)}"
                raise refusal(f"{name} of {kind}", got, expected, "Choose one.")
        if num_targets > 1 and self.likelihood not in ("auto", "gaussian"):
            got = f"{self.likelihood!r} with {num_targets} targets"
            remedy = "Leave it out, or compare each target by itself."
            raise refusal(
                "likelihood", got, "'auto' or 'gaussian' with several targets", remedy
            )

    def parts(self) -> tuple[str, int, float]:
        """Return the kind of part that is held out (fold, split or window), the number
        of parts, and the fraction of the rows in each. For windows both numbers are
        upper limits; see :func:`~gpflow_pep.compare.partition.parts_of`.
        """
        if self.time_column is not None:
            count = (
                self.folds or self.splits or (5 if self.test_fraction is None else 1)
            )
            return (
                "window",
                count,
                self.test_fraction or (1.0 / (count + 1) if count > 1 else 0.2),
            )
        if self.splits is None and self.test_fraction is None:
            folds = self.folds or 5
            return "fold", folds, 1.0 / folds
        return "split", self.splits or 1, self.test_fraction or 0.2

    def how_split(self) -> tuple[str, str]:
        """Return a name for the rows that are held out, and a sentence on how they are
        chosen.
        """
        if self.time_column is not None:
            rows = f"rows later by '{self.time_column}' than all training rows"
            return rows, f"Each window is tested on {rows}; window 1 is the latest."
        if self.group_column is not None:
            rows = f"rows of new values of '{self.group_column}'"
            return rows, f"Each {self.parts()[0]} is tested on {rows}."
        return "held-out rows", "Rows are held out at random."


# The reference finds the descriptions of settings in the docstring.
_summary, _, _rest = str(Settings.__doc__).partition("    :raises")
_all = "".join(f"    :param {s.name}: {s.metadata['help']}\n" for s in fields(Settings))
Settings.__doc__ = f"{_summary}{_all}    :raises{_rest}"
