"""Compare the ways to model several targets, and the one that is chosen, on generated tables.

    python -m examples several_targets                  # more than an hour
    python -m examples several_targets designed spectra
    python -m examples several_targets common --rows 80 --targets 12

``separate``: a model of each target by itself (``SeparateRegressors``). ``shared``: one
kernel and noise for all, ``num_latent=0``. ``joint``: mixtures of common functions,
``num_latent`` as many as targets, 4 at most. ``default``: what ``PEPRegressor()``
chooses of such ways by rows that were left out.

The numbers are NLPD (nats a target, lower is better) of 400 new rows and processor
seconds. ``loss`` is what the default is worse by than the best of the three ways.

Tables, of which each third lacks 30% of its targets: ``own``, each target is a function
of its own; ``common``, all are mixtures of two functions; ``noise``, such ones with
noise that targets share; ``mixed``, every second target has a function of its own;
``designed``, skewed targets of a designed table with steps; ``spectra``, a peak that
moves with an input.
"""

import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from gpflow.base import AnyNDArray

from examples.common import arguments
from gpflow_pep.estimators import PEPRegressor, SeparateRegressors

NEW_ROWS = 400
FEATURES = 200
MISSING = 0.3
#: Kind, targets, rows, inputs.
TABLES = (
    ("designed", 2, 512, 8),
    ("spectra", 30, 80, 2),
    ("own", 2, 100, 3),
    ("own", 5, 200, 4),
    ("own", 12, 80, 2),
    ("common", 2, 80, 2),
    ("common", 6, 150, 3),
    ("common", 12, 80, 2),
    ("noise", 2, 80, 2),
    ("noise", 3, 300, 4),
    ("noise", 5, 120, 2),
    ("mixed", 4, 150, 3),
    ("mixed", 8, 100, 2),
    ("designed", 3, 150, 4),
    ("own", 2, 2000, 4),
    ("noise", 2, 1500, 3),
)


class Table(NamedTuple):
    """Rows to train on, and new rows."""

    X: AnyNDArray
    Y: AnyNDArray
    new_X: AnyNDArray
    new_Y: AnyNDArray


def smooth(
    X: AnyNDArray, number: int, rng: np.random.Generator, lengthscale: float = 0.5
) -> AnyNDArray:
    """Draw smooth functions, by random Fourier features, with lengthscales of their own
    for each input: [N, number].
    """
    columns = []
    for _ in range(number):
        scales = lengthscale * np.sqrt(X.shape[1])
        scales = scales * np.exp(0.5 * rng.standard_normal(X.shape[1]))
        frequencies = rng.standard_normal((X.shape[1], FEATURES)) / scales[:, None]
        phases = rng.uniform(0.0, 2.0 * np.pi, FEATURES)
        weights = rng.standard_normal(FEATURES) * np.sqrt(2.0 / FEATURES)
        columns.append(np.cos(X @ frequencies + phases) @ weights)
    return np.stack(columns, axis=1)


def own(X: AnyNDArray, P: int, rng: np.random.Generator) -> AnyNDArray:
    scales = 0.5 * np.exp(rng.uniform(-0.7, 0.7, P))
    f = np.hstack([smooth(X, 1, rng, scale) for scale in scales])
    noise = 0.2 * np.exp(rng.uniform(-1.0, 1.0, P))
    return f + noise * rng.standard_normal(f.shape)


def common(X: AnyNDArray, P: int, rng: np.random.Generator) -> AnyNDArray:
    f = smooth(X, 2, rng) @ rng.standard_normal((2, P))
    return f + 0.3 * rng.standard_normal(f.shape)


def noise(X: AnyNDArray, P: int, rng: np.random.Generator) -> AnyNDArray:
    f = smooth(X, 2, rng) @ rng.standard_normal((2, P))
    shared = 0.5 * rng.standard_normal((len(X), 1)) * rng.choice([-1.0, 1.0], P)
    return f + shared + 0.1 * rng.standard_normal(f.shape)


def mixed(X: AnyNDArray, P: int, rng: np.random.Generator) -> AnyNDArray:
    together = smooth(X, 2, rng) @ rng.standard_normal((2, P))
    f = np.where(np.arange(P) % 2, smooth(X, P, rng, 0.3), together)
    scales = 0.1 * np.exp(rng.uniform(-1.0, 1.0, P))
    return f + scales * rng.standard_normal(f.shape)


def designed(X: AnyNDArray, P: int, rng: np.random.Generator) -> AnyNDArray:
    levels = np.round(2.0 * (X + 1.0)) / 2.0 - 1.0
    f = smooth(levels, P, rng) + np.abs(levels[:, :1]) + 0.5 * smooth(levels, 1, rng)
    y = 5.0 * np.exp(0.5 * f)
    return y * (1.0 + 0.05 * rng.standard_normal(f.shape))


def spectra(X: AnyNDArray, P: int, rng: np.random.Generator) -> AnyNDArray:
    wavelengths = np.linspace(0.0, 1.0, P)
    x = 0.5 * (X + 1.0)
    f = np.exp(-((wavelengths - x[:, :1]) ** 2) / 0.02) + x[:, 1:2] * wavelengths
    return f + 0.02 * rng.standard_normal(f.shape)


KINDS: dict[str, Callable[[AnyNDArray, int, np.random.Generator], AnyNDArray]] = {
    kind.__name__: kind for kind in (own, common, noise, mixed, designed, spectra)
}


def generate(kind: str, P: int, N: int, D: int, seed: int) -> Table:
    """Draw a table."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, (N + NEW_ROWS, D))
    Y = KINDS[kind](X, P, rng)
    table = Table(X[:N], Y[:N].copy(), X[N:], Y[N:])
    if seed % 3 == 2:
        table.Y[rng.uniform(size=(N, P)) < MISSING] = np.nan
    return table


def ways(num_targets: int, max_iterations: int) -> dict[str, Any]:
    """Make the estimators that are compared."""

    def regressor(num_latent: int | None = None) -> PEPRegressor:
        return PEPRegressor(
            random_state=0, max_iterations=max_iterations, num_latent=num_latent
        )

    return {
        "separate": SeparateRegressors(regressor()),
        "shared": regressor(0),
        "joint": regressor(min(num_targets, 4)),
        "default": regressor(),
    }


def run(table: Table, max_iterations: int) -> dict[str, tuple[float, float]]:
    """Give NLPD and processor seconds of each way."""
    found = {}
    for name, estimator in ways(table.Y.shape[1], max_iterations).items():
        began = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            estimator.fit(table.X, table.Y)
        seconds = time.process_time() - began
        nlpd = -float(np.mean(estimator.log_densities(table.new_X, table.new_Y)))
        found[name] = nlpd, seconds
    return found


def main() -> None:
    args = arguments(
        __doc__,
        names=KINDS,
        rows=int,
        targets=int,
        max_iterations=1000,
        quick={"names": ["own"], "rows": 30, "targets": 2, "max_iterations": 5},
    )
    names = ["separate", "shared", "joint", "default"]
    head = "".join(f"{name:>10} {'s':>5}" for name in names)
    print(f"{'table':10}{'P':>3}{'N':>6}{'D':>3}{head}{'loss':>8}")
    losses = []
    for seed, (kind, P, N, D) in enumerate(TABLES):
        if kind not in args.names:
            continue
        P = args.targets or P
        N = args.rows or N
        found = run(generate(kind, P, N, D, seed), args.max_iterations)
        best = min(found[name][0] for name in names[:3])
        losses.append(found["default"][0] - best)
        numbers = "".join(f"{nlpd:10.3f} {s:5.0f}" for nlpd, s in found.values())
        print(f"{kind:10}{P:3}{N:6}{D:3}{numbers}{losses[-1]:8.3f}", flush=True)
    print(f"loss: mean {np.mean(losses):.3f}, most {np.max(losses):.3f}")


if __name__ == "__main__":
    main()
