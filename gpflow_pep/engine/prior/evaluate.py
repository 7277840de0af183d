"""Covariances at some rows, and projections of rows on whitened inducing variables.

This module is the only boundary to users' code: kernels, inducing variables and mean
functions are called only here, and likelihoods through :func:`convert_user_code`.

Squared distances from products, :math:`|x|^2 + |x'|^2 - 2 x^T x'`, lose the digits of a
number that all inputs share, as in dates or coordinates on a map. A stationary kernel
does not change if the same number is subtracted from all inputs. So stationary kernels
of GPflow get inputs minus the mean of some of them, also inside of other kernels:
:func:`centred`.
"""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import Parameter, TensorType
from gpflow.config import default_jitter
from gpflow.covariances import Kuf, Kuu
from gpflow.covariances.kufs import Kuf_kernel_inducingpoints
from gpflow.covariances.kuus import Kuu_kernel_inducingpoints
from gpflow.inducing_variables import (
    FallbackSeparateIndependentInducingVariables,
    FallbackSharedIndependentInducingVariables,
    InducingPoints,
    InducingVariables,
    SeparateIndependentInducingVariables,
    SharedIndependentInducingVariables,
)
from gpflow.kernels import (
    AnisotropicStationary,
    IsotropicStationary,
    Kernel,
    LinearCoregionalization,
    Matern32,
    Matern52,
    MultioutputKernel,
    Periodic,
    SeparateIndependent,
    SharedIndependent,
    Stationary,
)
from gpflow.likelihoods import Gaussian, Likelihood
from gpflow.mean_functions import MeanFunction, Zero
from gpflow.utilities.ops import difference_matrix

from ..numerics.chunks import float_variables, num_rows
from ..numerics.graphs import without_collector
from ..numerics.linalg import (
    Factor,
    factorise_with_jitter,
    identity_like,
    lower_matmul,
    row_products,
)
from ..numerics.tapes import recorded

#: What is added to exp(-t) (1 + t), by order, and minus the derivative in t².
_SMOOTHNESS = {1: (0.0, 1.0 / 2.0), 2: (1.0 / 3.0, 1.0 / 6.0)}


def _matern_profile(order: int, squared: tf.Tensor) -> tf.Tensor:
    r"""Compute the Matern correlation of smoothness order + 1/2 of :math:`t^2`: of
    order 0 to 2, :math:`e^{-t}, (1 + t) e^{-t}, (1 + t + t^2 / 3) e^{-t}`. Its
    derivative is minus that of one order less, over 2 or 6. GPflow has a root clipped
    at 0, without second derivatives there.

    :param squared: :math:`t^2`, which rounding may have made negative.
    """
    if order == 0:
        return tf.exp(-tf.sqrt(tf.maximum(squared, 1e-36)))  # GPflow's limit
    quadratic, slope = _SMOOTHNESS[order]

    @tf.custom_gradient
    def profile(
        squared: tf.Tensor,
    ) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
        # Of this graph, for gradients of compiled gradients.
        squared = tf.identity(squared)
        t = tf.sqrt(tf.nn.relu(squared))
        value = (1.0 + t + quadratic * tf.square(t)) * tf.exp(-t)
        return (
            value,
            lambda upstream: -slope * upstream * _matern_profile(order - 1, squared),
        )

    return profile(squared)


Function = TypeVar("Function", bound=Callable[..., Any])
Apply = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]

#: Packages in whose code AutoGraph has nothing to translate; finding that out takes it
#: seconds.
_PLAIN = ("gpflow", "gpflow_pep", "tensorflow_probability")
#: Kernels and inducing variables whose ``Kuf`` consists of those of their parts.
_INDEPENDENT = SharedIndependent, SeparateIndependent
_OF_INDEPENDENT = (
    SharedIndependentInducingVariables,
    SeparateIndependentInducingVariables,
)
#: By whose methods a kernel is a function of scaled differences of inputs.
_OF_DIFFERENCES: dict[type[Kernel], tuple[str, ...]] = {
    IsotropicStationary: (
        "__call__",
        "slice",
        "scale",
        "K",
        "scaled_squared_euclid_dist",
    ),
    AnisotropicStationary: (
        "__call__",
        "slice",
        "scale",
        "K",
        "scaled_difference_matrix",
    ),
}
#: Kernels with second derivatives where inputs are equal, which GPflow's distances
#: lose: smoothness less 1/2.
_MATERN: dict[type[Kernel], int] = {Matern32: 1, Matern52: 2}


@functools.cache
def is_stationary(kind: type[Kernel]) -> bool:
    """Whether kernels of a class are functions of differences by methods that are
    GPflow's own.
    """
    return any(
        issubclass(kind, base)
        and all(getattr(kind, name) is getattr(base, name) for name in names)
        for base, names in _OF_DIFFERENCES.items()
    )


def _near_origin(
    X: TensorType, X2: TensorType | None = None
) -> tuple[tf.Tensor, tf.Tensor | None]:
    """Subtract the mean of X [..., N, D] from X, and from X2; it is constant for
    differentiation, since what is computed of differences does not depend on it.
    """
    X = tf.convert_to_tensor(X)
    origin = tf.stop_gradient(tf.reduce_mean(X, axis=list(range(X.shape.rank - 1))))
    return X - origin, None if X2 is None else X2 - origin


def centred(kernel: Kernel) -> Kernel:
    """Make the same kernel, with the same parameters, whose stationary parts get inputs
    near 0, and have the derivatives of :func:`_matern_profile`. The parts are the
    kernel itself and all kernels in its attributes, however deep.

    It has the kernel's own attributes. Its class is a subclass of the kernel's, so that
    GPflow's dispatchers find what they find for that.
    """
    kind = _centred_kind(type(kernel), _holds_kernels(kernel))
    if kind is type(kernel):
        return kernel
    same = object.__new__(kind)
    # Past TensorFlow, which would track it.
    object.__setattr__(same, "__dict__", vars(kernel))
    return same


def _of_python_or_tracking(name: str) -> bool:
    """Whether an attribute is one of those in which Python and TensorFlow keep track of
    an object.
    """
    return name.startswith(("__", "_self_"))


def _holds_kernels(kernel: Kernel) -> bool:
    return any(
        isinstance(item, Kernel)
        for name, value in vars(kernel).items()
        if not _of_python_or_tracking(name)
        for item in _listed(value)
    )


def _listed(value: Any) -> list[Any]:
    """List the parts of an attribute's value: those of a list, tuple or dict of any
    depth.
    """
    nested = isinstance(value, (list, tuple, dict))
    return tf.nest.flatten(value) if nested else [value]


def _centred_parts(value: Any) -> Any:
    """Replace the kernels in an attribute's value."""
    if not any(isinstance(item, Kernel) for item in _listed(value)):
        return value
    return tf.nest.map_structure(
        lambda item: centred(item) if isinstance(item, Kernel) else item, value
    )


class _Centred:
    """A base of all classes that :func:`centred` makes."""

    def __init_subclass__(cls, **_: Any) -> None:
        """Do not call that of users' kernels, which may register subclasses, or take
        arguments.
        """


@functools.cache
def _centred_kind(kind: type[Kernel], holds_kernels: bool) -> type[Kernel]:
    """Make the class of :func:`centred`, or take the kernel's own if it needs no
    change.
    """
    if issubclass(kind, _Centred):
        return kind
    changed: dict[str, Any] = {}
    if is_stationary(kind):
        changed |= _methods_of_differences(kind)
    if holds_kernels:

        def __getattribute__(self: Kernel, name: str) -> Any:
            value = kind.__getattribute__(self, name)
            return value if _of_python_or_tracking(name) else _centred_parts(value)

        changed["__getattribute__"] = __getattribute__
    if issubclass(kind, Periodic) and kind.K is Periodic.K:
        changed["K"] = _periodic_covariance
    if not changed:
        return kind
    metaclass: Any = type(kind)
    bases = _Centred, kind
    return metaclass(kind.__name__, bases, {**changed, "__module__": kind.__module__})


def _methods_of_differences(kind: type[Kernel]) -> dict[str, Any]:
    """Make the methods that replace those of a stationary kernel."""

    def K(self: Kernel, X: TensorType, X2: TensorType | None = None) -> tf.Tensor:
        return kind.K(self, *_near_origin(X, X2))

    order = _matern_order(kind)
    if order is None:
        return {"K": K}

    def K_r2(self: Kernel, r2: tf.Tensor) -> tf.Tensor:
        return self.variance * _matern_profile(order, (2.0 * order + 1.0) * r2)

    return {"K": K, "K_r2": K_r2}


def _matern_order(kind: type[Kernel]) -> int | None:
    """Look up the order in :data:`_MATERN`, for a subclass too if it has the same
    correlation.
    """
    for base, order in _MATERN.items():
        same = issubclass(kind, base) and kind.K_r is base.K_r
        if same and kind.K_r2 is base.K_r2:
            return order
    return None


def _periodic_covariance(
    self: Periodic, X: TensorType, X2: TensorType | None = None
) -> tf.Tensor:
    r"""Compute GPflow's ``Periodic.K`` with the base kernel's second derivatives.

    There, a base kernel that has ``K_r`` is a function of :math:`r = \sum_d |s_d|` with
    :math:`s_d = \sin(\pi (x_d - x'_d) / p_d) / \ell_d`. Where :math:`s_d` is 0,
    :math:`|s_d|` has no second derivative but :math:`r^2` has, so the base kernel gets
    :math:`r^2 = \sum_d s_d^2 + \sum_d |s_d| (r - |s_d|)`. GPflow's kernel has kinks
    in several inputs, through the second sum.
    """
    base = self.base_kernel
    if not hasattr(base, "K_r"):
        return Periodic.K(self, X, X2)
    angle = math.pi * difference_matrix(X, X2) / self.period
    sines = tf.sin(angle) / base.lengthscales
    sizes = tf.abs(sines)
    mixed = sizes * (tf.reduce_sum(sizes, axis=-1, keepdims=True) - sizes)
    return base.K_r2(tf.reduce_sum(tf.square(sines) + mixed, axis=-1))


def _with_values(kernel: Kernel) -> Kernel:
    """Read the parameters of a stationary kernel of GPflow once for several
    covariances: the operations of a transform, and of its derivative, are many.
    """
    if not isinstance(kernel, Stationary) or not type(kernel).__module__.startswith(
        "gpflow."
    ):
        return kernel
    attributes = {
        name: tf.convert_to_tensor(value) if isinstance(value, Parameter) else value
        for name, value in vars(kernel).items()
    }
    same = object.__new__(type(kernel))
    object.__setattr__(same, "__dict__", attributes)
    return same


def is_plain(part: Any) -> bool:
    """Whether AutoGraph has nothing to translate in a part of a model, or in a whole
    one: it is GPflow's or of this package, with all submodules.
    """
    modules = (part, *part.submodules) if isinstance(part, tf.Module) else (part,)
    return all(
        type(module).__module__.partition(".")[0] in _PLAIN for module in modules
    )


def _has_code_of_others(part: Any) -> bool:
    """Whether a part of a model, if there is one, may read variables that GPflow does
    not list.
    """
    modules = (part, *part.submodules) if isinstance(part, tf.Module) else (part,)
    attributes = (
        value
        for module in modules
        for value in getattr(module, "__dict__", {}).values()
    )
    code = [*map(type, modules), *filter(callable, attributes)]
    names = (getattr(item, "__module__", None) or "" for item in code)
    known = *_PLAIN, "tensorflow"
    return part is not None and any(
        name.partition(".")[0] not in known for name in names
    )


def convert_user_code(function: Function) -> Function:
    """Decorate a function that calls code of users, which may have loops or conditions
    on tensors.

    Everything else is traced without AutoGraph. A decorated function, which must be at
    the top of a module, is converted where an argument is no plain part (see
    :func:`is_plain`).
    """

    @functools.wraps(function)
    def boundary(*arguments: Any) -> Any:
        modules = [
            argument
            for argument in arguments
            if isinstance(argument, tf.Module) or callable(argument)
        ]
        if all(map(is_plain, modules)):
            return function(*arguments)
        if tf.executing_eagerly():
            with recorded():  # it may open tapes
                return function(*arguments)
        return tf.autograph.to_graph(function)(*arguments)

    return boundary  # type: ignore[return-value]


def skip_autograph(method: Function) -> Function:
    """Decorate a method of models that calls GPflow's code, and through it the code of
    users: AutoGraph leaves it alone where the whole model is plain, or runs eagerly
    (with tf.map_fn too).
    """
    unconverted = tf.autograph.experimental.do_not_convert(method)

    @functools.wraps(method)
    def chosen(self: Any, *arguments: Any, **options: Any) -> Any:
        if tf.executing_eagerly() or is_plain(self):
            return unconverted(self, *arguments, **options)
        return method(self, *arguments, **options)

    return chosen  # type: ignore[return-value]


def unconverted(*shapes: str) -> Callable[[Function], Function]:
    """Decorate a method whose results have these shapes, and that AutoGraph is to leave
    alone.
    """

    def decorate(method: Function) -> Function:
        checked = check_shapes(*shapes)(method)
        traced = without_collector(checked)

        @functools.wraps(checked)
        def chosen(*arguments: Any, **options: Any) -> Any:
            if tf.executing_eagerly():
                return checked(*arguments, **options)
            return traced(*arguments, **options)

        return tf.autograph.experimental.do_not_convert(chosen)

    return decorate


def split_outputs(inducing_variable: InducingVariables) -> list[InducingVariables]:
    """Take apart inducing variables of one or several outputs: those of each, or one
    for all.
    """
    if isinstance(inducing_variable, FallbackSeparateIndependentInducingVariables):
        return list(inducing_variable.inducing_variable_list)
    if isinstance(inducing_variable, FallbackSharedIndependentInducingVariables):
        return [inducing_variable.inducing_variable]
    return [inducing_variable]


def latent_kernels(kernel: Kernel) -> list[Kernel]:
    """List the kernels of latent functions: one where all share it."""
    return (
        list(kernel.latent_kernels)
        if isinstance(kernel, MultioutputKernel)
        else [kernel]
    )


@convert_user_code
def kuu(inducing_variable: InducingVariables, kernel: Kernel) -> tf.Tensor:
    """[(L,) M, M], prior covariances of inducing variables, with GPflow's default
    jitter.
    """
    if (
        type(inducing_variable) is not InducingPoints
        or Kuu.dispatch(InducingPoints, type(kernel)) is not Kuu_kernel_inducingpoints
    ):
        return Kuu(inducing_variable, centred(kernel), jitter=default_jitter())
    Z = tf.convert_to_tensor(inducing_variable.Z)
    K = centred(kernel).K(Z) if _takes_all_columns(kernel) else centred(kernel)(Z)
    # GPflow makes the identity matrix by 20 operations.
    return K + default_jitter() * identity_like(K)


@convert_user_code
def kuf(
    inducing_variable: InducingVariables, kernel: Kernel, X: TensorType
) -> tf.Tensor:
    """[(L,) M, N], prior covariances of inducing variables and f at some rows."""
    if type(kernel) in _INDEPENDENT and type(inducing_variable) in _OF_INDEPENDENT:
        u = split_outputs(inducing_variable)
        kernels = kernel.latent_kernels
        num_latents = max(len(u), len(kernels))
        if {len(u), len(kernels)} <= {1, num_latents}:
            by_latent = [
                kuf(u[k % len(u)], kernels[k % len(kernels)], X)
                for k in range(num_latents)
            ]
            return tf.stack(by_latent) if num_latents > 1 else by_latent[0]
    if not _of_distance(inducing_variable, kernel, X):
        return Kuf(inducing_variable, centred(kernel), X)
    Z = tf.convert_to_tensor(inducing_variable.Z)
    if not _takes_all_columns(kernel):
        Z, X = kernel.slice(Z, X)
    Z, X = _near_origin(Z, X)
    return centred(kernel).K_r2(_scaled_squared_distances(Z, X, kernel.lengthscales))


def _takes_all_columns(kernel: Kernel) -> bool:
    """Whether a kernel takes the inputs as they are. GPflow's slice of all columns is a
    copy, with a derivative.
    """
    kind = type(kernel)
    if kind.__call__ is not Kernel.__call__ or kind.slice is not Kernel.slice:
        return False
    columns = kernel.active_dims
    return isinstance(columns, slice) and columns == slice(None)


def _of_distance(
    inducing_variable: InducingVariables, kernel: Kernel, X: TensorType
) -> bool:
    """Whether GPflow computes ``Kuf`` from scaled distances, by its own methods,
    unchanged.
    """
    kind = type(kernel)
    return (
        issubclass(kind, IsotropicStationary)
        and is_stationary(kind)
        and type(inducing_variable) is InducingPoints
        and Kuf.dispatch(InducingPoints, kind, tf.Tensor) is Kuf_kernel_inducingpoints
        and len(X.shape) == 2
    )


@check_shapes("Z: [M, D]", "X: [N, D]", "lengthscales: [broadcast D]", "return: [M, N]")
def _scaled_squared_distances(
    Z: tf.Tensor, X: tf.Tensor, lengthscales: TensorType
) -> tf.Tensor:
    r"""Compute :math:`\sum_d (z_d - x_d)^2 / \ell_d^2` as GPflow does, from products.

    Only Z is scaled: with constant X the way back has one product with X and one with
    its squares, where the quotients X / l would have it pass over X several times more.
    """
    inverse = tf.square(tf.math.reciprocal(lengthscales))
    if inverse.shape != X.shape[1:]:
        columns = X.shape[1:] if X.shape[1] is not None else tf.shape(X)[1:]
        if inverse.shape.rank == 0:  # its derivative takes fewer operations
            inverse = tf.fill(columns, inverse)
        else:
            inverse = tf.broadcast_to(inverse, columns)
    scaled = Z * inverse
    of_Z = tf.reduce_sum(Z * scaled, axis=1, keepdims=True)
    of_X = tf.linalg.matvec(tf.square(X), inverse)
    return (of_Z + of_X) - tf.matmul(2.0 * scaled, X, transpose_b=True)


@convert_user_code
def variance(kernel: Kernel, X: TensorType) -> tf.Tensor:
    """[N], or [L, N] of several latent functions: prior variances of f at some rows."""
    kind = type(kernel)
    if (
        isinstance(kernel, Stationary)
        and kind.K_diag is Stationary.K_diag
        and kind.__call__ is Kernel.__call__
        and len(X.shape) == 2
    ):
        return tf.fill([num_rows(X)], tf.squeeze(kernel.variance))
    same: Any = centred(kernel)
    if isinstance(kernel, MultioutputKernel):
        return tf.transpose(same(X, full_cov=False, full_output_cov=False))
    return same(X, full_cov=False)


@convert_user_code
def covariance(
    kernel: Kernel, X: TensorType, X2: TensorType | None = None
) -> tf.Tensor:
    """[..., N, N2], prior covariances of f at some rows, for a kernel of one output."""
    return centred(kernel)(X, X2)


@convert_user_code
def mean(mean_function: MeanFunction, X: TensorType) -> tf.Tensor:
    """[N, L or 1], the mean function at some rows."""
    if type(mean_function) is Zero and len(X.shape) == 2:
        return tf.zeros([num_rows(X), mean_function.output_dim], X.dtype)
    return mean_function(X)


class Projection(NamedTuple):
    """The prior of f at some rows given the whitened inducing variables."""

    #: [K, M, N], :math:`A = L^{-1} K_{uf}`: :math:`f_n = A_nᵀ v +` residual.
    A: tf.Tensor
    D: tf.Tensor
    """Residual prior covariance given u. [K, N]: its diagonal
    :math:`d_n = k_{nn} - |A_n|^2`, at least 0; or [B, S, S]: its diagonal blocks, for
    rows that come in B blocks of S.
    """
    variance: tf.Tensor | None = None  #: [K, N], prior variances; None for blocks.


@check_shapes("return.W: [K, M, M]")
def whiten(inducing_variable: InducingVariables, kernel: Kernel) -> Factor:
    """Compute the Cholesky factors of ``Kuu`` with GPflow's default jitter, or more if
    needed: u = L v, v ~ N(0, I).

    K is 1 where all latent functions share kernel and inducing variables, otherwise L:
    the axis broadcasts against that of latent functions.

    :param inducing_variable: Any inducing variables for which ``Kuu`` is registered.
    :param kernel: The kernel, of one output, or of several that are independent.
    """
    return factorise_with_jitter(_with_latent_axis(kuu(inducing_variable, kernel), 3))


def _with_latent_axis(covariances: tf.Tensor, rank: int) -> tf.Tensor:
    """Add the axis of latent functions to what they share; with it there are ``rank``
    axes.
    """
    # A new axis by indexing would be a copy on the way back.
    return (
        tf.expand_dims(covariances, 0) if covariances.shape.rank < rank else covariances
    )


@check_shapes("W: [K, M, M]", "X: [N, D]", "return.A: [K, M, N]")
def project(
    W: tf.Tensor,
    inducing_variable: InducingVariables,
    kernel: Kernel,
    X: TensorType,
    apply: Apply = lower_matmul,
) -> Projection:
    """Project rows on whitened inducing variables; see :func:`whiten` for the kernel
    and W.

    :param apply: See :meth:`Parts.apply`.
    """
    kernel = _with_values(kernel)
    A = apply(W, _with_latent_axis(kuf(inducing_variable, kernel, X), 3))
    of_prior = _with_latent_axis(variance(kernel, X), 2)
    # Rounding can make it negative.
    d = tf.nn.relu(of_prior - tf.reduce_sum(tf.square(A), axis=-2))
    return Projection(A, d, of_prior)


@convert_user_code
def noise_variance(likelihood: Likelihood, X: TensorType) -> tf.Tensor:
    """[N, 1], the variance of Gaussian noise at some rows."""
    if type(likelihood) is Gaussian and len(X.shape) == 2:
        variance = likelihood.variance
        if isinstance(variance, Parameter) and variance.shape.rank == 0:
            return tf.fill([num_rows(X), 1], tf.convert_to_tensor(variance))
    return likelihood.variance_at(X)


@convert_user_code
def _log_density(
    likelihood: Likelihood, X: tf.Tensor, F: tf.Tensor, Y: tf.Tensor
) -> tf.Tensor:
    return likelihood.log_prob(X, F, Y)


def is_mixed(kernel: Any) -> bool:
    r"""Whether a kernel is of outputs :math:`f_p = \sum_q W_{pq} g_q`, mixed from
    latent functions.
    """
    return isinstance(kernel, LinearCoregionalization)


class Parts(NamedTuple):
    """The parts of a model without its rows. Latent functions are independent a
    priori.
    """

    kernel: Kernel
    inducing_variable: InducingVariables
    mean_function: MeanFunction
    likelihood: Any  # None where it is not read

    def variables(self, X: tf.Tensor, Y: tf.Tensor) -> list[tf.Variable]:
        """List all variables of floats, also trained ones that GPflow does not list, of
        layers of Keras 3 or closures: where there is code of others, what the first row
        reads.
        """
        listed = float_variables(*self)
        if not any(map(_has_code_of_others, self)):
            return listed
        kernel, inducing_variable, mean_function, likelihood = self
        X = X[:1]
        Y = tf.where(tf.math.is_finite(Y[:1]), Y[:1], tf.zeros_like(Y[:1]))
        with recorded(), tf.GradientTape() as tape:
            if _has_code_of_others(kernel) or _has_code_of_others(inducing_variable):
                kuu(inducing_variable, kernel)
                kuf(inducing_variable, kernel, X)
                variance(kernel, X)
            if _has_code_of_others(mean_function):
                mean(mean_function, X)
            if _has_code_of_others(likelihood):
                F = tf.zeros([1, likelihood.latent_dim or Y.shape[1]], Y.dtype)
                _log_density(likelihood, X, F, Y)
        read = [v for v in tape.watched_variables() if v.dtype.is_floating]
        return list({id(v): v for v in [*listed, *read]}.values())

    def with_values(self) -> "Parts":
        """Read the parameters of the kernel once, for the graph that is traced."""
        return self._replace(kernel=_with_values(self.kernel))

    def whiten(self) -> Factor:
        """See :func:`whiten`."""
        return whiten(self.inducing_variable, self.kernel)

    def apply(self, W: tf.Tensor, covariances: tf.Tensor) -> tf.Tensor:
        """Whiten covariances of u with rows."""
        return lower_matmul(W, covariances)

    def project(self, W: tf.Tensor, X: tf.Tensor) -> Projection:
        """See :func:`project`."""
        return project(W, self.inducing_variable, self.kernel, X, self.apply)

    @check_shapes(
        "W: [1, M, M]", "X: [B, S, D]", "return.A: [1, M, N]", "return.D: [B, S, S]"
    )
    def project_blocks(self, W: tf.Tensor, X: tf.Tensor) -> Projection:
        """Project B blocks of S rows each, N = B S, for a kernel of one output: the
        residual covariance is kept inside the blocks (PITC). With M = 0 it is the
        prior's.
        """
        num_blocks, size, *_ = tf.unstack(tf.shape(X))
        if W.shape[-1] == 0:
            A = tf.zeros([1, 0, num_blocks * size], W.dtype)
            return Projection(A, covariance(self.kernel, X))
        flat = tf.reshape(X, [num_blocks * size, X.shape[-1]])
        A = self.apply(W, kuf(self.inducing_variable, self.kernel, flat)[None])
        # [B, S, M]
        blocks = tf.transpose(tf.reshape(A, [-1, num_blocks, size]), [1, 2, 0])
        return Projection(A, covariance(self.kernel, X) - row_products(blocks))

    def mean(self, X: tf.Tensor) -> tf.Tensor:
        """[N, L or 1], the mean of f."""
        return mean(self.mean_function, X)

    def variance(self, X: tf.Tensor) -> tf.Tensor:
        """[N, L or 1], the prior variance of f."""
        return tf.transpose(_with_latent_axis(variance(self.kernel, X), 2))

    def residual(self, X: tf.Tensor, Y: tf.Tensor) -> tf.Tensor:
        """[N, P], targets less the mean function."""
        return Y - self.mean(X)

    def observed_residual(
        self, X: tf.Tensor, Y: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """[N, P] each: which targets are not NaN, and their residuals, 0 elsewhere."""
        observed = tf.math.is_finite(Y)
        residual = self.residual(X, tf.where(observed, Y, tf.zeros_like(Y)))
        return observed, tf.where(observed, residual, tf.zeros_like(residual))

    def observe(self, X: tf.Tensor, Y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """[N, P] and [N], the targets less the mean function, and variances of their
        noise.
        """
        return self.residual(X, Y), self.noise(X)

    def noise(self, X: tf.Tensor) -> tf.Tensor:
        """[N], variances of Gaussian noise."""
        return tf.squeeze(noise_variance(self.likelihood, X), axis=-1)


class PartsBySubstitution(Parts):
    """Parts to which L is passed in the place of :math:`W = L^{-1}`.

    Training multiplies by W, which is fast on many cores. The rounding errors of such a
    product grow with the condition number of ``Kuu``, those of substitution do not: q
    and predictions are computed so.
    """

    def apply(self, L: tf.Tensor, covariances: tf.Tensor) -> tf.Tensor:
        """See :meth:`Parts.apply`."""
        return tf.linalg.triangular_solve(L, covariances)


def _take_latent(values: tf.Tensor, latent: int) -> tf.Tensor:
    """Take what belongs to one latent function, of values [1 or L, ...] for all or for
    each.
    """
    return values[latent if values.shape[0] > 1 else 0]


def project_points(
    W: tf.Tensor,
    inducing_variable: InducingVariables,
    kernel: Kernel,
    Z: TensorType,
    same_point: TensorType,
) -> Projection:
    r"""Project inducing points of another model on the whitened inducing variables of
    this one.

    Inducing variables are :math:`u_i = f(z_i) + \epsilon_i`, where :math:`\epsilon` has
    GPflow's default jitter for its variance. A point that is kept takes its own
    :math:`\epsilon_i` along, wherever it moves: so points that are all kept and have
    not moved are projected exactly, and everything is smooth in where they are.

    See :func:`whiten` for the kernel and W.

    :param Z: The points, [broadcast K, R, D].
    :param same_point: 1 where an inducing variable of this model continues a point of
        the other one, [broadcast K, M, R]; no more than one 1 in a row or column.
    :return: D in full for each latent function, [K, R, R].
    """
    kernels = latent_kernels(kernel)
    jitter = tf.constant(default_jitter(), W.dtype)
    A = []
    D = []
    for latent in range(
        max(len(kernels), *(tensor.shape[0] for tensor in (W, Z, same_point)))
    ):
        Z_latent = _take_latent(Z, latent)
        Kuf = _take_latent(
            _with_latent_axis(kuf(inducing_variable, kernel, Z_latent), 3), latent
        )
        Kuf += jitter * _take_latent(same_point, latent)
        A.append(lower_matmul(_take_latent(W, latent)[None], Kuf[None])[0])
        K = covariance(kernels[min(latent, len(kernels) - 1)], Z_latent)
        K += jitter * tf.eye(tf.shape(Z_latent)[0], dtype=K.dtype)
        D.append(K - tf.matmul(A[-1], A[-1], transpose_a=True))
    return Projection(tf.stack(A), tf.stack(D))
