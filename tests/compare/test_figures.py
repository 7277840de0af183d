"""The figures show the numbers of the comparison."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from compare.small_comparison import small_classification, small_comparison
from numpy.testing import assert_allclose

from gpflow_pep import plotting
from gpflow_pep.compare import Comparison, figures

pytest.importorskip("matplotlib")

FIGURES = [figures.metrics_figure, figures.predictions_figure, figures.fit_figure]


def without_best() -> Comparison:
    comparison = small_comparison()
    failed = tuple(
        result._replace(scores=dict.fromkeys(result.scores, np.nan))
        for result in comparison.results
    )
    return replace(comparison, results=failed, models={})


@pytest.mark.parametrize("draw", FIGURES)
def test_figures_are_written(tmp_path: Path, draw: Any) -> None:
    draw(small_comparison()).savefig(tmp_path / "figure.png")
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("draw", FIGURES)
def test_pyplot_is_left_alone(draw: Any) -> None:
    draw(small_comparison())
    pyplot = sys.modules.get("matplotlib.pyplot")
    assert pyplot is None or pyplot.get_fignums() == []


def test_metrics_figure_shows_every_score() -> None:
    comparison = small_comparison()
    axes = figures.metrics_figure(comparison).axes
    for panel, field in zip(axes, ("log_z", "smse", "smll", "coverage"), strict=True):
        curve, star = panel.lines[:2]
        values = {
            result.alpha: {"log_z": result.log_z, **result.scores}[field]
            for result in comparison.results
        }
        assert_allclose(curve.get_xydata(), sorted(values.items()))
        best = comparison.best.alpha
        assert_allclose(star.get_xydata(), [(best, values[best])])


def test_failed_fits_are_left_out() -> None:
    comparison = small_comparison()
    results = [
        result._replace(scores={**result.scores, "smll": np.nan}) if result.alpha == 0.5 else result
        for result in comparison.results
    ]
    axes = figures.metrics_figure(replace(comparison, results=tuple(results))).axes
    assert list(axes[0].lines[0].get_xdata()) == [0.0, 1.0]


def test_predictions_figure_shows_mean_and_interval() -> None:
    comparison = small_comparison()
    held_out = comparison.held_out_predictions(comparison.best.alpha)
    axes = figures.predictions_figure(comparison).axes[0]
    points, _, (bars,) = axes.containers[0]
    assert_allclose(points.get_xydata(), held_out[["true", "mean"]])
    ends = np.array([segment[:, 1] for segment in bars.get_segments()])
    assert_allclose(ends, held_out[["lower_90", "upper_90"]])
    assert "load" in axes.get_xlabel() and "load" in axes.get_ylabel()


def test_fit_figure_shows_rows_and_inducing_inputs() -> None:
    comparison = small_comparison()
    axes = figures.fit_figure(comparison).axes[0]
    lines = {line.get_label(): line for line in axes.lines}
    for label, rows in (
        ("training rows", comparison.split.train),
        ("held-out rows", comparison.split.test),
    ):
        dataset = comparison.dataset
        assert_allclose(lines[label].get_xydata(), np.hstack([dataset.X[rows], dataset.Y[rows]]))
    inducing = lines["inducing inputs"].get_xdata()
    assert len(inducing) == 6
    assert np.all((inducing > 90.0) & (inducing < 116.0))
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("time", "load")


@pytest.mark.parametrize("num_classes", [2, 3])
def test_reliability_figure_shows_how_often_predictions_come_true(num_classes: int) -> None:
    comparison = small_classification(num_classes)
    held_out = comparison.held_out_predictions(comparison.best.alpha)
    axes, counts = figures.reliability_figure(comparison).axes
    confidence, accuracy = axes.lines[1].get_xydata().T
    heights = [bar.get_height() for bar in counts.patches]
    assert sum(heights) == len(held_out)
    assert_allclose(np.dot(heights, accuracy), np.sum(held_out["true"] == held_out["predicted"]))
    columns = [column for column in held_out if column.startswith("p(")]
    assert_allclose(np.dot(heights, confidence), np.sum(held_out[columns].max(axis=1)))


def test_figures_that_suit_the_task() -> None:
    for comparison, names in (
        (small_comparison(), ["metrics", "predictions", "fit"]),
        (small_classification(2), ["metrics", "reliability"]),
    ):
        drawings = figures.figures(comparison)
        assert list(drawings) == names
        for draw in drawings.values():
            draw(comparison)


def test_figures_of_the_other_task() -> None:
    with pytest.raises(ValueError, match=r"is a number, expected a class: use predictions_figure"):
        figures.reliability_figure(small_comparison())
    with pytest.raises(ValueError, match=r"2 inputs"):
        figures.fit_figure(small_classification(2))
    with pytest.raises(ValueError, match=r"is a class, expected a number: use reliability_figure"):
        figures.predictions_figure(small_classification(2))


def test_fit_figure_needs_one_input() -> None:
    comparison = small_comparison()
    dataset = comparison.dataset
    two = replace(dataset, X=np.hstack([dataset.X, dataset.X]), feature_names=("a", "b"))
    with pytest.raises(ValueError, match=r"2 inputs, expected 1 .* use predictions_figure"):
        figures.fit_figure(replace(comparison, dataset=two))


@pytest.mark.parametrize("draw", FIGURES)
def test_nothing_to_draw(draw: Any) -> None:
    with pytest.raises(ValueError, match="every fit of the comparison failed, expected at least"):
        draw(without_best())


@pytest.mark.parametrize("draw", FIGURES)
def test_without_matplotlib(draw: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plotting.canvas, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"pip install 'gpflow_pep\[plots\]'"):
        draw(small_comparison())
