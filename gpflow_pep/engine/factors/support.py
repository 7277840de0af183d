"""What is special about a likelihood beside its tilted integral: which targets have a probability,
how many columns and latent functions go with it, and what else is built on it."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray, MeanAndVariance, TensorType
from gpflow.likelihoods import Likelihood
from gpflow.utilities import Dispatcher
from tensorflow import Tensor

from ..checks import refusal

#: ``(likelihood, Y) -> Support`` for an array of targets [N, P].
support = Dispatcher("gpflow_pep.engine.factors.support")

#: ``(likelihood, num_columns) -> Layout`` for targets of so many columns.
layout = Dispatcher("gpflow_pep.likelihoods.layout")

#: ``(likelihood) -> Traits``; of a likelihood for which nothing is registered it is ``Traits()``.
traits = Dispatcher("gpflow_pep.likelihoods.traits")


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


def layout_of(likelihood: Likelihood, num_columns: int) -> Layout:
    """Give the columns of a likelihood for targets of so many columns; refuse what is none."""
    return layout.dispatch_or_raise(type(likelihood))(likelihood, num_columns)


def check_support(likelihood: Likelihood, Y: Tensor) -> None:
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
        got = f"{values[~inside][0]:g} at row {np.argwhere(~inside)[0, 0]}"
        expected = f"{expected} for the likelihood {type(likelihood).__name__}"
        raise refusal("Y", got, expected, "Recode the targets, or choose another likelihood.")


def check_noise(likelihood: Likelihood, num_columns: int) -> None:
    """Refuse noise of a likelihood that is several numbers, and not one, or one for each column."""
    for part in getattr(likelihood, "likelihoods", [likelihood]):
        sizes = {1} if traits(part).is_gaussian else {1, num_columns}
        for name in ("variance", "scale"):
            shape = tuple(getattr(getattr(part, name, None), "shape", ()))
            if int(np.prod(shape)) not in sizes:
                raise refusal(
                    "likelihood",
                    f"a {type(part).__name__} with a {name} of shape {shape}",
                    "one number, or a gpflow.functions.Function of the row",
                    "Put error bars of rows into a column of X: see 'What is known of each row' on"
                    " the page on likelihoods.",
                )


def check_num_latent(num_latent_gps: Any, likelihood: Likelihood, Y: Tensor) -> int:
    """
    Check how many latent functions there are against what the likelihood and the targets need.

    :param num_latent_gps: The number asked for; None for what is needed.
    :param likelihood: A likelihood.
    :param Y: The targets [N, P].
    :return: How many are needed.
    :raises ValueError: If the numbers do not agree.
    """
    columns, name = int(Y.shape[1]), type(likelihood).__name__
    observed, needed = layout_of(likelihood, columns)
    check_noise(likelihood, columns)
    if observed not in (None, columns):
        got = f"{columns} columns"
        raise refusal("Y", got, f"{observed} for the likelihood {name}", "Remove or add columns.")
    if num_latent_gps not in (None, needed):
        expected = f"{needed} for the likelihood {name}"
        raise refusal("num_latent_gps", num_latent_gps, expected, f"Pass num_latent_gps={needed}.")
    return needed


@support.register(object)
def _no_likelihood(likelihood: Any, Y: AnyNDArray) -> Support:
    raise refusal("likelihood", type(likelihood).__name__, "one of gpflow.likelihoods", "Pass one.")


@support.register(Likelihood)
def any_number(likelihood: Likelihood, Y: AnyNDArray) -> Support:
    """Find the support where nothing else is registered: all finite numbers."""
    return Support(np.isfinite(Y), "finite numbers")


def whole_numbers(Y: AnyNDArray, count: float) -> Support:
    """Find the support of counts, or of classes."""
    inside = np.asarray((np.round(Y) == Y) & (Y >= 0) & (count > Y))
    return Support(inside, f"whole numbers from 0{'' if np.isinf(count) else f' to {count - 1}'}")


@layout.register(object)
def _layout_by_attributes(likelihood: Likelihood, num_columns: int) -> Layout:
    latent, observed = likelihood.latent_dim, likelihood.observation_dim
    return Layout(
        None if observed is None else int(observed), num_columns if latent is None else int(latent)
    )


class Traits(NamedTuple):
    r"""What models, estimators and pictures ask of a likelihood. Register others with
    ``gpflow_pep.likelihoods.traits``."""

    is_gaussian: bool = False
    """Whether y is f plus Gaussian noise of ``likelihood.variance_at(X)``: closed forms hold."""

    num_classes: int | None = None
    """C where the targets are the classes 0 to C - 1, else None."""

    ignores_level: bool = False
    r"""Whether :math:`p(y | f)` stays the same when all latent functions of a row move up or down
    together. Then their means take one step together, see
    :mod:`gpflow_pep.engine.sites.coupling`."""

    starts_at_high_powers: bool = False
    r"""Whether :math:`E[\log p(y | f)]` falls exponentially with the variance of f, as that of a
    rate does whose logarithm is f. Then small powers are reached from larger ones."""

    follows_wider_priors: bool = False
    """Whether sites under a vague prior may be reached from those under narrower ones where nothing
    else leads there: the fallback of :mod:`gpflow_pep.engine.sites.fixed_point`."""

    follows_by_newton: bool = False
    r"""Whether sites may have so negative a precision that updates are not drawn to their fixed
    point, as where f may be far from what y says: the fallback through smaller powers then takes
    steps of Newton's method, see :mod:`gpflow_pep.engine.sites.steps`."""

    probabilities: Callable[[TensorType, TensorType], Tensor] | None = None
    """``(Fmu, Fvar) -> probabilities``, of all classes at once, [N, C]; None where that of a class
    is its tilted integral."""

    of_outputs: Sequence[Likelihood] = ()
    """The likelihood of each output, where it is made of one for each."""

    error_rate: Callable[[Any], Any] | None = None
    r"""``likelihood -> epsilon``, the parameter for which a label of C classes has the density
    :math:`(1 - \epsilon) p + \epsilon (1 - p) / (C - 1)`, with the p of labels without errors. None
    where there is no such parameter."""

    advice: str = ""
    """What to do, beside what helps for all likelihoods, where sites do not converge: a sentence
    after a space."""

    draw: Callable[[AnyNDArray, AnyNDArray, np.random.Generator], AnyNDArray] | None = None
    """``(X, f, random) -> y`` draws targets [N, S] given one latent function [N, S], or several
    [N, S, L]; those of several outputs are [N, S, P]. None where nothing is known that draws."""

    in_units: Callable[[Callable[[float], float], float], Likelihood] | None = None
    r"""``(change, scale) -> likelihood`` of targets :math:`g = (y - b) / s`, with f in the same
    units; ``change(y)`` is g. Of location-scale families: it changes bounds, and noise that is not
    trained. None for others, whose targets stay as they are."""

    has_density: Callable[[AnyNDArray], AnyNDArray] = lambda Y: np.ones(Y.shape, dtype=bool)
    """``Y -> [N, P]``: which targets have a density, and not a probability as at a bound."""

    predict: Callable[[TensorType, TensorType, TensorType], MeanAndVariance] | None = None
    """``(X, Fmu, Fvar) -> mean, variance`` of y, [N, P], for rows of any number. None: see
    :func:`~gpflow_pep.likelihoods.predict_mean_and_var`. A class that derives from this one
    inherits it unless it has conditional moments of its own."""


@traits.register(object)
def _nothing_special(likelihood: Any) -> Traits:
    return Traits()


def num_classes(likelihood: Likelihood) -> int:
    """
    Count the classes of a likelihood.

    :raises ValueError: If its targets are no classes.
    """
    number: int | None = traits(likelihood).num_classes
    if number is None:
        raise refusal(
            "likelihood",
            type(likelihood).__name__,
            "one of classes, such as Bernoulli, MultiClass or Softmax",
            "Nothing else has probabilities of classes; one of your own says how many it has with"
            " gpflow_pep.likelihoods.traits.register.",
        )
    return number
