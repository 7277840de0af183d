"""
What :class:`PEPRegressor <gpflow_pep.estimators.PEPRegressor>` does where nothing is named: several
models of known settings, each of which leaves rows out honestly, and a rule that mixes them.

Up to :data:`EXACT_ROWS` rows the components are exact Gaussian processes (``inducing="rows"``) with
a Matérn 5/2 kernel on Yeo-Johnson inputs: a plain one, and one that starts from it whose noise
varies with the inputs and whose targets are warped. Others beside them, on inputs that are only
standardised or with a squared exponential kernel, gain less than .01 nats a row on 18 generated
tables. Leave-one-out densities are honest where inducing inputs are not trained: those of trained
ones are .2 nats a row too good. The rows that are left out give the weights of the densities
(:func:`~gpflow_pep.training.ensemble_weights` with c = 0.1), the weights of the means
(:func:`~gpflow_pep.training.choosing.combining.weights_of_means`), and the mixture's
:class:`~gpflow_pep.scoring.predictive.Recalibration`.
"""

import copy
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray

from ..scoring.predictive import Predictive, Recalibration
from ..training import ensemble_weights
from ..training.choosing.combining import weights_of_means

if TYPE_CHECKING:
    from .regressor import PEPRegressor

#: The most rows of exact components: an evaluation takes 70 ms there, and grows with the cube.
EXACT_ROWS = 1000
#: c of the weights' prior: leave-one-out densities of exact components are honest.
PRIOR_WEIGHT = 0.1
#: The part of the seconds that the first component may take, where there is a limit.
FIRST_SHARE = 0.4
PLAIN = {
    **{"kernel": "matern52", "inducing": "rows", "alpha": 0.5, "inputs": "yeo-johnson"},
    **{"noise": "constant", "warp": False, "verbose": False},
}
#: What differs in the second component, which starts from the first.
FULL = {"noise": "varying", "warp": True, "warm_start": True}
NAMES = "constant noise", "noise that varies with the inputs, warped targets"


class Stack(NamedTuple):
    """Components, and how their distributions are mixed."""

    components: tuple["PEPRegressor", ...]

    weights: AnyNDArray
    """Of the densities, [K], of sum 1."""

    mean_weights: AnyNDArray
    """Of the means, [K], of sum 1."""

    recalibration: Recalibration

    lines: tuple[str, ...]
    """What was tried and kept, and why."""

    @property
    def heaviest(self) -> "PEPRegressor":
        """The component of the largest weight."""
        return self.components[int(np.argmax(self.weights))]

    def mixed(self, parts: Sequence[Predictive]) -> Predictive:
        """Mix the components' distributions of the same rows."""
        return Predictive.mixed(parts, self.weights, self.mean_weights, self.recalibration)

    def moments(self, parts: Sequence[tuple[Any, Any]]) -> tuple[Any, Any]:
        """Mix mean and variance of the components, tensors, as :meth:`mixed` mixes them."""
        means, variances = (tf.stack(part) for part in zip(*parts, strict=True))
        w, u = (tf.constant(part, means.dtype) for part in (self.weights, self.mean_weights))
        mixture, mean = tf.tensordot(w, means, 1), tf.tensordot(u, means, 1)
        variance = tf.tensordot(w, variances + (means - mixture) ** 2, 1)
        return mean, self.recalibration.spread * variance + (mixture - mean) ** 2


def fit_stack(estimator: "PEPRegressor", X: AnyNDArray, Y: AnyNDArray) -> Stack:
    """
    Train the components on rows X [N, D], with targets Y [N, 1], and mix them.

    :param estimator: Whose other settings are those of the components.
    """
    began, y = time.perf_counter(), Y[:, 0]
    seconds = np.inf if estimator.max_seconds is None else estimator.max_seconds
    lines: list[str] = []

    def note(line: str) -> None:
        lines.append(line)
        if estimator.verbose:
            print(line, file=sys.stderr)

    kind = "exact Gaussian processes, each row left out in turn"
    note(f"{len(X)} rows, {X.shape[1]} inputs: {kind} (nats a row):")
    components = [component(estimator, X, Y, PLAIN, FIRST_SHARE * seconds)]
    left = seconds - (time.perf_counter() - began)
    if left > 0.0:
        components.append(component(components[0], X, Y, FULL, left))
    left_out = [part._left_out() for part in components]
    densities = np.stack([part.log_densities(y) for part in left_out])
    w = ensemble_weights(densities, prior_weight=PRIOR_WEIGHT)
    u = weights_of_means(np.stack([part.moments()[0] for part in left_out]), y, w)
    for name, *numbers in zip(NAMES, np.mean(densities, axis=1), w, u, strict=False):
        note("{}: {:.3f}, weight {:.2f}, of the mean {:.2f}.".format(name, *numbers))
    recalibration = Recalibration.fit(Predictive.mixed(left_out, w).normal_scores(y))
    nu, scale = recalibration
    shape = "Gaussian" if nu is None else f"Student's t with {nu:g} degrees of freedom"
    note(f"Recalibrated: {shape}, scale {scale:.2f}.")
    mixed = Predictive.mixed(left_out, w, u, recalibration)
    error = np.sqrt(np.mean((mixed.moments()[0] - y) ** 2))
    density, past = np.mean(mixed.log_densities(y)), time.perf_counter() - began
    note(f"The mixture: {density:.3f}, RMSE {error:.3g}, after {past:.1f} s.")
    return Stack(tuple(components), w, u, recalibration, tuple(lines))


def component(
    before: "PEPRegressor", X: AnyNDArray, Y: AnyNDArray, settings: dict[str, Any], seconds: float
) -> "PEPRegressor":
    """Train a copy of an estimator with other settings, for so many seconds at most."""
    part = copy.copy(before)
    vars(part).pop("feature_names_in_", None)  # it gets arrays
    part.set_params(**settings, max_seconds=seconds if np.isfinite(seconds) else None)
    part._fit_one(X, Y)
    return part
