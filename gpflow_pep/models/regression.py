"""Sparse Gaussian process regression by Power EP, in closed form."""

from typing import Any

import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import RegressionData, TensorData
from gpflow.inducing_variables import InducingVariables
from gpflow.kernels import Kernel, SharedIndependent
from gpflow.likelihoods import Gaussian
from gpflow.mean_functions import MeanFunction
from gpflow.models.util import InducingVariablesLike

from .. import checks
from ..covariances import check_independent, project, split_outputs, whiten
from ..energies import collapsed, left_out, scaled
from ..energies.collapsed import Bound, RegressionPrior, RowSums
from ..energies.neighbours import rows_with_neighbours
from ..ops import chunks
from ..ops.blocks import block_chunks, plan_blocks
from ..sites.memory import Memory
from ..sites.posterior import Natural, posterior_factor
from ..tilted import traits
from .base import ADVICE
from .context_rows import ContextRowsModel
from .memory import hold
from .neighbours import NeighbourPlan, check_neighbours, check_single_power
from .rows import check_replacement, put_rows

#: Matrices of size M x N that automatic differentiation keeps: Kuf twice (its exponential and its
#: product with the variance), A, and A times the rows' precisions.
_KEPT_MATRICES = 4
#: By the conditional of f given u: for single rows, and for blocks of them.
_BOUNDS: dict[str, tuple[Bound, Bound]] = {
    "prior": (collapsed.single_rows, collapsed.blocks_of_rows),
    "scaled": (scaled.single_rows, scaled.blocks_of_rows),
}
_PRECISIONS = {"prior": collapsed.row_precision, "scaled": scaled.row_precision}


class PEPRegression(ContextRowsModel):
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
    :param kernel: Any kernel of one output, or ``gpflow.kernels.SharedIndependent``, one kernel for
        all columns of Y, which is the same model.
    :param inducing_variable: Inducing inputs Z [M, D], or any inducing variables that GPflow's
        ``Kuu`` and ``Kuf`` know for the kernel; under ``SharedIndependent`` those wrapped in
        ``gpflow.inducing_variables.SharedIndependentInducingVariables``. M > N is allowed.
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
    :param conditional: What f is given u in the approximation: ``"prior"``, as said above, or
        ``"scaled"`` (:mod:`gpflow_pep.energies.scaled`), where log Z is the tighter bound of
        Titsias (2025) at :math:`\alpha = 0`, grows with :math:`\alpha`, and is the same at 1. The
        posterior at 0 is the same too for the same hyperparameters; what is learnt differs.
    :param neighbours: m: the conditional of each row knows its m nearest predecessors too, which
        are found among near rows by the distances of the kernel and stay as they are until
        :meth:`refresh_neighbours`. 0: none. The objective is then that of :doc:`/neighbours`, a
        lower bound at :math:`\alpha = 0` too, whatever the conditional; alpha is a number.
    :param memory: What the ``remember()`` of another model returned: its rows count as well.
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
        conditional: str = "prior",
        neighbours: int = 0,
        memory: Memory | None = None,
        chunk_size: int | None = None,
    ) -> None:
        X, Y = checks.check_data(data)
        if not isinstance(kernel, SharedIndependent):
            checks.check_single_output(kernel)
        super().__init__(
            (X, Y),
            kernel,
            _check_likelihood(likelihood, noise_variance),
            inducing_variable,
            mean_function,
            checks.check_num_outputs(num_latent_gps, Y),
            alpha,
            chunk_size,
        )
        check_independent(kernel, self.inducing_variable, self.num_latent_gps, shared=True)
        self._conditional = checks.check_conditional(conditional)
        self.neighbour_plan: NeighbourPlan | None = None
        if blocks is not None:
            labels = checks.check_blocks(blocks, self.num_data)
            self._blocks = plan_blocks(labels, self._plan().chunk_size)
        if check_neighbours(neighbours, X, self.has_blocks):
            self.neighbour_plan = NeighbourPlan(X, self._of_one_output()[0], neighbours)
        self._powers()
        self.memory = hold(memory, self, shared=True)

    @property
    def has_blocks(self) -> bool:
        """Whether rows come in blocks (PITC)."""
        return self._blocks is not None

    @property
    def neighbours(self) -> int:
        """How many neighbours the conditional of each row knows; 0 for none."""
        return 0 if self.neighbour_plan is None else self.neighbour_plan.m

    def refresh_neighbours(self) -> None:
        """
        Find the neighbours of all rows anew, by the kernel's present hyperparameters.

        The objective is another one then, also that of functions that are compiled already.
        :func:`~gpflow_pep.training.full_batch.maximise` does this by itself. Do it where other
        data were assigned to a ``tf.Variable``.

        :raises ValueError: If the model has no neighbours, or more than rows.
        """
        check_neighbours(self.neighbours, self.data[0], self.has_blocks, needed=True)
        assert self.neighbour_plan is not None
        self.neighbour_plan.refresh(self.data[0], self._of_one_output()[0])

    @tf.autograph.experimental.do_not_convert
    @check_shapes(
        "return: []",
    )
    def maximum_log_likelihood_objective(self) -> tf.Tensor:
        """See :meth:`pep_log_marginal_likelihood`."""
        value = collapsed.log_marginal_likelihood(self._sums(), self._num_rows())
        return checks.require_finite(value, "log marginal likelihood", ADVICE)

    @tf.autograph.experimental.do_not_convert
    @check_shapes(
        "return: []",
    )
    def upper_bound(self) -> tf.Tensor:
        """
        Compute an upper bound of the exact log marginal likelihood, whatever alpha is.

        As :meth:`gpflow.models.SGPR.upper_bound` (Titsias 2014), but with several outputs each
        log-determinant counts once for each of them, so that it is a bound then too.

        :raises ValueError: If the model has a memory: no bound of the rows that are gone is known.
        """
        self._require_all_rows("upper_bound")
        rows, prior = self._rows(), self._prior()

        def slack_sums(rows: Any, W: tf.Tensor, slack: tf.Tensor) -> tuple[tf.Tensor, RowSums]:
            """Sum the residual variances, and the rows with slack added to the noise."""
            X, Y = rows
            A, d = project(W, prior.inducing_variable, prior.kernel, X)
            none, noise = tf.zeros_like(d[0]), prior.noise(X) + slack
            sums = collapsed.single_row_sums(A, none, noise, none, prior.residual(X, Y))
            return tf.reduce_sum(d), sums

        W = whiten(self.inducing_variable, self.kernel).W
        chunk_size, keep = self._plan()
        pieces = chunks.row_chunks(rows, chunk_size)
        options: dict[str, Any] = {"keep": keep, "parts": prior, "reduction": self.reduction}
        no_slack = tf.zeros([], W.dtype)
        trace, sums = chunks.sum_over_chunks(slack_sums, pieces, (W, no_slack), **options)
        _, with_slack = chunks.sum_over_chunks(slack_sums, pieces, (W, trace), **options)
        bound = collapsed.upper_bound(sums, with_slack, self._num_rows())
        return checks.require_finite(bound, "upper bound", ADVICE)

    @tf.autograph.experimental.do_not_convert
    @check_shapes(
        "return: []",
    )
    def bound_gap(self) -> tf.Tensor:
        """
        Compute how far, at most, the lower bound is from the exact log marginal likelihood.

        It is :meth:`upper_bound` less the objective, at least 0 up to rounding.

        :raises ValueError: If some alpha is not 0, or the model has a memory: log Z is no lower
            bound then.
        """
        with tf.control_dependencies(self._require_bound("bound_gap")):
            return self.upper_bound() - self.pep_log_marginal_likelihood()

    @tf.autograph.experimental.do_not_convert
    @check_shapes(
        "return: []",
    )
    def fitc_log_marginal_likelihood(self) -> tf.Tensor:
        """
        Compute what :meth:`gpflow.models.GPRFITC.fitc_log_marginal_likelihood` does: log Z at
        alpha 1, of rows that are each a factor of their own.

        :raises ValueError: If some alpha is not 1, or rows come in blocks or have neighbours.
        """
        if self.has_blocks or self.neighbours:
            raise ValueError(
                "fitc_log_marginal_likelihood: got a model with blocks or neighbours, expected one"
                " whose rows are each a factor of their own, as in FITC. Use"
                " pep_log_marginal_likelihood, which at alpha 1 and with blocks is that of PITC."
            )
        at_one = checks.require(
            tf.reduce_all(tf.equal(self._powers(), 1.0)),
            "fitc_log_marginal_likelihood: got a power alpha below 1, expected 1 for all rows. Use"
            " pep_log_marginal_likelihood, the estimate at any alpha (elbo at 0), or set the power"
            " first: model.alpha = 1.0.",
        )
        with tf.control_dependencies(at_one):
            return self.pep_log_marginal_likelihood()

    @check_shapes(
        "return[0]: [M, P]",
        "return[1]: [M, M]",
    )
    def compute_qu(self) -> tuple[tf.Tensor, tf.Tensor]:
        """
        Compute mean and covariance of q(u); the outputs share the covariance.

        :return: mean, covariance
        """
        mean, covariances = super().compute_qu()
        return mean, covariances[0]

    @tf.autograph.experimental.do_not_convert
    @check_shapes(
        "return: [N]",
    )
    def loo_log_density(self) -> tf.Tensor:
        r"""
        Compute :math:`\log p(y_n | y_{-n})` of each row: see :mod:`gpflow_pep.energies.left_out`.

        :raises ValueError: If rows come in blocks or have neighbours: they are then no factors of
            their own that could be left out.
        """
        if self.has_blocks or self.neighbours:
            raise ValueError(
                "loo_log_density: got a model with blocks or neighbours, expected one whose rows"
                " are each a factor of their own. Hold rows out instead."
            )
        prior, W = self._prior(), whiten(self.inducing_variable, self.kernel).W
        q, precision = posterior_factor(self.natural_of_v()), _PRECISIONS[self.conditional]
        value = chunks.map_over_chunks(
            lambda rows: left_out.log_density(prior, rows, W, q, precision),
            self._pieces(self._plan().chunk_size),
        )
        return checks.require_finite(value, "leave-one-out log density", ADVICE)

    @tf.autograph.experimental.do_not_convert
    def natural_of_v(self) -> Natural:
        """See :meth:`~gpflow_pep.models.base.InternalDataModel.natural_of_v`."""
        return self._sums().natural

    def _of_one_output(self) -> tuple[Kernel, InducingVariables]:
        """Kernel and inducing variables without what says that all outputs share them."""
        kernel, variables = self.kernel, self.inducing_variable
        if isinstance(kernel, SharedIndependent):
            return kernel.kernel, split_outputs(variables)[0]
        return kernel, variables

    def _prior(self) -> RegressionPrior:
        return RegressionPrior(*self._of_one_output(), self.mean_function, self.likelihood)

    def _plan(self) -> chunks.Plan:
        num_inducing = (self.inducing_variable.shape or (None,))[0]
        if self.neighbour_plan is not None:
            return self.neighbour_plan.plan(self.chunk_size, num_inducing, self.data[0])
        return chunks.plan(self.chunk_size, num_inducing, self.data[0], _KEPT_MATRICES)

    def _num_rows(self) -> tf.Tensor:
        X = self.data[0]
        return self.reduction.total(tf.cast(tf.shape(X)[0], X.dtype))

    def _sums(self) -> RowSums:
        prior, W = self._prior(), whiten(self.inducing_variable, self.kernel).W
        bound = _BOUNDS[self.conditional][self.has_blocks]
        if self.neighbour_plan is not None:
            bound = rows_with_neighbours
        chunk_size, keep = self._plan()
        sums = chunks.sum_over_chunks(
            lambda rows, W: bound(prior, rows, W),
            self._pieces(chunk_size),
            (W,),
            keep=keep,
            parts=prior,
            reduction=self.reduction,
        )
        return collapsed.sums_and_memory(sums, self._memory_terms(W))

    def _pieces(self, chunk_size: int) -> chunks.Chunks:
        """Cut the rows, as the bound takes them."""
        X, Y = self._rows()
        alpha = self._powers()
        if self.neighbour_plan is not None:
            return self.neighbour_plan.chunks((X, Y), alpha, chunk_size)
        if self._blocks is None:
            return chunks.row_chunks((X, Y, alpha), chunk_size)
        of_blocks = block_chunks(self._blocks)
        alpha = tf.broadcast_to(alpha, [len(self._blocks.names)])

        def take(k: Any) -> tuple[tf.Tensor, ...]:
            block, row = of_blocks.take(k)
            member = tf.maximum(row, 0)  # -1 where there is no row
            return row >= 0, tf.gather(X, member), tf.gather(Y, member), tf.gather(alpha, block)

        return chunks.Chunks(of_blocks.count, take)

    def _assign_data(self, data: RegressionData) -> None:
        given = self._check_data(data)
        num_rows = int(tf.shape(given[0])[0])
        check_replacement(self.data, given)
        if self._blocks is not None and num_rows != self.num_data:
            raise ValueError(
                f"data: got {num_rows} rows for a model with blocks of {self.num_data}, expected as"
                " many: each has the block of the row in its place. Make a new model."
            )
        if self._blocks is None and self.alpha.shape.rank and num_rows != self.num_data:
            raise ValueError(
                f"data: got {num_rows} rows for a model with {self.num_data} powers, expected as"
                " many. Set one for all first, model.alpha = 0.5."
            )
        check_neighbours(self.neighbours, given[0], self.has_blocks)
        put_rows(self, given)
        if self.neighbour_plan is not None:
            kernel, _ = self._of_one_output()
            if isinstance(self.data[0], tf.Variable):
                self.neighbour_plan.refresh(self.data[0], kernel)
            else:
                self.neighbour_plan = NeighbourPlan(self.data[0], kernel, self.neighbours)

    def _powers(self) -> tf.Tensor:
        if self.neighbour_plan is not None:
            return check_single_power(self.alpha)
        if self._blocks is None:
            return checks.check_alpha(self.alpha, chunks.num_rows(self.data[0]), "row")
        return checks.check_alpha(self.alpha, len(self._blocks.names), "block")


def _check_likelihood(likelihood: Gaussian | None, noise_variance: TensorData | None) -> Gaussian:
    if likelihood is None:
        if noise_variance is None:
            return Gaussian(1.0)
        checks.check_noise_variance(noise_variance)
        return Gaussian(noise_variance)
    if noise_variance is not None:
        raise ValueError(
            "noise_variance and likelihood: got both, expected one or the other. Set the variance"
            " where the likelihood is created."
        )
    if not traits(likelihood).is_gaussian:
        raise ValueError(
            f"likelihood: got {type(likelihood).__name__}, expected a gpflow.likelihoods.Gaussian:"
            " regression is in closed form for Gaussian noise only. Use gpflow_pep.models.PEP."
        )
    return likelihood
