"""A likelihood for each row, chosen by the last column of the targets."""

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray, MeanAndVariance, TensorType
from gpflow.likelihoods import SwitchedLikelihood
from tensorflow import Tensor

from .moments import (
    Layout,
    Support,
    Traits,
    implementation_for,
    implementations,
    layout,
    support,
    traits,
    whole_numbers,
)
from .targets import predict_mean_and_var


@implementations.register(SwitchedLikelihood)
def _switched(
    likelihood: SwitchedLikelihood,
    X: Tensor,
    Fmu: Tensor,
    Fvar: Tensor,
    Y: Tensor,
    alpha: Tensor,
) -> Tensor:
    count = len(likelihood.likelihoods)
    alpha = tf.broadcast_to(alpha, tf.shape(Fmu)[:1])
    which = tf.cast(Y[:, -1], tf.int32)
    log_probs = [
        tf.dynamic_partition(rows, which, count)
        for rows in (X, Fmu, Fvar, Y[:, :-1], alpha)
    ]
    results = [
        implementation_for(component)(component, *rows)
        for component, *rows in zip(likelihood.likelihoods, *log_probs)
    ]
    rows_of = tf.dynamic_partition(tf.range(tf.shape(Y)[0]), which, count)
    return tf.ensure_shape(tf.dynamic_stitch(rows_of, results), Fmu.shape[:1])


@support.register(SwitchedLikelihood)
def _support_of_each(likelihood: SwitchedLikelihood, Y: AnyNDArray) -> Support:
    choices = likelihood.likelihoods
    which = Y[:, -1]
    known, numbers = whole_numbers(which, len(choices))
    inside = np.concatenate([np.ones_like(Y[:, :-1], bool), known[:, None]], axis=1)
    texts = []
    for place, choice in enumerate(choices):
        rows = which == place
        rule = support.dispatch_or_raise(type(choice))
        inside[rows, :-1], text = rule(choice, Y[rows, :-1])
        texts.append(f"{text} if the last column is {place}")
    return Support(inside, f"in the last column {numbers}, and {', '.join(texts)},")


layout.register(SwitchedLikelihood)(
    lambda likelihood, num_columns: Layout(max(num_columns, 2), num_columns - 1)
)


@traits.register(SwitchedLikelihood)
def _traits(likelihood: SwitchedLikelihood) -> Traits:
    def predict(X: TensorType, Fmu: TensorType, Fvar: TensorType) -> MeanAndVariance:
        # As in GPflow, the prediction is made under each likelihood, because a new row
        # has no last column that selects one.
        moments = [
            predict_mean_and_var(choice, X, Fmu, Fvar)
            for choice in likelihood.likelihoods
        ]
        means, variances = zip(*moments)
        return tf.concat(means, axis=1), tf.concat(variances, axis=1)

    return Traits(predict=predict)
