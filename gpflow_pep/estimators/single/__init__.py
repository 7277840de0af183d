"""One model, trained with given settings: its parts, units, training and
predictions.
"""
