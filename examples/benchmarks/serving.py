"""What a prediction costs: milliseconds of a call, and the start of a process that
predicts.

    python -m examples serving                      # 1000 training rows of 8 inputs
    python -m examples serving --quick

All models are trained on the same rows, with nothing set. Times are of the processor,
not of the clock: the median of calls that take turns. ``its posterior_`` is what an
estimator predicted by before it used NumPy, without the checks of inputs. Regressors
predict a mean and, but for the trees, a standard deviation; classifiers the
probabilities of the classes. Start-up is that of an interpreter that imports, loads and
predicts one row.
"""

import json
import subprocess
import sys
import tempfile
import time
import warnings
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt

from examples.common import arguments, in_own_process

Array = npt.NDArray[np.float64]

NUM_INPUTS = 8
#: Rows in a call, and how often it is called in a turn.
CALLS = {1: 50, 100: 20, 10_000: 1}
_MEASURE = """
import json, resource
{code}
used = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps([used.ru_utime + used.ru_stime, used.ru_maxrss / 1024]))
"""
START = {
    "nothing but NumPy": "import numpy",
    "load_scorer": (
        "from gpflow_pep.scoring import load_scorer\n"
        "load_scorer('{folder}/scorer').predict([[0.1] * 8], return_std=True)"
    ),
    "load_estimator": (
        "from gpflow_pep.estimators import load_estimator\n"
        "load_estimator('{folder}/model').predict([[0.1] * 8], return_std=True)"
    ),
}


def generate(num_rows: int, seed: int) -> tuple[Array, Array]:
    """Make rows of a function of eight inputs, of which five matter (Friedman 1991)."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(0.0, 1.0, (num_rows, NUM_INPUTS))
    f = 10.0 * np.sin(np.pi * X[:, 0] * X[:, 1]) + 20.0 * (X[:, 2] - 0.5) ** 2
    return X, f + 10.0 * X[:, 3] + 5.0 * X[:, 4] + rng.standard_normal(num_rows)


def fitted(num_rows: int, folder: Path) -> dict[str, Callable[[Array], Any]]:
    """Fit all models, save one of them, and give what predicts with each."""
    warnings.simplefilter("ignore")  # of lengthscales at their bounds
    from sklearn.ensemble import HistGradientBoostingRegressor
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

    from gpflow_pep.estimators import (
        PEPClassifier,
        PEPRegressor,
        export_numpy,
        save_estimator,
    )
    from gpflow_pep.scoring import load_scorer

    X, y = generate(num_rows, 1)
    regressor = PEPRegressor(random_state=0).fit(X, y)
    two = PEPClassifier(random_state=0).fit(X, y > np.median(y))
    three = PEPClassifier(random_state=0).fit(
        X, np.digitize(y, np.quantile(y, [0.33, 0.67]))
    )
    kernel = ConstantKernel() * RBF(np.ones(NUM_INPUTS)) + WhiteKernel()
    exact = GaussianProcessRegressor(kernel, normalize_y=True).fit(X, y)
    trees = HistGradientBoostingRegressor().fit(X, y)
    save_estimator(folder / "model", regressor)
    export_numpy(folder / "scorer", regressor)
    scorer = load_scorer(folder / "scorer")
    points = [part.num_inducing for part in regressor.components_]
    print(
        f"N = {num_rows}, D = {NUM_INPUTS}; PEPRegressor mixes models of {points}"
        " points\n"
    )
    scale = regressor.input_scaler_.transform
    return {
        "PEPRegressor": lambda X: regressor.predict(X, return_std=True),
        "its scorer": lambda X: scorer.predict(X, return_std=True),
        "its posterior_": lambda X: regressor.posterior_.predict_y(scale(X)),
        "PEPRegressor, 3 quantiles": regressor.predict_quantiles,
        "PEPClassifier, 2 classes": two.predict_proba,
        "PEPClassifier, 3 classes": three.predict_proba,
        "GaussianProcessRegressor": lambda X: exact.predict(X, return_std=True),
        "HistGradientBoosting": trees.predict,
    }


def milliseconds(predict: Callable[[Array], Any], X: Array, calls: int) -> float:
    """Measure the processor time of a call."""
    began = time.process_time()
    for _ in range(calls):
        predict(X)
    return 1e3 * (time.process_time() - began) / calls


def print_latencies(num_rows: int, turns: int, folder: Path) -> None:
    """Fit all models, and print what a call of each takes."""
    models = fitted(num_rows, folder)
    print(f"{'milliseconds of a call, rows:':30}" + "".join(f"{n:>10}" for n in CALLS))
    times: dict[tuple[str, int], list[float]] = defaultdict(list)
    for _ in range(turns):
        for number, calls in CALLS.items():
            X = generate(number, 2)[0]
            for label, predict in models.items():
                predict(X)
                times[label, number].append(milliseconds(predict, X, calls))
    for label in models:
        cells = "".join(f"{median(times[label, number]):10.2f}" for number in CALLS)
        print(f"{label:30}{cells}", flush=True)


def start_up(code: str) -> tuple[float, float]:
    """Measure a new interpreter: processor seconds and peak memory in MiB."""
    command = [sys.executable, "-c", _MEASURE.format(code=code)]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    seconds, memory = json.loads(printed.splitlines()[-1])
    return seconds, memory


def main() -> None:
    args = arguments(__doc__, rows=1000, turns=7, quick={"rows": 100, "turns": 1})
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        # Linux counts the memory of the process that starts another: this one stays
        # small.
        in_own_process(print_latencies, args.rows, args.turns, folder)
        print(f"\n{'start, load and one row:':30}{'seconds':>10}{'MiB':>10}")
        for label, code in START.items():
            runs = [start_up(code.format(folder=folder)) for _ in range(args.turns)]
            seconds, memory = map(median, zip(*runs, strict=True))
            print(f"{label:30}{seconds:10.2f}{memory:10.0f}", flush=True)


if __name__ == "__main__":
    main()
