"""Methods of ``PEP`` for sites at their fixed point: see
:mod:`gpflow_pep.engine.sites.implicit`."""

from typing import Any

import tensorflow as tf

from ..engine import checks
from ..engine.energies import point
from ..engine.prior import is_mixed
from ..engine.prior.evaluate import unconverted
from ..engine.sites.implicit import ConvergedRows
from ..engine.sites.posterior import Sites
from . import mixed
from .arguments import refuse_mixed
from .base import ADVICE


@unconverted()
def converged_sites(model: Any) -> Sites:
    """Bring the sites to their fixed point; unlike ``sites`` they have derivatives."""
    refuse_mixed(model.kernel, "converged_sites", "Read model.sites, which are constants.")
    return model._converge().sites()


@unconverted()
def converged_rows(model: Any) -> ConvergedRows:
    """
    Compute marginals, sites and residual variances of all rows at the fixed point.

    Criteria of rows can be made of them, see
    :class:`~gpflow_pep.engine.sites.implicit.ConvergedRows`.
    """
    refuse_mixed(model.kernel, "converged_rows", "Use loo_log_density_of_entries.")
    return model._converge().numbers_of_rows()


@unconverted("return: [N]")
def loo_log_density(model: Any) -> tf.Tensor:
    r"""
    Compute :math:`\log p(y_n | y_{-n})` of each row, approximately.

    The row's whole site is removed from q, whatever alpha is, and its likelihood averaged over
    what is left.

    :raises ValueError: If a row's cavity is improper then, or the result is not finite.
    """
    if is_mixed(model.kernel):
        return mixed.loo_log_density(model)
    value = point.leave_one_out(model._converge())
    return checks.require_finite(value, "leave-one-out log density", ADVICE)


@unconverted("return[0]: []", "return[1]: []")
def evidence_and_left_out(model: Any) -> tuple[tf.Tensor, tf.Tensor]:
    """Compute log Z, and the sum over rows of :meth:`loo_log_density`, at the same fixed point."""
    refuse_mixed(model.kernel, "evidence_and_left_out", "Train by the evidence.")
    converged = model._converge(point.KEPT_MATRICES)
    log_z = point.energy(converged.problem, converged.fixed_point)
    both = tf.stack([log_z, tf.reduce_sum(point.leave_one_out(converged))])
    quantity = "log Z, leave-one-out log density"
    return tuple(tf.unstack(checks.require_finite(both, quantity, ADVICE)))
