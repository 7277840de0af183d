"""Anderson's acceleration: a step that looks back on the last ones."""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from ..ops.chunks import Reduction
from .posterior import in_deviations

#: Differences that it looks back on: many, as long as they are few numbers beside others.
_DEPTH, _SMALL_DEPTH = 16, 4
_DEEP_SITES = 200_000


class Differences(NamedTuple):
    """Of the last iterates of a run."""

    count: tf.Tensor
    """[], how many were remembered since some were forgotten."""

    dx: tf.Tensor
    """[depth, 2, N, L], the last ones of x, in turn."""

    dF: tf.Tensor
    """[depth, 2, N, L], of F(x)."""

    @classmethod
    def empty(cls, x: tf.Tensor, reduction: Reduction) -> "Differences":
        """Remember nothing, but have room for differences of sites [2, N, L]."""
        size = reduction.known_total(x.shape.num_elements())
        depth = _DEPTH if size <= _DEEP_SITES else _SMALL_DEPTH
        sizes = [known or size for known, size in zip(x.shape, tf.unstack(tf.shape(x)))]
        room = tf.zeros([depth, *sizes], x.dtype)
        return cls(tf.constant(0), room, room)

    def forgotten(self) -> "Differences":
        """Remember nothing."""
        return self._replace(count=tf.zeros_like(self.count))

    def appended(self, dx: tf.Tensor, dF: tf.Tensor) -> "Differences":
        """Remember one more, in the place of the oldest."""
        place = tf.reshape(self.count % self.dx.shape[0], [1, 1])
        latest = zip((self.dx, self.dF), (dx, dF))
        new = (tf.tensor_scatter_nd_update(room, place, one[None]) for room, one in latest)
        return Differences(self.count + 1, *new)


def accelerated_step(
    differences: Differences,
    F: tf.Tensor,
    marginals: tf.Tensor,
    coupled: bool,
    reduction: Reduction,
) -> tf.Tensor:
    r"""
    Compute :math:`F - \sum_k \gamma_k (dx_k + dF_k)`, with the :math:`\gamma` for which
    :math:`|F - \sum_k \gamma_k dF_k|` is smallest, in standard deviations of q.

    :param F: [2, N, L], where the sites want to be less where they are.
    :param coupled: See :func:`~gpflow_pep.sites.posterior.in_deviations`.
    """
    scaled = in_deviations(F, marginals, coupled)

    def step_from(depth: int) -> tf.Tensor:
        dx, dF = differences.dx[:depth], differences.dF[:depth]
        rows = tf.reshape(in_deviations(dF, marginals, coupled), [depth, -1])
        parts = (
            tf.matmul(rows, rows, transpose_b=True),
            tf.matmul(rows, tf.reshape(scaled, [-1, 1])),
        )
        # No gradient is ever taken, but TensorFlow prepares that of a loop where several tapes
        # watch.
        products, moments = map(tf.stop_gradient, reduction.total(parts))
        squares = tf.linalg.diag_part(products)
        known = (tf.range(depth) < differences.count) & (squares > 0.0)
        unit = tf.where(known, tf.math.rsqrt(squares), tf.zeros_like(squares))[:, None]
        # Normal equations of rows of unit length; the ridge is far above their rounding error.
        ridge = np.sqrt(np.finfo(rows.dtype.as_numpy_dtype).eps) * 1e-2
        normal = unit * products * tf.transpose(unit)
        normal = tf.linalg.set_diag(normal, ridge + tf.ones_like(squares))
        gamma = unit * tf.linalg.solve(normal, unit * moments)
        return F - tf.tensordot(gamma[:, 0], dx + dF, axes=1)

    # Most runs end before there are many.
    return tf.cond(
        differences.count <= _SMALL_DEPTH,
        lambda: step_from(_SMALL_DEPTH),
        lambda: step_from(differences.dx.shape[0]),
    )
