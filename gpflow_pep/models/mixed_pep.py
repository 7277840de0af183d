"""Sparse GP models of outputs that are mixtures, with any likelihoods."""

from typing import Any

import tensorflow as tf
from gpflow.base import RegressionData, TensorType
from gpflow.kernels import LinearCoregionalization
from gpflow.likelihoods import Likelihood

from ..engine import checks
from ..engine.energies import mixed
from ..engine.energies.point import KEPT_MATRICES
from ..engine.factors.entries import check_entries, require_entries_resolved
from ..engine.prior.mixing import check_mixture, share_inducing_variable
from ..engine.sites.posterior import Natural, SiteProblem, natural_sums
from ..engine.sites.record import FixedPoint, SiteUpdateInfo
from .arguments import refusing
from .base import ADVICE
from .mixture import MIXED, MixedOutputs, has_mixture, refuse_options
from .pep import PEP
from .variants import variant_of


@variant_of(PEP, has_mixture)
class MixedPEP(MixedOutputs, PEP):
    """:class:`PEP` of outputs that are mixtures: see :mod:`gpflow_pep.engine.sites.mixed`."""

    _check_support = staticmethod(check_entries)

    def __init__(
        self,
        data: RegressionData,
        kernel: LinearCoregionalization,
        likelihood: Likelihood,
        inducing_variable: Any,
        *,
        num_latent_gps: int | None = None,
        **options: Any,
    ) -> None:
        refuse_options(options, memory=None)
        check_mixture(kernel, int(self._check_data(data)[1].shape[1]), num_latent_gps)
        super().__init__(
            data, kernel, likelihood, share_inducing_variable(inducing_variable), **options
        )

    def site_problem(self) -> SiteProblem:
        """Hand rows and parameters as they are to the functions of the inner loop."""
        return self._mixed_problem()

    def _resolved(self, fixed_point: FixedPoint) -> list[tf.Operation]:
        ell, (X, Y) = fixed_point.extra.tilted.ell, map(tf.convert_to_tensor, self.data)
        return require_entries_resolved(self.likelihood, X, Y, ell, *fixed_point.marginals)

    @tf.autograph.experimental.do_not_convert
    def natural_of_v(self) -> Natural:
        """See :meth:`MixedOutputs.natural_of_v`."""
        problem = self.site_problem().keep_projections()
        natural = natural_sums(problem, self._infer(problem).sites)
        natural = checks.refuse_derivatives(natural, problem.variables, "q(v)")
        return Natural(*natural)

    def _problem_and_fixed_point(self) -> tuple[SiteProblem, FixedPoint]:
        problem = self.site_problem()
        return problem, self._infer(problem)

    def update_sites(self, *args: Any, sequential: bool = False, **options: Any) -> SiteUpdateInfo:
        """See :meth:`PEP.update_sites`; there are no sequential updates."""
        if sequential:
            name = "update_sites(sequential=True)"
            raise checks.refusal(name, *MIXED, "Leave out sequential.")
        return super().update_sites(*args, **options)

    minibatch_training_loss_closure = refusing(
        "minibatch_training_loss_closure",
        *MIXED,
        "Running totals of the sites of other batches are of one latent function each, and those of"
        " mixtures correlate all. Use training_loss on all rows, or ARPEP if Y is complete.",
    )
    converged_rows = refusing("converged_rows", *MIXED, "Use loo_log_density_of_entries.")
    converged_sites = refusing("converged_sites", *MIXED, "Read model.sites, which are constants.")

    def _energy(self, mean_square: TensorType) -> tf.Tensor:
        problem = self.site_problem().keep_projections(KEPT_MATRICES)
        value = mixed.energy(problem, self._infer(problem, mean_square))
        return checks.require_finite(value, "log marginal likelihood", ADVICE)
