"""Comparisons of regression whose conditionals know neighbours."""

from pathlib import Path

import pytest
from compare.small_comparison import run, small_classes, small_dataset
from numpy.testing import assert_allclose

from gpflow_pep.compare import compare
from gpflow_pep.compare.saving import load_model, save_model


def test_models_have_neighbours_and_keep_them(tmp_path: Path) -> None:
    comparison = compare(
        small_dataset(), alphas=(0.5,), num_inducing=4, max_iterations=12, neighbours=3
    )
    (fitted,) = comparison.models.values()
    assert fitted.model.neighbours == 3
    assert comparison.results[0].log_z == pytest.approx(fitted.log_z())
    save_model(tmp_path / "model", fitted)
    loaded, X = load_model(tmp_path / "model"), comparison.dataset.X
    assert loaded.model.neighbours == 3
    assert loaded.log_z() == pytest.approx(fitted.log_z(), rel=1e-12)
    for restored, expected in zip(loaded.predict(X), fitted.predict(X), strict=True):
        assert_allclose(restored, expected, rtol=1e-10)


def test_classes_have_none() -> None:
    with pytest.raises(ValueError, match=r"neighbours is 3 for a target of classes, expected 0"):
        compare(small_classes(2), neighbours=3)


def test_the_option_is_documented() -> None:
    assert "--neighbours" in run("compare", "--help").output
