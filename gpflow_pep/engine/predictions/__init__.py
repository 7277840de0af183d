"""Predictions from q(v), and from training rows that they are given besides."""
