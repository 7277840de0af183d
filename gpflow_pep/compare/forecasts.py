"""Pictures of the latest window of a comparison over time: truth, median and bands."""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from .. import plotting
from ..plotting import canvas
from .findings import latest_rows
from .folder import MOST_SERIES
from .losses import without_limits
from .run import Comparison
from .series import series_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: A picture begins this number of times before the window, and at least twice the
#: length of the window.
FEWEST_BEFORE = 12
LENGTHS_BEFORE = 2
#: The largest number of dates below a picture for each inch of the axis. With 3.3 the
#: labels of months and years touch.
TICKS_PER_INCH = 2.1
#: How dark each band is, by the percentage that it contains.
SHADES = {90: 0.16, 50: 0.32}


class Forecast(NamedTuple):
    """The latest window of one series."""

    name: str
    before: "pd.Series[float]"  #: Targets before the window, by time.
    #: Columns "true", "median", and the ends of both intervals, by time.
    window: pd.DataFrame


def latest_forecasts(comparison: Comparison) -> list[Forecast]:
    """Return the latest window of the largest series, the same number for each target.
    These are the series with the most rows in the window, and among equal ones the
    largest targets. Rows of the same time and series are averaged.

    :param comparison: A comparison of numbers with a time column and a saved model.
    """
    data = comparison.data
    rows = without_limits(latest_rows(comparison))
    series = series_of(data)
    if series is None:
        series = pd.Series("", index=data.X.index)
    labels = {"time": data.blocks.loc[rows.index], "series": series.loc[rows.index]}
    if "target" not in rows:
        labels["target"] = data.targets[0].name
    groups = rows.assign(**labels).groupby(["target", "series"], sort=False)
    sizes = groups["true"].agg(["size", "sum"]).sort_values(["size", "sum"])[::-1]
    ranks = sizes.groupby("target", sort=False).cumcount()
    largest = ranks.sort_values(kind="stable").index[:MOST_SERIES]
    targets = {y.name: y for y in data.targets}
    forecasts = []
    for target, label in largest:
        group = groups.get_group((target, label))
        window = group.drop(columns=["target", "series"]).groupby("time").mean()
        own = targets[target][(series == label).loc[targets[target].index]].dropna()
        times = data.blocks.loc[own.index]
        past = own.groupby(times).mean()
        before = past[past.index < window.index[0]]
        shown = max(FEWEST_BEFORE, LENGTHS_BEFORE * len(window))
        name = f"{target}, {label}" if label else str(target)
        forecasts.append(Forecast(name, before[-shown:], window))
    return forecasts


def draw_forecast(forecast: Forecast, axes: "Axes") -> None:
    """Draw one series over time."""
    window = forecast.window
    before = forecast.before
    times = window.index.to_numpy()
    style: dict[str, Any] = {"color": plotting.TRAIN, "linewidth": 1.0}
    axes.plot(before.index.to_numpy(), before, ".-", label="before", **style)
    for percentage, shade in SHADES.items():
        ends = window[f"lower_{percentage}"], window[f"upper_{percentage}"]
        style = {"color": plotting.FIT, "alpha": shade, "label": f"{percentage}%"}
        if len(times) > 1:
            axes.fill_between(times, *ends, linewidth=0, **style)
        else:  # a band at a single time would have no width
            axes.vlines(times, *ends, linewidth=8, **style)
    axes.plot(times, window["median"], ".-", color=plotting.FIT, label="median")
    axes.plot(times, window["true"], "o", color=canvas.INK, markersize=3, label="truth")
    axes.set(ylabel=forecast.name)
    if np.issubdtype(times.dtype, np.datetime64):
        from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

        most = int(TICKS_PER_INCH * axes.bbox.width / axes.figure.dpi)
        locator = AutoDateLocator(minticks=2, maxticks=most)
        axes.xaxis.set_major_locator(locator)
        axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))
    canvas.legend_on_top(axes, columns=5)
