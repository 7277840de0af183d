"""Regression for scikit-learn."""

import time
import warnings
from collections.abc import Sequence
from typing import Any

import gpflow
import numpy as np
from gpflow.base import AnyNDArray
from gpflow.kernels import Kernel
from gpflow.likelihoods import Likelihood
from gpflow.models import GPModel
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from ..distributions import Predictive, Units
from ..engine import checks
from ..engine.checks import counted, refusal
from ..engine.factors import layout_of
from ..engine.factors.entries import has_gaussian_noise
from ..engine.prior import is_mixed
from ..likelihoods import LogLinear, PerOutput
from ..models import PEP, PEPRegression
from ..training.choosing.ensemble import components, ensemble_posterior, heaviest
from .recipe.columns import fit_columns
from .recipe.forecasts import fit_forecast
from .recipe.regression import (
    EXACT_ROWS,
    LEAST_SECONDS,
    SCOUT_ROWS,
    SCOUT_SHARE,
    fit_stack,
)
from .single.exact import (
    KERNELS,
    Hyperparameters,
    find_start,
    fit_exact,
    with_line,
)
from .single.inputs import (
    check_sizes,
    check_table,
    filled,
    refuse_missing,
    warn_of_wild_numbers,
)
from .single.numpy_parts import numpy_components
from .single.outputs import (
    as_outputs,
    check_readings,
    column_names,
    has_columns,
    have_units,
    make_output_kernel,
    observed_rows,
)
from .single.parts import NUMBERS, ROWS, make_likelihood
from .single.target_units import fit_units, likelihood_in, spread_of, to_model
from .target_predictions import TargetPredictions

#: Initial noise variance: a tenth of the variance of standardised targets.
NOISE_VARIANCE = 0.1


class PEPRegressor(TargetPredictions):
    r"""Sparse Gaussian process regression by Power EP, as a scikit-learn estimator::

        from gpflow_pep.estimators import PEPRegressor

        model = PEPRegressor(random_state=0).fit(X, y)
        mean, std = model.predict(X_new, return_std=True)

    By default and up to 1000 rows, the estimator mixes several exact Gaussian
    processes. With more rows, exact ones on a part of the rows only choose the
    transforms, and one model is trained on all rows
    (:mod:`gpflow_pep.estimators.recipe.regression`). All mixed models use the values
    that you set for ``noise``, ``warp``, ``inputs``, ``ard``, ``standardize``,
    ``time``, ``likelihood="log_normal"``, and ``kernel`` if it is "matern52", "rbf" or
    "additive".

    If you set another kernel or likelihood, or ``num_inducing``, ``alpha``,
    ``objective``, ``inducing`` or ``batch_size``, the estimator trains a single model:
    :class:`~gpflow_pep.models.PEPRegression` for Gaussian noise,
    :class:`~gpflow_pep.models.PEP` for other likelihoods, and
    :class:`~gpflow_pep.models.ARPEP` with minibatches. ``summary()`` shows which
    setting selected it. Columns of a DataFrame are matched by name.

    :param kernel: The kernel: "rbf", "matern12", "matern32", "matern52" or
        "rational_quadratic"; "additive", which is "matern52" plus a smooth function of
        each input; or a GPflow kernel of the scaled inputs, which is copied. "auto"
        selects "rbf" for a single model.
    :param noise: The variance of Gaussian noise: "constant", or "varying", which
        depends on the inputs (:class:`~gpflow_pep.likelihoods.LogLinear`). "auto"
        selects "constant" for a single model.
    :param warp: Whether targets are bent by a sinh-arcsinh transform
        (:class:`~gpflow_pep.distributions.Units`), which an exact model of at most 600
        rows chooses. Each column of y has its own transform. "auto" selects False for a
        single model.
    :param inputs: How inputs are scaled: "standard" standardises them; "yeo-johnson"
        also bends each column so that it is nearly Gaussian
        (:class:`~gpflow_pep.distributions.YeoJohnson`). "auto" selects "standard" for a
        single model.
    :param ard: Whether a kernel that is chosen by name has a lengthscale for each input
        (True) or one for all inputs (False). A number, for example 0.7, gives each
        input its lengthscale and sets the prior standard deviation of the log
        lengthscales around their mean.
    :param num_inducing: The number of inducing points, at most the number of distinct
        rows. "auto" starts with 25 or 100 and adds points as long as that improves
        predictions of left-out rows (:mod:`gpflow_pep.training.fitting.points`); with
        minibatches it selects 100.
    :param alpha: The power, in [0, 1]: 0 is variational inference, 1 is EP (FITC).
        "mix" mixes models at 0, 0.5 and 1
        (:func:`~gpflow_pep.training.ensemble_of_powers`). "auto" does the same if the
        noise is Gaussian and the problem is small enough (fewer than 1000 rows, or no
        ``max_seconds`` and not too many inducing points); in all other cases it selects
        0.5. If you pass several powers, the estimator keeps the one that predicts
        left-out rows best (:func:`~gpflow_pep.training.select_alpha`).
    :param objective: What training maximises: "evidence", or "loo", the log density of
        rows that are left out; see :func:`~gpflow_pep.training.maximise`.
    :param likelihood: The noise model: "gaussian"; "student_t"; "log_normal", which is
        Gaussian noise on log y; "poisson" or "negative_binomial" for counts, with the
        rate exp(f); "tobit" for y [N, 2] with a limit for each row
        (:class:`~gpflow_pep.likelihoods.Tobit`); or a GPflow likelihood of one latent
        function, which is copied. Bounds of a GPflow likelihood, and noise that is not
        trained, are in units of y. Noise that is trained starts in units of the model.
        With several columns, each column gets its own copy of this likelihood, or the
        one that ``PerOutput`` gives it.
    :param inducing: The initial inducing points: "kmeans", "random" or
        "greedy_variance"; or points [M, D] or GPflow's inducing variables, in units of
        the scaled inputs. "rows" fixes the points at all rows, or at ``num_inducing``
        k-means centres, and does not train them. With all rows, Gaussian noise and the
        kernel "rbf", "matern52" or "additive", the model is then an exact Gaussian
        process.
    :param num_latent: The number of latent functions that the columns of y are mixtures
        of (:func:`~gpflow_pep.training.starts.mixing.coregionalization`). 0 makes the
        columns independent; they share the kernel and the noise. None lets left-out
        rows choose between mixtures, a shared kernel and a model of each column
        (:mod:`gpflow_pep.estimators.recipe.columns`). For a single model None selects
        one function for each column, at most 4; with Gaussian noise and alpha 1 the
        columns of a row also share white noise.
    :param time: The input that continues beyond the training rows, such as the time of
        a forecast: its name, or its position counted from 0. This input is standardised
        and never bent, and every kernel that is chosen by name includes a linear
        function of it. The latest fifth of the rows decides how models are mixed
        (:mod:`gpflow_pep.estimators.recipe.forecasts`). None means that there is no
        such input.
    :param near_rows: Whether predictions may use the nearest training rows in addition
        to the inducing points. With 1000 rows or more, "auto" tries the 10 and the 40
        nearest, and uses them if that improves predictions of left-out rows
        (:func:`~gpflow_pep.training.ensemble_with_near_rows`). 0 or None switches near
        rows off.
    :param standardize: Whether inputs are standardised, and also targets if noise is
        added to f (Gaussian, Student's t, Tobit). Arguments and predictions are in
        original units in any case.
    :param max_iterations: The largest number of L-BFGS steps, or of passes over the
        rows with minibatches.
    :param max_seconds: The time limit of a fit in seconds, for all columns of y
        together. A fit on 1000 rows or more takes at least about 3 seconds. None sets
        no limit.
    :param batch_size: The number of rows in a minibatch. None trains on all rows at
        once. "auto" uses minibatches of 1000 above 100 000 rows.
    :param random_state: A seed, a ``numpy.random.default_rng(seed)`` or a
        ``RandomState``. It sets the random choices of rows, inducing points and
        batches.
    :param warm_start: Whether the next ``fit`` starts from the parameters of the last
        one.
    :param verbose: Whether to show a progress bar on stderr.

    Attributes after ``fit``: ``components_`` are the models that are mixed, with
    ``weights_``, ``mean_weights_`` and ``recalibration_``. ``n_outputs_`` and
    ``target_names_`` are the number and the names of the columns of y. ``model_`` is
    the GPflow model, or an :class:`~gpflow_pep.training.Ensemble` if powers are mixed.
    ``near_rows_`` is the number of near rows that predictions use. ``rows_held_``
    counts the training rows that the files of :func:`save_estimator` and
    :func:`export_numpy` hold (:class:`~gpflow_pep.estimators.rows_held.RowsHeld`).
    ``posterior_`` predicts in the model's units. ``alpha_scores_`` are the scores of
    several powers (nats per row, without near rows; None for one power).
    ``n_features_in_`` and ``feature_names_in_`` describe the inputs. ``kernel_``,
    ``likelihood_``, ``inducing_variable_``, ``num_inducing_``, ``alpha_``, ``n_iter_``
    and ``record_`` describe the component with the largest weight. ``record_`` comes
    from :func:`~gpflow_pep.training.maximise`; it is None after training with
    minibatches and after loading.

    .. seealso:: :class:`PEPClassifier`, :doc:`/estimators`, :doc:`/interpreting`, and
        :ref:`how-long`.
    """

    def __init__(
        self,
        kernel: str | Kernel = "auto",
        *,
        noise: str = "auto",
        warp: bool | str = "auto",
        inputs: str = "auto",
        num_inducing: int | str = "auto",
        alpha: float | str | Sequence[float] = "auto",
        objective: str = "evidence",
        likelihood: str | Likelihood = "gaussian",
        inducing: Any = "kmeans",
        near_rows: int | str | None = "auto",
        num_latent: int | None = None,
        time: str | int | None = None,
        ard: bool = True,
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
            inputs=inputs,
            inducing=inducing,
            near_rows=near_rows,
            ard=ard,
            standardize=standardize,
            max_iterations=max_iterations,
            max_seconds=max_seconds,
            batch_size=batch_size,
            random_state=random_state,
            warm_start=warm_start,
            verbose=verbose,
        )
        self.noise = noise
        self.warp = warp
        self.num_latent = num_latent
        self.objective = objective
        self.time = time

    def _check_parameters(self) -> None:
        super()._check_parameters()
        remedy = "Leave it out if in doubt."
        checks.check_choice(
            "noise", self.noise, ("auto", "constant", "varying"), remedy
        )
        if self.objective != "evidence" and not isinstance(self.ard, bool | np.bool_):
            expected = "'evidence', because a number as ard adds a prior to it"
            raise refusal("objective", repr(self.objective), expected, remedy)
        if self.warp != "auto" and not isinstance(self.warp, bool | np.bool_):
            raise refusal("warp", repr(self.warp), "True, False or 'auto'", remedy)

    def _fit(self, X: Any, y: Any) -> AnyNDArray:
        check_table("y", y)
        y = filled(y)
        if has_columns(y):
            X = self._validate(X)
            X, Y = observed_rows(X, as_outputs("y", y, X))
        else:
            refuse_missing(y, "target")
            X, y = self._validate(X, y, y_numeric=True)
            Y = np.asarray(y, dtype=X.dtype)[:, None]
            check_sizes("y", Y)
        # Further columns of y may hold what the likelihood reads, such as limits.
        P = Y.shape[1]
        self.n_outputs_ = P = 1 if layout_of(self._one_likelihood(), P) == (P, 1) else P
        self.target_names_ = column_names(y) if Y.shape[1] > 1 else None
        self._check_forms()
        in_units = have_units(self._named_likelihood(), P)
        check_readings(Y[:, :P], self.target_names_, in_units)
        self._time_place = self._place_of_time()
        given = X
        X, Y = self._known_rows(X, Y)
        if self.likelihood == "gaussian":
            warn_of_wild_numbers(Y, self.target_names_ or (), "y")
        if self._names_a_model or X.dtype != np.float64:
            self._fit_one(X, Y)
        elif self.n_outputs_ > 1 and self.num_latent is None:
            self._set_stack(fit_columns(self, X, Y))
        elif self._time_place is not None and self.n_outputs_ == 1:
            self._set_stack(fit_forecast(self, X, Y))
        else:
            self._set_stack(fit_stack(self, X, Y))
        return given

    def _settings_of_one_model(self) -> dict[str, Any]:
        settings = super()._settings_of_one_model()
        if self.likelihood not in ("gaussian", "log_normal"):
            settings |= self._changed(["likelihood"])
        if not self.standardize and self.time is not None:
            settings |= self._changed(["time", "standardize"])
        return settings

    def _settings_of_all_models(self) -> dict[str, Any]:
        settings = super()._settings_of_all_models()
        if not self.standardize:
            settings |= {"noise": "constant", "warp": False}
        return settings

    def _why_one_model(self) -> str:
        why = super()._why_one_model()
        if why or gpflow.default_float() == np.float64:
            return why
        return f", because GPflow's default float is {gpflow.default_float().__name__}"

    def _place_of_time(self) -> int | None:
        """Find the column of X that ``time`` selects."""
        if self.time is None:
            return None
        names = list(getattr(self, "feature_names_in_", ()))
        D, remedy = (
            self.n_features_in_,
            ("Leave it out if no input continues beyond the rows."),
        )
        if isinstance(self.time, str):
            if self.time in names:
                return names.index(self.time)
            expected = (
                f"one of the columns {names}"
                if names
                else ("a position, because columns have no names")
            )
            raise refusal("time", repr(self.time), expected, remedy)
        is_place = isinstance(self.time, int | np.integer)
        if isinstance(self.time, bool) or not is_place or not -D <= self.time < D:
            expected = f"a name, or a position from 0 to {D - 1}"
            raise refusal("time", repr(self.time), expected, remedy)
        return int(self.time) % D

    def _check_forms(self) -> None:
        """Refuse varying noise and warps if the targets do not allow them."""
        is_gaussian = self.likelihood in ("gaussian", "log_normal") and self.standardize
        forms: tuple[Any, ...] = ("noise", "varying", 1), ("warp", True, np.inf)
        for name, value, most in forms:
            if getattr(self, name) == value and not (
                is_gaussian and self.n_outputs_ <= most
            ):
                got = f"{value!r} with {self.n_outputs_} column(s) of y, likelihood="
                got += f"{self.likelihood!r}, standardize={self.standardize}"
                columns = "one column" if most == 1 else "targets"
                expected = f"{columns}, standardised, 'gaussian' or 'log_normal'"
                raise refusal(name, got, expected, "Leave it out.")

    def _hyperparameters(self) -> Hyperparameters | None:
        """Read the hyperparameters that the model shares with an exact one."""
        main = heaviest(self.model_)
        known = self.n_outputs_ == 1 and hasattr(main, "data")
        warp = self._target.skew, self._target.tails
        return Hyperparameters.of_model(main, *warp) if known else None

    def _fit_one(
        self,
        X: AnyNDArray,
        Y: AnyNDArray,
        start: Hyperparameters | None = None,
        warps: AnyNDArray | None = None,
    ) -> None:
        """Train the single model that the settings describe.

        :param start: The initial hyperparameters and the warp.
        :param warps: Skew and tails of each column if there are several, [P, 2]; None
            if they are not known.
        """
        if start is None and self.warm_start and hasattr(self, "model_"):
            start = self._hyperparameters()
        self._stack = self._judged = None
        in_units = have_units(self._named_likelihood(), self.n_outputs_)
        scaled, logarithm = self.standardize & in_units, self.likelihood == "log_normal"
        self._target = fit_units(Y, scaled=scaled, logarithm=logarithm)
        X, Y = self._scaled_rows(X), to_model(self._target, Y)
        if self._is_exact:
            return self._train_exactly(X, Y, start)
        if self.warp is True:
            if warps is None:
                warps = self._chosen_warps(X, Y, start)
            Y = self._warped(warps, Y)
        is_named = isinstance(self.kernel, str) and self.n_outputs_ == 1
        is_gaussian = str(self.likelihood) in ("gaussian", "log_normal")
        if not (is_named and is_gaussian and self.standardize):
            start = None
        elif start is None or len(start.log_lengthscales) != X.shape[1]:
            start = self._find_start(X, Y)
        self._train(X, Y, start)

    def _find_start(self, X: AnyNDArray, Y: AnyNDArray) -> Hyperparameters | None:
        """Find the initial hyperparameters of an exact model of some of the rows. None
        if there is no time for it, or if every row has an unknown input.
        """
        known = np.flatnonzero(~np.isnan(X).any(axis=1))
        has_time = self.max_seconds is None or self.max_seconds >= LEAST_SECONDS
        if not has_time or len(known) == 0:
            return None
        rows = np.random.default_rng(self._seed()).permutation(known)[:EXACT_ROWS]
        end = self._end(SCOUT_SHARE)
        return find_start(X[rows], Y[rows, 0], end, self._time_place)

    def _chosen_warps(
        self, X: AnyNDArray, Y: AnyNDArray, start: Hyperparameters | None
    ) -> AnyNDArray:
        """Choose skew and tails of each column, [P, 2], by an exact model of it."""
        if start is not None:
            return np.tile([start[4:6]], (Y.shape[1], 1))
        rows = np.random.default_rng(self._seed()).permutation(len(X))
        most = SCOUT_ROWS // min(
            Y.shape[1], 4
        )  # several columns take no longer than one
        options: dict[str, Any] = {"varying": True, "warp": True}
        options["deadline"], warps = self._end(SCOUT_SHARE), []
        for y in Y.T:
            some = rows[~np.isnan(y[rows])][:most]
            theta, _ = fit_exact(X[some], y[some], **options)
            warps.append(theta[4:6])
        return np.array(warps)

    def _end(self, share: float = 1.0) -> float:
        """Return the time at which a training has to end that may take a share of the
        seconds.
        """
        seconds = np.inf if self.max_seconds is None else self.max_seconds
        return time.perf_counter() + share * seconds

    @property
    def _is_exact(self) -> bool:
        """Return whether the model is trained by the evidence of the exact model."""
        forms = {
            "inducing": ROWS,
            "num_inducing": "auto",
            "objective": "evidence",
            "batch_size": "auto",
        }
        if not all(str(getattr(self, name)) == form for name, form in forms.items()):
            return False
        if not self.standardize and (
            self.kernel == "additive" or self._time_place is not None
        ):
            return False
        has_kernel = str(self.kernel) in ("auto", *KERNELS) and self.n_outputs_ == 1
        return has_kernel and self.likelihood in ("gaussian", "log_normal")

    def _train_exactly(
        self, X: AnyNDArray, Y: AnyNDArray, start: Hyperparameters | None
    ) -> None:
        """Train by the evidence of the exact model."""
        varying = self.noise == "varying"
        kernel = str(self.kernel).replace("auto", "rbf")
        scale, level, mean_square = np.ones(X.shape[1]), 1.0, 1.0
        if not self.standardize:
            scale, level = spread_of(X), float(spread_of(Y)[0])
            mean_square = max(float(np.mean((Y / level) ** 2)), 1.0)
        if start is not None:
            start = start.rescaled(1.0 / scale, 1.0 / level)
        theta, record = fit_exact(
            X / scale,
            Y[:, 0] / level,
            start,
            kernel=kernel,
            varying=varying,
            warp=self.warp is True,
            input_of_line=self._time_place,
            ard=self.ard,
            mean_square=mean_square,
            max_iterations=self.max_iterations,
            deadline=self._end(),
        )
        theta = theta.rescaled(scale, level)
        log_z = record.objective - len(Y) * float(np.log(level))
        self.record_ = record._replace(objective=log_z)
        self.n_iter_, self.alpha_scores_ = record.iterations, None
        if not self.record_.converged:
            text = (
                f"Training ended after {counted(self.n_iter_, 'step')}:"
                f" {self.record_.message}"
            )
            text += " Raise max_iterations or max_seconds."
            warnings.warn(text, ConvergenceWarning, stacklevel=5)
        self._warped(np.array([theta[4:6]]), Y)
        line = self._time_place
        self._set_model(theta.model(X, Y[:, 0], kernel, varying, line, self.ard))
        self._posterior = ensemble_posterior(self.model_)
        self._numpy_components = numpy_components(self._posterior)

    def _left_out(
        self, copies: AnyNDArray | None = None
    ) -> tuple[Any, Predictive] | None:
        """Return the row numbers of left-out rows, and their predictions. If the points
        are not trained, each training row is predicted from the others. None if no rows
        were left out, or if the time ran out.

        :param copies: The number of copies of each training row, [N]; copies are left
            out together.
        """
        if self._stack is not None:
            judged = [part._left_out(copies) for part in self._stack.components]
            if not all(judged):
                return None
            return judged[0][0], self._stack.mixed([part for _, part in judged])
        if str(self.inducing) == ROWS:
            parts = (
                self._without_axis(np.asarray(part))
                for part in self.model_.loo_moments(copies)
            )
            mean, variance = (part[None] for part in parts)
            return slice(None), Predictive(mean, variance, np.ones(1), self._target)
        if self._judged is None or not self._judged.moments:
            return None
        rows, moments = self._judged.left_out, self._judged.moments
        mean, variance = (
            np.asarray(part)[..., 0] for part in zip(*moments, strict=True)
        )
        return rows, Predictive(
            mean, variance, components(self.model_)[1], self._target
        )

    def _warped(self, warps: AnyNDArray, Y: AnyNDArray) -> AnyNDArray:
        """Store skew and tails of each column, [P, 2], and warp the standardised
        targets.
        """
        warp: dict[str, Any] = dict(zip(("skew", "tails"), np.transpose(warps)))
        if len(warps) == 1:
            warp = {name: values[0] for name, values in warp.items()}
        self._target = self._target._replace(**warp)
        return Units(**warp).transform(Y)

    @property
    def mean_weights_(self) -> AnyNDArray:
        """The weights of the components' means, [K], of sum 1."""
        check_is_fitted(self)
        return np.ones(1) if self._stack is None else self._stack.mean_weights

    def _make_kernel(self, X: AnyNDArray, Y: AnyNDArray) -> Kernel:
        kernel, P = super()._make_kernel(X, Y), self.n_outputs_
        if isinstance(self.kernel, str) and P == 1:
            kernel = with_line(kernel, self._time_place)
        in_units = have_units(self._named_likelihood(), P)
        # At lower powers, training removes components on which the inducing variables
        # have no information.
        at_one = np.ndim(self.alpha) == 0 and self.alpha == 1.0
        shares_noise = at_one and has_gaussian_noise(self._named_likelihood())
        return make_output_kernel(
            kernel, X, Y[:, :P], self.num_latent, in_units, shares_noise
        )

    def _make_likelihood(self) -> Likelihood:
        likelihood = self._named_likelihood()
        return (
            likelihood_in(self._target, likelihood)
            if hasattr(self, "_target")
            else likelihood
        )

    def _one_likelihood(self) -> Likelihood:
        if self.noise == "varying":
            return gpflow.likelihoods.Gaussian(variance=LogLinear(self.n_features_in_))
        has_variance = self.likelihood in ("gaussian", "log_normal", "tobit")
        options = {"variance": NOISE_VARIANCE} if has_variance else {}
        return make_likelihood(self.likelihood, NUMBERS, **options)

    def _named_likelihood(self) -> Likelihood:
        """Make the likelihood of all outputs, in units of the targets."""
        name, mixed = self.likelihood, is_mixed(self.kernel) or self.num_latent != 0
        if self.n_outputs_ == 1 or not mixed or not isinstance(name, str):
            return self._one_likelihood()
        return PerOutput([self._one_likelihood() for _ in range(self.n_outputs_)])

    def _make_model(
        self, data: tuple[AnyNDArray, AnyNDArray], *parts: Any, alpha: float
    ) -> GPModel:
        kernel, likelihood, points = parts
        if has_gaussian_noise(likelihood):
            return PEPRegression(
                data, kernel, points, likelihood=likelihood, alpha=alpha
            )
        return PEP(data, kernel, likelihood, points, alpha=alpha)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags
