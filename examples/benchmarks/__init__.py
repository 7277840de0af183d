"""Time, memory and accuracy, beside GPflow where it has the same."""
