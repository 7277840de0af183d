"""Predictions of held-out rows, their scores, and comparisons of two models."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from gpflow.base import AnyNDArray
from scipy import stats
from sklearn.metrics import precision_recall_fscore_support, roc_auc_score
from sklearn.pipeline import Pipeline

from ..estimators.classifier import log_of_labels
from ..metrics import calibration
from ..tables.cleaning import Cleaned
from ..tables.numbers import LIMIT
from .losses import (
    METRICS,
    RELATIVE,
    Difference,
    Metric,
    in_units_of_spread,
    mean_of,
    row_losses,
)
from .predicting import QUANTILES, predictions
from .settings import Settings

#: A difference is called clear if chance alone gives a difference of this size with at
#: most this probability.
SIGNIFICANCE = 0.05


def metrics_for(data: Cleaned, settings: Settings) -> tuple[Metric, ...]:
    """Return the metrics of a comparison, for numbers or for classes. For forecasts of
    positive numbers the relative error follows the absolute one. The decisive metric is
    the first.
    """
    metrics = list(METRICS[data.kind])
    is_forecast = data.kind == "numbers" and settings.time_column is not None
    if is_forecast and all((y.dropna() > 0.0).all() for y in data.targets):
        metrics.insert(3, RELATIVE)
    chosen = settings.metric or metrics[0].name
    return tuple(sorted(metrics, key=lambda metric: metric.name != chosen))


def held_out(
    pipeline: Pipeline,
    X: pd.DataFrame,
    y: Any,
    classes: bool,
    quantiles: Mapping[str, float] = QUANTILES,
) -> pd.DataFrame:
    """Predict rows whose target is known. The columns are "true", those of
    :func:`predictions`, and "log_density". A single number with Gaussian noise has the
    column "pit", the predicted probability of a smaller value. With several targets
    there is a row for each known target, with its name in the column "target".

    :param quantiles: The quantiles of a number, by the name of their column.
    """
    estimator = pipeline[-1]
    inputs = pipeline[:-1].transform(X)
    targets = y.to_numpy()
    columns = predictions(estimator, inputs, classes, quantiles)
    if classes:
        names = estimator.classes_
        probability = np.stack([columns[f"p({name})"] for name in names], axis=1)
        densities = log_of_labels(probability, names, targets)
    else:
        densities = estimator.log_densities(inputs, targets)
        if LIMIT in getattr(y, "columns", ()):
            columns = {LIMIT: targets[:, 1], **columns}
            targets = targets[:, 0]
        elif targets.ndim == 1 and hasattr(estimator, "predictive"):
            predictive = estimator.predictive(inputs)
            if predictive.noise == "Gaussian":
                columns["pit"] = stats.norm.cdf(predictive.normal_scores(targets))
        if targets.ndim == 2:
            there = ~np.isnan(targets)
            rows, places = np.nonzero(there)
            values = {"true": targets, **columns, "log_density": densities}
            return pd.DataFrame(
                {
                    "target": y.columns[places],
                    **{name: v[there] for name, v in values.items()},
                },
                index=X.index[rows],
            )
    return pd.DataFrame(
        {"true": targets, **columns, "log_density": densities}, index=X.index
    )


def scores(table: pd.DataFrame) -> dict[str, float]:
    """
    Compute the metrics of held-out rows. With several targets they are means over the
    targets, with errors divided by the standard deviation of each target.
    """
    if "target" in table:
        scaled = in_units_of_spread(table).groupby("target", sort=False)
        of_targets = [scores(part.drop(columns="target")) for _, part in scaled]
        return {
            name: float(np.mean([part[name] for part in of_targets]))
            for name in of_targets[0]
        }
    values = {}
    if "mean" in table:
        metrics = [*METRICS["numbers"], RELATIVE]
    else:
        metrics = [*METRICS["classes"]]
        labels, probability = class_indices(table)
        values["auc"] = _area_under_curve(labels, probability)
        values["ece"] = calibration(labels, probability).error
    for metric in metrics:
        losses = row_losses(metric, table)
        if losses is not None:
            values[metric.name] = mean_of(metric, losses)
    return values


def class_indices(table: pd.DataFrame) -> tuple[AnyNDArray, AnyNDArray]:
    """Return the number of each row's class, [N], and the probability of each class,
    [N, C].
    """
    columns = [name for name in table if name.startswith("p(")]
    places = {name[2:-1]: place for place, name in enumerate(columns)}
    labels = table["true"].astype(str).map(places).to_numpy()
    return labels, table[columns].to_numpy()


def _area_under_curve(labels: AnyNDArray, probability: AnyNDArray) -> float:
    """
    Compute the area under the ROC curve of the second of two classes. With more
    classes, the result is the mean over classes that occur, each against all others.
    NaN if all rows have the same class.

    :param labels: The number of each row's class, [N].
    :param probability: The probability of each class, [N, C].
    """
    if not np.isfinite(probability).all():
        return np.nan
    classes = [1] if probability.shape[1] == 2 else range(probability.shape[1])
    there = [c for c in classes if 0 < np.sum(labels == c) < len(labels)]
    areas = [roc_auc_score(labels == c, probability[:, c]) for c in there]
    return float(np.mean(areas)) if areas else np.nan


def class_report(table: pd.DataFrame) -> pd.DataFrame:
    """Compute recall and precision of each class on held-out rows.

    Columns are "rows", "recall" (the fraction of these rows that are predicted to be of
    the class) and "precision" (the fraction of the predictions of the class that are
    right), by class.
    """
    true, predicted = (table[name].astype(str) for name in ("true", "predicted"))
    names = pd.Index(sorted({*true, *predicted}), name="class")
    precision, recall, _, rows = precision_recall_fscore_support(
        true, predicted, labels=names, zero_division=np.nan
    )
    return pd.DataFrame(
        {"rows": rows, "recall": recall, "precision": precision}, index=names
    )


def difference_over_parts(
    losses: AnyNDArray, other_losses: AnyNDArray, ratio: float
) -> Difference:
    r"""Compare the losses of two models on the same parts, two or more.

    Training sets of folds or splits overlap, so differences between parts are not
    independent: the standard error of their mean is
    :math:`\sqrt{1 / J + n_\text{test} / n_\text{train}}` of their standard deviation
    instead of :math:`\sqrt{1 / J}` (Nadeau and Bengio, *Inference for the
    generalization error*, Machine Learning 52, 2003), and Student's t with J − 1
    degrees of freedom decides what is clear.

    :param losses: The losses of the model, [J].
    :param others: The losses of the other model, [J].
    :param ratio: The number of held-out rows divided by the number of training rows.
    """
    gaps = losses - other_losses
    count = len(losses)
    error = np.sqrt(1.0 + count * ratio) * stats.sem(gaps)
    limit = stats.t.ppf(1.0 - SIGNIFICANCE / 2.0, count - 1)
    return Difference(float(np.mean(gaps)), float(error), float(limit))


def difference_over_rows(
    metric: Metric, table: pd.DataFrame, other: pd.DataFrame
) -> Difference:
    """Compare two models on the rows of one part. This ignores the variation between
    training sets.

    The standard error is the standard error of the mean over rows. A difference of root
    mean squared errors is the mean difference of squared errors divided by the sum of
    both. The error of an area under the ROC curve is not known, because it is not a
    mean over rows.
    """
    losses, other_losses = (row_losses(metric, part) for part in (table, other))
    if losses is None or other_losses is None:
        mean = metric.loss(scores(table)[metric.name]) - metric.loss(
            scores(other)[metric.name]
        )
        return Difference(mean, np.nan, np.inf)
    gaps = losses - other_losses
    if metric.name == "rmse":
        total = np.sqrt(np.mean(losses)) + np.sqrt(np.mean(other_losses))
        gaps = gaps / total if total > 0.0 else gaps
    error = stats.sem(gaps)
    limit = stats.norm.ppf(1.0 - SIGNIFICANCE / 2.0)
    return Difference(float(np.mean(gaps)), float(error), float(limit))
