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
from ..training.fitting.exact import (
    KERNELS,
    Hyperparameters,
    find_start,
    fit_exact,
    with_line,
)
from .columns import fit_columns
from .forecasts import fit_forecast
from .inputs import (
    check_sizes,
    check_table,
    filled,
    refuse_missing,
    warn_of_wild_numbers,
)
from .numpy_parts import numpy_ensembles
from .outputs import (
    as_outputs,
    check_readings,
    column_names,
    has_columns,
    have_units,
    make_output_kernel,
    observed_rows,
)
from .parts import NUMBERS, ROWS, make_likelihood
from .stack import EXACT_ROWS, LEAST_SECONDS, SCOUT_ROWS, SCOUT_SHARE, fit_stack
from .target_predictions import TargetPredictions
from .target_units import fit_units, likelihood_in, to_model

#: Where training starts: a tenth of the variance of standardised targets.
NOISE_VARIANCE = 0.1


class PEPRegressor(TargetPredictions):
    r"""Sparse Gaussian process regression by Power EP, as a scikit-learn estimator::

        from gpflow_pep.estimators import PEPRegressor

        model = PEPRegressor(random_state=0).fit(X, y)
        mean, std = model.predict(X_new, return_std=True)

    With nothing named, up to 1000 rows, several exact Gaussian processes are mixed, and
    with more rows such ones choose transforms (:mod:`gpflow_pep.estimators.stack`).
    Another value of ``kernel``, ``noise``, ``warp``, ``inputs``, ``num_inducing``,
    ``alpha``, ``objective``, ``likelihood``, ``inducing``, ``ard``, ``standardize`` or
    ``batch_size`` names one model: with a Gaussian likelihood
    :class:`~gpflow_pep.models.PEPRegression`, with others
    :class:`~gpflow_pep.models.PEP`, and with minibatches
    :class:`~gpflow_pep.models.ARPEP`. Columns of a DataFrame are matched by name.

    :param kernel: "rbf", "matern12", "matern32", "matern52" or "rational_quadratic";
        "additive", "matern52" and a smooth function of each input; or a GPflow kernel,
        which is copied, for inputs as the model takes them. "auto": "rbf" of one model.
    :param noise: "constant"; or "varying", Gaussian with a variance that depends on the
        inputs (:class:`~gpflow_pep.likelihoods.LogLinear`). "auto": "constant" of one
        model.
    :param warp: Whether the model takes targets that are bent by the sinh-arcsinh
        transform (:class:`~gpflow_pep.distributions.Units`), which an exact model of at
        most 600 rows chooses; of several columns each has its own. "auto": not of one
        model.
    :param inputs: "standard", or "yeo-johnson", bent so that each column is nearly
        Gaussian (:class:`~gpflow_pep.distributions.YeoJohnson`). "auto": "standard" of
        one model.
    :param ard: Whether a kernel by name has a lengthscale for each input, or one for
        all; or how far log lengthscales are from their mean a priori, for example 0.7.
    :param num_inducing: How many inducing points, at most as many as there are rows
        that differ. "auto": 25 or 100, to which others are added as long as rows left
        out of training gain (:mod:`gpflow_pep.training.fitting.points`); 100 with
        minibatches or inducing variables of your own.
    :param alpha: The power, in [0, 1]: 0 is variational inference, 1 EP (FITC). "mix":
        an ensemble of 0, 0.5 and 1 (:func:`~gpflow_pep.training.ensemble_of_powers`).
        "auto": that with Gaussian noise, without ``max_seconds`` or with fewer than
        1000 rows, where rows and points are not too many; otherwise 0.5. Several: of
        them the one whose trained model has the highest log density of rows left out
        (:func:`~gpflow_pep.training.select_alpha`).
    :param objective: "evidence" or "loo", see :func:`~gpflow_pep.training.maximise`.
    :param likelihood: "gaussian"; "student_t"; "log_normal", Gaussian noise of log y,
        which the model then takes; "poisson" or "negative_binomial" (y counts, exp of f
        the rate); "tobit", of y [N, 2] with a limit for each row
        (:class:`~gpflow_pep.likelihoods.Tobit`); or a GPflow likelihood of one latent
        function, which is copied. Its bounds, and noise that is not trained, are in
        units of y; noise that is trained starts in those of the model. Of several
        columns that are mixtures each has one of this name, or its likelihood in
        ``PerOutput``.
    :param inducing: Where inducing points start: "kmeans", "random" or
        "greedy_variance"; "rows", all rows, or ``num_inducing`` k-means centres of
        them, not trained: at all rows with "rbf", "matern52" or "additive" and Gaussian
        noise the evidence of the exact model is maximised; or points [M, D] or GPflow's
        inducing variables, for inputs as the model takes them.
    :param num_latent: With several columns of y, of how many latent functions they are
        mixtures (:func:`~gpflow_pep.training.starts.mixing.coregionalization`); 0: of
        none, columns are independent, and share kernel and noise. None: with nothing
        named what rows that are left out choose, models of each column among it
        (:mod:`gpflow_pep.estimators.columns`); of one model as many as columns, but 4
        at most, and with Gaussian noise at alpha 1 white noise, which the columns of a
        row share.
    :param time: The input that goes on beyond the rows, as the time of a forecast does:
        its name or its place. It is standardised and never bent, and each model by name
        has a linear function of it. Models that are mixed are judged by the latest
        fifth of the rows (:mod:`gpflow_pep.estimators.forecasts`). None: there is none.
    :param near_rows: Whether predictions use near training rows. "auto": 10 or 40
        beside predictions from the inducing points alone
        (:func:`~gpflow_pep.training.ensemble_with_near_rows`), on 1000 rows or more,
        where rows left out of training are predicted better so. 0 or None: none.
    :param standardize: Whether the model takes inputs standardised, and targets where
        noise is added to f (Gaussian, Student's t, Tobit). Everything that goes in and
        comes out is in original units.
    :param max_iterations: The most steps of L-BFGS, or passes over the rows by
        minibatches.
    :param max_seconds: The most seconds of a fit, all columns of y together; 1000 rows
        or more take some 3 at least. None: any number.
    :param batch_size: Rows in a minibatch; None: all rows at once. "auto": minibatches
        of 1000 where there are more than 100 000 rows.
    :param random_state: A seed, ``numpy.random.default_rng(seed)`` or a
        ``RandomState``, for inducing points and batches.
    :param warm_start: Whether another ``fit`` starts from the parameters of the one
        before.
    :param verbose: Whether to show a bar on stderr.

    After ``fit``: ``components_``, ``weights_`` and ``mean_weights_``, the models that
    are mixed, and ``recalibration_``; ``n_outputs_`` and ``target_names_``, of the
    columns of y; ``model_``, a :class:`~gpflow_pep.training.Ensemble` where powers are
    mixed; ``near_rows_``, how many near rows predictions use; ``rows_held_``, how many
    training rows the files of :func:`save_estimator` and :func:`export_numpy` hold
    (:class:`~gpflow_pep.estimators.rows_held.RowsHeld`); ``posterior_``, which
    predicts in the model's units; ``alpha_scores_`` (nats a row, without near rows;
    None of one power), ``n_features_in_``, ``feature_names_in_``; and, of the component
    of the largest weight, ``kernel_``, ``likelihood_``, ``inducing_variable_``,
    ``num_inducing_``, ``alpha_``, ``n_iter_`` and ``record_`` (of
    :func:`~gpflow_pep.training.maximise`; None by minibatches or where it was loaded).

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
            expected = "'evidence', to which a number as ard adds a prior"
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
        # Columns beside that of the targets may be what the likelihood takes.
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

    def _place_of_time(self) -> int | None:
        """Find the column of X that ``time`` names."""
        if self.time is None:
            return None
        names = list(getattr(self, "feature_names_in_", ()))
        D, remedy = self.n_features_in_, "Leave it out if no input goes on."
        if isinstance(self.time, str):
            if self.time in names:
                return names.index(self.time)
            expected = f"one of the columns {names}" if names else "a place: no names"
            raise refusal("time", repr(self.time), expected, remedy)
        is_place = isinstance(self.time, int | np.integer)
        if isinstance(self.time, bool) or not is_place or not -D <= self.time < D:
            expected = f"a name, or a place from 0 to {D - 1}"
            raise refusal("time", repr(self.time), expected, remedy)
        return int(self.time) % D

    def _check_forms(self) -> None:
        """Refuse noise that varies, and warps, of targets that they have no
        form for.
        """
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
        """Read what hyperparameters it shares with an exact model."""
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
        """Train the one model that the settings name.

        :param start: Where training starts, and its warp.
        :param warps: Skew and tails of each of several columns, [P, 2], if known.
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
        """Find where an exact model of some of the rows would start; None: there is no
        time for it, or each row has an input that is not known.
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
        most = SCOUT_ROWS // min(Y.shape[1], 4)  # several take no longer than one
        options: dict[str, Any] = {"varying": True, "warp": True}
        options["deadline"], warps = self._end(SCOUT_SHARE), []
        for y in Y.T:
            some = rows[~np.isnan(y[rows])][:most]
            theta, _ = fit_exact(X[some], y[some], **options)
            warps.append(theta[4:6])
        return np.array(warps)

    def _end(self, share: float = 1.0) -> float:
        """When training is over that may take a share of the seconds."""
        seconds = np.inf if self.max_seconds is None else self.max_seconds
        return time.perf_counter() + share * seconds

    @property
    def _is_exact(self) -> bool:
        """Whether the evidence of the exact model trains it."""
        forms = {
            "inducing": ROWS,
            "num_inducing": "auto",
            "objective": "evidence",
            "ard": "True",
        }
        forms |= {"batch_size": "auto", "standardize": "True"}
        same = all(str(getattr(self, name)) == form for name, form in forms.items())
        same &= str(self.kernel) in ("auto", *KERNELS) and self.n_outputs_ == 1
        return same and self.likelihood in ("gaussian", "log_normal")

    def _train_exactly(
        self, X: AnyNDArray, Y: AnyNDArray, start: Hyperparameters | None
    ) -> None:
        """Train by the evidence of the exact model."""
        options: dict[str, Any] = {
            "max_iterations": self.max_iterations,
            "deadline": self._end(),
        }
        varying, kernel = (
            self.noise == "varying",
            str(self.kernel).replace("auto", "rbf"),
        )
        options |= {"kernel": kernel, "varying": varying, "warp": self.warp is True}
        options["input_of_line"] = self._time_place
        theta, self.record_ = fit_exact(X, Y[:, 0], start, **options)
        self.n_iter_, self.alpha_scores_ = self.record_.iterations, None
        if not self.record_.converged:
            text = (
                f"Training ended after {counted(self.n_iter_, 'step')}:"
                f" {self.record_.message}"
            )
            text += " Raise max_iterations or max_seconds."
            warnings.warn(text, ConvergenceWarning, stacklevel=5)
        self._warped(np.array([theta[4:6]]), Y)
        line = self._time_place
        self._set_model(theta.model(X, Y[:, 0], kernel, varying, line))
        self._posterior = ensemble_posterior(self.model_)
        self._numpy_ensembles = numpy_ensembles(self._posterior)

    def _left_out(
        self, copies: AnyNDArray | None = None
    ) -> tuple[Any, Predictive] | None:
        """Predict rows that were left out, whose numbers come first: each training row
        given the others where points are not trained; None where there are none, or the
        time was over.

        :param copies: How many training rows are copies of each, [N]: they are left out
            together.
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
        """Take over skew and tails of each column of standardised targets, [P, 2], and
        warp them.
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
        # At lower powers training removes what inducing variables have no information
        # on.
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
