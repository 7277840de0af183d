"""scikit-learn's conventions on the models: fit, predict, and all that takes estimators."""

from .classifier import PEPClassifier
from .exporting import export_saved_model
from .exporting_numpy import export_numpy
from .regressor import PEPRegressor
from .saving import load_estimator, save_estimator

__all__ = [
    "PEPClassifier",
    "PEPRegressor",
    "export_numpy",
    "export_saved_model",
    "load_estimator",
    "save_estimator",
]
