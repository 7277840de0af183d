r"""Initial values of coregionalised outputs: weights, lengthscales, and each output's own function.

Objectives of mixtures have saddles. Latent functions that are equal stay equal, a column of W that
is 0 stays 0, and W times a number is the same as the kernel's variance times its square. So W
starts from the first eigenvectors of the outputs' correlations :math:`R`,

.. math:: W_{pq} = s_p\, v_{pq} \sqrt{\lambda_q}, \qquad R v_q = \lambda_q v_q,

with the standard deviations :math:`s` of the outputs: :math:`W Wᵀ` is the nearest to their
covariance of that rank. Each latent function has lengthscales of its own, and variance 1, which is
not trained.
"""

from copy import deepcopy
from typing import Any

import numpy as np
from gpflow import set_trainable
from gpflow.base import AnyNDArray, RegressionData, TensorData
from gpflow.kernels import Kernel, LinearCoregionalization, Product, SquaredExponential, Sum

from ...engine import checks
from ...engine.prior.mixing import CoregionalizationWithDiagonal
from .rows import as_data

#: The least eigenvalue that is used; the mean of all is 1. A column of W that is 0 would stay 0.
LEAST_EIGENVALUE = 1e-2


def coregionalization(
    data: RegressionData,
    num_latent: int,
    *,
    kernel: Kernel | None = None,
    own_functions: bool = False,
    scales: TensorData | None = None,
) -> LinearCoregionalization:
    r"""Create a kernel of mixed latent functions, with initial values that suit training.

    :param data: X [N, D], and Y [N, P] with NaN where nothing was observed.
    :param num_latent: The number Q of latent functions that outputs share, at most P.
    :param kernel: What the latent functions have copies of, with lengthscales between twice and
        half of its own, the longest first, and with variance 1, not trained; of a sum of kernels,
        the first one's. None: a squared exponential, whose lengthscales are half of
        :math:`\sqrt{D}` times the standard deviations of the inputs.
    :param own_functions: Whether each output has a latent function for itself too, with a copy of
        the kernel: P more, see
        :class:`~gpflow_pep.engine.prior.mixing.CoregionalizationWithDiagonal`.
    :param scales: Prior standard deviations of the outputs' functions, [P]. None: those of Y, which
        suit noise that is added to the function; for labels and counts 1 is better.
    :return: A kernel for :class:`~gpflow_pep.models.PEP` or
        :class:`~gpflow_pep.models.PEPRegression` with ``LinearCoregionalization``.
    :raises ValueError: If an output was never observed, or an argument is outside its range.
    """
    base, weights, kappa = _start(data, num_latent, kernel, scales)
    factors = np.geomspace(2.0, 0.5, num_latent) if num_latent > 1 else [1.0]
    kernels = [_stretched(base, factor) for factor in factors]
    if not own_functions:
        return LinearCoregionalization(kernels, weights)
    kernels += [deepcopy(base) for _ in kappa]
    return CoregionalizationWithDiagonal(kernels, weights, kappa)


def intrinsic_coregionalization(
    data: RegressionData,
    rank: int,
    *,
    kernel: Kernel | None = None,
    scales: TensorData | None = None,
) -> CoregionalizationWithDiagonal:
    r"""Create the intrinsic model of coregionalisation, with initial values that suit training.

    The covariance is one kernel times :math:`w wᵀ + \mathrm{diag}(\kappa)`: all latent functions
    have the same kernel object.

    :param data: X [N, D], and Y [N, P] with NaN where nothing was observed.
    :param rank: The number R of columns of :math:`w`, at most P.
    :param kernel: Its copy has variance 1, not trained; see :func:`coregionalization`.
    :param scales: See :func:`coregionalization`.
    :return: A kernel of R + P latent functions, see
        :class:`~gpflow_pep.engine.prior.mixing.CoregionalizationWithDiagonal`.
    :raises ValueError: As :func:`coregionalization`.
    """
    base, weights, kappa = _start(data, rank, kernel, scales, "rank")
    return CoregionalizationWithDiagonal([base] * (rank + len(kappa)), weights, kappa)


def _start(
    data: RegressionData,
    number: int,
    kernel: Kernel | None,
    scales: TensorData | None,
    name: str = "num_latent",
) -> tuple[Kernel, AnyNDArray, AnyNDArray]:
    """Find a kernel of variance 1, the weights, and the outputs' own variances."""
    X, Y = as_data(data, missing_targets=True)
    num_outputs = Y.shape[1]
    checks.check_number(number, num_outputs, name, counted="outputs, the columns of Y")
    unseen = np.flatnonzero(np.isnan(Y).all(axis=0))
    if unseen.size:
        got = f"NaN alone in {unseen.size} column(s), the first at index {unseen[0]}"
        raise checks.refusal("Y", got, "some targets of each output", "Leave such outputs out.")
    if kernel is None:
        spread = _nonzero(X.std(axis=0))
        kernel = SquaredExponential(lengthscales=0.5 * np.sqrt(X.shape[1]) * spread)
    checks.check_single_output(kernel)
    s = _nonzero(np.nanstd(Y, axis=0)) if scales is None else _check_scales(scales, num_outputs)
    values, vectors = np.linalg.eigh(correlations(Y))
    leading = np.argsort(values)[::-1][:number]
    unit = vectors[:, leading] * np.sqrt(np.maximum(values[leading], LEAST_EIGENVALUE))
    unit = unit * np.where(unit.sum(axis=0) < 0.0, -1.0, 1.0)  # the same signs on each machine
    left = np.maximum(1.0 - np.sum(np.square(unit), axis=1), 1e-2)  # for each output itself
    return _with_variance_1(kernel), s[:, None] * unit, np.square(s) * left


def correlations(Y: AnyNDArray) -> AnyNDArray:
    """Compute the correlations of outputs, [P, P], each from the rows that have both; 0 where these
    are fewer than 3, and the nearest matrix without negative eigenvalues.
    """
    there = np.isfinite(Y)
    centred = Y - np.nanmean(Y, axis=0)
    scaled = np.where(there, centred / _nonzero(np.nanstd(Y, axis=0)), 0.0)
    weights = there.astype(Y.dtype)
    both, squares = weights.T @ weights, np.square(scaled).T @ weights
    R = scaled.T @ scaled / _nonzero(np.sqrt(squares * squares.T))
    R = np.where(both < 3, 0.0, R)
    np.fill_diagonal(R, 1.0)
    values, vectors = np.linalg.eigh(R)
    R = (vectors * np.maximum(values, 0.0)) @ vectors.T
    size = np.sqrt(np.diagonal(R))
    return R / (size[:, None] * size)


def _nonzero(sizes: AnyNDArray) -> AnyNDArray:
    """Replace 0 by 1."""
    return np.where(sizes > 0.0, sizes, 1.0)


def _check_scales(scales: Any, num_outputs: int) -> AnyNDArray:
    values = checks.as_vector("scales", scales)
    if len(values) != num_outputs or not np.all(values > 0.0):
        expected = f"{num_outputs} positive numbers, one for each column of Y"
        raise checks.refusal("scales", repr(scales), expected, "Leave it out, or pass those.")
    return values


def _with_variance_1(kernel: Kernel) -> Kernel:
    """Copy a kernel, with variance 1 that is not trained."""
    kernel = deepcopy(kernel)
    for part in _parts_with_scale(kernel):
        part.variance.assign(np.ones(part.variance.shape))
        set_trainable(part.variance, False)
    return kernel


def _parts_with_scale(kernel: Kernel) -> list[Any]:
    """Parts of a kernel whose variances are its scale: of a sum only one, others are relative."""
    if isinstance(kernel, (Sum, Product)):
        parts = kernel.kernels[:1] if isinstance(kernel, Sum) else kernel.kernels
        return [scaled for part in parts for scaled in _parts_with_scale(part)]
    return [kernel] if hasattr(kernel, "variance") else []


def _stretched(kernel: Kernel, factor: float) -> Kernel:
    """Copy a kernel, with all lengthscales multiplied by a factor."""
    kernel = deepcopy(kernel)
    for part in (kernel, *kernel.submodules):
        if hasattr(part, "lengthscales"):
            part.lengthscales.assign(factor * part.lengthscales)
    return kernel
