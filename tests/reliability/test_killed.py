"""6 Faults: killed, interrupted, out of disk, without a worker."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import forked_worker
import interrupted_worker as worker
import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from campaign import Size, Trial
from forks import Forks, forking

from gpflow_pep.compare.folder import MANIFEST, UNFINISHED
from gpflow_pep.estimators import PEPRegressor, export_saved_model, load_estimator, save_estimator

#: What differs between two runs that are the same.
CLOCKS = ("seconds", "cell_seconds")
ROWS = np.linspace(-1.0, 1.0, 7)[:, None]


@pytest.fixture(scope="module")
def forks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    with forking(tmp_path_factory.mktemp("forks") / "errors.txt") as found:
        yield found


def readable(directory: Path) -> int:
    """The number of the newest checkpoint, all of which are read in full."""
    state = tf.train.get_checkpoint_state(str(directory))
    if state is None:
        return 0
    for path in state.all_model_checkpoint_paths:
        if path == state.model_checkpoint_path or Path(f"{path}.index").exists():
            reader = tf.train.load_checkpoint(path)
            for name in reader.get_variable_to_shape_map():
                reader.get_tensor(name)
    return int(state.model_checkpoint_path.rpartition("-")[2])


@pytest.mark.parametrize("kind", ["ARPEP", "PEP"])
def test_training(trial: Trial, size: Size, forks: Forks, kind: str, tmp_path: Path) -> None:
    """SIGKILL in fit: checkpoints whole, resumed to the same numbers"""
    whole = tmp_path / "whole.npz"
    forks.run("train", kind, tmp_path / "whole", whole)
    expected = np.load(whole)
    full = {"ARPEP": 16, "PEP": 8}[kind]
    random, kills = np.random.default_rng(0), size(quick=2, full=full, long=100)
    killed = runs = 0
    while killed < kills:
        directory, output = tmp_path / f"killed{runs}", tmp_path / f"{runs}.npz"
        runs += 1
        while killed < kills and forks.start("train", kind, directory, output):
            time.sleep(random.uniform(0.0, 0.8))
            if not forks.kill():
                break
            killed += 1
            with trial.case(f"{kind}, kill {killed}"):
                readable(directory)
        with trial.case(f"{kind}, run {runs} to the end"):
            forks.run("train", kind, directory, output)
            found = np.load(output)
            for name, numbers in expected.items():
                np.testing.assert_allclose(found[name], numbers, rtol=1e-10, err_msg=name)
            assert not list(directory.glob("*_temp"))
    trial.note(f"{kind}: {killed} kills, {runs} runs resumed until they were done")


def table(path: Path) -> pd.DataFrame:
    found = pd.read_csv(path, keep_default_na=False)
    return found.drop(columns=[name for name in CLOCKS if name in found])


def assert_whole(out: Path, expected: Path, *, done: bool) -> None:
    """The folder of a comparison has the files of another, or fewer until it is done."""
    there = {path.name for path in out.iterdir() if not path.name.startswith(".")}
    wanted = {path.name for path in expected.iterdir()} | (set() if done else {UNFINISHED})
    assert there == wanted if done else there <= wanted, there ^ wanted
    for name in there:
        path = out / name
        if path.suffix == ".csv":
            rows, written = table(expected / name.replace(UNFINISHED, "folds.csv")), table(path)
            if name == UNFINISHED:  # as fits end, those on fewer rows too, which come last
                number = min(len(rows), len(written))
                rows, written = rows.iloc[:number], written.iloc[:number]
            pd.testing.assert_frame_equal(written, rows, check_dtype=done, rtol=1e-10)
        elif path.suffix == ".png":
            assert path.read_bytes()[-8:-4] == b"IEND", f"{name} is cut"
        elif path.suffix == ".html":
            assert path.read_text().rstrip().endswith("</html>"), f"{name} is cut"
        elif name == "model":
            load_estimator(path)
    if done:
        assert not [path.name for path in out.iterdir() if path.name.startswith(".")]
        assert (out / MANIFEST).read_text() == (expected / MANIFEST).read_text()


def write_table(path: Path) -> Path:
    frame = pd.DataFrame(worker.X, columns=["a", "b"]).assign(y=worker.Y)
    frame.iloc[:60].to_csv(path, index=False)
    return path


def test_compare(trial: Trial, size: Size, forks: Forks, tmp_path: Path) -> None:
    """SIGKILL in gpflow-pep compare: files whole, run again: the same numbers"""
    data, whole, out = write_table(tmp_path / "t.csv"), tmp_path / "whole", tmp_path / "out"
    began = time.perf_counter()
    forks.run("compare", data, whole)
    seconds = time.perf_counter() - began
    random, kills = np.random.default_rng(1), size(quick=3, full=24, long=100)
    killed = done = 0
    while killed < kills:
        forks.start("compare", data, out)
        time.sleep(random.uniform(0.0, seconds))
        was_killed = forks.kill()
        killed, done = killed + was_killed, done + (not was_killed)
        with trial.case(f"kill {killed}"):
            assert_whole(out, whole, done=not was_killed)
    with trial.case("to the end"):
        forks.run("compare", data, out)
        assert_whole(out, whole, done=True)
    trial.note(
        f"{killed} kills in the {seconds:.1f} s of a run, {done} ended before, all in one folder"
    )


def test_grid(trial: Trial, size: Size, forks: Forks, tmp_path: Path) -> None:
    """SIGKILL in the examples' runner, lines cut: resumed to the same table"""
    forks.run("grid", tmp_path / "whole")
    whole = table(tmp_path / "whole" / "results.csv")
    random, kills, killed, runs, cut = (
        np.random.default_rng(2),
        size(quick=4, full=24, long=200),
        0,
        0,
        0,
    )
    while killed < kills:
        out = tmp_path / f"killed{runs}"
        runs += 1
        journal = out / "cells.jsonl"
        while killed < kills and forks.start("grid", out):
            time.sleep(random.uniform(0.0, 0.2))
            if not forks.kill():
                break
            killed += 1
            with trial.case(f"kill {killed}"):
                content = journal.read_bytes() if journal.exists() else b""
                lines = content.splitlines(keepends=True)
                splits = [
                    json.loads(line)["cell"]["split"] for line in lines if line.endswith(b"\n")
                ]
                assert splits == list(range(len(splits)))
                if lines and random.random() < 0.5:  # as if it had been killed while it wrote
                    journal.write_bytes(content[: -random.integers(1, len(lines[-1]))])
                    cut += 1
        with trial.case(f"run {runs} to the end"):
            forks.run("grid", out)
            pd.testing.assert_frame_equal(table(out / "results.csv"), whole)
            assert len(journal.read_text().splitlines()) == forked_worker.CELLS
    trial.note(f"{killed} kills, {cut} lines cut, {runs} runs resumed until they were done")


def saved(folder: Path) -> Any:
    return load_estimator(folder).predict(ROWS)


def exported(folder: Path) -> Any:
    predictor = tf.saved_model.load(str(folder))
    mean, _ = predictor.predict_y(tf.constant(ROWS))
    return mean[:, 0].numpy()


@pytest.mark.parametrize("kind", ["save", "export"])
def test_saving(trial: Trial, size: Size, forks: Forks, kind: str, tmp_path: Path) -> None:
    """SIGKILL in saving over an older model: it is the old or the new one"""
    templates, expected = [], []
    for number in range(2):
        estimator = PEPRegressor(num_inducing=4, random_state=number, max_iterations=1)
        estimator.fit(worker.X[:30, :1], worker.Y[:30, 0] + number)
        templates.append(tmp_path / f"template{number}")
        save_estimator(templates[-1], estimator)
        expected.append(estimator.predict(ROWS))
    folder = tmp_path / "model"
    read = {"save": saved, "export": exported}[kind]
    {"save": save_estimator, "export": export_saved_model}[kind](folder, estimator)
    full, longest = {"save": (32, 0.1), "export": (8, 1.5)}[kind]
    random, seen = np.random.default_rng(3), [0, 0]
    for number in range(size(quick=2, full=full, long=10 * full)):
        with trial.case(f"{kind}, kill {number}"):
            assert forks.start(kind, folder, *templates)
            time.sleep(random.uniform(0.0, longest))
            assert forks.kill()
            if not folder.exists():  # killed between two names: a message says where it is
                with pytest.raises(ValueError, match=r"a process that was killed has left"):
                    load_estimator(folder)
                continue
            found = read(folder)
            differences = [np.max(np.abs(found - one)) for one in expected]
            assert min(differences) < 1e-10, "it is neither"
            seen[int(np.argmin(differences))] += 1
    trial.note(f"{kind}: {seen[0]} times the one, {seen[1]} times the other")
