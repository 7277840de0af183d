r"""The probability that one of several independent Gaussian variables is the largest.

It is the integral of :func:`gpflow_pep.engine.factors.multiclass.prob_is_largest`, with
the same accuracy. Panels of Gauss-Legendre nodes cover the part of the axis where the
integrand is not 0. If the rates of the distribution functions are b, the integrand
grows off the real line as :math:`e^{r^2 y^2 / 2}`, where r is the length of (1, b), so
a panel of half-length 8 / r with 32 nodes has an error of about 1e-11.
"""

import numpy as np
from scipy.special import ndtr

from ..distributions.units import Array

_HALF_PANEL = 8.0
_NUM_IN_PANEL = 32
#: A normal distribution function is 0 to the left of the first number, and 1 to the
#: right of the second.
_RISE_START = -7.5
_RISE_END = 6.5
#: A Gaussian has 6e-18 of its mass further than this from its mean.
_REACH = 8.6
_SMALLEST_RATE = 1e-6
_SMALLEST_VARIANCE = 1e-30
#: The fraction of the variable's variance that is added to the variances of the others.
_SMALLEST_RATIO = 1e-12
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(_NUM_IN_PANEL)


def prob_each_largest(mean: Array, variance: Array) -> Array:
    r"""Compute for each of C independent Gaussian variables the probability that it is
    the largest:

    .. math::

       P_c = \int N(f; m_c, v_c)
           \prod_{k \ne c} \Phi\left(\frac{f - m_k}{\sqrt{v_k}}\right) df

    (Villacampa-Calvo & Hernández-Lobato 2020, equation A.34).

    :param mean: The means, [N, C].
    :param variance: The variances, [N, C], at least 0.
    :return: The probabilities, [N, C].
    """
    variance = np.maximum(variance, _SMALLEST_VARIANCE)
    num_rows, num_classes = mean.shape
    # The numbers of the other classes, for each class.
    others = np.array(
        [[k for k in range(num_classes) if k != c] for c in range(num_classes)]
    )
    v = variance[:, :, None]
    precision = 1.0 / np.sqrt(variance[:, others] + _SMALLEST_RATIO * v)
    margin = (mean[:, :, None] - mean[:, others]) * precision
    rate = np.sqrt(v) * precision
    shape = (num_rows * num_classes, num_classes - 1)
    return _prob_above_all(margin.reshape(shape), rate.reshape(shape)).reshape(
        mean.shape
    )


def _prob_above_all(margin: Array, rate: Array) -> Array:
    r"""Compute :math:`\int N(t; 0, 1) \prod_k \Phi(a_k + b_k t) \, dt` of a and b [R,
    K]; [R].
    """
    bounded = np.maximum(rate, _SMALLEST_RATE)
    # The product is 0 to the left of the last rise.
    start = np.clip(np.max((_RISE_START - margin) / bounded, axis=1), -_REACH, _REACH)
    over = (_RISE_END - margin) / bounded
    total = np.zeros(len(margin))
    rows = np.flatnonzero(start < _REACH)
    while len(rows):
        left = start[rows]
        a = margin[rows]
        b = rate[rows]
        steep = np.sum(np.where(over[rows] > left[:, None], b * b, 0.0), axis=1)
        right = np.minimum(left + 2.0 * _HALF_PANEL / np.sqrt(1.0 + steep), _REACH)
        half = 0.5 * (right - left)
        t = left[:, None] + half[:, None] * (1.0 + _NODES)
        product = np.exp(-0.5 * t * t)
        for k in range(a.shape[1]):
            product *= ndtr(a[:, k, None] + b[:, k, None] * t)
        total[rows] += half * (product @ _WEIGHTS) / np.sqrt(2.0 * np.pi)
        start[rows] = right
        rows = rows[right < _REACH]
    return total
