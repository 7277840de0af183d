r"""The squeezed probit, :math:`p = \epsilon + (1 - 2 \epsilon) \Phi(\pm f)`, by a rule of its own.

It is what most classifiers use, and its tilted integrals are most of the time of a sweep. Beside
the general rule of :mod:`gpflow_pep.ops.quadrature`, this one places its nodes evenly, which costs
next to nothing, and needs fewer of them: :math:`p^\alpha` is constant but for a step of fixed
width, and a multiple of :math:`\Phi`, whose expectation is known, has the same ends. What is left
to integrate is a bump. Nodes cover the bump where the Gaussian is wide beside it, and the Gaussian
where it is not.
"""

from collections.abc import Callable

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.likelihoods import Bernoulli
from gpflow.likelihoods.utils import inv_probit

from ..ops.power import expm1_quotient, log1p_ratio
from ..ops.quadrature import REACH
from .dispatch import implementations
from .generic import scalar_log_power_expectation

#: GPflow's probit link is ``_SQUEEZE + (1 - 2 _SQUEEZE) Phi(f)``; it has no name there.
_SQUEEZE = 1e-3
#: Enough for the squeeze of GPflow.
_NUM_NODES = 48

#: A Gaussian of smaller standard deviation than this is narrow.
_NARROW = 0.7
#: The bump ends so far from where Phi meets the floor, and from 0: there it is 1e-10 of its height.
_BELOW_FLOOR, _ABOVE_ZERO = 4.6, 6.2


def signs(Y: tf.Tensor) -> tf.Tensor:
    """+1 where the label is 1, else -1, as GPflow reads labels."""
    return tf.where(tf.equal(Y, 1.0), tf.ones_like(Y), -tf.ones_like(Y))


@check_shapes(
    "x: [any...]",
    "return: [any...]",
)
def normal_cdf(x: tf.Tensor) -> tf.Tensor:
    r"""
    Compute :math:`\Phi(x)` to all digits of small values too.

    :param x: Any values.
    """
    return 0.5 * tf.math.erfc(x * -np.sqrt(0.5))


@implementations.register(Bernoulli)
def _bernoulli(
    likelihood: Bernoulli,
    X: tf.Tensor,
    Fmu: tf.Tensor,
    Fvar: tf.Tensor,
    Y: tf.Tensor,
    alpha: tf.Tensor,
) -> tf.Tensor:
    if likelihood.invlink is not inv_probit:
        return scalar_log_power_expectation(likelihood, X, Fmu, Fvar, Y, alpha)
    epsilon = tf.constant(_SQUEEZE, Fmu.dtype)
    terms = squeezed_probit_log_power_expectation(Fmu, Fvar, Y, epsilon, alpha[:, None], _NUM_NODES)
    return tf.reduce_sum(terms, axis=-1)


@check_shapes(
    "mean: [N, L]",
    "variance: [N, L]",
    "Y: [N, L]",
    "epsilon: []",
    "alpha: [N, 1]",
    "return: [N, L]",
)
def squeezed_probit_log_power_expectation(
    mean: tf.Tensor,
    variance: tf.Tensor,
    Y: tf.Tensor,
    epsilon: tf.Tensor,
    alpha: tf.Tensor,
    num_nodes: int,
) -> tf.Tensor:
    r"""
    Compute the tilted integral of :math:`p = \epsilon + (1 - 2\epsilon) \Phi(\pm f)`.

    With :math:`r` the value of p at the mean, and :math:`g = [(p / r)^\alpha - 1] / \alpha`,

    .. math::

       E[g] = a + b \, \Phi\left(\frac{\pm m}{\sqrt{1 + v}}\right)
              + \int N(f; m, v) \, [g(f) - a - b \Phi(\pm f)] \, df,
       \qquad \ell = \log r + \tfrac{1}{\alpha} \log(1 + \alpha E[g]),

    where b is the difference of the two ends of g, and a its lower end, or, where the Gaussian is
    narrow, what makes the integrand 0 at the mean. At :math:`\alpha = 1` the integrand is 0.

    :param mean: m.
    :param variance: v > 0.
    :param Y: Labels; the upper sign is that of label 1.
    :param epsilon: :math:`\epsilon`, in (0, 1/2).
    :param alpha: The power.
    :param num_nodes: Nodes of the rule; a smaller :math:`\epsilon` needs more.
    """
    mean = signs(Y) * mean
    m, s = tf.stop_gradient(mean), tf.sqrt(tf.stop_gradient(variance))
    half_slope = 0.5 - epsilon
    reference = tf.stop_gradient(epsilon + 2.0 * half_slope * normal_cdf(m))

    def g(erfc: tf.Tensor) -> tf.Tensor:
        log_ratio = tf.math.log(epsilon / reference + (half_slope / reference) * erfc)
        return expm1_quotient(log_ratio, alpha)

    low = g(tf.zeros_like(m))
    b = g(2.0 * tf.ones_like(m)) - low
    narrow = s < _NARROW
    a = tf.where(narrow, -b * normal_cdf(m), low)
    start = tf.math.ndtri(epsilon) - _BELOW_FLOOR
    middle = tf.where(narrow, tf.zeros_like(m), 0.5 * (start + _ABOVE_ZERO) - m)
    reach = tf.where(narrow, REACH * s, 0.5 * (_ABOVE_ZERO - start) * tf.ones_like(m))
    offset = tf.stop_gradient(middle + reach * _even_nodes(num_nodes, m.dtype))
    erfc = tf.math.erfc((m + offset) * -np.sqrt(0.5))  # 2 Phi
    bump = _integrate(g(erfc) - (a + 0.5 * b * erfc), offset, reach, mean, variance)
    excess = a + b * normal_cdf(mean / tf.sqrt(1.0 + variance)) + bump
    return tf.math.log(reference) + log1p_ratio(excess, alpha)


def _even_nodes(num_nodes: int, dtype: tf.DType) -> tf.Tensor:
    """From -1 to 1, [Q, 1, 1]."""
    return tf.constant(np.linspace(-1.0, 1.0, num_nodes)[:, None, None], dtype)


def _integrate(
    values: tf.Tensor,
    offset: tf.Tensor,
    reach: tf.Tensor,
    mean: tf.Tensor,
    variance: tf.Tensor,
) -> tf.Tensor:
    r"""
    Compute :math:`\int N(f; m, v) R(f) df` by the trapezoid rule.

    Derivatives in m and v are those at nodes held constant, of any order: the integrals of
    :math:`R (f - m) / v` and of :math:`R [(f - m)^2 / v - 1] / (2 v)`.

    :param values: R at the nodes, [Q, N, L].
    :param offset: Nodes less m, [Q, N, L], constant.
    :param reach: Half of the interval that they cover, [N, L].
    :param mean: m [N, L].
    :param variance: v [N, L].
    """
    m, v = tf.stop_gradient(mean), tf.stop_gradient(variance)
    weights = tf.exp(offset * (offset * (-0.5 / v)))
    spacing = 2.0 / (weights.shape[0] - 1)
    density = tf.stop_gradient(reach * (spacing / np.sqrt(2.0 * np.pi)) * tf.math.rsqrt(v))

    @tf.custom_gradient
    def total(
        weighted: tf.Tensor, mean: tf.Tensor, variance: tf.Tensor
    ) -> "tuple[tf.Tensor, Callable[[tf.Tensor], tuple[tf.Tensor, ...]]]":
        def gradient(upstream: tf.Tensor) -> "tuple[tf.Tensor, ...]":
            once = weighted * offset
            zeroth, first, second = (
                total(part, mean, variance) for part in (weighted, once, once * offset)
            )
            # The offsets are from the constant mean; the difference, 0, has a derivative.
            moved = mean - m
            by_mean = (first - moved * zeroth) / variance
            square = second - moved * (2.0 * first - moved * zeroth)
            by_variance = 0.5 * (square / variance - zeroth) / variance
            by_weighted = upstream * density * tf.ones_like(weighted)
            return by_weighted, upstream * by_mean, upstream * by_variance

        return density * tf.reduce_sum(weighted, axis=0), gradient

    return total(tf.stop_gradient(weights) * values, mean, variance)
