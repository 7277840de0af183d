"""Models of outputs that are linear mixtures of latent functions, as PEP and PEPRegression choose
them."""

import abc
from typing import Any

import numpy as np
import tensorflow as tf
from check_shapes import inherit_check_shapes
from gpflow.base import InputData, MeanAndVariance, RegressionData, TensorData
from gpflow.kernels import LinearCoregionalization
from gpflow.posteriors import BasePosterior, PrecomputeCacheType

from ..engine import checks
from ..engine.energies import mixed
from ..engine.factors import predict_mean_and_var
from ..engine.factors.entries import check_entries, observed_log_power_expectation
from ..engine.numerics import chunks
from ..engine.predictions.mixed import (
    MixtureContext,
    MixturePosterior,
    condition_on_outputs,
    latent_at,
    mixed_covariance,
)
from ..engine.predictions.posterior import new_inputs
from ..engine.prior import Parts, check_independent
from ..engine.prior.evaluate import skip_autograph, unconverted
from ..engine.prior.mixing import is_mixture, latent_parts
from ..engine.sites.mixed import Mixed, mixed_marginals
from ..engine.sites.posterior import Natural, SiteProblem, SiteRows, posterior_factor
from ..engine.sites.record import FixedPoint, SiteUpdateInfo
from .arguments import refusing
from .base import ADVICE, PowerEPModel, finite
from .parameters import warn_unless_converged
from .rows import Data


def has_mixture(data: Any = None, kernel: Any = None, *_: Any, **__: Any) -> bool:
    """Whether a model is of a mixture of latent functions."""
    return is_mixture(kernel)


#: What a method is refused for that is not known where outputs are mixtures, and what is wanted.
MIXED = "a model whose outputs are mixtures", "independent latent functions"


def refuse_options(options: dict[str, Any], **defaults: Any) -> None:
    """Refuse arguments of a model that are not known where outputs are mixtures."""
    for name, default in defaults.items():
        if np.any(options.get(name, default) != default):
            raise checks.refusal(name, *MIXED, "Leave it out.")


class MixedOutputs(PowerEPModel):
    """What models of mixtures have in common: one Gaussian over the inducing variables of all."""

    takes_missing_targets = True
    kernel: LinearCoregionalization
    data: Data
    chunk_size: int | None
    reduction: chunks.Reduction

    @property
    def _latent_parts(self) -> Parts:
        return latent_parts(self._parts)

    @abc.abstractmethod
    def natural_of_v(self) -> Natural:
        """Compute what the data add to the natural parameters of the prior of all v, S = Q M."""

    def _check_data(self, data: Any) -> Data:
        return checks.check_incomplete_data(data)

    def _check_latent(self, _: int) -> None:
        number = len(self.kernel.latent_kernels)
        check_independent(self._latent_parts.kernel, self.inducing_variable, number)

    def _check_outputs(self, data: RegressionData) -> tuple[tf.Tensor, tf.Tensor]:
        """Check rows beside those of the model, whose outputs may all be missing."""
        X, Y = map(tf.convert_to_tensor, checks.check_data(data, missing_targets=True))
        if Y.shape[1] not in (None, self.num_latent_gps):
            expected = f"{self.num_latent_gps}, one for each output, with NaN where it is not known"
            raise checks.refusal("Y", f"{Y.shape[1]} column(s)", expected, "Give as many.")
        Y = tf.ensure_shape(Y, [None, self.num_latent_gps])
        check_entries(self.likelihood, Y)
        return X, Y

    def _context(self) -> MixtureContext:
        q = posterior_factor(self.natural_of_v())
        mixing, W = tf.convert_to_tensor(self.kernel.W), self._latent_parts.whiten().W
        root, c = (checks.require_finite(part, "q(u)", ADVICE) for part in (q.W, q.c))
        return MixtureContext(W, root, c, mixing)

    @skip_autograph
    def predict_f(
        self,
        Xnew: InputData,
        full_cov: bool = False,
        full_output_cov: bool = False,
        *,
        given: TensorData | None = None,
        blocks: Any = None,
        neighbours: int = 0,
    ) -> MeanAndVariance:
        """
        Predict f at new rows, see :meth:`gpflow.models.GPModel.predict_f`.

        :param given: Outputs of the same rows that are known, [N, P], NaN where they are not:
            the prediction is conditioned on them too, by EP in each row, which is exact for
            Gaussian noise.
        :raises ValueError: If outputs that are known are outside the likelihood's support, or
            covariances between rows are asked for beside them.
        """
        if blocks is not None or neighbours:
            raise checks.refusal("blocks and neighbours", *MIXED, "Leave them out.")
        if given is None:
            posterior = self.posterior(PrecomputeCacheType.NOCACHE)
            return finite(posterior.fused_predict_f(Xnew, full_cov, full_output_cov))
        if full_cov:
            remedy = "Ask for one of them."
            raise checks.refusal("given", "it with full_cov", "covariances of outputs", remedy)
        parts, context = self._latent_parts, self._context()
        Xnew = new_inputs(Xnew, self.inducing_variable, context.W.dtype)
        X, Y = self._check_outputs((Xnew, given))
        g, mean = latent_at(parts, context, X), parts.mean(X) + tf.zeros_like(Y)
        g, end = condition_on_outputs(self.likelihood, context, g, mean, X, Y)
        info = SiteUpdateInfo(*end.info)
        warn_unless_converged(
            info, 1e-8, "The prediction given outputs of the same row is inexact."
        )
        moments = mixed_marginals(context.mixing, g)
        covariance = mixed_covariance(context.mixing, g) if full_output_cov else moments.s
        return finite((moments.m + mean, covariance))

    def predict_y(
        self,
        Xnew: InputData,
        full_cov: bool = False,
        full_output_cov: bool = False,
        *,
        given: TensorData | None = None,
    ) -> MeanAndVariance:
        """See :meth:`gpflow.models.GPModel.predict_y`, and :meth:`predict_f` for ``given``."""
        if full_cov or full_output_cov:
            return super().predict_y(Xnew, full_cov, full_output_cov)  # which refuses it
        moments = self.predict_f(Xnew, given=given)
        return finite(predict_mean_and_var(self.likelihood, Xnew, *moments))

    @unconverted("return[0]: [N, P]", "return[1]: [N, P]")
    def impute_f(self) -> MeanAndVariance:
        """
        Compute mean and variance of f at the rows of the data, given all that was observed there.

        ``predict_f`` at these rows knows their outputs by way of the inducing variables alone, and
        with ``given`` it would count them twice. Here the outputs of a row are removed from q, and
        given to it as those of a new row would be. At ``alpha=0`` too, where that is better than
        q.

        :raises ValueError: If the result is not finite.
        """
        problem, fixed_point = self._problem_and_fixed_point()
        m, s = mixed.at_rows(problem, fixed_point)
        return finite((m + self._latent_parts.mean(problem.rows.X), s))

    @unconverted("return[0]: [N, P]", "return[1]: [N, P]")
    def impute_y(self) -> MeanAndVariance:
        """
        Compute mean and variance of the targets that are missing, given all that was observed.

        :return: Of all entries; where a target was observed, of another one at the same row. See
            :meth:`impute_f`.
        """
        moments = self.impute_f()
        return finite(predict_mean_and_var(self.likelihood, self.data[0], *moments))

    @inherit_check_shapes
    def predict_log_density(
        self, data: RegressionData, full_cov: bool = False, full_output_cov: bool = False
    ) -> tf.Tensor:
        """
        See :meth:`gpflow.models.GPModel.predict_log_density`: the sum over the outputs of a row
        that were observed, each with its own density; NaN in Y is left out.
        """
        if full_cov or full_output_cov:
            return super().predict_log_density(data, full_cov, full_output_cov)  # which refuses it
        X, Y = self._check_outputs(data)
        arguments = self.likelihood, X, *self.predict_f(X), Y
        return observed_log_power_expectation(*arguments, tf.ones([1], X.dtype))

    def posterior(
        self,
        precompute_cache: PrecomputeCacheType | str | None = PrecomputeCacheType.TENSOR,
        **_: Any,
    ) -> BasePosterior:
        """Create the GPflow posterior, for fast predictions."""
        compute = tf.autograph.experimental.do_not_convert(self._context)
        return MixturePosterior(compute, self._parts, precompute_cache)

    @unconverted("return[0]: [M, Q]", "return[1]: [Q, M, M]")
    def compute_qu(self) -> tuple[tf.Tensor, tf.Tensor]:
        """
        Compute mean and covariance of q(u) of each latent function.

        Latent functions are correlated: ``q_mu`` [Q M, 1] and ``q_sqrt`` [1, Q M, Q M] are of all
        whitened inducing variables, one latent function after the other.
        """
        L, q = self._latent_parts.whiten().L, posterior_factor(self.natural_of_v())
        number, size = int(L.shape[0]), tf.shape(L)[1]
        w = tf.reshape(q.w, [number, size, 1])
        columns = [q.W[0, :, k * size : (k + 1) * size] for k in range(number)]
        roots = tf.matmul(L, tf.linalg.matrix_transpose(tf.stack(columns)))
        mean = tf.transpose(tf.matmul(L, w)[..., 0])
        return mean, tf.matmul(roots, roots, transpose_b=True)

    surrogate = refusing("surrogate", *MIXED, "Use posterior() for predictions.")
    remember = refusing("remember", *MIXED, "Train on all rows, or use one model for each output.")
    evidence_and_left_out = refusing("evidence_and_left_out", *MIXED, "Train by the evidence.")

    @unconverted("return: [N]")
    def loo_log_density(self) -> tf.Tensor:
        r"""Sum over the outputs of each row their densities given the other rows."""
        density = self.loo_log_density_of_entries(whole_rows=True)
        observed = tf.math.is_finite(density)
        return tf.reduce_sum(tf.where(observed, density, tf.zeros_like(density)), axis=1)

    @unconverted("return: [N, P]")
    def loo_log_density_of_entries(self, *, whole_rows: bool = True) -> tf.Tensor:
        r"""
        Compute the log density of each entry of Y given others, approximately; NaN where there is
        none.

        :param whole_rows: Whether what is left out is the whole row, as where a new row is
            predicted, or the entry alone, which is easier to predict where outputs of a row say
            something of each other.
        :raises ValueError: If what is left is improper, or the result is not finite.
        """
        return mixed.leave_out(*self._problem_and_fixed_point(), whole_rows)

    @abc.abstractmethod
    def _problem_and_fixed_point(self) -> tuple[SiteProblem, FixedPoint]:
        """Compute what leave-one-out densities are made of."""

    def _mixed_problem(self) -> SiteProblem:
        parts, rows = self._latent_parts, SiteRows(*self.rows.read(), self._powers())
        latents = Mixed(tf.convert_to_tensor(self.kernel.W))
        options = self.chunk_size, self.reduction
        return SiteProblem(parts, rows, parts.whiten().W, *options, latents=latents)
