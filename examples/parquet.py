"""Train on ten million rows of a Parquet file in the memory of a laptop: speed, memory and NLPD.

    python -m examples parquet --folder DIRECTORY                  # a million rows, some minutes
    python -m examples parquet --folder DIRECTORY --rows 10000000

The rows are generated once, to ``rows_N.parquet`` in the directory (36 bytes a row, in single
precision): Friedman's function of 5 of 8 inputs in the unit cube, about standardised, and noise of
standard deviation 0.2. Two models with M inducing inputs and a squared exponential with a
lengthscale for each input:

* ``PEPRegression`` at alpha 0.5 begins with 20 000 rows in memory. Then L-BFGS takes steps on all
  rows, which are read from the file twice for each value and gradient.
* ``ARPEP`` at alpha 0.5 sees each row once, in minibatches, by natural gradients for q and Adam for
  all else.

``seconds`` is the time of training since the start, with compilation and without the scores, and
``processor`` the seconds of the processor in it, all threads together. ``rows / s`` is of how many
rows value and gradient were computed in a second of the processor, of ``ARPEP`` since the line
before. NLPD is the mean negative log density of 10 000 other rows. ``GiB`` is the peak of the
process so far, with TensorFlow in it and with those pages of the file that are mapped to memory;
each model has a process of its own. The last line is the function that made the rows.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
import tf_keras
from gpflow.base import AnyNDArray
from scipy.stats import norm

import gpflow_pep as pep
from examples.common import arguments, in_own_process, peak_gibibytes
from gpflow_pep.metrics import mean_nlpd

NUM_INPUTS = 8
INPUTS, TARGET = [f"x{k}" for k in range(NUM_INPUTS)], "y"
#: Rows that a Parquet file stores together, and that are in memory at a time.
GROUP = 2**17
HELD_OUT = 10_000
NUM_FIRST = 20_000
NOISE = 0.2
#: Seeds that no row group has.
SEED_OF_HELD_OUT = 2**31


def friedman(X: AnyNDArray) -> AnyNDArray:
    """Friedman's function of the first five inputs, about standardised, [N, 1]."""
    f = 10.0 * np.sin(np.pi * X[:, 0] * X[:, 1]) + 20.0 * (X[:, 2] - 0.5) ** 2
    f += 10.0 * X[:, 3] + 5.0 * X[:, 4]
    return ((f - 14.4) / 4.9)[:, None]


def rows(number: int, seed: int) -> tuple[AnyNDArray, AnyNDArray]:
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(number, NUM_INPUTS))
    return X, friedman(X) + NOISE * rng.standard_normal((number, 1))


def write(path: Path, num_rows: int) -> None:
    """Write the rows, one row group at a time, unless they are there."""
    import pyarrow
    from pyarrow import parquet

    if path.exists() and parquet.read_metadata(path).num_rows == num_rows:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    schema = pyarrow.schema([(name, pyarrow.float32()) for name in (*INPUTS, TARGET)])
    # Noise has no repetitions that a dictionary or compression could use.
    options = {"compression": "none", "use_dictionary": False}
    with parquet.ParquetWriter(path, schema, **options) as writer:
        for seed, start in enumerate(range(0, num_rows, GROUP)):
            X, Y = rows(min(GROUP, num_rows - start), seed)
            columns = [*X.T.astype(np.float32), Y[:, 0].astype(np.float32)]
            writer.write_table(pyarrow.table(columns, schema=schema), row_group_size=GROUP)


def num_rows_of(path: Path) -> int:
    from pyarrow import parquet

    return parquet.read_metadata(path).num_rows


def batches(path: Path, *, part: tuple[int, int] = (0, 1), seeds: Any = None) -> tf.data.Dataset:
    """
    Read X and Y of each row group, of which one at a time is in memory.

    :param part: ``(k, n)``: every n-th row group, from the k-th, for one of n processes.
    :param seeds: Where given, the order of the groups, and of the rows in each, is drawn.
    """
    from pyarrow import parquet

    def read() -> Iterator[tuple[AnyNDArray, AnyNDArray]]:
        file = parquet.ParquetFile(path, memory_map=True)
        groups = np.arange(file.num_row_groups)[part[0] :: part[1]]
        random = None if seeds is None else np.random.default_rng(seeds)
        for group in groups if random is None else random.permutation(groups):
            table = file.read_row_group(group, [*INPUTS, TARGET])
            values = np.column_stack([column.to_numpy() for column in table.columns])
            values = values if random is None else random.permutation(values)
            yield values[:, :-1].astype(float), values[:, -1:].astype(float)

    widths = NUM_INPUTS, 1
    signature = tuple(tf.TensorSpec([None, width], tf.float64) for width in widths)
    return tf.data.Dataset.from_generator(read, output_signature=signature)


def shuffled_batches(path: Path, batch_size: int) -> Callable[[int], tf.data.Dataset]:
    """Make the batches of each epoch, as ``pep.training.fit`` takes them."""
    return lambda epoch: batches(path, seeds=[0, int(epoch)]).rebatch(batch_size, True)


class Clock:
    """Seconds of training, without those of scores, and the lines of the table."""

    def __init__(self) -> None:
        self.start, self.paused = self.now(), np.zeros(2)
        self.X_test, self.Y_test = rows(HELD_OUT, SEED_OF_HELD_OUT)

    @staticmethod
    def now() -> AnyNDArray:
        return np.array([time.perf_counter(), time.process_time()])

    def seconds(self) -> AnyNDArray:
        """Since the start, and of the processor, all threads together."""
        return self.now() - self.start - self.paused

    def line(self, label: str, speed: float, predict: Callable[[AnyNDArray], Any]) -> float:
        """Print a line with the score of predictions."""
        seconds, began = self.seconds(), self.now()
        log_density = norm.logpdf(self.Y_test, *moments(predict(self.X_test)))
        nlpd = mean_nlpd(log_density[:, 0])
        numbers = f"{numbers_of(seconds, speed)}{nlpd:10.4f}{peak_gibibytes():7.2f}"
        print(f"{label:34}{numbers}", flush=True)
        self.paused += self.now() - began
        return nlpd


def numbers_of(seconds: AnyNDArray, speed: float) -> str:
    """The columns of time."""
    return f"{seconds[0]:9.0f}{seconds[1]:11.0f}" + (f"{speed:11.0f}" if speed else f"{'':11}")


def moments(prediction: Any) -> tuple[AnyNDArray, AnyNDArray]:
    mean, variance = (np.asarray(part) for part in prediction)
    return mean, np.sqrt(variance)


def first_inducing_inputs(path: Path, num_inducing: int) -> AnyNDArray:
    X, _ = next(iter(shuffled_batches(path, NUM_FIRST)(0)))
    return pep.training.starts.kmeans(X.numpy(), num_inducing, seed=0).Z.numpy()


def kernel() -> gpflow.kernels.Kernel:
    return gpflow.kernels.SquaredExponential(lengthscales=np.ones(NUM_INPUTS))


def train_on_all(path: Path, num_inducing: int, steps: int) -> None:
    """Begin with some rows in memory, and go on with all."""
    print(f"{'before any row':34}{'':41}{peak_gibibytes():7.2f}", flush=True)
    clock = Clock()
    some = next(iter(shuffled_batches(path, NUM_FIRST)(0)))
    Z = first_inducing_inputs(path, num_inducing)
    start = pep.PEPRegression(some, kernel(), Z, noise_variance=0.1)
    pep.training.maximise(start, tolerance=1e-5, progress=False)
    clock.line(f"PEPRegression, {NUM_FIRST} rows", 0.0, start.predict_y)
    model = pep.PEPRegression(
        batches(path).rebatch(65_536),
        start.kernel,
        start.inducing_variable,
        likelihood=start.likelihood,
    )

    predict = tf.function(model.predict_y, autograph=False)

    def show(step: pep.training.Step) -> None:
        clock.line(f"... all rows, step {step.iteration}", 0.0, predict)

    began = clock.seconds()
    record = pep.training.maximise(model, max_iterations=steps, callback=show, progress=False)
    end = clock.seconds()
    speed = record.evaluations * num_rows_of(path) / (end - began)[1]
    print(f"{f'... {record.evaluations} evaluations':34}{numbers_of(end, speed)}", flush=True)


def train_by_minibatches(path: Path, num_inducing: int, batch_size: int) -> None:
    """One pass, with a line for each fifth of it."""
    clock, num_rows = Clock(), num_rows_of(path)
    num_steps = num_rows // batch_size
    model = pep.ARPEP(
        kernel(),
        gpflow.likelihoods.Gaussian(0.1),
        first_inducing_inputs(path, num_inducing),
        alpha=0.5,
        num_data=num_rows,
    )
    predict = tf.function(model.predict_y, autograph=False)
    every, before = max(1, num_steps // 5), 0.0
    num_seen = 0

    def evaluate(_: Any) -> Mapping[str, float]:
        nonlocal num_seen, before
        num_seen += every * batch_size
        spent = clock.seconds()[1]
        speed, before = every * batch_size / (spent - before), spent
        return {"nlpd": clock.line(f"ARPEP, {num_seen} rows", speed, predict)}

    schedule = tf_keras.optimizers.schedules.CosineDecay(0.02, num_steps)
    pep.training.fit(
        model,
        shuffled_batches(path, batch_size),
        num_steps=num_steps,
        optimizer=tf_keras.optimizers.Adam(schedule),
        natural_gradient=0.1,
        evaluate=evaluate,
        evaluate_every=every,
        progress=False,
    )


def main() -> None:
    args = arguments(
        __doc__,
        folder={"type": Path, "required": True, "help": "where the Parquet file is, or goes to"},
        rows=1_000_000,
        inducing=100,
        steps=3,
        batch_size=5_000,
        quick={"rows": 50_000, "inducing": 20, "steps": 2},
    )
    path = args.folder / f"rows_{args.rows}.parquet"
    write(path, args.rows)
    size = path.stat().st_size / 2**20
    print(f"{args.rows} rows of {NUM_INPUTS} inputs, {size:.0f} MiB; M = {args.inducing}")
    heads = f"{'seconds':>9}{'processor':>11}{'rows / s':>11}{'NLPD':>10}{'GiB':>7}"
    print(f"{'':34}{heads}", flush=True)
    in_own_process(train_on_all, path, args.inducing, args.steps)
    in_own_process(train_by_minibatches, path, args.inducing, args.batch_size)
    X, Y = rows(HELD_OUT, SEED_OF_HELD_OUT)
    truth = mean_nlpd(norm.logpdf(Y, friedman(X), NOISE)[:, 0])
    print(f"{'the function':34}{'':31}{truth:10.4f}")
