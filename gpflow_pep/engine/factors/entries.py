"""Tilted integrals of single targets, entries of Y [N, P], of which some are
missing.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.likelihoods import Likelihood, ScalarLikelihood
from tensorflow import Tensor

from ..refusals import refusal
from .moments import (
    TiltedDerivatives,
    check_support,
    derivatives_in_moments_and_parameters,
    layout_of,
    log_power_expectation,
    require_resolved,
    traits,
)


class _Entries(NamedTuple):
    """Observed entries of some outputs."""

    likelihood: Likelihood
    index: Tensor  #: [E, 2], row and column of each.
    rows: Tensor  #: [E], the row of each.
    X: Tensor  #: [E, D], their inputs.
    Y: Tensor  #: [E, 1], their targets.
    alpha: Tensor  #: [E], or [1] where all rows have one power.

    def take(self, values: Tensor) -> Tensor:
        """Take what belongs to them, [E, 1], of [N, P]."""
        return tf.gather_nd(values, self.index)[:, None]


def is_of_one_target(likelihood: Any) -> bool:
    """Whether a likelihood is of one latent function and one target."""
    if not isinstance(likelihood, ScalarLikelihood):
        return False
    return layout_of(likelihood, 1) in [(None, 1), (1, 1)]


def has_gaussian_noise(likelihood: Any) -> bool:
    """Whether each target is f plus Gaussian noise."""
    parts = getattr(likelihood, "likelihoods", [likelihood])
    return all(traits(part).is_gaussian for part in parts)


def _groups_of(
    likelihood: Likelihood, num_outputs: int
) -> list[tuple[Likelihood, list[int]]]:
    """Find the outputs that share a likelihood: it, and their columns."""
    parts = traits(likelihood).of_outputs
    if not parts and not is_of_one_target(likelihood):
        raise refusal(
            "likelihood",
            type(likelihood).__name__,
            "a likelihood of a single latent function and target, for all outputs or"
            " for each",
            "Use gpflow_pep.likelihoods.PerOutput for a likelihood of each output.",
        )
    parts = parts or [likelihood] * num_outputs
    if num_outputs != len(parts):
        expected = f"{num_outputs}, one for each column of Y"
        raise refusal(
            "likelihoods", len(parts), expected, "Pass a likelihood for each output."
        )
    columns: dict[int, list[int]] = {}
    for column, part in enumerate(parts):
        columns.setdefault(id(part), []).append(column)
    return [(parts[some[0]], some) for some in columns.values()]


def _observed(
    likelihood: Likelihood, X: Tensor, Y: Tensor, alpha: Tensor
) -> list[_Entries]:
    groups, there = list[_Entries](), tf.math.is_finite(Y)
    for part, columns in _groups_of(likelihood, int(Y.shape[1])):
        wanted = tf.reduce_sum(tf.one_hot(columns, int(Y.shape[1])), axis=0) > 0.0
        index = tf.where(there & wanted)
        rows = index[:, 0]
        powers = alpha if alpha.shape[0] == 1 else tf.gather(alpha, rows)
        targets = tf.gather_nd(Y, index)[:, None]
        groups.append(_Entries(part, index, rows, tf.gather(X, rows), targets, powers))
    return groups


def entry_derivatives(
    likelihood: Likelihood,
    X: Tensor,
    Fmu: Tensor,
    Fvar: Tensor,
    Y: Tensor,
    alpha: Tensor,
    variables: Sequence[tf.Variable],
) -> tuple[TiltedDerivatives, list[Tensor]]:
    """
    Compute the tilted integral of each target and its derivatives, [N, P] each; 0 where
    Y is NaN. And the derivatives of their sum, at fixed moments, in some variables of
    the likelihood.

    Each likelihood is evaluated at the targets that are its own, and were observed,
    alone.

    :param likelihood: Of one target, for all outputs or for each.
    :param X: The inputs, [N, D].
    :param Fmu: Means of f, [N, P].
    :param Fvar: Variances of f, [N, P].
    :param Y: The targets, [N, P].
    :param alpha: The power of each row, [N], or of all, [1].
    """
    total, by_variables = [tf.zeros_like(Fmu)] * 3, list(map(tf.zeros_like, variables))
    for some in _observed(likelihood, X, Y, alpha):
        arguments = (
            some.X,
            some.take(Fmu),
            some.take(Fvar),
            some.Y,
            some.alpha,
            variables,
        )
        (ell, *others), more = derivatives_in_moments_and_parameters(
            some.likelihood, *arguments
        )
        values = zip(total, (ell, *(part[:, 0] for part in others)), strict=True)
        total = [
            tf.tensor_scatter_nd_update(to, some.index, part) for to, part in values
        ]
        by_variables = list(map(tf.add, by_variables, more))
    return TiltedDerivatives(*total), by_variables


def entry_log_power_expectation(
    likelihood: Likelihood,
    X: Tensor,
    Fmu: Tensor,
    Fvar: Tensor,
    Y: Tensor,
    alpha: Tensor,
) -> Tensor:
    """Compute the tilted integral of each target, [N, P], see
    :func:`entry_derivatives`.
    """
    total = tf.zeros_like(Fmu)
    for some in _observed(likelihood, X, Y, alpha):
        moments = some.take(Fmu), some.take(Fvar)
        ell = log_power_expectation(
            some.likelihood, some.X, *moments, some.Y, some.alpha
        )
        total += tf.scatter_nd(some.index, ell, tf.shape(total, tf.int64))
    return total


def observed_log_power_expectation(
    likelihood: Likelihood,
    X: Tensor,
    Fmu: Tensor,
    Fvar: Tensor,
    Y: Tensor,
    alpha: Tensor,
) -> Tensor:
    """Sum the tilted integrals of the targets of each row that were observed, [N]."""
    by_entry = entry_log_power_expectation(likelihood, X, Fmu, Fvar, Y, alpha)
    return tf.reduce_sum(by_entry, axis=1)


class _TargetRule(NamedTuple):
    """What is done with targets of new rows."""

    check: Callable[
        [Likelihood, Tensor], None
    ]  #: Refuses targets without a probability.
    log_power_expectation: Callable[
        ..., Tensor
    ]  #: Computes the tilted integral of each row, [N].


def takes_missing_targets(model: Any) -> bool:
    """Whether NaN in the targets of a model, or of an ensemble of models, is what is
    missing.
    """
    return bool(getattr(model, "takes_missing_targets", False))


def target_rule(model: Any) -> _TargetRule:
    """Choose by whether targets may be missing."""
    if takes_missing_targets(model):
        return _TargetRule(check_entries, observed_log_power_expectation)
    return _TargetRule(check_support, log_power_expectation)


def draw_targets(
    likelihood: Likelihood, X: AnyNDArray, F: AnyNDArray, random: np.random.Generator
) -> AnyNDArray:
    """Draw targets [N, S, P] given latent functions [N, S, L].

    :param likelihood: One with a :attr:`~gpflow_pep.likelihoods.Traits.draw`; of one
        target, it is that of all outputs.
    """
    draw: Any = traits(likelihood).draw
    if is_of_one_target(likelihood):
        return np.stack([draw(X, f, random) for f in np.moveaxis(F, -1, 0)], axis=-1)
    Y: AnyNDArray = draw(X, F[..., 0] if F.shape[-1] == 1 else F, random)
    return Y if Y.ndim == F.ndim else Y[..., None]


def require_entries_resolved(
    likelihood: Likelihood, X: Tensor, Y: Tensor, ell: Tensor, *moments: Tensor
) -> list[tf.Operation]:
    """See :func:`~gpflow_pep.engine.factors.moments.require_resolved`, for ell and
    moments [N, P].
    """
    stops = list[tf.Operation]()
    for some in _observed(likelihood, X, Y, tf.ones([1], ell.dtype)):
        values = some.take(ell)[:, 0], *map(some.take, moments)
        stops += require_resolved(some.likelihood, *values, rows=some.rows)
    return stops


def check_entries(likelihood: Likelihood, Y: Tensor) -> None:
    """Refuse targets that were observed and have no probability; see
    :func:`~gpflow_pep.engine.factors.moments.check_support`.

    :param likelihood: Of one target, for all outputs or for each.
    """
    groups = _groups_of(likelihood, int(Y.shape[1]))
    if not tf.executing_eagerly():
        return
    values = np.asarray(tf.convert_to_tensor(Y))
    for part, columns in groups:
        for column in columns:
            target = values[:, column : column + 1]
            there = ~np.isnan(target)
            if there.any():
                check_support(
                    part, tf.constant(np.where(there, target, target[there][0]))
                )
