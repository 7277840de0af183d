"""GPJax for the benchmark of quality, in an interpreter of its own that has GPJax.

It cannot share an environment with every TensorFlow. The only argument is the path of
an .npz file; predictions along the fit go to the same path with the ending .out.npz.
"""

import os
import sys

ONE_THREAD = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {ONE_THREAD}"

import contextlib  # noqa: E402
from functools import partial  # noqa: E402
from typing import Any  # noqa: E402

import gpjax  # noqa: E402
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import optax  # noqa: E402
from gpjax import objectives, variational_families  # noqa: E402
from jax.flatten_util import ravel_pytree  # noqa: E402
from scipy.optimize import minimize  # noqa: E402

from examples.benchmarks.quality_curve import LONGER, Curve, Over  # noqa: E402

NOISE_VARIANCE = 0.1
FIRST_STEPS = 100
BATCH_SIZE = 1000


def joint_model(num_inputs: int, classes: bool) -> Any:
    """The same start as the other methods have."""
    kernel = gpjax.kernels.RBF(
        lengthscale=jnp.full(num_inputs, num_inputs**0.5), variance=1.0
    )
    prior = gpjax.gps.Prior(mean_function=gpjax.mean_functions.Zero(), kernel=kernel)
    likelihoods = gpjax.likelihoods
    return prior * (
        likelihoods.Bernoulli()
        if classes
        else likelihoods.Gaussian(obs_stddev=NOISE_VARIANCE**0.5)
    )


def predict(q: Any, data: Any, Xnew: Any) -> tuple[Any, ...]:
    """Mean and variance of y."""
    collapsed = isinstance(q, variational_families.CollapsedVariationalGaussian)
    parts = [
        q.predict(Xnew[start : start + 500], *([data] if collapsed else []))
        for start in range(0, len(Xnew), 500)
    ]
    y = [q.model.likelihood(part) for part in parts]
    return tuple(
        np.concatenate([np.asarray(getattr(part, name)) for part in y])[:, None]
        for name in ("mean", "variance")
    )


def collapsed(curve: Curve, data: Any, Xnew: Any, Z: Any, model: Any) -> None:
    """L-BFGS of SciPy, as ``gpjax.fit_scipy``, with a call back."""
    import equinox

    q = variational_families.CollapsedVariationalGaussian(
        model=model, inducing_inputs=Z
    )
    values, static = equinox.partition(q, equinox.is_array)
    start, restore = ravel_pytree(values)

    @jax.jit
    def value_and_gradient(vector: Any) -> Any:
        def loss(x: Any) -> Any:
            model = equinox.combine(restore(x), static)
            return -objectives.collapsed_elbo(model, data)

        return jax.value_and_grad(loss)(vector)

    def call_back(vector: Any) -> None:
        now = equinox.combine(restore(jnp.asarray(vector)), static)
        curve.look(u=partial(predict, now, data, Xnew))

    with contextlib.suppress(Over):
        minimize(
            lambda x: [np.asarray(part) for part in value_and_gradient(x)],
            start,
            jac=True,
            method="L-BFGS-B",
            callback=call_back,
            options={"maxiter": 1000},
        )


def stochastic(
    curve: Curve, data: Any, Xnew: Any, Z: Any, model: Any, rate: float
) -> None:
    """Natural gradients for q and Adam for all else, by minibatches; runs of growing
    length.
    """
    num_steps = FIRST_STEPS
    while curve.permits_longer():
        curve.begin()
        q = variational_families.WhitenedVariationalGaussian(
            model=model, inducing_inputs=Z
        )
        q, _ = gpjax.fit_natgrads(
            model=q,
            objective=lambda q, batch: -objectives.elbo(q, batch),
            train_data=data,
            optim=optax.adam(rate),
            batch_size=min(BATCH_SIZE, data.n),
            num_iters=num_steps,
            verbose=False,
        )
        curve.add(partial(predict, q, data, Xnew), "u")
        num_steps *= LONGER


def run(path: str) -> None:
    jax.config.update("jax_enable_x64", True)
    with np.load(path) as given:
        X, Y, Xnew, Z = (jnp.asarray(given[name]) for name in ("X", "Y", "Xnew", "Z"))
        limit, rate, classes = (
            given[name].item() for name in ("limit", "rate", "classes")
        )
    curve = Curve(limit, lambda *prediction: prediction)
    data = gpjax.Dataset(X=X, y=Y)
    model = joint_model(X.shape[1], classes)
    if rate:
        stochastic(curve, data, Xnew, Z, model, rate)
    else:
        collapsed(curve, data, Xnew, Z, model)
    points = curve.points
    arrays = {
        name: np.array([getattr(p, name) for p in points])
        for name in ("processor", "wall")
    }
    predictions = np.array([p.scores for p in points])
    np.savez(path.removesuffix(".npz") + ".out.npz", predictions=predictions, **arrays)


if __name__ == "__main__":
    run(sys.argv[1])
