"""What the scores of fits come to."""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from compare.small_comparison import small_table
from numpy.testing import assert_allclose
from rich.console import Console
from scipy import stats

from gpflow_pep.compare import Comparison, Fit, Settings, clean, summarise
from gpflow_pep.compare.run import best_of
from gpflow_pep.compare.summary import difference, verdict, warnings_of
from gpflow_pep.compare.terminal import cells, score_table

PARTS = np.repeat([1, 2, 3, 4], 10)


def made(nlpd: dict[str, Any], **changes: Any) -> Comparison:
    """A comparison whose fits have the scores given for each part."""
    rng = np.random.default_rng(0)
    powers = {name: float(name.split()[-1]) if "alpha" in name else np.nan for name in nlpd}
    comparison = Comparison(clean(small_table(), "load"), Settings(folds=4), powers)
    for name, scores in nlpd.items():
        rows = np.concatenate([score + centred(rng) for score in scores])
        part = PARTS[: len(rows)]
        comparison.held_out[name] = pd.DataFrame({"part": part, "log_density": -rows})
        for number, score in enumerate(scores, start=1):
            values = {"nlpd": score, "rmse": 2.0 * score, "coverage": 0.9}
            fit = Fit(name, number, values, 1.0, 0.5, 7, True, "")
            comparison.fits.append(fit._replace(**changes.get(name, {})))
    return replace(comparison, best=best_of(comparison))


def centred(rng: np.random.Generator) -> np.ndarray:
    values = rng.standard_normal(10)
    return values - values.mean()


def test_differences_of_folds_that_share_rows() -> None:
    ours, theirs = np.array([1.0, 1.3, 1.1, 1.6]), np.array([0.9, 1.0, 1.1, 1.1])
    found = difference(made({"alpha 1": ours, "alpha 0": theirs}), "alpha 1", "alpha 0")
    gaps = ours - theirs
    assert_allclose(found.mean, gaps.mean())
    # Nadeau & Bengio: 1 / J + n_test / n_train, with 10 rows held out of 40.
    assert_allclose(found.error, gaps.std(ddof=1) * np.sqrt(1 / 4 + 10 / 30))
    assert_allclose(found.limit, stats.t(3).ppf(0.975))


def test_a_single_part_is_compared_by_rows() -> None:
    comparison = made({"alpha 1": [1.0], "alpha 0": [0.5]})
    found = difference(comparison, "alpha 1", "alpha 0")
    densities = [comparison.held_out[name]["log_density"] for name in ("alpha 0", "alpha 1")]
    rows = densities[0] - densities[1]
    assert_allclose(found.mean, 0.5)
    assert_allclose(found.error, rows.std(ddof=1) / np.sqrt(10))
    assert_allclose(found.limit, 1.96, atol=1e-3)
    assert np.isnan(summarise(comparison)["nlpd_se"]).all()


FAILED = dict.fromkeys(("nlpd", "rmse", "coverage"), np.nan)
NOISY, STEADY = [1.0, 1.4, 0.9, 1.1], [1.02, 1.38, 0.95, 1.09]
WORSE = [2.0, 2.41, 1.92, 2.1]


def test_the_best_and_what_is_within_noise() -> None:
    comparison = made({"mean": WORSE, "alpha 0": STEADY, "alpha 0.5": NOISY, "alpha 1": WORSE})
    table = summarise(comparison)
    assert dict(table["verdict"]) == {
        "mean": "", "alpha 0": "within noise", "alpha 0.5": "best", "alpha 1": "",
    }  # fmt: skip
    assert_allclose(table.loc["alpha 1", "nlpd"], np.mean(WORSE))
    assert_allclose(table.loc["alpha 1", "nlpd_se"], np.std(WORSE, ddof=1) / 2)
    assert_allclose(table.loc["alpha 1", "rmse"], 2 * np.mean(WORSE))
    assert verdict(comparison) == (
        "The lowest NLPD has alpha 0.5, clearly below alpha 1; alpha 0 is within noise of it."
    )
    assert {name: row[0] for name, row in cells(comparison).items()} == {
        "mean": "", "alpha 0": "~", "alpha 0.5": "*", "alpha 1": "",
    }  # fmt: skip


def test_a_baseline_that_is_better_is_named() -> None:
    comparison = made({"mean": WORSE, "exact GP": NOISY, "alpha 0": WORSE, "alpha 1": [9, 8, 9, 8]})
    assert verdict(comparison) == (
        "The lowest NLPD has alpha 0, clearly below alpha 1."
        " Exact GP is clearly better on these rows."
    )


def test_a_model_that_fell_back_to_the_mean_says_so() -> None:
    comparison = made({"mean": WORSE, "alpha 0": [2.0, 2.4, 1.92, 2.1], "alpha 1": NOISY})
    (warning,) = warnings_of(comparison)
    assert warning.startswith("alpha 0: no better than the baseline 'mean' (+0.00")


def test_fits_that_did_not_converge_or_failed_are_named() -> None:
    late = {"converged": False, "message": "The time was over."}
    failed = {"scores": FAILED, "converged": False, "message": "it was too hard"}
    scores = {"mean": WORSE, "alpha 0": NOISY, "alpha 1": STEADY}
    comparison = made(scores, **{"alpha 0": late, "alpha 1": failed})
    assert comparison.best == "alpha 0"
    assert warnings_of(comparison) == [
        "alpha 0: 4 of 4 fits did not converge: The time was over. More minutes may help.",
        "alpha 1: 4 of 4 fits failed: it was too hard",
    ]
    assert cells(comparison)["alpha 0"][-1] == "0 of 4"
    assert cells(comparison)["alpha 1"][-1] == "4 failed"


def test_nothing_is_best_if_all_failed() -> None:
    failed = {"scores": FAILED, "converged": False, "message": "no"}
    comparison = made({"mean": WORSE, "alpha 0": NOISY}, **{"alpha 0": failed})
    assert comparison.best is None
    assert verdict(comparison).startswith("No power could be trained in every part")
    assert list(summarise(comparison)["verdict"]) == ["", ""]


@pytest.mark.parametrize("width", [110])
def test_the_table_fits_a_terminal(width: int) -> None:
    console = Console(width=width, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    comparison = made({"mean": WORSE, "alpha 0.5": NOISY})
    console.print(score_table(comparison))
    text = console.export_text()
    for part in (
        "Target 'load', 1 input, 40 rows",
        "1.100 ± 0.108",
        "90% coverage",
        "over 4 folds",
    ):
        assert part in text
