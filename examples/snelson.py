"""Redraw Figure 1 of Titsias (2009) for Power EP: Snelson's 1-D data, 200 points and
20.

    python -m examples snelson --data DIRECTORY [--out FIGURE.png]

DIRECTORY holds ``snelson1d.csv.gz`` (columns x and y, 200 rows in their original
order); without ``--data`` the environment variable GPFLOW_PEP_DATA names it. Targets
are centred, M = 15, the kernel is a squared exponential, and L-BFGS adjusts
hyperparameters and inducing inputs together. Prints the log marginal likelihoods that
were reached.
"""

from pathlib import Path
from typing import Any

import gpflow
import numpy as np
from gpflow.base import AnyNDArray

from examples.common import arguments, save_figure
from examples.data_sets import DIRECTORY, numbers
from gpflow_pep.models import PEPRegression

NUM_INDUCING = 15
ALPHAS = (0.0, 0.5, 1.0)
Data = tuple[AnyNDArray, AnyNDArray]


def load(directory: Path) -> Data:
    X, Y = numbers(directory, "snelson1d")
    return X, Y - Y.mean()


def maximise(model: Any) -> float:
    """Run L-BFGS until it cannot improve any more; the log marginal likelihood that it
    reached.
    """
    optimizer = gpflow.optimizers.Scipy()
    for _ in range(5):
        result = optimizer.minimize(
            model.training_loss,
            model.trainable_variables,
            options={
                "maxiter": 5000,
                "maxfun": 20000,
                "ftol": 1e-15,
                "gtol": 1e-8,
                "maxcor": 50,
            },
        )
    return -float(result.fun)


def exact(data: Data) -> gpflow.models.GPR:
    """Exact GP regression with hyperparameters at their optimum."""
    model = gpflow.models.GPR(
        data, gpflow.kernels.SquaredExponential(), noise_variance=0.1
    )
    maximise(model)
    return model


def sparse(data: Data, alpha: float, Z: AnyNDArray) -> tuple[PEPRegression, float]:
    """Power EP with everything at its optimum, and the log marginal likelihood reached."""
    model = PEPRegression(
        data,
        gpflow.kernels.SquaredExponential(),
        Z.copy(),
        alpha=alpha,
        noise_variance=0.1,
    )
    return model, maximise(model)


def initial_inputs(X: AnyNDArray) -> AnyNDArray:
    """Inducing inputs evenly spread over the sorted training inputs."""
    return np.sort(X, axis=0)[np.linspace(0, len(X) - 1, NUM_INDUCING).astype(int)]


def draw(
    axes: Any, data: Data, gpr: gpflow.models.GPR, model: PEPRegression, Z: AnyNDArray
) -> None:
    """Predictions with two-standard-deviation bars, exact in dashes, inducing inputs as
    crosses.
    """
    X, Y = data
    grid = np.linspace(-2.0, 8.0, 400)[:, None]
    axes.plot(X, Y, ".", color="0.55", markersize=4)
    for m, style in (
        (model, {"color": "C0"}),
        (gpr, {"color": "C3", "linestyle": "--"}),
    ):
        mean, variance = m.predict_y(grid)
        mean = mean.numpy()[:, 0]
        sd = np.sqrt(variance.numpy()[:, 0])
        for line, width in ((mean, 1.6), (mean - 2 * sd, 0.9), (mean + 2 * sd, 0.9)):
            axes.plot(grid[:, 0], line, linewidth=width, **style)
    axes.plot(Z, np.full_like(Z, 2.6), "k+", markersize=6)
    axes.plot(
        model.inducing_variable.Z.numpy(), np.full_like(Z, -2.8), "k+", markersize=6
    )
    axes.set(xlim=(-2, 8), ylim=(-3, 2.8))


def main() -> None:
    args = arguments(__doc__, data=DIRECTORY, out=Path("snelson.png"))
    X, Y = load(args.data)
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 5.5), layout="constrained")
    panels = figure.subplots(2, len(ALPHAS), sharex=True, sharey=True)
    print(
        f"{'points':>6} {'jitter':>7} {'model':>18} {'log Z':>10}"
        f" {'noise variance':>15}"
    )

    def report(data: Data, jitter: float, name: str, value: float, model: Any) -> None:
        noise = float(model.likelihood.variance.numpy())
        print(
            f"{len(data[0]):>6} {jitter:>7.0e} {name:>18} {value:>10.4f} {noise:>15.6f}"
        )

    for row, data in zip(panels, ((X, Y), (X[::10], Y[::10]))):
        Z = initial_inputs(data[0])
        gpr = exact(data)
        report(data, 0.0, "exact GPR", float(gpr.log_marginal_likelihood()), gpr)
        for jitter in (1e-6, 1e-8):
            with gpflow.config.as_context(gpflow.config.Config(jitter=jitter)):
                fits: dict[float, PEPRegression] = {}
                for alpha in ALPHAS:
                    fits[alpha], value = sparse(data, alpha, Z)
                    report(data, jitter, f"PEP alpha = {alpha:g}", value, fits[alpha])
        for axes, (alpha, model) in zip(row, fits.items()):
            draw(axes, data, gpr, model, Z)
            axes.set_title(rf"$\alpha = {alpha:g}$, {len(data[0])} points", fontsize=10)
    save_figure(figure, args.out, "snelson", dpi=110)
