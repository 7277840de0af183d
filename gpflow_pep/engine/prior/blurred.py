r"""Blurred inducing points, which average the Gaussian process over a Gaussian around
each point.

Source: Qi, Abdel-Gawad & Minka (2010), "SASPA"; with spherical blur, Walder et al.
(2008). Averages under Gaussians are in closed form for kernels that are sums of

.. math:: v \exp(-\tfrac12 (x - x')ᵀ P (x - x')), \qquad P = \mathrm{diag}(p) \ge 0,

which includes the squared exponential (p is 1 / lengthscale², and 0 for inputs that are
not active), constants (p = 0), and all their sums and products. With
:math:`S = P^{1/2} C P^{1/2}`, a difference of inputs with mean :math:`\mu` and
covariance C has

.. math:: E[k] = v |I + S|^{-1/2} \exp(-\tfrac12 \muᵀ P^{1/2} (I + S)^{-1} P^{1/2} \mu)

where C is :math:`C_m` for ``Kuf`` and :math:`C_m + C_{m'}` for ``Kuu`` (QAM10 (9) has
another constant factor). With C = 0 it is the kernel.
"""

from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow import Parameter
from gpflow.base import AnyNDArray, TensorData, TensorLike, TensorType
from gpflow.config import default_float
from gpflow.covariances import Kuf, Kuu
from gpflow.inducing_variables.inducing_variables import InducingPointsBase
from gpflow.kernels import Constant, Kernel, Product, SquaredExponential, Sum
from gpflow.utilities import triangular

from ..checks import check_finite, refusal
from ..numerics.linalg import mirrored

Closed = SquaredExponential | Constant


class BlurredInducingPoints(InducingPointsBase):
    r"""Inducing variables :math:`g_m = \int f(x) N(x; z_m, C_m) dx` (Qi, Abdel-Gawad &
    Minka 2010).

    They can be used in all places of GPflow's inducing points. The kernel must be
    ``SquaredExponential`` or ``Constant``, or any ``Sum`` or ``Product`` of these;
    there is no closed form for other kernels.

    ``Z`` and ``covariance_sqrt`` are trainable. The latter is the square root of the
    covariances: standard deviations of either sign, or lower triangular matrices. It
    has no lower limit, so that a covariance may be exactly 0, which is a point. There
    the gradient with respect to the root is 0 as well, so start from positive
    covariances if you train them.

    :param Z: The centres, [M, D].
    :param covariance: The covariances: spherical [M], diagonal [M, D] or full [M, D,
        D]; positive semi-definite.
    :raises ValueError: If shapes do not agree, or if a covariance is not positive
        semi-definite.
    """

    def __init__(
        self, Z: TensorData, covariance: TensorData, name: str | None = None
    ) -> None:
        if np.ndim(Z) != 2:
            remedy = "Pass a matrix with one row for each centre."
            raise refusal("Z", f"shape {np.shape(Z)}", "two axes [M, D]", remedy)
        check_finite("Z", np.asarray(Z, dtype=default_float()))
        super().__init__(Z, name=name)
        roots = _square_roots(covariance, *np.shape(Z))
        self.covariance_sqrt = Parameter(
            roots,
            transform=triangular() if roots.ndim == 3 else None,
            dtype=default_float(),
        )

    @property
    @check_shapes("return: [M, D, D]")
    def covariance(self) -> tf.Tensor:
        """The covariances as matrices."""
        C = self.compact_covariance()
        return tf.linalg.diag(C) if C.shape.rank == 2 else C

    def compact_covariance(self) -> tf.Tensor:
        """Compute the diagonals [M, D] of spherical and diagonal covariances, or full
        covariances [M, D, D].
        """
        root = tf.convert_to_tensor(self.covariance_sqrt)
        if root.shape.rank == 3:
            return tf.matmul(root, root, transpose_b=True)
        if root.shape.rank == 2:
            return tf.square(root)
        return tf.broadcast_to(tf.square(root)[:, None], tf.shape(self.Z))


def _square_roots(
    covariance: TensorData, num_points: int, num_inputs: int
) -> AnyNDArray:
    """Compute square roots: standard deviations, or lower triangular L with C = L Lᵀ. C
    may be singular.
    """
    value: AnyNDArray = np.asarray(covariance, dtype=default_float())
    shapes = [(num_points, *[num_inputs] * axes) for axes in range(3)]
    if value.shape not in shapes:
        expected = (
            f"{shapes[0]} (spherical), {shapes[1]} (diagonal) or {shapes[2]} (full),"
            " for Z"
        )
        expected += f" of shape {shapes[1]}"
        remedy = "Pass one covariance for each point."
        raise refusal("covariance", f"shape {value.shape}", expected, remedy)
    if not np.all(np.isfinite(value)):
        raise refusal("covariance", "NaN or infinity", "finite numbers", "Check them.")
    if value.ndim < 3:
        _refuse_negative(value)
        return np.sqrt(value)
    size = np.abs(value).max(axis=(1, 2), initial=0.0)
    rounding = 10.0 * num_inputs * np.finfo(value.dtype).eps * size
    if np.any(np.abs(value - value.transpose(0, 2, 1)) > rounding[:, None, None]):
        remedy = "Pass (C + C.T) / 2 if rounding is the cause."
        raise refusal(
            "covariance", "an asymmetric matrix", "covariance matrices", remedy
        )
    eigenvalues, vectors = np.linalg.eigh(value)
    _refuse_negative(eigenvalues + rounding[:, None])
    # C = B Bᵀ with B = V λ^½; Bᵀ = Q R makes C = Rᵀ R. A Cholesky factor needs C > 0.
    roots = np.sqrt(np.maximum(eigenvalues, 0.0))[:, None, :] * vectors
    _, R = np.linalg.qr(roots.transpose(0, 2, 1))
    signs = np.where(np.diagonal(R, axis1=1, axis2=2) < 0.0, -1.0, 1.0)
    return np.asarray(
        np.tril((R * signs[:, :, None]).transpose(0, 2, 1)), dtype=value.dtype
    )


def _refuse_negative(variances: AnyNDArray) -> None:
    wrong = np.argwhere(variances < 0.0)
    if wrong.size:
        value = f"{variances[tuple(wrong[0])]:g}"
        got = f"a negative variance or eigenvalue, {value}, at point {wrong[0][0]}"
        expected = "a positive semi-definite covariance for each point"
        raise refusal(
            "covariance", got, expected, "Pass covariances, not their square roots."
        )


def multiplied_out(kernel: Kernel) -> list[list[Kernel]]:
    """Multiply a kernel out into a sum of products of kernels that are neither sums nor
    products.

    :param kernel: A kernel of one output.
    """
    if isinstance(kernel, Sum):
        return [product for term in kernel.kernels for product in multiplied_out(term)]
    if isinstance(kernel, Product):
        products: list[list[Kernel]] = [[]]
        for term in kernel.kernels:
            products = [a + b for a in products for b in multiplied_out(term)]
        return products
    return [[kernel]]


def sum_of_products(kernel: Kernel) -> list[list[Closed]]:
    """Multiply a kernel out into a sum of products of squared exponentials and
    constants.

    :param kernel: A kernel of one output.
    :raises ValueError: If the kernel has another part, for which there is no closed
        form for blurred points.
    """
    products = multiplied_out(kernel)
    for factor in (factor for product in products for factor in product):
        if not isinstance(factor, (SquaredExponential, Constant)):
            raise refusal(
                "kernel",
                f"{type(factor).__name__} with BlurredInducingPoints",
                "a kernel with a closed form of their covariances:"
                " SquaredExponential, Constant, and Sum and Product of these",
                "Use such a kernel, or ordinary inducing points.",
            )
    return products


def _gaussian_term(
    product: Sequence[Closed], num_inputs: int
) -> tuple[tf.Tensor, tf.Tensor]:
    """Multiply a product to one Gaussian function of differences: v, [], and p, [D],
    which may be 0.
    """
    variance = tf.reduce_prod(
        tf.stack([tf.convert_to_tensor(k.variance) for k in product])
    )
    precisions = [
        _precision(k, num_inputs) for k in product if isinstance(k, SquaredExponential)
    ]
    return variance, sum(precisions, start=tf.zeros([num_inputs], dtype=variance.dtype))


def _precision(kernel: SquaredExponential, num_inputs: int) -> tf.Tensor:
    """Compute 1 / lengthscale² of each active input, and 0 for the others, [D]."""
    try:
        active = np.arange(num_inputs)[kernel.active_dims]
    except IndexError:
        active = np.array([], dtype=int)
    precision = 1.0 / tf.square(kernel.lengthscales)
    if active.size == 0 or precision.shape not in ([], [active.size]):
        shape = tuple(precision.shape)
        got = (
            f"active_dims {kernel.active_dims} and lengthscales of shape {shape} for"
            f" {num_inputs}"
        )
        expected = (
            "active inputs among these, and one lengthscale for all inputs or one for"
            " each"
        )
        raise refusal("kernel", f"{got} input(s)", expected, "Change the kernel.")
    return tf.scatter_nd(
        active[:, None], tf.broadcast_to(precision, [active.size]), [num_inputs]
    )


def _of_differences(p: tf.Tensor, difference: tf.Tensor, C: tf.Tensor) -> tf.Tensor:
    """Compute minus twice the logarithm of E[k] / v, for ``Kuu``, from means of
    differences [K, D] and their covariances, diagonal [K, D] or full [K, D, D].
    """
    if C.shape.rank == 2:
        terms = p / (1.0 + p * C) * tf.square(difference) + tf.math.log1p(p * C)
        return tf.reduce_sum(terms, axis=-1)
    root = tf.sqrt(p)
    L = _factor(root, C)
    whitened = tf.linalg.triangular_solve(L, (root * difference)[..., None])
    return tf.reduce_sum(tf.square(whitened), axis=[-2, -1]) + _logdet(L)


def _of_rows(p: tf.Tensor, Z: tf.Tensor, C: tf.Tensor, X: tf.Tensor) -> tf.Tensor:
    """Do the same for ``Kuf``, [M, N], without a tensor of size M x N x D."""
    # Squares are multiplied out to matrix products. Near the origin this loses little
    # precision.
    origin = tf.stop_gradient(tf.reduce_mean(Z, axis=0))
    Z = Z - origin
    X = X - origin
    if C.shape.rank == 2:
        Q = p / (1.0 + p * C)
        Qz = Q * Z
        squares = tf.matmul(Q, tf.square(X), transpose_b=True)
        logdet = tf.reduce_sum(tf.math.log1p(p * C), axis=-1)
    else:
        root = tf.sqrt(p)
        L = _factor(root, C)
        Y = tf.linalg.triangular_solve(
            L, tf.broadcast_to(tf.linalg.diag(root), tf.shape(L))
        )
        Q = tf.matmul(Y, Y, transpose_a=True)
        Qz = tf.linalg.matvec(Q, Z)
        num_pairs = tf.square(tf.shape(X)[1])
        pairs = tf.reshape(X[:, :, None] * X[:, None, :], [-1, num_pairs])
        squares = tf.matmul(tf.reshape(Q, [-1, num_pairs]), pairs, transpose_b=True)
        logdet = _logdet(L)
    products = tf.matmul(Qz, X, transpose_b=True)
    centres = tf.reduce_sum(Qz * Z, axis=-1, keepdims=True)
    return squares - 2.0 * products + centres + logdet[:, None]


def _factor(root: tf.Tensor, C: tf.Tensor) -> tf.Tensor:
    """Compute Cholesky factors of I + S."""
    return tf.linalg.cholesky(
        tf.eye(C.shape[-1], dtype=C.dtype) + root[:, None] * C * root
    )


def _logdet(L: tf.Tensor) -> tf.Tensor:
    return 2.0 * tf.reduce_sum(tf.math.log(tf.linalg.diag_part(L)), axis=-1)


def _mean_of_kernel(
    kernel: Kernel, num_inputs: int, exponent: Callable[[tf.Tensor], tf.Tensor]
) -> tf.Tensor:
    """Sum over the kernel's terms of v exp(-exponent(p) / 2)."""
    terms = [_gaussian_term(product, num_inputs) for product in sum_of_products(kernel)]
    return tf.add_n([v * tf.exp(-0.5 * exponent(p)) for v, p in terms])


@Kuu.register(BlurredInducingPoints, Kernel)
@check_shapes("inducing_variable: [M, D, 1]", "return: [M, M]")
def _Kuu_blurred(
    inducing_variable: BlurredInducingPoints, kernel: Kernel, *, jitter: float = 0.0
) -> tf.Tensor:
    Z = tf.convert_to_tensor(inducing_variable.Z)
    C = inducing_variable.compact_covariance()
    # Each pair is computed once, because the factors of M x M matrices are most of the
    # work.
    num_points = inducing_variable.covariance_sqrt.shape[0]
    row, column = np.tril_indices(num_points)
    difference = tf.gather(Z, row) - tf.gather(Z, column)
    total = tf.gather(C, row) + tf.gather(C, column)
    entries = _mean_of_kernel(
        kernel, Z.shape[1], lambda p: _of_differences(p, difference, total)
    )
    K = mirrored(
        tf.scatter_nd(np.stack([row, column], axis=1), entries, [num_points] * 2)
    )
    return K + jitter * tf.eye(num_points, dtype=K.dtype)


@Kuf.register(BlurredInducingPoints, Kernel, TensorLike)
@check_shapes(
    "inducing_variable: [M, D, 1]", "Xnew: [batch..., N, D]", "return: [M, batch..., N]"
)
def _Kuf_blurred(
    inducing_variable: BlurredInducingPoints, kernel: Kernel, Xnew: TensorType
) -> tf.Tensor:
    Z = tf.convert_to_tensor(inducing_variable.Z)
    C = inducing_variable.compact_covariance()
    X = tf.reshape(Xnew, [-1, Z.shape[1]])
    K = _mean_of_kernel(kernel, Z.shape[1], lambda p: _of_rows(p, Z, C, X))
    return tf.reshape(K, tf.concat([tf.shape(Z)[:1], tf.shape(Xnew)[:-1]], axis=0))
