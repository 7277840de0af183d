"""Predictions of regression models that know training rows."""

import abc
from typing import Any

import tensorflow as tf
from gpflow.base import InputData, MeanAndVariance
from gpflow.posteriors import AbstractPosterior, PrecomputeCacheType

from .. import checks
from ..covariances import whiten
from ..covariances.evaluate import skip_autograph
from ..energies.collapsed import RegressionPrior
from ..ops.blocks import BlockPlan
from ..predictions.context_posterior import ContextRowsPosterior, check_neighbours
from ..predictions.context_rows import ContextRows, SharedPosterior, rows_of_blocks
from .base import InternalDataModel


class ContextRowsModel(InternalDataModel):
    """
    A regression model whose predictions may know training rows.

    It has ``_blocks`` and ``neighbours`` where there are any.
    """

    _blocks: BlockPlan | None = None

    @property
    def neighbours(self) -> int:
        """How many near rows the model was trained with, and predicts with; 0: none."""
        return 0

    @abc.abstractmethod
    def _prior(self) -> RegressionPrior:
        """Hand out what the rows have in common."""

    @skip_autograph
    def predict_f(
        self,
        Xnew: InputData,
        full_cov: bool = False,
        full_output_cov: bool = False,
        *,
        blocks: Any = None,
        neighbours: int | None = None,
    ) -> MeanAndVariance:
        """
        Predict f at new rows, see :meth:`gpflow.models.GPModel.predict_f`.

        By default new rows are predicted from u, or, by a model that was trained with neighbours,
        from u and as many training rows. See :doc:`/context_rows` for what they can know besides,
        and :mod:`gpflow_pep.predictions.context_rows` for what is then computed, covariances
        included.

        :param Xnew: The new rows, [N, D].
        :param full_cov: Whether to compute the covariances of rows.
        :param full_output_cov: Whether to compute those of outputs, which are 0.
        :param blocks: For a model with blocks: an integer [N] for each row, the label of its block,
            whose training rows it is then given (PIC); or "nearest": the block whose mean input is
            nearest, in units of the kernel's lengthscales.
        :param neighbours: For a model without: how many training rows each row is given, the
            nearest in the same units; 0: none. None: ``self.neighbours``.
        :raises ValueError: If they do not suit the model; if a label is none of its blocks'.
        """
        if self._plain(blocks, neighbours):
            return super().predict_f(Xnew, full_cov, full_output_cov)
        posterior = self._holding(PrecomputeCacheType.NOCACHE, None)
        return posterior.fused_predict_f(
            Xnew, full_cov, full_output_cov, blocks=blocks, neighbours=neighbours
        )

    def posterior(
        self,
        precompute_cache: PrecomputeCacheType | str | None = PrecomputeCacheType.TENSOR,
        *,
        neighbours: int | None = None,
    ) -> AbstractPosterior:
        """
        Create the GPflow posterior, for fast predictions.

        That of a model with blocks or neighbours holds the training rows, and its predictions take
        ``blocks`` or ``neighbours`` as :meth:`predict_f` does.

        :param precompute_cache: As in :meth:`gpflow.models.SGPR.posterior`.
        :param neighbours: How many training rows predictions know unless they are told otherwise;
            None: ``self.neighbours``.
        :raises ValueError: If an argument is not as said here.
        """
        plain = self._plain(None, neighbours)
        if plain and (self._blocks is None or self.reduction.count > 1):
            return super().posterior(precompute_cache)
        return self._holding(precompute_cache, neighbours)

    def _plain(self, blocks: Any, neighbours: int | None) -> bool:
        if neighbours is not None:
            check_neighbours(neighbours, self.data[0].shape[0], self._blocks is not None)
        return blocks is None and not (self.neighbours if neighbours is None else neighbours)

    def _holding(
        self, precompute_cache: PrecomputeCacheType | str | None, neighbours: int | None
    ) -> ContextRowsPosterior:
        checks.check_not_sharded(
            self.reduction.count,
            "blocks or neighbours",
            "Predict with the parameters in a model that has all rows.",
        )
        prior = self._prior()
        blocks = None if self._blocks is None else rows_of_blocks(self._blocks)
        return ContextRowsPosterior(
            self._rows_and_posterior,
            prior.kernel,
            prior.inducing_variable,
            prior.mean_function,
            blocks=blocks,
            neighbours=self.neighbours if neighbours is None else neighbours,
            chunk_size=self.chunk_size,
            precompute_cache=precompute_cache,
        )

    @tf.autograph.experimental.do_not_convert
    def _rows_and_posterior(self) -> tuple[tf.Tensor, SharedPosterior, ContextRows]:
        X, Y = self._rows()
        prior, q = self._prior(), self._posterior_of_v()
        W = whiten(self.inducing_variable, self.kernel).W
        rows = ContextRows(X, prior.residual(X, Y), prior.noise(X))
        return W, SharedPosterior(q.q_mu, q.q_sqrt[0]), rows
