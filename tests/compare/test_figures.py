"""The figures show the numbers of the comparison."""

import io
import sys
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import gpflow
import numpy as np
import pytest
from compare.small_comparison import small_classification, small_comparison
from numpy.testing import assert_allclose
from scipy.stats import norm
from sklearn.pipeline import Pipeline

from gpflow_pep.compare import Comparison, figures, make_preparation, report, summarise
from gpflow_pep.compare.scores import held_out
from gpflow_pep.plotting import canvas

patches = pytest.importorskip("matplotlib.patches")


def drawn(name: str, comparison: Comparison) -> Any:
    return figures.figures(comparison)[name](comparison)


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
    axes = drawn("scores", comparison).axes
    for panel, metric in zip(axes, comparison.metrics, strict=True):
        line, _, (bars,) = panel.containers[0]
        assert_allclose(line.get_xydata(), table[["alpha", metric.name]])
        ends = np.array([segment[:, 1] for segment in bars.get_segments()])
        errors = table[f"{metric.name}_se"]
        assert_allclose(ends[:, 1] - ends[:, 0], 2 * errors)
        texts = " ".join(text.get_text() for text in panel.get_legend().get_texts())
        assert "mean" in texts and "exact GP" in texts


def test_the_page_has_each_part_of_a_picture_by_itself() -> None:
    """So that it can be read at 390 pixels: PNG files of half the width have all that is drawn."""
    image = pytest.importorskip("matplotlib.image")
    pictures = report._draw(small_comparison())["scores"]
    whole, *parts = (image.imread(io.BytesIO(png)) for png in pictures)
    assert len(parts) == len(small_comparison().metrics) == 4
    dark = [np.sum(pixels[:, :, :3].min(axis=2) < 0.9) for pixels in (whole, *parts)]
    assert sum(dark[1:]) == dark[0] > 10_000
    assert all(part.shape[1] <= 0.52 * whole.shape[1] for part in parts)


def test_relevance_has_a_bar_for_each_column_of_the_table() -> None:
    comparison = small_classification()
    X = comparison.data.X.assign(colour=np.resize(["red", "blue", "green"], len(comparison.data.X)))
    encoder = make_preparation(X).fit(X)
    lengthscales = [0.5, 2.0, 3.0, 4.0, 12.0]
    kernel = gpflow.kernels.SquaredExponential(lengthscales=lengthscales)
    last = SimpleNamespace(kernel_=kernel, n_features_in_=5, record_=None)
    model = Pipeline([("encoder", encoder), ("last", last)])
    axes = drawn("relevance", replace(comparison, model=model)).axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["length", "width", "colour"]
    widths = [bar.get_width() for bar in axes.patches]
    assert_allclose(widths, [2.0, 0.5, np.sqrt(1 / 9 + 1 / 16 + 1 / 144)])


def test_powers_that_failed_are_left_out() -> None:
    comparison = small_comparison()
    fits = [
        fit._replace(scores=dict.fromkeys(fit.scores, np.nan)) if fit.model == "alpha 1" else fit
        for fit in comparison.fits
    ]
    axes = drawn("scores", replace(comparison, fits=fits, best="alpha 0")).axes
    assert list(axes[0].containers[0][0].get_xdata()) == [0.0]


def test_fit_figure_is_of_the_users_columns() -> None:
    axes = drawn("fit", small_comparison()).axes[0]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("time", "load")
    low, high = axes.get_xlim()
    assert 98.0 < low < 101.0 and 105.0 < high < 108.0


def test_nothing_to_draw() -> None:
    comparison = replace(small_comparison(), best=None, model=None, details=None)
    assert figures.figures(comparison) == {}


@pytest.mark.parametrize("name", ["scores", "predictions", "fit"])
def test_without_matplotlib(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(canvas, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"pip install 'gpflow_pep\[plots\]'"):
        drawn(name, small_comparison())


def test_the_learning_curve_names_its_numbers_of_rows() -> None:
    *_, axes = drawn("details", small_comparison()).axes
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
    *_, axes = drawn("predictions", comparison).axes
    heights = [bar.get_height() for bar in axes.patches if isinstance(bar, patches.Rectangle)]
    counts, _ = np.histogram(table["pit"], 5, (0.0, 1.0))
    assert_allclose(heights[:5], counts * 5 / len(table))
