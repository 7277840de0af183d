"""Dense linear algebra: Cholesky factorisations that do not fail, and products that use
structure.

Only this module adds more jitter than GPflow's own ``Kuu``.

TensorFlow has no product that uses triangles or symmetry, and its triangular solve runs
on one core. So a triangular factor is inverted once (it is only :math:`M \\times M`)
and the products of size :math:`M \\times N` are done block row by block row, leaving
out the blocks that are zero or known by symmetry: at many blocks that is half of the
work.
"""

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes

from .chunks import sizes_may_vary
from .tapes import custom_gradient

_JITTER_ADDED = (
    "A covariance matrix of inducing variables could not be factorised with"
    " gpflow.config.default_jitter(): jitter was added to its diagonal. Likely causes"
    " are inducing inputs that (nearly) coincide, or a lengthscale much longer than"
    " their distances. Fewer or better spread inducing inputs, or a larger default"
    " jitter, avoid this."
)
#: Larger matrices are not written into graphs.
_LARGEST_CONSTANT = 256
#: Not empty while an optimiser tries parameters; see
#: :func:`warnings_of_graphs_dropped`.
_TRIALS: list[None] = []
#: The graph of a loss (None in eager mode), and whether factorisations in it succeeded.
_TRIED: ContextVar[tuple[Any, list[tf.Tensor]] | None] = ContextVar(
    "_TRIED", default=None
)


class JitterWarning(UserWarning):
    """A covariance matrix needed more jitter than
    ``gpflow.config.default_jitter()``.
    """


def _row_blocks(size: Any) -> list[tuple[Any, Any]]:
    """First and last row (exclusive) of each block; ``size`` may be a tensor."""
    # Rows in a block of the structured products. Measured: smaller blocks save more
    # work, but TensorFlow's matrix product slows down below about 150 rows.
    count = max(1, min(8, size // 160)) if isinstance(size, int) else 2
    return [(size * i // count, size * (i + 1) // count) for i in range(count)]


def _num_rows(matrix: tf.Tensor) -> Any:
    static = matrix.shape[-2]
    return tf.shape(matrix)[-2] if static is None else static


def _rows(matrix: tf.Tensor, start: Any, stop: Any) -> tf.Tensor:
    """Take some rows of [L, M, N], without an operation if they are all."""
    is_all = isinstance(start, int) and (start, stop) == (0, matrix.shape[-2])
    return matrix if is_all else matrix[:, start:stop]


def _lower_of_product(A: tf.Tensor, B: tf.Tensor) -> tf.Tensor:
    """Lower triangle of ``A Bᵀ``; zero above it."""
    size = _num_rows(A)
    *upper, last = [
        (stop, tf.matmul(_rows(A, start, stop), _rows(B, 0, stop), transpose_b=True))
        for start, stop in _row_blocks(size)
    ]
    rows = [tf.pad(block, [[0, 0], [0, 0], [0, size - stop]]) for stop, block in upper]
    full = tf.concat([*rows, last[1]], axis=-2) if rows else last[1]
    return tf.linalg.band_part(full, -1, 0)


def mirrored(lower: tf.Tensor) -> tf.Tensor:
    """Make symmetric matrices from their lower triangles."""
    diagonal = tf.linalg.diag_part(lower)
    return tf.linalg.set_diag(lower + tf.linalg.matrix_transpose(lower), diagonal)


def _adjoint_lower_matmul(W: tf.Tensor, B: tf.Tensor) -> tf.Tensor:
    """``Wᵀ B`` of a lower triangular ``W``."""
    blocks = _row_blocks(_num_rows(W))
    if len(blocks) == 1:
        return tf.matmul(W, B, transpose_a=True)
    products = [
        tf.matmul(W[:, start:, start:stop], B[:, start:], transpose_a=True)
        for start, stop in blocks
    ]
    return tf.concat(products, axis=-2)


def sum_like(gradient: tf.Tensor, shared: tf.Tensor) -> tf.Tensor:
    """Sum the gradients of all latent functions if they share the matrix."""
    if shared.shape[0] == gradient.shape[0]:
        return gradient
    return tf.reduce_sum(gradient, axis=0, keepdims=True)


@check_shapes(
    "W: [broadcast L, M, M]  # lower triangular",
    "B: [broadcast L, M, N]",
    "return: [L, M, N]",
)
def lower_matmul(W: tf.Tensor, B: tf.Tensor) -> tf.Tensor:
    """Compute the product :math:`W B` of lower triangular matrices with any matrices.

    Entries above the diagonal of ``W`` count as 0 and do not have a gradient.
    """

    @custom_gradient
    def product(W: tf.Tensor, B: tf.Tensor) -> tuple[tf.Tensor, Callable[..., Any]]:
        def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            by_W = _lower_of_product(upstream, B)
            by_B = _adjoint_lower_matmul(W, upstream)
            return sum_like(by_W, W), sum_like(by_B, B)

        blocks = _row_blocks(_num_rows(W))
        if len(blocks) == 1:
            return tf.matmul(W, B), gradient
        products = [
            tf.matmul(W[:, start:stop, :stop], B[:, :stop]) for start, stop in blocks
        ]
        return tf.concat(products, axis=-2), gradient

    return product(W, B)


@check_shapes("A: [broadcast L, M, N]", "w: [broadcast L, M, 1]", "return: [L, N]")
def on_columns(A: tf.Tensor, w: tf.Tensor) -> tf.Tensor:
    """Compute :math:`Aᵀ w`."""
    # TensorFlow transposes A itself on its way to a product with that flag.
    return tf.squeeze(tf.matmul(tf.linalg.matrix_transpose(w), A), axis=-2)


@check_shapes(
    "A: [broadcast L, M, N]",
    "weights: [broadcast L, broadcast N]",
    "return: [broadcast L, M, M]",
)
def gram(A: tf.Tensor, weights: tf.Tensor | None = None) -> tf.Tensor:
    r"""Compute :math:`A \,\mathrm{diag}(w) Aᵀ` for w of either sign, symmetric apart
    from rounding.

    :param weights: The weights w; None for :math:`A Aᵀ`, without a second matrix of the
        size of A.
    """

    @custom_gradient
    def product(
        A: tf.Tensor, *weights: tf.Tensor
    ) -> tuple[tf.Tensor, Callable[..., Any]]:
        weighted = A * tf.expand_dims(weights[0], 1) if weights else A
        if len(_row_blocks(_num_rows(A))) > 1:
            full = mirrored(_lower_of_product(weighted, A))
        else:
            full = tf.matmul(weighted, A, transpose_b=True)

        def gradient(upstream: tf.Tensor) -> Any:
            # One product instead of the two that automatic differentiation would need.
            HA = tf.matmul(upstream + tf.linalg.matrix_transpose(upstream), A)
            if not weights:
                return HA
            by_weights = sum_like(0.5 * tf.reduce_sum(A * HA, axis=-2), weights[0])
            return sum_like(HA * tf.expand_dims(weights[0], 1), A), by_weights

        return full, gradient

    if weights is None:
        return product(A)
    weights = tf.convert_to_tensor(weights, A.dtype)
    if weights.shape[-1] is None or weights.shape[-1] != A.shape[-1]:
        weights += tf.zeros_like(A[:1, 0])
    return product(A, weights)


def sum_columns(values: tf.Tensor) -> tf.Tensor:
    """Sum [N, P] over columns; for one column this takes fewer operations."""
    if values.shape[-1] == 1:
        return tf.squeeze(values, axis=-1)
    return tf.reduce_sum(values, axis=-1)


@check_shapes("A: [K, S, M]", "return: [K, S, S]")
def row_products(A: tf.Tensor) -> tf.Tensor:
    """Compute the inner products :math:`A_k A_kᵀ` of the rows of each group."""

    @custom_gradient
    def product(A: tf.Tensor) -> tuple[tf.Tensor, Callable[..., Any]]:
        def gradient(upstream: tf.Tensor) -> tf.Tensor:
            # One product instead of the two that automatic differentiation would need.
            return tf.matmul(upstream + tf.linalg.matrix_transpose(upstream), A)

        return tf.matmul(A, A, transpose_b=True), gradient

    return product(A)


def identity_like(K: tf.Tensor) -> tf.Tensor:
    """Make an identity matrix, a constant where its size is known and not large."""
    size = K.shape[-1]
    if size is None or size > _LARGEST_CONSTANT:
        return tf.eye(size or tf.shape(K)[-1], dtype=K.dtype)
    return tf.constant(np.eye(size), K.dtype)


@check_shapes("K: [batch..., M, M]", "return: [batch...]")
def jitter_needed(K: tf.Tensor) -> tf.Tensor:
    """Find what must be added to the diagonal of ``K`` for its Cholesky factorisation
    to succeed.

    It is 0 if ``K`` can be factorised unchanged. Otherwise it is the smallest
    sufficient number among 10, 100, ... times the rounding error of the matrix (M x
    machine epsilon x mean of the diagonal), up to the mean of the diagonal itself. It
    is a constant for differentiation. A :class:`JitterWarning` reports it (XLA cannot;
    there, any later eager use of the model does).

    :param K: Covariance matrices. A matrix with NaN stays NaN, and the caller has to
        check the result.
    """
    return _with_jitter(K)[0]


def _with_jitter(K: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Find the jitter that is needed, report it, and factorise with it. Both results
    are constants.
    """
    K = tf.stop_gradient(K)
    scale = tf.reduce_mean(tf.linalg.diag_part(K), axis=-1)
    size = _num_rows(K)
    eps = float(np.finfo(K.dtype.as_numpy_dtype).eps)
    rounding = scale * (
        eps * (size if isinstance(size, int) else tf.cast(size, K.dtype))
    )
    eye = identity_like(K)

    def succeeded(L: tf.Tensor) -> tf.Tensor:
        return tf.reduce_all(tf.math.is_finite(L), axis=[-2, -1])

    def unfinished(jitter: tf.Tensor, L: tf.Tensor) -> tf.Tensor:
        return tf.reduce_any(~succeeded(L) & (jitter < scale))

    def escalate(jitter: tf.Tensor, L: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        larger = tf.minimum(10.0 * tf.maximum(jitter, rounding), scale)
        jitter = tf.where(succeeded(L), jitter, larger)
        return jitter, tf.linalg.cholesky(K + jitter[..., None, None] * eye)

    without_jitter = tf.zeros_like(scale), tf.linalg.cholesky(K)
    jitter, L = map(
        tf.stop_gradient, tf.while_loop(unfinished, escalate, without_jitter)
    )
    numbers = {"Jitter": jitter, "mean of the diagonal": scale}
    warn(JitterWarning, tf.reduce_any(jitter > 0), _JITTER_ADDED, numbers)
    return jitter, L


def warn(
    category: type[Warning],
    condition: tf.Tensor,
    message: str,
    numbers: Mapping[str, tf.Tensor],
    up: int = 0,
) -> None:
    """Warn if a condition holds, with Python's warnings, also from compiled graphs.

    A graph leaves the numbers out, so that Python shows equal warnings only once. Under
    XLA, which cannot call Python, there is no warning.

    :param numbers: Numbers for the message, by their descriptions.
    :param up: The number of levels above the calling function to which the warning
        belongs.
    """
    if tf.executing_eagerly():
        if bool(condition):
            printed = (
                f"{name} {np.array2string(np.asarray(x), precision=3)}"
                for name, x in numbers.items()
            )
            warnings.warn(
                f"{message} {', '.join(printed)}.", category, stacklevel=3 + up
            )
        return
    if not sizes_may_vary():
        return

    def report() -> np.bool_:
        if not _TRIALS:
            warnings.warn(message, category, stacklevel=1)
        return np.True_

    tf.cond(
        condition,
        lambda: tf.numpy_function(report, [], tf.bool),
        lambda: tf.constant(True),
    )


@contextmanager
def warnings_of_graphs_dropped() -> Iterator[None]:
    """Drop warnings of compiled graphs in this context, because they are about
    parameters that an optimiser only tries.
    """
    _TRIALS.append(None)
    try:
        yield
    finally:
        _TRIALS.pop()


def _graph() -> tf.Graph | None:
    return None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()


@contextmanager
def trials_listed() -> Iterator[list[tf.Tensor]]:
    """List whether each factorisation in this context succeeds. If one fails, the
    identity is factorised instead, which is a constant, so that derivatives are 0
    instead of NaN.
    """
    trials: list[tf.Tensor] = []
    token = _TRIED.set((_graph(), trials))
    try:
        yield trials
    finally:
        _TRIED.reset(token)


class Factor:
    r"""Cholesky factor of a covariance matrix, and the factor's inverse, as functions
    of the matrix.

    With :math:`\Phi(X)` the lower triangle of X, half of its diagonal left out (Murray
    2016, arXiv:1602.07527), :math:`dL = L \Phi(W dK W^T)` and
    :math:`dW = -\Phi(W dK W^T) W`. So the way back is made of products alone, where
    automatic differentiation solves for triangles.

    :param K: The matrix. A constant that is added to its diagonal does not change the
        derivatives.
    :param root: The Cholesky factor as a constant.
    """

    def __init__(self, K: tf.Tensor, root: tf.Tensor) -> None:
        inverse = tf.linalg.triangular_solve(root, identity_like(root))
        self._known = K, root, inverse
        #: [..., M, M], lower triangular, :math:`W = L^{-1}`.
        self.W: tf.Tensor = _inverse_factor(K, inverse)

    @property
    def L(self) -> tf.Tensor:
        """[..., M, M], lower triangular, :math:`L Lᵀ = K` (plus the jitter of
        :func:`jitter_needed`).
        """
        L: tf.Tensor = _cholesky_factor(*self._known)
        return L


def _half_lower(K: tf.Tensor, factor: float) -> tf.Tensor:
    r"""Make the matrix M such that :math:`c \Phi(K)` is the elementwise product of M
    and K, see :class:`Factor`.

    :param factor: The number c.
    """
    size = K.shape[-1]
    if size is None or size > _LARGEST_CONSTANT:
        ones = tf.linalg.band_part(tf.ones_like(K), -1, 0)
        return factor * tf.linalg.set_diag(ones, 0.5 * tf.linalg.diag_part(ones))
    return tf.constant(factor * (np.tri(size) - 0.5 * np.eye(size)), K.dtype)


def _back(W: tf.Tensor, X: tf.Tensor, factor: float) -> tf.Tensor:
    """Compute a gradient in K from the gradient X in :math:`\\Phi(W dK W^T)`, times a
    factor. The result is not symmetric; dK is.
    """
    lower = X * _half_lower(X, factor)
    return tf.matmul(W, tf.matmul(lower, W), transpose_a=True)


# The next two functions make tensors of the graph in which they are called. Otherwise
# that graph could not be differentiated.
@custom_gradient
def _cholesky_factor(
    K: tf.Tensor, *known: tf.Tensor
) -> tuple[tf.Tensor, Callable[..., Any]]:
    K, L, W = map(tf.identity, (K, *known))

    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor | None, ...]:
        by_root = tf.matmul(_cholesky_factor(K, L, W), upstream, transpose_a=True)
        return _back(_inverse_factor(K, W), by_root, 1.0), None, None

    return L, gradient


@custom_gradient
def _inverse_factor(K: tf.Tensor, W: tf.Tensor) -> tuple[tf.Tensor, Callable[..., Any]]:
    K, W = map(tf.identity, (K, W))

    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor | None, ...]:
        root = _inverse_factor(K, W)
        return _back(root, tf.matmul(upstream, root, transpose_b=True), -1.0), None

    return W, gradient


_checked_factor = check_shapes("K: [batch..., M, M]", "return.W: [batch..., M, M]")


@_checked_factor
def factorise(K: tf.Tensor) -> Factor:
    """Compute the Cholesky factor of ``K`` and the factor's inverse."""
    return Factor(K, tf.linalg.cholesky(tf.stop_gradient(K)))


@_checked_factor
def factorise_with_jitter(K: tf.Tensor) -> Factor:
    """Factorise ``K`` with jitter if it is needed; see :func:`jitter_needed`."""
    L = _with_jitter(K)[1]
    tried = _TRIED.get()
    if tried is not None and tried[0] is _graph():
        tried[1].append(tf.reduce_all(tf.math.is_finite(L)))
        L = tf.where(tried[1][-1], L, identity_like(K))
    return Factor(K, L)
