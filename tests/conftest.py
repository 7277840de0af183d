"""Fixtures and options shared by all tests.

TensorFlow is loaded by the fixtures that need it, so not by the process that only hands
out tests.
"""

import functools
import gc
import itertools
import logging
import os
import re
import signal
import sys
import typing
from collections.abc import Iterator
from copy import deepcopy
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# Before NumPy is imported: matrices of tests are small, and threads that wait for each
# other take most of the time of the references.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Of scikit-learn's trees and clusters: likewise.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import hypothesis
import numpy as np
import pytest

if sys.version_info < (3, 12):
    # TensorFlow checks each argument against a protocol, whose members Python lists
    # anew each time before 3.12: a twelfth of what eager models take.
    typing._get_protocol_attrs = functools.cache(typing._get_protocol_attrs)  # type: ignore
DATA_VARIABLE = "GPFLOW_PEP_DATA"
#: Test files that share models compiled once, or a comparison, or processes.
TOGETHER = {
    f"test_{name}.py": names
    for names in (
        "pep",
        "class_stack",
        "near_rows",
        "stack",
        "target_units",
        "cli command compare details findings page several_targets service",
        "objectives",
        "derivatives",
        "shared",
    )
    for name in names.split()
}
#: Test files that share one compiled model, or one integral, for each of their cases.
BY_CASE = ("test_models_contract.py",)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--data",
        default=os.environ.get(DATA_VARIABLE),
        help=(
            "directory with the data sets of the papers; tests that need it are"
            f" skipped without (default: environment variable {DATA_VARIABLE})"
        ),
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection() -> None:
    """Collect no garbage while modules are loaded: nearly all objects that this makes
    stay.

    Before its first test hypothesis collects all garbage of the process, once. Late in
    a run, among the graphs of many models, that takes 20 seconds.
    """
    hypothesis.given(hypothesis.strategies.none())(lambda _: None)()
    gc.disable()


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop() -> None:
    """Collect garbage less often: tracing makes many objects, and nearly all of them
    stay.
    """
    gc.freeze()
    gc.set_threshold(50_000, 20, 1000)
    gc.enable()


_FINISHED = itertools.count(1)


@pytest.hookimpl(trylast=True)
def pytest_runtest_logfinish() -> None:
    """Collect garbage of the last tests, and never look again at what stays: otherwise,
    among the graphs of many models, each collection would take longer than the one
    before.
    """
    if next(_FINISHED) % 100 == 0:
        gc.collect()
        gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """
    Of the cases of a test that is marked ``near_copies`` all but the first are slow
    tests; or all but those whose identifier matches one of the patterns that the marker
    was given.
    """
    met = set()
    for item in items:
        if marker := item.get_closest_marker("near_copies"):
            test, _, case = item.nodeid.partition("[")
            stays = any(fnmatch(case[:-1], pattern) for pattern in marker.args)
            if not stays and (marker.args or test in met):
                item.add_marker(pytest.mark.slow)
            met.add(test)


#: Of each test module: its generators of random numbers, and their states after the
#: import.
_GENERATORS: dict[str, list[tuple[np.random.Generator, Any]]] = {}


def pytest_collection_finish(session: pytest.Session) -> None:
    for item in session.items:
        module = getattr(item, "module", None)
        if module is not None and module.__name__ not in _GENERATORS:
            _GENERATORS[module.__name__] = [
                (generator, deepcopy(generator.bit_generator.state))
                for generator in vars(module).values()
                if isinstance(generator, np.random.Generator)
            ]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Every test begins with its module's generator as it was after the import: what a
    test draws depends neither on the tests before it nor on the process that it runs
    in.
    """
    module = getattr(item, "module", None)
    for generator, state in _GENERATORS[module.__name__] if module is not None else ():
        generator.bit_generator.state = state


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """
    With several processes, keep tests in one that share what takes long to work out,
    and spread the others. (The groups of xdist itself do nothing under pytest 9.2.)
    """
    from xdist.scheduler import LoadScopeScheduling

    class Together(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            path, _, test = nodeid.partition("::")
            file = path.rpartition("/")[2]
            # The case is the last of the parameters.
            if file in BY_CASE and test.endswith("]"):
                case = re.split(r"[\[-]", test)[-1]
                return f"{file} {case}"
            return TOGETHER.get(file, nodeid)

    return Together(config, log)


@pytest.fixture
def data_directory(request: pytest.FixtureRequest) -> Path:
    """The directory of data sets; skips the test where none was given."""
    given = request.config.getoption("--data")
    if not given:
        pytest.skip(f"needs data sets: pass --data DIRECTORY or set {DATA_VARIABLE}")
    directory = Path(given)
    if not directory.is_dir():
        pytest.fail(f"--data / {DATA_VARIABLE}: {directory} is not a directory")
    return directory


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20170918)


@functools.cache
def hash_bijectors_once() -> None:
    """Transforms stay, and are hashed when a parameter is read: a twelfth of eager
    models' time.
    """
    from tensorflow_probability.python.bijectors import Bijector

    of = Bijector.__hash__
    Bijector.__hash__ = lambda self: (
        vars(self).get("_h") or vars(self).setdefault("_h", of(self))
    )


@pytest.fixture(autouse=True)
def global_settings() -> Iterator[None]:
    """GPflow's default float, jitter and the like are after a test as they were before
    it; and check_shapes, which may be switched off in the user's environment, never is
    in a test.
    """
    import check_shapes
    import gpflow

    hash_bijectors_once()
    enabled = check_shapes.get_enable_check_shapes()
    config = gpflow.config.config()
    check_shapes.set_enable_check_shapes(True)
    yield
    check_shapes.set_enable_check_shapes(enabled)
    gpflow.config.set_config(config)


@pytest.fixture
def interrupts_arrive() -> Iterator[None]:
    """A shell that starts the tests in the background has them, and the processes that
    they start, ignore interrupts, and ``nohup`` has them ignore the end of a terminal.
    """
    handlers = {"SIGINT": signal.default_int_handler, "SIGHUP": signal.SIG_DFL}
    numbers = {name: getattr(signal, name, None) for name in handlers}
    before = {
        number: signal.signal(number, handlers[name])
        for name, number in numbers.items()
        if number is not None
    }
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def no_training(monkeypatch: pytest.MonkeyPatch) -> None:
    """Estimators keep their first parameters: for what does not depend on training."""
    from helpers import skip_training

    skip_training(monkeypatch)


@pytest.fixture(autouse=True)
def leave_no_files(pytestconfig: pytest.Config) -> Iterator[None]:
    """What a test writes goes to tmp_path: nothing new may stay at the top of the
    repository.
    """
    before = set(os.listdir(pytestconfig.rootpath))
    yield
    left = {
        name for name in os.listdir(pytestconfig.rootpath) if name[0] != "."
    } - before
    assert not left, f"written to {pytestconfig.rootpath}: {left}"


@pytest.fixture(autouse=True)
def fail_on_autograph_warning() -> Iterator[None]:
    """
    A function that AutoGraph could not convert runs as plain Python, so a loop or a
    condition on a tensor in it is silently wrong or slow.
    """
    messages: list[str] = []
    collector = logging.Handler(logging.WARNING)
    logger = logging.getLogger("tensorflow")
    collector.emit = lambda record: messages.append(record.getMessage())  # type: ignore
    logger.addHandler(collector)
    yield
    logger.removeHandler(collector)
    if failures := [message for message in messages if "AutoGraph" in message]:
        pytest.fail("AutoGraph warned:\n" + "\n".join(failures))
