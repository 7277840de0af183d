"""Numerical building blocks: functions of tensors, and of arrays of NumPy."""
