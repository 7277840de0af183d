"""The posterior of a regression model whose predictions know training rows."""

from typing import Any

import tensorflow as tf
from gpflow.posteriors import PrecomputeCacheType

from .. import checks
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
        q, parts = model._posterior_of_v(), model._parts_of_output()
        W = model._parts.whiten().W
        rows = ContextRows(X, parts.residual(X, Y), parts.noise(X))
        return W, SharedPosterior(q.q_mu, q.q_sqrt[0]), rows

    kernel, inducing_variable, mean_function, _ = model._parts_of_output()
    return ContextRowsPosterior(
        rows_and_posterior,
        kernel,
        inducing_variable,
        mean_function,
        blocks=model.rows.cut.block_rows,
        neighbours=neighbours,
        chunk_size=model.chunk_size,
        precompute_cache=precompute_cache,
    )
