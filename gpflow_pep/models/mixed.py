"""Methods of ``PEP`` and ``PEPRegression`` for outputs that are mixed from latent
functions, by ``gpflow.kernels.LinearCoregionalization``: q(v) is one Gaussian over the
inducing variables of all latent functions.
"""

from typing import Any

import tensorflow as tf
from gpflow.base import InputData, MeanAndVariance, TensorData
from gpflow.posteriors import BasePosterior, PrecomputeCacheType

from ..engine import checks
from ..engine.energies import mixed
from ..engine.energies.collapsed import RowSums
from ..engine.factors import predict_mean_and_var
from ..engine.numerics import chunks
from ..engine.predictions.mixed import (
    CoregionalisedPosterior,
    MixedContext,
    condition_on_outputs,
    latent_at,
    mixed_covariance,
)
from ..engine.predictions.posterior import new_inputs
from ..engine.prior import Parts, PartsBySubstitution, is_mixed
from ..engine.prior.evaluate import noise_variance, unconverted
from ..engine.prior.mixing import variances_of_white
from ..engine.sites.mixed import LatentMarginals, latent_marginals, mixed_marginals
from ..engine.sites.posterior import Natural, SiteProblem, Sites, posterior_factor
from ..engine.sites.record import SiteUpdateInfo
from .arguments import warn_unless_converged
from .base import ADVICE, finite

_MIXED = "outputs that are mixed from latent functions"
_REMEDY = "Make the model with a gpflow.kernels.LinearCoregionalization."


def require_mixed(model: Any, name: str) -> None:
    """Refuse a method that exists only for mixed outputs."""
    if not is_mixed(model.kernel):
        raise checks.refusal(
            name, "a model of independent outputs", f"a model of {_MIXED}", _REMEDY
        )


def _context(model: Any) -> MixedContext:
    q = posterior_factor(model.natural_of_v())
    weights = tf.convert_to_tensor(model.kernel.W)
    L = model._latent_parts.whiten().L
    root, c = (checks.require_finite(tensor, "q(u)", ADVICE) for tensor in (q.W, q.c))
    return MixedContext(L, root, c, weights)


def posterior(
    model: Any,
    precompute_cache: PrecomputeCacheType | str | None = PrecomputeCacheType.TENSOR,
) -> BasePosterior:
    """Create the GPflow posterior, for fast predictions."""
    compute = tf.autograph.experimental.do_not_convert(lambda: _context(model))
    return CoregionalisedPosterior(compute, model._parts, precompute_cache)


def predict_f(
    model: Any,
    Xnew: InputData,
    full_cov: bool,
    full_output_cov: bool,
    outputs: TensorData | None,
) -> MeanAndVariance:
    """Predict f at new rows, optionally given some of their outputs, by EP in each
    row.
    """
    if outputs is None:
        f = posterior(model, PrecomputeCacheType.NOCACHE)
        return finite(f.fused_predict_f(Xnew, full_cov, full_output_cov))
    if full_cov:
        remedy = "Pass one of them."
        raise checks.refusal(
            "given", "outputs together with full_cov", "covariances of outputs", remedy
        )
    mixing, g, mean, _ = _given_outputs(model, Xnew, outputs)
    moments = mixed_marginals(mixing, g)
    covariance = mixed_covariance(mixing, g) if full_output_cov else moments.s
    return finite((moments.m + mean, covariance))


def predict_f_of_readings(
    model: Any, Xnew: InputData, outputs: TensorData
) -> MeanAndVariance:
    """Predict f of readings at new rows, given some outputs of the rows, [N, P] each.

    An output that is not given belongs to the same measurement as the given ones, and
    shares white noise with them. The prediction of a given output describes a further
    measurement, with separate white noise.

    :param outputs: The known outputs, [N, P], with NaN for unknown ones.
    """
    require_mixed(model, "known")
    mixing, g, mean, Y = _given_outputs(model, Xnew, outputs)
    white = variances_of_white(model.kernel)
    same = mixed_marginals(mixing, g)
    smooth = mixed_marginals(tf.where(white > 0.0, tf.zeros_like(mixing), mixing), g)
    variance = smooth.s + tf.linalg.matvec(tf.square(mixing), white)
    is_unknown = tf.math.is_nan(Y)
    return finite(
        (
            tf.where(is_unknown, same.m, smooth.m) + mean,
            tf.where(is_unknown, same.s, variance),
        )
    )


def _given_outputs(
    model: Any, Xnew: InputData, outputs: TensorData
) -> tuple[tf.Tensor, LatentMarginals, tf.Tensor, tf.Tensor]:
    """Compute the moments of g of new rows given some of their outputs. Return the
    weights of the mixture, these moments, the mean function, and the checked outputs
    [N, P].
    """
    parts = model._latent_parts
    context = _context(model)
    Xnew = new_inputs(Xnew, model.inducing_variable, context.L.dtype)
    X, Y = model._check_new_targets((Xnew, outputs))
    g = latent_at(parts, context, X)
    mean = parts.mean(X) + tf.zeros_like(Y)
    g, end = condition_on_outputs(model.likelihood, context, g, mean, X, Y)
    unfinished = "The prediction given outputs of the same row is inexact."
    warn_unless_converged(SiteUpdateInfo(*end.info), 1e-8, unfinished)
    return context.mixing, g, mean, Y


@unconverted("return[0]: [N, P]", "return[1]: [N, P]")
def impute_f(model: Any) -> MeanAndVariance:
    """Compute mean and variance of f at the rows of the data, given all targets that
    were observed there.

    ``predict_f`` at these rows uses their outputs only through the inducing variables,
    and with ``given`` it would count them twice. Here the outputs of a row are removed
    from q, and the row is then conditioned on them like a new row. This is done at
    ``alpha=0`` too, because it is better than q.

    :raises ValueError: If outputs are not mixed, or the result is not finite.
    """
    require_mixed(model, "impute_f")
    problem, sites, h = model._converged_rows()
    m, s = mixed.at_rows(problem, sites, h)
    return finite((m + problem.parts.mean(problem.rows.X), s))


@unconverted("return[0]: [N, P]", "return[1]: [N, P]")
def impute_y(model: Any) -> MeanAndVariance:
    """Compute mean and variance of missing targets, given all observed targets.

    :return: Mean and variance of all entries. For an observed target they describe
        another target at the same row. See :meth:`impute_f`.
    """
    return finite(
        predict_mean_and_var(model.likelihood, model.data[0], *impute_f(model))
    )


def loo_moments(model: Any, copies: tf.Tensor | None = None) -> MeanAndVariance:
    """Compute mean and variance of all targets of each row, given the other rows."""
    problem, sites, h = model._converged_rows()
    m, s = mixed.at_rows(problem, sites, h, whole_rows=True, copies=copies)
    X = problem.rows.X
    return finite(
        predict_mean_and_var(model.likelihood, X, m + problem.parts.mean(X), s)
    )


@unconverted("return: [N, P]")
def loo_log_density_of_entries(model: Any, *, whole_rows: bool = True) -> tf.Tensor:
    r"""Compute an approximate log density of each entry of Y given other entries; NaN
    for missing entries.

    :param whole_rows: Whether the whole row is left out, as for a prediction of a new
        row, or only the entry, which is easier to predict if the outputs of a row are
        correlated.
    :raises ValueError: If outputs are not mixed, if the remaining density is improper,
        or if the result is not finite.
    """
    require_mixed(model, "loo_log_density_of_entries")
    problem, sites, h = model._converged_rows()
    return mixed.leave_out(problem, sites, h, whole_rows)


def loo_log_density(model: Any) -> tf.Tensor:
    """Compute the log density of each row given the other rows, summed over outputs,
    [N].
    """
    density = loo_log_density_of_entries(model)
    observed = tf.math.is_finite(density)
    return tf.reduce_sum(tf.where(observed, density, tf.zeros_like(density)), axis=1)


def regression_sums(model: Any, W: tf.Tensor | None) -> RowSums:
    """Sum the terms of the energy of a regression over rows."""
    parts = model._latent_parts
    return _sums(model, parts, parts.whiten().W if W is None else W)


def natural_of_regression(model: Any) -> Natural:
    """Sum the contributions of the rows of a regression to the natural parameters of
    v.
    """
    parts = PartsBySubstitution(*model._latent_parts)
    return _sums(model, parts, parts.whiten().L).natural


def _sums(model: Any, parts: Parts, W: tf.Tensor) -> RowSums:
    def bound(rows: Any, W: tf.Tensor, weights: tf.Tensor) -> RowSums:
        return mixed.sum_mixed_rows(parts, rows, W, weights, lambda X: _noise(model, X))

    return model.rows.sum(bound, (W, tf.convert_to_tensor(model.kernel.W)), parts)


def _noise(model: Any, X: tf.Tensor) -> tf.Tensor:
    """Compute noise variances, [N, P or 1]."""
    of_columns = getattr(model.likelihood, "likelihoods", [model.likelihood])
    return tf.concat([noise_variance(of_column, X) for of_column in of_columns], axis=1)


def regression_sites(model: Any) -> tuple[SiteProblem, Sites, LatentMarginals]:
    """Return a regression's problem, its sites, which are the sites of Gaussian noise,
    and moments of h.
    """
    problem = model.site_problem().keep_projections()
    (X, Y, _), parts = problem.rows, problem.parts
    observed, r = parts.observed_residual(X, Y)
    tau = tf.where(
        observed, 1.0 / (_noise(model, X) + tf.zeros_like(r)), tf.zeros_like(r)
    )
    sites = Sites(tau * r, tau)
    q = posterior_factor(model.natural_of_v())

    def of_rows(piece: Any) -> LatentMarginals:
        (X, _), projection = piece
        return latent_marginals(problem.project(X, projection).A, q)

    return problem, sites, chunks.map_over_chunks(of_rows, problem.pieces(()))
