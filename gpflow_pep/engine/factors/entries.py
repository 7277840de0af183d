"""Tilted integrals of single targets, the entries of Y [N, P], some of which are
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
    index: Tensor  #: Row and column of each entry, [E, 2].
    rows: Tensor  #: The row of each entry, [E].
    X: Tensor  #: The inputs of the entries, [E, D].
    Y: Tensor  #: The targets of the entries, [E, 1].
    alpha: Tensor  #: The power of each entry, [E], or [1] if all rows have one power.

    def take(self, values: Tensor) -> Tensor:
        """Select the values of the entries, [E, 1], from [N, P]."""
        return tf.gather_nd(values, self.index)[:, None]


def is_of_one_target(likelihood: Any) -> bool:
    """Whether a likelihood has one latent function and one target."""
    if not isinstance(likelihood, ScalarLikelihood):
        return False
    return layout_of(likelihood, 1) in [(None, 1), (1, 1)]


def has_gaussian_noise(likelihood: Any) -> bool:
    """Whether each target is f plus Gaussian noise."""
    of_columns = getattr(likelihood, "likelihoods", [likelihood])
    return all(traits(of_column).is_gaussian for of_column in of_columns)


def _groups_of(
    likelihood: Likelihood, num_outputs: int
) -> list[tuple[Likelihood, list[int]]]:
    """Find the outputs that share a likelihood: the likelihood and the columns."""
    of_columns = traits(likelihood).of_outputs
    if not of_columns and not is_of_one_target(likelihood):
        raise refusal(
            "likelihood",
            type(likelihood).__name__,
            "a likelihood of a single latent function and target, for all outputs or"
            " for each",
            "Use gpflow_pep.likelihoods.PerOutput for a likelihood of each output.",
        )
    of_columns = of_columns or [likelihood] * num_outputs
    if num_outputs != len(of_columns):
        expected = f"{num_outputs}, one for each column of Y"
        raise refusal(
            "likelihoods",
            len(of_columns),
            expected,
            "Pass a likelihood for each output.",
        )
    columns: dict[int, list[int]] = {}
    for column, of_column in enumerate(of_columns):
        columns.setdefault(id(of_column), []).append(column)
    return [(of_columns[group[0]], group) for group in columns.values()]


def _observed(
    likelihood: Likelihood, X: Tensor, Y: Tensor, alpha: Tensor
) -> list[_Entries]:
    groups = list[_Entries]()
    there = tf.math.is_finite(Y)
    for of_columns, columns in _groups_of(likelihood, int(Y.shape[1])):
        wanted = tf.reduce_sum(tf.one_hot(columns, int(Y.shape[1])), axis=0) > 0.0
        index = tf.where(there & wanted)
        rows = index[:, 0]
        powers = alpha if alpha.shape[0] == 1 else tf.gather(alpha, rows)
        targets = tf.gather_nd(Y, index)[:, None]
        groups.append(
            _Entries(of_columns, index, rows, tf.gather(X, rows), targets, powers)
        )
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
    Compute the tilted integral of each target and its derivatives, [N, P] each; 0 if Y
    is NaN. Also compute the derivatives of their sum, at fixed moments, in some
    variables of the likelihood.

    Each likelihood is evaluated only at its own observed targets.

    :param likelihood: A likelihood of one target, for all outputs or for each.
    :param X: The inputs, [N, D].
    :param Fmu: Means of f, [N, P].
    :param Fvar: Variances of f, [N, P].
    :param Y: The targets, [N, P].
    :param alpha: The power of each row, [N], or one power [1] for all.
    """
    total = [tf.zeros_like(Fmu)] * 3
    by_variables = list(map(tf.zeros_like, variables))
    for entries in _observed(likelihood, X, Y, alpha):
        arguments = (
            entries.X,
            entries.take(Fmu),
            entries.take(Fvar),
            entries.Y,
            entries.alpha,
            variables,
        )
        (ell, *derivatives), more = derivatives_in_moments_and_parameters(
            entries.likelihood, *arguments
        )
        values = zip(
            total, (ell, *(derivative[:, 0] for derivative in derivatives)), strict=True
        )
        total = [
            tf.tensor_scatter_nd_update(to, entries.index, derivative)
            for to, derivative in values
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
    """Compute the tilted integral of each target, [N, P]; see
    :func:`entry_derivatives`.
    """
    total = tf.zeros_like(Fmu)
    for entries in _observed(likelihood, X, Y, alpha):
        moments = entries.take(Fmu), entries.take(Fvar)
        ell = log_power_expectation(
            entries.likelihood, entries.X, *moments, entries.Y, entries.alpha
        )
        total += tf.scatter_nd(entries.index, ell, tf.shape(total, tf.int64))
    return total


def observed_log_power_expectation(
    likelihood: Likelihood,
    X: Tensor,
    Fmu: Tensor,
    Fvar: Tensor,
    Y: Tensor,
    alpha: Tensor,
) -> Tensor:
    """Sum the tilted integrals of the observed targets of each row, [N]."""
    by_entry = entry_log_power_expectation(likelihood, X, Fmu, Fvar, Y, alpha)
    return tf.reduce_sum(by_entry, axis=1)


class _TargetRule(NamedTuple):
    """The rules for targets of new rows."""

    #: Refuses targets that have probability 0.
    check: Callable[[Likelihood, Tensor], None]
    #: Computes the tilted integral of each row, [N].
    log_power_expectation: Callable[..., Tensor]


def takes_missing_targets(model: Any) -> bool:
    """Whether NaN in the targets of a model, or of an ensemble of models, marks a
    missing target.
    """
    return bool(getattr(model, "takes_missing_targets", False))


def target_rule(model: Any) -> _TargetRule:
    """Choose the rules according to whether targets may be missing."""
    if takes_missing_targets(model):
        return _TargetRule(check_entries, observed_log_power_expectation)
    return _TargetRule(check_support, log_power_expectation)


def draw_targets(
    likelihood: Likelihood, X: AnyNDArray, F: AnyNDArray, random: np.random.Generator
) -> AnyNDArray:
    """Draw targets [N, S, P] given latent functions [N, S, L].

    :param likelihood: A likelihood with a :attr:`~gpflow_pep.likelihoods.Traits.draw`.
        A likelihood of one target is used for all outputs.
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
    for entries in _observed(likelihood, X, Y, tf.ones([1], ell.dtype)):
        values = entries.take(ell)[:, 0], *map(entries.take, moments)
        stops += require_resolved(entries.likelihood, *values, rows=entries.rows)
    return stops


def check_entries(likelihood: Likelihood, Y: Tensor) -> None:
    """Refuse observed targets that have probability 0; see
    :func:`~gpflow_pep.engine.factors.moments.check_support`.

    :param likelihood: A likelihood of one target, for all outputs or for each.
    """
    groups = _groups_of(likelihood, int(Y.shape[1]))
    if not tf.executing_eagerly():
        return
    values = np.asarray(tf.convert_to_tensor(Y))
    for of_columns, columns in groups:
        for column in columns:
            target = values[:, column : column + 1]
            there = ~np.isnan(target)
            if there.any():
                check_support(
                    of_columns, tf.constant(np.where(there, target, target[there][0]))
                )
