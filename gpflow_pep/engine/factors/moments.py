r"""What a likelihood registers, and the tilted integrals and derivatives that are made
of it.
"""

import copy
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import AnyNDArray, MeanAndVariance, TensorType
from gpflow.likelihoods import Likelihood, QuadratureLikelihood, ScalarLikelihood
from gpflow.utilities import Dispatcher
from tensorflow import Tensor

from ..checks import counted, refusal, require
from ..numerics import chunks
from ..numerics.tapes import are_stopped, own_tape
from ..prior.evaluate import convert_user_code, is_plain
from .generic import integrate, integrate_density, sum_columns

#: Rows of a tape in eager mode. For softmax of three classes and Student's t a tape
#: keeps 180 and 90 kB a row. 10 000 rows at once take 1.9 and .9 GB; 2000 at a time
#: take .4 and .23 GB and 1.7 and 2 times the seconds, 1000 at a time .2 and .13 GB and
#: 2.2 and 3.3 times.
ROWS_OF_A_TAPE = 2000

#: ``(likelihood, Y) -> Support`` for an array of targets [N, P].
support = Dispatcher("gpflow_pep.engine.factors.moments")

#: ``(likelihood, num_columns) -> Layout`` for targets of so many columns.
layout = Dispatcher("gpflow_pep.likelihoods.layout")

#: ``(likelihood) -> Traits``; of a likelihood for which nothing is registered it is
#: ``Traits()``.
traits = Dispatcher("gpflow_pep.likelihoods.traits")


class Support(NamedTuple):
    """Targets that have a probability."""

    inside: AnyNDArray  #: Whether each target has one, [N, P].
    expected: str  #: Which have, in words that follow "expected".


class Layout(NamedTuple):
    """The columns of a likelihood."""

    num_columns: int | None  #: How many the targets must have; None for any number.
    num_latent: int  #: How many latent functions there are for them.


def layout_of(likelihood: Likelihood, num_columns: int) -> Layout:
    """Give the columns of a likelihood for targets of so many columns; refuse what is
    none.
    """
    return layout.dispatch_or_raise(type(likelihood))(likelihood, num_columns)


def check_support(likelihood: Likelihood, Y: Tensor) -> None:
    """
    Refuse targets that the likelihood gives no probability. Inside a graph there is no
    value yet.

    :param likelihood: A likelihood.
    :param Y: The targets [N, P].
    :raises ValueError: With the first target outside the support, or if it is no
        likelihood.
    """
    if not tf.executing_eagerly():
        return
    values: AnyNDArray = np.asarray(tf.convert_to_tensor(Y))
    inside, expected = support.dispatch_or_raise(type(likelihood))(likelihood, values)
    if not inside.all():
        got = f"{values[~inside][0]:g} at row {np.argwhere(~inside)[0, 0]}"
        expected = f"{expected} for the likelihood {type(likelihood).__name__}"
        raise refusal(
            "Y", got, expected, "Recode the targets, or choose another likelihood."
        )


def check_noise(likelihood: Likelihood, num_columns: int) -> None:
    """Refuse noise of a likelihood that is several numbers, and not one, or one for
    each column.
    """
    for of_column in getattr(likelihood, "likelihoods", [likelihood]):
        sizes = {1} if traits(of_column).is_gaussian else {1, num_columns}
        for name in ("variance", "scale"):
            shape = tuple(getattr(getattr(of_column, name, None), "shape", ()))
            if int(np.prod(shape)) not in sizes:
                raise refusal(
                    "likelihood",
                    f"a {type(of_column).__name__} with a {name} of shape {shape}",
                    "one number, or a gpflow.functions.Function of the row",
                    "Put error bars of rows into a column of X: see 'What is known of"
                    " each row' on the page on likelihoods.",
                )


def check_num_latent(num_latent_gps: Any, likelihood: Likelihood, Y: Tensor) -> int:
    """Check how many latent functions there are against what the likelihood and the
    targets need.

    :param num_latent_gps: The number asked for; None for what is needed.
    :param likelihood: A likelihood.
    :param Y: The targets [N, P].
    :return: How many are needed.
    :raises ValueError: If the numbers do not agree.
    """
    columns = int(Y.shape[1])
    name = type(likelihood).__name__
    observed, needed = layout_of(likelihood, columns)
    check_noise(likelihood, columns)
    if observed not in (None, columns):
        remedy = "Remove or add columns; pass class numbers instead of one-hot columns."
        expected = f"{observed} for the likelihood {name}"
        raise refusal("Y", counted(columns, "column"), expected, remedy)
    if num_latent_gps not in (None, needed):
        expected = f"{needed} for the likelihood {name}"
        raise refusal(
            "num_latent_gps", num_latent_gps, expected, f"Pass num_latent_gps={needed}."
        )
    return needed


@support.register(object)
def _no_likelihood(likelihood: Any, Y: AnyNDArray) -> Support:
    raise refusal(
        "likelihood",
        type(likelihood).__name__,
        "a likelihood of gpflow.likelihoods",
        "Pass one.",
    )


@support.register(Likelihood)
def any_number(likelihood: Likelihood, Y: AnyNDArray) -> Support:
    """Find the support where nothing else is registered: all finite numbers."""
    return Support(np.isfinite(Y), "finite numbers")


def whole_numbers(Y: AnyNDArray, count: float) -> Support:
    """Find the support of counts, or of classes."""
    inside = np.asarray((np.round(Y) == Y) & (Y >= 0) & (count > Y))
    return Support(
        inside, f"whole numbers from 0{'' if np.isinf(count) else f' to {count - 1}'}"
    )


@layout.register(object)
def _layout_by_attributes(likelihood: Likelihood, num_columns: int) -> Layout:
    latent = likelihood.latent_dim
    observed = likelihood.observation_dim
    return Layout(
        None if observed is None else int(observed),
        num_columns if latent is None else int(latent),
    )


class Traits(NamedTuple):
    r"""What models, estimators and pictures need of a likelihood. Register others with
    ``gpflow_pep.likelihoods.traits``."""

    is_gaussian: bool = False
    """Whether y is f plus Gaussian noise of ``likelihood.variance_at(X)``: closed forms
    hold.
    """
    num_classes: int | None = (
        None  #: C where the targets are the classes 0 to C - 1, else None.
    )
    ignores_level: bool = False
    r"""Whether :math:`p(y | f)` stays the same when all latent functions of a row move
    up or down together. Then their means take one step together, see
    :mod:`gpflow_pep.engine.sites.coupling`.
    """
    starts_at_high_powers: bool = False
    r"""Whether :math:`E[\log p(y | f)]` falls exponentially with the variance of f, as
    that of a rate does whose logarithm is f. Then small powers are reached from larger
    ones.
    """
    follows_wider_priors: bool = False
    """Whether sites under a vague prior may be reached from those under narrower ones
    where nothing else leads there: the fallback of
    :mod:`gpflow_pep.engine.sites.fixed_point`.
    """
    follows_by_newton: bool = False
    r"""Whether sites may have so negative a precision that updates are not drawn to
    their fixed point, as where f may be far from y: the fallback through smaller powers
    then takes steps of Newton's method, see :mod:`gpflow_pep.engine.sites.steps`.
    """
    probabilities: Callable[[TensorType, TensorType], Tensor] | None = None
    """``(Fmu, Fvar) -> probabilities``, of all classes at once, [N, C]; None where that
    of a class is its tilted integral.
    """
    of_outputs: Sequence[Likelihood] = ()
    """The likelihood of each output, where it is made of one for each."""
    advice: str = ""
    """What to do, beside what helps for all likelihoods, where sites do not converge: a
    sentence after a space.
    """
    draw: Callable[[AnyNDArray, AnyNDArray, np.random.Generator], AnyNDArray] | None = (
        None
    )
    """``(X, f, random) -> y`` draws targets [N, S] given one latent function [N, S], or
    several [N, S, L]; those of several outputs are [N, S, P]. None where nothing is
    known that draws.
    """
    in_units: Callable[[Callable[[float], float], float], Likelihood] | None = None
    r"""``(change, scale) -> likelihood`` of targets :math:`g = (y - b) / s`, with f in
    the same units; ``change(y)`` is g. Of location-scale families: it changes bounds,
    and noise that is not trained. None for others, whose targets stay as they are.
    """
    has_density: Callable[[AnyNDArray], AnyNDArray] = lambda Y: np.ones(
        Y.shape, dtype=bool
    )
    """``Y -> [N, P]``: which targets have a density, and not a probability as at a
    bound.
    """
    predict: Callable[[TensorType, TensorType, TensorType], MeanAndVariance] | None = (
        None
    )
    """``(X, Fmu, Fvar) -> mean, variance`` of y, [N, P], for rows of any number. None:
    see :func:`~gpflow_pep.likelihoods.predict_mean_and_var`. A class that derives from
    this one inherits it unless it has conditional moments of its own.
    """


traits.register(object)(lambda likelihood: Traits())


def num_classes(likelihood: Likelihood) -> int:
    """Count the classes of a likelihood.

    :raises ValueError: If its targets are no classes.
    """
    count: int | None = traits(likelihood).num_classes
    if count is None:
        raise refusal(
            "likelihood",
            type(likelihood).__name__,
            "a likelihood of classes, such as Bernoulli, MultiClass or Softmax",
            "Only such likelihoods have probabilities of classes; register the number"
            " of classes of your own likelihood with"
            " gpflow_pep.likelihoods.traits.register.",
        )
    return count


Implementation = Callable[..., Any]

#: ``(likelihood, X, Fmu, Fvar, Y, alpha) -> [N]``, with alpha a tensor [N], or [1]
#: where all rows have one power: see
#: :func:`~gpflow_pep.likelihoods.log_power_expectation`.
implementations = Dispatcher("gpflow_pep.likelihoods.log_power_expectation")

#: ``(likelihood, X, Y, alpha) -> ScalarFactor``: see
#: :class:`~gpflow_pep.engine.factors.generic.ScalarFactor`.
scalar_factor = Dispatcher("gpflow_pep.likelihoods.scalar_factor")


class TiltedDerivatives(NamedTuple):
    r"""The tilted integral of each row and what site updates need of it (BYT17,
    appendix F).
    """

    ell: Tensor  #: :math:`\ell_n(m, v)`, [N].
    delta1: Tensor  #: :math:`\delta_1 = \partial \ell / \partial m`, [N, L].
    delta2: Tensor
    r""":math:`\delta_2 = 2 \partial \ell / \partial v - \alpha \delta_1^2`, [N, L]: by
    the heat equation this is :math:`\partial^2 \ell / \partial m^2`.
    """


@tf.autograph.experimental.do_not_convert
@check_shapes("X: [N, D]", "Fmu: [N, L]", "Fvar: [N, L]", "Y: [N, P]", "return: [N]")
def log_power_expectation(
    likelihood: Likelihood,
    X: TensorType,
    Fmu: TensorType,
    Fvar: TensorType,
    Y: TensorType,
    alpha: TensorType,
) -> Tensor:
    r"""Compute the tilted integral of each row,

    .. math::

       \ell_n = \frac{1}{\alpha} \log \int N(f; m_n, v_n) \, p(y_n | f)^\alpha \, df,

    whose limit for :math:`\alpha \to 0` is the variational expectation
    :math:`E[\log p(y_n | f)]`, and which at :math:`\alpha = 1` is the log predictive
    density (Bui, Yan & Turner 2017, section 3.3). It is differentiable in the moments
    and the likelihood's parameters, and in alpha where that is not close to 0.

    :param likelihood: A GPflow likelihood, or one whose type is registered.
    :param X: The inputs, for likelihoods that depend on them.
    :param Fmu: Means of the latent functions.
    :param Fvar: Their variances, not negative; latent functions are independent. At
        variance 0 the integral is the log density at the mean.
    :param Y: The targets, in the likelihood's support.
    :param alpha: The power, in [0, 1]: one number, or one for each row.
    :raises NotImplementedError: If nothing is registered for the likelihood's type.
    """
    Fmu = tf.convert_to_tensor(Fmu)
    Fvar = tf.convert_to_tensor(Fvar)
    Y = tf.convert_to_tensor(Y)
    # GPflow takes class labels of integer types.
    Y = tf.cast(Y, Fmu.dtype)
    alpha = tf.convert_to_tensor(alpha, Fmu.dtype)
    alpha = alpha[None] if alpha.shape.rank == 0 else alpha
    X = tf.convert_to_tensor(X)
    return _dispatch(likelihood, X, Fmu, Fvar, Y, alpha)


def in_rows(rule: Callable[..., Any]) -> Callable[..., Any]:
    """Let a rule of rows, whose arguments X, Fmu, ... are [N, D] each, take batches
    [..., N, D].
    """

    @wraps(rule)
    def of_batches(
        likelihood: Likelihood, *arguments: TensorType, **options: Any
    ) -> Any:
        tensors = [tf.convert_to_tensor(argument) for argument in arguments]
        X, Fmu, *_ = tensors
        if Fmu.shape.rank == 2 and X.shape[:-1] == Fmu.shape[:-1]:
            return rule(likelihood, *tensors, **options)
        shape = tf.shape(Fmu)[:-1]
        rows = []
        for argument in tensors:
            width = tf.shape(argument)[-1:]  # a graph may have it only when it runs
            broadcast = tf.broadcast_to(argument, tf.concat([shape, width], axis=0))
            flat = tf.reshape(broadcast, tf.concat([[-1], width], axis=0))
            rows.append(tf.ensure_shape(flat, [None, argument.shape[-1]]))

        def restore(values: Tensor) -> Tensor:
            columns = tf.constant(values.shape[1:].as_list(), tf.int32)
            return tf.reshape(values, tf.concat([shape, columns], axis=0))

        return tf.nest.map_structure(restore, rule(likelihood, *rows, **options))

    return of_batches


@in_rows
def log_power_expectation_of_batches(
    likelihood: Likelihood,
    X: Tensor,
    Fmu: Tensor,
    Fvar: Tensor,
    Y: Tensor,
    *,
    alpha: TensorType,
) -> Tensor:
    """Compute :func:`log_power_expectation` of rows in any number of batches, [..., N].

    :raises ValueError: If the values of the likelihood's density do not give it.
    """
    ell = log_power_expectation(likelihood, X, Fmu, Fvar, Y, alpha)
    with tf.control_dependencies(require_resolved(likelihood, ell, Fmu, Fvar)):
        return tf.identity(ell)


@convert_user_code
def _dispatch(likelihood: Likelihood, *arguments: Tensor) -> Tensor:
    return implementation_for(likelihood)(likelihood, *arguments)


@tf.autograph.experimental.do_not_convert
@check_shapes(
    "X: [N, D]",
    "Fmu: [N, L]",
    "Fvar: [N, L]",
    "Y: [N, P]",
    "return.ell: [N]",
    "return.delta1: [N, L]",
    "return.delta2: [N, L]",
)
def tilted_derivatives(
    likelihood: Likelihood,
    X: TensorType,
    Fmu: TensorType,
    Fvar: TensorType,
    Y: TensorType,
    alpha: TensorType,
) -> TiltedDerivatives:
    r"""Compute the tilted integral and its derivatives, by automatic differentiation of
    it.

    The tilted variance of a latent function is :math:`v (1 + \alpha \delta_2 v)`. For
    the parameters see :func:`log_power_expectation`.
    """
    return derivatives_in_moments_and_parameters(
        likelihood, X, Fmu, Fvar, Y, alpha, ()
    )[0]


@tf.autograph.experimental.do_not_convert
def derivatives_in_moments_and_parameters(
    likelihood: Likelihood,
    X: TensorType,
    Fmu: TensorType,
    Fvar: TensorType,
    Y: TensorType,
    alpha: TensorType,
    parameters: Sequence[tf.Variable],
) -> tuple[TiltedDerivatives, list[Tensor]]:
    r"""Compute what :func:`tilted_derivatives` does, and from the same values of the
    density the derivatives of :math:`\sum_n \ell_n`, at fixed moments, in some
    variables of the likelihood.

    In eager mode a tape keeps every intermediate value until it ends, so that each has
    some of the rows.
    """
    Fmu = tf.convert_to_tensor(Fmu)
    Fvar = tf.convert_to_tensor(Fvar)
    Y = tf.convert_to_tensor(Y)
    alpha = tf.convert_to_tensor(alpha, Fmu.dtype)
    if alpha.shape.rank == 0:
        alpha = tf.expand_dims(alpha, 0)
    rows = tf.convert_to_tensor(X), Fmu, Fvar, Y, alpha
    if not tf.executing_eagerly():
        return _derivatives(likelihood, parameters, *rows)
    likelihood, parameters = _unwatched(likelihood, parameters)
    pieces = chunks.row_chunks(rows, ROWS_OF_A_TAPE)
    parts = [
        _derivatives(likelihood, parameters, *pieces.take(k))
        for k in range(pieces.count)
    ]
    if len(parts) == 1:
        return parts[0]
    tilted = [of_chunk for of_chunk, _ in parts]
    joined = tf.nest.map_structure(lambda *some: tf.concat(some, axis=0), *tilted)
    by_parameters = zip(*(by for _, by in parts), strict=True)
    return joined, [tf.add_n(by) for by in by_parameters]


def _unwatched(
    likelihood: Likelihood, parameters: Sequence[tf.Variable]
) -> tuple[Likelihood, list[tf.Variable]]:
    """Copy a likelihood where tapes are stopped, with its variables: no tape watches
    these.

    Tapes that are opened there restart all others (see
    :mod:`gpflow_pep.engine.numerics.tapes`), and those that watch the variables of the
    likelihood would keep all that is computed of them. Likelihoods of users stay as
    they are: their variables may be in closures, which a copy would share.
    """
    if not (are_stopped() and parameters and is_plain(likelihood)):
        return likelihood, list(parameters)
    constants = [
        constant for p in likelihood.parameters for constant in (p.transform, p.prior)
    ]
    shared = {id(constant): constant for constant in constants if constant is not None}
    copied = copy.deepcopy(likelihood, shared)
    gpflow.set_trainable(copied, False)
    pairs = zip(likelihood.variables, copied.variables, strict=True)
    copies = {id(variable): of_copy for variable, of_copy in pairs}
    return copied, [copies.get(id(variable), variable) for variable in parameters]


def _derivatives(
    likelihood: Likelihood,
    parameters: Sequence[tf.Variable],
    X: Tensor,
    Fmu: Tensor,
    Fvar: Tensor,
    Y: Tensor,
    alpha: Tensor,
) -> tuple[TiltedDerivatives, list[Tensor]]:
    """See :func:`derivatives_in_moments_and_parameters`."""
    sources = Fmu, Fvar, *parameters
    with own_tape(sources) as tape:
        ell = log_power_expectation(likelihood, X, Fmu, Fvar, Y, alpha)
    zero = tf.UnconnectedGradients.ZERO
    gradient = tape.gradient(ell, sources, unconnected_gradients=zero)
    delta1, by_variance, *by_parameters = map(tf.convert_to_tensor, gradient)
    alpha = tf.expand_dims(alpha, 1)
    delta2 = 2.0 * by_variance - (alpha * delta1) * delta1
    return TiltedDerivatives(ell, delta1, delta2), by_parameters


def implementation_for(likelihood: Likelihood) -> Implementation:
    """Find what computes the tilted integral of a likelihood.

    A class that derives from another, but has a density of its own, does not inherit
    what was registered for the other.
    """
    kind = type(likelihood)
    if isinstance(likelihood, ScalarLikelihood):
        # Both have an entry for object.
        registered = implementations.funcs.keys() | scalar_factor.funcs.keys()
        nearest = next(
            ancestor for ancestor in kind.__mro__ if (ancestor,) in registered
        )
        density = "_scalar_log_prob"
        if getattr(nearest, density) is not getattr(kind, density):
            return integrate_density
    return implementations.dispatch_or_raise(kind)


def require_resolved(
    likelihood: Likelihood, ell: Tensor, *moments: Tensor, rows: Tensor | None = None
) -> list[tf.Operation]:
    """Stop where the values of a density do not give its integral; the error names the
    rows.

    :param likelihood: A likelihood; one that has a rule of its own is not asked.
    :param ell: Its tilted integrals [N]: NaN where they are not resolved.
    :param moments: Of what it was integrated under, [N, L] each, which must be finite.
    :param rows: Their numbers, [N]; None: 0 to N - 1.
    :return: What a graph must run first; see :func:`gpflow_pep.engine.checks.require`.
    """
    is_scalar = isinstance(likelihood, ScalarLikelihood)
    by_values_only = isinstance(likelihood, QuadratureLikelihood) and not is_scalar
    if not by_values_only and implementation_for(likelihood) is not integrate_density:
        return []
    lost = tf.math.is_nan(ell)
    for moment in moments:
        lost &= tf.reduce_all(tf.math.is_finite(moment), axis=1)
    index = tf.where(lost)[:, 0]
    return require(
        ~tf.reduce_any(lost),
        f"likelihood: got {type(likelihood).__name__}, for which only the values of"
        " the density are known, and these do not give its integral in some rows:"
        " there the density is far narrower than the Gaussian over which it is"
        " averaged, or 0. Expected a likelihood that the nodes of quadrature resolve."
        " Standardise the targets, keep its scale away from 0 (for instance add a"
        " small constant to it, or start the prior of its latent function lower and"
        " narrower), use HeteroskedasticTFPConditional if the noise is Gaussian, or"
        " register an integral of your own with"
        " gpflow_pep.likelihoods.implementations. The first of these rows:",
        index if rows is None else tf.gather(rows, index),
    )


@implementations.register(ScalarLikelihood)
def scalar_log_power_expectation(
    likelihood: ScalarLikelihood,
    X: Tensor,
    Fmu: Tensor,
    Fvar: Tensor,
    Y: Tensor,
    alpha: Tensor,
) -> Tensor:
    """Sum what :func:`~gpflow_pep.engine.factors.generic.integrate` gives for the
    factor over columns.
    """
    make_factor = scalar_factor.dispatch_or_raise(type(likelihood))
    factor = make_factor(likelihood, X, Y, alpha[:, None])
    return sum_columns(integrate(factor, Fmu, Fvar, alpha[:, None]))


@implementations.register(object)
def _unknown_likelihood(likelihood: Any, *_: Any) -> Any:
    name = type(likelihood).__name__
    raise NotImplementedError(
        f"likelihood: got {name}, for which no tilted moments are registered. Expected"
        " a likelihood of GPflow or gpflow_pep, or your own class that derives from"
        " gpflow.likelihoods.ScalarLikelihood or QuadratureLikelihood. For any other"
        " likelihood register a function with"
        f" gpflow_pep.likelihoods.implementations.register({name})."
    )
