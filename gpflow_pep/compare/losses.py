"""The metrics of held-out rows, and the value of each row whose mean is a metric.
Without TensorFlow and scikit-learn, which ``gpflow-pep score`` does not load.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

from ..tables.numbers import LIMIT

AnyNDArray: TypeAlias = npt.NDArray[Any]


def in_full(value: float, form: str) -> str:
    """Print a number without a power of ten if possible: 140 instead of 1.4e+02."""
    text = format(value, form)
    return f"{float(text):.15g}" if "e+" in text else text


class Metric(NamedTuple):
    """A score of held-out rows: its name in tables and figures, and its format."""

    name: str
    heading: str
    form: str
    label: str
    nominal: float | None = None  #: The value that it should have, if that is known.
    higher_is_better: bool = False
    lowest: float = -np.inf  #: The smallest possible value.
    highest: float = np.inf  #: The largest possible value.

    def loss(self, value: Any) -> Any:
        """Return the score, with the opposite sign if higher is better, so that lower
        is better.
        """
        return -value if self.higher_is_better else value


def with_error(metric: Metric, value: float, error: float) -> str:
    """Write a score, and its standard error if that is known."""
    text = in_full(value, metric.form)
    if np.isnan(error):
        return text
    return f"{text} ± {in_full(error, metric.form.replace('.4g', '.2g'))}"


METRICS = {
    "numbers": (
        Metric(
            "nlpd", "NLPD", ".3f", "mean negative log density of the targets, in nats"
        ),
        Metric("rmse", "RMSE", ".4g", "root mean squared error", lowest=0.0),
        Metric("mae", "MAE", ".4g", "mean absolute error", lowest=0.0),
        Metric(
            "coverage",
            "90% coverage",
            ".1%",
            "coverage of the 90% interval",
            nominal=0.9,
            lowest=0.0,
            highest=1.0,
        ),
    ),
    "classes": (
        Metric(
            "nlpd",
            "NLPD",
            ".3f",
            "mean negative log probability of the classes, in nats",
        ),
        Metric(
            "error",
            "error",
            ".2%",
            "fraction of wrong predictions",
            lowest=0.0,
            highest=1.0,
        ),
        Metric(
            "auc",
            "AUC",
            ".3f",
            "area under the ROC curve",
            higher_is_better=True,
            lowest=0.0,
            highest=1.0,
        ),
        Metric(
            "ece",
            "ECE",
            ".3f",
            "expected calibration error",
            lowest=0.0,
            highest=1.0,
        ),
    ),
}
#: An additional error for forecasts of positive numbers.
RELATIVE = Metric(
    "mape", "MAPE", ".1%", "mean absolute error as a percentage of the target"
)


def in_units_of_spread(table: pd.DataFrame) -> pd.DataFrame:
    """Divide predictions of several targets by the standard deviation of each target.
    Densities are not changed.
    """
    spread = table.groupby("target")["true"].transform("std", ddof=0).replace(0.0, 1.0)
    columns = [
        name for name in ("true", "mean", "lower_90", "upper_90") if name in table
    ]
    return table.assign(**{name: table[name] / spread for name in columns})


def by_target(table: pd.DataFrame, names: Sequence[str]) -> dict[str, pd.DataFrame]:
    """Split held-out rows by target. Rows of a single target have no column of its
    name.

    :param names: The names of the targets.
    """
    if len(names) == 1:
        return {names[0]: table}
    rows = {name: table[table["target"] == name] for name in names}
    return {name: part.drop(columns="target") for name, part in rows.items()}


def without_limits(table: pd.DataFrame) -> pd.DataFrame:
    """Leave out rows for which only a limit of the target is known."""
    return table[table[LIMIT] == 0.0] if LIMIT in table else table


def inside(table: pd.DataFrame) -> "pd.Series[bool]":
    """Whether the target of each row, if it is known, is in its 90% interval."""
    table = without_limits(table)
    return (table["lower_90"] <= table["true"]) & (table["true"] <= table["upper_90"])


class Difference(NamedTuple):
    """The loss of a model minus the loss of another model, on the same held-out
    rows.
    """

    mean: float
    error: float  #: The standard error of the mean; NaN if it is not known.
    #: The difference is clear if it is larger than this number of standard errors.
    limit: float

    @property
    def clear(self) -> bool:
        return abs(self.mean) > self.limit * self.error


def row_losses(metric: Metric, table: pd.DataFrame) -> AnyNDArray | None:
    """Return a value for each row, so that the mean of the values is the metric, or its
    square for the RMSE; None if there are no such values.
    """
    if metric.name == "nlpd":
        return -table["log_density"].to_numpy()
    if metric.name in ("rmse", "mae", "mape"):
        table = without_limits(table)
        table = in_units_of_spread(table) if "target" in table else table
        size: AnyNDArray = np.abs(table["true"].to_numpy() - table["mean"].to_numpy())
        if metric.name == "mape":
            true = table["true"].to_numpy()
            # A relative error has no meaning if a target is not positive.
            return size / np.where(np.all(true > 0.0), true, np.nan)
        return size**2 if metric.name == "rmse" else size
    if metric.name == "error":
        wrong = table["predicted"].astype(str) != table["true"].astype(str)
        return wrong.to_numpy(dtype=np.float64)
    if metric.name == "coverage":
        return inside(table).to_numpy(dtype=np.float64)
    return None


def mean_of(metric: Metric, losses: Any) -> float:
    """Compute a metric from its values of rows, see :func:`row_losses`; NaN if there
    are no rows.
    """
    if not len(losses):
        return np.nan
    mean = float(np.mean(losses))
    return float(np.sqrt(mean)) if metric.name == "rmse" else mean
