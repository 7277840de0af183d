"""Steps along the natural gradient of Gaussians, given as means and square roots."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import gpflow
import tensorflow as tf
import tf_keras
from check_shapes import check_shapes
from gpflow.base import TensorType
from gpflow.models import GPModel
from gpflow.optimizers import NaturalGradient

from ...engine.checks import as_code, is_number, refusal
from ...engine.numerics.linalg import mirrored


class _NaturalStep(NamedTuple):
    """Gaussians after a step, and the length of the step."""

    mean: tf.Tensor  #: [M, L].
    root: tf.Tensor  #: [L, M, M], lower triangular square roots of the covariances.
    #: The length of the step of each Gaussian, [L], at most the requested one.
    gamma: tf.Tensor


@check_shapes(
    "mean: [M, L]",
    "root: [L, M, M]",
    "by_mean: [M, L]",
    "by_root: [L, M, M]",
    "gamma: []",
    "return.mean: [M, L]",
    "return.root: [L, M, M]",
    "return.gamma: [L]",
)
def natural_step(
    mean: tf.Tensor,
    root: tf.Tensor,
    by_mean: tf.Tensor,
    by_root: tf.Tensor,
    gamma: TensorType,
) -> _NaturalStep:
    r"""Take a step of length :math:`\gamma` against the natural gradient of a loss,
    which is its gradient in the expectation parameters, in natural parameters
    (Salimbeni, Eleftheriadis & Hensman 2018, equation 10).

    With :math:`S = R Rᵀ`, bars for the loss's gradients, and the symmetric matrix E
    whose lower triangle is the lower triangle of :math:`Rᵀ \bar R`, the step is

    .. math::

        S_+^{-1} = R^{-ᵀ} (I + \gamma E) R^{-1}, \qquad m_+ = m - \gamma S_+ \bar m.

    Long steps have two problems. If the loss is not convex in the variances,
    :math:`K = I + \gamma E` may be indefinite; and the gradient of a small batch does
    not show how far to go. So the step of a Gaussian is halved until no pivot of K is
    below :math:`1 - 0.9 \gamma`, with the requested length :math:`\gamma`, and the mean
    moves no further than
    :math:`(m_+ - m)ᵀ S^{-1} (m_+ - m) = M \gamma^2 / (1 - \gamma)^2`. So the covariance
    is always proper, short steps stay short, and a step of length 1 reaches the optimum
    of a quadratic loss however far it is, unless it lets the covariance grow tenfold.

    :param by_mean: The gradient :math:`\bar m`, finite.
    :param by_root: The gradient :math:`\bar R`, finite; its upper triangle is ignored.
    :param gamma: The length, in [0, 1].
    """
    product = tf.linalg.band_part(tf.matmul(root, by_root, transpose_a=True), -1, 0)
    # Rows and columns are in reverse order, so that R K⁻ᵀ with the Cholesky factor of K
    # is triangular.
    E = tf.reverse(mirrored(product), [-2, -1])
    columns = tf.reverse(root, [-1])
    slope = tf.matmul(columns, tf.transpose(by_mean)[:, :, None], transpose_a=True)
    identity = tf.eye(tf.shape(E)[-1], dtype=E.dtype)
    gamma = tf.convert_to_tensor(gamma, root.dtype)
    longest = tf.square(gamma / (1.0 - gamma)) * tf.cast(tf.shape(E)[-1], E.dtype)
    least = tf.sqrt(1.0 - 0.9 * gamma)

    def tried(lengths: tf.Tensor) -> tuple[tf.Tensor, ...]:
        length = lengths[:, None, None]
        K = tf.linalg.cholesky(identity + length * E)
        move = -length * tf.linalg.cholesky_solve(K, slope)
        fine = tf.reduce_sum(tf.square(move), axis=[-2, -1]) <= longest
        fine &= tf.reduce_min(tf.linalg.diag_part(K), axis=-1) >= least
        return lengths, K, move, fine  # comparisons with NaN are false

    lengths, K, move, _ = tf.while_loop(
        lambda lengths, K, move, fine: ~tf.reduce_all(fine),
        lambda lengths, K, move, fine: tried(tf.where(fine, lengths, 0.5 * lengths)),
        tried(tf.fill(tf.shape(root)[:1], gamma)),
        maximum_iterations=40,
    )
    half = tf.linalg.triangular_solve(K, tf.linalg.matrix_transpose(columns))
    new_root = tf.reverse(tf.linalg.matrix_transpose(half), [-1])
    new_mean = mean + tf.transpose(tf.matmul(columns, move)[:, :, 0])
    return _NaturalStep(new_mean, tf.linalg.band_part(new_root, -1, 0), lengths)


Length: TypeAlias = float | tf_keras.optimizers.schedules.LearningRateSchedule


class NaturalGradients(NamedTuple):
    """How :func:`~gpflow_pep.training.fit` trains q: with natural gradients of this
    package, of GPflow, or none.
    """

    q: Any = ()  #: Parameters: mean [M, L] and lower triangular square roots [L, M, M].
    length: Length | None = (
        None  #: The length of steps that use the gradient of the optimiser.
    )
    gpflow: NaturalGradient | None = (
        None  #: Makes separate steps before the steps of the optimiser.
    )

    @property
    def variables_of_q(self) -> list[tf.Variable]:
        return [parameter.unconstrained_variable for parameter in self.q]

    @property
    def variables(self) -> list[tf.Variable]:
        """The variables of q in which a step needs the gradient of the loss."""
        return [] if self.length is None else self.variables_of_q

    def step_before(self, loss: Callable[[], tf.Tensor]) -> None:
        """Take GPflow's step, if GPflow trains q."""
        if self.gpflow is not None:
            self.gpflow.minimize(loss, [self.q])

    def step_beside(self, gradients: Sequence[tf.Tensor], step: tf.Variable) -> None:
        """Take a step with the gradients in :attr:`variables`. A schedule depends on
        the number of the step.
        """
        if self.length is None:
            return
        (q_mu, q_sqrt), (by_mean, by_root) = self.q, gradients
        if q_sqrt.transform is not None:
            # From a vector, because it is linear.
            by_root = q_sqrt.transform.forward(by_root)
        mean, root = map(tf.convert_to_tensor, self.q)
        gamma = (
            tf.cast(self.length(step), mean.dtype)
            if callable(self.length)
            else self.length
        )
        after = natural_step(mean, root, by_mean, by_root, gamma)
        q_mu.assign(after.mean)
        q_sqrt.assign(after.root)


def natural_training(model: GPModel, natural_gradient: Any) -> NaturalGradients:
    """Find the parameters of q that natural gradients train, and how."""
    if natural_gradient is None or natural_gradient is False:
        return NaturalGradients()
    mean, root = (getattr(model, name, None) for name in ("q_mu", "q_sqrt"))
    if not (isinstance(mean, gpflow.Parameter) and isinstance(root, gpflow.Parameter)):
        got = (
            f"a natural gradient for {type(model).__name__}, whose q_mu and q_sqrt are"
            " not parameters"
        )
        expected = "SVGP, APEP, ARPEP or RPAPEP"
        raise refusal("natural_gradient", got, expected, "Leave it out.")
    if root.shape.rank != 3:
        got = f"a natural gradient for q_sqrt of shape {tuple(root.shape)}"
        expected = "[L, M, M], because natural gradients need full covariances"
        raise refusal(
            "natural_gradient", got, expected, "Use q_diag=False, or leave it out."
        )
    if isinstance(natural_gradient, gpflow.optimizers.NaturalGradient):
        return NaturalGradients((mean, root), gpflow=natural_gradient)
    natural_gradient = 0.1 if natural_gradient is True else natural_gradient
    schedule = isinstance(
        natural_gradient, tf_keras.optimizers.schedules.LearningRateSchedule
    )
    if not (
        schedule or (is_number(natural_gradient) and 0.0 < natural_gradient <= 1.0)
    ):
        got = as_code(natural_gradient)
        remedy = "Pass 0.1, for example."
        expected = (
            "a step length in (0, 1], a schedule of it, True, or gpflow.optimizers."
        )
        raise refusal("natural_gradient", got, f"{expected}NaturalGradient", remedy)
    return NaturalGradients((mean, root), natural_gradient)
