r"""Mean and variance of targets y from mean and variance of the latent functions.

If there is no closed form, they are integrals of the likelihood's ``_conditional_mean``
and ``_conditional_variance``, computed with Gauss-Legendre rules in panels. A panel
that does not resolve an integrand attracts the others: the last two coefficients of the
integrand's Legendre series in each panel measure its error, and panels are moved until
these are small.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray, MeanAndVariance
from gpflow.likelihoods import Likelihood, ScalarLikelihood
from numpy.polynomial import legendre
from tensorflow import Tensor

from ..checks import refusal
from ..numerics import chunks
from ..numerics.linalg import warn
from ..numerics.quadrature import REACH, reweigh
from ..numerics.tapes import constant
from ..prior.evaluate import convert_user_code
from .generic import AccuracyWarning, find_narrow
from .moments import in_rows, traits

#: Methods that a derived class may redefine. Functions that were registered for its
#: base class are then wrong.
_PREDICT = "_predict_mean_and_var", "predict_mean_and_var"
_MOMENTS = "_conditional_mean", "_conditional_variance", *_PREDICT
#: Values of f next to 0 at which panels also end, because most links bend near 0.
_BENDS = 0.75 * 2.0 ** np.arange(4)
#: The number of even panels, further ends of panels, and the number of nodes in a
#: panel, by the number of latent functions. A few long panels resolve all links of
#: GPflow, and take a quarter of a second for 10 000 rows.
_RULES: dict[int, tuple[int, list[float], int]] = {
    1: (8, [*-_BENDS, 0.0, *_BENDS], 16),
    2: (8, [-3.0, 0.0, 3.0], 8),
    3: (4, [0.0], 8),
}


@in_rows
def predict_mean_and_var(
    likelihood: Likelihood, X: Tensor, Fmu: Tensor, Fvar: Tensor
) -> MeanAndVariance:
    """Compute the mean and variance of y, [N, P], from the mean and variance of the
    latent functions, [N, L].

    The results are the same in each call, and as accurate as tilted integrals for every
    variance of f. The function in the traits of a likelihood is used first, then a rule
    of its own class, and then integrals of its conditional moments. (GPflow uses 20
    nodes, or random draws.)

    :raises ValueError: If y has no variance, as with Student's t of two degrees of
        freedom.
    """
    kind = type(likelihood)
    registered = next(base for base in kind.__mro__ if (base,) in traits.funcs)
    same = (getattr(kind, name, 0) is getattr(registered, name, 1) for name in _MOMENTS)
    rule = traits(likelihood).predict if all(same) else None
    if rule is None:
        by_gpflow = all(
            getattr(kind, n).__module__.startswith("gpflow.") for n in _PREDICT
        )
        integrals = partial(integrated_moments, likelihood)
        rule = integrals if by_gpflow else likelihood.predict_mean_and_var
    mean, variance = rule(X, Fmu, Fvar)
    return mean, variance


def moments_of_exponential(mean: Tensor, variance: Tensor) -> MeanAndVariance:
    r"""Compute mean and variance of :math:`e^x` for Gaussian x,

    .. math:: e^{m + v / 2}, \qquad (e^v - 1) \, e^{2 m + v}.
    """
    expected = tf.exp(mean + 0.5 * variance)
    return expected, tf.math.expm1(variance) * tf.square(expected)


def moments_by_rate(
    mean: Tensor, variance: Tensor, first: Tensor, linear: Tensor, square: Tensor
) -> MeanAndVariance:
    r"""
    Compute the moments of y with :math:`E[y|f] = a r` and
    :math:`\mathrm{Var}[y|f] = b r + c r^2`, where the rate is :math:`r = e^f`.

    :param first: The constant a.
    :param linear: The constant b.
    :param square: The constant c.
    """
    rate, spread = moments_of_exponential(mean, variance)
    given_f = linear * rate + square * (tf.square(rate) + spread)
    return first * rate, given_f + first**2 * spread


@in_rows
def integrated_moments(
    likelihood: Likelihood, X: Tensor, Fmu: Tensor, Fvar: Tensor
) -> MeanAndVariance:
    """Integrate the conditional moments of a likelihood; see the module.

    :raises ValueError: If a target has more than three latent functions.
    """
    scalar = isinstance(likelihood, ScalarLikelihood)
    num_latent = 1 if scalar else int(Fmu.shape[1])
    if num_latent not in _RULES:
        got = f"{type(likelihood).__name__} with {num_latent} latent functions"
        remedy = "Define _predict_mean_and_var in its class."
        raise refusal("likelihood", got, f"at most {max(_RULES)} for a target", remedy)

    def given_f(X: Tensor, F: Tensor) -> MeanAndVariance:
        return _conditional_moments(likelihood, X, F)

    means, variances = (
        [moment] if scalar else tf.split(moment, num_latent, 1)
        for moment in (Fmu, Fvar)
    )
    return expected_moments(given_f, X, means, variances)


def expected_moments(
    given_f: Callable[[Tensor, Tensor], MeanAndVariance],
    X: Tensor,
    means: Sequence[Tensor],
    variances: Sequence[Tensor],
) -> MeanAndVariance:
    """Compute the moments of y from the moments given f. f is [Q, N, P] for one latent
    function of each target, or [Q, N, L] for several.

    :param given_f: A function ``(X, F) -> mean, variance``, [Q, N, P] each.
    :param means: The means of each latent function, [N, P].
    :param variances: The variances of each latent function, [N, P].
    """
    even, bends, order = _RULES[len(means)]
    num_nodes = ((even + len(bends)) * order) ** len(means) * int(means[0].shape[1])
    pieces = chunks.row_chunks((X, means, variances), max(1, 2_000_000 // num_nodes))

    def of_rows(rows: Any) -> MeanAndVariance:
        X, *moments = rows
        return _Integrals(partial(given_f, X), *moments).moments()

    mean, variance = chunks.map_over_chunks(of_rows, pieces)
    return mean, variance


@convert_user_code
def _conditional_moments(
    likelihood: Likelihood, X: Tensor, F: Tensor
) -> MeanAndVariance:
    return likelihood.conditional_mean(X, F), likelihood.conditional_variance(X, F)


class _Integrals(NamedTuple):
    """Integrals over the latent functions of a target, with a list of their moments,
    [N, P] each.
    """

    moments_given: Callable[[Tensor], MeanAndVariance]
    """The moments of y given f, [Q, N, P], or given several latent functions, [Q, N,
    L].
    """
    means: Sequence[Tensor]
    variances: Sequence[Tensor]

    def moments(self) -> MeanAndVariance:
        """Compute mean and variance of y."""
        all_ends, missed = self._panels()
        message = (
            "The mean or variance of y is inaccurate: what the likelihood defines as"
        )
        message += (
            " _conditional_mean and _conditional_variance varies too fast. Define its"
        )
        message += " _predict_mean_and_var."
        numbers = {"Largest relative error": tf.reduce_max(missed)}
        warn(AccuracyWarning, tf.reduce_any(missed > 1e-4), message, numbers)
        columns = []
        weights = []
        for m, v, ends in zip(self.means, self.variances, all_ends):
            narrow = find_narrow(v)
            centre = tf.stop_gradient(m)
            x, w = self._nodes(ends)
            f = centre + tf.sqrt(tf.stop_gradient(narrow.wider)) * x
            # If the Gaussian is narrow, the integral is linear in its variance.
            part = tf.where(
                narrow.rows, narrow.variance / narrow.wider, tf.ones_like(v)
            )
            w = reweigh(w, f, m, narrow.wider, tf.zeros_like(m)) + (part - 1.0) * w
            columns.append(tf.concat([centre[None], f], axis=0))
            weights.append(tf.concat([(1.0 - part)[None], w], axis=0))
        first, second = self._on_grid(columns)
        mean = _sum(first, weights)
        return mean, _sum(second + tf.square(first - mean), weights)

    @constant
    def _panels(self) -> tuple[list[Tensor], Tensor]:
        """Find the ends of panels, [B + 1, N, P], and the errors of the integrals."""
        dtype = self.means[0].dtype
        # Coefficients of the series, relative to the integral of the absolute value.
        # Integrals were more accurate by four digits where the integrand has no kink.
        resolved = max(1e-6, 100.0 * np.finfo(dtype.as_numpy_dtype).eps)

        def improve(_: Tensor, *all_ends: Tensor) -> tuple[Tensor, ...]:
            missed = self._missed(all_ends)
            total = tf.add_n([tf.reduce_sum(by_panel, axis=0) for by_panel in missed])
            total = tf.ensure_shape(total, self.means[0].shape)
            pairs = zip(all_ends, missed)
            moved = [
                tf.where(total > resolved, _moved(*pair), pair[0]) for pair in pairs
            ]
            # NaN stays NaN.
            return total, *(tf.ensure_shape(*new) for new in zip(moved, shapes))

        ends_by_function = [self._first_ends(k) for k in range(len(self.means))]
        shapes = [ends.shape for ends in ends_by_function]
        total, *all_ends = tf.while_loop(
            lambda total, *_: tf.reduce_any(total > resolved),
            improve,
            (tf.ones_like(self.means[0]), *ends_by_function),
            maximum_iterations=24,
        )
        return all_ends, total

    def _first_ends(self, k: int) -> Tensor:
        """Place even panels between mean and peak of the k-th latent function, and some
        panels at 0.
        """
        num_even, bends, _ = _RULES[len(self.means)]
        mean = self.means[k]
        dtype = self.means[k].dtype
        deviation = tf.sqrt(find_narrow(self.variances[k]).wider)

        def column(values: AnyNDArray) -> Tensor:
            return tf.constant(values[:, None, None], dtype)

        x = column(np.sinh(np.linspace(-6.0, 6.0, 65)))
        moved = [
            m + (deviation * x if m is mean else tf.zeros_like(x)) for m in self.means
        ]
        first, second = self._of_y(moved)
        sizes = tf.stack([tf.abs(first), second + tf.square(first)])
        # Numbers beyond the largest float count as the largest float.
        sizes = tf.where(tf.math.is_finite(sizes), sizes, dtype.max)
        best = tf.argmax(tf.math.log(sizes) - 0.5 * x * x, axis=1)
        peaks = 1.25 * tf.gather(x[:, 0, 0], best)
        low = tf.minimum(tf.reduce_min(peaks, axis=0), 0.0) - REACH
        high = tf.maximum(tf.reduce_max(peaks, axis=0), 0.0) + REACH
        even = low + (high - low) * column(np.linspace(0.0, 1.0, num_even + 1))
        ends = tf.concat([even, (column(np.array(bends)) - mean) / deviation], axis=0)
        return tf.sort(tf.clip_by_value(ends, low, high), axis=0)

    def _nodes(self, ends: Tensor) -> tuple[Tensor, Tensor]:
        """Return nodes and weights for the standard normal distribution, [Q, N, P]
        each.
        """
        half = 0.5 * (ends[1:] - ends[:-1])[:, None]
        places, sizes = (
            tf.constant(column[:, None, None], ends.dtype) for column in self._rule()
        )
        x = 0.5 * (ends[1:] + ends[:-1])[:, None] + half * places
        weights = half * sizes * tf.exp(-0.5 * x * x) / np.sqrt(2.0 * np.pi)
        flat = [-1, *tf.unstack(tf.shape(ends)[1:])]
        return tf.reshape(x, flat), tf.reshape(weights, flat)

    def _rule(self) -> tuple[AnyNDArray, AnyNDArray]:
        return legendre.leggauss(_RULES[len(self.means)][2])

    def _on_grid(self, columns: Sequence[Tensor]) -> MeanAndVariance:
        """Compute the moments of y at all combinations of nodes [Q, N, P]: [Q1, ...,
        QL, N, P].
        """
        grids = [_on_axis(column, k, len(columns)) for k, column in enumerate(columns)]
        shape = tf.shape(sum(grids))
        size = [-1, *tf.unstack(shape[-2:])]
        flat = [tf.reshape(tf.broadcast_to(grid, shape), size) for grid in grids]
        first, second = (tf.reshape(part, shape) for part in self._of_y(flat))
        return first, second

    def _of_y(self, columns: Sequence[Tensor]) -> MeanAndVariance:
        return self.moments_given(
            columns[0] if len(columns) == 1 else tf.concat(columns, axis=-1)
        )

    def _missed(self, all_ends: Sequence[Tensor]) -> list[Tensor]:
        """Compute the last coefficients of each panel, relative to the integrals, [B,
        N, P].
        """
        columns = []
        weights = []
        for m, v, ends in zip(self.means, self.variances, all_ends):
            x, w = self._nodes(ends)
            columns.append(m + tf.sqrt(find_narrow(v).wider) * x)
            weights.append(w)
        first, second = self._on_grid(columns)
        square = second + tf.square(first - _sum(first, weights))
        places, _ = self._rule()
        # The coefficients of the integrand over its interval; the weights are already
        # in it.
        last = [
            (2 * k + 1) * legendre.legval(places, np.eye(k + 1)[k])
            for k in range(len(places))
        ]
        last = tf.constant(np.stack(last[-2:]), first.dtype)
        missed = []
        for k, ends in enumerate(all_ends):
            shape = [-1, len(places), *tf.unstack(tf.shape(ends)[1:])]
            total = tf.zeros_like(ends[1:])
            for values in (first, square):
                along = _sum(values, weights, k)
                parts = tf.abs(tf.tensordot(last, tf.reshape(along, shape), [[1], [1]]))
                size = _sum(tf.abs(values), weights)
                total += tf.math.divide_no_nan(tf.reduce_sum(parts, axis=0), size)
            missed.append(total)
        return missed


def _on_axis(column: Tensor, k: int, count: int) -> Tensor:
    """Reshape [Q, N, P] to the k-th of several axes of nodes."""
    ones = [1] * count
    return tf.reshape(
        column, [*ones[:k], -1, *ones[k + 1 :], *tf.unstack(tf.shape(column)[1:])]
    )


def _sum(values: Tensor, weights: Sequence[Tensor], axis: int | None = None) -> Tensor:
    """Sum [Q1, ..., QL, N, P] over nodes, [N, P]; or over all axes except one, by whose
    weights it is multiplied.
    """
    for k, w in enumerate(weights):
        values *= _on_axis(w, k, len(weights))
    return tf.reduce_sum(values, [k for k in range(len(weights)) if k != axis])


def _moved(ends: Tensor, missed: Tensor) -> Tensor:
    """Move the ends of panels so that panels with large errors are halved, several at
    once.
    """
    share = missed**0.25
    share = tf.math.divide_no_nan(share, tf.reduce_sum(share, axis=0))
    num_panels = int(ends.shape[0]) - 1
    share = 0.75 * share + 0.25 / num_panels
    upper = tf.cumsum(share, axis=0)
    steps = tf.cast(tf.linspace(0.0, 1.0, num_panels + 1), ends.dtype)[
        :, None, None, None
    ]
    # The part of each old panel that is below a new end.
    part = tf.clip_by_value((steps - (upper - share)) / share, 0.0, 1.0)
    return ends[0] + tf.reduce_sum(part * (ends[1:] - ends[:-1]), axis=1)
