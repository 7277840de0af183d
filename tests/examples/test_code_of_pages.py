"""The code blocks of all pages run as they stand, page by page, and do what the pages
say.

A page is one namespace, in a temporary directory. Three comments of a page change this
for the next block: ``.. slow: seconds`` keeps it from the fast tests,
``.. not run: reason`` from all tests, and ``.. hidden code:`` is run before it but not
shown, for what the reader has already (data, a model). ``.. printed:`` stands before a
block of text: lines that the code printed, up to rounding.
"""

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import Any, NamedTuple

import gpflow
import numpy as np
import pytest
from helpers import EXAMPLES, assert_close

import gpflow_pep as pep

ROOT = EXAMPLES.parent
PAGES = {
    path.relative_to(ROOT).as_posix(): path
    for path in [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.rst"))]
}
NOT_RUN = {"docs/many_rows.rst": 2}
_BLOCK = re.compile(
    r"^( *)\.\. (code-block:: python|slow:.*|not run:.*|hidden code:)\n((?:\1"
    r" {3}.*\n|\s*\n)*)",
    re.MULTILINE,
)
_OPTIONS = re.compile(r"\A(?:\s*:\w+:.*\n)+")
_PRINTED = re.compile(
    r"^\.\. printed:\n\n\.\. code-block:: text\n\n((?: {3}.*\n|\n)+)", re.MULTILINE
)
_NUMBER = r"-?\d+\.\d+"
_README = ".. literalinclude:: ../README.md"
Namespace = dict[str, Any]


class Block(NamedTuple):
    """A piece of Python on a page."""

    code: str
    slow: bool
    not_run: bool
    line: int


def blocks_of_markdown(text: str) -> list[Block]:
    """Fenced blocks, all of which run in every test."""
    blocks = re.finditer(r"^```python\n(.*?)```", text, re.DOTALL | re.MULTILINE)
    return [
        Block(each[1], False, False, text[: each.start(1)].count("\n"))
        for each in blocks
    ]


def blocks_of_page(path: Path) -> list[Block]:
    """The blocks of one page in order, each with the comments before it."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        return blocks_of_markdown(text)
    blocks = []
    slow = False
    not_run = False
    if _README in text:
        blocks = blocks_of_markdown((ROOT / "README.md").read_text(encoding="utf-8"))[
            :1
        ]
    for each in _BLOCK.finditer(text):
        kind = each[2]
        body = _OPTIONS.sub(lambda options: "\n" * options[0].count("\n"), each[3])
        slow = slow or kind.startswith("slow")
        not_run = not_run or kind.startswith("not run")
        if kind in ("hidden code:", "code-block:: python"):
            line = text[: each.start(3)].count("\n")
            blocks.append(Block(dedent(body), slow, not_run, line))
        if kind == "code-block:: python":
            slow = not_run = False
    return blocks


def run(path: Path, blocks: list[Block], names: Namespace) -> Namespace:
    """Run blocks in one namespace; tracebacks show the lines of the page."""
    for block in blocks:
        code = compile("\n" * block.line + block.code, str(path), "exec")
        exec(code, names)
    return names


BLOCKS = {name: blocks_of_page(path) for name, path in PAGES.items()}
BLOCKS = {name: blocks for name, blocks in BLOCKS.items() if blocks}


def _readme(names: Namespace) -> None:
    """The example recovers the function and its noise, by the model and by the
    estimator.
    """
    _, variance = names["model"].predict_y(names["Xnew"])
    np.testing.assert_allclose(variance, 0.2**2, rtol=0.3)
    np.testing.assert_allclose(
        names["mean"], np.sin(2.0 * names["Xnew"])[:, 0], atol=0.15
    )
    # The noise is .2. A component of the default lets it vary over the inputs.
    np.testing.assert_allclose(np.mean(names["std"]), 0.2, rtol=0.15)
    np.testing.assert_allclose(names["std"], 0.2, rtol=0.3)


def _own_likelihood(names: Namespace) -> None:
    """Outliers of 3 in one row of fifteen do no harm, and the registered support
    refuses.
    """
    error = np.sqrt(np.mean((names["mean"] - np.sin(2.0 * names["X"])) ** 2))
    assert error < 0.2 and 0.1 < names["model"].likelihood.scale.numpy() < 0.7
    with pytest.raises(ValueError, match="expected numbers below a million"):
        pep.likelihoods.check_support(names["Laplace"](), np.array([[1e7]]))


#: What a page says of its results, beside what its code asserts.
CHECKS: dict[str, Callable[[Namespace], None]] = {
    "README.md": _readme,
    "docs/likelihoods.rst": _own_likelihood,
}


#: Pages whose code takes long although no single block does, or is on another page too.
LONG = {
    f"docs/{page}.rst"
    for page in (
        *("likelihoods", "many_rows", "compare", "streaming", "moving", "training"),
        *("derivations", "paths", "powers", "quickstart", "several_outputs"),
    )
}


def _words_and_numbers(line: str) -> tuple[str, list[float]]:
    """The line with # for each decimal number, and these numbers."""
    numbers = [float(number) for number in re.findall(_NUMBER, line)]
    return re.sub(_NUMBER, "#", " ".join(line.split())), numbers


def check_printed(shown: str, printed: str) -> None:
    """Each line that a page shows was printed, with nearly these numbers."""
    lines = [_words_and_numbers(line) for line in printed.splitlines()]
    for line in filter(str.strip, shown.splitlines()):
        words, numbers = _words_and_numbers(line)
        same_words = [others for other_words, others in lines if other_words == words]
        near = [
            np.allclose(others, numbers, rtol=0.03, atol=0.02) for others in same_words
        ]
        assert any(near), (
            f"the page shows {words} with {numbers}; its code printed {same_words}"
        )


def _run_in(
    directory: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    page: str,
    slow: bool,
) -> None:
    monkeypatch.chdir(directory)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    blocks = [
        each for each in BLOCKS[page] if not each.not_run and (slow or not each.slow)
    ]
    names = run(PAGES[page], blocks, {"__name__": "page"})
    if len(blocks) < len(BLOCKS[page]):
        return
    if page in CHECKS:
        CHECKS[page](names)
    printed = capsys.readouterr().out
    for shown in _PRINTED.findall(PAGES[page].read_text(encoding="utf-8")):
        check_printed(shown, printed)


@pytest.mark.near_copies(
    "README.md",
    "docs/estimators.rst",
    "docs/index.rst",
    "docs/inducing.rst",
)
@pytest.mark.filterwarnings("error:::gpflow_pep")
@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=[pytest.mark.slow] * (page in LONG)) for page in BLOCKS],
)
def test_code_runs(page: str, tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    """All blocks that are not slow."""
    _run_in(tmp_path, monkeypatch, capsys, page, slow=False)


@pytest.mark.slow
@pytest.mark.parametrize(
    "page",
    [name for name, blocks in BLOCKS.items() if any(each.slow for each in blocks)],
)
def test_all_code_runs(
    page: str, tmp_path: Path, monkeypatch: Any, capsys: Any
) -> None:
    """The pages with slow blocks, from the first to the last."""
    _run_in(tmp_path, monkeypatch, capsys, page, slow=True)


def test_other_output_than_shown_is_noticed() -> None:
    check_printed("   error  0.25\n", "warning\nerror 0.251\n")
    for printed in ("error 0.35", "loss 0.25"):
        with pytest.raises(AssertionError):
            check_printed("   error 0.25\n", printed)


def test_all_pages_have_code_that_runs() -> None:
    """Only what needs several processes is left out, and every page keeps a
    fast block.
    """
    left_out = {
        name: sum(each.not_run for each in blocks) for name, blocks in BLOCKS.items()
    }
    assert {name: number for name, number in left_out.items() if number} == NOT_RUN
    slow = {
        name for name, blocks in BLOCKS.items() if all(each.slow for each in blocks)
    }
    assert not slow


#: What examples of docstrings have already.
_BEFORE_EXAMPLES = """
import gpflow
import numpy as np
import tf_keras
import gpflow_pep as pep
rng = np.random.default_rng(0)
X, X_new = rng.uniform(-2.0, 2.0, (60, 1)), np.zeros((1, 1))
Y = np.sin(2.0 * X) + 0.1 * rng.standard_normal(X.shape)
y, labels = Y[:, 0], (Y > 0.0).astype(float)
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", [*pep.MODELS, "PEPRegressor", "PEPClassifier"])
def test_examples_of_docstrings_run(name: str) -> None:
    """Each model and estimator begins with one, or is used like ARPEP, and names
    others.
    """
    documented = getattr(pep if name in pep.MODELS else pep.estimators, name).__doc__
    assert ".. seealso::" in documented
    if "used like :class:`ARPEP`" in documented.splitlines()[0]:
        documented = pep.ARPEP.__doc__.replace("pep.ARPEP", f"pep.{name}")
    example = re.search(r"::\n\n((?: {4}.*\n|\n)+)", inspect.cleandoc(documented))
    assert example is not None
    names: Namespace = {}
    exec(_BEFORE_EXAMPLES, names)
    if name == "PEPClassifier":
        names["labels"] = names["labels"][:, 0]
    exec(dedent(example[1]), names)
    assert np.all(np.isfinite(names.get("mean", names.get("probability"))))


@pytest.mark.slow
def test_moving_here() -> None:
    """The code of both sides runs; where the page says that they are equal,
    they are.
    """
    path = PAGES["docs/moving.rst"]
    text = path.read_text(encoding="utf-8").splitlines()
    beside = [
        each
        for each in BLOCKS["docs/moving.rst"]
        if text[each.line - 1].startswith(" ")
    ]
    start, after_sgpr, _ = (
        each for each in BLOCKS["docs/moving.rst"] if each not in beside
    )
    assert len(beside) == 12
    names = [run(path, [start, side], {}) for side in beside]
    sgpr, fitc, _, tied, regressor, classifier = zip(names[::2], names[1::2])
    for theirs, ours in (sgpr, fitc):
        assert_close(ours["loss"], theirs["loss"], rtol=1e-6)
    run(path, [after_sgpr], sgpr[1])
    assert np.all(sgpr[1]["variance"] > 0.0)
    svgp, arpep = (side["model"] for side in tied)
    arpep.alpha.assign(0.0)
    values = gpflow.utilities.read_values(arpep)
    del values[".alpha"]
    gpflow.utilities.multiple_assign(svgp, values)
    data = tied[0]["X"], tied[0]["labels"]
    # GPflow's quadrature has 20 nodes.
    assert_close(arpep.pep_log_marginal_likelihood(data), svgp.elbo(data), rtol=1e-5)
    np.testing.assert_allclose(regressor[1]["mean"], regressor[0]["mean"], atol=0.3)
    np.testing.assert_allclose(
        classifier[1]["probability"], classifier[0]["probability"], atol=0.3
    )


@pytest.mark.slow
def test_calls_of_moving_here() -> None:
    """The table of calls: what is the same, and what is refused."""
    start = BLOCKS["docs/moving.rst"][0]
    names = run(PAGES["docs/moving.rst"], [start], {})
    X, labels, Z, kernel = (names[name] for name in ("X", "labels", "Z", "kernel"))
    data = X, labels
    likelihood = gpflow.likelihoods.Bernoulli()
    full = pep.PEP(data, kernel, likelihood, Z, alpha=0.5)
    batch = pep.ARPEP(kernel, likelihood, Z, num_data=len(X), alpha=0.5)
    regression = pep.PEPRegression((X, names["Y"]), kernel, Z, alpha=0.5)
    for model, rows in ((full, ()), (batch, (data,)), (regression, ())):
        loss = model.training_loss(*rows)
        assert_close(model.training_loss_closure(*rows)(), loss, rtol=1e-6)
        assert_close(model.pep_log_marginal_likelihood(*rows), -loss, rtol=1e-6)
        with pytest.raises(ValueError, match="elbo: got a power alpha above 0"):
            model.elbo(*rows)
        model.alpha.assign(0.0)
        assert_close(
            model.elbo(*rows), model.pep_log_marginal_likelihood(*rows), rtol=1e-6
        )
        mean, covariance = model.compute_qu()
        assert mean.shape == model.q_mu.shape == (10, 1)
        assert covariance.shape[-2:] == (10, 10) and model.q_sqrt.shape == (1, 10, 10)
        mean, _ = model.predict_f(names["X_new"])
        assert_close(model.posterior().predict_f(names["X_new"])[0], mean, rtol=1e-6)
    assert batch.prior_kl() >= 0.0 and not hasattr(full, "prior_kl")
    assert regression.upper_bound() > regression.elbo()
    step = gpflow.optimizers.NaturalGradient(1.0)
    with pytest.raises(ValueError, match="Leave out NaturalGradient"):
        step.minimize(full.training_loss, [(full.q_mu, full.q_sqrt)])
    for name in ("q_mu", "q_sqrt", "q_diag", "whiten"):
        with pytest.raises(TypeError, match=f"{name}: got"):
            pep.PEP(data, kernel, likelihood, Z, **{name: True})
    options = {"q_diag": True, "whiten": False, "num_data": len(X)}
    assert np.isfinite(pep.ARPEP(kernel, likelihood, Z, **options).training_loss(data))
