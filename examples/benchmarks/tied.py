"""Print the time of a training step of APEP, ARPEP and RPAPEP beside that of GPflow's SVGP.

    python examples/benchmarks/tied.py            # half a minute

A step is value and gradient of the training loss in all parameters, compiled, with a batch of 200
rows and M = 200 inducing inputs; the models take turns. Multi-class with RobustMax and 10 classes,
inputs of the size of MNIST's, and binary with the probit. Inputs are random: what they are does not
matter for the time.
"""

import argparse
import os
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import gpflow
import numpy as np
import tensorflow as tf

from gpflow_pep.models import APEP, ARPEP, RPAPEP

BATCH, NUM_INDUCING, NUM_DATA = 200, 200, 60_000


def compiled_step(model: Any, data: tuple[tf.Tensor, tf.Tensor]) -> Callable[[], Any]:
    """Value and gradient, from a q that is not the prior."""
    model.q_mu.assign(np.random.default_rng(1).standard_normal(model.q_mu.shape))
    loss = model.training_loss_closure(data, compile=False)
    variables = model.trainable_variables

    def step() -> Any:
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(variables)
            value = loss()
        return value, tape.gradient(value, variables)

    return tf.function(step, autograph=False)


def milliseconds(steps: dict[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """The median time of each."""
    times: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(repeats + 2):  # the first ones compile
        for name, step in steps.items():
            start = time.perf_counter()
            value, gradients = step()
            value.numpy(), [gradient.numpy() for gradient in gradients]
            times[name].append(1e3 * (time.perf_counter() - start))
    return {name: float(np.median(values[2:])) for name, values in times.items()}


def compare(num_classes: int, num_inputs: int, alpha: float, repeats: int) -> None:
    """The lines of one problem."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((BATCH, num_inputs)) / np.sqrt(num_inputs)
    Z = rng.standard_normal((NUM_INDUCING, num_inputs)) / np.sqrt(num_inputs)
    Y = rng.integers(0, num_classes, (BATCH, 1)).astype(float)
    data = tf.constant(X), tf.constant(Y)
    num_latent = num_classes if num_classes > 2 else 1

    def create(model: Any, **options: Any) -> Any:
        likelihoods = gpflow.likelihoods
        likelihood = (
            likelihoods.MultiClass(num_classes) if num_latent > 1 else likelihoods.Bernoulli()
        )
        options = {"num_data": NUM_DATA, "num_latent_gps": num_latent, **options}
        return model(gpflow.kernels.SquaredExponential(), likelihood, Z, **options)

    models = {"SVGP": create(gpflow.models.SVGP)}
    models |= {model.__name__: create(model, alpha=alpha) for model in (ARPEP, RPAPEP, APEP)}
    times = milliseconds({k: compiled_step(model, data) for k, model in models.items()}, repeats)
    for name, value in times.items():
        ratio = value / times["SVGP"]
        print(f"C = {num_latent:<3} D = {num_inputs:<4} {name:7}{value:8.1f}{ratio:8.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--alpha", type=float, default=0.5)
    parser.add_argument("--repeats", type=int, default=50)
    options = parser.parse_args()
    print(f"{'batch 200, M = 200':22}{'ms':>9}{'/ SVGP':>8}")
    for num_classes, num_inputs in ((10, 784), (2, 784), (2, 5)):
        compare(num_classes, num_inputs, options.alpha, options.repeats)


if __name__ == "__main__":
    main()
