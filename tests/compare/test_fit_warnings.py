"""Warnings of the library in the command: which model, and what they mean for the
table.
"""

import html
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from compare.small_comparison import run, small_comparison, small_table
from scipy.optimize import minimize, rosen
from sklearn.exceptions import ConvergenceWarning as NotConverged

from gpflow_pep.compare import Fit
from gpflow_pep.compare import findings as words
from gpflow_pep.compare.fit_warnings import (
    MEANINGS,
    plain,
    sentences,
    warnings_named,
    with_warnings,
)
from gpflow_pep.engine.numerics.linalg import JitterWarning
from gpflow_pep.estimators import PEPRegressor
from gpflow_pep.models.base import NO_FACTOR, TrialWarning

STEPPED_BACK = MEANINGS[TrialWarning]
JITTER = MEANINGS[JitterWarning]


def test_each_meaning_is_given_once_and_other_texts_as_they_are() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for category in (TrialWarning, TrialWarning, JitterWarning):
            warnings.warn(NO_FACTOR, category, stacklevel=1)
        for _ in range(2):
            warnings.warn("a text\n of others", UserWarning, stacklevel=1)
    assert sentences(caught) == (STEPPED_BACK, JITTER, "a text of others")


def test_what_numpy_and_scipy_say_is_worded_for_the_table() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        np.mean(np.zeros(0))
        np.log(np.zeros(1))
    assert {warning.category for warning in caught} == {RuntimeWarning}
    assert sentences(caught) == (MEANINGS[RuntimeWarning],)
    for limit in ("maxiter", "maxfun"):
        stopped = minimize(rosen, np.zeros(4), method="L-BFGS-B", options={limit: 2})
        message = f"It stayed. {stopped.message}"
        expected = "It stayed. The steps ran out. A larger --max-iterations may help."
        assert plain(message) == expected


def test_warnings_outside_of_fits_have_a_name() -> None:
    with pytest.warns(UserWarning) as caught, warnings_named("default, pictures"):
        warnings.warn(NO_FACTOR, TrialWarning, stacklevel=1)
        warnings.warn("a text", UserWarning, stacklevel=1)
    texts = [str(warning.message) for warning in caught]
    assert texts == [f"default, pictures: {STEPPED_BACK}", "default, pictures: a text"]


@pytest.mark.parametrize(
    "warned, where",
    [
        ([("alpha 0", 2)], "alpha 0, 1 of 2 fits"),
        ([("alpha 0", 0)], "alpha 0, all rows"),
        ([("alpha 0", 1), ("alpha 0", 2)], "alpha 0, 2 of 2 fits"),
        ([("alpha 1", 1), ("alpha 0", 2)], "alpha 1 and alpha 0, 2 of 4 fits"),
    ],
)
def test_findings_name_the_fit(warned: list[tuple[str, int]], where: str) -> None:
    def noted(fit: Any) -> Any:
        texts = (JITTER,) if (fit.model, fit.part) in warned else ()
        return fit._replace(warnings=texts)

    comparison = small_comparison()
    final = comparison.final
    if ("alpha 0", 0) in warned:
        final = comparison.fits[0]._replace(model="alpha 0", part=0)
    changed = replace(
        comparison, fits=[*map(noted, comparison.fits)], final=noted(final)
    )
    assert list(words._of_warnings(changed)) == [f"{where}: {JITTER}"]


def test_the_command_names_the_model_and_what_it_means(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fit that warns and fails: on the terminal and the page, without the advice for
    programs.
    """
    fit = PEPRegressor.fit

    def warns(self: PEPRegressor, X: Any, y: Any) -> PEPRegressor:
        if self.alpha == 0.5:
            warnings.warn(NO_FACTOR, TrialWarning, stacklevel=1)
            if len(X) < 40:
                raise ValueError(NO_FACTOR)
        return fit(self, X, y)

    monkeypatch.setattr(PEPRegressor, "fit", warns)
    small_table().to_csv(tmp_path / "t.csv", index=False)
    options = "--alphas 0.5 --splits 2 --inducing 4 --max-iterations 2 --no-baselines"
    result = run(
        *("compare", tmp_path / "t.csv", "--target", "load", *options.split()),
        *("--no-details", "--jobs", 1, "--out", tmp_path / "out"),
    )
    shown = result.stdout + result.stderr
    page = html.unescape((tmp_path / "out" / "report.html").read_text())
    for text in (shown, page):
        assert f"Alpha 0.5, 2 of 2 fits: {STEPPED_BACK}" in text
        assert f"Alpha 0.5: 2 of 2 fits failed: {plain(NO_FACTOR)}" in text
        assert "training loss" not in text and "maximise" not in text


@pytest.mark.parametrize("converged, message", [(True, None), (False, "The time ran")])
def test_a_fit_whose_optimiser_warns_did_not_converge(
    converged: bool, message: str | None
) -> None:
    """Its own message is kept, where it has one."""
    fit = Fit("linear", 1, {}, 0.0, 0.0, 1, converged, message or "")
    with warnings.catch_warnings(record=True) as caught:
        warnings.warn("lbfgs failed to converge", NotConverged, stacklevel=1)
    found = with_warnings(fit, caught)
    assert not found.converged and found.warnings == ()
    assert found.message == (message or MEANINGS[NotConverged])


@pytest.mark.slow
def test_a_comparison_without_warnings_has_none() -> None:
    comparison = small_comparison()
    assert not list(words._of_warnings(comparison))
    assert all(fit.warnings == () for fit in comparison.fits)
