"""What :class:`~gpflow_pep.estimators.PEPRegressor` does if an input goes on beyond the
rows, as the time of a forecast does.

A component that predicts rows between others well can fail beyond them. So the latest
fifth of the rows, by that input, is left out, and the components that are trained on
the others predict it. These predictions decide whether targets are warped, and give the
weights and the recalibration. Then all components are trained on all rows, from where
they ended.

That input is standardised and never bent, and a linear function of it is part of each
component. Up to :data:`~gpflow_pep.estimators.stack.EXACT_ROWS` rows the components are
those of :mod:`gpflow_pep.estimators.stack`; with more there is one, whose inducing
inputs are trained.
"""

import time
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from gpflow.base import AnyNDArray

from ..distributions import Predictive, Recalibration
from ..engine.refusals import counted
from ..training import ensemble_weights
from ..training.choosing.combining import weights_of_means
from .stack import (
    ADDITIVE_INPUTS,
    COMPONENTS,
    EXACT_ROWS,
    FULL,
    FULL_STEPS,
    PLAIN_STEPS,
    PRIOR_ROWS,
    PRIOR_WEIGHT,
    TRAINED,
    Stack,
    component,
    fit_stack,
)

if TYPE_CHECKING:
    from .regressor import PEPRegressor

#: The share of the rows that judges, and the fewest rows on either side.
LATEST, FEWEST = 0.2, 4
#: The share of the seconds that the trainings on the other rows may take.
SHARE_OF_TRIALS = 0.5


def latest_rows(times: AnyNDArray) -> npt.NDArray[np.bool_]:
    """Find the latest fifth of the rows by their times, [N]; rows of one time are on
    one side.
    """
    ordered = np.sort(times)
    begin = ordered[int((1.0 - LATEST) * len(times))]
    if begin == ordered[0]:  # most rows are of the first time
        return np.asarray(times > begin)
    return np.asarray(times >= begin)


def fit_forecast(estimator: "PEPRegressor", X: AnyNDArray, Y: AnyNDArray) -> Stack:
    """Train the components on rows X [N, D], with targets Y [N, 1], and mix them by how
    they predict the latest rows.

    :param estimator: Whose other settings are those of the components.
    """
    began = time.perf_counter()
    latest = latest_rows(X[:, estimator._time_place])
    if not FEWEST <= latest.sum() <= len(X) - FEWEST:
        return fit_stack(estimator, X, Y)
    seconds = np.inf if estimator.max_seconds is None else estimator.max_seconds
    groups = _settings(estimator, *X.shape)
    count = sum(map(len, groups.values()))
    y = Y[latest, 0]
    names, chosen, trained, left_out = [], [], [], []
    lines = [
        f"{counted(len(X), 'row')}, {counted(X.shape[1], 'input')}: trained on all but"
        f" the latest {latest.sum()}, which judge. Mean log density in nats, higher is"
        " better:"
    ]
    for name, variants in groups.items():
        parts = [
            component(
                estimator,
                X[~latest],
                Y[~latest],
                settings,
                SHARE_OF_TRIALS * seconds / count,
            )
            for settings in variants
        ]
        predicted = [part._part_of_y(X[latest]) for part in parts]
        scores = [float(np.mean(each.log_densities(y))) for each in predicted]
        best = int(np.nanargmax(scores))
        if len(variants) > 1:
            words = "warped" if variants[best]["warp"] else "not warped"
            gain = abs(scores[0] - scores[1])
            lines.append(f"{name}: targets are {words}, which is {gain:.3f} better.")
        names.append(name)
        chosen.append(variants[best])
        trained.append(parts[best])
        left_out.append(predicted[best])
    densities = np.stack([each.log_densities(y) for each in left_out])
    prior_weight = max(PRIOR_WEIGHT, PRIOR_ROWS / len(y))
    weights = ensemble_weights(densities, prior_weight=prior_weight)
    means = np.stack([each.moments()[0] for each in left_out])
    mean_weights = weights_of_means(means, y, weights)
    mixed = Predictive.mixed(left_out, weights)
    recalibration = Recalibration.fit(mixed.normal_scores(y))
    components: list[Any] = []
    for settings, part in zip(chosen, trained, strict=True):
        past = time.perf_counter() - began
        left = (seconds - past) / (len(chosen) - len(components))
        start = part._hyperparameters()
        components.append(component(estimator, X, Y, settings, left, start))
    for numbers in zip(names, densities.mean(axis=1), weights, mean_weights):
        text = "{}: {:.3f}; weight {:.2f} in the density, {:.2f} in the mean."
        lines.append(text.format(*numbers))
    past = time.perf_counter() - began
    lines.append(
        f"Recalibrated by these rows: {recalibration[1]:.2f} times as wide. All rows"
        f" train the saved components; {past:.1f} s."
    )
    return Stack(tuple(components), weights, mean_weights, recalibration, tuple(lines))


def _settings(
    estimator: "PEPRegressor", num_rows: int, num_inputs: int
) -> dict[str, list[dict[str, Any]]]:
    """List the settings of each component: with a warp and without one if there is a
    choice.
    """
    if num_rows > EXACT_ROWS:
        plain = TRAINED | {"near_rows": 0}
        return {
            "trained inducing inputs": [
                plain | {"inputs": "yeo-johnson", "warp": True},
                plain,
            ]
        }
    settings = {}
    for name, named in COMPONENTS.items():
        steps = FULL_STEPS if named is FULL else PLAIN_STEPS
        each = named | {"max_iterations": min(estimator.max_iterations, steps)}
        settings[name] = [each]
        if named is FULL:
            if num_inputs > ADDITIVE_INPUTS:
                each["kernel"] = "matern52"
            settings[name].append(each | {"warp": False})
    return settings
