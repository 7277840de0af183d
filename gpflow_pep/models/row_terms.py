"""The method ``row_terms`` of models, see :mod:`gpflow_pep.energies.row_terms`."""

from typing import Any, NoReturn

import tensorflow as tf

from .. import checks
from ..covariances.evaluate import unconverted
from ..energies.collapsed import CONDITIONALS, project_single_rows
from ..energies.point import require_removable
from ..energies.row_terms import RowTerms, terms_of_rows
from ..ops import chunks
from ..sites.posterior import SiteProblem, SiteRows, Sites
from .base import ADVICE


@unconverted()
def terms_at_fixed_point(model: Any) -> RowTerms:
    """
    Compute site, cavity, tilted distribution and more of each row, and what it adds to log Z.

    See :class:`~gpflow_pep.energies.row_terms.RowTerms`; its ``frame()`` is a table. The results
    are constants: their derivatives in hyperparameters are refused.

    :raises ValueError: If the model has a memory, a row's cavity without its whole site is
        improper, or a number is not finite.
    """
    _require_no_memory(model)
    problem, fixed_point, *_ = model._converge()
    require_removable(fixed_point.marginals, fixed_point.sites)
    return _checked(problem, fixed_point.sites)


@unconverted()
def terms_in_closed_form(model: Any) -> RowTerms:
    r"""
    Compute site, cavity, tilted distribution and more of each row, and what it adds to log Z.

    The sites of Gaussian noise are known: :math:`\tau = \beta`, the precision with which the row is
    observed given u, and :math:`\nu = \beta r`, for each column of Y. See
    :class:`~gpflow_pep.energies.row_terms.RowTerms`; its ``frame()`` is a table. The results are
    constants: their derivatives in hyperparameters are refused.

    :raises ValueError: If rows come in blocks or have neighbours; if the model has a memory, or a
        scaled conditional at a power between 0 and 1.
    """
    model._require_single_rows("row_terms", "Leave blocks and neighbours out to look at rows.")
    _require_no_memory(model)
    parts, scaled, alpha = model._parts_of_output(), model.conditional == "scaled", model._powers()
    if scaled:
        alpha = _scaled_power(alpha)
    X, Y = model.rows.read()
    rows, precision = SiteRows(X, Y, alpha), CONDITIONALS[model.conditional]
    W = model._parts.whiten().W
    problem = SiteProblem(parts, rows, W, model.chunk_size, model.reduction, scaled)

    def sites_of(rows: Any) -> Sites:
        _, d, noise, alpha, r = project_single_rows(parts, rows, W)
        tau = precision.row_precision(d, noise, alpha)[:, None] + tf.zeros_like(r)
        return Sites(tau * r, tau)

    pieces = model.rows.pieces(model.rows.plan().chunk_size)
    return _checked(problem, Sites(*chunks.map_over_chunks(sites_of, pieces)))


def terms_of_tied_sites(model: Any) -> NoReturn:
    """
    Refuse: the rows of a model with tied sites have none of their own.

    :raises ValueError: Always.
    """
    raise checks.refusal(
        "row_terms",
        f"{type(model).__name__}, whose rows share one site",
        "a model with a site for each row",
        "Use gpflow_pep.models.PEP, or PEPRegression if the noise is Gaussian.",
    )


def _checked(problem: SiteProblem, sites: Sites) -> RowTerms:
    terms = terms_of_rows(problem.keep_projections(), sites)
    finite = (checks.require_finite(part, "row_terms", ADVICE) for part in terms)
    variables = problem.parts.variables
    return RowTerms(*checks.refuse_derivatives(tuple(finite), variables, "row_terms"))


def _require_no_memory(model: Any) -> None:
    if model.memory is not None:
        raise checks.refusal(
            "row_terms",
            "a model with a memory",
            "one that has all rows: a part of log Z belongs to those that are gone",
            "Make a model of all rows without the memory.",
        )


def _scaled_power(alpha: tf.Tensor) -> tf.Tensor:
    text = checks.message(
        "row_terms",
        "conditional='scaled' with a power between 0 and 1",
        "0 or 1: between them log Z is no sum of tilted integrals of rows",
        "Assign model.alpha = 0.0, or leave conditional out.",
    )
    known = tf.reduce_all(tf.equal(alpha, 0.0) | tf.equal(alpha, 1.0))
    with tf.control_dependencies(checks.require(known, text)):
        return tf.identity(alpha)
