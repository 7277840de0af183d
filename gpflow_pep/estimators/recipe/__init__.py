"""The single models that are tried for a table, how left-out rows decide between them,
and how they are mixed.
"""
