"""Plan the training of PEPRegression on a billion rows: bytes, cores, hours, messages,
core hours.

    python -m examples cluster                                        # measures this machine first
    python -m examples cluster --price 0.04 --cores 64 256            # with what a core hour costs
    python -m examples cluster --row-seconds 4e-5 --serial-seconds 0.05

Rows of 8 inputs and a target are spread over processes with one core each, which read
them from Parquet files at each evaluation of value and gradient, and add up their sums.
One evaluation takes

    rows / cores * (seconds of a row) + (serial seconds) + (seconds of messages).

* Seconds of a row: value and gradient of rows from a file, with what reading takes, on
  one core.
* Serial seconds: what each process does alone, M x M factorisations above all.
* Messages: sums of M (M + 1) + 2 numbers, twice, N, and the gradient. In a ring of C
  processes each sends 2 (C - 1) / C times the bytes of a message in 2 (C - 1) parts,
  which take ``--gigabit`` and ``--latency`` seconds each.

The first two are measured here, by one thread, unless they are passed; they grow with
M. Then the table has for each number of cores the seconds of an evaluation, the
fraction of that which is work on rows, the hours and core hours of ``--evaluations``,
the gigabytes on disk of one core, the megabytes a second which it reads, and with
``--price`` what the core hours cost, in whatever the price of one is in. An evaluation
reads all rows twice. L-BFGS needs few evaluations where it begins with parameters that
were trained on some of the rows.
"""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from examples import parquet
from examples.benchmarks.processes import numbers_of_message
from examples.common import arguments, squared_exponential, value_and_gradient

#: Sums of rows and their derivatives, the number of rows, and the loss with its
#: gradient.
NUM_MESSAGES = 4


class Costs(NamedTuple):
    """What work takes on one core of a machine, in seconds."""

    row: float
    """Value and gradient of a row, with reading it twice."""

    serial: float
    """What each process does whatever rows it has."""


class Network(NamedTuple):
    """How processes talk to each other."""

    bytes_per_second: float
    latency: float


class Problem(NamedTuple):
    """What is to be computed."""

    num_rows: int
    num_inducing: int
    bytes_per_row: int
    evaluations: int


class Plan(NamedTuple):
    """A run on some cores."""

    cores: int
    evaluation_seconds: float
    efficiency: float
    """The part of an evaluation that is work on rows."""

    message_seconds: float
    hours: float
    core_hours: float
    bytes_on_core: float
    bytes_per_second: float
    """What a core reads."""


def message_bytes(num_inducing: int) -> int:
    """What a process adds up with the others in an evaluation."""
    parameters = num_inducing * parquet.NUM_INPUTS + parquet.NUM_INPUTS + 2
    return 8 * numbers_of_message(num_inducing, 1, parameters)


def plan(problem: Problem, costs: Costs, network: Network, cores: int) -> Plan:
    """Compute what a run takes."""
    work = problem.num_rows / cores * costs.row
    size = message_bytes(problem.num_inducing) * 2.0 * (cores - 1) / cores
    parts = NUM_MESSAGES * 2 * (cores - 1)
    messages = size / network.bytes_per_second + parts * network.latency
    seconds = work + costs.serial + messages
    own = problem.num_rows / cores * problem.bytes_per_row
    hours = problem.evaluations * seconds / 3600.0
    return Plan(
        cores,
        seconds,
        work / seconds,
        messages,
        hours,
        cores * hours,
        own,
        2.0 * own / seconds,
    )


def measure(num_inducing: int, num_rows: int, repeats: int) -> Costs:
    """Measure this machine: seconds of the processor, the least of some evaluations."""
    import gpflow_pep as pep

    def seconds(data: Any) -> float:
        X, _ = parquet.rows(num_inducing, parquet.SEED_OF_HELD_OUT)
        kernel = squared_exponential(parquet.NUM_INPUTS)
        model = pep.PEPRegression(data, kernel, X, noise_variance=0.1)
        evaluate = value_and_gradient(model.training_loss, model.trainable_variables)
        return least(lambda: np.asarray(evaluate()[0]), repeats)

    few = 256
    without_files = seconds(parquet.rows(few, 0))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.parquet"
        parquet.write(path, num_rows)
        row = max(
            seconds(parquet.batches(path).rebatch(65_536)) - without_files, 0.0
        ) / (num_rows - few)
    return Costs(row, max(without_files - few * row, 0.0))


def least(function: Callable[[], Any], repeats: int) -> float:
    """The least processor time of some calls, after one that compiles."""
    function()
    times = []
    for _ in range(repeats):
        start = time.process_time()
        function()
        times.append(time.process_time() - start)
    return min(times)


def print_plans(
    problem: Problem,
    costs: Costs,
    network: Network,
    cores: list[int],
    price: float | None,
) -> None:
    """Print the table."""
    disk = problem.num_rows * problem.bytes_per_row
    print(
        f"{problem.num_rows:.3g} rows of {parquet.NUM_INPUTS} inputs, M ="
        f" {problem.num_inducing}, {problem.evaluations} evaluations of value and"
        f" gradient\non disk                {disk / 1e9:10.1f} GB,"
        f" {problem.bytes_per_row} bytes a row\na core, rows a second "
        f" {1.0 / costs.row:10.0f}\nserial part            {1e3 * costs.serial:10.1f}"
        f" ms\nmessages               {message_bytes(problem.num_inducing) / 1e6:10.2f}"
        " MB from each process in an evaluation\n"
    )
    heads = f"{'cores':>6}{'s / eval':>10}{'on rows':>9}{'messages s':>12}{'hours':>9}"
    heads += f"{'core hours':>12}{'GB a core':>11}{'MB / s':>8}"
    print(heads + (f"{'price':>10}" if price is not None else ""))
    for number in cores:
        one = plan(problem, costs, network, number)
        line = f"{number:6}{one.evaluation_seconds:10.2f}{one.efficiency:9.0%}"
        line += f"{one.message_seconds:12.3f}{one.hours:9.2f}{one.core_hours:12.1f}"
        line += f"{one.bytes_on_core / 1e9:11.3f}{one.bytes_per_second / 1e6:8.1f}"
        print(line + (f"{price * one.core_hours:10.2f}" if price is not None else ""))


def main() -> None:
    args = arguments(
        __doc__,
        rows=1e9,
        inducing=500,
        evaluations=20,
        cores=[1, 16, 64, 256, 1024],
        bytes=36,
        gigabit=10.0,
        latency=5e-5,
        price=float,
        row_seconds=float,
        serial_seconds=float,
        measured_rows=131_072,
        repeats=3,
        quick={"inducing": 50, "measured_rows": 10_000},
    )
    costs = Costs(args.row_seconds, args.serial_seconds)
    if None in costs:
        measured = measure(args.inducing, args.measured_rows, args.repeats)
        costs = Costs(
            *(m if given is None else given for given, m in zip(costs, measured))
        )
    problem = Problem(int(args.rows), args.inducing, args.bytes, args.evaluations)
    network = Network(args.gigabit * 1e9 / 8.0, args.latency)
    print_plans(problem, costs, network, args.cores, args.price)
