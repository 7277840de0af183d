"""What a comparison is asked for, checked before anything slow is loaded."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

#: Rules for initial inducing points, and what the estimators call them.
INITS = {"kmeans": "kmeans", "random": "random", "variance": "greedy_variance"}
KERNELS = ("rbf", "matern12", "matern32", "matern52", "rational_quadratic")
LIKELIHOODS = {
    "numbers": ("gaussian", "student_t", "poisson"),
    "classes": ("bernoulli", "multiclass", "softmax"),
}
#: What the power of the model is chosen by.
SELECT = ("folds", "loo")
TASKS = {"regression": "numbers", "classification": "classes"}


def _at_least(name: str, value: Any, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(
            f"{name}: got {value!r}, expected a whole number, at least {least}. Choose another."
        )


def check_choice(name: str, value: Any, choices: Sequence[str]) -> None:
    """
    Refuse what is not among some names.

    :param name: Of the setting.
    :param value: What was asked for.
    :param choices: What there is.
    :raises ValueError: If it is none of these.
    """
    if value not in choices:
        raise ValueError(
            f"{name}: got {value!r}, expected one of {', '.join(choices)}. Choose one."
        )


@dataclass(frozen=True)
class Settings:
    """
    How models are compared.

    :param alphas: Different powers in [0, 1].
    :param num_inducing: M; fewer where there are fewer training rows that differ.
    :param folds: Rows are put into as many parts at random, classes in equal proportions; each part
        is held out once.
    :param splits: Instead of folds: how many times a random part is held out.
    :param test_fraction: The fraction of the rows in that part, in (0, 1); 0.2 if there are splits.
        If it is given without ``splits``, there is one.
    :param seed: Of folds or splits and of initial inducing points.
    :param minutes: The most time for all fits together. Each has an equal share of what is left,
        and ends earlier where training converges. The first evaluation of a fit, which compiles,
        is waited for. Minibatches, above 100 000 rows, have a number of steps instead.
    :param max_iterations: The most steps of L-BFGS of a fit.
    :param init: Where inducing points start: "kmeans", "random", or "variance" for the rows of
        largest residual variance.
    :param kernel: By the names of :class:`PEPRegressor <gpflow_pep.estimators.PEPRegressor>`.
    :param likelihood: By the names of the estimators; "auto" is Gaussian for numbers, and for
        classes what their number asks for.
    :param neighbours: How many near rows the conditional of each row knows, see
        :doc:`/neighbours`; for numbers with a Gaussian likelihood.
    :param select: What the power of the model that is kept is chosen by: "folds", the scores of
        held-out rows, or "loo", the leave-one-out density of all rows, see :doc:`/select_alpha`.
        The scores of the folds are there either way.
    :param baselines: Whether to train an exact Gaussian process, where there are at most 1000 rows,
        and SVGP for classes, up to 100 000 rows, too. Predicting the mean, or the frequencies of
        classes, is always there.
    :raises ValueError: If a setting is not as said here.
    """

    alphas: tuple[float, ...] = (0.0, 0.5, 1.0)
    num_inducing: int = 50
    folds: int | None = None
    splits: int | None = None
    test_fraction: float | None = None
    seed: int = 0
    minutes: float = 10.0
    max_iterations: int = 10_000
    init: str = "kmeans"
    kernel: str = "rbf"
    likelihood: str = "auto"
    neighbours: int = 0
    select: str = "folds"
    baselines: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "alphas", tuple(self.alphas))
        self._check_alphas()
        for name, least in {
            "num_inducing": 1,
            "seed": 0,
            "max_iterations": 1,
            "neighbours": 0,
        }.items():
            _at_least(name, getattr(self, name), least)
        for name, least in {"folds": 2, "splits": 1}.items():
            if getattr(self, name) is not None:
                _at_least(name, getattr(self, name), least)
        if self.folds is not None and (self.splits, self.test_fraction) != (None, None):
            raise ValueError(
                f"folds: got {self.folds} and splits or a test fraction, expected one of them:"
                " folds hold out every row once, splits a random part. Leave one out."
            )
        if self.test_fraction is not None and not 0.0 < self.test_fraction < 1.0:
            raise ValueError(
                f"test_fraction: got {self.test_fraction}, expected a number in (0, 1). Choose 0.2"
                " to hold out a fifth."
            )
        if not (self.minutes > 0.0 and math.isfinite(self.minutes)):
            raise ValueError(
                f"minutes: got {self.minutes}, expected a positive number. Raise it, to 10 for"
                " example."
            )
        check_choice("init", self.init, list(INITS))
        check_choice("select", self.select, SELECT)
        if self.select == "loo" and self.neighbours:
            raise ValueError(
                f"select: got 'loo' with {self.neighbours} neighbours, expected 'folds': rows that"
                " know others cannot be left out one at a time. Leave one of the two out."
            )
        check_choice("kernel", self.kernel, KERNELS)
        check_choice(
            "likelihood", self.likelihood, ["auto", *(n for ns in LIKELIHOODS.values() for n in ns)]
        )

    def _check_alphas(self) -> None:
        if not self.alphas or not all(0.0 <= alpha <= 1.0 for alpha in self.alphas):
            raise ValueError(
                f"alphas: got {list(self.alphas)}, expected one or more numbers in [0, 1]. Try 0"
                " (variational), 0.5 and 1 (EP, FITC)."
            )
        if len(set(self.alphas)) < len(self.alphas):
            raise ValueError(
                f"alphas: got {list(self.alphas)}, expected different ones. Name each only once."
            )

    def check_data(
        self, kind: Literal["numbers", "classes"], num_rows: int, num_classes: int
    ) -> None:
        """
        Check the settings against the data.

        :param kind: What the target is.
        :param num_rows: N.
        :param num_classes: C; 1 for numbers.
        :raises ValueError: If they do not fit.
        """
        parts, count, fraction = self.parts()
        held_out = num_rows // count if parts == "fold" else int(num_rows * fraction)
        fewest = max(2, num_classes)
        if min(held_out, num_rows - held_out) < fewest:
            what = f"folds: got {count}" if parts == "fold" else f"test_fraction: got {fraction}"
            raise ValueError(
                f"{what} for {num_rows} rows, which holds out {held_out} at a time, expected at"
                f" least {fewest} to train on and to score. Choose another, or add rows."
            )
        if self.likelihood != "auto":
            check_choice(f"likelihood of {kind}", self.likelihood, LIKELIHOODS[kind])
        if self.neighbours and (kind == "classes" or self.likelihood not in ("auto", "gaussian")):
            raise ValueError(
                f"neighbours: got {self.neighbours}, expected 0: rows know near rows only where the"
                " target is a number with a Gaussian likelihood. Leave it out."
            )

    def parts(self) -> tuple[str, int, float]:
        """Name what rows are held out by, how often, and what fraction of the rows each time."""
        if self.splits is None and self.test_fraction is None:
            folds = self.folds or 5
            return "fold", folds, 1.0 / folds
        return "split", self.splits or 1, self.test_fraction or 0.2
