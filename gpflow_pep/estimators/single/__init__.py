"""One model, trained with known settings: its parts, units, training and
predictions.
"""
