"""The command from a messy table to a trained model, run once for all tests of the
result.
"""

import pytest
from compare.small_comparison import Run, real


@pytest.fixture
def from_csv() -> Run:
    return real("messy")
