"""The models that a comparison trains: estimators at each power, and baselines."""

from typing import Any

import numpy as np
from sklearn.dummy import DummyClassifier

from ..estimators import PEPClassifier, PEPRegressor
from ..estimators.base import MOST_ROWS
from .baselines import ExactGP, MeanBaseline, WholeSVGP
from .cleaning import Cleaned
from .settings import INITS, Settings

#: Most rows for which the exact Gaussian process is trained too.
MOST_EXACT = 1000
#: What every comparison has: predicting the mean, or how frequent each class is.
TRIVIAL = {"numbers": "mean", "classes": "class frequencies"}


def name_of(alpha: float) -> str:
    """Name the model of a power."""
    return f"alpha {alpha:g}"


def make_candidates(data: Cleaned, settings: Settings) -> dict[str, tuple[float, Any]]:
    """
    Make all models, untrained, with their powers (NaN for baselines), by name.

    :param data: The table.
    :param settings: What to compare.
    """
    numbers = data.kind == "numbers"
    options: dict[str, Any] = {
        "num_inducing": settings.num_inducing,
        "inducing": INITS[settings.init],
        "max_iterations": settings.max_iterations,
        "random_state": settings.seed,
    }
    likelihood = settings.likelihood
    if numbers:
        likelihood = "gaussian" if likelihood == "auto" else likelihood
        options["neighbours"] = settings.neighbours
    options["likelihood"] = likelihood
    kind = PEPRegressor if numbers else PEPClassifier
    trivial = MeanBaseline() if numbers else DummyClassifier(strategy="prior")
    found = {TRIVIAL[data.kind]: (np.nan, trivial)}
    if settings.baselines:
        plain = {name: option for name, option in options.items() if name != "neighbours"}
        if numbers and likelihood == "gaussian" and len(data.X) <= MOST_EXACT:
            found["exact GP"] = np.nan, ExactGP(settings.kernel, **plain)
        if not numbers and len(data.X) <= MOST_ROWS:
            found["SVGP"] = np.nan, WholeSVGP(settings.kernel, **plain, alpha=0.0)
    for alpha in settings.alphas:
        found[name_of(alpha)] = alpha, kind(settings.kernel, alpha=alpha, **options)
    return found
