"""Sparse Gaussian processes with any likelihood by Power EP."""

import warnings
from collections.abc import Callable

import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import RegressionData, TensorData
from gpflow.kernels import Kernel
from gpflow.likelihoods import Likelihood
from gpflow.mean_functions import MeanFunction
from gpflow.models.util import InducingVariablesLike

from .. import cavity, tilted
from ..covariances import Prior, independent_priors, prior_factor
from ..energies import point
from ..ops import chunks
from ..ops.chunks import Rows, Sums
from ..ops.constant import constant
from ..ops.graph import unconverted
from ..posterior import WhitenedGaussian, whitened_posterior
from ..sites import Marginals, Sites, no_sites
from ..sweep import (
    NaturalSums,
    ProjectedRows,
    natural_sums,
    project_latents,
    residual_variance,
    sweep,
)
from ..updates import FALLBACKS, SiteUpdateInfo, run_to_fixed_point
from . import checks
from .base import InternalDataModel
from .minibatch import MinibatchLoss
from .parameters import ConvergenceWarning, Power, SiteParameters

_ADVICE = (
    "Likely causes are a hyperparameter that ran off to a huge or tiny value, or targets that the"
    " likelihood cannot explain. Put priors on the parameters, start from others, or lower alpha."
)


class PEP(InternalDataModel):
    r"""
    Sparse GP model with any likelihood by Power Expectation Propagation.

    Each row n has a site, a Gaussian in the one direction of the inducing variables that the row
    sees. At the fixed point each site matches the moments of its tilted distribution, and the
    model's objective is the Power EP energy, :mod:`gpflow_pep.energies.point`: at
    :math:`\alpha = 0` the bound of :class:`gpflow.models.SVGP` at its best q, at
    :math:`\alpha = 1` expectation propagation. Source: Bui, Yan & Turner (2017), sections 3.3-3.5;
    Villacampa-Calvo & Hernández-Lobato (2020), section 3.1, for several latent functions.

    The sites are a cache: the objective and every prediction bring them to their fixed point for
    the parameters as they are. Where they are there already, that costs one sweep over the rows.

    :param data: X [N, D] and Y [N, P]; may be non-trainable ``tf.Variable``\ s.
    :param kernel: A kernel of one output, shared by all latent functions, or
        ``gpflow.kernels.SharedIndependent`` or ``SeparateIndependent``.
    :param likelihood: Any likelihood that :mod:`gpflow_pep.tilted` knows.
    :param inducing_variable: Inducing inputs Z [M, D] or any inducing variables that GPflow knows
        for the kernel; shared or separate independent ones where the kernel is of several outputs.
    :param alpha: The power, in [0, 1]: a number, or one for each row [N]. An assignable,
        non-trainable parameter.
    :param mean_function: Mean of f; zero by default.
    :param num_latent_gps: L; by default what the likelihood needs.
    :param chunk_size: The most rows that are worked on at a time; None: chosen.
    :param max_sweeps: The most sweeps over the rows in one run of the inner loop.
    :param tolerance: The run has converged when no site is further from its target, in standard
        deviations of q.
    :raises ValueError: If an argument is not as said here.
    """

    def __init__(
        self,
        data: RegressionData,
        kernel: Kernel,
        likelihood: Likelihood,
        inducing_variable: InducingVariablesLike,
        *,
        alpha: TensorData = 0.5,
        mean_function: MeanFunction | None = None,
        num_latent_gps: int | None = None,
        chunk_size: int | None = None,
        max_sweeps: int = 200,
        tolerance: float = 1e-6,
    ) -> None:
        X, Y = checks.check_data(data)
        checks.check_support(likelihood, Y)
        num_latent_gps = checks.check_num_latent(num_latent_gps, likelihood, Y)
        super().__init__(kernel, likelihood, mean_function, num_latent_gps=num_latent_gps)
        self.inducing_variable = checks.check_inducing_variable(inducing_variable, kernel, X)
        self._priors()  # refuses what it cannot take apart
        self.data = X, Y
        self.num_data = X.shape[0]
        checks.check_same_float(
            X.dtype,
            kernel=kernel,
            likelihood=likelihood,
            mean_function=self.mean_function,
            inducing_variable=self.inducing_variable,
        )
        self._chunk_size = checks.check_chunk_size(chunk_size)
        self.alpha = Power(alpha)
        checks.check_alpha(self.alpha, self._known_num_rows(), "row")
        self.max_sweeps, self.tolerance = checks.check_loop(max_sweeps, tolerance)
        self.sites = SiteParameters(no_sites(self._num_rows(), num_latent_gps, X.dtype))
        self._last_run = tf.Variable(tf.zeros([5], X.dtype), trainable=False)

    @unconverted
    @check_shapes(
        "return: []",
    )
    def pep_log_marginal_likelihood(self) -> tf.Tensor:
        """
        Compute the Power EP estimate of the log marginal likelihood at the sites' fixed point.

        :raises ValueError: If it is not finite; the message says what to try.
        """
        factors = self._prior_factors()
        sites, moments = self._infer(factors)
        value = self._energy(factors, self._rows(), sites, moments)
        return checks.require_finite(value, "log marginal likelihood", _ADVICE)

    @unconverted
    @check_shapes(
        "return[0]: [M, L]",
        "return[1]: [L, M, M]",
    )
    def compute_qu(self) -> tuple[tf.Tensor, tf.Tensor]:
        """
        Compute mean and covariance of q(u) of each latent function.

        :return: mean, covariance
        """
        q_mu, q_sqrt = self._posterior_of_v()
        means, covariances = [], []
        for prior in self._priors():
            L = prior_factor(prior.inducing_variable, prior.kernel).L
            for latent in prior.latents:
                root = tf.matmul(L, q_sqrt[latent])
                means.append((latent, tf.matmul(L, q_mu[:, latent : latent + 1])))
                covariances.append((latent, tf.matmul(root, root, transpose_b=True)))
        in_order = [
            [value for _, value in sorted(part, key=lambda x: x[0])]
            for part in (means, covariances)
        ]
        return tf.concat(in_order[0], axis=1), tf.stack(in_order[1])

    @unconverted
    def update_sites(
        self,
        max_sweeps: int | None = None,
        tolerance: float | None = None,
        damping: float | None = None,
    ) -> SiteUpdateInfo:
        """
        Bring the sites towards their fixed point for the parameters as they are.

        There is no need to call it before anything else; it serves to look, or to try other
        settings than the model's.

        :param max_sweeps: The most sweeps; the model's by default.
        :param tolerance: See the model; the model's by default.
        :param damping: The largest step, in (0, 1]; 1 by default.
        :raises ValueError: If an argument is outside its range.
        """
        max_sweeps = self.max_sweeps if max_sweeps is None else max_sweeps
        tolerance = self.tolerance if tolerance is None else tolerance
        checks.check_loop(max_sweeps, tolerance)
        if damping is not None and not 0.0 < damping <= 1.0:
            raise ValueError(f"damping: got {damping}, expected a step in (0, 1]. 1 is undamped.")
        factors = self._prior_factors()
        self._infer(
            factors, max_sweeps or self.max_sweeps, tolerance or self.tolerance, damping or 1.0
        )
        return self.last_inference

    def minibatch_training_loss_closure(
        self,
        batch_size: int,
        *,
        seed: int,
        compile: bool = True,
        refresh_every: int | None = None,
    ) -> Callable[[], tf.Tensor]:
        """
        Create the loss for stochastic optimisers, see :mod:`gpflow_pep.models.minibatch`.

        Each call takes the next batch, updates its sites and returns the batch's estimate of the
        training loss, in time that does not depend on N::

            loss = model.minibatch_training_loss_closure(200, seed=0)
            for _ in range(num_steps):
                optimizer.minimize(loss, model.trainable_variables)

        :param batch_size: Rows in a batch.
        :param seed: The same seed gives the same batches.
        :param compile: Whether to compile it.
        :param refresh_every: Steps between sums over all rows; one epoch by default.
        :raises ValueError: If an argument is outside its range.
        """
        loss = MinibatchLoss(self, batch_size, seed, refresh_every)
        return tf.function(loss.__call__, autograph=False) if compile else loss

    @property
    def last_inference(self) -> SiteUpdateInfo:
        """The record of the newest run of the inner loop."""
        sweeps, residual, converged, rejected, fallback = self._last_run.numpy()
        return SiteUpdateInfo(
            int(sweeps), float(residual), bool(converged), int(rejected), FALLBACKS[int(fallback)]
        )

    @unconverted
    @check_shapes(
        "return: [N]",
    )
    def loo_log_density(self) -> tf.Tensor:
        r"""
        Compute :math:`\log p(y_n | y_{-n})` of each row, approximately.

        The row's whole site is removed from q, whatever alpha is, and its likelihood averaged over
        what is left.

        :raises ValueError: If a row's cavity is improper then, or the result is not finite.
        """
        factors = self._prior_factors()
        sites, moments = self._infer(factors)
        X, Y, _ = self._rows()
        one = tf.ones([1, 1], X.dtype)
        without = cavity.remove(moments, sites, one)
        checks.require_finite(
            tf.where(without.e > 0.0, one, one / 0.0),
            "leave-one-out cavity variance",
            "A site is too precise to be removed; use a smaller alpha, or more inducing variables.",
        )

        def log_density(rows: Rows) -> Rows:
            X, Y, m, s = rows
            variance = s + residual_variance(project_latents(self._priors(), factors, X))
            mean = m + self._mean(X)
            power = tf.ones([], X.dtype)
            likelihood = self.likelihood
            return (tilted.log_power_expectation(likelihood, X, mean, variance, Y, power),)

        rows = (X, Y, without.m, without.s)
        (value,) = chunks.map_over_chunks(
            log_density, chunks.row_chunks(rows, self._rows_at_a_time())
        )
        return checks.require_finite(value, "leave-one-out log density", _ADVICE)

    def _priors(self) -> list[Prior]:
        return independent_priors(self.kernel, self.inducing_variable, self.num_latent_gps)

    def _num_inducing_of_latents(self) -> list[int]:
        """M of each latent function, which GPflow lets differ."""
        sizes = {
            latent: int(prior.inducing_variable.num_inducing)
            for prior in self._priors()
            for latent in prior.latents
        }
        return [sizes[latent] for latent in range(self.num_latent_gps)]

    def _prior_factors(self) -> list[tf.Tensor]:
        """W of each prior."""
        return [prior_factor(p.inducing_variable, p.kernel).W for p in self._priors()]

    def _rows(self) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        X, Y = (tf.convert_to_tensor(value) for value in self.data)
        checks.check_alpha(self.alpha, self._known_num_rows(), "row")
        return X, Y, tf.broadcast_to(self.alpha, tf.shape(X)[:1])

    def _project_rows(self, factors: list[tf.Tensor], X: tf.Tensor) -> ProjectedRows:
        priors = self._priors()
        keep = self._fits_memory(len(priors))
        return ProjectedRows(priors, factors, X, self._rows_at_a_time(), keep)

    def _sum_natural(self, factors: list[tf.Tensor], sites: Sites) -> NaturalSums:
        """Differentiable in the factors."""

        def of_chunk(rows: Rows, *factors: tf.Tensor) -> Sums:
            X, nu, tau = rows
            projections = project_latents(self._priors(), factors, X)
            return natural_sums(projections, Sites(nu, tau)).flatten()

        pieces = chunks.row_chunks((self._rows()[0], *sites), self._rows_at_a_time())
        sums = chunks.sum_over_chunks(of_chunk, pieces, factors, keep=self._fits_memory())
        return NaturalSums.unflatten(sums)

    def _energy(
        self,
        factors: list[tf.Tensor],
        rows: Rows,
        sites: Sites,
        moments: Marginals,
        totals: NaturalSums | None = None,
        scale: float = 1.0,
    ) -> tf.Tensor:
        """
        The energy of some rows; with totals, those of all rows, in place of what these rows add to
        the prior, whose terms and derivatives then stand for ``scale`` times as many.
        """
        X, Y, alpha = rows
        power = alpha[:, None]
        cavities = cavity.remove(moments, sites, power)
        *natural, ell = chunks.sum_over_chunks(
            self._energy_sums,
            chunks.row_chunks((X, Y, alpha, *sites, *cavities[:2]), self._rows_at_a_time()),
            factors,
            keep=self._fits_memory(),
        )
        if totals is not None:
            natural = [
                total + scale * (part - tf.stop_gradient(part))
                for total, part in zip(totals.flatten(), natural, strict=True)
            ]
        prior = map(point.prior_terms, *NaturalSums.unflatten(tuple(natural)))
        return tf.add_n(list(prior)) + scale * (
            ell + point.site_terms(moments, sites, cavities, power)
        )

    def _energy_sums(self, rows: Rows, *factors: tf.Tensor) -> Sums:
        X, Y, alpha, nu, tau, m, s = rows
        projections = project_latents(self._priors(), factors, X)
        mean, variance = m + self._mean(X), s + residual_variance(projections)
        ell = tilted.log_power_expectation(self.likelihood, X, mean, variance, Y, alpha)
        sums = natural_sums(projections, Sites(nu, tau))
        return (*sums.flatten(), tf.reduce_sum(ell))

    def _infer(
        self,
        factors: list[tf.Tensor],
        max_sweeps: int | None = None,
        tolerance: float | None = None,
        damping: float = 1.0,
    ) -> tuple[Sites, Marginals]:
        """Sites and marginals at the fixed point, constant for differentiation."""

        def run() -> list[tf.Tensor]:
            X, Y, alpha = self._rows()
            projected = self._project_rows(factors, X)
            rows = X, self._mean(X), Y, alpha
            sites, moments, info = run_to_fixed_point(
                lambda sites: sweep(self.likelihood, projected, rows, sites),
                self._initial_sites(),
                max_sweeps=max_sweeps or self.max_sweeps,
                tolerance=tolerance or self.tolerance,
                damping=damping,
            )
            return [*sites, *moments, tf.stack([tf.cast(x, sites.nu.dtype) for x in info])]

        nu, tau, m, s, info = constant(run)
        self.sites.assign(Sites(nu, tau))
        self._last_run.assign(info)
        if tf.executing_eagerly() and not self.last_inference.converged:
            warnings.warn(
                f"The sites did not converge: residual {self.last_inference.residual:.3g} after"
                f" {self.last_inference.num_sweeps} sweeps, expected below {self.tolerance:g}."
                f" {_ADVICE}",
                ConvergenceWarning,
                stacklevel=3,
            )
        return Sites(nu, tau), Marginals(m, s)

    def _initial_sites(self) -> Sites:
        """The cached sites; none where the data were replaced by another number of rows."""
        cached = self.sites.read()
        num_rows = self._num_rows()
        fresh = no_sites(num_rows, self.num_latent_gps, cached.nu.dtype)
        if cached.nu.shape[0] is not None and cached.nu.shape[0] == fresh.nu.shape[0]:
            return cached
        same = tf.equal(tf.shape(cached.nu)[0], num_rows)
        parts = [tf.cond(same, lambda a=a: a, lambda b=b: b) for a, b in zip(cached, fresh)]
        return Sites(*(tf.ensure_shape(part, fresh.nu.shape) for part in parts))

    @unconverted
    def _posterior_of_v(self) -> WhitenedGaussian:
        factors = self._prior_factors()
        sites, _ = self._infer(factors)
        parts = list(map(whitened_posterior, *self._sum_natural(factors, sites)))
        q_mu, q_sqrt = (tf.concat(part, axis) for part, axis in zip(zip(*parts), (1, 0)))
        return WhitenedGaussian(
            checks.require_finite(q_mu, "mean of q(u)", _ADVICE),
            checks.require_finite(q_sqrt, "covariance of q(u)", _ADVICE),
        )
