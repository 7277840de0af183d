"""Small comparisons that several test modules look at; each is trained once."""

from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner, Result

import gpflow_pep.compare.run
from gpflow_pep.compare import Comparison, Dataset, Progress, cli, compare

ALPHAS = (1.0, 0.0, 0.5)
PROGRESS: list[Progress] = []


def small_dataset() -> Dataset:
    rng = np.random.default_rng(1)
    X = np.round(rng.uniform(100.0, 106.0, size=(40, 1)), 3)
    Y = 2000.0 + 300.0 * np.sin(X) + 30.0 * rng.normal(size=X.shape)
    return Dataset(X, np.round(Y, 3), ("time",), "load")


def write_small(path: Path) -> Path:
    """The small data set as a table, with a column that is constant."""
    dataset = small_dataset()
    table = pd.DataFrame({"load": dataset.Y[:, 0], "time": dataset.X[:, 0], "site": 7})
    table.to_csv(path, index=False)
    return path


def run(*arguments: Any) -> Result:
    """The command line, in this process."""
    return CliRunner().invoke(cli.main, [str(argument) for argument in arguments])


@cache
def small_comparison() -> Comparison:
    return compare(
        small_dataset(),
        alphas=ALPHAS,
        num_inducing=6,
        max_iterations=15,
        seed=2,
        callback=PROGRESS.append,
    )


CLASSES = ("ham", "spam", "toast")


def small_classes(num_classes: int) -> Dataset:
    rng = np.random.default_rng(4)
    X = rng.uniform(0.0, 50.0, size=(45, 2))
    latent = np.sin(X[:, 0] / 15.0) + 0.2 * rng.normal(size=45)
    Y = np.digitize(latent, np.quantile(latent, [0.4, 0.7][: num_classes - 1]))
    return Dataset(X, Y[:, None].astype(float), ("length", "width"), "mail", CLASSES[:num_classes])


@cache
def small_classification(num_classes: int) -> Comparison:
    alphas = (0.0, 1.0) if num_classes == 2 else (0.5,)
    return compare(
        small_classes(num_classes), alphas=alphas, num_inducing=5, max_iterations=6, seed=1
    )


class FromCsv(NamedTuple):
    """What the command was given, made on the way, and gave."""

    data: Path
    out: Path
    comparison: Comparison
    result: Result


@cache
def run_from_csv(folder: Path) -> FromCsv:
    data, out = write_small(folder / "data.csv.gz"), folder / "new" / "out"
    compared: list[Comparison] = []

    def compare_and_keep(dataset: Dataset, **options: Any) -> Comparison:
        compared.append(compare(dataset, **options))
        return compared[0]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gpflow_pep.compare.run, "compare", compare_and_keep)
        result = run(
            "compare", data, "--target", "load", "--alphas", "0.5", "--inducing", 6,
            "--max-iterations", 15, "--seed", 2, "--out", out,
        )  # fmt: skip
    assert result.exit_code == 0, result.output
    return FromCsv(data, out, compared[0], result)
