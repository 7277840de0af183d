"""Checks of the arguments of fit and maximise."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras
from gpflow.models import GPModel
from gpflow.models.training_mixins import ExternalDataTrainingLossMixin

from ...engine.checks import check_not_sharded, check_positive, check_real, refusal
from ...engine.numerics.chunks import Epochs
from ...models.base import InternalDataModel
from ...models.minibatch import BatchLoss
from ...models.pep import PEP
from .history import EarlyStopping


def check_stopping(
    rule: EarlyStopping | None, evaluate: Any, num_steps: int, evaluate_every: int
) -> None:
    """Refuse early stopping that can do nothing."""
    if rule is None:
        return
    if not isinstance(rule, EarlyStopping):
        remedy = "Pass EarlyStopping('nlpd', patience=5), for example."
        expected = "gpflow_pep.training.EarlyStopping or None"
        raise refusal("early_stopping", repr(rule), expected, remedy)
    if evaluate is None or evaluate_every > num_steps:
        got = "no evaluate" if evaluate is None else f"evaluate_every={evaluate_every}"
        got += f" with {num_steps} steps"
        remedy = "Pass evaluate, and evaluate_every of at most num_steps."
        raise refusal("early_stopping", got, "evaluations to judge by", remedy)
    check_positive("early_stopping.patience", rule.patience)
    check_real("early_stopping.min_delta", rule.min_delta, "[0, inf]", "0 counts any improvement.")


def as_metrics(returned: Any, step: int, rule: EarlyStopping | None) -> dict[str, float]:
    """Take metrics that a function of the user returned as numbers by name; refuse all else."""
    try:
        metrics = {str(name): float(value) for name, value in returned.items()}
    except (AttributeError, TypeError, ValueError) as error:
        got = f"a function that returned {returned!r}"
        expected = "numbers by name"
        raise refusal("evaluate", got, expected, "Return {'nlpd': 0.7}, for example.") from error
    for name, value in metrics.items():
        if not np.isfinite(value):
            raise refusal(
                f"Training stopped at step {step}. Metric '{name}'",
                value,
                "a finite number",
                "Look at the predictions of the held-out rows, or lower the learning rate.",
            )
    if rule and rule.metric not in metrics:
        got = f"the metric '{rule.metric}'"
        expected = f"one that evaluate returns: {', '.join(metrics) or 'none'}"
        raise refusal("early_stopping", got, expected, "Name one of them.")
    return metrics


def check_optimizer(optimizer: Any) -> None:
    """Refuse one that cannot be built, restored and used in a graph."""
    if not isinstance(optimizer, tf_keras.optimizers.Optimizer):
        expected = "one of tf_keras.optimizers (neither legacy nor of Keras 3)"
        remedy = "Pass tf_keras.optimizers.Adam(0.01), for example."
        raise refusal("optimizer", repr(optimizer), expected, remedy)


def loss_and_epochs(
    model: GPModel, batches: tf.data.Dataset | Epochs | BatchLoss
) -> tuple[Callable[[Any], tf.Tensor], Epochs]:
    """Find the training loss of a batch, and the batches of each epoch."""
    if isinstance(batches, BatchLoss):
        if batches.model is not model:
            got = "the minibatch loss of another model"
            remedy = "Call this model's minibatch_training_loss_closure."
            raise refusal("batches", got, "that of this one", remedy)
        return batches.of_batch, batches.epoch
    if not isinstance(model, ExternalDataTrainingLossMixin):
        remedy = (
            "Pass model.minibatch_training_loss_closure(batch_size, seed=0) as batches."
            if isinstance(model, PEP)
            else "Train it with gpflow_pep.training.maximise."
        )
        got = f"{type(model).__name__}, which holds its data, with batches of data"
        raise refusal("model", got, "a model that takes its data with each call", remedy)
    if isinstance(batches, tf.data.Dataset):
        dataset = batches
        return model.training_loss, lambda number: dataset
    if not callable(batches):
        expected = "a tf.data.Dataset or a function of the epoch that returns one"
        remedy = "gpflow_pep.training.shuffled_batches makes one of arrays."
        raise refusal("batches", type(batches).__name__, expected, remedy)
    return model.training_loss, batches


def check_strategy(
    strategy: Any, model: GPModel, optimizer: Any, batches: Any, natural_gradient: Any
) -> None:
    """Refuse a model, optimizer or batches that a strategy does not mirror over its replicas."""
    kinds = tf.distribute.MirroredStrategy, tf.distribute.MultiWorkerMirroredStrategy
    if not isinstance(strategy, kinds):
        expected = "tf.distribute.MirroredStrategy or tf.distribute.MultiWorkerMirroredStrategy"
        raise refusal("strategy", type(strategy).__name__, expected, "Pass one of them, or None.")
    if isinstance(batches, BatchLoss):
        raise refusal(
            "strategy",
            "one for minibatches of PEP, whose sites belong to one process",
            "a model that takes its data with each call",
            "Train ARPEP, APEP or RPAPEP, or PEP with gpflow_pep.training.sharded_training_loss.",
        )
    if natural_gradient is not None:
        raise refusal(
            "natural_gradient",
            "one under a strategy",
            "none: q_mu and q_sqrt would be assigned in each replica, which variables of a strategy"
            " refuse",
            "Leave it out.",
        )
    if getattr(model, "num_data", 0) is None:
        got = f"{type(model).__name__} with num_data=None under a strategy"
        expected = "the number of rows of the whole data set: a replica sees a share of a batch"
        raise refusal("model", got, expected, "Pass num_data.")
    created_in_scope = strategy.extended.variable_created_in_scope
    for name, variables in (("model", model.variables), ("optimizer", optimizer.variables)):
        if not all(map(created_in_scope, variables)):
            got, expected = "one made outside of the strategy", "one made in its scope"
            remedy = "Make model and optimizer under `with strategy.scope():`."
            raise refusal(name, got, expected, remedy)
    for variable in model.variables:
        # GPflow notes it where variables of a strategy do not look.
        if vars(variable).get("_trainable", variable.trainable) != variable.trainable:
            raise refusal(
                "model",
                f"set_trainable on {variable.name}",
                "none under a strategy, where it has no effect",
                "Replace the parameter, under the scope:"
                " kernel.variance = gpflow.Parameter(kernel.variance, trainable=False).",
            )


def variables_of_optimizer(
    model: GPModel, variables_of_q: Sequence[tf.Variable] = ()
) -> list[tf.Variable]:
    """Find the trainable variables but those of q, which natural gradients train."""
    others = set(map(id, variables_of_q))
    variables = [v for v in model.trainable_variables if id(v) not in others]
    if not variables and not others:
        got = "none with a parameter for the optimizer to train"
        raise refusal("model", got, "at least one", "Use gpflow.set_trainable(model, True).")
    return variables


def check_holds_data(model: Any) -> list[tf.Variable]:
    """Find what to train of a model that holds all its rows; refuse others."""
    has_data = hasattr(model, "training_loss") and hasattr(model, "data")
    if isinstance(model, ExternalDataTrainingLossMixin) or not has_data:
        expected = "a model that holds its data, such as PEPRegression, PEP or gpflow.models.SGPR"
        remedy = "Train one that takes its data in batches with gpflow_pep.training.fit."
        raise refusal("model", type(model).__name__, expected, remedy)
    if isinstance(model, InternalDataModel):
        check_not_sharded(
            model.reduction.count, "maximise", "Use gpflow_pep.training.sharded_training_loss."
        )
    return variables_of_optimizer(model)


def check_limits(tolerance: float, window: int, max_iterations: int, seconds: float | None) -> None:
    """Refuse limits that are out of their range."""
    check_positive("window", window)
    check_positive("max_iterations", max_iterations)
    check_real("tolerance", tolerance, "[0, inf)", "In nats for each row, 1e-6 is fine.")
    if seconds is not None:
        check_real("seconds", seconds, "(0, inf]", "None is for no limit.")
