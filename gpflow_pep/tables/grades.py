"""The order of classes that are numbers, or words for grades."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ..engine.refusals import refusal

#: Words for grades, in their order.
GRADES = [
    scale.split(", ")
    for scale in (
        (
            "never, rarely, seldom, sometimes, occasionally, often, frequently,"
            " usually, always"
        ),
        (
            "none, absent, minimal, slight, mild, moderate, marked, severe, extreme,"
            " critical"
        ),
        "none, very low, low, medium, moderate, average, high, very high",
        "tiny, very small, small, medium, large, very large, huge",
        "very bad, very poor, bad, poor, fair, average, good, very good, excellent",
        "strongly disagree, disagree, neutral, agree, strongly agree",
        "negative, neutral, positive",
        "benign, borderline, malignant",
    )
]


def numbers_of(labels: npt.NDArray[Any]) -> npt.NDArray[Any] | None:
    """Read labels that are numbers or numbers in text; None for other labels."""
    try:
        return labels.astype(float)
    except ValueError:
        return None


def order_of_labels(labels: npt.NDArray[Any]) -> npt.NDArray[Any] | None:
    """Sort labels that are numbers by value, and grades; None of other labels."""
    numbers = numbers_of(labels)
    if numbers is not None:
        return np.argsort(numbers, kind="stable")
    words = [" ".join(str(label).lower().replace("_", " ").split()) for label in labels]
    for scale in GRADES:
        if len(set(words) & set(scale)) == len(words):
            return np.argsort([scale.index(word) for word in words])
    return None


def places_in(order: Sequence[Any], labels: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the places of labels in an order, which may have further entries.

    :raises ValueError: If a label is not in the order, or is in it twice.
    """
    known = list(order)
    missing = [label for label in labels.tolist() if label not in known]
    if missing or len({*known}) < len(known):
        got = ", ".join(map(repr, known))
        absent = f" without {', '.join(map(repr, missing))}" if missing else ""
        remedy = "List each class once, from the lowest to the highest."
        raise refusal("order", f"{got}{absent}", "all classes, each once", remedy)
    return np.argsort([known.index(label) for label in labels.tolist()])
