r"""Derivatives of quantities that depend on converged sites, by the implicit function
theorem.

Sites end at :math:`s^* = T(s^*, \theta)`, where T is one sweep without damping. The
derivative of any :math:`\phi(s^*, \theta)` is :math:`\phi_\theta + \lambda^T T_\theta`
with :math:`(I - T_s^T) \lambda = \phi_s` (:doc:`/derivations`). These equations are
solved by GMRES on products with :math:`T_s^T`. The derivative J of each row's new site
in its own (m, s, :math:`\nu`, :math:`\tau`) is computed once; rows interact only
through :math:`m = A^T w` and :math:`s = \mathrm{diag}(A^T B^{-1} A)`. From the
cotangents :math:`\bar m, \bar s` of these,

.. math::

    \bar b = B^{-1} A \bar m, \qquad
    \bar G = -\tfrac12 (\bar b w^T + w \bar b^T)
        - B^{-1} A \,\mathrm{diag}(\bar s) A^T B^{-1}, \\
    \bar \nu = A^T \bar b, \qquad \bar \tau = \mathrm{diag}(A^T \bar G A),

A product costs two passes over the rows without integrals. At the end a further sweep
is differentiated in :math:`\theta`. The unknowns are :math:`\lambda_\nu / \sqrt s` and
:math:`(\lambda_\tau + m \lambda_\nu) / s`: sites in standard deviations of q, as in a
residual.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from .. import checks
from ..numerics import chunks
from ..numerics.krylov import gmres
from ..numerics.linalg import on_columns
from ..numerics.tapes import own_tape, without_gradient
from ..prior import Projection
from .posterior import (
    Independent,
    Marginals,
    Natural,
    PosteriorFactor,
    SiteProblem,
    SiteRows,
    Sites,
    add_memory,
    marginals,
    natural_sums,
    posterior_factor,
    sites_of_rows,
)
from .record import FALLBACKS, FixedPoint
from .sweep import match_moments, row_prior

#: The number of matrices of size M x N that are kept to differentiate a sweep in the
#: parameters.
_KEPT_MATRICES = 6

#: A value of each row that depends on its site, its moments under q and the parameters:
#: ``(problem, projection, moments, sites) -> [N, K]``, or [N].
RowFunction = Callable[[SiteProblem, Projection, Marginals, Sites], tf.Tensor]


class AdjointInfo(NamedTuple):
    """The record of the equations that were solved for a derivative of converged
    sites.
    """

    quantity: str  #: The quantity that was differentiated.
    num_products: tf.Tensor
    """The number of products with the derivative of a sweep, an int []. Each costs as
    much as a sweep without integrals.
    """
    #: The norm of the residual of the equations, relative to the right-hand side, [].
    residual: tf.Tensor


class ConvergedRows(NamedTuple):
    """Values of rows at the fixed point, which are differentiable in all parameters."""

    m: tf.Tensor  #: [N, L], means of h under q, without the mean function.
    s: tf.Tensor  #: [N, L], variances of h under q.
    nu: tf.Tensor  #: [N, L], :math:`\nu` of the sites.
    tau: tf.Tensor  #: [N, L], :math:`\tau` of the sites.
    d: tf.Tensor  #: [N, L], residual variances of f given u: those of f are s + d.


class Converged(NamedTuple):
    """Sites at their fixed point as functions of the parameters."""

    problem: SiteProblem
    fixed_point: FixedPoint
    #: A function that makes the problem again, under a tape.
    rebuild: Callable[[], SiteProblem]
    #: A function that gets the record of each derivative in eager mode.
    report: Callable[[AdjointInfo], None]

    def natural(self, values: Natural) -> Natural:
        """Return the sums of all sites with their derivatives in the parameters.

        :raises ValueError: While a derivative is computed, see :meth:`gradients`.
        """

        def gradients(*by: tf.Tensor) -> list[tf.Tensor]:
            by_natural = Natural(*by)
            return self.gradients(
                "q(v)", _by_sites(self.problem, by_natural), by_natural
            )

        return self._known(values, "q(v)", gradients)

    def rows(
        self, values: tf.Tensor, function: RowFunction, quantity: str
    ) -> tf.Tensor:
        """
        Return values of each row, [N] or [N, K], with their derivatives in the
        parameters; see :meth:`natural`.

        :param function: The function that computes the values.
        """

        def gradients(by: tf.Tensor) -> list[tf.Tensor]:
            by = _columns(by)
            J = _of_rows(self.problem, self.fixed_point, function)
            direct = _through_rows(self.problem, self.fixed_point, J, by)
            return self.gradients(quantity, direct, terms=((function, by),))

        return self._known(values, quantity, gradients)

    def numbers_of_rows(self) -> ConvergedRows:
        """Return marginals, sites and residual variances; see :meth:`natural`."""
        problem, (sites, moments, *_) = self.problem, self.fixed_point

        def numbers(piece: Any) -> tf.Tensor:
            (X, (moments, sites)), projection = piece
            return _numbers(problem, problem.project(X, projection), moments, sites)

        values = chunks.map_over_chunks(numbers, problem.pieces((moments, sites)))
        values = self.rows(tf.stop_gradient(values), _numbers, "converged_rows")
        return ConvergedRows(*tf.split(values, len(ConvergedRows._fields), axis=1))

    def _known(self, values: Any, quantity: str, gradients: Callable[..., Any]) -> Any:
        def constant_gradients(*by: tf.Tensor) -> list[tf.Tensor]:
            gradient: list[tf.Tensor] = without_gradient(lambda: gradients(*by))
            return gradient

        variables = self.problem.variables
        if not isinstance(self.problem.latents, Independent):
            return type(values)(*checks.refuse_derivatives(values, variables, quantity))
        return checks.differentiable(values, variables, quantity, constant_gradients)

    def gradients(
        self,
        quantity: str,
        by_sites: Sites,
        by_natural: Natural | None = None,
        terms: tuple[tuple[RowFunction, tf.Tensor], ...] = (),
    ) -> list[tf.Tensor]:
        r"""Compute :math:`\phi_\theta + \lambda^T T_\theta`.

        :param by_sites: :math:`\phi_s`.
        :param by_natural: The derivative of :math:`\phi` in the sums of all sites, if
            it depends on :math:`\theta` by way of these.
        :param terms: Functions of rows, of which :math:`\phi` is a sum with weights,
            [N, K].
        :raises ValueError: If the sites have not converged, or the equations were not
            solved.
        """
        with tf.control_dependencies(self._require_fixed_point(quantity, by_sites)):
            by_sites = Sites(*map(tf.identity, by_sites))
        adjoint, info = _solve_adjoint(
            self.problem, self.fixed_point, by_sites, quantity
        )
        if tf.executing_eagerly():
            self.report(info)
        terms = (*terms, (_target_sites, tf.concat(adjoint, axis=1)))
        variables = self.problem.variables
        sites = self.fixed_point.sites
        return _in_parameters(self.rebuild, variables, sites, by_natural, terms)

    def _require_fixed_point(
        self, quantity: str, by_sites: Sites
    ) -> list[tf.Operation]:
        info = self.fixed_point.info
        text = checks.message(
            f"derivative of {quantity}",
            "sites that did not converge",
            "sites at their fixed point, because only there the derivative is known",
            "Raise max_sweeps, lower alpha, or use a finite difference. The run ended"
            " in the fallback and with the residual:",
        )
        fallback = tf.gather([name or "none" for name in FALLBACKS], info.fallback)
        # Perhaps only another result of the compiled function is differentiated.
        unused = tf.reduce_all(tf.equal(tf.stack(by_sites), 0.0))
        return checks.require(info.converged | unused, text, fallback, info.residual)


def _target_sites(
    problem: SiteProblem, projection: Projection, moments: Marginals, sites: Sites
) -> tf.Tensor:
    """Compute T of all rows of a problem, [N, 2 L]: first nu, then tau."""
    prior = row_prior(problem, sites)
    return tf.concat(
        match_moments(problem, projection, moments, prior, sites).sites, axis=1
    )


def _numbers(
    _: SiteProblem, projection: Projection, moments: Marginals, sites: Sites
) -> tf.Tensor:
    """Stack the numbers of :class:`ConvergedRows`, [N, 5 L]."""
    d = tf.transpose(projection.D) + tf.zeros_like(moments.m)
    return tf.concat([*moments, *sites, d], axis=1)


def _solve_adjoint(
    problem: SiteProblem, fixed_point: FixedPoint, by_sites: Sites, quantity: str
) -> tuple[Sites, AdjointInfo]:
    r"""Solve :math:`(I - T_s^T) \lambda = \phi_s`.

    :param by_sites: :math:`\phi_s`.
    :param quantity: The quantity :math:`\phi`.
    :raises ValueError: If the equations cannot be solved.
    """
    (m, s), dtype = fixed_point.marginals, problem.W.dtype
    # Rows that depend less on u than this fraction of the largest dependence are scaled
    # as if they had this fraction.
    s = tf.maximum(s, 1e-10 * tf.reduce_max(s))
    J = _of_rows(problem, fixed_point, _target_sites)

    def scaled(by: Sites) -> tf.Tensor:
        by_mean = by.nu / tf.sqrt(s)
        by_variance = (by.tau + m * by.nu) / s
        return tf.reshape(tf.cast(tf.stack([by_mean, by_variance]), tf.float64), [-1])

    def unscaled(x: tf.Tensor) -> Sites:
        first, second = tf.unstack(
            tf.reshape(tf.cast(x, dtype), [2, *tf.unstack(tf.shape(s))])
        )
        nu = tf.sqrt(s) * first
        return Sites(nu, s * second - m * nu)

    def times(x: tf.Tensor) -> tf.Tensor:
        weights = tf.concat(unscaled(x), axis=1)
        return x - scaled(_through_rows(problem, fixed_point, J, weights))

    tolerance = max(1e-9, 100.0 * float(np.finfo(dtype.as_numpy_dtype).eps))
    solution = gmres(times, scaled(by_sites), tolerance=tolerance, max_products=1000)
    text = checks.message(
        f"derivative of {quantity}",
        "equations that are not solved",
        f"a relative residual below {1e3 * tolerance:.2g}",
        "The fixed point is (nearly) not unique in a direction that this quantity"
        " depends on. Use another alpha, or a finite difference. Residual and"
        " products:",
    )
    # In exact arithmetic the number of unknowns is also a sufficient number of
    # products.
    solved = solution.residual <= 1e3 * tolerance
    products = solution.num_products
    with tf.control_dependencies(
        checks.require(solved, text, solution.residual, products)
    ):
        x = tf.identity(solution.x)
    return unscaled(x), AdjointInfo(quantity, products, solution.residual)


def _of_rows(
    problem: SiteProblem, fixed_point: FixedPoint, function: RowFunction
) -> tf.Tensor:
    r"""
    Differentiate a function of rows in the moments and site of each row, at the present
    parameters: [N, K, 4, L], in m, s, :math:`\nu` and :math:`\tau`.
    """

    def chunk_terms(piece: Any) -> tf.Tensor:
        (X, (Y, alpha, moments, sites)), projection = piece
        projection = problem.project(X, projection)
        rows = SiteRows(X, Y, alpha)
        of_chunk = problem._replace(rows=rows, projection=projection)
        inputs = [*moments, *sites]
        with own_tape(inputs, persistent=True) as tape:
            moments = Marginals(*inputs[:2])
            sites = Sites(*inputs[2:])
            columns = tf.unstack(
                _columns(function(of_chunk, projection, moments, sites)), axis=1
            )
        zero = tf.UnconnectedGradients.ZERO
        slopes = (
            tape.gradient(column, inputs, unconnected_gradients=zero)
            for column in columns
        )
        return tf.stack(
            [tf.stack(slopes_of_site, axis=1) for slopes_of_site in slopes], axis=1
        )

    rows = problem.rows.Y, problem.rows.alpha, fixed_point.marginals, fixed_point.sites
    return chunks.map_over_chunks(chunk_terms, problem.pieces(rows))


def _columns(values: tf.Tensor) -> tf.Tensor:
    """Make [N, K] of the values of a function of rows."""
    return values[:, None] if values.shape.rank == 1 else values


def _through_rows(
    problem: SiteProblem, fixed_point: FixedPoint, J: tf.Tensor, weights: tf.Tensor
) -> Sites:
    """Differentiate the sum of a function of rows, with weights [N, K], in all sites.

    :param J: See :func:`_of_rows`.
    """
    by_m, by_s, by_nu, by_tau = tf.unstack(tf.einsum("nk,nkil->inl", weights, J))
    q = fixed_point.extra.q
    covariance = tf.matmul(q.W, q.W, transpose_a=True)
    sums = natural_sums(problem, Sites(by_m, by_s))
    by_b = tf.matmul(covariance, sums.b)
    outer = tf.matmul(by_b, q.w, transpose_b=True)
    by_G = -0.5 * (outer + tf.linalg.matrix_transpose(outer))
    by_G -= tf.matmul(tf.matmul(covariance, sums.G), covariance)
    through_others = _by_sites(problem, Natural(by_G, by_b))
    return Sites(by_nu + through_others.nu, by_tau + through_others.tau)


def _by_sites(problem: SiteProblem, by: Natural) -> Sites:
    """Compute the gradient in all sites from the gradient in their sums."""

    def chunk_terms(piece: Any) -> Sites:
        (X, _), projection = piece
        A = problem.project(X, projection).A
        by_tau = tf.reduce_sum(A * tf.matmul(by.G, A), axis=-2)
        return Sites(tf.transpose(on_columns(A, by.b)), tf.transpose(by_tau))

    return Sites(*chunks.map_over_chunks(chunk_terms, problem.pieces(())))


def _in_parameters(
    rebuild: Callable[[], SiteProblem],
    variables: list[tf.Variable],
    sites: Sites,
    by_natural: Natural | None,
    terms: tuple[tuple[RowFunction, tf.Tensor], ...],
) -> list[tf.Tensor]:
    """Differentiate a sum of functions of rows with weights in the parameters, at fixed
    sites, and add the derivative by way of the sums of all sites.

    :param by_natural: The gradient in the sums of all sites; None for 0.
    :param terms: Functions of rows with their weights.
    """
    functions, weights = zip(*terms)
    with own_tape(variables) as tape:
        problem = rebuild()
        parts = problem.parts
        memory = problem.memory
        chunk_size, keep_all = problem.plan(_KEPT_MATRICES)

        def total(function: Callable[..., Any], rows: Any, *shared: tf.Tensor) -> Any:
            pieces = chunks.row_chunks((problem.rows.X, rows), chunk_size)
            return chunks.sum_over_chunks(
                function, pieces, shared, keep=keep_all, parts=parts
            )

        def natural_terms(piece: Any, W: tf.Tensor) -> Natural:
            X, sites = piece
            return sites_of_rows(parts.project(W, X).A, sites)

        natural = Natural(*total(natural_terms, sites, problem.W))
        q = posterior_factor(add_memory(natural, memory))

        def row_terms(
            piece: Any, W: tf.Tensor, root: tf.Tensor, c: tf.Tensor
        ) -> tf.Tensor:
            X, (Y, alpha, sites, weights) = piece
            projection = parts.project(W, X)
            of_chunk = problem._replace(
                rows=SiteRows(X, Y, alpha), W=W, projection=projection
            )
            m, s = marginals(projection.A, PosteriorFactor(root, c, q.half_logdet))
            arguments = of_chunk, projection, Marginals(m, s + tf.zeros_like(m)), sites
            values = (_columns(function(*arguments)) for function in functions)
            return tf.add_n(
                [
                    tf.reduce_sum(by * value)
                    for by, value in zip(weights, values, strict=True)
                ]
            )

        rows = problem.rows.Y, problem.rows.alpha, sites, weights
        value = total(row_terms, rows, problem.W, q.W, q.c)
        if by_natural is not None:
            for part, by in zip(natural, by_natural, strict=True):
                value += tf.reduce_sum(part * by)
    zero = tf.UnconnectedGradients.ZERO
    gradients = tape.gradient(value, variables, unconnected_gradients=zero)
    return list(map(tf.convert_to_tensor, gradients))
