r"""
What :class:`PEPRegressor <gpflow_pep.estimators.PEPRegressor>` does where nothing is named: several
models of known settings, each of which leaves rows out honestly, and a rule that mixes them.

Up to :data:`EXACT_ROWS` rows the components are exact Gaussian processes (``inducing="rows"``) with
a Matérn 5/2 kernel on Yeo-Johnson inputs: a plain one, and one that starts from it whose noise
varies with the inputs and whose targets are warped. Leave-one-out densities are honest where
inducing inputs are not trained: those of trained ones are 0.2 nats a row too good. From the row
:math:`n` that is left out come

* the weights of the densities, :func:`~gpflow_pep.training.ensemble_weights` with c = 0.1;
* the weights of the means, by least squares
  (:func:`~gpflow_pep.training.choosing.combining.weights_of_means`);
* the recalibration of the mixture (:class:`~gpflow_pep.scoring.predictive.Recalibration`).
"""

import copy
import sys
import time
from collections.abc import Callable, Sequence
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


class Stack(NamedTuple):
    """Components, and how their distributions are mixed."""

    components: tuple["PEPRegressor", ...]
    weights: AnyNDArray
    """Of the densities, [K], of sum 1."""

    mean_weights: AnyNDArray
    """Of the means, [K], of sum 1."""

    recalibration: Recalibration
    lines: tuple[str, ...] = ()
    """What was tried and kept, and why."""

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

    @property
    def heaviest(self) -> "PEPRegressor":
        """The component of the largest weight."""
        return self.components[int(np.argmax(self.weights))]


def fit_stack(estimator: "PEPRegressor", X: AnyNDArray, Y: AnyNDArray) -> Stack:
    """
    Train the components on rows X [N, D], with targets Y [N, 1], and mix them.

    :param estimator: Whose other settings are those of the components.
    """
    began = time.perf_counter()
    seconds = np.inf if estimator.max_seconds is None else estimator.max_seconds
    lines: list[str] = []

    def note(line: str) -> None:
        lines.append(line)
        if estimator.verbose:
            print(line, file=sys.stderr)

    note(
        f"{len(X)} rows, {X.shape[1]} inputs: exact Gaussian processes (Matérn 5/2), judged by each"
        " row under the others."
    )
    plain = component(estimator, X, Y, first_of(estimator), seconds * FIRST_SHARE)
    components, texts = [plain], ["constant noise"]
    left = seconds - (time.perf_counter() - began)
    if left > 0.0:
        varying = {"noise": "varying", "warp": True, "warm_start": True}
        components.append(component(plain, X, Y, varying, left))
        texts.append("noise that varies with the inputs, warped targets")
    stack = weighted(components, [part._left_out() for part in components], Y[:, 0])
    return described(stack, texts, Y[:, 0], note, lines, began)


def first_of(estimator: "PEPRegressor") -> dict[str, object]:
    """Name what the plain component is, in place of what its estimator leaves open."""
    return {
        "kernel": "matern52",
        "inducing": "rows",
        "alpha": 0.5,
        "noise": "constant",
        "warp": False,
        "inputs": "yeo-johnson",
        "verbose": False,
    }


def component(
    before: "PEPRegressor",
    X: AnyNDArray,
    Y: AnyNDArray,
    settings: dict[str, object],
    seconds: float,
) -> "PEPRegressor":
    """Train a copy of an estimator with other settings, for so many seconds at most."""
    part = copy.copy(before)
    vars(part).pop("feature_names_in_", None)  # it gets arrays
    limit = seconds if np.isfinite(seconds) else None
    part.set_params(**settings, max_seconds=limit)
    part._fit_one(X, Y)
    return part


def weighted(
    components: Sequence["PEPRegressor"], left_out: Sequence[Predictive], y: AnyNDArray
) -> Stack:
    """
    Mix components by rows that were left out.

    :param left_out: What each component predicts of these rows.
    :param y: Their targets, in original units.
    """
    densities = np.stack([part.log_densities(y) for part in left_out])
    weights = ensemble_weights(densities, prior_weight=PRIOR_WEIGHT)
    means = np.stack([part.moments()[0] for part in left_out])
    recalibration = Recalibration.fit(Predictive.mixed(left_out, weights).normal_scores(y))
    return Stack(tuple(components), weights, weights_of_means(means, y, weights), recalibration)


def described(
    stack: Stack,
    texts: Sequence[str],
    y: AnyNDArray,
    note: Callable[[str], None],
    lines: Sequence[str],
    began: float,
) -> Stack:
    """Add a line for each component, and two for the mixture."""
    left_out = [part._left_out() for part in stack.components]
    for text, part, w, u in zip(texts, left_out, stack.weights, stack.mean_weights, strict=True):
        density = np.mean(part.log_densities(y))
        note(f"{text}: {density:.3f} nats a row, weight {w:.2f}, of the mean {u:.2f}.")
    mixed, (nu, scale) = stack.mixed(left_out), stack.recalibration
    shape = "Gaussian" if nu is None else f"Student's t with {nu:g} degrees of freedom"
    note(f"Recalibrated: {shape}, scale {scale:.2f}.")
    error = np.sqrt(np.mean((mixed.moments()[0] - y) ** 2))
    density, seconds = np.mean(mixed.log_densities(y)), time.perf_counter() - began
    note(f"Mixture: {density:.3f} nats a row, RMSE {error:.3g}, after {seconds:.1f} s.")
    return stack._replace(lines=tuple(lines))
