"""Predictions of regressors in original units: moments, quantiles, intervals, draws and
densities.
"""

import warnings
from typing import Any

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils import check_array, check_consistent_length, column_or_1d
from sklearn.utils.validation import check_is_fitted

from ..distributions import Predictive
from ..distributions.predictive import PredictiveOfColumns
from ..engine.refusals import refusal
from ..engine.refusals.arrays import AnyNDArray
from ..engine.refusals.numbers import (
    as_coverage,
    as_probabilities,
    check_choice,
    check_positive,
)
from .base import PEPEstimator
from .intervals import interval_of_folds
from .recipe.mixture import ColumnMixture
from .single.inputs import check_sizes, check_table, filled, refuse_missing, seed_of
from .single.outputs import as_outputs, mean_r2
from .single.regression import SingleRegressor
from .single.target_units import to_model
from .single.when_used import factors


class TargetPredictions(RegressorMixin, PEPEstimator):
    """The predictions of :class:`PEPRegressor <gpflow_pep.estimators.PEPRegressor>`.

    In all methods X has the inputs, [N, D], as an array or a table. y has the targets,
    [N], or [N, P] if there were several columns, with NaN for a missing target. Columns
    of a table y are matched by name if ``fit`` was given a table.
    """

    single_model = SingleRegressor
    n_outputs_: int = 1
    target_names_: list[str] | None = None

    def predict(
        self,
        X: Any,
        return_std: bool = False,
        return_cov: bool = False,
        *,
        known: Any = None,
    ) -> AnyNDArray | tuple[AnyNDArray, AnyNDArray]:
        """Predict y.

        :param return_std: Whether to return also the standard deviation of y, noise
            included, [N]. A recalibration multiplies the standard deviation of the
            mixture by the standard deviation of a scaled Student-t. This is exact if
            the mixture is Gaussian; quantiles are always exact.
        :param return_cov: Whether to return also the covariance of y over rows, [N, N].
            It needs a single model, a Gaussian likelihood and one column of y.
        :param known: Known targets of the same rows, [N, P], with NaN for unknown ones.
            If outputs are mixed, the predictions are conditioned on them
            (:class:`~gpflow_pep.training.Ensemble`). For an output that is known, the
            prediction describes a further measurement of this output.
        :return: The mean, [N], or [N, P] if y had several columns; and the standard
            deviation or the covariance if requested.
        """
        if return_std and return_cov:
            remedy = (
                "The standard deviation is the square root of the diagonal of the"
                " covariance."
            )
            raise refusal("return_std, return_cov", "both", "at most one", remedy)
        rows = self.checked_inputs(X)
        if return_cov and not self.mixture_.is_one_model:
            remedy = (
                "Pass return_std=True, draw with sample_y, or set a kernel, which"
                " selects a single model."
            )
            raise refusal(
                "return_cov",
                "True for an estimator that mixes several models",
                "a single model",
                remedy,
            )
        if return_cov:
            return self._heaviest.joint(rows)
        mean, variance = self._predictive(rows, known).moments()
        return (mean, np.sqrt(variance)) if return_std else mean

    def predict_f(self, X: Any, return_std: bool = False) -> Any:
        """Predict f, [N], or [N, P] if y had several columns. If noise is added to f,
        this is y without noise and bounds ("log_normal": log y without noise).
        Otherwise it is the argument of the likelihood, such as a log rate. If y is
        warped, f is in the units of y, like a y without noise.

        :param return_std: Whether to return also the standard deviation of f.
        """
        rows = self.checked_inputs(X)
        predictive = self.mixture_.predictive_of_f(rows)
        mean, variance = predictive.without_recalibration().moments()
        return (mean, np.sqrt(variance)) if return_std else mean

    def predict_quantiles(
        self, X: Any, quantiles: Any = (0.05, 0.5, 0.95), *, known: Any = None
    ) -> AnyNDArray:
        """Predict quantiles of y, [N, Q], or [N, P, Q] if y had several columns.

        The quantiles are exact for a Gaussian likelihood and for "log_normal". For
        other likelihoods they are computed from 4000 draws at each row.

        :param quantiles: The Q probabilities, in (0, 1).
        :param known: See :meth:`predict`.
        """
        check_is_fitted(self)
        q = as_probabilities(quantiles)
        rows = self.checked_inputs(X)
        if self._heaviest.has_gaussian_noise:
            return self._predictive(rows, known).quantiles(q)
        known = self._checked_known(known, rows)
        return self._heaviest.quantiles_of_draws(rows, q, known)

    def predictive(self, X: Any) -> Predictive | PredictiveOfColumns:
        """Predict the distributions of y.

        :param X: Inputs, [N, D].
        """
        return self._predictive(self.checked_inputs(X))

    @property
    def _heaviest(self) -> SingleRegressor:
        """The single model with the largest weight."""
        heaviest: Any = self.mixture_.heaviest
        single: SingleRegressor = heaviest
        return single

    def _predictive(
        self, rows: AnyNDArray, known: Any = None
    ) -> Predictive | PredictiveOfColumns:
        """Predict y of checked rows."""
        known = self._checked_known(known, rows)
        mixture = self.mixture_
        by_column = isinstance(mixture, ColumnMixture)
        if known is not None and by_column and not mixture.mixes_outputs:
            warnings.warn(
                "known: the predictions do not depend on it. Models of each column"
                " alone predicted left-out rows better for all columns (see"
                " summary()).",
                stacklevel=4,
            )
        return mixture.predictive(rows, known)

    def _checked_known(self, known: Any, rows: AnyNDArray) -> Any:
        """Check known targets. They are ignored if y has one column, which does not
        depend on others.
        """
        if known is None or self.n_outputs_ == 1:
            return known
        return self._checked("known", known, rows)

    @property
    def mixes_outputs_(self) -> bool:
        """Whether columns of y are mixtures of common functions, so that ``known``
        targets help.
        """
        check_is_fitted(self)
        return self.mixture_.mixes_outputs

    def predict_interval(
        self, X: Any, coverage: float = 0.9, *, calibrate: str | None = None
    ) -> AnyNDArray:
        """Predict intervals that contain y with a given probability, [N, 2], or [N, P,
        2] if y had several columns.

        The intervals end at the quantiles (1 - coverage) / 2 and (1 + coverage) / 2.
        With ``calibrate`` they end at other quantiles, which are chosen on left-out
        rows (:mod:`gpflow_pep.estimators.intervals`): about the right fraction of these
        rows lies inside, even if the predicted distribution is too narrow or too wide.
        One correction is made for all rows, so the fraction can still be too small in
        some regions.

        :param coverage: The probability, in (0, 1).
        :param calibrate: "folds" corrects the intervals with the training rows, each
            predicted by an estimator that is trained without it. The first call trains
            five such estimators, each without a fifth of the rows. Use it if coverage
            matters. None makes no correction.
        :raises ValueError: If an argument is outside its range; with ``calibrate``, if
            the likelihood is not Gaussian, rows cannot be left out, or there are too
            few of them.
        """
        check_is_fitted(self)
        ends = as_coverage(coverage)
        check_choice(
            "calibrate", calibrate, ("folds", None), "Leave it out if in doubt."
        )
        if calibrate is None:
            return self.predict_quantiles(X, ends)
        rows = self.checked_inputs(X)
        return interval_of_folds(self.mixture_, rows, coverage)

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0) -> AnyNDArray:
        """Draw y jointly at rows, [N, n_samples], or [N, P, n_samples] if y had several
        columns.

        :param n_samples: The number of draws.
        :param random_state: The seed or generator, as for the estimator.
        """
        rows = self.checked_inputs(X)
        check_positive("n_samples", n_samples)
        return self.mixture_.draws(rows, n_samples, seed_of(random_state))

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Compute R² of the predicted means. With several columns it is the mean over
        columns, each from the targets that are not missing.

        :param sample_weight: The weight of each row, [N]; None weighs all rows equally.
        """
        check_is_fitted(self)
        mean: Any = self.predict(X)
        if self._num_columns == 1:
            y = filled(y)
            refuse_missing(y, "target")
            return float(r2_score(y, mean, sample_weight=sample_weight))
        Y = self._checked("y", y, mean)
        mean = mean.reshape(len(mean), -1)
        # If a row has a limit, its target is not known.
        if self.n_outputs_ < self._num_columns:
            units = self._heaviest.units
            known = factors.traits(self.likelihood_).has_density(to_model(units, Y))
            Y = np.where(known, Y[:, : self.n_outputs_], np.nan)
        return mean_r2(Y, mean, sample_weight)

    def log_score(self, X: Any, y: Any) -> float:
        """Compute the mean log predictive density of rows, in nats, in the original
        units of y. With several columns it is the mean over all targets that are not
        missing.
        """
        densities = self.log_densities(X, y)
        return float(
            np.mean(
                densities if densities.ndim == 1 else densities[~np.isnan(densities)]
            )
        )

    def log_densities(self, X: Any, y: Any) -> AnyNDArray:
        """Compute the log predictive density of each row, [N], or of each target, [N,
        P], with NaN for missing targets; see :meth:`log_score`.
        """
        rows = self.checked_inputs(X)
        Y = self._checked("y", y, rows)
        if not self._heaviest.has_gaussian_noise:
            return self._heaviest.log_densities(rows, Y)
        units = self._heaviest.units
        if units.logarithm:
            to_model(units, Y)  # refuses targets without a logarithm
        y = Y[:, 0] if self.n_outputs_ == 1 else Y
        return self._predictive(rows).log_densities(y)

    @property
    def _num_columns(self) -> int:
        """The number of columns of y: outputs, and further columns that a likelihood
        reads.
        """
        if self._heaviest.has_gaussian_noise:
            return self.n_outputs_
        return (
            factors.layout_of(self.likelihood_, self.n_outputs_).num_columns
            or self.n_outputs_
        )

    def _checked(self, name: str, y: Any, X: AnyNDArray) -> AnyNDArray:
        """Check targets of rows, and put the columns of a table in the order that
        ``fit`` saw.
        """
        if self._num_columns > 1:
            return as_outputs(name, y, X, self._num_columns, self.target_names_)
        check_table(name, y)
        y = filled(y)
        refuse_missing(y, "target")
        Y: AnyNDArray = column_or_1d(check_array(y, ensure_2d=False, dtype=X.dtype))[
            :, None
        ]
        check_consistent_length(X, Y)
        check_sizes(name, Y)
        return Y
