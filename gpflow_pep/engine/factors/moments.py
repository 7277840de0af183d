r"""The functions that a likelihood registers, and the tilted integrals and derivatives
that use them.
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
from ..numerics.linalg import sum_columns
from ..numerics.tapes import are_stopped, own_tape
from ..prior.evaluate import convert_user_code, is_plain
from .generic import integrate, integrate_density

#: The number of rows of a tape in eager mode. With softmax of three classes and with
#: Student's t a tape keeps 180 and 45 kB per row. 10 000 rows at once take 1.9 and .43
#: GB, 2000 at a time .4 and .12 GB, 1000 at a time .2 and .06 GB. With softmax 2000 at
#: a time take 1.7 times the time, and 1000 at a time 2.2 times.
ROWS_OF_A_TAPE = 2000

#: Register ``(likelihood, Y) -> Support`` for an array of targets [N, P].
support = Dispatcher("gpflow_pep.engine.factors.moments")

#: Register ``(likelihood, num_columns) -> Layout`` for targets with this number of
#: columns.
layout = Dispatcher("gpflow_pep.likelihoods.layout")

#: Register ``(likelihood) -> Traits``. Without registration a likelihood has
#: ``Traits()``.
traits = Dispatcher("gpflow_pep.likelihoods.traits")


class Support(NamedTuple):
    """The targets that have a probability above 0."""

    inside: AnyNDArray  #: Whether each target is in the support, [N, P].
    expected: str  #: The targets in the support, in words that follow "expected".


class Layout(NamedTuple):
    """The columns of a likelihood."""

    #: The number of columns of the targets; None for any number.
    num_columns: int | None
    num_latent: int  #: The number of latent functions.


def layout_of(likelihood: Likelihood, num_columns: int) -> Layout:
    """Return the layout of a likelihood for targets with this number of columns; refuse
    objects that are not likelihoods.
    """
    return layout.dispatch_or_raise(type(likelihood))(likelihood, num_columns)


def check_support(likelihood: Likelihood, Y: Tensor) -> None:
    """
    Refuse targets that have probability 0 under the likelihood. Inside a graph there is
    no value to check yet.

    :param likelihood: A likelihood.
    :param Y: The targets [N, P].
    :raises ValueError: If a target is outside the support (the message has the first
        one), or if the object is not a likelihood.
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
    """Refuse noise of a likelihood that has several numbers instead of one, or one for
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
    """Check the number of latent functions against the number that the likelihood and
    the targets need.

    :param num_latent_gps: The requested number; None selects the number that is needed.
    :param likelihood: A likelihood.
    :param Y: The targets [N, P].
    :return: The number of latent functions that are needed.
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
    """Return the support if nothing is registered: all finite numbers."""
    return Support(np.isfinite(Y), "finite numbers")


def whole_numbers(Y: AnyNDArray, count: float) -> Support:
    """Return the support of counts, or of classes."""
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
    r"""Properties of a likelihood that models, estimators and pictures use. Register a
    function that returns them with ``gpflow_pep.likelihoods.traits``.
    """

    is_gaussian: bool = False
    """Whether y is f plus Gaussian noise with the variance
    ``likelihood.variance_at(X)``, so that closed forms can be used.
    """
    num_classes: int | None = (
        #: The number of classes C if the targets are the classes 0 to C - 1, otherwise
        #: None.
        None
    )
    ignores_level: bool = False
    r"""Whether :math:`p(y | f)` stays the same when all latent functions of a row move
    up or down together. Their means then make one step together; see
    :mod:`gpflow_pep.engine.sites.coupling`.
    """
    starts_at_high_powers: bool = False
    r"""Whether :math:`E[\log p(y | f)]` falls exponentially with the variance of f, as
    for a rate :math:`e^f`. Small powers are then reached from larger powers.
    """
    follows_wider_priors: bool = False
    """Whether sites under a vague prior may be reached from sites under narrower priors
    if everything else fails. This is the fallback of
    :mod:`gpflow_pep.engine.sites.fixed_point`.
    """
    follows_by_newton: bool = False
    r"""Whether sites may have such negative precisions that updates do not converge to
    their fixed point, because f may be far from y. The fallback through smaller powers
    then uses steps of Newton's method; see :mod:`gpflow_pep.engine.sites.steps`.
    """
    probabilities: Callable[[TensorType, TensorType], Tensor] | None = None
    """A function ``(Fmu, Fvar) -> probabilities`` of all classes, [N, C]; None if the
    probability of a class is computed as its tilted integral.
    """
    of_outputs: Sequence[Likelihood] = ()
    """The likelihoods of the outputs, if the likelihood consists of one for each
    output.
    """
    advice: str = ""
    """Additional advice for sites that do not converge: a sentence after a space."""
    draw: Callable[[AnyNDArray, AnyNDArray, np.random.Generator], AnyNDArray] | None = (
        None
    )
    """A function ``(X, f, random) -> y`` that draws targets [N, S] given one latent
    function [N, S] or several [N, S, L]. Targets of several outputs are [N, S, P]. None
    if there is no such function.
    """
    in_units: Callable[[Callable[[float], float], float], Likelihood] | None = None
    r"""A function ``(change, scale) -> likelihood`` of targets :math:`g = (y - b) / s`,
    with f in the same units; ``change(y)`` is g. It is for location-scale families, and
    changes bounds and noise that is not trained. None for other likelihoods, whose
    targets are not changed.
    """
    has_density: Callable[[AnyNDArray], AnyNDArray] = lambda Y: np.ones(
        Y.shape, dtype=bool
    )
    """A function ``Y -> [N, P]``: whether a target has a density, in contrast to a
    probability, as at a bound.
    """
    predict: Callable[[TensorType, TensorType, TensorType], MeanAndVariance] | None = (
        None
    )
    """A function ``(X, Fmu, Fvar) -> mean, variance`` of y, [N, P], for any number of
    rows. If it is None, see :func:`~gpflow_pep.likelihoods.predict_mean_and_var`. A
    derived class inherits it unless it has its own conditional moments.
    """


traits.register(object)(lambda likelihood: Traits())


def num_classes(likelihood: Likelihood) -> int:
    """Count the classes of a likelihood.

    :raises ValueError: If its targets are not classes.
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

#: Register ``(likelihood, X, Fmu, Fvar, Y, alpha) -> [N]``, where alpha is a tensor
#: [N], or [1] if all rows have one power; see
#: :func:`~gpflow_pep.likelihoods.log_power_expectation`.
implementations = Dispatcher("gpflow_pep.likelihoods.log_power_expectation")

#: Register ``(likelihood, X, Y, alpha) -> ScalarFactor``; see
#: :class:`~gpflow_pep.engine.factors.generic.ScalarFactor`.
scalar_factor = Dispatcher("gpflow_pep.likelihoods.scalar_factor")


class TiltedDerivatives(NamedTuple):
    r"""The tilted integral of each row and its derivatives for site updates (BYT17,
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
    :math:`E[\log p(y_n | f)]`. At :math:`\alpha = 1` it is the log predictive density
    (Bui, Yan & Turner 2017, section 3.3). It is differentiable in the moments and the
    likelihood's parameters, and in alpha if alpha is not close to 0.

    :param likelihood: A GPflow likelihood, or one whose type is registered.
    :param X: The inputs, for likelihoods that depend on them.
    :param Fmu: Means of the latent functions.
    :param Fvar: Variances of the latent functions, at least 0. The latent functions are
        independent. At variance 0 the integral is the log density at the mean.
    :param Y: The targets, in the likelihood's support.
    :param alpha: The power, in [0, 1]: one number, or one for each row.
    :raises NotImplementedError: If nothing is registered for the likelihood's type.
    """
    Fmu = tf.convert_to_tensor(Fmu)
    Fvar = tf.convert_to_tensor(Fvar)
    Y = tf.convert_to_tensor(Y)
    # GPflow accepts class labels of integer types.
    Y = tf.cast(Y, Fmu.dtype)
    alpha = tf.convert_to_tensor(alpha, Fmu.dtype)
    alpha = alpha[None] if alpha.shape.rank == 0 else alpha
    X = tf.convert_to_tensor(X)
    return _dispatch(likelihood, X, Fmu, Fvar, Y, alpha)


def in_rows(rule: Callable[..., Any]) -> Callable[..., Any]:
    """Make a rule for rows, whose arguments X, Fmu, ... are [N, D] each, accept batches
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
            # A graph may have the shape only when it runs.
            width = tf.shape(argument)[-1:]
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

    :raises ValueError: If the values of the likelihood's density do not resolve it.
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
    r"""Compute the tilted integral, and its derivatives by automatic differentiation.

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
    r"""Compute :func:`tilted_derivatives`, and from the same values of the density the
    derivatives of :math:`\sum_n \ell_n`, at fixed moments, in some variables of the
    likelihood.

    In eager mode a tape keeps every intermediate value until it ends, so each tape has
    only some of the rows.
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
    """Copy a likelihood with its variables if tapes are stopped, so that no tape
    watches them.

    Tapes that are opened there restart all other tapes (see
    :mod:`gpflow_pep.engine.numerics.tapes`), and tapes that watch the variables of the
    likelihood would keep everything that is computed from them. Likelihoods of users
    are not copied, because their variables may be in closures, which a copy would
    share.
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
    """Find the function that computes the tilted integral of a likelihood.

    A derived class with its own density does not inherit the function of its base
    class.
    """
    kind = type(likelihood)
    if isinstance(likelihood, ScalarLikelihood):
        # Both registries have an entry for object.
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
    """Stop if the values of a density do not resolve its integral. The error has the
    numbers of the rows.

    :param likelihood: A likelihood. Likelihoods with their own rule are not checked.
    :param ell: Its tilted integrals [N]; NaN if they are not resolved.
    :param moments: The moments of the Gaussian under which it was integrated, [N, L]
        each, which must be finite.
    :param rows: The numbers of the rows, [N]; None for 0 to N - 1.
    :return: The operations that a graph must run first; see
        :func:`gpflow_pep.engine.checks.require`.
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
        " the density are known, and these do not resolve its integral in some rows:"
        " there the density is far narrower than the Gaussian over which it is"
        " averaged, or it is 0. Expected a likelihood that the nodes of quadrature"
        " resolve. Standardise the targets, keep its scale away from 0 (for instance"
        " add a small constant to it, or start the prior of its latent function lower"
        " and narrower), use HeteroskedasticTFPConditional if the noise is Gaussian,"
        " or register an integral of your own with"
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
    """Sum the integral of the factor,
    :func:`~gpflow_pep.engine.factors.generic.integrate`, over columns.
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
