"""temporary"""

from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.likelihoods import (
    Bernoulli,
    Beta,
    Exponential,
    Gamma,
    Likelihood,
    MultiClass,
    Ordinal,
    Poisson,
    Softmax,
    SwitchedLikelihood,
)


def check_support(likelihood: Likelihood, Y: tf.Tensor) -> None:
    """
    Refuse targets that the likelihood gives no probability. Inside a graph there is no value yet.

    :param likelihood: A likelihood; only those with a limited support are looked at.
    :param Y: The targets.
    :raises ValueError: With the first target outside the support.
    """
    if not tf.executing_eagerly():
        return
    values = tf.convert_to_tensor(Y).numpy()
    if isinstance(likelihood, Bernoulli):
        inside, support = (values == 0) | (values == 1), "0 or 1"
    elif isinstance(likelihood, (MultiClass, Softmax)):
        num_classes = int(likelihood.latent_dim or 0)
        inside = (values == np.round(values)) & (values >= 0) & (values < num_classes)
        support = f"whole numbers from 0 to {num_classes - 1}"
    elif isinstance(likelihood, Ordinal):
        num_bins = len(np.atleast_1d(likelihood.bin_edges)) + 1
        inside = (values == np.round(values)) & (values >= 0) & (values < num_bins)
        support = f"whole numbers from 0 to {num_bins - 1}"
    elif isinstance(likelihood, Poisson):
        inside, support = (values == np.round(values)) & (values >= 0), "whole numbers from 0"
    elif isinstance(likelihood, (Exponential, Gamma)):
        inside, support = values >= 0, "numbers from 0"
    elif isinstance(likelihood, Beta):
        inside, support = (values >= 0) & (values <= 1), "numbers from 0 to 1"
    else:
        return
    if not inside.all():
        raise ValueError(
            f"Y: got {values[~inside][0]:g} at row {np.argwhere(~inside)[0, 0]}, expected {support}"
            f" for the likelihood {type(likelihood).__name__}. Recode the targets, or choose"
            " another likelihood."
        )


def check_num_latent(num_latent_gps: Any, likelihood: Likelihood, Y: tf.Tensor) -> int:
    """
    Check how many latent functions there are against what the likelihood and the targets need.

    :raises ValueError: If the numbers do not agree.
    """
    columns = Y.shape[1] - (1 if isinstance(likelihood, SwitchedLikelihood) else 0)
    observed = likelihood.observation_dim
    if isinstance(likelihood, (MultiClass, Softmax)):
        observed = 1  # GPflow leaves it open
    if observed is not None and columns != observed:
        raise ValueError(
            f"Y: got {columns} columns, expected {observed} for the likelihood"
            f" {type(likelihood).__name__}. Remove or add columns."
        )
    needed = columns if likelihood.latent_dim is None else int(likelihood.latent_dim)
    if num_latent_gps not in (None, needed):
        raise ValueError(
            f"num_latent_gps: got {num_latent_gps}, expected {needed} for the likelihood"
            f" {type(likelihood).__name__}. Pass num_latent_gps={needed}."
        )
    return needed
