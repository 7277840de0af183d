"""Predictions of fitted models with NumPy alone: no TensorFlow, no scikit-learn."""

from .scorer import Scorer, load_scorer

__all__ = ["Scorer", "load_scorer"]
