"""Numerical building blocks: functions of tensors that know nothing of models.

They and other functions of tensors alone carry ``do_not_convert``: AutoGraph has nothing to
translate in them, and to find that out costs seconds when a model is first compiled. Functions that
call a user's kernel, mean function or likelihood do not carry it, since AutoGraph may have work
there.
"""

from . import chunks, linalg, power, quadrature

__all__ = ["chunks", "linalg", "power", "quadrature"]
