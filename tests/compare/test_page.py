"""The report as one page, and its figures, which show the numbers of the comparison."""

import html
import io
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from compare.small_comparison import Run, small_classification, small_comparison
from numpy.testing import assert_allclose
from scipy.stats import norm

import gpflow_pep
from gpflow_pep.compare import Comparison, figures, report, summarise
from gpflow_pep.compare.findings import findings
from gpflow_pep.compare.page import model_card, page
from gpflow_pep.compare.scores import held_out
from gpflow_pep.compare.terminal import word_tables

pytest.importorskip("matplotlib")
PNG = b"\x89PNG and so on"


def shown(comparison: Comparison, pictures: Any = None, folder: str = "out") -> str:
    return page(
        comparison,
        pictures or {},
        command="gpflow-pep compare <a>",
        folder=Path(folder),
    )


def drawn(name: str, comparison: Comparison) -> Any:
    return figures.figures(comparison)[name](comparison)


def test_the_page_says_what_was_found() -> None:
    comparison = small_comparison()
    text = shown(comparison, {"scores": [PNG, PNG]})
    for _, sentence in findings(comparison):
        assert sentence in html.unescape(text)
    for row in word_tables(comparison)[0].rows.values():
        assert "".join(f"<td>{cell}</td>" for cell in row) in text
    for part in (
        "gpflow-pep compare &lt;a&gt;",
        f"gpflow_pep {gpflow_pep.__version__}",
        "tensorflow 2.",
        "gpflow-pep predict out/model new.csv",
        "load_estimator(&#39;out/model&#39;)",
        "num_inducing = 6",
        "<td>time</td>",
        "data:image/png;base64,iVBORyBhbmQgc28gb24=",
    ):
        assert part in text, part
    summary = comparison.model[-1].summary()  # of what was tried
    assert summary in html.unescape(text) and "weight" in summary
    assert summary.splitlines()[-1] in model_card(comparison)
    (row,) = re.findall(r'<tr class="best">.*?</tr>', text.partition("<h2>The data")[0])
    assert f"<td>{comparison.best}</td>" in row
    worst = (
        comparison.held_out[str(comparison.best)]["log_density"].sort_values().index[:3]
    )
    section = text.partition("predicts worst")[2].partition("<h2>")[0]
    assert re.findall(r"<td></td><td>(\d+)</td>", section)[:3] == list(map(str, worst))


def test_a_class_that_is_never_named_has_no_precision() -> None:
    comparison = small_classification()
    table = comparison.held_out[str(comparison.best)].assign(predicted="spam")
    comparison = replace(
        comparison, held_out={**comparison.held_out, str(comparison.best): table}
    )
    text = shown(comparison)
    assert "<td>0%</td><td>never named</td>" in text and "nan%" not in text


def test_captions_promise_what_the_pictures_have() -> None:
    comparison, captions = small_comparison(), []
    name = str(comparison.best)
    table = comparison.held_out[name].drop(columns="pit")  # as of counts
    for tables in ({}, {name: table}, {name: pd.concat([table] * 9)}):
        changed = replace(comparison, held_out=comparison.held_out | tables)
        text = shown(changed, {"predictions": [PNG, PNG]})
        captions += re.findall("<figcaption>(.*?)</figcaption>", text)
    for best, ringed in (("default", False), ("alpha 1", True)):
        axes, *_ = drawn("scores", changed := replace(comparison, best=best)).axes
        assert any(line.get_fillstyle() == "none" for line in axes.lines) == ringed
        assert ("is ringed" in shown(changed, {"scores": [PNG, PNG]})) == ringed
    text = "Held-out rows: predictions against the targets,"
    assert (
        captions[0].startswith(f"{text} with 90% intervals.")
        and "Flat is" in captions[0]
    )
    assert captions[1] == f"{text} with 90% intervals."
    assert captions[2].startswith(
        f"{text} darker if there are more of them, and the share in"
    )


def test_nothing_is_fetched_from_elsewhere() -> None:
    text = shown(small_classification(), {"classes": [PNG, PNG]})
    assert "predict_proba" in text
    assert not re.findall(r"(?:https?:)?//[a-z]|<link|<script|@import", text)
    assert all(
        source.startswith("data:") for source in re.findall(r'src="([^"]*)"', text)
    )


def test_words_of_the_table_and_the_folder_are_escaped() -> None:
    comparison = small_classification()
    y = comparison.data.y.rename("<b>mail</b>")
    data = comparison.data._replace(y=y, notes=["Dropped column '<i>'."])
    folder = "res $(touch x) 'y'"
    text = shown(replace(comparison, data=data), folder=folder)
    assert "&lt;b&gt;mail" in text and "<b>" not in text
    assert "&lt;i&gt;" in text and "<i>" not in text
    (command,) = re.findall("<pre>(gpflow-pep predict .*)</pre>", html.unescape(text))
    assert shlex.split(command)[2] == f"{folder}/model"


def test_the_card_shows_words_of_the_table_as_they_are() -> None:
    """No HTML, link or picture, and one line for each column."""
    comparison, name = small_comparison(), "<img src=x>\n![a](http://b) | `c` & d"
    X = comparison.data.X.rename(columns={"time": name})
    data = comparison.data._replace(X=X, notes=[f"Dropped column '{name}'."])
    card = model_card(replace(comparison, data=data), "gpflow-pep compare 'a\n# b'")
    lines = card.splitlines()
    escaped = r"&lt;img src=x> !\[a\](http://b) \| \`c\` &amp; d"
    assert f"| {escaped} | 10" in card and f"* Dropped column '{escaped}'." in lines
    assert "    # b'" in lines and "# b'" not in lines  # still in the block of code


def test_without_a_model_nothing_is_said_or_drawn_of_one() -> None:
    comparison = replace(
        small_comparison(), best=None, model=None, final=None, details=None
    )
    text = shown(comparison)
    assert "No model could be trained" in text and "load_estimator" not in text
    assert figures.figures(comparison) == {}


@pytest.mark.slow
def test_a_browser_shows_it(from_csv: Run, tmp_path: Path) -> None:
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip(
            "needs the command chromium or google-chrome: install one to run this test"
        )
    options = [
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        f"--user-data-dir={tmp_path}",
    ]
    address = (from_csv.out / "report.html").resolve().as_uri()
    picture, texts = tmp_path / "page.png", []
    for more in (
        ["--dump-dom"],
        ["--window-size=1200,2600", f"--screenshot={picture}"],
    ):
        command = [browser, *options, *more, address]
        ended = subprocess.run(
            command, capture_output=True, text=True, timeout=120, check=True
        )
        texts.append(ended.stdout)
    assert "Target 'load', 2 inputs, 40 rows" in texts[0] and texts[0].count("<img") > 4
    assert picture.stat().st_size > 100_000  # the figures are in it


def test_figures_that_suit_the_target_leave_pyplot_alone() -> None:
    pyplot = sys.modules.get("matplotlib.pyplot")
    before = (
        [] if pyplot is None else pyplot.get_fignums()
    )  # of other tests of this process
    for comparison, names in (
        (small_comparison(), ["scores", "predictions", "fit", "details"]),
        (small_classification(), ["scores", "classes", "details"]),
    ):
        drawings = figures.figures(comparison)
        assert list(drawings) == names and all(
            draw(comparison).axes for draw in drawings.values()
        )
    pyplot = sys.modules.get("matplotlib.pyplot")
    assert before == ([] if pyplot is None else pyplot.get_fignums())


def test_scores_figure_shows_every_score_with_its_error() -> None:
    comparison = small_comparison()
    table = summarise(comparison).loc[["alpha 0", "alpha 1"]]
    for panel, metric in zip(
        drawn("scores", comparison).axes, comparison.metrics, strict=True
    ):
        line, _, (bars,) = panel.containers[0]
        assert_allclose(line.get_xydata(), table[["alpha", metric.name]])
        ends = np.array([segment[:, 1] for segment in bars.get_segments()])
        assert_allclose(ends[:, 1] - ends[:, 0], 2 * table[f"{metric.name}_se"])
        texts = " ".join(text.get_text() for text in panel.get_legend().get_texts())
        assert "mean" in texts and "exact GP" in texts


def test_powers_that_failed_are_left_out_and_the_better_kernel_is_drawn() -> None:
    comparison = small_comparison()
    nan = dict.fromkeys(comparison.fits[0].scores, np.nan)
    fits = [
        f._replace(scores=nan) if f.model == "alpha 1" else f for f in comparison.fits
    ]
    axes = drawn("scores", replace(comparison, fits=fits, best="alpha 0")).axes
    assert list(axes[0].containers[0][0].get_xdata()) == [0.0]
    names = {"alpha 0": "alpha 0 (rbf)", "alpha 1": "alpha 0 (matern12)"}
    changed = replace(
        comparison,
        candidates={names.get(n, n): 0.0 * a for n, a in comparison.candidates.items()},
        fits=[
            fit._replace(model=names.get(fit.model, fit.model))
            for fit in comparison.fits
        ],
        held_out={names.get(n, n): table for n, table in comparison.held_out.items()},
    )
    nlpd = [changed.losses[name] for name in names.values()]
    axes = drawn("scores", changed).axes
    assert_allclose(axes[0].containers[0][0].get_ydata(), [min(nlpd)])


def test_the_page_has_each_part_of_a_picture_by_itself() -> None:
    """So that it can be read at 390 pixels: PNG files of half the width have all that
    is drawn.
    """
    image = pytest.importorskip("matplotlib.image")
    pictures = report._draw(small_comparison())["scores"]
    whole, *parts = (image.imread(io.BytesIO(png)) for png in pictures)
    assert len(parts) == len(small_comparison().metrics) == 4
    dark = [np.sum(pixels[:, :, :3].min(axis=2) < 0.9) for pixels in (whole, *parts)]
    assert sum(dark[1:]) == dark[0] > 10_000
    assert all(part.shape[1] <= 0.52 * whole.shape[1] for part in parts)


def test_figures_of_the_fit_and_of_more_rows_have_the_users_units() -> None:
    axes = drawn("fit", small_comparison()).axes[0]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("time", "load")
    low, high = axes.get_xlim()
    assert 98.0 < low < 101.0 and 105.0 < high < 108.0
    comparison = small_comparison()
    figure = drawn("details", comparison)
    figure.canvas.draw()
    axes, tables = figure.axes[-1], comparison.details.learning.values()
    low, high = axes.yaxis.label.get_window_extent().intervaly
    assert low >= 0.0 and high <= figure.bbox.y1
    (bars,) = axes.containers[0][2]
    ends = np.array([segment[:, 1] for segment in bars.get_segments()])
    few, many = (table["log_density"] for table in tables)
    error = np.std(few - many, ddof=1) / np.sqrt(len(few))
    assert_allclose(ends[:, 1] - ends[:, 0], [2.0 * error, 0.0])
    assert [label.get_text() for label in axes.get_xticklabels()] == ["10", "20"]
    assert len(axes.get_xticks(minor=True)) == 0


@pytest.mark.parametrize("name", ["default", "alpha 0"])
def test_the_histogram_is_of_the_predicted_distributions(name: str) -> None:
    """Which are no Gaussians where models are mixed: quantiles invert their
    functions.
    """
    comparison = replace(small_comparison(), best=name)
    table = comparison.held_out[name]
    if name != "default":
        gaussian = norm.cdf(table["true"], table["mean"], table["sd"])
        assert_allclose(table["pit"], gaussian, rtol=1e-8)
    model, data = comparison.model, comparison.data
    predicted = held_out(model, data.X, data.y, False)
    quantiles = model[-1].predict_quantiles(
        model[:-1].transform(data.X), predicted["pit"]
    )
    assert_allclose(np.diag(quantiles), predicted["true"], rtol=1e-8)
    *_, axes = drawn("predictions", comparison).axes
    _, *bars = axes.patches  # behind them the band
    counts, _ = np.histogram(table["pit"], 5, (0.0, 1.0))
    assert_allclose([bar.get_height() for bar in bars], counts * 5 / len(table))
