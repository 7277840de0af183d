"""More about the saved model: how much each input matters, and whether more rows would
help.
"""

import time
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from sklearn.inspection import permutation_importance
from sklearn.pipeline import Pipeline

from .losses import Metric
from .predicting import predictions_given_others
from .scores import held_out, scores

#: The learning curve has points at these fractions of the training rows of the first
#: part.
FRACTIONS = (0.25, 0.5)
#: Each input is permuted over at most this number of rows, and at most this often. The
#: standard error of an importance is then 1.4% of the standard deviation of a row.
MOST_ROWS = 1000
REPEATS = 5
#: With less time each input is permuted over fewer rows, but at least over this number.
#: The error is then 7%.
FEWEST_ROWS = 100
FEWEST_REPEATS = 2


class Details(NamedTuple):
    """Details of the saved model in addition to its scores.

    :param importance: For each input, "mean" and "error" of the increase of the loss on
        held-out rows of the first part if the input is permuted over the rows; None if
        there was no time for it.
    :param learning: Held-out predictions of the first part, by the number of training
        rows, in ascending order.
    :param unfinished: The numbers of training rows with which the fit did not converge.
    """

    importance: pd.DataFrame | None
    learning: dict[int, pd.DataFrame]
    unfinished: tuple[int, ...] = ()
    given_others: dict[str, tuple[float, float]] | None = None
    """Two root mean squared errors for each of several targets, on the held-out rows of
    the first part: without and with knowledge of the other targets of the row, for the
    best model of all targets.
    """


def importance_of(
    pipeline: Pipeline,
    X: pd.DataFrame,
    y: "pd.Series[Any]",
    classes: bool,
    metric: Metric,
    deadline: float = np.inf,
) -> pd.DataFrame | None:
    """Compute the permutation importance of each column: see :class:`Details`.

    :param deadline: The end, by ``time.perf_counter``. The time of one score decides
        how often columns are permuted, and over how many rows. The result is None if
        there is no time for FEWEST_REPEATS over FEWEST_ROWS.
    """

    def score(pipeline: Pipeline, X: pd.DataFrame, y: "pd.Series[Any]") -> float:
        if metric.name == "nlpd":  # without quantiles, which take the longest
            return float(
                pipeline[-1].log_score(pipeline[:-1].transform(X), y.to_numpy())
            )
        return -metric.loss(scores(held_out(pipeline, X, y, classes))[metric.name])

    num_rows = min(len(X), MOST_ROWS)
    repeats = REPEATS
    began = time.perf_counter()
    score(pipeline, X[:num_rows], y[:num_rows])
    now = time.perf_counter()
    each_once = X.shape[1] * max(now - began, 1e-9)
    if deadline - now < REPEATS * each_once:
        repeats = max(int((deadline - now) / each_once), FEWEST_REPEATS)
        share = min((deadline - now) / (repeats * each_once), 1.0)
        num_rows = int(share * num_rows)
        if num_rows < min(FEWEST_ROWS, len(X)):
            return None
    rows = np.sort(np.random.default_rng(0).permutation(len(X))[:num_rows])
    # Computed in this process, because new processes of joblib would first load
    # TensorFlow, and the computation takes only seconds.
    options: Any = {"n_repeats": repeats, "random_state": 0, "n_jobs": 1}
    permuted = permutation_importance(
        pipeline, X.iloc[rows], y.iloc[rows], scoring=score, **options
    )
    errors = permuted.importances_std / np.sqrt(repeats)
    columns = {"mean": permuted.importances_mean, "error": errors}
    return pd.DataFrame(columns, index=list(X.columns)).sort_values(
        "mean", ascending=False
    )


def errors_given_others(
    pipeline: Pipeline, X: pd.DataFrame, Y: pd.DataFrame
) -> dict[str, tuple[float, float]]:
    """Compute the root mean squared errors of :attr:`Details.given_others`."""
    inputs = pipeline[:-1].transform(X)
    targets = Y.to_numpy()
    alone = pipeline[-1].predict(inputs)
    informed = predictions_given_others(pipeline[-1], inputs, targets)["mean"]
    sizes = [
        np.sqrt(np.nanmean((targets - mean) ** 2, axis=0)) for mean in (alone, informed)
    ]
    return {
        str(n): (float(a), float(b)) for n, a, b in zip(Y.columns, *sizes, strict=True)
    }
