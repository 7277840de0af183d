"""Seconds that a fit takes, by the number of rows and of inducing points.

    python -m examples how_long                     # six minutes
    python -m examples how_long --rows 500 --inducing 25 --quick

Rows of a function of four inputs; each fit is in a process of its own that has loaded
TensorFlow and compiled nothing. A fit ends after 100 steps of L-BFGS or 8 seconds of
them, or when it has converged. ``start`` is the seconds before and after these steps:
choosing inducing points, compiling, the posterior. ``step`` is the mean of the
``steps`` that were taken, and ``100`` is start + 100 * step. ``predict`` is a second
prediction of 10 000 rows, with standard deviations or probabilities. The last table is
of ``PEPRegressor()`` with nothing set, which ends by itself.
"""

import time
import warnings
from functools import partial
from typing import Any, NamedTuple

from examples.benchmarks.defaults import generate
from examples.common import arguments, in_own_process, seconds

NUM_PREDICTED = 10_000
BOUNDS = {"alpha": 0.5, "max_iterations": 100, "max_seconds": 8.0}


class Fit(NamedTuple):
    """What one fit took, in seconds."""

    total: float
    training: float
    steps: int
    points: int
    predict: float


def fit(classes: bool, num_rows: int, options: dict[str, Any]) -> Fit:
    """Fit once in this process, and predict."""
    import tensorflow as tf

    from gpflow_pep.estimators import PEPClassifier, PEPRegressor

    warnings.simplefilter("ignore")  # that a fit was ended early
    tf.function(tf.sin)(tf.constant(1.0))  # TensorFlow's own first function
    X, y = generate(num_rows, seed=1)
    X_new, _ = generate(NUM_PREDICTED, seed=2)
    estimator = (PEPClassifier if classes else PEPRegressor)(random_state=0, **options)
    began = time.perf_counter()
    estimator.fit(X, y > 0.5 if classes else y)
    total = time.perf_counter() - began
    predict = (
        estimator.predict_proba
        if classes
        else partial(estimator.predict, return_std=True)
    )
    predict(X_new)
    record = estimator.record_
    points = len(estimator.inducing_variable_.Z.numpy())
    return Fit(
        total,
        record.seconds,
        record.iterations,
        points,
        seconds(lambda: predict(X_new)),
    )


def print_bounded(title: str, classes: bool, all_rows: list[int], args: Any) -> None:
    """Print a table of one power and a fixed number of inducing points."""
    print(f"\n{title}")
    print(
        f"{'N':>7} {'M':>4} {'steps':>6} {'start':>7} {'step':>8} {'100':>7}"
        f" {'predict':>8}"
    )
    for num_rows in all_rows:
        for num_inducing in args.inducing:
            options = {**BOUNDS, "num_inducing": num_inducing}
            done = in_own_process(fit, classes, num_rows, options)
            step = done.training / max(done.steps, 1)
            start = done.total - done.training
            print(
                f"{num_rows:7} {done.points:4} {done.steps:6} {start:7.1f} {step:8.4f}"
                f" {start + 100 * step:7.0f} {done.predict:8.2f}",
                flush=True,
            )


def main() -> None:
    args = arguments(
        __doc__,
        rows=[500, 2000, 10_000, 50_000],
        inducing=[25, 100, 400],
        quick={"rows": [200], "inducing": [10]},
    )
    few = [rows for rows in args.rows if rows <= 10_000]
    print_bounded("PEPRegressor(alpha=0.5, num_inducing=M)", False, args.rows, args)
    print_bounded("PEPClassifier(alpha=0.5, num_inducing=M)", True, few, args)
    print(f"\nPEPRegressor()\n{'N':>7} {'M':>4} {'all':>8} {'predict':>8}")
    for num_rows in few:
        done = in_own_process(fit, False, num_rows, {})
        print(
            f"{num_rows:7} {done.points:4} {done.total:8.0f} {done.predict:8.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
