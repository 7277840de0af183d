"""Predictions of an exported estimator."""

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..distributions import Predictive, Recalibration, Units, YeoJohnson
from ..distributions.cutting import cuts_reported
from ..distributions.mixtures import far_by_components, mixed_probabilities
from ..distributions.predictive import require_finite
from ..distributions.units import Array
from ..engine.files import SCORER
from ..engine.refusals import refusal
from ..engine.refusals.arrays import (
    as_numbers,
    as_vector,
    require_finite_rows,
    require_same_length,
)
from ..engine.refusals.numbers import as_coverage, as_probabilities
from .components import (
    Component,
    component_of,
    far_rows,
    predict_probabilities,
    predictive,
)
from .stored import Reader, SavedFiles, read_files, remedy_of

if TYPE_CHECKING:
    from ..tables.conventions import Conventions
    from ..tables.encodings import Encoding
    from ..tables.formats import Format


def load_scorer(folder: str | PathLike[str]) -> "Scorer":
    """Load a scorer that :func:`~gpflow_pep.estimators.export_numpy` wrote::

        scorer = load_scorer("pep_results/scorer")
        mean, sd = scorer.predict(X, return_std=True)

    Loading needs NumPy and SciPy, and pandas if the inputs are a table. Nothing in the
    files is run.

    :param folder: The folder that was written.
    :raises ValueError: If a file is missing, damaged or changed, or has an unknown
        format.
    """
    saved = read_files(folder, SCORER)
    try:
        return Scorer(saved)
    # Any error is caught, because files that export_numpy wrote do not raise errors.
    except Exception as error:
        got = f"files that do not describe a scorer ({type(error).__name__}: {error})"
        raise refusal(
            str(folder), got, "files that export_numpy writes", remedy_of(SCORER)
        ) from error


class Scorer:
    """A fitted estimator that predicts with NumPy alone; :func:`load_scorer` makes it.

    Inputs X are arrays [N, D] or tables, in the units of training; other inputs raise a
    ``ValueError``. Columns of tables are matched by name. If the estimator was a
    pipeline that begins with a :class:`~gpflow_pep.tables.TableEncoder`, inputs are
    tables like the training table.

    ``classes_`` are the labels of a classifier; ``feature_names_in_`` are the names of
    the columns, if they are known; ``n_features_in_`` is their number; ``noise`` is the
    name of the likelihood; ``formats`` describe how the columns of a table are read, or
    are None; ``encodings_`` are the encodings of the columns, and ``conventions``
    describe how the training table was written, if that is known.

    :param saved: The files of :func:`~gpflow_pep.estimators.export_numpy`.
    :raises ValueError: If a kernel or likelihood has no form in NumPy.
    """

    n_features_in_: int
    feature_names_in_: npt.NDArray[np.object_]
    classes_: npt.NDArray[Any]

    def __init__(self, saved: SavedFiles) -> None:
        described = Reader(saved.arrays)(saved.content)
        self._models = [_model_of(mixture) for mixture in described["components"]]
        mixed = described["mixed"]
        self._weights, self._mean_weights = mixed["weights"], mixed["mean_weights"]
        values = mixed["recalibration"]
        self._recalibration = values and Recalibration(**values)
        self.noise = str(self._models[0].components[0].likelihood["kind"])
        self._scalers = [Units.of_scaler(scaler) for scaler in described["scalers"]]
        self.formats, self.encodings_ = _encodings_of(described["columns"])
        self.conventions = _conventions_of(described["conventions"])
        self.n_features_in_ = int(described["num_columns"])
        self._names: list[str] | None = described["names"]
        if self._names is not None:
            self.feature_names_in_ = np.array(self._names, dtype=object)
        if described["labels"] is not None:
            self.classes_ = described["labels"]

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Predict y, [N]: the mean of a number, or the most probable class.

        :param return_std: Whether to return also the standard deviation of y, noise
            included, [N].
        :raises ValueError: If the standard deviation of a class is requested.
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

        :param quantiles: The Q probabilities, in (0, 1).
        :raises ValueError: If y is a class, or if the noise is not Gaussian.
        """
        quantiles = as_probabilities(quantiles)
        return self._predictive(X, "predict_quantiles").quantiles(quantiles)

    def predict_interval(self, X: Any, coverage: float = 0.9) -> Array:
        """Predict central intervals of y, [N, 2], as the estimator does without
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
            got = "a model of numbers"
            remedy = "Use predict with return_std=True."
            raise refusal("predict_proba", got, "a model of classes", remedy)
        X = self._inputs(X)
        by_model = [model.probabilities(X) for model in self._models]
        return mixed_probabilities(self._weights, by_model, self._recalibration)

    def log_densities(self, X: Any, y: Any) -> Array:
        """Compute the log predictive density of each row, [N], of a model with Gaussian
        noise.

        :param y: Targets, [N], in original units.
        :raises ValueError: If y does not suit the rows or is a class, or if the noise
            is not Gaussian.
        """
        predictive = self._predictive(X, "log_densities")
        y = as_vector("y", y)
        require_same_length("y", y, "X", predictive.means[0])
        if self._models[0].units.logarithm and np.any(y <= 0.0):
            got = f"{np.min(y):g}"
            remedy = "The model predicts the logarithm of y."
            raise refusal("y", got, "numbers above 0", remedy)
        return require_finite(predictive.log_densities(y))

    def far_rows(self, X: Any) -> npt.NDArray[np.bool_]:
        """Find for each row, [N], whether it is so far from the training rows that they
        have almost no information on it. A row is far if a component with enough weight
        has almost no information on it
        (:func:`~gpflow_pep.scoring.components.far_rows`), or if an input is cut
        (:class:`~gpflow_pep.distributions.YeoJohnson`).

        If the lengthscale of an input is long, rows outside of the range of training
        can still be correlated with training rows, and are not far; :meth:`unusual`
        lists them.
        """
        X = self._inputs(X)
        return far_by_components(self._weights, lambda k: self._models[k].far_rows(X))

    def unusual(self, table: Any) -> list[str]:
        """List for each row its cells whose values are unlike the training rows, [N].

        :param table: A table like the one that the estimator was trained on.
        :raises ValueError: If the columns differ from the columns in training, if a
            cell cannot be read, or if the estimator was trained on numbers without a
            :class:`~gpflow_pep.tables.TableEncoder`.
        """
        if self.formats is None:
            got = "a scorer of numbers"
            expected = "a scorer of a pipeline with a TableEncoder"
            raise refusal(
                "unusual", got, expected, "Compare X with the range of your data."
            )
        from ..tables.encodings import unusual_cells

        return unusual_cells(table, self.formats, self.encodings_)

    def _inputs(self, X: Any) -> Array:
        """Check inputs, and convert them to the units of the exported estimator."""
        if self.formats is not None:
            from ..tables.encodings import encode_table

            rows = encode_table(X, self.formats, self.encodings_)
            num_columns = rows.shape[1]
        else:
            rows = as_numbers("X", self._ordered(X))
            num_columns = self.n_features_in_
        if rows.ndim != 2 or rows.shape[1] != num_columns or not len(rows):
            expected = f"[N, {num_columns}] with at least one row"
            remedy = (
                "Pass the columns of the training data; a single row is X[None, :]."
            )
            raise refusal("X", f"shape {rows.shape}", expected, remedy)
        unknown = np.isnan(rows).all(axis=1)
        remedy = "Remove those rows or fill in the missing values."
        require_finite_rows("X", np.where(unknown[:, None], 0.0, rows), remedy)
        for scaler in self._scalers:
            rows = scaler.transform(rows)
        return rows

    def _ordered(self, X: Any) -> Any:
        """Select the columns of a table by name."""
        names = self._names
        if names is None or not hasattr(X, "columns"):
            return X
        columns = [str(column) for column in X.columns]
        if sorted(columns) != sorted(names):
            remedy = "Select the columns: X[list(scorer.feature_names_in_)]."
            raise refusal("X", f"the columns {columns}", f"the columns {names}", remedy)
        return X[names]

    @cuts_reported()
    def _predictive(self, X: Any, method: str) -> Predictive:
        if hasattr(self, "classes_"):
            remedy = "Use predict_proba."
            raise refusal(method, "a model of classes", "a model of numbers", remedy)
        X = self._inputs(X)
        by_model = [model.predictive(X) for model in self._models]
        return Predictive.mixed(
            by_model, self._weights, self._mean_weights, self._recalibration
        )


class _Model(NamedTuple):
    """One of the mixed models. It predicts at rows in original units."""

    components: Sequence[Component]
    weights: Array  #: The weights of the components, [K]; their sum is 1.
    inputs: YeoJohnson | Units  #: The scaler of inputs to the units of the components.
    units: Units  #: The units of the targets.
    #: The places of the scorer's classes among the model's classes.
    columns: Sequence[int] | None

    def predictive(self, X: Array) -> Predictive:
        """Predict targets, [N]."""
        X = self.inputs.transform(X)
        return predictive(self.components, self.weights, X, self.units)

    def probabilities(self, X: Array) -> Array:
        """Predict the probability of each class of the scorer, [N, C]."""
        X = self.inputs.transform(X)
        return predict_probabilities(self.components, self.weights, X)[:, self.columns]

    def far_rows(self, X: Array) -> npt.NDArray[np.bool_]:
        """Mark the rows that are far from the training rows, [N]."""
        far = far_rows(self.components, self.weights, self.inputs.transform(X))
        if isinstance(self.inputs, YeoJohnson):
            far |= self.inputs.are_cut(X)
        return far


def _model_of(described: Mapping[str, Any]) -> _Model:
    inputs = described["inputs"]
    mixture = described["ensemble"]
    return _Model(
        [component_of(component) for component in mixture["components"]],
        mixture["weights"],
        YeoJohnson(**inputs) if "powers" in inputs else Units.of_scaler(inputs),
        Units(**(described["target"] or {})),
        described["columns"],
    )


def _encodings_of(
    columns: Any,
) -> "tuple[dict[str, Format] | None, dict[str, Encoding]]":
    """Make the formats and encodings for
    :func:`~gpflow_pep.tables.encodings.encode_table`.
    """
    if columns is None:
        return None, {}
    from ..tables.encodings import Encoding
    from ..tables.formats import Format

    return (
        {column["name"]: Format(**_tuples(column["format"])) for column in columns},
        {column["name"]: Encoding(**_tuples(column["encoding"])) for column in columns},
    )


def _conventions_of(described: Mapping[str, Any] | None) -> "Conventions | None":
    """Make the conventions of the training table; None if they are not known."""
    if described is None:
        return None
    from ..tables.conventions import Conventions

    return Conventions(**_tuples(described))


def _tuples(described: Mapping[str, Any]) -> dict[str, Any]:
    return {k: tuple(v) if isinstance(v, list) else v for k, v in described.items()}
