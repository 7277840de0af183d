"""The example of the README runs as it stands, without a warning, and does what it shows."""

import re
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpflow_pep

README = Path(__file__).parents[2] / "README.md"


@pytest.mark.filterwarnings("error")
def test_example_recovers_the_function_and_its_noise() -> None:
    """By the model, and then by the estimator."""
    examples = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, Any] = {}
    of_model, of_estimator = examples
    exec(of_model, names)
    expected = np.sin(2.0 * names["Xnew"])
    np.testing.assert_allclose(names["mean"], expected, atol=0.15)
    np.testing.assert_allclose(names["variance"], 0.2**2, rtol=0.3)
    exec(of_estimator, names)
    np.testing.assert_allclose(names["mean"], expected[:, 0], atol=0.15)
    np.testing.assert_allclose(names["std"], 0.2, rtol=0.15)


def test_installed_version_is_the_version_of_the_code() -> None:
    assert version("gpflow-pep") == gpflow_pep.__version__
