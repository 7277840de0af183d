"""The posterior of a model whose predictions use rows of the training data."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import AnyNDArray, InputData, MeanAndVariance, TensorType
from gpflow.conditionals.util import expand_independent_outputs
from gpflow.posteriors import PrecomputeCacheType, PrecomputedValue

from .. import checks
from ..energies.collapsed import Precision
from ..prior import Parts, nearest_by_products, nearest_by_tree, nearest_others, search_tree
from ..prior.nearest import SearchTree
from .context_rows import (
    BlockRows,
    Context,
    NewRowMoments,
    predict_from_blocks,
    predict_from_near_rows,
    predict_left_out,
)
from .posterior import ComputedPosterior

#: What ``blocks`` may be instead of labels: each row belongs to the block of the nearest centre.
NEAREST = "nearest"


#: Which of the axes of each can change: that of rows.
_DYNAMIC = Context(
    (False,) * 3, (False,) * 2, (False,) * 2, (True, False), (True, False), (True,), (False,)
)


class ContextRowsPosterior(ComputedPosterior):
    """
    A GPflow posterior that holds the training rows, see
    :mod:`gpflow_pep.engine.predictions.context_rows`.

    Its predictions take what :meth:`gpflow_pep.models.regression.PEPRegression.predict_f` does. Its
    cache is q(v) and the rows, N (D + P + 1) numbers; rows are projected on the inducing variables
    when a prediction needs them. In eager mode near rows are found by a tree; in graphs and files,
    which would have to leave Python for it, from all distances.

    :param compute: Computes q(v) and the rows, for the parameters as they are.
    :param parts: Of the model, of one output; without the likelihood where that is Gaussian.
    :param blocks: The blocks of the rows, or None where there are none.
    :param near: How many near rows predictions use by default.
    :param chunk_size: The most rows at a time; None: chosen.
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
        self._blocks, self._near, self._chunk_size = blocks, near, chunk_size
        self._tree: SearchTree | None = None
        super().__init__(compute, parts, precompute_cache)

    def update_cache(self, precompute_cache: PrecomputeCacheType | None = None) -> None:
        """See :meth:`gpflow.posteriors.AbstractPosterior.update_cache`."""
        super().update_cache(precompute_cache)
        self._tree = None

    def given_noise(
        self, variance: float, precompute_cache: PrecomputeCacheType | str | None = "tensor"
    ) -> "ContextRowsPosterior":
        """
        Create the posterior to whose predictions near rows have another noise variance; q(v) stays.
        """

        def compute() -> Context:
            context = Context(*self._compute())
            return context._replace(noise=tf.zeros_like(context.noise) + variance)

        return ContextRowsPosterior(
            compute,
            self._parts,
            blocks=self._blocks,
            near=self._near,
            chunk_size=self._chunk_size,
            precompute_cache=precompute_cache,
        )

    def predict_left_out(
        self, rows: AnyNDArray, precision: Precision, alpha: TensorType, noise: TensorType
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """
        Compute mean and variance of f of training rows, each without its own site and given its
        near rows: see :func:`~gpflow_pep.engine.predictions.context_rows.predict_left_out`.

        :param rows: Which training rows, [S].
        :param precision: Of the site of a row that is a factor of its own.
        :param alpha: The power of each of the rows, or [1] of all.
        :param noise: Noise variances that near rows have by turns, [K].
        :return: [S, K, P], and [S, K].
        """
        context = Context(*map(tf.convert_to_tensor, self.cache or self._compute()))
        most = len(context.X) - 1
        scaled = context.X / context.scales
        index = nearest_others(scaled, rows, min(self._near, most))
        rows = tf.constant(rows, tf.int32)
        options = precision, alpha, tf.cast(noise, scaled.dtype), self._chunk_size
        mean, variance = predict_left_out(self._parts, context, rows, index, *options)
        offset = self._parts.mean(tf.gather(context.X, rows))
        return mean + offset[:, None], variance

    def _new_inputs(self, Xnew: InputData, cache: tuple[Any, ...]) -> tf.Tensor:
        return _check_new_rows(Xnew, tf.convert_to_tensor(Context(*cache).X))

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
        if blocks is not None:
            moments = self._from_blocks(context, Xnew, blocks, near or 0, full_cov)
        else:
            m = self._number(near, context.X)
            if m == 0 and context.mean.shape[0] == 0:
                remedy = "Use the model's predict_f without near rows to predict from u."
                raise checks.refusal("near", "0", "at least 1, as nothing else is known", remedy)
            if m and full_cov and self._parts.likelihood is not None:
                raise checks.refusal(
                    "full_cov",
                    "True with near rows of a likelihood that is not Gaussian, whose sites are"
                    " others for each new row",
                    "False",
                    "Predict each row by itself, or for the covariance without near rows.",
                )
            tree = self._search_tree(context, cache is self.cache) if m else None
            moments = self._from_near(context, Xnew, m, tree, full_cov)
        advice = (
            "Check the new inputs. If they are right, a block or some near rows could not be"
            " factorised: give the likelihood more noise."
        )
        mean = checks.require_finite(moments.mean, "mean of predictions", advice)
        covariance = checks.require_finite(moments.covariance, "covariance of predictions", advice)
        axis = 0 if full_cov else -1
        covariance = tf.repeat(tf.expand_dims(covariance, axis), mean.shape[1], axis=axis)
        return mean, expand_independent_outputs(covariance, full_cov, full_output_cov)

    def _from_blocks(
        self, context: Context, Xnew: tf.Tensor, labels: Any, near: int, full_cov: bool
    ) -> NewRowMoments:
        if self._blocks is None:
            remedy = "Leave them out and pass near rows, or give the model blocks."
            raise checks.refusal("blocks", "them for a model without blocks", "none", remedy)
        X, scales = context.X, context.scales
        check_near(near, X.shape[0], True)
        place = places_of(self._blocks, labels, X / scales, Xnew / scales)
        parts, blocks, size = self._parts, self._blocks, self._chunk_size
        return predict_from_blocks(parts, context, blocks, Xnew, place, full_cov, size)

    def _from_near(
        self, context: Context, Xnew: tf.Tensor, m: int, tree: Any, full_cov: bool
    ) -> NewRowMoments:
        parts, size = self._parts, self._chunk_size
        if m == 0 and full_cov:  # as if all were new rows of one block that has no rows
            none = BlockRows(*(tf.zeros([number], tf.int32) for number in (1, 0, 2)))
            place = tf.zeros_like(Xnew[:, 0], tf.int32)
            return predict_from_blocks(parts, context, none, Xnew, place, full_cov, size)
        X, scaled = context.X / context.scales, Xnew / context.scales
        if m == 0:
            index = tf.zeros([tf.shape(Xnew)[0], 0], tf.int32)
        elif tree is None:
            index = nearest_by_products(X, scaled, m)
        else:
            index = nearest_by_tree(tree, scaled, m)
        return predict_from_near_rows(parts, context, Xnew, index, full_cov, size)

    def _search_tree(self, context: Context, is_own: bool) -> SearchTree | None:
        """Index the rows, once for those of a cache of tensors: variables may be assigned."""
        if not tf.executing_eagerly():
            return None  # a graph has no use for it
        keeps = is_own and self._precompute_cache is PrecomputeCacheType.TENSOR
        tree = self._tree if keeps and self._tree else search_tree(context.X / context.scales)
        self._tree = tree if keeps else None
        return tree

    def _number(self, near: int | None, X: tf.Tensor) -> int:
        """How many near rows a prediction uses: no more than there are."""
        known = X.shape[0]
        if near is None:
            return self._near if known is None else min(self._near, known)
        check_near(near, known, self._blocks is not None)
        return int(near)


def check_near(near: Any, num_data: int | None, has_blocks: bool) -> None:
    """
    Check how many near rows a prediction is to use.

    :param num_data: N, or None where it is not known.
    :param has_blocks: Whether rows come in blocks: new rows then have a block, or no row.
    :raises ValueError: If it is not an integer from 0 to N, or not 0 with blocks.
    """
    is_number = isinstance(near, (int, np.integer)) and not isinstance(near, bool)
    if not is_number or near < 0 or (num_data is not None and near > num_data):
        most = "the number of rows" if num_data is None else num_data
        expected = f"an integer from 0 to {most}, the training rows that there are"
        remedy = "Choose another number, often 10 to 30."
        raise checks.refusal("near", repr(near), expected, remedy)
    if near and has_blocks:
        got = f"{near} for a model with blocks"
        remedy = f"Leave them out and give blocks, such as blocks={NEAREST!r}."
        raise checks.refusal("near", got, "0", remedy)


def _check_new_rows(Xnew: TensorType, X: tf.Tensor) -> tf.Tensor:
    Xnew = tf.convert_to_tensor(Xnew, X.dtype)
    rank, columns = Xnew.shape.rank, X.shape[1]
    if rank != 2 or (None not in (columns, Xnew.shape[1]) and Xnew.shape[1] != columns):
        expected = f"[N, {columns}], two axes and the columns of X"
        raise checks.refusal("Xnew", f"shape {tuple(Xnew.shape)}", expected, "Reshape it.")
    checks.check_finite("Xnew", Xnew)
    return tf.ensure_shape(Xnew, [None, columns])


@check_shapes("X: [N, D]", "Xnew: [N_new, D]", "return: [N_new]")
def places_of(blocks: BlockRows, labels: Any, X: tf.Tensor, Xnew: tf.Tensor) -> tf.Tensor:
    """Find the block of each new row, by a label for each or by "nearest"."""
    num_blocks = blocks.names.shape[0]
    if isinstance(labels, str):
        if labels != NEAREST:
            expected = f"{NEAREST!r} or an integer for each row"
            remedy = f"Use {NEAREST!r} for the block with the nearest centre."
            raise checks.refusal("blocks", repr(labels), expected, remedy)
        member = tf.repeat(tf.range(num_blocks), blocks.start[1:] - blocks.start[:-1])
        centres = tf.math.unsorted_segment_mean(tf.gather(X, blocks.rows), member, num_blocks)
        return nearest_by_products(centres, Xnew, 1)[:, 0]
    labels = _check_labels(labels, Xnew)
    place = tf.minimum(tf.searchsorted(blocks.names, labels), num_blocks - 1)
    known = tf.reduce_all(tf.equal(tf.gather(blocks.names, place), labels))
    message = (
        f"blocks: got the label of no block, expected labels of the {num_blocks} blocks that the"
        f' model has. Give these, or "{NEAREST}" for the block with the nearest centre.'
    )
    with tf.control_dependencies(checks.require(known, message)):
        return tf.identity(place)


def _check_labels(labels: Any, Xnew: tf.Tensor) -> tf.Tensor:
    try:
        labels = tf.convert_to_tensor(labels)
    except (TypeError, ValueError, OverflowError):
        labels = tf.constant("")
    num_new = Xnew.shape[0]
    same = (labels.shape.rank == 1 and None in (num_new, labels.shape[0])) or (
        labels.shape.as_list() == [num_new]
    )
    if not labels.dtype.is_integer or not same:
        number = "new" if num_new is None else num_new
        expected = f"an integer for each of the {number} rows, the label of its block"
        got = f"{labels.dtype.name} of shape {tuple(labels.shape)}"
        raise checks.refusal("blocks", got, expected, "Give as many.")
    same = tf.equal(tf.shape(labels)[0], tf.shape(Xnew)[0])
    message = "blocks: got another number of labels than new rows, expected as many. Give as many."
    with tf.control_dependencies(checks.require(same, message)):
        return tf.cast(labels, tf.int64)
