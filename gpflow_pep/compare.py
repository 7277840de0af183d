"""
The main job: train PEPRegression at several powers alpha from the same start, and score each on the
same held-out rows.
"""

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import AnyNDArray
from sklearn.cluster import KMeans

from . import metrics
from .datasets import Dataset, Split, Standardiser, train_test_split
from .fitted import FittedRegression, build_model
from .models import PEPRegression

# L-BFGS-B stops when a step lowers the loss by less than this fraction of it. SciPy's 2e-9 spends
# hundreds of further steps on inducing points, for changes in log Z and the scores far below what
# distinguishes one alpha from another.
TOLERANCE = 1e-6


class FitResult(NamedTuple):
    """
    One row of the comparison. The scores and the time of a fit that failed are NaN.

    :param alpha: the power.
    :param log_z: log Z_PEP of the training targets, a density in their original units.
    :param smse: standardised mean squared error of the held-out rows.
    :param smll: standardised mean log loss of the held-out rows.
    :param coverage: fraction of the held-out rows inside their central 90% interval.
    :param seconds: time of training, without the time to compile it.
    :param iterations: steps of L-BFGS-B.
    :param converged: whether the optimiser met its tolerance.
    :param message: how the optimiser ended, or why the fit failed.
    """

    alpha: float
    log_z: float
    smse: float
    smll: float
    coverage: float
    seconds: float
    iterations: int
    converged: bool
    message: str

    @property
    def failed(self) -> bool:
        """Whether there is no usable model for this alpha."""
        return not np.isfinite(self.smll)


class Progress(NamedTuple):
    """
    What the callback of :func:`compare` is told after each step of the optimiser, and, with its
    `result`, at the end of each fit.
    """

    alpha: float
    iteration: int
    result: FitResult | None


class HeldOutPredictions(NamedTuple):
    """Predictions of y at the held-out rows, in original units: [N_test] each."""

    row: AnyNDArray
    true: AnyNDArray
    mean: AnyNDArray
    sd: AnyNDArray
    lower: AnyNDArray
    upper: AnyNDArray


@dataclass(frozen=True)
class Comparison:
    """
    :param dataset: the data.
    :param split: which rows were trained on and which were held out.
    :param results: one per alpha, in the order asked for.
    :param models: the trained model of each alpha, without those whose fit failed.
    """

    dataset: Dataset
    split: Split
    results: tuple[FitResult, ...]
    models: dict[float, FittedRegression]

    @property
    def best(self) -> FitResult | None:
        """
        The result with the lowest SMLL on the held-out rows; None if every fit failed. It was
        chosen on these rows, so its scores there are slightly optimistic.
        """
        usable = [result for result in self.results if not result.failed]
        return min(usable, key=lambda result: result.smll, default=None)

    def held_out_predictions(self, alpha: float) -> HeldOutPredictions:
        """
        Mean, standard deviation and central 90% interval of y for each held-out row.

        :param alpha: one of the alphas that were fitted.
        :raises ValueError: if there is no fitted model for `alpha`.
        """
        if alpha not in self.models:
            raise ValueError(
                f"there is no fitted model for alpha {alpha}, expected one of"
                f" {', '.join(map(str, self.models)) or 'none (every fit failed)'}: choose another."
            )
        rows = self.split.test
        prediction = self.models[alpha].predict(self.dataset.X[rows])
        lower, upper = metrics.central_interval(prediction.mean, prediction.variance)
        columns = (self.dataset.Y[rows], prediction.mean, np.sqrt(prediction.variance))
        return HeldOutPredictions(rows, *(column[:, 0] for column in (*columns, lower, upper)))


@check_shapes("X: [N, D]", "return: [M, D]")
def initial_inducing_points(X: AnyNDArray, num_inducing: int, seed: int) -> AnyNDArray:
    """
    The centres of k-means clusters of the training inputs.

    :param X: standardised training inputs.
    :param num_inducing: M.
    :param seed: the same seed gives the same points.
    :raises ValueError: if there are fewer distinct rows than inducing points.
    """
    num_rows, num_distinct = len(X), len(np.unique(X, axis=0))
    if not 1 <= num_inducing <= num_distinct:
        raise ValueError(
            f"got {num_inducing} inducing points for {num_rows} training rows with {num_distinct}"
            f" distinct inputs, expected 1 to {num_distinct}: choose another number."
        )
    return KMeans(num_inducing, n_init=1, random_state=seed).fit(X).cluster_centers_


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


def _check_targets_differ(Y: AnyNDArray, part: str) -> None:
    if np.ptp(Y) == 0.0:
        raise ValueError(
            f"the {len(Y)} {part} targets are all {Y[0, 0]}, expected some that differ: choose"
            " another seed or test fraction."
        )


class _Training(NamedTuple):
    seconds: float
    converged: bool
    message: str


def _train(model: PEPRegression, max_iterations: int, step: Callable[[int], None]) -> _Training:
    """L-BFGS-B over all trainable parameters, timed without the compilation of the loss."""
    optimiser = gpflow.optimizers.Scipy()
    loss, variables = model.training_loss, model.trainable_variables
    # The first evaluation compiles; minimize then finds the compiled function in the cache.
    evaluate = optimiser.eval_func(loss, variables, tf_fun_args={})
    evaluate(optimiser.initial_parameters(variables))
    start = time.perf_counter()
    outcome = optimiser.minimize(
        loss,
        variables,
        step_callback=lambda iteration, *_: step(iteration + 1),
        options={"maxiter": max_iterations, "ftol": TOLERANCE},
    )
    seconds = time.perf_counter() - start
    if not np.isfinite(outcome.fun):
        raise ArithmeticError(
            f"the loss became {outcome.fun}, expected a finite number: try fewer inducing points,"
            " or look for outliers in the data."
        )
    return _Training(seconds, bool(outcome.success), str(outcome.message))


def _reason(error: Exception) -> str:
    """The message in one line; TensorFlow wraps ours, of a failed check in a graph, in a trace."""
    text = " ".join(str(error).split())
    failed_check = re.search(r"assertion failed: \[(.*?)\] \[", text)
    return failed_check.group(1).replace("\\", "") if failed_check else text


def _score(
    dataset: Dataset, split: Split, fitted: FittedRegression
) -> tuple[float, float, float, float]:
    """log Z in original units, SMSE, SMLL and coverage."""
    X, Y = dataset.X[split.test], dataset.Y[split.test]
    Y_train = dataset.Y[split.train]
    prediction = fitted.predict(X)
    standard_log_z = fitted.model.pep_log_marginal_likelihood().numpy()
    return (
        float(standard_log_z - len(Y_train) * np.sum(np.log(fitted.target.scale))),
        metrics.smse(Y, prediction.mean),
        metrics.smll(Y[:, 0], fitted.predict_log_density(X, Y), Y_train),
        metrics.coverage(Y, prediction.mean, prediction.variance),
    )


def _fit(
    dataset: Dataset,
    split: Split,
    fitted: FittedRegression,
    alpha: float,
    max_iterations: int,
    callback: Callable[[Progress], None],
) -> FitResult:
    """Train `fitted` in place and score it. Numerical trouble becomes a result that says so."""
    iterations = 0

    def step(iteration: int) -> None:
        nonlocal iterations
        iterations = iteration
        callback(Progress(alpha, iteration, None))

    try:
        training = _train(fitted.model, max_iterations, step)
        scores = _score(dataset, split, fitted)
    except (tf.errors.OpError, ValueError, ArithmeticError) as error:
        training = _Training(float("nan"), converged=False, message=_reason(error))
        scores = (float("nan"),) * 4
    return FitResult(
        alpha, *scores, training.seconds, iterations, training.converged, training.message
    )


def compare(
    dataset: Dataset,
    *,
    alphas: Sequence[float] = (0.0, 0.5, 1.0),
    num_inducing: int = 50,
    seed: int = 0,
    test_fraction: float = 0.2,
    max_iterations: int = 500,
    callback: Callable[[Progress], None] | None = None,
) -> Comparison:
    """
    Train a sparse Gaussian process at each alpha and score it on held-out rows.

    The rows are split once; inputs and target are standardised with the mean and the standard
    deviation of the training rows; every alpha starts from the same parameters and k-means centres
    (:func:`gpflow_pep.fitted.build_model`), and all parameters are trained with L-BFGS-B. A fit
    that fails for numerical reasons is reported in its result, and the others still run.

    :param dataset: the data, in original units.
    :param alphas: different numbers in [0, 1].
    :param num_inducing: number of inducing points, at most the number of distinct training inputs.
    :param seed: of the split and of k-means.
    :param test_fraction: fraction of the rows to hold out, in (0, 1).
    :param max_iterations: of L-BFGS-B, per alpha; at least 1.
    :param callback: called after each step, for progress.
    :raises ValueError: if an argument is outside its range, or all held-out or all training targets
        are equal.
    """
    _check_alphas(alphas)
    if max_iterations < 1:
        raise ValueError(f"max_iterations is {max_iterations}, expected at least 1: raise it.")
    split = train_test_split(len(dataset.X), test_fraction, seed)
    X_train, Y_train = dataset.X[split.train], dataset.Y[split.train]
    _check_targets_differ(Y_train, "training")
    _check_targets_differ(dataset.Y[split.test], "held-out")
    inputs, target = Standardiser.fit(X_train), Standardiser.fit(Y_train)
    # Tensors, so that the models share one copy of the data.
    X, Y = tf.constant(inputs.transform(X_train)), tf.constant(target.transform(Y_train))
    Z = initial_inducing_points(X.numpy(), num_inducing, seed)

    results, models = [], {}
    report = callback or (lambda progress: None)
    for alpha in alphas:
        model = build_model(X, Y, Z, alpha)
        fitted = FittedRegression(model, inputs, target, dataset.feature_names, dataset.target_name)
        result = _fit(dataset, split, fitted, alpha, max_iterations, report)
        results.append(result)
        if not result.failed:
            models[alpha] = fitted
        report(Progress(alpha, result.iterations, result))
    return Comparison(dataset, split, tuple(results), models)
