"""Models that this version and earlier versions wrote are read, and predict what they
predicted then.

``tests/tools/store.py`` wrote them, once for each format of files. A format whose
folder is read here must be read by all later versions.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from numpy.testing import assert_allclose
from tools import store

from gpflow_pep.estimators import load_estimator
from gpflow_pep.scoring import load_scorer
from gpflow_pep.scoring.stored import FORMAT

FORMATS = sorted(Path(__file__).parent.glob("format_*"))
ESTIMATORS = ("compared", "sparse", "classes")
#: Rounding depends on processors and libraries: other kernels of OpenBLAS and the
#: oldest versions of what the package needs change these numbers by at most 1e-11.
RTOL = 1e-9
pytestmark = pytest.mark.parametrize("folder", FORMATS, ids=lambda path: path.name)


def check(found: dict[str, Any], folder: Path, name: str) -> None:
    text = (folder / store.PREDICTIONS).read_text(encoding="utf-8")
    expected = json.loads(text)[name]
    assert found.keys() == expected.keys()
    for key, values in expected.items():
        if isinstance(values[0], str):
            assert found[key] == values
        else:
            assert_allclose(found[key], values, rtol=RTOL, err_msg=key)


def test_this_format_is_among_them(folder: Path) -> None:
    assert folder.parent / f"format_{FORMAT}" in FORMATS


@pytest.mark.parametrize("name", ESTIMATORS)
def test_estimators_and_scorers(folder: Path, name: str) -> None:
    check(store.of_table(load_estimator(folder / name / "model")), folder, name)
    check(store.of_table(load_scorer(folder / name / "scorer")), folder, name)


def test_checkpoints_of_models(folder: Path) -> None:
    models = store.models()
    status = tf.train.Checkpoint(**models).read(str(folder / store.CHECKPOINT))
    status.assert_existing_objects_matched().assert_consumed()
    for name, model in models.items():
        check(store.of_model(model), folder, name)


def test_a_run_goes_on_from_its_checkpoint(folder: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(folder / store.RUN, tmp_path / store.RUN)
    going_on = store.train(copy, store.STEPS + store.MORE_STEPS)
    check(store.of_run(*going_on), folder, store.RUN)
