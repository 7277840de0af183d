"""Parts of the papers' experiments: the runner, baselines beside independent ones,
Gibbs.
"""

import json
import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.base import AnyNDArray
from helpers import EXAMPLES, assert_close, regression_problem, value_and_gradients
from scipy.special import ndtr
from scipy.stats import multivariate_normal
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from threadpoolctl import threadpool_info, threadpool_limits

from examples.papers import baselines, gibbs, runner, tasks

PROBLEM = regression_problem(num_data=24)
LABELS = (PROBLEM.Y > 0.4).astype(float)
LOGIT = gpflow.likelihoods.Bernoulli(invlink=tf.sigmoid)


def cells(count: int = 5) -> list[Any]:
    return [runner.Cell("sums", "none", split, 3, "PEP", 0.5) for split in range(count)]


def test_killed_and_resumed(tmp_path: Path) -> None:
    """A process that dies in the fourth cell, and a line that was cut: no cell is run
    twice.
    """
    script = f"""
        import os, sys
        sys.path.insert(0, {str(EXAMPLES.parent)!r})
        from pathlib import Path
        from examples.papers import runner

        def evaluate(cell):
            if cell.split == 3:
                os._exit(9)
            with open({str(tmp_path / "calls")!r}, "a") as file:
                file.write(f"{{cell.split}} ")
            return {{"value": 2.0 * cell.split}}

        kind = "sums", "none"
        cells = [runner.Cell(*kind, split, 3, "PEP", 0.5) for split in range(5)]
        runner.run(cells, evaluate, Path({str(tmp_path)!r}))
    """
    killed = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], check=False
    )
    assert killed.returncode == 9
    journal = tmp_path / runner.JOURNAL
    assert (
        len(journal.read_text().splitlines()) == 3
        and not (tmp_path / runner.TABLE).exists()
    )
    with journal.open("ab") as file:
        file.write(b'{"cell": {"experiment": "su')
    more: list[int] = []

    def evaluate(cell: Any) -> dict[str, float]:
        more.append(cell.split)
        return {"value": 2.0 * cell.split}

    table, again = (runner.run(cells(), evaluate, tmp_path) for _ in range(2))
    assert (tmp_path / "calls").read_text().split() == ["0", "1", "2"] and more == [
        3,
        4,
    ]
    assert list(table["split"]) == [0, 1, 2, 3, 4] and list(table["value"]) == [
        0,
        2,
        4,
        6,
        8,
    ]
    assert all(json.loads(line) for line in journal.read_text().splitlines())
    assert again.equals(table)
    read = runner.read(tmp_path / runner.TABLE)
    assert (
        list(read["value"]) == list(table["value"])
        and "gpflow_pep" in read["versions"][0]
    )


def test_a_single_job_has_one_thread(tmp_path: Path) -> None:
    def evaluate(cell: Any) -> dict[str, int]:
        return {"threads": max(pool["num_threads"] for pool in threadpool_info())}

    with threadpool_limits(2):
        table = runner.run(cells(1), evaluate, tmp_path)
        assert max(pool["num_threads"] for pool in threadpool_info()) == 2
    assert list(table["threads"]) == [1]


def test_errors_are_rows(tmp_path: Path) -> None:
    calls: list[int] = []

    def evaluate(cell: Any) -> list[dict[str, float]]:
        calls.append(cell.split)
        if cell.split == 1 and calls.count(1) == 1:
            raise ValueError("X has\nNaN in /home/user/tables/t.csv")
        return [{"place": 0.0}, {"place": 1.0}]

    table = runner.run(cells(2), evaluate, tmp_path)
    assert list(table["error"]) == ["", "", "ValueError: X has NaN in t.csv"]
    assert list(runner.read(tmp_path / runner.TABLE)["place"]) == [0.0, 1.0]
    runner.run(cells(2), evaluate, tmp_path)
    assert calls == [0, 1]
    table = runner.run(cells(2), evaluate, tmp_path, retry=True)
    assert calls == [0, 1, 1] and list(table["error"]) == [""] * 4


@pytest.mark.slow
def test_several_processes_and_the_time(tmp_path: Path) -> None:
    def evaluate(cell: Any) -> dict[str, Any]:
        return {"process": os.getpid(), "threads": os.environ["TF_NUM_INTRAOP_THREADS"]}

    assert runner.run(cells(), evaluate, tmp_path, 2, minutes=0.0).empty
    table = runner.run(cells(), evaluate, tmp_path, 2)
    assert os.getpid() not in set(table["process"]) and set(table["threads"]) == {"1"}
    assert list(table["split"]) == list(range(5))


@pytest.mark.slow
def test_a_process_that_dies_is_told(tmp_path: Path) -> None:
    """What had ended before is kept."""

    def evaluate(cell: Any) -> dict[str, Any]:
        if cell.split == 2:
            ended = tmp_path / runner.JOURNAL
            while not ended.exists() or ended.read_text().count("\n") < 2:
                time.sleep(0.01)
            os._exit(9)
        return {}

    with pytest.raises(SystemExit, match="a process was killed"):
        runner.run(cells(3), evaluate, tmp_path, 2)
    assert len(runner.read(tmp_path / runner.TABLE)) == 2


def test_one_run_at_a_time(tmp_path: Path) -> None:
    def evaluate(cell: Any) -> dict[str, Any]:
        with pytest.raises(SystemExit, match="another run writes here"):
            runner.run(cells(), evaluate, tmp_path)
        return {}

    assert list(runner.run(cells(1), evaluate, tmp_path)["error"]) == [""]


def test_start_is_shared() -> None:
    one, other = (runner.Cell("a", "b", split, 3, "PEP", 0.5) for split in (0, 1))
    assert one.seed == runner.Cell("a", "b", 0, 3, "SVGP").seed != other.seed


def latent_moments(fitted: Any, Xnew: AnyNDArray) -> tuple[AnyNDArray, AnyNDArray]:
    """Lines 4 and 6 of GPML's Algorithm 3.2, at scikit-learn's mode; its own are of
    1.7.
    """
    K = fitted.kernel_(fitted.X_train_, Xnew)
    v = np.linalg.solve(fitted.L_, fitted.W_sr_[:, None] * K)
    return K.T @ (fitted.y_train_ - fitted.pi_), fitted.kernel_.diag(Xnew) - np.sum(
        v**2, axis=0
    )


def test_laplace_is_that_of_scikit_learn() -> None:
    """Evidence, its gradient through the mode, and the moments of f at new inputs."""
    kernel = PROBLEM.kernel()
    model = baselines.Laplace((PROBLEM.X, LABELS), kernel, LOGIT, 1)
    of_theirs = ConstantKernel(PROBLEM.variance) * RBF(list(PROBLEM.lengthscales))
    theirs = GaussianProcessClassifier(of_theirs, optimizer=None, max_iter_predict=1000)
    theirs.fit(PROBLEM.X, LABELS[:, 0])
    value, slope = theirs.log_marginal_likelihood(
        theirs.kernel_.theta, eval_gradient=True
    )
    parameters = kernel.variance, kernel.lengthscales
    variables = [parameter.unconstrained_variable for parameter in parameters]
    log_z, slopes = value_and_gradients(
        model.maximum_log_likelihood_objective, variables
    )
    # Theirs is by the logarithms; d log(theta) / d unconstrained is ours over theta.
    ours = [g * p / tf.sigmoid(v) for g, p, v in zip(slopes, parameters, variables)]
    # They stop 1e-10 nats from the mode's objective, and add no jitter.
    assert_close(log_z, value, 1e-5)
    assert_close(np.hstack(ours), slope, 1e-4)
    expected = latent_moments(theirs.base_estimator_, PROBLEM.Xnew)
    for moment, other in zip(model.predict_f(PROBLEM.Xnew), expected):
        assert_close(moment[:, 0], other, 1e-4)


def test_laplace_of_several_classes() -> None:
    """Softmax of two is the logit of a difference, whose kernel has twice the
    variance.
    """
    data = (PROBLEM.X, LABELS)
    twice = PROBLEM.kernel()
    twice.variance.assign(2.0 * PROBLEM.variance)
    two = baselines.Laplace(data, PROBLEM.kernel(), gpflow.likelihoods.Softmax(2), 2)
    one = baselines.Laplace(data, twice, LOGIT, 1)
    assert_close(
        *(model.maximum_log_likelihood_objective() for model in (two, one)), 1e-5
    )
    (f, _), (difference, _) = (model.predict_f(PROBLEM.Xnew) for model in (two, one))
    assert_close(f[:, 1] - f[:, 0], difference[:, 0], 1e-5, scale=1.0)


def test_dtc() -> None:
    """log N(y; 0, Q + noise), and no trace."""
    noise = PROBLEM.noise_variance
    Z = PROBLEM.Z
    model = baselines.DTC(
        PROBLEM.data, PROBLEM.kernel(), Z.copy(), noise_variance=noise
    )
    Kuu = PROBLEM.covariance(Z, Z) + 1e-6 * np.eye(len(Z))
    Kuf = PROBLEM.covariance(Z, PROBLEM.X)
    covariance = Kuf.T @ np.linalg.solve(Kuu, Kuf) + noise * np.eye(len(PROBLEM.X))
    expected = multivariate_normal.logpdf(PROBLEM.Y[:, 0], cov=covariance)
    assert_close(model.maximum_log_likelihood_objective(), expected)


@pytest.mark.slow
def test_compiled_models_forget() -> None:
    """A fit does not depend on what the shared model was fitted to before."""
    task = baselines.Task(*PROBLEM.data, PROBLEM.Xnew, PROBLEM.Z)
    budget = baselines.Budget(3)
    first = baselines.fit("PEP", task, 0.5, budget)
    other = baselines.fit(
        "PEP", task._replace(Y=-2.0 * PROBLEM.Y, Z=PROBLEM.X[:5]), 1.0, budget
    )
    again = baselines.fit("PEP", task, 0.5, budget)
    assert np.array_equal(first.mean, again.mean) and not np.array_equal(
        first.mean, other.mean
    )
    scores = tasks.regression_scores(first, np.sin(PROBLEM.Xnew[:, :1]), PROBLEM.Y)
    assert set(scores) == {"smse", "smll", "nlpd"} and np.all(
        np.isfinite(list(scores.values()))
    )


@pytest.mark.slow
@pytest.mark.parametrize("num_classes", [0, 2, 3])
def test_every_method_learns(num_classes: int) -> None:
    """Better than chance by far, and those that see no more than M rows better than
    chance.
    """
    rng = np.random.default_rng(0)
    X = rng.standard_normal((160, 2))
    Y = np.sin(2.0 * X[:, :1]) + X[:, 1:]
    Y = (
        np.digitize(Y, {0: [], 2: [0.0], 3: [-0.7, 0.7]}[num_classes])
        if num_classes
        else Y
    )
    train, test = np.split(np.arange(160), [100])
    task = baselines.Task(
        X[train], Y[train].astype(float), X[test], X[:20], num_classes
    )
    names = baselines.CLASSIFICATION if num_classes else baselines.REGRESSION
    for name in {*names} - {"IVM"} if num_classes == 3 else names:
        fitted = baselines.fit(name, task, 0.5, baselines.Budget(50))
        few = name in ("SoD", "IVM")
        if num_classes:
            scores = tasks.classification_scores(fitted, Y[test])
            error = scores["error_rate"]
            loss = scores["nlpd"]
            chance = np.log(num_classes)
            most = 0.9 * (1.0 - 1.0 / num_classes) if few else 0.3
        else:
            scores = tasks.regression_scores(fitted, Y[test], Y[train])
            error = scores["smse"]
            loss = scores["smll"]
            chance = -0.5
            most = 0.9 if few else 0.3
        assert error < most and (few or loss < chance), (name, scores)


@pytest.mark.parametrize(
    "pieces", [(0.5, 0.001, 0.999), (-0.3, 2.0, 0.5), (0.0, 1.0, 1.0)]
)
def test_two_pieces(pieces: tuple[float, float, float]) -> None:
    """The share and the mean below the threshold are those of the reweighted
    density.
    """
    threshold, below, above = pieces
    uniform = (np.arange(200_000) + 0.5) / 200_000
    found = gibbs.two_pieces(*(np.full(uniform.shape, x) for x in pieces), uniform)
    line = np.linspace(-9.0, 9.0, 20_001)
    weight = np.exp(-0.5 * line**2) * np.where(line < threshold, below, above)
    weight /= weight.sum()
    assert_close(np.mean(found < threshold), weight[line < threshold].sum(), 2e-3)
    assert_close(found.mean(), weight @ line, 2e-3, scale=1.0)


def test_one_inducing_input(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two rows, two classes: f0 - f1 is all that matters, and its prior is of one
    dimension.
    """
    monkeypatch.setattr(gibbs, "SWEEPS", 4000)
    monkeypatch.setattr(gibbs, "THIN", 1)
    X = np.array([[0.0], [0.7]])
    Y = np.array([[0.0], [1.0]])
    Xnew = np.array([[-0.4], [1.0]])
    Z = gpflow.inducing_variables.InducingPoints(np.array([[-0.2]]))
    parts = (
        gpflow.kernels.SquaredExponential(variance=2.0),
        gpflow.likelihoods.MultiClass(2),
        Z,
    )
    found = gibbs.probabilities(*parts, gibbs.sample(*parts, (X, Y)), Xnew)
    difference = np.linspace(-9.0, 9.0, 4001)  # of v0 - v1, in deviations

    def zero_wins(x: np.ndarray) -> np.ndarray:
        slope = 2.0 * np.exp(-0.5 * (x[:, 0] + 0.2) ** 2) / np.sqrt(2.0)
        return 0.001 + 0.998 * ndtr(
            slope * difference[:, None] / np.sqrt(2.0 - slope**2)
        )

    rows = zero_wins(X)
    weight = np.exp(-0.5 * difference**2) * rows[:, 0] * (1.0 - rows[:, 1])
    expected = weight @ zero_wins(Xnew) / weight.sum()
    assert_close(found[:, 0], expected, 0.02, scale=1.0)
    assert_close(found.sum(axis=1), np.ones(2), 1e-6)
