"""Pictures of numbers, classes, inducing points and kernels show the numbers.

They are drawn on axes of a figure that is not pyplot's.
"""

from functools import partial
from typing import Any

import gpflow
import numpy as np
import pandas as pd
import pytest
from gpflow.inducing_variables import InducingPoints
from gpflow.kernels import SharedIndependent
from gpflow.kernels import SquaredExponential as SE
from numpy.testing import assert_allclose
from scipy.stats import binom

import gpflow_pep as pep
from gpflow_pep import plotting
from gpflow_pep.plotting import canvas
from gpflow_pep.plotting import predicted_against_actual as against_actual


@pytest.fixture
def ax() -> Any:
    figure = pytest.importorskip("matplotlib.figure").Figure(
        figsize=(5.0, 5.0), dpi=100
    )
    return figure.subplots()


@pytest.fixture(autouse=True)
def no_window(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPLBACKEND", "Agg")


def texts(ax: Any) -> list[str]:
    return [text.get_text() for text in ax.texts]


def note_of(ax: Any) -> str:
    return str(ax.get_title(loc="left"))


def named(ax: Any) -> list[str]:
    return [text.get_text() for text in ax.get_legend().texts]


def test_reliability_with_counts_and_intervals(ax: Any) -> None:
    P = np.array([[0.9, 0.1]] * 8 + [[0.35, 0.65]] * 3)
    labels = np.array([0] * 6 + [1] * 2 + [1, 1, 0])
    plotting.reliability(labels, P, ax=ax)
    (curve,) = [line.get_xydata() for line in ax.lines if line.get_marker() == "o"]
    assert_allclose(curve, [[0.65, 2 / 3], [0.9, 0.75]])
    for segment, share, number in zip(
        ax.collections[0].get_segments(), curve[:, 1], (3, 8)
    ):
        ends = segment[:, 1]  # Wilson's: where the score test is on the edge
        variance = ends * (1.0 - ends) / number
        assert_allclose(
            (share - ends) ** 2, 1.959963984540054**2 * variance, atol=1e-12
        )
    assert {"3", "8"} <= set(texts(ax))
    heights = [bar.get_height() for bar in ax.patches]
    assert_allclose(heights[0] / heights[1], 3 / 8)


def test_reliability_of_an_event_and_confusion_of_words(ax: Any) -> None:
    plotting.reliability([0, 1, 0, 0], [0.2, 0.2, 0.2, 0.8], ax=ax)
    (curve,) = [line.get_xydata() for line in ax.lines if line.get_marker() == "o"]
    assert_allclose(curve, [[0.2, 1 / 3], [0.8, 0.0]])
    plotting.confusion_matrix(["b", "a"], ["b", "c"], ax=ax)
    assert_allclose(ax.images[0].get_array(), [[0, 0, 1], [0, 1, 0], [0, 0, 0]])


@pytest.mark.parametrize("names", [None, ["no", "yes", "never seen"]])
def test_confusion_matrix(ax: Any, names: Any) -> None:
    plotting.confusion_matrix([0, 0, 0, 1], [0, 0, 1, 1], names, ax=ax)
    fractions = np.asarray(ax.images[0].get_array())
    assert_allclose(fractions[:2, :2], [[2 / 3, 1 / 3], [0.0, 1.0]])
    assert [text for text in texts(ax) if text] == ["2", "1", "1"]
    assert [label.get_text() for label in ax.get_yticklabels()][:2] == (
        ["0", "1"] if names is None else ["no", "yes"]
    )
    assert ax.get_title() == "75.0% of 4 right"


def test_decision_boundary_of_a_function(ax: Any) -> None:
    X = np.array([[0.0, 0.0], [1.0, 1.0], [1.0, 0.0]])

    def right(inputs: Any) -> Any:
        p = 1.0 / (1.0 + np.exp(-8.0 * (inputs[:, :1] - 0.5)))
        return np.hstack([1.0 - p, p])

    C = np.array([[[0.09, 0.0], [0.0, 0.25]]])
    blurred = plotting.Inducing(np.array([[0.5, 0.5]]), C)
    plotting.decision_boundary(X, ["a", "b", "b"], right, inducing=[blurred], ax=ax)
    boundary = ax.collections[0].get_paths()[0].vertices
    assert_allclose(boundary[:, 0], 0.5, atol=1e-3)
    drawn = [line.get_xydata() for line in ax.lines]
    assert_allclose(drawn[0], X[:1])
    assert_allclose(drawn[1], X[1:])
    (ellipse,) = [one for one in ax.collections if hasattr(one, "_widths")]
    # Of the larger half axis, 0.5, at 90 degrees; the collection keeps halves.
    assert_allclose([ellipse._widths[0], ellipse._heights[0]], [0.5, 0.3])
    assert_allclose(abs(np.degrees(ellipse._angles[0])), 90.0)


def test_decision_boundary_of_a_model_is_its_own(ax: Any) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(12, 2))
    labels = (X[:, :1] > 0.0).astype(float)
    model = pep.PEPClassification(
        (X, labels), SE(), gpflow.likelihoods.Bernoulli(), X[:3]
    )
    found = plotting.classes.predictor(model)(X)
    expected = np.asarray(model.predict_y(X)[0])
    assert_allclose(found, np.hstack([1.0 - expected, expected]), rtol=1e-6)
    plotting.decision_boundary(X, labels, model, ax=ax)
    assert_allclose(ax.lines[-1].get_xydata(), X[:3])


def test_inducing_points_of_estimators_are_in_original_units() -> None:
    X = np.linspace(100.0, 300.0, 20)[:, None]
    model = pep.estimators.PEPRegressor(
        num_inducing=3, max_iterations=1, random_state=0
    )
    with pytest.warns(UserWarning, match="Training ended"):
        model.fit(X, np.sin(X[:, 0] / 40.0))
    (found,) = plotting.inducing_points_of(model)
    Z = model.inducing_variable_.Z.numpy()
    assert_allclose(found.Z, X.mean() + X.std() * Z)
    assert found.covariance is None


def test_inducing_points_with_blur_and_of_each_set() -> None:
    points = pep.inducing_variables.BlurredInducingPoints(
        np.eye(2), np.array([0.25, 1.0])
    )
    found = plotting.inducing_points_of(points)
    assert_allclose(found[0].covariance, [0.25 * np.eye(2), np.eye(2)])
    Z = np.eye(3, 2)
    sets = gpflow.inducing_variables
    shared = sets.SharedIndependentInducingVariables(InducingPoints(Z))
    separate = sets.SeparateIndependentInducingVariables(
        list(map(InducingPoints, (Z, Z + 1)))
    )
    for kernel, variables, expected in (
        (SE(), Z, [Z]),
        (SharedIndependent(SE(), 2), shared, [Z]),
        (gpflow.kernels.SeparateIndependent([SE(), SE()]), separate, [Z, Z + 1]),
    ):
        noise = gpflow.likelihoods.Gaussian()
        model = gpflow.models.SVGP(kernel, noise, variables, num_latent_gps=2)
        found = plotting.inducing_points_of(model)
        assert_allclose([inducing.Z for inducing in found], expected)


def test_alpha_sweep_and_baselines(ax: Any) -> None:
    plotting.alpha_sweep(
        [1.0, 0.0, 0.5],
        [0.3, 0.1, 0.2],
        [0.01, 0.02, 0.03],
        best=0.5,
        baselines={"GP": (0.25, 0.05), "mean": 99.0},
        ax=ax,
    )
    assert_allclose(ax.lines[0].get_xydata(), [[0.0, 0.1], [0.5, 0.2], [1.0, 0.3]])
    bars = ax.collections[0].get_segments()
    assert_allclose(
        [one[:, 1] for one in bars], [[0.08, 0.12], [0.17, 0.23], [0.29, 0.31]]
    )
    (ring,) = [line for line in ax.lines if line.get_fillstyle() == "none"]
    assert_allclose(ring.get_xydata(), [[0.5, 0.2]])
    heights = {
        line.get_label(): line.get_ydata()
        for line in ax.lines
        if ":" in line.get_label()
    }
    assert_allclose(heights["GP: 0.25"], [0.25, 0.25])
    low, high = (
        ax.patches[0].get_extents().transformed(ax.transData.inverted()).intervaly
    )
    assert_allclose([low, high], [0.2, 0.3])
    assert named(ax) == ["GP: 0.25", "mean: 99 ↑"] and ax.get_ylim()[1] < 1.0


def test_one_alpha_is_a_point_with_its_number(ax: Any) -> None:
    plotting.alpha_sweep([0.5], [0.2], [0.01], best=0.5, baselines={"SVGP": 0.4}, ax=ax)
    assert [len(line.get_xdata()) for line in ax.lines if line.get_marker() == "o"] == [
        1
    ]
    assert sorted(named(ax)) == ["SVGP: 0.4", "alpha 0.5: 0.2"]
    assert ax.get_xlim()[0] < 0.0 < 1.0 < ax.get_xlim()[1]


def predictions(size: int) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(0)
    mean = rng.normal(size=size)
    std = rng.uniform(0.5, 1.5, size)
    return mean + std * rng.normal(size=size), mean, std


@pytest.mark.parametrize("given", ["std", "intervals"])
def test_few_rows_have_points_and_intervals(ax: Any, given: str) -> None:
    y, mean, std = predictions(20)
    half = 0.6744897501960817 * std  # the normal quantile of 0.75
    ends = np.stack(
        [mean - half, mean + (half if given == "std" else 3.0 * std)], axis=1
    )
    options = (
        {"std": std, "level": 0.5}
        if given == "std"
        else {"intervals": pd.DataFrame(ends)}
    )
    assert against_actual(y, mean, **options, ax=ax) is ax
    (segments,) = [found.get_segments() for found in ax.collections]
    assert_allclose([one[:, 1] for one in segments], ends)
    drawn = [line.get_xydata() for line in ax.lines if len(line.get_xdata()) == 20]
    assert_allclose(drawn, [np.stack([y, mean], axis=1)])
    held = np.mean((ends[:, 0] <= y) & (y <= ends[:, 1]))
    assert f"{50 if given == 'std' else 90}% intervals hold {held:.1%}" in note_of(ax)
    assert ax.get_xlim() == ax.get_ylim()


def test_many_rows_are_a_density_below_the_diagonal(ax: Any) -> None:
    y, mean, std = predictions(40_000)
    against_actual(y, mean, std, ax=ax)
    (cells,) = ax.collections
    points, diagonal = ax.lines
    # Every row is a point; crowded cells cover theirs, and the diagonal covers both.
    assert_allclose(points.get_xydata(), np.stack([y, mean], axis=1))
    assert points.get_zorder() < cells.get_zorder() < diagonal.get_zorder()
    assert diagonal.get_slope() == 1.0 and np.min(cells.get_array()) == 4
    assert 39_000 < cells.get_array().sum() < 40_000
    assert "40\u2009000 rows" in note_of(ax)


@pytest.mark.parametrize("size", [20, 1000])
def test_the_row_that_is_farthest_off_is_seen_well(ax: Any, size: int) -> None:
    """Yellow on white has a contrast of 1.3; WCAG asks 3 of what a picture shows."""
    from matplotlib.colors import to_rgb

    y, mean, _ = predictions(size)
    y[0] = y.max() + 3.0
    against_actual(y, mean, ax=ax)
    (points,) = [line for line in ax.lines if len(line.get_xdata()) == size]
    levels = np.array(to_rgb(points.get_color()))
    linear = np.where(levels <= 0.04, levels / 12.92, ((levels + 0.055) / 1.055) ** 2.4)
    assert 1.05 / (linear @ [0.2126, 0.7152, 0.0722] + 0.05) > 3.0
    assert ax.get_xlim()[1] > y[0]


def test_rows_far_off_do_not_squeeze_the_others(ax: Any) -> None:
    y, mean, _ = predictions(5000)
    y[:3] = 1e6
    against_actual(y, mean, ax=ax)
    assert ax.get_xlim()[1] < 20.0 and ax.collections[0].get_array().sum() <= 4997
    assert "3 rows outside" in note_of(ax)


@pytest.mark.parametrize("values", [[0.0, 1.0, 1e6], [3.0] * 5])
def test_a_view_shows_all_of_few_or_equal_values(values: Any) -> None:
    low, high = plotting.regression.view(np.array(values))
    assert low < min(values) and high > max(values)


def test_pit_histogram_and_its_band(ax: Any) -> None:
    values = np.concatenate([np.full(30, 0.05), np.full(10, 0.3), np.full(10, 0.7)])
    plotting.pit_histogram(values, num_bins=5, level=0.9, ax=ax)
    band, *bars = ax.patches
    assert_allclose([bar.get_height() for bar in bars], [3.0, 1.0, 0.0, 1.0, 0.0])
    assert_allclose([bar.get_center()[0] for bar in bars], np.arange(0.1, 1.0, 0.2))
    assert all(band.get_zorder() < bar.get_zorder() for bar in bars)
    low, high = band.get_extents().transformed(ax.transData.inverted()).intervaly
    counts = np.arange(51)
    tail = [binom.pmf(counts, 50, 0.2)[: round(10 * low) + 1].sum()]
    assert tail[0] >= 0.05 and binom.cdf(round(10 * low) - 1, 50, 0.2) < 0.05
    assert binom.cdf(round(10 * high), 50, 0.2) >= 0.95
    orange = [bar.get_facecolor()[0] > 0.5 for bar in bars]
    assert orange == [True, False, True, False, True]


def test_regression_in_one_input(ax: Any) -> None:
    x = np.array([2.0, 0.0, 1.0])
    mean = np.array([5.0, 3.0, 4.0])
    std = np.array([1.0, 2.0, 0.5])
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
    assert_allclose(
        [one[:, 0] for one in blur.get_segments()], [[0.3, 0.7], [1.5, 1.5]]
    )
    names = {text.get_text() for text in ax.get_legend().texts}
    assert names == {"mean", "90%", "train", "inducing inputs", "blur ± 1 std"}
    ax.figure.canvas.draw()
    legend = ax.get_legend().get_window_extent()
    assert legend.y0 >= ax.get_window_extent().y1  # above the axes: it covers nothing


def test_regression_without_a_legend(ax: Any) -> None:
    plotting.regression_1d(
        [0.0, 1.0], [3.0, 4.0], [1.0, 1.0], levels=[0.9], legend=False, ax=ax
    )
    low, high = ax.get_ylim()
    assert ax.get_legend() is None
    assert_allclose(high - 5.6448536269514722, 1.3551463730485278 - low)


def test_new_axes_are_pyplots_and_its_other_figures_are_left_alone(ax: Any) -> None:
    pyplot = pytest.importorskip("matplotlib.pyplot")
    found = against_actual([1.0, 2.0], [1.0, 1.5])
    assert pyplot.gcf() is found.figure
    before = pyplot.get_fignums()
    against_actual([1.0, 2.0], [1.0, 1.5], ax=ax)
    assert pyplot.get_fignums() == before
    pyplot.close(found.figure)


def test_without_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(canvas, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"pip install 'gpflow_pep\[plots\]'"):
        against_actual([1.0, 2.0], [1.0, 1.5])


X2 = np.eye(2)
Y2 = [0, 1]
NAN = [1.0, np.nan]
OK = [1.0, 2.0]
GAUSSIAN = gpflow.models.SVGP(SE(), gpflow.likelihoods.Gaussian(), InducingPoints(X2))
REFUSED: list[tuple[str, Any]] = [
    ("alphas: got", partial(plotting.alpha_sweep, [0.5, 0.5], [1, 2])),
    ("best: got 0.3", partial(plotting.alpha_sweep, [0.5], [1], best=0.3)),
    ("values: got NaN", partial(plotting.alpha_sweep, [0.5], [np.nan])),
    ("errors: got -1", partial(plotting.alpha_sweep, [0.5], [1], [-1])),
    ("rows that sum to 1.4", partial(plotting.reliability, Y2, [[0.5, 0.9]] * 2)),
    ("labels: got 2", partial(plotting.reliability, [0, 2], [[0.5, 0.5]] * 2)),
    ("1 missing label", partial(plotting.confusion_matrix, ["a", None], Y2)),
    (
        "predicted: got 2 values, expected 1",
        partial(plotting.confusion_matrix, [0], Y2),
    ),
    (
        "names: got 1 name, expected 2",
        partial(plotting.confusion_matrix, Y2, Y2, ["a"]),
    ),
    ("X: got 3 inputs", partial(plotting.decision_boundary, np.eye(3), [0, 1, 2], len)),
    ("classifier: got int", partial(plotting.decision_boundary, X2, Y2, 3)),
    ("likelihood: got Gaussian", partial(plotting.decision_boundary, X2, Y2, GAUSSIAN)),
    (
        "expected an inducing variable with inputs Z",
        partial(plotting.inducing_points_of, 3),
    ),
    ("y: got NaN or infinity in 1 row.* index 1", partial(against_actual, NAN, OK)),
    ("mean: got 1 value, expected 2", partial(against_actual, OK, [1.0])),
    ("std: got 0, expected positive", partial(against_actual, OK, OK, [1.0, 0.0])),
    (
        "intervals: got 1 value,",
        partial(against_actual, OK, OK, intervals=[[0.0, 1.0]]),
    ),
    ("y: got list that is not an array", partial(against_actual, ["a", "b"], OK)),
    (r"y: got shape \(2, 2\)", partial(against_actual, np.ones([2, 2]), OK)),
    (r"y: got shape \(0,\)", partial(against_actual, [], [])),
    ("pit: got numbers from 0.5 to 1.5", partial(plotting.pit_histogram, [0.5, 1.5])),
    ("num_bins: got 0", partial(plotting.pit_histogram, [0.5], num_bins=0)),
    ("level: got 95", partial(plotting.pit_histogram, [0.5], level=95)),
    ("data: got float", partial(plotting.regression_1d, OK, OK, OK, data=OK[0])),
]


@pytest.mark.parametrize("message, draw", REFUSED)
def test_refused(message: str, draw: Any) -> None:
    pyplot = pytest.importorskip("matplotlib.pyplot")
    with pytest.raises(ValueError, match=message):
        draw()
    pyplot.close("all")
