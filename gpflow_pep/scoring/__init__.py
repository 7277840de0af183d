"""Predictions of fitted models with NumPy alone, without TensorFlow and
scikit-learn.
"""

from .scorer import Scorer, load_scorer
from .stored import version_of

__all__ = ["Scorer", "load_scorer", "version_of"]
