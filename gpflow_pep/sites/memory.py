r"""What is left of rows that are forgotten: one Gaussian factor of f at the inducing points.

Whatever the likelihood, what Power EP learnt from the rows is Gaussian: the posterior of u over its
prior. As a function of f at the inducing points Z it is, for each latent function,

.. math::

    t(f) = \exp(c + hᵀ (f(Z) - m) - \tfrac12 |W (f(Z) - m)|^2), \qquad
    Wᵀ W = S^{-1} - K_{uu}^{-1}, \quad h = S^{-1} (\mu - m)

with :math:`q(u) = N(\mu, S)`, m the mean function at Z, and c such that the prior's integral of it
is Z, the evidence. The prior is divided out: c, h, W and m are constants, which mean the same to a
model with another kernel, mean function or inducing variables. W is also that of
:mod:`gpflow_pep.sites.surrogate`, whose targets y have :math:`Wᵀ \tilde y = h`; with h itself
nothing is lost in directions of which little is known. The size is M² however many rows, and
however many memories before, it stands for.
"""

from typing import NamedTuple

import tensorflow as tf
from gpflow.base import TensorType

from .posterior import Natural


class Memory(NamedTuple):
    r"""
    A factor of f at inducing points, in the place of rows that are forgotten.

    Tensors or NumPy arrays: ``numpy.savez(path, **memory._asdict())`` keeps one where ``alpha`` is
    not None.
    """

    Z: TensorType
    """[K, M, D], the inducing points; K is 1 where all latent functions share them, else L."""

    weights: TensorType
    """[K, R, M], W; K is 1 or L, perhaps another one than of Z. ``remember`` gives R = M."""

    first: TensorType
    """[L, M], h."""

    mean: TensorType
    """[L, M], m."""

    log_constant: TensorType
    r"""[], :math:`\sum_l c_l`: the evidence less what the factor's integrals give."""

    alpha: float | None = None
    """The power of the memory as a factor, in [0, 1]; None: that of the model it is given to."""


class MemoryTerms(NamedTuple):
    """What a memory adds to a model."""

    natural: Natural
    """To the natural parameters of the prior of v; G is [1 or L, M, M]."""

    log_scale: tf.Tensor
    """[], to log Z, beside what it adds there by way of the natural parameters."""


def add_memory(natural: Natural, terms: MemoryTerms | None) -> Natural:
    """
    Add what a memory says to what rows say.

    :param terms: Of the memory; None: there is none.
    """
    return natural if terms is None else Natural(*map(tf.add, natural, terms.natural))
