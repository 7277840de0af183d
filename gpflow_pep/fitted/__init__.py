"""
A trained model together with the units of its data: what :func:`gpflow_pep.compare.compare` trains,
and :mod:`gpflow_pep.saving` keeps.
"""

from ..datasets import Dataset
from .base import FittedModel, Metric, SavedPrediction
from .classification import ClassProbabilities, FittedClassifier
from .regression import FittedRegression, Prediction

__all__ = [
    "ClassProbabilities",
    "FittedClassifier",
    "FittedModel",
    "FittedRegression",
    "Metric",
    "Prediction",
    "SavedPrediction",
    "fitted_class",
]


def fitted_class(dataset: Dataset) -> type[FittedModel]:
    """
    The kind of model for some data.

    :param dataset: the data, whose target is a number or a class.
    """
    return FittedClassifier if dataset.classes else FittedRegression
