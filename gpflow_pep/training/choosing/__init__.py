"""Choices by left-out rows: of the power, ensembles of models, near rows and near
labels.
"""
