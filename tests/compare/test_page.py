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
from gpflow_pep.compare import Comparison, figures, report
from gpflow_pep.compare.findings import findings
from gpflow_pep.compare.page import model_card, page
from gpflow_pep.compare.scores import held_out
from gpflow_pep.compare.terminal import score_line, word_tables

pytest.importorskip("matplotlib")
PNG = b"\x89PNG and so on"


def shown(comparison: Comparison, pictures: Any = None, folder: str = "out") -> str:
    return page(
        comparison,
        pictures or {},
        command="gpflow-pep compare <a>",
        folder=Path(folder),
    )


def drawn(name: str, comparison: Comparison, width: float = figures.WIDTH) -> Any:
    figure = figures.pictures(comparison)[name].figure(width)
    figure.draw_without_rendering()
    return figure


def test_the_page_says_what_was_found() -> None:
    comparison = small_comparison()
    text = shown(comparison, {"scores": [PNG]})
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
    assert re.findall(r"<tr><td>(\d+)</td>", section)[:3] == list(map(str, worst))
    assert html.unescape(text).count(score_line(comparison)) == 1


def test_a_class_that_is_never_named_has_no_precision() -> None:
    comparison = small_classification()
    table = comparison.held_out[str(comparison.best)].assign(predicted="spam")
    comparison = replace(
        comparison, held_out={**comparison.held_out, str(comparison.best): table}
    )
    text = shown(comparison)
    assert "<td>0%</td><td>never named</td>" in text and "nan%" not in text


def test_captions_and_alternative_texts_are_of_their_pictures() -> None:
    """They differ, and none of them depends on what is beside a picture on a screen."""
    for comparison in (small_comparison(), small_classification()):
        pictures = figures.pictures(comparison)
        text = shown(comparison, {name: [PNG] for name in pictures})
        captions = re.findall("<figcaption>(.*?)</figcaption>", text)
        alternatives = re.findall('<img [^>]*alt="(.*?)"', text)
        assert len(captions) == len({*captions}) == len(pictures)
        assert len({*alternatives}) == len(pictures)
        assert not any("Right:" in caption for caption in captions)
    comparison = small_comparison()
    name = str(comparison.best)
    table = comparison.held_out[name].drop(columns="pit")  # as of counts
    crowded = replace(
        comparison, held_out=comparison.held_out | {name: pd.concat([table] * 9)}
    )
    pictures = figures.pictures(crowded)
    assert "Crowded rows" in pictures["predictions"].caption
    assert "histogram" not in pictures
    assert "Lines are 90%" in figures.pictures(comparison)["predictions"].caption


def test_a_picture_of_the_whole_width_has_another_file_for_phones() -> None:
    text = shown(small_comparison(), {"fit": [PNG, PNG + b"wide"]})
    assert text.count("<source media=") == 1 and 'class="whole"' in text
    assert "<source" not in shown(small_comparison(), {"scores": [PNG]})


def test_nothing_is_fetched_from_elsewhere() -> None:
    text = shown(small_classification(), {"confusion": [PNG]})
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
    comparison = small_comparison()
    name = "<img src=x>\n![a](http://b) | `c` & d"
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
    assert figures.pictures(comparison) == {}


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
    picture = tmp_path / "page.png"
    texts = []
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
    # Of other tests of this process.
    before = [] if pyplot is None else pyplot.get_fignums()
    for comparison, names in (
        (
            small_comparison(),
            ["scores", "predictions", "histogram", "fit", "learning"],
        ),
        (
            small_classification(),
            ["scores", "reliability", "confusion", "importance", "learning"],
        ),
    ):
        assert list(figures.pictures(comparison)) == names
        assert all(drawn(name, comparison).axes for name in names)
    pyplot = sys.modules.get("matplotlib.pyplot")
    assert before == ([] if pyplot is None else pyplot.get_fignums())


def test_the_dot_plot_shows_each_difference_with_its_paired_error() -> None:
    comparison = small_comparison()
    best = str(comparison.best)
    (axes,) = drawn("scores", comparison).axes
    changes = [comparison.difference(name, best) for name in comparison.candidates]
    low, high = axes.get_xlim()
    shown_changes = sorted(change for change in changes if low <= change.mean <= high)
    assert len(shown_changes) >= 4
    for container, change in zip(axes.containers, shown_changes, strict=True):
        dot, _, (bar,) = container
        assert_allclose(dot.get_xydata()[:, 0], [change.mean])
        ends = bar.get_segments()[0][:, 0]
        half = change.limit * change.error
        assert_allclose(ends, [change.mean - half, change.mean + half])
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert {*names} == {*comparison.candidates}
    # Others are named at the end where they are.
    assert len(axes.texts) == len(changes) - len(shown_changes)


def test_a_model_that_is_far_worse_does_not_squeeze_the_others() -> None:
    comparison = small_comparison()
    fits = [
        fit._replace(scores={**fit.scores, "nlpd": 1e6 + fit.part})
        if fit.model == "linear"
        else fit
        for fit in comparison.fits
    ]
    (axes,) = drawn("scores", replace(comparison, fits=fits)).axes
    assert axes.get_xlim()[1] < 1e3
    assert any("worse →" in text.get_text() for text in axes.texts)
    assert axes.get_yticklabels()[-1].get_text() == "linear"


def test_a_failed_model_is_not_in_the_dot_plot() -> None:
    comparison = small_comparison()
    nan = dict.fromkeys(comparison.fits[0].scores, np.nan)
    fits = [
        f._replace(scores=nan) if f.model == "alpha 1" else f for f in comparison.fits
    ]
    (axes,) = drawn("scores", replace(comparison, fits=fits, best="alpha 0")).axes
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert "alpha 1" not in names and "alpha 0" in names


def test_nothing_is_cut_off_if_names_are_long() -> None:
    """The widest letters stay within the picture."""
    comparison = small_classification()
    assert comparison.details is not None
    table = comparison.details.importance
    assert table is not None
    table = table.set_axis(["W" * 60, "W" * 59], axis=0)
    details = comparison.details._replace(importance=table)
    figure = drawn("importance", replace(comparison, details=details))
    (axes,) = figure.axes
    box = axes.get_tightbbox()
    assert box.x0 >= 0.0 and box.x1 <= figure.bbox.x1
    assert axes.bbox.width > 0.2 * figure.bbox.width


def test_the_axis_of_a_score_ends_where_the_score_ends() -> None:
    comparison = small_classification()
    assert comparison.details is not None
    learning = comparison.details.learning
    perfect = {
        number: table.assign(
            **{f"p({name})": 1.0 * (table["true"] == name) for name in ("ham", "spam")}
        )
        for number, table in learning.items()
    }
    changed = replace(
        comparison,
        settings=replace(comparison.settings, metric="auc"),
        details=comparison.details._replace(learning=perfect),
    )
    (axes,) = drawn("learning", changed).axes
    assert axes.get_ylabel() == "AUC" and axes.get_ylim()[1] == 1.0


def test_the_page_has_pictures_that_a_phone_can_show() -> None:
    image = pytest.importorskip("matplotlib.image")
    pictures = report._draw(small_comparison())
    assert [name for name, files in pictures.items() if len(files) > 1] == ["fit"]
    narrow, wide = (image.imread(io.BytesIO(png)) for png in pictures["fit"])
    assert narrow.shape[1] == figures.WIDTH * report.DPI
    assert wide.shape[1] == figures.WHOLE * report.DPI


def test_figures_of_the_fit_and_of_more_rows_have_the_users_units() -> None:
    axes = drawn("fit", small_comparison()).axes[0]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("time", "load")
    low, high = axes.get_xlim()
    assert 98.0 < low < 101.0 and 105.0 < high < 108.0
    comparison = small_comparison()
    figure = drawn("learning", comparison)
    axes = figure.axes[-1]
    tables = comparison.details.learning.values()
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
    model = comparison.model
    data = comparison.data
    predicted = held_out(model, data.X, data.y, False)
    quantiles = model[-1].predict_quantiles(
        model[:-1].transform(data.X), predicted["pit"]
    )
    assert_allclose(np.diag(quantiles), predicted["true"], rtol=1e-8)
    (axes,) = drawn("histogram", comparison).axes
    _, *bars = axes.patches  # behind them the band
    counts, _ = np.histogram(table["pit"], 5, (0.0, 1.0))
    assert_allclose([bar.get_height() for bar in bars], counts * 5 / len(table))
