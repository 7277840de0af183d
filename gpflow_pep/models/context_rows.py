"""The posterior of a regression model whose predictions know training rows."""

from typing import Any

import tensorflow as tf
from gpflow.posteriors import PrecomputeCacheType

from .. import checks
from ..covariances import whiten
from ..predictions.context_posterior import ContextRowsPosterior
from ..predictions.context_rows import ContextRows, SharedPosterior


def context_posterior(
    model: Any, precompute_cache: PrecomputeCacheType | str | None, neighbours: int
) -> ContextRowsPosterior:
    """
    Create the posterior.

    :param model: The :class:`~gpflow_pep.models.PEPRegression`.
    :param neighbours: How many near rows predictions are given by default.
    """
    checks.check_not_sharded(
        model.reduction.count,
        "blocks or neighbours",
        "Predict with the parameters in a model that has all rows.",
    )

    @tf.autograph.experimental.do_not_convert
    def rows_and_posterior() -> tuple[tf.Tensor, SharedPosterior, ContextRows]:
        X, Y = model.rows.read()
        q, prior = model._posterior_of_v(), model._prior()
        W = whiten(model.inducing_variable, model.kernel).W
        rows = ContextRows(X, prior.residual(X, Y), prior.noise(X))
        return W, SharedPosterior(q.q_mu, q.q_sqrt[0]), rows

    prior = model._prior()
    return ContextRowsPosterior(
        rows_and_posterior,
        prior.kernel,
        prior.inducing_variable,
        prior.mean_function,
        blocks=model.rows.cut.block_rows,
        neighbours=neighbours,
        chunk_size=model.chunk_size,
        precompute_cache=precompute_cache,
    )
