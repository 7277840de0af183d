"""Tables and figures of Villacampa-Calvo & Hernández-Lobato's experiments, of the table
alone.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from examples.papers.summaries import (
    labelled,
    mean_and_error,
    mean_interval,
    of_runs,
    write,
)
from examples.papers.vh20_plane import PLACES_BOX, plane
from examples.papers.vh20_powers import COLOURS, draw_powers, powers
from gpflow_pep.plotting import figure, tidy

#: Their tables C.3 and C.4.
PAPER = Path(__file__).with_name("vh20_paper.csv")
#: alpha -> 0 where PEP was not run there: the same bound, by gradients instead of
#: sites.
LIMIT = "PEP 0"
VB = "SVGP"
MIDDLE = "PEP 0.5"
EP = "PEP 1"
#: With hyperparameters of expectation propagation, as there.
GIBBS = "Gibbs of EP"
LAPLACE = "Laplace of EP"
#: What the paper calls them; of those that it does not have, nothing.
OF_PAPER = {VB: LIMIT, GIBBS: "MCMC", LAPLACE: "Laplace", "Laplace": "", "MCMC": ""}
#: What the tables show, in this order.
METHODS = (GIBBS, "MCMC", LAPLACE, "Laplace", "labels", LIMIT, VB, MIDDLE, EP)
STYLES = {0.0: ":", 0.5: "--", 1.0: "-"}
RULES = {"entropy": "#1f5a99", "random": "#8a8a8a"}
#: Data sets on which the paper finds alpha -> 0 to be worse in log density.
WORSE_AT_ZERO = ("glass", "satimage", "waveform")


def summarise(table: pd.DataFrame, out: Path) -> None:
    """Write what the experiments of the table allow."""
    ways: dict[str, dict[str, Callable[[pd.DataFrame], Any]]] = {
        "uci": {
            "nlpd.txt": lambda rows: scores(rows, "nlpd"),
            "error.txt": lambda rows: scores(rows, "error_rate"),
            "zero.txt": at_zero,
            "seconds.txt": seconds,
            "powers.txt": powers,
            "powers.png": draw_powers,
            "left_out.txt": left_out,
        },
        "places": {"places.txt": places, "places.png": draw_places},
        "time": {"time.txt": time_to, "time.png": draw_time},
        "active": {"active.txt": labels_needed, "active.png": draw_active},
    }
    for experiment, files in ways.items():
        rows = table[table["experiment"] == experiment]
        for name, make in files.items() if len(rows) else ():
            write(out / name, make, rows)
    print(f"wrote tables and figures to {out}")


def scores(rows: pd.DataFrame, metric: str) -> str:
    """Means and standard errors over splits, beside the paper's; a line for each
    method.
    """
    ours = labelled(rows)
    paper = pd.read_csv(PAPER)
    lines = [
        f"{'':4}{'':11}{'':14}{'ours ± s.e.':>16}{'splits':>8}{'paper ± s.e.':>15}{'less':>8}"
    ]
    for (M, data), part in ours.groupby(["M", "data"]):
        for name in METHODS:
            own = part.loc[part["label"] == name, metric]
            theirs = paper[(paper["M"] == M) & (paper["data"] == data)]
            theirs = theirs[theirs["method"] == OF_PAPER.get(name, name)]
            if not len(own):
                continue
            said = ""
            less = ""
            if len(theirs):
                value, error = theirs[[metric, f"{metric}_error"]].to_numpy(float)[0]
                said = f"{value:.2f} ± {error:.2f}"
                less = f"{own.mean() - value:+.3f}"
            place = f"{M:3}% {data:11}{name:14}"
            lines.append(
                f"{place}{mean_and_error(own):>16}{len(own):8}{said:>15}{less:>8}"
            )
    return "\n".join(lines)


def _vb(wide: pd.DataFrame) -> str | None:
    """The column of alpha -> 0: that with more runs."""
    found = [name for name in (VB, LIMIT) if name in wide]
    return max(found, key=lambda name: wide[name].count()) if found else None


def at_zero(rows: pd.DataFrame) -> str:
    """How much worse the log density is at alpha -> 0, run by run."""
    wide = of_runs(rows, "nlpd")
    paper = pd.read_csv(PAPER)
    zero = _vb(wide)
    head = "NLPD at alpha -> 0 less that at 0.5, the same runs: mean [95% interval]"
    lines = [head, f"{'':16}{'ours':>26}{'runs':>6}{'paper':>8}"]
    if zero is None or MIDDLE not in wide:
        return head + ": nothing to compare yet."
    difference = (wide[zero] - wide[MIDDLE]).dropna()
    for (M, data), part in difference.groupby(level=["M", "data"]):
        both = paper.query("M == @M and data == @data").set_index("method")["nlpd"]
        said = f"{both[LIMIT] - both[MIDDLE]:+.2f}"
        mark = " *" if data in WORSE_AT_ZERO else ""
        shown = f"{mean_interval(part.to_numpy()):+.3f}"
        lines.append(f"{M:3}% {data:11}{shown:>26}{len(part):6}{said:>8}{mark}")
    return "\n".join([*lines, f"* where the paper says so. alpha -> 0 is {zero} here."])


def seconds(rows: pd.DataFrame) -> str:
    """Seconds of training a model, mean over data sets of the mean over splits."""
    paper = pd.read_csv(PAPER).groupby(["M", "method"])["seconds"].first()
    lines = [f"{'':5}{'':14}{'ours':>8}{'longest':>9}{'sets':>6}{'paper':>8}"]
    for (M, name), part in labelled(rows).groupby(["M", "label"]):
        each = part.groupby("data")["seconds"].mean()
        theirs = M, OF_PAPER.get(name, name)
        said = f"{paper[theirs]:8.0f}" if theirs in paper.index else ""
        lines.append(
            f"{M:3}% {name:14}{each.mean():8.1f}{each.max():9.1f}{len(each):6}{said}"
        )
    return "\n".join(lines)


def left_out(rows: pd.DataFrame) -> str:
    """The power chosen by leave-one-out density of the training rows, compared with
    fixed powers.
    """
    pep = rows[rows["method"] == "PEP"]
    inside = of_runs(pep, "left_out")
    held = of_runs(pep, "nlpd")
    # Few powers may have many more runs.
    choices = dict.fromkeys([(MIDDLE, EP), tuple(inside)])
    parts = [
        _chosen(inside[list(names)].dropna(), held)
        for names in choices
        if len(names) > 1 and set(names) <= set(inside)
    ]
    return (
        "\n".join(part for part in parts if part)
        or "One power each: nothing to choose."
    )


def _chosen(inside: pd.DataFrame, held: pd.DataFrame) -> str:
    """Between the powers that are columns, for the runs that are rows."""
    if not len(inside):
        return ""
    held = held.loc[inside.index, inside.columns]
    chosen = inside.to_numpy().argmin(axis=1)
    found = held.to_numpy()
    picked = found[np.arange(len(found)), chosen]
    lines = [
        (
            f"{len(held)} runs with PEP at the powers"
            f" {', '.join(name.split()[1] for name in held.columns)}: mean NLPD of"
            " held-out rows, and less that of the chosen power [95% interval]"
        ),
        f"{'chosen':10}{picked.mean():8.3f}",
    ]
    ways = {name: held[name].to_numpy() for name in held.columns}
    for name, values in {**ways, "best of all": found.min(axis=1)}.items():
        less = mean_interval(values - picked)
        share = (
            ""
            if name not in ways
            else f"{np.mean(held.columns[chosen] == name):6.0%} chosen"
        )
        lines.append(f"{name:12}{values.mean():6.3f}  {less:+.3f}{share}")
    return "\n".join(lines)


def places(rows: pd.DataFrame) -> str:
    """How near to boundaries inducing inputs end, and to each other."""
    lines = [
        (
            "medians over inducing inputs: the margin between the two largest functions"
            " there (of the rows: all), and the distance to the nearest other"
        ),
        f"{'':14}{'margin':>8}{'nearest':>9}",
    ]
    X, _, functions = plane(int(rows["split"].iloc[0]))
    largest = np.sort(functions(X), axis=1)
    lines.append(f"{'rows':14}{np.median(largest[:, 2] - largest[:, 1]):8.3f}")
    for name, part in labelled(rows).groupby("label", sort=False):
        lines.append(
            f"{name:14}{part['margin'].median():8.3f}{part['nearest'].median():9.3f}"
        )
    return "\n".join(lines)


def draw_places(rows: pd.DataFrame) -> Any:
    """Where inducing inputs end, over the classes (Figure 2)."""
    parts = list(labelled(rows).groupby("label", sort=False))
    X, labels, functions = plane(int(rows["split"].iloc[0]))
    columns = min(3, len(parts))
    lines = -(-len(parts) // columns)
    drawn = figure(3.0 * columns, 3.0 * lines)
    grid = np.linspace(-PLACES_BOX, PLACES_BOX, 120)
    cells = np.stack(np.meshgrid(grid, grid), axis=-1).reshape(-1, 2)
    classes = functions(cells).argmax(axis=1).reshape(len(grid), -1)
    panels = np.atleast_1d(
        drawn.subplots(lines, columns, sharex=True, sharey=True)
    ).ravel()
    for axes in panels[len(parts) :]:
        axes.remove()
    for axes, (name, part) in zip(panels, parts):
        axes.scatter(*X.T, c=labels, cmap="Pastel1", s=4)
        axes.contour(
            grid, grid, classes, levels=[0.5, 1.5], colors="black", linewidths=0.8
        )
        axes.plot(
            part["x"],
            part["y"],
            "o",
            color="white",
            markeredgecolor="black",
            markersize=5,
        )
        axes.set(title=name.replace("PEP ", "PEP, α = "))
        axes.set(
            xlim=(-PLACES_BOX, PLACES_BOX),
            ylim=(-PLACES_BOX, PLACES_BOX),
            aspect="equal",
        )
    return drawn


def time_to(rows: pd.DataFrame) -> str:
    """The last scores, and when 1% above the lowest NLPD was reached."""
    lines = [f"{'':29}{'NLPD':>8}{'error':>8}{'seconds':>9}{'nearly there':>14}"]
    for (data, M, name), part in labelled(rows).groupby(["data", "M", "label"]):
        runs = [run.sort_values("step") for _, run in part.groupby("split")]
        last = pd.DataFrame([run.iloc[-1] for run in runs])
        near = [
            run.loc[run["nlpd"] <= 1.01 * run["nlpd"].min(), "seconds"].iloc[0]
            for run in runs
        ]
        lines.append(
            f"{data:11}M = {M:<4}{name:10}{last['nlpd'].mean():8.3f}"
            f"{last['error_rate'].mean():8.3f}{last['seconds'].mean():9.1f}{np.mean(near):14.1f}"
        )
    return "\n".join(lines)


def draw_time(rows: pd.DataFrame) -> Any:
    """Negative log density along the training (Figure 3), the mean over splits at each
    step.
    """
    problems = list(rows.groupby(["data", "M"]))
    num_columns = min(len(problems), 3)
    num_rows = -(-len(problems) // num_columns)
    drawn = figure(4.6 * num_columns, 3.6 * num_rows)
    panels = drawn.subplots(num_rows, num_columns, squeeze=False)
    for axes in panels.flat[len(problems) :]:
        axes.set_axis_off()
    for axes, ((data, M), runs) in zip(panels.flat, problems):
        for name, part in labelled(runs).groupby("label", sort=False):
            curve = part.groupby("step")[["seconds", "nlpd"]].mean()
            method, alpha = part[["method", "alpha"]].iloc[0]
            axes.plot(
                curve["seconds"],
                curve["nlpd"],
                color=COLOURS[method],
                linestyle=STYLES.get(alpha, "-."),
                label=name,
            )
        axes.set(title=f"{data}, M = {M}", xlabel="seconds", xscale="log")
        axes.legend(frameon=False, fontsize="small")
        tidy(axes)
    for axes in panels[:, 0]:
        axes.set(ylabel="NLPD of held-out rows")
    return drawn


def _gains(rows: pd.DataFrame) -> pd.DataFrame:
    """The error of random rows less that of the entropy's, for repetitions that both
    have.
    """
    index = ["alpha", "labels", "split"]
    wide = rows.pivot_table(index=index, columns="method", values="error_rate").dropna()
    return (wide["random"] - wide["entropy"]).rename("gain").reset_index()


def labels_needed(rows: pd.DataFrame) -> str:
    """Errors after some labels, and how much lower the entropy's are, repetition by
    repetition.
    """
    lines = [
        "error of held-out rows of waveform; random less entropy: mean [95% interval]",
        f"{'':12}{'labels':>8}{'entropy':>9}{'random':>9}{'':4}random - entropy",
    ]
    last = int(rows["labels"].max())
    gains = _gains(rows)
    means = rows.groupby(["alpha", "labels", "method"])["error_rate"].mean()
    wanted = np.unique(np.linspace(0, last, 6).round(-1 if last >= 50 else 0))
    for alpha, part in gains.groupby("alpha"):
        for count in wanted:
            own = part.loc[part["labels"] == count, "gain"]
            if not len(own):
                continue
            gain = mean_interval(own.to_numpy())
            both = means[alpha, count]
            lines.append(
                "alpha ="
                f" {alpha:<4g}{count:8.0f}{both['entropy']:9.4f}{both['random']:9.4f}{'':4}{gain:+.4f},"
                f" {len(own)} repetitions"
            )
        over = part[part["labels"] > 0].groupby("split")["gain"].mean()
        gain = mean_interval(over.to_numpy())
        lines.append(f"alpha = {alpha:<4g}     all {'':18}{'':4}{gain:+.4f}")
    return "\n".join(lines)


def draw_active(rows: pd.DataFrame) -> Any:
    """Error against the number of labels (Figure 6), and 95% intervals of the
    difference.
    """
    powers = sorted(rows["alpha"].unique())
    drawn = figure(4.4 * len(powers), 5.4)
    panels = drawn.subplots(2, len(powers), sharex=True, sharey="row", squeeze=False)
    gains = _gains(rows)
    for column, alpha in zip(panels.T, powers):
        part = rows[rows["alpha"] == alpha]
        for rule, colour in RULES.items():
            curve = part[part["method"] == rule].groupby("labels")["error_rate"].mean()
            column[0].plot(curve.index, curve, color=colour, label=rule)
        own = gains[gains["alpha"] == alpha].groupby("labels")["gain"]
        found = pd.DataFrame(
            {count: mean_interval(values.to_numpy()) for count, values in own}
        ).T
        column[1].plot(found.index, found[0], color=RULES["entropy"])
        column[1].fill_between(
            found.index, found[1], found[2], color=RULES["entropy"], alpha=0.2
        )
        column[1].axhline(0.0, color="black", linewidth=0.8)
        column[0].set(title=f"waveform, PEP, α = {alpha:g}")
        column[1].set(xlabel="rows that got a label")
        for axes in column:
            tidy(axes)
    panels[0, 0].set(ylabel="error of held-out rows")
    panels[0, 0].legend(frameon=False)
    panels[1, 0].set(ylabel="random less entropy")
    return drawn
