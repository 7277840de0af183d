"""Which power, and which of the tied methods: Figure 1, figure D.8, and the scores behind them."""

from typing import Any

import pandas as pd
from intervals import RUN, label, mean_ranks, side_by_side

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
    return rows.set_index(RUN).loc[runs.index[runs == rows["method"].nunique()]].reset_index()


def _among_powers(rows: pd.DataFrame, method: str, metric: str) -> pd.DataFrame:
    """The mean rank of each power of a method, over runs that all its powers have ended."""
    wide = side_by_side(rows[rows["method"] == method], metric)
    return mean_ranks(wide) if wide.shape[1] > 1 and len(wide) else pd.DataFrame()


def powers(rows: pd.DataFrame) -> str:
    """Mean scores, a column for each power; then mean ranks among powers and among methods."""
    tried = _tried(rows)
    alphas = sorted(tried["alpha"].unique())
    head = "".join(f"{f'alpha {alpha:g}':>18}" for alpha in alphas)
    lines = []
    for metric, title in METRICS.items():
        lines.append(f"{title + ', mean ± s.e.':25}" + head)
        for (M, data), part in tried.groupby(["M", "data"]):
            for method in METHODS:
                own = part[part["method"] == method].groupby("alpha")[metric]
                cells = [
                    f"{own.mean()[alpha]:.3f} ± {own.sem()[alpha]:.3f}"
                    if alpha in own.groups
                    else "-"
                    for alpha in alphas
                ]
                place = f"{M:3}% {data:11}{method:9}"
                lines.append(place + "".join(f"{cell:>18}" for cell in cells))
        lines += [f"{title}, mean rank of a method's powers, 1 is best [95% interval]"]
        for method in METHODS:
            for name, (value, low, high) in _among_powers(tried, method, metric).iterrows():
                lines.append(f"     {name:20}{value:6.2f} [{low:.2f}, {high:.2f}]")
        lines += [f"{title}, mean rank among methods at one power"]
        for alpha in alphas:
            wide = side_by_side(tried[tried["alpha"] == alpha], metric)
            for name, (value, low, high) in mean_ranks(wide).iterrows():
                lines.append(
                    f"     {name:20}{value:6.2f} [{low:.2f}, {high:.2f}]{len(wide):5} runs"
                )
        lines.append("")
    return "\n".join(lines).rstrip()


def draw_powers(rows: pd.DataFrame) -> Any:
    """Figures 1 and D.8: mean ranks of each method's powers; and the scores themselves."""
    tried = _tried(rows)
    drawn = figure(9.0, 6.4)
    for line, (metric, title) in zip(drawn.subplots(2, 2, sharex=True), METRICS.items()):
        for method in METHODS:
            ranks = _among_powers(tried, method, metric)
            if not len(ranks):
                continue
            alphas = [float(name.split()[1]) for name in ranks.index]
            errors = [ranks["value"] - ranks["low"], ranks["high"] - ranks["value"]]
            line[0].errorbar(
                alphas, ranks["value"], yerr=errors, color=COLOURS[method], capsize=3, label=method
            )
            wide = side_by_side(tried[tried["method"] == method], metric)
            means = wide.groupby(level="data").mean().mean()
            line[1].plot(
                alphas, means[[label(method, alpha) for alpha in alphas]], ".-",
                color=COLOURS[method],
            )  # fmt: skip
        line[0].set(ylabel=f"mean rank in {title}")
        line[1].set(ylabel=f"{title}, mean over data sets")
        for axes in line:
            axes.set(xlabel="alpha")
            tidy(axes)
    drawn.axes[0].legend(frameon=False)
    return drawn
