"""What training maximises: log Z, leave-one-out densities, both, or a function of the model."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf
from gpflow.models import GPModel

from ...engine.checks import check_choice, check_real, refusal, require_finite
from ...engine.energies.curvature import energy_of
from ...engine.sites.posterior import Independent
from ...models import PEP, PEPRegression
from ...models.base import ADVICE

#: Objectives that have a name.
NAMES = "evidence", "loo", "evidence+loo"
#: One of :data:`NAMES`, or a function of a model that computes a number to maximise.
Objective = str | Callable[[Any], tf.Tensor]


def training_loss(model: GPModel, objective: Objective = "evidence") -> Callable[[], tf.Tensor]:
    """
    Make the loss of a model that holds its data, for GPflow's and Keras's optimisers::

        loss = pep.training.training_loss(model, "evidence+loo")
        gpflow.optimizers.Scipy().minimize(loss, model.trainable_variables)

    It is minus the objective and minus the log density of priors on parameters.

    :param objective: ``"evidence"``: log Z, of any model. ``"loo"``: the sum over rows of the
        leave-one-out log density, of ``PEP`` and of ``PEPRegression`` without blocks.
        ``"evidence+loo"``: log Z plus that. Or a function that computes a number from
        the model, in TensorFlow. It must use its argument, which may be a copy of the model.
    :raises ValueError: If the model does not have the objective.
    """
    if callable(objective):
        return _of_function(model, objective)
    remedy = "Pass a name or a function of the model; leave it out if in doubt."
    check_choice("objective", objective, NAMES, remedy)
    if objective == "evidence":
        return model.training_loss
    ours = isinstance(model, (PEP, PEPRegression))
    if not ours or getattr(model, "has_blocks", False):
        got = f"{objective!r} with {type(model).__name__}"
        expected = "PEP, or PEPRegression without blocks"
        raise refusal("objective", got, expected, "Train by the evidence.")

    def of_rows(model: Any) -> tf.Tensor:
        log_z, left_out = model.evidence_and_left_out()
        return left_out if objective == "loo" else log_z + left_out

    return _of_function(model, of_rows)


def hybrid_evidence(alpha: float) -> Callable[[PEP], tf.Tensor]:
    """
    Make an objective of ``PEP``: the energy at one power with the sites of another.

    The sites are those of the model's own power, at their fixed point; the energy of all powers is
    defined for any sites (:mod:`gpflow_pep.engine.energies.point`). At the model's own power it is
    log Z, and at 1 the estimate of expectation propagation. It takes memory for several M x N
    matrices.

    :param alpha: The power of the energy, in [0, 1].
    :raises ValueError: If that is outside; when it is computed, if the model is another, or a
        cavity is improper at that power.
    """
    check_real("alpha", alpha, "[0, 1]", "1 is the energy of expectation propagation.")

    @tf.autograph.experimental.do_not_convert
    def objective(model: PEP) -> tf.Tensor:
        problem = model.site_problem() if isinstance(model, PEP) else None
        if problem is None or not isinstance(problem.latents, Independent):
            got = type(model).__name__ if problem is None else "PEP of mixed outputs"
            expected = "PEP of independent latent functions"
            raise refusal("hybrid_evidence", got, expected, "Train by the evidence.")
        power = tf.constant([alpha], problem.W.dtype)
        problem = problem._replace(rows=problem.rows._replace(alpha=power))
        value = energy_of(problem, model.converged_sites())
        return require_finite(value, f"energy at power {alpha:g}", ADVICE)

    return objective


def _of_function(model: Any, objective: Callable[[Any], tf.Tensor]) -> Callable[[], tf.Tensor]:
    @tf.autograph.experimental.do_not_convert
    def loss() -> tf.Tensor:
        value = tf.convert_to_tensor(objective(model))
        if value.shape.rank != 0:
            got = f"a function with a result of shape {value.shape}"
            raise refusal("objective", got, "a number", "Sum over rows with tf.reduce_sum.")
        return -(value + model.log_prior_density())

    return loss
