"""Kernels of outputs that are mixed from independent latent functions."""

from typing import Any

import tensorflow as tf
from gpflow.inducing_variables import (
    InducingVariables,
    MultioutputInducingVariables,
    SharedIndependentInducingVariables,
)
from gpflow.kernels import SeparateIndependent, White
from gpflow.models.util import inducingpoint_wrapper

from .evaluate import Parts


def latent_parts(parts: Parts) -> Parts:
    """Take the parts of mixed outputs as those of their latent functions; the mean
    stays that of f.

    What W is made of stays among their variables: a derivative that is refused in these
    is refused in them too.
    """
    kernel = SeparateIndependent(list(parts.kernel.latent_kernels))
    kernel.mixed = parts.kernel
    return parts._replace(kernel=kernel)


def share_inducing_variable(inducing_variable: Any) -> InducingVariables:
    """Let all latent functions share inducing variables that are not of several
    already.
    """
    if isinstance(inducing_variable, MultioutputInducingVariables):
        return inducing_variable
    return SharedIndependentInducingVariables(inducingpoint_wrapper(inducing_variable))


def variances_of_white(kernel: Any) -> tf.Tensor:
    """Give the variances of the latent functions that are white noise, [Q]; 0 of
    others.
    """
    latents = kernel.latent_kernels
    zero = tf.zeros([], kernel.W.dtype)
    return tf.stack(
        [
            tf.convert_to_tensor(latent.variance) if isinstance(latent, White) else zero
            for latent in latents
        ]
    )
