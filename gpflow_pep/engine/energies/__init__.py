"""Approximate log marginal likelihoods: scalars."""

from . import collapsed
from . import scaled as scaled  # importing it registers its conditional

__all__ = ["collapsed"]
