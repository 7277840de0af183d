r"""
Exact regression on some hundreds of rows: Matérn 5/2 or squared exponential, by its evidence.

Targets y may be warped, and the noise may depend on the inputs:

.. math::

    t_n = \sinh(e^b \operatorname{asinh}(y_n) - a), \qquad
    \log s_n = c + w^T \operatorname{clip}(x_n, -3, 3),

.. math::

    \log Z = \log N(t; 0, K + \operatorname{diag} s) + \sum_n \log \frac{dt_n}{dy_n}
    - \frac{D |w|^2}{2 \cdot 0.6^2} - \frac{a^2 + b^2}{2 \cdot 0.5^2}.

Without warp and with one noise variance a = b = 0 and w = 0. One Cholesky factor and one inverse
give the value and all derivatives: with :math:`\beta = (K + \operatorname{diag} s)^{-1} t` and
:math:`W = (\beta \beta^T - (K + \operatorname{diag} s)^{-1}) / 2` each is the sum of W times the
derivative of the covariance, less :math:`\beta^T` times that of t. Nothing is compiled, which for
some hundreds of rows would take longer than training.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import gpflow
import numpy as np
import scipy.optimize
from gpflow.base import AnyNDArray
from gpflow.kernels import Kernel
from scipy.linalg import lapack

from ...likelihoods import LogLinear
from ...models import PEPRegression
from ...scoring.likelihoods import FARTHEST_INPUT, LARGEST_EXPONENT
from .full_batch import OVER, Ascent, one_blas_thread

#: Standard deviations of the priors of all weights of the noise together, so that each of D has
#: that over the root of D, and of a and b. On 18 generated tables of 120 and 300 rows, twice each,
#: 0.3 for each weight costs .004 nats a row (.06 with 20 inputs), and 1.0 for a and b .008.
WEIGHTS_SD, WARP_SD = 0.6, 0.5
#: The smallest noise variance, that of GPflow's Gaussian likelihood.
LEAST_NOISE = 1e-6
#: Where training starts: the noise variance, and lengthscales relative to the root of D.
NOISE, SCALES = 0.1, (1.0, 0.4)
#: Limits of the logarithms of lengthscales, variance and noise, and of w, a and b.
LIMITS = (-5.0, 7.0), (-8.0, 7.0), (-13.0, 3.0), (-3.0, 3.0), (-2.5, 2.5)
#: Training stops at so small a relative gain of a step, or where no derivative is larger.
GAIN, FLAT = 3e-7, 1e-3
_ROOT5 = np.sqrt(5.0)


def _features(X: AnyNDArray) -> AnyNDArray:
    """Give what the noise depends on, see :class:`~gpflow_pep.likelihoods.LogLinear`."""
    return np.clip(X, -FARTHEST_INPUT, FARTHEST_INPUT)


def _matern52(r2: AnyNDArray) -> tuple[AnyNDArray, AnyNDArray]:
    r = _ROOT5 * np.sqrt(r2)
    decay = np.exp(-r)
    slope = (-5.0 / 6.0) * (1.0 + r) * decay
    r += 1.0
    r += (5.0 / 3.0) * r2
    r *= decay
    return r, slope


def _squared_exponential(r2: AnyNDArray) -> tuple[AnyNDArray, AnyNDArray]:
    k = np.exp(-0.5 * r2)
    return k, -0.5 * k


#: Correlations as functions of squared scaled distances, with their derivatives, by the names that
#: estimators have for kernels.
CORRELATIONS: dict[str, Callable[[AnyNDArray], tuple[AnyNDArray, AnyNDArray]]]
CORRELATIONS = {"matern52": _matern52, "rbf": _squared_exponential}


class Hyperparameters(NamedTuple):
    """Of the model of this module."""

    log_lengthscales: AnyNDArray
    """[D]."""

    log_variance: float
    log_noise: float
    """c."""

    noise_weights: AnyNDArray
    """w, [D]."""

    skew: float = 0.0
    """a."""

    tails: float = 0.0
    """b."""

    @classmethod
    def start(cls, D: int, scale: float = 1.0) -> "Hyperparameters":
        """Give the ones that training starts from, for standardised inputs and targets."""
        lengthscales: AnyNDArray = np.full(D, np.log(scale * np.sqrt(D)))
        return cls(lengthscales, 0.0, np.log(NOISE), np.zeros(D))

    @classmethod
    def of_vector(cls, vector: AnyNDArray) -> "Hyperparameters":
        """Read the vector that :meth:`vector` writes, [2 D + 4]."""
        D = (len(vector) - 4) // 2
        return cls(vector[:D], vector[D], vector[D + 1], vector[D + 2 : -2], *vector[-2:])

    def vector(self) -> AnyNDArray:
        """Write all of them in one vector, in their order."""
        return np.hstack(self)

    def noise(self, X: AnyNDArray) -> AnyNDArray:
        """Compute the noise variance of t at rows, [N]."""
        exponent = _features(X) @ self.noise_weights
        exponent = np.clip(exponent, -LARGEST_EXPONENT, LARGEST_EXPONENT)
        return np.maximum(np.exp(self.log_noise + exponent), LEAST_NOISE)

    def warp(self, y: AnyNDArray) -> tuple[AnyNDArray, AnyNDArray]:
        """Compute t, and what its sinh is taken of."""
        argument = np.exp(self.tails) * np.arcsinh(y) - self.skew
        # Without a warp, y itself: not what rounding makes of it.
        return (np.sinh(argument) if self.skew or self.tails else y), argument


class ExactFit(NamedTuple):
    """A model of this module that was trained."""

    hyperparameters: Hyperparameters
    ascents: tuple[Ascent, ...]
    """How training went from each start; the first is the best one."""

    def left_out_moments(
        self, X: AnyNDArray, y: AnyNDArray, kernel: str
    ) -> tuple[AnyNDArray, AnyNDArray]:
        """Compute mean and variance of t of each row given the others, [N] each."""
        parts = _factorised(self.hyperparameters, X, y, kernel)
        assert parts is not None
        variance = 1.0 / np.diag(parts.inverse)
        return parts.t - variance * parts.solved, variance


class _Factorised(NamedTuple):
    t: AnyNDArray
    argument: AnyNDArray
    solved: AnyNDArray  # beta
    inverse: AnyNDArray  # of the covariance of t
    half_logdet: float
    k: AnyNDArray
    slope: AnyNDArray
    scaled: AnyNDArray  # inputs divided by lengthscales
    noise: AnyNDArray


def _factorised(
    theta: Hyperparameters, X: AnyNDArray, y: AnyNDArray, kernel: str
) -> _Factorised | None:
    """Invert the covariance of t; None where it has no Cholesky factor."""
    U = X * np.exp(-theta.log_lengthscales)
    squares = np.sum(U * U, axis=1)
    r2 = U @ (-2.0 * U.T)
    r2 += squares[:, None]
    r2 += squares
    np.maximum(r2, 0.0, out=r2)
    np.fill_diagonal(r2, 0.0)
    k, slope = CORRELATIONS[kernel](r2)
    noise = theta.noise(X)
    with np.errstate(over="ignore"):
        covariance = np.exp(theta.log_variance) * k
    covariance[np.diag_indices_from(covariance)] += noise
    # The transpose of a symmetric matrix is in LAPACK's order.
    L, failed = lapack.dpotrf(covariance.T, lower=1, overwrite_a=1)
    if failed or not np.isfinite(L[-1, -1]):
        return None
    t, argument = theta.warp(y)
    solved, _ = lapack.dpotrs(L, t, lower=1)
    half_logdet = float(np.sum(np.log(np.diag(L))))
    inverse, _ = lapack.dpotri(L, lower=1, overwrite_c=1)
    lower = np.tril(inverse)
    inverse = lower + np.tril(lower, -1).T
    return _Factorised(t, argument, solved, inverse, half_logdet, k, slope, U, noise)


def evidence(
    theta: Hyperparameters, X: AnyNDArray, y: AnyNDArray, kernel: str
) -> tuple[float, AnyNDArray]:
    """
    Compute log Z with the priors, and its derivatives in the order of the hyperparameters.

    :param X: Standardised inputs, [N, D].
    :param y: Standardised targets, [N].
    :param kernel: One of :data:`CORRELATIONS`.
    :return: Minus infinity, and zeros, where the covariance has no Cholesky factor.
    """
    parts = _factorised(theta, X, y, kernel)
    if parts is None:
        return -np.inf, np.zeros(2 * X.shape[1] + 4)
    w, a, b = theta.noise_weights, theta.skew, theta.tails
    t, argument, solved, U = parts.t, parts.argument, parts.solved, parts.scaled
    log_slopes = np.logaddexp(argument, -argument) - np.log(2.0) + b - 0.5 * np.log1p(y * y)
    value = -0.5 * (t @ solved + len(y) * np.log(2.0 * np.pi)) - parts.half_logdet
    value += np.sum(log_slopes) if a or b else 0.0
    weight_variance = WEIGHTS_SD**2 / len(w)
    value -= 0.5 * (w @ w) / weight_variance + 0.5 * (a**2 + b**2) / WARP_SD**2
    W = np.outer(0.5 * solved, solved)
    W -= 0.5 * parts.inverse
    by_noise = np.diag(W) * parts.noise * (parts.noise > LEAST_NOISE)
    variance = np.exp(theta.log_variance)
    by_variance = variance * np.vdot(W, parts.k)
    W *= parts.slope
    by_lengthscale = np.sum(U * (W @ U - W.sum(axis=1)[:, None] * U), axis=0)
    features = _features(X)
    inside = np.abs(features @ w) < LARGEST_EXPONENT
    stretched = argument + a
    pull, lean = solved * np.cosh(argument), np.tanh(argument)
    gradient = np.hstack(
        [
            4.0 * variance * by_lengthscale,
            by_variance,
            np.sum(by_noise),
            features.T @ (by_noise * inside) - w / weight_variance,
            np.sum(pull - lean) - a / WARP_SD**2,
            np.sum((lean - pull) * stretched + 1.0) - b / WARP_SD**2,
        ]
    )
    return float(value), gradient


def fit_exact(
    X: AnyNDArray,
    y: AnyNDArray,
    kernel: str = "matern52",
    *,
    starts: Sequence[Hyperparameters] = (),
    varying: bool = False,
    warp: bool = False,
    max_iterations: int = 150,
    deadline: float = np.inf,
) -> ExactFit:
    """
    Train by L-BFGS on all rows.

    :param X: Standardised inputs, [N, D].
    :param y: Standardised targets, [N].
    :param kernel: One of :data:`CORRELATIONS`.
    :param starts: The best end counts; by default those of :data:`SCALES`.
    :param varying: Whether w is trained.
    :param warp: Whether a and b are trained.
    :param max_iterations: The most steps from each start.
    :param deadline: When ``time.perf_counter`` is past it no further step is taken.
    """
    D = X.shape[1]
    starts = starts or [Hyperparameters.start(D, scale) for scale in SCALES]
    free = np.repeat([True, varying, warp], [D + 2, D, 2])
    identity = Hyperparameters.start(D).vector()
    limits = np.repeat(LIMITS, [D, 1, 1, D, 2], axis=0)[free]
    ends: list[tuple[Hyperparameters, Ascent]] = []
    with one_blas_thread():
        for start in starts:
            if ends and time.perf_counter() > deadline:
                break
            vector = np.where(free, start.vector(), identity)
            ends.append(_ascend(X, y, kernel, vector, free, limits, max_iterations, deadline))
    ends.sort(key=lambda end: -end[1].objective)
    return ExactFit(ends[0][0], tuple(ascent for _, ascent in ends))


def _ascend(
    X: AnyNDArray,
    y: AnyNDArray,
    kernel: str,
    start: AnyNDArray,
    free: AnyNDArray,
    limits: AnyNDArray,
    max_iterations: int,
    deadline: float,
) -> tuple[Hyperparameters, Ascent]:
    began, failures, best = time.perf_counter(), 0, (-np.inf, start)
    losses: list[float] = []

    def loss(x: AnyNDArray) -> tuple[float, AnyNDArray]:
        nonlocal failures, best
        vector = start.copy()
        vector[free] = x
        value, gradient = evidence(Hyperparameters.of_vector(vector), X, y, kernel)
        failures += not np.isfinite(value)
        best = max(best, (value, vector), key=lambda pair: pair[0])
        return (-value if np.isfinite(value) else 1e10), -gradient[free]

    def step(intermediate_result: scipy.optimize.OptimizeResult) -> None:
        losses.append(float(intermediate_result.fun))
        if time.perf_counter() > deadline:
            raise StopIteration

    outcome = scipy.optimize.minimize(
        loss,
        np.clip(start[free], *limits.T),
        jac=True,
        method="L-BFGS-B",
        bounds=limits,
        callback=step,
        options={"maxiter": max_iterations, "ftol": GAIN, "gtol": FLAT},
    )
    value, vector = best
    seconds = time.perf_counter() - began
    # A line search that finds no step ends where the evidence is all but flat.
    late = time.perf_counter() > deadline
    converged = outcome.nit < max_iterations and not late
    message = OVER if late else str(outcome.message)
    counts = outcome.nit, outcome.nfev, failures
    ascent = Ascent(value, *counts, seconds, converged, message, np.array(losses))
    return Hyperparameters.of_vector(vector), ascent


def model_of(
    theta: Hyperparameters, X: AnyNDArray, t: AnyNDArray, kernel: Kernel, varying: bool
) -> PEPRegression:
    """
    Make the model that predicts: ``PEPRegression`` with inducing points at all rows that differ.

    :param t: Targets as the model takes them, warped if they are, [N].
    :param kernel: A Matérn 5/2 or squared exponential one, whose parameters are assigned.
    :param varying: Whether the noise is a function of the inputs.
    """
    kernel.lengthscales.assign(np.exp(theta.log_lengthscales))
    kernel.variance.assign(np.exp(theta.log_variance))
    noise: Any = max(np.exp(theta.log_noise), 1.001 * LEAST_NOISE)
    if varying:
        noise = LogLinear(X.shape[1], np.exp(theta.log_noise))
        noise.weights.assign(theta.noise_weights[:, None])
    _, first = np.unique(X, axis=0, return_index=True)
    points = gpflow.inducing_variables.InducingPoints(X[np.sort(first)])
    gpflow.set_trainable(points, False)
    likelihood = gpflow.likelihoods.Gaussian(variance=noise)
    return PEPRegression((X, t[:, None]), kernel, points, likelihood=likelihood)


def hyperparameters_of(model: Any, skew: float = 0.0, tails: float = 0.0) -> Hyperparameters | None:
    """
    Read the hyperparameters of a model of one output with Gaussian noise; None of one that has
    others.

    :param skew: Of the warp of its targets, as is ``tails``.
    """
    kernel, noise = model.kernel, getattr(model.likelihood, "variance", None)
    if not isinstance(kernel, gpflow.kernels.IsotropicStationary) or noise is None:
        return None
    D = model.data[0].shape[1]
    lengthscales: AnyNDArray = np.broadcast_to(kernel.lengthscales.numpy(), [D])
    at_zero = model.likelihood.variance_at(np.zeros([1, D]))
    w = np.ravel(noise.weights.numpy()) if isinstance(noise, LogLinear) else np.zeros(D)
    c, v = np.log(at_zero.numpy()[0, 0]), np.log(kernel.variance.numpy())
    return Hyperparameters(np.log(lengthscales), v, c, w, skew, tails)
