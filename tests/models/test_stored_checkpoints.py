"""Checkpoints of earlier versions: they load, and the models give what they gave then."""

import json
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from stored_models import create, numbers

from gpflow_pep.models.pep import _record_of_run

STORED = Path(__file__).parent / "stored"
VERSIONS = sorted(path.stem for path in STORED.glob("*.json"))


@pytest.mark.parametrize("version", VERSIONS)
def test_models_continue_from_a_checkpoint(version: str) -> None:
    given = json.loads((STORED / f"{version}.json").read_text(encoding="utf-8"))
    del given["neighbours"]  # which models no longer have in training
    models = create(0.0)
    assert set(given) <= set(models)
    before = numbers(models["regression"])["log_z"]
    assert abs(before - given["regression"]["log_z"]) > 0.1
    checkpoint = tf.train.Checkpoint(**{name: models[name] for name in given})
    checkpoint.read(str(STORED / version)).assert_existing_objects_matched()
    for name, expected in given.items():
        actual = numbers(models[name])
        assert actual["parameters"] == expected["parameters"]
        for part in ("log_z", "mean", "variance"):
            value = expected[part]
            np.testing.assert_allclose(actual[part], value, rtol=1e-6, atol=1e-8, err_msg=name)


@pytest.mark.parametrize(
    ("index", "name"), [*enumerate(("", "continuation", "clipped", "clipped"))]
)
def test_records_of_earlier_versions_are_read(index: int, name: str) -> None:
    """The net was the third fallback, and of another name."""
    assert _record_of_run(np.array([80.0, 3.0, 0.0, 11.0, index])).fallback == name


def test_each_version_that_is_read_has_its_checkpoint() -> None:
    assert "0.1.0-2026-11-23" in VERSIONS
