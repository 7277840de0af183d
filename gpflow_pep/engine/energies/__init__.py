"""Approximate log marginal likelihoods: scalars."""
