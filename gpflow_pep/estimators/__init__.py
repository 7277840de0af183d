"""scikit-learn's conventions on the models: fit, predict, and all that takes estimators."""

from .classifier import PEPClassifier
from .regressor import PEPRegressor

__all__ = ["PEPClassifier", "PEPRegressor"]
