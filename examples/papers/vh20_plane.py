"""Three classes in the plane, drawn from the model itself."""

from collections.abc import Callable

import numpy as np
from gpflow.base import AnyNDArray

#: Rows, the lengthscale of the functions, and where the rows are.
PLACES_ROWS = 1000
PLACES_LENGTHSCALE = 1.0
PLACES_BOX = 3.0
#: Random features for each function.
FEATURES = 200


def plane(
    seed: int,
) -> tuple[AnyNDArray, AnyNDArray, Callable[[AnyNDArray], AnyNDArray]]:
    """Rows in the plane, their classes, and three functions whose largest is the class."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-PLACES_BOX, PLACES_BOX, (PLACES_ROWS, 2))
    # Random features of a squared exponential: functions that can be drawn at any
    # place.
    omega = rng.standard_normal((3, FEATURES, 2)) / PLACES_LENGTHSCALE
    phase = rng.uniform(0.0, 2.0 * np.pi, (3, FEATURES))
    weight = rng.standard_normal((3, FEATURES)) * np.sqrt(2.0 / FEATURES)

    def functions(rows: AnyNDArray) -> AnyNDArray:
        waves = np.cos(np.einsum("nd,kfd->nkf", rows, omega) + phase)
        found: AnyNDArray = np.einsum("nkf,kf->nk", waves, weight)
        return found

    return X, np.argmax(functions(X), axis=1).astype(float), functions
