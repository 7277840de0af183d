r"""Kernels as expectations over random frequencies.

Every supported kernel can be written as

.. math:: k(x, x') = \phi(x)ᵀ \phi(x') \; E_\omega[\cos(\omegaᵀ (\psi(x) - \psi(x')))],

with finitely many amplitudes :math:`\phi` and, unless the kernel is a finite sum of
products of functions, random frequencies :math:`\omega` for some functions :math:`\psi`
of the inputs. For stationary kernels :math:`\psi` are the active inputs, and the
distribution of :math:`\omega` is the kernel's spectral density (Rahimi & Recht 2007): a
Gaussian for the squared exponential, and a multivariate t with :math:`2\nu` degrees of
freedom for a Matérn kernel of order :math:`\nu`.
"""

from collections import Counter
from collections.abc import Callable
from itertools import combinations_with_replacement
from math import factorial, prod
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from gpflow import kernels
from gpflow.base import AnyNDArray
from gpflow.kernels import Kernel
from scipy.special import gammaincinv

from ..refusals import refusal

Function = Callable[[tf.Tensor], tf.Tensor]
Generator = np.random.Generator
#: A function that draws frequencies [..., E] of a stationary kernel with lengthscales
#: of 1.
Spectrum = Callable[[Any, Generator, tuple[int, ...]], AnyNDArray]


class Waves(NamedTuple):
    r"""The argument of the cosine in a kernel, :math:`\omegaᵀ \psi(x)`."""

    #: [..., D] -> [..., E], :math:`\psi`; linear unless the kernel is periodic.
    inputs: Function
    draw: Callable[[Generator, tuple[int, ...]], AnyNDArray]
    r"""Draws frequencies :math:`\omega` of a shape [..., E]."""


class KernelFactor(NamedTuple):
    r"""A kernel as a factor in a product."""

    amplitudes: Function  #: [..., D] -> [..., J], :math:`\phi`.
    waves: Waves | None = (
        None  #: None if the kernel is a finite sum; its cosine is then 1.
    )


def _gaussian(kernel: Kernel, random: Generator, shape: tuple[int, ...]) -> AnyNDArray:
    return random.standard_normal(shape)


def _student_t(degrees: int, scale: float = 1.0) -> Spectrum:
    """Make a multivariate t, with one chi-squared number for each frequency."""

    def draw(kernel: Kernel, random: Generator, shape: tuple[int, ...]) -> AnyNDArray:
        chi_squared = random.chisquare(degrees, (*shape[:-1], 1))
        return scale * random.standard_normal(shape) / np.sqrt(chi_squared / degrees)

    return draw


def _gamma_mixture(
    kernel: Any, random: Generator, shape: tuple[int, ...]
) -> AnyNDArray:
    r""":math:`(1 + r^2 / 2a)^{-a} = E[\exp(-\gamma r^2 / 2)]` of gamma with mean 1,
    shape a.
    """
    a = kernel.alpha.numpy()
    # Quantiles are smooth in a. A generator that rejects draws would change all later
    # random numbers.
    gamma = gammaincinv(a, random.random((*shape[:-1], 1))) / a
    return np.asarray(np.sqrt(gamma) * random.standard_normal(shape))


#: Kernels by their exact type, because a subclass may be another kernel.
SPECTRA: dict[type[Kernel], Spectrum] = {
    kernels.SquaredExponential: _gaussian,
    kernels.RationalQuadratic: _gamma_mixture,
    # GPflow's kernel has r / 2 in the exponent.
    kernels.Exponential: _student_t(1, scale=0.5),
    kernels.Matern12: _student_t(1),
    kernels.Matern32: _student_t(3),
    kernels.Matern52: _student_t(5),
}
#: For these kernels the product over inputs is again a function of the Euclidean
#: distance.
_PERIODIC_IN_SEVERAL = kernels.SquaredExponential, kernels.RationalQuadratic


def _deviation(kernel: Kernel) -> Function:
    """Use the standard deviation as the only amplitude."""
    return lambda X: tf.sqrt(kernel.variance) * tf.ones_like(X[..., :1])


def _active(kernel: Any) -> Function:
    return lambda X: kernel.slice(X)[0]


def _of_distance(kernel: Any) -> KernelFactor:
    spectrum = SPECTRA[type(kernel)]

    def frequencies(random: Generator, shape: tuple[int, ...]) -> AnyNDArray:
        return spectrum(kernel, random, shape) / kernel.lengthscales.numpy()

    return KernelFactor(_deviation(kernel), Waves(_active(kernel), frequencies))


def _of_cosine(kernel: Any) -> KernelFactor:
    """Draw the same frequency always, because the spectrum has no other frequency."""

    def frequencies(random: Generator, shape: tuple[int, ...]) -> AnyNDArray:
        return np.broadcast_to(2.0 * np.pi / kernel.lengthscales.numpy(), shape)

    return KernelFactor(_deviation(kernel), Waves(_active(kernel), frequencies))


def _of_periodic(kernel: Any) -> KernelFactor:
    r"""Make the factor of a kernel that is stationary in the points of circles
    :math:`(\cos, \sin)(2 \pi x / p)`, whose distance is
    :math:`2 |\sin(\pi (x - x') / p)|`.
    """
    base = kernel.base_kernel

    def circles(X: tf.Tensor) -> tf.Tensor:
        angle = 2.0 * np.pi * kernel.slice(X)[0] / kernel.period
        return tf.concat([tf.cos(angle), tf.sin(angle)], axis=-1)

    def frequencies(random: Generator, shape: tuple[int, ...]) -> AnyNDArray:
        num_active = shape[-1] // 2
        if type(base) not in SPECTRA:
            raise _refusal(kernel, f"Periodic of {type(base).__name__}")
        if num_active > 1 and not isinstance(base, _PERIODIC_IN_SEVERAL):
            raise _refusal(
                kernel, f"Periodic of {type(base).__name__} in {num_active} inputs"
            )
        lengthscales = np.broadcast_to(2.0 * base.lengthscales.numpy(), [num_active])
        return SPECTRA[type(base)](base, random, shape) / np.tile(lengthscales, 2)

    return KernelFactor(_deviation(base), Waves(circles, frequencies))


def _of_polynomial(kernel: Any) -> KernelFactor:
    """Compute all monomials up to the degree, each multiplied by the root of its count
    in the power.
    """
    degree = int(kernel.degree)
    if degree != kernel.degree or degree < 0:
        raise _refusal(kernel, f"Polynomial of degree {kernel.degree}")

    def monomials(X: tf.Tensor) -> tf.Tensor:
        X = kernel.slice(X)[0] * tf.sqrt(kernel.variance)
        X = tf.concat([X, tf.sqrt(kernel.offset) * tf.ones_like(X[..., :1])], axis=-1)
        chosen = list(combinations_with_replacement(range(X.shape[-1]), degree))
        roots = np.sqrt([_multinomial(numbers) for numbers in chosen])
        place = np.reshape(chosen, [len(chosen), degree]).astype(np.int32)
        products = tf.reduce_prod(tf.gather(X, place, axis=-1), axis=-1)
        return products * tf.constant(roots, X.dtype)

    return KernelFactor(monomials)


def _multinomial(numbers: tuple[int, ...]) -> int:
    """Compute the number of orders of these numbers."""
    return factorial(len(numbers)) // prod(map(factorial, Counter(numbers).values()))


def _of_outputs(kernel: Any) -> KernelFactor:
    """Make a table with one row for each output. The products of its rows are W Wᵀ +
    diag(kappa).
    """

    def rows(X: tf.Tensor) -> tf.Tensor:
        table = tf.concat([kernel.W, tf.linalg.diag(tf.sqrt(kernel.kappa))], axis=1)
        return tf.gather(table, tf.cast(kernel.slice(X)[0][..., 0], tf.int32))

    return KernelFactor(rows)


#: Also by exact type. Other kernels are refused, except sums and products.
FACTORS: dict[type[Kernel], Callable[[Any], KernelFactor]] = {
    **dict.fromkeys(SPECTRA, _of_distance),
    kernels.Constant: lambda kernel: KernelFactor(_deviation(kernel)),
    kernels.Coregion: _of_outputs,
    kernels.Cosine: _of_cosine,
    kernels.Linear: lambda kernel: KernelFactor(
        lambda X: kernel.slice(X)[0] * tf.sqrt(kernel.variance)
    ),
    kernels.Periodic: _of_periodic,
    kernels.Polynomial: _of_polynomial,
}


def kernel_factor(kernel: Kernel) -> KernelFactor:
    """Write a kernel of one output that is neither a sum nor a product as an
    expectation over frequencies; refuse it if no such form is known.
    """
    if type(kernel) not in FACTORS:
        raise _refusal(kernel, type(kernel).__name__)
    return FACTORS[type(kernel)](kernel)


def _refusal(kernel: Kernel, got: str) -> ValueError:
    if isinstance(kernel, kernels.White):
        expected = "functions: draws under White jump everywhere"
        return refusal(
            "kernel",
            got,
            expected,
            "Leave out White, because the noise is in the likelihood.",
        )
    names = ", ".join(sorted(known.__name__ for known in FACTORS))
    return refusal(
        "kernel",
        got,
        f"a kernel whose random features are known: {names} (Periodic of a Matern"
        " kernel in one input, Polynomial of a whole degree), and sums and products"
        " of them",
        "Draw f at all rows jointly with predict_f_samples, or add the kernel to"
        " gpflow_pep.engine.paths.FACTORS.",
    )
