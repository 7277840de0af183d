"""Approximate log marginal likelihoods: scalars."""

from . import collapsed

__all__ = ["collapsed"]
