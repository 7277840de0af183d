"""The scores of all fits as one table: which model is best, and what is within noise of it."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from .candidates import TRIVIAL
from .run import Comparison
from .scores import (
    METRICS,
    Difference,
    difference_over_parts,
    difference_over_rows,
    mean_and_error,
    scores,
)
from .trials import Fit

#: What a model that is too sure of itself is good for, and what not.
USES = {"numbers": ("means", "intervals"), "classes": ("classes", "probabilities")}
#: A model whose decisive score is not lower than the baseline's by so many nats learnt nothing.
LEAST_GAIN = 0.02
#: Unless its error is smaller than the baseline's by this fraction.
LEAST_SMALLER = 0.1
BEST, WITHIN, UNSTABLE = "best", "within noise", "unstable"
#: A model is unstable where one part's score is so many nats worse than the median of the others,
#: and so many times as far from it as they are from each other.
FAR, TIMES = 1.0, 5.0


def difference(comparison: Comparison, name: str, other: str) -> Difference:
    """Compare the decisive score of two models on the same held-out rows."""
    decisive = comparison.metrics[0]
    if len(comparison.fits_of(name)) == 1:
        return difference_over_rows(decisive, comparison.held_out[name], comparison.held_out[other])
    losses, others = (
        np.array([decisive.loss(fit.scores[decisive.name]) for fit in comparison.fits_of(model)])
        for model in (name, other)
    )
    num_rows = len(comparison.data.X)
    table = comparison.held_out[name]
    rows = pd.MultiIndex.from_arrays([table["part"], table.index])  # of several targets repeated
    held_out = rows.nunique() / len(losses)
    return difference_over_parts(losses, others, held_out / (num_rows - held_out))


def summarise(comparison: Comparison) -> pd.DataFrame:
    """
    Sum a comparison up: a row for each model, by its name.

    Columns are "alpha" (NaN for the mixture and baselines); for each metric its mean over parts
    and, as "_se", the standard error of that mean (NaN for a single part); "difference",
    "difference_se" of the decisive metric to the best; "verdict": "best", "within noise" of it,
    "unstable" where one part is far worse than the others, or nothing; the mean "seconds" and
    "iterations" of a fit; and how many fits "converged" and "failed". Of several targets metrics
    are the mean over these, of errors divided by the standard deviation of each target; and there
    are columns for each, as "rmse(name)", in its own units.

    :param comparison: What :func:`~gpflow_pep.compare.run.compare` returned.
    """
    rows = {}
    for name, alpha in comparison.candidates.items():
        fits = comparison.fits_of(name)
        failed = comparison.num_failed(name)
        row: dict[str, object] = {"alpha": alpha}
        for metric in comparison.metrics:
            mean, error = mean_and_error([fit.scores[metric.name] for fit in fits])
            row |= {metric.name: np.nan if failed else mean, f"{metric.name}_se": error}
        row |= {"difference": np.nan, "difference_se": np.nan, "verdict": ""}
        if comparison.best is not None and not failed:
            mean, error, _ = to_best = difference(comparison, name, comparison.best)
            row |= {"difference": mean, "difference_se": error}
            row["verdict"] = "" if to_best.clear else WITHIN
            if unstable_part(fits) is not None:
                row["verdict"] = UNSTABLE
        if name == comparison.best:
            row["verdict"] = BEST
        row |= {
            "seconds": np.mean([fit.seconds for fit in fits]),
            "iterations": np.mean([fit.iterations for fit in fits]),
            "fits": len(fits),
            "converged": sum(fit.converged for fit in fits),
            "failed": failed,
        }
        if len(comparison.data.targets) > 1:
            row |= _scores_by_target(comparison, name)
        rows[name] = row
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("model")


def _scores_by_target(comparison: Comparison, name: str) -> dict[str, float]:
    """Compute the metrics of each of several targets, on average over parts."""
    failed, values = comparison.num_failed(name), {}
    for target in (str(column.name) for column in comparison.data.targets):
        parts: list[dict[str, float]] = []
        if not failed:
            table = comparison.held_out[name]
            of_target = table[table["target"] == target].drop(columns="target")
            parts = [scores(part) for _, part in of_target.groupby("part")]
        for metric in comparison.metrics:
            known = [part[metric.name] for part in parts]
            values[f"{metric.name}({target})"] = float(np.mean(known)) if known else np.nan
    return values


def unstable_part(fits: Sequence[Fit]) -> Fit | None:
    """Find the fit of the one part that is far worse than the others, if there is one."""
    *others, worst = sorted(fits, key=lambda fit: fit.scores["nlpd"])
    if len(others) < 2:
        return None
    values = [fit.scores["nlpd"] for fit in others]
    spread = max(values) - min(values)
    return worst if worst.scores["nlpd"] - np.median(values) > max(FAR, TIMES * spread) else None


def gain_over_trivial(comparison: Comparison, name: str) -> tuple[float, float, str]:
    """
    Compare a model with the mean, or the frequencies of the classes.

    :return: By how much its NLPD is lower; by which fraction its error is smaller; and how that
        error is called.
    """
    error = METRICS[comparison.data.kind][1]
    trivial = TRIVIAL[comparison.data.kind]
    pair = comparison.fits_of(name), comparison.fits_of(trivial)
    # Where one part is far off, the mean depends on that part alone.
    average = np.median if any(map(unstable_part, pair)) else np.mean
    (nlpd, size), (trivial_nlpd, trivial_size) = (
        [average([fit.scores[metric] for fit in fits]) for metric in ("nlpd", error.name)]
        for fits in pair
    )
    smaller = 1.0 - size / trivial_size if trivial_size else 0.0
    return float(trivial_nlpd - nlpd), float(smaller), error.heading
