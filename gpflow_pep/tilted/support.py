"""Which targets a likelihood gives a probability, and how many columns and latent functions go
with it: what is checked of targets before anything is computed with them."""

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.likelihoods import (
    Bernoulli,
    Beta,
    Exponential,
    Gamma,
    Gaussian,
    GaussianMC,
    HeteroskedasticTFPConditional,
    Likelihood,
    MultiClass,
    MultiLatentTFPConditional,
    Ordinal,
    Poisson,
    Softmax,
    StudentT,
    SwitchedLikelihood,
)
from gpflow.utilities import Dispatcher

#: ``(likelihood, Y) -> Support`` for an array of targets [N, P].
support = Dispatcher("gpflow_pep.tilted.support")

#: ``(likelihood, num_columns) -> Layout`` for targets of so many columns.
layout = Dispatcher("gpflow_pep.tilted.layout")


class Support(NamedTuple):
    """Targets that have a probability."""

    inside: AnyNDArray
    """Whether each target has one, [N, P]."""

    expected: str
    """Which have, in words that follow "expected"."""


class Layout(NamedTuple):
    """The columns of a likelihood."""

    num_columns: int | None
    """How many the targets must have; None for any number."""

    num_latent: int
    """How many latent functions there are for them."""


def check_support(likelihood: Likelihood, Y: tf.Tensor) -> None:
    """
    Refuse targets that the likelihood gives no probability. Inside a graph there is no value yet.

    :param likelihood: A likelihood.
    :param Y: The targets [N, P].
    :raises ValueError: With the first target outside the support, or if it is no likelihood.
    """
    if not tf.executing_eagerly():
        return
    values: AnyNDArray = np.asarray(tf.convert_to_tensor(Y))
    inside, expected = support.dispatch_or_raise(type(likelihood))(likelihood, values)
    if not inside.all():
        raise ValueError(
            f"Y: got {values[~inside][0]:g} at row {np.argwhere(~inside)[0, 0]}, expected"
            f" {expected} for the likelihood {type(likelihood).__name__}. Recode the targets, or"
            " choose another likelihood."
        )


def check_num_latent(num_latent_gps: Any, likelihood: Likelihood, Y: tf.Tensor) -> int:
    """
    Check how many latent functions there are against what the likelihood and the targets need.

    :param num_latent_gps: The number asked for; None for what is needed.
    :param likelihood: A likelihood.
    :param Y: The targets [N, P].
    :return: How many are needed.
    :raises ValueError: If the numbers do not agree.
    """
    columns = int(Y.shape[1])
    observed, needed = layout.dispatch_or_raise(type(likelihood))(likelihood, columns)
    if observed not in (None, columns):
        raise ValueError(
            f"Y: got {columns} columns, expected {observed} for the likelihood"
            f" {type(likelihood).__name__}. Remove or add columns."
        )
    if num_latent_gps not in (None, needed):
        raise ValueError(
            f"num_latent_gps: got {num_latent_gps}, expected {needed} for the likelihood"
            f" {type(likelihood).__name__}. Pass num_latent_gps={needed}."
        )
    return needed


@support.register(object)
def _no_likelihood(likelihood: Any, Y: AnyNDArray) -> Support:
    raise ValueError(
        f"likelihood: got {type(likelihood).__name__}, expected"
        " one of gpflow.likelihoods. Pass one."
    )


@support.register(Likelihood)
@support.register(Gaussian)
@support.register(GaussianMC)
@support.register(StudentT)
@support.register(MultiLatentTFPConditional)
@support.register(HeteroskedasticTFPConditional)
def _any_number(likelihood: Likelihood, Y: AnyNDArray) -> Support:
    # A likelihood of the user's own, or a distribution of TensorFlow Probability, may know better:
    # it is not asked.
    return Support(np.isfinite(Y), "finite numbers")


def whole_numbers(Y: AnyNDArray, count: float) -> AnyNDArray:
    """Whether targets are whole numbers from 0 to below a number."""
    return np.asarray((np.round(Y) == Y) & (Y >= 0) & (count > Y))


@support.register(Bernoulli)
def two_labels(likelihood: Likelihood, Y: AnyNDArray) -> Support:
    """Find the support of likelihoods of two classes."""
    return Support((Y == 0) | (Y == 1), "0 or 1")


@support.register(MultiClass)
@support.register(Softmax)
def _classes(likelihood: MultiClass | Softmax, Y: AnyNDArray) -> Support:
    count = int(likelihood.latent_dim or 0)
    return Support(whole_numbers(Y, count), f"whole numbers from 0 to {count - 1}")


@support.register(Ordinal)
def _bins(likelihood: Ordinal, Y: AnyNDArray) -> Support:
    count = int(likelihood.num_bins)
    return Support(whole_numbers(Y, count), f"whole numbers from 0 to {count - 1}")


@support.register(Poisson)
def _counts(likelihood: Poisson, Y: AnyNDArray) -> Support:
    return Support(whole_numbers(Y, np.inf), "whole numbers from 0")


@support.register(Exponential)
def _not_negative(likelihood: Exponential, Y: AnyNDArray) -> Support:
    return Support(np.isfinite(Y) & (Y >= 0), "numbers from 0")


@support.register(Gamma)
def _positive(likelihood: Gamma, Y: AnyNDArray) -> Support:
    # At 0 the density is 0 or infinite for every shape but 1; a shape that is trained moves.
    shape = likelihood.shape
    fixed = not getattr(shape, "trainable", True) and bool(np.all(np.asarray(shape) == 1.0))
    inside = np.isfinite(Y) & ((Y >= 0) if fixed else (Y > 0))
    if fixed:
        return Support(inside, "numbers from 0")
    return Support(inside, "numbers above 0, or from 0 if shape is fixed at 1,")


@support.register(Beta)
def _fractions(likelihood: Beta, Y: AnyNDArray) -> Support:
    return Support((Y >= 0) & (Y <= 1), "numbers from 0 to 1")


@support.register(SwitchedLikelihood)
def _switched(likelihood: SwitchedLikelihood, Y: AnyNDArray) -> Support:
    parts = likelihood.likelihoods
    which = Y[:, -1]
    known = whole_numbers(which, len(parts))
    inside = np.concatenate([np.ones_like(Y[:, :-1], bool), known[:, None]], axis=1)
    texts = []
    for number, part in enumerate(parts):
        rows = which == number
        own = support.dispatch_or_raise(type(part))
        inside[rows, :-1], text = own(part, Y[rows, :-1])
        texts.append(f"{text} where the last column is {number}")
    last = f"in the last column whole numbers from 0 to {len(parts) - 1}"
    return Support(inside, f"{last}, and {', '.join(texts)},")


@layout.register(object)
def _own_layout(likelihood: Likelihood, num_columns: int) -> Layout:
    latent, observed = likelihood.latent_dim, likelihood.observation_dim
    return Layout(
        None if observed is None else int(observed), num_columns if latent is None else int(latent)
    )


@layout.register(MultiClass)
@layout.register(Softmax)
def _one_label(likelihood: MultiClass | Softmax, num_columns: int) -> Layout:
    # GPflow leaves the number of columns open.
    return Layout(1, int(likelihood.latent_dim or 0))


@layout.register(SwitchedLikelihood)
def _without_index(likelihood: SwitchedLikelihood, num_columns: int) -> Layout:
    return Layout(max(num_columns, 2), num_columns - 1)
