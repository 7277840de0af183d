"""What :class:`PEPClassifier <gpflow_pep.estimators.PEPClassifier>` does where nothing
is named: models of known settings, whose probabilities are mixed by rows that were left
out.

Each component has a Matérn 5/2 kernel whose lengthscales are alike a priori, and
inducing points that are not trained, so that leave-one-out probabilities are honest:
one on Yeo-Johnson inputs, and one on standardised inputs, which takes a few steps from
where the first ended. More than two classes have a third one. Where they are
:data:`~gpflow_pep.tables.grades.GRADES`, or numbers of which one function with
thresholds has all that the others predict, it is ordinal if that predicts the rows
better. Else it is RobustMax, of which three labels in a hundred are wrong. The mixture
is recalibrated.

Where near rows have more information on labels of two classes than the first one, which
1000 rows or more show, it stays alone, and predicts from them. From :data:`MANY_ROWS`
rows on there is one model, whose points are trained. The components of some of the rows
choose its inputs.
"""

import copy
import sys
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from scipy.optimize import minimize_scalar
from scipy.special import expit, logit
from scipy.stats import sem

from ..distributions import Recalibration
from ..engine.factors import class_probabilities
from ..engine.refusals import counted
from ..engine.sites.posterior import Marginals, Sites, cavity
from ..tables.grades import numbers_of, order_of_labels
from ..training import ensemble_weights
from ..training.choosing.near import LEAST_GAIN, LEAST_ROWS, near_residuals
from ..training.fitting.objectives import FAILURES
from ..training.fitting.points import gains, numbers_of_copies
from .stack import LEAST_SECONDS, LEFT_OUT, Stack, component

if TYPE_CHECKING:
    from .classifier import PEPClassifier

#: On 2000 generated rows the log loss of the components less that of one model was
#: -.019, -.008, -.031 and +.029, in .45 to .79 of the seconds; on 3500 rows -.027 in
#: 1.24 of them.
MANY_ROWS = 2500
#: c of the weights' prior.
PRIOR_WEIGHT = 0.1
#: The rows that choose inputs there.
SCOUT_ROWS = 400
#: The held-out log loss with a spread of .7 and of 1 differed by .004 at most on five
#: generated tables. Without a prior (infinity) it was .04 worse on digits (200 rows, 64
#: inputs), and with one lengthscale (0) .17 worse where most inputs are noise.
COMMON = {
    "kernel": "matern52",
    "ard": 0.7,
    "inducing": "rows",
    "alpha": 0.5,
    "verbose": False,
}
#: On 600 rows of two classes and ten inputs 400 points had a log loss of .306 and 150
#: of .334; of two inputs both had the same.
POINTS_OF_TWO, POINTS_OF_MORE, POINTS_OF_AN_INPUT = 400, 150, 50
#: Steps of the first component of two classes, and of more, of the second and of the
#: third. Of ten classes (300 rows, 64 inputs) 15 of the first had a log loss of .324,
#: 25 of .310 and 42 of .298; of four (600 rows, 15 inputs) 27 of the third had .496 and
#: 8 .494.
STEPS = 20, 50, 4, 8
#: Of the normal prior of log s, by which probabilities are recalibrated. On 14
#: generated tables the log loss falls by .003 and the calibration error from .036 to
#: .028, with .1 and .4 too.
SPREAD = 0.2


def fit_class_stack(
    estimator: "PEPClassifier",
    X: AnyNDArray,
    Y: AnyNDArray,
    seconds: float,
    only_inputs: bool = False,
) -> Stack:
    """Train the components on rows X [N, D], with numbers of classes Y [N, 1], and mix
    them.

    :param estimator: Whose other settings are those of the components.
    :param seconds: The most seconds of it.
    :param only_inputs: Whether there are only the two that differ in the inputs.
    """
    end = time.perf_counter() + seconds
    if len(X) >= MANY_ROWS:
        return _fit_many(estimator, X, Y, seconds, end)
    recipe = _Recipe(estimator, X, Y, end)
    several = len(estimator.classes_) > 2
    number = min(POINTS_OF_TWO, POINTS_OF_AN_INPUT * (1 + X.shape[1]))
    same: dict[str, Any] = {
        "likelihood": "softmax" if several else "bernoulli",
        "near_rows": 0,
        "num_inducing": POINTS_OF_MORE if several else number,
    }
    first = "Inputs made nearly Gaussian (Yeo-Johnson)"
    steps = recipe.steps(1 if several else 0)
    recipe.add(first, estimator, same | steps | {"inputs": "yeo-johnson"})
    if not several and len(X) >= LEAST_ROWS:
        near = recipe.near_labels()
        if near is not None:
            return _alone(near, len(X))
    same["warm_start"] = True
    standard = same | recipe.steps(2) | {"inputs": "standard"}
    recipe.add("Standardised inputs", recipe.parts[0], standard)
    if several and not only_inputs:
        recipe.add_another_likelihood(same)
    return recipe.mix()


def _alone(part: "PEPClassifier", num_rows: int, lines: Iterable[str] = ()) -> Stack:
    """Make a stack of one component."""
    lines = (*lines, f"{num_rows} rows: {part._one_line()}")
    return Stack((part,), np.ones(1), np.ones(1), Recalibration(), lines)


def _fit_many(
    estimator: "PEPClassifier",
    X: AnyNDArray,
    Y: AnyNDArray,
    seconds: float,
    end: float,
) -> Stack:
    """Train one component; some of the rows choose how its inputs are transformed."""
    lines: list[str] = []
    inputs = "standard"
    if seconds >= LEAST_SECONDS:
        order = np.random.default_rng(estimator._seed()).permutation(len(X))
        some = order[:SCOUT_ROWS]
        scout = fit_class_stack(estimator, X[some], Y[some], 0.5 * seconds, True)
        lines = ["Some rows choose how inputs are transformed.", *scout.lines]
        inputs = scout.heaviest.inputs
    left = end - time.perf_counter()
    part = component(estimator, X, Y, {"inputs": inputs}, left)
    return _alone(part, len(X), lines)


class _Recipe:
    """Components for rows X [N, D] with numbers of classes Y [N, 1], as they are
    trained until the time is over, with their predictions of rows left out.
    """

    def __init__(
        self, estimator: "PEPClassifier", X: AnyNDArray, Y: AnyNDArray, end: float
    ) -> None:
        self._estimator, self._X, self._Y, self._end = estimator, X, Y, end
        self._labels = Y[:, 0].astype(int)
        self._copies = numbers_of_copies(X, Y)
        size = f"{len(X)} rows, {counted(X.shape[1], 'input')},"
        size += f" {len(estimator.classes_)} classes"
        self._head = f"{size}: Gaussian processes. {LEFT_OUT.format('probability')}"
        self.parts: list[PEPClassifier] = []
        self._left_out: list[AnyNDArray] = []  #: Probabilities, [N, C] each.
        self._of_label: list[AnyNDArray] = []  #: Log probabilities of labels, [N].
        self._names: list[str] = []
        self._dropped: list[str] = []

    def steps(self, place: int) -> dict[str, Any]:
        """Look up how many steps the component of a place in :data:`STEPS` may take."""
        return {"max_iterations": min(STEPS[place], self._estimator.max_iterations)}

    def add(self, name: str, before: "PEPClassifier", settings: dict[str, Any]) -> None:
        """Train a component, if there is time, and leave out each of its rows in
        turn.
        """
        left, estimator = self._end - time.perf_counter(), self._estimator
        if self.parts and left <= 0.0:
            return
        most = estimator.max_iterations
        X, Y = self._X, self._Y
        try:
            part = component(before, X, Y, COMMON | settings, left, most_steps=most)
            probability = _left_out(part, self._copies)[:, part.columns_of(estimator)]
        except FAILURES:
            if self.parts:
                return
            raise
        self.parts.append(part)
        self._left_out.append(probability)
        own = np.log(probability[np.arange(len(self._labels)), self._labels])
        self._of_label.append(own)
        self._names.append(f"{name}: {np.mean(own):.3f}")
        if estimator.verbose:
            if len(self.parts) == 1:
                print(self._head, file=sys.stderr)
            print(self._names[-1], file=sys.stderr)

    def near_labels(self) -> "PEPClassifier | None":
        """Let the first component use near rows, if its residuals are alike among
        them.
        """
        main: Any = self.parts[0]
        X, Y = map(np.asarray, main.model_.data)
        rows = np.arange(len(self._labels))
        products = near_residuals(main.kernel_, X, self._of_label[0], Y[:, 0], rows)
        if not gains(products, np.zeros_like(products), LEAST_GAIN):
            return None
        near = copy.copy(main)
        near.set_params(near_rows="auto", max_iterations=self._estimator.max_iterations)
        seed = self._estimator._seed()
        near._set_model(near._with_near_labels(main.model_, (X, Y), seed))
        return near if near.near_rows_ else None

    def add_another_likelihood(self, same: dict[str, Any]) -> None:
        """Add a component of classes in order if they may have one, or else one in
        which labels may be wrong.
        """
        best, before = int(np.argmax(np.mean(self._of_label, axis=1))), len(self.parts)
        main = self.parts[best]
        same = same | {"inputs": main.inputs}
        if self._may_be_ordinal(best):
            settings = same | self.steps(1) | {"likelihood": "ordinal"}
            self.add("Classes in order", main, settings)
            if len(self.parts) > before:
                self._drop_if_worse(best)
        if len(self.parts) == before:
            settings = same | self.steps(3) | {"likelihood": "noisy_multiclass"}
            self.add("Three labels in a hundred taken as wrong", main, settings)

    def _may_be_ordinal(self, best: int) -> bool:
        classes = self._estimator.classes_
        order = order_of_labels(classes)
        if order is None:
            return False
        if numbers_of(classes) is None:
            return True
        return bool(is_ordinal(self._left_out[best], self._labels, order))

    def _drop_if_worse(self, best: int) -> None:
        """Drop the newest component if it is worse than another."""
        if np.mean(self._of_label[-1]) < np.mean(self._of_label[best]):
            self._dropped.append(f"{self._names.pop()}; not kept.")
            del self.parts[-1], self._left_out[-1], self._of_label[-1]

    def mix(self) -> Stack:
        """Mix the components by the rows left out, which recalibrate the mixture."""
        densities = np.stack(self._of_label)
        weights = ensemble_weights(densities, prior_weight=PRIOR_WEIGHT)
        mixed = np.tensordot(weights, self._left_out, 1)
        recalibration = _recalibrated(mixed, self._labels)
        named = zip(self._names, weights, strict=True)
        power = (
            f"Probabilities are mixed, put to the power {recalibration.scale**-2:.2f}"
            " (above 1: surer) that suits the rows left out, and divided by their sum."
        )
        lines = (
            self._head,
            *(f"{name}; weight {w:.2f}." for name, w in named),
            *self._dropped,
            power,
        )
        return Stack(tuple(self.parts), weights, weights, recalibration, lines)


def _left_out(part: "PEPClassifier", copies: AnyNDArray | None = None) -> AnyNDArray:
    """Compute the probabilities of one model's classes in each row, given all others,
    [N, C].

    :param copies: How many rows are copies of each, [N]: their sites are alike, and all
        of them are removed.
    """
    model: Any = part.model_
    rows, X = model.converged_rows(), model.data[0]
    power = tf.ones([1, 1], rows.m.dtype)
    if copies is not None:
        power = tf.convert_to_tensor(copies[:, None], rows.m.dtype)
    without = cavity(Marginals(rows.m, rows.s), Sites(rows.nu, rows.tau), power)
    moments = without.m + model.mean_function(X), without.s + rows.d
    p = np.asarray(
        class_probabilities(model.likelihood, X, *moments, len(part.classes_))
    )
    # Where a site is too precise to be removed nothing is known of the row.
    p = np.nan_to_num(p, nan=0.0) + np.finfo(p.dtype).eps
    return np.asarray(p / np.sum(p, axis=1, keepdims=True))


def _recalibrated(p: AnyNDArray, labels: AnyNDArray) -> Recalibration:
    """Choose s by probabilities of rows that were left out, [N, C], and the prior of
    log s.
    """

    def loss(log_scale: float) -> float:
        powers = Recalibration(None, float(np.exp(log_scale))).probabilities(p)
        gain = np.sum(np.log(powers[np.arange(len(p)), labels]))
        return float(0.5 * (log_scale / SPREAD) ** 2 - gain)

    best = minimize_scalar(
        loss, bounds=(-1.0, 1.0), method="bounded", options={"xatol": 1e-8}
    )
    return Recalibration(None, float(np.exp(best.x)))


def is_ordinal(probability: AnyNDArray, labels: AnyNDArray, order: AnyNDArray) -> bool:
    r"""Whether one function and thresholds that all rows share may predict labels as
    well,

    .. math:: \operatorname{logit} P_n(y > c) \approx f_n + b_c,

    which row and column means of the left side give: whether the log loss is higher by
    two standard errors at most. By probabilities [N, C] of other classifiers that is so
    of 20 of 20 generated tables of grades, and of 1 of 17 others.
    """
    eps, rows = np.finfo(float).eps, np.arange(len(labels))
    odds = logit(np.cumsum(probability[:, order], axis=1)[:, :-1].clip(eps, 1.0 - eps))
    odds = odds.mean(axis=1, keepdims=True) + odds.mean(axis=0) - odds.mean()
    ordinal = np.diff(expit(odds), axis=1, prepend=0.0, append=1.0)[
        rows, np.argsort(order)[labels]
    ]
    gain = np.log(ordinal.clip(eps) / probability[rows, labels])
    return bool(np.mean(gain) >= -2.0 * sem(gain))
