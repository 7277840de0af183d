"""Export of fitted estimators for predictions without TensorFlow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any

from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import check_is_fitted

from ..engine.files import SCORER
from ..engine.refusals import refusal
from ..scoring.likelihoods import CLASSES
from ..scoring.scorer import Scorer
from ..scoring.stored import Described, SavedFiles, write_files
from ..tables import TableEncoder
from .classifier import PEPClassifier
from .describing_estimators import describe_mixing, describe_scaler
from .regressor import PEPRegressor
from .single.model import SingleModel
from .single.when_used import describing, numpy_parts


def export_numpy(
    folder: str | PathLike[str],
    estimator: Any,
    *,
    promised: Sequence[Mapping[str, Any]] = (),
) -> None:
    """Export a fitted estimator as a small folder for predictions with NumPy and
    SciPy::

        from gpflow_pep.scoring import load_scorer

        scorer = load_scorer("pep_results/scorer")
        mean, sd = scorer.predict(X, return_std=True)

    The folder has q(u) and the inducing points, which are the inputs of all rows if
    inference is exact. It also has training rows if predictions use near rows
    (``near_rows_`` is not 0). ``scorer.json`` has a sentence on the number of training
    rows in it. Predictions equal the predictions of the estimator; see
    :class:`~gpflow_pep.scoring.Scorer`.

    :param folder: The folder, as in
        :func:`~gpflow_pep.estimators.saving.save_estimator`.
    :param estimator: A fitted estimator, or a pipeline that ends with one. The other
        steps may be a :class:`~gpflow_pep.tables.TableEncoder` at the beginning,
        ``StandardScaler`` of scikit-learn, or "passthrough".
    :param promised: As in :func:`~gpflow_pep.estimators.saving.save_estimator`.
    :raises ValueError: If the estimator is of another kind, or if a part cannot be
        predicted with NumPy: kernels and likelihoods other than the usual ones of
        GPflow, inducing variables that are not points, near rows of labels at a power
        below 1, float32. Also if the folder has other files.
    """
    saved = _scorer_files(estimator)
    if promised:
        saved.content["promised"] = list(promised)
    Scorer(saved)
    write_files(folder, saved, SCORER)


def why_no_scorer(estimator: Any) -> str:
    """
    Return the reason why :func:`export_numpy` refuses a fitted estimator, or why the
    scorer would lack some of its predictions; empty if there is no such reason.
    """
    try:
        noise = Scorer(_scorer_files(estimator)).noise
    except ValueError as error:
        return str(error)
    lacks = (
        f"a scorer has no quantiles under the likelihood {noise}. Load the folder"
        " model."
    )
    return "" if noise in ("Gaussian", *CLASSES) else lacks


def _scorer_files(estimator: Any) -> SavedFiles:
    """Describe a fitted estimator for :class:`~gpflow_pep.scoring.Scorer`; refuse
    estimators that it cannot predict with.
    """
    steps = _steps_of(estimator)
    encoder = steps[0]
    last = steps[-1]
    scalers = [step for step in steps if type(step) is StandardScaler]
    names = getattr(encoder, "feature_names_in_", None)
    describe = describing.Describer(values=True)
    mixture = last.mixture_
    columns = conventions = None
    if isinstance(encoder, TableEncoder):
        columns = _columns(encoder)
        conventions = encoder.conventions and encoder.conventions._asdict()
    content = {
        "components": [_component(single, describe) for single in mixture.components],
        "mixed": describe_mixing(mixture, describe),
        "scalers": [describe_scaler(scaler, describe) for scaler in scalers],
        "columns": columns,
        "conventions": conventions,
        "num_columns": encoder.n_features_in_,
        "names": None if names is None else [str(name) for name in names],
        "labels": describe(getattr(last, "classes_", None), "classes_"),
        "training_rows": last.rows_held_.in_scorer(),
    }
    return SavedFiles(content, describe.arrays)


def _steps_of(estimator: Any) -> list[Any]:
    """Return the encoder of a table, the scalers and the fitted estimator of a
    pipeline, or an estimator alone; refuse other steps.
    """
    steps = [estimator]
    if isinstance(estimator, Pipeline):
        steps = [step for _, step in estimator.steps]
        steps = [step for step in steps if step not in (None, "passthrough")]
    *before, last = steps or [None]
    if type(last) not in (PEPRegressor, PEPClassifier):
        expected = "a PEPRegressor or PEPClassifier, or a pipeline that ends with one"
        raise refusal(
            "estimator", f"a {type(last).__name__}", expected, "Export one of these."
        )
    check_is_fitted(last)
    if getattr(last, "n_outputs_", 1) > 1:
        got = "a PEPRegressor of several columns of y"
        remedy = (
            "Export an estimator of each column (SeparateRegressors), or load the"
            " estimator with load_estimator."
        )
        raise refusal("estimator", got, "a regressor of one column", remedy)
    for place, step in enumerate(before):
        is_encoder = place == 0 and type(step) is TableEncoder
        if not is_encoder and type(step) is not StandardScaler:
            expected = (
                "a pipeline with no other steps before the estimator than a"
                " TableEncoder, which comes first, and StandardScaler"
            )
            remedy = (
                "Apply this step yourself before predicting, and export the estimator."
            )
            raise refusal(
                "estimator", f"the step {type(step).__name__}", expected, remedy
            )
    return [*before, last]


def _component(single: SingleModel, describe: describing.Describer) -> Described:
    """Describe one of the mixed models: its inputs, its posterior, and its targets."""
    return {
        "inputs": describe_scaler(single.scaler, describe),
        "ensemble": numpy_parts.describe_posterior(single.posterior, describe),
        "target": describe(single.units, "target"),
        "columns": single.columns,
    }


def _columns(encoder: TableEncoder) -> list[Described]:
    check_is_fitted(encoder)
    return [
        {
            "name": name,
            "format": form._asdict(),
            "encoding": encoder.encodings_[name]._asdict(),
        }
        for name, form in encoder.formats.items()
    ]
