"""The report as one page."""

import html
import re
import shlex
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from compare.small_comparison import FromCsv, small_classification, small_comparison

import gpflow_pep
from gpflow_pep.compare.findings import findings
from gpflow_pep.compare.page import model_card, page
from gpflow_pep.compare.terminal import word_tables

PNG = b"\x89PNG and so on"


def test_the_page_says_what_was_found() -> None:
    comparison = small_comparison()
    command = "gpflow-pep compare <a>"
    text = page(comparison, {"scores": [PNG, PNG]}, command=command, folder=Path("out"))
    for _, sentence in findings(comparison):
        assert sentence in html.unescape(text)
    for row in word_tables(comparison)[0].rows.values():
        assert "".join(f"<td>{cell}</td>" for cell in row) in text
    for part in (
        "gpflow-pep compare &lt;a&gt;", f"gpflow_pep {gpflow_pep.__version__}", "tensorflow 2.",
        "gpflow-pep predict out/model new.csv", "load_estimator(&#39;out/model&#39;)",
        "num_inducing = 6", "<td>time</td>", "data:image/png;base64,iVBORyBhbmQgc28gb24=",
    ):  # fmt: skip
        assert part in text, part
    summary = comparison.model[-1].summary()  # of what was tried
    assert summary in html.unescape(text) and "weight" in summary
    assert summary.splitlines()[-1] in model_card(comparison)
    (row,) = re.findall(r'<tr class="best">.*?</tr>', text.partition("<h2>The data")[0])
    assert f"<td>{comparison.best}</td>" in row


def test_a_class_that_is_never_named_has_no_precision() -> None:
    comparison = small_classification()
    table = comparison.held_out[str(comparison.best)].assign(predicted="spam")
    comparison = replace(comparison, held_out={**comparison.held_out, str(comparison.best): table})
    text = page(comparison, {}, command="", folder=Path("out"))
    assert "<td>0%</td><td>never named</td>" in text and "nan%" not in text


def test_captions_promise_what_the_pictures_have() -> None:
    comparison = small_comparison()
    captions = []
    name = str(comparison.best)
    table = comparison.held_out[name].drop(columns="pit")  # as of counts
    many = pd.concat([table] * 9)
    for tables in (comparison.held_out, *({name: part} for part in (table, many))):
        changed = replace(comparison, held_out=comparison.held_out | tables)
        text = page(changed, {"predictions": [PNG, PNG]}, command="", folder=Path("out"))
        captions += re.findall("<figcaption>(.*?)</figcaption>", text)
    text = "Held-out rows: predictions against the targets,"
    assert captions[0].startswith(f"{text} with 90% intervals.") and "Flat is" in captions[0]
    assert captions[1] == f"{text} with 90% intervals."
    assert captions[2].startswith(f"{text} darker where there are more; and how many are in")


def test_nothing_is_fetched_from_elsewhere() -> None:
    text = page(small_classification(), {"classes": [PNG, PNG]}, command="", folder=Path("out"))
    assert "predict_proba" in text
    assert not re.findall(r"(?:https?:)?//[a-z]|<link|<script|@import", text)
    assert all(source.startswith("data:") for source in re.findall(r'src="([^"]*)"', text))


def test_words_of_the_table_are_escaped() -> None:
    comparison = small_classification()
    data = comparison.data._replace(
        y=comparison.data.y.rename("<b>mail</b>"), notes=["Dropped column '<i>'."]
    )
    text = page(replace(comparison, data=data), {}, command="", folder=Path("out"))
    assert "&lt;b&gt;mail" in text and "<b>" not in text
    assert "&lt;i&gt;" in text and "<i>" not in text


def test_commands_can_be_pasted_into_a_shell() -> None:
    folder = Path("res $(touch x) 'y'")
    text = html.unescape(page(small_comparison(), {}, command="", folder=folder))
    (command,) = re.findall("<pre>(gpflow-pep predict .*)</pre>", text)
    assert shlex.split(command)[2] == str(folder / "model")


def test_the_card_shows_words_of_the_table_as_they_are() -> None:
    """No HTML, link or picture, and one line for each column."""
    comparison, name = small_comparison(), "<img src=x>\n![a](http://b) | `c` & d"
    X = comparison.data.X.rename(columns={"time": name})
    data = comparison.data._replace(X=X, notes=[f"Dropped column '{name}'."])
    card = model_card(replace(comparison, data=data), "gpflow-pep compare 'a\n# b'")
    lines = card.splitlines()
    escaped = r"&lt;img src=x> !\[a\](http://b) \| \`c\` &amp; d"
    assert f"| {escaped} | 10" in card
    assert f"* Dropped column '{escaped}'." in lines
    assert "    # b'" in lines and "# b'" not in lines  # still in the block of code


def test_without_a_model_nothing_is_said_of_one() -> None:
    comparison = replace(small_comparison(), best=None, model=None, final=None)
    text = page(comparison, {}, command="", folder=Path("out"))
    assert "No model could be trained" in text and "load_estimator" not in text


@pytest.mark.slow
def test_a_browser_shows_it(from_csv: FromCsv, tmp_path: Path) -> None:
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("needs the command chromium or google-chrome: install one to run this test")
    options = ["--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}"]
    address = (from_csv.out / "report.html").resolve().as_uri()
    shown = subprocess.run(
        [browser, *options, "--dump-dom", address], capture_output=True, text=True, timeout=120,
        check=True,
    ).stdout  # fmt: skip
    assert "Target 'load', 2 inputs, 40 rows" in shown and shown.count("<img") > 4
    picture = tmp_path / "page.png"
    subprocess.run(
        [browser, *options, "--window-size=1200,2600", f"--screenshot={picture}", address],
        capture_output=True, timeout=120, check=True,
    )  # fmt: skip
    assert picture.stat().st_size > 100_000  # the figures are in it
