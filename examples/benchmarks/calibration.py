"""Print how often intervals of the default settings hold new targets, where the
distribution of targets is known.

    python -m examples calibration                    # half an hour
    python -m examples calibration steps bimodal --rows 60 200
    python -m examples calibration pure_noise --seeds 20

Every number is about 400 new rows of a process that this file simulates. ``covers``:
the fractions of their targets inside the central 50%, 90% and 99% intervals, means over
processes and seeds. ``regret``: the median of how much lower the mean log density is
than under the true distribution, in nats. ``RMSE``: the median root mean squared error
to the true mean, divided by the mean's own standard deviation. ``GP`` is scikit-learn's
Gaussian process with a Matern 5/2 kernel, a lengthscale for each input, and the better
evidence of two starts. Without names there are two further tables: rows of which some
are copies, and functions with a smooth part and a fine one.
"""

import warnings
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
from gpflow.base import AnyNDArray
from scipy import stats
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

from examples.common import arguments
from gpflow_pep.estimators import PEPRegressor

NEW_ROWS = 400
LEVELS = (0.5, 0.9, 0.99)
#: Lengthscales that a Gaussian process starts from, over the root of the inputs' number.
STARTS = (1.0, 0.3)


class Table(NamedTuple):
    """Rows of a process, [N, D] and [N] each."""

    X: AnyNDArray
    mean: AnyNDArray
    y: AnyNDArray
    log_density: AnyNDArray  #: True log densities of y; NaN if y has no density.

    def rows(self, rows: Any) -> "Table":
        return Table(*(column[rows] for column in self))


def uniform(N: int, D: int, rng: np.random.Generator) -> AnyNDArray:
    return rng.uniform(-2.0, 2.0, (N, D))


def draw_matern(
    X: AnyNDArray, lengthscale: float, rng: np.random.Generator
) -> AnyNDArray:
    """Draw a function from a Gaussian process with a Matern 5/2 kernel."""
    covariance = Matern(lengthscale, nu=2.5)(X) + 1e-8 * np.eye(len(X))
    return np.linalg.cholesky(covariance) @ rng.standard_normal(len(X))


def with_noise(X: AnyNDArray, mean: AnyNDArray, noise: Any, rng: Any) -> Table:
    """Add draws of a distribution, a frozen one of SciPy, to its mean."""
    deviations = noise.rvs(size=len(X), random_state=rng)
    return Table(X, mean, mean + deviations, noise.logpdf(deviations))


def with_gaussian(X: AnyNDArray, mean: AnyNDArray, sd: Any, rng: Any) -> Table:
    return with_noise(X, mean, stats.norm(0.0, sd), rng)


def with_mixture(
    X: AnyNDArray, mean: AnyNDArray, noises: Any, weight: float, rng: Any
) -> Table:
    """Add noise of the first of two distributions, with a probability, or the second."""
    of_first, of_second = (noise.rvs(len(X), random_state=rng) for noise in noises)
    deviations = np.where(rng.uniform(size=len(X)) < weight, of_first, of_second)
    densities = [noise.logpdf(deviations) for noise in noises]
    log_density = np.logaddexp(
        np.log(weight) + densities[0], np.log1p(-weight) + densities[1]
    )
    return Table(X, mean, mean + deviations, log_density)


def two_inputs(N: int, rng: np.random.Generator) -> Table:
    X = uniform(N, 2, rng)
    return with_gaussian(X, draw_matern(X, 1.5, rng), 0.3, rng)


def one_input(N: int, rng: np.random.Generator) -> Table:
    X = uniform(N, 1, rng)
    return with_gaussian(X, draw_matern(X, 1.5, rng), 0.3, rng)


def rough(N: int, rng: np.random.Generator) -> Table:
    X = uniform(N, 1, rng)
    return with_gaussian(X, draw_matern(X, 0.15, rng), 0.1, rng)


def pure_noise(N: int, rng: np.random.Generator) -> Table:
    return with_gaussian(rng.standard_normal((N, 5)), np.zeros(N), 1.0, rng)


def noise_exp(N: int, rng: np.random.Generator) -> Table:
    X = uniform(N, 2, rng)
    sd = 0.3 * np.exp(0.8 * X[:, 0])
    return with_gaussian(X, draw_matern(X, 1.5, rng), sd, rng)


def noise_abs(N: int, rng: np.random.Generator) -> Table:
    X = uniform(N, 1, rng)
    sd = 0.05 + 0.5 * np.abs(X[:, 0])
    return with_gaussian(X, np.sin(2.0 * X[:, 0]), sd, rng)


def noise_wave(N: int, rng: np.random.Generator) -> Table:
    X = uniform(N, 1, rng)
    sd = np.exp(1.5 * np.sin(4.0 * X[:, 0]) - 1.0)
    return with_gaussian(X, X[:, 0], sd, rng)


def student_t(N: int, rng: np.random.Generator) -> Table:
    X = uniform(N, 2, rng)
    return with_noise(X, draw_matern(X, 1.5, rng), stats.t(3, scale=0.3), rng)


def cauchy(N: int, rng: np.random.Generator) -> Table:
    X = uniform(N, 2, rng)
    return with_noise(X, draw_matern(X, 1.5, rng), stats.cauchy(scale=0.2), rng)


def gamma(N: int, rng: np.random.Generator) -> Table:
    X = uniform(N, 2, rng)
    noise = stats.gamma(2.0, loc=-0.6, scale=0.3)  # of mean 0
    return with_noise(X, draw_matern(X, 1.5, rng), noise, rng)


def log_normal(N: int, rng: np.random.Generator) -> Table:
    X = rng.standard_normal((N, 3))
    return of_logarithms(X, np.sin(X[:, 0]) + 0.5 * X[:, 1], 0.5, rng)


def log_normal_1(N: int, rng: np.random.Generator) -> Table:
    X = rng.standard_normal((N, 2))
    return of_logarithms(X, 1.5 * X[:, 0] + np.sin(2.0 * X[:, 1]), 1.0, rng)


def of_logarithms(X: AnyNDArray, center: AnyNDArray, sd: float, rng: Any) -> Table:
    """Draw y, of which the logarithm has Gaussian noise."""
    y = np.exp(center + sd * rng.standard_normal(len(X)))
    known = stats.lognorm(sd, scale=np.exp(center))
    return Table(X, known.mean(), y, known.logpdf(y))


def bimodal(N: int, rng: np.random.Generator) -> Table:
    X = uniform(N, 1, rng)
    noises = stats.norm(1.4, 0.2), stats.norm(-0.6, 0.2)
    return with_mixture(X, np.sin(2.0 * X[:, 0]), noises, 0.3, rng)


def outliers(N: int, rng: np.random.Generator) -> Table:
    X = uniform(N, 2, rng)
    noises = stats.norm(0.0, 20.0), stats.norm(0.0, 0.2)
    return with_mixture(X, draw_matern(X, 1.5, rng), noises, 0.03, rng)


def additive(N: int, rng: np.random.Generator) -> Table:
    X = rng.standard_normal((N, 8))
    mean = np.sin(2.0 * X[:, 0]) + 0.5 * X[:, 1] ** 2 + np.abs(X[:, 2]) - X[:, 3]
    return with_gaussian(X, mean, 0.3, rng)


def two_of_20(N: int, rng: np.random.Generator) -> Table:
    X = rng.standard_normal((N, 20))
    return with_gaussian(X, np.sin(2.0 * X[:, 0]) * X[:, 1], 0.2, rng)


def five_of_50(N: int, rng: np.random.Generator) -> Table:
    X = rng.standard_normal((N, 50))
    return with_gaussian(X, X[:, :5].sum(axis=1) / np.sqrt(5.0), 0.3, rng)


def steps(N: int, rng: np.random.Generator) -> Table:
    X = uniform(N, 2, rng)
    mean = 2.0 * (X[:, 0] > 0.3) - 1.0 * (X[:, 1] > 0.0)
    return with_gaussian(X, mean, 0.1, rng)


def noise_free(N: int, rng: np.random.Generator) -> Table:
    X = uniform(N, 3, rng)
    mean = np.sin(2.0 * X[:, 0]) * np.exp(-(X[:, 1] ** 2)) + X[:, 2]
    return with_gaussian(X, mean, 1e-4, rng)


def counts(N: int, rng: np.random.Generator) -> Table:
    X = rng.standard_normal((N, 2))
    known = stats.poisson(np.exp(0.3 + 0.8 * X[:, 0]))
    y = known.rvs(random_state=rng).astype(float)
    return Table(X, known.mean(), y, known.logpmf(y))


def rounded(N: int, rng: np.random.Generator) -> Table:
    X = rng.standard_normal((N, 3))
    mean = 5.0 + X[:, 0] + 0.5 * np.sin(2.0 * X[:, 1])
    known = stats.norm(mean, 0.6)
    y = np.round(known.rvs(random_state=rng))
    probability = known.cdf(y + 0.5) - known.cdf(y - 0.5)
    return Table(X, mean, y, np.log(probability))


def many_zeros(N: int, rng: np.random.Generator) -> Table:
    X = rng.standard_normal((N, 2))
    positive = of_logarithms(X, X[:, 0], 0.5, rng)
    is_zero = rng.uniform(size=N) < 0.4
    y = np.where(is_zero, 0.0, positive.y)
    log_density = np.where(is_zero, np.nan, np.log(0.6) + positive.log_density)
    return Table(X, 0.6 * positive.mean, y, log_density)


def heavy_inputs(N: int, rng: np.random.Generator) -> Table:
    X = rng.standard_t(2, (N, 2))
    mean = np.tanh(X[:, 0]) + 0.3 * np.clip(X[:, 1], -3.0, 3.0)
    return with_gaussian(X, mean, 0.2, rng)


PROCESSES: dict[str, Callable[[int, np.random.Generator], Table]] = {
    process.__name__: process
    for process in (
        two_inputs,
        one_input,
        rough,
        pure_noise,
        noise_exp,
        noise_abs,
        noise_wave,
        student_t,
        cauchy,
        gamma,
        log_normal,
        log_normal_1,
        bimodal,
        outliers,
        additive,
        two_of_20,
        five_of_50,
        steps,
        noise_free,
        counts,
        rounded,
        many_zeros,
        heavy_inputs,
    )
}


class Scores(NamedTuple):
    """What predictions of the new rows are worth."""

    covers: tuple[float, ...]  #: One number for each of :data:`LEVELS`.
    log_density: float
    regret: float
    rmse: float


def scores(
    table: Table, mean: AnyNDArray, quantiles: AnyNDArray, densities: AnyNDArray
) -> Scores:
    """Compare predictions with new rows.

    :param quantiles: [N, 2 len(LEVELS)]: of each level the lower and the upper end.
    :param densities: Log densities [N] of y.
    """
    lower = quantiles[:, ::2]
    upper = quantiles[:, 1::2]
    y = table.y[:, None]
    covers = np.mean((lower <= y) & (y <= upper), axis=0)
    errors = table.mean - mean
    scale = np.std(table.mean) or 1.0
    return Scores(
        tuple(covers),
        float(np.mean(densities)),
        float(np.nanmean(table.log_density - densities)),
        float(np.sqrt(np.mean(errors**2)) / scale),
    )


def tails() -> AnyNDArray:
    """Give the probabilities below the two ends of each level's interval."""
    return np.ravel([(0.5 - level / 2.0, 0.5 + level / 2.0) for level in LEVELS])


def by_default(train: Table, new: Table) -> Scores:
    estimator = PEPRegressor(random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        estimator.fit(train.X, train.y)
        quantiles = estimator.predict_quantiles(new.X, tails())
        densities = estimator.log_densities(new.X, new.y)
        return scores(new, estimator.predict(new.X), quantiles, densities)


def by_gaussian_process(train: Table, new: Table) -> Scores:
    D = train.X.shape[1]
    center = train.X.mean(axis=0)
    scale = train.X.std(axis=0)
    fitted = []
    for start in STARTS:
        lengthscales = np.full(D, start * np.sqrt(D))
        kernel = ConstantKernel() * Matern(lengthscales, (1e-2, 1e3), nu=2.5)
        noise = WhiteKernel(0.1, (1e-8, 1e2))
        model = GaussianProcessRegressor(kernel + noise, normalize_y=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fitted.append(model.fit((train.X - center) / scale, train.y))
    best = max(fitted, key=lambda model: model.log_marginal_likelihood_value_)
    mean, sd = best.predict((new.X - center) / scale, return_std=True)
    predicted = stats.norm(mean, sd)
    quantiles = predicted.ppf(tails()[:, None]).T
    return scores(new, mean, quantiles, predicted.logpdf(new.y))


METHODS = {"default": by_default, "GP": by_gaussian_process}


def draw(name: str, N: int, seed: int) -> tuple[Table, Table]:
    """Draw a process: rows to train on, and new rows."""
    rng = np.random.default_rng([seed, N, *name.encode()])
    table = PROCESSES[name](N + NEW_ROWS, rng)
    return table.rows(slice(N)), table.rows(slice(N, None))


def show_covers(covers: Iterable[float]) -> str:
    return " ".join(f"{cover:.2f}" for cover in covers)


def print_processes(names: list[str], sizes: list[int], seeds: int) -> None:
    """Print scores of each number of rows, then the coverage of each process."""
    by_process: dict[str, list[str]] = {name: [] for name in names}
    heading = f"covers {' '.join(f'{level:.0%}' for level in LEVELS)}"
    print(
        f"{'rows':>5} {'fits':>5} {'method':>8} {heading:>20} {'regret':>7} {'RMSE':>6}"
    )
    for N in sizes:
        tables = {name: [draw(name, N, s) for s in range(seeds)] for name in names}
        for method, judge in METHODS.items():
            found = {
                name: [judge(*table) for table in drawn]
                for name, drawn in tables.items()
            }
            together = [one for judged in found.values() for one in judged]
            covers = show_covers(np.mean([one.covers for one in together], axis=0))
            regret = np.median([one.regret for one in together])
            rmse = np.median([one.rmse for one in together])
            print(
                f"{N:5} {len(together):5} {method:>8} {covers:>20}"
                f" {regret:7.2f} {rmse:6.2f}",
                flush=True,
            )
            if method == "default":
                for name, judged in found.items():
                    cover = np.mean([one.covers[1] for one in judged])
                    by_process[name].append(f"{cover:6.2f}")
    print("\n90% intervals of the default, by process")
    print(f"{'rows':14}" + "".join(f"{N:6}" for N in sizes))
    for name, found_covers in by_process.items():
        print(f"{name:14}" + "".join(found_covers))


#: Distinct rows, and copies of some of them.
COPIES = ((30, 15), (60, 15), (60, 30), (100, 75))


def print_copies(sizes: Iterable[tuple[int, int]], seeds: int) -> None:
    """Print scores where some rows are there twice, and without these copies."""
    print(f"\n{'rows + copies':14} {'covers 90%':>10} {'nats':>6}   without copies")
    for N, copies in sizes:
        found = []
        for seed in range(seeds):
            train, new = draw("two_inputs", N, seed)
            doubled = train.rows(np.r_[:N, :copies])
            found.append((by_default(doubled, new), by_default(train, new)))
        shown = []
        for judged in zip(*found, strict=True):
            cover = np.mean([one.covers[1] for one in judged])
            shown.append((cover, np.mean([one.log_density for one in judged])))
        (cover, nats), (cover_without, nats_without) = shown
        print(
            f"{f'{N} + {copies}':14} {cover:10.2f} {nats:6.2f}"
            f"   {cover_without:.2f} {nats_without:6.2f}",
            flush=True,
        )


def trend_and_wave(X: AnyNDArray) -> AnyNDArray:
    return np.asarray(X[:, 0] + 0.7 * np.sin(30.0 * X[:, 0]))


def effect_and_interaction(X: AnyNDArray) -> AnyNDArray:
    return np.asarray(X[:, 2] + np.sin(4.0 * X[:, 0]) * np.sin(4.0 * X[:, 1]))


#: Functions with a smooth part and a fine one: number of inputs, rows and seed.
FINE_PARTS = (
    (trend_and_wave, 1, 200, 0),
    (trend_and_wave, 1, 400, 0),
    (effect_and_interaction, 3, 200, 0),
    (effect_and_interaction, 3, 200, 1),
)


def print_fine_parts() -> None:
    print(f"\n{'function, N':28} {'nats':>6} {'RMSE':>5}   GP")
    for function, D, N, seed in FINE_PARTS:
        rng = np.random.default_rng([seed, N])
        X = uniform(N + NEW_ROWS, D, rng)
        table = with_gaussian(X, function(X), 0.1, rng)
        train = table.rows(slice(N))
        new = table.rows(slice(N, None))
        default, process = (judge(train, new) for judge in METHODS.values())
        print(
            f"{f'{function.__name__}, {N}':28} {default.log_density:6.2f}"
            f" {default.rmse:5.2f}   {process.log_density:.2f} {process.rmse:.2f}",
            flush=True,
        )


def main() -> None:
    args = arguments(
        __doc__,
        names=PROCESSES,
        rows=[5, 10, 20],
        seeds=3,
        quick={"names": ["one_input"], "rows": [5], "seeds": 1},
    )
    print_processes(args.names, args.rows, args.seeds)
    if set(args.names) == set(PROCESSES):
        print_copies(COPIES, args.seeds)
        print_fine_parts()


if __name__ == "__main__":
    main()
