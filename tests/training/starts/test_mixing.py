"""Where mixtures of outputs start."""

from typing import Any

import gpflow
import numpy as np
import pytest
from gpflow.kernels import Matern32, Periodic, Product, SquaredExponential, Sum
from helpers import assert_close, refusals

import gpflow_pep as pep
from gpflow_pep.training.starts import coregionalization
from gpflow_pep.training.starts.mixing import LEAST_EIGENVALUE, _correlations

N = 60
P = 4
rng = np.random.default_rng(5)
X = rng.uniform(-3.0, 3.0, (N, 2)) * np.array([1.0, 10.0])
COMMON = np.stack([np.sin(X[:, 0]), np.cos(0.1 * X[:, 1])], axis=1)
MIXING = np.array([[1.0, 0.2], [-2.0, 0.1], [0.3, 5.0], [0.0, 0.1]])
Y = (
    COMMON @ MIXING.T
    + 0.05 * rng.standard_normal((N, P))
    + np.array([3.0, 0.0, -7.0, 1.0])
)
INCOMPLETE = np.where(rng.uniform(size=Y.shape) < 0.3, np.nan, Y)


@pytest.mark.parametrize("rank", [1, 2, 4])
def test_weights_of_complete_targets_are_the_best_of_their_rank(rank: int) -> None:
    """In units of the outputs' standard deviations, by another decomposition."""
    W = coregionalization((X, Y), rank).W.numpy() / Y.std(axis=0)[:, None]
    standard = (Y - Y.mean(axis=0)) / Y.std(axis=0) / np.sqrt(N)
    U, singular, _ = np.linalg.svd(standard, False)
    kept = (U[:, :rank] * singular[:rank]).T @ standard  # R v = singular^2 v
    expected = kept.T @ np.diag(1.0 / singular[:rank] ** 2) @ kept
    if singular[rank - 1] ** 2 > LEAST_EIGENVALUE:
        assert_close(W @ W.T, expected, rtol=1e-8)
    assert_close(
        W.T @ W, np.diag(np.maximum(singular[:rank] ** 2, LEAST_EIGENVALUE)), 1e-8
    )


def test_correlations_of_pairs() -> None:
    actual = _correlations(INCOMPLETE)
    for p, r in zip(*np.tril_indices(P, -1)):
        both = np.isfinite(INCOMPLETE[:, p]) & np.isfinite(INCOMPLETE[:, r])
        pair = np.corrcoef(INCOMPLETE[both, p], INCOMPLETE[both, r])[0, 1]
        assert abs(actual[p, r] - pair) < 0.1  # means and deviations are of all rows
    assert_close(np.diagonal(actual), np.ones(P), rtol=1e-12)
    # No three outputs are correlated so: each pair is seen in rows of its own.
    block = np.linspace(-1.0, 1.0, 8)
    pairs = np.full((24, 3), np.nan)
    for k, (p, r, sign) in enumerate([(0, 1, 1.0), (1, 2, 1.0), (0, 2, -1.0)]):
        pairs[8 * k : 8 * k + 8, [p, r]] = np.stack([block, sign * block], axis=1)
    R = _correlations(pairs)
    assert np.linalg.eigvalsh(R).min() > -1e-12
    assert R[0, 1] > 0.3 and R[0, 2] < -0.3
    # Two that have no row in common.
    apart = Y.copy()
    apart[2:, 0], apart[:2, 1] = np.nan, np.nan
    assert abs(_correlations(apart)[0, 1]) < 1e-12


def test_no_column_is_zero_and_scales() -> None:
    """Equal outputs, constant ones and those seen once."""
    same = np.stack([Y[:, 0], 2.0 * Y[:, 0], np.ones(N), np.full(N, np.nan)], axis=1)
    same[3, 3] = 4.0
    W = coregionalization((X, same), P).W.numpy()
    assert np.all(np.isfinite(W)) and np.all(np.abs(W).max(axis=0) > 0.05)
    one, other = (
        coregionalization((X, Y), 2, scales=scales) for scales in (None, [1.0] * P)
    )
    assert_close(one.W, other.W * Y.std(axis=0)[:, None], rtol=1e-12)


def test_lengthscales_differ() -> None:
    """Also those of copies of another kernel."""
    kernels = coregionalization((X, INCOMPLETE), 3).latent_kernels
    middle = X.std(axis=0) / np.sqrt(2.0)
    for kernel, factor in zip(kernels, (2.0, 1.0, 0.5)):
        assert_close(kernel.lengthscales, factor * middle, rtol=1e-12)
        assert kernel.variance.numpy() == 1.0 and not kernel.variance.trainable
    product = Product([Periodic(SquaredExponential()), Matern32()])
    mine = Sum([Matern32(3.0, [0.2, 0.4]), product])
    kernels = coregionalization((X, Y), 2, kernel=mine).latent_kernels
    for kernel, factor in zip(kernels, (2.0, 0.5)):
        first, second = kernel.kernels
        assert_close(first.lengthscales, factor * np.array([0.2, 0.4]), rtol=1e-12)
        assert_close(second.kernels[0].base_kernel.lengthscales, factor, rtol=1e-12)
        assert first.variance.numpy() == 1.0 and not first.variance.trainable
        assert second.kernels[1].variance.trainable
    assert (
        mine.kernels[0].variance.numpy() == 3.0 and mine.kernels[0].variance.trainable
    )
    alone = coregionalization((X, Y), 1, kernel=mine.kernels[1]).latent_kernels[0]
    assert [part.variance.trainable for part in alone.kernels[1:]] == [False]


@pytest.mark.slow
def test_training_from_here_beats_equal_latent_functions() -> None:
    kernel = coregionalization((X, INCOMPLETE), 2)
    equal = gpflow.kernels.LinearCoregionalization(
        [SquaredExponential(lengthscales=X.std(axis=0)) for _ in range(2)],
        np.full((P, 2), 0.1),
    )
    values = []
    for each in (kernel, equal):
        model = pep.PEPRegression(
            (X, INCOMPLETE), each, X[:15].copy(), noise_variance=0.1
        )
        pep.training.maximise(model, max_iterations=60, progress=False)
        values.append(float(model.pep_log_marginal_likelihood()))
    assert values[0] > values[1] + 10.0


def changed(**changes: Any) -> Any:
    return coregionalization(**{"data": (X, Y), "num_latent": 2, **changes})


UNSEEN = np.where(np.arange(P) == 2, np.nan, Y)
INFINITE = np.where(Y > 3.0, np.inf, Y)
SEVERAL = gpflow.kernels.SharedIndependent(Matern32(), P)
REFUSED = {
    r"Y: got only NaN in 1 column\(s\), .* at index 2": lambda: changed(
        data=(X, UNSEEN)
    ),
    "X and Y: got 5 and 60 rows": lambda: changed(data=(X[:5], Y)),
    "Y: got NaN or infinity": lambda: changed(data=(X, INFINITE)),
    "num_latent: got 5, .* integer from 1 to 4, the num": lambda: changed(num_latent=5),
    "num_latent: got 0": lambda: changed(num_latent=0),
    "kernel: got str": lambda: changed(kernel="rbf"),
    "kernel: got the multi-out": lambda: changed(kernel=SEVERAL),
    "scales: got .*, expected 4 positive": lambda: changed(scales=[1.0, 2.0]),
    "scales: got .*0.*, expected 4 positive": lambda: changed(
        scales=[1.0, 2.0, 0.0, 1.0]
    ),
}
test_refusals = refusals(REFUSED)
