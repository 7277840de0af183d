"""The command line: what it writes, says and returns."""

import io
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from compare.small_comparison import (
    CLASSES,
    FromCsv,
    run,
    small_classes,
    small_classification,
    small_comparison,
    write_small,
)
from numpy.testing import assert_allclose, assert_array_equal
from rich.console import Console

import gpflow_pep
import gpflow_pep.compare.run
from gpflow_pep import plotting
from gpflow_pep.compare import Comparison, Progress, cli, report
from gpflow_pep.compare.saving import load_model


def replace_compare(monkeypatch: pytest.MonkeyPatch, compare: Callable[..., Comparison]) -> None:
    monkeypatch.setattr(gpflow_pep.compare.run, "compare", compare)


def leave_out_the_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests of what comes before it; those of the files themselves write it."""
    monkeypatch.setattr(report, "write_report", lambda *_, **__: [])


def leave_out_the_saved_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "export_saved_model", lambda *_: None)


def test_compare_from_csv_to_trained_model(from_csv: FromCsv) -> None:
    data, out, comparison, result = from_csv
    assert "dropped the constant column(s) site" in result.stderr
    assert "Traceback" not in result.stderr

    expected = small_comparison()
    fit = next(fit for fit in expected.results if fit.alpha == 0.5)
    # The same seed, the same result.
    assert comparison.results[0]._replace(seconds=0.0) == fit._replace(seconds=0.0)
    metrics = pd.read_csv(out / "metrics.csv")
    assert list(metrics["alpha"]) == [0.5]
    assert list(metrics["best"]) == [True]
    for field in ("log_z", "smse", "smll", "coverage"):
        value = {"log_z": fit.log_z, **fit.scores}[field]
        assert_allclose(metrics[field], [value], rtol=1e-9)
    assert f"{fit.scores['smll']:.4f}" in result.stdout

    predictions = pd.read_csv(out / "predictions.csv")
    table = pd.read_csv(data)
    assert_array_equal(predictions["true"], table["load"][predictions["row"]])
    mean, variance = load_model(out / "model").predict(table[["time"]].loc[predictions["row"]])
    assert_allclose(predictions["mean"], mean[:, 0], rtol=1e-10)
    assert_allclose(predictions["sd"], np.sqrt(variance[:, 0]), rtol=1e-10)
    assert_allclose(
        predictions["upper_90"] - predictions["lower_90"], 2 * 1.6448536 * predictions["sd"], 1e-7
    )

    named = {Path(line.strip()) for line in result.stdout.split("Wrote\n")[1].splitlines()}
    assert named == {
        out / name
        for name in (
            "metrics.csv", "predictions.csv", "metrics.png", "predictions.png", "fit.png",
            "model", "saved_model",
        )
    }  # fmt: skip
    assert all(path.exists() for path in named)


@pytest.mark.slow  # `make demo` goes the same way
def test_classification_from_csv_to_trained_model(tmp_path: Path) -> None:
    dataset, out = small_classes(3), tmp_path / "out"
    table = pd.DataFrame(dataset.X, columns=dataset.feature_names)
    table["mail"] = np.array(CLASSES)[dataset.Y[:, 0].astype(int)]
    table.to_csv(tmp_path / "data.csv", index=False)
    result = run(
        "compare", tmp_path / "data.csv", "--target", "mail", "--alphas", "0.5", "--inducing", 5,
        "--max-iterations", 6, "--seed", 1, "--out", out,
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "Task: classification of 3 classes, to judge by 'mail'" in result.stderr
    assert "Target 'mail' (3 classes), 2 inputs" in result.stdout

    (expected,) = small_classification(3).results
    metrics = pd.read_csv(out / "metrics.csv")
    for field in ("error_rate", "nlpd", "ece"):
        assert_allclose(metrics[field], [expected.scores[field]], rtol=1e-9)
    predictions = pd.read_csv(out / "predictions.csv")
    assert_array_equal(predictions["true"], table["mail"][predictions["row"]])
    fitted = load_model(out / "model")
    probability = fitted.predict(dataset.X[predictions["row"]]).probability
    columns = [f"p({name})" for name in CLASSES]
    assert_allclose(predictions[columns], probability, rtol=1e-10)
    saved = tf.saved_model.load(str(out / "saved_model"))
    served = saved.predict_y(tf.constant(dataset.X[predictions["row"]]))
    assert_allclose(served.probability, probability, rtol=1e-9)
    assert {path.name for path in out.iterdir()} == {
        "metrics.csv", "predictions.csv", "metrics.png", "reliability.png", "model", "saved_model",
    }  # fmt: skip


@pytest.mark.slow  # `make demo` calls them too
@pytest.mark.parametrize("example, target", [("breast-cancer", "diagnosis"), ("wine", "cultivar")])
def test_examples_of_classes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, example: str, target: str
) -> None:
    seen = []
    leave_out_the_report(monkeypatch)
    replace_compare(
        monkeypatch, lambda dataset, **_: seen.append(dataset) or small_classification(2)
    )
    result = run("compare", "--example", example, "--out", tmp_path)
    assert result.exit_code == 0, result.output
    assert seen[0].target_name == target and len(seen[0].classes) >= 2
    assert "Task:" not in result.stderr


def test_the_task_that_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Grades: whole numbers, that may be either."""
    rows = "".join(f"{i},{i % 3}\n" for i in range(12))
    (tmp_path / "data.csv").write_text("x,grade\n" + rows)
    seen = []
    leave_out_the_report(monkeypatch)
    replace_compare(monkeypatch, lambda dataset, **_: seen.append(dataset) or small_comparison())
    arguments = ("compare", tmp_path / "data.csv", "--target", "grade", "--out", tmp_path / "out")
    result = run(*arguments, "--task", "regression")
    assert result.exit_code == 0, result.output
    assert "Task:" not in result.stderr
    assert "or --task regression" in run(*arguments).stderr
    assert [dataset.classes for dataset in seen] == [(), ("0", "1", "2")]


def test_diabetes_without_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = {}

    def record(dataset: Any, **options: Any) -> Comparison:
        seen.update(options, dataset=dataset)
        return small_comparison()

    leave_out_the_report(monkeypatch)
    replace_compare(monkeypatch, record)
    result = run("compare", "--out", tmp_path)
    assert result.exit_code == 0, result.output
    assert seen["dataset"].target_name == "progression"
    assert seen["alphas"] == (0.0, 0.5, 1.0)
    best = small_comparison().best
    assert best is not None
    (marked,) = [line for line in result.stdout.splitlines() if "*" in line and "│" in line]
    assert f"{best.scores['smll']:.4f}" in marked
    for fit in small_comparison().results:
        warned = f"the fit at alpha {fit.alpha:g} did not converge in" in result.stderr
        assert warned is not fit.converged


def with_failures(count: int) -> Comparison:
    comparison = small_comparison()
    results = tuple(
        fit._replace(
            scores=dict.fromkeys(fit.scores, np.nan), converged=False, message="it was too hard"
        )
        if i < count
        else fit
        for i, fit in enumerate(comparison.results)
    )
    models = {fit.alpha: comparison.models[fit.alpha] for fit in results if not fit.failed}
    return Comparison(comparison.dataset, comparison.split, results, models)


@pytest.mark.parametrize("count", [1, 3])
def test_exit_code_1_if_a_fit_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    leave_out_the_saved_model(monkeypatch)
    monkeypatch.setattr(report, "figures_of", lambda comparison: {})
    replace_compare(monkeypatch, lambda *_, **__: with_failures(count))
    result = run("compare", "--out", tmp_path)
    assert result.exit_code == 1
    assert "Error: the fit at alpha 1 failed: it was too hard" in result.stderr
    assert result.stderr.count("Error:") == count
    assert result.stdout.count("failed") == count
    assert (tmp_path / "metrics.csv").exists()
    # Without any usable fit there is no best model to write.
    assert (tmp_path / "model").exists() is (count < 3)


def test_without_matplotlib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    leave_out_the_saved_model(monkeypatch)
    monkeypatch.setattr(plotting.canvas, "find_spec", lambda name: None)
    replace_compare(monkeypatch, lambda *_, **__: small_comparison())
    result = run("compare", "--out", tmp_path)
    assert result.exit_code == 0, result.output
    assert "Warning: matplotlib is not installed" in result.stderr
    assert "gpflow_pep[plots]" in result.stderr
    assert list(tmp_path.glob("*.png")) == []
    assert (tmp_path / "model").exists()


def test_ctrl_c(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: Any, **__: Any) -> Comparison:
        raise KeyboardInterrupt

    replace_compare(monkeypatch, interrupt)
    result = run("compare", "--out", tmp_path)
    assert result.exit_code == 130
    assert result.stderr == "Interrupted; nothing more is written.\n"


def test_folder_that_may_not_be_replaced_costs_no_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace_compare(monkeypatch, lambda *_, **__: pytest.fail("trained"))
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "notes.txt").write_text("mine")
    result = run("compare", "--out", tmp_path)
    assert result.exit_code == 2
    assert "has notes.txt, expected model.json and arrays.npz" in result.stderr
    assert (tmp_path / "model" / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["{data}"], "expected both or neither: name the column"),
        (["--target", "load"], "expected both or neither: name the column"),
        (["{data}", "--target", "price"], "no column 'price', its columns are load, time, site"),
        (["nowhere.csv", "--target", "load"], "nowhere.csv does not exist, expected a CSV file"),
        (["--alphas", "0,half"], "got '0,half', expected numbers separated by commas"),
        (["--alphas", "0,1.5"], "got alphas [0.0, 1.5], expected one or more numbers in [0, 1]"),
        (["--alphas", "1,1"], "expected different ones: name each only once"),
        (["--inducing", "0"], "'--inducing': 0 is not in the range"),
        (["{data}", "--target", "load", "--inducing", "50"], "got 50 inducing points for 32"),
        (["--test-fraction", "1"], "'--test-fraction': 1.0 is not in the range"),
        (["--max-iterations", "0"], "'--max-iterations': 0 is not in the range"),
        (["--out", "{data}"], "is a file"),
        (["--out", "{data}/below"], "cannot make the folder"),
        (["--task", "regression"], "--task regression without DATA, expected none"),
        (["{data}", "--target", "load", "--example", "wine"], "expected one of them"),
        (["--example", "iris"], "'iris' is not one of 'diabetes', 'breast-cancer', 'wine'"),
        (["{data}", "--target", "load", "--task", "classification"], "has 1 row(s), expected at"),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:.*dropped the constant column:UserWarning")
def test_bad_usage_is_one_error_line_and_exit_code_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    data = str(write_small(tmp_path / "data.csv"))
    result = run("compare", *(argument.format(data=data) for argument in arguments))
    assert result.exit_code == 2, result.output
    last = result.stderr.splitlines()[-1]
    assert last.startswith("Error: ")
    assert message in last
    assert result.stderr.count("Error:") == 1
    assert result.stdout == ""


def test_version_and_help() -> None:
    assert run("--version").stdout == f"gpflow-pep, version {gpflow_pep.__version__}\n"
    for arguments in (["--help"], ["compare", "-h"]):
        result = run(*arguments)
        assert result.exit_code == 0
        assert "sparse approximation is right for my data" in result.stdout


PROCESS = """
import os, sys
from gpflow_pep.compare import cli

class Chatter:
    def find_spec(name, path=None, target=None):
        if name == "gpflow":
            os.write(2, b"chatter")

saved_model, data = sys.argv[1:]
print("tensorflow" in sys.modules)
with cli._quiet_tensorflow():
    import tensorflow as tf
del os.environ[cli.LOG_LEVEL]
predictor = tf.saved_model.load(saved_model)
mean, variance = predictor.predict_y(tf.constant([[101.5]], tf.float64))
print(*sorted(name for name in sys.modules if name.startswith("gpflow")))
print(repr(float(mean[0, 0])), repr(float(variance[0, 0])))
sys.meta_path.insert(0, Chatter)
cli.main(["compare", data, "--target", "y"])
"""


def test_in_a_process_of_its_own(tmp_path: Path, exported: str) -> None:
    """
    The help needs no TensorFlow; a SavedModel needs TensorFlow alone; and bad data are one line,
    with nothing of TensorFlow's, nor of what the command imports after it.
    """
    (tmp_path / "data.csv").write_text("x,y\none,1\n")
    environment = {
        name: value for name, value in os.environ.items() if name != "TF_CPP_MIN_LOG_LEVEL"
    }
    run = subprocess.run(
        [sys.executable, "-c", PROCESS, exported, str(tmp_path / "data.csv")],
        capture_output=True, text=True, timeout=120, check=False, env=environment,
        cwd=Path(gpflow_pep.__file__).parents[1],
    )  # fmt: skip
    assert run.returncode == 2, run.stderr
    of_the_help, of_the_model, numbers = run.stdout.splitlines()
    assert of_the_help == "False"
    # Those of the command line, none of which imports TensorFlow.
    assert of_the_model == "gpflow_pep gpflow_pep.compare gpflow_pep.compare.cli"
    expected = small_comparison().models[0.5].predict(np.array([[101.5]]))
    assert_allclose(
        [float(word) for word in numbers.split()],
        [expected.mean[0, 0], expected.variance[0, 0]],
        rtol=1e-11,
    )
    (line,) = run.stderr.splitlines()
    assert line.startswith("Error: ")
    assert "column 'x'" in line


def test_tensorflow_messages_are_shown_if_loading_fails(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(cli.LOG_LEVEL, "")
    monkeypatch.delenv(cli.LOG_LEVEL)
    with cli._quiet_tensorflow():
        os.write(2, b"chatter\n")
    assert os.environ[cli.LOG_LEVEL] == "3"
    assert capfd.readouterr().err == ""

    monkeypatch.delenv(cli.LOG_LEVEL)
    with pytest.raises(ImportError), cli._quiet_tensorflow():
        os.write(2, b"no such library\n")
        raise ImportError
    assert capfd.readouterr().err == "no such library\n"


def test_log_level_of_the_user_is_respected(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(cli.LOG_LEVEL, "1")
    with cli._quiet_tensorflow():
        os.write(2, b"chatter\n")
    assert os.environ[cli.LOG_LEVEL] == "1"
    assert capfd.readouterr().err == "chatter\n"


@pytest.mark.parametrize("terminal", [True, False])
def test_progress(terminal: bool, capsys: pytest.CaptureFixture[str]) -> None:
    file = io.StringIO()
    console = Console(file=file, force_terminal=terminal, width=80)
    result = small_comparison().results[0]._replace(iterations=2, seconds=3.21)
    with cli._progress(console, max_iterations=10) as show:
        show(Progress(0.25, 1, None))
        show(Progress(0.25, 2, None))
        show(Progress(0.25, 2, result))
    written = file.getvalue() if terminal else capsys.readouterr().err
    assert "alpha 0.25" in written
    assert "2 iterations" in written
    assert ("━" in written) is terminal
    if not terminal:
        assert written == "alpha 0.25: 2 iterations, 3.2 s\n"
