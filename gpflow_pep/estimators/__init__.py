"""Estimators with scikit-learn's conventions: fit, predict, and what works on
estimators.
"""

from .classifier import PEPClassifier
from .exporting_numpy import export_numpy
from .pipeline import DrawingPipeline
from .regressor import PEPRegressor
from .saving import load_estimator, save_estimator
from .separate import SeparateRegressors

__all__ = [
    "DrawingPipeline",
    "PEPClassifier",
    "PEPRegressor",
    "SeparateRegressors",
    "export_numpy",
    "load_estimator",
    "save_estimator",
]
