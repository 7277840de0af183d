"""Print the time of a step of APEP, ARPEP, RPAPEP and of PEP's minibatches beside
GPflow's SVGP.

    python -m examples tied            # half a minute

A step is value and gradient of the training loss in all parameters, compiled, with a
batch of 200 rows and M = 200 inducing inputs; the models take turns. Multi-class with
RobustMax and 10 classes, inputs of the size of MNIST's, and binary with the probit.
Inputs are random: what they are does not matter for the time. ``PEP`` is the minibatch
loss of the model with a site for each row, which has ten batches. The shortest times
of the processor are printed: sums over all its rows, once an epoch, are not in them.
"""

import time
from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf

from examples.common import arguments, seconds_by_turns, value_and_gradient
from gpflow_pep.models import APEP, ARPEP, PEP, RPAPEP

BATCH = 200
NUM_INDUCING = 200
NUM_DATA = 60_000


def batch_loss(
    model: Any, data: tuple[tf.Tensor, tf.Tensor]
) -> Callable[[], tf.Tensor]:
    """The loss of a batch, from a q that is not the prior."""
    model.q_mu.assign(np.random.default_rng(1).standard_normal(model.q_mu.shape))
    return model.training_loss_closure(data, compile=False)


def milliseconds(steps: dict[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """The shortest processor time of each, without the first ones, which compile."""
    times = seconds_by_turns(steps, repeats + 2, time.process_time)
    return {name: 1e3 * min(values[2:]) for name, values in times.items()}


def compare(num_classes: int, num_inputs: int, alpha: float, repeats: int) -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((10 * BATCH, num_inputs)) / np.sqrt(num_inputs)
    Z = rng.standard_normal((NUM_INDUCING, num_inputs)) / np.sqrt(num_inputs)
    Y = rng.integers(0, num_classes, (10 * BATCH, 1)).astype(float)
    data = tf.constant(X[:BATCH]), tf.constant(Y[:BATCH])
    num_latent = num_classes if num_classes > 2 else 1

    def parts() -> tuple[Any, ...]:
        likelihoods = gpflow.likelihoods
        several = num_latent > 1
        likelihood = (
            likelihoods.MultiClass(num_classes) if several else likelihoods.Bernoulli()
        )
        return gpflow.kernels.SquaredExponential(), likelihood, Z

    options = {"num_data": NUM_DATA, "num_latent_gps": num_latent}
    models: dict[str, Any] = {"SVGP": gpflow.models.SVGP(*parts(), **options)}
    for model in (ARPEP, RPAPEP, APEP):
        models[model.__name__] = model(*parts(), alpha=alpha, **options)
    losses = {name: batch_loss(model, data) for name, model in models.items()}
    models["PEP"] = PEP((X, Y), *parts(), num_latent_gps=num_latent, alpha=alpha)
    losses["PEP"] = models["PEP"].minibatch_training_loss_closure(
        BATCH, seed=0, compile=False
    )
    steps = {
        k: value_and_gradient(losses[k], model.trainable_variables)
        for k, model in models.items()
    }
    times = milliseconds(steps, repeats)
    for name, value in times.items():
        ratio = value / times["SVGP"]
        print(
            f"C = {num_latent:<3} D = {num_inputs:<4} {name:7}{value:8.1f}{ratio:8.2f}"
        )


def main() -> None:
    args = arguments(__doc__, alpha=0.5, repeats=50, quick={"repeats": 3})
    print(f"{'batch 200, M = 200':22}{'ms':>9}{'/ SVGP':>8}")
    for num_classes, num_inputs in ((10, 784), (2, 784), (2, 5)):
        compare(num_classes, num_inputs, args.alpha, args.repeats)
