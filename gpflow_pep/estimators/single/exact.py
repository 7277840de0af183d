r"""Exact regression on a few hundred rows, trained by the evidence.

Targets y may be warped, and the noise may depend on the inputs:

.. math::

    t_n = \sinh(e^b \operatorname{asinh}(y_n) - a), \qquad
    \log s_n = c + w^T \operatorname{clip}(x_n, -3, 3), \qquad
    \log Z = \log N(t; 0, K + \operatorname{diag} s) + \sum_n \log \frac{dt_n}{dy_n}
    - \frac{D |w|^2}{2 \cdot 0.6^2} - \frac{a^2 + b^2}{2 \cdot 0.5^2}.

Without warp a = b = 0, and with a constant noise variance w = 0. K is the matrix of one
kernel of all inputs; the ``additive`` kernel is the sum of a Matérn 5/2 kernel and of a
smooth function of each input,

.. math::

    k(x, x') = k_{5/2}(x, x') + \sum_d v_d e^{-(x_d - x'_d)^2 / (2 \ell^2)},
    \quad \ell = 2.

One Cholesky factor and one inverse give the value and all derivatives: with
:math:`\beta = (K + \operatorname{diag} s)^{-1} t` and
:math:`W = (\beta \beta^T - (K + \operatorname{diag} s)^{-1}) / 2` each derivative is
the sum of W times the derivative of the covariance, minus :math:`\beta^T` times the
derivative of t. Nothing is compiled, because compiling would take longer than training.
"""

import time
from typing import Any, NamedTuple

import numpy as np
import scipy.optimize
from scipy.linalg import lapack

from ...distributions import Units
from ...distributions.noise import (
    LARGEST_EXPONENT,
    exponent_of_noise,
    features_of_noise,
)
from ...engine.numerics.threads import one_blas_thread
from ...engine.records import OVER, Ascent, MaximiseRecord
from ...engine.refusals.arrays import AnyNDArray

#: Standard deviations of priors. The first is of all weights of the noise together:
#: each of the D weights has it divided by the root of D. The second is of a and b. On
#: 18 generated tables of 120 and 300 rows, twice each, 0.3 for each weight costs .004
#: nats a row (.06 with 20 inputs), and 1.0 for a and b costs .008.
WEIGHTS_SD = 0.6
WARP_SD = 0.5
#: The smallest noise variance, which is also the bound in GPflow's Gaussian likelihood;
#: and the noise variance at the start of training.
LEAST_NOISE = 1e-6
#: The smallest value of a parameter of GPflow with this bound.
LEAST_PARAMETER = 1.001 * LEAST_NOISE
NOISE = 0.1
#: The fine start has the lengthscales of the smooth start times this factor, and this
#: noise variance: strong smooth parts hide fine parts, and with little noise the fit
#: cannot treat the fine parts as noise. On 100 generated tables (150 to 400 rows, a
#: line or slow wave plus a fine wave) the smooth start alone ends within .03 nats a row
#: of the best of five starts in 44, and the better of both starts in 96 (in 90 with a
#: noise of .03 in the fine start, in 93 with .003).
FINE = 0.3
FINE_NOISE = 0.01
#: After this number of steps training continues from the better of both starts. On
#: these 100 tables this start also ends better in 100, after 8 steps in 96, and after 6
#: in 94.
STEPS_OF_STARTS = 10
#: The smooth start is given up if it is worse by this number of nats a row. On these
#: 100 tables the better end is found in 94, and with 0 in 96; but with 0, one of three
#: Friedman tables of 150 rows loses .020 nats, because components with the same start
#: are more alike.
CLEARLY = 0.05
#: The share of the time before the deadline that the fine start may use.
SHARE_OF_FINE = 0.25
#: Limits of the logarithms of lengthscales, variance and noise, of w, a and b, and of
#: log v.
LIMITS = (-5.0, 7.0), (-8.0, 7.0), (-13.0, 3.0), (-3.0, 3.0), (-2.5, 2.5), (-9.0, 5.0)
#: The lengthscale of the functions of one input, and the sum of v at the start. On 33
#: tables, generated and from scikit-learn, of 100 to 720 rows, these functions improve
#: the default estimator by .013 ± .004 nats a row and 1.5 ± .5% of RMSE. With
#: lengthscales of 1.5 and 3 the gain is .011 and .010 nats, and with sums of .1 and 1
#: it is .012 and .004.
SMOOTH = 2.0
ADDITIVE = 0.3
#: The variance of the slope of a linear function of one input: a line through
#: standardised targets along a standardised input has a slope of at most 1.
SLOPE = 1.0
#: The largest residual of the factors of their correlations: a hundredth of the
#: smallest noise.
TRUNCATED = 1e-8
#: Training stops if the relative gain of a step, or the largest derivative, is below
#: these. On 30 tables 3e-7 takes a quarter more evaluations and gains .001 ± .001 nats
#: a row.
GAIN = 3e-6
FLAT = 1e-3


def _matern52(r2: AnyNDArray, log_variance: float) -> tuple[AnyNDArray, AnyNDArray]:
    r = np.sqrt(5.0 * r2)
    decay = np.exp(log_variance - r)
    linear = (1.0 + r) * decay
    return linear + (5.0 / 3.0) * r2 * decay, (-5.0 / 6.0) * linear


def _rbf(r2: AnyNDArray, log_variance: float) -> tuple[AnyNDArray, AnyNDArray]:
    K = np.exp(log_variance - 0.5 * r2)
    return K, -0.5 * K


#: By the name of a kernel: the name of GPflow's class, and the values and derivatives
#: as functions of squared distances.
KERNELS: dict[str, tuple[str, Any]] = {
    "additive": ("Matern52", _matern52),
    "matern52": ("Matern52", _matern52),
    "rbf": ("SquaredExponential", _rbf),
}


def is_exact_kernel(kernel: Any) -> bool:
    """Whether the exact models have this kernel, which must then be given by its
    name.
    """
    return isinstance(kernel, str) and kernel in KERNELS


def _factors(
    X: AnyNDArray, is_additive: bool, input_of_line: int | None
) -> tuple[AnyNDArray, AnyNDArray]:
    """Factor all kernels except the kernel of all inputs, like :func:`smooth_factors`.
    The linear function has the number D.
    """
    N, D = X.shape
    F = np.zeros([N, 0])
    owners = np.zeros(0, int)
    if is_additive:
        F, owners = smooth_factors(X)
    if input_of_line is not None:
        F = np.column_stack([F, X[:, input_of_line]])
        owners = np.append(owners, D)
    return F, owners


def smooth_factors(X: AnyNDArray) -> tuple[AnyNDArray, AnyNDArray]:
    """Factor the correlations of the functions of each input,
    :math:`\\sum_d v_d F_d F_d^T`, by incomplete Cholesky factors.

    :param X: Standardised inputs, [N, D].
    :return: All columns of F, [N, R], with R about 10 D; and the input of each column,
        [R].
    """
    columns: list[AnyNDArray] = []
    owners: list[int] = []
    for d, x in enumerate(X.T):
        F = np.zeros([len(x), 0])
        rest = np.ones(len(x))
        while rest.max() > TRUNCATED:
            n = int(np.argmax(rest))
            column = np.exp(-0.5 * ((x - x[n]) / SMOOTH) ** 2) - F @ F[n]
            F = np.column_stack([F, column / np.sqrt(rest[n])])
            rest = np.maximum(rest - F[:, -1] ** 2, 0.0)
        columns.append(F)
        owners += [d] * F.shape[1]
    return np.hstack(columns), np.array(owners)


class Hyperparameters(NamedTuple):
    """The hyperparameters of the model above, for D inputs: c is ``log_noise``; w, a, b
    and log v are the last four.
    """

    log_lengthscales: AnyNDArray
    log_variance: float
    log_noise: float
    noise_weights: AnyNDArray
    skew: float
    tails: float
    log_additive: AnyNDArray  #: Minus infinity if there are no functions of one input.

    @classmethod
    def smooth(
        cls, D: int, is_additive: bool = False, mean_square: float = 1.0
    ) -> "Hyperparameters":
        """Return the smooth start, for inputs and targets of unit variance. Its
        lengthscales are √D, because squared distances of rows grow in proportion to D.

        :param mean_square: The mean square of the targets, 1 if their mean is 0.
        """
        log_v = np.log(ADDITIVE / D) if is_additive else -np.inf
        lengthscales = np.full(D, 0.5 * np.log(D))
        parts = np.full(D, log_v)
        log_variance = float(np.log(mean_square))
        noise = np.log(NOISE)
        weights = np.zeros(D)
        return cls(lengthscales, log_variance, noise, weights, 0.0, 0.0, parts)

    def rescaled(self, scale: AnyNDArray, level: float) -> "Hyperparameters":
        """Return the hyperparameters of the same model for inputs times a scale, [D],
        and targets times a level. This is for models without warp and without functions
        of one input.
        """
        return self._replace(
            log_lengthscales=self.log_lengthscales + np.log(scale),
            log_variance=self.log_variance + 2.0 * np.log(level),
            log_noise=self.log_noise + 2.0 * np.log(level),
        )

    @classmethod
    def of_vector(cls, vector: AnyNDArray) -> "Hyperparameters":
        """Read the hyperparameters from one vector, [3 D + 4], as ``numpy.hstack``
        makes it.
        """
        D = len(vector) // 3 - 1
        places: AnyNDArray = np.cumsum([D, 1, 1, D, 1, 1])
        lengthscales, v, c, w, a, b, log_additive = np.split(vector, places)
        return cls(lengthscales, v[0], c[0], w, a[0], b[0], log_additive)

    @property
    def units(self) -> Units:
        """The units in which standardised targets become t."""
        return Units(skew=self.skew, tails=self.tails)


def evidence(
    theta: Hyperparameters,
    X: AnyNDArray,
    y: AnyNDArray,
    kernel: str,
    factors: tuple[AnyNDArray, AnyNDArray] | None = None,
) -> tuple[float, AnyNDArray]:
    """Compute log Z with the priors, and its derivatives in the order of the
    hyperparameters; minus infinity and zeros if the covariance has no Cholesky factor.

    :param X: Standardised inputs, [N, D].
    :param y: Standardised targets, [N].
    :param factors: The factors of the functions of one input, from
        :func:`smooth_factors`, and of a linear function, which has the number D.
    """
    log_lengthscales, log_variance, c, w, a, b, log_additive = theta
    N, D = X.shape
    v = np.append(np.exp(log_additive), SLOPE)
    U = X * np.exp(-log_lengthscales)
    squares = np.sum(U * U, axis=1)
    r2 = squares[:, None] + squares
    r2 -= 2.0 * U @ U.T
    K, by_r2 = KERNELS[kernel][1](np.maximum(r2, 0.0, out=r2), log_variance)
    features = features_of_noise(X)
    exponent = exponent_of_noise(features, w)
    noise = np.maximum(np.exp(c + exponent), LEAST_NOISE)
    F, owners = (np.zeros([N, 0]), np.zeros(0, int)) if factors is None else factors
    # The transpose of a symmetric matrix is in LAPACK's order.
    covariance = K + (F * v[owners]) @ F.T
    covariance[np.diag_indices(N)] += noise
    L, failed = lapack.dpotrf(covariance.T, lower=1, overwrite_a=1)
    if failed or not np.isfinite(L[-1, -1]):
        return -np.inf, np.zeros(3 * D + 4)
    t = theta.units.transform(y)
    stretched = np.exp(b) * np.arcsinh(y)
    beta, _ = lapack.dpotrs(L, t, lower=1)
    value = -0.5 * (t @ beta + len(y) * np.log(2.0 * np.pi)) - np.sum(
        np.log(np.diag(L))
    )
    # One triangle of the inverse is zero. Sums of W times a symmetric matrix stay the
    # same.
    inverse = lapack.dpotri(L, lower=1, overwrite_c=1)[0].T
    W = np.outer(0.5 * beta, beta) - inverse
    np.fill_diagonal(W, 0.5 * (beta**2 - np.diag(inverse)))
    value += np.sum(theta.units.log_slope(y))
    precision = len(w) / WEIGHTS_SD**2
    warp_precision = 1.0 / WARP_SD**2
    value -= 0.5 * (precision * (w @ w) + warp_precision * (a**2 + b**2))
    by_noise = np.diag(W) * noise * (noise > LEAST_NOISE)
    by_variance = np.vdot(W, K)
    by_additive = (v * np.bincount(owners, np.sum(F * (W @ F), axis=0), D + 1))[:D]
    W *= by_r2
    sums = np.sum(W, axis=0) + np.sum(W, axis=1)
    by_lengthscale = np.sum(U * (4.0 * W @ U - 2.0 * sums[:, None] * U), axis=0)
    by_weight = (
        features.T @ (by_noise * (np.abs(exponent) < LARGEST_EXPONENT)) - precision * w
    )
    by_t = beta * np.cosh(stretched - a) - np.tanh(stretched - a)
    by_warp = (
        np.sum(by_t) - warp_precision * a,
        np.sum(1.0 - by_t * stretched) - warp_precision * b,
    )
    terms = (
        by_lengthscale,
        by_variance,
        np.sum(by_noise),
        by_weight,
        *by_warp,
        by_additive,
    )
    return float(value), np.hstack(terms)


class _Problem(NamedTuple):
    """The problem that is solved in training: the free hyperparameters of a kernel, and
    the rows.
    """

    X: AnyNDArray
    y: AnyNDArray
    kernel: str
    free: AnyNDArray  #: Whether each hyperparameter is trained, [3 D + 4].
    factors: tuple[AnyNDArray, AnyNDArray]  #: See :func:`_factors`.
    ard: bool | float = True  #: See :func:`fit_exact`.
    mean_square: float = 1.0  #: The mean square of y.

    def limits(self) -> AnyNDArray:
        """Return the limits of the hyperparameters that are trained, [R, 2]."""
        D = self.X.shape[1]
        limits = np.repeat(LIMITS, [D, 1, 1, D, 2, D], axis=0)
        limits[D, 1] += np.log(self.mean_square)
        return limits[self.free]

    def owners(self) -> AnyNDArray:
        """Find for each free hyperparameter the number of the trained value, [R]: its
        own value, or a common value for all lengthscales.
        """
        places = np.arange(np.sum(self.free))
        if self.ard is False:
            places = np.maximum(places - self.X.shape[1] + 1, 0)
        return places

    def log_density(self, theta: Hyperparameters) -> tuple[float, AnyNDArray]:
        """Compute log Z with all priors, and its derivatives, [3 D + 4]; with a number
        as ``ard`` also the prior of :func:`near_lengthscales
        <gpflow_pep.training.fitting.objectives.near_lengthscales>`.
        """
        value, gradient = evidence(theta, self.X, self.y, self.kernel, self.factors)
        if not isinstance(self.ard, bool):
            logs = theta.log_lengthscales
            apart = (logs - np.mean(logs)) / self.ard
            value -= 0.5 * float(apart @ apart)
            gradient[: len(logs)] -= apart / self.ard
        return value, gradient

    def ascend(
        self,
        start: AnyNDArray,
        max_iterations: int,
        deadline: float,
        rival: float = -np.inf,
    ) -> tuple[AnyNDArray, Ascent]:
        """Train from one start.

        :param start: All hyperparameters, [3 D + 4].
        :param rival: The value that another start reached in :data:`STEPS_OF_STARTS`
            steps. This start is given up if it is lower after the same number of steps.
        :return: The best hyperparameters that were met, and the record of training.
        """
        owners = self.owners()
        _, own = np.unique(owners, return_index=True)
        limits = self.limits()[own]
        begin = np.bincount(owners, start[self.free]) / np.bincount(owners)
        best = -np.inf
        vector = start
        began = time.perf_counter()
        losses: list[float] = []

        def loss(x: AnyNDArray) -> tuple[float, AnyNDArray]:
            nonlocal best, vector
            tried = start.copy()
            tried[self.free] = x[owners]
            value, gradient = self.log_density(Hyperparameters.of_vector(tried))
            if value > best:
                best = value
                vector = tried
            by_x = np.bincount(owners, -gradient[self.free])
            return (-value if np.isfinite(value) else 1e10), by_x

        def step(intermediate_result: scipy.optimize.OptimizeResult) -> None:
            losses.append(float(intermediate_result.fun))
            is_behind = len(losses) == STEPS_OF_STARTS and best < rival
            if is_behind or time.perf_counter() > deadline:
                raise StopIteration

        end = scipy.optimize.minimize(
            loss,
            np.clip(begin, *limits.T),
            jac=True,
            method="L-BFGS-B",
            bounds=limits,
            callback=step,
            options={"maxiter": max_iterations, "ftol": GAIN, "gtol": FLAT},
        )
        now = time.perf_counter()
        # If a line search finds no step, the evidence is nearly flat there.
        converged = end.nit < max_iterations and now <= deadline
        message = OVER if now > deadline else str(end.message)
        counts = end.nit, end.nfev, 0, now - began
        return vector, Ascent(best, *counts, converged, message, np.array(losses))

    def better_of_two(
        self, smooth: AnyNDArray, max_iterations: int, deadline: float
    ) -> tuple[AnyNDArray, MaximiseRecord]:
        """Train from the smooth start [3 D + 4] and from the fine one. The smooth one
        is given up if it is clearly behind after :data:`STEPS_OF_STARTS` steps.
        """
        D = self.X.shape[1]
        begin = smooth.copy()
        now = time.perf_counter()
        begin[:D] += np.log(FINE)
        begin[D + 1] = np.log(FINE_NOISE)
        steps = min(STEPS_OF_STARTS, max_iterations)
        soon = now + SHARE_OF_FINE * (deadline - now)
        vector, fine = self.ascend(begin, steps, soon)
        rival = fine.objective - CLEARLY * len(self.X)
        other, ascent = self.ascend(smooth, max_iterations, deadline, rival)
        if ascent.objective >= fine.objective:
            return other, MaximiseRecord(*ascent, 0.0, (ascent, fine))
        if max_iterations > fine.iterations:
            rest = max_iterations - fine.iterations
            vector, more = self.ascend(vector, rest, deadline)
            fine = more._replace(
                iterations=fine.iterations + more.iterations,
                evaluations=fine.evaluations + more.evaluations,
                seconds=fine.seconds + more.seconds,
                losses=np.hstack([fine.losses, more.losses]),
            )
        return vector, MaximiseRecord(*fine, 0.0, (ascent, fine))


def fit_exact(
    X: AnyNDArray,
    y: AnyNDArray,
    start: Hyperparameters | None = None,
    *,
    kernel: str = "matern52",
    varying: bool = False,
    warp: bool = False,
    input_of_line: int | None = None,
    ard: bool | float = True,
    mean_square: float = 1.0,
    max_iterations: int = 150,
    deadline: float = np.inf,
) -> tuple[Hyperparameters, MaximiseRecord]:
    """Train by L-BFGS on all rows, inputs X [N, D] and targets y [N] of unit variance.

    :param start: The start of training; hyperparameters that are not trained are
        ignored. If it is None or has another D, training starts at
        :meth:`Hyperparameters.smooth` or at the result of :func:`find_start`.
    :param kernel: One of :data:`KERNELS`.
    :param varying: Whether w is trained.
    :param warp: Whether a and b are trained.
    :param input_of_line: The input with a linear function; None for no such input.
    :param ard: False gives one lengthscale for all inputs. A number is the prior
        standard deviation of the log lengthscales around their mean.
    :param mean_square: The mean square of y, 1 if its mean is 0.
    :param deadline: No step begins after ``time.perf_counter`` has passed this time.
    """
    D = X.shape[1]
    is_additive = kernel == "additive"
    is_plain = kernel == "matern52" and not varying and not warp
    if start is not None and len(start.log_lengthscales) != D:
        start = None
    if start is None and not is_plain:
        start = find_start(X, y, deadline, input_of_line, ard, mean_square)
    free = np.repeat([True, varying, warp, is_additive], [D + 2, D, 2, D])
    smooth = np.hstack(Hyperparameters.smooth(D, is_additive, mean_square))
    with one_blas_thread():
        factors = _factors(X, is_additive, input_of_line)
        problem = _Problem(X, y, kernel, free, factors, ard, mean_square)
        if start is None:
            vector, record = problem.better_of_two(smooth, max_iterations, deadline)
        else:
            given = np.hstack(start)
            begin = np.where(free & np.isfinite(given), given, smooth)
            vector, ascent = problem.ascend(begin, max_iterations, deadline)
            record = MaximiseRecord(*ascent, 0.0, (ascent,))
    return Hyperparameters.of_vector(vector), record


def find_start(
    X: AnyNDArray,
    y: AnyNDArray,
    deadline: float = np.inf,
    input_of_line: int | None = None,
    ard: bool | float = True,
    mean_square: float = 1.0,
) -> Hyperparameters:
    """Find the start of training for any kernel, by :data:`STEPS_OF_STARTS` steps of
    the Matérn 5/2 kernel with constant noise from both starts. The result is the smooth
    start, unless it is clearly worse.

    :param X: Inputs of unit variance, [N, D].
    :param y: Targets of unit variance, [N].
    :param ard: As of :func:`fit_exact`.
    :param mean_square: The mean square of y, 1 if its mean is 0.
    """
    theta, record = fit_exact(
        X,
        y,
        input_of_line=input_of_line,
        ard=ard,
        mean_square=mean_square,
        max_iterations=STEPS_OF_STARTS,
        deadline=deadline,
    )
    smooth, fine = record.starts
    if fine.objective < smooth.objective + CLEARLY * len(X):
        return Hyperparameters.smooth(X.shape[1], mean_square=mean_square)
    start = start_after(theta, record)
    assert start is not None  # because no start was given
    return start


def start_after(
    theta: Hyperparameters, record: MaximiseRecord
) -> Hyperparameters | None:
    """Return the start for other kernels after one kernel was trained from both starts;
    None if it was trained from a given start.

    The start is the smooth start if training continued from it. Otherwise it is near
    the end of training: with half of the log variance, lengthscales that leave the
    slopes of functions the same, and noise of at least :data:`FINE_NOISE`, because a
    squared exponential kernel has no Cholesky factor with the large variance and the
    small noise that some fits end with.
    """
    if len(record.starts) == 1:
        return None
    smooth, fine = record.starts
    if fine.objective <= smooth.objective:
        return Hyperparameters.smooth(len(theta.log_lengthscales))
    return theta._replace(
        log_lengthscales=theta.log_lengthscales - 0.25 * theta.log_variance,
        log_variance=0.5 * theta.log_variance,
        log_noise=max(theta.log_noise, np.log(FINE_NOISE)),
    )
