"""Gaussian noise, for which everything has a closed form."""

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow import Parameter
from gpflow.base import AnyNDArray
from gpflow.likelihoods import Gaussian, GaussianMC, Likelihood
from tensorflow import Tensor

from ..checks import refusal
from ..numerics.power import log1p_over_power
from .moments import Traits, any_number, implementations, support, traits


def gaussian_log_power_expectation(
    mean: Tensor, variance: Tensor, y: Tensor, noise: Tensor, alpha: Tensor
) -> Tensor:
    r"""Compute
    :math:`\frac{1}{\alpha} \log \int N(f; m, v) N(y; f, \sigma^2)^\alpha df`:

    .. math::

       -\frac12 \log 2\pi\sigma^2 - \frac{1}{2\alpha} \log(1 + \alpha v / \sigma^2)
       - \frac12 \frac{(y - m)^2}{\sigma^2 + \alpha v}
    """
    return -0.5 * (
        np.log(2.0 * np.pi)
        + tf.math.log(noise)
        + log1p_over_power(variance / noise, alpha)
        + (y - mean) ** 2 / (noise + alpha * variance)
    )


def joint_log_power_expectation(
    mean: Tensor, covariance: Tensor, Y: Tensor, noise: Tensor, alpha: Tensor
) -> Tensor:
    r"""Compute the tilted integral over correlated latent functions,

    .. math::

       & \frac{1}{\alpha} \log \int N(f; m, V)
           \prod_p N(y_p; f_p, \sigma_p^2)^\alpha df \\
       & = -\frac12 \Big[ \log|2\pi\Sigma|
       + \frac{1}{\alpha} \log|I + \alpha \Sigma^{-1/2} V \Sigma^{-1/2}|
       + (y - m)ᵀ (\Sigma + \alpha V)^{-1} (y - m) \Big]

    with the diagonal matrix :math:`\Sigma` of the :math:`\sigma_p^2`, [N]; means and
    targets are [N, P], covariances [N, P, P].
    """
    noise += tf.zeros_like(mean)
    root = tf.linalg.cholesky(alpha * covariance + tf.linalg.diag(noise))
    residual = tf.linalg.triangular_solve(root, (Y - mean)[..., None])
    scale = tf.math.rsqrt(noise)
    relative = tf.linalg.eigvalsh(scale[:, :, None] * covariance * scale[:, None, :])
    logdet = tf.math.log(2.0 * np.pi * noise) + log1p_over_power(
        tf.nn.relu(relative), alpha
    )
    return -0.5 * (
        tf.reduce_sum(logdet, axis=-1) + tf.reduce_sum(residual**2, axis=[-2, -1])
    )


@implementations.register(Gaussian)
@implementations.register(GaussianMC)
def _gaussian(
    likelihood: Gaussian, X: Tensor, Fmu: Tensor, Fvar: Tensor, Y: Tensor, alpha: Tensor
) -> Tensor:
    noise = likelihood.variance_at(X)
    terms = gaussian_log_power_expectation(Fmu, Fvar, Y, noise, alpha[:, None])
    return tf.reduce_sum(terms, axis=-1)


def noise_in_units(likelihood: Any, name: str, factor: float) -> Any:
    """
    Return a likelihood whose noise parameter of this name is multiplied by a factor if
    it is not trainable. A trainable parameter stays the same, because it is only the
    start of training.

    :raises ValueError: If the parameter is a function of the row, or becomes too small.
    """
    noise = getattr(likelihood, name)
    if noise.trainable_variables or factor == 1.0:
        return likelihood
    value = np.asarray(noise * factor) if isinstance(noise, Parameter) else np.nan
    if not np.isfinite(value) or not np.isfinite(noise.transform.inverse(value)):
        got = (
            f"a {name} that is not trained, and a function of the row or of {value}"
            " there"
        )
        expected = (
            "a larger constant, because the model uses standardised targets and rows"
        )
        remedy = "Pass standardize=False, and data whose size is near 1."
        raise refusal("likelihood", got, expected, remedy)
    copied = copy.deepcopy(likelihood)
    getattr(copied, name).assign(value)
    return copied


@traits.register(Gaussian)
def _traits(likelihood: Gaussian) -> Traits:
    def draw(X: AnyNDArray, f: AnyNDArray, random: np.random.Generator) -> AnyNDArray:
        deviation = np.sqrt(np.asarray(likelihood.variance_at(X)))
        return np.asarray(f + deviation * random.standard_normal(f.shape))

    def in_units(change: Callable[[float], float], scale: float) -> Likelihood:
        name, power = (
            ("variance", 2) if likelihood.variance is not None else ("scale", 1)
        )
        return noise_in_units(likelihood, name, scale**-power)

    predict = partial(Gaussian._predict_mean_and_var, likelihood)
    return Traits(is_gaussian=True, draw=draw, in_units=in_units, predict=predict)


for _kind in (Gaussian, GaussianMC):
    support.register(_kind)(any_number)
