"""Predictions that use training rows in addition to u, for models that hold their
rows.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import InputData, MeanAndVariance, TensorData
from gpflow.kernels import Kernel, MultioutputKernel
from gpflow.posteriors import BasePosterior, PrecomputeCacheType

from ..engine import checks
from ..engine.factors import log_power_expectation, predict_mean_and_var
from ..engine.predictions.context_posterior import ContextRowsPosterior, as_near
from ..engine.predictions.context_rows import Context, NearRows, condition_groups
from ..engine.prior import Parts, input_scales, is_mixed
from ..engine.prior.evaluate import skip_autograph
from ..engine.sites.groups import TRAINING_TOLERANCE
from . import mixed
from .arguments import refuse_mixed
from .base import finite
from .minibatch import NearRowLoss
from .rows import Cut


class ContextPredictions:
    """Methods of a :class:`PowerEPModel` whose predictions can use training rows.

    In this class near rows get sites, and new rows are predicted only from near rows.
    :class:`PEPRegression`, with Gaussian noise, also conditions on u.
    """

    kernel: Kernel
    num_latent_gps: int
    data: Any
    chunk_size: int | None
    likelihood: Any
    _cut: Cut
    _parts: Parts
    _powers: Callable[[], tf.Tensor]
    impute_f = mixed.impute_f
    impute_y = mixed.impute_y
    loo_log_density_of_entries = mixed.loo_log_density_of_entries

    @property
    def has_blocks(self) -> bool:
        """Whether rows come in blocks."""
        return False

    def context_parts(self) -> Parts:
        """Return the parts of one output, without a Gaussian likelihood."""
        num_latents = int(self.num_latent_gps)
        name = type(self.kernel).__name__
        if num_latents != 1 or isinstance(self.kernel, MultioutputKernel):
            got = f"near rows with {num_latents} latent functions under {name}"
            expected = "one latent function and a kernel of one output"
            raise checks.refusal(
                "near", got, expected, "Leave out near rows, or use PEPRegression."
            )
        return self._parts

    def row_context(self, *, with_u: bool = True) -> Context:
        """Compute the quantities for predictions from rows. If rows get sites, u is not
        used.
        """
        X, Y = map(tf.convert_to_tensor, self.rows.read())  # type: ignore[attr-defined]
        zeros = partial(tf.zeros, dtype=X.dtype)
        without_u = zeros([1, 0, 0]), zeros([0, Y.shape[1]]), zeros([0, 0])
        scales = input_scales(self.context_parts().kernel, X)
        return Context(*without_u, X, Y, self._powers(), scales)

    @skip_autograph
    def predict_f(
        self,
        Xnew: InputData,
        full_cov: bool = False,
        full_output_cov: bool = False,
        *,
        blocks: Any = None,
        near: int | NearRows = 0,
        given: TensorData | None = None,
    ) -> MeanAndVariance:
        """Predict f at new rows, see :meth:`gpflow.models.GPModel.predict_f`.

        By default new rows are predicted from u. If the likelihood is not Gaussian,
        predictions from near rows use only near rows. See :ref:`near-rows`, and
        :mod:`gpflow_pep.engine.predictions.context_rows` for the formulas.

        :param Xnew: The new rows, [N, D].
        :param full_cov: Whether to compute the covariances of rows.
        :param full_output_cov: Whether to compute the covariances of outputs, which are
            0.
        :param blocks: For a model with blocks: the label of a block for each row, an
            integer [N]; the row is then conditioned on the training rows of this block
            (PIC). "nearest" selects the block whose mean input is nearest, in units of
            the kernel's lengthscales.
        :param near: For a model without blocks: the number of nearest training rows, in
            the same units, on which each row is conditioned.
        :param given: If outputs are mixed from latent functions: known outputs of the
            same rows, [N, P], with NaN for unknown ones. The prediction is conditioned
            on them too, by EP in each row, which is exact for Gaussian noise.
        :raises ValueError: If the arguments do not suit the model, or if a label is not
            the label of a block.
        """
        if given is not None:
            mixed.require_mixed(self, "given")
        if is_mixed(self.kernel):
            if blocks is not None or near:
                refuse_mixed(self.kernel, "blocks and near rows", "Leave them out.")
            return mixed.predict_f(self, Xnew, full_cov, full_output_cov, given)
        near = self._near_rows(near)
        if blocks is None and not near.number:
            of_gpflow: Any = super()
            return of_gpflow.predict_f(Xnew, full_cov, full_output_cov)
        posterior = self._context_posterior(PrecomputeCacheType.NOCACHE, near)
        return posterior.fused_predict_f(Xnew, full_cov, full_output_cov, blocks=blocks)

    @skip_autograph
    def predict_y(
        self,
        Xnew: InputData,
        full_cov: bool = False,
        full_output_cov: bool = False,
        *,
        given: TensorData | None = None,
    ) -> MeanAndVariance:
        """See :meth:`gpflow.models.GPModel.predict_y`, and :meth:`predict_f` for
        ``given``.
        """
        if given is None or full_cov or full_output_cov:
            of_gpflow: Any = super()
            return of_gpflow.predict_y(Xnew, full_cov, full_output_cov)
        moments = self.predict_f(Xnew, given=given)
        return finite(predict_mean_and_var(self.likelihood, Xnew, *moments))

    def posterior(
        self,
        precompute_cache: PrecomputeCacheType | str | None = PrecomputeCacheType.TENSOR,
        *,
        near: int | NearRows = 0,
    ) -> BasePosterior:
        """Create the GPflow posterior, for fast predictions.

        The posterior of a model with blocks, or with near rows, holds the training
        rows, and its predictions have the argument ``blocks`` or ``near``, as in
        :meth:`predict_f`.

        :param precompute_cache: As in :meth:`gpflow.models.SGPR.posterior`.
        :param near: The default number of near training rows; or
            :class:`~gpflow_pep.training.NearRows`, which also sets their noise
            variance.
        :raises ValueError: If the number of near rows does not suit the model.
        """
        if is_mixed(self.kernel):
            return mixed.posterior(self, precompute_cache)
        near = self._near_rows(near)
        if not near.number and not self.has_blocks:
            return super().posterior(precompute_cache)  # type: ignore[misc]
        return self._context_posterior(precompute_cache, near)

    def _context_posterior(
        self, precompute_cache: PrecomputeCacheType | str | None, near: NearRows
    ) -> ContextRowsPosterior:
        @tf.autograph.experimental.do_not_convert
        def compute() -> Context:
            context = self.row_context()
            noise_variance = near.noise_variance
            if noise_variance is None:
                return context
            return context._replace(noise=tf.zeros_like(context.noise) + noise_variance)

        options: dict[str, Any] = {
            "blocks": self._cut.block_rows,
            "chunk_size": self.chunk_size,
        }
        options |= {"near": near.number, "precompute_cache": precompute_cache}
        return ContextRowsPosterior(compute, self.context_parts(), **options)

    def _near_rows(self, near: int | NearRows) -> NearRows:
        if isinstance(near, int) and near == 0:
            return NearRows(0)  # without reading rows, which may be streamed
        near = as_near(near, self.data[0].shape[0], self.has_blocks)
        has_sites = near.number > 0 and self.context_parts().likelihood is not None
        if near.noise_variance is not None and has_sites:
            expected = "None, because near rows have sites"
            remedy = "Leave it out."
            raise checks.refusal(
                "near: noise_variance", near.noise_variance, expected, remedy
            )
        return near

    @check_shapes("index: [B]", "near: [B, m]", "return: [B]")
    def near_row_log_density(self, index: tf.Tensor, near: tf.Tensor) -> tf.Tensor:
        r"""Compute :math:`\log p(y_n \mid y_{near(n)})` of training rows under the
        prior of f.

        These are the factors of Vecchia (1988), given rows on all sides as in Besag
        (1975). If the noise is not Gaussian, they use sites
        (:mod:`gpflow_pep.engine.sites.groups`).

        :param near: The numbers of the rows on which each row of ``index`` is
            conditioned, without the row itself.
        """
        parts = self.context_parts()
        context = self.row_context(with_u=False)
        X, Y = self.rows.read()  # type: ignore[attr-defined]
        Xnew = tf.gather(X, index)
        Ynew = tf.gather(Y, index)
        conditioned = condition_groups(
            parts, context, Xnew[:, None], near, TRAINING_TOLERANCE
        )
        mean = conditioned.mean[:, 0] + parts.mean(Xnew)
        variance = tf.repeat(conditioned.D[:, 0], mean.shape[1], axis=1)
        return log_power_expectation(self.likelihood, Xnew, mean, variance, Ynew, 1.0)

    def near_row_training_loss_closure(
        self, near: int = 20, *, batch_size: int = 256, seed: int = 0
    ) -> NearRowLoss:
        """Create the loss that trains for predictions from near rows::

            loss = model.near_row_training_loss_closure(20)
            adam = tf_keras.optimizers.Adam(0.1)
            pep.training.fit(model, loss, num_steps=200, optimizer=adam)
            mean, variance = model.predict_f(Xnew, near=20)

        See :mod:`gpflow_pep.models.minibatch`, and :ref:`near-rows`.

        :param near: The number m of nearest rows on which each row is conditioned.
        :param batch_size: The number of rows in a batch, at most N.
        :param seed: Seed of the batches: the same seed gives the same batches.
        :raises ValueError: If an argument is outside its range, or the model has blocks
            or several latent functions.
        """
        self.context_parts()
        return NearRowLoss(self, near, batch_size, seed)
