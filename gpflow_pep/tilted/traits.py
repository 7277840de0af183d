"""What is special about a likelihood beside its tilted integral, for all that is built on it."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from gpflow.base import AnyNDArray, MeanAndVariance, TensorType
from gpflow.likelihoods import Likelihood
from gpflow.utilities import Dispatcher

from ..checks import refusal

#: ``(likelihood) -> Traits``; of a likelihood for which nothing is registered it is ``Traits()``.
traits = Dispatcher("gpflow_pep.tilted.traits")


class Traits(NamedTuple):
    r"""What models, estimators and pictures ask of a likelihood. Register others with
    ``gpflow_pep.tilted.traits``."""

    is_gaussian: bool = False
    """Whether y is f plus Gaussian noise of ``likelihood.variance_at(X)``: closed forms hold."""

    num_classes: int | None = None
    """C where the targets are the classes 0 to C - 1, else None."""

    ignores_level: bool = False
    r"""Whether :math:`p(y | f)` stays the same when all latent functions of a row move up or down
    together. Then their means take one step together, see :mod:`gpflow_pep.sites.coupling`."""

    starts_at_high_powers: bool = False
    r"""Whether :math:`E[\log p(y | f)]` falls exponentially with the variance of f, as that of a
    rate does whose logarithm is f. Then small powers are reached from larger ones."""

    draw: Callable[[AnyNDArray, AnyNDArray, np.random.Generator], AnyNDArray] | None = None
    """``(X, f, random) -> y`` draws targets [N, S] given one latent function [N, S], or several
    [N, S, L]; None where nothing is known that draws."""

    predict: Callable[[TensorType, TensorType, TensorType], MeanAndVariance] | None = None
    """``(X, Fmu, Fvar) -> mean, variance`` of y, [N, P]; None where GPflow's own are right."""


def predict_mean_and_var(
    likelihood: Likelihood, X: TensorType, Fmu: TensorType, Fvar: TensorType
) -> MeanAndVariance:
    """Compute the mean and variance of y, [N, P], from those of the latent functions, [N, L]."""
    rule = traits(likelihood).predict or likelihood.predict_mean_and_var
    mean, variance = rule(X, Fmu, Fvar)
    return mean, variance


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
            " gpflow_pep.tilted.traits.register.",
        )
    return number
