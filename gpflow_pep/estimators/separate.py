"""An estimator for each column of y, as an alternative to estimators that model all
columns together.
"""

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, MetaEstimatorMixin, RegressorMixin, clone
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import check_is_fitted

from ..engine.records import MaximiseRecord
from ..engine.refusals.arrays import AnyNDArray
from .base import PEPEstimator
from .rows_held import RowsHeld, count_rows_held
from .single.inputs import refuse_weights
from .single.outputs import as_outputs, check_readings, column_names, mean_r2


class SeparateRegressors(MetaEstimatorMixin, RegressorMixin, BaseEstimator):
    """Copies of a regressor, one for each column of y, each trained on the rows that
    have a value in this column::

        model = SeparateRegressors(PEPRegressor(random_state=0)).fit(X, Y)
        mean, std = model.predict(X_new, return_std=True)

    Unlike scikit-learn's ``MultiOutputRegressor``, it accepts NaN in Y and predicts
    distributions. A :class:`PEPRegressor <gpflow_pep.estimators.PEPRegressor>` models
    all columns together.

    :param estimator: A regressor of one column that also predicts standard deviations.
    :param max_seconds: The time limit in seconds for all columns together, for an
        estimator that has ``max_seconds``. None keeps the estimator's own limit for
        each column.
    """

    estimators_: list[Any]
    #: How many training rows the files of the estimators hold, each row once; None if
    #: they are not estimators of this package.
    rows_held_: RowsHeld | None
    target_names_: list[str] | None

    def __init__(self, estimator: Any, max_seconds: float | None = None) -> None:
        self.estimator = estimator
        self.max_seconds = max_seconds

    def fit(
        self, X: Any, y: Any, held_out: Any = None, **refused: Any
    ) -> "SeparateRegressors":
        """Train on rows X [N, D] and y [N, P], with NaN for missing targets.

        :param held_out: The rows to hold out, [N], for a regressor that holds out rows.
        """
        refuse_weights(refused)
        Y = as_outputs("y", y, np.asarray(X, dtype=np.float64))
        check_readings(Y, column_names(y), np.zeros(Y.shape[1], dtype=bool))
        estimator = clone(self.estimator)
        if self.max_seconds is not None and "max_seconds" in estimator.get_params():
            estimator.set_params(max_seconds=self.max_seconds / Y.shape[1])
        fitted = []
        for column in Y.T:
            there = np.flatnonzero(~np.isnan(column))
            rows = _safe_indexing(X, there)
            options = {} if held_out is None else {"held_out": held_out[there]}
            fitted.append(clone(estimator).fit(rows, column[there], **options))
        held = None
        if all(isinstance(part, PEPEstimator) for part in fitted):
            singles = (single for part in fitted for single in part.mixture_.singles())
            held = count_rows_held(singles, fitted[0].checked_inputs(X))
        self.__dict__.update(
            estimators_=fitted, target_names_=column_names(y), rows_held_=held
        )
        return self

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Predict the mean of y, [N, P], and its standard deviation if requested."""
        check_is_fitted(self)
        moments = [
            estimator.predict(X, return_std=True) for estimator in self.estimators_
        ]
        mean, std = (
            np.stack(columns, axis=1) for columns in zip(*moments, strict=True)
        )
        return (mean, std) if return_std else mean

    def predict_quantiles(self, X: Any, quantiles: Any) -> AnyNDArray:
        """Predict quantiles of y, [N, P, Q]."""
        return np.stack(
            [
                estimator.predict_quantiles(X, quantiles)
                for estimator in self.estimators_
            ],
            axis=1,
        )

    def log_densities(self, X: Any, y: Any) -> AnyNDArray:
        """Compute the log density of each target, [N, P]; NaN for missing targets."""
        check_is_fitted(self)
        Y = self._checked(y, np.asarray(X, dtype=np.float64))
        densities = np.full(Y.shape, np.nan)
        for p, estimator in enumerate(self.estimators_):
            there = np.flatnonzero(~np.isnan(Y[:, p]))
            if len(there):
                densities[there, p] = estimator.log_densities(
                    _safe_indexing(X, there), Y[there, p]
                )
        return densities

    def log_score(self, X: Any, y: Any) -> float:
        """Compute the mean of :meth:`log_densities` over the targets that are not
        missing.
        """
        return float(np.nanmean(self.log_densities(X, y)))

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Compute the mean R² over columns, each from the targets that are not
        missing.
        """
        mean = self.predict(X)
        return mean_r2(self._checked(y, mean), mean, sample_weight)

    def _checked(self, y: Any, X: AnyNDArray) -> AnyNDArray:
        """Check targets, with the columns of a table in the order of the columns in
        ``fit``.
        """
        return as_outputs("y", y, X, len(self.estimators_), self.target_names_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = tags.target_tags.two_d_labels = True
        tags.target_tags.single_output = False
        return tags

    def far_rows(self, X: Any) -> AnyNDArray:
        """Find for each row whether it is far from the training rows of all columns."""
        return np.all([estimator.far_rows(X) for estimator in self.estimators_], axis=0)

    @property
    def record_(self) -> MaximiseRecord | None:
        """How training ended: the record of a column that did not converge, if there is
        one, with the sums of objectives and seconds.
        """
        records: list[Any] = [estimator.record_ for estimator in self.estimators_]
        if None in records:
            return None
        worst = min(records, key=lambda record: record.converged)
        sums = {
            name: sum(getattr(r, name) for r in records)
            for name in ("objective", "seconds")
        }
        return worst._replace(**sums)

    @property
    def n_iter_(self) -> int:
        """The number of steps for all columns together."""
        return sum(estimator.n_iter_ for estimator in self.estimators_)

    @property
    def model_(self) -> Any:
        """The model of the first column."""
        return self.estimators_[0].model_

    @property
    def n_features_in_(self) -> int:
        """The number of inputs."""
        return int(self.estimators_[0].n_features_in_)
