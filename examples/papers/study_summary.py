"""The tables and the figure of the study of defaults, of the table of results alone."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from examples.papers.summaries import Interval, mean_intervals
from gpflow_pep import plotting

#: The powers of single models.
ALPHAS = (0.0, 0.5, 0.75, 1.0)
#: The first of these that a table has is what others are compared with.
REFERENCES = ("evidence .5", "M = 100")
HINDSIGHT = "best power, hindsight"
#: The estimators with nothing set.
DEFAULTS = ("PEPRegressor()", "PEPRegressor(poisson)", "PEPClassifier()")
#: What is summed up, where a rule has it.
COLUMNS = (
    *("nlpd", "rmse", "error_rate", "calibration_error", "coverage", "width"),
    *("seconds", "points", "loo", "optimism"),
)


def rule_name(objective: str, alpha: float) -> str:
    """How the table names the rule of one model at a power."""
    return f"{objective} {alpha:g}".replace("0.", ".")


def _with_hindsight(table: pd.DataFrame) -> pd.DataFrame:
    """Add the power that was best on the held-out rows of each split, which nobody can
    know.
    """
    powers = table[table["rule"].str.fullmatch(r"evidence [\d.]+")]
    best = powers.loc[powers.groupby(["data", "split"])["nlpd"].idxmin()]
    return pd.concat([table, best.assign(rule=HINDSIGHT, seconds=float("nan"))])


def _differences(rows: pd.DataFrame, rule: str, score: str = "nlpd") -> pd.DataFrame:
    """A score of all rules less that of one, the mean over the splits that both have."""
    runs = rows.pivot_table(
        index=["data", "split"], columns="rule", values=score, sort=False
    )
    return runs.sub(runs[rule], axis=0).groupby("data", sort=False).mean()


def _beside(rows: pd.DataFrame, rule: str) -> str:
    """Compare the NLPD and the RMSE of one rule with those of all others."""
    differences = _differences(rows, rule).drop(
        columns=[rule, HINDSIGHT], errors="ignore"
    )
    sets = differences.count()
    better = (differences > 0).sum()
    splits = rows.pivot_table(
        index="rule", columns="data", values="split", aggfunc="nunique"
    )
    title = f"NLPD of other rules less that of {rule}: mean over sets [95% interval];"
    title += " sets; better on; splits"
    ratios = pd.Series(dtype=float)
    if "rmse" in rows and rows["rmse"].notna().any():
        title += f"; RMSE of {rule} divided by theirs"
        ratios = np.exp(
            -_differences(rows.assign(rmse=np.log(rows["rmse"])), rule, "rmse").mean()
        )
    lines = (
        f"{name:35} {Interval(*interval):+.3f} {sets[name]:3.0f} {better[name]:3.0f}"
        + f" {splits.loc[name].max():2.0f}"
        + (f" {ratios[name]:.3f}" if name in ratios else "")
        for name, interval in mean_intervals(differences).iterrows()
    )
    return "\n".join([title, *lines])


def _draw(nlpd: pd.DataFrame) -> Any:
    """Draw the mean over sets against alpha, with the ensemble and what people use
    instead.
    """
    powers = nlpd[[rule_name("evidence", alpha) for alpha in ALPHAS]]
    behind = powers.sub(nlpd["evidence mix"], axis=0)
    lines = {
        "mixture of 0, 0.5, 1": "evidence mix",
        "PEPRegressor()": "PEPRegressor()",
        "exact GP": "exact GP, Matern 5/2",
        "random forest": "random forest",
        "boosted trees": "boosted trees",
    }
    means = nlpd.dropna(axis=1).mean()
    figure = plotting.figure(6.5, 4.2)
    plotting.alpha_sweep(
        ALPHAS,
        powers.mean(),
        behind.sem() if len(behind) > 1 else None,
        baselines={name: means[rule] for name, rule in lines.items() if rule in means},
        label=f"held-out NLPD, mean over {len(nlpd)} sets (nats a row)",
        ax=figure.subplots(),
    )
    return figure


def _score_table(rows: pd.DataFrame, wide: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """A line for each rule: means over sets, and how it does beside the reference."""
    nlpd = wide["nlpd"].drop(columns=HINDSIGHT, errors="ignore").dropna(axis=1)
    reference = next(rule for rule in (*REFERENCES, *DEFAULTS) if rule in wide["nlpd"])
    behind = _differences(rows, reference)
    scores = pd.DataFrame(
        {
            "sets": behind.count(),
            "NLPD": wide["nlpd"].mean(),
            f"less {reference.split()[-1]}": behind.mean(),
            "+-": behind.sem(),
            "better on": (behind < 0.0).sum(),
            "rank": nlpd.rank(axis=1).mean(),
        },
        index=rows["rule"].unique(),
    )
    for name in (
        column for column in COLUMNS if column not in ("nlpd", "coverage", "width")
    ):
        if name in wide:
            scores[name] = wide[name].mean()
    if "boosted trees" in wide.get("rmse", ()):
        trees = wide["rmse"]["boosted trees"]
        scores["as trees"] = wide["rmse"].le(trees, axis=0).sum()
    if "coverage" in wide:
        scores["|90% - coverage|"] = (wide["coverage"] - 0.9).abs().mean()
        scores["width"] = wide["width"].mean()
    return scores


def _range_of_splits(splits: pd.Series) -> str:
    """Write how many splits the data sets have, such as "3 splits"."""
    least = splits.min()
    most = splits.max()
    if least < most:
        return f"{least} to {most} splits"
    return "1 split" if most == 1 else f"{most} splits"


def summarise(table: pd.DataFrame, out: Path) -> None:
    """Print and write, for each kind of task, how each rule does beside the reference."""
    parts = []
    # The estimators with nothing set ran in cells of their own, on the same splits.
    own = table["experiment"] == "defaults"
    tasks = (
        table[~own & (table["experiment"] != "points")]
        .groupby("data")["experiment"]
        .first()
    )
    table = table.assign(
        experiment=table["experiment"].where(~own, table["data"].map(tasks))
    )
    for task, every in _with_hindsight(table).groupby("experiment", sort=False):
        # Means over sets are of the splits on which all rules ran.
        ran = every.groupby(["data", "split"])["rule"].transform("nunique")
        rows = every[ran == ran.groupby(every["data"]).transform("max")]
        wide = {
            name: rows.pivot_table(
                index="data", columns="rule", values=name, sort=False
            )
            for name in COLUMNS
            if name in rows and rows[name].notna().any()
        }
        sizes = rows.groupby("data", sort=False)["N"].first()
        splits = rows.groupby("data")["split"].nunique()
        defaults = [rule for rule in DEFAULTS if rule in wide["nlpd"]]
        parts.append(
            f"{task}: {len(sizes)} sets of {sizes.min()} to {sizes.max()} rows,"
            f" {_range_of_splits(splits)}; means over sets\n"
            f"{_score_table(rows, wide).round(3).to_string(na_rep='')}\n\n"
            + "".join(f"{_beside(every, rule)}\n\n" for rule in defaults)
            + f"NLPD of each set\n{wide['nlpd'].T.round(3).to_string(na_rep='')}\n"
        )
        if task == "regression":
            _draw(wide["nlpd"]).savefig(out / "study.png", dpi=110)
    text = "\n".join(parts)
    print(text)
    (out / "study.txt").write_text(text, encoding="utf-8")
