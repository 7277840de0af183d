"""The example of the README runs as it stands and does what it shows."""

import re
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

import gpflow_pep

README = Path(__file__).parents[2] / "README.md"


def test_example_recovers_the_function_and_its_noise() -> None:
    (example,) = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, Any] = {}
    exec(example, names)
    error = names["mean"].numpy() - np.sin(2.0 * names["Xnew"])
    np.testing.assert_allclose(error, 0.0, atol=0.15)
    np.testing.assert_allclose(names["variance"], 0.2**2, rtol=0.3)


def test_installed_version_is_the_version_of_the_code() -> None:
    assert version("gpflow-pep") == gpflow_pep.__version__
