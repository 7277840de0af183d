"""What models with sites have in common: the inner loop, and the energy at its end."""

import warnings
from typing import Any

import tensorflow as tf
from gpflow.likelihoods import Likelihood

from .. import cavity, tilted
from ..covariances import Prior, independent_priors, prior_factor
from ..energies import point
from ..ops import chunks, replicas
from ..ops.chunks import Rows, Sums
from ..ops.constant import constant
from ..ops.graph import unconverted
from ..posterior import WhitenedGaussian, whitened_posterior
from ..sequential import run_sequentially, sequential_pass
from ..sites import Marginals, Sites, no_sites
from ..sweep import (
    NaturalSums,
    ProjectedRows,
    natural_sums,
    project_latents,
    residual_variance,
    sweep,
)
from ..updates import FALLBACKS, Evaluation, SiteUpdateInfo, run_to_fixed_point
from . import checks
from .base import InternalDataModel
from .parameters import ConvergenceWarning, Power, SiteParameters

#: What to do where numbers are not finite or sites do not converge.
ADVICE = (
    "Likely causes are a hyperparameter that ran off to a huge or tiny value, or targets that the"
    " likelihood cannot explain. Put priors on the parameters, start from others, or lower alpha."
)


class SiteModel(InternalDataModel):
    """A model with a site for each row, which an inner loop brings to their fixed point."""

    likelihood: Likelihood
    alpha: Power
    sites: SiteParameters
    max_sweeps: int
    tolerance: float
    _last_run: tf.Variable
    _rows_version: tf.Variable

    @property
    def last_inference(self) -> SiteUpdateInfo:
        """The record of the newest run of the inner loop."""
        sweeps, residual, converged, rejected, fallback = self._last_run.numpy()
        return SiteUpdateInfo(
            int(sweeps), float(residual), bool(converged), int(rejected), FALLBACKS[int(fallback)]
        )

    def _priors(self) -> list[Prior]:
        return independent_priors(self.kernel, self.inducing_variable, self.num_latent_gps)

    def _num_inducing_of_latents(self) -> list[int]:
        """M of each latent function, which GPflow lets differ."""
        sizes = {
            latent: int(prior.inducing_variable.num_inducing)
            for prior in self._priors()
            for latent in prior.latents
        }
        return [sizes[latent] for latent in range(self.num_latent_gps)]

    def _prior_factors(self) -> list[tf.Tensor]:
        """W of each prior."""
        return [prior_factor(p.inducing_variable, p.kernel).W for p in self._priors()]

    def _rows(self) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        X, Y = (tf.convert_to_tensor(value) for value in self.data)
        X = self._require_same_rows(X)
        checks.check_alpha(self.alpha, self._known_num_rows(), "row")
        return X, Y, tf.broadcast_to(self.alpha, tf.shape(X)[:1])

    def _require_same_rows(self, X: tf.Tensor) -> tf.Tensor:
        """In a graph, which keeps the rows it was traced with: stop where they were replaced."""
        if tf.executing_eagerly():
            return X
        with tf.init_scope():
            traced = self._rows_version.value() if tf.executing_eagerly() else None
        if traced is None:  # inside a graph that is no tf.function
            return X
        or_variables = ", or make the data tf.Variables of shape [None, D]"
        same = checks.require(
            tf.equal(self._rows_version, int(traced)),
            "data: got a function that was compiled for rows, or powers of rows, that have been"
            " replaced, expected one of the present ones. Compile it anew (with another"
            " gpflow.optimizers.Scipy())"
            f"{'' if isinstance(self.data[0], tf.Variable) else or_variables}.",
        )
        with tf.control_dependencies(same):
            return tf.identity(X)

    def _project_rows(self, factors: list[tf.Tensor], X: tf.Tensor) -> ProjectedRows:
        priors = self._priors()
        keep = self._fits_memory(len(priors))
        return ProjectedRows(priors, factors, X, self._rows_at_a_time(), keep)

    def _sum_natural(self, factors: list[tf.Tensor], sites: Sites) -> NaturalSums:
        """Differentiable in the factors."""

        def of_chunk(rows: Rows, *factors: tf.Tensor) -> Sums:
            X, nu, tau = rows
            projections = project_latents(self._priors(), factors, X)
            return natural_sums(projections, Sites(nu, tau)).flatten()

        pieces = chunks.row_chunks((self._rows()[0], *sites), self._rows_at_a_time())
        sums = chunks.sum_over_chunks(of_chunk, pieces, factors, keep=self._fits_memory())
        return NaturalSums.unflatten(sums)

    def _energy(
        self,
        factors: list[tf.Tensor],
        rows: Rows,
        sites: Sites,
        moments: Marginals,
        totals: NaturalSums | None = None,
        scale: float = 1.0,
    ) -> tf.Tensor:
        """
        The energy of some rows; with totals, those of all rows, in place of what these rows add to
        the prior, whose terms and derivatives then stand for ``scale`` times as many.
        """
        X, Y, alpha = rows
        power = alpha[:, None]
        cavities = cavity.remove(moments, sites, power)
        *natural, ell = chunks.sum_over_chunks(
            self._energy_sums,
            chunks.row_chunks((X, Y, alpha, *sites, *cavities[:2]), self._rows_at_a_time()),
            factors,
            keep=self._fits_memory(),
        )
        if totals is not None:
            natural = [
                total + scale * (part - tf.stop_gradient(part))
                for total, part in zip(totals.flatten(), natural, strict=True)
            ]
        prior = map(point.prior_terms, *NaturalSums.unflatten(tuple(natural)))
        (site_terms,) = replicas.total([point.site_terms(moments, sites, cavities, power)])
        return tf.add_n(list(prior)) + scale * (ell + site_terms)

    def _energy_sums(self, rows: Rows, *factors: tf.Tensor) -> Sums:
        X, Y, alpha, nu, tau, m, s = rows
        projections = project_latents(self._priors(), factors, X)
        mean, variance = m + self._mean(X), s + residual_variance(projections)
        ell = tilted.log_power_expectation(self.likelihood, X, mean, variance, Y, alpha)
        sums = natural_sums(projections, Sites(nu, tau))
        return (*sums.flatten(), tf.reduce_sum(ell))

    def _infer(
        self,
        factors: list[tf.Tensor],
        max_sweeps: int | None = None,
        tolerance: float | None = None,
        damping: float = 1.0,
        sequential: bool = False,
    ) -> tuple[Sites, Marginals]:
        """Sites and marginals at the fixed point, constant for differentiation."""

        def run() -> list[tf.Tensor]:
            X, Y, alpha = self._rows()
            projected = self._project_rows(factors, X)
            rows = X, self._mean(X), Y, alpha
            with tf.control_dependencies([X]):  # its check of replaced rows comes first
                initial = self._initial_sites()
            limits: dict[str, Any] = {
                "max_sweeps": max_sweeps or self.max_sweeps,
                "tolerance": tolerance or self.tolerance,
            }

            def evaluate(sites: Sites) -> Evaluation:
                return sweep(self.likelihood, projected, rows, sites)

            if sequential:
                projections = project_latents(self._priors(), factors, X)
                sites, moments, info = run_sequentially(
                    lambda sites: sequential_pass(
                        self.likelihood, projections, rows, sites, damping
                    ),
                    evaluate,
                    initial,
                    **limits,
                )
            else:
                sites, moments, info = run_to_fixed_point(
                    evaluate, initial, damping=damping, **limits
                )
            return [*sites, *moments, tf.stack([tf.cast(x, sites.nu.dtype) for x in info])]

        nu, tau, m, s, info = constant(run)
        self.sites.assign(Sites(nu, tau))
        self._last_run.assign(info)
        if tf.executing_eagerly():
            self._warn_unless_converged()
        return Sites(nu, tau), Marginals(m, s)

    def _warn_unless_converged(self) -> None:
        info = self.last_inference
        if not info.converged:
            warnings.warn(
                f"The sites did not converge: residual {info.residual:.3g} after {info.num_sweeps}"
                f" sweeps, expected below {self.tolerance:g}. {ADVICE}",
                ConvergenceWarning,
                stacklevel=4,
            )

    def _initial_sites(self) -> Sites:
        """The cached sites; none where the data were replaced by another number of rows."""
        cached = self.sites.read()
        num_rows = self._num_rows()
        fresh = no_sites(num_rows, self.num_latent_gps, cached.nu.dtype)
        if cached.nu.shape[0] is not None and cached.nu.shape[0] == fresh.nu.shape[0]:
            return cached
        same = tf.equal(tf.shape(cached.nu)[0], num_rows)
        parts = [tf.cond(same, lambda a=a: a, lambda b=b: b) for a, b in zip(cached, fresh)]
        return Sites(*(tf.ensure_shape(part, fresh.nu.shape) for part in parts))

    def _natural_of_v(self) -> list[tuple[tf.Tensor, tf.Tensor, tf.Tensor]]:
        factors = self._prior_factors()
        sites, _ = self._infer(factors)
        of_prior = zip(factors, self._priors(), strict=True)
        by_latent = {latent: W for W, prior in of_prior for latent in prior.latents}
        latents = range(self.num_latent_gps)
        return list(zip([by_latent[k] for k in latents], *self._sum_natural(factors, sites)))

    @unconverted
    def _posterior_of_v(self) -> WhitenedGaussian:
        factors = self._prior_factors()
        sites, _ = self._infer(factors)
        parts = list(map(whitened_posterior, *self._sum_natural(factors, sites)))
        q_mu, q_sqrt = (tf.concat(part, axis) for part, axis in zip(zip(*parts), (1, 0)))
        return WhitenedGaussian(
            checks.require_finite(q_mu, "mean of q(u)", ADVICE),
            checks.require_finite(q_sqrt, "covariance of q(u)", ADVICE),
        )
