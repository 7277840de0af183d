"""The forms in which a fitted estimator predicts: saved, pickled, by NumPy, as a
SavedModel.
"""

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import logsumexp
from scipy.stats import norm

from gpflow_pep import estimators
from gpflow_pep.scoring import load_scorer


def saved(model: Any, folder: Path) -> Any:
    estimators.save_estimator(folder / "model", model)
    return estimators.load_estimator(folder / "model")


def scorer(model: Any, folder: Path) -> Any:
    estimators.export_numpy(folder / "scorer", model)
    return load_scorer(folder / "scorer")


def forms(model: Any, folder: Path) -> Iterator[Any]:
    """All with the methods of the estimator that predict."""
    yield saved(model, folder)
    yield pickle.loads(pickle.dumps(model))
    yield scorer(model, folder)


def check_forms(
    model: Any, folder: Path, X: Any, y: Any, rtol: float = 1e-9
) -> list[Any]:
    """Each form predicts as the estimator does, and has its words; the forms."""
    found = list(forms(model, folder))
    for other in found:
        assert_array_equal(other.far_rows(X), model.far_rows(X))
        if hasattr(model, "predict_proba"):
            assert_allclose(other.predict_proba(X), model.predict_proba(X), rtol=rtol)
            assert_array_equal(other.predict(X), model.predict(X))
            continue
        expected = model.predict(X, return_std=True)
        assert_allclose(other.predict(X, return_std=True), expected, rtol=rtol)
        assert_allclose(other.log_densities(X, y), model.log_densities(X, y), rtol=rtol)
        assert_allclose(other.predict_interval(X), model.predict_interval(X), rtol=rtol)
    assert all(other.summary() == model.summary() for other in found[:2])
    return found


def check_mixture(
    fitted: Any, X: Any, w: Any, m: Any, s: Any, rtol: float = 1e-9
) -> None:
    """All predictions of y are of the Gaussians N(m, s^2) [K, N] with weights
    w [K, 1].
    """
    mean, sd = fitted.predict(X, return_std=True)
    assert_allclose(mean, (w * m).sum(0), rtol=rtol)
    assert_allclose(sd**2, (w * (s**2 + (m - mean) ** 2)).sum(0), rtol=1e-7)
    density = logsumexp(norm.logpdf(mean + 1.0, m, s), axis=0, b=w)
    assert_allclose(fitted.log_densities(X, mean + 1.0), density, rtol=1e-7)
    ends = (
        *fitted.predict_quantiles(X, [0.1, 0.7]).T,
        *fitted.predict_interval(X, 0.8).T,
    )
    for end, q in zip(ends, (0.1, 0.7, 0.1, 0.9), strict=True):
        assert_allclose((w * norm.cdf(end, m, s)).sum(0), q, rtol=1e-8)
    _, covariance = fitted.predict(X, return_cov=True)
    assert_allclose(np.diag(covariance), sd**2, rtol=1e-7)
    draws = fitted.sample_y(X, 4000, random_state=1)
    assert draws.shape == (len(X), 4000)
    assert (np.abs(draws.mean(1) - mean) < 5.0 * sd / np.sqrt(4000)).all()
    assert (np.abs(draws.std(1) / sd - 1.0) < 0.15).all()
