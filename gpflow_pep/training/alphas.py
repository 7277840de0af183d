r"""
The power chosen from data.

A model is trained at each of some powers, from the same start, and the power is kept at which rows
that were left out are predicted best. No model is trained without them: each row's own site is
removed from the posterior, as ``loo_log_density`` of the models does (in closed form for regression
with Gaussian noise), or rows were held out from the beginning. The score of a power is the mean
over rows of :math:`\log p(y_n | y_{-n})`, as proposed for hyperparameters by Sundararajan & Keerthi
(2001).
"""

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray, RegressionData
from gpflow.models import GPModel

from .. import checks
from ..covariances import check_columns
from ..models.base import InternalDataModel
from ..models.tied import TiedModel
from ..tilted import check_support, log_power_expectation
from .full_batch import FAILURES, maximise
from .model_state import assign, reason, state_of
from .whole_loss import WholeLoss

#: What is tried unless others are asked for.
ALPHAS = (0.0, 0.5, 1.0)
#: Rows predicted at a time.
_CHUNK = 10_000

Train = Callable[[GPModel], Any]


class AlphaScore(NamedTuple):
    """How well a model predicts rows that were left out, at one power. NaN where it failed."""

    alpha: float
    log_density: float
    """The mean over rows, in nats."""

    standard_error: float
    """Of that mean."""

    behind: float
    """How much less the mean is than that of the power that was chosen."""

    behind_error: float
    """The standard error of that difference, from differences row by row."""

    message: str
    """Why there is no score; empty where there is one."""


class AlphaSelection(NamedTuple):
    """What :func:`select_alpha` found."""

    alpha: float
    """The power with the highest mean log density; the first of equal ones."""

    scores: tuple[AlphaScore, ...]
    """Of each power, in the order asked for."""

    rows: str
    """Which rows were left out: ``"leave-one-out"`` or ``"held-out"``."""


def select_alpha(
    model: GPModel,
    alphas: Sequence[float] = ALPHAS,
    *,
    validation: RegressionData | None = None,
    refit: bool | Train = True,
) -> AlphaSelection:
    r"""
    Choose :math:`\alpha` by the log density of rows that were left out, one at a time or held out.

    The model is left at the power that was chosen, with what was trained there. Each power starts
    from the parameters as they are, so that the order of the powers does not matter.

    :param model: One of :mod:`gpflow_pep.models`, with one power for all rows.
    :param alphas: The powers to try, in [0, 1].
    :param validation: Rows that the model does not have, X [N, D] and Y [N, P]. None: the model's
        own rows, each left out in turn by removing its site; for models that hold their data,
        without blocks or neighbours.
    :param refit: Whether to train at each power, by
        :func:`~gpflow_pep.training.full_batch.maximise` with its defaults; or a function of the
        model that does. False: parameters stay as they are. That is quick, and leaves out what a
        power does through the parameters that it prefers.
    :return: The power, and the scores of all. A power at which training or the score fails has none
        and a warning.
    :raises ValueError: If an argument is not as said here, or every power fails.
    """
    alphas = check_alphas(alphas)
    density = _left_out(model) if validation is None else _held_out(model, validation)
    train = _trainer(model, refit)
    state = state_of(model)
    found: dict[float, AnyNDArray] = {}
    failures: dict[float, str] = {}
    best = alphas[0]
    with _best_in_the_end(state) as keep:
        start = [variable.numpy() for variable in state]
        for alpha in alphas:
            assign(state, start)
            try:
                model.alpha.assign(alpha)
                train(model)
                found[alpha] = density()
            except FAILURES as error:
                failures[alpha] = reason(error)
                continue
            if best not in found or alpha == best or np.mean(found[alpha]) > np.mean(found[best]):
                best = alpha
                keep([variable.numpy() for variable in state])
    if not found:
        raise ValueError(
            f"alphas: got {', '.join(f'{alpha:g}' for alpha in alphas)}, expected one at which the"
            f" model trains and predicts. At {alphas[0]:g}: {failures[alphas[0]]}"
        )
    for alpha, message in failures.items():
        warnings.warn(f"alpha = {alpha:g} has no score: {message}", stacklevel=2)
    scores = tuple(
        _score(alpha, found[alpha], found[best])
        if alpha in found
        else AlphaScore(alpha, np.nan, np.nan, np.nan, np.nan, failures[alpha])
        for alpha in alphas
    )
    return AlphaSelection(best, scores, "leave-one-out" if validation is None else "held-out")


def _score(alpha: float, density: AnyNDArray, best: AnyNDArray) -> AlphaScore:
    behind = best - density
    return AlphaScore(
        alpha,
        float(np.mean(density)),
        _standard_error(density),
        float(np.mean(behind)),
        _standard_error(behind),
        "",
    )


def _standard_error(values: AnyNDArray) -> float:
    return float(np.std(values, ddof=1) / np.sqrt(len(values)))


def check_alphas(alphas: Any) -> tuple[float, ...]:
    """
    Check powers to try, and leave out those that are there already.

    :param alphas: The powers.
    :raises ValueError: If one is not in [0, 1], or there is none.
    """
    try:
        powers = tuple(float(alpha) for alpha in alphas)
    except (TypeError, ValueError):
        powers = ()
    if not powers or not all(0.0 <= alpha <= 1.0 for alpha in powers):
        raise ValueError(
            f"alphas: got {alphas!r}, expected powers in [0, 1], at least one. (0, 0.5, 1) are the"
            " usual ones."
        )
    return tuple(dict.fromkeys(powers))


def _trainer(model: GPModel, refit: bool | Train) -> Train:
    if callable(refit):
        return refit
    if refit not in (True, False):
        raise ValueError(
            f"refit: got {refit!r}, expected True, False or a function of the model that trains it."
            " Leave it out if in doubt."
        )
    if not refit:
        return lambda model: None
    if isinstance(model, TiedModel):
        raise ValueError(
            f"refit: got True with {type(model).__name__}, which does not hold its data, expected a"
            " function that trains it or False. Pass refit=lambda model:"
            " gpflow_pep.training.fit(model, batches, num_steps=1000), for example."
        )
    loss = WholeLoss(model)
    return lambda _: maximise(loss, progress=False)


def _left_out(model: GPModel) -> Callable[[], AnyNDArray]:
    """Find what computes the log density of each row without its own site, [N]."""
    _check_model(model)
    if not isinstance(model, InternalDataModel):
        raise ValueError(
            f"validation: got none with {type(model).__name__}, whose rows share one site that"
            " cannot be removed for a single row; expected rows that were held out. Pass"
            " validation=(X, Y)."
        )
    checks.check_not_sharded(
        model.reduction.count, "select_alpha without held-out rows", "Pass validation=(X, Y)."
    )
    if model.data[0].shape[0] == 1:
        raise ValueError("model: got one row, expected several. There is no other to predict by.")
    return lambda: np.asarray(model.loo_log_density())


def _held_out(model: GPModel, validation: RegressionData) -> Callable[[], AnyNDArray]:
    """Find what computes the log density of each row that was held out, [N]."""
    _check_model(model)
    X, Y = map(tf.convert_to_tensor, checks.check_data(validation))
    check_columns(model.inducing_variable, X)
    check_support(model.likelihood, Y)
    if len(X) < 2:
        raise ValueError(
            "validation: got one row, expected several: its mean has no standard error. Hold more"
            " rows out."
        )
    one = tf.ones([1], X.dtype)

    def density() -> AnyNDArray:
        posterior = model.posterior()
        parts = []
        for start in range(0, len(X), _CHUNK):
            rows, own = X[start : start + _CHUNK], Y[start : start + _CHUNK]
            moments = posterior.predict_f(rows)
            parts.append(log_power_expectation(model.likelihood, rows, *moments, own, one))
        values = tf.concat(parts, axis=0)
        return np.asarray(checks.require_finite(values, "log density of held-out rows", _ADVICE))

    return density


_ADVICE = "Look for rows far from those of training, or for parameters that ran off."


def _check_model(model: Any) -> None:
    if not isinstance(model, (InternalDataModel, TiedModel)):
        remedy = (
            "An estimator chooses by itself: pass it alpha='auto', or the powers as its alpha."
            if hasattr(model, "get_params")
            else "Other models have no power."
        )
        raise ValueError(
            f"model: got {type(model).__name__}, expected one of gpflow_pep.models. {remedy}"
        )
    if model.alpha.shape.rank != 0:
        raise ValueError(
            f"model: got powers of shape {tuple(model.alpha.shape)}, expected one power for all"
            " rows. Create the model with a number for alpha."
        )


@contextmanager
def _best_in_the_end(
    state: Sequence[tf.Variable],
) -> Iterator[Callable[[list[AnyNDArray]], None]]:
    """Give the model what was kept last, whatever happens; as it was if nothing was."""
    kept = [[variable.numpy() for variable in state]]
    try:
        yield kept.append
    finally:
        assign(state, kept[-1])
