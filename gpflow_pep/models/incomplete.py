"""Sparse Gaussian process regression of targets of which some are missing."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from check_shapes import inherit_check_shapes
from gpflow.base import MeanAndVariance, RegressionData

from .. import checks
from ..covariances.evaluate import unconverted
from ..covariances.mixing import is_mixture
from ..energies.collapsed import Bound, Conditional, RowSums
from ..energies.entries import (
    left_out_density_sum,
    left_out_moments,
    log_density_of_entries,
    observed_log_density,
    sum_observed,
)
from ..ops import chunks
from ..sites.posterior import posterior_factor
from .arguments import refusing
from .base import ADVICE
from .regression import PEPRegression
from .rows import Cut, Data, SingleRows
from .variants import variant_of

_COPIES = 4


def has_missing(data: Any = None, kernel: Any = None, *_: Any, **__: Any) -> bool:
    """
    Whether targets of independent outputs are NaN; what is no pair of arrays of numbers is refused
    elsewhere.
    """
    if is_mixture(kernel):
        return False
    try:
        Y = np.asarray(data[1])
    except (TypeError, ValueError, IndexError, KeyError, NotImplementedError):
        return False
    return Y.dtype.kind == "f" and bool(np.isnan(Y).any())


class ObservedRows(SingleRows):
    """Each target that was observed is a factor of its own."""

    def __init__(self, num_outputs: int) -> None:
        self._num_outputs = num_outputs

    def bound(self, conditional: Conditional) -> Bound:
        return sum_observed

    def plan(self, chunk_size: int | None, num_inducing: int | None, X: tf.Tensor) -> chunks.Plan:
        return chunks.plan(chunk_size, num_inducing, X, _COPIES * self._num_outputs)


@variant_of(PEPRegression, has_missing)
class IncompleteRegression(PEPRegression):
    """
    :class:`PEPRegression` where Y has NaN: each output is trained on the rows that have it.

    The outputs share kernel, noise and inducing variables as there, and are independent otherwise.
    """

    takes_missing_targets = True
    _shares_covariance = False

    def _check_data(self, data: Any) -> Data:
        return checks.check_incomplete_data(data)

    def _choose_cut(self, blocks: Any) -> Cut:
        if self._conditional != "prior":
            got, expected = repr(self._conditional), "'prior' where targets are missing"
            raise checks.refusal("conditional", got, expected, "Leave it out.")
        if blocks is not None:
            remedy = "Leave them out, or use one model for each output, of the rows that have it."
            got = "targets that are missing beside blocks"
            raise checks.refusal("Y", got, "all targets of each row", remedy)
        return ObservedRows(self.data[1].shape[1])

    def _left_out_density(self) -> Callable[..., tf.Tensor]:
        return left_out_density_sum

    def _log_z(self, sums: RowSums) -> tf.Tensor:
        return log_density_of_entries(sums)

    upper_bound = refusing(
        "upper_bound",
        "missing targets",
        "all of them",
        "Use a model for each output, of the rows that have it.",
    )

    @inherit_check_shapes
    def predict_log_density(
        self, data: RegressionData, full_cov: bool = False, full_output_cov: bool = False
    ) -> tf.Tensor:
        """See :meth:`gpflow.models.GPModel.predict_log_density`; NaN in Y is left out."""
        if full_cov or full_output_cov:
            return super().predict_log_density(data, full_cov, full_output_cov)  # refuses it
        X, Y = checks.check_data(data, missing_targets=True)
        return observed_log_density(tf.convert_to_tensor(Y), *self.predict_y(X))

    @unconverted("return: [N]")
    def loo_log_density(self) -> tf.Tensor:
        r"""Compute :math:`\log p(y_n | y_{-n})` of what was observed of each row."""
        return observed_log_density(self.rows.read()[1], *self.loo_moments())

    @unconverted("return[0]: [N, P]", "return[1]: [N, P]")
    def loo_moments(self) -> MeanAndVariance:
        """Compute mean and variance of y of each row, given the others of the same output."""
        parts, W = self._parts_of_output(), self._parts.whiten().W
        q = posterior_factor(self._sums(W).natural)
        pieces = self.rows.pieces(self.rows.plan().chunk_size)
        value = chunks.map_over_chunks(lambda rows: left_out_moments(parts, rows, W, q), pieces)
        mean, variance = tf.unstack(
            checks.require_finite(tf.stack(value), "leave-one-out moments", ADVICE)
        )
        return mean, variance
