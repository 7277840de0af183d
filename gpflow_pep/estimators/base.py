"""What the estimators have in common: columns matched by name, units, training, and
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
from ..engine import checks
from ..engine.factors import check_num_latent
from ..engine.factors.entries import has_gaussian_noise
from ..engine.prior import is_mixed
from ..engine.refusals import counted
from ..scoring.ensemble import FAR, NumpyEnsemble, are_asked, is_far
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
from ..training.fitting.exact import Hyperparameters
from ..training.fitting.objectives import Objective, assign_same, near_lengthscales
from ..training.fitting.points import OVER, copies_of, may_be_trials
from .inputs import (
    YEO_JOHNSON,
    check_sizes,
    check_table,
    dense,
    fit_yeo_johnson,
    refuse_weights,
    seed_of,
    warn_of_wild_numbers,
    words_refused,
)
from .numpy_parts import numpy_ensembles
from .parts import (
    ROWS,
    make_inducing_variable,
    make_kernel,
    start_at,
    wants_near_rows,
)
from .rows_held import RowsHeld, count_rows_held
from .stack import Stack
from .target_units import log_slopes
from .trainer import Attempts, Trained, tied_model, train_by_batches, train_model

#: ``num_inducing="auto"`` starts with so many inducing points and adds others as long
#: as a score rises; with thousands of rows it starts with the second number, and where
#: it cannot add any, with minibatches for example, it is that.
FIRST_POINTS, MANY_POINTS = 25, 100
#: Rows predicted at a time: enough for fast matrix products, few enough to need little
#: memory.
PREDICTION_CHUNK = 10_000
#: Above so many rows, ``batch_size="auto"`` trains by minibatches of so many.
MOST_ROWS, BATCH_SIZE = 100_000, 1000
#: Parameters of estimators on which a compiled loss does not depend.
_NOT_COMPILED = (
    "order",  # of classes, which changes labels alone
    *(
        "num_inducing",
        "alpha",
        "inducing",
        "standardize",
        "max_iterations",
        "max_seconds",
    ),
    *("warp", "inputs", "batch_size", "random_state", "warm_start", "verbose"),
    "num_latent",  # which the shapes of parameters show
)

#: Another value of one of these than the default names one model.
OF_ONE_MODEL = (
    *(
        "kernel",
        "noise",
        "warp",
        "inputs",
        "num_inducing",
        "alpha",
        "objective",
        "likelihood",
    ),
    *("inducing", "ard", "standardize", "batch_size"),
)
#: What describes an estimator of several components by the one of the largest weight.
OF_HEAVIEST = ("record_", "n_iter_", "alpha_scores_")

#: What gives the state of estimators, and what makes the attributes of it, while skops
#: writes or reads what is around them: :mod:`gpflow_pep.estimators.saving`. None: as
#: pickle does.
DESCRIBE: ContextVar[Callable[["PEPEstimator"], dict[str, Any]] | None]
DESCRIBE = ContextVar("DESCRIBE", default=None)
RESTORE: ContextVar[Callable[[dict[str, Any]], dict[str, Any]] | None]
RESTORE = ContextVar("RESTORE", default=None)


Fitted = TypeVar("Fitted", bound="PEPEstimator")


class PEPEstimator(BaseEstimator, abc.ABC):
    """A model behind scikit-learn's conventions; see the estimators.

    Parameters are those of :class:`PEPRegressor <gpflow_pep.estimators.PEPRegressor>`.
    """

    model_: GPModel | Ensemble
    n_features_in_: int
    feature_names_in_: AnyNDArray
    #: How many training rows its files hold.
    rows_held_: RowsHeld
    record_: MaximiseRecord | None = None
    _posterior: EnsemblePosterior | None
    #: What predicts with NumPy: one ensemble; none where it cannot; None until it is
    #: needed.
    _numpy_ensembles: tuple[NumpyEnsemble, ...] | None = None
    _known_scores: AnyNDArray | None
    #: The column of X that goes on beyond the rows; None: there is none.
    _time_place: int | None = None
    #: Several models that are mixed; None: one.
    _stack: Stack | None = None
    #: How the model was trained, and judged by rows left out; None: otherwise, or
    #: loaded.
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
        """Train on rows. A fit that fails or is interrupted leaves the estimator as it
        was.

        :param X: Inputs, [N, D]: an array or a table.
        :param y: Targets, [N]: numbers, or labels of two classes or more. Of a
            regressor also [N, P], with NaN where one was not observed.
        :param refused: Nothing; ``sample_weight`` is refused with the reason.
        :raises ValueError: If these or a parameter are not what the estimator can be
            trained with.
        """
        refuse_weights(refused)
        fitted = copy.copy(self)
        # Components are copies of it, and have none of their own.
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
        """Train this estimator, a copy of the one that ``fit`` was called for, and give
        the inputs of its rows, [N, D].
        """

    def _check_parameters(self) -> None:
        if self.num_inducing != "auto":
            checks.check_positive("num_inducing", self.num_inducing)
        checks.check_positive("max_iterations", self.max_iterations)
        if self.max_seconds is not None:
            remedy = "None is for no limit."
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
        """Leave out rows that are NaN, and copies of rows if several models are mixed
        and y is no trial; warn of them, and of wild inputs.
        """
        known = ~np.isnan(X).all(axis=1)
        if not known.all():
            message = (
                f"X: nothing is known of {np.sum(~known)} row(s), which are left out."
            )
            warnings.warn(message, stacklevel=4)
            X, Y = X[known], Y[known]
        _, distinct = np.unique(copies_of(X, Y), return_index=True)
        if len(distinct) < len(X):
            copies = (
                f"{len(X) - len(distinct)} of {len(X)} rows are copies of others,"
                " inputs and y."
            )
            if may_be_trials(Y):
                fate = "They stay, as trials that came out alike."
            elif self._names_a_model:
                fate = (
                    "They stay, as a setting names one model. Remove those that are no"
                    " measurements of their own."
                )
            else:
                fate = "They are left out, as no row is to predict its own copy."
                X, Y = X[np.sort(distinct)], Y[np.sort(distinct)]
            warnings.warn(f"{copies} {fate}", stacklevel=4)
        if len(X) > 1 and (X[0] == X).all():
            message = (
                "X: all rows are the same, and no prediction elsewhere rests on"
                " anything."
            )
            warnings.warn(message, stacklevel=4)
        warn_of_wild_numbers(X, getattr(self, "feature_names_in_", ()))
        return X, Y

    def _scaled_rows(self, X: AnyNDArray) -> AnyNDArray:
        """Choose how inputs are changed from original units to the model's, and change
        them.
        """
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
        """Train on inputs [N, D] and targets [N, P] as the model takes them.

        :param start: Where a kernel by name starts; None: as it is made.
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
        # The power in the middle: from there it is not far to the others.
        alpha = attempts.alphas[len(attempts.alphas) // 2]
        parts = kernel, likelihood, points
        if batch_size is not None:
            model: Any = tied_model(Y, *parts, alpha=alpha)
        else:
            model = self._make_model((X, Y), *parts, alpha=alpha)
        if before is not None:
            assign_same(model, heaviest(before, from_points=True))
        if batch_size is not None:
            self.record_ = None
            options = batch_size, seed, attempts.end
            self.n_iter_ = train_by_batches(self, model, (X, Y), *options)
        else:
            few = points.num_inducing < len(np.unique(X, axis=0))
            attempts = attempts._replace(grows=attempts.grows and bool(few))
            trained = train_model(self, model, (X, Y), attempts, seed)
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
        self._numpy_ensembles = numpy_ensembles(self._posterior)

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
        """Compute what a row's log density in the units of the model, on average, lacks
        of that in the units of y.
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
            expected = "a number: leaving rows out needs a site for each"
            raise checks.refusal("alpha", got, expected, remedy)
        grows = self.num_inducing == "auto" and batch_size is None
        grows &= isinstance(self.inducing, str) and self.inducing != ROWS
        near = wants_near_rows(self.near_rows) and (grows or mixes or judged)
        return Attempts(
            alphas, mixes, grows, near, time.perf_counter() + self._seconds_of_points()
        )

    def _powers(self) -> tuple[float, ...]:
        """Read the powers that the user passes as numbers."""
        alpha: Any = self.alpha
        if isinstance(alpha, str) or np.asarray(alpha).dtype == bool:
            expected = "a number in [0, 1], several, 'mix' or 'auto'"
            remedy = "Leave it out if in doubt."
            raise checks.refusal("alpha", repr(alpha), expected, remedy)
        return check_alphas(alpha) if np.ndim(alpha) else (alpha,)

    def _set_model(self, model: GPModel | Ensemble) -> None:
        self.model_, self._posterior, self._known_scores = model, None, None
        self._numpy_ensembles = None
        main = heaviest(model)
        self.kernel_, self.likelihood_ = main.kernel, main.likelihood
        self.inducing_variable_ = getattr(main, "inducing_variable", None)
        self.alpha_ = float(main.alpha.numpy()) if hasattr(main, "alpha") else np.nan

    @property
    def _names_a_model(self) -> bool:
        """Whether a setting names one model, in the place of several that are mixed."""
        defaults = inspect.signature(type(self)).parameters
        named = {name: getattr(self, name) for name in OF_ONE_MODEL if name in defaults}
        return any(
            not isinstance(value, type(defaults[name].default))
            or value != defaults[name].default
            for name, value in named.items()
        )

    @property
    def components_(self) -> tuple[Any, ...]:
        """The models that are mixed, each an estimator of its own; of one model it
        alone.
        """
        return (self,) if self._stack is None else self._stack.components

    @property
    def weights_(self) -> AnyNDArray:
        """The weights of the components' densities, [K], of sum 1."""
        check_is_fitted(self)
        return np.ones(1) if self._stack is None else self._stack.weights

    @property
    def recalibration_(self) -> Recalibration:
        """What makes the mixture right on average over rows that were left out."""
        check_is_fitted(self)
        return getattr(self._stack, "recalibration", None) or Recalibration()

    def summary(self) -> str:
        """Describe in a few lines what was tried and kept, and why, with weights."""
        check_is_fitted(self)
        return self._one_line() if self._stack is None else "\n".join(self._stack.lines)

    @property
    def num_inducing_(self) -> int:
        """How many inducing variables the component of the largest weight has: of an
        exact one as many as rows that differ; of several latent functions, as many for
        each.
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
            tried.append("and no more, as the time was over")
        points = counted(self.num_inducing_, "inducing point")
        text = f"{name} with the kernel {kernel} and {points}"
        text += f" (tried: {', '.join(tried)})" if tried else ""
        return f"{text}, {', '.join(powers)}."

    def _set_stack(self, stack: Stack) -> None:
        """Take over a stack, and what describes its heaviest component."""
        part = stack.heaviest
        self._set_model(part.model_)
        for name in (
            "_scaler",
            "_target",
            "_posterior",
            "_numpy_ensembles",
            *OF_HEAVIEST,
        ):
            if hasattr(part, name):
                setattr(self, name, getattr(part, name))
        self._stack = stack

    @property
    def posterior_(self) -> EnsemblePosterior:
        """What predicts f and y at inputs as the model takes them; of one component or
        several.
        """
        if self._posterior is None:
            self._posterior = ensemble_posterior(self.model_)
        return self._posterior

    @property
    def _numpy_ensemble(self) -> NumpyEnsemble | None:
        """What predicts with NumPy, many times faster; None for other models."""
        if self._numpy_ensembles is None:
            self._numpy_ensembles = numpy_ensembles(self.posterior_)
        return self._numpy_ensembles[0] if self._numpy_ensembles else None

    def far_rows(self, X: Any) -> AnyNDArray:
        """Find for each row, [N], whether it is so far from the training rows that they
        have nearly no information on it: the variance of f is nearly what it was before
        training, by any component whose weight is .2 or more, or the largest. So is a
        row with an input that such a component cuts
        (:class:`~gpflow_pep.distributions.YeoJohnson`).

        :param X: Inputs, [N, D].
        :raises ValueError: If they are not what the model was trained on.
        """
        rows, stack = self._rows(X), self._stack
        if stack is None:
            return self._far_rows(rows)
        places = getattr(stack, "places", None)
        if places is not None:
            parts = [stack.components[place] for place in sorted(set(places))]
            return np.asarray(np.all([part.far_rows(rows) for part in parts], axis=0))
        pairs = zip(are_asked(stack.weights), stack.components, strict=True)
        found = [part._far_rows(rows) for is_asked, part in pairs if is_asked]
        return np.asarray(np.any(found, axis=0))

    def _far_rows(self, rows: AnyNDArray) -> AnyNDArray:
        """Find far rows in original units, by this one model."""
        X, ensemble = self._in_units(rows), self._numpy_ensemble
        if ensemble is not None:
            far = is_far(ensemble, X)
        else:
            far = np.isnan(X).all(axis=1)
            models, weights = components(self.model_)
            every = zip(
                are_asked(weights), models, self.posterior_.posteriors, strict=True
            )
            for is_asked, model, posterior in every:
                if is_asked:
                    far = far | self._is_far(model, posterior, X)
        if isinstance(self._scaler, YeoJohnson):
            far = far | self._scaler.are_cut(rows)
        return far

    def _is_far(self, model: GPModel, posterior: Any, X: AnyNDArray) -> AnyNDArray:
        """Find far rows by TensorFlow, as :mod:`gpflow_pep.scoring.ensemble` does."""
        (variance,) = self._predicted(
            X, lambda rows: posterior.predict_f(rows)[1], PREDICTION_CHUNK
        )
        options = {"full_output_cov": False} if is_mixed(model.kernel) else {}
        prior = np.asarray(model.kernel(X, full_cov=False, **options))
        shares = np.min(variance / prior.reshape(len(X), -1), axis=1)
        return np.asarray(~(shares <= FAR))  # also where X is unknown

    @property
    def input_scaler_(self) -> "StandardScaler | YeoJohnson":
        """What changes inputs from original units to those of ``model_``."""
        return self._scaler

    def _seed(self) -> int:
        return seed_of(self.random_state)

    def _with_near_labels(
        self, model: GPModel | Ensemble, data: RegressionData, seed: int
    ) -> GPModel | Ensemble:
        """Mix a model with another trained to predict from near rows, where that is
        better.
        """
        return model

    @property
    def near_rows_(self) -> int:
        """How many near training rows are known to predictions; 0: none."""
        check_is_fitted(self)
        return max((near.number for near in near_rows(self.model_) if near), default=0)

    def _seconds_of_points(self) -> float:
        """Give the most seconds of training a model to predict from its inducing
        points.
        """
        return np.inf if self.max_seconds is None else self.max_seconds

    def _objective(self) -> Objective:
        """Give what training maximises: see :func:`~gpflow_pep.training.maximise`."""
        objective: Objective = getattr(self, "objective", "evidence")
        if objective != "evidence" or isinstance(self.ard, bool | np.bool_):
            return objective
        return near_lengthscales(float(self.ard))

    def _training_model(self, model: GPModel) -> Any:
        """Give what holds the data and the loss of a model."""
        return model

    def _batch_size(self, num_rows: int) -> int | None:
        """Give the rows in a batch; None: all."""
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
                f"{'' if several else 'a number of rows, '}'auto' or None, all rows at"
                " once"
            )
            raise checks.refusal(
                "batch_size", got, expected, "Leave it out if in doubt."
            )
        return min(checks.check_positive("batch_size", self.batch_size), num_rows)

    def _make_kernel(self, X: AnyNDArray, Y: AnyNDArray) -> Kernel:
        return make_kernel(self.kernel, X.shape[1], self.ard)

    def _cache_key(self) -> tuple[Any, ...] | None:
        """
        Name all that a compiled loss depends on beside the shapes of parameters and of
        X's columns.

        None where that is not known: a kernel, a likelihood or inducing variables may
        be anything.
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
        """
        Check inputs, and targets if there are any; they become of GPflow's float. Rows
        of X may be NaN throughout: nothing is known of them.
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
        """Check inputs, and change them from original units to the model's."""
        return self._in_units(self._rows(X))

    def _rows(self, X: Any) -> AnyNDArray:
        """Check inputs, and put their columns in order."""
        check_is_fitted(self)
        names = getattr(self, "feature_names_in_", ())
        if len(names) and sorted(getattr(X, "columns", ()), key=str) == sorted(names):
            X = X[list(names)]  # scikit-learn's message names other columns
        rows: AnyNDArray = self._validate(X, reset=False)
        return rows

    def _in_units(self, X: AnyNDArray) -> AnyNDArray:
        """Change inputs from original units to the model's."""
        scaler = self._scaler
        if isinstance(scaler, YeoJohnson):
            return scaler.transform(X)
        # Without the scaler's own checks, which take as long as the checks before.
        if scaler.with_mean:
            X = X - scaler.mean_.astype(X.dtype, copy=False)
        scaled: AnyNDArray = X / scaler.scale_.astype(X.dtype) if scaler.with_std else X
        return scaled

    def _predicted(
        self, X: AnyNDArray, predict: Callable[[AnyNDArray], Any], chunk_size: int
    ) -> list[AnyNDArray]:
        """Predict some rows at a time: the parts of what a function returns, for all
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
        """Leave out the posterior and what is made of it: they are made again when
        needed.
        """
        describe = DESCRIBE.get()
        if describe is not None:
            return describe(self)
        state = dict(super().__getstate__())
        for name in ("_posterior", "_numpy_ensembles", "_judged"):
            if name in state:
                state[name] = None
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        restore = RESTORE.get()
        super().__setstate__(state if restore is None else restore(state))
