r"""Likelihoods of classes: probabilities of classes, common parts, and likelihoods of
two classes.

The squeezed probit, :math:`p = \epsilon + (1 - 2 \epsilon) \Phi(\pm f)`, is what most
classifiers use, and its tilted integrals take most of the time of a sweep. Unlike the
general rule of :mod:`gpflow_pep.engine.numerics.quadrature`, this rule has evenly
spaced nodes, which cost nearly nothing, and needs fewer of them: :math:`p^\alpha` is
constant except for a step of fixed width, and a multiple of :math:`\Phi`, whose
expectation is known, has the same ends. The difference is a bump, which is integrated.
Nodes cover the bump if the Gaussian is wider than the bump, and otherwise the Gaussian.

If all rows have one power and the floor is GPflow's, the bump is the same function for
all rows. It is then written once as a sum of Gaussians, whose integrals are a matrix
product. This takes a third of the time.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from typing import Any

import numpy as np
import scipy.special
import scipy.stats
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import AnyNDArray, MeanAndVariance, TensorType
from gpflow.likelihoods import Bernoulli, Likelihood
from gpflow.likelihoods.utils import inv_probit
from tensorflow import Tensor

from ..numerics import chunks
from ..numerics.linalg import sum_columns
from ..numerics.power import expm1_over_power, fast_log1p_over_power, log1p_over_power
from ..numerics.quadrature import REACH, Structure
from .generic import ScalarFactor, bounded_log, find_narrow
from .moments import (
    Layout,
    Support,
    Traits,
    implementations,
    layout,
    log_power_expectation,
    scalar_factor,
    scalar_log_power_expectation,
    support,
    traits,
    whole_numbers,
)

#: The number of rows whose integrals are computed at a time, with a row for each class.
_ROWS = 10_000


@check_shapes("X: [N, D]", "Fmu: [N, L]", "Fvar: [N, L]", "return: [N, C]")
def class_probabilities(
    likelihood: Likelihood,
    X: TensorType,
    Fmu: TensorType,
    Fvar: TensorType,
    num_classes: int,
) -> Tensor:
    """Compute the probability of each class: its tilted integral at power 1.

    All classes are computed at once, in chunks of rows, so that memory does not grow
    with C.

    :param likelihood: A likelihood of classes 0 to C - 1.
    :param X: The inputs of the model.
    :param Fmu: The means of the latent functions at these inputs.
    :param Fvar: The variances of the latent functions.
    :param num_classes: The number of classes, C.
    """

    of_all_classes = traits(likelihood).probabilities

    def chunk_probs(rows: Sequence[Tensor]) -> Tensor:
        if of_all_classes is not None:
            return tf.cast(of_all_classes(*rows[1:]), rows[1].dtype)
        X, Fmu, Fvar = (tf.tile(values, [num_classes, 1]) for values in rows)
        num_rows = tf.shape(Fmu)[0] // num_classes
        ones = tf.ones([1], Fmu.dtype)
        labels = tf.repeat(tf.range(num_classes, dtype=ones.dtype), num_rows)[:, None]
        log_probs = log_power_expectation(likelihood, X, Fmu, Fvar, labels, ones)
        return tf.exp(tf.transpose(tf.reshape(log_probs, [num_classes, num_rows])))

    rows = tuple(map(tf.convert_to_tensor, (X, Fmu, Fvar)))
    return chunks.map_over_chunks(
        chunk_probs, chunks.row_chunks(rows, max(1, _ROWS // num_classes))
    )


def moments_of_labels(
    likelihood: Likelihood, num_classes: int, X: Tensor, Fmu: Tensor, Fvar: Tensor
) -> MeanAndVariance:
    """Compute the moments of labels 0 to C - 1, each with one latent function, [..., N,
    P].
    """
    shape = tf.shape(Fmu)
    size = tf.shape(X)[-1]
    X = tf.broadcast_to(X[..., None, :], tf.concat([shape, [size]], axis=0))
    X, mean, variance = (
        tf.reshape(values, [-1, n]) for values, n in ((X, size), (Fmu, 1), (Fvar, 1))
    )
    p = class_probabilities(likelihood, X, mean, variance, num_classes)
    p /= tf.reduce_sum(p, axis=1, keepdims=True)
    labels = tf.range(num_classes, dtype=p.dtype)
    first = tf.linalg.matvec(p, labels)
    second = tf.reduce_sum(p * tf.square(labels - first[:, None]), axis=1)
    return tf.reshape(first, shape), tf.reshape(second, shape)


def register_classes(kind: type[Likelihood], **others: Any) -> None:
    """Register a likelihood that compares latent functions, one for each class.

    :param others: Further traits of the likelihood.
    """

    def count(likelihood: Likelihood) -> int:
        return int(likelihood.latent_dim or 0)

    def of_likelihood(likelihood: Likelihood) -> Traits:
        num_classes = count(likelihood)

        def predict(
            X: TensorType, Fmu: TensorType, Fvar: TensorType
        ) -> MeanAndVariance:
            p = class_probabilities(likelihood, X, Fmu, Fvar, num_classes)
            return p, p - tf.square(p)

        return Traits(
            num_classes=num_classes, ignores_level=True, predict=predict, **others
        )

    support.register(kind)(lambda likelihood, Y: whole_numbers(Y, count(likelihood)))
    layout.register(kind)(lambda likelihood, num_columns: Layout(1, count(likelihood)))
    traits.register(kind)(of_likelihood)


#: GPflow's probit link is ``_SQUEEZE + (1 - 2 _SQUEEZE) Phi(f)``. The constant does not
#: have a name in GPflow.
_SQUEEZE = 1e-3
#: The number of nodes, which is enough for GPflow's squeeze.
_NUM_NODES = 48

#: A Gaussian of smaller standard deviation than this is narrow.
_NARROW = 0.7
#: With one bump for all rows: the number of Gaussians in the sum, and their standard
#: deviation in units of the distance between them. The weights of wider Gaussians are
#: too large to cancel in float64, and narrower or fewer Gaussians cannot follow the
#: bump. Errors of the integral are below 1e-10.
_NUM_PLACES = 112
_WIDTH = 1.5
#: Means beyond this are moved here, because no Gaussian of the sum is near.
_FARTHEST = 1e15
#: The bump ends at this distance from the point where Phi meets the floor, and from 0.
#: There it has 1e-10 of its height.
_BELOW_FLOOR = 4.6
_ABOVE_ZERO = 6.2
#: Replaces a variance of 0.
_SMALLEST_VARIANCE = 1e-30
_LOGITS = (tf.sigmoid, tf.math.sigmoid, tf.nn.sigmoid)


def signs(Y: Tensor) -> Tensor:
    """Return +1 if the label is 1, otherwise -1, as GPflow reads labels."""
    return tf.where(tf.equal(Y, 1.0), tf.ones_like(Y), -tf.ones_like(Y))


def normal_cdf(x: Tensor) -> Tensor:
    r"""Compute :math:`\Phi(x)` to full relative precision, also for small values."""
    return 0.5 * tf.math.erfc(x * -np.sqrt(0.5))


@implementations.register(Bernoulli)
def _bernoulli(
    likelihood: Bernoulli,
    X: Tensor,
    Fmu: Tensor,
    Fvar: Tensor,
    Y: Tensor,
    alpha: Tensor,
) -> Tensor:
    if likelihood.invlink is not inv_probit:
        return scalar_log_power_expectation(likelihood, X, Fmu, Fvar, Y, alpha)
    if alpha.shape[0] == 1:
        power = tf.expand_dims(alpha, 1)
        return sum_columns(_with_one_bump(signs(Y) * Fmu, Fvar, power))
    epsilon = tf.constant(_SQUEEZE, Fmu.dtype)
    terms = squeezed_probit_log_power_expectation(
        Fmu, Fvar, Y, epsilon, alpha[:, None], _NUM_NODES
    )
    return tf.reduce_sum(terms, axis=-1)


def _with_one_bump(mean: Tensor, variance: Tensor, alpha: Tensor) -> Tensor:
    r"""Compute :func:`squeezed_probit_log_power_expectation` if all rows have one
    power.

    With :math:`g = (p^\alpha - 1) / \alpha`, whose ends are a and a + b, it is
    :math:`E[g] = a + b \Phi(m / \sqrt{1 + v}) + \int N(f; m, v) R(f) df`, where
    :math:`R = g - a - b \Phi` does not depend on the row. As a sum of Gaussians,
    :math:`R(f) = \sum_j \gamma_j N(f; x_j, \sigma^2)`, it has the integral
    :math:`\sum_j \gamma_j N(x_j; m, v + \sigma^2)`, for any variance.
    """

    places, width, logs, cdf, inverse = _gaussians()
    g = expm1_over_power(tf.constant(logs), tf.cast(alpha, tf.float64))
    low, g, high = tf.split(g, [1, _NUM_PLACES, 1])
    b = high - low
    weights = tf.matmul(tf.constant(inverse), g - (low + b * tf.constant(cdf)))
    low, b, weights = (tf.cast(values, mean.dtype) for values in (low, b, weights))
    wider = variance + width**2
    moments = _mixed(places, weights, mean, wider, tf.reduce_any(alpha < 1.0))
    deviation = tf.sqrt(1.0 + variance)
    z = mean / deviation
    excess = low + b * normal_cdf(z) + moments[0]

    @tf.custom_gradient
    def integral(mean: Tensor, variance: Tensor) -> tuple[Tensor, Callable[..., Any]]:
        # The terms of the value are also the terms of its derivatives.
        def gradient(upstream: Tensor) -> tuple[Tensor, Tensor]:
            share = upstream / (1.0 + alpha * excess)
            density = (b * np.sqrt(0.5 / np.pi)) * tf.exp(-0.5 * z * z) / deviation
            by_mean, by_variance = _slopes(moments, mean, wider)
            by_variance -= 0.5 * density * z / deviation
            return share * (by_mean + density), share * by_variance

        return fast_log1p_over_power(excess, alpha), gradient

    return integral(mean, variance)


@cache
def _gaussians() -> tuple[AnyNDArray, float, AnyNDArray, AnyNDArray, AnyNDArray]:
    """Choose the Gaussians whose sum is the bump.

    :return: Their means, [Q, 1], and their standard deviation; :math:`\\log p` at the
        lower end, at the means and at the upper end, [Q + 2, 1]; :math:`\\Phi` at the
        means; and the matrix that converts the values there to weights, [Q, Q].
    """
    start = float(scipy.special.ndtri(_SQUEEZE)) - _BELOW_FLOOR
    places = np.linspace(start, _ABOVE_ZERO, _NUM_PLACES)[:, None]
    width = _WIDTH * float(places[1, 0] - places[0, 0])
    values = scipy.stats.norm.pdf(places, places.T, width)
    cdf = scipy.special.ndtr(places)
    logs = np.log(
        _SQUEEZE + (1.0 - 2.0 * _SQUEEZE) * np.concatenate([[[0.0]], cdf, [[1.0]]])
    )
    return places, width, logs, cdf, np.linalg.inv(values)


def _mixed(
    places: AnyNDArray, weights: Tensor, mean: Tensor, variance: Tensor, needed: Tensor
) -> list[Tensor]:
    """Compute weighted sums of Gaussians at places that all rows share, by a matrix
    product.

    :return: The sum, and the same with the places, and with their squares, as factors.
    """
    m, v = (
        tf.reshape(tf.stop_gradient(moment), [-1, 1]) for moment in (mean, variance)
    )
    m = tf.clip_by_value(m, -_FARTHEST, _FARTHEST)  # its square is finite
    x = tf.constant(places, m.dtype)

    def density() -> Tensor:
        """Compute the density of each row at the places, [NL, Q]. The squares of
        differences are a matrix product.
        """
        of_rows = [
            -0.5 / v,
            m / v,
            -0.5 * (tf.square(m) / v + tf.math.log(2.0 * np.pi * v)),
        ]
        of_places = np.concatenate([places**2, places, np.ones_like(places)], axis=1).T
        return tf.exp(
            tf.matmul(tf.concat(of_rows, axis=1), tf.constant(of_places, m.dtype))
        )

    @tf.custom_gradient
    def sums(
        weights: Tensor, mean: Tensor, variance: Tensor
    ) -> tuple[Tensor, Callable[..., Any]]:
        def gradient(upstream: Tensor) -> tuple[Any, ...]:
            slopes = _slopes(three(weights, mean, variance), mean, variance)
            return None, *(tf.reduce_sum(upstream * by, 1, True) for by in slopes)

        def zeros() -> Tensor:
            return tf.matmul(tf.zeros_like(m), tf.zeros([1, weights.shape[1]], m.dtype))

        return tf.cond(needed, lambda: tf.matmul(density(), weights), zeros), gradient

    def three(weights: Tensor, mean: Tensor, variance: Tensor) -> list[Tensor]:
        """Compute the sums with the powers 0, 1 and 2 of the places as factors."""
        powers = tf.concat([weights, weights * x, weights * tf.square(x)], axis=1)
        return tf.split(sums(powers, mean, variance), 3, axis=1)

    shape = tf.shape(mean)
    mean, variance = (tf.reshape(moment, [-1, 1]) for moment in (mean, variance))
    moments = three(tf.stop_gradient(weights), mean, variance)
    return [tf.reshape(moment, shape) for moment in moments]


def _slopes(
    moments: Iterable[Tensor], mean: Tensor, variance: Tensor
) -> tuple[Tensor, Tensor]:
    """Compute the derivatives of a sum of Gaussian densities at some places in mean and
    variance.

    :param moments: The sum, and the sums with the places and with their squares as
        factors.
    """
    zeroth, first, second = moments
    by_mean = (first - mean * zeroth) / variance
    square = second - mean * (2.0 * first - mean * zeroth)
    return by_mean, 0.5 * (square / variance - zeroth) / variance


def squeezed_probit_log_power_expectation(
    mean: Tensor,
    variance: Tensor,
    Y: Tensor,
    epsilon: Tensor,
    alpha: Tensor,
    num_nodes: int,
) -> Tensor:
    r"""Compute the tilted integral of
    :math:`p = \epsilon + (1 - 2\epsilon) \Phi(\pm f)`.

    With :math:`r` the value of p at the mean, and
    :math:`g = [(p / r)^\alpha - 1] / \alpha`,

    .. math::

       E[g] &= a + b \, \Phi\left(\frac{\pm m}{\sqrt{1 + v}}\right)
              + \int N(f; m, v) \, [g(f) - a - b \Phi(\pm f)] \, df, \\
       \ell &= \log r + \tfrac{1}{\alpha} \log(1 + \alpha E[g]),

    where b is the difference of the two ends of g, and a its lower end. If the Gaussian
    is narrow, a is the number with which the integrand is 0 at the mean. At
    :math:`\alpha = 1` the integrand is 0.

    :param Y: Labels, [N, L] like the moments. The upper sign belongs to label 1.
    :param epsilon: :math:`\epsilon`, in (0, 1/2).
    :param num_nodes: The number of nodes; a smaller :math:`\epsilon` needs more.
    """
    mean = signs(Y) * mean
    rows = find_narrow(variance)
    variance = rows.wider
    m = tf.stop_gradient(mean)
    s = tf.sqrt(tf.stop_gradient(variance))
    half_slope = 0.5 - epsilon
    reference = tf.stop_gradient(epsilon + 2.0 * half_slope * normal_cdf(m))

    def g(erfc: Tensor) -> Tensor:
        log_ratio = tf.math.log(epsilon / reference + (half_slope / reference) * erfc)
        return expm1_over_power(log_ratio, alpha)

    low = g(tf.zeros_like(m))
    b = g(2.0 * tf.ones_like(m)) - low
    narrow = s < _NARROW
    a = tf.where(narrow, -b * normal_cdf(m), low)
    start = tf.math.ndtri(epsilon) - _BELOW_FLOOR
    middle = tf.where(narrow, tf.zeros_like(m), 0.5 * (start + _ABOVE_ZERO) - m)
    reach = tf.where(narrow, REACH * s, 0.5 * (_ABOVE_ZERO - start) * tf.ones_like(m))
    even = tf.constant(np.linspace(-1.0, 1.0, num_nodes)[:, None, None], m.dtype)
    offset = tf.stop_gradient(middle + reach * even)
    erfc = tf.math.erfc((m + offset) * -np.sqrt(0.5))  # 2 Phi
    bump = _integrate(g(erfc) - (a + 0.5 * b * erfc), offset, reach, mean, variance)
    excess = a + b * normal_cdf(mean / tf.sqrt(1.0 + variance)) + bump
    log_prob = tf.math.log(epsilon + 2.0 * half_slope * normal_cdf(mean))
    return rows.between(
        log_prob, tf.math.log(reference) + log1p_over_power(excess, alpha)
    )


def _integrate(
    values: Tensor, offset: Tensor, reach: Tensor, mean: Tensor, variance: Tensor
) -> Tensor:
    r"""Compute :math:`\int N(f; m, v) R(f) df` by the trapezoid rule.

    Derivatives of any order in m and v are computed with constant nodes: they are the
    integrals of :math:`R (f - m) / v` and of :math:`R [(f - m)^2 / v - 1] / (2 v)`.
    """
    m = tf.stop_gradient(mean)
    v = tf.stop_gradient(variance)
    spacing = 2.0 / (offset.shape[0] - 1)
    density = tf.stop_gradient(
        reach * (spacing / np.sqrt(2.0 * np.pi)) * tf.math.rsqrt(v)
    )
    weights = tf.stop_gradient(density * tf.exp(offset * (offset * (-0.5 / v))))

    @tf.custom_gradient
    def total(
        weighted: Tensor, mean: Tensor, variance: Tensor
    ) -> tuple[Tensor, Callable[..., Any]]:
        def gradient(upstream: Tensor) -> list[Tensor]:
            once = weighted * offset
            moments = (
                total(integrand, mean, variance)
                for integrand in (weighted, once, once * offset)
            )
            # The offsets are relative to a constant copy of the mean. The difference of
            # both is 0 but has a derivative.
            slopes = _slopes(moments, mean - m, variance)
            return [upstream * by for by in (tf.ones_like(weighted), *slopes)]

        return tf.reduce_sum(weighted, axis=0), gradient

    return total(weights * values, mean, variance)


def step_log_power_expectation(
    mean: Tensor, variance: Tensor, Y: Tensor, epsilon: Tensor, alpha: Tensor
) -> Tensor:
    r"""Compute the tilted integral of :math:`p`, which is :math:`1 - \epsilon` if f has
    the label's sign, otherwise :math:`\epsilon`. It is :math:`\frac{1}{\alpha} \log[P
    (1 - \epsilon)^\alpha + (1 - P) \epsilon^\alpha]` with
    :math:`P = \Phi(\pm m / \sqrt{v})`.
    """
    margin = signs(Y) * mean / tf.sqrt(tf.maximum(variance, _SMALLEST_VARIANCE))
    return two_valued(
        normal_cdf(margin), normal_cdf(-margin), 1.0 - epsilon, epsilon, alpha
    )


def two_valued(
    prob_high: Tensor, prob_low: Tensor, high: Tensor, low: Tensor, alpha: Tensor
) -> Tensor:
    r"""Compute :math:`\frac{1}{\alpha} \log[P h^\alpha + (1 - P) l^\alpha]`.

    :param prob_low: The probability 1 - P, to full relative precision.
    """
    # Computed relative to the more probable value, so that nothing cancels.
    high_first = prob_high > prob_low
    log_high = tf.math.log(high)
    log_low = tf.math.log(low)
    origin = tf.where(high_first, log_high, log_low)
    other = tf.where(
        high_first,
        prob_low * expm1_over_power(log_low - log_high, alpha),
        prob_high * expm1_over_power(log_high - log_low, alpha),
    )
    return origin + fast_log1p_over_power(other, alpha)


@scalar_factor.register(Bernoulli)
def _bernoulli_link(
    likelihood: Bernoulli, X: Tensor, Y: Tensor, alpha: Tensor
) -> ScalarFactor:
    step = Structure(tf.zeros_like(Y), tf.ones_like(Y), 2.0 * tf.ones_like(Y))
    if any(likelihood.invlink is link for link in _LOGITS):
        sign = signs(Y)
        return ScalarFactor(lambda f: tf.math.log_sigmoid(sign * f), [step])

    def log_prob(f: Tensor) -> Tensor:
        p = likelihood.invlink(f)
        return bounded_log(tf.where(tf.equal(Y, 1.0), p, 1.0 - p))

    return ScalarFactor(log_prob, [step])


def register_two_classes(kind: type[Likelihood]) -> None:
    """Register the common parts of likelihoods of the classes 0 and 1."""
    common = Traits(num_classes=2, follows_wider_priors=True)
    support.register(kind)(lambda likelihood, Y: Support((Y == 0) | (Y == 1), "0 or 1"))
    traits.register(kind)(
        lambda likelihood: common._replace(
            predict=partial(moments_of_labels, likelihood, 2)
        )
    )


register_two_classes(Bernoulli)
