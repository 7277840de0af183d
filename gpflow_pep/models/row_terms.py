"""
Methods of models that tell something of each row.

For sites at their fixed point, differentiable in parameters, see :mod:`gpflow_pep.sites.implicit`;
for ``row_terms`` see :mod:`gpflow_pep.energies.row_terms`.
"""

from typing import Any

import tensorflow as tf
from gpflow.base import TensorType
from gpflow.mean_functions import MeanFunction

from .. import checks
from ..covariances.evaluate import unconverted
from ..energies import point
from ..energies.collapsed import CONDITIONALS
from ..energies.entries import observed_residual
from ..energies.mixture import leave_out
from ..energies.mixture_terms import terms_of_entries
from ..energies.row_terms import RowTerms, observed_terms, terms_of_rows
from ..ops import chunks
from ..sites.implicit import ConvergedRows
from ..sites.posterior import SiteProblem, SiteRows, Sites
from .arguments import check_scaled_powers
from .base import ADVICE


class NoMean(MeanFunction):
    """0, of inputs of any float. GPflow's ``Zero`` creates a variable, which graphs refuse."""

    def __call__(self, X: TensorType) -> tf.Tensor:
        return tf.zeros_like(X[:, :1])


@unconverted()
def converged_sites(model: Any) -> Sites:
    """Bring the sites to their fixed point; unlike ``sites`` they have derivatives."""
    return model._converge().sites()


@unconverted()
def converged_rows(model: Any) -> ConvergedRows:
    """
    Compute marginals, sites and residual variances of all rows at the fixed point.

    Criteria of rows can be made of them, see :class:`~gpflow_pep.sites.implicit.ConvergedRows`.
    """
    return model._converge().numbers_of_rows()


@unconverted("return: [N]")
def loo_log_density(model: Any) -> tf.Tensor:
    r"""
    Compute :math:`\log p(y_n | y_{-n})` of each row, approximately.

    The row's whole site is removed from q, whatever alpha is, and its likelihood averaged over
    what is left.

    :raises ValueError: If a row's cavity is improper then, or the result is not finite.
    """
    value = point.leave_one_out(model._converge())
    return checks.require_finite(value, "leave-one-out log density", ADVICE)


@unconverted("return[0]: []", "return[1]: []")
def evidence_and_left_out(model: Any) -> tuple[tf.Tensor, tf.Tensor]:
    """Compute log Z, and the sum over rows of :meth:`loo_log_density`, at the same fixed point."""
    converged = model._converge(point.KEPT_MATRICES)
    log_z = point.energy(converged.problem, converged.fixed_point)
    both = tf.stack([log_z, tf.reduce_sum(point.leave_one_out(converged))])
    quantity = "log Z, leave-one-out log density"
    return tuple(tf.unstack(checks.require_finite(both, quantity, ADVICE)))


@unconverted()
def terms_at_fixed_point(model: Any) -> RowTerms:
    """
    Compute site, cavity, tilted distribution and more of each row, and what it adds to log Z: see
    :class:`~gpflow_pep.energies.row_terms.RowTerms`.

    :raises ValueError: If the model has a memory, a row's cavity without its whole site is
        improper, or a number is not finite.
    """
    model._require_all_rows("row_terms")
    problem, fixed_point, *_ = model._converge()
    point.require_removable(fixed_point.marginals, fixed_point.sites)
    terms = terms_of_rows(problem.keep_projections(), fixed_point.sites)
    return _checked(terms, problem.parts.variables)


@unconverted()
def terms_in_closed_form(model: Any) -> RowTerms:
    r"""
    Compute site, cavity, tilted distribution and more of each row, and what it adds to log Z: see
    :class:`~gpflow_pep.energies.row_terms.RowTerms`.

    The sites of Gaussian noise are known: :math:`\tau = \beta`, the precision with which the row is
    observed given u, and :math:`\nu = \beta r`, for each column of Y.

    :raises ValueError: If rows come in blocks or have neighbours; if the model has a memory, or a
        scaled conditional at a power between 0 and 1.
    """
    model._require_single_rows("row_terms", "Leave blocks and neighbours out to look at rows.")
    model._require_all_rows("row_terms")
    parts, scaled, alpha = model._parts_of_output(), model.conditional == "scaled", model._powers()
    if scaled:
        alpha = check_scaled_powers(alpha, "row_terms")
    (X, Y), W = model.rows.read(), model._parts.whiten().W
    rows = SiteRows(X, Y, alpha)
    problem = SiteProblem(parts, rows, W, model.chunk_size, model.reduction, scaled)
    problem = problem.keep_projections()
    sites = _gaussian_sites(problem, model.conditional)
    return _checked(terms_of_rows(problem, sites), parts.variables)


@unconverted()
def terms_of_mixed_outputs(model: Any) -> RowTerms:
    """
    Compute site, cavity, tilted distribution and more of each entry of Y, and what entries or rows
    add to log Z: see :class:`~gpflow_pep.energies.row_terms.RowTerms`.

    :raises ValueError: If what is left without a row is improper, or a number is not finite.
    """
    problem, fixed_point = model._problem_and_fixed_point()
    problem, observed = problem.keep_projections(), tf.math.is_finite(problem.rows.Y)
    density = leave_out(problem, fixed_point, whole_rows=True)
    density = tf.where(observed, density, tf.zeros_like(density))
    terms = terms_of_entries(problem, fixed_point.sites, density)
    return observed_terms(_checked(terms, problem.latent.parts.variables), observed)


@unconverted()
def terms_of_observed_targets(model: Any) -> RowTerms:
    r"""
    Compute site, cavity, tilted distribution and more of each entry of Y, and what it adds to
    log Z: see :class:`~gpflow_pep.energies.row_terms.RowTerms`.

    Each output is a model of the rows that have it, with the sites of
    :func:`terms_in_closed_form`.

    :raises ValueError: If the model has a memory.
    """
    model._require_all_rows("row_terms")
    (X, Y), alpha, parts = model.rows.read(), model._powers(), model._parts_of_output()
    observed, r = observed_residual(parts, X, Y)
    # Gaussian noise does not know the level: targets without their mean have a mean of 0.
    centred, W = parts._replace(mean_function=NoMean()), model._parts.whiten().W
    problem = SiteProblem(centred, SiteRows(X, r, alpha), W, model.chunk_size, model.reduction)
    problem = problem.keep_projections()
    sites = (
        tf.where(observed, part, tf.zeros_like(part)) for part in _gaussian_sites(problem, "prior")
    )
    each = zip(*(tf.split(part, r.shape[1], axis=1) for part in (r, *sites)), strict=True)
    outputs = [
        terms_of_rows(problem._replace(rows=problem.rows._replace(Y=Y)), Sites(nu, tau))
        for Y, nu, tau in each
    ]
    columns = ([part if part.shape.rank == 2 else part[:, None] for part in o] for o in outputs)
    terms = RowTerms(*(tf.concat(entries, axis=1) for entries in zip(*columns, strict=True)))
    terms = terms._replace(prior_mean=parts.mean(X) + tf.zeros_like(r))
    return observed_terms(_checked(terms, parts.variables), observed)


def _gaussian_sites(problem: SiteProblem, conditional: str) -> Sites:
    """Compute the sites of complete targets with Gaussian noise."""

    def sites_of(piece: Any) -> Sites:
        (X, (Y, alpha)), projection = piece
        d, noise = problem.project(X, projection).D[0], problem.parts.noise(X)
        precision = CONDITIONALS[conditional].row_precision(d, noise, alpha)
        r = problem.parts.residual(X, Y)
        tau = precision[:, None] + tf.zeros_like(r)
        return Sites(tau * r, tau)

    pieces = problem.pieces((problem.rows.Y, problem.rows.alpha))
    return Sites(*chunks.map_over_chunks(sites_of, pieces))


def _checked(terms: RowTerms, variables: Any) -> RowTerms:
    finite = (checks.require_finite(part, "row_terms", ADVICE) for part in terms)
    return RowTerms(*checks.refuse_derivatives(tuple(finite), variables, "row_terms"))
