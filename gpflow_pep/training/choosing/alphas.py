r"""Choice of the power from data, see :ref:`select-alpha`.

The score of a power is the mean over rows of :math:`\log p(y_n | y_{-n})`, as proposed
for hyperparameters by Sundararajan & Keerthi (2001).
"""

import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from gpflow.base import AnyNDArray, RegressionData
from gpflow.models import GPModel
from scipy.stats import sem

from ...engine import checks
from ...models.tied import TiedModel
from ..fitting.full_batch import maximise
from ..fitting.objectives import (
    FAILURES,
    Objective,
    WholeLoss,
    assign,
    assigned_at_exit,
    state_of,
)
from ..fitting.points import held_out_densities, left_out_densities

#: The powers that are tried by default.
ALPHAS = (0.0, 0.5, 1.0)

Train = Callable[[GPModel], Any]


class AlphaScore(NamedTuple):
    """The score of a model on left-out rows at one power; NaN if it failed."""

    alpha: float
    log_density: float  #: The mean over rows, in nats.
    standard_error: float  #: The standard error of that mean.
    behind: float  #: By how much the mean is lower than the mean of the chosen power.
    behind_error: (
        float  #: The standard error of that difference, from differences row by row.
    )
    message: str  #: The reason why there is no score; empty if there is one.


class AlphaSelection(NamedTuple):
    """The power that :func:`select_alpha` chose, and the scores of all powers."""

    alpha: (
        float  #: The power with the highest mean log density; the first of equal ones.
    )
    #: The score of each power, in the order of the argument.
    scores: tuple[AlphaScore, ...]
    rows: str  #: How rows were left out: ``"leave-one-out"`` or ``"held-out"``.


def select_alpha(
    model: GPModel,
    alphas: Sequence[float] = ALPHAS,
    *,
    validation: RegressionData | None = None,
    refit: bool | Train = True,
) -> AlphaSelection:
    r"""Choose :math:`\alpha` by the log density of rows that are left out one at a
    time, or held out.

    The model ends at the chosen power, with the parameters that were trained there.
    Each power starts from the same parameters, so the order of the powers does not
    matter.

    :param model: A model of :mod:`gpflow_pep.models` with one power for all rows.
    :param alphas: The powers to try, in [0, 1].
    :param validation: Held-out rows, X [N, D] and Y [N, P]. None uses the rows of the
        model, each left out in turn by removing its site; this needs a model that holds
        its data, without blocks.
    :param refit: Whether to train at each power, with
        :func:`~gpflow_pep.training.maximise` and its defaults; or a function that
        trains the model. False keeps the parameters, which is quick but ignores that
        the best parameters depend on the power.
    :return: The chosen power, and the scores of all powers. A power at which training
        or the score fails has no score and gives a warning.
    :raises ValueError: If a power is outside [0, 1], the model has no power or several,
        rows cannot be left out, or every power fails.
    """
    alphas = check_alphas(alphas)
    density = (
        left_out_densities(model)
        if validation is None
        else held_out_densities(model, validation)
    )
    state = state_of(model)
    best_values = [variable.numpy() for variable in state]
    densities: dict[float, AnyNDArray] = {}
    best = alphas[0]

    def score(alpha: float) -> None:
        nonlocal best, best_values
        densities[alpha] = density()
        if len(densities) == 1 or np.mean(densities[alpha]) > np.mean(densities[best]):
            best = alpha
            best_values = [variable.numpy() for variable in state]

    with assigned_at_exit(state, lambda: best_values):
        failures = train_at_each(alphas, model, refit, "evidence", score)
    for alpha, message in failures.items():
        warnings.warn(f"alpha = {alpha:g} has no score: {message}", stacklevel=2)
    scores = []
    for alpha in alphas:
        log_density = densities.get(alpha, np.nan * densities[best])
        quantities = log_density, densities[best] - log_density
        numbers = [
            float(rule(quantity)) for quantity in quantities for rule in (np.mean, sem)
        ]
        scores.append(AlphaScore._make([alpha, *numbers, failures.get(alpha, "")]))
    kind = "leave-one-out" if validation is None else "held-out"
    return AlphaSelection(best, tuple(scores), kind)


def check_alphas(alphas: Any) -> tuple[float, ...]:
    """Check powers to try, at least one, and leave out repeated ones."""
    try:
        powers = tuple(float(alpha) for alpha in alphas)
    except (TypeError, ValueError):
        powers = ()
    if not powers or not all(0.0 <= alpha <= 1.0 for alpha in powers):
        expected = "powers in [0, 1], at least one"
        raise checks.refusal(
            "alphas",
            checks.as_code(alphas),
            expected,
            "(0, 0.5, 1) are the usual ones.",
        )
    return tuple(dict.fromkeys(powers))


def train_at_each(
    alphas: Sequence[float],
    model: GPModel,
    refit: bool | Train,
    objective: Objective,
    use: Callable[[float], None],
) -> dict[float, str]:
    """Train a model at each of some powers, each time from the present parameters.

    :param use: A function that is called with each power, after training at this power.
    :return: The reason for each power at which training or the call failed.
    :raises ValueError: If all powers failed.
    """
    train = _trainer(model, refit, objective)
    state = state_of(model)
    start = [variable.numpy() for variable in state]
    failures: dict[float, str] = {}
    for alpha in alphas:
        assign(state, start)
        try:
            model.alpha.assign(alpha)
            train(model)
            use(alpha)
        except FAILURES as error:
            failures[alpha] = checks.reason(error)
    if len(failures) == len(alphas):
        raise checks.refusal(
            "alphas",
            ", ".join(f"{alpha:g}" for alpha in alphas),
            "at least one power at which the model trains and predicts",
            f"At {alphas[0]:g}: {failures[alphas[0]]}",
        )
    return failures


def _trainer(model: GPModel, refit: bool | Train, objective: Objective) -> Train:
    if callable(refit):
        return refit
    if refit not in (True, False):
        expected = "True, False or a function that trains the model"
        raise checks.refusal(
            "refit", repr(refit), expected, "Leave it out if in doubt."
        )
    if not refit:
        return lambda model: None
    if isinstance(model, TiedModel):
        raise checks.refusal(
            "refit",
            f"True with {type(model).__name__}, which does not hold its data",
            "a function that trains the model, or False",
            "Pass refit=lambda model: gpflow_pep.training.fit(model, batches,"
            " num_steps=1000), for example.",
        )
    loss = WholeLoss(model, objective=objective)
    return lambda _: maximise(loss, progress=False)
