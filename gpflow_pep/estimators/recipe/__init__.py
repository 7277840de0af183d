"""Which single models are tried for a table, how rows that were left out judge them,
and how they are mixed.
"""
