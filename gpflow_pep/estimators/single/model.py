"""One model that is trained with given settings: inputs, training, its posterior, and
far rows.
"""

from __future__ import annotations

import abc
import time
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from sklearn.preprocessing import StandardScaler

from ...distributions import Predictive, Units, YeoJohnson
from ...distributions.mixtures import FAR, far_by_components
from ...engine.left_out_rows import LEAST_ROWS
from ...engine.records import OVER, MaximiseRecord
from ...engine.refusals import as_code, counted, refusal
from ...engine.refusals.arrays import AnyNDArray
from ...engine.refusals.numbers import check_positive
from ...scoring.components import Component, component_of, far_rows
from .exact import Hyperparameters
from .exact_model import ExactModel
from .inputs import YEO_JOHNSON, fit_yeo_johnson
from .settings import ROWS, ModelSettings, wants_near_rows
from .target_units import log_slopes
from .when_used import (
    alphas,
    ensemble,
    entries,
    factors,
    gpflow,
    numpy_parts,
    objectives,
    parts,
    prior,
    tf,
    trainer,
)

#: ``num_inducing="auto"`` starts with the first number of inducing points and adds
#: others as long as a score rises. With thousands of rows it starts with the second
#: number. If it cannot add any, for example with minibatches, it is the second number.
FIRST_POINTS = 25
MANY_POINTS = 100
#: Rows predicted at a time: enough for fast matrix products, few enough to need little
#: memory.
PREDICTION_CHUNK = 10_000
#: Above the first number of rows, ``batch_size="auto"`` trains with minibatches of the
#: second number.
MOST_ROWS = 100_000
BATCH_SIZE = 1000
#: The settings on which a compiled loss depends.
COMPILED = (
    "kernel",
    "noise",
    "objective",
    "likelihood",
    "near_rows",
    "time",
    "ard",
    "num_classes",
)

Fitted = TypeVar("Fitted", bound="SingleModel")


class SingleModel(abc.ABC):
    """One model that is trained with given settings, or an ensemble of models at
    several powers.

    ``model``, ``record``, ``num_iterations``, ``alpha_scores`` and ``scaler`` exist
    after ``fit``. They have the meaning of ``model_``, ``record_``, ``n_iter_``,
    ``alpha_scores_`` and ``input_scaler_`` of
    :class:`PEPRegressor <gpflow_pep.estimators.PEPRegressor>`. In all methods rows are
    inputs, [N, D], in original units.

    :param settings: The settings.
    """

    record: MaximiseRecord | None = None
    num_iterations: int
    alpha_scores: dict[float, float] | None = None
    scaler: StandardScaler | YeoJohnson
    #: The units of targets; None for classes.
    units: Units | None = None
    #: The exact model that predicts with NumPy; None for other models.
    exact: ExactModel | None = None
    #: The number of outputs of the model.
    num_outputs: int = 1
    #: How the model was trained, and its predictions of left-out rows; None if it was
    #: not trained in this way, or if it was loaded.
    judged: trainer.Trained | None = None

    def __init__(self, settings: ModelSettings) -> None:
        self.settings = settings
        self._model: Any = None
        self._posterior: ensemble.EnsemblePosterior | None = None
        self._numpy_components: tuple[Component, ...] | None = None
        #: What a model predicts of its own rows, each left out; None until then.
        self._left_out: Predictive | None = None

    @abc.abstractmethod
    def fit(
        self: Fitted,
        X: AnyNDArray,
        Y: AnyNDArray,
        *,
        before: SingleModel | None = None,
    ) -> Fitted:
        """Train on rows X, with targets Y [N, P].

        :param before: A model of the same kind from which a warm start begins.
        """

    @abc.abstractmethod
    def make_likelihood(self) -> gpflow.likelihoods.Likelihood:
        """Make the likelihood of targets in the model's units."""

    @abc.abstractmethod
    def make_model(
        self, data: tuple[AnyNDArray, AnyNDArray], *parts: Any, alpha: float
    ) -> gpflow.models.GPModel:
        """Make the model of kernel, likelihood and inducing variables, which holds its
        rows.
        """

    def make_kernel(self, X: AnyNDArray, Y: AnyNDArray) -> gpflow.kernels.Kernel:
        """Make the kernel of rows in the model's units."""
        return parts.make_kernel(self.settings.kernel, X.shape[1], self.settings.ard)

    def loss_holder(self, model: gpflow.models.GPModel) -> Any:
        """Return the object that holds the data and the loss of a model."""
        return model

    @property
    def columns(self) -> list[int] | None:
        """The columns of the model's probabilities in the order of the classes; None
        for numbers.
        """
        return None

    @property
    def model(self) -> gpflow.models.GPModel | ensemble.Ensemble:
        """The trained model."""
        model: gpflow.models.GPModel | ensemble.Ensemble = self._model
        return model

    @property
    def main(self) -> gpflow.models.GPModel:
        """The model; in an ensemble, the model with the largest weight."""
        return ensemble.heaviest(self.model)

    @property
    def kernel(self) -> gpflow.kernels.Kernel:
        """The kernel of the main model."""
        return self.main.kernel

    @property
    def likelihood(self) -> gpflow.likelihoods.Likelihood:
        """The likelihood of the main model."""
        return self.main.likelihood

    @property
    def has_gaussian_noise(self) -> bool:
        """Whether each target in the model's units is f plus Gaussian noise."""
        return self.exact is not None or entries.has_gaussian_noise(self.likelihood)

    @property
    def rows(self) -> tuple[AnyNDArray, AnyNDArray] | None:
        """The inputs and targets in the main model, in its units; None if it does not
        hold rows.
        """
        if self.exact is not None:
            return self.exact.X, self.exact.t[:, None]
        if not hasattr(self.main, "data"):
            return None
        X, Y = map(np.asarray, self.main.data)
        return X, Y

    @property
    def inducing_variable(self) -> Any:
        """The inducing variable of the main model; None if it has none."""
        return getattr(self.main, "inducing_variable", None)

    @property
    def alpha(self) -> float:
        """The power of the main model; NaN if it has none."""
        main = self.main
        return float(main.alpha.numpy()) if hasattr(main, "alpha") else np.nan

    @property
    def num_inducing(self) -> int:
        """The number of inducing variables, for each latent function."""
        return int(self.inducing_variable.num_inducing)

    @property
    def num_near_rows(self) -> int:
        """The number of near training rows that predictions use."""
        return max(
            (near.number for near in ensemble.near_rows(self.model) if near), default=0
        )

    def set_model(
        self, model: gpflow.models.GPModel | ensemble.Ensemble | None
    ) -> None:
        """Take a trained model, from which the posterior follows; None before an exact
        model is taken.
        """
        self._model = model
        self.exact = None
        self._posterior = None
        self._numpy_components = None
        self._left_out = None

    @property
    def posterior(self) -> ensemble.EnsemblePosterior:
        """The posterior of the model, which predicts f and y at inputs in the model's
        units.
        """
        if self._posterior is None:
            self._posterior = ensemble.ensemble_posterior(self.model)
        return self._posterior

    def mixture_in_numpy(self) -> tuple[tuple[Component, ...], AnyNDArray]:
        """Get the components that predict with NumPy, much faster, and their weights;
        no components if NumPy has no form of this model.
        """
        if self.exact is not None:
            if self._numpy_components is None:
                self._numpy_components = (component_of(self.exact.posterior.component),)
            return self._numpy_components, np.ones(1)
        if self._numpy_components is None:
            self._numpy_components = numpy_parts.numpy_components(self.posterior)
        # The weights have no transform, and reading them through one takes longer than
        # the prediction of a row.
        weights = self.posterior.weights.unconstrained_variable.numpy()
        return self._numpy_components, weights

    def describe(self) -> str:
        """Describe the model in a line."""
        members = [
            *zip(
                *ensemble.components(self.model),
                ensemble.near_rows(self.model),
                strict=True,
            )
        ]
        powers = []
        for model, weight, near in members:
            words = f"power {model.alpha.numpy():g}" if hasattr(model, "alpha") else ""
            if near:
                words += " with near rows"
            if len(members) > 1:
                words += f" (weight {weight:.2f})"
            if words:
                powers.append(words)
        points = getattr(self.record, "points", ())
        tried = [str(score.num_inducing) for score in points]
        if self.record is not None and tried and self.record.message.startswith(OVER):
            tried.append("and no more, because the time ran out")
        number = counted(self.num_inducing, "inducing point")
        text = f"{type(self.main).__name__} with the kernel"
        text += f" {type(self.kernel).__name__} and {number}"
        if tried:
            text += f" (tried: {', '.join(tried)})"
        return f"{', '.join([text, *powers])}."

    def scale_rows(self, X: AnyNDArray) -> AnyNDArray:
        """Fit the scaling of inputs, and scale them to the model's units."""
        settings = self.settings
        if settings.inputs == YEO_JOHNSON:
            self.scaler = fit_yeo_johnson(X, settings.time)
            return self.in_units(X)
        scales = settings.standardize
        scaler = StandardScaler(with_mean=scales, with_std=scales)
        # The user may have asked scikit-learn for tables: sklearn.set_config.
        self.scaler = scaler.set_output(transform="default").fit(X)
        scaled: AnyNDArray = self.scaler.transform(X)
        return scaled

    def in_units(self, X: AnyNDArray) -> AnyNDArray:
        """Scale inputs from original units to the model's."""
        scaler = self.scaler
        if isinstance(scaler, YeoJohnson):
            return scaler.transform(X)
        # This skips the scaler's own checks, which take as long as the checks before.
        if scaler.with_mean:
            X = X - scaler.mean_.astype(X.dtype, copy=False)
        scaled: AnyNDArray = X / scaler.scale_.astype(X.dtype) if scaler.with_std else X
        return scaled

    def train(
        self,
        X: AnyNDArray,
        Y: AnyNDArray,
        before: SingleModel | None = None,
        start: Hyperparameters | None = None,
    ) -> None:
        """Train on inputs [N, D] and targets [N, P] in the model's units.

        :param before: A model from which a warm start begins.
        :param start: Initial hyperparameters of a kernel that was chosen by name; None
            keeps those with which it is made.
        """
        seed = self.settings.seed
        batch_size = self._batch_size(len(X))
        likelihood = self.make_likelihood()
        attempts = self.attempts(len(X), likelihood, batch_size)
        kernel = self.make_kernel(X, Y)
        if start is not None:
            parts.start_at(start, kernel, likelihood)
        points = self._first_points(X, Y, kernel, likelihood, attempts)
        # Start with the power in the middle, because the others are not far from it.
        alpha = attempts.alphas[len(attempts.alphas) // 2]
        of_model = kernel, likelihood, points
        if batch_size is not None:
            model: Any = trainer.tied_model(Y, *of_model, alpha=alpha)
        else:
            model = self.make_model((X, Y), *of_model, alpha=alpha)
        if before is not None:
            objectives.assign_same(
                model, ensemble.heaviest(before.model, from_points=True)
            )
        training = self.training()
        if batch_size is not None:
            options = batch_size, seed, attempts.end
            self.num_iterations = trainer.train_by_batches(
                training, model, (X, Y), *options
            )
        else:
            few = points.num_inducing < len(np.unique(X, axis=0))
            attempts = attempts._replace(grows=attempts.grows and bool(few))
            trained = trainer.train_model(training, model, (X, Y), attempts, seed)
            model = trained.model
            self.record = trained.record
            self.judged = trained
            self.num_iterations = trained.record.iterations
            if trained.scores is not None:
                slope = self._mean_log_slope(likelihood, Y)
                self.alpha_scores = {
                    a: float(b) + slope for a, b in trained.scores.items()
                }
        self.finish(self.with_near_labels(model, (X, Y)))

    def finish(self, model: gpflow.models.GPModel | ensemble.Ensemble) -> None:
        """Take a trained model, and prepare what predicts."""
        self.set_model(model)
        self.mixture_in_numpy()

    def with_near_labels(
        self,
        model: gpflow.models.GPModel | ensemble.Ensemble,
        data: gpflow.base.RegressionData,
    ) -> gpflow.models.GPModel | ensemble.Ensemble:
        """Mix a model with another one that is trained to predict from near rows, if
        that is better.
        """
        return model

    def _first_points(
        self,
        X: AnyNDArray,
        Y: AnyNDArray,
        kernel: Any,
        likelihood: gpflow.likelihoods.Likelihood,
        attempts: trainer.Attempts,
    ) -> Any:
        """Make the inducing variable that training starts with."""
        settings = self.settings
        base, *_ = getattr(kernel, "latent_kernels", [kernel])
        several = factors.check_num_latent(None, likelihood, tf.constant(Y)) > 1
        many = len(X) >= LEAST_ROWS and (
            entries.has_gaussian_noise(likelihood) or several
        )
        count = MANY_POINTS
        if attempts.grows and (prior.is_mixed(kernel) or not many):
            count = FIRST_POINTS
        if not isinstance(settings.num_inducing, str):
            count = int(settings.num_inducing)
        elif self.has_rows_as_points:
            count = len(X)
        return parts.make_inducing_variable(
            settings.inducing, X, count, base, settings.seed
        )

    @property
    def has_rows_as_points(self) -> bool:
        """Whether inducing points are rows, or centres of rows, and are not trained."""
        inducing = self.settings.inducing
        return isinstance(inducing, str) and inducing == ROWS

    def _mean_log_slope(
        self, likelihood: gpflow.likelihoods.Likelihood, Y: AnyNDArray
    ) -> float:
        """Compute the mean difference of a row's log density in the units of y from its
        log density in the units of the model.
        """
        if self.units is None:
            return 0.0
        slopes = np.nansum(log_slopes(self.units, likelihood, Y), axis=1)
        return float(np.mean(slopes))

    def attempts(
        self,
        num_rows: int,
        likelihood: gpflow.likelihoods.Likelihood,
        batch_size: int | None,
    ) -> trainer.Attempts:
        """Decide what training tries."""
        settings = self.settings
        alpha = settings.alpha
        is_word = isinstance(alpha, str) and alpha in ("auto", "mix")
        mixes = is_word and alpha == "mix"
        judged = False
        powers: tuple[float, ...]
        if is_word:
            judged = batch_size is None and entries.has_gaussian_noise(likelihood)
            mixes |= judged and (num_rows < LEAST_ROWS or settings.max_seconds is None)
            powers = alphas.ALPHAS if mixes else (0.5,)
        else:
            powers = self._powers()
        if batch_size is not None and len(powers) > 1:
            got = f"{as_code(alpha)} with minibatches"
            remedy = "Pass a number, or batch_size=None."
            expected = (
                "a single number, because leaving rows out needs a site for each row"
            )
            raise refusal("alpha", got, expected, remedy)
        grows = settings.num_inducing == "auto" and batch_size is None
        grows &= isinstance(settings.inducing, str) and not self.has_rows_as_points
        near = wants_near_rows(settings.near_rows) and (grows or mixes or judged)
        end = time.perf_counter() + self.seconds_of_points(num_rows)
        return trainer.Attempts(powers, mixes, grows, near, end)

    def _powers(self) -> tuple[float, ...]:
        """Return the powers that the user passed as numbers."""
        alpha: Any = self.settings.alpha
        if isinstance(alpha, str) or np.asarray(alpha).dtype == bool:
            expected = "a number in [0, 1], several numbers, 'mix' or 'auto'"
            remedy = "Leave it out if in doubt."
            raise refusal("alpha", as_code(alpha), expected, remedy)
        return alphas.check_alphas(alpha) if np.ndim(alpha) else (alpha,)

    def seconds_of_points(self, num_rows: int) -> float:
        """Return the time limit, in seconds, for training the predictions from inducing
        points.
        """
        seconds = self.settings.max_seconds
        return np.inf if seconds is None else seconds

    def training(self) -> trainer.Training:
        """Return the settings of the loops that train."""
        settings = self.settings
        objective: objectives.Objective = settings.objective
        if objective == "evidence" and not isinstance(settings.ard, bool | np.bool_):
            objective = objectives.near_lengthscales(float(settings.ard))
        return trainer.Training(
            objective=objective,
            max_iterations=settings.max_iterations,
            progress=settings.verbose,
            cache_key=self._cache_key(),
            holder=self.loss_holder,
            drops_powers=isinstance(settings.alpha, str) and settings.alpha == "auto",
        )

    def _batch_size(self, num_rows: int) -> int | None:
        """Return the number of rows in a batch; None for all rows."""
        batch_size = self.settings.batch_size
        several = self.num_outputs > 1
        if batch_size == "auto":
            return BATCH_SIZE if num_rows > MOST_ROWS and not several else None
        if batch_size is None:
            return None
        if isinstance(batch_size, str) or several:
            got = repr(batch_size)
            expected = "'auto' or None (all rows at once)"
            if several:
                got += " with several columns of y"
            else:
                expected = f"a number of rows, {expected}"
            raise refusal("batch_size", got, expected, "Leave it out if in doubt.")
        return min(check_positive("batch_size", batch_size), num_rows)

    def _cache_key(self) -> tuple[Any, ...] | None:
        """Return everything that a compiled loss depends on, except the shapes of
        parameters and of X's columns.

        None if that is not known, because a kernel, a likelihood or inducing variables
        of the user may be anything.
        """
        values = [getattr(self.settings, name) for name in COMPILED]
        plain = str, int, float, bool, type(None)
        named = all(isinstance(value, plain) for value in values)
        if not named or isinstance(
            self.settings.inducing, gpflow.inducing_variables.InducingVariables
        ):
            return None
        eager = tf.config.functions_run_eagerly()
        device = tf.zeros([]).device
        return type(self), *values, gpflow.config.config(), eager, device

    def far_rows(self, rows: AnyNDArray) -> AnyNDArray:
        """Find for each row, [N], whether the model has nearly no information on it."""
        X = self.in_units(rows)
        members, weights = self.mixture_in_numpy()
        if members:
            far = far_rows(members, weights, X)
        else:
            models = ensemble.components(self.model)[0]
            posteriors = self.posterior.posteriors
            far = np.isnan(X).all(axis=1) | far_by_components(
                weights, lambda k: self._is_far(models[k], posteriors[k], X)
            )
        if isinstance(self.scaler, YeoJohnson):
            far = far | self.scaler.are_cut(rows)
        return far

    def _is_far(
        self, model: gpflow.models.GPModel, posterior: Any, X: AnyNDArray
    ) -> AnyNDArray:
        """Find far rows with TensorFlow, as :mod:`gpflow_pep.scoring.components` does
        with NumPy.
        """
        (variance,) = self.predicted(
            X, lambda rows: posterior.predict_f(rows)[1], PREDICTION_CHUNK
        )
        options = {"full_output_cov": False} if prior.is_mixed(model.kernel) else {}
        of_prior = np.asarray(model.kernel(X, full_cov=False, **options))
        shares = np.min(variance / of_prior.reshape(len(X), -1), axis=1)
        return np.asarray(~(shares <= FAR))  # also if X is unknown

    def predicted(
        self,
        X: AnyNDArray,
        predict: Callable[[AnyNDArray], Any],
        chunk_size: int = PREDICTION_CHUNK,
    ) -> list[AnyNDArray]:
        """Predict chunks of rows, and join each part that ``predict`` returns over all
        rows.
        """
        chunks = range(0, max(len(X), 1), chunk_size)
        parts = [
            tf.nest.flatten(predict(X[start : start + chunk_size])) for start in chunks
        ]
        return [
            np.concatenate([np.asarray(p) for p in part])
            for part in zip(*parts, strict=True)
        ]

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what is computed again when it is needed."""
        made_again = dict.fromkeys(
            ("_posterior", "_numpy_components", "_left_out", "judged")
        )
        return {**vars(self), **made_again}
