"""Train ARPEP on rows that no memory holds: time and peak memory along ten million of them.

    python -m examples stream                    # some minutes
    python -m examples stream --rows 200000      # seconds

Rows come from a generator through ``tf.data``, a batch at a time, and each is seen once. Binary
labels, a squared exponential with a lengthscale for each of 5 inputs, M = 100. ``GiB`` is the peak
of the process so far, with TensorFlow in it; error and mean negative log density are of other rows
from the same generator, and the last line is the rule that made the labels.
"""

import time
from collections.abc import Iterator, Mapping
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
import tf_keras
from gpflow.base import AnyNDArray
from scipy.stats import norm

from examples.common import arguments, peak_gibibytes
from gpflow_pep.metrics import error_rate, mean_nlpd
from gpflow_pep.models import ARPEP
from gpflow_pep.training import fit
from gpflow_pep.training.starts import kmeans

NUM_INPUTS = 5
HELD_OUT = 10_000
NOISE = 0.3


def rule(X: AnyNDArray) -> AnyNDArray:
    """The probability of label 1, [N, 1]."""
    f = np.sin(2.0 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.5 * X[:, 3]
    return norm.cdf(f[:, None] / NOISE)


def rows(number: int, seed: int) -> tuple[AnyNDArray, AnyNDArray]:
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.5, 1.5, (number, NUM_INPUTS))
    return X, (rng.uniform(size=(number, 1)) < rule(X)).astype(float)


def stream(num_batches: int, batch_size: int) -> tf.data.Dataset:
    """Batches that are made when they are asked for."""

    def batches() -> Iterator[tuple[AnyNDArray, AnyNDArray]]:
        for seed in range(num_batches):
            yield rows(batch_size, seed)

    signature = tuple(tf.TensorSpec([batch_size, D], tf.float64) for D in (NUM_INPUTS, 1))
    return tf.data.Dataset.from_generator(batches, output_signature=signature)


def print_scores(label: str, Y: AnyNDArray, p: AnyNDArray, process: str = "") -> None:
    log_density = np.log(np.where(Y > 0.5, p, 1.0 - p))[:, 0]
    scores = f"{error_rate(Y[:, 0], p[:, 0] > 0.5):9.4f}{mean_nlpd(log_density):9.4f}"
    print(f"{label:>12}{process:31}{scores}", flush=True)


def train(num_rows: int, batch_size: int, num_inducing: int) -> None:
    """One pass, with a line for each tenth of it."""
    num_steps = num_rows // batch_size
    # Seeds that no batch has.
    X_first, _ = rows(HELD_OUT, num_steps)
    X_test, Y_test = rows(HELD_OUT, num_steps + 1)
    model = ARPEP(
        gpflow.kernels.SquaredExponential(lengthscales=np.ones(NUM_INPUTS)),
        gpflow.likelihoods.Bernoulli(),
        kmeans(X_first, num_inducing, seed=0),
        alpha=0.5,
        num_data=num_steps * batch_size,
    )
    probability = tf.function(lambda: model.predict_y(X_test)[0], autograph=False)
    start, every = time.perf_counter(), max(1, num_steps // 10)
    num_seen = 0

    def evaluate(_: Any) -> Mapping[str, float]:
        nonlocal num_seen
        num_seen += every * batch_size
        seconds, peak = time.perf_counter() - start, peak_gibibytes()
        process = f"{seconds:9.0f}{num_seen / seconds:12.0f}{peak:10.2f}"
        print_scores(str(num_seen), Y_test, probability().numpy(), process)
        return {"peak": peak}

    print(f"{'rows':>12}{'seconds':>9}{'rows / s':>12}{'GiB':>10}{'error':>9}{'NLPD':>9}")
    schedule = tf_keras.optimizers.schedules.CosineDecay(0.05, num_steps)
    fit(
        model,
        stream(num_steps, batch_size),
        num_steps=num_steps,
        optimizer=tf_keras.optimizers.Adam(schedule),
        evaluate=evaluate,
        evaluate_every=every,
        progress=False,
    )
    print_scores("the rule", Y_test, rule(X_test))


def main() -> None:
    args = arguments(
        __doc__, rows=10_000_000, batch_size=10_000, inducing=100, quick={"rows": 200_000}
    )
    train(args.rows, args.batch_size, args.inducing)
