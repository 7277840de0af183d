"""What the examples share: command lines, timing by turns, processes and figures."""

import argparse
import multiprocessing
import resource
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

# Else where it is needed: command lines and processes begin sooner without.
if TYPE_CHECKING:
    import gpflow
    import tensorflow as tf


def arguments(
    about: str | None,
    *,
    name: str | Iterable[str] | None = None,
    names: Iterable[str] | None = None,
    quick: Mapping[str, Any] = MappingProxyType({}),
    given: Sequence[str] | None = None,
    **options: Any,
) -> argparse.Namespace:
    """
    Parse the command line of an example.

    :param about: What ``--help`` shows: the docstring of the example.
    :param name: The default of one positional argument, or its choices with the default
        first.
    :param names: The default of any number of positional arguments.
    :param quick: What ``--quick`` puts in the place of the defaults.
    :param given: The arguments, by default those of the command line.
    :param options: The default of each option. A type stands for an option without a
        default, False for a flag, a tuple for a choice of which the first is the
        default, and a list for several values; a dictionary is given to ``argparse`` as
        it is.
    """
    parser = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    if name is not None:
        choices = None if isinstance(name, str) else list(name)
        default = name if choices is None else choices[0]
        parser.add_argument("name", nargs="?", default=default, choices=choices)
    if names is not None:
        parser.add_argument("names", nargs="*", default=list(names))
    parser.add_argument("--quick", action="store_true", help="a small run, in seconds")
    for key, value in options.items():
        flag = "--" + key.replace("_", "-")
        if value is False:
            parser.add_argument(flag, action="store_true")
        elif isinstance(value, dict):
            parser.add_argument(flag, **value)
        elif isinstance(value, type):
            parser.add_argument(flag, type=value)
        elif isinstance(value, tuple):
            parser.add_argument(
                flag, choices=value, default=value[0], help="default: %(default)s"
            )
        elif isinstance(value, list):
            parser.add_argument(
                flag,
                nargs="+",
                type=type(value[0]),
                default=value,
                help="default: %(default)s",
            )
        else:
            parser.add_argument(
                flag, type=type(value), default=value, help="default: %(default)s"
            )
    args = parser.parse_args(given)
    if args.quick:
        parser.set_defaults(**quick)
        args = parser.parse_args(given)
    return args


def squared_exponential(num_inputs: int) -> "gpflow.kernels.SquaredExponential":
    """A lengthscale for each input: the distance of two standardised rows, about."""
    import gpflow

    return gpflow.kernels.SquaredExponential(
        lengthscales=np.full(num_inputs, num_inputs**0.5)
    )


def value_and_gradient(
    loss: "Callable[[], tf.Tensor]", variables: "Sequence[tf.Variable]"
) -> "Callable[[], tuple[tf.Tensor, Any]]":
    """Compile what an optimiser evaluates at each step."""
    import tensorflow as tf

    def evaluate() -> tuple[tf.Tensor, Any]:
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(variables)
            value = loss()
        return value, tape.gradient(value, variables)

    return tf.function(evaluate, autograph=False)


def seconds(
    function: Callable[[], Any], clock: Callable[[], float] = time.perf_counter
) -> float:
    """Time of one call, until its result is there."""
    import tensorflow as tf

    start = clock()
    tf.nest.map_structure(np.asarray, function())
    return clock() - start


def seconds_by_turns(
    functions: Mapping[str, Callable[[], Any]],
    repeats: int,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
    """Call all functions in turns, so that a change of the machine's speed meets all of
    them.
    """
    times: dict[str, list[float]] = {name: [] for name in functions}
    for turn in range(repeats):
        names = list(functions) if turn % 2 == 0 else reversed(functions)
        for name in names:
            times[name].append(seconds(functions[name], clock))
    return times


def in_own_process(function: Callable[..., Any], *arguments: Any) -> Any:
    """What the function returns in a new interpreter, which has compiled nothing."""
    with ProcessPoolExecutor(
        1, mp_context=multiprocessing.get_context("spawn")
    ) as pool:
        return pool.submit(function, *arguments).result()


def peak_gibibytes() -> float:
    """The most memory that this process has had so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def save_figure(figure: Any, path: Path, name: str, **options: Any) -> None:
    """Write a figure to a file, or as NAME.png to a directory."""
    path = path if path.suffix else path / f"{name}.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, **options)
    print(f"wrote {path}")
