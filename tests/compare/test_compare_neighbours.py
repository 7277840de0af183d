"""Comparisons of regression whose conditionals know neighbours."""

from pathlib import Path

import numpy as np
import pytest
from compare.small_comparison import run, small_table
from numpy.testing import assert_allclose

from gpflow_pep.compare import compare
from gpflow_pep.estimators import load_estimator, save_estimator


@pytest.mark.slow
def test_models_have_neighbours_and_keep_them(tmp_path: Path) -> None:
    table = small_table()
    options = {"num_inducing": 4, "max_iterations": 12, "splits": 1, "baselines": False}
    comparison = compare(table, "load", alphas=(0.5,), neighbours=3, **options)
    model, final = comparison.model, comparison.final
    assert model is not None and final is not None
    assert model[-1].model_.neighbours == 3
    log_z = model[-1].model_.pep_log_marginal_likelihood()
    assert np.isclose(final.log_z, log_z)
    save_estimator(tmp_path / "model", model)
    loaded, X = load_estimator(tmp_path / "model"), table[["time"]]
    assert loaded[-1].model_.neighbours == 3
    assert_allclose(loaded[-1].model_.pep_log_marginal_likelihood(), log_z, rtol=1e-12)
    assert_allclose(loaded.predict(X), model.predict(X), rtol=1e-10)


def test_the_option_is_documented() -> None:
    assert "--neighbours" in run("compare", "--help").output
