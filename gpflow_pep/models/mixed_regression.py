"""Sparse GP regression of outputs that are mixtures, in closed form."""

from typing import Any

import tensorflow as tf
from gpflow.base import RegressionData, TensorData
from gpflow.kernels import Kernel, LinearCoregionalization
from gpflow.likelihoods import Gaussian

from ..engine.energies import mixed
from ..engine.energies.collapsed import RowSums
from ..engine.factors import TiltedDerivatives
from ..engine.factors.entries import check_entries
from ..engine.numerics import chunks
from ..engine.prior.evaluate import noise_variance as noise_at
from ..engine.prior.mixing import check_mixture, share_inducing_variable
from ..engine.sites.mixed import latent_marginals
from ..engine.sites.posterior import Marginals, Natural, SiteProblem, Sites, posterior_factor
from ..engine.sites.record import FixedPoint, SiteUpdateInfo
from ..engine.sites.sweep import AtFixedPoint
from ..likelihoods import PerOutput
from .arguments import gaussian_likelihood, refusing
from .mixture import MIXED, MixedOutputs, has_mixture, refuse_options
from .regression import PEPRegression
from .rows import Rows
from .variants import variant_of


@variant_of(PEPRegression, has_mixture)
class MixedRegression(MixedOutputs, PEPRegression):
    """:class:`PEPRegression` of outputs that are mixtures: the outputs of a row are one factor."""

    _shares_covariance = False

    def __init__(
        self,
        data: RegressionData,
        kernel: LinearCoregionalization,
        inducing_variable: Any,
        **options: Any,
    ) -> None:
        refuse_options(options, blocks=None, conditional="prior", memory=None)
        variables = share_inducing_variable(inducing_variable)
        super().__init__(self._check_data(data), kernel, variables, **options)

    def _count_latent(self, kernel: Kernel, Y: tf.Tensor, number: int | None) -> int:
        check_mixture(kernel, int(Y.shape[1]), number)
        return int(Y.shape[1])

    def _make_likelihood(
        self, likelihood: Any, noise_variance: TensorData | None, Y: tf.Tensor
    ) -> Gaussian | PerOutput:
        noisy: Gaussian | PerOutput
        noisy = gaussian_likelihood(likelihood, noise_variance, int(Y.shape[1]))
        check_entries(noisy, Y)
        return noisy

    @property
    def rows(self) -> Rows:
        """The rows as they are now, each projected on the inducing variables of all functions."""
        rows, number = super().rows, len(self.kernel.latent_kernels)
        return rows._replace(num_inducing=rows.num_inducing and number * rows.num_inducing)

    def _noise(self, X: tf.Tensor) -> tf.Tensor:
        """[N, P or 1], noise variances."""
        parts = getattr(self.likelihood, "likelihoods", [self.likelihood])
        return tf.concat([noise_at(part, X) for part in parts], axis=1)

    def _sums(self, W: tf.Tensor | None = None) -> RowSums:
        parts = self._latent_parts

        def bound(rows: Any, W: tf.Tensor, mixing: tf.Tensor) -> RowSums:
            return mixed.sum_mixed_rows(parts, rows, W, mixing, self._noise)

        W = parts.whiten().W if W is None else W
        return self.rows.sum(bound, (W, tf.convert_to_tensor(self.kernel.W)), parts)

    @tf.autograph.experimental.do_not_convert
    def natural_of_v(self) -> Natural:
        """See :meth:`MixedOutputs.natural_of_v`."""
        return self._sums().natural

    def _problem_and_fixed_point(self) -> tuple[SiteProblem, FixedPoint]:
        problem = self._mixed_problem()
        q = posterior_factor(self.natural_of_v())

        def of_rows(piece: Any) -> Any:
            (X, Y), projection = piece
            h = latent_marginals(problem.project(X, projection).A, q)
            observed, r = problem.parts.observed_residual(X, Y)
            tau = tf.where(observed, 1.0 / (self._noise(X) + tf.zeros_like(r)), tf.zeros_like(r))
            return h, Sites(tau * r, tau)

        h, sites = chunks.map_over_chunks(of_rows, problem.pieces(problem.rows.Y))
        zeros, nil = tf.zeros_like(sites.nu), tf.zeros([], sites.nu.dtype)
        extra = AtFixedPoint(q, TiltedDerivatives(zeros, zeros, zeros), h)
        info = SiteUpdateInfo(nil, nil, tf.constant(True), nil, "")
        return problem, FixedPoint(sites, Marginals(zeros, zeros), extra, info)

    upper_bound = refusing("upper_bound", *MIXED, "Use elbo for the lower bound.")
    loo_moments = refusing("loo_moments", *MIXED, "Use loo_log_density_of_entries.")
    fitc_log_marginal_likelihood = refusing(
        "fitc_log_marginal_likelihood",
        *MIXED,
        "Use pep_log_marginal_likelihood: at alpha 1 the outputs of a row are a block, as in PITC.",
    )
