"""Pictures of predicted numbers show the numbers."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from scipy.stats import binom

from gpflow_pep import plotting
from gpflow_pep.plotting import canvas


def texts(ax: Any) -> str:
    return "\n".join(text.get_text() for text in ax.texts)


def predictions(size: int) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(0)
    mean = rng.normal(size=size)
    std = rng.uniform(0.5, 1.5, size)
    return mean + std * rng.normal(size=size), mean, std


@pytest.mark.parametrize("given", ["std", "intervals"])
def test_few_rows_have_points_and_intervals(ax: Any, given: str) -> None:
    y, mean, std = predictions(20)
    half = 0.6744897501960817 * std  # the normal quantile of 0.75
    ends = np.stack([mean - half, mean + (half if given == "std" else 3.0 * std)], axis=1)
    options = {"std": std, "level": 0.5} if given == "std" else {"intervals": pd.DataFrame(ends)}
    assert plotting.predicted_against_actual(y, mean, **options, ax=ax) is ax
    (segments,) = [found.get_segments() for found in ax.collections]
    assert_allclose([one[:, 1] for one in segments], ends)
    drawn = [line.get_xydata() for line in ax.lines if len(line.get_xdata()) == 20]
    assert_allclose(drawn, [np.stack([y, mean], axis=1)])
    held = np.mean((ends[:, 0] <= y) & (y <= ends[:, 1]))
    assert f"{50 if given == 'std' else 90}% intervals hold {held:.1%}" in texts(ax)
    assert ax.get_xlim() == ax.get_ylim()


def test_many_rows_are_a_density_below_the_diagonal(ax: Any) -> None:
    y, mean, std = predictions(40_000)
    plotting.predicted_against_actual(y, mean, std, ax=ax)
    (cells,) = ax.collections
    assert cells.get_array().sum() == 40_000
    (diagonal,) = ax.lines
    assert diagonal.get_slope() == 1.0 and diagonal.get_zorder() > cells.get_zorder()
    assert "40\u2009000 rows" in texts(ax)


def test_rows_far_off_do_not_squeeze_the_others(ax: Any) -> None:
    y, mean, _ = predictions(5000)
    y[:3] = 1e6
    plotting.predicted_against_actual(y, mean, ax=ax)
    assert ax.get_xlim()[1] < 20.0
    assert ax.collections[0].get_array().sum() == 4997
    assert "3 rows outside" in texts(ax)


@pytest.mark.parametrize("values", [[0.0, 1.0, 1e6], [3.0] * 5])
def test_a_view_shows_all_of_few_or_equal_values(values: Any) -> None:
    low, high = plotting.regression.view(np.array(values))
    assert low < min(values) and high > max(values)


def test_pit_histogram_and_its_band(ax: Any) -> None:
    values = np.concatenate([np.full(30, 0.05), np.full(10, 0.3), np.full(10, 0.7)])
    plotting.pit_histogram(values, num_bins=5, level=0.9, ax=ax)
    bars = [one for one in ax.patches if one.get_width() == pytest.approx(0.2)]
    assert_allclose([bar.get_height() for bar in bars], [3.0, 1.0, 0.0, 1.0, 0.0])
    (band,) = [one for one in ax.patches if one not in bars]
    low, high = band.get_extents().transformed(ax.transData.inverted()).intervaly
    counts = np.arange(51)
    tail = [binom.pmf(counts, 50, 0.2)[: round(10 * low) + 1].sum()]
    assert tail[0] >= 0.05 and binom.cdf(round(10 * low) - 1, 50, 0.2) < 0.05
    assert binom.cdf(round(10 * high), 50, 0.2) >= 0.95
    orange = [bar.get_facecolor()[0] > 0.5 for bar in bars]
    assert orange == [True, False, True, False, True]


def test_regression_in_one_input(ax: Any) -> None:
    x, mean, std = np.array([2.0, 0.0, 1.0]), np.array([5.0, 3.0, 4.0]), np.array([1.0, 2.0, 0.5])
    blurred = plotting.Inducing(np.array([[0.5], [1.5]]), np.array([[[0.04]], [[0.0]]]))
    options = {"data": {"train": ([0.0, 1.0], [3.5, 4.5])}, "inducing": blurred}
    plotting.regression_1d(x, mean, std, **options, levels=[0.9], ax=ax)
    lines = {len(line.get_xdata()): line for line in ax.lines if len(line.get_xdata())}
    assert_allclose(lines[3].get_xydata(), [[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]])
    band, blur = ax.collections
    vertices = band.get_paths()[0].vertices
    half = 1.6448536269514722 * std[[1, 2, 0]]
    for place, (middle, spread) in enumerate(zip(np.array([3.0, 4.0, 5.0]), half)):
        found = vertices[vertices[:, 0] == place, 1]
        assert_allclose([found.min(), found.max()], [middle - spread, middle + spread])
    assert_allclose([one[:, 0] for one in blur.get_segments()], [[0.3, 0.7], [1.5, 1.5]])
    names = {text.get_text() for text in ax.get_legend().texts}
    assert names == {"mean", "90%", "train", "inducing inputs", "blur ± 1 std"}
    _, top = ax.get_ylim()
    assert top > 5.0 + 1.6448536269514722  # the legend has room above the band


def test_regression_without_a_legend(ax: Any) -> None:
    plotting.regression_1d([0.0, 1.0], [3.0, 4.0], [1.0, 1.0], levels=[0.9], legend=False, ax=ax)
    low, high = ax.get_ylim()
    assert ax.get_legend() is None  # and no room for one
    assert_allclose(high - 5.6448536269514722, 1.3551463730485278 - low)


def test_new_axes_are_pyplots_and_its_other_figures_are_left_alone(ax: Any) -> None:
    pyplot = pytest.importorskip("matplotlib.pyplot")
    found = plotting.predicted_against_actual([1.0, 2.0], [1.0, 1.5])
    assert pyplot.gcf() is found.figure
    before = pyplot.get_fignums()
    plotting.predicted_against_actual([1.0, 2.0], [1.0, 1.5], ax=ax)
    assert pyplot.get_fignums() == before
    pyplot.close(found.figure)


def test_without_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(canvas, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"pip install 'gpflow_pep\[plots\]'"):
        plotting.predicted_against_actual([1.0, 2.0], [1.0, 1.5])
