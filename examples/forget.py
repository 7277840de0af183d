"""Forget rows batch by batch, and keep on learning: moving inducing points and
hyperparameters.

    python -m examples forget [--out FIGURE.png]           # generated data, about a minute
    python -m examples forget --data DIRECTORY             # the power plant data: ccpp.csv.gz there

Four batches come in the order of time: none looks like those before. After each, the
rows are replaced by a memory (``model.remember()``). The next model has the memory and
the new rows alone, more inducing points, some old and some new ones by
``greedy_variance``, and trains all hyperparameters and inducing inputs. Beside it: the
same approximation trained on all rows so far, and exact regression on them. Prints log
Z of all rows so far, each at its own optimum, and the mean negative log density (nlpd)
of held-out rows from all of the time so far.

The power plant data (10% held out, 1000 rows) come in the order of ambient temperature.
"""

from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import gpflow
import numpy as np
from gpflow.base import AnyNDArray
from sklearn.preprocessing import StandardScaler

from examples.common import arguments, save_figure
from examples.data_sets import Data, read
from gpflow_pep.metrics import mean_nlpd
from gpflow_pep.models import PEPRegression
from gpflow_pep.training.starts import greedy_variance

SEED = 0
ALPHAS = (0.0, 0.5, 1.0)
EXACT = "exact"
NUM_BATCHES = 4
ITERATIONS = 100


class Score(NamedTuple):
    """Of a model after a batch."""

    log_z: float
    nlpd: float


Scores = dict[str, list[Score]]  # of each kind of model, after each batch


def generated(num_rows: int) -> Data:
    """A function of time of one lengthscale, with noise; times in random order."""
    rng = np.random.default_rng(SEED)
    X = rng.uniform(0.0, 12.0, (num_rows, 1))
    K = gpflow.kernels.SquaredExponential(1.0, 0.6)(X).numpy() + 1e-8 * np.eye(num_rows)
    f = np.linalg.cholesky(K) @ rng.standard_normal((num_rows, 1))
    return X, f + 0.25 * rng.standard_normal(f.shape)


def power_plant(directory: Path, num_rows: int) -> Data:
    """Some rows of the power plant data, standardised."""
    data = read(directory, "ccpp")
    some = np.random.default_rng(SEED).permutation(len(data.X))[:num_rows]
    X, Y = (StandardScaler().fit_transform(part[some]) for part in (data.X, data.Y))
    return X, Y


def batches_of(data: Data) -> tuple[list[Data], list[Data]]:
    """Batches in the order of the first input, and a tenth of the rows of each, held
    out.
    """
    order = np.argsort(data[0][:, 0])
    rng = np.random.default_rng(SEED)
    train = []
    held_out = []
    for part in np.array_split(order, NUM_BATCHES):
        part = rng.permutation(part)
        test, rest = np.split(part, [len(part) // 10])
        train.append(tuple(column[rest] for column in data))
        held_out.append(tuple(column[test] for column in data))
    return train, held_out


def together(parts: list[Data]) -> Data:
    return tuple(np.concatenate(columns) for columns in zip(*parts))


def new_kernel(X: AnyNDArray) -> gpflow.kernels.Kernel:
    """Where training starts."""
    return gpflow.kernels.SquaredExponential(lengthscales=np.ones(X.shape[1]))


def train(model: Any) -> Any:
    gpflow.optimizers.Scipy().minimize(
        model.training_loss, model.trainable_variables, options={"maxiter": ITERATIONS}
    )
    return model


def score(model: Any, test: Data) -> Score:
    """Log Z, and nlpd of held-out rows."""
    nlpd = mean_nlpd(model.predict_log_density(test).numpy())
    return Score(-float(model.training_loss()), nlpd)


def streamed(
    batches: list[Data], held_out: list[Data], alpha: float, growth: int
) -> tuple[PEPRegression, list[Score]]:
    """Train on one batch after another, of which a memory stays; the last model, and
    all scores.
    """
    kernel = new_kernel(batches[0][0])
    noise = 0.1
    memory = None
    known = np.zeros((0, batches[0][0].shape[1]))
    scores = []
    for k, batch in enumerate(batches):
        # Old inducing points come first: among equals they stay.
        candidates = np.concatenate([known, batch[0]])
        Z = greedy_variance(candidates, (k + 1) * growth, kernel=kernel)
        model = train(
            PEPRegression(
                batch, kernel, Z, alpha=alpha, noise_variance=noise, memory=memory
            )
        )
        scores.append(score(model, together(held_out[: k + 1])))
        memory = model.remember()
        known = model.inducing_variable.Z.numpy()
        noise = model.likelihood.variance.numpy()
    return model, scores


def all_rows(
    batches: list[Data], held_out: list[Data], alpha: float | None, growth: int
) -> tuple[Any, list[Score]]:
    """Train on all rows so far, exactly where there is no power."""
    scores = []
    for k in range(len(batches)):
        rows = together(batches[: k + 1])
        kernel = new_kernel(rows[0])
        if alpha is None:
            model = train(gpflow.models.GPR(rows, kernel, noise_variance=0.1))
        else:
            Z = greedy_variance(rows[0], (k + 1) * growth, kernel=kernel)
            model = train(
                PEPRegression(rows, kernel, Z, alpha=alpha, noise_variance=0.1)
            )
        scores.append(score(model, together(held_out[: k + 1])))
    return model, scores


def compare(data: Data, growth: int) -> tuple[Scores, dict[str, Any], list[Data]]:
    """Train everything; scores, last models, and the batches."""
    batches, held_out = batches_of(data)
    found = {EXACT: all_rows(batches, held_out, None, growth)}
    for alpha in ALPHAS:
        found[f"all rows {alpha:g}"] = all_rows(batches, held_out, alpha, growth)
        found[f"streamed {alpha:g}"] = streamed(batches, held_out, alpha, growth)
    scores = {name: scores for name, (_, scores) in found.items()}
    return scores, {name: model for name, (model, _) in found.items()}, batches


def report(scores: Scores, batches: list[Data]) -> None:
    """Print a line for each kind of model."""
    seen = np.cumsum([len(batch[0]) for batch in batches])
    print(f"{'rows so far':>14} " + " ".join(f"{number:>17}" for number in seen))
    print(f"{'':>14} " + " ".join(f"{'log Z':>9} {'nlpd':>7}" for _ in seen))
    for name, line in scores.items():
        print(
            f"{name:>14} "
            + " ".join(f"{one.log_z:>9.2f} {one.nlpd:>7.4f}" for one in line)
        )


def draw(
    path: Path, scores: Scores, models: dict[str, Any], batches: list[Data]
) -> None:
    """What the last streamed model knows of all rows, and what streaming loses of log
    Z.
    """
    from gpflow_pep.plotting import BEST, FIT, TRAIN, figure, tidy

    drawing = figure(10.0, 3.6)
    fit, loss = drawing.subplots(1, 2, width_ratios=[2.0, 1.0])
    X, Y = together(batches)
    fit.plot(
        X[:, 0],
        Y,
        ".",
        color=TRAIN,
        markersize=3,
        label="rows, all but the last batch gone",
    )
    grid = np.linspace(X.min(), X.max(), 400)[:, None]
    for name, style in (
        (EXACT, {"color": BEST, "ls": "--"}),
        ("streamed 0.5", {"color": FIT}),
    ):
        mean, variance = (part.numpy()[:, 0] for part in models[name].predict_y(grid))
        fit.plot(grid, mean, label=name, **style)
        for side in (-2.0, 2.0):
            fit.plot(grid, mean + side * np.sqrt(variance), linewidth=0.7, **style)
    Z = models["streamed 0.5"].inducing_variable.Z.numpy()
    fit.plot(Z, np.full_like(Z, Y.min() - 0.3), "k+", markersize=6)
    for batch in batches[1:]:
        fit.axvline(batch[0].min(), color=TRAIN, linewidth=0.7, linestyle=":")
    fit.set(xlabel="time", ylabel="target")
    fit.legend(
        frameon=False,
        ncols=3,
        fontsize=8,
        loc="upper center",
        bbox_to_anchor=(0.5, 1.12),
    )
    number = 1 + np.arange(len(batches))
    for k, alpha in enumerate(ALPHAS):
        for kind, style in (("streamed", "o-"), ("all rows", "x:")):
            pairs = zip(scores[EXACT], scores[f"{kind} {alpha:g}"], strict=True)
            short = [exact.log_z - one.log_z for exact, one in pairs]
            loss.plot(
                number,
                short,
                style,
                color=f"C{k}",
                label=rf"{kind}, $\alpha$ {alpha:g}",
            )
    loss.set(xlabel="batches", xticks=number, ylabel="log Z, exact less approximate")
    loss.legend(frameon=False, fontsize=7)
    for axes in (fit, loss):
        tidy(axes)
    save_figure(drawing, path, "forget", dpi=110)


def main() -> None:
    args = arguments(
        __doc__,
        data=Path,
        rows=int,
        growth=int,
        out=Path,
        quick={"rows": 80, "growth": 3},
    )
    rows, growth = (480, 8) if args.data is None else (1000, 15)
    rows = args.rows or rows
    growth = args.growth or growth
    data = generated(rows) if args.data is None else power_plant(args.data, rows)
    scores, models, batches = compare(data, growth)
    report(scores, batches)
    if args.out is not None and args.data is None:
        if not find_spec("matplotlib"):
            raise SystemExit("matplotlib is not installed; leave out --out.")
        draw(args.out, scores, models, batches)
