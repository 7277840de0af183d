r"""
Values of a function and its partial derivatives under one prior.

The derivative of a Gaussian process is a Gaussian process too. Of a stationary kernel
:math:`k(x, x') = \kappa(r^2)` with :math:`r^2 = \sum_d p_d \delta_d^2`,
:math:`\delta = x - x'` and :math:`p_d = 1 / \ell_d^2` the covariances are

.. math::

   \operatorname{cov}(\partial_i f(x), f(x')) &= 2 \kappa' p_i \delta_i, \qquad
   \operatorname{cov}(f(x), \partial_j f(x')) = -2 \kappa' p_j \delta_j, \\
   \operatorname{cov}(\partial_i f(x), \partial_j f(x'))
   &= -4 \kappa'' p_i \delta_i p_j \delta_j - 2 \kappa' p_i [i = j]

(Rasmussen & Williams 2006, section 9.4).
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import AnyNDArray, TensorType
from gpflow.kernels import (
    IsotropicStationary,
    Kernel,
    Matern32,
    Matern52,
    SquaredExponential,
)
from gpflow.utilities import Dispatcher
from gpflow.utilities.ops import square_distance
from tensorflow import Tensor

from gpflow_pep.engine.checks import as_matrix, refusal

#: Below it the distance counts as this, so that its derivative is finite at 0.
_SMALLEST_SQUARE = 1e-36


class Profile(NamedTuple):
    r""":math:`\kappa` and its derivatives in :math:`r^2`, each of the shape of
    :math:`r^2`.
    """

    value: Tensor
    first: Tensor
    second: Tensor


#: ``(kernel, squares) -> Profile``: registered for kernels of which an f has
#: derivatives.
profile = Dispatcher("profile")


@profile.register(IsotropicStationary)
def _by_differentiation(kernel: IsotropicStationary, squares: Tensor) -> Profile:
    if type(kernel).K_r2 is IsotropicStationary.K_r2:
        raise refusal(
            "base",
            f"{type(kernel).__name__}, a function of the distance, which need not have"
            " derivatives at 0",
            "SquaredExponential, RationalQuadratic, Matern32, Matern52, or a kernel of"
            " your own that defines K_r2",
            "Take one of these, or register its derivatives with profile.",
        )
    with tf.GradientTape() as outer:
        outer.watch(squares)
        with tf.GradientTape() as inner:
            inner.watch(squares)
            value = kernel.K_r2(squares)
        first = inner.gradient(value, squares)
    return Profile(value, first, outer.gradient(first, squares))


@profile.register(SquaredExponential)
def _squared_exponential(kernel: SquaredExponential, squares: Tensor) -> Profile:
    value = kernel.K_r2(squares)
    return Profile(value, -0.5 * value, 0.25 * value)


@profile.register(Matern32)
def _matern32(kernel: Matern32, squares: Tensor) -> Profile:
    r = np.sqrt(3.0) * tf.sqrt(tf.maximum(squares, _SMALLEST_SQUARE))
    fall = kernel.variance * tf.exp(-r)
    return Profile((1.0 + r) * fall, -1.5 * fall, 2.25 * fall / r)


@profile.register(Matern52)
def _matern52(kernel: Matern52, squares: Tensor) -> Profile:
    r = np.sqrt(5.0) * tf.sqrt(tf.maximum(squares, _SMALLEST_SQUARE))
    fall = kernel.variance * tf.exp(-r)
    polynomial = 1.0 + r + r * r / 3.0
    return Profile(polynomial * fall, -5.0 / 6.0 * (1.0 + r) * fall, 25.0 / 12.0 * fall)


class ValueOrDerivative(Kernel):
    r"""
    The prior of a function f together with its partial derivatives::

        kernel = ValueOrDerivative(gpflow.kernels.SquaredExponential())
        X = np.vstack([rows_of(x), rows_of(x, derivative=1)])

    The last column of the inputs says what a row is: 0 for :math:`f(x)`, and j = 1 ...
    D for :math:`\partial f / \partial x_j`, where x are the other D columns. Inducing
    inputs may be of either kind; training moves x and leaves the last column as it is.
    Rows of derivatives have prior mean 0, so a mean function that is not constant has
    to know of the last column, and a constant one as well.

    Source: Rasmussen & Williams (2006), section 9.4; the formulas are in
    this module. Kernels of several parts are sums of such kernels, one of
    each part.

    :param base: The prior of f: ``SquaredExponential``, ``RationalQuadratic``,
        ``Matern32`` or ``Matern52``, or another for which ``profile`` knows the
        derivatives.
    :raises ValueError: If f has no derivatives under the kernel, or they are not known;
        and, when it is called eagerly, if the last column has something else than 0 ...
        D.
    """

    def __init__(self, base: IsotropicStationary, name: str | None = None) -> None:
        if not isinstance(base, IsotropicStationary):
            raise refusal(
                "base",
                f"{type(base).__name__}",
                "a stationary kernel such as gpflow.kernels.SquaredExponential",
                "For a sum, add kernels ValueOrDerivative of its parts.",
            )
        super().__init__(name=name)
        self.base = base
        # Refuses what has no derivatives.
        self._profile(tf.zeros([1, 1], base.variance.dtype))

    def _profile(self, squares: Tensor) -> Profile:
        known: Callable[..., Profile] = profile.dispatch_or_raise(type(self.base))
        return known(self.base, squares)

    def K(self, X: TensorType, X2: TensorType | None = None) -> Tensor:
        """Compute the covariances [N, N2] of rows [..., D + 1]."""
        rows = self._rows_of(X)
        others = rows if X2 is None else self._rows_of(X2)
        # Of batches, with themselves only.
        scaled2 = None if X2 is None else others.scaled
        kappa = self._profile(square_distance(rows.scaled, scaled2))
        # p_i delta_i of the derivative that a row is, and 0 where it is none.
        delta = rows.own_place - tf.matmul(rows.direction, others.x, transpose_b=True)
        delta2 = tf.matmul(rows.x, others.direction, transpose_b=True)
        delta2 -= tf.linalg.matrix_transpose(others.own_place)
        same = tf.matmul(rows.which, others.direction, transpose_b=True)
        is_value = rows.is_value
        is_value2 = tf.linalg.matrix_transpose(others.is_value)
        once = 2.0 * kappa.first * (delta * is_value2 - delta2 * is_value - same)
        return (
            is_value * is_value2 * kappa.value
            + once
            - 4.0 * kappa.second * delta * delta2
        )

    def K_diag(self, X: TensorType) -> Tensor:
        """Compute the variances [N] of rows [..., D + 1]."""
        rows = self._rows_of(X)
        kappa = self._profile(tf.zeros_like(rows.is_value))
        slope = tf.reduce_sum(rows.direction, axis=-1, keepdims=True)
        return tf.squeeze(
            rows.is_value * kappa.value - 2.0 * kappa.first * slope, axis=-1
        )

    def _rows_of(self, X: TensorType) -> "_Rows":
        X = tf.convert_to_tensor(X)
        x = X[..., :-1]
        kind = tf.round(tf.stop_gradient(X[..., -1]))
        num_inputs = int(x.shape[-1])
        is_known = (kind >= 0.0) & (kind <= num_inputs)
        if tf.executing_eagerly() and not bool(tf.reduce_all(is_known)):
            raise refusal(
                "X",
                f"{float(tf.boolean_mask(kind, ~is_known)[0]):g} in the last column",
                f"0 for values, or 1 to {num_inputs} for the derivative in an input",
                "Make rows with rows_of.",
            )
        kinds = tf.one_hot(tf.cast(kind, tf.int32), num_inputs + 1, dtype=x.dtype)
        nan = tf.constant(np.nan, x.dtype)
        kinds = tf.where(is_known[..., None], kinds, nan)
        active = self.base.slice(tf.range(num_inputs)[None], None)[0][0]
        precision = tf.square(1.0 / self.base.lengthscales)
        precision = tf.broadcast_to(precision, tf.shape(active))
        precision = tf.scatter_nd(active[:, None], precision, [num_inputs])
        direction = kinds[..., 1:] * precision
        place = tf.reduce_sum(direction * x, axis=-1, keepdims=True)
        scaled = x * tf.sqrt(precision)
        return _Rows(x, scaled, kinds[..., :1], kinds[..., 1:], direction, place)


class _Rows(NamedTuple):
    x: Tensor
    """[N, D]."""

    scaled: Tensor
    """[N, D], x over the lengthscales; 0 for inputs that are not active."""

    is_value: Tensor
    """[N, 1], 1 for values, 0 for derivatives."""

    which: Tensor
    """[N, D], 1 at the input of the derivative."""

    direction: Tensor
    """[N, D], :math:`p_d` there."""

    own_place: Tensor
    """[N, 1], :math:`p_d x_d` there."""


@check_shapes("X: [N, D]", "return: [N, E]")
def rows_of(X: AnyNDArray, derivative: int = 0) -> AnyNDArray:
    """
    Add the column that :class:`ValueOrDerivative` reads.

    :param X: Inputs.
    :param derivative: 0 for values of f, or j = 1 ... D for its derivative in the j-th
        input.
    :return: X with one more column.
    :raises ValueError: If X is not finite, or there is no such input.
    """
    X = as_matrix("X", X)
    if derivative not in range(X.shape[1] + 1):
        raise refusal(
            "derivative",
            repr(derivative),
            f"0 for values of f, or 1 to {X.shape[1]} for its derivative in an input",
            "Pass the number of a column of X, from 1, or 0.",
        )
    return np.column_stack([X, np.full(len(X), float(derivative))])
