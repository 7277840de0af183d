"""The models that a comparison trains: the default, single models at each power, and
baselines.
"""

from itertools import product
from typing import Any

import gpflow
import numpy as np
import pandas as pd
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.likelihoods import Likelihood
from gpflow.models import GPModel
from scipy.stats import nbinom, norm, skew
from sklearn.base import BaseEstimator, MetaEstimatorMixin, RegressorMixin, clone
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
)
from sklearn.linear_model import LogisticRegression, PoissonRegressor, RidgeCV
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from ..engine.factors import check_num_latent, check_support
from ..estimators import PEPClassifier, PEPRegressor
from ..estimators.separate import SeparateRegressors
from ..estimators.single.classes import SingleClassifier
from ..estimators.single.model import MANY_POINTS, MOST_ROWS
from ..estimators.single.parts import CLASSES, NUMBERS, make_likelihood
from ..estimators.single.regression import EXACT_ROWS
from ..estimators.single.settings import ROWS
from ..likelihoods import LogNormal
from ..tables.cleaning import Cleaned
from ..tables.encodings import CYCLES
from .series import LAST_VALUE, SAME_SEASON, PastValue, season_of, spacing
from .settings import AUTO, COUNTS, GAUSSIAN, INITS, Settings
from .trees import FEWEST_ROWS, TREES, StoppedTrees, best_stage, num_words

#: The baselines of every comparison: the mean, or how frequent each class is.
TRIVIAL = {"numbers": "mean", "classes": "class frequencies"}
#: The estimator with default arguments, apart from arguments that the data need; and
#: single models.
DEFAULT = "default"
SINGLE = "alpha"
#: The end of the names of separate models, which model each of several targets by
#: itself.
SEPARATE = "separate"
#: The likelihood of skewed targets, and the smallest skewness at which the default is
#: also tried with this likelihood. The skewness of 40 Gaussian targets has a standard
#: error of 0.37 and is this large in fewer than 1% of tables.
LOGARITHMS = "log_normal"
SKEWED = 1.0
#: The smallest mean of a count. With a mean of 0 a count of 1 has probability 0.
LEAST_COUNT = 1e-3


class WithSpread(RegressorMixin, MetaEstimatorMixin, BaseEstimator):
    """A regressor of scikit-learn that predicts distributions: Gaussians with a common
    standard deviation, or negative binomials whose variance is the mean plus a multiple
    of its square.

    :param regressor: The regressor, which is copied. Held-out rows choose the number of
        boosted trees.
    :param counts: Whether targets are counts, with negative binomial distributions.
    """

    def __init__(self, regressor: Any, counts: bool = False) -> None:
        self.regressor = regressor
        self.counts = counts

    def fit(self, X: Any, y: Any, held_out: Any = None) -> "WithSpread":
        """Train on rows.

        :param held_out: The rows, as booleans [N], on which the deviation or the
            multiple is estimated, with a copy that is trained on the other rows. With
            None both are estimated on the training rows.
        """
        y = _without_limits(y)[0]
        regressor = clone(self.regressor)
        if held_out is not None:
            true, mean = self._predict_held_out(regressor, X, y, held_out)
        self.regressor_ = regressor.fit(X, y)
        if held_out is None:
            true = y
            mean = self.regressor_.predict(X)
        square = float(np.mean((true - mean) ** 2))
        # If all targets are equal, this is the smallest noise of PEPRegressor.
        self.std_ = float(np.sqrt(square)) or 1e-3
        # Near 0 the distribution is Poisson, but SciPy's negative binomial does not
        # allow 0.
        self.excess_ = max(
            (square - np.mean(mean)) / max(np.mean(mean**2), LEAST_COUNT), 1e-6
        )
        return self

    def _predict_held_out(
        self, regressor: Any, X: Any, y: AnyNDArray, held_out: Any
    ) -> tuple[AnyNDArray, AnyNDArray]:
        """Return the targets of held-out rows and their predictions, and set the number
        of trees of the regressor.
        """
        copy = clone(regressor).fit(X[~held_out], y[~held_out])
        true = y[held_out]
        rows = X[held_out]
        if hasattr(copy, "staged_predict") and len(y) >= FEWEST_ROWS:
            stage, mean = best_stage(copy, rows, true)
            regressor.set_params(max_iter=stage)
            return true, mean
        return true, copy.predict(rows)

    def _distribution(self, X: Any) -> Any:
        """Return the distribution of y at each row, as a distribution of SciPy."""
        mean = self.regressor_.predict(X)
        if not self.counts:
            return norm(mean, self.std_)
        mean = np.maximum(mean, LEAST_COUNT)
        return nbinom(1.0 / self.excess_, 1.0 / (1.0 + self.excess_ * mean))

    def predict_quantiles(self, X: Any, quantiles: Any) -> AnyNDArray:
        """Predict quantiles of y, [N, Q]."""
        distribution = self._distribution(X)
        return np.stack([distribution.ppf(quantile) for quantile in quantiles], axis=1)

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Predict the mean, [N]."""
        mean = self.regressor_.predict(X)
        return (mean, self._distribution(X).std()) if return_std else mean

    def log_densities(self, X: Any, y: Any) -> AnyNDArray:
        """Compute the log density of each row, or the log probability for counts,
        [N].
        """
        y, sides = _without_limits(y)
        distribution = self._distribution(X)
        if self.counts:
            return np.asarray(distribution.logpmf(y))
        beyond = np.where(sides < 0.0, distribution.logcdf(y), distribution.logsf(y))
        return np.where(sides == 0.0, distribution.logpdf(y), beyond)


def _without_limits(y: Any) -> tuple[AnyNDArray, AnyNDArray]:
    """Return numbers, and for each the side on which the target is: 0 if the target is
    the number, [N].
    """
    values = np.asarray(y, np.float64)
    values = values[:, None] if values.ndim == 1 else values
    return values[:, 0], values[:, 1] if values.shape[1] > 1 else np.zeros(len(values))


class _AllRows(gpflow.base.Module):
    """GPflow's SVGP with all rows as a single batch, trained like models that hold
    their data.
    """

    def __init__(
        self, model: gpflow.models.SVGP, data: tuple[tf.Tensor, tf.Tensor]
    ) -> None:
        super().__init__()
        self.model = model
        self.data = data

    def training_loss(self) -> tf.Tensor:
        return self.model.training_loss(self.data)


class _SingleSVGP(SingleClassifier):
    """GPflow's ``SVGP`` on all rows at once.

    With three classes or more the likelihood is RobustMax, as in "noisy_multiclass",
    because GPflow integrates the softmax with random draws, and L-BFGS then does not
    converge.
    """

    def make_likelihood(self) -> Likelihood:
        likelihood = super().make_likelihood()
        if type(likelihood) is gpflow.likelihoods.Softmax:
            # On wine the NLPD is .160. If epsilon is trained, it is .296, and training
            # does not converge.
            return CLASSES["noisy_multiclass"](self.num_classes)
        return likelihood

    def make_model(
        self, data: tuple[AnyNDArray, AnyNDArray], *parts: Any, alpha: float
    ) -> GPModel:
        num_latent = check_num_latent(None, parts[1], tf.constant(data[1]))
        self.data = tuple(map(tf.constant, data))
        return gpflow.models.SVGP(*parts, num_latent_gps=num_latent)

    def loss_holder(self, model: GPModel) -> Any:
        return _AllRows(model, self.data)


class WholeSVGP(PEPClassifier):
    """GPflow's ``SVGP``, trained on all rows at once, with the same start and the same
    stopping rule.
    """

    single_model = _SingleSVGP


def _baselines_of_numbers(data: Cleaned, settings: Settings) -> dict[str, Any]:
    """Make the baselines of numbers: the mean, a linear model with a chosen penalty,
    boosted trees, values of the past if there is a time column, and with few rows an
    exact Gaussian process.
    """
    counts = settings.likelihood in COUNTS
    linear: Any = RidgeCV(np.logspace(-3.0, 3.0, 13))
    name = "linear"
    loss = "squared_error"
    if counts:
        poisson = PoissonRegressor(solver="newton-cholesky", max_iter=1000)
        linear = GridSearchCV(poisson, {"alpha": np.logspace(-4.0, 1.0, 6)})
        name = "log-linear"
        loss = "poisson"
    scaled = make_pipeline(StandardScaler(), linear)
    trees = HistGradientBoostingRegressor(loss=loss, **_tree_options(data, settings))
    baselines: dict[str, Any] = {
        TRIVIAL["numbers"]: WithSpread(DummyRegressor(), counts),
        name: WithSpread(scaled, counts),
        TREES: WithSpread(trees, counts),
    }
    if settings.time_column is not None:
        for past, regressor in _past_values(data).items():
            baselines[past] = WithSpread(regressor, counts)
    if settings.likelihood in GAUSSIAN and len(data.X) <= EXACT_ROWS:
        options = _options(settings)
        baselines["exact GP"] = PEPRegressor(
            "matern52", inducing=ROWS, near_rows=0, **options
        )
    return baselines


def _past_values(data: Cleaned) -> dict[str, PastValue]:
    """Make the baseline that repeats the last value of a series, and if there are
    seasons, the baseline that repeats the value of the same season before.
    """
    season = season_of(data.blocks)
    regressors = {LAST_VALUE: PastValue()}
    if season is not None:
        regressors[SAME_SEASON] = PastValue(CYCLES[season], spacing(data.blocks))
    return regressors


def _baselines_of_classes(data: Cleaned, settings: Settings) -> dict[str, Any]:
    """Make the baselines of classes: the frequencies, a linear model, boosted trees,
    and GPflow's SVGP if there are not too many rows.
    """
    trees = HistGradientBoostingClassifier(**_tree_options(data, settings))
    baselines: dict[str, Any] = {
        TRIVIAL["classes"]: DummyClassifier(strategy="prior"),
        "linear": make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)),
        TREES: StoppedTrees(trees),
    }
    if len(data.X) <= MOST_ROWS:
        kernel, num_inducing = settings.configurations[0]
        points = MANY_POINTS if num_inducing == AUTO else num_inducing
        options = _options_of_points(settings)
        baselines["SVGP"] = WholeSVGP(kernel, num_inducing=points, alpha=0.0, **options)
    return baselines


def _tree_options(data: Cleaned, settings: Settings) -> dict[str, Any]:
    """Return the arguments of boosted trees. Their first columns are the columns of
    words.
    """
    return {
        # Rows that are held out here choose the number of trees, and the trees are then
        # trained again on all rows.
        "early_stopping": False,
        "random_state": settings.seed,
        "categorical_features": list(range(num_words(data.formats))) or None,
    }


def name_of(kind: str, *labels: str) -> str:
    """Write the name of the default or of a single model, with the settings that differ
    between models.
    """
    label = ", ".join(filter(None, labels))
    return f"{kind} ({label})" if label else kind


def label_of(name: str) -> str:
    """Return the part of a model's name in brackets; empty if there is none."""
    return name.partition(" (")[2].rstrip(")")


def holds_rows_out(name: str, estimator: Any) -> bool:
    """Whether a candidate holds out training rows, which ``fit`` then gets."""
    inner = getattr(estimator, "estimator", estimator)
    is_trivial = name in TRIVIAL.values()
    return not is_trivial and isinstance(inner, (WithSpread, StoppedTrees))


def is_choice(name: str) -> bool:
    """Whether a model, by its name, may be saved, because it is not a baseline."""
    return name.split()[0] in (DEFAULT, SINGLE)


def _is_skewed(data: Cleaned, settings: Settings) -> bool:
    """Whether the user did not set a likelihood, and logarithms of the targets are less
    skewed.
    """
    one_number = data.kind == "numbers" and len(data.targets) == 1
    if not one_number or settings.likelihood != "auto" or not (data.y > 0.0).all():
        return False
    skewness = float(skew(data.y))
    of_logarithms = abs(float(skew(np.log(data.y))))
    return skewness > SKEWED and of_logarithms < 0.5 * skewness


def check_targets(data: Cleaned, settings: Settings) -> None:
    """Check numbers against the likelihood of the settings, before anything is trained.

    :raises ValueError: If a target has probability 0.
    """
    name = settings.likelihood
    if data.kind == "numbers" and name != "auto" and len(data.targets) == 1:
        likelihood = (
            LogNormal() if name == "log_normal" else make_likelihood(name, NUMBERS)
        )
        check_support(likelihood, tf.constant(pd.DataFrame(data.outcomes).to_numpy()))


def make_candidates(data: Cleaned, settings: Settings) -> dict[str, tuple[float, Any]]:
    """Make all models, untrained, by name, with their powers (NaN if there is none)."""
    choices = _defaults(data, settings) | _singles(data, settings)
    if data.kind == "numbers":
        baselines = _baselines_of_numbers(data, settings)
    else:
        baselines = _baselines_of_classes(data, settings)
    if not settings.baselines:
        baselines = {TRIVIAL[data.kind]: baselines[TRIVIAL[data.kind]]}
    if len(data.targets) > 1:
        choices |= _separate(choices)
        baselines = {name: SeparateRegressors(b) for name, b in baselines.items()}
    return choices | {name: (np.nan, model) for name, model in baselines.items()}


def _defaults(data: Cleaned, settings: Settings) -> dict[str, tuple[float, Any]]:
    """Make the default, and if the target is skewed also the default for its
    logarithms.
    """
    options = _options(settings)
    if not settings.near_rows:
        options["near_rows"] = 0
    kind = _estimator(data)
    defaults = {DEFAULT: (np.nan, kind(**options))}
    if _is_skewed(data, settings):
        logarithms = kind(**options, likelihood=LOGARITHMS)
        defaults[name_of(DEFAULT, LOGARITHMS)] = np.nan, logarithms
    return defaults


def _singles(data: Cleaned, settings: Settings) -> dict[str, tuple[float, Any]]:
    """Make a single model at each power, with each kernel and number of points."""
    options = _options_of_points(settings)
    kind = _estimator(data)
    singles = {}
    for (kernel, num_inducing), alpha in product(
        settings.configurations, settings.alphas
    ):
        name = name_of(f"{SINGLE} {alpha:g}", settings.label(kernel, num_inducing))
        model = kind(kernel, num_inducing=num_inducing, alpha=alpha, **options)
        singles[name] = alpha, model
    return singles


def _separate(choices: dict[str, tuple[float, Any]]) -> dict[str, tuple[float, Any]]:
    """Make separate models of each of several targets, for each single model. The
    default tries both ways itself.
    """
    separate = {}
    for name, (alpha, estimator) in choices.items():
        if name != DEFAULT:
            kind = name.partition(" (")[0]
            of_each = SeparateRegressors(estimator)
            separate[name_of(kind, label_of(name), SEPARATE)] = alpha, of_each
    return separate


def _estimator(data: Cleaned) -> Any:
    return PEPRegressor if data.kind == "numbers" else PEPClassifier


def _options(settings: Settings) -> dict[str, Any]:
    """Return the arguments that all Gaussian processes have."""
    options: dict[str, Any] = {
        "random_state": settings.seed,
        "max_iterations": settings.max_iterations,
    }
    if settings.likelihood != "auto":
        options["likelihood"] = settings.likelihood
    if settings.order is not None:
        options["order"] = settings.order
    return options


def _options_of_points(settings: Settings) -> dict[str, Any]:
    """Return the arguments that Gaussian processes with inducing points have."""
    inducing = INITS[settings.init]
    return _options(settings) | {"inducing": inducing, "near_rows": 0}


def is_separate(name: str) -> bool:
    """Whether a model, by its name, models each of several targets by itself."""
    return label_of(name).endswith(SEPARATE)
