"""The recipe of :class:`PEPClassifier <gpflow_pep.estimators.PEPClassifier>`, unless a
setting selects a single model. It trains models with given settings and mixes their
probabilities; left-out rows choose the weights. If the user sets something that all
models can have, all models use it instead of the value below. Models that then are the
same are trained once.

Each component has a Matérn 5/2 kernel whose lengthscales are similar a priori. Its
inducing points are not trained, so that leave-one-out probabilities are not optimistic.
The first component has Yeo-Johnson inputs. It is trained from lengthscales √D, and also
from a fine start if that predicts left-out rows better. The second component has
standardised inputs, and takes a few steps from the end of the first. With more than two
classes there is a third component. It is ordinal if the classes are
:data:`~gpflow_pep.tables.grades.GRADES`, or numbers for which one function with
thresholds predicts as well as the other components, and if the ordinal component
predicts left-out rows better. Otherwise it is RobustMax with three wrong labels in a
hundred. The mixture is recalibrated.

With two classes and 1000 rows or more, the recipe tests whether near rows have
information that the first component lacks. If so, this component is the only one, and
it predicts from near rows. With :data:`MANY_ROWS` rows or more there is one model,
whose inducing points are trained. Components that are trained on some of the rows
choose its transform of inputs, and some of the rows choose between the two starts.
"""

import time
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import expit, logit
from scipy.stats import sem
from sklearn.exceptions import ConvergenceWarning

from ...distributions import Recalibration
from ...engine.left_out_rows import LEAST_ROWS, gains
from ...engine.refusals import counted
from ...engine.refusals.arrays import AnyNDArray
from ...tables.grades import numbers_of, order_of_labels
from ..single.classes import SingleClassifier
from ..single.exact import FINE, SHARE_OF_FINE
from ..single.inputs import listed
from ..single.model import SingleModel
from ..single.regression import LEAST_SECONDS
from ..single.settings import ModelSettings
from ..single.when_used import load_tensorflow, models, near, objectives
from .mixture import Mixture
from .recipe import (
    LEFT_OUT,
    NO_LIMIT,
    Judged,
    Recipe,
    Rule,
    because_of,
    limit_of,
    only_model,
    settings_of_one_model,
)

#: On 2000 generated rows the log loss of the components minus the log loss of one model
#: was -.019, -.008, -.031 and +.029, in .45 to .79 of its time; on 3500 rows it was
#: -.027 in 1.24 of its time.
MANY_ROWS = 2500
#: The constant c in the prior of the weights.
PRIOR_WEIGHT = 0.1
#: The number of rows that choose the transform of inputs if there are many rows.
SCOUT_ROWS = 400
#: The number of rows that choose between the two starts if there are many rows. On
#: 2500 generated rows with a fine and a smooth part, the divergence from the true
#: probabilities falls from .218 to .006 (two classes) and from .306 to .012 (three), in
#: 1.09 and 1.23 of the time. On two tables without a fine part it stays the same.
ROWS_OF_STARTS = 1000
#: The prior standard deviation of log lengthscales around their mean. The held-out log
#: loss with .7 and with 1 differed by at most .004 on five generated tables. Without a
#: prior (infinity) it was .04 worse on digits (200 rows, 64 inputs), and with one
#: lengthscale (0) it was .17 worse on a table in which most inputs are noise.
COMMON = ModelSettings(
    kernel="matern52",
    ard=0.7,
    inducing="rows",
    alpha=0.5,
    near_rows=0,
)
#: The only model if there are many rows. Its training shows a progress bar if
#: ``verbose``.
MANY = ModelSettings(likelihood="auto", max_iterations=NO_LIMIT, verbose=True)
#: On 600 rows of two classes and ten inputs the log loss was .306 with 400 points and
#: .334 with 150 points; with two inputs both were equal.
POINTS_OF_TWO = 400
POINTS_OF_MORE = 150
POINTS_OF_AN_INPUT = 50
#: The number of steps of the first component with two classes and with more classes, of
#: the second, and of the third. With ten classes (300 rows, 64 inputs) 15 steps of the
#: first component had a log loss of .324, 25 steps .310 and 42 steps .298. With four
#: classes (600 rows, 15 inputs) 27 steps of the third component had .496 and 8 steps
#: .494.
STEPS = 20, 50, 4, 8
#: The standard deviation of the normal prior of log s, with which probabilities are
#: recalibrated. On 14 generated tables the log loss falls by .003 and the calibration
#: error from .036 to .028; with .1 and .4 they fall as much.
SPREAD = 0.2
#: The variance of the fine start, and the number of steps from it before it is
#: compared. On 6 tables of functions with a fine and a smooth part (800 rows of three
#: inputs, 200 rows of two), these steps predict left-out rows .016 to .16 nats better
#: than the end from the smooth start in all 6. Log Z would not show this: in 4 tables
#: it is higher from the smooth start.
FINE_VARIANCE = 4.0
STEPS_OF_FINE = 5
#: The number of all steps from the fine start with two classes and with more classes.
#: On 5 tables of two classes (150 to 800 rows) with a fine and a smooth part, the
#: divergence from the true probabilities after 10 steps minus the divergence after 20
#: steps is -.002 to .004. A fit of 200 rows then takes 1.3 to 1.4 times as long as with
#: the smooth start only, and 1.6 times with 20 steps.
STEPS_FROM_FINE = 10, 50
#: Training continues from the fine start if it is better by this number of nats. On
#: five tables of 200 rows without fine parts the difference is -.004 to .000.
CLEARLY = 0.01

#: Names of components by their likelihoods.
NAMES = {
    "ordinal": "Classes in order",
    "noisy_multiclass": "Three labels in a hundred treated as wrong",
}


def fit_classes(
    kind: type[SingleClassifier],
    settings: ModelSettings,
    classes: AnyNDArray,
    X: AnyNDArray,
    Y: AnyNDArray,
    before: SingleModel | None = None,
) -> Mixture:
    """Train the models of a classifier on rows X [N, D], with numbers of classes Y
    [N, 1].

    :param kind: The class of the single models.
    :param settings: The settings of the estimator.
    :param classes: The labels, [C].
    :param before: A model from which a warm start begins.
    """
    load_tensorflow()
    named = settings_of_one_model(settings)
    if named or len(X) < 2:
        return only_model(kind(settings).fit(X, Y, before=before), because_of(named))
    return fit_mixture(ClassRecipe(classes, kind, settings, X, Y, before))


class ClassRecipe(Recipe):
    """The state of a recipe while it trains models of classes.

    :param classes: The labels, [C].
    :param arguments: The arguments of
        :class:`~gpflow_pep.estimators.recipe.recipe.Recipe`.
    """

    def __init__(self, classes: AnyNDArray, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.classes = classes
        self.labels: AnyNDArray = self.Y[:, 0].astype(int)  #: Numbers of classes, [N].

    def of_some(self, rows: AnyNDArray, seconds: float) -> "ClassRecipe":
        """Make a recipe for some of the rows, with a time limit in seconds."""
        settings = replace(self.settings, max_seconds=limit_of(seconds))
        X = self.X[rows]
        Y = self.Y[rows]
        return ClassRecipe(self.classes, self.kind, settings, X, Y, self.before)


def fit_mixture(recipe: ClassRecipe) -> Mixture:
    """Train the components, and mix them."""
    if len(recipe.X) >= MANY_ROWS:
        return _fit_many(recipe)
    num_classes = len(recipe.classes)
    _note_size(recipe)
    bent, standard = _candidates(recipe)
    judged = [_better_of_two_starts(recipe, bent)]
    if num_classes == 2 and len(recipe.X) >= LEAST_ROWS:
        with_near = _near_labels(recipe, judged[0])
        if with_near is not None:
            return _alone(recipe, with_near)
    if not standard.is_like(bent):
        judged += _more(recipe, judged, standard)
    if num_classes > 2 and "likelihood" not in recipe.given:
        judged += _another_likelihood(recipe, judged)
    return recipe.mix(judged, recipe.labels, RULE, _describe)


def _note_size(recipe: ClassRecipe) -> None:
    """Add the first line of the log."""
    recipe.log.note(
        f"{recipe.size}, {len(recipe.classes)} classes{recipe.same}: Gaussian"
        f" processes. {LEFT_OUT.format('probability')}"
    )


def _candidates(recipe: ClassRecipe) -> tuple[ModelSettings, ModelSettings]:
    """Return the two components that differ in their inputs. The second starts where
    the first ended.
    """
    several = len(recipe.classes) > 2
    number = min(POINTS_OF_TWO, POINTS_OF_AN_INPUT * (1 + recipe.X.shape[1]))
    bent = replace(
        COMMON,
        inputs="yeo-johnson",
        likelihood="softmax" if several else "bernoulli",
        num_inducing=POINTS_OF_MORE if several else number,
        max_iterations=STEPS[1] if several else STEPS[0],
    )
    standard = replace(bent, inputs="standard", max_iterations=STEPS[2])
    return recipe.complete(bent), recipe.complete(standard)


def _better_of_two_starts(recipe: ClassRecipe, candidate: ModelSettings) -> Judged:
    """Train the first component from lengthscales √D; also from the fine start, if a
    few steps from there predict left-out rows better.
    """
    single = recipe.train(candidate, prepares=False)
    few = _few_fine_steps(recipe, single)
    with models.base.q_once():
        smooth = _judged(recipe, candidate, single, prepares=False)
        if few is None or few.score < smooth.score + CLEARLY:
            single.mixture_in_numpy()
            return smooth
    better = max([smooth, *_fine(recipe, few)], key=lambda each: each.score)
    better.single.mixture_in_numpy()
    return better


def _few_fine_steps(recipe: ClassRecipe, smooth: SingleClassifier) -> Judged | None:
    """Train for a few steps from the fine start; None if that fails, or if the time is
    over.

    :param smooth: The model from the other start, which stays as it is.
    """
    if recipe.budget.left <= 0.0:
        return None
    lengthscale = FINE * np.sqrt(recipe.X.shape[1])
    end = time.perf_counter() + SHARE_OF_FINE * recipe.budget.left
    try:
        fine = smooth.after_few_steps(lengthscale, FINE_VARIANCE, STEPS_OF_FINE, end)
        return _judged(recipe, smooth.settings, fine, prepares=False, moves_sites=False)
    except objectives.FAILURES:
        return None


def _fine(recipe: ClassRecipe, few: Judged) -> list[Judged]:
    """Train a component further after its few steps; none if that fails."""
    fine = few.single
    limit = STEPS_FROM_FINE[1] if len(recipe.classes) > 2 else STEPS_FROM_FINE[0]
    steps = min(limit, few.candidate.max_iterations)
    fine.settings = replace(fine.settings, max_iterations=steps)
    try:
        if steps > STEPS_OF_FINE:
            end = time.perf_counter() + recipe.budget.left
            with recipe.allowing_few_steps(fine):
                fine.go_on(steps - STEPS_OF_FINE, end)
        return [_judged(recipe, few.candidate, fine)]
    except objectives.FAILURES:
        return []


def _judged(
    recipe: ClassRecipe,
    candidate: ModelSettings,
    single: SingleClassifier,
    prepares: bool = True,
    moves_sites: bool = True,
) -> Judged:
    """Leave out each row of a trained candidate in turn.

    :param prepares: Whether what predicts is prepared, from the same pass over rows.
    :param moves_sites: Whether the sites of the other rows change without the row.
    """
    with models.base.q_once():
        if prepares:
            single.mixture_in_numpy()
        probability = single.left_out(recipe.copies, moves_sites)
    labels = recipe.labels
    densities = np.log(probability[np.arange(len(labels)), labels])
    name = _name_of(recipe, candidate)
    return Judged(name, candidate, single, probability, densities)


def _more(
    recipe: ClassRecipe, judged: list[Judged], candidate: ModelSettings, place: int = 0
) -> list[Judged]:
    """Train a further component, from the end of another one. Return no component if
    the time is over, or if training fails.
    """
    if recipe.budget.left <= 0.0:
        return []
    before = judged[place].single
    try:
        single = recipe.train(candidate, before=before, prepares=False)
        return [_judged(recipe, candidate, single)]
    except objectives.FAILURES:
        return []


def _name_of(recipe: ClassRecipe, candidate: ModelSettings) -> str:
    """Describe how a component differs from the others."""
    if "likelihood" not in recipe.given and candidate.likelihood in NAMES:
        return NAMES[candidate.likelihood]
    if candidate.inputs == "yeo-johnson":
        return "Inputs made nearly Gaussian (Yeo-Johnson)"
    is_scaled = recipe.settings.standardize
    return "Standardised inputs" if is_scaled else "Inputs as they are"


def _alone(recipe: ClassRecipe, single: SingleModel) -> Mixture:
    """Make a mixture of one component."""
    recipe.log.note(f"{len(recipe.X)} rows: {single.describe()}")
    return recipe.alone(single, Recalibration())


def _fit_many(recipe: ClassRecipe) -> Mixture:
    """Train one component. Models of some rows choose how its inputs are transformed,
    and where its training starts.
    """
    inputs = "standard"
    start = None
    seconds = recipe.budget.seconds
    if seconds >= LEAST_SECONDS:
        order = np.random.default_rng(recipe.settings.seed).permutation(len(recipe.X))
        recipe.log.note("Some rows choose how inputs are transformed.")
        scouts = recipe.of_some(order[:SCOUT_ROWS], 0.5 * seconds)
        scout = _scout(scouts)
        recipe.log.lines += scouts.log.lines
        inputs = scout.settings.inputs
        judges = recipe.of_some(
            order[:ROWS_OF_STARTS], SHARE_OF_FINE * recipe.budget.left
        )
        start = _fine_start(judges, scout)
    if start is not None:
        number = counted(len(judges.X), "row")
        recipe.log.note(f"{number}: short lengthscales are the better start.")
    if recipe.given:
        recipe.log.note(f"All models with {listed(recipe.given)}.")
    candidate = recipe.complete(replace(MANY, inputs=inputs))
    return _alone(recipe, recipe.train(candidate, before=start))


def _scout(recipe: ClassRecipe) -> SingleClassifier:
    """Train the two components that differ in their inputs, and return the one with the
    larger weight.
    """
    _note_size(recipe)
    bent, standard = _candidates(recipe)
    single = recipe.train(bent, prepares=False)
    judged = [_judged(recipe, bent, single)]
    if not standard.is_like(bent):
        judged += _more(recipe, judged, standard)
    mixture = recipe.mix(judged, recipe.labels, RULE, _describe)
    heaviest: Any = mixture.heaviest
    return heaviest


def _fine_start(
    recipe: ClassRecipe, scout: SingleClassifier
) -> SingleClassifier | None:
    """Train for a few steps from the parameters of a scout, and from the fine start.
    Return the model from the fine start if it predicts left-out rows better; None if
    not, if training fails, or if the time is over.
    """
    if recipe.budget.left <= 0.0:
        return None
    steps = min(STEPS_OF_FINE, scout.settings.max_iterations)
    few_steps = replace(scout.settings, max_iterations=steps)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            single = recipe.train(few_steps, before=scout, prepares=False)
        smooth = _judged(recipe, few_steps, single, prepares=False, moves_sites=False)
    except objectives.FAILURES:
        return None
    fine = _few_fine_steps(recipe, single)
    if fine is None or fine.score < smooth.score + CLEARLY:
        return None
    better: SingleClassifier = fine.single
    return better


def _near_labels(recipe: ClassRecipe, judged: Judged) -> SingleModel | None:
    """Let the first component use near rows if near rows have similar residuals; None
    if it does not use them.
    """
    main: SingleClassifier = judged.single
    X, Y = map(np.asarray, main.main.data)
    rows = np.arange(len(X))
    products = near.near_residuals(main.kernel, X, judged.log_densities, Y[:, 0], rows)
    if not gains(products, np.zeros_like(products), near.LEAST_GAIN):
        return None
    other = main.trying_near_labels(recipe.settings.max_iterations)
    return other if other.num_near_rows else None


def _another_likelihood(recipe: ClassRecipe, judged: list[Judged]) -> list[Judged]:
    """Train an ordinal component if the classes may have an order, or else a component
    in which labels may be wrong.
    """
    place = int(np.argmax([each.score for each in judged]))
    best = judged[place]
    order = _order_of_classes(recipe, best)
    if order is not None:
        ordinal = replace(
            best.candidate,
            likelihood="ordinal",
            order=tuple(order.tolist()),
            max_iterations=STEPS[1],
        )
        more = _more(recipe, judged, recipe.complete(ordinal), place)
        if more and more[0].score >= best.score:
            return more
        for each in more:
            recipe.log.note(f"{each.name}: {each.score:.3f}; not kept.")
    wrong = replace(
        best.candidate,
        likelihood="noisy_multiclass",
        max_iterations=STEPS[3],
    )
    return _more(recipe, judged, recipe.complete(wrong), place)


def _order_of_classes(recipe: ClassRecipe, best: Judged) -> AnyNDArray | None:
    """Return the places of the classes in their order; None if they do not have an
    order.
    """
    order = order_of_labels(recipe.classes)
    if order is None or numbers_of(recipe.classes) is None:
        return order
    return order if is_ordinal(best.prediction, recipe.labels, order) else None


def _recalibration(
    probabilities: Sequence[Any], labels: AnyNDArray, weights: AnyNDArray
) -> Recalibration:
    return _recalibrated(np.tensordot(weights, probabilities, 1), labels)


#: How probabilities are mixed; classes have no means.
RULE = Rule(
    prior_weight=lambda num_rows: PRIOR_WEIGHT,
    mean_weights=lambda probabilities, labels, weights: weights,
    recalibration=_recalibration,
    line="{}: {:.3f}; weight {:.2f}.",
)


def _describe(mixture: Mixture, _: Sequence[Any]) -> str:
    power = (mixture.recalibration or Recalibration()).scale ** -2
    return (
        f"Probabilities are mixed, raised to the power {power:.2f} (above 1 makes them"
        " more certain) that suits the left-out rows best, and divided by their sum."
    )


def _recalibrated(p: AnyNDArray, labels: AnyNDArray) -> Recalibration:
    """Choose s from probabilities of left-out rows, [N, C], and the prior of log s."""

    def loss(log_scale: float) -> float:
        powers = Recalibration(None, float(np.exp(log_scale))).probabilities(p)
        gain = np.sum(np.log(powers[np.arange(len(p)), labels]))
        return float(0.5 * (log_scale / SPREAD) ** 2 - gain)

    best = minimize_scalar(
        loss, bounds=(-1.0, 1.0), method="bounded", options={"xatol": 1e-8}
    )
    return Recalibration(None, float(np.exp(best.x)))


def is_ordinal(probability: AnyNDArray, labels: AnyNDArray, order: AnyNDArray) -> bool:
    r"""Whether one function, with thresholds that all rows share, predicts labels about
    as well as these probabilities:

    .. math:: \operatorname{logit} P_n(y > c) \approx f_n + b_c,

    with f and b from the row and column means of the left side. The result is True if
    the log loss of this approximation is higher by at most two standard errors. With
    probabilities [N, C] of other classifiers it is True for 20 of 20 generated tables
    of grades, and for 1 of 17 other tables.
    """
    eps = np.finfo(float).eps
    rows = np.arange(len(labels))
    odds = logit(np.cumsum(probability[:, order], axis=1)[:, :-1].clip(eps, 1.0 - eps))
    odds = odds.mean(axis=1, keepdims=True) + odds.mean(axis=0) - odds.mean()
    ordinal = np.diff(expit(odds), axis=1, prepend=0.0, append=1.0)[
        rows, np.argsort(order)[labels]
    ]
    gain = np.log(ordinal.clip(eps) / probability[rows, labels])
    return bool(np.mean(gain) >= -2.0 * sem(gain))
