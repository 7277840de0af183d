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
from functools import partial
from typing import Any, NamedTuple

import gpflow
import numpy as np
import scipy.optimize
from gpflow.base import AnyNDArray
from gpflow.kernels import RBF, IsotropicStationary, Kernel
from scipy.linalg import lapack

from ...likelihoods import LogLinear
from ...models import PEPRegression
from ...scoring.likelihoods import FARTHEST_INPUT, LARGEST_EXPONENT
from ...scoring.units import Units
from .full_batch import Ascent, MaximiseRecord, one_blas_thread
from .points import OVER

#: Standard deviations of the priors of all weights of the noise together, so that each
#: of D has that over the root of D, and of a and b. On 18 generated tables of 120 and
#: 300 rows, twice each, 0.3 for each weight costs .004 nats a row (.06 with 20 inputs),
#: and 1.0 for a and b .008.
WEIGHTS_SD, WARP_SD = 0.6, 0.5
#: The smallest noise variance, that of GPflow's Gaussian likelihood, and where training
#: starts.
LEAST_NOISE, NOISE = 1e-6, 0.1
#: Limits of the logarithms of lengthscales, variance and noise, of w, a and b, and of
#: log v.
LIMITS = (-5.0, 7.0), (-8.0, 7.0), (-13.0, 3.0), (-3.0, 3.0), (-2.5, 2.5), (-9.0, 5.0)
#: The lengthscale of the functions of one input, and the sum of v at the start. On 33
#: tables, generated and scikit-learn's, of 100 to 720 rows they gain the default
#: estimator .013 ± .004 nats a row and 1.5 ± .5% of RMSE; with lengthscales of 1.5 and
#: 3 .011 and .010 nats, and from sums of .1 and 1 .012 and .004.
SMOOTH, ADDITIVE = 2.0, 0.3
#: What the factors of their correlations leave out: below the least noise by a factor
#: of 100.
TRUNCATED = 1e-8
#: Training stops at so small a relative gain of a step, or where no derivative is
#: larger. On 30 tables 3e-7 takes a quarter more evaluations for .001 ± .001 nats a
#: row.
GAIN, FLAT = 3e-6, 1e-3


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
    parts = [
        RBF(v, SMOOTH, active_dims=[d]) for d, v in enumerate(variances) if v > 0.0
    ]
    for part in parts:
        gpflow.set_trainable(part.lengthscales, False)
    return gpflow.kernels.Sum([kernel, *parts]) if parts else kernel


def smooth_factors(X: AnyNDArray) -> tuple[AnyNDArray, AnyNDArray]:
    """Factor the correlations of the functions of each input,
    :math:`\\sum_d v_d F_d F_d^T`, by incomplete Cholesky factors.

    :param X: Standardised inputs, [N, D].
    :return: All columns of F, [N, R], R some 10 D; and of which input each is, [R].
    """
    columns: list[AnyNDArray] = []
    owners: list[int] = []
    for d, x in enumerate(X.T):
        F, rest = np.zeros([len(x), 0]), np.ones(len(x))
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
        kernel, *parts = getattr(model.kernel, "kernels", [model.kernel])
        noise = getattr(model.likelihood, "variance", None)
        is_plain = all(
            type(part) is RBF and np.asarray(part.active_dims).shape == (1,)
            for part in parts
        )
        if not isinstance(kernel, IsotropicStationary) or noise is None or not is_plain:
            return None
        D = model.data[0].shape[1]
        lengthscales: AnyNDArray = np.broadcast_to(kernel.lengthscales.numpy(), [D])
        c = np.log(model.likelihood.variance_at(np.zeros([1, D])).numpy()[0, 0])
        w = noise.weights.numpy()[:, 0] if isinstance(noise, LogLinear) else np.zeros(D)
        log_v = np.full(D, -np.inf)
        for part in parts:
            log_v[part.active_dims] = np.log(part.variance.numpy())
        log_variance = np.log(kernel.variance.numpy())
        return cls(np.log(lengthscales), log_variance, c, w, skew, tails, log_v)

    @property
    def units(self) -> Units:
        """The units of t, of standardised targets."""
        return Units(skew=self.skew, tails=self.tails)

    def model(
        self, X: AnyNDArray, y: AnyNDArray, kernel: str, varying: bool
    ) -> PEPRegression:
        """Make the model that predicts t, with inducing points at all rows that differ.

        :param varying: Whether the noise is a function of the inputs.
        """
        variance, lengthscales = (
            np.exp(self.log_variance),
            np.exp(self.log_lengthscales),
        )
        noise: Any = max(np.exp(self.log_noise), 1.001 * LEAST_NOISE)
        if varying:
            noise = LogLinear(X.shape[1], noise)
            noise.weights.assign(self.noise_weights[:, None])
        _, first = np.unique(X, axis=0, return_index=True)
        points = gpflow.inducing_variables.InducingPoints(X[np.sort(first)])
        gpflow.set_trainable(points, False)
        return PEPRegression(
            (X, self.units.transform(y)[:, None]),
            additive(
                KERNELS[kernel][0](variance, lengthscales), np.exp(self.log_additive)
            ),
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
    :param factors: Of the additive kernel, by :func:`smooth_factors`.
    """
    log_lengthscales, log_variance, c, w, a, b, log_additive = theta
    (N, D), v = X.shape, np.exp(log_additive)
    U = X * np.exp(-log_lengthscales)
    squares = np.sum(U * U, axis=1)
    r2 = squares[:, None] + squares
    r2 -= 2.0 * U @ U.T
    K, by_r2 = KERNELS[kernel][1](np.maximum(r2, 0.0, out=r2), log_variance)
    features = np.clip(X, -FARTHEST_INPUT, FARTHEST_INPUT)
    exponent = np.clip(features @ w, -LARGEST_EXPONENT, LARGEST_EXPONENT)
    noise = np.maximum(np.exp(c + exponent), LEAST_NOISE)
    F, owners = (np.zeros([N, 0]), np.zeros(0, int)) if factors is None else factors
    # The transpose of a symmetric matrix is in LAPACK's order.
    covariance = K + (F * v[owners]) @ F.T
    covariance[np.diag_indices(N)] += noise
    L, failed = lapack.dpotrf(covariance.T, lower=1, overwrite_a=1)
    if failed or not np.isfinite(L[-1, -1]):
        return -np.inf, np.zeros(3 * D + 4)
    t, stretched = theta.units.transform(y), np.exp(b) * np.arcsinh(y)
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
    precision, warp_precision = len(w) / WEIGHTS_SD**2, 1.0 / WARP_SD**2
    value -= 0.5 * (precision * (w @ w) + warp_precision * (a**2 + b**2))
    by_noise = np.diag(W) * noise * (noise > LEAST_NOISE)
    by_variance = np.vdot(W, K)
    by_additive = v * np.bincount(owners, np.sum(F * (W @ F), axis=0), D)
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
    parts = (
        by_lengthscale,
        by_variance,
        np.sum(by_noise),
        by_weight,
        *by_warp,
        by_additive,
    )
    return float(value), np.hstack(parts)


def fit_exact(
    X: AnyNDArray,
    y: AnyNDArray,
    start: Hyperparameters | None = None,
    *,
    kernel: str = "matern52",
    varying: bool = False,
    warp: bool = False,
    max_iterations: int = 150,
    deadline: float = np.inf,
) -> tuple[Hyperparameters, MaximiseRecord]:
    """Train by L-BFGS on all rows, standardised inputs X [N, D] and targets y [N].

    :param start: Where training starts, without what is not trained; ignored for
        another D.
    :param kernel: One of :data:`KERNELS`.
    :param varying: Whether w is trained.
    :param warp: Whether a and b are trained.
    :param deadline: When ``time.perf_counter`` is past it no further step is taken.
    """
    D = X.shape[1]
    is_additive = kernel == "additive"
    log_v = np.log(ADDITIVE / D) if is_additive else -np.inf
    values, repeats = (
        [0.5 * np.log(D), 0.0, np.log(NOISE), 0.0, log_v],
        [D, 1, 1, D + 2, D],
    )
    free = np.repeat([True, varying, warp, is_additive], [D + 2, D, 2, D])
    limits = np.repeat(LIMITS, [D, 1, 1, D, 2, D], axis=0)[free]
    best, vector = -np.inf, np.repeat(values, repeats)
    factors = smooth_factors(X) if is_additive else None
    if start is not None and len(start.log_lengthscales) == D:
        vector[free] = np.hstack(start)[free]
    fixed, began = vector, time.perf_counter()
    losses: list[float] = []

    def loss(x: AnyNDArray) -> tuple[float, AnyNDArray]:
        nonlocal best, vector
        tried = fixed.copy()
        tried[free] = x
        value, gradient = evidence(
            Hyperparameters.of_vector(tried), X, y, kernel, factors
        )
        if value > best:
            best, vector = value, tried
        return (-value if np.isfinite(value) else 1e10), -gradient[free]

    def step(intermediate_result: scipy.optimize.OptimizeResult) -> None:
        losses.append(float(intermediate_result.fun))
        if time.perf_counter() > deadline:
            raise StopIteration

    options = {"maxiter": max_iterations, "ftol": GAIN, "gtol": FLAT}
    minimize = partial(
        scipy.optimize.minimize, jac=True, method="L-BFGS-B", options=options
    )
    with one_blas_thread():
        end = minimize(
            loss, np.clip(vector[free], *limits.T), bounds=limits, callback=step
        )
    now = time.perf_counter()
    # A line search that finds no step ends where the evidence is all but flat.
    converged = end.nit < max_iterations and now <= deadline
    message = OVER if now > deadline else str(end.message)
    counts = end.nit, end.nfev, 0, now - began
    ascent = Ascent(best, *counts, converged, message, np.array(losses))
    return Hyperparameters.of_vector(vector), MaximiseRecord(*ascent, 0.0, (ascent,))
