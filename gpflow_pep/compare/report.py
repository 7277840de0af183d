"""The results of a comparison as files in one folder."""

import io
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import pandas as pd

from .. import plotting
from ..engine.files import atomic_write, path_of, remove_written
from ..estimators import export_numpy, save_estimator
from ..estimators.exporting_numpy import why_no_scorer
from .figures import WHOLE, WIDTH, pictures
from .findings import latest_rows, summarise
from .fit_warnings import warnings_named
from .folder import (
    FOLDERS,
    MANIFEST,
    NAMES,
    UNFINISHED,
    begin_folder,
    check_folder,
    list_files,
)
from .losses import by_target
from .page import model_card, page
from .predicting import as_cells
from .run import Comparison
from .service import promised_scores
from .trials import Fit

#: Pixels for each inch of a picture: sharp on screens with small pixels and on paper.
DPI = 200


def write_scores(path: Path, fits: Sequence[Fit]) -> None:
    """Write the scores of fits, a row for each."""
    rows = [
        {**fit._asdict(), "warnings": " ".join(fit.warnings), **fit.scores}
        for fit in fits
    ]
    _write(path, pd.DataFrame(rows).drop(columns="scores").to_csv(index=False))


def write_report(
    directory: str | PathLike[str],
    comparison: Comparison,
    *,
    command: str = "",
    figures: bool | None = None,
) -> list[Path]:
    """Write the scores of a comparison, and the predictions and figures of the saved
    model, and the model.

    :doc:`/compare` describes the files. Each file is complete or absent. The model is
    written first and the page last, followed only by ``files.json``, which lists the
    files. If every model failed in some part, no model is saved, and only scores are
    written.

    :param directory: The folder; it is created if it does not exist, and files that an
        earlier call wrote are replaced.
    :param comparison: The result of :func:`~gpflow_pep.compare.run.compare`.
    :param command: The command that was called, for the page.
    :param figures: Whether to draw figures; None draws them if matplotlib is installed.
    :returns: The paths that were written.
    :raises ValueError: If the folder has other files of these names.
    :raises ImportError: If figures are requested without matplotlib.
    """
    if figures is None:
        figures = plotting.available()
    elif figures and not plotting.available():
        raise ImportError(plotting.INSTALL)
    directory = path_of(directory, "Choose another folder.")
    check_folder(directory)
    begin_folder(directory)
    written = _write_model(directory, comparison, command)

    def write(name: str, content: str | bytes) -> None:
        written.append(_write(directory / name, content))

    written.append(directory / "folds.csv")
    write_scores(written[-1], comparison.fits)
    write("metrics.csv", summarise(comparison).to_csv())
    drawn: dict[str, list[bytes]] = {}
    if comparison.best is not None:
        predictions = _by_row(comparison.held_out_of_best)
        write("predictions.csv", as_cells(predictions).to_csv(index_label="row"))
        if figures:
            with warnings_named(f"{comparison.best}, pictures"):
                drawn = _draw(comparison)
    for name, files in drawn.items():
        write(f"{name}.png", files[-1])
    write("report.html", page(comparison, drawn, command=command, folder=directory))
    (directory / UNFINISHED).unlink(missing_ok=True)
    list_files(directory, (path.name for path in written if path.name not in FOLDERS))
    return [written[-1], *written[:-1], directory / MANIFEST]


def _write_model(directory: Path, comparison: Comparison, command: str) -> list[Path]:
    """Write the model and its scorer, and remove the ones that an earlier call
    wrote.
    """
    model = comparison.model
    written = []
    promised: list[dict[str, Any]] = []
    if model is not None:
        targets = comparison.data.target_names
        times = comparison.settings.time_column
        promised = promised_scores(latest_rows(comparison), targets, times)
        card = model_card(comparison, command)
        written.append(directory / "model")
        save_estimator(written[-1], model, card=card, promised=promised)
    for name in NAMES:
        if name not in (MANIFEST, UNFINISHED):
            (directory / name).unlink(missing_ok=True)
    if model is not None and not why_no_scorer(model):
        written.append(directory / "scorer")
        export_numpy(written[-1], model, promised=promised)
    for name in FOLDERS:
        if directory / name not in written:
            remove_written(directory / name, FOLDERS[name])
    return written


def _by_row(held_out: pd.DataFrame) -> pd.DataFrame:
    """Put the predictions of several targets side by side, in one row for each held-out
    row.
    """
    if "target" not in held_out:
        return held_out
    rows = held_out.set_index("part", append=True)
    tables = by_target(rows, rows["target"].unique())
    named = [table.add_suffix(f"({name})") for name, table in tables.items()]
    wide = pd.concat(named, axis=1).reindex(rows.index.unique())
    return wide.reset_index("part")


def _write(path: Path, content: str | bytes) -> Path:
    with atomic_write(path) as new:
        new.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def _draw(comparison: Comparison) -> dict[str, list[bytes]]:
    """Draw pictures as PNG files: each in the width of a phone, and also in the width
    of a page if the picture takes the whole width.
    """
    drawn: dict[str, list[bytes]] = {}
    for name, picture in pictures(comparison).items():
        widths = (WIDTH, WHOLE) if picture.whole else (WIDTH,)
        drawn[name] = []
        for width in widths:
            buffer = io.BytesIO()
            picture.figure(width).savefig(buffer, format="png", dpi=DPI)
            drawn[name].append(buffer.getvalue())
    return drawn
