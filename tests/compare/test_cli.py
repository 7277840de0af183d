"""The command line: what it writes, says and returns."""

import errno
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock, create_autospec

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from compare.small_comparison import (
    Run,
    run,
    small_comparison,
    small_table,
    write_messy,
)
from numpy.testing import assert_allclose, assert_array_equal
from rich.console import Console

import gpflow_pep
import gpflow_pep.compare.run
from gpflow_pep import plotting
from gpflow_pep.compare import (
    Cleaned,
    Comparison,
    Fit,
    Progress,
    cli,
    page,
    read_table,
    report,
)
from gpflow_pep.compare.findings import _ranking as ranking
from gpflow_pep.compare.folder import FOLDERS, MANIFEST, NAMES, UNFINISHED, list_files
from gpflow_pep.compare.predicting import as_cells
from gpflow_pep.compare.process import LOG_LEVEL, loading_tensorflow
from gpflow_pep.engine.files import files_in, only_writer
from gpflow_pep.estimators import load_estimator

ROOT = Path(gpflow_pep.__file__).parents[1]

COMPARE = gpflow_pep.compare.run.compare_table


def replace_compare(monkeypatch: pytest.MonkeyPatch, compare: Any) -> None:
    small_comparison()  # which is trained by what is replaced
    # It takes what the function takes.
    spec = create_autospec(COMPARE, side_effect=compare)
    monkeypatch.setattr(gpflow_pep.compare.run, "compare_table", spec)
    monkeypatch.setattr(cli, "default_jobs", lambda *_: 1)


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[Cleaned]:
    """Tables that would be compared; no report is written."""
    tables: list[Cleaned] = []
    replace_compare(
        monkeypatch, lambda data, *_: tables.append(data) or small_comparison()
    )
    monkeypatch.setattr(report, "write_report", lambda *_, **__: [])
    return tables


def contents(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in files_in(folder)}


def test_from_a_messy_table_to_a_model(from_csv: Run) -> None:
    out = from_csv.out
    result = from_csv.result
    for said in (
        "Read 40 rows of 5 columns (sep ';', decimal ',', encoding 'cp1252').",
        "Note: Dropped column 'Unnamed: 0': it only numbers the rows",
        "Note: Dropped column 'site': it is Zürich in every row.",
        "Note: Column 'time' has missing values in 1 of 40 rows.",
        "\nTarget 'load', 2 inputs, 40 rows.\n",
        "1/6 default, split 1 of 1: ",
        "6/6 how much each input matters\n",
    ):
        assert said in result.stderr
    metrics = pd.read_csv(out / "metrics.csv", index_col="model")
    assert (
        list(metrics.index) == from_csv.models
        and metrics.loc["default", "verdict"] == "saved"
    )
    folds = pd.read_csv(out / "folds.csv", index_col="model")
    for score in ("nlpd", "rmse", "coverage"):
        assert_allclose(metrics[score], folds[score])
    assert f"{metrics.loc['alpha 0.5', 'nlpd']:.3f}" in result.stdout
    predictions = pd.read_csv(out / "predictions.csv")
    assert_array_equal(predictions["true"], small_table()["load"][predictions["row"]])
    assert_allclose(folds.loc["default", "nlpd"], -predictions["log_density"].mean())
    files = json.loads((out / MANIFEST).read_text())["files"]
    # Else a later run would refuse those of one that was killed.
    assert {*files} <= {*NAMES}
    assert {*files} == {
        "report.html",
        "metrics.csv",
        "folds.csv",
        "predictions.csv",
        "scores.png",
        "predictions.png",
        "histogram.png",
        "importance.png",
        "learning.png",
        MANIFEST,
    }
    assert {path.name for path in out.iterdir()} == {*files, *FOLDERS}
    for name, description in FOLDERS.items():
        listed = json.loads((out / name / description).read_text())["files"]
        assert {*listed} == files_in(out / name)


def test_a_scorer_predicts_the_same_without_tensorflow(
    from_csv: Run, tmp_path: Path
) -> None:
    table = read_table(from_csv.data).drop(columns="load")
    table.loc[1, "kind"], table.loc[2, "time"] = "riesig", 900.0
    table.to_csv(tmp_path / "new.csv", index=False)
    arguments = [tmp_path / "new.csv", "--keep", "time", "--out"]
    assert (
        run(
            "predict", from_csv.out / "model", *arguments, tmp_path / "model.csv"
        ).exit_code
        == 0
    )
    code = (
        "import sys; from gpflow_pep.compare.cli import main\n"
        "main(sys.argv[1:], standalone_mode=False)\n"
        "assert not {'tensorflow', 'gpflow', 'sklearn'} & {*sys.modules}\n"
    )
    command = ["predict", from_csv.out / "scorer", *arguments, tmp_path / "scorer.csv"]
    subprocess.run([sys.executable, "-c", code, *map(str, command)], check=True)
    of_model, of_scorer = (
        pd.read_csv(tmp_path / f"{name}.csv") for name in ("model", "scorer")
    )
    pd.testing.assert_frame_equal(of_scorer, of_model, check_exact=False, rtol=1e-10)
    assert " ".join(of_model) == "row time mean sd median lower_90 upper_90 unusual"
    assert_array_equal(of_model[["row", "time"]], table["time"].reset_index())
    far = "time is above all; far from all training rows"
    assert of_scorer["unusual"].fillna("").tolist()[:4] == [
        "",
        "kind 'riesig' is new",
        far,
        "",
    ]


NO_DEVICE = pytest.mark.skipif(
    not Path("/dev/full").exists(), reason="needs a device of Linux"
)


@pytest.mark.parametrize(
    "arguments, code, message",
    [
        ("{out}/model nowhere.csv --out p.csv", 2, "nowhere.csv does not exist"),
        (
            "{out}/model rows.csv --out p.csv --keep price",
            2,
            "--keep: got 'price', expected columns of DATA among '",
        ),
        (
            "{out}/scorer rows.csv --out p.csv --keep mean,row,time",
            2,
            "--keep: got 'mean', 'row', expected names other than 'row', 'mean', ",
        ),
        (
            "{out}/model rows.csv --out none/p.csv",
            2,
            "expected a file that can be written",
        ),
        (
            "{out}/scorer rows.csv --out locked.csv",
            2,
            "expected a file that can be written",
        ),
        (
            "{out}/model other.csv --out p.csv",
            2,
            "columns: got no column 'kind' among 'time', 'load'",
        ),
        ("{out}/model rows.csv --out p.csv --keep Load", 2, "Did you mean 'load'?"),
        (". rows.csv --out p.csv", 2, "model.json"),
        ("{out}/modle rows.csv --out p.csv", 2, "Did you mean {out}/model?"),
        ("{out}/scorr rows.csv --out p.csv", 2, "Did you mean {out}/scorer?"),
        (
            "{out}/report.html rows.csv --out p.csv",
            2,
            "got a file, expected a folder with model.json or scorer.json, which"
            " describe a model. Did you mean {out}/model or {out}/scorer?",
        ),
        (
            "{out}/scorer/scorer.json rows.csv --out p.csv",
            2,
            "Did you mean {out}/scorer?",
        ),
        ("{out}/model row.csv --out p.csv", 2, "Did you mean 'rows.csv'?"),
        (
            "{out}/scorer rows.csv --out rows.csv",
            2,
            "which is DATA, expected another file",
        ),
        (
            "{out}/scorer rows.csv --out link.csv",
            2,
            "which is DATA, expected another file",
        ),
        pytest.param(
            "{out}/scorer rows.csv --out /dev/full",
            1,
            "No space left on device",
            marks=NO_DEVICE,
        ),
    ],
)
def test_predictions_that_cannot_be_made(
    from_csv: Run,
    tmp_path: Path,
    monkeypatch: Any,
    arguments: str,
    code: int,
    message: str,
) -> None:
    read_table(from_csv.data).assign(mean=1.0, row=2.0).to_csv(
        tmp_path / "rows.csv", index=False
    )
    (tmp_path / "link.csv").hardlink_to(tmp_path / "rows.csv")
    (tmp_path / "other.csv").write_text("time,load\n" + "101.5,3\n" * 3)
    (tmp_path / "locked.csv").write_text("earlier")
    before = contents(tmp_path)
    access = os.access
    locked = "locked.csv", os.W_OK

    def may(path, way):
        return (Path(path).name, way) != locked and access(path, way)

    monkeypatch.setattr(os, "access", may)
    monkeypatch.chdir(tmp_path)
    result = run("predict", *shlex.split(arguments.format(out=from_csv.out)))
    assert result.exit_code == code and isinstance(result.exception, SystemExit), (
        result.output
    )
    expected = message.format(out=from_csv.out)
    assert expected in result.stderr.splitlines()[-1] and contents(tmp_path) == before


def test_an_earlier_run_alone_is_replaced(
    from_csv: Run, tmp_path: Path, monkeypatch: Any
) -> None:
    out = tmp_path / "out"
    elsewhere = tmp_path / "elsewhere"
    shutil.copytree(from_csv.out, out)
    (out / "notes.txt").write_text("mine")
    (out / ".model-backup").mkdir()
    (out / ".model-backup" / "mine").write_text("mine")
    (out / "model").rename(elsewhere)
    (out / "model").symlink_to(elsewhere)
    for name in ("confusion.png", UNFINISHED):
        (out / name).write_text("of an earlier run")
    list_files(out, NAMES)
    replace_compare(monkeypatch, lambda *_: small_comparison())
    result = run("compare", "--out", out)
    assert result.exit_code == 0, result.output
    assert (out / ".model-backup" / "mine").exists() and (out / "notes.txt").exists()
    assert (out / "model").is_symlink()
    assert load_estimator(elsewhere).n_features_in_ == 1  # that of the small comparison
    there = {path.name for path in out.iterdir()}
    # This run has none of them.
    assert not {"saved_model", "confusion.png", UNFINISHED} & there
    assert {"model", "scorer", "report.html"} <= there
    (out / "model" / "weights.txt").write_text("mine")
    replace_compare(monkeypatch, lambda *_: pytest.fail("trained"))
    result = run("compare", "--out", out)
    assert result.exit_code == 2
    assert (
        "got weights.txt in it, expected only files that model.json there"
        in result.stderr
    )
    assert (out / "model" / "weights.txt").read_text() == "mine"


@pytest.mark.parametrize(
    "arguments, message",
    [
        (
            "--example breast-cancer --likelihood poisson",
            "likelihood of classes: got 'poisson'",
        ),
        ("{rows} --target y --likelihood poisson", "expected whole numbers"),
        ("{rows} --target y --folds 400", "folds: got 400 for 20 rows"),
        ("{rows} --target y --inducing 0", "'--inducing': 0 is not in the range"),
        ("{out}/predictions.csv --target y", "which would overwrite DATA"),
    ],
)
def test_refusals_keep_all(
    from_csv: Any, tmp_path: Path, arguments: str, message: str
) -> None:
    rows = tmp_path / "shares.csv"
    out = tmp_path / "out"
    shutil.copytree(from_csv.out, out)
    rows.write_text("a,y\n" + "".join(f"{i},{i % 7}.5\n" for i in range(20)))
    shutil.copy(rows, out / "predictions.csv")
    before = contents(out)
    options = ("--jobs", 1, "--out", out)
    result = run("compare", *arguments.format(rows=rows, out=out).split(), *options)
    assert result.exit_code == 2 and message in result.stderr
    assert {**contents(out), MANIFEST: b""} == {**before, MANIFEST: b""}


def test_predictions_through_pipes(
    from_csv: Run, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    assert (
        run(
            "predict", from_csv.out / "scorer", from_csv.data, "--out", "p.csv"
        ).exit_code
        == 0
    )
    arguments = ["predict", str(from_csv.out / "scorer"), "-", "--out", "-"]
    result = CliRunner().invoke(cli.main, arguments, input=from_csv.data.read_bytes())
    assert result.exit_code == 0 and result.stdout == (tmp_path / "p.csv").read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["p.csv"]


def test_cells_that_a_spreadsheet_would_run() -> None:
    words = [
        "=1+1",
        "@x",
        "+cmd|x",
        "-x",
        "\t=1",
        "\r=1",
        "+",
        "-",
        "-1.5",
        "+2e3",
        "a=b",
        "'=1",
    ]
    table = pd.DataFrame({"=name": words, "true": [-1.0] * len(words)})
    cells = as_cells(table)
    assert list(cells) == ["'=name", "true"] and list(table) == ["=name", "true"]
    assert list(cells["'=name"]) == [f"'{word}" for word in words[:6]] + words[6:]
    assert_array_equal(cells["true"], table["true"])


@pytest.mark.parametrize("stream", ["ascii", "closed"])
def test_words_that_standard_output_cannot_take_are_no_failure(
    tmp_path: Path, stream: str
) -> None:
    code = (
        "import sys; from gpflow_pep.compare import process\n"
        "process.make_streams_writable(); print('0.1 \u00b1 0.2')\n"
        "with open(sys.argv[1], 'w') as file: assert file.fileno() > 2\n"
    )
    close = (lambda: os.close(1)) if stream == "closed" else None
    options = {"env": {**os.environ, "PYTHONIOENCODING": "ascii"}, "preexec_fn": close}
    printed = subprocess.check_output(
        [sys.executable, "-c", code, tmp_path / "file"], **options
    )
    assert printed == (b"0.1 ? 0.2\n" if stream == "ascii" else b"")
    assert (tmp_path / "file").read_text() == ""


def test_scores_are_written_as_fits_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without points of the learning curve. And an earlier run's results stay until
    this one has ended, or for good if it does not.
    """
    fits = small_comparison().fits[:2]
    point = fits[0]._replace(num_rows=5)  # of the learning curve
    seen = []
    (tmp_path / "report.html").write_text("earlier")
    list_files(tmp_path, ["report.html"])

    def compare(_: Any, __: Any, callback: Any) -> None:
        for number, fit in enumerate([*fits, point], start=1):
            callback(Progress(number, 9, "", fit))
            seen.append(list(pd.read_csv(tmp_path / UNFINISHED)["model"]))
        raise ValueError("so it ended")

    replace_compare(monkeypatch, compare)
    result = run("compare", "--out", tmp_path)
    assert result.exit_code == 2 and "so it ended" in result.stderr
    assert seen == [["default"], ["default", "alpha 1"], ["default", "alpha 1"]]
    assert (tmp_path / "report.html").read_text() == "earlier"


def test_two_runs_in_one_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace_compare(monkeypatch, lambda *_: pytest.fail("trained"))
    with only_writer(tmp_path):
        result = run("compare", "--out", tmp_path)
    assert result.exit_code == 2 and list(tmp_path.iterdir()) == []
    assert (
        "--out: got a folder that another process is writing, expected one"
        in result.stderr
    )


@pytest.mark.near_copies("report.html")
@pytest.mark.parametrize("full", ["metrics.csv", "report.html", "scorer"])
def test_a_disk_that_is_full_has_the_model(
    tmp_path: Path, monkeypatch: Any, full: str
) -> None:
    comparison = small_comparison()  # made before the disk is full
    write_bytes = Path.write_bytes

    def write(path: Path, content: bytes) -> int:
        if path.name == full:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        return write_bytes(path, content)

    monkeypatch.setattr(Path, "write_bytes", write)
    monkeypatch.setattr(report, "pictures", lambda comparison: {})
    if full == "scorer":
        error = OSError(errno.ENOSPC, "No space left on device")
        monkeypatch.setattr(report, "export_numpy", Mock(side_effect=error))
    (tmp_path / "report.html").write_text("of another model")
    list_files(tmp_path, ["report.html"])
    replace_compare(monkeypatch, lambda *_: comparison)
    result = run("compare", "--out", tmp_path)
    assert (
        result.exit_code == 1
        and "No space left on device" in result.stderr.splitlines()[-1]
    )
    assert isinstance(result.exception, SystemExit)  # and no traceback
    assert ranking(comparison)[1:] in result.stdout and "Wrote" not in result.stdout
    load_estimator(tmp_path / "model")
    assert not (tmp_path / "report.html").exists()


def with_failures(*names: str) -> Comparison:
    comparison = small_comparison()
    failed = {
        "scores": dict.fromkeys(comparison.fits[0].scores, np.nan),
        "converged": False,
    }
    fits = [
        fit._replace(message="it was too hard", **failed) if fit.model in names else fit
        for fit in comparison.fits
    ]
    held_out = {name: t for name, t in comparison.held_out.items() if name not in names}
    best = next((n for n in ("default", "alpha 1", "alpha 0") if n not in names), None)
    changes = {"fits": fits, "held_out": held_out, "best": best}
    return replace(
        comparison, **changes, **({} if best else {"model": None, "final": None})
    )


@pytest.mark.parametrize("names", [("alpha 1",), ("alpha 1", "alpha 0", "default")])
def test_exit_code_1_if_a_fit_failed(
    tmp_path: Path, monkeypatch: Any, names: Any
) -> None:
    monkeypatch.setattr(report, "pictures", lambda comparison: {})
    replace_compare(monkeypatch, lambda *_: with_failures(*names))
    result = run("compare", "--out", tmp_path)
    assert result.exit_code == 1
    number = 2 * len(names)
    failed = re.escape("The default model, alpha 1 and alpha 0")
    pattern = (
        rf"Warning: (Alpha 1|{failed}): {number} of {number} fits failed: it was too"
        r" hard"
    )
    assert re.search(pattern, result.stderr)
    assert result.stdout.count("2 failed") == len(names)
    assert all((tmp_path / name).exists() for name in ("metrics.csv", "report.html"))
    # Without any usable power there is no best model to write.
    assert (tmp_path / "model").exists() is (len(names) == 1)


@pytest.mark.slow
def test_without_matplotlib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plotting, "available", lambda: False)
    replace_compare(monkeypatch, lambda *_: small_comparison())
    result = run("compare", "--out", tmp_path)
    assert (
        result.exit_code == 0
        and "Warning: matplotlib is not installed" in result.stderr
    )
    assert "gpflow_pep[plots]" in result.stderr and list(tmp_path.glob("*.png")) == []
    assert "<img" not in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize(
    "arguments, message",
    [
        ("{data}", "No target was given. Name the column to predict"),
        ("--target load", "got --target load without DATA, expected both"),
        ("{data} --target price", "target: got 'price', expected one of the columns"),
        ("{data} --target load --drop price", "drop: got 'price'"),
        ("{data} --target load --sep ,", "line 2: got"),
        ("{data} --target load --encoding utf-8", "is not in the encoding utf-8"),
        (
            "{data} --target load --target load",
            "one column, or several distinct columns",
        ),
        ("{data} --target Load", "Did you mean 'load'?"),
        ("{data} --target laod", "Did you mean 'load'?"),
        ("{data} --target load --drop Time", "Did you mean 'time'?"),
        ("{data} --target load --time-column tiem", "Did you mean 'time'?"),
        ("{data} --target load --group-column Kind.", "Did you mean 'kind'?"),
        ("nowhere.csv --target load", "nowhere.csv does not exist, expected a table"),
        ("limits.csv --target y", "Pass --likelihood tobit"),
        ("--alphas 0,half", "'--alphas': 'half' is not a valid float"),
        ("--alphas 0,1.5", "'--alphas': 1.5 is not in the range 0<=x<=1"),
        ("--folds 1", "'--folds': 1 is not in the range"),
        ("--folds 3 --splits 2", "folds: got 3 and splits=2, expected one of them"),
        ("--test-fraction 1", "'--test-fraction': 1.0 is not in the range"),
        ("--minutes 0", "'--minutes': 0.0 is not in the range"),
        ("--out {data}", "is a file"),
        ("--out {data}/below", "a folder that cannot be written"),
        ("--task regression", "--task regression without DATA, expected no --task"),
        ("{data} --target load --example wine", "expected one of them"),
        ("--example iris", "'iris' is not one of 'diabetes', 'chirp', 'breast-cancer'"),
    ],
)
def test_bad_usage(
    tmp_path: Path, monkeypatch: Any, arguments: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    replace_compare(monkeypatch, lambda *_: pytest.fail("trained"))
    limits = "".join(f"{i}.5,{'<' * (i < 9)}{max(i, 8)}.25\n" for i in range(20))
    Path("limits.csv").write_text("x,y\n" + limits)
    result = run(
        "compare", *arguments.format(data=write_messy(tmp_path / "data.csv")).split()
    )
    assert result.exit_code == 2, result.output
    last = result.stderr.splitlines()[-1]
    assert last.startswith("Error: ") and message in last
    assert result.stderr.count("Error:") == 1 and result.stdout == ""


def test_version_and_help() -> None:
    printed = f"gpflow-pep, version {gpflow_pep.__version__}\n"
    assert run("--version").stdout == printed
    command = [sys.executable, "-m", "gpflow_pep.compare.cli", "--version"]
    assert subprocess.check_output(command, text=True) == printed
    for text in (run("--help").stdout, of_compare := run("compare", "-h").stdout):
        assert "Find out how well a table can be predicted, and by which model." in text
    assert "--near-rows" in of_compare


# Lines: what needs no TensorFlow; and a fit of calls of TensorFlow without an end,
# which Ctrl-C is to end after the call that is running.
PROCESS = """
import os, sys
from gpflow_pep.compare import cli
from gpflow_pep.compare.process import loading_tensorflow

data, out = sys.argv[1:]
try:
    options = ["--target", "nothing", "--out", out]
    cli.main(["compare", data, *options], standalone_mode=False)
except cli.BadInput as error:
    print("tensorflow" in sys.modules, error.message)
with loading_tensorflow():
    import tensorflow as tf

@tf.function
def count(x):
    return tf.while_loop(lambda x: x < 1e4, lambda x: [x + 1.0], [x])

from gpflow_pep.estimators import PEPRegressor
default = PEPRegressor.fit
def fit(self, X, y):
    if self.alpha == "auto":
        return default(self, X, y)
    print("computing", flush=True)
    while True:
        count(tf.constant(0.0, tf.float64))
PEPRegressor.fit = fit
options = ["--no-baselines", "--max-iterations", "3", "--jobs", "1"]
cli.main(["compare", data, "--target", "load", *options, "--out", out])
"""


@pytest.mark.slow
@pytest.mark.usefixtures("interrupts_arrive")
def test_in_a_process_of_its_own(tmp_path: Path, from_csv: Run) -> None:
    environment = {
        n: value for n, value in os.environ.items() if n != "TF_CPP_MIN_LOG_LEVEL"
    }
    out = tmp_path / "out"
    arguments = from_csv.data, out
    process = subprocess.Popen(
        [sys.executable, "-c", PROCESS, *map(str, arguments)],
        text=True,
        env=environment,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    mistake, computing = (process.stdout.readline().strip() for _ in range(2))
    assert computing == "computing"
    time.sleep(1.0)  # so that it is in TensorFlow
    began = time.perf_counter()
    process.send_signal(subprocess.signal.SIGINT)  # type: ignore[attr-defined]
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130 and time.perf_counter() - began < 2.0, errors
    scores = out / UNFINISHED
    assert (
        errors.splitlines()[-1]
        == f"Interrupted. Scores of the finished fits are in {scores}."
    )
    assert list(pd.read_csv(scores)["model"]) == ["default"]
    # Before TensorFlow was there.
    assert mistake.startswith("False target: got 'nothing'")


@pytest.mark.parametrize(
    "level, fails, left, shown",
    [
        (None, False, "3", ""),
        (None, True, "3", "chatter\n"),
        ("0", False, "0", "chatter\n"),
        ("1", False, "3", ""),
        ("3", False, "3", ""),
    ],
)
def test_which_messages_of_tensorflow_are_shown(
    level: str | None, fails: bool, left: str, shown: str, monkeypatch: Any, capfd: Any
) -> None:
    monkeypatch.setenv(LOG_LEVEL, level or "")
    if level is None:
        monkeypatch.delenv(LOG_LEVEL)
    try:
        with loading_tensorflow():
            os.write(2, b"chatter\n")
            if fails:
                raise ImportError
    except ImportError:
        assert fails
    assert os.environ[LOG_LEVEL] == left and capfd.readouterr().err == shown


@pytest.mark.parametrize("terminal", [True, False])
def test_progress(terminal: bool, capsys: pytest.CaptureFixture[str]) -> None:
    file = io.StringIO()
    console = Console(file=file, force_terminal=terminal, width=80)
    fit = Fit("alpha 0.25", 1, {}, 0.0, 3.21, 2, True, "")
    with cli._progress(console) as show:
        show(Progress(4, 7, "alpha 0.25, fold 1 of 2"))
        show(Progress(4, 7, "alpha 0.25, fold 1 of 2", fit))
        if not terminal:
            show(Progress(5, 7, "mean, fold 1 of 2", fit._replace(iterations=0)))
    written = file.getvalue() if terminal else capsys.readouterr().err
    assert "alpha 0.25, fold 1 of 2" in written and "4/7" in written
    assert ("━" in written) is terminal
    if not terminal:
        lines = [
            "4/7 alpha 0.25, fold 1 of 2: 2 steps, 3.2 s",
            "5/7 mean, fold 1 of 2: 3.2 s",
        ]
        assert written.splitlines() == lines


# Tables with faults: what is said of them, and the options that say otherwise.
ROWS = "".join(
    f"{i % 7}.5,{i % 5 if i % 4 else -999},{i % 7 + i % 3 / 4}\n" for i in range(40)
)


def comparing(folder: Path, text: str, target: str) -> Callable[..., Any]:
    (folder / "data.csv").write_text(text)
    arguments = ("compare", folder / "data.csv", "--out", folder / "out", "--target")
    return lambda *more, target=target: run(*arguments, target, *more)


def test_a_table_without_names(tmp_path: Path, seen: list[Cleaned]) -> None:
    called = comparing(tmp_path, ROWS + ROWS, "x2")
    for target in ("x2", "2", "-1"):
        result = called(target=target)
        assert result.exit_code == 0, result.output
        for said in (
            "Read 80 rows of 3 columns (sep ',', decimal '.', encoding 'utf-8').\n",
            "Note: The first line has values like the lines below it",
            "Note: 80 of 80 rows have the same inputs as another row, 80 of",
            "\nTarget 'x2', 2 inputs, 80 rows.\n",
        ):
            assert said in result.stderr
    assert (
        called("--no-together").stderr.count(
            "With --no-together, some of them are in training"
        )
        == 1
    )
    assert len(seen) == 4 and all(list(data.X) == ["x0", "x1"] for data in seen)
    result = called("--header")
    assert (
        result.exit_code == 2 and "target: got 'x2', expected one of" in result.stderr
    )


def test_numbers_as_they_are_written(tmp_path: Path, seen: list[Cleaned]) -> None:
    called = comparing(tmp_path, "a,b,y\n" + ROWS, "y")
    note = "are far from all others, and are read as missing (-999 in 10 rows; "
    assert note in called().stderr and note not in called("--as-written", "b").stderr
    assert [int(data.X["b"].isna().sum()) for data in seen] == [10, 0]
    result = called("--sheet", "A")
    assert result.exit_code == 2 and "a file without sheets" in result.stderr


def test_whole_numbers_are_numbers_or_classes_as_asked(
    tmp_path: Path, seen: Any
) -> None:
    rows = "".join(f"{i / 2},{i % 3}\n" for i in range(15))
    called = comparing(tmp_path, "x,grade\n" + rows, "grade")
    assert "(--task classification)" in called().stderr
    assert "Target 'grade' (3 classes), " in called("--task", "classification").stderr
    assert [data.kind for data in seen] == ["numbers", "classes"]


def test_names_with_commas_marks_and_orders(
    tmp_path: Path, seen: list[Cleaned]
) -> None:
    cells = (
        (i % 7, 1 + i % 9, 1 + i % 8, i, i % 3 - 200 * (i % 4 == 0)) for i in range(40)
    )
    rows = "".join("{}.5;{}/{}/21;{};{}\n".format(*row) for row in cells)
    called = comparing(tmp_path, "a;day;c,d;y\n" + rows, "y")
    result = called()
    assert (
        result.exit_code == 2
        and "Choose a way: --dates dmy, mdy or ymd" in result.stderr
    )
    options = "--dates", "mdy", "--drop", '"c,d", a', "--task", "regression"
    result = called(*options, "--missing=-200,-199,-198")
    assert result.exit_code == 0, result.stderr
    assert "('2/2/21' is 2021-02-02)" in result.stderr
    assert list(seen[-1].X) == ["day"] and seen[-1].X["day"][1] == pd.Timestamp(
        "2021-02-02"
    )
    assert len(seen[-1].y) == 30 and called("--drop", "c").exit_code == 2


def test_warnings_reach_the_terminal_and_the_page(
    tmp_path: Path, seen: list[Cleaned]
) -> None:
    y = np.random.default_rng(0).normal(size=40)
    rows = "".join(f"{i % 7}.5,{0.19 * v:.6f},{v:.6f}\n" for i, v in enumerate(y))
    result = comparing(tmp_path, "a,tax,y\n" + rows, "y")()
    warning = "Column 'tax' puts the rows in the same order as the target 'y'"
    assert f"Warning: {warning}" in result.stderr
    comparison = small_comparison()
    data = comparison.data._replace(warnings=seen[0].warnings)
    shown = page.page(replace(comparison, data=data), {}, command="", folder=tmp_path)
    assert f'<p class="warning">{warning.replace(chr(39), "&#39;")}' in shown
