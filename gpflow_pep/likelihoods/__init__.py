"""Likelihoods that GPflow lacks, with their tilted integrals.

Also the parts that your own likelihood registers, and the integrals that all models
use.
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
from .censored import Ordinal, Tobit
from .labels import NoisyLabelBernoulli
from .log_linear import LogLinear
from .per_output import PerOutput
from .positive import LogNormal, NegativeBinomial

__all__ = [
    "AccuracyWarning",
    "Layout",
    "LogLinear",
    "LogNormal",
    "NegativeBinomial",
    "NoisyLabelBernoulli",
    "Ordinal",
    "PerOutput",
    "ScalarFactor",
    "Structure",
    "Support",
    "TiltedDerivatives",
    "Tobit",
    "Traits",
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
