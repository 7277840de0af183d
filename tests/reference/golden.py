"""Reference values of high accuracy for PEP, on the nine rows of ``helpers.golden_problem``."""

from collections.abc import Sequence

import numpy as np
from helpers import Array, golden_problem

#: The values are correct to the digits shown; jitter 0.
GOLDEN_ATOL = 2e-10
GOLDEN_PROBIT = {0.0: -5.6554571323, 0.5: -5.3710956836, 1.0: -5.1368435603}  # not squeezed
GOLDEN_SITE_MEAN, GOLDEN_SITE_VARIANCE = -2.3392408912, 3.2030877083  # of row 2, alpha = 0.5
GOLDEN_SQUEEZED_PROBIT = -5.3737323838  # alpha = 0.5
GOLDEN_POISSON = -14.1259004957  # alpha = 0.5
GOLDEN_MULTI_CLASS = {0.0: -26.0547220462, 0.5: -17.1622919880, 1.0: -11.6639524167}


def golden_targets(kind: str) -> Array:
    """``labels``, ``counts`` or ``classes`` of the nine rows, [9, 1]."""
    X, y = golden_problem().problem.data
    classes = np.stack([np.sin(3.0 * X[:, 0]), np.cos(2.0 * X[:, 1]), np.full(9, 0.3)])
    return {
        "labels": np.where(y > 0.1, 1.0, 0.0),
        "counts": np.round(np.exp(y)),
        "classes": np.argmax(classes, axis=0)[:, None].astype(float),
    }[kind]


def golden_classes() -> list[tuple[Array, float, Sequence[float]]]:
    """Z, kernel variance and lengthscales of each class's latent function."""
    Z = golden_problem().problem.Z
    return [(Z, 1.3, [0.7, 1.1]), (Z + 0.1, 0.8, [0.9, 0.9]), (Z[:3] - 0.05, 1.1, [0.6, 1.3])]
