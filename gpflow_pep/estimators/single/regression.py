"""One model of numbers that is trained with given settings: targets in the model's
units, exact training, and predictions of rows.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from ...distributions import Predictive, Units
from ...distributions.predictive import require_finite
from ...engine.refusals import counted, refusal
from ...engine.refusals.arrays import AnyNDArray
from ...scoring.components import predictive, predictive_of_f
from .exact import KERNELS, Hyperparameters, find_start, fit_exact
from .exact_model import POWER, ExactModel
from .model import PREDICTION_CHUNK, SingleModel
from .outputs import have_units, make_output_kernel
from .settings import ROWS, ModelSettings
from .target_units import fit_units, likelihood_in, log_slopes, spread_of, to_model
from .when_used import (
    ensemble,
    entries,
    factors,
    gpflow,
    likelihoods,
    mixing,
    models,
    parts,
    prior,
    tf,
)

#: Initial noise variance: a tenth of the variance of standardised targets.
NOISE_VARIANCE = 0.1
#: The largest number of rows of an exact model. An evaluation then takes 70 ms; its
#: time grows with the cube of the number.
EXACT_ROWS = 1000
#: The number of rows of a scout, an exact model of some rows that chooses transforms.
SCOUT_ROWS = 600
#: The share of the time limit that a scout may use. Without a limit it takes .5 to 1.2
#: s.
SCOUT_SHARE = 0.2
#: With a shorter time limit, in seconds, there is no scout, because a scout takes 1.5
#: s. With 6 s it gains .31 and .19 nats on two tables of 5000 rows with skewed inputs
#: and targets, and loses .03 on kin8nm (with 10 s .00).
LEAST_SECONDS = 5.0
#: Likelihoods with Gaussian noise, on y or on log y.
GAUSSIAN = "gaussian", "log_normal"
#: The number of draws of y at each row, for quantiles without a closed form.
DRAWS = 4000
#: The number of rows whose draws are in memory at a time.
DRAWN_ROWS = 500


def likelihood_of_output(
    settings: ModelSettings, num_inputs: int
) -> gpflow.likelihoods.Likelihood:
    """Make the likelihood of one output, in units of the targets."""
    if settings.noise == "varying":
        return gpflow.likelihoods.Gaussian(variance=likelihoods.LogLinear(num_inputs))
    has_variance = settings.likelihood in (*GAUSSIAN, "tobit")
    options = {"variance": NOISE_VARIANCE} if has_variance else {}
    return parts.make_likelihood(settings.likelihood, parts.NUMBERS, **options)


def likelihood_of_outputs(
    settings: ModelSettings, num_inputs: int, num_outputs: int
) -> gpflow.likelihoods.Likelihood:
    """Make the likelihood of all outputs, in units of the targets."""
    mixed = prior.is_mixed(settings.kernel) or settings.num_latent != 0
    one = likelihood_of_output(settings, num_inputs)
    name = settings.likelihood
    if num_outputs == 1 or not mixed or not isinstance(name, str):
        return one
    others = (
        likelihood_of_output(settings, num_inputs) for _ in range(num_outputs - 1)
    )
    return likelihoods.PerOutput([one, *others])


def scalable_outputs(
    settings: ModelSettings, num_inputs: int, num_outputs: int
) -> AnyNDArray:
    """Find for each output, [P], whether its targets may be shifted and scaled."""
    if settings.likelihood in GAUSSIAN:
        return np.ones(num_outputs, dtype=bool)
    likelihood = likelihood_of_outputs(settings, num_inputs, num_outputs)
    return have_units(likelihood, num_outputs)


def count_outputs(settings: ModelSettings, num_inputs: int, num_columns: int) -> int:
    """Count the outputs of y. Further columns may hold other data for the likelihood,
    such as limits.
    """
    if settings.likelihood in GAUSSIAN:
        return num_columns
    likelihood = likelihood_of_output(settings, num_inputs)
    is_one = factors.layout_of(likelihood, num_columns) == (num_columns, 1)
    return 1 if is_one else num_columns


class SingleRegressor(SingleModel):
    """One model of numbers that is trained with given settings.

    ``units`` are the units of targets in the model, after ``fit``.
    """

    units: Units

    def fit(
        self,
        X: AnyNDArray,
        Y: AnyNDArray,
        *,
        before: SingleModel | None = None,
        start: Hyperparameters | None = None,
        warps: AnyNDArray | None = None,
    ) -> SingleRegressor:
        """Train on rows X, with targets Y [N, P].

        :param before: A model from which a warm start begins.
        :param start: The initial hyperparameters and the warp of one column.
        :param warps: Skew and tails of each column, [P, 2], if known.
        """
        settings = self.settings
        self.num_inputs = X.shape[1]
        self.num_outputs = count_outputs(settings, self.num_inputs, Y.shape[1])
        if isinstance(before, SingleRegressor) and start is None:
            start = before.hyperparameters()
        if self.num_outputs > 1:
            start = None
        in_units = scalable_outputs(settings, self.num_inputs, self.num_outputs)
        logarithm = settings.likelihood == "log_normal"
        scaled = settings.standardize & in_units
        self.units = fit_units(Y, scaled=scaled, logarithm=logarithm)
        X = self.scale_rows(X)
        Y = to_model(self.units, Y)
        if self.is_exact:
            self._train_exactly(X, Y, start)
            return self
        if settings.warp is True:
            if warps is None:
                warps = self._choose_warps(X, Y, start)
            Y = self._warp(warps, Y)
        is_named = isinstance(settings.kernel, str) and self.num_outputs == 1
        is_gaussian = str(settings.likelihood) in GAUSSIAN
        if not (is_named and is_gaussian and settings.standardize):
            start = None
        elif start is None or len(start.log_lengthscales) != X.shape[1]:
            start = self._find_start(X, Y)
        self.train(X, Y, before, start)
        return self

    def hyperparameters(self) -> Hyperparameters | None:
        """Read the hyperparameters that the model shares with an exact one."""
        if self.exact is not None:
            return self.exact.theta
        if self.num_outputs > 1 or not hasattr(self.main, "data"):
            return None
        return parts.hyperparameters_of(self.main, self.units.skew, self.units.tails)

    @property
    def is_exact(self) -> bool:
        """Whether the model is trained with the evidence of the exact model."""
        settings = self.settings
        choices = (settings.num_inducing, settings.objective, settings.batch_size)
        if not self.has_rows_as_points or choices != ("auto", "evidence", "auto"):
            return False
        if not settings.standardize and (
            settings.kernel == "additive" or settings.time is not None
        ):
            return False
        if str(settings.kernel) not in ("auto", *KERNELS) or self.num_outputs > 1:
            return False
        return settings.likelihood in GAUSSIAN

    def _train_exactly(
        self, X: AnyNDArray, Y: AnyNDArray, start: Hyperparameters | None
    ) -> None:
        """Train with the evidence of the exact model."""
        settings = self.settings
        kernel = str(settings.kernel).replace("auto", "rbf")
        varying = settings.noise == "varying"
        scale = np.ones(X.shape[1])
        level = 1.0
        mean_square = 1.0
        if not settings.standardize:
            scale = spread_of(X)
            level = float(spread_of(Y)[0])
            mean_square = max(float(np.mean((Y / level) ** 2)), 1.0)
        if start is not None:
            start = start.rescaled(1.0 / scale, 1.0 / level)
        theta, record = fit_exact(
            X / scale,
            Y[:, 0] / level,
            start,
            kernel=kernel,
            varying=varying,
            warp=settings.warp is True,
            input_of_line=settings.time,
            ard=settings.ard,
            mean_square=mean_square,
            max_iterations=settings.max_iterations,
            deadline=self._end(),
        )
        theta = theta.rescaled(scale, level)
        log_z = record.objective - len(Y) * float(np.log(level))
        self.record = record._replace(objective=log_z)
        self.num_iterations = record.iterations
        if not record.converged:
            text = (
                f"Training ended after {counted(record.iterations, 'step')}:"
                f" {record.message} Raise max_iterations or max_seconds."
            )
            warnings.warn(text, ConvergenceWarning, stacklevel=5)
        t = self._warp(np.array([theta[4:6]]), Y)[:, 0]
        exact = ExactModel(theta, X, t, kernel, varying, settings.time)
        if exact.is_usable:
            self.set_model(None)
            self.exact = exact
            self.mixture_in_numpy()
        else:
            self.finish(self._made_of(exact))

    @property
    def model(self) -> gpflow.models.GPModel | ensemble.Ensemble:
        """The trained model. It is made now if an exact model predicts with NumPy."""
        if self._model is None and self.exact is not None:
            self._model = self._made_of(self.exact)
        return super().model

    def _made_of(self, exact: ExactModel) -> gpflow.models.GPModel:
        """Make the model of TensorFlow that equals an exact model."""
        settings = self.settings
        D = exact.X.shape[1]
        kernel = parts.with_line(
            parts.make_kernel(settings.kernel, D, settings.ard), settings.time
        )
        likelihood = self._likelihood_of_targets()
        parts.take_over(exact.theta, kernel, likelihood)
        points = parts.make_inducing_variable(
            ROWS, exact.X, len(exact.X), kernel, settings.seed
        )
        data = exact.X, exact.t[:, None]
        return self.make_model(data, kernel, likelihood, points, alpha=POWER)

    def _find_start(self, X: AnyNDArray, Y: AnyNDArray) -> Hyperparameters | None:
        """Find the initial hyperparameters of an exact model of some of the rows. None
        if there is no time for it, or if every row has an unknown input.
        """
        known = np.flatnonzero(~np.isnan(X).any(axis=1))
        seconds = self.settings.max_seconds
        has_time = seconds is None or seconds >= LEAST_SECONDS
        if not has_time or len(known) == 0:
            return None
        random = np.random.default_rng(self.settings.seed)
        rows = random.permutation(known)[:EXACT_ROWS]
        end = self._end(SCOUT_SHARE)
        return find_start(X[rows], Y[rows, 0], end, self.settings.time)

    def _choose_warps(
        self, X: AnyNDArray, Y: AnyNDArray, start: Hyperparameters | None
    ) -> AnyNDArray:
        """Choose skew and tails of each column, [P, 2], with an exact model of this
        column.
        """
        if start is not None:
            return np.tile([start[4:6]], (Y.shape[1], 1))
        rows = np.random.default_rng(self.settings.seed).permutation(len(X))
        # Several columns together take as long as one column.
        most = SCOUT_ROWS // min(Y.shape[1], 4)
        options: dict[str, Any] = {"varying": True, "warp": True}
        options["deadline"], warps = self._end(SCOUT_SHARE), []
        for y in Y.T:
            sample = rows[~np.isnan(y[rows])][:most]
            theta, _ = fit_exact(X[sample], y[sample], **options)
            warps.append(theta[4:6])
        return np.array(warps)

    def _end(self, share: float = 1.0) -> float:
        """Return the time at which training has to end if it may use this share of the
        time limit.
        """
        seconds = self.settings.max_seconds
        seconds = np.inf if seconds is None else seconds
        return time.perf_counter() + share * seconds

    def _warp(self, warps: AnyNDArray, Y: AnyNDArray) -> AnyNDArray:
        """Store skew and tails of each column, [P, 2], and warp the standardised
        targets.
        """
        skew, tails = np.transpose(warps)
        if len(warps) == 1:
            skew = skew[0]
            tails = tails[0]
        self.units = self.units._replace(skew=skew, tails=tails)
        return Units(skew=skew, tails=tails).transform(Y)

    def make_kernel(self, X: AnyNDArray, Y: AnyNDArray) -> gpflow.kernels.Kernel:
        settings = self.settings
        P = self.num_outputs
        kernel = super().make_kernel(X, Y)
        if isinstance(settings.kernel, str) and P == 1:
            kernel = parts.with_line(kernel, settings.time)
        likelihood = self._likelihood_of_targets()
        # At lower powers, training removes components on which the inducing variables
        # have no information.
        at_one = np.ndim(settings.alpha) == 0 and settings.alpha == 1.0
        shares_noise = at_one and entries.has_gaussian_noise(likelihood)
        in_units = have_units(likelihood, P)
        return make_output_kernel(
            kernel, X, Y[:, :P], settings.num_latent, in_units, shares_noise
        )

    def make_likelihood(self) -> gpflow.likelihoods.Likelihood:
        return likelihood_in(self.units, self._likelihood_of_targets())

    def _likelihood_of_targets(self) -> gpflow.likelihoods.Likelihood:
        return likelihood_of_outputs(self.settings, self.num_inputs, self.num_outputs)

    def make_model(
        self, data: tuple[AnyNDArray, AnyNDArray], *parts: Any, alpha: float
    ) -> gpflow.models.GPModel:
        kernel, likelihood, points = parts
        if entries.has_gaussian_noise(likelihood):
            return models.PEPRegression(
                data, kernel, points, likelihood=likelihood, alpha=alpha
            )
        return models.PEP(data, kernel, likelihood, points, alpha=alpha)

    @property
    def mixes_outputs(self) -> bool:
        """Whether columns of y are mixtures of common functions."""
        return self.exact is None and prior.is_mixed(self.kernel)

    def left_out(
        self, copies: AnyNDArray | None = None
    ) -> tuple[Any, Predictive] | None:
        """Return the row numbers of left-out rows, and their predictions. If the
        inducing points are not trained, each training row is predicted from the others.
        None if no rows were left out, or if the time ran out.

        :param copies: The number of copies of each training row, [N]; copies are left
            out together.
        """
        if self.has_rows_as_points:
            if self._left_out is None:
                mean, variance = (part[None] for part in self._leave_out(copies))
                self._left_out = Predictive(mean, variance, np.ones(1), self.units)
            return slice(None), self._left_out
        if self.judged is None or not self.judged.moments:
            return None
        mean, variance = (
            np.asarray(values)[..., 0]
            for values in zip(*self.judged.moments, strict=True)
        )
        weights = ensemble.components(self.model)[1]
        return self.judged.left_out, Predictive(mean, variance, weights, self.units)

    def _leave_out(self, copies: AnyNDArray | None) -> Iterable[AnyNDArray]:
        """Compute mean and variance of the targets of each row given the other rows."""
        if self.exact is not None:
            return self.exact.left_out(copies)
        model: Any = self.model
        return map(self._without_axis, map(np.asarray, model.loo_moments(copies)))

    def predictive(
        self, rows: AnyNDArray, known: AnyNDArray | None = None
    ) -> Predictive:
        """Predict y, with NumPy if the model has a form in NumPy, which is many times
        faster.

        :param known: Known targets of the rows, [N, P], NaN for unknown ones. They are
            ignored if y has one column.
        """
        if self.num_outputs == 1:
            known = None
        if known is None:
            components, weights = self.mixture_in_numpy()
            if components:
                return predictive(components, weights, self.in_units(rows), self.units)
        moments = self._by_posterior(
            rows, known, ensemble.EnsemblePredictions.components_of_y
        )
        return self._mixed(moments, self.units)

    def predictive_of_f(self, rows: AnyNDArray) -> Predictive:
        """Predict f, with NumPy if the model has a form in NumPy."""
        X = self.in_units(rows)
        units = self.units._replace(logarithm=False)
        parts, weights = self.mixture_in_numpy()
        if parts:
            return predictive_of_f(parts, weights, X, units)
        moments = self.predicted(X, self.posterior.components_of_f)
        if self.mixes_outputs:
            for k, model in enumerate(ensemble.components(self.model)[0]):
                kernel: Any = model.kernel
                white = (
                    np.asarray(kernel.W) ** 2
                    @ mixing.variances_of_white(kernel).numpy()
                )
                moments[2 * k + 1] = np.maximum(moments[2 * k + 1] - white, 0.0)
        return self._mixed(moments, units)

    def quantiles_of_draws(
        self, rows: AnyNDArray, q: AnyNDArray, known: AnyNDArray | None = None
    ) -> AnyNDArray:
        """Predict quantiles of y, [N, Q] or [N, P, Q], from draws at each row."""

        def quantiles(posterior: ensemble.EnsemblePredictions, X: AnyNDArray) -> Any:
            y = posterior.predict_y_samples(X, DRAWS, full_cov=False, seed=0)
            return np.moveaxis(np.quantile(y, q, axis=0), 0, -1)

        (values,) = self._by_posterior(rows, known, quantiles, DRAWN_ROWS)
        return self.units.inverse_transform(self._without_axis(values), 1)

    def draws(self, rows: AnyNDArray, num_draws: int, seed: int) -> AnyNDArray:
        """Draw y jointly at rows, [N, S] or [N, P, S]."""
        X = self.in_units(rows)
        draws = self.posterior.predict_y_samples(X, num_draws, seed=seed)
        values = self._without_axis(np.moveaxis(draws.numpy(), 0, -1))
        return self.units.inverse_transform(values, 1)

    def log_densities(self, rows: AnyNDArray, Y: AnyNDArray) -> AnyNDArray:
        """Compute the log density of each row, [N], or of each target, [N, P]."""
        X = self.in_units(rows)
        Y = to_model(self.units, Y)
        D = X.shape[1]
        posterior = self.posterior

        def density(both: AnyNDArray) -> Any:
            data = both[:, :D], both[:, D:]
            if self.num_outputs > 1:
                return posterior.predict_log_density_of_entries(data)
            return posterior.predict_log_density(data)

        (densities,) = self.predicted(np.hstack([X, Y]), density)
        slopes = log_slopes(self.units, self.likelihood, Y)
        return densities + self._without_axis(slopes)

    def joint(self, rows: AnyNDArray) -> tuple[AnyNDArray, AnyNDArray]:
        """Predict one column of y jointly: mean [N] and covariance [N, N]."""
        curved = self.units.logarithm or self.units.is_warped
        if self.num_outputs > 1:
            remedy = "Pass return_std=True, or draw with sample_y."
            raise refusal(
                "return_cov", "True with several columns of y", "one column", remedy
            )
        if curved or not factors.traits(self.likelihood).is_gaussian:
            name = type(self.likelihood).__name__
            if self.units.logarithm:
                name = "log_normal"
            if self.units.is_warped:
                name = "a warped target"
            raise refusal(
                "return_cov",
                f"True with {name}",
                "a Gaussian likelihood, because otherwise y is not Gaussian",
                "Pass return_std=True, or draw with sample_y.",
            )
        X = self.in_units(rows)
        posterior = self.posterior
        mean, covariance = posterior.predict_f(X, full_cov=True)
        pairs = zip(posterior.weights.numpy(), posterior.likelihoods, strict=True)
        noise = sum(
            weight * component.variance_at(X)[:, 0] for weight, component in pairs
        )
        covariance = np.asarray(covariance[0] + tf.linalg.diag(noise))
        mean = self.units.inverse_transform(np.asarray(mean)[:, 0])
        return mean, self.units.scale**2 * covariance

    def _mixed(self, moments: list[AnyNDArray], units: Units) -> Predictive:
        """Mix components. Their means and variances are given one component after the
        other, in the model's units.
        """
        values = [self._without_axis(require_finite(moment)) for moment in moments]
        noise = "Gaussian" if self.has_gaussian_noise else "other"
        weights = self.posterior.weights.numpy()
        return Predictive(
            np.stack(values[::2]), np.stack(values[1::2]), weights, units, noise
        )

    def _by_posterior(
        self,
        rows: AnyNDArray,
        known: AnyNDArray | None,
        predict: Callable[[ensemble.EnsemblePredictions, AnyNDArray], Any],
        chunk_size: int = PREDICTION_CHUNK,
    ) -> list[AnyNDArray]:
        """Predict chunks of rows with the posterior, if requested given known
        outputs.
        """
        X = self.in_units(rows)
        if known is None:
            return self.predicted(X, partial(predict, self.posterior), chunk_size)
        if not self.mixes_outputs:
            got = "known targets for independent outputs"
            expected = "none"
            raise refusal(
                "known",
                got,
                expected,
                "Leave them out, because the other outputs of a row do not depend"
                " on them.",
            )
        if np.isnan(X).any():
            got = "rows of X that have only NaN"
            expected = "inputs for rows with known targets"
            raise refusal(
                "known", got, expected, "Predict such rows without known targets."
            )
        D = X.shape[1]
        model = self.model
        Y = to_model(self.units, known)

        def predict_given(both: AnyNDArray) -> Any:
            return predict(
                ensemble.Ensemble(*ensemble.components(model), known=both[:, D:]),
                both[:, :D],
            )

        return self.predicted(np.hstack([X, Y]), predict_given, chunk_size)

    def _without_axis(self, values: AnyNDArray) -> AnyNDArray:
        """Remove the axis of outputs, [N, P, ...], if there is one output."""
        return values[:, 0] if self.num_outputs == 1 else values
