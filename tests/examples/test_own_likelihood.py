"""The page to copy a likelihood of one's own from runs as it stands and does what it says."""

import re
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpflow_pep as pep

PAGE = Path(__file__).parents[2] / "docs" / "own_likelihood.rst"


@pytest.mark.slow
def test_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(
        r"\.\. code-block:: python\n\n((?:   .*\n|\n)+)", PAGE.read_text(encoding="utf-8")
    )
    names: dict[str, Any] = {"__name__": "own_likelihood"}
    for block in blocks:
        exec(textwrap.dedent(block), names)
    printed = dict(line.split(": ") for line in capsys.readouterr().out.splitlines()[:2])
    assert float(printed["error"]) < 0.2  # outliers of 3 in one row of fifteen
    assert 0.1 < float(printed["scale"]) < 0.7
    with pytest.raises(ValueError, match="expected numbers below a million"):
        pep.tilted.check_support(names["Laplace"](), np.array([[1e7]]))
