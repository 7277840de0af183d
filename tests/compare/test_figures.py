"""The figures show the numbers of the comparison."""

import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from compare.small_comparison import small_classification, small_comparison
from numpy.testing import assert_allclose
from scipy.stats import norm

from gpflow_pep.compare import Comparison, figures, summarise
from gpflow_pep.compare.scores import held_out
from gpflow_pep.plotting import canvas

patches = pytest.importorskip("matplotlib.patches")

FIGURES = [figures.scores_figure, figures.predictions_figure, figures.fit_figure]


def without_best() -> Comparison:
    return replace(small_comparison(), best=None, model=None)


@pytest.mark.parametrize(
    "comparison, names",
    [
        (small_comparison, ["scores", "predictions", "fit", "details", "training"]),
        (small_classification, ["scores", "classes", "details", "relevance", "training"]),
    ],
)
def test_figures_that_suit_the_target_leave_pyplot_alone(comparison: Any, names: Any) -> None:
    def numbers() -> list[int]:
        pyplot = sys.modules.get("matplotlib.pyplot")
        return [] if pyplot is None else pyplot.get_fignums()

    before = numbers()  # other tests of this process may have left some
    drawings = figures.figures(comparison())
    assert list(drawings) == names
    for draw in drawings.values():
        assert draw(comparison()).axes
    assert numbers() == before


def test_scores_figure_shows_every_score_with_its_error() -> None:
    comparison = small_comparison()
    table = summarise(comparison).loc[["alpha 0", "alpha 1"]]
    axes = figures.scores_figure(comparison).axes
    for panel, metric in zip(axes, comparison.metrics, strict=True):
        line, _, (bars,) = panel.containers[0]
        assert_allclose(line.get_xydata(), table[["alpha", metric.name]])
        ends = np.array([segment[:, 1] for segment in bars.get_segments()])
        errors = table[f"{metric.name}_se"]
        assert_allclose(ends[:, 1] - ends[:, 0], 2 * errors)
        texts = " ".join(text.get_text() for text in panel.get_legend().get_texts())
        assert "mean" in texts and "exact GP" in texts


def test_powers_that_failed_are_left_out() -> None:
    comparison = small_comparison()
    fits = [
        fit._replace(scores=dict.fromkeys(fit.scores, np.nan)) if fit.model == "alpha 1" else fit
        for fit in comparison.fits
    ]
    axes = figures.scores_figure(replace(comparison, fits=fits, best="alpha 0")).axes
    assert list(axes[0].containers[0][0].get_xdata()) == [0.0]


def test_fit_figure_is_of_the_users_columns() -> None:
    axes = figures.fit_figure(small_comparison()).axes[0]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("time", "load")
    low, high = axes.get_xlim()
    assert 98.0 < low < 101.0 and 105.0 < high < 108.0


def test_fit_figure_needs_one_input() -> None:
    with pytest.raises(ValueError, match=r"got the inputs length, width, .* Call predictions_fig"):
        figures.fit_figure(small_classification())


@pytest.mark.parametrize("draw", FIGURES)
def test_nothing_to_draw(draw: Any) -> None:
    with pytest.raises(ValueError, match="failed"):
        draw(without_best())


@pytest.mark.parametrize("draw", FIGURES)
def test_without_matplotlib(draw: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(canvas, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"pip install 'gpflow_pep\[plots\]'"):
        draw(small_comparison())


def test_the_learning_curve_names_its_numbers_of_rows() -> None:
    *_, axes = figures.details_figure(small_comparison()).axes
    assert [label.get_text() for label in axes.get_xticklabels()] == ["10", "20"]
    assert len(axes.get_xticks(minor=True)) == 0


@pytest.mark.parametrize("name", ["default", "alpha 0"])
def test_the_histogram_is_of_the_predicted_distributions(name: str) -> None:
    """Which are no Gaussians where models are mixed: quantiles invert their functions."""
    comparison = replace(small_comparison(), best=name)
    table = comparison.held_out[name]
    if name != "default":
        gaussian = norm.cdf(table["true"], table["mean"], table["sd"])
        assert_allclose(table["pit"], gaussian, rtol=1e-8)
    model = comparison.model
    assert model is not None
    predicted = held_out(model, comparison.data.X, comparison.data.y, False)
    inputs = model[:-1].transform(comparison.data.X)
    quantiles = model[-1].predict_quantiles(inputs, predicted["pit"])
    assert_allclose(np.diag(quantiles), predicted["true"], rtol=1e-8)
    *_, axes = figures.predictions_figure(comparison).axes
    heights = [bar.get_height() for bar in axes.patches if isinstance(bar, patches.Rectangle)]
    counts, _ = np.histogram(table["pit"], 5, (0.0, 1.0))
    assert_allclose(heights[:5], counts * 5 / len(table))
