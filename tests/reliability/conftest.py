"""The reliability campaign: `make reliability`. See campaign.py for how to
add to it.
"""

import dataclasses
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from campaign import SHOWN, SIZES, Size, Trial, size_of, table

HERE = Path(__file__).parent
#: Of a report: the row, as JSON, that came out of its test.
PROPERTY = "reliability"
_trials: list[Trial] = []


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--size", default="full", choices=SIZES, help="how much to try")
    parser.addoption("--table", help="the file to write the table of the campaign to")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.reliability)


@pytest.fixture
def size(request: pytest.FixtureRequest) -> Size:
    return size_of(request.config.getoption("--size", "quick"))


@pytest.fixture
def trial(request: pytest.FixtureRequest) -> Trial:
    """The row of a test."""
    documented = (request.module.__doc__, request.function.__doc__)
    paragraphs = (text.strip().partition("\n\n")[0] for text in documented)
    return Trial(*(" ".join(text.split()).rstrip(".") for text in paragraphs))


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Iterator[None]:
    """Fail a test whose cases failed, and keep what it tried for the table."""
    trial = pyfuncitem.funcargs.get("trial")
    try:
        result = yield
        if trial is not None and trial.failures:
            pytest.fail("\n".join(trial.failures[:SHOWN]), pytrace=False)
        return result
    except Exception as error:  # outside of any case
        if trial is not None and not trial.failures:
            with trial.case(pyfuncitem.name):
                raise error
        raise
    finally:
        if trial is not None:
            row = json.dumps(dataclasses.asdict(trial))
            pyfuncitem.user_properties.append((PROPERTY, row))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """In the one process that prints, also where others run the tests."""
    found = dict(report.user_properties).get(PROPERTY)
    if report.when == "call" and found is not None:
        _trials.append(Trial(**{**json.loads(str(found)), "seconds": report.duration}))


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    if not _trials or "PYTEST_XDIST_WORKER" in os.environ:
        return
    text = table(_trials)
    terminalreporter.write_line(text)
    if config.getoption("--table", None):
        Path(config.getoption("--table")).write_text(text, encoding="utf-8")
