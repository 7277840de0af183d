"""What the documentation says: its numbers and messages are those of the package."""

import re
import runpy
import warnings
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from gpflow.kernels import Linear, SquaredExponential
from helpers import EXAMPLES

import gpflow_pep as pep
from examples.__main__ import commands as example_commands
from gpflow_pep.engine.numerics.linalg import JitterWarning

ROOT = EXAMPLES.parent
DOCS = ROOT / "docs"
TUTORIALS = sorted((EXAMPLES / "tutorials").glob("plot_*.py"))

rng = np.random.default_rng(0)
X = rng.uniform(-3.0, 3.0, (60, 1))
Y = np.sin(2.0 * X) + 0.2 * rng.standard_normal(X.shape)
LABELS = (Y > 0.0).astype(float)


@pytest.mark.slow
@pytest.mark.parametrize("script", TUTORIALS, ids=lambda path: path.stem)
def test_tutorials_are_scripts(script: Path, capfd: Any, monkeypatch: Any) -> None:
    pytest.importorskip("matplotlib").use("Agg")
    monkeypatch.setattr("sys.argv", [str(script)])
    runpy.run_path(str(script), run_name="__main__")
    said = capfd.readouterr().out
    assert said and not re.search(r"\b(nan|inf)\b", said)


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def test_all_tutorials_are_in_a_group() -> None:
    header = read(EXAMPLES / "tutorials" / "GALLERY_HEADER.rst")
    listed = re.findall(r"^\* :doc:`(plot_\w+)`", header, re.MULTILINE)
    assert sorted(listed) == [path.stem for path in TUTORIALS]


def test_numbers_are_those_of_the_files() -> None:
    """Each number with three decimals or more on the page was printed by a command."""
    tables = *DOCS.glob("figures/*.txt"), *DOCS.glob("results/*/*.txt")
    printed = " ".join(map(read, tables))
    numbers = re.findall(r"-?\d+\.\d{3,}", read(DOCS / "choosing.rst"))
    assert len(numbers) > 40 and not set(numbers) - set(
        re.findall(r"-?\d+\.\d+", printed)
    )


def test_commands_of_the_pages_exist() -> None:
    """Each ``python -m examples NAME`` on a page, and each option of it."""
    pages = (
        *DOCS.glob("*.rst"),
        *DOCS.glob("figures/*.txt"),
        ROOT / "README.md",
        ROOT / "Makefile",
    )
    text = " ".join(map(read, pages))
    commands = re.findall(r"python\s+-m examples (\w+)((?:\s+[-\w:./\"\\]+)*)", text)
    known = example_commands()
    assert len(commands) > 30 and not {name for name, _ in commands} - set(known)
    for name, words in commands:
        source = read(Path(f"{ROOT / known[name][0].replace('.', '/')}.py"))
        if ".papers." in known[name][0]:
            source += read(EXAMPLES / "papers" / "runner.py")
        for option in re.findall(r"--([a-z][\w-]+)", words):
            assert re.search(rf"\b{option.replace('-', '_')}\b", source), (
                f"{name} --{option}"
            )


def test_figures_are_shown_and_name_their_command() -> None:
    """Each table is on a page, which names a command before it, or it begins
    with one.
    """
    pages = [*map(read, [*DOCS.glob("*.rst"), *TUTORIALS])]
    command = re.compile(
        r"-m\s+examples|gpflow-pep|``make |trieste_loop|tutorials/plot_07"
    )
    for path in DOCS.glob("figures/*.txt"):
        shown = [page.partition(f"figures/{path.name}") for page in pages]
        places = [before for before, name, _ in shown if name]
        assert places, f"{path.name} is on no page"
        assert any(command.search(before) for before in places), path.name


def test_versions_and_citation() -> None:
    assert version("gpflow-pep") == pep.__version__
    citation = read(ROOT / "CITATION.cff")
    readme = read(ROOT / "README.md")
    assert f"\nversion: {pep.__version__}\n" in citation
    for title in re.findall(r"^    title: (.*)$", citation, re.MULTILINE)[:4]:
        assert title.lower() in re.sub(r"\s+", " ", readme).lower()
    assert set(re.findall(r"gpflow_pep-(\d[\d.]*\d)", readme)) == {pep.__version__}


def regression(X: Any = X, kernel: Any = None, Z: Any = None) -> pep.PEPRegression:
    return pep.PEPRegression(
        (X, Y), kernel or SquaredExponential(), X[:5] if Z is None else Z
    )


def classification(labels: Any = LABELS, kernel: Any = None, **options: Any) -> Any:
    kernel = kernel or SquaredExponential()
    return pep.PEPClassification((X, labels), kernel, None, X[:10].copy(), **options)


def _derivative() -> None:
    model = classification()
    variable = model.kernel.lengthscales.unconstrained_variable
    with tf.GradientTape() as outer:
        with tf.GradientTape() as inner:
            mean = model.predict_f(X[:2])[0]
        slope = inner.gradient(mean, variable)
    outer.gradient(slope, variable)


HARD = {"kernel": SquaredExponential(100.0, 0.3), "max_sweeps": 2, "alpha": 1.0}
THREE_TIMES = {"kernel": SquaredExponential(1e12), "Z": np.repeat(X[:10], 3, axis=0)}
FAR = np.linspace(0.0, 1.0, 60)[:, None] + 2.46e6
GAP = np.where(np.arange(60)[:, None] == 3, np.nan, X)


@pytest.mark.parametrize(
    "number, trouble, kind",
    [
        pytest.param(
            0,
            lambda: classification(**HARD).predict_f(X[:2]),
            pep.models.ConvergenceWarning,
            marks=pytest.mark.slow,
        ),
        pytest.param(
            2,
            lambda: regression(**THREE_TIMES).predict_f(X[:2]),
            JitterWarning,
            marks=pytest.mark.slow,
        ),
        (4, lambda: regression(FAR, Linear()), ValueError),
        (5, lambda: regression(X.astype(np.float32)), ValueError),
        (6, lambda: regression(GAP), ValueError),
        (7, lambda: classification(2.0 * LABELS - 1.0), ValueError),
        (8, _derivative, ValueError),
    ],
    ids=["sites", "jitter", "far", "float32", "missing", "labels", "derivative"],
)
def test_messages_are_printed_so(
    number: int, trouble: Callable[[], None], kind: type[Exception]
) -> None:
    page = read(DOCS / "troubleshooting.rst")
    boxes = re.findall(r"\.\. code-block:: text\n\n((?:   .*\n)+)", page)
    box = " ".join(boxes[number].split())
    with warnings.catch_warnings():
        warnings.simplefilter(
            "error", kind if issubclass(kind, Warning) else UserWarning
        )
        with pytest.raises(kind) as raised:
            trouble()
    # Numbers depend on the machine: the last digits of a residual.
    message = re.sub(
        r"Residual [\d.e-]+", "Residual", f"{kind.__name__}: {raised.value}"
    )
    assert re.sub(r"Residual [\d.e-]+", "Residual", box) in message
