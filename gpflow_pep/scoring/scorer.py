"""Predictions of an exported estimator."""

from collections.abc import Mapping
from os import PathLike
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..distributions import Predictive, Recalibration, Units, YeoJohnson
from ..distributions.arguments import as_coverage, as_probabilities
from ..distributions.cutting import cuts_reported
from ..distributions.predictive import require_finite
from ..distributions.units import Array
from ..engine.files import SCORER
from ..engine.refusals import counted, refusal
from . import ensemble
from .arguments import as_rows
from .stored import Reader, SavedFiles, read_files, remedy_of

if TYPE_CHECKING:
    from ..tables.encodings import Encoding
    from ..tables.formats import Format


def load_scorer(folder: str | PathLike[str]) -> "Scorer":
    """Load what :func:`~gpflow_pep.estimators.export_numpy` wrote::

        scorer = load_scorer("pep_results/scorer")
        mean, sd = scorer.predict(X, return_std=True)

    It needs NumPy and SciPy, and pandas where the inputs are a table. Nothing in the
    files is run.

    :param folder: The folder that was written.
    :raises ValueError: If a file is missing, damaged or changed, or of a format that is
        not known.
    """
    saved = read_files(folder, SCORER)
    try:
        return Scorer(saved)
    # Whatever the error is: files that export_numpy wrote raise none.
    except Exception as error:
        got = f"files that do not describe a scorer ({type(error).__name__}: {error})"
        raise refusal(
            str(folder), got, "files that export_numpy writes", remedy_of(SCORER)
        ) from error


class Scorer:
    """A fitted estimator that predicts with NumPy alone; :func:`load_scorer` makes it.

    Inputs X are arrays [N, D] or tables, in the units that the estimator was trained
    on; others are refused by a ``ValueError``. Columns of tables are found by name. If
    the estimator was a pipeline that begins with a
    :class:`~gpflow_pep.tables.TableEncoder`, they are tables like the one that it was
    trained on.

    ``classes_`` are the labels, of a classifier; ``feature_names_in_`` the names of the
    columns, where they are known; ``n_features_in_`` is their number; ``noise`` is the
    likelihood's name; ``formats`` are how the columns of a table are read, or None.

    :param saved: What :func:`~gpflow_pep.estimators.export_numpy` writes.
    :raises ValueError: If a kernel or likelihood has no form in NumPy.
    """

    n_features_in_: int
    feature_names_in_: npt.NDArray[np.object_]
    classes_: npt.NDArray[Any]

    def __init__(self, saved: SavedFiles) -> None:
        parts = Reader(saved.arrays)(saved.content)
        components = parts["components"]
        self._ensembles = [
            ensemble.ensemble_of(part["ensemble"]) for part in components
        ]
        self._transforms = [_transform_of(part["inputs"]) for part in components]
        self._stack = parts["stack"]
        self._weights = np.ones(1) if self._stack is None else self._stack["weights"]
        values = self._stack and self._stack["recalibration"]
        self._recalibration = values and Recalibration(**values)
        self._columns = [part["columns"] for part in components]
        self.noise = self._ensembles[0].noise
        self._scalers = [Units.of_scaler(scaler) for scaler in parts["scalers"]]
        self.formats, self._encodings = _encodings_of(parts["columns"])
        self.conventions = SimpleNamespace(**parts["conventions"] or {})
        self.n_features_in_ = int(parts["num_columns"])
        self._names: list[str] | None = parts["names"]
        if self._names is not None:
            self.feature_names_in_ = np.array(self._names, dtype=object)
        if parts["labels"] is not None:
            self.classes_ = parts["labels"]
        else:
            self._units = [Units(**part["target"]) for part in components]

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Predict y: of a number the mean, [N]; of a class the most probable one, [N].

        :param return_std: Whether to give the standard deviation of y too, noise
            included, [N].
        :raises ValueError: If the standard deviation of a class is asked for.
        """
        if hasattr(self, "classes_"):
            if return_std:
                remedy = "Use predict_proba."
                raise refusal("return_std", "True for classes", "False", remedy)
            return self.classes_[np.argmax(self.predict_proba(X), axis=1)]
        mean, variance = self._predictive(X, "predict").moments()
        return (mean, np.sqrt(variance)) if return_std else mean

    def predict_quantiles(self, X: Any, quantiles: Any = (0.05, 0.5, 0.95)) -> Array:
        """Predict quantiles of y, [N, Q], of a model with Gaussian noise.

        :param quantiles: Q probabilities in (0, 1).
        :raises ValueError: If y is a class or its noise another.
        """
        quantiles = as_probabilities(quantiles)
        return self._predictive(X, "predict_quantiles").quantiles(quantiles)

    def predict_interval(self, X: Any, coverage: float = 0.9) -> Array:
        """Predict central intervals of y, [N, 2]: those of the estimator without
        ``calibrate``.

        :param coverage: The probability, in (0, 1).
        """
        return self.predict_quantiles(X, as_coverage(coverage))

    @cuts_reported()
    def predict_proba(self, X: Any) -> Array:
        """Predict the probability of each class, [N, C], in the order of ``classes_``.

        :raises ValueError: If y is a number.
        """
        if not hasattr(self, "classes_"):
            got, remedy = "a model of numbers", "Use predict with return_std=True."
            raise refusal("predict_proba", got, "a model of classes", remedy)
        X = self._inputs(X)
        parts = zip(
            self._weights, self._ensembles, self._transforms, self._columns, strict=True
        )
        mixed = sum(
            weight
            * ensemble.predict_probabilities(part, change.transform(X))[:, columns]
            for weight, part, change, columns in parts
        )
        recalibration = self._recalibration
        return np.asarray(
            mixed if recalibration is None else recalibration.probabilities(mixed)
        )

    def log_densities(self, X: Any, y: Any) -> Array:
        """Compute the log predictive density of each row, [N], of a model with Gaussian
        noise.

        :param y: Targets, [N], in original units.
        :raises ValueError: If y are others, or a class, or their noise is another.
        """
        predictive = self._predictive(X, "log_densities")
        y = as_rows(np.reshape(np.asarray(y), (-1, 1)), 1, None)[:, 0]
        if len(y) != predictive.means.shape[1]:
            expected = f"{predictive.means.shape[1]}, as many as X"
            raise refusal(
                "y", counted(len(y), "value"), expected, "Pass those of the same rows."
            )
        if self._units[0].logarithm and np.any(y <= 0.0):
            got, remedy = f"{np.min(y):g}", "Its logarithm is what the model predicts."
            raise refusal("y", got, "numbers above 0", remedy)
        return require_finite(predictive.log_densities(y))

    def far_rows(self, X: Any) -> npt.NDArray[np.bool_]:
        """Find for each row, [N], whether it is so far from the training rows that they
        have almost no information on it: by any component of some weight
        (:func:`~gpflow_pep.scoring.ensemble.is_far`), or as an input is cut there
        (:class:`~gpflow_pep.distributions.YeoJohnson`).
        """
        X = self._inputs(X)
        far = np.zeros(len(X), dtype=bool)
        asked = ensemble.are_asked(self._weights)
        parts = zip(asked, self._ensembles, self._transforms, strict=True)
        for is_asked, part, change in parts:
            if not is_asked:
                continue
            far |= ensemble.is_far(part, change.transform(X))
            if isinstance(change, YeoJohnson):
                far |= change.are_cut(X)
        return far

    def unusual(self, table: Any) -> list[str]:
        """Name for each row its cells with values unlike those of the training rows,
        [N].

        :param table: A table like the one that the estimator was trained on.
        :raises ValueError: If the columns are others, a cell cannot be read, or the
            estimator was trained on numbers without a
            :class:`~gpflow_pep.tables.TableEncoder`.
        """
        if self.formats is None:
            got, expected = (
                "a scorer of numbers",
                "one of a pipeline with a TableEncoder",
            )
            raise refusal(
                "unusual", got, expected, "Compare X with the range of your data."
            )
        from ..tables.encodings import unusual_cells

        return unusual_cells(table, self.formats, self._encodings)

    def _inputs(self, X: Any) -> Array:
        """Check inputs, and transform them to the model's."""
        if self.formats is not None:
            from ..tables.encodings import encode_table

            X = encode_table(X, self.formats, self._encodings)
            X = as_rows(X, X.shape[1], None, unknown=True)
        else:
            X = as_rows(X, self.n_features_in_, self._names, unknown=True)
        for scaler in self._scalers:
            X = scaler.transform(X)
        return X

    @cuts_reported()
    def _predictive(self, X: Any, method: str) -> Predictive:
        if hasattr(self, "classes_"):
            remedy = "Use predict_proba."
            raise refusal(method, "a model of classes", "a model of numbers", remedy)
        X = self._inputs(X)
        every = zip(self._ensembles, self._transforms, self._units, strict=True)
        parts = [
            ensemble.predictive(part, change.transform(X), units)
            for part, change, units in every
        ]
        if self._stack is None:
            return parts[0]
        mean_weights = self._stack["mean_weights"]
        return Predictive.mixed(parts, self._weights, mean_weights, self._recalibration)


def _transform_of(inputs: Mapping[str, Any]) -> YeoJohnson | Units:
    """Make what changes inputs to those of a component's model."""
    return YeoJohnson(**inputs) if "powers" in inputs else Units.of_scaler(inputs)


def _encodings_of(
    columns: Any,
) -> "tuple[dict[str, Format] | None, dict[str, Encoding]]":
    """Make what :func:`~gpflow_pep.tables.encodings.encode_table` takes
    beside a table.
    """
    if columns is None:
        return None, {}
    from ..tables.encodings import Encoding
    from ..tables.formats import Format

    def tuples(part: Mapping[str, Any]) -> dict[str, Any]:
        return {k: tuple(v) if isinstance(v, list) else v for k, v in part.items()}

    return (
        {column["name"]: Format(**tuples(column["format"])) for column in columns},
        {column["name"]: Encoding(**tuples(column["encoding"])) for column in columns},
    )
