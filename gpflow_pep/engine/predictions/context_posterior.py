"""The posterior of a model whose predictions use rows of the training data."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import InputData, MeanAndVariance, TensorType
from gpflow.conditionals.util import expand_independent_outputs
from gpflow.posteriors import PrecomputeCacheType, PrecomputedValue

from .. import checks
from ..numerics.nearest_in_numpy import Search, nearest_rows
from ..prior import Parts, nearest_by_products
from .context_rows import (
    BlockRows,
    Context,
    NearRows,
    predict_from_blocks,
    predict_from_near_rows,
)
from .posterior import ComputedPosterior

#: The value of ``blocks`` with which each row belongs to the block with the nearest
#: centre.
NEAREST = "nearest"
#: The axis of each tensor whose length can change: the axis of rows.
_DYNAMIC = Context(
    (False,) * 3,
    (False,) * 2,
    (False,) * 2,
    (True, False),
    (True, False),
    (True,),
    (False,),
)


class ContextRowsPosterior(ComputedPosterior):
    """A GPflow posterior whose cache has q(v) and the training rows, N (D + P + 1)
    numbers.

    Its predictions have the arguments of
    :meth:`gpflow_pep.models.PEPRegression.predict_f`. In eager mode near rows are found
    with a tree; in graphs and files, which cannot run Python, they are found from all
    distances.

    :param compute: A function that computes q(v) and the rows for the present
        parameters.
    :param parts: The parts of the model for one output, without a Gaussian likelihood.
    :param blocks: The blocks of the rows; None if there are no blocks.
    :param near: The number of near rows that predictions use by default.
    :param chunk_size: The largest number of rows at a time; None chooses it.
    """

    def __init__(
        self,
        compute: Callable[[], Context],
        parts: Parts,
        *,
        blocks: BlockRows | None,
        near: int,
        chunk_size: int | None,
        precompute_cache: PrecomputeCacheType | str | None,
    ) -> None:
        self._blocks = blocks
        self.near = near
        self._chunk_size = chunk_size
        self._tree: Search | None = None
        super().__init__(compute, parts, precompute_cache)

    def update_cache(self, precompute_cache: PrecomputeCacheType | None = None) -> None:
        """See :meth:`gpflow.posteriors.AbstractPosterior.update_cache`."""
        super().update_cache(precompute_cache)
        self._tree = None

    def _new_inputs(self, Xnew: InputData, cache: tuple[Any, ...]) -> tf.Tensor:
        X = tf.convert_to_tensor(Context(*cache).X)
        Xnew = tf.convert_to_tensor(Xnew, X.dtype)
        columns = X.shape[1]
        if Xnew.shape.rank != 2:
            expected = f"[N, {columns}], two axes and the columns of X"
            raise checks.refusal(
                "Xnew", f"shape {tuple(Xnew.shape)}", expected, "Reshape it."
            )
        return tf.ensure_shape(
            checks.check_new_inputs(Xnew, columns, X.dtype), [None, columns]
        )

    def _precompute(self) -> tuple[PrecomputedValue, ...]:
        return tuple(map(PrecomputedValue, self._compute(), _DYNAMIC))

    def _conditional_with_precompute(
        self,
        cache: tuple[Any, ...],
        Xnew: TensorType,
        full_cov: bool = False,
        full_output_cov: bool = False,
        *,
        blocks: Any = None,
        near: int | None = None,
    ) -> MeanAndVariance:
        context = Context(*map(tf.convert_to_tensor, cache))
        m = self._num_near(near, context.X.shape[0])
        self._check_request(m, blocks, context.mean.shape[0] != 0, full_cov)
        parts = self._parts
        options = (full_cov, self._chunk_size)
        X = context.X / context.scales
        scaled = Xnew / context.scales
        if blocks is not None and self._blocks is not None:
            place = _places_of(self._blocks, blocks, X, scaled)
            mean, covariance = predict_from_blocks(
                parts, context, self._blocks, Xnew, place, *options
            )
        elif m == 0 and full_cov:
            # All rows are treated as new rows of a block without training rows.
            place = tf.zeros_like(Xnew[:, 0], tf.int32)
            mean, covariance = predict_from_blocks(
                parts, context, _one_empty_block(), Xnew, place, *options
            )
        else:
            index = self._nearest(X, scaled, m, cache is self.cache)
            mean, covariance = predict_from_near_rows(
                parts, context, Xnew, index, *options
            )
        advice = (
            "Check the new inputs. If they are right, a block or some near rows could"
            " not be factorised: give the likelihood more noise."
        )
        mean = checks.require_finite(mean, "mean of predictions", advice)
        covariance = checks.require_finite(
            covariance, "covariance of predictions", advice
        )
        axis = 0 if full_cov else -1
        covariance = tf.repeat(
            tf.expand_dims(covariance, axis), mean.shape[1], axis=axis
        )
        return mean, expand_independent_outputs(covariance, full_cov, full_output_cov)

    def _num_near(self, near: Any, num_data: int | None) -> int:
        """Return the number of near rows of each new row. The number N of training rows
        may be unknown.
        """
        if near is not None:
            return as_near(near, num_data, self._blocks is not None).number
        return self.near if num_data is None else min(self.near, num_data)

    def _check_request(
        self, num_near: int, blocks: Any, has_inducing: bool, full_cov: bool
    ) -> None:
        """Check that the model has everything that a prediction uses.

        :param has_inducing: Whether predictions use u.
        """
        if blocks is not None and self._blocks is None:
            remedy = "Leave them out and pass near rows, or give the model blocks."
            raise checks.refusal(
                "blocks", "them for a model without blocks", "none", remedy
            )
        if blocks is None and num_near == 0 and not has_inducing:
            remedy = "Use the model's predict_f without near rows to predict from u."
            raise checks.refusal(
                "near", "0", "at least 1, because there is no other information", remedy
            )
        if num_near and full_cov and self._parts.likelihood is not None:
            got = (
                "True with near rows of a likelihood that is not Gaussian, whose sites"
                " are others for each new row"
            )
            remedy = (
                "Predict each row by itself, or for the covariance without near rows."
            )
            raise checks.refusal("full_cov", got, "False", remedy)

    def _nearest(
        self, X: tf.Tensor, Xnew: tf.Tensor, num_near: int, is_own: bool
    ) -> tf.Tensor:
        """Find the near rows of each new row, [N_new, num_near].

        :param is_own: Whether the rows are from this posterior's cache.
        """
        if num_near == 0:
            return tf.zeros([tf.shape(Xnew)[0], 0], tf.int32)
        if tf.executing_eagerly():
            return tf.constant(self._search(X, is_own)(Xnew.numpy(), num_near))
        return nearest_by_products(X, Xnew, num_near)

    def _search(self, X: tf.Tensor, is_own: bool) -> Search:
        """Index the rows, only once if they are a cache of tensors. Variables may be
        assigned, so they are indexed each time.
        """
        keeps = is_own and self._precompute_cache is PrecomputeCacheType.TENSOR
        search = (keeps and self._tree) or nearest_rows(X.numpy())
        self._tree = search if keeps else None
        return search


def as_near(near: Any, num_data: int | None, has_blocks: bool) -> NearRows:
    """Check the near rows of a prediction by a model of N rows: their number, or
    ``NearRows``.

    :raises ValueError: If the number is not an integer from 0 to N, if it is not 0 with
        blocks, or if the noise variance is not above 0.
    """
    count, noise_variance = near if isinstance(near, NearRows) else (near, None)
    is_number = isinstance(count, (int, np.integer)) and not isinstance(count, bool)
    if not is_number or count < 0 or (num_data is not None and count > num_data):
        most = "the number of rows" if num_data is None else num_data
        expected = f"an integer from 0 to {most}, the number of training rows"
        remedy = "Choose another number, often 10 to 30."
        raise checks.refusal("near", checks.as_code(count), expected, remedy)
    if count and has_blocks:
        got = f"{count} for a model with blocks"
        remedy = f"Leave them out and pass blocks, such as blocks={NEAREST!r}."
        raise checks.refusal("near", got, "0", remedy)
    if noise_variance is not None:
        checks.check_real(
            "near: noise_variance", noise_variance, "(0, inf)", "None: the model's."
        )
    return NearRows(int(count), noise_variance)


def _one_empty_block() -> BlockRows:
    names, rows, start = (tf.zeros([size], tf.int32) for size in (1, 0, 2))
    return BlockRows(names, rows, start)


@check_shapes("X: [N, D]", "Xnew: [N_new, D]", "return: [N_new]")
def _places_of(
    blocks: BlockRows, labels: Any, X: tf.Tensor, Xnew: tf.Tensor
) -> tf.Tensor:
    """Find the block of each new row, from its label or with "nearest"."""
    num_blocks = blocks.names.shape[0]
    if isinstance(labels, str):
        if labels != NEAREST:
            expected = f"{NEAREST!r} or an integer for each row"
            remedy = f"Use {NEAREST!r} for the block with the nearest centre."
            raise checks.refusal("blocks", checks.as_code(labels), expected, remedy)
        member = tf.repeat(tf.range(num_blocks), blocks.start[1:] - blocks.start[:-1])
        centres = tf.math.unsorted_segment_mean(
            tf.gather(X, blocks.rows), member, num_blocks
        )
        return nearest_by_products(centres, Xnew, 1)[:, 0]
    try:
        labels = tf.convert_to_tensor(labels)
    except (TypeError, ValueError, OverflowError):
        labels = tf.constant("")
    num_new = Xnew.shape[0]
    if not labels.dtype.is_integer or not labels.shape.is_compatible_with([num_new]):
        expected = (
            f"an integer for each of the {num_new or 'new'} rows, the label of its"
            " block"
        )
        got = f"{labels.dtype.name} of shape {tuple(labels.shape)}"
        raise checks.refusal("blocks", got, expected, "Give as many.")
    same = tf.equal(tf.shape(labels)[0], tf.shape(Xnew)[0])
    message = (
        "blocks: got another number of labels than new rows, expected as many. Give as"
        " many."
    )
    with tf.control_dependencies(checks.require(same, message)):
        labels = tf.cast(labels, tf.int64)
    place = tf.minimum(tf.searchsorted(blocks.names, labels), num_blocks - 1)
    known = tf.reduce_all(tf.equal(tf.gather(blocks.names, place), labels))
    message = (
        f"blocks: got the label of no block, expected labels of the {num_blocks} blocks"
        " that the"
        f' model has. Give these, or "{NEAREST}" for the block with the nearest centre.'
    )
    with tf.control_dependencies(checks.require(known, message)):
        return tf.identity(place)
