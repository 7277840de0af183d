"""The outcome of a comparison as files in one folder."""

from pathlib import Path

import pandas as pd

from .figures import figures as figures_of
from .run import Comparison
from .saving import export_saved_model, save_model


def _metrics(comparison: Comparison) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "alpha": result.alpha,
            "best": result is comparison.best,
            "log_z": result.log_z,
            **result.scores,
            "seconds": result.seconds,
            "iterations": result.iterations,
            "converged": result.converged,
            "message": result.message,
        }
        for result in comparison.results
    )


def write_report(directory: Path, comparison: Comparison, *, figures: bool = True) -> list[Path]:
    """
    Write the scores of a comparison and, of the best alpha, predictions, figures and the model.

    The files are ``metrics.csv`` (a row per alpha), ``predictions.csv`` (a row per held-out row,
    numbered from 0 as in the data), the figures (:func:`~gpflow_pep.compare.figures.figures`),
    ``model`` for :func:`~gpflow_pep.compare.saving.load_model` and ``saved_model`` for
    :func:`tf.saved_model.load`. Where every fit failed there is no best: only ``metrics.csv``.

    :param directory: Made if it does not exist; files of these names are replaced.
    :param comparison: What :func:`~gpflow_pep.compare.run.compare` returned.
    :param figures: Whether to draw; needs matplotlib.
    :returns: The paths that were written.
    :raises ImportError: If figures are asked for without matplotlib.
    """
    directory.mkdir(parents=True, exist_ok=True)
    best = comparison.best
    written = [directory / "metrics.csv"]
    _metrics(comparison).to_csv(written[0], index=False)
    if best is None:
        return written

    written.append(directory / "predictions.csv")
    comparison.held_out_predictions(best.alpha).to_csv(written[-1], index=False)

    if figures:
        for name, draw in figures_of(comparison).items():
            written.append(directory / f"{name}.png")
            draw(comparison).savefig(written[-1])

    fitted = comparison.models[best.alpha]
    for name, save in (("model", save_model), ("saved_model", export_saved_model)):
        written.append(directory / name)
        save(written[-1], fitted)
    return written
