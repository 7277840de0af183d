"""Sparse Gaussian process regression by Power EP, in closed form."""

from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import AnyNDArray, MeanAndVariance, RegressionData, TensorData
from gpflow.kernels import Kernel, SharedIndependent
from gpflow.likelihoods import Gaussian
from gpflow.mean_functions import MeanFunction
from gpflow.models.util import InducingVariablesLike

from ..engine import checks, factors
from ..engine.energies import collapsed
from ..engine.energies.collapsed import RowSums
from ..engine.factors.entries import check_entries
from ..engine.factors.moments import check_noise
from ..engine.numerics import chunks
from ..engine.predictions.context_rows import Context
from ..engine.prior import Parts, PartsBySubstitution, is_mixed, split_outputs
from ..engine.prior.evaluate import unconverted
from ..engine.sites.memory import Memory
from ..engine.sites.posterior import (
    Natural,
    PosteriorFactor,
    add_memory,
    posterior_factor,
)
from ..likelihoods import PerOutput
from . import mixed
from .arguments import mixed_arguments, refuse_mixed
from .base import ADVICE, InternalDataModel, PowerEPModel
from .context_predictions import ContextPredictions
from .memory import AttachedMemory
from .rows import Blocks, Cut, Data


class PEPRegression(ContextPredictions, InternalDataModel, PowerEPModel):
    r"""Sparse GP regression by Power Expectation Propagation::

        model = pep.PEPRegression((X, Y), gpflow.kernels.RBF(), X[:20], alpha=0.5)
        pep.training.maximise(model)
        mean, variance = model.predict_y(X_new)

    The model equals :class:`gpflow.models.SGPR` at :math:`\alpha = 0` (Titsias 2009)
    and :class:`gpflow.models.GPRFITC` at :math:`\alpha = 1` (Snelson & Ghahramani
    2006), and lies between them for other :math:`\alpha`; 0.5 often predicts best. The
    objective is the Power EP energy in closed form,
    :mod:`gpflow_pep.engine.energies.collapsed`: a lower bound of the log marginal
    likelihood at :math:`\alpha = 0`, and otherwise an estimate. Inducing inputs at all
    data give exact regression for every :math:`\alpha`. Source: Bui, Yan & Turner
    (2017), sections 3.6 and 3.7. Several outputs share the kernel, the noise and the
    inducing variables. Value and gradient are computed over chunks of rows, in memory
    O(M² + M chunk).

    :param data: Inputs X [N, D] and targets Y [N, P]. Both may be non-trainable
        ``tf.Variable``\ s, also of unknown length, whose values are replaced later by
        ``assign``. NaN in Y marks a missing target: each output is then trained on the
        rows that have it.
    :param kernel: Any kernel of one output; all columns of Y share it.
        ``gpflow.kernels.SharedIndependent`` gives the same model.
    :param inducing_variable: Inducing inputs Z [M, D], or any inducing variables with a
        registered ``Kuu`` and ``Kuf`` for the kernel; under ``SharedIndependent``,
        wrapped in ``gpflow.inducing_variables.SharedIndependentInducingVariables``. M >
        N is allowed.
    :param alpha: The power, in [0, 1]: a number, or one number for each row [N], or,
        with ``blocks``, one for each block [B] in ascending order of the labels. It is
        a parameter that can be assigned and is not trained.
    :param mean_function: The mean of f; zero by default.
    :param num_latent_gps: The number of outputs P, which is also the default; other
        values raise an error.
    :param noise_variance: Initial variance of a Gaussian likelihood; 1 by default.
    :param likelihood: A :class:`gpflow.likelihoods.Gaussian`, instead of
        ``noise_variance``; its noise may depend on the input.
    :param blocks: An integer label for each row, [N]. Rows with the same label are one
        factor with their full residual covariance (PITC). The cost grows with the cube
        of a block's size. XLA cannot compile blocks that come in several chunks.
    :param memory: The result of ``remember()`` of another model, whose rows are then
        included.
    :param chunk_size: The largest number of rows that are computed at a time, to save
        memory. None selects a number for speed, within
        ``gpflow_pep.engine.numerics.chunks.MEMORY_BUDGET`` (:doc:`/performance`).
    :raises ValueError: If data, powers, labels or parts of the model do not fit
        together.

    .. seealso:: :class:`PEP` for other likelihoods,
        :class:`~gpflow_pep.estimators.PEPRegressor` for tables, :doc:`/choosing`, and
        :doc:`/several_outputs`.
    """

    @property
    def takes_missing_targets(self) -> bool:
        """Whether NaN in Y marks a missing target."""
        return self._cut.num_gapped > 0

    @property
    def _shares_covariance(self) -> bool:
        """Whether q(v) has one covariance for all outputs."""
        memory = self.memory
        same = memory is None or memory.Z.shape[0] == memory.weights.shape[0] == 1
        return same and not self.takes_missing_targets

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
        memory: Memory | None = None,
        chunk_size: int | None = None,
    ) -> None:
        X, Y = self._check_data(data)
        if is_mixed(kernel):
            inducing_variable = mixed_arguments(
                kernel,
                inducing_variable,
                Y,
                num_latent_gps,
                blocks=blocks,
                memory=memory,
            )
            num_latent_gps = int(Y.shape[1])
            noisy = _gaussian_likelihood(likelihood, noise_variance, num_latent_gps)
            check_entries(noisy, Y)
        else:
            if not isinstance(kernel, SharedIndependent):
                checks.check_single_output(kernel)
            num_latent_gps = checks.check_num_outputs(num_latent_gps, Y)
            noisy = _gaussian_likelihood(likelihood, noise_variance, None)
            _check_targets(noisy, Y)
        super().__init__(
            kernel, noisy, inducing_variable, mean_function, num_latent_gps, alpha, X
        )
        self._check_latent(shared=True)
        self._set_rows((X, Y), Cut(), chunk_size)
        self._cut = self._choose_cut(blocks)
        self._powers()
        self.memory = None if memory is None else AttachedMemory(memory, self)

    def _check_data(self, data: Any, kernel: Kernel | None = None) -> Data:
        gaps = self.takes_missing_targets if "_cut" in vars(self) else _has_gaps(data)
        return checks.check_incomplete_data(data) if gaps else checks.check_data(data)

    def _choose_cut(self, blocks: Any) -> Cut:
        """Return how rows are grouped into factors: by the labels of blocks, or with
        each row or target as a factor.
        """
        if is_mixed(self.kernel):  # all targets of a row are one factor
            return Cut(num_gapped=1)
        if _has_gaps(self.data):
            if blocks is not None:
                remedy = (
                    "Leave out such rows, or use a model for each output on the rows"
                    " that have it."
                )
                got = "missing targets together with blocks"
                raise checks.refusal("Y", got, "all targets of each row", remedy)
            return Cut(num_gapped=self.data[1].shape[1])
        if blocks is None:
            return self._cut
        labels = checks.check_blocks(blocks, self.rows.data[0].shape[0])
        return Blocks(labels, self.rows.plan().chunk_size)

    @property
    def has_blocks(self) -> bool:
        """Whether rows come in blocks (PITC)."""
        return self._cut.block_rows is not None

    @unconverted("return: []")
    def maximum_log_likelihood_objective(self) -> tf.Tensor:
        """See :meth:`pep_log_marginal_likelihood`."""
        return checks.require_finite(
            self._log_z(self._sums()), "log marginal likelihood", ADVICE
        )

    def _log_z(self, sums: RowSums) -> tf.Tensor:
        return collapsed.log_density(sums, sums, self.rows.num_targets())

    @unconverted("return: []")
    def upper_bound(self) -> tf.Tensor:
        """Compute an upper bound of the exact log marginal likelihood; it does not
        depend on alpha.

        The bound is :meth:`gpflow.models.SGPR.upper_bound` (Titsias 2014), except that
        with several outputs each log-determinant counts once for each output, so that
        the result is a bound in that case too.

        :raises ValueError: If the model has a memory, because no bound is known for
            rows that are gone.
        """
        self._require_all_rows("upper_bound")
        refuse_mixed(self.kernel, "upper_bound", "Use elbo for the lower bound.")
        if self.takes_missing_targets:
            remedy = "Use a model for each output, on the rows that have it."
            raise checks.refusal(
                "upper_bound", "missing targets", "all targets", remedy
            )
        parts = self._parts_of_output()
        terms = partial(collapsed.sums_with_slack, parts)
        W = self._parts.whiten().W
        chunk_size, keep_all = self.rows.plan()
        pieces = self.rows.single_rows(chunk_size)
        options: dict[str, Any] = {"keep": keep_all, "parts": parts}
        no_slack = tf.zeros([], W.dtype)
        trace, sums = chunks.sum_over_chunks(terms, pieces, (W, no_slack), **options)
        _, with_slack = chunks.sum_over_chunks(terms, pieces, (W, trace), **options)
        bound = collapsed.log_density(sums, with_slack, self.rows.num_targets())
        return checks.require_finite(bound, "upper bound", ADVICE)

    @unconverted("return: []")
    def fitc_log_marginal_likelihood(self) -> tf.Tensor:
        """Compute log Z at alpha 1 with each row as a factor, like
        :meth:`gpflow.models.GPRFITC.fitc_log_marginal_likelihood`.

        :raises ValueError: If some alpha is not 1, or rows come in blocks.
        """
        name = "fitc_log_marginal_likelihood"
        remedy = "Use pep_log_marginal_likelihood"
        outputs = "at alpha 1 the outputs of a row are a block, as in PITC."
        refuse_mixed(self.kernel, name, f"{remedy}: {outputs}")
        remedy += ", which is the value of PITC at alpha 1 with blocks."
        self._require_single_rows(name, remedy)
        at_one = checks.require(
            tf.reduce_all(tf.equal(self._powers(), 1.0)),
            "fitc_log_marginal_likelihood: got a power alpha below 1, expected 1 for"
            " all rows. Use pep_log_marginal_likelihood, the estimate at any alpha"
            " (elbo at 0), or set the power first: model.alpha = 1.0.",
        )
        with tf.control_dependencies(at_one):
            return self.pep_log_marginal_likelihood()

    def context_parts(self) -> Parts:
        """See :class:`~gpflow_pep.models.context_predictions.ContextPredictions`."""
        if not self._shares_covariance:  # all other predictions can use near rows
            remedy = (
                "Leave out such rows, or use a model for each output on the rows that"
                " have it."
            )
            raise checks.refusal(
                "near", "near rows without targets", "all targets", remedy
            )
        return self._parts_of_output()._replace(likelihood=None)

    def row_context(self, *, with_u: bool = True) -> Context:
        """See :class:`~gpflow_pep.models.context_predictions.ContextPredictions`."""
        context = super().row_context()
        parts = self._parts_of_output()
        r, noise = parts.observe(context.X, context.r)
        if not with_u:
            return context._replace(r=r, noise=noise)
        q = self._posterior_of_v()
        L = parts.whiten().L
        return Context(L, q.q_mu, q.q_sqrt[0], context.X, r, noise, context.scales)

    @check_shapes(
        "return[0]: [M, P]",
        "return[1]: [any..., M, M]  # for each output where targets are missing",
    )
    def compute_qu(self) -> tuple[tf.Tensor, tf.Tensor]:
        """Compute mean and covariance of q(u); the outputs share the covariance."""
        mean, covariances = super().compute_qu()
        return mean, covariances[0] if self._shares_covariance else covariances

    @unconverted("return: [N]")
    def loo_log_density(self) -> tf.Tensor:
        r"""Compute :math:`\log p(y_n | y_{-n})` of each row from
        :meth:`loo_moments`.
        """
        if is_mixed(self.kernel):
            return mixed.loo_log_density(self)
        return collapsed.observed_log_density(self.data[1], *self.loo_moments())

    @unconverted("copies: [N]", "return[0]: [N, P]", "return[1]: [N, P]")
    def loo_moments(self, copies: AnyNDArray | None = None) -> MeanAndVariance:
        """Compute mean and variance of y for each row, given the other rows.

        See :mod:`gpflow_pep.engine.energies.collapsed`.

        :param copies: The number of rows that have the same inputs and targets as each
            row, itself included, [N]; they are left out together. None leaves out each
            row alone.
        :raises ValueError: If rows come in blocks, because a single row is then not a
            factor that could be left out.
        """
        times = None
        if copies is not None:
            times = tf.convert_to_tensor(copies, self.data[0].dtype)
        if is_mixed(self.kernel):
            return mixed.loo_moments(self, times)
        self._require_single_rows(
            "loo_log_density, loo_moments", "Hold out rows instead."
        )
        parts = self._parts_of_output()
        W = self._parts.whiten().W
        q = posterior_factor(self._sums(W).natural)
        if times is None:
            times = tf.ones_like(self.data[0][:, 0])
        rows = (*self.rows.read(), self.rows.powers()), times
        pieces = chunks.row_chunks(rows, self.rows.plan().chunk_size)

        def terms(piece: Any) -> tuple[tf.Tensor, tf.Tensor]:
            return collapsed.left_out_moments(parts, piece[0], W, q, piece[1])

        value = chunks.map_over_chunks(terms, pieces)
        value = checks.require_finite(tf.stack(value), "leave-one-out moments", ADVICE)
        mean, variance = tf.unstack(value)
        return mean, variance

    @unconverted("return: []")
    def total_loo_log_density(self) -> tf.Tensor:
        """Compute the sum of :meth:`loo_log_density`, with memory for one chunk of
        rows.
        """
        refuse_mixed(self.kernel, "total_loo_log_density", "Train by the evidence.")
        self._require_single_rows("total_loo_log_density", "Train by the evidence.")
        parts = self._parts_of_output()
        W = self._parts.whiten().W
        # The second pass over the rows uses the factor from the first pass.
        factor = posterior_factor(self._sums(W).natural)

        def terms(rows: Any, W: tf.Tensor, root: tf.Tensor, c: tf.Tensor) -> tf.Tensor:
            q = PosteriorFactor(root, c, factor.half_logdet)
            moments = collapsed.left_out_moments(parts, rows, W, q)
            return tf.reduce_sum(collapsed.observed_log_density(rows[1], *moments))

        total = self.rows.sum(terms, (W, factor.W, factor.c), parts)
        return checks.require_finite(total, "leave-one-out log density", ADVICE)

    def _require_single_rows(self, name: str, remedy: str) -> None:
        if self.has_blocks:
            got = "a model with blocks"
            expected = "a model whose rows are factors"
            raise checks.refusal(name, got, f"{expected} by themselves", remedy)

    @tf.autograph.experimental.do_not_convert
    def natural_of_v(self) -> Natural:
        """See :meth:`~gpflow_pep.models.base.InternalDataModel.natural_of_v`."""
        if is_mixed(self.kernel):
            return mixed.natural_of_regression(self)
        parts = self._parts_of_output()
        factor = self._parts.whiten()
        sums_of = partial(self._cut.sums_of, PartsBySubstitution(*parts))
        natural = self.rows.sum(sums_of, (factor.L,), parts).natural
        return add_memory(natural, self._memory_terms(factor.W))

    def _parts_of_output(self) -> Parts:
        """Return the parts of a model of one output, which all outputs share."""
        parts = self._parts
        if not isinstance(self.kernel, SharedIndependent):
            return parts
        variables = split_outputs(self.inducing_variable)[0]
        return parts._replace(kernel=self.kernel.kernel, inducing_variable=variables)

    def _converged_rows(self) -> tuple[Any, ...]:
        return mixed.regression_sites(self)

    def _sums(self, W: tf.Tensor | None = None) -> RowSums:
        if is_mixed(self.kernel):
            return mixed.regression_sums(self, W)
        parts = self._parts_of_output()
        W = self._parts.whiten().W if W is None else W
        sums = self.rows.sum(partial(self._cut.sums_of, parts), (W,), parts)
        memory = self._memory_terms(W)
        if memory is None:
            return sums
        # Log Z contains minus half of the squares.
        squares = sums.squares - 2.0 * memory.log_scale
        return sums._replace(natural=add_memory(sums.natural, memory), squares=squares)


def _gaussian_likelihood(
    likelihood: Any, noise_variance: TensorData | None, num_outputs: int | None = None
) -> Any:
    """Make the likelihood of regression from a likelihood, from a noise variance, or
    with default noise.

    :param num_outputs: The number of outputs with separate noise; None if all outputs
        have the same noise.
    """
    of_columns = getattr(likelihood, "likelihoods", None) if num_outputs else None
    if likelihood is None:
        variances: list[Any] = [1.0 if noise_variance is None else noise_variance]
        if num_outputs:
            variances = np.broadcast_to(np.ravel(variances[0]), [num_outputs]).tolist()
        for variance in variances:
            checks.check_noise_variance(variance)
        noisy = [Gaussian(variance) for variance in variances]
        return PerOutput(noisy) if num_outputs else noisy[0]
    if noise_variance is not None:
        remedy = "Set the variance when you create the likelihood."
        raise checks.refusal(
            "noise_variance and likelihood", "both", "one or the other", remedy
        )
    suit = (
        factors.traits(of_column).is_gaussian
        and (num_outputs is None or _takes_any_columns(of_column))
        for of_column in of_columns or [likelihood]
    )
    if not all(suit):
        raise checks.refusal(
            "likelihood",
            type(likelihood).__name__,
            "a gpflow.likelihoods.Gaussian: regression is in closed form for Gaussian"
            " noise only",
            "Use gpflow_pep.models.PEP.",
        )
    check_noise(likelihood, num_outputs or 1)
    return likelihood


def _has_gaps(data: Any) -> bool:
    """Return whether targets are NaN; data that are not a pair of numeric arrays are
    refused elsewhere.
    """
    try:
        Y = np.asarray(data[1])
    except (TypeError, ValueError, IndexError, KeyError, NotImplementedError):
        return False
    return Y.dtype.kind == "f" and bool(np.isnan(Y).any())


def _takes_any_columns(likelihood: Gaussian) -> bool:
    """Return whether the targets of a likelihood may have any number of columns."""
    return factors.layout_of(likelihood, 2).num_columns is None


def _check_targets(likelihood: Gaussian, Y: tf.Tensor) -> None:
    """Refuse several or missing targets in a row if the likelihood needs one."""
    if not _takes_any_columns(likelihood):
        factors.check_num_latent(None, likelihood, Y)
        factors.check_support(likelihood, Y)
