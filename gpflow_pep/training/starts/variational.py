r"""
Greedy forward selection by the variational bound (Titsias 2009, section 3.2).

With inducing points Z the bound is :math:`\log N(y; 0, Q + \sigma^2 I) - \tfrac{1}{2\sigma^2}
\mathrm{tr}(K_{ff} - Q)`. One more, :math:`x_i`, adds :math:`a aᵀ` to Q with
:math:`a = r_i / s_i`, where :math:`r_i = \mathrm{cov}(f, f_i | f_Z)`, N numbers, and
:math:`s_i^2 = \mathrm{var}(f_i | f_Z)`. With :math:`S = Q + \sigma^2 I` the bound rises by

.. math::

    \tfrac12 \frac{(aᵀ S^{-1} y)^2}{1 + aᵀ S^{-1} a} - \tfrac12 \log(1 + aᵀ S^{-1} a)
    + \frac{aᵀ a}{2 \sigma^2} \ge 0

Departing from the paper, all that this needs of N is kept as products between candidates:
:math:`r_iᵀ r_j`, :math:`r_iᵀ S^{-1} r_j` and :math:`r_iᵀ S^{-1} y`. One pass over the rows gives
them for empty Z, and each choice changes them by a few matrices of rank one. So each of C
candidates costs O(N C) once and O(M) at each choice, instead of O(N M) at each, and no N x M matrix
is kept.
"""

from typing import Any

import gpflow
import numpy as np
from gpflow import Parameter
from gpflow.base import AnyNDArray
from gpflow.config import default_jitter
from gpflow.inducing_variables import InducingPoints
from gpflow.kernels import Kernel

from ...engine import checks
from ...models import PEPRegression
from .rows import CompiledKernel, as_data, chunks, distinct_rows

#: Candidates, if that is more than twice as many as are chosen.
MIN_CANDIDATES = 2000


def greedy_variational(
    data: Any,
    M: int,
    *,
    kernel: Kernel,
    noise_variance: float | Parameter,
    seed: int,
    num_candidates: int | None = None,
    rounds: int = 1,
    training_steps: int = 0,
) -> InducingPoints:
    """
    Choose the row next that raises the variational bound of regression most.

    The bound is that of :class:`gpflow.models.SGPR`, with GPflow's default jitter and mean 0. It
    never falls, neither by a choice (Titsias 2009, proposition 1) nor by training.

    :param data: X [N, D] and Y [N, P]; subtract a mean function from Y first.
    :param kernel: The kernel, with hyperparameters that suit the data or are to be trained.
    :param noise_variance: Variance of the Gaussian noise, or the parameter that holds it.
    :param seed: Of the candidates.
    :param num_candidates: How many rows are candidates, a random working set of rows that differ;
        at least as many as are chosen. None: :data:`MIN_CANDIDATES`, or 2 M if that is more.
    :param rounds: Choose in so many parts, as equal as possible, each from candidates drawn anew.
    :param training_steps: At most so many steps of L-BFGS after each round, on the bound with the
        rows chosen so far: they train the kernel's parameters, and ``noise_variance`` where that is
        a parameter, such as ``model.likelihood.variance``, in place.
    :raises ValueError: If fewer than M rows differ.
    """
    X, Y = as_data(data)
    checks.check_number(M, len(X))
    checks.check_single_output(kernel)
    checks.check_number(rounds, M, "rounds")
    if num_candidates is None:
        num_candidates = min(len(X), max(MIN_CANDIDATES, 2 * M))
    checks.check_number(num_candidates, len(X), "num_candidates")
    checks.check_seed(training_steps, "training_steps")
    checks.check_seed(seed)
    checks.check_noise_variance(noise_variance)
    likelihood = gpflow.likelihoods.Gaussian(noise_variance)
    if isinstance(noise_variance, Parameter):
        likelihood.variance = noise_variance  # GPflow took a copy
    rng = np.random.default_rng(seed)
    chosen: list[int] = []
    for k in range(1, rounds + 1):
        order = np.concatenate([np.array(chosen, dtype=np.intp), rng.permutation(len(X))])
        rows = distinct_rows(X, order, M, limit=len(chosen) + num_candidates)
        noise = float(np.squeeze(likelihood.variance_at(X[:1])))
        candidates = _Candidates((X, Y), rows, M, CompiledKernel(kernel, X), noise)
        for i in range(len(chosen)):
            candidates.choose(i)
        while len(chosen) < M * k // rounds:
            best = int(np.argmax(candidates.gains()))
            candidates.choose(best)
            chosen.append(int(rows[best]))
        if training_steps > 0:
            _train((X, Y), kernel, likelihood, X[chosen], training_steps)
    return InducingPoints(X[chosen])


class _Symmetric:
    """
    A symmetric matrix that changes by matrices of low rank, of which a row or the diagonal is
    wanted: ``start - leftᵀ right``.
    """

    def __init__(self, start: AnyNDArray, max_changes: int) -> None:
        self.start = start
        self.diagonal = np.diagonal(start).copy()
        self.left = np.empty([max_changes, len(start)])
        self.right = np.empty([max_changes, len(start)])
        self.num_changes = 0

    def row(self, i: int) -> AnyNDArray:
        k = self.num_changes
        return np.asarray(self.start[i] - self.left[:k, i] @ self.right[:k])

    def subtract(self, *pairs: tuple[AnyNDArray, AnyNDArray]) -> None:
        """Take away the outer product of each pair."""
        for left, right in pairs:
            self.left[self.num_changes], self.right[self.num_changes] = left, right
            self.diagonal -= left * right
            self.num_changes += 1


class _Candidates:
    """C candidates, of which at most M are to be chosen; see the module for the symbols."""

    def __init__(
        self,
        data: tuple[AnyNDArray, AnyNDArray],
        rows: AnyNDArray,
        M: int,
        prior: CompiledKernel,
        noise: float,
    ) -> None:
        X, Y = data
        Z = X[rows]
        prior.variances(Z)  # refuses what is not finite
        products = np.zeros([len(Z), len(Z)])
        moments = np.zeros([len(Z), Y.shape[1]])
        for part in chunks(len(X), len(Z)):
            K = prior.between(Z, X[part])
            products += K @ K.T
            moments += K @ Y[part]
        self.covariance = _Symmetric(prior.between(Z, Z), M)  # cov(f_i, f_j | f_Z)
        self.products = _Symmetric(products, 2 * M)  # rᵢᵀ rⱼ
        self.whitened = _Symmetric(products / noise, 3 * M)  # rᵢᵀ S⁻¹ rⱼ
        self.moments = moments / noise  # rᵢᵀ S⁻¹ y, for each output
        self.noise = noise
        self.is_chosen = np.zeros(len(Z), dtype=bool)

    def gains(self) -> AnyNDArray:
        """By how much each candidate would raise the bound; -inf for those that are chosen."""
        variance = np.maximum(self.covariance.diagonal, 0.0) + default_jitter()
        ratio = np.maximum(self.whitened.diagonal, 0.0) / variance
        fit = np.sum(np.square(self.moments), axis=1) / variance / (1.0 + ratio)
        trace = self.products.diagonal / variance / self.noise
        gain = 0.5 * (fit + self.moments.shape[1] * (trace - np.log1p(ratio)))
        return np.where(self.is_chosen, -np.inf, gain)

    def choose(self, i: int) -> None:
        """Take candidate i into Z."""
        self.is_chosen[i] = True
        scale = np.sqrt(max(self.covariance.diagonal[i], 0.0) + default_jitter())
        rows = (self.covariance.row(i), self.products.row(i), self.whitened.row(i))
        along, p, c = (row / scale for row in rows)  # cov(fⱼ, a), rⱼᵀ a, rⱼᵀ S⁻¹ a
        q, s, t = p[i] / scale, c[i] / scale, self.moments[i] / scale  # aᵀa, aᵀS⁻¹a, aᵀS⁻¹y
        # First S grows by a aᵀ, then every r loses its part along a.
        root = np.sqrt(1.0 + s)
        d = (c - 0.5 * s * along) / (1.0 + s)
        self.whitened.subtract((c / root, c / root), (along, d), (d, along))
        self.moments -= np.outer(c + along, t / (1.0 + s))
        b = p - 0.5 * q * along
        self.products.subtract((along, b), (b, along))
        self.covariance.subtract((along, along))


def _train(
    data: tuple[AnyNDArray, AnyNDArray],
    kernel: Kernel,
    likelihood: gpflow.likelihoods.Gaussian,
    Z: AnyNDArray,
    steps: int,
) -> None:
    """Take steps on the bound with inducing points Z."""
    model = PEPRegression(data, kernel, InducingPoints(Z), alpha=0.0, likelihood=likelihood)
    gpflow.set_trainable(model.inducing_variable, False)
    gpflow.optimizers.Scipy().minimize(
        model.training_loss, model.trainable_variables, options={"maxiter": steps}
    )
