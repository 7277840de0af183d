"""The models that a comparison trains: the default, single models at each power, and baselines."""

from typing import Any

import gpflow
import numpy as np
import pandas as pd
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.likelihoods import Likelihood
from gpflow.models import GPModel
from scipy.stats import norm, skew
from sklearn.base import BaseEstimator, MetaEstimatorMixin, RegressorMixin, clone
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from ..engine.factors import check_num_latent, check_support
from ..estimators import PEPClassifier, PEPRegressor
from ..estimators.base import MANY_POINTS, MOST_ROWS
from ..estimators.parts import NUMBERS, ROWS, make_likelihood
from ..estimators.separate import SeparateRegressors
from ..estimators.stack import EXACT_ROWS
from ..likelihoods import LogNormal
from ..tables.cleaning import Cleaned
from .settings import AUTO, INITS, Settings, has_gaussian_noise, is_counts

#: The baselines of every comparison: the mean, or how frequent each class is.
TRIVIAL = {"numbers": "mean", "classes": "class frequencies"}
#: The estimator with nothing set but what the data need, and single models.
DEFAULT, SINGLE = "default", "alpha"
#: What the names of models of each of several targets by itself end with.
SEPARATE = "separate"
#: The likelihood of skewed targets, and the least skewness at which the default is tried with it:
#: that of 40 Gaussian targets, whose standard error is 0.37, has it in fewer than 1% of tables.
LOGARITHMS, SKEWED = "log_normal", 1.0


class WithSpread(RegressorMixin, MetaEstimatorMixin, BaseEstimator):
    """A regressor of scikit-learn's that predicts Gaussians, all with one standard deviation.

    :param regressor: It is copied.
    :param held_out: The deviation is that of the residuals of this fraction of the rows, by a copy
        that was trained on the others; 0: of all rows, by the regressor trained on all.
    """

    def __init__(self, regressor: Any, held_out: float = 0.2) -> None:
        self.regressor, self.held_out = regressor, held_out

    def fit(self, X: Any, y: Any) -> "WithSpread":
        """Train on rows."""
        y = _without_limits(y)[0]
        self.regressor_ = clone(self.regressor).fit(X, y)
        residual = y - self.regressor_.predict(X)
        if self.held_out:
            train, test = train_test_split(
                np.arange(len(y)), test_size=self.held_out, random_state=0
            )
            residual = y[test] - clone(self.regressor).fit(X[train], y[train]).predict(X[test])
        # Of targets that are all equal, what PEPRegressor predicts: its least noise.
        self.std_ = float(np.sqrt(np.mean(residual**2))) or 1e-3
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
        y, sides = _without_limits(y)
        mean, std = self.predict(X, return_std=True)
        beyond = norm.logcdf(np.where(sides < 0.0, y - mean, mean - y) / std)
        densities: AnyNDArray = np.where(sides == 0.0, norm.logpdf(y, mean, std), beyond)
        return densities


def _without_limits(y: Any) -> tuple[AnyNDArray, AnyNDArray]:
    """Give numbers, and the side of each that a target is on: 0 where it is the number, [N]."""
    values = np.asarray(y, np.float64)
    values = values[:, None] if values.ndim == 1 else values
    return values[:, 0], values[:, 1] if values.shape[1] > 1 else np.zeros(len(values))


class _AllRows(gpflow.base.Module):
    """GPflow's SVGP with all rows as its one batch: trained as models that hold their data are."""

    def __init__(self, model: gpflow.models.SVGP, data: tuple[tf.Tensor, tf.Tensor]) -> None:
        super().__init__()
        self.model, self.data = model, data

    def training_loss(self) -> tf.Tensor:
        return self.model.training_loss(self.data)


class WholeSVGP(PEPClassifier):
    """GPflow's ``SVGP``, trained on all rows at once, from the same start and by the same rule.

    Three classes or more have RobustMax: GPflow integrates the softmax by random draws, with which
    L-BFGS does not converge.
    """

    def _make_likelihood(self) -> Likelihood:
        likelihood = super()._make_likelihood()
        is_random = type(likelihood) is gpflow.likelihoods.Softmax
        return gpflow.likelihoods.MultiClass(len(self.classes_)) if is_random else likelihood

    def _make_model(
        self, data: tuple[AnyNDArray, AnyNDArray], *parts: Any, alpha: float
    ) -> GPModel:
        num_latent = check_num_latent(None, parts[1], tf.constant(data[1]))
        self._data = tuple(map(tf.constant, data))
        return gpflow.models.SVGP(*parts, num_latent_gps=num_latent)

    def _training_model(self, model: GPModel) -> Any:
        return _AllRows(model, self._data)


def _baselines(numbers: bool, seed: int) -> dict[str, Any]:
    """Make scikit-learn's: a constant, a linear model whose penalty is chosen, boosted trees."""
    if numbers:
        linear = make_pipeline(StandardScaler(), RidgeCV(np.logspace(-3.0, 3.0, 13)))
        return {
            TRIVIAL["numbers"]: WithSpread(DummyRegressor(), 0.0),
            "linear": WithSpread(linear),
            "boosted trees": WithSpread(HistGradientBoostingRegressor(random_state=seed)),
        }
    return {
        TRIVIAL["classes"]: DummyClassifier(strategy="prior"),
        "linear": make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)),
        "boosted trees": HistGradientBoostingClassifier(random_state=seed),
    }


def name_of(kind: str, *labels: str) -> str:
    """Name the default, or a single model, and what it does not share with all others."""
    label = ", ".join(filter(None, labels))
    return f"{kind} ({label})" if label else kind


def label_of(name: str) -> str:
    """Give what the name of a model has in brackets; empty if there is nothing."""
    return name.partition(" (")[2].rstrip(")")


def is_choice(name: str) -> bool:
    """Whether a model, by its name, may be saved: no baseline."""
    return name.split()[0] in (DEFAULT, SINGLE)


def is_skewed(data: Cleaned, settings: Settings) -> bool:
    """Whether the likelihood is not named, and logarithms of the targets are less skewed."""
    if data.kind != "numbers" or settings.likelihood != "auto" or len(data.targets) > 1:
        return False
    if not (data.y > 0.0).all():
        return False
    skewness, of_logarithms = float(skew(data.y)), abs(float(skew(np.log(data.y))))
    return skewness > SKEWED and of_logarithms < 0.5 * skewness


def check_targets(data: Cleaned, settings: Settings) -> None:
    """Check numbers against the likelihood of the settings, before anything is trained.

    :raises ValueError: If it gives one of them no probability.
    """
    name = settings.likelihood
    if data.kind == "numbers" and name != "auto" and len(data.targets) == 1:
        likelihood = LogNormal() if name == "log_normal" else make_likelihood(name, NUMBERS)
        check_support(likelihood, tf.constant(pd.DataFrame(data.outcomes).to_numpy()))


def make_candidates(data: Cleaned, settings: Settings) -> dict[str, tuple[float, Any]]:
    """Make all models, untrained, with their powers (NaN where there is none), by name."""
    numbers, likelihood = data.kind == "numbers", settings.likelihood
    kind: Any = PEPRegressor if numbers else PEPClassifier
    options: dict[str, Any]
    options = {"random_state": settings.seed, "max_iterations": settings.max_iterations}
    options |= {} if likelihood == "auto" else {"likelihood": likelihood}
    near = {} if settings.near_rows else {"near_rows": 0}
    choices = {DEFAULT: (np.nan, kind(**options, **near))}
    if is_skewed(data, settings):
        logarithms = kind(**options, **near, likelihood=LOGARITHMS)
        choices[name_of(DEFAULT, LOGARITHMS)] = np.nan, logarithms
    options |= {"inducing": INITS[settings.init], "near_rows": 0}
    for configuration in settings.configurations:
        kernel, number = configuration
        for alpha in settings.alphas:
            name = name_of(f"{SINGLE} {alpha:g}", settings.label(configuration))
            choices[name] = alpha, kind(kernel, num_inducing=number, alpha=alpha, **options)
    several = len(data.targets) > 1
    for name, (alpha, estimator) in list(choices.items()) if several else ():
        choices[name_of(name.partition(" (")[0], label_of(name), SEPARATE)] = (
            alpha, SeparateRegressors(estimator),
        )  # fmt: skip
    baselines = _baselines(numbers, settings.seed)
    if is_counts(likelihood) or not settings.baselines:
        baselines = {TRIVIAL[data.kind]: baselines[TRIVIAL[data.kind]]}
    if settings.baselines:
        if numbers and has_gaussian_noise(likelihood) and len(data.X) <= EXACT_ROWS:
            baselines["exact GP"] = kind("matern52", **{**options, "inducing": ROWS})
        if not numbers and len(data.X) <= MOST_ROWS:
            kernel, number = settings.configurations[0]
            points = MANY_POINTS if number == AUTO else number
            baselines["SVGP"] = WholeSVGP(kernel, num_inducing=points, alpha=0.0, **options)
    return choices | {
        name: (np.nan, SeparateRegressors(baseline) if several else baseline)
        for name, baseline in baselines.items()
    }


def is_separate(name: str) -> bool:
    """Whether a model, by its name, has each of several targets by itself."""
    return label_of(name).endswith(SEPARATE)
