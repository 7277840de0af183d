r"""Functions drawn from the prior, as weighted sums of features that can be evaluated
anywhere.

A kernel is multiplied out into a sum of products. For one product, with amplitudes
:math:`\phi` and frequencies :math:`\omega` (:mod:`gpflow_pep.engine.paths.factors`), a
draw is

.. math::

    f(x) = R^{-1/2} \sum_j \phi_j(x) \sum_{r=1}^R
        [a_{rj} \cos(\omega_rᵀ \psi(x)) + b_{rj} \sin(\omega_rᵀ \psi(x))], \qquad
    a, b \sim N(0, 1).

Each draw has its own frequencies. So its mean and covariance are exactly the mean and
covariance of the prior, for any number of frequencies. Only the joint distribution of
several values is not exactly Gaussian; it is closer to a Gaussian with more
frequencies. Without frequencies (linear and polynomial kernels) the draw is exact.
"""

from collections.abc import Sequence
from functools import reduce
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import AnyNDArray
from gpflow.config import default_float
from gpflow.kernels import Kernel

from ..prior.blurred import multiplied_out
from .factors import Generator, KernelFactor, Waves, kernel_factor


class Draws(NamedTuple):
    """The number of functions that are drawn, and their frequencies."""

    num_paths: int  #: S.
    num_functions: int  #: C, the number of independent functions in each path.
    #: R, the number of frequencies of each function and product of kernels.
    num_features: int
    origin: AnyNDArray
    """An offset that is subtracted from inputs of waves, [D], so that angles keep their
    digits far from 0.
    """


def variable(*size: int) -> tf.Variable:
    return tf.Variable(tf.zeros(size, default_float()), trainable=False)


def assign(target: tf.Variable, values: AnyNDArray) -> None:
    """Assign a value in the variable's float type."""
    target.assign(tf.cast(values, target.dtype))


class _ProductDraws(tf.Module):
    """Draws of Gaussian processes whose kernel is a product of kernels without sums or
    products.
    """

    def __init__(self, kernels: Sequence[Kernel], draws: Draws) -> None:
        super().__init__()
        self.kernels = list(kernels)
        self.origin = tf.Variable(draws.origin, trainable=False)
        row = self.origin[None, None]
        self._num_angles = [int(waves.inputs(row).shape[-1]) for waves in self._waves()]
        num_paths, num_functions, num_features = draws[:3]
        self.frequencies: tf.Variable | None = None
        num_waves = 1
        if self._num_angles:
            size = num_paths, num_functions, num_features, sum(self._num_angles)
            self.frequencies = variable(*size)
            num_waves = 2 * num_features
        num_amplitudes = int(self._amplitudes(row).shape[-1])
        self.weights = variable(num_paths, num_functions, num_waves, num_amplitudes)
        self.row_size = num_paths * num_functions * max(num_waves, num_amplitudes)
        """The largest number of values per row that are needed at a time."""

    def resample(self, random: Generator) -> None:
        """Draw other functions, in place."""
        scale = 1.0
        if self.frequencies is not None:
            size = tuple(self.frequencies.shape)[:-1]
            factors = zip(self._waves(), self._num_angles, strict=True)
            drawn = [
                waves.draw(random, (*size, num_angles)) for waves, num_angles in factors
            ]
            assign(self.frequencies, np.concatenate(drawn, axis=-1))
            scale = size[-1] ** -0.5
        assign(self.weights, scale * random.standard_normal(tuple(self.weights.shape)))

    @check_shapes(
        "X: [B, N, D]  # B is 1 or S", "covariance: [N, D, D]", "return: [S, C, N]"
    )
    def __call__(self, X: tf.Tensor, covariance: tf.Tensor | None = None) -> tf.Tensor:
        r"""Evaluate the functions.

        :param X: Inputs for all paths, or for each path.
        :param covariance: Average over Gaussians around the inputs with these
            covariances C: :math:`E[\cos(\omegaᵀ x)] = \exp(-\tfrac12 \omegaᵀ C \omega)
            \cos(\omegaᵀ E[x])`. This is for kernels that can be used with blurred
            inducing points.
        """
        amplitudes = self._amplitudes(X)[:, None]
        if self.frequencies is None:
            return tf.reduce_sum(amplitudes * self.weights, axis=-1)
        angles = tf.matmul(
            self._inputs(X - self.origin)[:, None], self.frequencies, transpose_b=True
        )
        waves = tf.concat([tf.cos(angles), tf.sin(angles)], axis=-1)
        if covariance is not None:
            waves *= tf.tile(self._damping(covariance), [1, 1, 1, 2])
        return tf.reduce_sum(amplitudes * tf.matmul(waves, self.weights), axis=-1)

    def _damping(self, covariance: tf.Tensor) -> tf.Tensor:
        """Compute the factor by which a blur reduces each wave, [S, C, N, R]."""
        # Inputs are linear here.
        half = tf.linalg.matrix_transpose(self._inputs(covariance))
        spread = self._inputs(half)
        exponent = tf.einsum(
            "scre,nef,scrf->scnr",
            self.frequencies,
            spread,
            self.frequencies,
            optimize="optimal",
        )
        return tf.exp(-0.5 * exponent)

    def _factors(self) -> list[KernelFactor]:
        return [kernel_factor(kernel) for kernel in self.kernels]

    def _waves(self) -> list[Waves]:
        return [factor.waves for factor in self._factors() if factor.waves is not None]

    def _inputs(self, X: tf.Tensor) -> tf.Tensor:
        return tf.concat([waves.inputs(X) for waves in self._waves()], axis=-1)

    def _amplitudes(self, X: tf.Tensor) -> tf.Tensor:
        """Multiply the amplitudes of all factors, in all combinations, [..., J]."""
        return reduce(
            _all_products, [factor.amplitudes(X) for factor in self._factors()]
        )


def _all_products(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    size = a.shape[-1] * b.shape[-1]
    shape = tf.concat([tf.shape(a)[:-1], [size]], axis=0)
    products = tf.reshape(a[..., :, None] * b[..., None, :], shape)
    return tf.ensure_shape(products, [*a.shape[:-1], size])


class PriorDraws(tf.Module):
    """Draws of Gaussian processes of one output, whose kernel has known random
    features.
    """

    def __init__(self, kernel: Kernel, draws: Draws) -> None:
        super().__init__()
        self.products = [
            _ProductDraws(product, draws) for product in multiplied_out(kernel)
        ]
        self.row_size = max(product.row_size for product in self.products)

    def resample(self, random: Generator) -> None:
        """Draw other functions, in place."""
        for product in self.products:
            product.resample(random)

    def __call__(self, X: tf.Tensor, covariance: tf.Tensor | None = None) -> tf.Tensor:
        """Evaluate the functions, [S, C, N]; see :class:`_ProductDraws`."""
        return tf.add_n([product(X, covariance) for product in self.products])
