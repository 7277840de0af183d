"""The common part of the estimators: columns matched by name, units, training, and
pickling.
"""

import abc
import copy
import inspect
import time
import warnings
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any, TypeVar

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray, RegressionData
from gpflow.inducing_variables import InducingVariables
from gpflow.kernels import Kernel
from gpflow.likelihoods import Likelihood
from gpflow.models import GPModel
from sklearn.base import BaseEstimator
from sklearn.preprocessing import StandardScaler
from sklearn.utils import assert_all_finite
from sklearn.utils.validation import check_is_fitted, validate_data

from ..distributions import Recalibration, YeoJohnson
from ..distributions.mixtures import FAR, far_by_components
from ..engine import checks
from ..engine.factors import check_num_latent
from ..engine.factors.entries import has_gaussian_noise
from ..engine.prior import is_mixed
from ..engine.refusals import counted
from ..scoring.components import Component, far_rows
from ..training import Ensemble, MaximiseRecord
from ..training.choosing.alphas import ALPHAS, check_alphas
from ..training.choosing.ensemble import (
    EnsemblePosterior,
    components,
    ensemble_posterior,
    heaviest,
    near_rows,
)
from ..training.choosing.near import LEAST_ROWS
from ..training.fitting.objectives import Objective, assign_same, near_lengthscales
from ..training.fitting.points import OVER, copies_of, may_be_trials
from .recipe.stack import Stack
from .rows_held import RowsHeld, count_rows_held
from .single.exact import Hyperparameters
from .single.inputs import (
    YEO_JOHNSON,
    check_sizes,
    check_table,
    dense,
    fit_yeo_johnson,
    listed,
    refuse_weights,
    seed_of,
    warn_of_wild_numbers,
    words_refused,
)
from .single.numpy_parts import numpy_components
from .single.parts import (
    ROWS,
    is_exact_kernel,
    make_inducing_variable,
    make_kernel,
    start_at,
    wants_near_rows,
)
from .single.target_units import log_slopes
from .single.trainer import (
    Attempts,
    Trained,
    Training,
    tied_model,
    train_by_batches,
    train_model,
)

#: ``num_inducing="auto"`` starts with the first number of inducing points and adds
#: others as long as a score rises. With thousands of rows it starts with the second
#: number. If it cannot add any, for example with minibatches, it is the second number.
FIRST_POINTS, MANY_POINTS = 25, 100
#: Rows predicted at a time: enough for fast matrix products, few enough to need little
#: memory.
PREDICTION_CHUNK = 10_000
#: Above the first number of rows, ``batch_size="auto"`` trains with minibatches of the
#: second number.
MOST_ROWS, BATCH_SIZE = 100_000, 1000
#: Parameters of estimators on which a compiled loss does not depend.
_NOT_COMPILED = (
    "order",  # order of classes, which only changes labels
    *(
        "num_inducing",
        "alpha",
        "inducing",
        "standardize",
        "max_iterations",
        "max_seconds",
    ),
    *("warp", "inputs", "batch_size", "random_state", "warm_start", "verbose"),
    "num_latent",  # visible in the shapes of parameters
)

#: Setting one of these to another value than the default selects a single model.
OF_ONE_MODEL = ("num_inducing", "alpha", "objective", "inducing", "batch_size")
#: If one of these has another value than the default, all mixed models use it.
OF_ALL_MODELS = (
    "kernel",
    "noise",
    "warp",
    "inputs",
    "likelihood",
    "ard",
    "standardize",
)
#: Attributes that an estimator of several components copies from the component with the
#: largest weight.
OF_HEAVIEST = ("record_", "n_iter_", "alpha_scores_")

#: The functions that turn an estimator into its state and back while skops writes or
#: reads the object around it: :mod:`gpflow_pep.estimators.saving`. None means as pickle
#: does.
DESCRIBE: ContextVar[Callable[["PEPEstimator"], dict[str, Any]] | None]
DESCRIBE = ContextVar("DESCRIBE", default=None)
RESTORE: ContextVar[Callable[[dict[str, Any]], dict[str, Any]] | None]
RESTORE = ContextVar("RESTORE", default=None)


Fitted = TypeVar("Fitted", bound="PEPEstimator")


class PEPEstimator(BaseEstimator, abc.ABC):
    """A model with the conventions of scikit-learn; base class of the estimators.

    Parameters are those of :class:`PEPRegressor <gpflow_pep.estimators.PEPRegressor>`.
    """

    model_: GPModel | Ensemble
    n_features_in_: int
    feature_names_in_: AnyNDArray
    #: Number of training rows that its files hold.
    rows_held_: RowsHeld
    record_: MaximiseRecord | None = None
    _posterior: EnsemblePosterior | None
    #: The components that predict with NumPy; empty if NumPy has no form of this model;
    #: None until they are needed.
    _numpy_components: tuple[Component, ...] | None = None
    _known_scores: AnyNDArray | None
    #: The position of the column of X that continues beyond the rows; None if there is
    #: none.
    _time_place: int | None = None
    #: The models that are mixed; None for a single model.
    _stack: Stack | None = None
    #: How the model was trained, and judged by left-out rows; None if it was not, or if
    #: it was loaded.
    _judged: Trained | None = None

    def __init__(
        self,
        kernel: str | Kernel = "auto",
        *,
        num_inducing: int | str = "auto",
        alpha: float | str | Sequence[float] = "auto",
        likelihood: str | Likelihood = "auto",
        inputs: str = "auto",
        inducing: Any = "kmeans",
        near_rows: int | str | None = "auto",
        ard: bool | float = True,
        standardize: bool = True,
        max_iterations: int = 1000,
        max_seconds: float | None = None,
        batch_size: int | str | None = "auto",
        random_state: Any = None,
        warm_start: bool = False,
        verbose: bool = False,
    ) -> None:
        self.kernel = kernel
        self.ard = ard
        self.num_inducing = num_inducing
        self.alpha = alpha
        self.likelihood = likelihood
        self.inputs = inputs
        self.inducing = inducing
        self.near_rows = near_rows
        self.standardize = standardize
        self.max_iterations = max_iterations
        self.max_seconds = max_seconds
        self.batch_size = batch_size
        self.random_state = random_state
        self.warm_start = warm_start
        self.verbose = verbose

    def fit(self: Fitted, X: Any, y: Any, **refused: Any) -> Fitted:
        """Train on rows. If the fit fails or is interrupted, the estimator stays as it
        was.

        :param X: Inputs, [N, D]: an array or a table.
        :param y: Targets, [N]: numbers, or labels of two or more classes. A regressor
            also accepts several columns, [N, P], with NaN for a missing target.
        :param refused: No other argument is accepted; ``sample_weight`` raises an error
            that gives the reason.
        :raises ValueError: If the estimator cannot be trained on these rows, or with
            these parameters.
        """
        refuse_weights(refused)
        fitted = copy.copy(self)
        # Components are copies of the estimator, and do not count rows themselves.
        fitted.__dict__.pop("rows_held_", None)
        for name, value in fitted.get_params(deep=False).items():
            if isinstance(value, np.generic):  # a number or truth value of NumPy
                setattr(fitted, name, value.item())
        fitted._check_parameters()
        rows = fitted._fit(X, y)
        fitted.rows_held_ = count_rows_held([fitted], rows)
        self.__dict__ = fitted.__dict__
        return self

    @abc.abstractmethod
    def _fit(self, X: Any, y: Any) -> AnyNDArray:
        """Train this estimator, which is a copy of the one on which ``fit`` was called,
        and return the inputs of its rows, [N, D].
        """

    def _check_parameters(self) -> None:
        if self.num_inducing != "auto":
            checks.check_positive("num_inducing", self.num_inducing)
        checks.check_positive("max_iterations", self.max_iterations)
        if self.max_seconds is not None:
            remedy = "None sets no limit."
            checks.check_real("max_seconds", self.max_seconds, "[0, inf]", remedy)
        wants_near_rows(self.near_rows)
        remedy = "Leave it out if in doubt."
        checks.check_choice(
            "inputs", self.inputs, ("auto", "standard", YEO_JOHNSON), remedy
        )
        if self.inputs == YEO_JOHNSON and not self.standardize:
            got = f"{YEO_JOHNSON!r} with standardize=False"
            raise checks.refusal(
                "inputs", got, "standardised inputs", "Leave one of them out."
            )
        booleans = ["ard", "standardize", "warm_start"]
        if checks.is_number(self.ard):
            booleans.remove("ard")
            checks.check_real("ard", self.ard, "(0, inf)", remedy)
        for name in booleans:
            if not isinstance(getattr(self, name), bool | np.bool_):
                got = repr(getattr(self, name))
                raise checks.refusal(
                    name, got, "True or False", "Leave it out if in doubt."
                )

    @abc.abstractmethod
    def _make_likelihood(self) -> Likelihood: ...

    @abc.abstractmethod
    def _make_model(
        self, data: tuple[AnyNDArray, AnyNDArray], *parts: Any, alpha: float
    ) -> GPModel: ...

    def _known_rows(
        self, X: AnyNDArray, Y: AnyNDArray
    ) -> tuple[AnyNDArray, AnyNDArray]:
        """Leave out rows that have only NaN, and copies of rows if several models are
        mixed and y is not a result of trials. Warn of both, and of wild inputs.
        """
        known = ~np.isnan(X).all(axis=1)
        if not known.all():
            message = (
                f"X: {np.sum(~known)} row(s) with only missing values are left out."
            )
            warnings.warn(message, stacklevel=4)
            X, Y = X[known], Y[known]
        _, distinct = np.unique(copies_of(X, Y), return_index=True)
        if len(distinct) < len(X):
            copies = (
                f"{len(X) - len(distinct)} of {len(X)} rows are copies of others, in"
                " inputs and y."
            )
            if may_be_trials(Y):
                fate = "They are kept, as trials with the same result."
            elif self._names_a_model:
                fate = (
                    "They are kept, because the settings select a single model."
                    " Remove the copies that are not separate measurements."
                )
            else:
                fate = "They are left out, so that no row is predicted from its copy."
                X, Y = X[np.sort(distinct)], Y[np.sort(distinct)]
            warnings.warn(f"{copies} {fate}", stacklevel=4)
        if len(X) > 1 and (X[0] == X).all():
            message = (
                "X: all rows are identical, so predictions at other inputs are not"
                " based on data."
            )
            warnings.warn(message, stacklevel=4)
        warn_of_wild_numbers(X, getattr(self, "feature_names_in_", ()))
        return X, Y

    def _scaled_rows(self, X: AnyNDArray) -> AnyNDArray:
        """Fit the scaling of inputs, and scale them to the model's units."""
        if self.inputs == YEO_JOHNSON:
            self._scaler: Any = fit_yeo_johnson(X, self._time_place)
            return self._in_units(X)
        options: dict[str, Any] = {
            "with_mean": self.standardize,
            "with_std": self.standardize,
        }
        self._scaler = StandardScaler(**options).fit(X)
        scaled: AnyNDArray = self._scaler.transform(X)
        return scaled

    def _train(
        self, X: AnyNDArray, Y: AnyNDArray, start: Hyperparameters | None = None
    ) -> None:
        """Train on inputs [N, D] and targets [N, P] in the model's units.

        :param start: Initial hyperparameters of a kernel that was chosen by name; None
            keeps those with which it is made.
        """
        seed = self._seed()
        before = self.model_ if self.warm_start and hasattr(self, "model_") else None
        batch_size = self._batch_size(len(X))
        likelihood = self._make_likelihood()
        attempts = self._attempts(len(X), likelihood, batch_size)
        kernel = self._make_kernel(X, Y)
        if start is not None:
            start_at(start, kernel, likelihood)
        points = self._first_points(X, Y, kernel, likelihood, attempts, seed)
        self.alpha_scores_: dict[float, float] | None = None
        # The power in the middle, from which the others are not far.
        alpha = attempts.alphas[len(attempts.alphas) // 2]
        parts = kernel, likelihood, points
        if batch_size is not None:
            model: Any = tied_model(Y, *parts, alpha=alpha)
        else:
            model = self._make_model((X, Y), *parts, alpha=alpha)
        if before is not None:
            assign_same(model, heaviest(before, from_points=True))
        training = self._training()
        if batch_size is not None:
            self.record_ = None
            options = batch_size, seed, attempts.end
            self.n_iter_ = train_by_batches(training, model, (X, Y), *options)
        else:
            few = points.num_inducing < len(np.unique(X, axis=0))
            attempts = attempts._replace(grows=attempts.grows and bool(few))
            trained = train_model(training, model, (X, Y), attempts, seed)
            model, self.record_, self._judged = trained.model, trained.record, trained
            self.n_iter_ = trained.record.iterations
            if trained.scores is not None:
                slope = self._mean_log_slope(likelihood, Y)
                self.alpha_scores_ = {
                    a: float(b) + slope for a, b in trained.scores.items()
                }
        model = self._with_near_labels(model, (X, Y), seed)
        self._set_model(model)
        self._posterior = ensemble_posterior(model)
        self._numpy_components = numpy_components(self._posterior)

    def _first_points(
        self,
        X: AnyNDArray,
        Y: AnyNDArray,
        kernel: Any,
        likelihood: Likelihood,
        attempts: Attempts,
        seed: int,
    ) -> Any:
        """Make the inducing variable that training starts with."""
        first, *_ = getattr(kernel, "latent_kernels", [kernel])
        several = check_num_latent(None, likelihood, tf.constant(Y)) > 1
        many = len(X) >= LEAST_ROWS and (has_gaussian_noise(likelihood) or several)
        number = MANY_POINTS
        if attempts.grows and (is_mixed(kernel) or not many):
            number = FIRST_POINTS
        if not isinstance(self.num_inducing, str):
            number = int(self.num_inducing)
        elif isinstance(self.inducing, str) and self.inducing == ROWS:
            number = len(X)
        return make_inducing_variable(self.inducing, X, number, first, seed)

    def _mean_log_slope(self, likelihood: Likelihood, Y: AnyNDArray) -> float:
        """Compute the mean difference of a row's log density in the units of y from its
        log density in the units of the model.
        """
        units = getattr(self, "_target", None)
        if units is None:
            return 0.0
        slopes = np.nansum(log_slopes(units, likelihood, Y), axis=1)
        return float(np.mean(slopes))

    def _attempts(
        self, num_rows: int, likelihood: Likelihood, batch_size: int | None
    ) -> Attempts:
        """Decide what training tries."""
        is_word = isinstance(self.alpha, str) and self.alpha in ("auto", "mix")
        mixes, judged = is_word and self.alpha == "mix", False
        alphas: tuple[float, ...]
        if is_word:
            judged = batch_size is None and has_gaussian_noise(likelihood)
            mixes |= judged and (num_rows < LEAST_ROWS or self.max_seconds is None)
            alphas = ALPHAS if mixes else (0.5,)
        else:
            alphas = self._powers()
        if batch_size is not None and len(alphas) > 1:
            got, remedy = (
                f"{self.alpha!r} with minibatches",
                "Pass a number, or batch_size=None.",
            )
            expected = (
                "a single number, because leaving rows out needs a site for each row"
            )
            raise checks.refusal("alpha", got, expected, remedy)
        grows = self.num_inducing == "auto" and batch_size is None
        grows &= isinstance(self.inducing, str) and self.inducing != ROWS
        near = wants_near_rows(self.near_rows) and (grows or mixes or judged)
        return Attempts(
            alphas, mixes, grows, near, time.perf_counter() + self._seconds_of_points()
        )

    def _powers(self) -> tuple[float, ...]:
        """Return the powers that the user passed as numbers."""
        alpha: Any = self.alpha
        if isinstance(alpha, str) or np.asarray(alpha).dtype == bool:
            expected = "a number in [0, 1], several numbers, 'mix' or 'auto'"
            remedy = "Leave it out if in doubt."
            raise checks.refusal("alpha", repr(alpha), expected, remedy)
        return check_alphas(alpha) if np.ndim(alpha) else (alpha,)

    def _set_model(self, model: GPModel | Ensemble) -> None:
        self.model_, self._posterior, self._known_scores = model, None, None
        self._numpy_components = None
        main = heaviest(model)
        self.kernel_, self.likelihood_ = main.kernel, main.likelihood
        self.inducing_variable_ = getattr(main, "inducing_variable", None)
        self.alpha_ = float(main.alpha.numpy()) if hasattr(main, "alpha") else np.nan

    def _changed(self, names: Sequence[str]) -> dict[str, Any]:
        """Give the settings of some names that have another value than the default."""
        changed = {}
        for name, parameter in inspect.signature(type(self)).parameters.items():
            if name in names:
                value, default = getattr(self, name), parameter.default
                if not isinstance(value, type(default)) or value != default:
                    changed[name] = value
        return changed

    def _settings_of_one_model(self) -> dict[str, Any]:
        """Give the settings that give one model, in the place of several that are
        mixed.
        """
        names = [*OF_ONE_MODEL]
        if self.kernel != "auto" and not is_exact_kernel(self.kernel):
            names.append("kernel")
        if not self.standardize and self.kernel == "additive":
            names += ["kernel", "standardize"]
        return self._changed(names)

    @property
    def _names_a_model(self) -> bool:
        """Whether the settings select a single model, not several that are mixed."""
        return bool(self._settings_of_one_model())

    def _settings_of_all_models(self) -> dict[str, Any]:
        """Return the settings that all mixed models use."""
        settings = self._changed(OF_ALL_MODELS)
        if not self.standardize:
            settings["inputs"] = "standard"
        return settings

    @property
    def components_(self) -> tuple[Any, ...]:
        """The models that are mixed, each an estimator; a single model is its own
        component.
        """
        return (self,) if self._stack is None else self._stack.components

    @property
    def weights_(self) -> AnyNDArray:
        """The weights of the components' densities, [K]; their sum is 1."""
        check_is_fitted(self)
        return np.ones(1) if self._stack is None else self._stack.weights

    @property
    def recalibration_(self) -> Recalibration:
        """The correction that makes the mixture right on average over left-out rows."""
        check_is_fitted(self)
        return getattr(self._stack, "recalibration", None) or Recalibration()

    def summary(self) -> str:
        """Describe in a few lines which models were tried and kept, why, and their
        weights.
        """
        check_is_fitted(self)
        if self._stack is not None:
            return "\n".join(self._stack.lines)
        return f"One model{self._why_one_model()}: {self._one_line()}"

    def _why_one_model(self) -> str:
        settings = self._settings_of_one_model()
        return f", because of {listed(settings)}" if settings else ""

    @property
    def num_inducing_(self) -> int:
        """The number of inducing variables of the component with the largest weight. An
        exact component has as many as there are distinct rows. Several latent functions
        have this number each.
        """
        check_is_fitted(self)
        points: Any = self.inducing_variable_
        return int(points.num_inducing)

    def _one_line(self) -> str:
        """Describe one model."""
        parts = [*zip(*components(self.model_), near_rows(self.model_), strict=True)]
        powers = [
            f"power {model.alpha.numpy():g}{' with near rows' * bool(near)}"
            + f" (weight {weight:.2f})" * (len(parts) > 1)
            for model, weight, near in parts
        ]
        kernel, name = type(self.kernel_).__name__, type(heaviest(self.model_)).__name__
        tried = [
            str(score.num_inducing) for score in getattr(self.record_, "points", ())
        ]
        if self.record_ is not None and tried and self.record_.message.startswith(OVER):
            tried.append("and no more, because the time ran out")
        points = counted(self.num_inducing_, "inducing point")
        text = f"{name} with the kernel {kernel} and {points}"
        text += f" (tried: {', '.join(tried)})" if tried else ""
        return f"{text}, {', '.join(powers)}."

    def _set_stack(self, stack: Stack) -> None:
        """Store a stack, and the attributes of its heaviest component."""
        part = stack.heaviest
        self._set_model(part.model_)
        for name in (
            "_scaler",
            "_target",
            "_posterior",
            "_numpy_components",
            *OF_HEAVIEST,
        ):
            if hasattr(part, name):
                setattr(self, name, getattr(part, name))
        self._stack = stack

    @property
    def posterior_(self) -> EnsemblePosterior:
        """The posterior of the model, which predicts f and y at inputs in the model's
        units.
        """
        if self._posterior is None:
            self._posterior = ensemble_posterior(self.model_)
        return self._posterior

    def _mixture_in_numpy(self) -> tuple[tuple[Component, ...], AnyNDArray]:
        """Get the components that predict with NumPy, much faster, and their weights;
        no components if NumPy has no form of this model.
        """
        if self._numpy_components is None:
            self._numpy_components = numpy_components(self.posterior_)
        return self._numpy_components, self.posterior_.weights.numpy()

    def far_rows(self, X: Any) -> AnyNDArray:
        """Find for each row, [N], whether it is so far from the training rows that they
        have nearly no information on it.

        A row is far if the variance of f is nearly its prior variance, or if an input
        is cut (:class:`~gpflow_pep.distributions.YeoJohnson`), in a component with a
        weight of at least .2 or with the largest weight.

        :param X: Inputs, [N, D].
        :raises ValueError: If the columns are not those that the model was trained on.
        """
        rows, stack = self._rows(X), self._stack
        if stack is None:
            return self._far_rows(rows)
        places = getattr(stack, "places", None)
        if places is not None:
            parts = [stack.components[place] for place in sorted(set(places))]
            return np.asarray(np.all([part.far_rows(rows) for part in parts], axis=0))
        return far_by_components(
            stack.weights, lambda k: stack.components[k]._far_rows(rows)
        )

    def _far_rows(self, rows: AnyNDArray) -> AnyNDArray:
        """Find far rows, in original units, with this single model."""
        X = self._in_units(rows)
        parts, weights = self._mixture_in_numpy()
        if parts:
            far = far_rows(parts, weights, X)
        else:
            models, posteriors = components(self.model_)[0], self.posterior_.posteriors
            far = np.isnan(X).all(axis=1) | far_by_components(
                weights, lambda k: self._is_far(models[k], posteriors[k], X)
            )
        if isinstance(self._scaler, YeoJohnson):
            far = far | self._scaler.are_cut(rows)
        return far

    def _is_far(self, model: GPModel, posterior: Any, X: AnyNDArray) -> AnyNDArray:
        """Find far rows with TensorFlow, as :mod:`gpflow_pep.scoring.components` does
        with NumPy.
        """
        (variance,) = self._predicted(
            X, lambda rows: posterior.predict_f(rows)[1], PREDICTION_CHUNK
        )
        options = {"full_output_cov": False} if is_mixed(model.kernel) else {}
        prior = np.asarray(model.kernel(X, full_cov=False, **options))
        shares = np.min(variance / prior.reshape(len(X), -1), axis=1)
        return np.asarray(~(shares <= FAR))  # also if X is unknown

    @property
    def input_scaler_(self) -> "StandardScaler | YeoJohnson":
        """The scaler of inputs from original units to those of ``model_``."""
        return self._scaler

    def _seed(self) -> int:
        return seed_of(self.random_state)

    def _with_near_labels(
        self, model: GPModel | Ensemble, data: RegressionData, seed: int
    ) -> GPModel | Ensemble:
        """Mix a model with another one that is trained to predict from near rows, if
        that is better.
        """
        return model

    @property
    def near_rows_(self) -> int:
        """The number of near training rows that predictions use; 0 if they use none."""
        check_is_fitted(self)
        return max((near.number for near in near_rows(self.model_) if near), default=0)

    def _seconds_of_points(self) -> float:
        """Return the time limit, in seconds, for training the predictions from inducing
        points.
        """
        return np.inf if self.max_seconds is None else self.max_seconds

    def _objective(self) -> Objective:
        """Return the objective of :func:`~gpflow_pep.training.maximise`."""
        objective: Objective = getattr(self, "objective", "evidence")
        if objective != "evidence" or isinstance(self.ard, bool | np.bool_):
            return objective
        return near_lengthscales(float(self.ard))

    def _training(self) -> Training:
        """Give the settings of training."""
        return Training(
            objective=self._objective(),
            max_iterations=self.max_iterations,
            progress=self.verbose,
            cache_key=self._cache_key(),
            holder=self._training_model,
            drops_powers=isinstance(self.alpha, str) and self.alpha == "auto",
        )

    def _training_model(self, model: GPModel) -> Any:
        """Return the object that holds the data and the loss of a model."""
        return model

    def _batch_size(self, num_rows: int) -> int | None:
        """Return the number of rows in a batch; None for all rows."""
        several = getattr(self, "n_outputs_", 1) > 1
        if self.batch_size == "auto":
            return BATCH_SIZE if num_rows > MOST_ROWS and not several else None
        if self.batch_size is None:
            return None
        if isinstance(self.batch_size, str) or several:
            got = (
                f"{self.batch_size!r}{' with several columns of y' if several else ''}"
            )
            expected = (
                f"{'' if several else 'a number of rows, '}'auto' or None (all rows at"
                " once)"
            )
            raise checks.refusal(
                "batch_size", got, expected, "Leave it out if in doubt."
            )
        return min(checks.check_positive("batch_size", self.batch_size), num_rows)

    def _make_kernel(self, X: AnyNDArray, Y: AnyNDArray) -> Kernel:
        return make_kernel(self.kernel, X.shape[1], self.ard)

    def _cache_key(self) -> tuple[Any, ...] | None:
        """Return everything that a compiled loss depends on, except the shapes of
        parameters and of X's columns.

        None if that is not known, because a kernel, a likelihood or inducing variables
        of the user may be anything.
        """
        settings = self.get_params(deep=False)
        others = [settings.pop(name) for name in _NOT_COMPILED if name in settings]
        plain = str, int, float, bool, type(None)
        named = all(isinstance(value, plain) for value in settings.values())
        if not named or any(isinstance(value, InducingVariables) for value in others):
            return None
        eager, device = tf.config.functions_run_eagerly(), tf.zeros([]).device
        num_classes = len(getattr(self, "classes_", ()))
        surroundings = (gpflow.config.config(), eager, device)
        return type(self), num_classes, *sorted(settings.items()), *surroundings

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _validate(self, X: Any, *y: Any, **options: Any) -> Any:
        """Check inputs, and targets if there are any, and convert them to GPflow's
        float. Rows of X that are unknown have NaN in all columns.
        """
        check_table("X", X)
        check_table("y", y[0] if y else None)
        with words_refused(X):
            dtype = gpflow.default_float()
            options |= {"dtype": dtype, "ensure_all_finite": "allow-nan"}
            checked = validate_data(self, dense(X), *y, **options)
        rows = checked[0] if y else checked
        unknown = np.isnan(rows).all(axis=1)
        assert_all_finite(
            rows[~unknown], input_name="X", estimator_name=type(self).__name__
        )
        check_sizes("X", rows)
        return checked

    def _inputs(self, X: Any) -> AnyNDArray:
        """Check inputs, and scale them from original units to the model's."""
        return self._in_units(self._rows(X))

    def _rows(self, X: Any) -> AnyNDArray:
        """Check inputs, and put their columns in order."""
        check_is_fitted(self)
        names = getattr(self, "feature_names_in_", ())
        if len(names) and sorted(getattr(X, "columns", ()), key=str) == sorted(names):
            X = X[list(names)]  # scikit-learn's message would list other columns
        rows: AnyNDArray = self._validate(X, reset=False)
        return rows

    def _in_units(self, X: AnyNDArray) -> AnyNDArray:
        """Scale inputs from original units to the model's."""
        scaler = self._scaler
        if isinstance(scaler, YeoJohnson):
            return scaler.transform(X)
        # This skips the scaler's own checks, which take as long as the checks before.
        if scaler.with_mean:
            X = X - scaler.mean_.astype(X.dtype, copy=False)
        scaled: AnyNDArray = X / scaler.scale_.astype(X.dtype) if scaler.with_std else X
        return scaled

    def _predicted(
        self, X: AnyNDArray, predict: Callable[[AnyNDArray], Any], chunk_size: int
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
        """Leave out the posterior and its NumPy form, which are made when needed."""
        describe = DESCRIBE.get()
        if describe is not None:
            return describe(self)
        state = dict(super().__getstate__())
        for name in ("_posterior", "_numpy_components", "_judged"):
            if name in state:
                state[name] = None
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        restore = RESTORE.get()
        super().__setstate__(state if restore is None else restore(state))
