"""Tables and figures of Bui, Yan & Turner's (2017) experiments, of the table of results
alone.
"""

import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from examples.papers.summaries import (
    Interval,
    labelled,
    mean_interval,
    mean_ranks,
    over_sets,
    side_by_side,
    wins,
    write,
)
from gpflow_pep.plotting import figure, tidy

VFE = "PEP 0"
MIDDLE = "PEP 0.5"
EP = "PEP 1"
PAIRS = ((MIDDLE, VFE), (MIDDLE, EP), (EP, VFE))
#: Metrics of the two studies, lower is better.
METRICS = {"regression": ("smse", "smll"), "classification": ("error_rate", "nlpd")}
#: Inducing inputs whose inputs are all less than as many deviations away are among the
#: rows.
AMONG = 2.5
NAMES = {"smse": "SMSE", "smll": "SMLL", "error_rate": "error", "nlpd": "NLPD"}


class Claim(NamedTuple):
    """What the paper says: in how many of a hundred runs a method is better than
    another.
    """

    experiment: str
    metric: str
    better: str
    worse: str
    paper: str


#: Sections 4.2 and 4.3. Of classification the paper gives one number.
CLAIMS = (
    Claim("regression", "smse", MIDDLE, VFE, "67%"),
    Claim("regression", "smse", MIDDLE, EP, "78%"),
    Claim("regression", "smse", VFE, EP, "64%"),
    Claim("regression", "smll", EP, VFE, "93%"),
    Claim("regression", "smll", EP, MIDDLE, "71%"),
    Claim("regression", "smll", MIDDLE, VFE, "93%"),
    Claim("classification", "error_rate", MIDDLE, VFE, "> 50%"),
    Claim("classification", "error_rate", MIDDLE, EP, "> 50%"),
    Claim("classification", "nlpd", MIDDLE, VFE, "even"),
    Claim("classification", "nlpd", MIDDLE, EP, "65%"),
)


def summarise(table: pd.DataFrame, out: Path) -> None:
    """Write what the experiments of the table allow."""
    found = set(table["experiment"])
    parts: dict[str, dict[str, Callable[[pd.DataFrame], Any]]] = {
        "grid": {"txt": the_grid},
        "hurry": {"txt": in_a_hurry},
        "claims": {"txt": claims},
        "sets": {"txt": shares_of_sets},
        "regression": {"txt": recommendations},
        "classification": {"txt": recommendations},
        "synthetic": {"txt": synthetic_table, "png": draw_synthetic},
        "inducing": {"txt": inducing_table, "png": draw_inducing},
        "everywhere": {"txt": everywhere_table, "png": draw_everywhere},
        "mnist": {"txt": scores_table},
        "baselines": {"txt": scores_table},
    }
    for name, ways in parts.items():
        rows = table[table["experiment"] == name] if name in found else table
        if name in found or name in ("grid", "hurry", "claims", "sets"):
            for kind, make in ways.items():
                write(out / f"{name}.{kind}", make, rows)
    for name in found & set(METRICS):
        rows = table[(table["experiment"] == name) & (table["method"] == "PEP")]
        write(out / f"pairs_{name}.png", draw_pairs, rows)
        write(out / f"ranks_{name}.png", draw_ranks, rows)
    print(f"wrote tables and figures to {out}")


def _of(table: pd.DataFrame, experiment: str) -> pd.DataFrame:
    return table[table["experiment"] == experiment]


def _ended(table: pd.DataFrame, experiment: str, metric: str) -> pd.DataFrame:
    """Side by side; without columns where there is nothing."""
    rows = _of(table, experiment)
    return side_by_side(rows, metric) if len(rows) else pd.DataFrame()


def _percent(share: Interval) -> str:
    return f"{share.value:4.0%} [{share.low:.0%}, {share.high:.0%}]"


def the_grid(table: pd.DataFrame) -> str:
    """What the numbers are of."""

    def listed(values: pd.Series) -> str:
        return ", ".join(f"{value:g}" for value in sorted(values.dropna().unique()))

    lines = []
    for name, of_name in table.groupby("experiment"):
        lines.append(
            f"{name}: powers {listed(of_name['alpha'])}; at most"
            f" {listed(of_name['steps'])} steps"
        )
        for data, rows in of_name.groupby("data"):
            cells = len(rows[["split", "M", "method", "alpha"]].drop_duplicates())
            lines.append(
                f"    {data:16}{rows['split'].nunique():3} split(s){cells:6} cells"
                f"    M {listed(rows['M'])}"
            )
    for versions in sorted(table["versions"].unique()):
        lines += textwrap.wrap(versions, 76)
    return "\n".join(lines)


def claims(table: pd.DataFrame) -> str:
    """The paper's counts and ours."""
    lines = [
        f"{'better':>9} "
        f" {'than':9}{'in':6}{'paper':7}{'here, 95%':>17}{'runs':>6}{'ties':>6}  "
        " better mean"
    ]
    experiment = ""
    for claim in CLAIMS:
        wide = _ended(table, claim.experiment, claim.metric)
        if claim.better in wide and claim.worse in wide:
            if claim.experiment != experiment:
                experiment = claim.experiment
                lines.append(experiment)
            found = wins(wide, claim.better, claim.worse)
            _, better, sets = over_sets(wide, claim.better, claim.worse)
            lines.append(
                f"{claim.better:>9} "
                f" {claim.worse:9}{NAMES[claim.metric]:6}{claim.paper:7}{_percent(found.share):>17}{found.total:6}{found.ties:6}"
                f"   {better} of {sets} sets"
            )
    return "\n".join(lines)


def shares_of_sets(table: pd.DataFrame) -> str:
    """In how many of the runs of each data set a claim holds; the mean with Student's
    interval.
    """
    lines = []
    for claim in CLAIMS:
        wide = _ended(table, claim.experiment, claim.metric)
        if claim.better in wide and claim.worse in wide:
            by_set = wide.groupby(level="data")
            shares = {
                name: wins(rows, claim.better, claim.worse).share.value
                for name, rows in by_set
            }
            mean = Interval(*np.clip(mean_interval(list(shares.values())), 0.0, 1.0))
            lines += [
                (
                    f"{claim.better} before {claim.worse} in {NAMES[claim.metric]}:"
                    f" paper {claim.paper}, mean over sets {mean:.0%}"
                ),
                "    "
                + ", ".join(f"{name} {share:.0%}" for name, share in shares.items()),
            ]
    return "\n".join(lines)


def in_a_hurry(table: pd.DataFrame) -> str:
    """Beside what a user of GPflow has today: SGPR, which is power 0, and SVGP."""
    lines = [
        f"{'':26}{'mean rank':>10}{'NLPD less that of today':>27}{'sets better':>13}"
    ]
    for experiment, today, name in (
        ("regression", VFE, "SGPR"),
        ("classification", "SVGP", "SVGP"),
    ):
        wide = _ended(table, experiment, "nlpd")
        if {today, VFE, MIDDLE, EP} <= set(wide):
            wide = wide[list(dict.fromkeys([today, VFE, MIDDLE, EP]))]
            ranks = mean_ranks(wide)["value"]
            lines.append(f"{experiment:15}{name:11}{ranks[today]:10.2f}")
            for ours in wide.columns[1:]:
                change, better, sets = over_sets(wide, ours, today)
                fraction = f"{better} of {sets}"
                lines.append(
                    f"{'':15}{ours:11}{ranks[ours]:10.2f}{f'{change:+.3f}':>27}{fraction:>13}"
                )
    return "\n".join(lines)


def recommendations(rows: pd.DataFrame) -> str:
    """Mean ranks of all methods, and for each data set the power whose mean score is
    best.
    """
    (experiment,) = set(rows["experiment"])
    lines = []
    for metric in METRICS[experiment]:
        wide = side_by_side(rows, metric)
        if not len(wide):
            continue
        ranks = mean_ranks(wide).sort_values("value")
        lines.append(
            f"{NAMES[metric]}, mean rank of {len(wide.columns)} over {len(wide)}"
            " runs, 95%"
        )
        lines += [
            f"  {name:10} {rank['value']:5.2f} [{rank['low']:.2f}, {rank['high']:.2f}]"
            for name, rank in ranks.iterrows()
        ]
        means = wide.groupby(level=["data", "M"]).mean()
        lines.append(f"{NAMES[metric]}, mean over splits; * is the lowest")
        lines.append(f"  {'':18}{'M':>4}" + "".join(f"{name:>10}" for name in means))
        for (data, M), values in means.iterrows():
            marks = ["*" if value == values.min() else " " for value in values]
            cells = "".join(f"{value:9.3f}{mark}" for value, mark in zip(values, marks))
            lines.append(f"  {data:18}{M:4}{cells}")
        lines.append("")
    return "\n".join(lines).rstrip()


def scores_table(rows: pd.DataFrame) -> str:
    """
    Means of all scores over the splits that every method has ended, a line for each
    method, and the standard error of NLPD less that of the best.
    """
    lines = []
    for (data, M), group in rows.groupby(["data", "M"]):
        nlpd = side_by_side(group, "nlpd")
        group = group[group["split"].isin(nlpd.index.get_level_values("split"))]
        shown = [name for name in NAMES if name in group and group[name].notna().any()]
        heads = [*(NAMES[name] for name in shown), "less best", "objective", "seconds"]
        lines.append(f"{data}, M = {M}, {len(nlpd)} split(s)")
        lines.append(
            f"  {'':12}" + "".join(f"{head:>{_width(head)}}" for head in heads)
        )
        means = (
            labelled(group).groupby("label")[[*shown, "objective", "seconds"]].mean()
        )
        # Some methods tie: PEP 0 and SGPR.
        means = means.sort_values("nlpd", kind="stable")
        worse = nlpd.sub(nlpd[means.index[0]], axis=0)
        for name, values in means.iterrows():
            cells = "".join(f"{value:11.3f}" for value in values[shown])
            error = f" ± {worse[name].sem():.3f}" if len(nlpd) > 1 else ""
            less = f"{worse[name].mean():.3f}{error}"
            cost = f"{values['objective']:11.1f}{values['seconds']:11.1f}"
            lines.append(f"  {name:12}{cells}{less:>{_width('less best')}}{cost}")
    return "\n".join(lines)


def _width(head: str) -> int:
    return 18 if head == "less best" else 11


def synthetic_table(rows: pd.DataFrame) -> str:
    """Means over data sets."""
    columns = {
        "smse": "SMSE",
        "smll": "SMLL",
        "objective_error": "log Z - exact",
        "kl": "KL",
    }
    means = (
        rows.groupby(["M", "alpha"], dropna=False)[list(columns)].mean().reset_index()
    )
    lines = [
        f"{rows['data'].iloc[0]}, {rows['split'].nunique()} data sets",
        f"{'M':>5}{'alpha':>7}" + "".join(f"{head:>15}" for head in columns.values()),
    ]
    for values in means.itertuples(index=False):
        numbers = [getattr(values, name) for name in columns]
        cells = "".join(
            f"{'':15}" if np.isnan(number) else f"{number:15.4g}" for number in numbers
        )
        place = f"{'exact':>12}" if values.M == 0 else f"{values.M:5}{values.alpha:7g}"
        lines.append(place + cells)
    return "\n".join(lines)


def draw_synthetic(rows: pd.DataFrame) -> Any:
    """Figure 3, and the two distances from exact inference."""
    drawn = figure(12.0, 3.2)
    panels = drawn.subplots(1, 4)
    titles = (
        "SMSE",
        "SMLL",
        "log Z less the exact evidence",
        "KL from the exact posterior",
    )
    for axes, name, title in zip(
        panels, ("smse", "smll", "objective_error", "kl"), titles
    ):
        for alpha, group in rows.groupby("alpha"):
            means = group.groupby("M")[name].mean()
            axes.plot(means.index, means, ".-", label=f"{alpha:g}")
        exact = rows[rows["M"] == 0][name].mean()
        if not np.isnan(exact):
            axes.axhline(
                exact, color="black", linestyle="--", linewidth=1, label="exact"
            )
        axes.set(title=title, xlabel="M", xscale="log")
        if name in ("objective_error", "kl"):
            axes.set_yscale("symlog" if name == "objective_error" else "log")
        tidy(axes)
    panels[0].legend(title="alpha", frameon=False, fontsize="small")
    return drawn


def draw_pairs(rows: pd.DataFrame) -> Any:
    """Figures 4 and 6: below the diagonal the method of the y axis is better."""
    (experiment,) = set(rows["experiment"])
    drawn = figure(10.0, 6.5)
    panels = drawn.subplots(2, len(PAIRS))
    for line, metric in zip(panels, METRICS[experiment]):
        wide = side_by_side(rows, metric)
        for axes, (one, other) in zip(line, PAIRS):
            if one not in wide or other not in wide:
                continue
            for data, group in wide.groupby(level="data"):
                name = str(data).partition(":")[0]
                axes.plot(
                    group[other], group[one], ".", markersize=4, alpha=0.7, label=name
                )
            ends = [wide[[one, other]].min().min(), wide[[one, other]].max().max()]
            axes.plot(ends, ends, color="black", linewidth=0.8)
            share = wins(wide, one, other).share.value
            axes.set(
                xlabel=other,
                ylabel=one,
                title=f"{NAMES[metric]}: {one} better in {share:.0%}",
            )
            if axes is panels[0, 0]:
                axes.legend(frameon=False, fontsize="small")
            tidy(axes)
    return drawn


def draw_ranks(rows: pd.DataFrame) -> Any:
    """Figures 5 and 7: how often the power of the row beats that of the column; mean
    ranks.
    """
    (experiment,) = set(rows["experiment"])
    drawn = figure(9.0, 6.0)
    panels = drawn.subplots(2, 2, height_ratios=(2, 1))
    for (pairs, ranks), metric in zip(panels.T, METRICS[experiment]):
        wide = side_by_side(rows, metric)
        names = sorted(wide, key=lambda name: float(name.split()[1]))
        powers = [name.split()[1] for name in names]
        share = [
            [wins(wide, a, b).share.value if a != b else 0.5 for b in names]
            for a in names
        ]
        image = pairs.imshow(share, vmin=0.0, vmax=1.0, cmap="RdBu_r")
        for row, line in enumerate(share):
            for column, value in enumerate(line):
                if row != column:
                    colour = "white" if abs(value - 0.5) > 0.3 else "black"
                    place = {
                        "ha": "center",
                        "va": "center",
                        "fontsize": 7,
                        "color": colour,
                    }
                    pairs.text(column, row, f"{value:.0%}", **place)
        ticks = range(len(names))
        pairs.set_xticks(ticks, powers)
        pairs.set_yticks(ticks, powers)
        pairs.set(title=f"{NAMES[metric]}: alpha of the row better", ylabel="alpha")
        drawn.colorbar(image, ax=pairs, shrink=0.7)
        found = mean_ranks(wide).loc[names]
        errors = [found["value"] - found["low"], found["high"] - found["value"]]
        ranks.errorbar(ticks, found["value"], yerr=errors, fmt="o", capsize=3)
        ranks.set_xticks(ticks, powers)
        ranks.set(xlabel="alpha", ylabel="mean rank")
        tidy(ranks)
    return drawn


def inducing_table(rows: pd.DataFrame) -> str:
    """How near the decision boundary inducing inputs are: |p - 1/2| there, 0 on it."""
    lines = [
        f"{'alpha':>6}{'away':>6}{'of the others: mean |p - 1/2|':>32}{'within 0.25':>14}"
    ]
    for alpha, group in rows.groupby("alpha"):
        among = group[group[["z1", "z2"]].abs().max(axis=1) <= AMONG]
        distance = np.abs(among["probability"] - 0.5)
        near = f"{np.sum(distance < 0.25)} of {len(among)}"
        lines.append(
            f"{alpha:6g}{len(group) - len(among):6}{np.mean(distance):32.3f}{near:>14}"
        )
    return "\n".join(
        [*lines, f"away: an input is more than {AMONG:g} deviations from its mean"]
    )


def draw_inducing(rows: pd.DataFrame) -> Any:
    """Figure 23: inducing inputs after training, coloured by the probability there."""
    groups = list(rows.groupby("alpha"))
    drawn = figure(3.3 * len(groups), 3.3)
    panels = drawn.subplots(1, len(groups), sharex=True, sharey=True, squeeze=False)[0]
    for axes, (alpha, group) in zip(panels, groups):
        dots = axes.scatter(
            group["z1"],
            group["z2"],
            c=group["probability"],
            cmap="RdBu_r",
            vmin=0.0,
            vmax=1.0,
        )
        axes.set(title=f"alpha = {alpha:g}", xlabel="input 0")
        tidy(axes)
    panels[0].set_ylabel("input 1")
    drawn.colorbar(dots, ax=panels, label="probability of class 1")
    return drawn


def everywhere_table(rows: pd.DataFrame) -> str:
    """The largest distance between the two ways to do expectation propagation."""
    gap = (rows["objective"] - rows["standard"]).abs()
    best = rows.loc[rows["nlpd"].idxmin()]
    highest = rows.loc[rows["objective"].idxmax()]
    place = "log lengthscale {log_lengthscale:.2f}, log deviation {log_deviation:.2f}"
    return "\n".join(
        [
            f"{rows['data'].iloc[0]}, M = N, {len(rows)} settings of the kernel",
            (
                f"standard EP converged at {gap.notna().sum()} of them; there the log Z"
                " of Power EP"
            ),
            (
                f"at 1 differs by at most {gap.max():.1e} nats, by {gap.median():.1e}"
                " in the median"
            ),
            f"highest log Z {highest['objective']:.1f} at {place.format(**highest)}",
            f"lowest NLPD {best['nlpd']:.3f} at {place.format(**best)}",
        ]
    )


def draw_everywhere(rows: pd.DataFrame) -> Any:
    """Figure 33."""
    drawn = figure(9.0, 3.6)
    for axes, (name, title) in zip(
        drawn.subplots(1, 2),
        {
            "objective": "log Z, all rows inducing",
            "nlpd": "NLPD of held-out rows",
        }.items(),
    ):
        grid = rows.pivot(index="log_deviation", columns="log_lengthscale", values=name)
        lines = axes.contour(grid.columns, grid.index, grid, levels=12, cmap="viridis")
        axes.clabel(lines, fontsize=7)
        axes.set(title=title, xlabel="log lengthscale", ylabel="log deviation of f")
        tidy(axes)
    return drawn
