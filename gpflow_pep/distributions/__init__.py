"""Distributions of targets, and the units of targets and inputs, in NumPy alone."""

from .inputs import YeoJohnson
from .predictive import Predictive
from .recalibration import Recalibration
from .units import Units

__all__ = ["Predictive", "Recalibration", "Units", "YeoJohnson"]
