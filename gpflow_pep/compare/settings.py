"""The settings of a comparison: one table for the command line, the checks and the
reference.

It loads nothing slow, so that help and mistakes are immediate.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import Any, Literal, NamedTuple

import click
import numpy as np

from ..engine.refusals import refusal

#: Rules for initial inducing points, and what the estimators call them.
INITS = {"kmeans": "kmeans", "random": "random", "variance": "greedy_variance"}
KERNELS = ("rbf", "matern12", "matern32", "matern52", "rational_quadratic")
#: Of whole numbers, whose probabilities are no densities; and with Gaussian noise of
#: numbers or of their logarithms, of which models are exact.
COUNTS = ("poisson", "negative_binomial")
GAUSSIAN = ("auto", "gaussian", "log_normal")
LIKELIHOODS = {
    "numbers": ("gaussian", "student_t", "log_normal", "tobit", *COUNTS),
    "classes": ("bernoulli", "multiclass", "noisy_multiclass", "softmax", "ordinal"),
}
#: As many inducing points, or near rows, as improve the score.
AUTO = "auto"
#: Scores that can decide which model is saved.
DECISIVE = {"numbers": ("nlpd", "rmse", "mae"), "classes": ("nlpd", "error", "auc")}
TASKS = {"regression": "numbers", "classification": "classes"}
#: Orders of day, month and year.
DATES = ("dmy", "mdy", "ymd")


class Range(NamedTuple):
    """Which values a setting may have."""

    type: click.ParamType
    expected: str
    remedy: str = "Choose another."

    def allows(self, value: Any) -> bool:
        """Whether a value is what the command line reads from its text."""
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
    """Values that differ, separated by commas; one alone is that value if
    ``single``.
    """

    name = "A,B,..."

    def __init__(self, each: click.ParamType, single: bool = True) -> None:
        self.each, self.single = each, single

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        if not isinstance(value, str):
            return value
        values = tuple(self.each.convert(part, param, ctx) for part in value.split(","))
        if len(set(values)) < len(values):
            self.fail(f"got '{value}', expected values that differ", param)
        return values[0] if self.single and len(values) == 1 else values


def _whole(least: int, most: int | None = None) -> Range:
    limit = "" if most is None else f" and at most {most}"
    return Range(
        click.IntRange(least, most), f"a whole number, at least {least}{limit}"
    )


def _plain(value: Any) -> Any:
    """Make plain Python of NumPy's scalars, and tuples of several values."""
    if hasattr(value, "tolist"):  # scalars and arrays of NumPy, columns of pandas
        value = value.tolist()
    several = isinstance(value, Iterable) and not isinstance(value, str)
    return tuple(map(_plain, value)) if several else value


def _as_read(name: str, value: Any) -> Any:
    """Write the value of a setting as the command line reads it."""
    value = _plain(value)
    if name in ("kernel", "num_inducing") and np.shape(value) == (1,):
        return value[0]
    if name == "order" and isinstance(value, tuple):
        return tuple(str(label).strip() for label in value)
    return value


def _choice(names: Iterable[str]) -> Range:
    names = tuple(names)
    return Range(click.Choice(names), f"one of {', '.join(names)}", "Choose one.")


#: Between 0 and the most, without both.
_FRACTION, _POSITIVE = (click.FloatRange(0, most, True, True) for most in (1, math.inf))


def _setting(default: Any, allowed: Range, description: str, flag: str = "") -> Any:
    """Define a setting; its flag on the command line is its name unless another one is
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
    """Give the flags of a setting on the command line."""
    name = setting.name.replace("_", "-")
    usual = f"--{name}/--no-{name}" if setting.type in (bool, "bool") else f"--{name}"
    return (setting.metadata["flag"] or usual).split()


@dataclass(frozen=True)
class Settings:
    """How models are compared.

    :raises ValueError: If a setting is outside its range, or two of them exclude each
        other.
    """

    alphas: tuple[float, ...] = _setting(
        (0.0, 0.5, 1.0),
        Range(
            _Several(click.FloatRange(0, 1), single=False),
            "one or more numbers in [0, 1] that differ",
            "Try 0 (variational), 0.5 and 1 (EP, FITC).",
        ),
        "Powers of single models, in [0, 1], that are compared with the default. 0 is"
        " the variational approximation, 1 is EP / FITC.",
    )
    num_inducing: int | str | tuple[int | str, ...] = _setting(
        AUTO,
        Range(
            _Several(_NumberOrAuto(1)),
            f"a whole number, at least 1, or '{AUTO}', or several that differ",
        ),
        "Number of inducing points of the single models; fewer where fewer training"
        " rows differ. auto: chosen in each fit. Several, as 50,200: each with each"
        " kernel.",
        "--inducing",
    )
    folds: int | None = _setting(
        None,
        _whole(2),
        "Put the rows into so many parts at random, classes in equal proportions, and"
        " hold out each part once.  [default: 5]",
    )
    splits: int | None = _setting(
        None, _whole(1), "Instead of folds: hold out a random part so many times."
    )
    test_fraction: float | None = _setting(
        None,
        Range(_FRACTION, "a number in (0, 1)", "Choose 0.2 to hold out a fifth."),
        "Fraction of the rows in that part; without splits there is one.  [default:"
        " 0.2]",
    )
    time_column: str | None = _setting(
        None,
        Range(click.STRING, "the name of a column"),
        "Column of dates or numbers, in whose order rows come: folds or splits become"
        " growing windows, each tested on the rows that follow, as a forecast is.",
    )
    horizon: int | None = _setting(
        None,
        _whole(1),
        "How far a forecast reaches: each window is tested on so many distinct values"
        " of the time column, as 3 for three months of a monthly table.",
    )
    group_column: str | None = _setting(
        None,
        Range(click.STRING, "the name of a column"),
        "Column that names whose row it is, such as a patient or a site: all rows of"
        " one are held out together, as those of a new one are. It is no input.",
    )
    together: bool = _switch(
        "Whether rows with the same inputs are held out together, so that none is"
        " predicted from its copy."
    )
    seed: int = _setting(
        0,
        _whole(0, 2**32 - 1),
        "Seed of folds or splits and of the initial inducing points.",
    )
    minutes: float = _setting(
        10.0,
        Range(_POSITIVE, "a positive number", "Raise it, to 10 for example."),
        "Most time for all fits together. Each has an equal share of what is left, and"
        " ends earlier if it converges; after the end none begins but that of the saved"
        " model on all rows. Minibatches, above 100,000 rows, have a number of steps"
        " instead.",
    )
    max_iterations: int = _setting(1000, _whole(1), "Most steps of L-BFGS-B of a fit.")
    init: str = _setting(
        "kmeans",
        _choice(INITS),
        "Where inducing points of the single models start: centres of k-means clusters,"
        " random rows, or the rows of largest residual variance.",
    )
    kernel: str | tuple[str, ...] = _setting(
        "rbf",
        Range(
            _Several(click.Choice(KERNELS)),
            f"one of {', '.join(KERNELS)}, or several that differ",
            "Choose one.",
        ),
        "Kernel of the single models, with a lengthscale for each input:"
        f" {', '.join(KERNELS)}. Several, as rbf,matern32: single models of each.",
        "--kernels --kernel",
    )
    likelihood: str = _setting(
        "auto",
        _choice(["auto", *(name for names in LIKELIHOODS.values() for name in names)]),
        "Likelihood of a number (the first seven) or a class. By default it is Gaussian"
        " for numbers, and for classes the one that suits their number. tobit: of"
        " numbers, of which some are limits, such as <5.8.",
    )
    order: tuple[str, ...] | None = _setting(
        None,
        Range(
            _Several(click.STRING, single=False),
            "the classes, which differ, from the lowest to the highest",
            "Name each class once.",
        ),
        "Order of the classes for the likelihood ordinal, from the lowest to the"
        " highest, as stable,worse,admitted.  [default: numbers by value, and grades"
        " such as low,medium,high]",
    )
    near_rows: bool = _switch(
        "Whether predictions of the default use the nearest training rows, where rows"
        " left out of 1000 or more are predicted better so."
    )
    metric: str | None = _setting(
        None,
        _choice(sorted({name for names in DECISIVE.values() for name in names})),
        "Score by which another model has to be clearly better than the default to be"
        " saved in its place: nlpd, rmse or mae of a number; nlpd, error or auc of a"
        " class.  [default: nlpd]",
    )
    details: bool = _switch(
        "Whether to find out, by a few more fits of the saved model, how much each"
        " input matters and whether more rows would help."
    )
    baselines: bool = _switch(
        "Whether to train a linear model, boosted trees, an exact GP (up to 1000 rows),"
        " and SVGP for classes (up to 100,000 rows), too."
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
                    setting.name, repr(shown), allowed.expected, allowed.remedy
                )
        self._check_together()

    def _check_together(self) -> None:
        """Refuse settings that exclude each other."""
        if self.folds is not None and (self.splits, self.test_fraction) != (None, None):
            raise refusal(
                "folds",
                f"{self.folds} and splits or a test fraction",
                "one of them: folds hold out every row once, splits a random part",
                "Leave one out.",
            )
        if self.horizon is not None:
            self._check_horizon(self.horizon)
        if None not in (self.time_column, self.group_column):
            got, expected = f"{self.time_column!r} and a group_column", "one of them"
            raise refusal("time_column", got, expected, "Leave one out.")

    def _check_horizon(self, horizon: int) -> None:
        """Check that windows follow each other in time, and that nothing else sets
        their length.
        """
        if self.time_column is None:
            got, expected = f"{horizon} without a time_column", "both"
            raise refusal("horizon", got, expected, "Name the column of times.")
        if self.test_fraction is not None:
            got = f"{horizon} and a test_fraction of {self.test_fraction:g}"
            expected = "one of them: both set how long a window is"
            raise refusal("horizon", got, expected, "Leave one out.")

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
        """Name a pair by what it does not share with all others; empty if it
        is alone.
        """
        parts = [kernel] * isinstance(self.kernel, tuple)
        return ", ".join(
            parts + [f"M {num_inducing}"] * isinstance(self.num_inducing, tuple)
        )

    def check_data(
        self, kind: Literal["numbers", "classes"], num_targets: int = 1
    ) -> None:
        """Check the settings against the data.

        :param kind: What the target is.
        :param num_targets: P.
        :raises ValueError: If the likelihood or the metric does not suit the target.
        """
        for name, usual, names in (
            ("likelihood", "auto", LIKELIHOODS[kind]),
            ("metric", None, DECISIVE[kind]),
        ):
            if getattr(self, name) not in (usual, *names):
                got, expected = repr(getattr(self, name)), f"one of {', '.join(names)}"
                raise refusal(f"{name} of {kind}", got, expected, "Choose one.")
        if num_targets > 1 and self.likelihood not in ("auto", "gaussian"):
            got = f"{self.likelihood!r} with {num_targets} targets"
            remedy = "Leave it out, or compare a target by itself."
            raise refusal(
                "likelihood", got, "'auto' or 'gaussian' with several targets", remedy
            )

    def parts(self) -> tuple[str, int, float]:
        """Name what rows are held out by, how often, and what fraction of the rows each
        time; of windows at most so often, and so large a fraction, see
        :func:`~gpflow_pep.compare.partition.parts_of`.
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
        """Name the rows that are held out, and describe in a sentence how they are
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
