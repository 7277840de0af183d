"""Tables with several outputs, real and generated, from which outputs are removed."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import gpflow
import numpy as np
from gpflow.base import AnyNDArray
from gpflow.likelihoods import Bernoulli, Gaussian, Likelihood, Poisson
from scipy.stats import norm
from sklearn.datasets import load_diabetes
from sklearn.preprocessing import StandardScaler

from examples.data_sets import file

NEW_FRACTION = 0.2
#: How much is removed at random, and the part of an input's range where a sensor fails.
AT_RANDOM = 0.4
FAILING = 0.4
PATTERNS = ("random", "failure")
#: The generated outputs: lengthscales of the latent functions, their weights, noise
#: variances.
LENGTHSCALES = (0.6, 2.0)
LENGTH = 10.0
WEIGHTS = np.array([[1.0, 0.3], [0.8, -0.7], [0.5, 0.9], [-0.4, 0.9]])
NOISE = np.array([0.02, 0.05, 0.1, 0.2])


class Table(NamedTuple):
    """Inputs, outputs, and the input along which sensors fail."""

    X: AnyNDArray
    Y: AnyNDArray
    along: int = 0
    counted: bool = False
    """Whether the outputs are a number, a label and a count: they are not standardised.
    """

    @property
    def likelihoods(self) -> list[Likelihood]:
        """New ones, one for each output."""
        if self.counted:
            return [Gaussian(0.1), Bernoulli(), Poisson()]
        return [Gaussian(0.3) for _ in self.Y.T]


class Incomplete(NamedTuple):
    """Rows to train on and new rows, complete; and which of their targets are removed."""

    table: Table
    removed: AnyNDArray
    new: Table
    new_removed: AnyNDArray

    @property
    def Y(self) -> AnyNDArray:
        """What is left of the targets to train on: NaN where they were removed."""
        return np.where(self.removed, np.nan, self.table.Y)

    @property
    def new_Y(self) -> AnyNDArray:
        """What is known of the new rows."""
        return np.where(self.new_removed, np.nan, self.new.Y)


def latent_draws(
    num_rows: int, rng: np.random.Generator
) -> tuple[AnyNDArray, AnyNDArray]:
    """Inputs, and a draw of each latent function there."""
    X = np.sort(rng.uniform(0.0, LENGTH, (num_rows, 1)), axis=0)
    jitter = 1e-8 * np.eye(num_rows)
    roots = [
        np.linalg.cholesky(covariance(X, X, scale) + jitter) for scale in LENGTHSCALES
    ]
    return X, np.stack([root @ rng.standard_normal(num_rows) for root in roots], axis=1)


def covariance(X: AnyNDArray, X2: AnyNDArray, lengthscale: float) -> AnyNDArray:
    """That of a generated latent function."""
    return gpflow.kernels.SquaredExponential(lengthscales=lengthscale)(X, X2).numpy()


def generated(num_rows: int, _: Path, rng: np.random.Generator) -> Table:
    """Four outputs drawn from the model: two latent functions, Gaussian noise."""
    X, g = latent_draws(num_rows, rng)
    noise = np.sqrt(NOISE) * rng.standard_normal((num_rows, len(NOISE)))
    return Table(X, g @ WEIGHTS.T + noise)


def counted(num_rows: int, _: Path, rng: np.random.Generator) -> Table:
    """A number, a label and a count, of two latent functions."""
    X, g = latent_draws(num_rows, rng)
    f = g @ WEIGHTS[:3].T
    number = f[:, 0] + 0.3 * rng.standard_normal(num_rows)
    label = 2.0 * f[:, 1] + rng.standard_normal(num_rows) > 0.0
    count = rng.poisson(np.exp(0.5 + f[:, 2]))
    return Table(
        X, np.stack([number, label, count], axis=1).astype(np.float64), counted=True
    )


def diabetes(num_rows: int, _: Path, rng: np.random.Generator) -> Table:
    """Six measurements of a blood sample and the progression, from age, sex, weight,
    pressure.
    """
    data = load_diabetes(scaled=False)
    table = np.column_stack([data.data, data.target])
    return columns(table, num_rows, rng, range(4), range(4, 11))


def plant(num_rows: int, directory: Path, rng: np.random.Generator) -> Table:
    """Vacuum and power of a power plant (ccpp), from the weather; sensors fail when it
    is hot.
    """
    return columns(read(directory, "ccpp"), num_rows, rng, (0, 2, 3), (1, 4))


def satellite(num_rows: int, directory: Path, rng: np.random.Generator) -> Table:
    """Four spectral bands of a pixel (satimage), from the mean bands of the eight
    around it.
    """
    pixels = read(directory, "satimage")[:, :36].reshape(-1, 9, 4)
    around = np.delete(pixels, 4, axis=1).mean(axis=1)
    return columns(
        np.hstack([around, pixels[:, 4]]), num_rows, rng, range(4), range(4, 8)
    )


def wine(num_rows: int, directory: Path, rng: np.random.Generator) -> Table:
    """Acids, density and sulphur of red wine, from five other measurements; along
    alcohol.
    """
    table = read(directory, "wine_red")
    return columns(table, num_rows, rng, (10, 1, 3, 4, 9), (0, 2, 5, 6, 7, 8))


TABLES: dict[str, Callable[[int, Path, np.random.Generator], Table]] = {
    each.__name__: each
    for each in (generated, diabetes, plant, satellite, wine, counted)
}


def read(directory: Path, name: str) -> AnyNDArray:
    """All columns of a file."""
    return np.loadtxt(file(directory, f"{name}.csv.gz"), delimiter=",", skiprows=1)


def columns(
    table: AnyNDArray,
    most: int,
    rng: np.random.Generator,
    inputs: "range | tuple[int, ...]",
    outputs: "range | tuple[int, ...]",
) -> Table:
    """Some rows, chosen at random, with these columns as inputs and outputs."""
    rows = rng.permutation(len(table))[:most]
    return Table(table[np.ix_(rows, inputs)], table[np.ix_(rows, outputs)])


def incomplete(
    name: str, pattern: str, split: int, num_rows: int, directory: Path
) -> Incomplete:
    """
    Split rows into those to train on and new ones, standardise, and remove outputs.

    :param pattern: "random": entries of all outputs. "failure": one output, another one
        in each split, where an input is largest.
    """
    rng = np.random.default_rng(split)
    table = TABLES[name](num_rows, directory, rng)
    order = rng.permutation(len(table.X))
    new, train = np.split(order, [round(NEW_FRACTION * len(order))])
    X = StandardScaler().fit(table.X[train]).transform(table.X)
    scaler = StandardScaler().fit(table.Y[train])
    Y = table.Y if table.counted else scaler.transform(table.Y)
    removed = np.zeros(Y.shape, dtype=bool)
    if pattern == "random":
        removed = rng.uniform(size=Y.shape) < AT_RANDOM
        removed[removed.all(axis=1)] = False
    else:
        place = X[:, table.along]
        failing = rng.permutation(Y.shape[1])[0]
        removed[place > np.quantile(place, 1.0 - FAILING), failing] = True
    if name == "generated":  # its truth is known in its own units
        X = table.X
        Y = table.Y
    parts = (table._replace(X=X[rows], Y=Y[rows]) for rows in (train, new))
    return Incomplete(next(parts), removed[train], next(parts), removed[new])


def truth(data: Incomplete) -> tuple[AnyNDArray, AnyNDArray]:
    """Log densities and means of generated targets under the process that they are
    drawn from.
    """
    X = data.table.X
    Y = data.Y
    K = [covariance(X, X, scale) for scale in LENGTHSCALES]
    whole = sum(np.kron(k, np.outer(w, w)) for k, w in zip(K, WEIGHTS.T))
    there = np.isfinite(Y).ravel()
    noise = np.tile(NOISE, len(X))
    among = whole[np.ix_(there, there)] + np.diag(noise[there])
    gain = np.linalg.solve(among, whole[there]).T
    mean = gain @ Y.ravel()[there]
    variance = np.diag(whole) - np.sum(gain * whole[:, there], axis=1) + noise
    log_density = norm.logpdf(data.table.Y.ravel(), mean, np.sqrt(variance))
    return log_density.reshape(Y.shape), mean.reshape(Y.shape)
