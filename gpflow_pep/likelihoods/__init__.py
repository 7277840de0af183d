"""Likelihoods that GPflow lacks, a file for each, with its tilted integral.

Also what a likelihood of one's own registers, and the integrals that all models take of it.
"""

from ..engine.factors import (
    AccuracyWarning,
    Layout,
    ScalarFactor,
    Structure,
    Support,
    TiltedDerivatives,
    Traits,
    check_support,
    class_probabilities,
    implementations,
    layout,
    log_power_expectation,
    predict_mean_and_var,
    scalar_factor,
    support,
    tilted_derivatives,
    traits,
)
from ..engine.refusals import absent
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
    "AccuracyWarning",
    "Layout",
    "LogNormal",
    "NegativeBinomial",
    "NoisyLabelBernoulli",
    "Ordinal",
    "PerOutput",
    "ResidualVariance",
    "ScalarFactor",
    "Structure",
    "Support",
    "TiltedDerivatives",
    "Tobit",
    "Traits",
    "UniformRobustMax",
    "ZeroInflatedPoisson",
    "check_support",
    "class_probabilities",
    "implementations",
    "layout",
    "log_power_expectation",
    "predict_mean_and_var",
    "scalar_factor",
    "support",
    "tilted_derivatives",
    "traits",
]

__getattr__ = absent(__name__)
