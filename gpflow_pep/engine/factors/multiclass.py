r"""RobustMax: the largest of several latent functions decides the class. The likelihood
has two values.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import AnyNDArray
from gpflow.likelihoods import MultiClass
from tensorflow import Tensor

from ..numerics.chunks import sizes_may_vary
from ..numerics.graphs import positions
from ..numerics.quadrature import REACH
from ..numerics.tapes import own_tape
from .classes import register_classes, two_valued
from .moments import implementations


class _Rule(NamedTuple):
    r"""The places of nodes, and their number."""

    start: float = -7.5
    """The left end of all nodes. As the product grows with t, the part of P left of it
    is at most Phi(start).
    """
    #: The right end of all nodes. A tiny P may come from there, so it is further out.
    end: float = REACH
    rise_start: float = -7.5
    """The place below which a normal distribution function counts as 0, in standard
    deviations from its middle.
    """
    rise_end: float = 6.5  #: The place above which it counts as 1.
    largest_step: float = 0.65**0.5
    r"""The largest step of even nodes. The error of the trapezoid rule of step h is
    bounded by :math:`|\Phi(x + i y)|` on lines parallel to the real line. Relative to
    the probability plus 1e-3 / (L - 1), the error was at most 1e-10, and the error of
    derivatives at most 1e-9, for 2 to 20 classes if
    h^2 (1 + sum of the rates' cubes)^(2/3) is below 0.65.
    """
    num_even: tuple[int, int] = (48, 64)
    """The numbers of even nodes for all rows. The first number is used if it is enough;
    in the second case the label of a row may be less certain than other classes.
    """
    num_in_panel: int = 32
    half_panel: float = 8.1
    """Half of the length of a panel in units of 1/r, where r is the length of (1, b)
    and the product grows off the real line like :math:`e^{r^2 y^2 / 2}`. The error of
    32 Gauss-Legendre nodes is then about 1e-11 by the bound on an ellipse. The measured
    error was below 1e-10, and below 1e-9 for derivatives.
    """
    panels_per_rise: int = 5
    """A number of panels that is enough for any row. In the worst case all rates are
    equal, and a rise takes about as many panels as the square root of their number.
    """
    smallest_rate: float = 1e-6  #: The least rate by which ends of a rise are divided.


_RULE = _Rule()
#: This fraction of the label's variance is added to the variances of other classes, and
#: this fraction of their least variance to the label's. It does not change the digits
#: of the integral. Derivatives in a variance near 0 keep their digits, as sites need.
_SMALLEST_RATIO = 1e-12
#: This is added to all variances.
_SMALLEST_VARIANCE = 1e-30


@check_shapes(
    "label: [N]", "mean: [N, L]", "variance: [N, L]", "return[0]: [N]", "return[1]: [N]"
)
def prob_is_largest(
    label: Tensor, mean: Tensor, variance: Tensor
) -> "tuple[Tensor, Tensor]":
    r"""Compute the probability that the label's latent function is the largest, and
    that it is not:

    .. math::

       P = \int N(f; m_y, v_y)
           \prod_{k \ne y} \Phi\left(\frac{f - m_k}{\sqrt{v_k}}\right) df

    (Villacampa-Calvo & Hernández-Lobato 2020, equation A.34).

    :param label: The label y of each row, in 0 ... L - 1.
    """
    # Classes first: sums over them then run along memory.
    m = tf.transpose(mean)
    v = tf.transpose(tf.maximum(variance, 0.0) + _SMALLEST_VARIANCE)
    classes = np.arange(m.shape[0])[:, None]
    is_label = tf.equal(tf.constant(classes, label.dtype), label)
    is_later_label = tf.equal(tf.constant(classes[1:], label.dtype), label)

    def of_label(x: Tensor) -> Tensor:
        return tf.reduce_sum(tf.where(is_label, x, tf.zeros_like(x)), axis=0)

    def of_others(x: Tensor) -> Tensor:
        # The order does not matter: the first class takes the place of the label.
        first, later = tf.split(x, [1, -1])
        return tf.where(is_later_label, first, later)

    label_variance = of_label(v)
    other_variances = of_others(v)
    precision = tf.math.rsqrt(
        other_variances + _SMALLEST_RATIO * tf.stop_gradient(label_variance)
    )
    label_variance += _SMALLEST_RATIO * tf.stop_gradient(
        tf.reduce_min(other_variances, axis=0)
    )
    margin = (of_label(m) - of_others(m)) * precision
    largest = prob_above_all(margin, tf.sqrt(label_variance) * precision)
    return largest, 1.0 - largest


@check_shapes("margin: [K, N]", "rate: [K, N]", "return: [N]")
def prob_above_all(margin: Tensor, rate: Tensor) -> Tensor:
    r"""Compute :math:`P = \int N(t; 0, 1) \prod_k \Phi(a_k + b_k t) \, dt`.

    If all rates of all rows are moderate, nodes are even, and the same for all rows.
    Larger rates need some more nodes. Otherwise each row has separate panels, see
    :func:`_over_panels`. Errors apart from rounding are below 1e-10 of P plus 1e-3 / K.
    """

    @tf.custom_gradient
    def probability(margin: Tensor, rate: Tensor) -> tuple[Tensor, Callable[..., Any]]:
        value, *derivatives = tf.split(
            _by_rule(margin, rate), [1, *[margin.shape[0]] * 2]
        )
        return value[0], lambda upstream: tuple(upstream * by for by in derivatives)

    return probability(margin, rate)


def _by_rule(margin: Tensor, rate: Tensor) -> Tensor:
    """Compute :func:`_integrals` with as many nodes as are needed."""

    @tf.custom_gradient
    def integrals(margin: Tensor, rate: Tensor) -> tuple[Tensor, Callable[..., Any]]:
        a = _unwatched(margin)
        b = _unwatched(rate)
        most = tf.reduce_max(tf.reduce_sum(b * b * b, axis=0))
        few, many = (most <= _most_cubes(num_nodes) for num_nodes in _RULE.num_even)
        values = tf.cond(
            many,
            partial(_integrals, _even_nodes(few, a.dtype), a, b),
            partial(_over_panels, _integrals, 1 + 2 * a.shape[0], a, b),
        )

        def gradient(upstream: Tensor) -> Sequence[Tensor]:
            def of_nodes(nodes: _Nodes, *inputs: Tensor) -> Tensor:
                *arguments, upstream = map(tf.identity, inputs)
                with own_tape(arguments) as tape:
                    values = _integrals(nodes, *arguments)
                return tf.concat(tape.gradient(values, arguments, upstream), axis=0)

            return tf.split(_over_panels(of_nodes, 2 * a.shape[0], a, b, upstream), 2)

        return values, gradient

    values: Tensor = integrals(margin, rate)
    return values


def _unwatched(x: Tensor) -> Tensor:
    """Hide a tensor from tapes, which ``tf.stop_gradient`` does not do.

    Inside of two tapes ``tf.cond`` would build the derivatives of both branches at
    once.
    """
    integer = tf.int64 if x.dtype == tf.float64 else tf.int32
    return tf.bitcast(tf.bitcast(x, integer), x.dtype)


class _Nodes(NamedTuple):
    """A rule for expectations under the standard normal distribution, [Q, broadcast N]
    each.
    """

    t: Tensor
    weights: Tensor


def _most_cubes(num_nodes: int) -> float:
    """Find the largest sum of the rates' cubes for which this number of even nodes is
    accurate.
    """
    step = (_RULE.end - _RULE.start) / (num_nodes - 1)
    return float((_RULE.largest_step / step) ** 3 - 1.0)


def _even_nodes(few: Tensor, dtype: tf.DType) -> _Nodes:
    """Make even nodes, the smaller number of them if ``few`` is true."""

    def rule(num_nodes: int) -> AnyNDArray:
        t = np.linspace(_RULE.start, _RULE.end, num_nodes)
        weights = np.exp(-0.5 * t * t)
        weights /= weights.sum()
        # Exact for the first two moments: derivatives then give a tilted variance that
        # is positive.
        t -= weights @ t
        t /= np.sqrt(weights @ (t * t))
        return np.stack([t, weights], axis=1)

    fewer, more = map(rule, _RULE.num_even)
    nodes = tf.constant(more, dtype)
    if sizes_may_vary():
        begin = tf.where(few, 0, len(fewer))
        size = tf.where(few, len(fewer), len(more))
        nodes = tf.constant(np.concatenate([fewer, more]), dtype)[begin : begin + size]
    return _Nodes(*tf.split(nodes, 2, axis=1))


def _integrals(nodes: _Nodes, margin: Tensor, rate: Tensor) -> Tensor:
    """Compute P and its derivatives in the margins and rates [K, N], [1 + 2 K, N]."""
    margin, rate = (tf.expand_dims(x * -np.sqrt(0.5), 1) for x in (margin, rate))
    x = margin + rate * nodes.t
    # A distribution function of 0 is replaced by 1e-30 in a quotient, which is
    # negligible relative to any error rate of labels.
    cdf = tf.maximum(tf.math.erfc(x), 1e-30)  # twice it
    weighted = tf.reduce_prod(0.5 * cdf, axis=0) * nodes.weights
    derivative = tf.exp(-x * x) / cdf * (np.sqrt(2.0 / np.pi) * weighted)
    by_rate = tf.reduce_sum(derivative * nodes.t, axis=1)
    value = tf.reduce_sum(weighted, axis=0, keepdims=True)
    return tf.concat([value, tf.reduce_sum(derivative, axis=1), by_rate], axis=0)


def _over_panels(
    of_nodes: Callable[..., Tensor],
    size: int,
    margin: Tensor,
    rate: Tensor,
    *others: Tensor,
) -> Tensor:
    """
    Sum a function of the nodes of one panel after another, until all rows are covered.

    A row's first panel begins where the last of its distribution functions begins to
    rise, because the product is 0 left of it. All functions that still rise do so near
    this place, over their widths. A panel is as short as the steepest function needs,
    and later panels are longer when steep functions have risen.

    :param of_nodes: A function of nodes and of n columns of the tensors [..., N] that
        follow, with values [C, n].
    :param size: C.
    """
    dtype = margin.dtype
    inputs = (margin, rate, *others)
    rate = tf.maximum(rate, _RULE.smallest_rate)
    last_end = tf.constant(_RULE.end, dtype)
    first, over = ((end - margin) / rate for end in (_RULE.rise_start, _RULE.rise_end))
    start = tf.clip_by_value(tf.reduce_max(first, axis=0), _RULE.start, last_end)
    places, sizes = np.polynomial.legendre.leggauss(_RULE.num_in_panel)
    # Nodes from 0 to 2. The weights have the density of the standard normal at 0.
    places, sizes = (
        tf.constant(column[:, None], dtype)
        for column in (1.0 + places, sizes / np.sqrt(2.0 * np.pi))
    )
    # Rows with NaN stay NaN. TensorFlow 2.16 makes 0 of a product of NaN and 0.
    zeros = tf.where(tf.math.is_nan(start), start, tf.zeros_like(start))
    squares = rate * rate

    def add_panel(start: Tensor, sums: Tensor) -> tuple[Tensor, Tensor]:
        steep = tf.reduce_sum(squares * tf.cast(over > start, dtype), axis=0)
        end = tf.minimum(
            start + 2.0 * _RULE.half_panel * tf.math.rsqrt(1.0 + steep), last_end
        )
        rows = positions(start < last_end)
        begin, stop, *some = (
            tf.gather(column, rows, axis=-1) for column in (start, end, *inputs)
        )
        half = 0.5 * (stop - begin)
        t = begin + half * places
        more = of_nodes(_Nodes(t, half * sizes * tf.exp(-0.5 * t * t)), *some)
        rows = tf.expand_dims(rows, 1)
        return end, tf.tensor_scatter_nd_add(sums, rows, tf.transpose(more))

    _, sums = tf.while_loop(
        lambda start, _: tf.reduce_any(start < last_end),
        add_panel,
        (start, tf.tile(zeros[:, None], [1, size])),
        parallel_iterations=1,
        maximum_iterations=_RULE.panels_per_rise * (1 + margin.shape[0]),
    )
    return tf.transpose(sums)


@implementations.register(MultiClass)
def _multi_class(
    likelihood: MultiClass,
    X: Tensor,
    Fmu: Tensor,
    Fvar: Tensor,
    Y: Tensor,
    alpha: Tensor,
) -> Tensor:
    high = 1.0 - tf.cast(likelihood.invlink.epsilon, Fmu.dtype)
    low = tf.cast(likelihood.invlink.eps_k1, Fmu.dtype)
    largest, not_largest = prob_is_largest(tf.cast(Y[:, 0], tf.int32), Fmu, Fvar)
    return two_valued(largest, not_largest, high, low, alpha)


register_classes(
    MultiClass,
    follows_by_newton=True,
    advice=(
        " Where labels contradict their neighbours more often than the invlink's"
        " epsilon allows, make epsilon larger."
    ),
)
