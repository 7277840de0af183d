"""Loops that train a model, the record of a run, and the outputs that it writes."""
