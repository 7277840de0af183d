"""Small comparisons that several test modules look at; each is trained once."""

import inspect
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from click.testing import CliRunner, Result

from gpflow_pep.compare import Comparison, Progress, cli, compare

ALPHAS = (1.0, 0.0)
PROGRESS: list[Progress] = []
OPTIONS: dict[str, Any] = {"num_inducing": 6, "max_iterations": 15, "seed": 2}


def small_table() -> pd.DataFrame:
    rng = np.random.default_rng(1)
    time = np.round(rng.uniform(100.0, 106.0, size=40), 3)
    load = 2000.0 + 300.0 * np.sin(time) + 30.0 * rng.normal(size=40)
    return pd.DataFrame({"load": np.round(load, 3), "time": time})


def run(*arguments: Any) -> Result:
    """The command line, in this process; with stderr apart, as click does from 8.2."""
    mixing = "mix_stderr" in inspect.signature(CliRunner).parameters
    runner = CliRunner(**({"mix_stderr": False} if mixing else {}))
    return runner.invoke(cli.main, [str(argument) for argument in arguments])


@cache
def small_comparison() -> Comparison:
    """Two folds, the default, two powers and all baselines."""
    return compare(
        small_table(), "load", alphas=ALPHAS, folds=2, callback=PROGRESS.append, **OPTIONS
    )


CLASSES = ("ham", "spam")


def small_classes() -> pd.DataFrame:
    rng = np.random.default_rng(4)
    X = rng.uniform(0.0, 50.0, size=(45, 2))
    latent = np.sin(X[:, 0] / 15.0) + 0.2 * rng.normal(size=45)
    numbers = np.digitize(latent, np.quantile(latent, [0.4]))
    return pd.DataFrame(X, columns=["length", "width"]).assign(mail=np.array(CLASSES)[numbers])


@cache
def small_classification() -> Comparison:
    """One split of two classes, the default, one power and SVGP."""
    options = {"num_inducing": 5, "max_iterations": 6, "seed": 1}
    return compare(small_classes(), "mail", alphas=(0.5,), splits=1, **options)


class FromCsv(NamedTuple):
    """What the command was given, and gave."""

    data: Path
    out: Path
    result: Result


def write_messy(path: Path) -> Path:
    """The small table as people write them: semicolons, decimal commas, Latin letters, an index
    without a name, gaps, and a column that is constant.
    """
    table = small_table().assign(site="Zürich", kind=["größer", "kleiner"] * 20)
    table.loc[3, "time"] = np.nan
    table.to_csv(path, sep=";", decimal=",", encoding="latin-1")
    return path


@cache
def run_from_csv(folder: Path) -> FromCsv:
    data, out = write_messy(folder / "data.csv"), folder / "new" / "out"
    result = run(
        "compare", data, "--target", "load", "--alphas", "0.5", "--inducing", 6, "--splits", 1,
        "--max-iterations", 15, "--seed", 2, "--no-baselines", "--saved-model",
        "--jobs", 1, "--out", out,
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    return FromCsv(data, out, result)
