"""What held-out predictions are good for, in plain words."""

from collections.abc import Iterator

import numpy as np
import pandas as pd
from gpflow.base import AnyNDArray
from scipy.stats import binomtest
from sklearn.metrics import mean_absolute_error, precision_recall_fscore_support, r2_score

from .run import Comparison
from .scores import area_under_curve, class_indices, inside, without_limits
from .settings import has_gaussian_noise, is_counts
from .summary import LEAST_GAIN, LEAST_SMALLER, USES, gain_over_trivial

#: Intervals are said to be wrong where so many rows more or fewer than 90% are inside, and the
#: chance of that would be below LEAST_CHANCE if they were right.
COVERAGE_OFF, LEAST_CHANCE = 0.03, 0.01
#: A class is said to be missed where it has at least so many held-out rows, and half of them get
#: another one.
FEWEST_OF_CLASS = 5


def headline(comparison: Comparison) -> str:
    """Say how good the best model's predictions of held-out rows are; empty if all failed."""
    if comparison.best is None:
        return ""
    table = comparison.held_out[comparison.best]
    classes = comparison.data.kind == "classes"
    words = _of_classes(table) if classes else _of_numbers(comparison)
    return f"On rows that were held out, {comparison.best} {words} {usable_for(comparison)}"


def usable_for(comparison: Comparison) -> str:
    """Say what the best model's predictions can be used for, and what not."""
    if comparison.best is None:
        return ""
    gain, smaller, _ = gain_over_trivial(comparison, comparison.best)
    if gain < LEAST_GAIN and smaller < LEAST_SMALLER:
        return "Do not use it: it predicts no better than a constant."
    if gain < LEAST_GAIN:
        useful, useless = USES[comparison.data.kind]
        return f"Use its {useful}, but not its {useless}: those of a constant have a better NLPD."
    if comparison.data.kind == "classes":
        names = ", ".join(map(repr, missed_classes(comparison).index))
        if not names:
            return "Use its classes and its probabilities."
        return f"Use its probabilities, to rank rows; do not rely on it to name {names}."
    true, predicted, average = _levels(comparison)
    if len(comparison.data.targets) > 1:
        shares = explained_by_target(comparison.held_out[comparison.best])
        unknown = [name for name, share in shares.items() if share <= 0.0]
        if unknown:
            names = ", ".join(map(repr, unknown))
            return f"Its means of {names} are no better than a constant."
    elif _explained(true, predicted) <= 0.0:
        return f"Its {average}s are no better than a constant: look at the rows it predicts worst."
    wrong = width_of_intervals(comparison)
    if wrong:
        return f"Use its {average}s; its intervals are {wrong}."
    return f"Use its {average}s and its intervals."


def _levels(comparison: Comparison) -> tuple[AnyNDArray, AnyNDArray, str]:
    """Give targets and their predictions, [N] each, on the scale of the model; and what those are.

    The mean of targets that spread over decades depends on the largest few alone. For these the
    logarithms of the targets are compared with those of the medians.
    """
    table = without_limits(comparison.held_out[str(comparison.best)])
    if comparison.settings.likelihood == "log_normal":
        return np.log(table["true"].to_numpy()), np.log(table["median"].to_numpy()), "median"
    return table["true"].to_numpy(), table["mean"].to_numpy(), "mean"


def _explained(true: AnyNDArray, predicted: AnyNDArray) -> float:
    """Compute the fraction of the variance of targets that predictions explain."""
    return float(r2_score(true, predicted)) if len(true) > 1 else np.nan


def explained_by_target(table: pd.DataFrame) -> dict[str, float]:
    """Compute the fraction of the variance of each of several targets that predictions explain."""
    return {
        str(name): _explained(part["true"].to_numpy(), part["mean"].to_numpy())
        for name, part in table.groupby("target", sort=False)
    }


def _of_targets(table: pd.DataFrame) -> str:
    shares = [f"{max(s, 0.0):.0%} of that of '{n}'" for n, s in explained_by_target(table).items()]
    shares[0] = shares[0].replace("that", "the variance", 1)
    return (
        f"explains {', '.join(shares)}; its 90% intervals hold {inside(table).mean():.0%} of the"
        " targets."
    )


def _of_numbers(comparison: Comparison) -> str:
    if len(comparison.data.targets) > 1:
        return _of_targets(comparison.held_out[str(comparison.best)])
    true, predicted, average = _levels(comparison)
    share = _explained(true, predicted)
    explained = f"explains {share:.0%}" if share > 0.0 else "explains nothing"
    error = mean_absolute_error(true, predicted)
    share_inside = inside(comparison.held_out[str(comparison.best)]).mean()
    target, words = "the target", f"its mean absolute error is {error:.3g}"
    if average == "median":
        target = "the target's logarithm"
        words = f"its medians are off by a factor of {np.exp(error):.3g} on average"
    return (
        f"{explained} of the variance of {target}; {words}, and its 90% intervals hold"
        f" {share_inside:.0%} of the targets."
    )


def _of_classes(table: pd.DataFrame) -> str:
    labels, probability = class_indices(table)
    right = (table["predicted"] == table["true"]).mean()
    frequent = table["true"].value_counts(normalize=True).iloc[0]
    text = f"names the right class of {right:.0%} of the rows; always naming the most frequent one"
    text += f" would be right in {frequent:.0%}."
    area = area_under_curve(labels, probability)
    if probability.shape[1] == 2 and np.isfinite(area):
        text += f" The area under its ROC curve is {area:.2f}."
    return text


def width_of_intervals(comparison: Comparison) -> str:
    """Say that intervals of numbers are too narrow or too wide, by more than chance; or nothing."""
    if is_counts(comparison.settings.likelihood):
        return ""  # of whole numbers no interval holds exactly 90%
    hits = inside(comparison.held_out[str(comparison.best)])
    chance = binomtest(int(hits.sum()), len(hits), 0.9).pvalue
    if abs(hits.mean() - 0.9) <= COVERAGE_OFF or chance >= LEAST_CHANCE:
        return ""
    return "too narrow" if hits.mean() < 0.9 else "too wide"


def missed_classes(comparison: Comparison) -> pd.DataFrame:
    """Give the part of :func:`class_report` with the classes most of whose rows are missed."""
    report = class_report(comparison)
    return report[(report["rows"] >= FEWEST_OF_CLASS) & (report["recall"] < 0.5)]


def class_report(comparison: Comparison) -> pd.DataFrame:
    """
    Count how the best model names the held-out rows of each class.

    Columns are "rows", "recall" (the fraction of these rows that it predicts to be of the class)
    and "precision" (the fraction of its predictions of the class that are right), by class.
    """
    table = comparison.held_out[str(comparison.best)]
    names = sorted(set(table["true"].astype(str)) | set(table["predicted"].astype(str)))
    precision, recall, _, counts = precision_recall_fscore_support(
        table["true"].astype(str),
        table["predicted"].astype(str),
        labels=names,
        zero_division=np.nan,
    )
    columns = {"rows": counts, "recall": recall, "precision": precision}
    return pd.DataFrame(columns, index=pd.Index(names, name="class"))


def worst_rows(comparison: Comparison, most: int = 8) -> pd.DataFrame:
    """Give the held-out rows that the best model gave the lowest densities, the lowest first."""
    table = comparison.held_out[str(comparison.best)]
    return table.drop(columns="part").nsmallest(most, "log_density")


def cautions(comparison: Comparison) -> Iterator[str]:
    """Say what the best model's predictions cannot be relied on for, a sentence each."""
    best = comparison.best
    if best is None:
        return
    if comparison.data.kind == "classes":
        for name, row in missed_classes(comparison).iterrows():
            yield (
                f"{best}: of {row['rows']:.0f} held-out rows of class '{name}' it names"
                f" {row['rows'] * row['recall']:.0f}: do not rely on it to find them; look at their"
                " probabilities."
            )
        return
    wrong = width_of_intervals(comparison)
    if wrong:
        share = inside(comparison.held_out[best]).mean()
        yield (
            f"{best}: its 90% intervals hold {share:.0%} of the held-out targets: they are {wrong}."
            + " predict_interval(calibrate='folds') corrects that."
            * has_gaussian_noise(comparison.settings.likelihood)
        )
