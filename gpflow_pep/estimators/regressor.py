"""Regression for scikit-learn."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.kernels import Kernel
from gpflow.likelihoods import Likelihood
from gpflow.models import GPModel
from sklearn.base import RegressorMixin
from sklearn.utils import check_array, check_consistent_length, check_random_state, column_or_1d
from sklearn.utils.validation import check_is_fitted

from ..checks import check_choice, check_positive, refusal
from ..models import PEP, PEPRegression
from ..scoring.arguments import as_coverage, as_probabilities
from ..scoring.mixture import predict_log_densities, predict_quantiles, predict_targets
from ..tilted import support, traits
from ..training.mixed_model import heaviest
from .base import PREDICTION_CHUNK, PEPEstimator
from .inputs import refuse_weights
from .intervals import conformal_score, fold_scores, interval, loo_scores
from .parts import NUMBERS, make_likelihood
from .target_units import TargetUnits

#: Where training starts: a tenth of the variance of standardised targets.
NOISE_VARIANCE = 0.1
#: Draws of y at each row, for quantiles that have no closed form.
_DRAWS = 4000
#: Rows for which that many are held at a time.
_DRAWN_ROWS = 500
#: Beyond all bounds of targets.
_LARGE = 1e30


class PEPRegressor(RegressorMixin, PEPEstimator):
    r"""
    Sparse Gaussian process regression by Power EP, as a scikit-learn estimator::

        from gpflow_pep.estimators import PEPRegressor

        model = PEPRegressor(random_state=0).fit(X, y)
        mean, std = model.predict(X_new, return_std=True)

    With a Gaussian likelihood the model is :class:`~gpflow_pep.models.PEPRegression`, with others
    :class:`~gpflow_pep.models.PEP`, and with minibatches :class:`~gpflow_pep.models.ARPEP`. Columns
    of a DataFrame are matched by name.

    :param kernel: "rbf", "matern12", "matern32", "matern52" or "rational_quadratic", each with a
        lengthscale for each input; or a GPflow kernel, which is copied, for inputs as the model
        takes them.
    :param num_inducing: How many inducing points, at most as many as there are rows that differ.
        "auto": 25, to which others are added as long as that pays
        (:mod:`gpflow_pep.training.points`); 100 with minibatches, neighbours or inducing variables
        of your own.
    :param alpha: The power, in [0, 1]: 0 is variational inference, 1 EP (FITC). "mix": a mixture of
        0, 0.5 and 1 (:func:`~gpflow_pep.training.mixtures.mix_alphas`). "auto": that with Gaussian
        noise, without minibatches and neighbours; otherwise 0.5. Several: of them the one whose
        trained model has the highest leave-one-out log density
        (:func:`~gpflow_pep.training.alphas.select_alpha`).
    :param objective: "evidence" or, without neighbours, "evidence+loo", see
        :func:`~gpflow_pep.training.full_batch.maximise`. The second one predicts better on many
        tables, and far worse on some that are small and noisy: :doc:`/study`.
    :param likelihood: "gaussian"; "student_t"; "log_normal", Gaussian noise of log y, which the
        model then takes; "poisson", "negative_binomial" or "zero_inflated_poisson" (y counts, exp
        of f the rate); or a GPflow likelihood of one latent function, which is copied.
    :param inducing: Where inducing points start: "kmeans", "random" or "greedy_variance"; or points
        [M, D] or GPflow's inducing variables, for inputs as the model takes them.
    :param neighbours: How many near rows the conditional of each row knows, in training and in
        prediction (:doc:`/neighbours`); for a Gaussian likelihood without minibatches. 0: none.
    :param standardize: Whether the model takes inputs, and targets of likelihoods that give any
        number a density, standardised. Everything that goes in and comes out is in original units.
    :param max_iterations: The most steps of L-BFGS, or passes over the rows by minibatches.
    :param max_seconds: The most seconds of L-BFGS, without compilation; None: any number.
    :param batch_size: Rows in a minibatch; None: all rows at once. "auto": minibatches of 1000
        where there are more than 100 000 rows.
    :param random_state: A seed or generator of random numbers, for inducing points and batches.
    :param warm_start: Whether another ``fit`` starts from the parameters of the one before.
    :param verbose: Whether to show a bar on stderr.

    After ``fit``: ``model_``, a :class:`~gpflow_pep.training.mixed_model.MixedModel` where powers
    are mixed; ``posterior_``, which predicts in the model's units; ``alpha_scores_`` (of several
    powers, nats a row), ``n_features_in_``, ``feature_names_in_``; and, of the component of the
    largest weight, ``kernel_``, ``likelihood_``, ``inducing_variable_``, ``alpha_``, ``n_iter_``
    and ``record_`` (of :func:`~gpflow_pep.training.maximise`; None by minibatches or where it was
    loaded).

    .. seealso:: :class:`PEPClassifier`, :doc:`/estimators`, :doc:`/interpreting`, and
        :doc:`/how_long`.
    """

    def __init__(
        self,
        kernel: str | Kernel = "rbf",
        *,
        num_inducing: int | str = "auto",
        alpha: float | str | Sequence[float] = "auto",
        objective: str = "evidence",
        likelihood: str | Likelihood = "gaussian",
        inducing: Any = "kmeans",
        neighbours: int = 0,
        standardize: bool = True,
        max_iterations: int = 1000,
        max_seconds: float | None = None,
        batch_size: int | str | None = "auto",
        random_state: Any = None,
        warm_start: bool = False,
        verbose: bool = False,
    ) -> None:
        super().__init__(
            kernel,
            num_inducing=num_inducing,
            alpha=alpha,
            likelihood=likelihood,
            inducing=inducing,
            standardize=standardize,
            max_iterations=max_iterations,
            max_seconds=max_seconds,
            batch_size=batch_size,
            random_state=random_state,
            warm_start=warm_start,
            verbose=verbose,
        )
        self.neighbours = neighbours
        self.objective = objective

    def fit(self, X: Any, y: Any, **refused: Any) -> "PEPRegressor":
        """
        Train on rows.

        :param X: Inputs, [N, D]: an array or a table.
        :param y: Targets, [N].
        :param refused: Nothing; ``sample_weight`` is refused with the reason.
        """
        refuse_weights(refused)
        X, y = self._validate(X, y, y_numeric=True)
        likelihood = self._make_likelihood()
        if self.neighbours:
            self._check_neighbours(len(X), likelihood)
        Y = np.asarray(y, dtype=X.dtype)[:, None]
        scaled = self.standardize and _takes_any_number(likelihood)
        logarithm = self.likelihood == "log_normal"
        self._target = TargetUnits.fit(Y, scaled=scaled, logarithm=logarithm)
        self._train(X, self._target.transform(Y))
        return self

    def predict(
        self, X: Any, return_std: bool = False, return_cov: bool = False
    ) -> AnyNDArray | tuple[AnyNDArray, AnyNDArray]:
        """
        Predict y.

        :param X: Inputs, [N, D].
        :param return_std: Also the standard deviation of y, noise included, [N].
        :param return_cov: Instead its covariance over rows, [N, N]; for a Gaussian likelihood.
        :return: The mean, [N], and what else was asked for.
        """
        if return_std and return_cov:
            remedy = "The standard deviation is the root of the covariance's diagonal."
            raise refusal("return_std, return_cov", "both", "at most one", remedy)
        X = self._inputs(X)
        if return_cov:
            mean, covariance = self._joint(X)
            return self._target.inverse_transform(mean), self._target.scale**2 * covariance
        if self._numpy_mixture is not None:
            mean, variance = predict_targets(self._numpy_mixture, X, self._target.numbers)
        else:
            predict = partial(self._target.predict_y, self.posterior_)
            mean, variance = (part[:, 0] for part in self._predicted(X, predict, PREDICTION_CHUNK))
        return (mean, np.sqrt(variance)) if return_std else mean

    def predict_quantiles(self, X: Any, quantiles: Any = (0.05, 0.5, 0.95)) -> AnyNDArray:
        """
        Predict quantiles of y, [N, Q].

        They are exact for a Gaussian likelihood and "log_normal", otherwise of 4000 draws at each
        row.

        :param X: Inputs, [N, D].
        :param quantiles: Q probabilities in (0, 1).
        """
        check_is_fitted(self)
        values = self._model_quantiles(X, as_probabilities(quantiles))
        return self._target.inverse_transform(values)

    def _model_quantiles(self, X: Any, quantiles: AnyNDArray) -> AnyNDArray:
        """Predict quantiles in the model's units, [N, Q]."""
        X = self._inputs(X)

        def exact(rows: AnyNDArray) -> Any:
            if self._numpy_mixture is not None:
                return predict_quantiles(self._numpy_mixture, rows, quantiles)
            return self.posterior_.predict_quantiles(rows, quantiles)[:, 0]

        def of_draws(rows: AnyNDArray) -> Any:
            y = self.posterior_.predict_y_samples(rows, _DRAWS, full_cov=False, seed=0)
            return np.quantile(y[..., 0], quantiles, axis=0).T

        gaussian = traits(self.likelihood_).is_gaussian
        predict, chunk_size = (exact, PREDICTION_CHUNK) if gaussian else (of_draws, _DRAWN_ROWS)
        (values,) = self._predicted(X, predict, chunk_size)
        return values

    def predict_interval(
        self, X: Any, coverage: float = 0.9, *, calibrate: str | None = None
    ) -> AnyNDArray:
        """
        Predict intervals that hold y with a given probability, [N, 2].

        They end at the quantiles (1 - coverage) / 2 and (1 + coverage) / 2, or at others that rows
        which were left out say (:mod:`gpflow_pep.estimators.intervals`): about the right fraction
        of these lies inside, even where the predicted distribution is too narrow or too wide. One
        correction is made for all rows, so that some regions can still have too few.

        :param X: Inputs, [N, D].
        :param coverage: The probability, in (0, 1).
        :param calibrate: Which rows correct the intervals. "loo": the training rows, each by the
            model without its site, for no extra training; the hyperparameters have seen the row, so
            that intervals can still be narrow. "folds": the training rows by five estimators, each
            trained without a fifth of the rows when this is called first, which is what to take
            where coverage matters. None: no correction.
        :raises ValueError: If an argument is outside its range; with ``calibrate``, if the
            likelihood is not Gaussian, rows cannot be left out, or there are too few of them.
        """
        check_is_fitted(self)
        ends = as_coverage(coverage)
        check_choice("calibrate", calibrate, ("loo", "folds", None), "Leave it out if in doubt.")
        if calibrate is None:
            return self.predict_quantiles(X, ends)
        score = conformal_score(self._normal_scores(calibrate), coverage)
        ends = interval(partial(self._model_quantiles, X), score)
        return self._target.inverse_transform(ends)

    def _normal_scores(self, calibrate: str) -> AnyNDArray:
        """Give the scores of training rows under predictions without them, computed once."""
        if calibrate not in self._known_scores:
            model = heaviest(self.model_)
            if not traits(self.likelihood_).is_gaussian or not hasattr(model, "data"):
                got = f"{calibrate!r} with {type(self.likelihood_).__name__} or minibatches"
                expected = "Gaussian noise, and a model that holds its rows"
                raise refusal("calibrate", got, expected, "Pass calibrate=None.")
            if calibrate == "loo":
                self._known_scores[calibrate] = loo_scores(self.model_)
            else:
                X, Y = map(np.asarray, model.data)
                X, Y = self._scaler.inverse_transform(X), self._target.inverse_transform(Y)
                self._known_scores[calibrate] = fold_scores(self, X, Y[:, 0])
        return self._known_scores[calibrate]

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0) -> AnyNDArray:
        """
        Draw y jointly at some rows, [N, n_samples].

        :param X: Inputs, [N, D].
        :param n_samples: How many draws.
        :param random_state: A seed or generator of random numbers.
        """
        X = self._inputs(X)
        check_positive("n_samples", n_samples)
        seed = check_random_state(random_state).randint(2**31 - 1)
        draws = self.posterior_.predict_y_samples(X, n_samples, seed=seed)
        return self._target.inverse_transform(draws.numpy()[..., 0].T)

    def log_score(self, X: Any, y: Any) -> float:
        """
        Compute the mean log predictive density of rows, in nats, in the original units of y.

        :param X: Inputs, [N, D].
        :param y: Targets, [N].
        """
        return float(np.mean(self.log_densities(X, y)))

    def log_densities(self, X: Any, y: Any) -> AnyNDArray:
        """
        Compute the log predictive density of each row, [N]; see :meth:`log_score`.

        :param X: Inputs, [N, D].
        :param y: Targets, [N].
        """
        X = self._inputs(X)
        y = column_or_1d(check_array(y, ensure_2d=False, dtype=X.dtype))
        check_consistent_length(X, y)
        Y = self._target.transform(y[:, None])
        rows = np.hstack([X, Y])

        mixture = self._numpy_mixture if traits(self.likelihood_).is_gaussian else None

        def density(rows: AnyNDArray) -> Any:
            if mixture is not None:
                return predict_log_densities(mixture, rows[:, :-1], rows[:, -1])
            return self.posterior_.predict_log_density((rows[:, :-1], rows[:, -1:]))

        (densities,) = self._predicted(rows, density, PREDICTION_CHUNK)
        return densities + self._target.log_slope(y)

    def _make_likelihood(self) -> Likelihood:
        gaussian = self.likelihood in ("gaussian", "log_normal")
        arguments = (NOISE_VARIANCE,) if gaussian else ()
        return make_likelihood(self.likelihood, NUMBERS, *arguments)

    def _make_model(
        self, data: tuple[AnyNDArray, AnyNDArray], *parts: Any, alpha: float
    ) -> GPModel:
        kernel, likelihood, points = parts
        if traits(likelihood).is_gaussian:
            options: dict[str, Any] = {"alpha": alpha, "neighbours": self.neighbours}
            return PEPRegression(data, kernel, points, likelihood=likelihood, **options)
        return PEP(data, kernel, likelihood, points, alpha=alpha)

    def _check_neighbours(self, num_rows: int, likelihood: Likelihood) -> None:
        several = self.alpha == "mix" if isinstance(self.alpha, str) else np.ndim(self.alpha) > 0
        if several or self._batch_size(num_rows) or not traits(likelihood).is_gaussian:
            raise refusal(
                "neighbours",
                f"{self.neighbours!r} with several alphas, minibatches or another likelihood than a"
                " Gaussian one",
                "0 there",
                "Pass alpha as a number, batch_size=None and likelihood='gaussian', or leave"
                " neighbours out.",
            )

    def _mean_log_slope(self, Y: AnyNDArray) -> float:
        return float(np.mean(self._target.log_slope(self._target.inverse_transform(Y))))

    def _joint(self, X: AnyNDArray) -> tuple[AnyNDArray, AnyNDArray]:
        """Predict y jointly in the model's units: mean [N] and covariance [N, N]."""
        logarithm = self._target.logarithm
        if logarithm or not traits(self.likelihood_).is_gaussian:
            raise refusal(
                "return_cov",
                f"it with {'log_normal' if logarithm else type(self.likelihood_).__name__}",
                "a Gaussian likelihood: y is not Gaussian",
                "Ask for return_std, or draw with sample_y.",
            )
        mean, covariance = self.model_.predict_f(X, full_cov=True)
        posterior = self.posterior_
        noise = sum(
            weight * likelihood.variance_at(X)[:, 0]
            for weight, likelihood in zip(posterior.weights.numpy(), posterior.likelihoods)
        )
        return np.asarray(mean)[:, 0], np.asarray(covariance[0] + tf.linalg.diag(noise))

    def _mixes(self) -> bool:
        return not self.neighbours and traits(self._make_likelihood()).is_gaussian

    def _objective(self) -> str:
        return self.objective

    def _can_grow(self, batch_size: int | None) -> bool:
        return super()._can_grow(batch_size) and not self.neighbours


def _takes_any_number(likelihood: Likelihood) -> bool:
    """Whether targets may be shifted and scaled: whether negative ones, fractions and numbers of
    any size have a probability."""
    probes = np.array([[-0.5], [0.5], [-_LARGE], [_LARGE]])
    inside, _ = support.dispatch_or_raise(type(likelihood))(likelihood, probes)
    return bool(np.all(inside))
