"""Functions drawn from the posterior: functions of the prior with random features,
updated by draws of u.
"""

from .factors import FACTORS, SPECTRA, KernelFactor, Waves
from .functions import Paths

__all__ = ["FACTORS", "SPECTRA", "KernelFactor", "Paths", "Waves"]
