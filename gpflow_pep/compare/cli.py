"""The command line.

What needs TensorFlow is imported when a command runs, so that help is immediate.
"""

import os
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click
from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as ProgressBar
from rich.table import Table

from .. import __version__

if TYPE_CHECKING:
    from .datasets import Dataset
    from .run import Comparison, Progress

LOG_LEVEL = "TF_CPP_MIN_LOG_LEVEL"
INITS = ("kmeans", "random", "variance")
TASKS = ("regression", "classification")
EXAMPLES = ("diabetes", "breast-cancer", "wine")


class BadInput(click.ClickException):
    """Data or options that cannot be used."""

    exit_code = 2


def _alphas(text: str) -> tuple[float, ...]:
    try:
        return tuple(map(float, text.split(",")))
    except ValueError as error:
        message = f"got '{text}', expected numbers separated by commas, as 0,0.5,1"
        raise click.BadParameter(message) from error


@contextmanager
def _quiet_tensorflow() -> Iterator[None]:
    """
    Keep TensorFlow's messages about the machine off the terminal.

    Unless the user has set their level. Some are written before it reads that level, so its import
    is silenced as a whole.
    """
    if LOG_LEVEL in os.environ:
        yield
        return
    os.environ[LOG_LEVEL] = "3"
    sys.stderr.flush()
    terminal = os.dup(2)
    with tempfile.TemporaryFile() as messages:
        os.dup2(messages.fileno(), 2)
        try:
            yield
        except BaseException:
            messages.seek(0)
            os.write(terminal, messages.read())
            raise
        finally:
            os.dup2(terminal, 2)
            os.close(terminal)


@contextmanager
def _warnings_as_lines(console: Console) -> Iterator[None]:
    """Print each warning as one line, not with the source line that gave it."""

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        text = " ".join(str(message).split())
        console.print(f"Warning: {text}", markup=False, highlight=False, soft_wrap=True)

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield


def _end_of_fit(progress: "Progress") -> None:
    """Write a line at the end of each fit."""
    if progress.result is not None:
        done = f"{progress.iteration} iterations, {progress.result.seconds:.1f} s"
        click.echo(f"alpha {progress.alpha:g}: {done}", err=True)


@contextmanager
def _progress(console: Console, max_iterations: int) -> Iterator[Callable[["Progress"], None]]:
    """Show a bar per alpha on a terminal; elsewhere a line at the end of each fit."""
    if not console.is_terminal:
        yield _end_of_fit
        return
    count = TextColumn("{task.completed} iterations")
    columns = (TextColumn("alpha {task.description}"), BarColumn(), count, TimeElapsedColumn())
    with ProgressBar(*columns, console=console) as bar:
        tasks: dict[float, Any] = {}

        def show(progress: "Progress") -> None:
            if progress.alpha not in tasks:
                tasks[progress.alpha] = bar.add_task(f"{progress.alpha:g}", total=max_iterations)
            total = progress.iteration if progress.result else max_iterations
            bar.update(tasks[progress.alpha], completed=progress.iteration, total=total)

        yield show


def _make_folder(out: Path) -> None:
    """Make it now, so that a folder that cannot be used does not cost minutes of training."""
    from .saving import check_replaceable

    try:
        out.mkdir(parents=True, exist_ok=True)
        check_replaceable(out / "model")
    except OSError as error:
        raise BadInput(f"cannot make the folder {out} ({error}): choose another --out.") from error


def _table(comparison: "Comparison") -> Table:
    dataset, split, best = comparison.dataset, comparison.split, comparison.best
    metrics, decisive = comparison.metrics, comparison.decisive
    kind = f" ({len(dataset.classes)} classes)" if dataset.classes else ""
    low = ", ".join(metric.heading for metric in metrics if metric.nominal is None)
    table = Table(
        title=f"Target '{dataset.target_name}'{kind}, {len(dataset.feature_names)} inputs,"
        f" {len(split.train)} training and {len(split.test)} held-out rows",
        caption=f"Scores of the held-out rows; {low}: lower is better."
        f" * best (lowest {decisive.heading})",
    )
    headings = (metric.heading for metric in metrics)
    for heading in ("", "alpha", "log Z", *headings, "seconds", "iterations", "converged"):
        table.add_column(heading, justify="right", no_wrap=True)
    for result in comparison.results:
        table.add_row(
            "*" if result is best else "",
            f"{result.alpha:g}",
            f"{result.log_z:.2f}",
            *(format(result.scores[metric.name], metric.form) for metric in metrics),
            f"{result.seconds:.1f}",
            str(result.iterations),
            "failed" if result.failed else "yes" if result.converged else "no",
            style="bold green" if result is best else "red" if result.failed else None,
        )
    return table


def _complain(comparison: "Comparison") -> None:
    """Say on stderr which fits failed or stopped early, and why."""
    for result in comparison.results:
        fit = f"the fit at alpha {result.alpha:g}"
        if result.failed:
            click.echo(f"Error: {fit} failed: {result.message}", err=True)
        elif not result.converged:
            stopped = f"in {result.iterations} iterations ({result.message})"
            click.echo(f"Warning: {fit} did not converge {stopped}.", err=True)


def _load(
    data: Path | None, target: str | None, task: str | None, example: str | None
) -> "Dataset":
    from . import datasets

    if data is None or target is None:
        return datasets.load_example(example or EXAMPLES[0])
    dataset = datasets.read_csv(data, target, cast(Any, task))
    if task is None:
        guess, other = ("classification", "regression")[:: 1 if dataset.classes else -1]
        found = f" of {len(dataset.classes)} classes" if dataset.classes else ""
        click.echo(f"Task: {guess}{found}, to judge by '{target}'; or --task {other}.", err=True)
    return dataset


def _run(source: Callable[[], "Dataset"], out: Path, options: dict[str, Any]) -> "Comparison":
    errors = Console(stderr=True)
    if errors.is_terminal:
        errors.print("Loading TensorFlow ...", style="dim")
    with _quiet_tensorflow():
        from .. import plotting
        from ..models import ConvergenceWarning
        from .report import write_report
        from .run import compare
    with _warnings_as_lines(errors):
        warnings.simplefilter("ignore", ConvergenceWarning)  # the table says it
        try:
            dataset = source()
            _make_folder(out)
            if not plotting.available():
                warnings.warn(plotting.INSTALL, stacklevel=1)
            with _progress(errors, options["max_iterations"]) as callback:
                comparison = compare(dataset, callback=callback, **options)
        except ValueError as error:
            raise BadInput(" ".join(str(error).split())) from error
        written = write_report(out, comparison, figures=plotting.available())
    output = Console(width=None if sys.stdout.isatty() else 100)
    output.print(_table(comparison))
    click.echo("\n  ".join(["Wrote", *map(str, written)]))
    return comparison


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="gpflow-pep")
def main() -> None:
    """Sparse Gaussian processes trained by Power Expectation Propagation."""


@main.command()
@click.argument("data", required=False, type=click.Path(path_type=Path))
@click.option("--target", metavar="COLUMN", help="Column to predict; required with DATA.")
@click.option(
    "--task", type=click.Choice(TASKS),
    help="Whether the target is a number or a class. By default it is a class if it is text or has"
    " at most 10 different values, all whole.",
)  # fmt: skip
@click.option(
    "--example", type=click.Choice(EXAMPLES),
    help=f"Data of scikit-learn, in place of DATA: {EXAMPLES[0]} (a number, the default),"
    " breast-cancer (2 classes) or wine (3 classes).",
)  # fmt: skip
@click.option(
    "--alphas", type=_alphas, metavar="A,B,...", default="0,0.5,1", show_default=True,
    help="Powers to try, in [0, 1]. 0 is the variational approximation, 1 is EP / FITC.",
)  # fmt: skip
@click.option(
    "--inducing", "num_inducing", type=click.IntRange(min=1), default=50, show_default=True,
    help="Number of inducing points.",
)  # fmt: skip
@click.option(
    "--init", type=click.Choice(INITS), default=INITS[0], show_default=True,
    help="Where these start: centres of k-means clusters, random rows, or the rows of largest"
    " residual variance.",
)  # fmt: skip
@click.option(
    "--neighbours", type=click.IntRange(min=0), default=0, show_default=True,
    help="Number of near rows that the conditional of each row knows too, in regression.",
)  # fmt: skip
@click.option(
    "--out", type=click.Path(file_okay=False, path_type=Path), default="pep_results",
    show_default=True, help="Folder to write; made if it does not exist.",
)  # fmt: skip
@click.option(
    "--seed", type=click.IntRange(0, 2**32 - 1), default=0, show_default=True,
    help="Seed of the split and of the initial inducing points.",
)  # fmt: skip
@click.option(
    "--test-fraction", type=click.FloatRange(0, 1, min_open=True, max_open=True), default=0.2,
    show_default=True, help="Fraction of the rows to hold out.",
)  # fmt: skip
@click.option(
    "--max-iterations", type=click.IntRange(min=1), default=500, show_default=True,
    help="Most steps of L-BFGS-B per alpha.",
)  # fmt: skip
@click.pass_context
def compare(
    ctx: click.Context,
    data: Path | None,
    target: str | None,
    task: str | None,
    example: str | None,
    out: Path,
    **options: Any,
) -> None:
    """
    Which sparse approximation is right for my data?

    Trains sparse GP regression or classification at each alpha on the same rows of DATA, scores
    each on the same held-out rows, and writes the scores, and the predictions, the figures and the
    trained model of the best alpha (lowest mean negative log density of the held-out rows).

    DATA is a CSV file, plain or compressed: a line of column names, then numbers only, but for the
    names of classes. Without it, data of scikit-learn are used.

    Exit code: 0; 1 if a fit failed; 2 for bad options or data; 130 after Ctrl-C.
    """
    if (data is None) != (target is None):
        raise click.UsageError(
            f"got DATA {data} and --target {target}, expected both or neither: name the column of"
            " the CSV file to predict."
        )
    if data is None and task is not None:
        raise click.UsageError(
            f"got --task {task} without DATA, expected none: --example says what the task is."
        )
    if data is not None and example is not None:
        raise click.UsageError(f"got DATA {data} and --example {example}, expected one of them.")
    try:
        comparison = _run(lambda: _load(data, target, task, example), out, options)
    except KeyboardInterrupt:
        click.echo("Interrupted; nothing more is written.", err=True)
        ctx.exit(130)
    _complain(comparison)
    ctx.exit(int(any(result.failed for result in comparison.results)))
