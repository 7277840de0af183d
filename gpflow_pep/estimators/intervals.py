r"""Intervals whose width is corrected by rows that were left out of the prediction.

Rows that were not used in training show whether a predictive distribution F is too
narrow or too wide. Their targets have the scores
:math:`z_n = |\Phi^{-1}(F_{-n}(y_n))|`, which for a Gaussian are
:math:`|y_n - m_n| / s_n`. With the conformal quantile

.. math::

    z = \text{the } \lceil (N + 1) c \rceil \text{-th smallest of } z_1, \ldots, z_N

instead of the Gaussian quantile, an interval from the quantile :math:`\Phi(-z)` to
:math:`\Phi(z)` contains a new target with a probability of at least c if the scores of
all N + 1 rows are exchangeable, whatever the distribution of the rows (distributional
conformal prediction: Chernozhukov, Wüthrich & Zhu, PNAS 2021). The scores are
exchangeable if F was trained on none of the N rows. Here F is trained on the other
folds (cross-conformal prediction, Vovk 2015), so the probability is about c but not
guaranteed.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from sklearn.model_selection import KFold

from ..engine.left_out_rows import copies_of
from ..engine.refusals import counted, refusal
from ..engine.refusals.arrays import AnyNDArray
from .recipe.mixture import ColumnMixture, Mixture
from .recipe.numbers import fit_numbers

NUM_FOLDS = 5


def interval_of_folds(
    mixture: Mixture | ColumnMixture, rows: AnyNDArray, coverage: float
) -> AnyNDArray:
    """Predict intervals, [N, 2] or [N, P, 2], whose width is corrected by training rows
    that are left out in folds.

    :param rows: Inputs in original units, [N, D].
    :raises ValueError: If rows cannot be left out, or if there are too few of them.
    """
    if isinstance(mixture, ColumnMixture):
        return mixture.by_column(lambda part: interval_of_folds(part, rows, coverage))
    scores = _scores_of(mixture)
    predictive = mixture.predictive(rows)

    def ends_of(scores: AnyNDArray) -> AnyNDArray:
        z = conformal_score(scores[~np.isnan(scores)], coverage)
        return predictive.at_scores(np.array([-z, z]))

    if scores.ndim == 1:
        return ends_of(scores)
    columns = range(scores.shape[1])
    return np.stack([ends_of(scores[:, p])[:, p] for p in columns], axis=1)


def _scores_of(mixture: Mixture) -> AnyNDArray:
    """Compute, once, the scores of training rows under predictions without them."""
    if mixture.fold_scores is None:
        single: Any = mixture.heaviest
        if not single.has_gaussian_noise or single.rows is None:
            got = f"'folds' with {type(single.likelihood).__name__} or minibatches"
            expected = "Gaussian noise and a model that holds its rows"
            raise refusal("calibrate", got, expected, "Pass calibrate=None.")
        X, Y = single.rows
        X = single.scaler.inverse_transform(X)
        Y = single.units.inverse_transform(Y)
        mixture.fold_scores = fold_scores(partial(fit_numbers, mixture.settings), X, Y)
    return mixture.fold_scores


def fold_scores(
    train: Callable[[AnyNDArray, AnyNDArray], Any], X: AnyNDArray, Y: AnyNDArray
) -> AnyNDArray:
    """
    Compute the score of each row with a model that is trained on the other folds,
    without copies of rows in this fold: [N], or [N, P] for several outputs.

    :param train: A function that trains a mixture on inputs and targets [N, P].
    :param X: Inputs in original units, [N, D].
    :param Y: Targets in original units, [N, P].
    :raises ValueError: If there are fewer rows than folds.
    """
    y = Y[:, 0] if Y.shape[1] == 1 else Y
    scores = np.empty(y.shape)
    copies = copies_of(X, Y)
    for train_rows, test in KFold(NUM_FOLDS, shuffle=True, random_state=0).split(X):
        kept = train_rows[~np.isin(copies[train_rows], copies[test])]
        mixture = train(X[kept], Y[kept])
        scores[test] = np.abs(mixture.predictive(X[test]).normal_scores(y[test]))
    return scores


def conformal_score(scores: AnyNDArray, coverage: float) -> float:
    """
    Find the score below which a fraction of rows lies, corrected for the new row.
    Refuse a fraction that is too large for this number of rows.
    """
    N = len(scores)
    place = max(int(np.ceil((N + 1) * coverage - 1e-9)), 1)
    if place > N:
        raise refusal(
            "coverage",
            f"{coverage:g} with {counted(N, 'row')}",
            f"at most {N / (N + 1):.4g}, the largest coverage that this number of rows"
            " can support",
            "Pass calibrate=None, which allows any coverage.",
        )
    return float(np.partition(scores, place - 1)[place - 1])
