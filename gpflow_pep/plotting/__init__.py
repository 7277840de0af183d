"""Pictures: numbers and an ``ax`` in, the ``ax`` out. They need the extra ``gpflow_pep[plots]``."""

from .canvas import BEST, FIT, HELD_OUT, INSTALL, PALETTE, TRAIN, available, figure, tidy
from .classes import confusion_matrix, decision_boundary, draw_calibration, predictor, reliability
from .models import Inducing, inducing_points, inducing_points_of, relevance
from .regression import (
    leave_one_out,
    pit_histogram,
    predicted_against_actual,
    regression_1d,
    residuals,
)
from .rows import RowCurves, row, row_curves
from .traces import alpha_sweep, objective_trace, site_trace

__all__ = [
    "BEST",
    "FIT",
    "HELD_OUT",
    "INSTALL",
    "PALETTE",
    "TRAIN",
    "Inducing",
    "RowCurves",
    "alpha_sweep",
    "available",
    "confusion_matrix",
    "decision_boundary",
    "draw_calibration",
    "figure",
    "inducing_points",
    "inducing_points_of",
    "leave_one_out",
    "objective_trace",
    "pit_histogram",
    "predicted_against_actual",
    "predictor",
    "regression_1d",
    "relevance",
    "reliability",
    "residuals",
    "row",
    "row_curves",
    "site_trace",
    "tidy",
]
