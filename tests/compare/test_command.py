"""The command itself, nothing replaced: each example, and a small table of each kind of target."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from compare.small_comparison import run
from numpy.testing import assert_allclose

from gpflow_pep.compare.cli import EXAMPLES
from gpflow_pep.estimators import load_estimator

RNG = np.random.default_rng(3)
WIDTH, LENGTH = np.round(RNG.uniform(-2.0, 2.0, (2, 48)), 3)
WAVE = np.sin(WIDTH) + 0.3 * RNG.standard_normal(48)
TARGETS = {
    "number": {"size": 100.0 + 10.0 * WAVE},
    "two classes": {"kind": np.where(WAVE > 0.0, "ham", "spam")},
    "three classes": {"kind": np.array(["low", "mid", "top"])[np.digitize(WAVE, [-0.5, 0.5])]},
    "counts": {"visits": RNG.poisson(np.exp(1.0 + WAVE))},
    "two targets": {"size": WAVE, "weight": 50.0 - 5.0 * WAVE},
}
OPTIONS = ("--folds", 2, "--inducing", 5, "--max-iterations", 3, "--jobs", 1)
#: Beside the default and the powers.
BASELINES = {
    "numbers": ["mean", "linear", "boosted trees", "exact GP"],
    "classes": ["class frequencies", "linear", "boosted trees", "SVGP"],
    "counts": ["mean"],
}
#: The densities of counts need quantiles that NumPy has not.
WITHOUT_SCORER = ("counts", "two targets")


def written_by(out: Path, name: str) -> tuple[pd.DataFrame, list[str]]:
    """Run the command on a table, and give the table and the names of its targets."""
    if name in EXAMPLES:
        table, target = EXAMPLES[name]()
        result, targets = run("compare", "--example", name, *OPTIONS, "--out", out), [target]
    else:
        columns = TARGETS[name]
        table = pd.DataFrame({"width": WIDTH, "length": LENGTH} | columns)
        table.to_csv(out.parent / "table.csv", index=False)
        named = [part for target in columns for part in ("--target", target)]
        likelihood = ["--likelihood", "poisson"] * (name == "counts")
        arguments = [out.parent / "table.csv", *named, *likelihood, *OPTIONS, "--out", out]
        result, targets = run("compare", *arguments), list(columns)
    assert result.exit_code == 0, result.output
    reason = "No folder scorer, for predictions without TensorFlow: "
    for words in (result.output, (out / "report.html").read_text()):
        assert (reason in words) == (name in WITHOUT_SCORER)
    return table, targets


def test_examples_have_their_target() -> None:
    for make in EXAMPLES.values():
        table, target = make()
        assert target in table and table.shape[0] > 100 and table.notna().all(axis=None)


@pytest.mark.near_copies("chirp", "wine", "two classes", "counts", "two targets")
@pytest.mark.parametrize("name", [*EXAMPLES, *TARGETS])
def test_from_a_table_to_predictions(tmp_path: Path, name: str) -> None:
    out = tmp_path / "out"
    table, targets = written_by(out, name)
    has_classes = "predicted" in pd.read_csv(out / "predictions.csv")
    scores = pd.read_csv(out / "folds.csv").set_index("model")
    kind = "classes" if has_classes else "counts" if name == "counts" else "numbers"
    assert {*BASELINES[kind], "default", "alpha 0", "alpha 0.5", "alpha 1"} <= {*scores.index}
    assert np.isfinite(scores[["nlpd", "seconds"]]).all(axis=None)
    assert pd.read_csv(out / "metrics.csv")["nlpd"].notna().all()
    assert (out / "report.html").stat().st_size > 10_000

    rows = table.drop(columns=targets).iloc[:2]
    rows.to_csv(tmp_path / "new.csv", index=False)
    predicted = load_estimator(out / "model").predict(rows)
    assert (out / "scorer").exists() == (name not in WITHOUT_SCORER)
    for model in ("model", "scorer") if (out / "scorer").exists() else ("model",):
        result = run("predict", out / model, tmp_path / "new.csv", "--out", tmp_path / "p.csv")
        assert result.exit_code == 0, result.output
        found = pd.read_csv(tmp_path / "p.csv").filter(regex="^(predicted|mean)")
        if has_classes:
            assert list(found["predicted"]) == list(predicted)
        else:
            assert_allclose(found.to_numpy().reshape(predicted.shape), predicted, rtol=1e-8)
