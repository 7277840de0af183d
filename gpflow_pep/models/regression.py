"""Sparse Gaussian process regression by Power EP, in closed form."""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import RegressionData, TensorData
from gpflow.inducing_variables import InducingVariables
from gpflow.kernels import Kernel
from gpflow.likelihoods import Gaussian
from gpflow.mean_functions import MeanFunction
from gpflow.models.util import InducingVariablesLike

from ..covariances import prior_factor, project, project_blocks
from ..energies import collapsed
from ..energies.collapsed import RowSums
from ..ops import chunks
from ..ops.chunks import Rows, Sums
from ..ops.graph import converted_for, unconverted
from ..posterior import WhitenedGaussian, whitened_posterior
from . import checks
from .base import InternalDataModel
from .parameters import Power

_ADVICE = (
    "Likely causes are a hyperparameter that ran off to a huge or tiny value, or data far from unit"
    " scale. Standardise the data, put priors on the kernel's parameters, or start from others."
)


class PEPRegression(InternalDataModel):
    r"""
    Sparse GP regression by Power Expectation Propagation.

    It takes the place of :class:`gpflow.models.SGPR` (:math:`\alpha = 0`, Titsias 2009) and
    :class:`gpflow.models.GPRFITC` (:math:`\alpha = 1`, Snelson & Ghahramani 2006), and lies between
    them for other :math:`\alpha`; 0.5 often predicts best. The objective is

    .. math::

        \log Z = \log N(y; m, \bar K)
            - \tfrac12 \sum_b \tfrac{1 - \alpha_b}{\alpha_b}
              \log|I + \alpha_b \Sigma_b^{-1/2} D_b \Sigma_b^{-1/2}|,
        \qquad \bar K = Q + \mathrm{blkdiag}(\alpha_b D_b) + \Sigma

    with :math:`Q = K_{fu} K_{uu}^{-1} K_{uf}`, D the residual covariance :math:`K_{ff} - Q` within
    blocks (by default each row is a block), and :math:`\Sigma` the noise variances. Source: Bui,
    Yan & Turner (2017), sections 3.6 and 3.7 (there the last term has the wrong sign and lacks the
    determinant). At :math:`\alpha = 0` it is a lower bound of the log marginal likelihood,
    otherwise an estimate; inducing inputs at all data give exact regression for every
    :math:`\alpha`. Several outputs share the kernel, the noise and the inducing variables.

    Value and gradient are computed over chunks of rows, in memory O(M² + M chunk).

    :param data: X [N, D] and Y [N, P]; may be non-trainable ``tf.Variable``\ s, of unknown length
        too, to be replaced later by ``assign``.
    :param kernel: Any kernel of one output.
    :param inducing_variable: Inducing inputs Z [M, D], or any inducing variables that GPflow's
        ``Kuu`` and ``Kuf`` know for the kernel. M > N is allowed.
    :param alpha: The power, in [0, 1]: a number, or one for each row [N], or, with ``blocks``, one
        for each block [B] in ascending order of the labels. An assignable, non-trainable parameter.
    :param mean_function: Mean of f; zero by default.
    :param num_latent_gps: P by default; no other value makes sense.
    :param noise_variance: Initial variance of a Gaussian likelihood; 1 by default.
    :param likelihood: A :class:`gpflow.likelihoods.Gaussian` instead, also with noise that depends
        on the input.
    :param blocks: An integer label [N] for each row: rows with the same label are one factor, with
        their residual covariance in full (PITC). It costs the cube of a block's size. XLA cannot
        compile blocks that come in several chunks.
    :param chunk_size: The most rows that are worked on at a time; memory is then as small as that
        allows. None: chosen for speed, and where all rows fit
        ``gpflow_pep.ops.chunks.MEMORY_BUDGET``, intermediate results are kept for the gradient
        instead of computed twice.
    :raises ValueError: If an argument is not as said here.
    """

    def __init__(
        self,
        data: RegressionData,
        kernel: Kernel,
        inducing_variable: InducingVariablesLike,
        *,
        alpha: TensorData = 0.5,
        mean_function: MeanFunction | None = None,
        num_latent_gps: int | None = None,
        noise_variance: TensorData | None = None,
        likelihood: Gaussian | None = None,
        blocks: Any | None = None,
        chunk_size: int | None = None,
    ) -> None:
        X, Y = checks.check_data(data)
        checks.check_single_output(kernel)
        variables = checks.check_inducing_variable(inducing_variable, kernel, X)
        super().__init__(
            kernel,
            _check_likelihood(likelihood, noise_variance),
            mean_function,
            num_latent_gps=_check_num_latent(num_latent_gps, Y),
        )
        self.data = X, Y
        self.num_data = X.shape[0]
        self.inducing_variable: InducingVariables = variables
        checks.check_same_float(
            X.dtype,
            kernel=kernel,
            likelihood=self.likelihood,
            mean_function=self.mean_function,
            inducing_variable=variables,
        )
        self._chunk_size = checks.check_chunk_size(chunk_size)
        self._blocks = (
            None
            if blocks is None
            else chunks.plan_blocks(
                checks.check_blocks(blocks, self.num_data), self._rows_at_a_time()
            )
        )
        self.alpha = Power(alpha)
        self._check_alpha()

    @unconverted
    @check_shapes(
        "return: []",
    )
    def pep_log_marginal_likelihood(self) -> tf.Tensor:
        """
        Compute the Power EP estimate of the log marginal likelihood, see the class.

        :raises ValueError: If it is not finite; the message says what to try.
        """
        sums = self._sums()
        value = collapsed.log_marginal_likelihood(sums, self._num_rows_everywhere())
        return checks.require_finite(value, "log marginal likelihood", _ADVICE)

    # type-ignore is because of changed method signature:
    @unconverted
    @check_shapes(
        "return: []",
    )
    def upper_bound(self) -> tf.Tensor:
        """
        Compute an upper bound of the exact log marginal likelihood, whatever alpha is.

        As :meth:`gpflow.models.SGPR.upper_bound` (Titsias 2014), but with several outputs each
        log-determinant counts once for each of them, so that it is a bound then too.
        """
        no_slack = tf.zeros([], self.data[0].dtype)
        trace, *sums = self._sum_rows(self._slack_sums, no_slack)
        _, *slack_sums = self._sum_rows(self._slack_sums, trace)
        num_rows = self._num_rows_everywhere()
        bound = collapsed.upper_bound(RowSums(*sums), RowSums(*slack_sums), num_rows)
        return checks.require_finite(bound, "upper bound", _ADVICE)

    @unconverted
    @check_shapes(
        "return[0]: [M, P]",
        "return[1]: [M, M]",
    )
    def compute_qu(self) -> tuple[tf.Tensor, tf.Tensor]:
        """
        Compute mean and covariance of q(u); the outputs share the covariance.

        :return: mean, covariance
        """
        L = prior_factor(self.inducing_variable, self.kernel).L
        q_mu, q_sqrt = self._posterior_of_v()
        root = tf.matmul(L, q_sqrt[0])
        return tf.matmul(L, q_mu), tf.matmul(root, root, transpose_b=True)

    @unconverted
    def _posterior_of_v(self) -> WhitenedGaussian:
        sums = self._sums()
        q = whitened_posterior(sums.gram, sums.moment)
        return WhitenedGaussian(
            checks.require_finite(q.q_mu, "mean of q(u)", _ADVICE),
            checks.require_finite(q.q_sqrt, "covariance of q(u)", _ADVICE),
        )

    def _natural_of_v(self) -> list[tuple[tf.Tensor, tf.Tensor, tf.Tensor]]:
        sums = self._sums()
        W = prior_factor(self.inducing_variable, self.kernel).W
        columns = tf.split(sums.moment, self.data[1].shape[1], axis=1)
        return [(W, sums.gram, column) for column in columns]

    def _residual(self, X: tf.Tensor, Y: tf.Tensor) -> tf.Tensor:
        return Y - self._mean(X)

    def _noise(self, X: tf.Tensor) -> tf.Tensor:
        variance = converted_for((self.likelihood,), _variance_at)(self.likelihood, X)
        return tf.squeeze(variance, axis=-1)

    def _sums(self) -> RowSums:
        self._check_alpha()
        if self._blocks is None:
            return RowSums(*self._sum_rows(self._row_sums))
        return RowSums(*self._sum_blocks(self._block_sums))

    def _sum_rows(self, function: Callable[..., Sums], *shared: tf.Tensor) -> Sums:
        rows = [tf.convert_to_tensor(value) for value in self.data]
        if self.alpha.shape.rank == 1 and self._blocks is None:
            rows.append(tf.convert_to_tensor(self.alpha))
        return self._sum(function, chunks.row_chunks(rows, self._rows_at_a_time()), shared)

    def _sum_blocks(self, function: Callable[..., Sums]) -> Sums:
        assert self._blocks is not None  # for mypy
        X, Y = (tf.convert_to_tensor(value) for value in self.data)
        of_blocks = chunks.block_chunks(self._blocks)
        alpha = tf.broadcast_to(self.alpha, [len(self._blocks.names)])

        def take(k: Any) -> tuple[tf.Tensor, ...]:
            block, row = of_blocks.take(k)
            member = tf.maximum(row, 0)  # -1 where there is no row
            return row >= 0, tf.gather(X, member), tf.gather(Y, member), tf.gather(alpha, block)

        return self._sum(function, chunks.Chunks(of_blocks.count, take), ())

    def _sum(
        self, function: Callable[..., Sums], pieces: chunks.Chunks, shared: Sequence[tf.Tensor]
    ) -> Sums:
        W = prior_factor(self.inducing_variable, self.kernel).W
        return chunks.sum_over_chunks(function, pieces, (W, *shared), keep=self._fits_memory())

    def _row_sums(self, rows: Rows, W: tf.Tensor) -> RowSums:
        X, Y, *own_alpha = rows
        A, d = project(W, self.inducing_variable, self.kernel, X)
        alpha = own_alpha[0] if own_alpha else tf.convert_to_tensor(self.alpha)
        return collapsed.single_row_sums(A, d, self._noise(X), alpha, self._residual(X, Y))

    def _slack_sums(self, rows: Rows, W: tf.Tensor, slack: tf.Tensor) -> Sums:
        """Trace of the residual covariance, and sums with slack added to the noise."""
        X, Y, *_ = rows
        A, d = project(W, self.inducing_variable, self.kernel, X)
        none = tf.zeros_like(d)
        noise = self._noise(X) + slack
        sums = collapsed.single_row_sums(A, none, noise, none, self._residual(X, Y))
        return tf.reduce_sum(d), *sums

    def _block_sums(self, rows: Rows, W: tf.Tensor) -> RowSums:
        member, X, Y, alpha = rows
        A, D = project_blocks(W, self.inducing_variable, self.kernel, X)
        num_blocks, size = tf.shape(X)[0], tf.shape(X)[1]
        flat = tf.reshape(X, [num_blocks * size, X.shape[-1]])
        noise = tf.reshape(self._noise(flat), [num_blocks, size])
        r = tf.reshape(
            self._residual(flat, tf.reshape(Y, [num_blocks * size, Y.shape[-1]])), tf.shape(Y)
        )
        weight = tf.cast(member, X.dtype)
        return collapsed.block_sums(
            A * tf.reshape(weight, [-1]),
            D * weight[:, :, None] * weight[:, None, :],
            tf.where(member, noise, tf.ones_like(noise)),
            alpha,
            r * weight[:, :, None],
        )

    def _check_alpha(self) -> None:
        """alpha can be assigned and data replaced: check that they still belong together."""
        if self._blocks is not None:
            checks.check_alpha(self.alpha, len(self._blocks.names), "block")
        else:
            checks.check_alpha(self.alpha, self._known_num_rows(), "row")


def _check_likelihood(likelihood: Gaussian | None, noise_variance: TensorData | None) -> Gaussian:
    if likelihood is None:
        return Gaussian(1.0 if noise_variance is None else noise_variance)
    if noise_variance is not None:
        raise ValueError(
            "noise_variance and likelihood: got both, expected one or the other. Set the variance"
            " where the likelihood is created."
        )
    if not isinstance(likelihood, Gaussian):
        raise ValueError(
            f"likelihood: got {type(likelihood).__name__}, expected a gpflow.likelihoods.Gaussian:"
            " regression is in closed form for Gaussian noise only. Use gpflow_pep.models.PEP."
        )
    return likelihood


def _check_num_latent(num_latent_gps: int | None, Y: tf.Tensor) -> int | None:
    num_outputs = Y.shape[1]
    if num_latent_gps is None or num_outputs is None or num_latent_gps == num_outputs:
        return num_latent_gps or num_outputs
    raise ValueError(
        f"num_latent_gps: got {num_latent_gps}, expected {num_outputs}, one for each column of Y."
        " Leave it out."
    )


def _variance_at(likelihood: Gaussian, X: tf.Tensor) -> tf.Tensor:
    return likelihood.variance_at(X)
