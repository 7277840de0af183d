"""Dense NumPy references, which share no code with the package, and their own tests."""
