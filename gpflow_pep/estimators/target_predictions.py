"""Predictions of regressors in original units: moments, quantiles, intervals, draws and
densities.
"""

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils import check_array, check_consistent_length, column_or_1d
from sklearn.utils.validation import check_is_fitted

from ..distributions import Predictive, Units
from ..distributions.cutting import cuts_reported
from ..distributions.mixtures import draws_of_mixture
from ..distributions.predictive import PredictiveOfColumns, require_finite
from ..engine.checks import check_choice, check_positive, refusal
from ..engine.factors import layout_of, traits
from ..engine.factors.entries import has_gaussian_noise
from ..engine.prior import is_mixed
from ..engine.prior.mixing import variances_of_white
from ..engine.refusals.numbers import as_coverage, as_probabilities
from ..scoring.components import predictive
from ..training.choosing.ensemble import (
    Ensemble,
    EnsemblePredictions,
    components,
    heaviest,
)
from .base import PREDICTION_CHUNK, PEPEstimator
from .intervals import conformal_score, fold_scores
from .single.inputs import check_sizes, check_table, filled, refuse_missing, seed_of
from .single.outputs import as_outputs, mean_r2
from .single.target_units import log_slopes, to_model

#: Draws of y at each row, for quantiles that have no closed form.
_DRAWS = 4000
#: Rows whose draws are held in memory at a time.
_DRAWN_ROWS = 500


class TargetPredictions(RegressorMixin, PEPEstimator):
    """The predictions of :class:`PEPRegressor <gpflow_pep.estimators.PEPRegressor>`.

    In all methods X has the inputs, [N, D], as an array or a table. y has the targets,
    [N], or [N, P] if there were several columns, with NaN for a missing target. Columns
    of a table y are matched by name if ``fit`` was given a table.
    """

    n_outputs_: int = 1
    target_names_: list[str] | None = None
    _target: Units

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
            (:class:`~gpflow_pep.training.Ensemble`). The prediction of an output that
            is known describes another reading of that output.
        :return: The mean, [N], or [N, P] if y had several columns; and the standard
            deviation or the covariance if requested.
        """
        if return_std and return_cov:
            remedy = (
                "The standard deviation is the square root of the diagonal of the"
                " covariance."
            )
            raise refusal("return_std, return_cov", "both", "at most one", remedy)
        if return_cov and self._stack is not None:
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
            mean, covariance = self._joint(self._inputs(X))
            return self._target.inverse_transform(
                mean
            ), self._target.scale**2 * covariance
        mean, variance = self._predictive(X, known).moments()
        return (mean, np.sqrt(variance)) if return_std else mean

    def predict_f(self, X: Any, return_std: bool = False) -> Any:
        """Predict f, [N], or [N, P] if y had several columns. If noise is added to f,
        this is y without noise and bounds ("log_normal": log y without noise).
        Otherwise it is the argument of the likelihood, such as a log rate. If y is
        warped, f is in the units of y, like a y without noise.

        :param return_std: Whether to return also the standard deviation of f.
        """
        mixed = self._mixed(TargetPredictions._part_of_f, self._rows(X))
        mean, variance = mixed.without_recalibration().moments()
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
        if has_gaussian_noise(self.likelihood_):
            return self._predictive(X, known).quantiles(q)

        def of_draws(posterior: EnsemblePredictions, rows: AnyNDArray) -> Any:
            y = posterior.predict_y_samples(rows, _DRAWS, full_cov=False, seed=0)
            return np.moveaxis(np.quantile(y, q, axis=0), 0, -1)

        (values,) = self._by_posterior(self._inputs(X), known, of_draws, _DRAWN_ROWS)
        return self._target.inverse_transform(self._without_axis(values), 1)

    def _predictive(self, X: Any, known: Any = None) -> Predictive:
        """Predict y, with NumPy if it has a form of the model, which is many times
        faster.
        """
        rows, stack = self._rows(X), self._stack
        if known is not None and stack is not None and stack.places is not None:
            known = self._checked("known", known, rows)
            if not self.mixes_outputs_:
                warnings.warn(
                    "known: the predictions do not depend on it. Models of each"
                    " column alone predicted left-out rows better for all columns"
                    " (see summary()).",
                    stacklevel=3,
                )
        predict = partial(TargetPredictions._part_of_y, known=known)
        return self._mixed(predict, rows, known is not None)

    @cuts_reported()
    def _mixed(
        self,
        predict: Callable[["TargetPredictions", AnyNDArray], Predictive],
        rows: AnyNDArray,
        are_known: bool = False,
    ) -> Any:
        """Mix the components' predictions of rows in original units, or use for each
        column the component that predicts it.

        :param are_known: Whether some targets of these rows are known.
        """
        stack = self._stack
        if stack is None:
            return predict(self, rows)
        if stack.places is None or stack.known_places is None:
            return stack.mixed([predict(part, rows) for part in stack.components])
        places = stack.known_places if are_known else stack.places
        parts = {
            place: stack.components[place]._mixed(predict, rows)
            for place in sorted(set(places))
        }
        columns = [
            part.column(p) if part.means.ndim > 2 else part
            for p, part in enumerate(parts[place] for place in places)
        ]
        return PredictiveOfColumns(tuple(columns))

    def _part_of_f(self, rows: AnyNDArray) -> Predictive:
        f = self.posterior_.components_of_f
        parts = self._predicted(self._in_units(rows), f, PREDICTION_CHUNK)
        if is_mixed(self.kernel_):
            for k, model in enumerate(components(self.model_)[0]):
                kernel = model.kernel
                white = np.asarray(kernel.W) ** 2 @ variances_of_white(kernel).numpy()
                parts[2 * k + 1] = np.maximum(parts[2 * k + 1] - white, 0.0)
        return self._mixture(parts, self._target._replace(logarithm=False))

    def _part_of_y(self, rows: AnyNDArray, known: Any = None) -> Predictive:
        X, units = self._in_units(rows), self._target
        if self.n_outputs_ == 1:
            known = None  # other columns have models of their own
        if known is None:
            in_numpy, weights = self._mixture_in_numpy()
            if in_numpy:
                return predictive(in_numpy, weights, X, units)
        parts = self._by_posterior(X, known, EnsemblePredictions.components_of_y)
        return self._mixture(parts, units)

    def _mixture(self, parts: list[AnyNDArray], units: Units) -> Predictive:
        """Mix components, given their means and variances in turn, in the model's
        units.
        """
        parts = [self._without_axis(require_finite(part)) for part in parts]
        noise = "Gaussian" if has_gaussian_noise(self.likelihood_) else "other"
        weights = self.posterior_.weights.numpy()
        return Predictive(
            np.stack(parts[::2]), np.stack(parts[1::2]), weights, units, noise
        )

    @property
    def mixes_outputs_(self) -> bool:
        """Whether columns of y are mixtures of common functions, so that ``known``
        targets help.
        """
        check_is_fitted(self)
        places = getattr(self._stack, "known_places", None)
        if places is not None:
            parts = self.components_
            return any(parts[place].mixes_outputs_ for place in set(places))
        return is_mixed(self.kernel_)

    def _by_posterior(
        self,
        X: AnyNDArray,
        known: Any,
        predict: Callable[[EnsemblePredictions, AnyNDArray], Any],
        chunk_size: int = PREDICTION_CHUNK,
    ) -> list[AnyNDArray]:
        """Predict chunks of rows with the posterior, or given known outputs."""
        if known is None:
            return self._predicted(X, partial(predict, self.posterior_), chunk_size)
        if not self.mixes_outputs_:
            got, expected = "known targets for independent outputs", "none"
            raise refusal(
                "known",
                got,
                expected,
                "Leave them out, because the other outputs of a row do not depend"
                " on them.",
            )
        if np.isnan(X).any():
            got, expected = (
                "rows of X that have only NaN",
                "inputs for rows with known targets",
            )
            raise refusal(
                "known", got, expected, "Predict such rows without known targets."
            )
        D, model = X.shape[1], self.model_
        Y = to_model(self._target, self._checked("known", known, X))

        def predict_given(rows: AnyNDArray) -> Any:
            return predict(Ensemble(*components(model), known=rows[:, D:]), rows[:, :D])

        return self._predicted(np.hstack([X, Y]), predict_given, chunk_size)

    def _without_axis(self, values: AnyNDArray) -> AnyNDArray:
        """Remove the axis of outputs, [N, P, ...], if there is one output."""
        return values[:, 0] if self.n_outputs_ == 1 else values

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
        if self._stack is not None and self._stack.places is not None:
            rows, options = self._rows(X), {"calibrate": calibrate}
            return self._stack.by_column(
                lambda part: part.predict_interval(rows, coverage, **options)
            )
        scores = self._normal_scores()
        predictive = self._predictive(X)

        def ends_of(scores: AnyNDArray) -> AnyNDArray:
            z = conformal_score(scores[~np.isnan(scores)], coverage)
            return predictive.at_scores(np.array([-z, z]))

        if self.n_outputs_ == 1:
            return ends_of(scores)
        return np.stack(
            [ends_of(scores[:, p])[:, p] for p in range(self.n_outputs_)], axis=1
        )

    def _normal_scores(self) -> AnyNDArray:
        """Compute, once, the scores of training rows under predictions without them."""
        if self._known_scores is None:
            model = heaviest(self.model_)
            if not has_gaussian_noise(self.likelihood_) or not hasattr(model, "data"):
                got = f"'folds' with {type(self.likelihood_).__name__} or minibatches"
                expected = "Gaussian noise and a model that holds its rows"
                raise refusal("calibrate", got, expected, "Pass calibrate=None.")
            X, Y = map(np.asarray, model.data)
            X, Y = self._scaler.inverse_transform(X), self._target.inverse_transform(Y)
            self._known_scores = fold_scores(self, X, self._without_axis(Y))
        return self._known_scores

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0) -> AnyNDArray:
        """Draw y jointly at rows, [N, n_samples], or [N, P, n_samples] if y had several
        columns.

        :param n_samples: The number of draws.
        :param random_state: The seed or generator, as for the estimator.
        """
        rows = self._rows(X)
        check_positive("n_samples", n_samples)
        if self._stack is not None and self._stack.places is not None:
            random = np.random.default_rng(seed_of(random_state))
            return self._stack.by_column(
                lambda part: part.sample_y(rows, n_samples, random)
            )
        if self._stack is not None:
            random = np.random.default_rng(seed_of(random_state))
            parts = self._stack.components
            mixed = draws_of_mixture(
                self._stack.weights,
                n_samples,
                random,
                lambda k, n: np.moveaxis(parts[k].sample_y(rows, n, random), -1, 0),
            )
            return np.moveaxis(self._predictive(X).recalibrated(mixed), 0, -1)
        X = self._in_units(rows)
        draws = self.posterior_.predict_y_samples(
            X, n_samples, seed=seed_of(random_state)
        )
        values = self._without_axis(np.moveaxis(draws.numpy(), 0, -1))
        return self._target.inverse_transform(values, 1)

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
        Y, mean = self._checked("y", y, mean), mean.reshape(len(mean), -1)
        if (
            self.n_outputs_ < self._num_columns
        ):  # of a row with a limit the target is not known
            known = traits(self.likelihood_).has_density(to_model(self._target, Y))
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
        inputs = self._inputs(X)
        Y = self._checked("y", y, inputs)
        if has_gaussian_noise(self.likelihood_):
            if self._target.logarithm:
                to_model(self._target, Y)  # refuses targets without a logarithm
            return self._predictive(X).log_densities(self._without_axis(Y))
        rows, D = np.hstack([inputs, to_model(self._target, Y)]), inputs.shape[1]

        def density(rows: AnyNDArray) -> Any:
            if self.n_outputs_ > 1:
                return self.posterior_.predict_log_density_of_entries(
                    (rows[:, :D], rows[:, D:])
                )
            return self.posterior_.predict_log_density((rows[:, :D], rows[:, D:]))

        (densities,) = self._predicted(rows, density, PREDICTION_CHUNK)
        slopes = log_slopes(self._target, self.likelihood_, rows[:, D:])
        return densities + self._without_axis(slopes)

    @property
    def _num_columns(self) -> int:
        """The number of columns of y: outputs, and further columns that a likelihood
        reads.
        """
        return (
            layout_of(self.likelihood_, self.n_outputs_).num_columns or self.n_outputs_
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

    def _joint(self, X: AnyNDArray) -> tuple[AnyNDArray, AnyNDArray]:
        """Predict y jointly in the model's units: mean [N] and covariance [N, N]."""
        curved = self._target.logarithm or self._target.is_warped
        if self.n_outputs_ > 1:
            remedy = "Pass return_std=True, or draw with sample_y."
            raise refusal(
                "return_cov", "True with several columns of y", "one column", remedy
            )
        if curved or not traits(self.likelihood_).is_gaussian:
            name = (
                "log_normal"
                if self._target.logarithm
                else type(self.likelihood_).__name__
            )
            raise refusal(
                "return_cov",
                f"True with {'a warped target' if self._target.is_warped else name}",
                "a Gaussian likelihood, because otherwise y is not Gaussian",
                "Pass return_std=True, or draw with sample_y.",
            )
        posterior = self.posterior_
        mean, covariance = posterior.predict_f(X, full_cov=True)
        noise = sum(
            weight * likelihood.variance_at(X)[:, 0]
            for weight, likelihood in zip(
                posterior.weights.numpy(), posterior.likelihoods
            )
        )
        return np.asarray(mean)[:, 0], np.asarray(covariance[0] + tf.linalg.diag(noise))
