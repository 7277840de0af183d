"""Redo the synthetic experiments of Qi, Abdel-Gawad & Minka (2010): basis points with a
blur.

    python -m examples saspa [--out FIGURE.png] [--sets 10]

Regression: 100 points on a noisy circle, whose value depends on the quadrant; the
distance of the sparse posterior mean to the exact one with four basis points.
Classification: 200 points of three Gaussians, two of one class and one of the other,
and the probit likelihood; error and divergence from full expectation propagation with
three basis points. The paper does not give the numbers of its data; those here are in
``circle`` and ``gaussians``.

Hyperparameters and basis points are the same for all approximations of a data set.
Prints averages over data sets; draws the first circle where matplotlib is installed.
"""

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray

import gpflow_pep as pep
from examples.common import arguments, save_figure
from examples.streaming import Filter
from gpflow_pep.training.starts import saspa

ALPHAS = (0.0, 0.5, 1.0)
BLURS: dict[str, Any] = {"points": False, "spherical": "spherical", "full": "full"}
Data = tuple[AnyNDArray, AnyNDArray]


def circle(seed: int, num_rows: int = 100) -> Data:
    """Points near the unit circle; the quadrants have the values -1.5, -0.5, 0.5 and
    1.5.
    """
    rng = np.random.default_rng(seed)
    angle = rng.uniform(0.0, 2.0 * np.pi, num_rows)
    X = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    y = np.floor(angle / (0.5 * np.pi)) - 1.5
    noise = rng.standard_normal([num_rows, 3]) * [0.05, 0.05, 0.1]
    return X + noise[:, :2], (y + noise[:, 2])[:, None]


def gaussians(seed: int, num_rows: int) -> Data:
    """Three long Gaussians along the sides of a triangle; label 1 for one of them."""
    rng = np.random.default_rng(seed)
    which = rng.integers(3, size=num_rows)
    angle = 2.0 * np.pi * which / 3.0
    outward = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    along = np.stack([-np.sin(angle), np.cos(angle)], axis=1)
    scale = rng.standard_normal([num_rows, 2]) * [0.3, 0.9]
    X = (1.0 + scale[:, :1]) * outward + scale[:, 1:] * along
    return X, (which == 0).astype(float)[:, None]


def exact_regression(data: Data) -> gpflow.models.GPR:
    """Exact GP regression with hyperparameters at the maximum of its evidence."""
    model = gpflow.models.GPR(
        data, gpflow.kernels.SquaredExponential(), noise_variance=0.1
    )
    gpflow.optimizers.Scipy().minimize(model.training_loss, model.trainable_variables)
    return model


def grid(num_points: int = 31) -> AnyNDArray:
    """Inputs that cover the circle."""
    line = np.linspace(-1.5, 1.5, num_points)
    return np.stack(np.meshgrid(line, line), axis=-1).reshape(-1, 2)


def distances(seed: int) -> AnyNDArray:
    """Root mean square distances of posterior means, [blur, alpha], for one circle."""
    data = circle(seed)
    Xnew = grid()
    exact = exact_regression(data)
    target = exact.predict_f(Xnew)[0]

    def distance(blur: Any, alpha: float) -> float:
        model = saspa(
            data,
            exact.kernel,
            exact.likelihood,
            4,
            seed=seed,
            alpha=alpha,
            covariances=blur,
        )
        return float(
            tf.sqrt(tf.reduce_mean(tf.square(model.predict_f(Xnew)[0] - target)))
        )

    return np.array(
        [[distance(blur, alpha) for alpha in ALPHAS] for blur in BLURS.values()]
    )


def full_ep(
    data: Data, kernel: gpflow.kernels.Kernel, likelihood: Any
) -> pep.models.PEP:
    """Expectation propagation with a basis point at every row."""
    return pep.models.PEP(data, kernel, likelihood, data[0].copy(), alpha=1.0)


def train_kernel(
    data: Data, likelihood: Any, lengthscale: float = 1.0
) -> gpflow.kernels.Kernel:
    """Hyperparameters by the evidence of full expectation propagation, from a
    lengthscale.
    """
    kernel = gpflow.kernels.SquaredExponential(lengthscales=lengthscale)
    model = full_ep(data, kernel, likelihood)
    gpflow.optimizers.Scipy().minimize(
        model.training_loss, kernel.trainable_variables, options={"maxiter": 20}
    )
    return kernel


def quality(p: AnyNDArray, full: AnyNDArray, Y: AnyNDArray) -> tuple[float, float]:
    """Error rate of probabilities of label 1, and their sum of KL divergences from full
    EP's.
    """
    divergence = full * np.log(full / p) + (1.0 - full) * np.log(
        (1.0 - full) / (1.0 - p)
    )
    return float(np.mean((p > 0.5) != (Y > 0.5))), float(np.sum(divergence))


def classify(
    seed: int, kernel: gpflow.kernels.Kernel, likelihood: Any, num_test: int = 2000
) -> AnyNDArray:
    """Error and divergence, [method, 2], for one data set: full EP, each blur, one pass
    online.
    """
    data, (Xnew, Ynew) = gaussians(seed, 200), gaussians(1000 + seed, num_test)

    def probability(model: Any) -> AnyNDArray:
        return model.predict_y(Xnew)[0].numpy()

    full = probability(full_ep(data, kernel, likelihood))
    models = [
        saspa(data, kernel, likelihood, 3, seed=seed, covariances=blur)
        for blur in BLURS.values()
    ]
    online = Filter(models[-1])
    online.update(data)
    results = [full, *map(probability, models), probability(online.posterior())]
    return np.array([quality(p, full, Ynew) for p in results])


def average(
    function: Callable[[int], AnyNDArray], num_sets: int
) -> tuple[AnyNDArray, AnyNDArray]:
    """Mean over data sets, and its standard error."""
    values = np.stack([function(seed) for seed in range(num_sets)])
    return values.mean(axis=0), values.std(axis=0, ddof=1) / np.sqrt(num_sets)


def draw(path: Path) -> None:
    """Posterior means for the first circle, in the manner of the paper's Figure 1."""
    from matplotlib.figure import Figure
    from matplotlib.patches import Ellipse

    data = circle(0)
    Xnew = grid(81)
    exact = exact_regression(data)
    models = {"exact": exact} | {
        name: saspa(data, exact.kernel, exact.likelihood, 4, seed=0, covariances=blur)
        for name, blur in BLURS.items()
    }
    figure = Figure(figsize=(12, 3.2), layout="constrained")
    panels = figure.subplots(1, len(models), sharex=True, sharey=True)
    for axes, (name, model) in zip(panels, models.items()):
        mean = model.predict_f(Xnew)[0].numpy().reshape(81, 81)
        image = axes.imshow(
            mean, origin="lower", extent=(-1.5, 1.5, -1.5, 1.5), vmin=-1.7, vmax=1.7
        )
        axes.plot(*data[0].T, "w.", markersize=2)
        axes.set_title(name)
        if name != "exact":
            axes.plot(*model.inducing_variable.Z.numpy().T, "r+")
        if name in ("spherical", "full"):
            points = model.inducing_variable
            for centre, covariance in zip(points.Z.numpy(), points.covariance.numpy()):
                variances, vectors = np.linalg.eigh(covariance)
                width, height = 2.0 * np.sqrt(variances)
                angle = float(np.degrees(np.arctan2(vectors[1, 0], vectors[0, 0])))
                axes.add_patch(
                    Ellipse(
                        centre, width, height, angle=angle, fill=False, edgecolor="r"
                    )
                )
    figure.colorbar(image, ax=panels)
    save_figure(figure, path, "saspa", dpi=90)


def main() -> None:
    args = arguments(__doc__, out=Path("saspa.png"), sets=10, quick={"sets": 2})
    # Every data set has a filter of its own to compile.
    tf.get_logger().setLevel("ERROR")
    print(
        f"Circle, 4 basis points: distance to the exact posterior mean, {args.sets}"
        " data sets"
    )
    print(f"{'':>14}" + "".join(f"{f'alpha = {alpha:g}':>18}" for alpha in ALPHAS))
    for name, *values in zip(BLURS, *average(distances, args.sets)):
        print(f"{name:>14}" + "".join(f"{m:>9.4f} ± {e:.4f}" for m, e in zip(*values)))
    likelihood = gpflow.likelihoods.Bernoulli()
    kernel = train_kernel(gaussians(0, 200), likelihood)
    results = average(lambda seed: classify(seed, kernel, likelihood), args.sets)
    print(f"Three Gaussians, 3 basis points, alpha = 1: {args.sets} data sets")
    print(f"{'':>14} {'test error':>17} {'KL from full EP':>17}")
    for name, mean, error in zip(["full EP", *BLURS, "full, one pass"], *results):
        print(
            f"{name:>14} {mean[0]:>8.4f} ± {error[0]:.4f} {mean[1]:>9.1f} ±"
            f" {error[1]:>4.1f}"
        )
    if find_spec("matplotlib"):
        draw(args.out)
