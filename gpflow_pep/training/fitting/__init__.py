"""Loops that train a model, their record and outputs, and rows spread over
processes.
"""
