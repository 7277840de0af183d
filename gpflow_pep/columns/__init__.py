"""Columns of tables: how their cells are read, and numbers made of them. No TensorFlow."""

from .encoder import TableEncoder
from .formats import Format, read_cells, recognise

__all__ = ["Format", "TableEncoder", "read_cells", "recognise"]
