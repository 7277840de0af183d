"""Train a model at several powers alpha, and score each on the same held-out rows."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import AnyNDArray
from gpflow.inducing_variables import InducingPoints
from sklearn.preprocessing import StandardScaler

from .. import selection
from ..estimators.base import TOLERANCE, WINDOW
from ..estimators.parts import make_kernel
from ..models import ConvergenceWarning
from ..training import Step, maximise
from ..training.model_state import reason
from .datasets import Dataset, Split, split_rows
from .fitted import FittedClassifier, FittedModel, FittedRegression, Metric, start


class FitResult(NamedTuple):
    """
    One row of the comparison. The scores and the time of a fit that failed are NaN.

    :param alpha: The power.
    :param log_z: log Z_PEP of the training targets, a density in their original units.
    :param scores: Of the held-out rows, by the names of :attr:`Comparison.metrics`.
    :param seconds: Time of training, without the time to compile it.
    :param iterations: Steps of L-BFGS-B.
    :param converged: Whether the optimiser, and the sites where there are any, met their tolerance.
    :param message: How the optimiser ended, or why the fit failed or did not converge.
    """

    alpha: float
    log_z: float
    scores: dict[str, float]
    seconds: float
    iterations: int
    converged: bool
    message: str

    @property
    def failed(self) -> bool:
        """Whether there is no usable model for this alpha."""
        return not np.all(np.isfinite(list(self.scores.values())))


class Progress(NamedTuple):
    """What a callback is told after each step and, with the `result`, at the end of each fit."""

    alpha: float
    iteration: int
    result: FitResult | None


@dataclass(frozen=True)
class Comparison:
    """
    What :func:`compare` found.

    :param dataset: The data.
    :param split: Which rows were trained on and which were held out.
    :param results: One per alpha, in the order asked for.
    :param models: The trained model of each alpha, without those whose fit failed.
    """

    dataset: Dataset
    split: Split
    results: tuple[FitResult, ...]
    models: dict[float, FittedModel]

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """The scores of each result."""
        return (FittedClassifier if self.dataset.classes else FittedRegression).metrics

    @property
    def decisive(self) -> Metric:
        """The score by which the best result is chosen: SMLL of a number, NLPD of a class."""
        return self.metrics[1]

    @property
    def best(self) -> FitResult | None:
        """
        The result with the lowest decisive score of the held-out rows; None if every fit failed.

        It was chosen on these rows, so its scores there are slightly optimistic.
        """
        usable = [result for result in self.results if not result.failed]
        return min(usable, key=lambda result: result.scores[self.decisive.name], default=None)

    def held_out_predictions(self, alpha: float) -> pd.DataFrame:
        """
        Predict the held-out rows, as a table with a row for each.

        The columns are its number ("row", from 0 as in the data), the target ("true"), and for a
        number the "mean", "sd" and the central 90% interval ("lower_90", "upper_90") of y, for a
        class the most probable one ("predicted") and the probability of each ("p(name)").

        :param alpha: One of the alphas that were fitted.
        :raises ValueError: If there is no fitted model for `alpha`.
        """
        if alpha not in self.models:
            raise ValueError(
                f"there is no fitted model for alpha {alpha}, expected one of"
                f" {', '.join(map(str, self.models)) or 'none (every fit failed)'}: choose another."
            )
        rows = self.split.test
        columns = self.models[alpha].columns(self.dataset.X[rows], self.dataset.Y[rows])
        return pd.DataFrame({"row": rows, **columns})


def _by_variance(X: AnyNDArray, num_inducing: int, *, seed: int) -> InducingPoints:
    kernel = make_kernel("rbf", X.shape[1])
    return selection.greedy_variance(X, num_inducing, kernel=kernel, seed=seed)


#: Rules to choose initial inducing points, see :mod:`gpflow_pep.selection`.
INITS: dict[str, Callable[..., InducingPoints]] = {
    "kmeans": selection.kmeans,
    "random": selection.random_subset,
    "variance": _by_variance,
}


@check_shapes("X: [N, D]", "return: [M, D]")
def initial_inducing_points(
    X: AnyNDArray, num_inducing: int, seed: int, init: str = "kmeans"
) -> AnyNDArray:
    """
    Choose inducing points to start from.

    They are the centres of k-means clusters ("kmeans"), rows at random ("random"), or the rows of
    largest residual variance under the initial kernel, one after another ("variance").

    :param X: Standardised training inputs.
    :param num_inducing: M.
    :param seed: The same seed gives the same points.
    :param init: Which of :data:`INITS`.
    :raises ValueError: If there are fewer distinct rows than inducing points, or no such rule.
    """
    if init not in INITS:
        raise ValueError(f"init is {init!r}, expected one of {', '.join(INITS)}: choose one.")
    num_rows, num_distinct = len(X), len(np.unique(X, axis=0))
    if not 1 <= num_inducing <= num_distinct:
        raise ValueError(
            f"got {num_inducing} inducing points for {num_rows} training rows with {num_distinct}"
            f" distinct inputs, expected 1 to {num_distinct}: choose another number."
        )
    Z: AnyNDArray = INITS[init](X, num_inducing, seed=seed).Z.numpy()
    return Z


def _check_alphas(alphas: Sequence[float]) -> None:
    if len(alphas) == 0 or not all(0.0 <= alpha <= 1.0 for alpha in alphas):
        raise ValueError(
            f"got alphas {list(alphas)}, expected one or more numbers in [0, 1]: for example 0"
            " (variational), 0.5 and 1 (FITC)."
        )
    if len(set(alphas)) < len(alphas):
        raise ValueError(
            f"got alphas {list(alphas)}, expected different ones: name each only once."
        )


def _check_targets_differ(dataset: Dataset, split: Split) -> None:
    for part, rows in zip(("training", "held-out"), split, strict=True):
        if np.ptp(dataset.Y[rows]) == 0.0:
            raise ValueError(
                f"the {len(rows)} {part} targets are all {dataset.Y[rows[0], 0]}, expected some"
                " that differ: choose another seed or test fraction."
            )


def _fit(
    dataset: Dataset,
    split: Split,
    fitted: FittedModel,
    alpha: float,
    max_iterations: int,
    callback: Callable[[Progress], None],
) -> FitResult:
    """Train a model in place and score it. Numerical trouble becomes a result that says so."""
    iterations = 0

    def tell(step: Step) -> None:
        nonlocal iterations
        iterations = step.iteration
        callback(Progress(alpha, iterations, None))

    X, Y = dataset.X[split.test], dataset.Y[split.test]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # the result says it
            record = maximise(
                fitted.model,
                tolerance=TOLERANCE,
                window=WINDOW,
                max_iterations=max_iterations,
                callback=tell,
                progress=False,
            )
            log_z, scores = fitted.log_z(), fitted.scores(X, Y, dataset.Y[split.train])
    except (tf.errors.OpError, ValueError, ArithmeticError) as error:
        nothing = {metric.name: np.nan for metric in fitted.metrics}
        return FitResult(alpha, np.nan, nothing, np.nan, iterations, False, reason(error))
    trouble = fitted.trouble()
    converged, message = record.converged and not trouble, trouble or record.message
    return FitResult(alpha, log_z, scores, record.seconds, iterations, converged, message)


def compare(
    dataset: Dataset,
    *,
    alphas: Sequence[float] = (0.0, 0.5, 1.0),
    num_inducing: int = 50,
    seed: int = 0,
    test_fraction: float = 0.2,
    max_iterations: int = 500,
    init: str = "kmeans",
    neighbours: int = 0,
    callback: Callable[[Progress], None] | None = None,
) -> Comparison:
    """
    Train a sparse Gaussian process at each alpha and score it on held-out rows.

    The rows are split once, classes in equal proportions; inputs, and a target that is a number,
    are standardised with the mean and the standard deviation of the training rows; every alpha
    starts from the same parameters and inducing points
    (:func:`~gpflow_pep.compare.fitted.start`), and all parameters are trained by
    :func:`~gpflow_pep.training.full_batch.maximise`. A fit that fails for numerical reasons is
    reported in its result, and the others still run.

    :param dataset: The data, in original units.
    :param alphas: Different numbers in [0, 1].
    :param num_inducing: The number of inducing points, at most that of distinct training inputs.
    :param seed: Of the split and of the initial inducing points.
    :param test_fraction: The fraction of the rows to hold out, in (0, 1).
    :param max_iterations: Of L-BFGS-B, per alpha; at least 1.
    :param init: The inducing points to start from, see :func:`initial_inducing_points`.
    :param neighbours: How many near rows the conditional of each row knows, where the target is a
        number: see :doc:`/neighbours`. 0: none.
    :param callback: Called after each step, for progress.
    :raises ValueError: If an argument is outside its range, or all held-out or all training targets
        are equal.
    """
    _check_alphas(alphas)
    if max_iterations < 1:
        raise ValueError(f"max_iterations is {max_iterations}, expected at least 1: raise it.")
    if neighbours and dataset.classes:
        raise ValueError(
            f"neighbours is {neighbours} for a target of classes, expected 0: rows know near rows"
            " in regression only, because it needs Gaussian noise. Leave it out."
        )
    split = split_rows(dataset, test_fraction, seed)
    _check_targets_differ(dataset, split)
    X_train, Y_train = dataset.X[split.train], dataset.Y[split.train]
    inputs = StandardScaler().fit(X_train)
    X = tf.constant(inputs.transform(X_train))  # a tensor, so that the models share one copy
    Z = initial_inducing_points(X.numpy(), num_inducing, seed, init)

    results, models = [], {}
    report = callback or (lambda progress: None)
    for alpha in alphas:
        fitted = start(dataset, inputs, X, Y_train, Z, alpha, neighbours)
        result = _fit(dataset, split, fitted, alpha, max_iterations, report)
        results.append(result)
        if not result.failed:
            models[alpha] = fitted
        report(Progress(alpha, result.iterations, result))
    return Comparison(dataset, split, tuple(results), models)
