"""The common part of the estimators: parameters, matching of columns by name,
attributes after a fit, and pickling.
"""

from __future__ import annotations

import abc
import warnings
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any, ClassVar, TypeVar

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.preprocessing import StandardScaler
from sklearn.utils import assert_all_finite
from sklearn.utils.validation import check_is_fitted, validate_data

from ..distributions import Recalibration, YeoJohnson
from ..engine.left_out_rows import copies_of, may_be_trials
from ..engine.records import MaximiseRecord
from ..engine.refusals import as_code, refusal
from ..engine.refusals.arrays import AnyNDArray
from ..engine.refusals.numbers import (
    check_choice,
    check_positive,
    check_real,
    is_number,
)
from .recipe.mixture import ColumnMixture, Mixture
from .rows_held import RowsHeld, count_rows_held
from .single.defaults_of_gpflow import default_float
from .single.inputs import (
    YEO_JOHNSON,
    check_sizes,
    check_table,
    dense,
    refuse_weights,
    seed_of,
    warn_of_wild_numbers,
    words_refused,
)
from .single.model import SingleModel
from .single.settings import ModelSettings, wants_near_rows
from .single.when_used import ensemble, gpflow

#: The functions that turn an estimator into its state and back while skops writes or
#: reads the object around it: :mod:`gpflow_pep.estimators.saving`. None: the estimator
#: is pickled as usual.
DESCRIBE: ContextVar[Callable[[PEPEstimator], dict[str, Any]] | None]
DESCRIBE = ContextVar("DESCRIBE", default=None)
RESTORE: ContextVar[Callable[[dict[str, Any]], dict[str, Any]] | None]
RESTORE = ContextVar("RESTORE", default=None)


Fitted = TypeVar("Fitted", bound="PEPEstimator")


class PEPEstimator(BaseEstimator, abc.ABC):
    """Models with the conventions of scikit-learn; base class of the estimators.

    For the parameters see :class:`PEPRegressor <gpflow_pep.estimators.PEPRegressor>`.
    """

    #: The class of the single models.
    single_model: ClassVar[type[SingleModel]]
    #: The single models, and how they are mixed.
    mixture_: Mixture | ColumnMixture
    n_features_in_: int
    feature_names_in_: AnyNDArray
    #: The number of training rows that files of the estimator hold.
    rows_held_: RowsHeld

    def __init__(
        self,
        kernel: str | gpflow.kernels.Kernel = "auto",
        *,
        num_inducing: int | str = "auto",
        alpha: float | str | Sequence[float] = "auto",
        likelihood: str | gpflow.likelihoods.Likelihood = "auto",
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
        before = dict(vars(self))
        try:
            for name, value in self.get_params(deep=False).items():
                if isinstance(value, np.generic):  # a number or truth value of NumPy
                    setattr(self, name, value.item())
            self._check_parameters()
            rows = self._fit(X, y)
            self.rows_held_ = count_rows_held(self.mixture_.singles(), rows)
        except BaseException:
            self.__dict__ = before
            raise
        return self

    @abc.abstractmethod
    def _fit(self, X: Any, y: Any) -> AnyNDArray:
        """Train the models, and return the inputs of the rows, [N, D]."""

    def _settings(self, **others: Any) -> ModelSettings:
        """Return the parameters as settings.

        :param others: Settings that are not parameters of the estimator.
        """
        names = vars(ModelSettings()).keys() & self.get_params(deep=False).keys()
        own = {name: getattr(self, name) for name in names}
        return ModelSettings(**{**own, "seed": seed_of(self.random_state), **others})

    def _last_model(self) -> SingleModel | None:
        """Return the model from which a warm start begins."""
        if self.warm_start and hasattr(self, "mixture_"):
            return self.mixture_.heaviest
        return None

    def _check_parameters(self) -> None:
        if self.num_inducing != "auto":
            check_positive("num_inducing", self.num_inducing)
        check_positive("max_iterations", self.max_iterations)
        if self.max_seconds is not None:
            remedy = "None sets no limit."
            check_real("max_seconds", self.max_seconds, "[0, inf]", remedy)
        wants_near_rows(self.near_rows)
        remedy = "Leave it out if in doubt."
        check_choice("inputs", self.inputs, ("auto", "standard", YEO_JOHNSON), remedy)
        if self.inputs == YEO_JOHNSON and not self.standardize:
            got = f"{YEO_JOHNSON!r} with standardize=False"
            raise refusal(
                "inputs", got, "standardised inputs", "Leave one of them out."
            )
        booleans = ["ard", "standardize", "warm_start"]
        if is_number(self.ard):
            booleans.remove("ard")
            check_real("ard", self.ard, "(0, inf)", remedy)
        for name in booleans:
            if not isinstance(getattr(self, name), bool | np.bool_):
                got = as_code(getattr(self, name))
                expected = "True or False"
                if name == "ard":
                    expected = "True, False or a positive number"
                raise refusal(name, got, expected, remedy)

    def _known_rows(
        self, X: AnyNDArray, Y: AnyNDArray, is_one_model: bool
    ) -> tuple[AnyNDArray, AnyNDArray]:
        """Leave out rows that have only NaN, and copies of rows if several models are
        mixed and y is not a result of trials. Warn of both, and of wild inputs.

        :param is_one_model: Whether the settings select a single model.
        """
        known = ~np.isnan(X).all(axis=1)
        if not known.all():
            message = (
                f"X: {np.sum(~known)} row(s) with only missing values are left out."
            )
            warnings.warn(message, stacklevel=4)
            X = X[known]
            Y = Y[known]
        _, distinct = np.unique(copies_of(X, Y), return_index=True)
        if len(distinct) < len(X):
            copies = (
                f"{len(X) - len(distinct)} of {len(X)} rows are copies of others, in"
                " inputs and y."
            )
            if may_be_trials(Y):
                fate = "They are kept, as trials with the same result."
            elif is_one_model:
                fate = (
                    "They are kept, because the settings select a single model."
                    " Remove the copies that are not separate measurements."
                )
            else:
                fate = "They are left out, so that no row is predicted from its copy."
                X = X[np.sort(distinct)]
                Y = Y[np.sort(distinct)]
            warnings.warn(f"{copies} {fate}", stacklevel=4)
        if len(X) > 1 and (X[0] == X).all():
            message = (
                "X: all rows are identical, so predictions at other inputs are not"
                " based on data."
            )
            warnings.warn(message, stacklevel=4)
        warn_of_wild_numbers(X, getattr(self, "feature_names_in_", ()))
        return X, Y

    @property
    def components_(self) -> tuple[Any, ...]:
        """The models that are mixed: one or several
        :class:`~gpflow_pep.estimators.single.model.SingleModel`. If y has several
        columns with separate models, the components are mixtures.
        """
        return self.mixture_.components

    @property
    def weights_(self) -> AnyNDArray:
        """The weights of the components' densities, [K]; their sum is 1."""
        check_is_fitted(self)
        return self.mixture_.weights

    @property
    def recalibration_(self) -> Recalibration:
        """The correction that makes the mixture right on average over left-out rows."""
        check_is_fitted(self)
        return self.mixture_.recalibration or Recalibration()

    def summary(self) -> str:
        """Describe in a few lines which models were tried and kept, why, and their
        weights.
        """
        check_is_fitted(self)
        return "\n".join(self.mixture_.lines)

    @property
    def model_(self) -> gpflow.models.GPModel | ensemble.Ensemble:
        """The model of the component with the largest weight."""
        return self.mixture_.heaviest.model

    @property
    def kernel_(self) -> gpflow.kernels.Kernel:
        """The kernel of :attr:`model_`."""
        return self.mixture_.heaviest.kernel

    @property
    def likelihood_(self) -> gpflow.likelihoods.Likelihood:
        """The likelihood of :attr:`model_`."""
        return self.mixture_.heaviest.likelihood

    @property
    def inducing_variable_(self) -> Any:
        """The inducing variable of :attr:`model_`."""
        return self.mixture_.heaviest.inducing_variable

    @property
    def alpha_(self) -> float:
        """The power of :attr:`model_`; NaN if it has none."""
        return self.mixture_.heaviest.alpha

    @property
    def alpha_scores_(self) -> dict[float, float] | None:
        """The scores of several powers; None for one power."""
        return self.mixture_.heaviest.alpha_scores

    @property
    def record_(self) -> MaximiseRecord | None:
        """How the training of :attr:`model_` ended; None after training with
        minibatches and after loading.
        """
        return self.mixture_.heaviest.record

    @property
    def n_iter_(self) -> int:
        """The number of steps in which :attr:`model_` was trained."""
        return self.mixture_.heaviest.num_iterations

    @property
    def num_inducing_(self) -> int:
        """The number of inducing variables of the component with the largest weight. An
        exact component has as many as there are distinct rows. With several latent
        functions, each has this number.
        """
        check_is_fitted(self)
        return self.mixture_.heaviest.num_inducing

    @property
    def near_rows_(self) -> int:
        """The number of near training rows that predictions use; 0 if they use none."""
        check_is_fitted(self)
        return self.mixture_.heaviest.num_near_rows

    @property
    def posterior_(self) -> ensemble.EnsemblePosterior:
        """The posterior of the model, which predicts f and y at inputs in the model's
        units.
        """
        return self.mixture_.heaviest.posterior

    @property
    def input_scaler_(self) -> StandardScaler | YeoJohnson:
        """The scaler of inputs from original units to those of ``model_``."""
        return self.mixture_.heaviest.scaler

    def far_rows(self, X: Any) -> AnyNDArray:
        """Find for each row, [N], whether it is so far from the training rows that they
        have nearly no information on it.

        A row is far if the variance of f is nearly its prior variance, or if an input
        is cut (:class:`~gpflow_pep.distributions.YeoJohnson`), in a component with a
        weight of at least .2 or with the largest weight.

        This is not the range of the training rows: if the lengthscale of an input is
        long, as for a nearly straight line, rows at several times the largest input can
        still be correlated with training rows, and are not far. Their predictions have
        a larger standard deviation. :meth:`Scorer.unusual
        <gpflow_pep.scoring.Scorer.unusual>` lists the cells outside of the range.

        :param X: Inputs, [N, D].
        :raises ValueError: If the columns differ from the columns in training.
        """
        rows = self.checked_inputs(X)
        return self.mixture_.far_rows(rows)

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
            dtype = default_float()
            options |= {"dtype": dtype, "ensure_all_finite": "allow-nan"}
            checked = validate_data(self, dense(X), *y, **options)
        rows = checked[0] if y else checked
        unknown = np.isnan(rows).all(axis=1)
        assert_all_finite(
            rows[~unknown], input_name="X", estimator_name=type(self).__name__
        )
        check_sizes("X", rows)
        return checked

    def checked_inputs(self, X: Any) -> AnyNDArray:
        """Check inputs of a fitted estimator, [N, D], and put their columns in
        order.
        """
        check_is_fitted(self)
        names = getattr(self, "feature_names_in_", ())
        if len(names) and sorted(getattr(X, "columns", ()), key=str) == sorted(names):
            X = X[list(names)]  # scikit-learn's message would list other columns
        rows: AnyNDArray = self._validate(X, reset=False)
        return rows

    def __getstate__(self) -> dict[str, Any]:
        """Describe the estimator for skops, or return its attributes."""
        describe = DESCRIBE.get()
        if describe is not None:
            return describe(self)
        return dict(super().__getstate__())

    def __setstate__(self, state: dict[str, Any]) -> None:
        restore = RESTORE.get()
        super().__setstate__(state if restore is None else restore(state))
