"""Sparse Gaussian processes with any likelihood by Power EP."""

import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import RegressionData, TensorData
from gpflow.kernels import Kernel
from gpflow.likelihoods import Likelihood
from gpflow.mean_functions import MeanFunction
from gpflow.models.util import InducingVariablesLike

from .. import cavity, tilted
from ..covariances import prior_factor
from ..ops import chunks
from ..ops.chunks import Rows
from ..ops.graph import unconverted
from ..sites import no_sites
from ..sweep import (
    project_latents,
    residual_variance,
)
from ..tilted import check_num_latent, check_support
from ..updates import SiteUpdateInfo
from . import checks
from .inference import ADVICE
from .minibatch import MinibatchLoss
from .parameters import Power, SiteParameters
from .rows import ReplaceableRows


class PEP(ReplaceableRows):
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
        check_support(likelihood, Y)
        num_latent_gps = check_num_latent(num_latent_gps, likelihood, Y)
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
        self._rows_version = tf.Variable(0, trainable=False)

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
        return checks.require_finite(value, "log marginal likelihood", ADVICE)

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
        *,
        sequential: bool = False,
    ) -> SiteUpdateInfo:
        """
        Bring the sites towards their fixed point for the parameters as they are.

        There is no need to call it before anything else; it serves to look, or to try other
        settings than the model's.

        :param max_sweeps: The most sweeps; the model's by default.
        :param tolerance: See the model; the model's by default.
        :param damping: The largest step, in (0, 1]; 1 by default.
        :param sequential: Update one row after another, as the papers do; each sweep is one pass,
            and one pass from no sites is assumed-density filtering. Slow, compiled at each
            call, in memory for M x N numbers, and for small data or few rows only: see
            :mod:`gpflow_pep.sequential`.
        :raises ValueError: If an argument is outside its range.
        """
        max_sweeps = self.max_sweeps if max_sweeps is None else max_sweeps
        tolerance = self.tolerance if tolerance is None else tolerance
        checks.check_loop(max_sweeps, tolerance)
        if damping is not None and not 0.0 < damping <= 1.0:
            raise ValueError(f"damping: got {damping}, expected a step in (0, 1]. 1 is undamped.")

        def infer() -> None:
            self._infer(self._prior_factors(), max_sweeps, tolerance, damping or 1.0, sequential)

        if sequential:  # row after row is too slow outside a graph
            checks.check_not_sharded("update_sites(sequential=True)", "Leave out sequential.")
            tf.function(infer, autograph=False)()
            self._warn_unless_converged()
        else:
            infer()
        return self.last_inference

    def minibatch_training_loss_closure(
        self,
        batch_size: int,
        *,
        seed: int,
        compile: bool = True,
        refresh_every: int | None = None,
    ) -> MinibatchLoss:
        """
        Create the loss for stochastic optimisers, see :mod:`gpflow_pep.models.minibatch`.

        Each call takes the next batch, updates its sites and returns the batch's estimate of the
        training loss, in time that does not depend on N::

            loss = model.minibatch_training_loss_closure(200, seed=0)
            for _ in range(num_steps):
                optimizer.minimize(loss, model.trainable_variables)

        :func:`fit <gpflow_pep.training.loop.fit>` takes it too.

        :param batch_size: Rows in a batch.
        :param seed: The same seed gives the same batches.
        :param compile: Whether to compile it.
        :param refresh_every: Steps between sums over all rows; one epoch by default.
        :raises ValueError: If an argument is outside its range.
        """
        return MinibatchLoss(self, batch_size, seed, refresh_every, compile)

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
        return checks.require_finite(value, "leave-one-out log density", ADVICE)
