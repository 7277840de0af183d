"""Likelihoods that GPflow lacks, a file for each, with its tilted integral."""

from ..refusals import absent
from .log_normal import LogNormal
from .negative_binomial import NegativeBinomial
from .noisy_label import NoisyLabelBernoulli
from .ordinal import Ordinal
from .per_output import PerOutput
from .residual_variance import ResidualVariance
from .tobit import Tobit
from .uniform_robust_max import UniformRobustMax
from .zero_inflated_poisson import ZeroInflatedPoisson

__all__ = [
    "LogNormal",
    "NegativeBinomial",
    "NoisyLabelBernoulli",
    "Ordinal",
    "PerOutput",
    "ResidualVariance",
    "Tobit",
    "UniformRobustMax",
    "ZeroInflatedPoisson",
]

__getattr__ = absent(__name__)
