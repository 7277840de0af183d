"""Quality against time: test scores by the seconds since a fit began, beside what
people use.

    python -m examples quality --quick --out FOLDER               # generated data, half a minute
    python -m examples quality --data DIRECTORY --out FOLDER      # all: hours
    python -m examples quality --data DIRECTORY --out FOLDER --seconds 30 --most 14 --jobs 2
    python -m examples quality --table FOLDER/results.csv --out FOLDER    # tables and figures alone

Each run is a method with so many inducing points (M): it trains until it has converged
or for SECONDS, or for each of several numbers in a run of its own, and test rows are
scored on the way. ``--most`` leaves out all but the first methods of each set, the most
telling ones; ``--methods`` all but those named: "GPflow" is all of GPflow's, "GPflow
SGPR 400" the one with 400 points. The same command goes on where it was stopped.
Prints, for times from the beginning of a fit, with compilation, the best score of other
packages and of this one, a run being judged by the last parameters that it had by then,
and M and method chosen in hindsight for both. Seconds are processor time of all
threads, one for each process; what it takes to score is left out.

Sets are NAME/ROWS: kin8nm, kin40k, late (flights: late or not) and friedman
(generated). Others are GPflow's SGPR and SVGP (natural gradients and Adam), GPJax's,
GPBoost's FITC, Vecchia and both together (VIF), where they are installed, and gradient
boosting of scikit-learn, whose density is Gaussian with the variance of rows that it
holds out. GPJax may be in another interpreter.
"""

import sys
from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import tensorflow as tf
from gpflow.base import AnyNDArray
from scipy.stats import norm
from sklearn.datasets import make_friedman1

from examples import large_scale
from examples.benchmarks.quality_curve import Curve
from examples.benchmarks.quality_methods import Setting, skipped, train
from examples.common import arguments
from examples.data_sets import DIRECTORY, Dataset, Problem, read, standardised
from examples.papers import runner
from examples.papers.runner import Cell
from gpflow_pep import plotting
from gpflow_pep.metrics import error_rate, mean_nlpd, smse

SETS = (
    "kin8nm/5000",
    "kin40k/10000",
    "late/263853",
    "kin40k/30000",
    "friedman/1000000",
)
MOST_TEST = 2000
TIMES = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 600.0)
#: Above so many rows methods take minibatches.
MOST_AT_ONCE = 100_000
OURS = ("PEP", "near", "mix", "PEPRegressor", "PEPClassifier", "ARPEP")
#: ``loss`` is the error rate where targets are classes.
SCORES = {"nlpd": "test NLPD", "loss": "test SMSE"}
#: Of predictions of a model that was trained without near rows.
NEAR_ROWS = {"near": " + near rows", "chosen": " + chosen near rows"}
#: Of the figures: of ours, blue to green; and of others.
COLOURS = {
    True: (
        "#08306b",
        "#2171b5",
        "#41b6c4",
        "#7a0177",
        "#006d2c",
        "#74c476",
        "#8073ac",
        "#35978f",
    ),
    False: (
        "#d7301f",
        "#fc8d59",
        "#8c510a",
        "#dfa700",
        "#525252",
        "#e7298a",
        "#969696",
        "#000000",
    ),
}
DPI = 110


def methods(name: str) -> list[tuple[str, int, float | None]]:
    """Methods of a set, M and alpha; the most telling first."""
    _, num_rows, classes = parts(name)
    if classes or num_rows > MOST_AT_ONCE:
        ours = ("PEPClassifier", 0, None) if classes else ("PEPRegressor", 0, None)
        subsets = (
            [] if classes else [("PEP subset", M, 0.5) for M in (50, 200, 25, 100, 400)]
        )
        near = [("PEP near rows", 10, 1.0)] if classes else []
        return [
            *near,
            *(("HistGB 0.1", 0, None), ("GPflow SVGP 0.03", 100, None), *subsets[:2]),
            *(("ARPEP natural 0.03", 100, 0.5), ("GPflow SVGP 0.03", 400, None), ours),
            *(("ARPEP natural 0.03", 400, 0.5), ("GPJax SVGP 0.03", 100, None)),
            *(("GPflow SVGP 0.1", 100, None), ("ARPEP 0.03", 100, 0.5), *subsets[2:]),
            *(
                ("ARPEP 0.03", 400, 0.5),
                ("HistGB 0.03", 0, None),
                ("GPJax SVGP 0.03", 400, None),
            ),
            *(("GPflow SVGP 0.1", 400, None), ("ARPEP natural 0.03", 200, 0.5)),
            *(("GPflow SVGP 0.03", M, None) for M in (50, 200)),
        ]
    return [
        *(("HistGB 0.1", 0, None), ("PEP subset", 50, 0.5), ("GPflow SGPR", 200, None)),
        *(("PEP", 200, 0.5), ("GPBoost vif", 200, None)),
        *(
            ("PEP subset", 400, 0.5),
            ("GPBoost vecchia", 0, None),
            ("GPflow SGPR", 50, None),
        ),
        *(("PEP subset", 100, 0.5), ("GPflow SGPR", 400, None), ("PEP", 400, 0.5)),
        *(
            ("GPJax SGPR", 200, None),
            ("GPBoost fitc", 200, None),
            ("PEPRegressor", 0, None),
        ),
        *(("GPflow SVGP 0.03", 200, None), ("PEP subset", 800, 0.5), ("PEP", 800, 0.5)),
        *(("GPflow SGPR", M, None) for M in (25, 100, 800)),
        *(("PEP", M, 0.5) for M in (25, 50, 100)),
        *(("GPBoost vif", M, None) for M in (100, 400)),
        *(("GPBoost fitc", M, None) for M in (100, 400)),
        *(("PEP", M, alpha) for alpha in (1.0, 0.0) for M in (100, 200, 400)),
        *(("mix", M, None) for M in (100, 200)),
        *(("GPJax SGPR", M, None) for M in (50, 100, 400)),
        *((f"GPJax SVGP {rate}", 200, None) for rate in (0.03, 0.1)),
        *(("GPflow SVGP 0.1", 200, None), ("HistGB 0.03", 0, None)),
    ]


def parts(name: str) -> tuple[str, int, bool]:
    """The name, the number of rows to train on, and whether targets are classes."""
    known, _, rows = name.partition("/")
    rows = rows or next(
        (each.split("/")[1] for each in SETS if each.startswith(known)), ""
    )
    return known, int(rows), known == "late"


@lru_cache(maxsize=1)
def load(name: str, directory: Path) -> Problem:
    """Rows to train on, and at most MOST_TEST others."""
    known, num_rows, classes = parts(name)
    if classes:
        flights = large_scale.load("late", directory)
        problem = Problem((flights.X[:num_rows], flights.Y[:num_rows]), flights[2:4])
    elif known == "friedman":
        X, y = make_friedman1(num_rows + MOST_TEST, 8, noise=1.0, random_state=0)
        places = np.split(np.arange(len(X)), [num_rows])
        problem = standardised(Dataset(X, y[:, None]), (places[0], places[1]))
    else:
        dataset = read(directory, known)
        order = np.random.default_rng(0).permutation(len(dataset.X))
        problem = standardised(
            dataset, (order[:num_rows], order[num_rows : num_rows + 5000])
        )
    X, Y = problem.test
    return Problem(problem.train, (X[:MOST_TEST], Y[:MOST_TEST]))


def scores(
    Y: AnyNDArray, classes: bool, mean: AnyNDArray, variance: AnyNDArray
) -> dict[str, Any]:
    """NLPD of test rows, and SMSE; or error rate where the mean is the probability of
    class 1.
    """
    if classes:
        p = np.clip(np.where(Y == 1.0, mean, 1.0 - mean), 1e-12, 1.0)
        return {
            "nlpd": mean_nlpd(np.log(p)),
            "loss": error_rate(Y[:, 0], 1.0 * (mean[:, 0] > 0.5)),
        }
    return {
        "nlpd": mean_nlpd(norm.logpdf(Y, mean, np.sqrt(variance))),
        "loss": smse(Y, mean),
    }


def evaluate(directory: Path, python: str, cell: Cell) -> list[dict[str, Any]]:
    """Points of a curve."""
    why = skipped(cell, python)
    if why:
        raise ModuleNotFoundError(why)
    problem, (*_, classes) = load(cell.data, directory), parts(cell.data)
    tf.function(tf.sin)(tf.constant(1.0))  # TensorFlow's own first function
    limit = float(cell.experiment.split()[0])
    curve = Curve(limit, partial(scores, problem.test[1], classes))
    train(Setting(problem, classes, cell, curve, python))
    digits = {"processor": round(curve.processor, 2)}
    points = [point._asdict() for point in curve.points]
    return [{**point, **point.pop("scores")} for point in points] or [digits]


def grid(
    sets: Sequence[str],
    chosen: Sequence[str],
    limits: Sequence[float],
    most: int | None = None,
) -> list[Cell]:
    """Cells of the sets: of their first methods, or of those with these names, M up to
    N / 3.
    """
    return [
        Cell(f"{seconds:g} s", name, 0, M, method, alpha)
        for seconds in limits
        for name in sets
        for method, M, alpha in methods(name)[:most]
        if (not chosen or {method, method.split()[0], f"{method} {M}"} & {*chosen})
        and parts(name)[1] >= 3 * M
    ]


def label(method: str, kind: str, alpha: float | None) -> str:
    """What a curve is called: the method, the power, and near rows where prediction has
    them.
    """
    power = "" if alpha is None or np.isnan(alpha) else f" {alpha:g}"
    if method.endswith(("near", "near rows")):
        return f"{method}{power}"
    return f"{method}{power}{NEAR_ROWS.get(kind, '')}"


def curves(found: pd.DataFrame) -> pd.DataFrame:
    """Points with the label of their method, and whether it is ours."""
    kinds = found["kind"].fillna("")
    labels = [
        label(*row) for row in zip(found["method"], kinds, found["alpha"], strict=True)
    ]
    ours = found["method"].str.split().str[0].isin(OURS)
    return found.assign(label=labels, ours=ours).sort_values("processor", kind="stable")


def reached(points: pd.DataFrame, seconds: float, score: str) -> pd.DataFrame:
    """The last point that each run had by a time, the best first."""
    until = points[points["processor"] <= seconds]
    return (
        until.groupby(["label", "M"], sort=False)
        .last()
        .reset_index()
        .sort_values(score)
    )


def front(found: pd.DataFrame) -> pd.DataFrame:
    """For each set, score and time: the best of others and of ours, and the difference."""
    rows = []
    for name, of_set in curves(found).groupby("data", sort=False):
        limit = max(float(each.split()[0]) for each in of_set["experiment"])
        for score in SCORES:
            for seconds in TIMES:
                if seconds > limit:
                    continue  # runs were ended before
                best = {}
                for ours in (False, True):
                    points = of_set[of_set["ours"] == ours]
                    points = points[points["processor"] <= seconds]
                    best[ours] = (
                        None
                        if points.empty
                        else reached(points, seconds, score).iloc[0]
                    )
                row = {"data": name, "score": score, "seconds": seconds}
                for ours, prefix in ((False, "others"), (True, "ours")):
                    one = best[ours]
                    row[prefix] = np.nan if one is None else one[score]
                    row[f"{prefix}_run"] = "" if one is None else run_name(one)
                rows.append({**row, "difference": row["ours"] - row["others"]})
    return pd.DataFrame(rows)


def run_name(point: Any) -> str:
    return f"{point['label']}, M = {point['M']}" if point["M"] else point["label"]


def lines(fronts: pd.DataFrame) -> Iterator[str]:
    """The table of the fronts."""
    for (name, score), rows in fronts.groupby(["data", "score"], sort=False):
        title = "error rate" if score == "loss" and parts(name)[2] else SCORES[score]
        yield f"{name}, {title}"
        yield (
            f"{'seconds':>8}  {'others':34}{'':>8} "
            f" {'gpflow_pep':44}{'':>8}{'difference':>12}"
        )
        for row in rows.itertuples():
            others, ours = (f"{value:.4f}" for value in (row.others, row.ours))
            line = (
                f"{row.seconds:8g}  {row.others_run:34}{others:>8} "
                f" {row.ours_run:44}{ours:>8}"
            )
            yield (
                (line + f"{row.difference:+12.4f}")
                .replace("+nan", "    ")
                .replace("nan", "  -")
            )
        yield ""


def envelope(points: pd.DataFrame, score: str) -> tuple[AnyNDArray, AnyNDArray]:
    """Seconds, and the best score that any run of a method has at that time."""
    times = np.unique(points["processor"])
    return times, np.array(
        [reached(points, time, score)[score].iloc[0] for time in times]
    )


def draw(found: pd.DataFrame, name: str, path: Path) -> None:
    """Both scores by the time, a line for each method; ours are solid."""
    figure = plotting.figure(11.0, 5.0)
    panels = figure.subplots(1, 2)
    of_set = curves(found[found["data"] == name])
    labels = of_set.groupby("label", sort=False)["ours"].first()
    colours = {ours: cycle(COLOURS[ours]) for ours in (True, False)}
    for method, ours in labels.items():
        colour = next(colours[ours])
        style = {"color": colour, "linestyle": "-" if ours else "--", "linewidth": 1.6}
        for axes, score in zip(panels, SCORES, strict=True):
            points = envelope(of_set[of_set["label"] == method], score)
            axes.step(*points, where="post", label=method, **style)
    for axes, (score, title) in zip(panels, SCORES.items(), strict=True):
        classes = score == "loss" and parts(name)[2]
        axes.set(xscale="log", xlabel="seconds of processor time since the fit began")
        axes.set_xlim(left=TIMES[0] / 4.0)
        axes.set(ylabel="test error rate" if classes else title)
        values = of_set[score]
        low = values.min()
        high = np.quantile(values, 0.9)
        axes.set_ylim(low - 0.05 * (high - low), high)
        plotting.tidy(axes)
    panels[0].set_title(name, loc="left")
    panels[1].legend(
        frameon=False, fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5)
    )
    figure.savefig(path, dpi=DPI, bbox_inches="tight")


def summarise(found: pd.DataFrame, out: Path) -> None:
    """Print and write the table, and draw the figures."""
    found = found[found["nlpd"].notna()]
    if found.empty:
        sys.exit("No run has a score.")
    fronts = front(found)
    table = "\n".join(lines(fronts))
    print(table)
    fronts.to_csv(out / "front.csv", index=False, float_format="%.6g")
    (out / "front.txt").write_text(table + "\n", encoding="utf-8")
    for name in found["data"].unique():
        path = out / f"{name.replace('/', '_')}.png"
        draw(found, name, path)
        print(f"wrote {path}")


def main() -> None:
    args = arguments(
        __doc__,
        data=DIRECTORY,
        out={"type": Path, "required": True},
        sets=list(SETS),
        methods={"nargs": "+", "default": []},
        seconds={"nargs": "+", "type": float, "default": [60.0]},
        most=int,
        gpjax_python=sys.executable,
        jobs=1,
        minutes=float,
        retry=False,
        table=Path,
        quick={"sets": ["friedman/300"], "seconds": [1.0], "most": 4},
    )
    if args.table is None:
        cells = grid(args.sets, args.methods, args.seconds, args.most)
        left_out = {}
        for cell in cells:
            library = cell.method.split()[0]
            if library not in left_out:
                left_out[library] = skipped(cell, args.gpjax_python)
        for why in filter(None, left_out.values()):
            print(f"left out: {why}")
        cells = [cell for cell in cells if not left_out[cell.method.split()[0]]]
        evaluate_cell = partial(evaluate, args.data, args.gpjax_python)
        runner.run(
            cells,
            evaluate_cell,
            args.out,
            args.jobs,
            minutes=args.minutes,
            retry=args.retry,
        )
    summarise(runner.read(args.table or args.out / runner.TABLE), args.out)
