"""Pictures. The functions draw numbers on an ``ax`` and return it. They need the extra
``gpflow_pep[plots]``.
"""

from .canvas import (
    BEST,
    FIT,
    HELD_OUT,
    INSTALL,
    PALETTE,
    TRAIN,
    available,
    figure,
    tidy,
)
from .classes import confusion_matrix, decision_boundary, predictor, reliability
from .models import Inducing, alpha_sweep, inducing_points_of
from .regression import pit_histogram, predicted_against_actual, regression_1d

__all__ = [
    "BEST",
    "FIT",
    "HELD_OUT",
    "INSTALL",
    "PALETTE",
    "TRAIN",
    "Inducing",
    "alpha_sweep",
    "available",
    "confusion_matrix",
    "decision_boundary",
    "figure",
    "inducing_points_of",
    "pit_histogram",
    "predicted_against_actual",
    "predictor",
    "regression_1d",
    "reliability",
    "tidy",
]
