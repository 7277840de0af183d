"""Which kernels and numbers of points are worth a comparison, where many are asked for."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from .candidates import TRIVIAL, name_of
from .cleaning import Cleaned
from .scores import Metric
from .settings import Configuration, Settings
from .trials import Fit, Trial, Trials, parts_of, shuffled

#: So many configurations are compared; of more, the best of a trial.
MOST_COMPARED = 2
#: The most rows of the trial, and which fraction of them is held out.
MOST_ROWS, HELD_OUT = 2000, 0.25


class Screening(NamedTuple):
    """
    A trial of all configurations on some rows.

    :param losses: The decisive score of each, turned round where higher is better; NaN: it failed.
    :param chosen: The best, in the order in which they were asked for.
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
    """
    Set a trial of all configurations up; None where there are few enough to compare all of them.

    It uses training rows of the first part alone, so that the held-out rows of that part stay
    unseen; all others are seen, as those by which a model is called the best always are.
    """
    if len(settings.configurations) <= MOST_COMPARED:
        return None
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
    trials = Trials(few, plain, settings.configurations)
    trivial = TRIVIAL[data.kind]
    return trials, [trial for trial in trials.all() if trial.models != (trivial,)]


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


def describe_screening(screening: Screening, settings: Settings, metric: Metric) -> str:
    """Say in a sentence what was chosen of what, and by which scores."""

    def scored(configurations: Sequence[Configuration]) -> str:
        return ", ".join(
            f"{settings.label(c)} ({format(metric.loss(screening.losses[c]), metric.form)})"
            for c in configurations
        )

    others = [c for c in screening.losses if c not in screening.chosen]
    return (
        f"Of {len(screening.losses)} pairs of a kernel and a number of points,"
        f" {scored(screening.chosen)} were compared: they had the best {metric.heading} in a trial"
        f" at alpha {screening.alpha:g} on {screening.num_rows} rows. The others: {scored(others)}."
    )
