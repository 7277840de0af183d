"""Estimators that each version of the file format wrote, with the predictions of that day.

A format that was written once can be read for ever: folders are added here and never written anew.
"""

import json
from pathlib import Path

import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from gpflow_pep.engine.files import MODEL
from gpflow_pep.estimators import PEPClassifier, load_estimator, save_estimator
from gpflow_pep.scoring.stored import FORMATS

DATA = Path(__file__).parent / "data"
FOLDERS = sorted(path.parent for path in DATA.glob("*/*/model.json"))


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: str(folder.relative_to(DATA)))
def test_predictions_are_those_of_that_day(folder: Path, tmp_path: Path) -> None:
    estimator = load_estimator(folder)
    recorded = json.loads(folder.with_suffix(".json").read_text())
    rows, expected = pd.DataFrame(recorded["rows"]), recorded["predictions"]
    if isinstance(estimator, PEPClassifier):
        assert_array_equal(estimator.predict(rows), expected["predict"])
        assert_allclose(estimator.predict_proba(rows), expected["predict_proba"], rtol=1e-6)
    else:
        mean, std = estimator.predict(rows, return_std=True)
        assert_allclose(mean, expected["predict"], rtol=1e-6)
        assert_allclose(std, expected["std"], rtol=1e-6)
    save_estimator(tmp_path, estimator)
    assert_array_equal(load_estimator(tmp_path).predict(rows), estimator.predict(rows))


def test_every_format_has_examples() -> None:
    assert {folder.parent.name for folder in FOLDERS} == {
        f"format_{number}" for number in FORMATS[MODEL]
    }
