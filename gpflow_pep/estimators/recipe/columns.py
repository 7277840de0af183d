"""The recipe of :class:`~gpflow_pep.estimators.PEPRegressor` for several columns of y,
unless a setting selects a model. Left-out rows choose between three ways to model the
columns.

* "separate": each column is modelled like a single column
  (:mod:`gpflow_pep.estimators.recipe.regression`).
* "shared kernel": the columns are independent, with one kernel and one noise
  (``num_latent=0``).
* "joint": the columns are mixtures of common functions and of shared noise, as with a
  ``num_latent`` of 1 or more.

The model with the shared kernel takes the least time, and is trained first. In a trial
with :data:`TRIAL_COLUMNS` columns it is compared with the two other ways; the joint
model has only :data:`TRIAL_STEPS` steps there. A way that is worse than the best by
:data:`MARGIN` is not trained on all columns. The joint model is not tried at all if the
functions that the first model found are not mixtures of so few functions as the joint
model has. If one component predicts the columns of the trial as well as the mixture of
all components, the other columns get this component only.

The way with the highest mean log density of left-out rows predicts all columns, except
columns for which another way is better by a standard error.

The joint model is kept as well if it predicts a column better than the chosen way when
the other targets of a row are known (``known=``).
"""

import contextlib
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from ...engine.left_out_rows import numbers_of_copies
from ...engine.refusals import counted
from ...engine.refusals.arrays import AnyNDArray
from ..single.outputs import MOST_LATENT
from ..single.regression import SingleRegressor
from ..single.settings import ModelSettings
from ..single.when_used import objectives
from .forecasts import fit_forecast
from .mixture import ColumnMixture, Mixture
from .recipe import Recipe, limit_of
from .regression import COLUMN_STEPS, COMPONENTS, fit_mixture, name_of

SEPARATE = "separate"
SHARED = "shared kernel"
JOINT = "joint"
#: The number of columns in the trial, and the number of steps of the joint model there.
TRIAL_COLUMNS = 3
TRIAL_STEPS = 30
#: A way is given up in the trial if it is worse than the best by this number of nats
#: per target.
MARGIN = 0.05
#: After the trial, separate models have one component instead of a mixture if the
#: mixture is better by less than this number of nats per target. On six generated
#: tables of 5 to 12 columns the chosen way loses .027 by it at most, and .004 on
#: average; a component takes less than half of the time of the mixture.
GAIN_OF_MIXTURE = 0.01
#: A training may take this share of the time that is left if others follow. 30 spectra
#: of 80 rows have an RMSE of .024 in 3 s, .023 in 10 s and without a limit.
SHARE = 0.5


class Ways(Recipe):
    """The ways to model the columns of y, as they are trained and judged.

    :param settings: The settings that all ways have.
    :param X: Inputs, [N, D].
    :param Y: Targets, [N, P], with NaN for targets that were not observed.
    """

    def __init__(self, settings: ModelSettings, X: AnyNDArray, Y: AnyNDArray) -> None:
        super().__init__(SingleRegressor, settings, X, Y)
        #: By way, the mixture that models each column, [P]; None if it was not trained.
        self.fitted: dict[str, list[Any]] = {}
        #: By way, log densities of left-out rows, [N, P]; NaN for other rows.
        self.densities: dict[str, AnyNDArray] = {}
        #: The components of separate models.
        self.components: Sequence[ModelSettings] = COMPONENTS
        #: The longest time of a separate model, in seconds.
        self.slowest = 0.0

    def train_together(
        self,
        seconds: float,
        num_latent: int | None,
        most_steps: int | None = None,
        columns: Any = slice(None),
    ) -> Mixture:
        """Train one model of all columns, or of some columns on the rows that have any
        of these.
        """
        Y = self.Y[:, columns]
        warps = None
        rows = is_observed(Y)
        settings = replace(self._in_time(seconds), num_latent=num_latent)
        if SHARED in self.fitted:
            units = self.fitted[SHARED][0].heaviest.units
            if units.is_warped:
                warps = np.stack([units.skew, units.tails], axis=1)[columns]
        options: Any = {"column_steps": most_steps, "warps": warps}
        return fit_mixture(settings, self.X[rows], Y[rows], **options)

    def train_separately(self, columns: Iterable[int], share: float = 1.0) -> None:
        """Train a separate model of each of these columns that has none yet, until the
        time is over.

        Each may take an even part of the time, or as much as another column took,
        because a training that is cut short is worth little.

        :param share: The share of the time that is left for all columns together.
        """
        P = self.Y.shape[1]
        fitted = self.fitted.setdefault(SEPARATE, [None] * P)
        densities = self.densities.setdefault(SEPARATE, np.full(self.Y.shape, np.nan))
        part = share * self.budget.left / max(fitted.count(None), 1)
        for p in columns:
            if fitted[p] is None and self.budget.left > 0.0:
                there = np.flatnonzero(~np.isnan(self.Y[:, p]))
                X = self.X[there]
                y = self.Y[there][:, [p]]
                seconds = min(max(part, self.slowest), self.budget.left)
                settings = self._in_time(seconds)
                began = self.budget.passed
                with contextlib.suppress(*objectives.FAILURES):
                    fitted[p] = fit_forecast(settings, X, y, components=self.components)
                    densities[there, p] = left_out_densities(fitted[p], X, y)[:, 0]
                self.slowest = max(self.slowest, self.budget.passed - began)

    def keep_best_component(self) -> None:
        """Choose one component for further separate models if it predicts the columns
        that have a separate model as well as the mixture.
        """
        candidates: dict[str, ModelSettings] = {}
        gains: dict[str, list[float]] = {}
        trained = [p for p, each in enumerate(self.fitted[SEPARATE]) if each]
        for p in trained:
            mixture = self.fitted[SEPARATE][p]
            there = np.flatnonzero(~np.isnan(self.Y[:, p]))
            y = self.Y[there, p]
            copies = numbers_of_copies(self.X[there], y[:, None])
            left_out = mixture.left_out(copies)
            if left_out is None or len(mixture.components) == 1:
                return
            rows, mixed = left_out
            densities = mixed.without_recalibration().log_densities(y[rows])
            for single in mixture.components:
                alone = single.left_out(copies)[1].log_densities(y[rows])
                name = name_of(single.settings)
                candidates[name] = single.settings
                gains.setdefault(name, []).append(float(np.mean(alone - densities)))
        means = {
            name: np.mean(values)
            for name, values in gains.items()
            if len(values) == len(trained)
        }
        best = max(means, key=means.__getitem__, default="")
        if best and means[best] > -GAIN_OF_MIXTURE:
            self.components = (candidates[best],)
            self.log.note(f"Separate models of further columns: {best}, alone.")

    def add(self, way: str, mixture: Mixture) -> None:
        """Add a model of all columns, and compute its log densities of left-out
        rows.
        """
        self.fitted[way] = [mixture] * self.Y.shape[1]
        self.densities[way] = left_out_densities(mixture, self.X, self.Y)

    def _in_time(self, seconds: float) -> ModelSettings:
        """Return the settings of a way with a time limit in seconds."""
        limit = limit_of(max(seconds, 1e-3))
        return replace(self.settings, max_seconds=limit, verbose=False)


def fit_columns(
    settings: ModelSettings,
    X: AnyNDArray,
    Y: AnyNDArray,
    names: Sequence[str] | None = None,
) -> ColumnMixture:
    """Train the ways to model targets Y [N, P] of rows X [N, D], and choose between
    them.

    :param settings: The settings of the estimator.
    :param names: The names of the columns, for descriptions; None uses their positions.
    """
    P = Y.shape[1]
    ways = Ways(settings, X, Y)
    ways.add(SHARED, ways.train_together(SHARE * ways.budget.left, 0))
    trial = np.unique(np.linspace(0, P - 1, min(P, TRIAL_COLUMNS)).astype(int))
    ways.train_separately(trial, SHARE)
    rows = is_observed(Y[:, trial])
    tried = {way: values[rows][:, trial] for way, values in ways.densities.items()}
    helps = False
    if ways.budget.left > 0.0 and are_mixtures(ways.fitted[SHARED][0], X, Y):
        most = max(common_means(tried).values())
        with contextlib.suppress(*objectives.FAILURES), warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            seconds = SHARE * ways.budget.left
            joint = ways.train_together(seconds, None, TRIAL_STEPS, trial)
            of_trial = Y[rows][:, trial]
            tried[JOINT] = left_out_densities(joint, X[rows], of_trial)
            given = given_others_densities(joint, of_trial)
            helps = bool(np.nanmean(given) > most)
    means = common_means(tried)
    kept = [way for way in means if means[way] > max(means.values()) - MARGIN]
    ways.log.note(
        f"{ways.size}, {P} columns of y{ways.same}."
        " Mean log density of left-out targets, in nats (higher is better), of"
        f" {counted(len(trial), 'column')} in a trial: {_listed(means)}."
    )
    goes_on = SEPARATE in kept and len(trial) < P
    if (JOINT in kept or helps) and ways.budget.left > 0.0:
        seconds = ways.budget.left * (SHARE if goes_on else 1.0)
        steps = COLUMN_STEPS if JOINT in kept else TRIAL_STEPS
        with contextlib.suppress(*objectives.FAILURES):
            ways.add(JOINT, ways.train_together(seconds, None, steps))
    if goes_on:
        ways.keep_best_component()
        ways.train_separately(range(P))
    return _chosen(ways, list(map(str, names or range(P))))


def _chosen(ways: Ways, names: list[str]) -> ColumnMixture:
    """Choose the way that predicts each column, from the ways that were trained on all
    columns.
    """
    Y = ways.Y
    log = ways.log
    densities = {way: ways.densities[way] for way in ways.fitted}
    chosen = choose(densities)
    informed = list(chosen)
    if JOINT in ways.fitted:
        given = given_others_densities(ways.fitted[JOINT][0], Y)
        for p, way in enumerate(chosen):
            if np.nanmean(given[:, p] - densities[way][:, p]) > 0.0:
                informed[p] = JOINT
    by_inputs = [ways.fitted[way][p] for p, way in enumerate(chosen)]
    by_others = [ways.fitted[way][p] for p, way in enumerate(informed)]
    components = list(dict.fromkeys((*by_inputs, *by_others)))
    places, known_places = (
        tuple(components.index(each) for each in mixtures)
        for mixtures in (by_inputs, by_others)
    )
    log.note(f"On all columns: {_listed(common_means(densities))}.")
    for way in dict.fromkeys(chosen):
        log.note(f"Chosen: {way}, for {_columns_of(way, chosen, names)}.")
    if JOINT in informed:
        columns = _columns_of(JOINT, informed, names)
        log.note(f"If other columns of the row are known: {JOINT}, for {columns}.")
    log.note(f"{ways.budget.passed:.1f} s.")
    return ColumnMixture(tuple(components), tuple(log.lines), places, known_places)


def _columns_of(way: str, chosen: list[str], names: list[str]) -> str:
    """List the names of the columns that a way predicts."""
    columns = [
        name for name, choice in zip(names, chosen, strict=True) if choice == way
    ]
    return "all columns" if len(columns) == len(names) else ", ".join(columns)


def choose(densities: dict[str, AnyNDArray]) -> list[str]:
    """Choose the way that predicts each column, [P]: the way that is best on all
    columns, unless another way is better on this column by a standard error.

    :param densities: By way, the log densities of left-out targets, [N, P]; NaN for
        other targets.
    """
    P = next(iter(densities.values())).shape[1]
    complete = {
        way: values for way, values in densities.items() if is_observed(values.T).all()
    }
    means = common_means(complete or densities)
    best = max(means, key=means.__getitem__)
    chosen = [best] * P
    for p in range(P):
        most = 0.0
        for way, values in densities.items():
            gains = values[:, p] - densities[best][:, p]
            gains = gains[~np.isnan(gains)]
            if len(gains) < 2:
                continue
            gain = np.mean(gains) - np.std(gains, ddof=1) / np.sqrt(len(gains))
            if gain > most:
                chosen[p], most = way, gain
    return chosen


def common_means(densities: dict[str, AnyNDArray]) -> dict[str, float]:
    """Average the log densities of each way over the targets that all ways left out. A
    way has no mean if the time ran out before it left out targets.
    """
    judging = {way: ~np.isnan(values) for way, values in densities.items()}
    judging = {way: judged for way, judged in judging.items() if judged.any()}
    common = np.all(list(judging.values()), axis=0)
    if common.any():
        return {way: float(np.mean(densities[way][common])) for way in judging}
    return {way: float(np.nanmean(densities[way])) for way in judging}


def is_observed(Y: AnyNDArray) -> AnyNDArray:
    """Mark the rows of Y [N, P] with at least one observed target, [N]."""
    observed: AnyNDArray = ~np.isnan(Y).all(axis=1)
    return observed


def are_mixtures(mixture: Mixture, X: AnyNDArray, Y: AnyNDArray) -> bool:
    """Decide whether the columns may be mixtures of so few functions as the joint model
    has.

    The predictions of left-out rows by a model of independent columns are approximated
    by a matrix of this rank. Errors of the approximation beyond the variance of f would
    be noise in the joint model. The columns are not mixtures if this costs
    :data:`MARGIN` or more.

    :param mixture: The model of independent columns.
    """
    single: Any = mixture.heaviest
    _, predictive = single.left_out(numbers_of_copies(X, Y))
    means = predictive.means[0]
    variances = predictive.variances[0]
    U, values, V = np.linalg.svd(means, full_matrices=False)
    values[MOST_LATENT:] = 0.0
    errors = means - (U * values) @ V
    of_functions = variances - single.likelihood.variance.numpy()
    excess = np.maximum(np.mean(errors**2 - of_functions, axis=0), 0.0)
    loss = 0.5 * np.mean(np.log1p(excess / np.mean(variances, axis=0)))
    return bool(loss < MARGIN)


def left_out_densities(mixture: Mixture, X: AnyNDArray, Y: AnyNDArray) -> AnyNDArray:
    """Compute log densities of the targets Y [N, P] of a model's training rows, each
    predicted without its row and copies of its row; NaN for rows that were not left
    out.
    """
    densities = np.full(Y.shape, np.nan)
    left_out = mixture.left_out(numbers_of_copies(X, Y))
    if left_out is not None:
        rows, predictive = left_out
        several = Y.shape[1] > 1
        values = predictive.log_densities(Y[rows] if several else Y[rows, 0])
        densities[rows] = values.reshape(-1, Y.shape[1])
    return densities


def given_others_densities(mixture: Mixture, Y: AnyNDArray) -> AnyNDArray:
    """Compute the log density of each target [N, P] given the other rows and the other
    targets of its row.
    """
    joint: Any = mixture.heaviest
    densities = joint.model.loo_log_density_of_entries(whole_rows=False)
    return np.asarray(densities) + joint.units.log_slope(Y)


def _listed(means: dict[str, float]) -> str:
    return ", ".join(f"{way} {mean:.3f}" for way, mean in means.items())
