"""The command from a table to a trained model, run once for all tests that look at the result."""

from pathlib import Path

import pytest
from compare.small_comparison import FromCsv, run_from_csv


@pytest.fixture(scope="session")
def folder_from_csv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("from_csv")


# Of a single test, so that what surrounds every test surrounds the one that comes first.
@pytest.fixture
def from_csv(folder_from_csv: Path) -> FromCsv:
    return run_from_csv(folder_from_csv)
