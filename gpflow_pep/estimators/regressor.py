"""Regression for scikit-learn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ..engine.refusals import refusal
from ..engine.refusals.arrays import AnyNDArray
from ..engine.refusals.numbers import check_choice
from .recipe.numbers import fit_numbers
from .recipe.recipe import settings_of_one_model
from .single.inputs import (
    check_sizes,
    check_table,
    filled,
    refuse_missing,
    warn_of_wild_numbers,
)
from .single.outputs import (
    as_outputs,
    check_readings,
    column_names,
    has_columns,
    observed_rows,
)
from .single.regression import GAUSSIAN, count_outputs, scalable_outputs
from .single.when_used import gpflow
from .target_predictions import TargetPredictions


class PEPRegressor(TargetPredictions):
    r"""Sparse Gaussian process regression by Power EP, as a scikit-learn estimator::

        from gpflow_pep.estimators import PEPRegressor

        model = PEPRegressor(random_state=0).fit(X, y)
        mean, std = model.predict(X_new, return_std=True)

    By default and up to 1000 rows, the estimator mixes several exact Gaussian
    processes. With more rows, exact models of 600 rows only choose how inputs and
    targets are transformed, and one model is then trained on all rows
    (:mod:`gpflow_pep.estimators.recipe.regression`). All mixed models use the values
    that you set for ``noise``, ``warp``, ``inputs``, ``ard``, ``standardize``,
    ``time``, ``likelihood="log_normal"``, and ``kernel`` if it is "matern52", "rbf" or
    "additive". If a parameter is "auto", each mixed model has its own value.

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
    :param warp: Whether to bend the targets by a sinh-arcsinh transform
        (:class:`~gpflow_pep.distributions.Units`), whose skew and tails an exact model
        of at most 600 rows chooses. Each column of y has its own transform. "auto"
        selects False for a single model.
    :param inputs: How inputs are scaled: "standard" standardises them; "yeo-johnson"
        also bends each column so that it is nearly Gaussian
        (:class:`~gpflow_pep.distributions.YeoJohnson`). "auto" selects "standard" for a
        single model.
    :param ard: Whether a kernel that is chosen by name has a lengthscale for each input
        (True) or one for all inputs (False). A number, for example 0.7, gives each
        input a lengthscale and adds a prior: the number is the standard deviation of
        the log lengthscales around their mean.
    :param num_inducing: The number of inducing points, at most the number of distinct
        rows. "auto" starts with 25 points (with 1000 rows or more usually 100) and adds
        points as long as that improves predictions of left-out rows
        (:mod:`gpflow_pep.training.fitting.points`); with minibatches it selects 100.
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
        function, which is copied. If you pass a GPflow likelihood, its bounds are in
        units of y, and so is noise that is not trainable. The initial value of
        trainable noise is in units of the standardised targets. With several columns,
        each column gets its own copy of this likelihood, or the one that ``PerOutput``
        gives it.
    :param inducing: The initial inducing points: "kmeans", "random", "greedy_variance",
        an array of points [M, D], or an inducing variable of GPflow. Points are in
        units of the scaled inputs. "rows" fixes the points at all rows, or at
        ``num_inducing`` k-means centres, and does not train them. With all rows,
        Gaussian noise and the kernel "rbf", "matern52" or "additive", the model is then
        an exact Gaussian process.
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
    :param standardize: Whether to standardise the inputs, and also the targets if the
        likelihood adds noise to f (Gaussian, Student's t, Tobit). Arguments and
        predictions are in original units in any case.
    :param max_iterations: The largest number of L-BFGS steps, or of passes over the
        rows with minibatches.
    :param max_seconds: The time limit of a fit in seconds, for all columns of y
        together. A fit on 1000 rows or more takes at least about 3 seconds. None sets
        no limit.
    :param batch_size: The number of rows in a minibatch. None trains on all rows at
        once. "auto" uses minibatches of 1000 above 100 000 rows.
    :param random_state: A seed, a ``numpy.random.default_rng(seed)`` or a
        ``RandomState``. It sets the random choices of rows, inducing points and
        batches. None makes other choices in each fit.
    :param warm_start: Whether the next ``fit`` starts from the parameters of the last
        one.
    :param verbose: Whether to show a progress bar on stderr.

    Attributes after ``fit``:

    * ``mixture_``: the mixture of the models ``components_``
      (:class:`~gpflow_pep.estimators.single.model.SingleModel`), which may be only one
      model, with ``weights_``, ``mean_weights_`` and ``recalibration_``.
    * ``n_features_in_`` and ``feature_names_in_``: the number and the names of the
      inputs. ``n_outputs_`` and ``target_names_``: the number and the names of the
      columns of y.
    * ``model_``: the GPflow model, or an :class:`~gpflow_pep.training.Ensemble` if
      powers are mixed. ``posterior_`` predicts in its units. Exact models are trained
      and predict with NumPy, so their GPflow model is made when it is asked for.
    * ``kernel_``, ``likelihood_``, ``inducing_variable_``, ``num_inducing_``,
      ``alpha_``, ``n_iter_`` and ``record_``: the parts and the training of the
      component with the largest weight. ``record_`` is the result of
      :func:`~gpflow_pep.training.maximise`; it is None after training with minibatches
      and after loading.
    * ``alpha_scores_``: the scores of several powers, in nats per row, without near
      rows; None for one power.
    * ``near_rows_``: the number of near rows that predictions use.
    * ``rows_held_``: how many training rows the files of :func:`save_estimator` and
      :func:`export_numpy` hold (:class:`~gpflow_pep.estimators.rows_held.RowsHeld`).

    .. seealso:: :class:`PEPClassifier`, :doc:`/estimators`, :doc:`/interpreting`, and
        :ref:`how-long`.
    """

    def __init__(
        self,
        kernel: str | gpflow.kernels.Kernel = "auto",
        *,
        noise: str = "auto",
        warp: bool | str = "auto",
        inputs: str = "auto",
        num_inducing: int | str = "auto",
        alpha: float | str | Sequence[float] = "auto",
        objective: str = "evidence",
        likelihood: str | gpflow.likelihoods.Likelihood = "gaussian",
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
        check_choice("noise", self.noise, ("auto", "constant", "varying"), remedy)
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
        settings = self._settings(time=self._place_of_time())
        D = X.shape[1]
        self.n_outputs_ = P = count_outputs(settings, D, Y.shape[1])
        self.target_names_ = column_names(y) if Y.shape[1] > 1 else None
        self._check_forms()
        scalable = scalable_outputs(settings, D, P)
        check_readings(Y[:, :P], self.target_names_, scalable)
        given = X
        is_one_model = bool(settings_of_one_model(settings))
        X, Y = self._known_rows(X, Y, is_one_model)
        if self.likelihood == "gaussian":
            warn_of_wild_numbers(Y, self.target_names_ or (), "y")
        before = self._last_model()
        self.mixture_ = fit_numbers(settings, X, Y, self.target_names_, before)
        return given

    def _place_of_time(self) -> int | None:
        """Find the column of X that ``time`` selects."""
        if self.time is None:
            return None
        names = list(getattr(self, "feature_names_in_", ()))
        D = self.n_features_in_
        remedy = "Leave it out if no input continues beyond the rows."
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
        is_gaussian = self.likelihood in GAUSSIAN and self.standardize
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

    @property
    def mean_weights_(self) -> AnyNDArray:
        """The weights of the components' means, [K]; their sum is 1."""
        check_is_fitted(self)
        return self.mixture_.mean_weights

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags
