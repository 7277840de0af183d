"""Programs around the tests: deliberate faults, other versions of what the package
needs.
"""
