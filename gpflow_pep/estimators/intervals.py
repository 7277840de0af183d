r"""Intervals whose width is corrected by rows that were left out of the prediction.

A predictive distribution F that is too narrow or too wide is so at rows that it was not
trained on. Their targets have the scores :math:`z_n = |\Phi^{-1}(F_{-n}(y_n))|`, which
for a Gaussian are :math:`|y_n - m_n| / s_n`. With the conformal quantile

.. math::

    z = \text{the } \lceil (N + 1) c \rceil \text{-th smallest of } z_1, \ldots, z_N

in the place of the Gaussian one, an interval from the quantile :math:`\Phi(-z)` to
:math:`\Phi(z)` holds a new target with a probability of at least c where the scores of
all N + 1 rows are exchangeable, whatever the distribution of the rows (distributional
conformal prediction: Chernozhukov, Wüthrich & Zhu, PNAS 2021). That is so if F was
trained on other rows than the N. Here F is trained on the other folds (cross-conformal
prediction, Vovk 2015), so that the probability is about c and not guaranteed.
"""

from typing import Any

import numpy as np
from gpflow.base import AnyNDArray
from sklearn.base import clone
from sklearn.model_selection import KFold

from ..engine.checks import counted, refusal
from ..training.fitting.points import copies_of

NUM_FOLDS = 5


def fold_scores(estimator: Any, X: AnyNDArray, y: AnyNDArray) -> AnyNDArray:
    """
    Compute the score of each row by clones of a regressor that are trained on the other
    folds, but for copies of its rows: [N], or of several outputs [N, P].

    :param X: Inputs in original units, [N, D].
    :param y: Targets in original units, [N] or [N, P].
    :raises ValueError: If there are fewer rows than folds.
    """
    scores, copies = np.empty(y.shape), copies_of(X, y.reshape(len(y), -1))
    for train, test in KFold(NUM_FOLDS, shuffle=True, random_state=0).split(X):
        train = train[~np.isin(copies[train], copies[test])]
        fitted: Any = clone(estimator).fit(X[train], y[train])
        scores[test] = np.abs(fitted._predictive(X[test]).normal_scores(y[test]))
    return scores


def conformal_score(scores: AnyNDArray, coverage: float) -> float:
    """
    Find the score below which a fraction of rows lies, with the correction for one row
    more; refuse a fraction that is too large for so few rows.
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
