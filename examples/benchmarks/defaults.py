"""Seconds that the defaults of PEPRegressor take, beside one fit of one power.

    python -m examples defaults                     # N = 500, 5 000 and 20 000
    python -m examples defaults --rows 500 --quick

``one fit`` is a power of 0.5 and 100 inducing points; ``mixture`` is three powers
instead, ``auto`` one power with as many points as pay, ``nothing set`` both. Each is
fitted in a process of its own that has loaded TensorFlow, so that compilation is in the
seconds; ``again`` is the second fit of that process, to other rows of the same number.
Ratios are to one fit. NLPD is of 2 000 rows that were not trained on.
"""

import time
from typing import Any

import numpy as np
from gpflow.base import AnyNDArray

from examples.common import arguments, in_own_process

SETTINGS: dict[str, dict[str, Any]] = {
    "one fit": {"alpha": 0.5, "num_inducing": 100},
    "mixture": {"alpha": "mix", "num_inducing": 100},
    "auto": {"alpha": 0.5},
    "nothing set": {},
}
NUM_INPUTS = 4
NUM_TEST = 2000


def generate(num_rows: int, seed: int) -> tuple[AnyNDArray, AnyNDArray]:
    """Make rows of a function of four inputs, which a hundred points cannot follow
    entirely.
    """
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, (num_rows, NUM_INPUTS))
    f = (
        np.sin(4.0 * X[:, 0]) * np.cos(3.0 * X[:, 1])
        + np.abs(X[:, 2])
        + 0.5 * X[:, 3] ** 2
    )
    return X, f + 0.1 * rng.standard_normal(num_rows)


def fit(name: str, num_rows: int) -> tuple[float, float, int, float]:
    """Fit twice in this process: seconds of both, inducing points and NLPD of the
    second.
    """
    import tensorflow as tf

    from gpflow_pep.estimators import PEPRegressor

    tf.function(tf.sin)(tf.constant(1.0))  # TensorFlow's own first function
    seconds = []
    for seed in (1, 2):
        X, y = generate(num_rows, seed)
        estimator = PEPRegressor(random_state=0, **SETTINGS[name])
        began = time.perf_counter()
        estimator.fit(X, y)
        seconds.append(time.perf_counter() - began)
    points = len(estimator.inducing_variable_.Z.numpy())
    return seconds[0], seconds[1], points, -estimator.log_score(*generate(NUM_TEST, 0))


def main() -> None:
    args = arguments(__doc__, rows=[500, 5000, 20_000], quick={"rows": [200]})
    print(
        f"{'N':>6}  {'':12} {'first':>7} {'ratio':>6} {'again':>7} {'ratio':>6}   M  "
        " NLPD"
    )
    for num_rows in args.rows:
        one: tuple[float, ...] = ()
        for name in SETTINGS:
            first, again, points, nlpd = in_own_process(fit, name, num_rows)
            one = one or (first, again)
            print(
                f"{num_rows:6}  {name:12} {first:7.1f} {first / one[0]:6.2f}"
                f" {again:7.1f} {again / one[1]:6.2f} {points:4} {nlpd:6.3f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
