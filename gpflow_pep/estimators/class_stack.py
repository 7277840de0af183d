"""What :class:`PEPClassifier <gpflow_pep.estimators.PEPClassifier>` does where nothing is named:
models of known settings, whose probabilities are mixed by rows that were left out.

Each component has a Matérn 5/2 kernel whose lengthscales are alike a priori, and inducing points
that are not trained, 400 of two classes and 150 of more, so that leave-one-out densities are
honest: one on standardised inputs, and one on Yeo-Johnson inputs that starts where the first ended.
Where more than two classes are numbers or :data:`GRADES`, and wrong classes are mostly next to the
right ones, a third one has the ordinal likelihood. RobustMax beside them gained nothing on six
generated tables: alone it was .01 better on one and .02 to .3 worse on four.

From :data:`MANY_ROWS` rows on there is one model, whose points are trained. The components of some
of the rows choose its inputs.
"""

import sys
import time
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
from gpflow.base import AnyNDArray

from ..scoring.predictive import Recalibration
from ..training import ensemble_weights
from ..training.choosing.near import LEAST_ROWS
from ..training.fitting.objectives import FAILURES
from .stack import FIRST_SHARE, Stack, component

if TYPE_CHECKING:
    from .classifier import PEPClassifier

#: From here on predictions may use near rows.
MANY_ROWS = LEAST_ROWS
#: c of the weights' prior.
PRIOR_WEIGHT = 0.1
#: The rows that choose inputs there, and the seconds that must be left for it.
SCOUT_ROWS, LEAST_SECONDS = 400, 5.0
#: The held-out log loss with a spread of .7 and of 1 differed by .004 at most on five generated
#: tables. Without a prior (infinity) it was .04 worse on digits (200 rows, 64 inputs), and with one
#: lengthscale (0) .17 worse where most inputs are noise.
COMMON = {"kernel": "matern52", "ard": 0.7, "inducing": "rows", "alpha": 0.5, "verbose": False}
#: On 600 rows of two classes and ten inputs 400 points had a log loss of .306 and 150 of .334; on
#: two other tables they gained .01 and nothing.
POINTS_OF_TWO, POINTS_OF_MORE = 400, 150
#: Words that are in order.
GRADES = [
    scale.split(", ")
    for scale in (
        "never, rarely, seldom, sometimes, occasionally, often, frequently, usually, always",
        "none, absent, minimal, slight, mild, moderate, marked, severe, extreme, critical",
        "none, very low, low, medium, moderate, average, high, very high",
        "tiny, very small, small, medium, large, very large, huge",
        "very bad, very poor, bad, poor, fair, average, good, very good, excellent",
        "strongly disagree, disagree, neutral, agree, strongly agree",
        "negative, neutral, positive",
        "benign, borderline, malignant",
    )
]


def fit_class_stack(
    estimator: "PEPClassifier", X: AnyNDArray, Y: AnyNDArray, seconds: float
) -> Stack:
    """Train the components on rows X [N, D], with numbers of classes Y [N, 1], and mix them.

    :param estimator: Whose other settings are those of the components.
    :param seconds: The most seconds of it.
    """
    end = time.perf_counter() + seconds
    if len(X) >= MANY_ROWS:
        lines, inputs = [], "standard"
        if seconds >= LEAST_SECONDS:
            some = np.random.default_rng(estimator._seed()).permutation(len(X))[:SCOUT_ROWS]
            scout = fit_class_stack(estimator, X[some], Y[some], FIRST_SHARE * seconds)
            lines, inputs = (
                [f"{len(some)} rows choose inputs.", *scout.lines],
                scout.heaviest.inputs,
            )
        part = component(estimator, X, Y, {"inputs": inputs}, end - time.perf_counter())
        return _stack_of([part], [*lines, f"{len(X)} rows: {part._one_line()}"])
    parts: list[PEPClassifier] = []
    densities: list[AnyNDArray] = []
    names: list[str] = []

    def add(name: str, before: "PEPClassifier", share: float, **settings: Any) -> None:
        """Train a component, if there is time, and leave out each of its rows in turn."""
        left = share * (end - time.perf_counter())
        if parts and left <= 0.0:
            return
        try:
            part = component(before, X, Y, COMMON | settings, left)
            density = np.nan_to_num(part.model_.loo_log_density(), nan=-np.inf)
        except FAILURES:
            if parts:
                return
            raise
        parts.append(part)
        densities.append(np.maximum(density, np.log(np.finfo(np.float64).tiny)))
        names.append(f"{name}: {np.mean(density):.3f} nats a row")
        if estimator.verbose:
            print(names[-1], file=sys.stderr)

    several = len(estimator.classes_) > 2
    number = POINTS_OF_MORE if several else POINTS_OF_TWO
    same = {"likelihood": "softmax" if several else "bernoulli", "num_inducing": number}
    again: dict[str, Any] = {"warm_start": True, **same}
    add("Standardised inputs", estimator, FIRST_SHARE, inputs="standard", **same)
    add("Yeo-Johnson inputs", parts[0], FIRST_SHARE, inputs="yeo-johnson", **again)
    best = parts[int(np.argmax(np.mean(densities, axis=1)))]
    order = order_of_labels(estimator.classes_)
    if several and order is not None:
        labels = np.argsort(order)[Y[:, 0].astype(int)]
        if is_nearest(best._probabilities(X)[:, order], labels):
            again |= {"likelihood": "ordinal", "inputs": best.inputs}
            add("Classes in order", best, 1.0, **again)
    weights = ensemble_weights(np.stack(densities), prior_weight=PRIOR_WEIGHT)
    lines = [f"{name}, weight {w:.2f}." for name, w in zip(names, weights, strict=True)]
    return _stack_of(parts, lines, weights)


def _stack_of(parts: list[Any], lines: list[str], weights: AnyNDArray | None = None) -> Stack:
    w = np.ones(1) if weights is None else weights
    return Stack(tuple(parts), w, w, Recalibration(), tuple(lines))


def order_of_labels(labels: AnyNDArray) -> AnyNDArray | None:
    """Sort labels that are numbers, also in text, by value, and grades; None of other labels."""
    try:
        return np.argsort(labels.astype(float), kind="stable")
    except ValueError:
        words = [" ".join(str(label).lower().replace("_", " ").split()) for label in labels]
    for scale in GRADES:
        if len(set(words) & set(scale)) == len(words):
            return np.argsort([scale.index(word) for word in words])
    return None


def is_nearest(probability: AnyNDArray, labels: AnyNDArray) -> bool:
    """
    Whether no swap of two classes brings the probability of wrong classes nearer to the right ones.

    :param probability: Of the classes of rows, [N, C].
    :param labels: The numbers of their classes, [N].
    """
    places = np.arange(probability.shape[1])
    misplaced = np.zeros([len(places)] * 2)
    np.add.at(misplaced, labels, probability)

    def distance(*swapped: int) -> float:
        new = places.copy()
        new[list(swapped)] = swapped[::-1]
        return float(np.sum(misplaced * np.abs(new[:, None] - new)))

    return all(distance(*pair) >= distance() for pair in combinations(places, 2))
