"""What :class:`~gpflow_pep.estimators.PEPRegressor` does where nothing is named:
several models of known settings, each of which leaves rows out honestly, and a rule
that mixes them.

Up to :data:`EXACT_ROWS` rows the components are exact Gaussian processes
(``inducing="rows"``): one with an additive kernel on Yeo-Johnson inputs, whose noise
varies with the inputs and whose targets are warped, and two plain ones on standardised
inputs, with a squared exponential and a Matérn 5/2 kernel. On 30 tables, generated and
scikit-learn's, of 60 to 450 rows the first two are .023 ± .008 nats a row and 3 ± 1.4%
of RMSE better than the first with its plain form; on 38 others the third gains .018 ±
.015 nats and .3 ± .1% of RMSE, others less. Leave-one-out densities are honest where
inducing inputs are not trained: those of trained ones are .2 nats a row too good.

The last is trained from two starts; where the fine one ends better the others start
from there (:func:`~gpflow_pep.training.fitting.exact.start_after`). With more rows
:data:`EXACT_ROWS` random ones choose between both starts, and then the first and the
last are trained on :data:`SCOUT_ROWS`. Up
to :data:`EXACT_BY_SCOUT` rows the one that predicts others better goes on with all for
:data:`FEW_STEPS` steps. Beyond, there is the model whose inducing inputs are trained,
with as many points and near rows as pay, and the transforms if an exact Matérn 5/2
gains by them alone. (On 13 generated tables of 3000 rows that is .003 nats from the
better choice at most.) A fifth of the rows, at most 1000, is left out of its training,
judges all that, and is given to it afterwards. (400 fixed points are .001 to .50 nats
worse on three tables.)

One model of several columns of y is :data:`COLUMNS`, with white noise that the columns
of a row share; with more than :data:`EXACT_BY_SCOUT` rows it is trained for
:data:`COLUMN_STEPS` steps. :mod:`gpflow_pep.estimators.columns` chooses between it and
models of each column.

The rows that are left out give the weights of the densities
(:func:`~gpflow_pep.training.ensemble_weights`) and of the means
(:func:`~gpflow_pep.training.choosing.combining.weights_of_means`), and the mixture's
:class:`~gpflow_pep.distributions.Recalibration`.
"""

import copy
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from gpflow.base import AnyNDArray
from sklearn.exceptions import ConvergenceWarning

from ..distributions import Predictive, Recalibration
from ..distributions.recalibration import STANDARD_ERRORS
from ..engine.refusals import counted
from ..training import ensemble_weights
from ..training.choosing.combining import weights_of_means
from ..training.fitting.exact import STEPS_OF_STARTS, Hyperparameters, start_after
from ..training.fitting.points import copies_of, numbers_of_copies

if TYPE_CHECKING:
    from .regressor import PEPRegressor

#: The most rows of exact components: an evaluation takes 70 ms there, and grows with
#: the cube.
EXACT_ROWS = 1000
#: The rows that a scout has; the most rows of the exact model after it, its steps, and
#: for how many evaluations there must be time: by that of a scout, and the cube of the
#: rows.
SCOUT_ROWS, EXACT_BY_SCOUT, FEW_STEPS, EVALUATIONS = 600, 2500, 8, 12
#: The most between warped targets of unit scale: 5 to 16 on six tables, 280 with Cauchy
#: noise; a scout of zeros warps others up to 1e40, one of 300 log-normal targets 5000
#: up to 4e7.
WIDEST = 1e3
#: With fewer seconds there is no scout, which takes 1.5. With 6 it gains .31 and .19
#: nats on two tables of 5000 rows with skewed inputs and targets, and loses .03 on
#: kin8nm (with 10 .00).
LEAST_SECONDS = 5.0
#: c of the weights' prior. On the 30 tables above .01 and .1 are .000 and .002 nats
#: worse.
PRIOR_WEIGHT = 0.03
#: Few rows do not show which component is better: c is this many rows over theirs at
#: least. (With .03 three rows give .98 to one.) On 46 data sets of 23 known processes
#: the mean log density is .04, .04 and .02 better by it at 5, 10 and 20 rows.
PRIOR_ROWS = 3.0
#: The part of the seconds that a scout may take. Without a limit it takes .5 to 1.2 s.
SCOUT_SHARE = 0.2
#: How rows are judged, for descriptions.
LEFT_OUT = (
    "Each row is predicted from the others. Mean log {} in nats, higher is better:"
)
FULL = {
    **{"kernel": "additive", "inducing": "rows", "alpha": 0.5, "inputs": "yeo-johnson"},
    **{"noise": "varying", "warp": True, "verbose": False},
}
#: The most inputs of its additive kernel; with more there is only the Matern 5/2.
ADDITIVE_INPUTS = 20
#: The steps of the full component and of the plain ones. On the 33 tables of
#: :mod:`gpflow_pep.training.fitting.exact` more steps, 80 and any number, are .002 and
#: .001 worse.
FULL_STEPS, PLAIN_STEPS = 50, 15
ROUGH = FULL | {
    "kernel": "matern52",
    "inputs": "standard",
    "noise": "constant",
    "warp": False,
}
SMOOTH = ROUGH | {"kernel": "rbf"}
#: The model of several columns: at alpha 1 what the columns of a row share is exact. On
#: two tables of 400 rows 50 points are .03 and .01 nats worse than 100, and 200 no
#: better. On eleven tables of 100 to 426 rows, eight of them generated, warps gain .10
#: nats a target, and lose .03 at most.
COLUMNS = ROUGH | {
    "inputs": "yeo-johnson",
    "warp": True,
    "alpha": 1.0,
    "num_inducing": 100,
}
#: With 3000 rows 60 steps are .04 nats worse, and 140 converge.
COLUMN_STEPS = 150
#: The model whose inducing inputs are trained.
TRAINED = {"kernel": "rbf", "noise": "constant", "inputs": "standard", "warp": False}
COMPONENTS = {
    "transforms, varying noise": FULL,
    "squared exponential": SMOOTH,
    "Matern": ROUGH,
}


class Stack(NamedTuple):
    """Components, and how their distributions are mixed."""

    components: tuple[Any, ...]  #: Fitted estimators, all of whose settings are named.
    weights: AnyNDArray  #: Of the densities, [K], of sum 1.
    mean_weights: AnyNDArray  #: Of the means, [K], of sum 1.
    recalibration: Recalibration | None  #: None: rows were not left out honestly.
    lines: tuple[str, ...]  #: What was tried and kept, and why.
    #: Of several columns of y, the number of the component that predicts each, [P], and
    #: of the one that does so if other targets of the row are known; None: all
    #: components predict all columns. A weight is then the share of columns.
    places: Sequence[int] | None = None
    known_places: Sequence[int] | None = None

    @property
    def heaviest(self) -> Any:
        """The component of the largest weight."""
        return self.components[int(np.argmax(self.weights))]

    def by_column(self, compute: Callable[[Any], AnyNDArray]) -> AnyNDArray:
        """Compute values of rows, [N, ...] or [N, P, ...], by the components that
        predict a column, and take those of each column, [N, P, ...].
        """
        places = self.places or ()
        values = {place: compute(self.components[place]) for place in set(places)}
        columns = [
            values[place][:, p]
            if self.components[place].n_outputs_ > 1
            else values[place]
            for p, place in enumerate(places)
        ]
        return np.stack(columns, axis=1)

    def mixed(self, parts: Sequence[Predictive]) -> Predictive:
        """Mix the components' distributions of the same rows."""
        return Predictive.mixed(
            parts, self.weights, self.mean_weights, self.recalibration
        )


def fit_stack(
    estimator: "PEPRegressor",
    X: AnyNDArray,
    Y: AnyNDArray,
    column_steps: int | None = None,
    warps: AnyNDArray | None = None,
) -> Stack:
    """Train the components on rows X [N, D], with targets Y [N, 1], and mix them; or
    one model of targets [N, P].

    :param estimator: Whose other settings are those of the components.
    :param column_steps: The most steps of a model of several columns; None: those of
        the estimator, or :data:`COLUMN_STEPS` with many rows.
    :param warps: Skew and tails of each of several columns, [P, 2], if known.
    """
    recipe = _Recipe(estimator, X, Y)
    if Y.shape[1] > 1:
        return recipe.model_columns(column_steps, warps)
    if len(X) <= EXACT_ROWS:
        components, names = recipe.train_exact()
    elif recipe.seconds < LEAST_SECONDS:
        note = f"{recipe.size}, {recipe.seconds:g} s: one model, without a trial on"
        recipe.note(f"{note} some of the rows.")
        components, names = [recipe.train(TRAINED)], list(COMPONENTS)
    else:
        components, names = recipe.train_after_trial()
    return recipe.mix(components, names)


class _Recipe:
    """Which components are trained on rows X [N, D] with targets Y [N, P], how they are
    judged and mixed, and what is written about it.
    """

    def __init__(self, estimator: "PEPRegressor", X: AnyNDArray, Y: AnyNDArray) -> None:
        self._began = time.perf_counter()
        self._estimator, self._X, self._Y = estimator, X, Y
        limit = estimator.max_seconds
        self.seconds = np.inf if limit is None else limit
        self.size = f"{counted(len(X), 'row')}, {counted(X.shape[1], 'input')}"
        self._lines: list[str] = []
        self._copies = numbers_of_copies(X, Y)

    def note(self, line: str) -> None:
        self._lines.append(line)
        if self._estimator.verbose:
            print(line, file=sys.stderr)

    def _passed(self) -> float:
        return time.perf_counter() - self._began

    def train(
        self,
        settings: dict[str, Any],
        share: float = 1.0,
        rows: Any = slice(None),
        start: Hyperparameters | None = None,
    ) -> Any:
        """Train a component in a share of the time that is left.

        :param share: Of a trial, below 1.
        """
        seconds = share * (self.seconds - self._passed())
        X, Y = self._X[rows], self._Y[rows]
        with warnings.catch_warnings():
            if share < 1.0:
                warnings.simplefilter("ignore", ConvergenceWarning)
            return component(self._estimator, X, Y, settings, seconds, start)

    def _limited(self, settings: dict[str, Any], steps: int) -> dict[str, Any]:
        return settings | {"max_iterations": min(self._estimator.max_iterations, steps)}

    def _bent(self) -> dict[str, Any]:
        """Choose the settings of the component with transforms."""
        settings = self._limited(FULL, FULL_STEPS)
        if self._X.shape[1] > ADDITIVE_INPUTS:
            settings["kernel"] = "matern52"
        return settings

    def model_columns(self, steps: int | None, warps: AnyNDArray | None) -> Stack:
        """Train one model of several columns."""
        X, Y = self._X, self._Y
        if steps is None and len(X) > EXACT_BY_SCOUT:
            steps = COLUMN_STEPS
        settings = self._limited(COLUMNS, steps or self._estimator.max_iterations)
        part = component(self._estimator, X, Y, settings, self.seconds, warps=warps)
        z = part._left_out(self._copies)[1].normal_scores(Y)
        note = f"{self.size}, {Y.shape[1]} columns of y: one model, whose inducing"
        self.note(f"{note} inputs stay fixed.")
        self.note(part.summary())
        there = ~np.isnan(z)
        num_rows = int(np.sum(there.any(axis=1)))
        recalibration = Recalibration.fit(z[there], D=X.shape[1], num_rows=num_rows)
        return _alone(part, self._lines, recalibration)

    def train_exact(self) -> tuple[list[Any], Sequence[str]]:
        """Train several exact models of all rows, as many as the time allows."""
        left_out = LEFT_OUT.format("density")
        self.note(f"{self.size}: exact Gaussian processes. {left_out}")
        matern = self.train(self._limited(ROUGH, PLAIN_STEPS))
        start = start_after(matern._hyperparameters(), matern.record_)
        components = []
        for settings in (self._bent(), self._limited(SMOOTH, PLAIN_STEPS)):
            if self._passed() < self.seconds:
                components.append(self.train(settings, start=start))
        components.append(matern)
        names = list(COMPONENTS)
        return components, [*names[: len(components) - 1], names[-1]]

    def train_after_trial(self) -> tuple[list[Any], Sequence[str]]:
        """Let exact models of some rows choose transforms, and train one model of all:
        an exact one if there is time for it.
        """
        order = np.random.default_rng(0).permutation(len(self._X))
        few = self._limited(ROUGH, STEPS_OF_STARTS)
        matern = self.train(few, SCOUT_SHARE, order[:EXACT_ROWS])
        start = start_after(matern._hyperparameters(), matern.record_)
        rough = self._limited(ROUGH, PLAIN_STEPS)
        plain = self.train(rough, SCOUT_SHARE, order[:SCOUT_ROWS], start)
        bent, is_exact = self._bent(), self._has_time_for_exact(plain)
        if not is_exact:
            bent |= {"kernel": "matern52", "noise": "constant"}
        full, is_bent = self._judge(plain, bent, order, start, is_exact)
        if is_exact:
            settings, scout = (bent, full) if is_bent else (rough, plain)
            settings = settings | {"max_iterations": FEW_STEPS}
            part = self.train(settings, start=scout._hyperparameters())
            which = "with" if is_bent else "without"
            return [part], [f"exact Gaussian process {which} transforms"]
        transforms: dict[str, Any] = {}
        if is_bent:
            transforms = {"inputs": "yeo-johnson", "warp": True}
        theta = full._hyperparameters()
        start = (start or theta)._replace(skew=theta.skew, tails=theta.tails)
        return [self.train(TRAINED | transforms, start=start)], list(COMPONENTS)

    def _has_time_for_exact(self, scout: Any) -> bool:
        """Whether an exact model of all rows is small enough, and in time by the speed
        of one of some rows.
        """
        if len(self._X) > EXACT_BY_SCOUT:
            return False
        left = self.seconds - self._passed()
        left *= (SCOUT_ROWS / len(self._X)) ** 3
        evaluation = scout.record_.seconds / scout.record_.evaluations
        return bool(EVALUATIONS * evaluation <= left)

    def _judge(
        self,
        plain: Any,
        bent: dict[str, Any],
        order: AnyNDArray,
        start: Hyperparameters | None,
        is_exact: bool,
    ) -> tuple[Any, bool]:
        """Train a model with transforms on some rows, and compare it with a plain one
        on others, none of which is a copy of them.
        """
        some, others = order[:SCOUT_ROWS], order[SCOUT_ROWS : 3 * SCOUT_ROWS]
        groups = copies_of(self._X, self._Y)
        others = others[~np.isin(groups[others], groups[some])]
        full = self.train(bent, SCOUT_SHARE, some, start)
        X, y = self._X[others], self._Y[:, 0]
        of_full, of_plain = (
            part._part_of_y(X).log_densities(y[others]) for part in (full, plain)
        )
        gain = float(np.mean(of_full - of_plain))
        is_bent = gain > 0.0 and bool(np.ptp(full._target.transform(y)) < WIDEST)
        by = f"{abs(gain):.3f}" if abs(gain) < 10.0 else "more than 10"
        varies = ", and noise that varies," if is_exact else ""
        self.note(
            f"{self.size}: in a trial with {SCOUT_ROWS}, transformed inputs and"
            f" targets{varies} are {'better' if gain > 0.0 else 'worse'} on"
            f" {len(others)} others by {by} in the mean log density (higher is better)."
        )
        return full, is_bent

    def mix(self, components: list[Any], names: Sequence[str]) -> Stack:
        """Mix components by rows that are left out, which recalibrate the mixture."""
        if components[0]._judged is not None:
            names = [components[0].summary()[:-1]]
        judged = [part._left_out(self._copies) for part in components]
        if not all(judged):
            self.note(components[0].summary())
            return _alone(components[0], self._lines)
        y = self._Y[judged[0][0], 0]
        left_out = [predictive for _, predictive in judged]
        densities = np.stack([part.log_densities(y) for part in left_out])
        prior_weight = max(PRIOR_WEIGHT, PRIOR_ROWS / len(y))
        w = ensemble_weights(densities, prior_weight=prior_weight)
        u = weights_of_means(np.stack([part.moments()[0] for part in left_out]), y, w)
        for name, *numbers in zip(
            names, np.mean(densities, axis=1), w, u, strict=False
        ):
            text = "{}: {:.3f}; weight {:.2f} in the density, {:.2f} in the mean."
            if len(w) == 1:
                text = "{}; mean log density of rows left out: {:.3f}."
            self.note(text.format(name, *numbers))
        # Of rows that no training has seen a scale needs no margin.
        margin: Any = (0.0, 0)
        if len(y) == len(self._X):
            margin = STANDARD_ERRORS, self._X.shape[1]
        z = Predictive.mixed(left_out, w).normal_scores(y)
        recalibration = Recalibration.fit(z, *margin)
        mixed = Predictive.mixed(left_out, w, u, recalibration)
        error = np.sqrt(np.mean((mixed.moments()[0] - y) ** 2))
        density = np.mean(mixed.log_densities(y))
        scores = f"Mixed: {density:.3f}, RMSE {error:.3g}; {self._passed():.1f} s."
        self.note(f"{scores} {_worded(recalibration)}")
        return Stack(tuple(components), w, u, recalibration, tuple(self._lines))


def _worded(recalibration: Recalibration) -> str:
    nu, scale = recalibration
    shape = "a Gaussian" if nu is None else f"Student's t of {nu:g} degrees of freedom"
    return (
        f"Recalibrated by these rows: {scale:.2f} times as wide, with the tails of"
        f" {shape}."
    )


def _alone(
    part: Any, lines: Iterable[str], recalibration: Recalibration | None = None
) -> Stack:
    """Make a stack of one component; not recalibrated where no row was left out
    honestly.
    """
    return Stack((part,), np.ones(1), np.ones(1), recalibration, tuple(lines))


def component(
    estimator: Any,
    X: AnyNDArray,
    Y: AnyNDArray,
    settings: dict[str, Any],
    seconds: float,
    start: Hyperparameters | None = None,
    most_steps: int | None = None,
    warps: AnyNDArray | None = None,
) -> Any:
    """Train a copy of an estimator with other settings, for so many seconds at most.

    :param start: Where an exact model starts, or the warp of another one.
    :param most_steps: That a user allows, if not the estimator's. With fewer a part is
        complete.
    :param warps: Skew and tails of each of several columns, [P, 2], if known.
    """
    steps = settings.get("max_iterations", np.inf)
    few = steps < (most_steps or estimator.max_iterations)
    part = copy.copy(estimator)
    part.__dict__.pop("feature_names_in_", None)  # it gets arrays
    part.set_params(**settings, max_seconds=seconds if np.isfinite(seconds) else None)
    with warnings.catch_warnings():
        if few:
            warnings.filterwarnings("ignore", ".*REACHED LIMIT", ConvergenceWarning)
        if warps is None:
            part._fit_one(X, Y, start)
        else:
            part._fit_one(X, Y, start, warps)
    if few and part.n_iter_ == steps:
        done = f"These are all {steps} steps of this model."
        part.record_ = part.record_._replace(converged=True, message=done)
    return part
