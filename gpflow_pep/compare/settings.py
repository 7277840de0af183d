"""The settings of a comparison: one table for the command line, the checks and the reference.

It loads nothing slow, so that help and mistakes are immediate.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import Any, Literal, NamedTuple

import click

from ..engine.refusals import refusal

#: Rules for initial inducing points, and what the estimators call them.
INITS = {"kmeans": "kmeans", "random": "random", "variance": "greedy_variance"}
KERNELS = ("rbf", "matern12", "matern32", "matern52", "rational_quadratic")
#: Of whole numbers, whose probabilities are no densities.
COUNTS = ("poisson", "negative_binomial", "zero_inflated_poisson")
LIKELIHOODS = {
    "numbers": ("gaussian", "student_t", "log_normal", "tobit", *COUNTS),
    "classes": ("bernoulli", "multiclass", "softmax", "ordinal"),
}
#: As many inducing points, or near rows, as improve the score.
AUTO = "auto"
#: Scores that can decide which model is the best.
DECISIVE = {"numbers": ("nlpd", "rmse", "mae"), "classes": ("nlpd", "error", "auc")}
#: What the power of the model is chosen by.
SELECT = ("folds", "loo")
TASKS = {"regression": "numbers", "classification": "classes"}
#: Orders of day, month and year.
DATES = ("dmy", "mdy", "ymd")


def is_counts(likelihood: str) -> bool:
    """Whether a likelihood gives whole numbers a probability, and no others."""
    return likelihood in COUNTS


def has_gaussian_noise(likelihood: str) -> bool:
    """Whether numbers, or their logarithms, have Gaussian noise: then models are exact."""
    return likelihood in ("auto", "gaussian", "log_normal")


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


class Configuration(NamedTuple):
    """A kernel and a number of inducing points."""

    kernel: str
    num_inducing: int | str


class _NumberOrAuto(click.IntRange):
    name = "M|auto"

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        return AUTO if value == AUTO else super().convert(value, param, ctx)


class _Several(click.ParamType):
    """Values that differ, separated by commas; one alone is that value if ``single``."""

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
    return Range(click.IntRange(least, most), f"a whole number, at least {least}{limit}")


def _choice(names: Iterable[str]) -> Range:
    names = tuple(names)
    return Range(click.Choice(names), f"one of {', '.join(names)}", "Choose one.")


#: Between 0 and the most, without both.
_FRACTION, _POSITIVE = (click.FloatRange(0, most, True, True) for most in (1, math.inf))


def _setting(default: Any, allowed: Range, description: str, flag: str = "") -> Any:
    """Define a setting; its flag on the command line is its name unless another one is given."""
    return field(default=default, metadata={"range": allowed, "help": description, "flag": flag})


def _switch(description: str) -> Any:
    return _setting(True, Range(click.BOOL, "True or False", "Choose one."), description)


def flags_of(setting: Any) -> list[str]:
    """Give the flags of a setting on the command line."""
    name = setting.name.replace("_", "-")
    usual = f"--{name}/--no-{name}" if setting.type in (bool, "bool") else f"--{name}"
    return (setting.metadata["flag"] or usual).split()


@dataclass(frozen=True)
class Settings:
    """
    How models are compared.

    :raises ValueError: If a setting is outside its range, or two of them exclude each other.
    """

    alphas: tuple[float, ...] = _setting(
        (0.0, 0.5, 1.0),
        Range(
            _Several(click.FloatRange(0, 1), single=False),
            "one or more numbers in [0, 1] that differ",
            "Try 0 (variational), 0.5 and 1 (EP, FITC).",
        ),
        "Different powers to try, in [0, 1]. 0 is the variational approximation, 1 is EP / FITC.",
    )  # fmt: skip
    num_inducing: int | str | tuple[int | str, ...] = _setting(
        50,
        Range(
            _Several(_NumberOrAuto(1)),
            f"a whole number, at least 1, or '{AUTO}', or several that differ",
        ),
        "Number of inducing points; fewer where fewer training rows differ. auto: chosen in"
        " each fit by leave-one-out densities, which takes a few times as long and often predicts"
        " better. Several, as 50,200: each with each kernel.",
        "--inducing",
    )  # fmt: skip
    folds: int | None = _setting(
        None, _whole(2),
        "Put the rows into so many parts at random, classes in equal proportions, and hold out"
        " each part once.  [default: 5]",
    )  # fmt: skip
    splits: int | None = _setting(
        None, _whole(1), "Instead of folds: hold out a random part so many times."
    )
    test_fraction: float | None = _setting(
        None, Range(_FRACTION, "a number in (0, 1)", "Choose 0.2 to hold out a fifth."),
        "Fraction of the rows in that part; without splits there is one.  [default: 0.2]",
    )  # fmt: skip
    together: bool = _switch(
        "Whether rows with the same inputs are held out together, so that none is predicted from"
        " its copy."
    )
    seed: int = _setting(
        0, _whole(0, 2**32 - 1), "Seed of folds or splits and of the initial inducing points."
    )
    minutes: float = _setting(
        10.0, Range(_POSITIVE, "a positive number", "Raise it, to 10 for example."),
        "Most time for all fits together. Each has an equal share of what is left, and ends"
        " earlier if it converges; after the end none begins but that of the best model on all"
        " rows. Minibatches, above 100,000 rows, have a number of steps instead.",
    )  # fmt: skip
    mix: bool = _switch(
        "Whether to mix the predictions of the powers 0, 0.5 and 1, too, up to 100,000 rows."
    )
    max_iterations: int = _setting(10_000, _whole(1), "Most steps of L-BFGS-B of a fit.")
    init: str = _setting(
        "kmeans", _choice(INITS),
        "Where inducing points start: centres of k-means clusters, random rows, or the rows of"
        " largest residual variance.",
    )  # fmt: skip
    kernel: str | tuple[str, ...] = _setting(
        "rbf",
        Range(
            _Several(click.Choice(KERNELS)),
            f"one of {', '.join(KERNELS)}, or several that differ",
            "Choose one.",
        ),
        f"Kernel, with a lengthscale for each input: {', '.join(KERNELS)}. Several, as"
        " rbf,matern32: of more than two pairs of a kernel and a number of points the best two of"
        " a trial are compared.",
        "--kernels --kernel",
    )  # fmt: skip
    likelihood: str = _setting(
        "auto", _choice(["auto", *(name for names in LIKELIHOODS.values() for name in names)]),
        "Likelihood of a number (the first seven) or a class. By default it is Gaussian for"
        " numbers, and for classes the one that suits their number. tobit: of numbers, of which"
        " some are limits, such as <5.8.",
    )  # fmt: skip
    near_rows: bool = _switch(
        "Whether predictions of the ensemble use the 10 or 40 nearest training rows, of two classes"
        " 20, where rows left out of 1000 or more are predicted better so."
    )
    select: str = _setting(
        "folds", _choice(SELECT),
        "Choose the power of the model by the scores of held-out rows, or by the leave-one-out"
        " density of all rows. The scores of the folds are there either way.",
    )  # fmt: skip
    metric: str | None = _setting(
        None, _choice(sorted({name for names in DECISIVE.values() for name in names})),
        "Score that decides which model is the best: nlpd, rmse or mae of a number; nlpd, error"
        " or auc of a class.  [default: nlpd]",
    )  # fmt: skip
    details: bool = _switch(
        "Whether to find out, by a few more fits of the best model, how much each input matters"
        " and whether more rows would help."
    )
    baselines: bool = _switch(
        "Whether to train a linear model, boosted trees, an exact GP (up to 1000 rows), and SVGP"
        " for classes (up to 100,000 rows), too."
    )

    def __post_init__(self) -> None:
        for name in ("alphas", "kernel", "num_inducing"):
            value = getattr(self, name)
            if not isinstance(value, (str, int)):
                values = tuple(value)
                single = name != "alphas" and len(values) == 1
                object.__setattr__(self, name, values[0] if single else values)
        for setting in fields(self):
            value, allowed = getattr(self, setting.name), setting.metadata["range"]
            if not (value is setting.default is None or allowed.allows(value)):
                shown = list(value) if isinstance(value, tuple) else value
                raise refusal(setting.name, repr(shown), allowed.expected, allowed.remedy)
        if self.folds is not None and (self.splits, self.test_fraction) != (None, None):
            raise refusal(
                "folds", f"{self.folds} and splits or a test fraction",
                "one of them: folds hold out every row once, splits a random part",
                "Leave one out.",
            )  # fmt: skip
        if self.select == "loo" and len(self.configurations) > 1:
            raise refusal(
                "select", f"'loo' with {len(self.configurations)} pairs of kernel and points",
                "'folds', or one of each: leaving rows out chooses the power alone",
                "Leave one of the two out.",
            )  # fmt: skip

    @property
    def configurations(self) -> list[Configuration]:
        """The pairs of a kernel and a number of inducing points that are to be compared."""
        kernels = self.kernel if isinstance(self.kernel, tuple) else (self.kernel,)
        numbers = self.num_inducing
        numbers = numbers if isinstance(numbers, tuple) else (numbers,)
        return [Configuration(kernel, number) for number in numbers for kernel in kernels]

    def label(self, configuration: Configuration) -> str:
        """Name a configuration by what it does not share with all others; empty if it is alone."""
        parts = [configuration.kernel] if isinstance(self.kernel, tuple) else []
        if isinstance(self.num_inducing, tuple):
            parts.append(f"M {configuration.num_inducing}")
        return ", ".join(parts)

    def check_data(
        self,
        kind: Literal["numbers", "classes"],
        num_rows: int,
        num_classes: int,
        num_targets: int = 1,
    ) -> None:
        """
        Check the settings against the data.

        :param kind: What the target is.
        :param num_rows: N.
        :param num_classes: C; 1 for numbers.
        :param num_targets: P.
        :raises ValueError: If too few rows would be held out or left, or the likelihood does
            not suit the target.
        """
        parts, count, fraction = self.parts()
        held_out = num_rows // count if parts == "fold" else int(num_rows * fraction)
        fewest = max(2, num_classes)
        if min(held_out, num_rows - held_out) < fewest:
            name, value = ("folds", count) if parts == "fold" else ("test_fraction", fraction)
            raise refusal(
                name, f"{value} for {num_rows} rows, which holds out {held_out} at a time",
                f"at least {fewest} to train on and to score", "Choose another, or add rows.",
            )  # fmt: skip
        for name, usual, names in (
            ("likelihood", "auto", LIKELIHOODS[kind]),
            ("metric", None, DECISIVE[kind]),
        ):
            if getattr(self, name) not in (usual, *names):
                got, expected = repr(getattr(self, name)), f"one of {', '.join(names)}"
                raise refusal(f"{name} of {kind}", got, expected, "Choose one.")
        if num_targets > 1:
            self._check_several(num_targets)

    def _check_several(self, num_targets: int) -> None:
        """Refuse what several targets do not have."""
        for name, usual in (
            ("likelihood", ("auto", "gaussian")),
            ("select", ("folds",)),
        ):
            value = getattr(self, name)
            if value not in usual:
                got = f"{value!r} with {num_targets} targets"
                expected = f"{' or '.join(map(repr, usual))} with several targets"
                raise refusal(name, got, expected, "Leave it out, or compare a target by itself.")

    def parts(self) -> tuple[str, int, float]:
        """Name what rows are held out by, how often, and what fraction of the rows each time."""
        if self.splits is None and self.test_fraction is None:
            folds = self.folds or 5
            return "fold", folds, 1.0 / folds
        return "split", self.splits or 1, self.test_fraction or 0.2


def _documented(settings: type) -> str:
    """Put the description of each setting into the docstring, where the reference finds it."""
    summary, _, rest = str(settings.__doc__).partition("    :raises")
    descriptions = (f"    :param {s.name}: {s.metadata['help']}\n" for s in fields(settings))
    return f"{summary}{''.join(descriptions)}    :raises{rest}"


Settings.__doc__ = _documented(Settings)
