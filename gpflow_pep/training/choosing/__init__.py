"""Choices by rows that were left out: the power, ensembles of models, near rows and
labels.
"""
