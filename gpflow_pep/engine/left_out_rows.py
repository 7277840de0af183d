"""Rows that are left out of training: which rows are copies of others, whether one
model predicts them better than another, and the weights of mixed models. The weights
are explained in :mod:`gpflow_pep.training.choosing.combining`.
"""

import numpy as np
import pandas as pd
from scipy.optimize import nnls

from .refusals import refusal
from .refusals.arrays import AnyNDArray, require_shape
from .refusals.numbers import check_real

#: With fewer rows, it is not clear whether near rows improve predictions, and a
#: prediction takes longer.
LEAST_ROWS = 1000
#: Two measurements rarely agree in the inputs and in a target with at least this number
#: of levels, and results of trials rarely have so many levels: ratings usually have 2
#: to 7.
LEVELS_OF_NUMBERS = 10
#: The constant c in the prior of the weights, relative to the data.
PRIOR_WEIGHT = 0.25
#: A leave-one-out log density is at least the density of the row's best component minus
#: this number. Lower values, or an improper cavity, have no more influence on the
#: weights.
_FLOOR = 700.0
_MAX_PASSES = 10_000
_SETTLED = 1e-12


def copies_of(X: AnyNDArray, Y: AnyNDArray) -> AnyNDArray:
    """Give each row a number, [N], so that copies have the same number. Copies are rows
    with the same inputs X [N, D], if all rows with these inputs have the same targets Y
    [N, P]. If half of the rows would be copies, the inputs may be settings or have few
    levels. Then no row counts as a copy, unless a column has at least ten levels and at
    least half as many levels as there are distinct rows. This can be a column of the
    targets, or a column of the inputs if at most a tenth of the distinct inputs have
    several targets.
    """
    # A code of 64 bits for each row is fast.
    codes = pd.util.hash_pandas_object(pd.DataFrame(X + 0.0), index=False)
    _, first_places, group = np.unique(codes, return_index=True, return_inverse=True)
    several = (
        np.bincount(group, np.any((Y[first_places][group] != Y) & ~np.isnan(Y), axis=1))
        > 0.0
    )
    copies = np.where(several[group], len(X) + np.arange(len(X)), group)
    if 2 * (num_distinct := len(np.unique(copies))) > len(X):
        return copies
    # Some inputs have several targets.
    is_y = np.sum(several) > 0.1 * np.sum(np.bincount(group) > 1)
    levels = max(
        len(np.unique(column)) for column in (Y if is_y else np.hstack([X, Y])).T
    )
    return copies if levels >= max(num_distinct / 2, 10) else np.arange(len(X))


def numbers_of_copies(X: AnyNDArray, Y: AnyNDArray) -> AnyNDArray | None:
    """Count the copies of each row, itself included, [N]; None if there are no
    copies.
    """
    _, group, sizes = np.unique(
        copies_of(X, Y), return_inverse=True, return_counts=True
    )
    return None if len(sizes) == len(X) else sizes[group]


def may_be_trials(Y: AnyNDArray) -> bool:
    """Whether equal rows may be trials with the same result instead of copies. They may
    be if each column of targets [N, P] has counts (whole numbers of at least 0, which
    includes numbers of classes), or fewer than :data:`LEVELS_OF_NUMBERS` levels.
    """
    for column in Y.T:
        levels = np.unique(column[~np.isnan(column)])
        are_counts = np.all((levels >= 0.0) & (levels % 1.0 == 0.0))
        if len(levels) >= LEVELS_OF_NUMBERS and not are_counts:
            return False
    return True


def gains(
    log_densities: AnyNDArray, others: AnyNDArray, errors: float, least: float = 0.0
) -> bool:
    """Whether the mean of log densities [S] exceeds the mean of others by more than
    this number of standard errors, and by more than this number of nats.
    """
    with np.errstate(invalid="ignore"):  # a density of 0
        difference = log_densities - others
        error = np.std(difference, ddof=1) / np.sqrt(len(difference))
    return bool(np.mean(difference) > max(errors * error, least))


def ensemble_weights(
    log_densities: AnyNDArray, *, prior_weight: float = PRIOR_WEIGHT
) -> AnyNDArray:
    r"""Compute the weights of an ensemble from log densities of left-out rows.

    Expectation maximisation of the objective of
    :mod:`gpflow_pep.training.choosing.combining`, which is concave:
    :math:`r_{kn} = w_k e^{\ell_{kn}} / \sum_j w_j e^{\ell_{jn}}`, then
    :math:`w_k = (\sum_n r_{kn} + c N / K) / (N + c N)`, until no weight moves.

    :param log_densities: The log density :math:`\ell_{kn}` of each row under each
        component, in nats. Minus infinity or NaN, for a component without a density,
        counts as a density of about 0.
    :param prior_weight: The weight c of the prior, at least 0; 0 is stacking without a
        prior.
    :return: The weights, each at least :math:`c / (K (1 + c))`, whose sum is 1.
    :raises ValueError: If a row has no density under any component, or c is negative.
    """
    log_densities = np.asarray(log_densities, dtype=np.float64)
    require_shape("log_densities", log_densities, (None, None))
    check_real("prior_weight", prior_weight, "[0, inf)", "0.25 is usual.")
    if not log_densities.size:
        got = f"the shape {log_densities.shape}"
        raise refusal("log_densities", got, "at least one row", "Give rows.")
    best = np.max(np.where(np.isnan(log_densities), -np.inf, log_densities), axis=0)
    if not np.isfinite(best).all():
        raise refusal(
            "log_densities",
            f"no finite density in {np.sum(~np.isfinite(best))} row(s)",
            "a finite density under at least one component",
            "Remove the rows, or the components that failed.",
        )
    density = np.exp(
        np.nan_to_num(np.maximum(log_densities - best, -_FLOOR), nan=-_FLOOR)
    )
    num_components, num_rows = density.shape
    weights = np.full(num_components, 1.0 / num_components)
    pseudo_rows = prior_weight * num_rows / num_components
    for _ in range(_MAX_PASSES):
        joint = weights[:, None] * density
        responsible = np.sum(joint / np.sum(joint, axis=0), axis=1)
        updated = (responsible + pseudo_rows) / (num_rows * (1.0 + prior_weight))
        if np.max(np.abs(updated - weights)) < _SETTLED:
            return updated
        weights = updated
    return weights


def weights_of_means(
    means: AnyNDArray,
    targets: AnyNDArray,
    weights: AnyNDArray,
    *,
    shrinkage: float = 0.1,
) -> AnyNDArray:
    r"""
    Compute the weights u of the components' means in the predicted mean,
    :math:`\sum_k u_k \mu_k`: at least 0, with sum 1, and with the smallest

    .. math::

       \sum_n \Big(y_n - \sum_k u_k \mu_{k,-n}\Big)^2 + \lambda N \sigma^2 |u - w|^2,

    where :math:`\sigma^2` is the mean square error with the weights w of the densities.
    Because u has the sum 1, this is a multiple of a square :math:`|B u|^2`. The
    nonnegative v with the smallest :math:`|B v|^2 + (1 - \sum_k v_k)^2` is a multiple
    of u.

    :param means: The means :math:`\mu_{k,-n}` of left-out rows.
    :param targets: The targets y of these rows, in the same units.
    :param weights: The weights w of the densities.
    :param shrinkage: The weight :math:`\lambda` of the shrinkage, above 0.
    """
    num_components, num_rows = len(weights), len(targets)
    require_shape("means", np.asarray(means), (num_components, num_rows))
    require_shape("targets", np.asarray(targets), (num_rows,))
    require_shape("weights", np.asarray(weights), (num_components,))
    errors = (targets - means).T  # [N, K]
    scale = np.sqrt(np.sum((errors @ weights) ** 2))
    # The weights w are right up to rounding.
    if scale <= 1e-12 * np.linalg.norm(errors):
        return weights
    apart = np.sqrt(shrinkage) * (np.eye(len(weights)) - weights[:, None])
    B = np.vstack([errors / scale, apart, np.ones(len(weights))])
    v: AnyNDArray = nnls(B, np.r_[np.zeros(len(B) - 1), 1.0])[0]
    return v / np.sum(v)
