"""What the estimators have in common: columns matched by name, units, training, and pickling."""

import abc
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from functools import partial
from typing import Any

import gpflow
import numpy as np
import scipy.sparse
import tensorflow as tf
import tf_keras
from gpflow.base import AnyNDArray
from gpflow.inducing_variables import InducingVariables
from gpflow.kernels import Kernel
from gpflow.likelihoods import Likelihood
from gpflow.models import GPModel
from gpflow.posteriors import BasePosterior
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from .. import checks
from ..models import ARPEP
from ..tilted import check_num_latent
from ..training import MaximiseRecord, fit, maximise, select_alpha, shuffled_batches
from ..training.alphas import ALPHAS, check_alphas
from ..training.shared import fits_one_chunk, thread_cache
from ..training.whole_loss import WholeLoss
from .parts import make_inducing_variable, make_kernel

#: Training stops when steps raise log Z by less than TOLERANCE nats for each row, on average over
#: the last WINDOW. At alpha 1 above all, it can go on rising without end as kernel and inducing
#: points fit the training rows ever more closely, and held-out rows no better: docs/training.rst.
TOLERANCE, WINDOW = 1e-4, 10
#: Rows predicted at a time: enough for fast matrix products, few enough to need little memory.
PREDICTION_CHUNK = 10_000
#: Above so many rows, ``batch_size="auto"`` trains by minibatches of so many.
MOST_ROWS, BATCH_SIZE = 100_000, 1000
#: Minibatch training has so many steps at least, and passes over the data.
MINIBATCH_STEPS, MINIBATCH_EPOCHS = 3000, 5
_LEARNING_RATE = 0.01
#: The most numbers of a sparse matrix, zeros included, which is made dense: 400 MB.
MAX_DENSE = 50_000_000
#: Parameters of estimators on which a compiled loss does not depend.
_NOT_COMPILED = (
    *("num_inducing", "alpha", "inducing", "standardize", "max_iterations", "max_seconds"),
    *("batch_size", "random_state", "warm_start", "verbose"),
)

#: What gives the state of estimators, and what makes the attributes of it, while skops writes or
#: reads what is around them: :mod:`gpflow_pep.estimators.saving`. None: as pickle does.
DESCRIBE: ContextVar[Callable[["PEPEstimator"], dict[str, Any]] | None]
DESCRIBE = ContextVar("DESCRIBE", default=None)
RESTORE: ContextVar[Callable[[dict[str, Any]], dict[str, Any]] | None]
RESTORE = ContextVar("RESTORE", default=None)


#: Trains a model, and gives the record of that, if there is one, and the number of steps.
Trainer = Callable[[], tuple[MaximiseRecord | None, int]]


class PEPEstimator(BaseEstimator, abc.ABC):
    """
    A model behind scikit-learn's conventions; see the estimators.

    Parameters are those of :class:`PEPRegressor <gpflow_pep.estimators.PEPRegressor>`.
    """

    model_: GPModel
    n_features_in_: int
    feature_names_in_: AnyNDArray
    record_: MaximiseRecord | None = None
    _posterior: BasePosterior | None

    def __init__(
        self,
        kernel: str | Kernel = "rbf",
        *,
        num_inducing: int = 100,
        alpha: float | str | Sequence[float] = 0.5,
        likelihood: str | Likelihood = "auto",
        inducing: Any = "kmeans",
        standardize: bool = True,
        max_iterations: int = 1000,
        max_seconds: float | None = None,
        batch_size: int | str | None = "auto",
        random_state: Any = None,
        warm_start: bool = False,
        verbose: bool = False,
    ) -> None:
        self.kernel = kernel
        self.num_inducing = num_inducing
        self.alpha = alpha
        self.likelihood = likelihood
        self.inducing = inducing
        self.standardize = standardize
        self.max_iterations = max_iterations
        self.max_seconds = max_seconds
        self.batch_size = batch_size
        self.random_state = random_state
        self.warm_start = warm_start
        self.verbose = verbose

    @abc.abstractmethod
    def _make_likelihood(self) -> Likelihood: ...

    @abc.abstractmethod
    def _make_model(
        self, data: tuple[AnyNDArray, AnyNDArray], *parts: Any, alpha: float
    ) -> GPModel: ...

    def _units(self) -> tuple[float, float]:
        """Scale and offset from the model's targets to the original ones."""
        return 1.0, 0.0

    def _train(self, X: AnyNDArray, Y: AnyNDArray) -> None:
        """Train on inputs in original units, and targets [N, 1] as the model takes them."""
        checks.check_positive("num_inducing", self.num_inducing)
        checks.check_positive("max_iterations", self.max_iterations)
        self._scaler = StandardScaler(with_mean=self.standardize, with_std=self.standardize).fit(X)
        X = self._scaler.transform(X)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        before = self.model_ if self.warm_start and hasattr(self, "model_") else None
        batch_size = self._batch_size(len(X))
        alphas = self._alphas()
        model, train = self._model_and_trainer(X, Y, alphas[0], seed, batch_size)
        if before is not None:
            _continue_from(before, model)
        self.alpha_, self.alpha_scores_ = alphas[0], None
        if len(alphas) == 1:
            self.record_, self.n_iter_ = train()
        else:
            outcomes: dict[float, tuple[MaximiseRecord | None, int]] = {}
            selection = select_alpha(
                model,
                alphas,
                refit=lambda model: outcomes.update({float(model.alpha.numpy()): train()}),
            )
            self.alpha_ = selection.alpha
            self.record_, self.n_iter_ = outcomes[selection.alpha]
            log_scale = float(np.log(self._units()[0]))
            self.alpha_scores_ = {s.alpha: s.log_density - log_scale for s in selection.scores}
        self._set_model(model)
        self._posterior = model.posterior()

    def _set_model(self, model: GPModel) -> None:
        self.model_, self._posterior = model, None
        self.kernel_, self.likelihood_ = model.kernel, model.likelihood
        self.inducing_variable_ = getattr(model, "inducing_variable", None)

    @property
    def input_scaler_(self) -> StandardScaler:
        """What changes inputs from original units to those of ``model_``."""
        return self._scaler

    def _alphas(self) -> tuple[float, ...]:
        """Give the power, or the powers of which one is chosen."""
        if isinstance(self.alpha, str):
            if self.alpha != "auto":
                expected = "a number in [0, 1], several, or 'auto'"
                raise checks.refusal("alpha", repr(self.alpha), expected, "Choose 0.5 if in doubt.")
            return ALPHAS
        alpha: Any = self.alpha
        return check_alphas(alpha) if np.ndim(alpha) else (alpha,)

    def _batch_size(self, num_rows: int) -> int | None:
        """Give the rows in a batch; None: all."""
        if self.batch_size == "auto":
            batch_size = BATCH_SIZE if num_rows > MOST_ROWS else None
        elif self.batch_size is None:
            batch_size = None
        elif isinstance(self.batch_size, str):
            expected = "a number of rows, 'auto' or None"
            remedy = "Leave it out if in doubt."
            raise checks.refusal("batch_size", repr(self.batch_size), expected, remedy)
        else:
            checks.check_positive("batch_size", self.batch_size)
            batch_size = min(self.batch_size, num_rows)
        if batch_size and len(self._alphas()) > 1:
            raise checks.refusal(
                "alpha",
                f"{self.alpha!r} with minibatches",
                "a number: leaving rows out needs a site for each",
                "Pass a number, or batch_size=None.",
            )
        return batch_size

    def _model_and_trainer(
        self, X: AnyNDArray, Y: AnyNDArray, alpha: float, seed: int, batch_size: int | None
    ) -> tuple[GPModel, Trainer]:
        parts = self._parts(X, seed)
        if batch_size is None:
            model = self._make_model((X, Y), *parts, alpha=alpha)
            return model, self._trainer(model)
        num_latent = check_num_latent(None, parts[1], tf.constant(Y))
        model = ARPEP(*parts, alpha=alpha, num_data=len(X), num_latent_gps=num_latent)
        batches = shuffled_batches((X, Y), batch_size, seed=seed % 2**31)

        def train_by_batches() -> tuple[None, int]:
            num_steps = max(MINIBATCH_STEPS, MINIBATCH_EPOCHS * len(X) // batch_size)
            num_steps = min(num_steps, self.max_iterations * max(1, len(X) // batch_size))
            optimizer = tf_keras.optimizers.Adam(_LEARNING_RATE)
            fit(model, batches, num_steps=num_steps, optimizer=optimizer, progress=self.verbose)
            return None, num_steps

        return model, train_by_batches

    def _parts(self, X: AnyNDArray, seed: int) -> tuple[Kernel, Likelihood, InducingVariables]:
        """Make the parts of a model, with the values that training starts from."""
        kernel = make_kernel(self.kernel, X.shape[1])
        points = make_inducing_variable(self.inducing, X, self.num_inducing, kernel, seed)
        return kernel, self._make_likelihood(), points

    def _trainer(self, model: GPModel) -> Trainer:
        """Make a function that trains a model on all rows; at several powers it compiles once."""
        cache_key = self._cache_key()
        if cache_key is None or not fits_one_chunk(model):
            return partial(self._train_lbfgs, partial(maximise, WholeLoss(model)))
        shared = partial(thread_cache().maximise, model, cache_key=cache_key)
        return partial(self._train_lbfgs, shared)

    def _cache_key(self) -> tuple[Any, ...] | None:
        """
        Name all that a compiled loss depends on beside the shapes of parameters and of X's columns.

        None where that is not known: a kernel, a likelihood or inducing variables may be anything.
        """
        settings = self.get_params(deep=False)
        others = [settings.pop(name) for name in _NOT_COMPILED if name in settings]
        named = all(isinstance(value, (str, int, float, bool)) for value in settings.values())
        if not named or any(isinstance(value, InducingVariables) for value in others):
            return None
        eager, device = tf.config.functions_run_eagerly(), tf.zeros([]).device
        num_classes = len(getattr(self, "classes_", ()))
        surroundings = (gpflow.config.config(), eager, device)
        return type(self), num_classes, *sorted(settings.items()), *surroundings

    def _train_lbfgs(self, train: Callable[..., MaximiseRecord]) -> tuple[MaximiseRecord, int]:
        record = train(
            tolerance=TOLERANCE,
            window=WINDOW,
            max_iterations=self.max_iterations,
            seconds=self.max_seconds,
            progress=self.verbose,
        )
        if not record.converged:
            warnings.warn(
                f"Training ended after {record.iterations} steps: {record.message} Raise"
                " max_iterations or max_seconds, or start from another kernel.",
                ConvergenceWarning,
                stacklevel=4,
            )
        return record, record.iterations

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _validate(self, X: Any, *y: Any, **options: Any) -> Any:
        """Check inputs, and targets if there are any; they become of GPflow's float."""
        return validate_data(self, _dense(X), *y, dtype=gpflow.default_float(), **options)

    def _inputs(self, X: Any) -> AnyNDArray:
        """Check inputs, and change them from original units to the model's."""
        check_is_fitted(self)
        names = getattr(self, "feature_names_in_", ())
        if len(names) and sorted(getattr(X, "columns", ()), key=str) == sorted(names):
            X = X[list(names)]  # of other columns scikit-learn says what is wrong
        scaled: AnyNDArray = self._scaler.transform(self._validate(X, reset=False))
        return scaled

    def _latents(
        self, X: AnyNDArray, chunk_size: int = PREDICTION_CHUNK
    ) -> Iterator[tuple[AnyNDArray, Any, Any]]:
        """Give inputs as the model takes them with moments of f there, some rows at a time."""
        if self._posterior is None:
            self._posterior = self.model_.posterior()
        for start in range(0, len(X), chunk_size):
            rows = X[start : start + chunk_size]
            yield rows, *self._posterior.predict_f(rows)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the posterior, which is computed again when it is needed."""
        describe = DESCRIBE.get()
        if describe is not None:
            return describe(self)
        state = dict(super().__getstate__())
        if "_posterior" in state:
            state["_posterior"] = None
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        restore = RESTORE.get()
        super().__setstate__(state if restore is None else restore(state))


def _continue_from(before: GPModel, model: GPModel) -> None:
    """Give a model the parameters of another that have the same path and shape."""
    parameters = gpflow.utilities.parameter_dict(model)
    for path, value in gpflow.utilities.parameter_dict(before).items():
        parameter = parameters.get(path)
        if parameter is not None and parameter.trainable and parameter.shape == value.shape:
            parameter.assign(value)


def _dense(X: Any) -> Any:
    if not scipy.sparse.issparse(X):
        return X
    if np.prod(X.shape, dtype=np.float64) > MAX_DENSE:
        raise checks.refusal(
            "X",
            f"a sparse matrix of shape {X.shape}",
            f"at most {MAX_DENSE:,} numbers, zeros included, because it is made dense",
            "Reduce its columns, for example by sklearn.decomposition.TruncatedSVD; predict some"
            " rows at a time.",
        )
    return X.toarray()


def refuse_weights(refused: dict[str, Any]) -> None:
    """
    Refuse other arguments that ``fit`` of scikit-learn's estimators takes.

    :raises TypeError: If there is any.
    """
    if "sample_weight" in refused:
        raise TypeError(
            "sample_weight: got weights, expected none: the likelihood of a Gaussian process says"
            " how much a row counts. Pass noise that depends on the input as the likelihood, or"
            " repeat rows."
        )
    if refused:
        raise TypeError(f"fit: got {', '.join(refused)}, expected X and y only. Leave them out.")
