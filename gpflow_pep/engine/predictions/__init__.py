"""Predictions from q(v), and from training rows in addition."""
