"""The command line.

Options, the table and the folder are checked first. Modules that need TensorFlow are
imported after that, so that help and error messages appear at once.
"""

import os
import shlex
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from functools import partial
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as ProgressBar

from .. import __version__
from ..engine.files import SCORER, atomic_write, only_writer, path_of
from ..engine.refusals import counted, refusal
from .process import (
    MAX_JOBS,
    MOST_ROWS,
    default_jobs,
    exit_on_signals,
    fits_in_processes,
    loading_tensorflow,
    make_streams_writable,
)
from .settings import DATES, NAMES, TASKS, Settings, flags_of

if TYPE_CHECKING:
    import pandas as pd

    from ..tables.cleaning import Cleaned
    from .run import Comparison
    from .schedule import Progress
    from .trials import Fit


def _from_scikit_learn(
    name: str, target: str, **options: bool
) -> "tuple[pd.DataFrame, str]":
    from sklearn import datasets

    bunch = getattr(datasets, f"load_{name}")(as_frame=True, **options)
    y = bunch.target
    if "target_names" in bunch:
        y = y.map(dict(enumerate(map(str, bunch.target_names))))
    return bunch.data.assign(**{target: y}), target


def _chirp() -> "tuple[pd.DataFrame, str]":
    """Make 500 rows with one input: waves that get shorter, until they are too short
    for a few inducing points.
    """
    import numpy as np
    import pandas as pd

    rng = np.random.default_rng(0)
    time = rng.uniform(0.0, 3.0, 500)
    signal = np.sin(2.0 * time**2.2) + 0.1 * rng.standard_normal(len(time))
    return pd.DataFrame({"time": time, "signal": signal}), "signal"


#: Each entry gives a table and the name of its target; scikit-learn's pages cite the
#: sources.
EXAMPLES: "dict[str, Callable[[], tuple[pd.DataFrame, str]]]" = {
    "diabetes": partial(_from_scikit_learn, "diabetes", "progression", scaled=False),
    "chirp": _chirp,
    "breast-cancer": partial(_from_scikit_learn, "breast_cancer", "diagnosis"),
    "wine": partial(_from_scikit_learn, "wine", "cultivar"),
}
DEFAULT_EXAMPLE = next(iter(EXAMPLES))
#: Standard input or output instead of a file.
STANDARD = Path("-")


class BadInput(click.ClickException):
    """Data or options that cannot be used."""

    exit_code = 2


@contextmanager
def _bad_input() -> Iterator[None]:
    """Turn errors of input and output, and missing packages, into one line and an exit
    code.
    """
    try:
        yield
    except ValueError as error:
        raise BadInput(" ".join(str(error).split())) from error
    except ModuleNotFoundError as error:
        needs = "This command needs TensorFlow, GPflow and scikit-learn"
        raise BadInput(_not_installed(error, needs)) from error
    except OSError as error:
        remedy = (
            "Free some space, or choose another --out. Files that were written before"
            " are complete."
        )
        raise click.ClickException(f"{error}. {remedy}") from error


def _not_installed(error: ModuleNotFoundError, needs: str) -> str:
    """Describe the package that is not installed, and how to install it."""
    package = str(error.name).partition(".")[0]
    return (
        f"{needs}, but the Python package {package} is not installed. Install"
        " gpflow_pep with its requirements, as its README describes."
    )


@contextmanager
def _warnings_as_lines(console: Console) -> Iterator[None]:
    """Print each warning as one line, not with the source line that gave it."""

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        text = " ".join(str(message).split())
        console.print(f"Warning: {text}", markup=False, highlight=False, soft_wrap=True)

    with warnings.catch_warnings():
        warnings.showwarning = show
        # joblib restarts a worker that waited for long.
        warnings.filterwarnings("ignore", "A worker stopped while some jobs")
        yield


@contextmanager
def _progress(console: Console) -> Iterator[Callable[["Progress"], None]]:
    """Show a bar on a terminal. Without a terminal, print a line at the end of each fit
    and before other steps.
    """
    if not console.is_terminal:

        def line(progress: "Progress") -> None:
            if (fit := progress.fit) is None and progress.is_fit:
                return
            steps = (
                f" {counted(fit.iterations, 'step')}," if fit and fit.iterations else ""
            )
            outcome = f":{steps} {fit.seconds:.1f} s" if fit else ""
            click.echo(
                f"{progress.number}/{progress.total} {progress.label}{outcome}",
                err=True,
            )

        yield line
        return
    clock = TimeElapsedColumn()
    label = TextColumn("{task.description}")
    with ProgressBar(
        BarColumn(), MofNCompleteColumn(), clock, label, console=console
    ) as bar:
        task = bar.add_task("")

        def show(progress: "Progress") -> None:
            done = progress.number - (progress.fit is None)
            bar.update(
                task, completed=done, total=progress.total, description=progress.label
            )

        yield show


def _read(
    data: Path | None,
    targets: tuple[str, ...],
    example: str | None,
    options: dict[str, Any],
    settings: Settings,
) -> "Cleaned":
    """Read and clean the table, and print each change."""
    from ..tables.cleaning import clean
    from ..tables.reading import read_table
    from .partition import clean_for

    reading, cleaning = (
        {
            name: options[name]
            for name in signature(function).parameters
            if name in options
        }
        for function in (read_table, clean)
    )
    target: str | tuple[str, ...] = targets if len(targets) > 1 else "".join(targets)
    if data is None:
        frame, target = EXAMPLES[example or DEFAULT_EXAMPLE]()
    else:
        frame = read_table(data, **reading)
        dialect = ", ".join(
            f"{name} {value!r}"
            for name, value in frame.attrs.items()
            if isinstance(value, str)
        )
        size = f"{counted(len(frame), 'row')} of {counted(frame.shape[1], 'column')}"
        if dialect:
            size += f" ({dialect})"
        click.echo(f"Read {size}.", err=True)
    cleaned = clean_for(frame, target, settings, _command(), **cleaning)
    notes = [f"Note: {note}" for note in cleaned.notes]
    for line in (*notes, *(f"Warning: {warning}" for warning in cleaned.warnings)):
        click.echo(line, err=True)
    click.echo(f"{cleaned.title}.", err=True)
    return cleaned


def _compare(cleaned: "Cleaned", settings: Settings, out: Path) -> "Comparison":
    """Train, and write results as they come in."""
    from .. import plotting
    from .folder import UNFINISHED, begin_folder
    from .report import write_report, write_scores
    from .run import compare_table

    errors = Console(stderr=True)
    fits: dict[tuple[str, int], Fit] = {}
    with _warnings_as_lines(errors), _bad_input():
        begin_folder(out)
        (out / UNFINISHED).unlink(missing_ok=True)  # from an earlier run
        if not plotting.available():
            warnings.warn(plotting.INSTALL, stacklevel=1)
        with _progress(errors) as show:

            def after(progress: "Progress") -> None:
                fit = progress.fit
                if fit is not None and fit.part:
                    # A point of the learning curve comes after the fit of the same
                    # model and part with all rows, and is left out.
                    fits.setdefault((fit.model, fit.part), fit)
                    try:
                        write_scores(out / UNFINISHED, list(fits.values()))
                    except OSError as error:
                        warnings.warn(
                            f"Scores cannot be written: {error}.", stacklevel=1
                        )
                show(progress)

            comparison = compare_table(cleaned, settings, after)
        # First, because a report cannot be written if the disk is full.
        _print_words(comparison)
        _announce("Drawing pictures and writing the report ...")
        written = write_report(out, comparison, command=_command())
    click.echo("\n  ".join(["Wrote", *map(str, written)]))
    return comparison


def _print_words(comparison: "Comparison") -> None:
    from .findings import findings
    from .terminal import drawn, word_tables

    # A file has room for all columns.
    console = Console(width=None if sys.stdout.isatty() else 1000)
    for table in word_tables(comparison):
        console.print(drawn(comparison, table, console.width))
    for kind, text in findings(comparison):
        if text in comparison.data.warnings:
            continue  # printed before anything was trained
        click.echo(
            f"Warning: {text}" if kind == "warning" else text, err=kind == "warning"
        )


def _command() -> str:
    return shlex.join(["gpflow-pep", *sys.argv[1:]])


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="gpflow-pep")
@click.pass_context
def main(ctx: click.Context) -> None:
    """Sparse Gaussian processes trained by Power Expectation Propagation."""
    make_streams_writable()
    ctx.with_resource(exit_on_signals())


def _names_option(flag: str, description: str, *name: str) -> Any:
    return click.option(flag, *name, type=NAMES, default=(), help=description)


def _reading_options(command: Any) -> Any:
    """Add the options for reading a table."""
    for flag, description in (
        (
            "--encoding",
            "Encoding of the text, such as latin-1. Set it if it is not recognised.",
        ),
        ("--decimal", "Decimal mark, '.' or ','. Set it if it is not recognised."),
        ("--thousands", "Separator of thousands. Set it if it is not recognised."),
        ("--sep", "Separator of the cells. Set it if it is not recognised."),
        ("--sheet", "Sheet of an Excel file.  [default: the first that is not empty]"),
    ):
        command = click.option(flag, help=description)(command)
    description = (
        "Whether the first line has the column names. Set it if that is not recognised."
        " Columns without names are called x0, x1, ..."
    )
    return click.option("--header/--no-header", default=None, help=description)(command)


def _settings_options(command: Any) -> Any:
    for setting in reversed(fields(Settings)):
        default = setting.default
        command = click.option(
            *flags_of(setting),
            setting.name,
            type=setting.metadata["range"].type,
            default=(
                ",".join(map("{:g}".format, default))
                if setting.name == "alphas"
                else default
            ),
            show_default=default is not None,
            help=setting.metadata["help"],
        )(command)
    return command


@main.command()
@click.argument("data", required=False, type=click.Path(path_type=Path))
@click.option(
    "--target",
    "targets",
    multiple=True,
    metavar="COLUMN",
    help=(
        "Column to predict: its name, or its position counted from 0. Required with"
        " DATA. Repeat it for several targets, which must be numbers and may have"
        " empty cells: the command then compares models of all targets together with"
        " separate models of each target."
    ),
)
@click.option(
    "--task",
    type=click.Choice(TASKS),
    help=(
        "Kind of target: regression for a number, classification for a class. By"
        " default the target is a class if it is text, or true and false, or has two"
        " values."
    ),
)
@click.option(
    "--example",
    type=click.Choice(list(EXAMPLES)),
    help=(
        f"Example data instead of DATA: {DEFAULT_EXAMPLE} (a number; the default),"
        " chirp (a number; generated), breast-cancer (2 classes) or wine (3 classes)."
        " All but chirp come from scikit-learn."
    ),
)
@_reading_options
@_names_option(
    "--drop",
    "Columns to leave out. Put a name that has a comma in quotes: '\"a,b\",c'.",
)
@click.option(
    "--drop-missing",
    is_flag=True,
    help=(
        "Leave out rows with missing values. By default missing values are filled in"
        " with the median, and an extra column marks them."
    ),
)
@_names_option(
    "--as-written",
    "Columns to read exactly as written: -999 is a number, Yes and yes are two words,"
    " and numbers with a unit or leading zeros are text.",
)
@click.option(
    "--dates",
    type=click.Choice(DATES),
    help="Order of day, month and year in dates. Set it if it is not recognised.",
)
@_names_option(
    "--missing", "Words and numbers that mean a missing value, such as --missing=-200."
)
@_settings_options
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    help=(
        "Number of processes that train at the same time. 1 trains in the process of"
        f" the command.  [default: the number of cores, at most {MAX_JOBS}; 1 above"
        f" {MOST_ROWS:,} rows]"
    ),
)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default="pep_results",
    show_default=True,
    help="Folder for the results; created if it does not exist.",
)
@click.pass_context
def compare(
    ctx: click.Context,
    data: Path | None,
    targets: tuple[str, ...],
    example: str | None,
    jobs: int | None,
    out: Path,
    **options: Any,
) -> None:
    """Find out how well a table can be predicted, and by which model.

    On the same rows of DATA the command trains PEPRegressor or PEPClassifier with
    default arguments (called "default"), single sparse GPs at each alpha, and
    baselines. It scores all of them on the same held-out rows. It writes a report
    (report.html), the scores, the predictions of held-out rows, and one model trained
    on all rows: the default, unless a single model is clearly better.

    DATA is a table: text with column names in its first line (plain or compressed),
    Parquet, or a sheet of an Excel file. Separator, decimal mark, encoding and titles
    above the names are recognised. Without DATA, the command uses example data.

    Exit codes: 0 for success, 1 if a fit failed, 2 for bad options or data, 130 after
    Ctrl-C.
    """
    _check_sources(data, targets, example, options["task"])
    settings = {setting.name: options.pop(setting.name) for setting in fields(Settings)}
    with _bad_input():
        checked = Settings(**settings)
        _announce("Reading the table ...")
        cleaned = _read(data, targets, example, options, checked)
        checked.check_data(cleaned.kind, len(cleaned.targets))
        _check_results(out, data)
    _, parts, _ = checked.parts()
    jobs = jobs or default_jobs(len(cleaned.X), parts * (1 + len(checked.alphas)))
    comparison = _compare_alone(cleaned, checked, out, jobs)
    has_failed = any(fit.failed for fit in comparison.fits)
    ctx.exit(int(has_failed or comparison.model is None))


def _check_sources(
    data: Path | None, targets: tuple[str, ...], example: str | None, task: str | None
) -> None:
    """Refuse a table without a target, and options that exclude each other."""
    if data is not None and not targets:
        raise click.UsageError(
            "No target was given. Name the column to predict: --target COLUMN."
        )
    if data is None and targets:
        raise click.UsageError(
            f"got --target {', '.join(targets)} without DATA, expected both: give the"
            " file that has the column, before the options."
        )
    if data is None and task is not None:
        raise click.UsageError(
            f"got --task {task} without DATA, expected no --task: the task of an"
            " --example is fixed."
        )
    if data is not None and example is not None:
        raise click.UsageError(
            f"got DATA {data} and --example {example}, expected one of them."
        )


def _check_results(out: Path, data: Path | None) -> None:
    """Refuse a folder that cannot be written, or that would overwrite the table."""
    from .folder import NAMES, check_folder

    check_folder(out)
    written = {(out / name).resolve() for name in NAMES}
    if data is not None and data.resolve() in written:
        got = f"{out}, which would overwrite DATA"
        raise refusal(
            "--out", got, "another folder", "Choose another, or move the file."
        )


def _announce(step: str) -> None:
    """Show on a terminal what takes seconds before other output."""
    if sys.stderr.isatty():
        Console(stderr=True).print(step, style="dim")


def _compare_alone(
    cleaned: "Cleaned", settings: Settings, out: Path, jobs: int
) -> "Comparison":
    """Train in ``jobs`` processes, while no other command writes the folder."""
    from .folder import UNFINISHED

    scores = out / UNFINISHED

    def ended() -> str:
        if not scores.exists():
            return ""
        return f"Scores of the finished fits are in {scores}."

    with exit_on_signals(ended), only_writer(out) as alone:
        if alone is False:
            got = "a folder that another process is writing"
            remedy = "Choose another folder, or wait."
            raise BadInput(str(refusal("--out", got, "one writer at a time", remedy)))
        _announce("Loading TensorFlow ...")
        with _bad_input(), fits_in_processes(jobs):
            return _compare(cleaned, settings, out)


@main.command()
@click.argument("model", type=click.Path(path_type=Path))
@click.argument("data", type=click.Path(path_type=Path))
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    required=True,
    help="CSV file to write, or - for standard output.",
)
@_names_option("--keep", "Columns of DATA to copy into --out.", "kept_columns")
@click.option(
    "--with-version",
    is_flag=True,
    help=(
        "Begin --out with a line that has the version of the model, such as"
        ' "# model 0.4.0+5f1d8c07a2be": the version of this package that wrote the'
        " model, and the beginning of a hash of its content."
    ),
)
@_reading_options
def predict(
    model: Path,
    data: Path,
    out: Path,
    kept_columns: tuple[str, ...],
    with_version: bool,
    **reading: Any,
) -> None:
    """Predict the rows of a table with a model written by compare.

    MODEL is the folder of a model, such as pep_results/model or pep_results/scorer. The
    scorer starts in less than a second because it does not need TensorFlow. DATA is a
    table with the columns that the model was trained on, in any order; other columns
    are ignored.

    Each row of --out starts with its row number in DATA (from 0). For a numeric target
    it has the mean, standard deviation, median and central 90% interval. For a class it
    has the most probable class and the probability of every class. With several
    targets, each has these columns. If one model covers all targets, it predicts each
    of them from the inputs and from the other targets in the same row of DATA. The last
    column, unusual, lists the cells of the row that are unlike all cells in training,
    and marks rows that are far from all training rows.
    """
    from ..scoring.stored import version_of
    from ..tables.reading import read_table

    with _bad_input():
        frame = read_table(data, **reading)
        _check_output(out, data)
        version = version_of(model)
    from ..tables.encodings import check_names, check_new_names
    from .predicting import as_cells, predict_table

    with _warnings_as_lines(Console(stderr=True)), _bad_input():
        loaded, frame = _load_for(model, data, frame, reading)
        check_names("--keep", kept_columns, frame.columns, "columns of DATA")
        predictions = predict_table(loaded, frame)
        check_new_names("--keep", kept_columns, ["row", *predictions.columns])
        for place, name in enumerate(kept_columns):
            predictions.insert(place, name, frame[name].to_numpy())
    text = as_cells(predictions).to_csv(index_label="row")
    if with_version:
        text = f"# model {version}\n{text}"
    if out == STANDARD:
        click.echo(text, nl=False)
        return
    with _bad_input(), atomic_write(out) as new:
        new.write_text(text, encoding="utf-8")
    click.echo(f"Wrote {counted(len(predictions), 'prediction')} to {out}")


@main.command()
@click.argument("model", type=click.Path(path_type=Path))
@click.argument("data", type=click.Path(path_type=Path))
@_reading_options
def score(model: Path, data: Path, **reading: Any) -> None:
    """Check on new rows whether a model is still as good as promised. The promise is
    the report that compare wrote with the model.

    MODEL is the folder of a model that compare wrote, such as pep_results/scorer, which
    does not need TensorFlow. DATA is a table with the columns that the model was
    trained on.

    If DATA also has the target, the command prints the scores on its rows beside the
    report's scores on held-out rows, each with its standard error over rows, and states
    whether they differ by more than noise. If compare tested the model on later rows
    (--time-column), the promised scores come from the latest window.

    With or without the target, the command lists the columns that moved: columns whose
    mean is at least 0.2 standard deviations away from the mean in training, and columns
    with unusual cells, such as new words. The column of --time-column is not among
    them.
    """
    from ..scoring.stored import description_of, version_of
    from ..tables.reading import read_table

    with _bad_input():
        promised = description_of(model).get("promised", [])
        version = version_of(model)
        frame = read_table(data, **reading)
    from .predicting import prepared

    with _warnings_as_lines(Console(stderr=True)), _bad_input():
        loaded, frame = _load_for(model, data, frame, reading)
        ready = prepared(loaded, frame)
        click.echo(f"Model {version}, {counted(len(frame), 'row')} of {data}.")
        _print_scores(loaded, frame, promised)
        times = promised[0].get("time_column") if promised else None
        _print_moved(ready, len(frame), times)


def _print_scores(model: Any, frame: "pd.DataFrame", promised: list[Any]) -> None:
    """Print the scores of each target beside the promised scores, and a verdict."""
    from .service import Score, scored_rows, scores_of_rows, sentence, verdicts

    if not promised:
        click.echo(
            "The model was saved without the scores of a report, so there is nothing"
            " to compare."
        )
        return
    names = [entry["target"] for entry in promised]
    tables = scored_rows(model, frame, names)
    if not tables:
        columns = " or ".join(repr(name) for name in names)
        click.echo(f"No scores: DATA has no values of the target {columns}.")
        return
    kind = "classes" if hasattr(model, "classes_") else "numbers"
    for name, entry in zip(names, promised, strict=True):
        if name not in tables:
            continue
        expected = {key: Score(*values) for key, values in entry["scores"].items()}
        compared = verdicts(kind, scores_of_rows(tables[name]), expected)
        cells = [
            [v.metric.heading, v.in_words(v.found), v.in_words(v.promised), v.word]
            for v in compared
        ]
        rows = f"'{name}' in {counted(len(tables[name]), 'row')}"
        _print_table(f"Scores of {rows}", ["", "here", "promised", ""], cells)
        click.echo(sentence(compared))


def _print_moved(ready: Any, num_rows: int, time_column: str | None) -> None:
    """Print the columns that moved, and how many rows are unlike the training rows.

    :param time_column: The column of times of a forecast.
    """
    from .service import in_words, moved_columns

    moved = moved_columns(ready, time_column)
    rows = {row for column in moved for row in column.unusual}
    far = int(ready.predictor.far_rows(ready.inputs).sum())
    if moved:
        headings = ["column", "mean in training", "mean here", "shift (sd)"]
        cells = [in_words(column, num_rows) for column in moved]
        _print_table("Columns that moved", [*headings, "unusual", "cells"], cells)
    text = f"{len(moved)} of {counted(len(ready.cells), 'column')} moved"
    if time_column in ready.cells:
        text += f", '{time_column}' not counted, in which a forecast always moves"
    click.echo(
        f"{text}."
        f" {len(rows)} of {counted(num_rows, 'row')} have unusual cells,"
        f" {far} are far from all training rows."
    )


def _print_table(title: str, headings: list[str], rows: list[list[str]]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    for place, heading in enumerate(headings):
        side: Any = "right" if 0 < place < len(headings) - 1 else "left"
        table.add_column(Text(heading), justify=side, no_wrap=True)
    for row in rows:
        table.add_row(*map(Text, row))
    click.echo(title)
    Console(width=None if sys.stdout.isatty() else 1000).print(table)


def _load_for(
    model: Path, data: Path, frame: "pd.DataFrame", reading: dict[str, Any]
) -> "tuple[Any, pd.DataFrame]":
    """Load a model, and read a table as its training table was read; print warnings
    about the table.
    """
    from .predicting import read_as_in_training

    loaded = _load(model)
    frame = read_as_in_training(loaded, data, frame, reading)
    for warning in frame.attrs.get("warnings", ()):
        click.echo(f"Warning: {warning}", err=True)
    return loaded, frame


def _check_output(out: Path, data: Path) -> None:
    """Refuse a file that cannot be written, or that the rows are read from."""
    if out == STANDARD:
        return
    path_of(out, "Choose another --out.")
    if out.exists() and data.exists() and out.samefile(data):
        remedy = "Choose another name: predictions do not replace the data."
        raise refusal("--out", f"{out}, which is DATA", "another file", remedy)
    place = out if out.exists() else out.parent
    if not place.exists() or not os.access(place, os.W_OK):
        expected = "a file that can be written"
        raise refusal(
            "--out", out, expected, "Make its folder, or choose another --out."
        )


def _load(folder: Path) -> Any:
    """Load a scorer, or an estimator and TensorFlow with it."""
    if (folder / SCORER).is_file():
        from ..scoring import load_scorer

        return load_scorer(folder)
    try:
        with loading_tensorflow():
            from ..estimators import load_estimator
            from ..estimators.single.when_used import load_tensorflow

            load_tensorflow()
    except ModuleNotFoundError as error:
        needs = f"{folder} needs TensorFlow and GPflow"
        text = f"{_not_installed(error, needs)}{_scorer_beside(folder)}"
        raise BadInput(text) from error
    return load_estimator(folder)


def _scorer_beside(folder: Path) -> str:
    """Write the same command for the scorer beside a model, which does not need
    TensorFlow; empty if there is no scorer.
    """
    scorer = folder.parent / "scorer"
    if not (scorer / SCORER).is_file():
        return ""
    words = [str(scorer) if Path(word) == folder else word for word in sys.argv[1:]]
    command = shlex.join(["gpflow-pep", *words])
    return f" Or use the folder {scorer}, which does not need them: {command}"


if __name__ == "__main__":
    main()
