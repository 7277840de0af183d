"""Trials on some rows that choose what is compared: kernels, numbers of points, the scale."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy import stats

from ..tables.cleaning import Cleaned
from .candidates import TRIVIAL, name_of
from .partition import parts_of
from .settings import Configuration, Settings
from .trials import Fit, Trial, Trials, shuffled

#: So many configurations are compared; of more, the best of a trial.
MOST_COMPARED = 2
#: Likelihoods of targets on their own scale and on that of logarithms, of which the better one is
#: taken where targets are as skewed as this.
SCALES, SKEWED = ("gaussian", "log_normal"), 1.0
#: The most rows of the trial, and which fraction of them is held out.
MOST_ROWS, HELD_OUT = 2000, 0.25


class Screening(NamedTuple):
    """
    A trial of all configurations on some rows.

    :param losses: The decisive score of each, turned round where higher is better; NaN: it failed.
    :param chosen: The best, in the order of the settings.
    :param num_rows: Those of the trial, held-out ones included.
    :param alpha: The power at which they were tried.
    """

    losses: dict[Configuration, float]
    chosen: list[Configuration]
    num_rows: int
    alpha: float


def finalists(settings: Settings) -> list[Configuration]:
    """Give as many configurations as will be compared, before it is known which ones."""
    return settings.configurations[:MOST_COMPARED]


def trials_of_screening(data: Cleaned, settings: Settings) -> tuple[Trials, list[Trial]] | None:
    """Set a trial of all configurations up; None where there are few enough to compare them all."""
    if len(settings.configurations) <= MOST_COMPARED:
        return None
    return _trials_on_few_rows(data, settings, settings.configurations)


def is_skewed(data: Cleaned, settings: Settings) -> bool:
    """Whether the likelihood is to be chosen, and logarithms of the targets are less skewed."""
    if data.kind != "numbers" or settings.likelihood != "auto" or len(data.targets) > 1:
        return False
    if not (data.y > 0.0).all():
        return False
    skewness = float(stats.skew(data.y))
    of_logarithms = abs(float(stats.skew(np.log(data.y))))
    return skewness > SKEWED and of_logarithms < 0.5 * skewness


def trials_of_scales(data: Cleaned, settings: Settings) -> list[tuple[Trials, list[Trial]]]:
    """Set a trial up in which a model of the targets and one of their logarithms are trained."""
    pairs = []
    for likelihood in SCALES:
        tried = replace(settings, likelihood=likelihood)
        trials, waiting = _trials_on_few_rows(data, tried, settings.configurations[:1])
        trials.purpose = f"likelihood {likelihood}: "
        pairs.append((trials, waiting))
    return pairs


def _trials_on_few_rows(
    data: Cleaned, settings: Settings, configurations: Sequence[Configuration]
) -> tuple[Trials, list[Trial]]:
    """
    Set a trial of configurations up.

    It uses training rows of the first part alone, so that the held-out rows of that part stay
    unseen; all others are seen, as those by which a model is called the best always are.
    """
    train, _ = next(parts_of(data, settings))
    rows = train[np.sort(shuffled(len(train), settings.seed)[:MOST_ROWS])]
    y = data.y.iloc[rows]
    if data.kind == "classes":
        rows = rows[(y.groupby(y).transform("size") > 1).to_numpy()]
    few = data._replace(X=data.X.iloc[rows], y=data.y.iloc[rows])
    alphas = settings.alphas
    alpha = 0.5 if 0.5 in alphas else alphas[len(alphas) // 2]
    plain = replace(
        settings, alphas=(alpha,), mix=False, baselines=False, details=False, select="folds",
        folds=None, splits=1, test_fraction=HELD_OUT,
    )  # fmt: skip
    trials = Trials(few, plain, configurations)
    trivial = TRIVIAL[data.kind]
    return trials, [trial for trial in trials.all() if trial.models != (trivial,)]


def best_scale(densities: Mapping[str, float]) -> str:
    """Choose the likelihood with the lowest NLPD in a trial; one that failed comes last."""
    return min(densities, key=lambda name: np.nan_to_num(densities[name], nan=np.inf))


def screening_of(fits: Sequence[Fit], trials: Trials) -> Screening:
    """Choose the configurations with the best scores in a trial; failed ones come last."""
    settings, metric = trials.settings, trials.metrics[0]
    (alpha,) = settings.alphas
    by_name = {fit.model: fit for fit in fits}
    names = {c: name_of(alpha, settings.label(c)) for c in trials.configurations}
    losses = {c: metric.loss(by_name[name].scores[metric.name]) for c, name in names.items()}
    # Where scores are equal, as areas of 1 are, the NLPD decides.
    ranks = {
        c: (np.nan_to_num(losses[c], nan=np.inf), by_name[names[c]].scores["nlpd"]) for c in losses
    }
    order = sorted(losses, key=lambda c: ranks[c])
    chosen = [c for c in trials.configurations if c in order[:MOST_COMPARED]]
    return Screening(losses, chosen, len(trials.data.X), alpha)
