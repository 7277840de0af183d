"""Print how many digits of each model are right in float32, and what mixed precision
would lose.

    python -m examples single_precision

The first table compares a model in float32 with the same model in float64, both on data
that were rounded to float32: by how much log Z differs, in nats a row; the gradient,
relative to its norm; means of f at new inputs, in their standard deviations; and those
standard deviations, relatively. At a lengthscale of 0.5 function values at inducing
inputs are only weakly correlated; at 3 their covariance matrix is close to singular. A
``!`` means that sites did not converge, of which the model warns.

The second table is of the collapsed bound of regression in NumPy, in float64 but for
products of large matrices: those that project rows (``projected``), and the weighted
sum over rows (``summed``). Differences of log Z, in nats a row.
"""

import itertools
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import gpflow
import numpy as np
import scipy.linalg
import tensorflow as tf
from gpflow.base import AnyNDArray

import gpflow_pep as pep
from examples.common import arguments, value_and_gradient

LENGTHSCALES = (0.5, 3.0)
Z_JITTER = 1e-6


class Numbers(NamedTuple):
    """What is compared of a model."""

    log_z: float
    gradient: AnyNDArray
    mean: AnyNDArray
    deviation: AnyNDArray


class Data(NamedTuple):
    """Rows, and new inputs."""

    X: AnyNDArray
    Y: AnyNDArray
    labels: AnyNDArray
    counts: AnyNDArray
    new: AnyNDArray


def generated(num_rows: int) -> Data:
    """A smooth function of two inputs with noise, its sign, and counts; float32."""
    rng = np.random.default_rng(0)
    X, new = (rng.uniform(-2.0, 2.0, (size, 2)) for size in (num_rows, 200))
    Y = np.sin(2.0 * X[:, :1]) * np.cos(X[:, 1:]) + 0.1 * rng.standard_normal(
        (num_rows, 1)
    )
    counts = rng.poisson(np.exp(1.0 + Y))
    return Data(*(part.astype(np.float32) for part in (X, Y, Y > 0.0, counts, new)))


def models(
    data: Data, num_inducing: int, lengthscale: float
) -> dict[str, Callable[[], Any]]:
    """Models by name, with their powers, of GPflow's default float."""
    kind = gpflow.default_float()
    X, Y, labels, counts, _ = (part.astype(kind) for part in data)
    Z = X[:num_inducing]
    blocks = np.arange(len(X)) // 5
    classes = np.digitize(Y, [-0.3, 0.3]).astype(kind)
    likelihoods = gpflow.likelihoods

    def kernel() -> gpflow.kernels.Kernel:
        return gpflow.kernels.SquaredExponential(lengthscales=lengthscale)

    def regression(alpha: float, noise: float, **options: Any) -> Callable[[], Any]:
        return lambda: pep.PEPRegression(
            (X, Y), kernel(), Z.copy(), alpha=alpha, noise_variance=noise, **options
        )

    def sites(
        likelihood: type, targets: AnyNDArray, *arguments: Any
    ) -> Callable[[], Any]:
        return lambda: pep.PEP((X, targets), kernel(), likelihood(*arguments), Z.copy())

    def minibatch(name: str) -> Callable[[], Any]:
        def create() -> Any:
            num_data = len(X)
            make: Any = gpflow.models.SVGP if name == "SVGP" else getattr(pep, name)
            likelihood = likelihoods.Bernoulli()
            model = make(kernel(), likelihood, Z.copy(), num_data=num_data)
            q = pep.PEP((X, labels), kernel(), likelihoods.Bernoulli(), Z.copy())
            model.q_mu.assign(q.q_mu)
            model.q_sqrt.assign(q.q_sqrt)
            rows = tf.constant(X), tf.constant(labels)
            model.loss_of_rows = lambda: model.training_loss(rows)
            return model

        return create

    return {
        "PEPRegression 0, noise .1": regression(0.0, 0.1),
        "... .5, noise .1": regression(0.5, 0.1),
        "... .5, noise .001": regression(0.5, 0.001),
        "... 1, noise .1": regression(1.0, 0.1),
        "... .5, noise .1, blocks": regression(0.5, 0.1, blocks=blocks),
        "PEP .5, labels": sites(likelihoods.Bernoulli, labels),
        "... counts": sites(likelihoods.Poisson, counts),
        "... Student's t": sites(likelihoods.StudentT, Y, 0.1),
        "... three classes": sites(likelihoods.MultiClass, classes, 3),
        "GPflow's SVGP, labels": minibatch("SVGP"),
        "APEP .5, labels": minibatch("APEP"),
        "ARPEP .5, labels": minibatch("ARPEP"),
        "RPAPEP .5, labels": minibatch("RPAPEP"),
    }


def numbers_of(create: Callable[[], Any], new: AnyNDArray) -> Numbers:
    """Evaluate a model."""
    model = create()
    loss = getattr(model, "loss_of_rows", model.training_loss)
    value, gradient = value_and_gradient(loss, model.trainable_variables)()
    mean, variance = model.predict_f(new.astype(gpflow.default_float()))
    parts = [np.ravel(part) for part in gradient]
    return Numbers(
        -float(value), np.concatenate(parts), mean.numpy(), np.sqrt(variance.numpy())
    )


def print_models(num_rows: int, num_inducing: int) -> None:
    """Print the first table."""
    data = generated(num_rows)
    heads = ("log Z", "gradient", "means", "deviations")
    for lengthscale in LENGTHSCALES:
        print(
            f"\nlengthscale {lengthscale:g}"
            + f"{'':14}"
            + "".join(f"{h:>11}" for h in heads)
        )
        for name in models(data, num_inducing, lengthscale):
            results: list[Any] = []
            warned = False
            for kind in (np.float64, np.float32):
                with gpflow.config.as_context(gpflow.config.Config(float=kind)):
                    create = models(data, num_inducing, lengthscale)[name]
                    try:
                        with warnings.catch_warnings(record=True) as caught:
                            results.append(numbers_of(create, data.new))
                        warned |= any(
                            w.category is pep.models.ConvergenceWarning for w in caught
                        )
                    except (ValueError, tf.errors.InvalidArgumentError) as error:
                        results.append(str(error).splitlines()[0])
            print(f"{name:30}" + _differences(*results, num_rows) + " !" * warned)


def _differences(exact: Any, single: Any, num_rows: int) -> str:
    if not (isinstance(exact, Numbers) and isinstance(single, Numbers)):
        return f"   refused: {exact if isinstance(exact, str) else single}"[:90]
    differences = (
        abs(exact.log_z - single.log_z) / num_rows,
        np.linalg.norm(exact.gradient - single.gradient)
        / np.linalg.norm(exact.gradient),
        np.max(np.abs(exact.mean - single.mean) / exact.deviation),
        np.max(np.abs(single.deviation / exact.deviation - 1.0)),
    )
    return "".join(f"{value:11.1e}" for value in differences)


def collapsed_bound(
    data: Data,
    M: int,
    lengthscale: float,
    noise: float,
    alpha: float,
    projected: Any,
    summed: Any,
) -> float:
    """log Z of regression, with some products in other precisions."""
    X = data.X.astype(float)
    Y = data.Y.astype(float)
    kernel = gpflow.kernels.SquaredExponential(lengthscales=lengthscale)
    L = np.linalg.cholesky(kernel(X[:M]).numpy() + Z_JITTER * np.eye(M))
    W = scipy.linalg.solve_triangular(L, np.eye(M), lower=True)
    A = (W.astype(projected) @ kernel(X[:M], X).numpy().astype(projected)).astype(float)
    d = np.maximum(1.0 - np.sum(A**2, axis=0), 0.0)
    variance = noise + alpha * d
    scaled = A / np.sqrt(variance)
    gram = scaled.astype(summed) @ scaled.astype(summed).T
    root = np.linalg.cholesky(np.eye(M) + gram.astype(float))
    c = scipy.linalg.solve_triangular(
        root, scaled @ (Y[:, 0] / np.sqrt(variance)), lower=True
    )
    left = d / noise if alpha == 0.0 else np.log1p(alpha * d / noise) / alpha
    rows = np.log(2.0 * np.pi * noise) + left + Y[:, 0] ** 2 / variance
    return float(
        -0.5 * np.sum(rows) - np.sum(np.log(np.diag(root))) + 0.5 * np.sum(c**2)
    )


def cells() -> Iterator[tuple[float, float, float]]:
    """Lengthscale, noise variance and power."""
    return itertools.product(LENGTHSCALES, (0.1, 0.01, 0.001), (0.0, 0.5))


def print_ensemble(num_rows: int, num_inducing: int) -> None:
    """Print the second table."""
    data = generated(num_rows)
    print(
        f"\n{'lengthscale':>11}{'noise':>8}{'alpha':>7}{'projected':>11}{'summed':>9}{'both':>9}"
    )
    for lengthscale, noise, alpha in cells():
        setting = data, num_inducing, lengthscale, noise, alpha
        double = np.float64
        single = np.float32
        exact = collapsed_bound(*setting, double, double)
        losses = [
            abs(collapsed_bound(*setting, *precisions) - exact) / num_rows
            for precisions in ((single, double), (double, single), (single, single))
        ]
        print(
            f"{lengthscale:11g}{noise:8g}{alpha:7g}{losses[0]:11.1e}{losses[1]:9.1e}{losses[2]:9.1e}"
        )


def main() -> None:
    args = arguments(
        __doc__, rows=2_000, inducing=100, quick={"rows": 200, "inducing": 10}
    )
    print_models(args.rows, args.inducing)
    print_ensemble(args.rows, args.inducing)
