"""Print what derivatives of converged sites cost: products with a sweep's derivative,
and seconds.

    python -m examples derivatives --repeats 3

Generated rows of two inputs, a squared exponential and inducing inputs from k-means.
Before each call the lengthscales move by 1%, up or down, as in training: so the sites
have to move as well. ``sweeps`` are those of a prediction, ``products`` those of the
gradient of the sum of leave-one-out log densities in all parameters. Seconds are
medians of processor time: of log Z and its gradient, of the leave-one-out densities, of
these and their gradient, and of the product of the second derivative of log Z with a
vector, all in eager mode. The last two columns are of compiled functions: log Z and its
gradient, and the gradient of log Z plus the densities.
"""

import time
from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf

from examples.common import arguments, seconds_by_turns
from gpflow_pep.models import PEP
from gpflow_pep.training import training_loss
from gpflow_pep.training.starts import kmeans

HEADS = ("log Z'", "loo", "loo'", "log Z'' v", "graph: log Z'", "both'")
WIDTH = 15


def create(name: str, alpha: float, num_rows: int, num_inducing: int) -> PEP:
    """Make a model of generated rows that suit a likelihood."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-3.0, 3.0, (num_rows, 2))
    f = np.sin(2.0 * X[:, :1]) + np.cos(X[:, 1:])
    noise = rng.standard_normal(f.shape)
    likelihood, Y = {
        "Bernoulli": (gpflow.likelihoods.Bernoulli(), f + 0.5 * noise > 0.0),
        "Poisson": (gpflow.likelihoods.Poisson(), rng.poisson(np.exp(f))),
        "StudentT": (
            gpflow.likelihoods.StudentT(0.2, 4.0),
            f + 0.2 * rng.standard_t(4.0, f.shape),
        ),
        "MultiClass": (
            gpflow.likelihoods.MultiClass(3),
            np.digitize(f + 0.5 * noise, [-0.5, 0.5]),
        ),
    }[name]
    kernel = gpflow.kernels.SquaredExponential(lengthscales=[1.0, 1.0])
    Z = kmeans(X, num_inducing, seed=0).Z.numpy()
    return PEP((X, Y.astype(float)), kernel, likelihood, Z, alpha=alpha)


def tasks(model: PEP) -> dict[str, Callable[[], Any]]:
    """What is timed, each after a move of the lengthscales."""
    variables = model.trainable_variables
    moves = [0]

    def moved(function: Callable[[], Any]) -> Callable[[], Any]:
        def call() -> Any:
            moves[0] += 1
            model.kernel.lengthscales.assign(2 * [1.0 + 0.01 * (moves[0] % 2)])
            return function()

        return call

    def gradient(function: Callable[[], tf.Tensor]) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            value = tf.reduce_sum(function())
        parts: list[tf.Tensor] = tape.gradient(value, variables)
        return parts

    def product() -> list[tf.Tensor]:
        return gradient(lambda: tf.add_n(list(map(tf.reduce_sum, gradient(log_z)))))

    log_z = model.pep_log_marginal_likelihood
    loo = model.loo_log_density
    left_out = training_loss(model, "loo")
    in_graph = (
        tf.function(lambda: gradient(log_z), autograph=False),
        tf.function(lambda: gradient(left_out), autograph=False),
    )
    calls = (lambda: gradient(log_z), loo, lambda: gradient(loo), product, *in_graph)
    return {head: moved(call) for head, call in zip(HEADS, calls, strict=True)}


def main(given: list[str] | None = None) -> None:
    args = arguments(
        __doc__,
        names=("Bernoulli", "Poisson", "StudentT", "MultiClass"),
        rows=1000,
        inducing=50,
        repeats=5,
        quick={"names": ["Bernoulli"], "rows": 50, "inducing": 5, "repeats": 1},
        given=given,
    )
    print(f"N = {args.rows}, M = {args.inducing}")
    print(
        f"{'':10}{'alpha':>6}{'sweeps':>8}{'products':>10}"
        + "".join(f"{h:>{WIDTH}}" for h in HEADS)
    )
    for name in args.names:
        for alpha in (0.0, 0.5, 1.0):
            model = create(name, alpha, args.rows, args.inducing)
            functions = tasks(model)
            for head in ("loo", "loo'", *HEADS[-2:]):  # the last two are compiled now
                functions[head]()
            adjoint = model.last_adjoint
            counts = (
                model.last_inference.num_sweeps,
                adjoint.num_products if adjoint else 0,
            )
            times = seconds_by_turns(functions, args.repeats, time.process_time)
            printed = "".join(f"{np.median(times[head]):{WIDTH}.3f}" for head in HEADS)
            print(
                f"{name:10}{alpha:6g}{counts[0]:8}{counts[1]:10}{printed}", flush=True
            )
