r"""Exact regression on some hundreds of rows, by its evidence.

Targets y may be warped, and the noise may depend on the inputs:

.. math::

    t_n = \sinh(e^b \operatorname{asinh}(y_n) - a), \qquad
    \log s_n = c + w^T \operatorname{clip}(x_n, -3, 3), \qquad
    \log Z = \log N(t; 0, K + \operatorname{diag} s) + \sum_n \log \frac{dt_n}{dy_n}
    - \frac{D |w|^2}{2 \cdot 0.6^2} - \frac{a^2 + b^2}{2 \cdot 0.5^2}.

Without warp and with one noise variance a = b = 0 and w = 0. K is that of one kernel of
all inputs, and of the ``additive`` one the sum of a Matérn 5/2 kernel and of a smooth
function of each input,

.. math::

    k(x, x') = k_{5/2}(x, x') + \sum_d v_d e^{-(x_d - x'_d)^2 / (2 \ell^2)},
    \quad \ell = 2.

One Cholesky factor and one inverse give the value and all derivatives: with
:math:`\beta = (K + \operatorname{diag} s)^{-1} t` and
:math:`W = (\beta \beta^T - (K + \operatorname{diag} s)^{-1}) / 2` each is the sum of W
times the derivative of the covariance, less :math:`\beta^T` times that of t. Nothing is
compiled, which would take longer than training.
"""

import time
from typing import Any, NamedTuple

import gpflow
import numpy as np
import scipy.optimize
from gpflow.base import AnyNDArray
from gpflow.kernels import RBF, IsotropicStationary, Kernel
from scipy.linalg import lapack

from ...distributions import Units
from ...distributions.noise import (
    LARGEST_EXPONENT,
    exponent_of_noise,
    features_of_noise,
)
from ...likelihoods import LogLinear
from ...models import PEPRegression
from ...training.fitting.full_batch import Ascent, MaximiseRecord, one_blas_thread
from ...training.fitting.points import OVER

#: Standard deviations of the priors of all weights of the noise together, so that each
#: of D has that over the root of D, and of a and b. On 18 generated tables of 120 and
#: 300 rows, twice each, 0.3 for each weight costs .004 nats a row (.06 with 20 inputs),
#: and 1.0 for a and b .008.
WEIGHTS_SD = 0.6
WARP_SD = 0.5
#: The smallest noise variance, that of GPflow's Gaussian likelihood, and where training
#: starts.
LEAST_NOISE = 1e-6
NOISE = 0.1
#: The fine start has so many times the lengthscales, and such a noise variance: strong
#: smooth parts, which hide fine ones, cannot take the rest for noise there. On 100
#: generated tables (150 to 400 rows, a line or slow wave beside a fine wave) the smooth
#: start alone ends within .03 nats a row of the best of five in 44, both in 96; in 90
#: with a noise of .03 in the fine one, 93 with .003.
FINE = 0.3
FINE_NOISE = 0.01
#: After so many steps the better of both goes on. On these 100 tables it is the one
#: that would end better in 100, after 8 steps in 96, and after 6 in 94.
STEPS_OF_STARTS = 10
#: The smooth start is given up if it is behind by so many nats a row. On these 100
#: tables 94 are found, and 96 with 0; but with 0, one of three Friedman tables of 150
#: rows loses .020 nats, because components of one start are more alike.
CLEARLY = 0.05
#: The part of the seconds that the fine start may take of those before the deadline.
SHARE_OF_FINE = 0.25
#: Limits of the logarithms of lengthscales, variance and noise, of w, a and b, and of
#: log v.
LIMITS = (-5.0, 7.0), (-8.0, 7.0), (-13.0, 3.0), (-3.0, 3.0), (-2.5, 2.5), (-9.0, 5.0)
#: The lengthscale of the functions of one input, and the sum of v at the start. On 33
#: tables, generated and scikit-learn's, of 100 to 720 rows they gain the default
#: estimator .013 ± .004 nats a row and 1.5 ± .5% of RMSE; with lengthscales of 1.5 and
#: 3 .011 and .010 nats, and from sums of .1 and 1 .012 and .004.
SMOOTH = 2.0
ADDITIVE = 0.3
#: The variance of the slope of a linear function of one input: standardised targets
#: have slopes of 1 at most by standardised inputs.
SLOPE = 1.0
#: What the factors of their correlations leave out: below the least noise by a factor
#: of 100.
TRUNCATED = 1e-8
#: Training stops at so small a relative gain of a step, or where no derivative is
#: larger. On 30 tables 3e-7 takes a quarter more evaluations for .001 ± .001 nats a
#: row.
GAIN = 3e-6
FLAT = 1e-3


def _matern52(r2: AnyNDArray, log_variance: float) -> tuple[AnyNDArray, AnyNDArray]:
    r = np.sqrt(5.0 * r2)
    decay = np.exp(log_variance - r)
    linear = (1.0 + r) * decay
    return linear + (5.0 / 3.0) * r2 * decay, (-5.0 / 6.0) * linear


#: GPflow's kernels, and their values and derivatives by squared distances, by their
#: names.
KERNELS: dict[str, tuple[Any, Any]] = {
    "additive": (gpflow.kernels.Matern52, _matern52),
    "matern52": (gpflow.kernels.Matern52, _matern52),
    "rbf": (RBF, lambda r2, log_v: ((K := np.exp(log_v - 0.5 * r2)), -0.5 * K)),
}


def additive(kernel: Kernel, variances: AnyNDArray) -> Kernel:
    """Add to a kernel a smooth function of each input, whose lengthscale is not
    trained.
    """
    terms = [
        RBF(v, SMOOTH, active_dims=[d]) for d, v in enumerate(variances) if v > 0.0
    ]
    for term in terms:
        gpflow.set_trainable(term.lengthscales, False)
    return gpflow.kernels.Sum([kernel, *terms]) if terms else kernel


def with_line(kernel: Kernel, input_of_line: int | None) -> Kernel:
    """Add to a kernel a linear function of one input, whose variance is not trained, so
    that predictions go on beyond the rows; None: of none.
    """
    if input_of_line is None:
        return kernel
    line = gpflow.kernels.Linear(variance=SLOPE, active_dims=[input_of_line])
    gpflow.set_trainable(line.variance, False)
    return gpflow.kernels.Sum([*getattr(kernel, "kernels", [kernel]), line])


def _factors(
    X: AnyNDArray, is_additive: bool, input_of_line: int | None
) -> tuple[AnyNDArray, AnyNDArray]:
    """Factor all but the one kernel of all inputs, as :func:`smooth_factors` does; the
    owner of the linear function is D.
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
    :return: All columns of F, [N, R], R some 10 D; and of which input each is, [R].
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
    """Of the model above, for D inputs: c is ``log_noise``; w, a, b and log v are the
    last four.
    """

    log_lengthscales: AnyNDArray
    log_variance: float
    log_noise: float
    noise_weights: AnyNDArray
    skew: float
    tails: float
    log_additive: AnyNDArray  #: Minus infinity without functions of one input.

    @classmethod
    def smooth(
        cls, D: int, is_additive: bool = False, mean_square: float = 1.0
    ) -> "Hyperparameters":
        """Give the smooth start, for inputs and targets of unit variance: lengthscales
        √D, as squared distances of rows grow in proportion to D.

        :param mean_square: Of the targets, 1 if their mean is 0.
        """
        log_v = np.log(ADDITIVE / D) if is_additive else -np.inf
        lengthscales = np.full(D, 0.5 * np.log(D))
        parts = np.full(D, log_v)
        log_variance = float(np.log(mean_square))
        noise = np.log(NOISE)
        weights = np.zeros(D)
        return cls(lengthscales, log_variance, noise, weights, 0.0, 0.0, parts)

    def rescaled(self, scale: AnyNDArray, level: float) -> "Hyperparameters":
        """Give those of the same model of inputs times a scale, [D], and of targets
        times a level; without warp and functions of one input.
        """
        return self._replace(
            log_lengthscales=self.log_lengthscales + np.log(scale),
            log_variance=self.log_variance + 2.0 * np.log(level),
            log_noise=self.log_noise + 2.0 * np.log(level),
        )

    @classmethod
    def of_vector(cls, vector: AnyNDArray) -> "Hyperparameters":
        """Read them from one vector, [3 D + 4], which ``numpy.hstack`` makes
        of them.
        """
        D = len(vector) // 3 - 1
        places: AnyNDArray = np.cumsum([D, 1, 1, D, 1, 1])
        lengthscales, v, c, w, a, b, log_additive = np.split(vector, places)
        return cls(lengthscales, v[0], c[0], w, a[0], b[0], log_additive)

    @classmethod
    def of_model(
        cls, model: Any, skew: float, tails: float
    ) -> "Hyperparameters | None":
        """Read them from a model of one output whose targets are so warped, if it has
        them.
        """
        kernel, *terms = getattr(model.kernel, "kernels", [model.kernel])
        terms = [term for term in terms if type(term) is not gpflow.kernels.Linear]
        noise = getattr(model.likelihood, "variance", None)
        is_plain = all(
            type(term) is RBF and np.asarray(term.active_dims).shape == (1,)
            for term in terms
        )
        if not isinstance(kernel, IsotropicStationary) or noise is None or not is_plain:
            return None
        D = model.data[0].shape[1]
        lengthscales: AnyNDArray = np.broadcast_to(kernel.lengthscales.numpy(), [D])
        c = np.log(model.likelihood.variance_at(np.zeros([1, D])).numpy()[0, 0])
        w = noise.weights.numpy()[:, 0] if isinstance(noise, LogLinear) else np.zeros(D)
        log_v = np.full(D, -np.inf)
        for term in terms:
            log_v[term.active_dims] = np.log(term.variance.numpy())
        log_variance = np.log(kernel.variance.numpy())
        return cls(np.log(lengthscales), log_variance, c, w, skew, tails, log_v)

    @property
    def units(self) -> Units:
        """The units of t, of standardised targets."""
        return Units(skew=self.skew, tails=self.tails)

    def model(
        self,
        X: AnyNDArray,
        y: AnyNDArray,
        kernel: str,
        varying: bool,
        input_of_line: int | None = None,
        ard: bool | float = True,
    ) -> PEPRegression:
        """Make the model that predicts t, with inducing points at all rows that differ.

        :param varying: Whether the noise is a function of the inputs.
        :param input_of_line: Of which input there is a linear function.
        :param ard: False: the kernel has one lengthscale.
        """
        variance = np.exp(self.log_variance)
        lengthscales: Any = np.exp(self.log_lengthscales)
        if ard is False:
            lengthscales = lengthscales[0]
        noise: Any = max(np.exp(self.log_noise), 1.001 * LEAST_NOISE)
        if varying:
            noise = LogLinear(X.shape[1], noise)
            noise.weights.assign(self.noise_weights[:, None])
        _, distinct = np.unique(X, axis=0, return_index=True)
        points = gpflow.inducing_variables.InducingPoints(X[np.sort(distinct)])
        gpflow.set_trainable(points, False)
        whole = additive(
            KERNELS[kernel][0](variance, lengthscales), np.exp(self.log_additive)
        )
        return PEPRegression(
            (X, self.units.transform(y)[:, None]),
            with_line(whole, input_of_line),
            points,
            likelihood=gpflow.likelihoods.Gaussian(variance=noise),
        )


def evidence(
    theta: Hyperparameters,
    X: AnyNDArray,
    y: AnyNDArray,
    kernel: str,
    factors: tuple[AnyNDArray, AnyNDArray] | None = None,
) -> tuple[float, AnyNDArray]:
    """Compute log Z with the priors, and its derivatives in the order of the
    hyperparameters; minus infinity and zeros where the covariance has no Cholesky
    factor.

    :param X: Standardised inputs, [N, D].
    :param y: Standardised targets, [N].
    :param factors: Of the additive kernel, by :func:`smooth_factors`; with D as its
        owner, of a linear function.
    """
    log_lengthscales, log_variance, c, w, a, b, log_additive = theta
    (N, D), v = X.shape, np.append(np.exp(log_additive), SLOPE)
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
    # Above or below the diagonal there are zeros: sums of W times what is symmetric
    # stay the same.
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
    """What is trained: the hyperparameters that are free of a kernel, on rows."""

    X: AnyNDArray
    y: AnyNDArray
    kernel: str
    free: AnyNDArray  #: Which of all hyperparameters are trained, [3 D + 4].
    factors: tuple[AnyNDArray, AnyNDArray]  #: See :func:`_factors`.
    ard: bool | float = True  #: See :func:`fit_exact`.
    mean_square: float = 1.0  #: Of y.

    def limits(self) -> AnyNDArray:
        """Give the limits of the hyperparameters that are trained, [R, 2]."""
        D = self.X.shape[1]
        limits = np.repeat(LIMITS, [D, 1, 1, D, 2, D], axis=0)
        limits[D, 1] += np.log(self.mean_square)
        return limits[self.free]

    def owners(self) -> AnyNDArray:
        """Find the number that is trained for each hyperparameter that is free, [R]:
        one of its own, or one for all lengthscales.
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
        :param rival: What another start reached in :data:`STEPS_OF_STARTS` steps. This
            one is given up if it is below it after as many.
        :return: The best hyperparameters that were seen, and how training went.
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
        # A line search that finds no step ends where the evidence is all but flat.
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

    :param start: Where training starts, without what is not trained. None, or one of
        another D: at :meth:`Hyperparameters.smooth`, or where :func:`find_start` does.
    :param kernel: One of :data:`KERNELS`.
    :param varying: Whether w is trained.
    :param warp: Whether a and b are trained.
    :param input_of_line: Of which input there is a linear function; None: of none.
    :param ard: False: one lengthscale for all inputs. A number: the standard deviation,
        a priori, of log lengthscales around their mean.
    :param mean_square: Of y, 1 if its mean is 0.
    :param deadline: When ``time.perf_counter`` is past it no further step is taken.
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
    """Find where the training of any kernel starts, by :data:`STEPS_OF_STARTS` steps of
    the Matérn 5/2 kernel with one noise variance from both starts. It is the smooth
    start, unless that is clearly behind.

    :param X: Inputs of unit variance, [N, D].
    :param y: Targets of unit variance, [N].
    :param ard: As of :func:`fit_exact`.
    :param mean_square: Of y.
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
    assert start is not None  # as no start was given
    return start


def start_after(
    theta: Hyperparameters, record: MaximiseRecord
) -> Hyperparameters | None:
    """Give where other kernels start after one was trained from both starts, None after
    one that was trained from a given start.

    That is the smooth start if training went on from it. Else it is near the end
    of training: with half of the log variance, lengthscales so that the slopes of
    functions stay the same, and noise of :data:`FINE_NOISE` at least, because a squared
    exponential kernel has no Cholesky factor with the large variance and the small
    noise that some fits end with.
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
