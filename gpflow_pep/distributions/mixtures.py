"""Common functions of mixtures: moments, probabilities of classes, draws, and rows that
are far from the training rows.

The components may be arrays of NumPy, or tensors.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from .recalibration import Recalibration
from .units import Array

#: A row is far if the variance of f is more than this fraction of the prior variance.
FAR = 0.95
#: A row is far if it is far for a component with at least this weight, or with the
#: largest weight. On 43 data sets of 10 and 20 rows of known processes .86 of the rows
#: with an input of 10 000 are then far, and .07 of the rows like the training rows.
#: With only the heaviest component these are .65 and .06, and with .1 instead of .2 .98
#: and .13, because components with small weights may treat a function as noise.
WEIGHTY = 0.2


def weighted_sum(weights: Iterable[Any], values: Iterable[Any]) -> Any:
    r"""Compute :math:`\sum_k w_k a_k`."""
    return sum(w * value for w, value in zip(weights, values, strict=True))


def mixed_moments(
    weights: Array | Sequence[Any],
    means: Sequence[Any],
    covariances: Sequence[Any],
    outer: Callable[[Any], Any] = np.square,
) -> tuple[Any, Any]:
    r"""Compute :math:`m = \sum_k w_k m_k` and
    :math:`\sum_k w_k (C_k + (m_k - m)(m_k - m)^\top)`.

    :param weights: The weights, [K]; their sum is 1.
    :param means: The means of each component.
    :param covariances: The variances of each component, or the covariances of rows or
        outputs.
    :param outer: A function that computes the products of the entries of
        :math:`m_k - m` to which the covariances belong.
    """
    mean = weighted_sum(weights, means)
    spreads = [C + outer(m - mean) for m, C in zip(means, covariances, strict=True)]
    return mean, weighted_sum(weights, spreads)


def mixed_probabilities(
    weights: Array,
    by_component: Iterable[Array],
    recalibration: Recalibration | None = None,
) -> Array:
    """Mix probabilities of classes, [N, C] of each component, and recalibrate them."""
    mixed = np.asarray(weighted_sum(weights, by_component))
    return mixed if recalibration is None else recalibration.probabilities(mixed)


def draws_of_mixture(
    weights: Array,
    num_samples: int,
    random: np.random.Generator,
    draw: Callable[[int, int], npt.NDArray[Any]],
) -> npt.NDArray[Any]:
    """Draw from a mixture, [S, ...]: first the component of each draw, and then from
    this component.

    :param draw: A function of k and n that makes n draws from component k, [n, ...].
    """
    component = random.choice(len(weights), num_samples, p=weights)
    counts = np.bincount(component, minlength=len(weights))
    drawn = np.concatenate([draw(k, n) for k, n in enumerate(counts) if n])
    places = np.argsort(component, kind="stable")
    values = np.empty_like(drawn)
    values[places] = drawn
    return values


def far_by_components(
    weights: Array, is_far: Callable[[int], npt.NDArray[np.bool_]]
) -> npt.NDArray[np.bool_]:
    """Mark the rows, [N], that are far for any component with enough weight
    (:data:`WEIGHTY`).

    :param is_far: A function that marks the rows, [N], that are far for component k.
    """
    least = min(WEIGHTY, float(np.max(weights)))
    found = [is_far(int(k)) for k in np.flatnonzero(weights >= least)]
    return np.asarray(np.any(found, axis=0))
