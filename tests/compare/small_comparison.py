"""Comparisons that test modules look at: of each kind of target one real run of the
command.
"""

import inspect
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner, Result

from gpflow_pep.compare import Comparison, Progress, cli
from gpflow_pep.compare import run as comparing

OPTIONS: dict[str, Any] = {"num_inducing": 6, "max_iterations": 15, "seed": 2}
TARGETS = ["height", "weight"]
FOLDER = TemporaryDirectory(prefix="comparisons")  # until the process ends


def run(*arguments: Any) -> Result:
    """The command line, in this process; with stderr apart, as click does from 8.2."""
    mixing = "mix_stderr" in inspect.signature(CliRunner).parameters
    runner = CliRunner(**({"mix_stderr": False} if mixing else {}))
    return runner.invoke(cli.main, [str(argument) for argument in arguments])


def small_table() -> pd.DataFrame:
    rng = np.random.default_rng(1)
    time = np.round(rng.uniform(100.0, 106.0, size=40), 3)
    load = 2000.0 + 300.0 * np.sin(time) + 30.0 * rng.normal(size=40)
    return pd.DataFrame({"load": np.round(load, 3), "time": time})


def small_classes() -> pd.DataFrame:
    rng = np.random.default_rng(4)
    X = rng.uniform(0.0, 50.0, size=(45, 2))
    latent = np.sin(X[:, 0] / 15.0) + 0.2 * rng.normal(size=45)
    mail = np.where(latent < np.quantile(latent, 0.4), "ham", "spam")
    return pd.DataFrame(X, columns=["length", "width"]).assign(mail=mail)


def waves() -> pd.DataFrame:
    """Targets of three classes, and counts, of one input."""
    rng = np.random.default_rng(3)
    width = np.round(rng.uniform(-2.0, 2.0, 48), 3)
    wave = np.sin(width) + 0.3 * rng.standard_normal(48)
    kind = np.array(["low", "mid", "top"])[np.digitize(wave, [-0.5, 0.5])]
    return pd.DataFrame(
        {"width": width, "kind": kind, "visits": rng.poisson(np.exp(1.0 + wave))}
    )


def two_targets() -> pd.DataFrame:
    """Of which some are missing."""
    rng = np.random.default_rng(0)
    x = np.round(rng.uniform(-2.0, 2.0, 40), 3)
    height = np.sin(2.0 * x) + 0.1 * rng.standard_normal(40)
    weight = 100.0 + 30.0 * height + rng.standard_normal(40)
    weight[rng.random(40) < 0.3] = np.nan
    height[:3], weight[2] = np.nan, np.nan
    return pd.DataFrame({"x": x, "height": height, "weight": weight})


def limits() -> pd.DataFrame:
    """Below 8 and 9 two instruments say no more than that; the column "true" is
    nobody's.
    """
    rng = np.random.default_rng(0)
    x = np.sort(rng.uniform(-2.0, 2.0, 60))
    true = 10.0 + 3.0 * x + 0.3 * rng.standard_normal(60)
    low = np.where(np.arange(60) % 2, 9.0, 8.0)
    cells = [
        f"<{end:g}" if y < end else f"{y:.3f}" for y, end in zip(true, low, strict=True)
    ]
    return pd.DataFrame({"x": x, "y": cells, "true": true, "low": low})


def messy() -> pd.DataFrame:
    """The small table as people write them: an index without a name, gaps, a constant
    column.
    """
    table = small_table().assign(site="Zürich", kind=["größer", "kleiner"] * 20)
    table.loc[3, "time"] = np.nan
    return table


def write_messy(path: Path) -> Path:
    """With semicolons, decimal commas and Latin letters."""
    messy().to_csv(path, sep=";", decimal=",", encoding="latin-1")
    return path


class Kind(NamedTuple):
    table: Callable[[], pd.DataFrame] | None  # or an example
    targets: list[str]
    options: str
    models: list[str]


#: What each has is the least that shows it.
KINDS = {
    "numbers": Kind(
        small_table,
        ["load"],
        "--alphas 1,0 --folds 2 --inducing 6 --max-iterations 15 --seed 2",
        [
            "default",
            "alpha 1",
            "alpha 0",
            "mean",
            "linear",
            "boosted trees",
            "exact GP",
        ],
    ),
    "messy": Kind(
        messy,
        ["load"],
        "--alphas 0.5 --inducing 6 --splits 1 --max-iterations 15 --seed 2"
        " --no-baselines",
        ["default", "alpha 0.5", "mean"],
    ),
    "two classes": Kind(
        small_classes,
        ["mail"],
        "--alphas 0.5 --splits 1 --inducing 5 --max-iterations 6 --seed 1",
        [
            "default",
            "alpha 0.5",
            "class frequencies",
            "linear",
            "boosted trees",
            "SVGP",
        ],
    ),
    "three classes": Kind(
        lambda: waves().drop(columns="visits"),
        ["kind"],
        "--alphas 0.5 --splits 1 --inducing 5 --max-iterations 3 --no-details"
        " --no-baselines",
        ["default", "alpha 0.5", "class frequencies"],
    ),
    "counts": Kind(
        lambda: waves().drop(columns="kind"),
        ["visits"],
        "--likelihood poisson --alphas 0.5 --splits 1 --inducing 5 --max-iterations 3"
        " --no-details",
        ["default", "alpha 0.5", "mean", "log-linear", "boosted trees"],
    ),
    "two targets": Kind(
        two_targets,
        TARGETS,
        "--alphas 0.5 --folds 2 --inducing 5 --max-iterations 12 --no-baselines",
        ["default", "alpha 0.5", "alpha 0.5 (separate)", "mean"],
    ),
    "limits": Kind(
        lambda: limits()[["x", "y"]],
        ["y"],
        "--likelihood tobit --alphas 1 --folds 2 --inducing 6"
        " --max-iterations 25 --no-details --decimal .",
        ["default", "alpha 1", "mean", "linear", "boosted trees"],
    ),
} | {
    name: Kind(
        None,
        [],
        f"--example {name} --alphas 0.5 --splits 1 --inducing 5 --max-iterations 3",
        ["default", "alpha 0.5", "linear", "boosted trees"],
    )
    for name in cli.EXAMPLES
}


class Run(NamedTuple):
    """What the command was given, said, wrote and compared."""

    table: pd.DataFrame
    targets: list[str]
    models: list[str]
    data: Path
    out: Path
    result: Result
    comparison: Comparison
    progress: list[Progress]


@cache
def real(kind: str) -> Run:
    make, targets, options, models = KINDS[kind]
    folder = Path(FOLDER.name, kind)
    progress = []
    compared = []
    folder.mkdir()
    data = folder / "data.csv"
    out = folder / "new" / "out"
    if make is None:
        table, target = cli.EXAMPLES[kind]()
        arguments = []
        targets = [target]
    else:
        table = make()
        arguments = [
            data,
            *(part for target in targets for part in ("--target", target)),
        ]
        table.to_csv(data, index=False) if kind != "messy" else write_messy(data)
    compare_table = comparing.compare_table

    def seen(cleaned: Any, settings: Any, callback: Any) -> Comparison:
        def also(each: Progress) -> None:
            progress.append(each)
            callback(each)

        compared.append(compare_table(cleaned, settings, also))
        return compared[0]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(comparing, "compare_table", seen)
        result = run("compare", *arguments, *options.split(), "--jobs", 1, "--out", out)
    assert result.exit_code == 0, result.output
    return Run(table, targets, models, data, out, result, compared[0], progress)


def small_comparison() -> Comparison:
    """Two folds, the default, two powers and all baselines."""
    return real("numbers").comparison


def small_classification() -> Comparison:
    """One split of two classes, the default, one power and SVGP."""
    return real("two classes").comparison
