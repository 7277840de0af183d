"""Predictions that use rows of the training data, where inducing points are too few.

    python -m examples pic [--out FIGURE.png] [--rows 400]

A rough function of one input, drawn from a Gaussian process, and 12 inducing points for
about 40 of its lengthscales. PITC is trained with neighbouring rows in blocks; PIC is
the same model, whose predictions use the rows of the block with the nearest centre.
FITC's predictions are shown without and with 10 near rows of each new one. All have the
hyperparameters that the data were drawn with, and so does the exact process. Prints
errors on held-out rows; draws where matplotlib is installed.
"""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
from gpflow.base import AnyNDArray

import gpflow_pep as pep
from examples.common import arguments, save_figure

LENGTH = 20.0
LENGTHSCALE = 0.5
NOISE = 0.01
NUM_INDUCING = 12
BLOCK_SIZE = 20
NEIGHBOURS = 10
Data = tuple[AnyNDArray, AnyNDArray]


def kernel() -> gpflow.kernels.Kernel:
    """The kernel that the function is drawn with."""
    return gpflow.kernels.Matern32(lengthscales=LENGTHSCALE)


def generated(num_rows: int, seed: int = 0) -> tuple[Data, Data]:
    """Rows with noise, in the order of their inputs; and as many held-out ones."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(0.0, LENGTH, [2 * num_rows, 1])
    X[:num_rows] = np.sort(X[:num_rows], axis=0)
    covariance = kernel()(X).numpy() + NOISE * np.eye(len(X))
    Y = np.linalg.cholesky(covariance) @ rng.standard_normal([len(X), 1])
    return (X[:num_rows], Y[:num_rows]), (X[num_rows:], Y[num_rows:])


def predictors(data: Data) -> dict[str, tuple[Any, dict[str, Any]]]:
    """Of each method, the model, and what its predictions are asked for."""
    X, _ = data
    Z = np.linspace(0.0, LENGTH, NUM_INDUCING)[:, None]
    options: dict[str, Any] = {"alpha": 1.0, "noise_variance": NOISE}
    blocks = np.arange(len(X)) // BLOCK_SIZE
    pitc = pep.models.PEPRegression(data, kernel(), Z.copy(), blocks=blocks, **options)
    fitc = pep.models.PEPRegression(data, kernel(), Z.copy(), **options)
    return {
        "exact": (gpflow.models.GPR(data, kernel(), noise_variance=NOISE), {}),
        "PITC": (pitc, {}),
        "PIC": (pitc, {"blocks": "nearest"}),
        "FITC": (fitc, {}),
        f"FITC, {NEIGHBOURS} neighbours": (fitc, {"near": NEIGHBOURS}),
    }


def scores(model: Any, options: dict[str, Any], test: Data) -> tuple[float, float]:
    """Standardised mean squared error, and mean negative log predictive density."""
    Xnew, Ynew = test
    mean, variance = model.predict_f(Xnew, **options)
    log_density = model.likelihood.predict_log_density(Xnew, mean, variance, Ynew)
    return float(pep.metrics.smse(Ynew, mean)), float(
        pep.metrics.mean_nlpd(log_density)
    )


def draw(data: Data, found: dict[str, tuple[Any, dict[str, Any]]], path: Path) -> None:
    """Means with two standard deviations of f, beside the exact mean, on a part of the
    line.
    """
    X, Y = data
    Xnew = np.linspace(0.0, 0.4 * LENGTH, 400)[:, None]
    exact = found["exact"][0].predict_f(Xnew)[0][:, 0]
    figure = pep.plotting.figure(10.0, 2.2 * (len(found) - 1))
    panels = figure.subplots(len(found) - 1, 1, sharex=True, sharey=True)
    for axes, (name, (model, options)) in zip(panels, list(found.items())[1:]):
        mean, variance = (
            moment[:, 0].numpy() for moment in model.predict_f(Xnew, **options)
        )
        spread = 2.0 * np.sqrt(variance)
        axes.plot(X, Y, ".", color=pep.plotting.TRAIN, markersize=3)
        axes.plot(Xnew, exact, color="black", linewidth=1, label="exact")
        axes.plot(Xnew, mean, color=pep.plotting.FIT, label=name)
        axes.fill_between(
            Xnew[:, 0], mean - spread, mean + spread, color=pep.plotting.FIT, alpha=0.2
        )
        axes.set(xlim=(Xnew[0, 0], Xnew[-1, 0]))
        axes.legend(frameon=False, loc="upper right")
        pep.plotting.tidy(axes)
    save_figure(figure, path, "pic")


def main() -> None:
    args = arguments(__doc__, out=Path("pic.png"), rows=400, quick={"rows": 100})
    data, test = generated(args.rows)
    found = predictors(data)
    print(
        f"{args.rows} rows, {NUM_INDUCING} inducing points, blocks of {BLOCK_SIZE} rows"
    )
    print(f"{'':>20} {'SMSE':>7} {'NLPD':>7}")
    for name, (model, options) in found.items():
        smse, nlpd = scores(model, options, test)
        print(f"{name:>20} {smse:>7.4f} {nlpd:>7.4f}")
    if find_spec("matplotlib"):
        draw(data, found, args.out)
