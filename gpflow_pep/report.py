"""
The outcome of a comparison as files in one folder.
"""

from pathlib import Path

import pandas as pd

from . import plotting
from .compare import Comparison
from .saving import export_saved_model, save_model


def _metrics(comparison: Comparison) -> pd.DataFrame:
    rows = []
    for result in comparison.results:
        fields = result._asdict()
        first = {"alpha": fields.pop("alpha"), "best": result is comparison.best}
        first["log_z"], scores = fields.pop("log_z"), fields.pop("scores")
        rows.append({**first, **scores, **fields})
    return pd.DataFrame(rows)


def write_report(directory: Path, comparison: Comparison, *, figures: bool = True) -> list[Path]:
    """
    Write ``metrics.csv`` (a row per alpha) and, for the best alpha, ``predictions.csv`` (a row per
    held-out row, numbered from 0 as in the data), the figures
    (:func:`gpflow_pep.plotting.figures`), and the trained model:
    ``model`` for :func:`gpflow_pep.saving.load_model` and ``saved_model`` for
    :func:`tf.saved_model.load`. Where every fit failed there is no best: only ``metrics.csv``.

    :param directory: made if it does not exist; files of these names are replaced.
    :param comparison: what :func:`gpflow_pep.compare.compare` returned.
    :param figures: whether to draw; needs matplotlib.
    :returns: the paths that were written.
    :raises ImportError: if figures are asked for without matplotlib.
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
        for name, draw in plotting.figures(comparison).items():
            written.append(directory / f"{name}.png")
            draw(comparison).savefig(written[-1])

    fitted = comparison.models[best.alpha]
    for name, save in (("model", save_model), ("saved_model", export_saved_model)):
        written.append(directory / name)
        save(written[-1], fitted)
    return written
