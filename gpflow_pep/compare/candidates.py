"""The models that a comparison trains: estimators at each power, and baselines."""

from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.models import GPModel
from scipy.stats import norm
from sklearn.base import BaseEstimator, MetaEstimatorMixin, RegressorMixin, clone
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from ..estimators import PEPClassifier, PEPRegressor
from ..estimators.base import MANY_POINTS, MOST_ROWS
from ..tilted import check_num_latent
from .cleaning import Cleaned
from .settings import AUTO, INITS, Settings

#: Most rows for which the exact Gaussian process is trained too.
MOST_EXACT = 1000
#: What every comparison has: predicting the mean, or how frequent each class is.
TRIVIAL = {"numbers": "mean", "classes": "class frequencies"}
#: The name of the mixture of the powers 0, 0.5 and 1.
MIXTURE = "mix"


class WithSpread(RegressorMixin, MetaEstimatorMixin, BaseEstimator):
    """
    A regressor of scikit-learn's that predicts Gaussians, all with one standard deviation.

    :param regressor: It is copied.
    :param held_out: The deviation is that of the residuals of this fraction of the rows, by a copy
        that was trained on the others; 0: of all rows, by the regressor trained on all.
    """

    def __init__(self, regressor: Any, held_out: float = 0.2) -> None:
        self.regressor, self.held_out = regressor, held_out

    def fit(self, X: Any, y: Any) -> "WithSpread":
        """Train on rows."""
        y = np.asarray(y)
        self.regressor_ = clone(self.regressor).fit(X, y)
        residual = y - self.regressor_.predict(X)
        if self.held_out:
            train, test = train_test_split(
                np.arange(len(y)), test_size=self.held_out, random_state=0
            )
            residual = y[test] - clone(self.regressor).fit(X[train], y[train]).predict(X[test])
        self.std_ = float(np.sqrt(np.mean(residual**2)))
        return self

    def predict_quantiles(self, X: Any, quantiles: Any) -> AnyNDArray:
        """Predict quantiles of y, [N, Q]."""
        ends: AnyNDArray = self.predict(X)[:, None] + self.std_ * norm.ppf(quantiles)
        return ends

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Predict the mean, [N]."""
        mean = self.regressor_.predict(X)
        return (mean, np.full_like(mean, self.std_)) if return_std else mean

    def log_densities(self, X: Any, y: Any) -> AnyNDArray:
        """Compute the log density of each row, [N]."""
        densities: AnyNDArray = norm.logpdf(y, *self.predict(X, return_std=True))
        return densities


class ExactGP(PEPRegressor):
    """The exact Gaussian process, GPflow's ``GPR``, in the same units and trained the same way."""

    def _make_model(
        self, data: tuple[AnyNDArray, AnyNDArray], *parts: Any, alpha: float
    ) -> GPModel:
        kernel, likelihood, _ = parts
        return gpflow.models.GPR(data, kernel, likelihood=likelihood)

    def _mixes(self) -> bool:
        return False


class _AllRows(gpflow.base.Module):
    """GPflow's SVGP with all rows as its one batch, for what trains models that hold their data."""

    def __init__(self, model: gpflow.models.SVGP, data: tuple[tf.Tensor, tf.Tensor]) -> None:
        super().__init__()
        self.model, self.data = model, data

    def training_loss(self) -> tf.Tensor:
        return self.model.training_loss(self.data)


class WholeSVGP(PEPClassifier):
    """GPflow's ``SVGP``, trained on all rows at once, from the same start and by the same rule."""

    def _make_model(
        self, data: tuple[AnyNDArray, AnyNDArray], *parts: Any, alpha: float
    ) -> GPModel:
        num_latent = check_num_latent(None, parts[1], tf.constant(data[1]))
        self._data = tuple(map(tf.constant, data))
        return gpflow.models.SVGP(*parts, num_latent_gps=num_latent)

    def _training_model(self, model: GPModel) -> Any:
        return _AllRows(model, self._data)


def _linear(numbers: bool) -> Any:
    """Make a linear model with a penalty that is chosen, or logistic regression."""
    model = RidgeCV(np.logspace(-3.0, 3.0, 13)) if numbers else LogisticRegression(max_iter=1000)
    scaled = make_pipeline(StandardScaler(), model)
    return WithSpread(scaled) if numbers else scaled


def _trees(numbers: bool, seed: int) -> Any:
    """Make boosted trees with scikit-learn's settings."""
    if numbers:
        return WithSpread(HistGradientBoostingRegressor(random_state=seed))
    return HistGradientBoostingClassifier(random_state=seed)


def name_of(alpha: float) -> str:
    """Name the model of a power."""
    return f"alpha {alpha:g}"


def is_choice(name: str, alpha: float) -> bool:
    """Whether a model is one that may be the best: at a power or mixed, and not a baseline."""
    return name == MIXTURE or not np.isnan(alpha)


def make_candidates(data: Cleaned, settings: Settings) -> dict[str, tuple[float, Any]]:
    """Make all models, untrained, with their powers (NaN where there is none), by name."""
    numbers = data.kind == "numbers"
    options: dict[str, Any] = {
        "num_inducing": settings.num_inducing,
        "inducing": INITS[settings.init],
        "max_iterations": settings.max_iterations,
        "random_state": settings.seed,
    }
    likelihood = settings.likelihood
    if numbers:
        likelihood = "gaussian" if likelihood == "auto" else likelihood
        options["neighbours"] = settings.neighbours
    options["likelihood"] = likelihood
    kind = PEPRegressor if numbers else PEPClassifier
    trivial = WithSpread(DummyRegressor(), 0.0) if numbers else DummyClassifier(strategy="prior")
    candidates: dict[str, tuple[float, Any]] = {TRIVIAL[data.kind]: (np.nan, trivial)}
    if settings.baselines:
        if likelihood != "poisson":  # whose probabilities are no densities
            candidates["linear"] = np.nan, _linear(numbers)
            candidates["boosted trees"] = np.nan, _trees(numbers, settings.seed)
        plain = {name: option for name, option in options.items() if name != "neighbours"}
        if settings.num_inducing == AUTO:
            plain["num_inducing"] = MANY_POINTS
        if numbers and likelihood == "gaussian" and len(data.X) <= MOST_EXACT:
            candidates["exact GP"] = np.nan, ExactGP(settings.kernel, **plain)
        if not numbers and len(data.X) <= MOST_ROWS:
            candidates["SVGP"] = np.nan, WholeSVGP(settings.kernel, **plain, alpha=0.0)
    for alpha in settings.alphas:
        candidates[name_of(alpha)] = alpha, kind(settings.kernel, alpha=alpha, **options)
    if settings.mix and not settings.neighbours and len(data.X) <= MOST_ROWS:
        candidates[MIXTURE] = np.nan, kind(settings.kernel, alpha="mix", **options)
    return candidates
