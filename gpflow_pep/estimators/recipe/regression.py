"""The recipe of :class:`~gpflow_pep.estimators.PEPRegressor`, unless a setting selects
a single model. It trains several models with given settings, scores each on rows that
were left out of training, and mixes them. If the user sets something that all models
can have, all models use it instead of the value below. Models that then are the same
are trained once.

Up to :data:`~gpflow_pep.estimators.single.regression.EXACT_ROWS` rows the components
are exact Gaussian processes (``inducing="rows"``): the full component has an additive
kernel on Yeo-Johnson inputs, noise that varies with the inputs, and warped targets; two
plain components have standardised inputs, with a squared exponential and a Matérn 5/2
kernel. On 30 tables, generated and from scikit-learn, of 60 to 450 rows the first two
components are .023 ± .008 nats a row and 3 ± 1.4% of RMSE better than the first with
its plain form. On 38 other tables the third component gains .018 ± .015 nats and .3 ±
.1% of RMSE, and other components gain less. Leave-one-out densities are not optimistic
if inducing inputs are not trained; with trained inducing inputs they are .2 nats a row
too good.

The Matérn component is trained from two starts; if the fine start ends better, the
other components start from there
(:func:`~gpflow_pep.estimators.single.exact.start_after`). With more rows, a random
choice of EXACT_ROWS rows decides between both starts, and then the full and the Matérn
component are trained on :data:`~gpflow_pep.estimators.single.regression.SCOUT_ROWS`
rows. Up to :data:`EXACT_BY_SCOUT` rows, the component that predicts other rows better
is trained on all rows for :data:`FEW_STEPS` steps. With more rows there is a model with
trained inducing inputs. It adds points and near rows as long as that improves
predictions, and it transforms inputs and targets if that improves an exact Matérn 5/2
model. (On 13 generated tables of 3000 rows this is at most .003 nats from the better
choice.) A fifth of the rows, at most 1000, is left out of its training and decides all
this; these rows are added to the model afterwards. (400 fixed points are .001 to .50
nats worse on three tables.)

The model of several columns of y is :data:`COLUMNS`, with white noise that the columns
of a row share; with more than :data:`EXACT_BY_SCOUT` rows it is trained for
:data:`COLUMN_STEPS` steps. :mod:`gpflow_pep.estimators.recipe.columns` chooses between
it and models of each column.

The left-out rows determine the weights of the densities
(:func:`~gpflow_pep.training.ensemble_weights`) and of the means
(:func:`~gpflow_pep.training.weights_of_means`), and the mixture's
:class:`~gpflow_pep.distributions.Recalibration`.
"""

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from ...distributions import Predictive, Recalibration
from ...distributions.recalibration import STANDARD_ERRORS
from ...engine.left_out_rows import copies_of, weights_of_means
from ...engine.refusals.arrays import AnyNDArray
from ..single.exact import STEPS_OF_STARTS, Hyperparameters, start_after
from ..single.model import SingleModel
from ..single.regression import (
    EXACT_ROWS,
    LEAST_SECONDS,
    SCOUT_ROWS,
    SCOUT_SHARE,
    SingleRegressor,
)
from ..single.settings import ModelSettings
from .mixture import Mixture
from .recipe import (
    LEFT_OUT,
    NO_LIMIT,
    Judged,
    Recipe,
    Rule,
)

#: The largest number of rows of the exact model after a scout, the number of its steps,
#: and the number of evaluations for which there must be time. The time of an evaluation
#: is estimated from the scout, and grows with the cube of the rows.
EXACT_BY_SCOUT = 2500
FEW_STEPS = 8
EVALUATIONS = 12
#: The largest range of warped targets of unit scale. It is 5 to 16 on six tables, and
#: 280 with Cauchy noise. A scout that has only zeros warps other targets up to 1e40; a
#: scout of 300 log-normal targets warps 5000 others up to 4e7.
WIDEST = 1e3
#: The constant c in the prior of the weights. On the 30 tables above .01 and .1 are
#: .000 and .002 nats worse.
PRIOR_WEIGHT = 0.03
#: Few rows do not show which component is better, so c is at least this number divided
#: by the number of rows. (With c = .03, three rows give one component a weight of .98.)
#: On 46 data sets of 23 known processes this improves the mean log density by .04, .04
#: and .02 at 5, 10 and 20 rows.
PRIOR_ROWS = 3.0
#: The largest number of inputs of the additive kernel; with more inputs it is only the
#: Matérn 5/2 kernel.
ADDITIVE_INPUTS = 20
#: The number of steps of the full component and of the plain components. On the 33
#: tables of :mod:`gpflow_pep.estimators.single.exact` more steps are worse: 80 and any
#: number of them by .002 and .001. If the user sets the additive kernel for all
#: components, they all have the steps of the full one: on six generated tables of 80 to
#: 200 rows the mixture gains .000 to .009 nats, .004 on average.
FULL_STEPS = 50
PLAIN_STEPS = 15
FULL = ModelSettings(
    kernel="additive",
    inputs="yeo-johnson",
    noise="varying",
    warp=True,
    inducing="rows",
    alpha=0.5,
    max_iterations=FULL_STEPS,
)
ROUGH = replace(
    FULL,
    kernel="matern52",
    inputs="standard",
    noise="constant",
    warp=False,
    max_iterations=PLAIN_STEPS,
)
SMOOTH = replace(ROUGH, kernel="rbf")
#: The exact components.
COMPONENTS = FULL, SMOOTH, ROUGH
#: The number of steps of a model of several columns with many rows. With 3000 rows 60
#: steps are .04 nats worse, and 140 steps converge.
COLUMN_STEPS = 150
#: The model of several columns. At alpha 1, noise that the columns of a row share is
#: treated exactly. On two tables of 400 rows 50 points are .03 and .01 nats worse than
#: 100 points, and 200 points are not better. On eleven tables of 100 to 426 rows, eight
#: of them generated, warps gain .10 nats per target on average and lose at most .03.
COLUMNS = replace(
    ROUGH,
    inputs="yeo-johnson",
    warp=True,
    alpha=1.0,
    num_inducing=100,
    max_iterations=NO_LIMIT,
)
#: The model with trained inducing inputs, without and with transforms. Its training
#: shows a progress bar if ``verbose``.
TRAINED = ModelSettings(
    kernel="rbf",
    noise="constant",
    inputs="standard",
    warp=False,
    max_iterations=NO_LIMIT,
    verbose=True,
)
BENT = replace(TRAINED, inputs="yeo-johnson", warp=True)
#: Words for kernels.
KERNEL_WORDS = {
    "additive": "additive kernel",
    "rbf": "squared exponential",
    "matern52": "Matern",
}
#: The line about a component of a mixture, and about a single component.
LINE = "{}: {:.3f}; weight {:.2f} in the density, {:.2f} in the mean."
LINE_ALONE = "{}; mean log density of left-out rows: {:.3f}."


def name_of(candidate: ModelSettings) -> str:
    """Describe how a component differs from the others."""
    words = [KERNEL_WORDS[str(candidate.kernel)]]
    if candidate.inputs == "yeo-johnson":
        words.append("Yeo-Johnson inputs")
    if candidate.warp:
        words.append("warped targets")
    if candidate.noise == "varying":
        words.append("varying noise")
    return ", ".join(words)


def exact_candidates(
    recipe: Recipe, components: Sequence[ModelSettings] = COMPONENTS
) -> list[ModelSettings]:
    """List the exact components, with the settings that all models use."""
    has_parts = recipe.X.shape[1] <= ADDITIVE_INPUTS and recipe.settings.standardize
    candidates = []
    for component in components:
        if component.kernel == "additive" and not has_parts:
            component = replace(component, kernel="matern52")
        if recipe.given.get("kernel") == "additive":
            component = replace(component, max_iterations=FULL_STEPS)
        candidates.append(recipe.complete(component))
    return candidates


def rule_of_targets(num_components: int, margin: float = 0.0, D: int = 0) -> Rule:
    """Make the rule by which distributions of targets are mixed.

    :param margin: The number of standard errors that is added to the scale of a
        recalibration.
    :param D: The number of inputs.
    """

    def mean_weights(
        predictions: Sequence[Any], y: AnyNDArray, weights: AnyNDArray
    ) -> AnyNDArray:
        means = np.stack([each.moments()[0] for each in predictions])
        return weights_of_means(means, y, weights)

    def recalibration(
        predictions: Sequence[Any], y: AnyNDArray, weights: AnyNDArray
    ) -> Recalibration:
        z = Predictive.mixed(predictions, weights).normal_scores(y)
        return Recalibration.fit(z, margin, D)

    return Rule(
        prior_weight=lambda num_rows: max(PRIOR_WEIGHT, PRIOR_ROWS / num_rows),
        mean_weights=mean_weights,
        recalibration=recalibration,
        line=LINE_ALONE if num_components == 1 else LINE,
    )


def fit_mixture(
    settings: ModelSettings,
    X: AnyNDArray,
    Y: AnyNDArray,
    before: SingleModel | None = None,
    *,
    components: Sequence[ModelSettings] = COMPONENTS,
    column_steps: int | None = None,
    warps: AnyNDArray | None = None,
) -> Mixture:
    """Train the components on rows X [N, D], with targets Y [N, 1], and mix them; or
    train one model of targets [N, P].

    :param settings: The settings of the estimator.
    :param before: A model from which a warm start begins.
    :param components: The exact components, up to :data:`EXACT_ROWS` rows; the last one
        is trained first.
    :param column_steps: The largest number of steps of a model of several columns. None
        selects the number of the estimator, or :data:`COLUMN_STEPS` with many rows.
    :param warps: Skew and tails of each of several columns, [P, 2], if known.
    """
    recipe = Recipe(SingleRegressor, settings, X, Y, before)
    if Y.shape[1] > 1:
        return _model_columns(recipe, column_steps, warps)
    if len(X) <= EXACT_ROWS:
        trained = _train_exact(recipe, components)
    elif recipe.budget.seconds < LEAST_SECONDS:
        recipe.log.note(
            f"{recipe.size}{recipe.same}, {recipe.budget.seconds:g} s: one model,"
            " without a trial on some of the rows."
        )
        trained = [_train_points(recipe, TRAINED)]
    else:
        trained = _train_after_scouts(recipe)
    return _mix(recipe, trained)


def _model_columns(
    recipe: Recipe, steps: int | None, warps: AnyNDArray | None
) -> Mixture:
    """Train one model of several columns."""
    X = recipe.X
    Y = recipe.Y
    if steps is None and len(X) > EXACT_BY_SCOUT:
        steps = COLUMN_STEPS
    most = steps or COLUMNS.max_iterations
    candidate = recipe.complete(replace(COLUMNS, max_iterations=most))
    single = recipe.train(candidate, warps=warps)
    z = single.left_out(recipe.copies)[1].normal_scores(Y)
    recipe.log.note(
        f"{recipe.size}{recipe.same}, {Y.shape[1]} columns of y: one model, whose"
        " inducing inputs stay fixed."
    )
    recipe.log.note(single.describe())
    there = ~np.isnan(z)
    num_rows = int(np.sum(there.any(axis=1)))
    recalibration = Recalibration.fit(z[there], D=X.shape[1], num_rows=num_rows)
    return recipe.alone(single, recalibration)


def _train_points(
    recipe: Recipe, candidate: ModelSettings, start: Hyperparameters | None = None
) -> tuple[str, ModelSettings, SingleRegressor]:
    """Train the model with trained inducing inputs."""
    candidate = recipe.complete(candidate)
    single = recipe.train(candidate, start=start)
    return single.describe()[:-1], candidate, single


def _train_exact(
    recipe: Recipe, components: Sequence[ModelSettings]
) -> list[tuple[str, ModelSettings, SingleRegressor]]:
    """Train several exact models of all rows, as many as the time allows."""
    left_out = LEFT_OUT.format("density")
    recipe.log.note(f"{recipe.size}{recipe.same}: exact Gaussian processes. {left_out}")
    *others, candidate = exact_candidates(recipe, components)
    single = recipe.train(candidate)
    start = _start_after(single)
    trained = [(name_of(candidate), candidate, single)]
    for candidate in others:
        is_new = not any(candidate.is_like(each) for _, each, _ in trained)
        if is_new and recipe.budget.left > 0.0:
            single = recipe.train(candidate, start=start)
            trained.append((name_of(candidate), candidate, single))
    return [*trained[1:], trained[0]]


def _start_after(single: Any) -> Hyperparameters | None:
    """Return the start of the components after the first one; None if each component
    finds its own start.
    """
    if not single.settings.standardize:
        return None
    return start_after(single.hyperparameters(), single.record)


def _train_after_scouts(
    recipe: Recipe,
) -> list[tuple[str, ModelSettings, SingleRegressor]]:
    """Choose transforms with exact models of some rows, and train one model on all
    rows: an exact model if there is time for it.
    """
    order = np.random.default_rng(0).permutation(len(recipe.X))
    full, _, rough = exact_candidates(recipe)
    few = recipe.complete(replace(ROUGH, max_iterations=STEPS_OF_STARTS))
    start = _start_after(_scout(recipe, few, order[:EXACT_ROWS]))
    plain = _scout(recipe, rough, order[:SCOUT_ROWS], start)
    is_exact = _has_time_for_exact(recipe, plain)
    if not is_exact:
        full = replace(full, kernel="matern52", noise="constant")
        full = recipe.complete(full)
    best = plain
    candidate = rough
    if full.is_like(rough):
        recipe.log.note(
            f"{recipe.size}{recipe.same}: these leave no transforms to try."
        )
    else:
        bent = _scout(recipe, full, order[:SCOUT_ROWS], start)
        if _is_better(recipe, (bent, full), (plain, rough), order):
            candidate = full
        if not is_exact or candidate is full:
            best = bent
    theta = best.hyperparameters()
    if is_exact:
        candidate = replace(candidate, max_iterations=FEW_STEPS)
        single = recipe.train(candidate, start=theta)
        name = f"exact Gaussian process, {name_of(candidate)}"
        return [(name, candidate, single)]
    start = (start or theta)._replace(skew=theta.skew, tails=theta.tails)
    transforms = BENT if candidate is full else TRAINED
    return [_train_points(recipe, transforms, start)]


def _scout(
    recipe: Recipe,
    candidate: ModelSettings,
    rows: AnyNDArray,
    start: Hyperparameters | None = None,
) -> Any:
    """Train a candidate on some rows, in a share of the remaining time."""
    seconds = SCOUT_SHARE * recipe.budget.left
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return recipe.train(candidate, seconds=seconds, rows=rows, start=start)


def _has_time_for_exact(recipe: Recipe, scout: Any) -> bool:
    """Whether an exact model of all rows is small enough and there is time for it,
    judging by the speed of a scout.
    """
    if len(recipe.X) > EXACT_BY_SCOUT:
        return False
    left = recipe.budget.left * (SCOUT_ROWS / len(recipe.X)) ** 3
    evaluation = scout.record.seconds / scout.record.evaluations
    return bool(EVALUATIONS * evaluation <= left)


def _is_better(
    recipe: Recipe,
    bent: tuple[Any, ModelSettings],
    plain: tuple[Any, ModelSettings],
    order: AnyNDArray,
) -> bool:
    """Return whether a scout with transforms is better than a plain scout, on rows that
    are not copies of the scouts' rows.
    """
    rows = order[:SCOUT_ROWS]
    others = order[SCOUT_ROWS : 3 * SCOUT_ROWS]
    groups = copies_of(recipe.X, recipe.Y)
    others = others[~np.isin(groups[others], groups[rows])]
    X = recipe.X[others]
    y = recipe.Y[:, 0]
    of_bent, of_plain = (
        scout.predictive(X).log_densities(y[others]) for scout, _ in (bent, plain)
    )
    gain = float(np.mean(of_bent - of_plain))
    by = f"{abs(gain):.3f}" if abs(gain) < 10.0 else "more than 10"
    better = "better" if gain > 0.0 else "worse"
    recipe.log.note(
        f"{recipe.size}{recipe.same}: in a trial with {SCOUT_ROWS}, the model with"
        f" {name_of(bent[1])} is {better} than the one with {name_of(plain[1])} on"
        f" {len(others)} other rows by {by} in the mean log density (higher is"
        " better)."
    )
    return gain > 0.0 and bool(np.ptp(bent[0].units.transform(y)) < WIDEST)


def _mix(
    recipe: Recipe, trained: list[tuple[str, ModelSettings, SingleRegressor]]
) -> Mixture:
    """Mix components by rows that are left out, which recalibrate the mixture."""
    judged = []
    for name, candidate, single in trained:
        left_out = single.left_out(recipe.copies)
        if left_out is None:
            recipe.log.note(single.describe())
            return recipe.alone(single)
        rows, prediction = left_out
        y = recipe.Y[rows, 0]
        densities = prediction.log_densities(y)
        judged.append(Judged(name, candidate, single, prediction, densities))
    rule = rule_of_targets(len(judged))
    if len(y) == len(recipe.X):
        # A scale that is computed from training rows needs a margin.
        D = recipe.X.shape[1]
        rule = rule_of_targets(len(judged), STANDARD_ERRORS, D)

    def describe(mixture: Mixture, predictions: Sequence[Any]) -> str:
        mixed = mixture.mixed(predictions)
        error = np.sqrt(np.mean((mixed.moments()[0] - y) ** 2))
        density = np.mean(mixed.log_densities(y))
        return (
            f"Mixed: {density:.3f}, RMSE {error:.3g}; {recipe.budget.passed:.1f} s."
            f" {_worded(mixture.recalibration)}"
        )

    return recipe.mix(judged, y, rule, describe)


def _worded(recalibration: Recalibration | None) -> str:
    nu, scale = recalibration or Recalibration()
    shape = "a Gaussian" if nu is None else f"Student's t of {nu:g} degrees of freedom"
    return (
        f"Recalibrated on these rows: {scale:.2f} times as wide, with the tails of"
        f" {shape}."
    )
