r"""
Ensembles whose predictions use near training rows, where rows that were left out gain.

Each component of an ensemble is there a second time, with predictions that are given the nearest
training rows (:ref:`near-rows`). Weights are those of
:mod:`gpflow_pep.training.choosing.combining`, by the densities of some training rows, each without
its own site and given its near rows as a new row would be
(:func:`~gpflow_pep.engine.predictions.context_rows.predict_left_out`).

The noise variance of a model that was trained without near rows is not the one that its predictions
need with them. At power 1 it can be nearly nothing, as the residual variances of rows take its
place: given near rows the residual covariances count in full, and so small a noise makes densities
far too narrow. At smaller powers it holds what too few inducing points leave of the function, which
near rows supply. Near rows, and the target, therefore have a noise variance of their own: the one
with the highest mean density of the rows that were left out. Where more near rows raise that
density, more are given.

Without near rows such densities are optimistic where inducing inputs were trained, and given near
rows hardly: on tables of some hundreds of rows this keeps ensembles as they are, even where near
rows would gain.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray, Parameter
from gpflow.likelihoods import Gaussian, Likelihood
from gpflow.models import GPModel
from gpflow.posteriors import BasePosterior, PrecomputeCacheType
from scipy.stats import norm

from ...engine.energies.collapsed import CONDITIONALS
from ...models import PEPRegression

#: Fewer rows do not show whether near rows would help predictions, and a prediction takes longer.
LEAST_ROWS = 1000
#: How many near rows predictions use, unless a number is given: the first of these, or the
#: next where rows that are left out gain by it.
NUMBERS = (10, 40)
#: Noise variances of near rows that are tried, relative to the mean squared leave-one-out error;
#: and the model's.
NOISE_LEVELS = (0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.55, 0.75, 1.0)


class NearRows(NamedTuple):
    """How the predictions of a component of an ensemble use near training rows."""

    number: int
    """How many near rows."""

    noise_variance: float | None
    """That of the near rows and of new targets; the model's sites have its own. None: near rows get
    sites, and new rows use them alone (:mod:`gpflow_pep.training.choosing.near_labels`)."""


def knows_near_rows(model: Any) -> bool:
    """Whether near rows can be added to a model's predictions, and left out one at a time."""
    plain = type(model) is PEPRegression and not model.has_blocks
    if not plain or model.takes_missing_targets:
        return False
    if model.memory is not None or model.alpha.shape.rank != 0:
        return False
    noise = getattr(model.likelihood, "variance", None)
    return type(model.likelihood) is Gaussian and isinstance(noise, Parameter)


def near_posterior(
    model: Any, near: NearRows | None, precompute_cache: PrecomputeCacheType | str
) -> BasePosterior:
    """Create the posterior of a component, which may use near rows."""
    if near is None:
        return model.posterior(precompute_cache)
    if near.noise_variance is None:
        return model.posterior(precompute_cache, near=near.number)
    posterior: Any = model.posterior("nocache", near=near.number)
    return posterior.given_noise(near.noise_variance, precompute_cache)


def near_likelihood(model: GPModel, near: NearRows | None) -> Likelihood:
    """Give the likelihood of new targets under a component."""
    if near is None or near.noise_variance is None:
        return model.likelihood
    likelihood = Gaussian(near.noise_variance, variance_lower_bound=0.5 * near.noise_variance)
    gpflow.set_trainable(likelihood, False)
    return likelihood


def left_out_moments(
    model: Any, near: NearRows | None, rows: AnyNDArray | None = None
) -> tuple[AnyNDArray, AnyNDArray]:
    """
    Compute mean and variance of y of training rows given the others, [S, P] each.

    :param model: A ``PEPRegression``, or without near rows any with ``loo_moments``.
    :param rows: Which rows, [S]; None: all.
    """
    rows = np.arange(len(model.data[0])) if rows is None else rows
    if near is None:
        mean, variance = map(np.asarray, model.loo_moments())
        return mean[rows], variance[rows]
    mean, variance = _near_moments(model, near.number, rows, [near.noise_variance or 0.0])
    return mean[:, 0], variance[:, 0] + np.zeros_like(mean[:, 0])


def densities_with_near_rows(
    model: PEPRegression, number: int, rows: AnyNDArray
) -> tuple[AnyNDArray, tuple[NearRows, AnyNDArray]]:
    """
    Compute log densities of rows that are left out, [S], without near rows and with them.

    :return: Those without; and what :func:`choose_noise` chooses, with its own.
    """
    Y = np.asarray(model.data[1])[rows]
    mean, variance = left_out_moments(model, None, rows)
    alone: AnyNDArray = norm.logpdf(Y, mean, np.sqrt(variance)).sum(axis=-1)
    levels = noise_levels(model, float(np.mean((Y - mean) ** 2)))
    return alone, choose_noise(model, min(number, len(model.data[0]) - 1), rows, levels)


def _near_moments(
    model: PEPRegression, number: int, rows: AnyNDArray, levels: Sequence[float]
) -> tuple[AnyNDArray, AnyNDArray]:
    """Moments of y with each level of noise, [S, K, P] and [S, K, 1]."""
    posterior: Any = model.posterior(near=number)
    precision = CONDITIONALS[model.bound].row_precision
    alpha = tf.convert_to_tensor(model.alpha)[None]
    mean, variance = map(np.asarray, posterior.predict_left_out(rows, precision, alpha, levels))
    return mean, (variance + np.asarray(levels))[..., None]


def noise_levels(model: PEPRegression, error: float) -> list[float]:
    """
    List the noise variances that near rows of a model may have.

    :param error: The mean squared error of rows that are left out, without near rows.
    """
    return [float(model.likelihood.variance.numpy()), *(level * error for level in NOISE_LEVELS)]


def choose_noise(
    model: PEPRegression, number: int, rows: AnyNDArray, levels: Sequence[float]
) -> tuple[NearRows, AnyNDArray]:
    """
    Choose the noise variance that near rows have: with the highest mean density of rows left out.

    :param rows: Which training rows are left out, [S].
    :param levels: The noise variances to choose from.
    :return: What was chosen, and the log densities of the rows, [S].
    """
    Y = np.asarray(model.data[1])[rows]
    mean, variance = _near_moments(model, number, rows, levels)
    with np.errstate(invalid="ignore"):  # rounding can leave a row that does not depend on others
        densities = norm.logpdf(Y[:, None], mean, np.sqrt(variance)).sum(axis=-1)
    densities = np.where(np.isnan(densities), -np.inf, densities)
    best = int(np.argmax(densities.mean(axis=0)))
    return NearRows(number, levels[best]), densities[:, best]
