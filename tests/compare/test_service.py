"""A model in service: its scores on new rows, columns that moved, and its version."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from compare.small_comparison import Run, real, run
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import norm

from gpflow_pep.compare import read_table
from gpflow_pep.compare.losses import METRICS
from gpflow_pep.compare.predicting import prepared
from gpflow_pep.compare.scores import scores
from gpflow_pep.compare.service import (
    Score,
    moved_columns,
    promised_scores,
    scores_of_rows,
    sentence,
    verdicts,
)
from gpflow_pep.compare.service import _known_labels as known_labels
from gpflow_pep.scoring import load_scorer, version_of
from gpflow_pep.tables import Format, TableEncoder

Z95 = norm.ppf(0.95)


def of_numbers(rng: np.random.Generator, count: int, noise: float = 1.0) -> Any:
    """Predictions of standard deviation 1, and targets of another noise."""
    mean = rng.standard_normal(count)
    true = mean + noise * rng.standard_normal(count)
    columns = {"true": true, "mean": mean, "log_density": norm.logpdf(true, mean)}
    columns |= {"lower_90": mean - Z95, "upper_90": mean + Z95}
    return pd.DataFrame(columns)


def of_classes(rng: np.random.Generator, count: int) -> Any:
    probability = rng.uniform(0.2, 0.8, count)
    is_b = rng.random(count) < probability
    true = np.where(is_b, "b", "a")
    predicted = np.where(probability > 0.5, "b", "a")
    density = np.log(np.where(is_b, probability, 1.0 - probability))
    table = pd.DataFrame({"true": true, "predicted": predicted})
    return table.assign(
        **{"p(a)": 1.0 - probability, "p(b)": probability}, log_density=density
    )


@pytest.mark.parametrize("make", [of_numbers, of_classes])
def test_scores_of_rows_are_those_of_the_report(
    rng: np.random.Generator, make: Any
) -> None:
    """And their errors are those of a mean of rows; of a root by its derivative."""
    table = make(rng, 400)
    found = scores_of_rows(table)
    expected = scores(table)
    left_out = ("auc", "ece", "mape")  # no means over rows, or of forecasts alone
    assert [*found] == [name for name in expected if name not in left_out]
    for name, score in found.items():
        assert_allclose(score.value, expected[name])
        assert score.rows == 400
    assert_allclose(found["nlpd"].error, table["log_density"].sem())
    if make is of_numbers:
        squares = (table["true"] - table["mean"]) ** 2
        assert_allclose(found["mae"].error, np.sqrt(squares).sem())
        step = 1e-6
        root = (np.sqrt(squares.mean() + step) - np.sqrt(squares.mean())) / step
        assert_allclose(found["rmse"].error, root * squares.sem(), rtol=1e-5)
    else:
        wrong = table["true"] != table["predicted"]
        assert_allclose(found["error"].error, wrong.astype(float).sem(), rtol=0.01)


def test_scores_of_parts_are_means_over_parts(rng: np.random.Generator) -> None:
    parts = [of_numbers(rng, 10), of_numbers(rng, 30, noise=2.0)]
    table = pd.concat(part.assign(part=number) for number, part in enumerate(parts))
    found = scores_of_rows(table)
    for name, score in found.items():
        assert_allclose(score.value, np.mean([scores(part)[name] for part in parts]))
    (promised,) = promised_scores(table, ["y"])
    assert json.loads(json.dumps(promised)) == promised
    assert promised["scores"]["rmse"] == list(found["rmse"])


def test_a_row_of_density_zero_is_worse_than_promised(
    rng: np.random.Generator,
) -> None:
    """Its error is not known, and no difference would be clear."""
    table = of_numbers(rng, 50)
    promised = scores_of_rows(table)
    table.loc[3, "log_density"] = -np.inf
    words = {
        v.metric.name: v.word
        for v in verdicts("numbers", scores_of_rows(table), promised)
    }
    assert words["nlpd"] == "worse" and words["mae"] == "as promised"


SURE = Score(0.5, 0.01, 1000)
COVERAGE = Score(0.85, 0.01, 1000)


@pytest.mark.parametrize(
    "name, found, promised, word",
    [
        ("nlpd", Score(0.52, 0.01, 1000), SURE, "as promised"),
        ("nlpd", Score(0.55, 0.01, 1000), SURE, "worse"),
        ("nlpd", Score(0.45, 0.01, 1000), SURE, "better"),
        ("nlpd", Score(0.55, 0.01, 2), SURE, "as promised"),
        ("nlpd", Score(9.0, np.nan, 1), SURE, "as promised"),
        ("rmse", Score(0.0, 0.0, 9), Score(0.0, 0.0, 9), "as promised"),
        ("rmse", Score(0.1, 0.0, 9), Score(0.0, 0.0, 9), "worse"),
        ("coverage", Score(0.9, 0.01, 1000), COVERAGE, "better"),
        ("coverage", Score(0.8, 0.01, 1000), COVERAGE, "worse"),
        ("coverage", Score(0.99, 0.01, 1000), COVERAGE, "worse"),
        ("coverage", Score(0.86, 0.01, 1000), COVERAGE, "as promised"),
    ],
)
def test_verdicts(name: str, found: Score, promised: Score, word: str) -> None:
    (verdict,) = verdicts("numbers", {name: found}, {name: promised})
    assert verdict.word == word
    words = {"worse": "Worse", "better": "Better", "as promised": "As promised"}
    begin = words[word] if np.isfinite(found.error) else "Too few rows"
    assert sentence([verdict]).startswith(begin)
    if word == "worse":
        heading = next(m.heading for m in METRICS["numbers"] if m.name == name)
        assert f"more than noise: {heading} " in sentence([verdict])


def test_noise_alone_is_as_promised(rng: np.random.Generator) -> None:
    """Of 200 tables like the held-out rows at most 2% are expected to be worse."""

    def is_worse(noise: float) -> bool:
        promised = scores_of_rows(of_numbers(rng, 200))
        found = scores_of_rows(of_numbers(rng, 60, noise))
        return sentence(verdicts("numbers", found, promised)).startswith("Worse")

    assert sum(is_worse(1.0) for _ in range(200)) <= 9  # by chance in 1% of cases
    assert sum(is_worse(2.0) for _ in range(20)) >= 19


def test_labels_are_matched_with_classes() -> None:
    cells = ["Ham", " spam ", None, "NO SPAM", "ham", "", "unknown"]
    table = pd.DataFrame({"mail": cells})
    classes = ["ham", "spam", "no  spam", "unknown"]
    assert_array_equal(known_labels(table, "mail", classes), [0, 1, -1, 2, 0, -1, 3])
    assert_array_equal(known_labels(table, "other", classes), [-1] * 7)
    with pytest.raises(ValueError, match=r"column 'mail': got 'NO SPAM', 'unknown' in"):
        known_labels(table, "mail", ["ham", "spam"])
    two = known_labels(pd.DataFrame({"x": ["a", "A"]}), "x", ["a", "A"])
    assert_array_equal(two, [0, 1])
    numbers = pd.DataFrame({"x": [1.0, 0.0, np.nan]})
    assert_array_equal(known_labels(numbers, "x", ["0", "1"]), [1, 0, -1])


def write_new(folder: Path, table: pd.DataFrame) -> Path:
    path = folder / "new.csv"
    table.to_csv(path, index=False)
    return path


def test_new_rows_are_scored_beside_the_report(from_csv: Run, tmp_path: Path) -> None:
    """By model and scorer alike; the promised scores are those of metrics.csv."""
    table = read_table(from_csv.data)
    new = write_new(tmp_path, table.assign(load=table["load"] + 500.0))
    found = [run("score", from_csv.out / name, new) for name in ("model", "scorer")]
    assert [result.exit_code for result in found] == [0, 0], found[0].output
    printed = found[0].stdout
    assert printed.partition("\n")[2] == found[1].stdout.partition("\n")[2]
    metrics = pd.read_csv(from_csv.out / "metrics.csv", index_col="model")
    for metric in METRICS["numbers"]:
        promised = format(metrics.loc["default", metric.name], metric.form)
        here = r"\S+ ± \S+"
        worse = r" +worse" if metric.name != "coverage" else ""
        line = rf"{re.escape(metric.heading)} +{here} +{promised} ± \S+{worse}"
        assert re.search(line, printed), (line, printed)
    run("predict", from_csv.out / "scorer", new, "--out", tmp_path / "p.csv")
    mean = pd.read_csv(tmp_path / "p.csv")["mean"]
    error = np.mean(np.abs(read_table(new)["load"] - mean))
    assert f"{error:.4g} ± " in printed
    assert "\nWorse than promised by more than noise: NLPD " in printed
    assert "Scores of 'load' in 40 rows" in printed


def test_columns_that_moved(from_csv: Run, tmp_path: Path) -> None:
    table = read_table(from_csv.data).drop(columns="load")
    still = run("score", from_csv.out / "scorer", write_new(tmp_path, table)).stdout
    assert "No scores: DATA has no values of the target 'load'." in still
    assert "0 of 2 columns moved. 0 of 40 rows have unusual cells" in still
    before = table["time"].mean()
    deviation = table["time"].std(ddof=0)
    table["time"] += 3.0 * deviation
    table.loc[5:8, "kind"], table.loc[9, "kind"] = "riesig", "winzig"
    result = run("score", from_csv.out / "scorer", write_new(tmp_path, table))
    lines = result.stdout.splitlines()
    (time,) = (line.split() for line in lines if line.startswith("time "))
    assert time[1:4] == [f"{before:.4g}", f"{before + 3 * deviation:.4g}", "+3.00"]
    (kind,) = (line for line in lines if line.startswith("kind "))
    assert kind.split(maxsplit=2)[1:] == [
        "12.5%",
        kind[kind.index("'riesig' is new (4)") :],
    ]
    assert "'riesig' is new (4), 'winzig' is new (1)" in kind
    assert lines[-1].startswith("2 of 2 columns moved. ")


def test_means_of_few_rows_do_not_move(rng: np.random.Generator) -> None:
    """A shift is more than noise, and not small; dates are shown as dates."""
    rows = pd.DataFrame({"x": rng.standard_normal(400), "day": range(400)})
    rows["day"] = pd.Timestamp("2024-01-01") + pd.to_timedelta(rows["day"], "D")
    encoder = TableEncoder({"x": Format("number"), "day": Format("date")}).fit(rows)

    class Model:
        steps = (("prepare", encoder), ("model", None))
        feature_names_in_ = np.array(["x", "day"])

        def __getitem__(self, _: slice) -> TableEncoder:
            return encoder

    def moved(table: pd.DataFrame) -> dict[str, float]:
        found = moved_columns(prepared(Model(), table))
        return {column.name: column.shift for column in found}

    assert moved(rows) == {} == moved(rows.assign(x=rows["x"] + 0.19))
    assert [*moved(rows.assign(x=rows["x"] + 0.25))] == ["x"]
    few = rows.iloc[195:200]
    steps = np.array([0.5, -0.5, 0.9, 1.1, 1.0])
    noise = few.assign(x=rows["x"].mean() + steps)
    assert "x" not in moved(noise)  # 0.6 deviations, of error 0.45
    later = rows.assign(day=rows["day"] + pd.Timedelta(days=200))
    deviation = np.std(np.arange(400.0))
    assert_allclose(moved(later)["day"], 200.0 / deviation)
    # In a forecast they always move.
    ready = prepared(Model(), later)
    assert moved_columns(ready)[0].unusual and not moved_columns(ready, "day")
    table = of_numbers(rng, 40)
    promised = [promised_scores(table, ["y"], name)[0] for name in ("day", None)]
    assert promised[0].pop("time_column") == "day" and promised[0] == promised[1]


@pytest.mark.near_copies("two*")
@pytest.mark.parametrize("kind", ["two classes", "two targets", "limits"])
def test_other_targets_are_scored(kind: str, tmp_path: Path) -> None:
    comparison = real(kind)
    out = comparison.out
    table = comparison.table
    result = run("score", out / "model", write_new(tmp_path, table))
    assert result.exit_code == 0, result.output
    for name in comparison.targets:
        rows = table[name].notna() & ~table[name].astype(str).str.startswith("<")
        assert f"Scores of '{name}' in {rows.sum()} rows" in result.stdout
    (line, *_) = re.findall(r"NLPD +(\S+) ± \S+ +(\S+) ± ", result.stdout)
    assert np.isfinite(np.array(line, dtype=float)).all()
    if kind == "two classes":
        scorer = load_scorer(out / "scorer")
        probability = scorer.predict_proba(table.drop(columns="mail"))
        places = [list(scorer.classes_).index(label) for label in table["mail"]]
        expected = -np.mean(np.log(probability[np.arange(len(table)), places]))
        assert line[0] == f"{expected:.3f}"
        foreign = write_new(tmp_path, table.assign(mail="eggs"))
        result = run("score", out / "scorer", foreign)
        assert result.exit_code == 2
        assert "expected the classes 'ham', 'spam'" in result.stderr


def test_a_model_without_a_report_has_columns_that_moved(
    from_csv: Run, tmp_path: Path
) -> None:
    from gpflow_pep.estimators import export_numpy, load_estimator

    export_numpy(tmp_path / "scorer", load_estimator(from_csv.out / "model"))
    result = run("score", tmp_path / "scorer", from_csv.data)
    assert result.exit_code == 0, result.output
    assert "The model was saved without the scores of a report" in result.stdout
    assert "0 of 2 columns moved." in result.stdout


def test_promised_scores_are_part_of_the_digest(from_csv: Run, tmp_path: Path) -> None:
    folder = shutil.copytree(from_csv.out / "scorer", tmp_path / "scorer")
    content = json.loads((folder / "scorer.json").read_text())
    content["promised"][0]["scores"]["nlpd"][0] += 1.0
    (folder / "scorer.json").write_text(json.dumps(content))
    result = run("score", folder, from_csv.data)
    assert result.exit_code == 2 and "was changed" in result.stderr


def test_predictions_with_the_version_of_their_model(
    from_csv: Run, tmp_path: Path
) -> None:
    folder = from_csv.out / "scorer"
    out = tmp_path / "p.csv"
    description = json.loads((folder / "scorer.json").read_text())
    version = version_of(folder)
    assert re.fullmatch(r"\d+\.\d+\.\d+\w*\+[0-9a-f]{12}", version)
    assert description["digest"].startswith(version.partition("+")[2])
    assert version.startswith(description["versions"]["gpflow_pep"])
    assert version != version_of(from_csv.out / "model")
    arguments = ["predict", folder, from_csv.data, "--out", out]
    run(*arguments)
    plain = out.read_text()
    run(*arguments, "--with-version")
    assert out.read_text() == f"# model {version}\n{plain}"
    assert [*read_table(out)] == plain.partition("\n")[0].split(",")


#: Calls of the command line, one after another, if packages are not installed.
WITHOUT = """
import json
import sys
for name in ("tensorflow", "gpflow", "check_shapes"):
    sys.modules[name] = None
from gpflow_pep.compare.cli import main
for arguments in json.loads(sys.argv[1]):
    sys.argv[1:] = arguments
    try:
        main()
    except SystemExit as ended:
        loaded = "sklearn" in sys.modules
        print("", f"exit code {ended.code} {loaded}", sep="\\n", file=sys.stderr)
"""


def test_without_tensorflow(from_csv: Run, tmp_path: Path) -> None:
    """A scorer scores, without scikit-learn too; what needs TensorFlow says so."""
    alone = tmp_path / "alone" / "model"
    model = tmp_path / "out" / "model"
    scorer = tmp_path / "out" / "scorer"
    for folder in (alone, model):
        shutil.copytree(from_csv.out / "model", folder)
    shutil.copytree(from_csv.out / "scorer", scorer)
    out = ["--out", tmp_path / "p.csv"]
    calls: list[list[Any]] = [
        ["score", scorer, from_csv.data],
        ["compare", from_csv.data, "--target", "load", "--out", tmp_path / "out2"],
        ["predict", alone, from_csv.data, *out],
        ["predict", model, from_csv.data, *out],
        ["score", alone, from_csv.data],
        ["score", model, from_csv.data],
    ]
    argument = json.dumps([[*map(str, call)] for call in calls])
    process = [sys.executable, "-c", WITHOUT, argument]
    ended = subprocess.run(process, capture_output=True, text=True)
    assert "Traceback" not in ended.stderr and ended.returncode == 0
    assert "promised" in ended.stdout
    of_score, texts = ended.stderr.split("\nexit code 0 False\n")
    *texts, rest = re.split(r"\nexit code 2 \w+\n", texts)
    assert len(texts) == len(calls) - 1 and not of_score + rest
    for call, text in zip(calls[1:], texts):
        text = text.splitlines()[-1]
        if model not in call:
            assert "TensorFlow" in text and text.endswith(" as its README describes.")
            continue
        assert f"Or use the folder {scorer}, which does not need them: " in text
        words = text.partition(f"gpflow-pep {call[0]} ")[2].split()
        assert words == [str(scorer), *map(str, call[2:])]
        assert run(call[0], *words).exit_code == 0


@pytest.mark.parametrize("command", ["predict", "score"])
def test_a_folder_above_or_below_a_model(
    from_csv: Run, tmp_path: Path, command: str
) -> None:
    (inner := tmp_path / "model" / "inner").mkdir(parents=True)
    (tmp_path / "model" / "model.json").touch()
    options = ["--out", tmp_path / "p.csv"] if command == "predict" else []
    for folder, meant in (
        (from_csv.out, f"{from_csv.out / 'model'} or {from_csv.out / 'scorer'}"),
        (inner, str(tmp_path / "model")),
        (inner / "deeper", str(tmp_path / "model")),
        (tmp_path, str(tmp_path / "model")),
        (tmp_path / "modle" / "innr", str(tmp_path / "model")),
    ):
        result = run(command, folder, from_csv.data, *options)
        assert result.exit_code == 2
        assert f"Did you mean {meant}?" in result.stderr
    with pytest.raises(ValueError, match=r"Did you mean .*out/scorer\?"):
        load_scorer(from_csv.out)
