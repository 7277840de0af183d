"""7 Readers of tables and saved models: whatever the bytes are, they are read or
refused
"""

import itertools
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from campaign import Size, Trial, drawing
from cases import readers
from hypothesis import given
from sklearn.pipeline import make_pipeline

import gpflow_pep as pep
from gpflow_pep.estimators import PEPClassifier, PEPRegressor, save_estimator
from gpflow_pep.tables import Format, TableEncoder

#: Seconds after which a reader hangs.
PATIENCE = 30.0
#: Of Python's audit events, what a reader has no business with.
FORBIDDEN = (
    *(
        "pickle.find_class",
        "os.system",
        "os.exec",
        "os.fork",
        "os.posix_spawn",
        "os.remove",
    ),
    *(
        "subprocess.Popen",
        "socket.connect",
        "urllib.Request",
        "os.rename",
        "shutil.rmtree",
    ),
)
_seen: list[str] | None = None


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if _seen is not None and event in FORBIDDEN:
        _seen.append(f"{event} {arguments}"[:200])


@pytest.fixture(scope="module", autouse=True)
def audited() -> None:
    """Hooks stay until Python ends; this one is deaf outside :func:`watched`."""
    sys.addaudithook(_audit)


@contextmanager
def watched() -> Iterator[None]:
    """Fail where a reader takes for ever, or does what reading does not need."""
    global _seen

    def give_up(*_: Any) -> None:
        raise TimeoutError(f"still reading after {PATIENCE:g} seconds")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, PATIENCE)
    _seen = []
    try:
        yield
        assert not _seen, _seen
    finally:
        _seen = None
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


def test_written_tables(trial: Trial, size: Size, tmp_path: Path) -> None:
    """Tables drawn by hypothesis, written with any separator, quotes, encoding: as they
    were
    """
    tried = itertools.count(1)

    @drawing(size(quick=100, full=1500, long=10_000))
    @given(frame=readers.frames(), way=readers.WAYS)
    def read_back(frame: pd.DataFrame, way: tuple[Any, ...]) -> None:
        trial.tried = next(tried)
        with watched():
            readers.check_that_it_reads_back(tmp_path / "t.csv", frame, way)

    try:
        read_back()
    except Exception as error:
        trial.tried -= 1
        with trial.case("the smallest that failed"):
            raise error


def test_spoiled_tables(trial: Trial, size: Size, tmp_path: Path) -> None:
    """Text, packed and Parquet files with bytes changed, added, lost: a table, or what
    is wrong
    """
    number = size(quick=200, full=6000, long=60_000)
    for i, content in enumerate(readers.spoiled_tables(number, seed=1)):
        with trial.case(f"file {i}"), watched():
            readers.check_table(tmp_path / "t.csv", content)


OPTIONS: dict[str, Any] = {"num_inducing": 4, "max_iterations": 1, "random_state": 0}
BY_BATCHES = {"batch_size": 9, **OPTIONS}


def _pipeline(table: pd.DataFrame) -> Any:
    formats = {"a": Format("number"), "b": Format("number"), "c": Format("text")}
    table = table.assign(c=["u", "v", None] * 6)
    parts = make_pipeline(TableEncoder(formats), PEPRegressor(**OPTIONS))
    return parts.fit(table, table["a"] + table["b"])


ESTIMATORS: dict[str, Callable[[pd.DataFrame], Any]] = {
    "pipeline": _pipeline,
    "PEPClassifier": (
        lambda table: PEPClassifier(**OPTIONS).fit(table, table["a"] > 0.0)
    ),
    "PEPRegressor with a batch_size": (
        lambda table: PEPRegressor(**BY_BATCHES).fit(table, table["b"])
    ),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ESTIMATORS)
def test_spoiled_models(trial: Trial, size: Size, tmp_path: Path, name: str) -> None:
    """Saved estimators with a byte or an entry changed: noticed, or another
    estimator
    """
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"a": rng.standard_normal(18), "b": rng.standard_normal(18)})
    save_estimator(tmp_path / "saved", ESTIMATORS[name](table))
    pep.estimators.load_estimator(tmp_path / "saved")  # all that is imported, is
    number = size(quick=20, full=900, long=9000)
    spoiled = readers.spoiled_folders(
        tmp_path / "spoiled", tmp_path / "saved", number, seed=1
    )
    for i, must_be_noticed in enumerate(spoiled):
        with trial.case(f"{name}, folder {i}"), watched():
            readers.check_folder(tmp_path / "spoiled", must_be_noticed)
