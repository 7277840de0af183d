"""Which power, and which of the tied methods: Figure 1, figure D.8, and the scores
behind them.
"""

from typing import Any

import pandas as pd

from examples.papers.summaries import (
    RUN,
    label,
    mean_and_error,
    mean_ranks,
    side_by_side,
)
from gpflow_pep.plotting import figure, tidy

COLOURS = {
    "SVGP": "black",
    "PEP": "#1f5a99",
    "APEP": "#3a8f4d",
    "ARPEP": "#c8442e",
    "RPAPEP": "#8a8a8a",
}
METHODS = ("PEP", "APEP", "ARPEP", "RPAPEP")
METRICS = {"nlpd": "NLPD", "error_rate": "error"}


def _tried(rows: pd.DataFrame) -> pd.DataFrame:
    """The runs that every method has ended, and their powers; PEP may have fewer."""
    rows = rows[rows["method"].isin(METHODS)]
    runs = rows.groupby(RUN)["method"].nunique()
    return (
        rows.set_index(RUN)
        .loc[runs.index[runs == rows["method"].nunique()]]
        .reset_index()
    )


def powers(rows: pd.DataFrame) -> str:
    """Mean scores, a column for each power; then mean ranks among powers and among
    methods.
    """
    tried = _tried(rows)
    return "\n\n".join(
        "\n".join([*_scores(tried, metric), *_ranks(tried, metric)])
        for metric in METRICS
    )


def _scores(tried: pd.DataFrame, metric: str) -> list[str]:
    alphas = sorted(tried["alpha"].unique())
    head = "".join(f"{f'alpha {alpha:g}':>18}" for alpha in alphas)
    lines = [f"{METRICS[metric] + ', mean ± s.e.':25}" + head]
    for (M, data), part in tried.groupby(["M", "data"]):
        for method in METHODS:
            own = part[part["method"] == method]
            cells = [
                mean_and_error(own.loc[own["alpha"] == alpha, metric])
                for alpha in alphas
            ]
            lines.append(
                f"{M:3}% {data:11}{method:9}" + "".join(f"{cell:>18}" for cell in cells)
            )
    return lines


def _ranks(tried: pd.DataFrame, metric: str) -> list[str]:
    groups = {
        method: _wide(tried[tried["method"] == method], metric) for method in METHODS
    }
    lines = [
        f"{METRICS[metric]}, mean rank among a method's powers, 1 is best [95%"
        " interval]"
    ]
    lines += [line for wide in groups.values() for line in _lines(wide)]
    lines.append(f"{METRICS[metric]}, mean rank among methods at the same power")
    for _, part in tried.groupby("alpha"):
        lines += _lines(_wide(part, metric))
    return lines


def _wide(rows: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Runs that all have ended; nothing where there is one column."""
    wide = side_by_side(rows, metric)
    return wide if wide.shape[1] > 1 else pd.DataFrame()


def _lines(wide: pd.DataFrame) -> list[str]:
    if not len(wide):
        return []
    return [
        f"     {name:11}{value:6.2f} [{low:.2f}, {high:.2f}]{len(wide):5} runs"
        for name, (value, low, high) in mean_ranks(wide).iterrows()
    ]


def draw_powers(rows: pd.DataFrame) -> Any:
    """Figures 1 and D.8: mean ranks of each method's powers; and the scores themselves."""
    tried = _tried(rows)
    drawn = figure(9.0, 6.4)
    for line, (metric, title) in zip(
        drawn.subplots(2, 2, sharex=True), METRICS.items()
    ):
        for method in METHODS:
            wide = _wide(tried[tried["method"] == method], metric)
            if not len(wide):
                continue
            ranks = mean_ranks(wide)
            alphas = [float(name.split()[1]) for name in ranks.index]
            errors = [ranks["value"] - ranks["low"], ranks["high"] - ranks["value"]]
            line[0].errorbar(
                alphas, ranks["value"], yerr=errors, color=COLOURS[method], capsize=3
            )
            means = wide.groupby(level="data").mean().mean()
            line[1].plot(
                alphas,
                means[[label(method, alpha) for alpha in alphas]],
                ".-",
                color=COLOURS[method],
                label=method,
            )
        line[0].set(ylabel=f"mean rank in {title}")
        line[1].set(ylabel=f"{title}, mean over data sets")
        for axes in line:
            axes.set(xlabel="alpha")
            tidy(axes)
    drawn.axes[1].legend(frameon=False)
    return drawn
