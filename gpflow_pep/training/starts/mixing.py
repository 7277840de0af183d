r"""Initial values of coregionalised outputs: weights and lengthscales.

Objectives of mixtures have saddles. Latent functions that are equal stay equal, a
column of W that is 0 stays 0, and W times a number is the same as the kernel's variance
times its square. So W starts from the first eigenvectors of the outputs' correlations
:math:`R`,

.. math:: W_{pq} = s_p\, v_{pq} \sqrt{\lambda_q}, \qquad R v_q = \lambda_q v_q,

with the standard deviations :math:`s` of the outputs: :math:`W Wᵀ` is then the nearest
matrix of this rank to their covariance. Each latent function has its own lengthscales,
and variance 1, which is not trained.
"""

from copy import deepcopy
from typing import Any

import numpy as np
from gpflow import set_trainable
from gpflow.base import AnyNDArray, RegressionData, TensorData
from gpflow.kernels import (
    Kernel,
    LinearCoregionalization,
    Product,
    SquaredExponential,
    Sum,
    White,
)

from ...engine import checks
from .rows import as_data

#: The smallest eigenvalue that is used; the mean of all is 1. A column of W that is 0
#: would stay 0.
LEAST_EIGENVALUE = 1e-2
#: The weights of white noise relative to the weights of functions.
WHITE = 0.4


def coregionalization(
    data: RegressionData,
    num_latent: int,
    *,
    kernel: Kernel | None = None,
    num_white: int = 0,
    scales: TensorData | None = None,
) -> LinearCoregionalization:
    r"""Create a kernel of mixed latent functions, with initial values that suit
    training.

    :param data: Inputs X [N, D], and targets Y [N, P] with NaN for missing targets.
    :param num_latent: The number Q of latent functions that outputs share, at most P.
    :param kernel: The kernel that is copied for each latent function, with lengthscales
        between twice and half of the original, the longest first, and with variance 1,
        which is not trained. In a sum of kernels this applies to the first one. None
        uses a squared exponential, whose lengthscales are half of :math:`\sqrt{D}`
        times the standard deviations of the inputs.
    :param num_white: The number of additional latent functions of white noise, which
        describe what the outputs of a row have in common apart from functions of the
        inputs. Their weights start parallel to the first columns of W.
    :param scales: Prior standard deviations of the outputs' functions, [P]. None uses
        the standard deviations of Y, which suit noise that is added to the function;
        for labels and counts 1 is better.
    :return: A kernel for :class:`~gpflow_pep.models.PEP` or
        :class:`~gpflow_pep.models.PEPRegression` with ``LinearCoregionalization``.
    :raises ValueError: If an output was never observed, or an argument is outside its
        range.
    """
    X, Y = as_data(data, missing_targets=True)
    num_outputs = Y.shape[1]
    checks.check_number(
        num_latent, num_outputs, "num_latent", counted="outputs, the columns of Y"
    )
    unseen = np.flatnonzero(np.isnan(Y).all(axis=0))
    if unseen.size:
        got = f"only NaN in {unseen.size} column(s), the first at index {unseen[0]}"
        raise checks.refusal(
            "Y", got, "some targets of each output", "Leave out such outputs."
        )
    if kernel is None:
        spread = _nonzero(X.std(axis=0))
        kernel = SquaredExponential(lengthscales=0.5 * np.sqrt(X.shape[1]) * spread)
    checks.check_single_output(kernel)
    s = (
        _nonzero(np.nanstd(Y, axis=0))
        if scales is None
        else checks.as_vector("scales", scales)
    )
    if len(s) != num_outputs or not np.all(s > 0.0):
        expected = f"{num_outputs} positive numbers, one for each column of Y"
        raise checks.refusal(
            "scales",
            checks.as_code(scales),
            expected,
            "Leave it out, or pass such numbers.",
        )
    values, vectors = np.linalg.eigh(_correlations(Y))
    leading = np.argsort(values)[::-1][:num_latent]
    unit = vectors[:, leading] * np.sqrt(np.maximum(values[leading], LEAST_EIGENVALUE))
    # Eigenvectors get the same signs on every machine.
    unit = unit * np.where(unit.sum(axis=0) < 0.0, -1.0, 1.0)
    weights = s[:, None] * unit
    base = _with_variance_1(kernel)
    factors = np.geomspace(2.0, 0.5, num_latent) if num_latent > 1 else [1.0]
    kernels: list[Kernel] = [_stretched(base, factor) for factor in factors]
    kernels += [_with_variance_1(White()) for _ in range(num_white)]
    return LinearCoregionalization(
        kernels, np.hstack([weights, WHITE * weights[:, :num_white]])
    )


def _correlations(Y: AnyNDArray) -> AnyNDArray:
    """Compute the correlations of outputs, [P, P], each from the rows that have both
    outputs (0 if there are fewer than 3 of them), and return the nearest matrix without
    negative eigenvalues.
    """
    there = np.isfinite(Y)
    centred = Y - np.nanmean(Y, axis=0)
    scaled = np.where(there, centred / _nonzero(np.nanstd(Y, axis=0)), 0.0)
    weights = there.astype(Y.dtype)
    products = weights.T @ weights
    squares = np.square(scaled).T @ weights
    R = scaled.T @ scaled / _nonzero(np.sqrt(squares * squares.T))
    R = np.where(products < 3, 0.0, R)
    np.fill_diagonal(R, 1.0)
    values, vectors = np.linalg.eigh(R)
    R = (vectors * np.maximum(values, 0.0)) @ vectors.T
    size = np.sqrt(np.diagonal(R))
    return R / (size[:, None] * size)


def _nonzero(sizes: AnyNDArray) -> AnyNDArray:
    """Replace 0 by 1."""
    return np.where(sizes > 0.0, sizes, 1.0)


def _with_variance_1(kernel: Kernel) -> Kernel:
    """Copy a kernel, with variance 1 that is not trained."""
    kernel = deepcopy(kernel)
    for term in _parts_with_scale(kernel):
        term.variance.assign(np.ones(term.variance.shape))
        set_trainable(term.variance, False)
    return kernel


def _parts_with_scale(kernel: Kernel) -> list[Any]:
    """Return the parts of a kernel whose variances are its scale. In a sum this is only
    the first part; the variances of the others are relative to it.
    """
    if isinstance(kernel, (Sum, Product)):
        terms = kernel.kernels[:1] if isinstance(kernel, Sum) else kernel.kernels
        return [scaled for term in terms for scaled in _parts_with_scale(term)]
    return [kernel] if hasattr(kernel, "variance") else []


def _stretched(kernel: Kernel, factor: float) -> Kernel:
    """Copy a kernel, with all lengthscales multiplied by a factor."""
    kernel = deepcopy(kernel)
    for module in (kernel, *kernel.submodules):
        if hasattr(module, "lengthscales"):
            module.lengthscales.assign(factor * module.lengthscales)
    return kernel
