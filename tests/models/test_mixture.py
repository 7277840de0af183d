"""Outputs that are mixtures: any likelihoods, missing targets, any power."""

from copy import deepcopy
from functools import cache, partial
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from cases.pep import poisson_log_density, probit_log_density
from gpflow.functions import Constant
from gpflow.likelihoods import Bernoulli, Gaussian, Poisson, StudentT
from helpers import Array, assert_all_close, assert_close, assert_gradients, refusals
from reference import outputs as reference
from scipy.stats import norm, t

import gpflow_pep as pep
from gpflow_pep.likelihoods import PerOutput

N = 16
P = 4
Q = 2
M = 4
LENGTHSCALES = (0.7, 1.4)
NOISE = np.array([0.02, 0.05, 0.1, 0.3])
rng = np.random.default_rng(1)
X = rng.uniform(-2.0, 2.0, (N, 1))
W = np.array([[1.0, 0.3], [0.8, -0.7], [0.5, 0.4], [-0.4, 0.9]])
MEANS = np.array([0.1, -0.2, 0.3, 0.0])
Z = [np.linspace(-1.8, 1.8, M)[:, None], np.linspace(-1.5, 1.9, M)[:, None]]
XNEW = rng.uniform(-2.0, 2.0, (5, 1))
F = np.hstack([np.sin(2.0 * X), np.cos(X)]) @ W.T + MEANS
THERE = rng.uniform(size=(N, P)) > 0.25
THERE[3] = False


def _missing(values: Array) -> Array:
    return np.where(THERE, values, np.nan)


GAUSSIAN = _missing(F + np.sqrt(NOISE) * rng.standard_normal(F.shape))
COLUMNS = F.copy()
COLUMNS[:, 0] += 0.2 * rng.standard_normal(N)
COLUMNS[:, 1] = rng.uniform(size=N) < 1.0 / (1.0 + np.exp(-2.0 * F[:, 1]))
COLUMNS[:, 2] = rng.poisson(np.exp(F[:, 2]))
COLUMNS[:, 3] += 0.2 * rng.standard_t(3, N)
MIXED = _missing(COLUMNS)


def normal(variance: float) -> reference.LogProb:
    return lambda f, y: norm.logpdf(y, f, np.sqrt(variance))


def STUDENT(f, y):
    return t.logpdf(y, 3.0, f, 0.3)


FOUR = [normal(0.05), probit_log_density, poisson_log_density, STUDENT]
LOG_PROBS = {"Gaussian": [*map(normal, NOISE)], "four": FOUR}
Y = {"Gaussian": GAUSSIAN, "four": MIXED}
TIGHT = {"tolerance": 1e-10}


def likelihood(kind: str) -> PerOutput:
    if kind == "Gaussian":
        return PerOutput([Gaussian(noise) for noise in NOISE])
    return PerOutput([Gaussian(0.05), Bernoulli(), Poisson(), StudentT(0.3, df=3.0)])


def kernel(mixing: Array = W) -> gpflow.kernels.LinearCoregionalization:
    parts = [
        gpflow.kernels.SquaredExponential(lengthscales=scale) for scale in LENGTHSCALES
    ]
    return gpflow.kernels.LinearCoregionalization(parts, mixing.copy())


def points(of_each: Any = Z) -> Any:
    variables = [
        gpflow.inducing_variables.InducingPoints(part.copy()) for part in of_each
    ]
    return gpflow.inducing_variables.SeparateIndependentInducingVariables(variables)


def problem(kind: str, of_each: Any = Z) -> reference.Problem:
    def squared_exponential(s, X1, X2):
        return np.exp(-0.5 * (X1 - X2.T) ** 2 / s**2)

    kernels = [partial(squared_exponential, scale) for scale in LENGTHSCALES]
    parts = kernels, W, MEANS, LOG_PROBS[kind], gpflow.default_jitter()
    return reference.Problem(X, Y[kind], of_each, *parts)


def model(
    kind: str, targets: Any = None, of_each: Any = Z, **options: Any
) -> pep.models.PEP:
    data = X, Y[kind] if targets is None else targets
    arguments = {"mean_function": Constant(MEANS), **TIGHT, **options}
    return pep.models.PEP(
        data, kernel(), likelihood(kind), points(of_each), **arguments
    )


def regression(targets: Any = None, of_each: Any = Z, **options: Any) -> Any:
    data = X, GAUSSIAN if targets is None else targets
    arguments = {"mean_function": Constant(MEANS), "noise_variance": NOISE, **options}
    return pep.models.PEPRegression(data, kernel(), points(of_each), **arguments)


def log_z(each: Any) -> Any:
    return each.pep_log_marginal_likelihood()


@cache
def converged(kind: str, alpha: float) -> Any:
    """A model at its fixed point; not to be changed."""
    fixed = model(kind, alpha=alpha)
    log_z(fixed)
    return fixed


@pytest.mark.parametrize("alpha", [0.0, 1e-6, 0.5, 1.0])
class TestGaussianNoise:
    def test_closed_form(self, alpha: float) -> None:
        """And imputed: a row that is observed in part is conditioned on by itself, not
        twice.
        """
        closed = regression(alpha=alpha)
        parts = (problem("Gaussian"), NOISE, alpha)
        assert_close(log_z(closed), reference.closed_form(*parts), rtol=1e-9)
        mean, variance = reference.imputed(*parts)
        assert_all_close(closed.impute_f(), (mean, variance), rtol=1e-8)
        assert_all_close(closed.impute_y(), (mean, variance + NOISE), rtol=1e-8)

    @pytest.mark.slow
    @pytest.mark.near_copies("0.5")
    def test_row_sites_are_the_closed_form(self, alpha: float) -> None:
        both = converged("Gaussian", alpha), regression(alpha=alpha)
        assert_all_close(*(one.impute_f() for one in both), rtol=1e-8)
        assert_close(*map(log_z, both), rtol=1e-10)
        for options in ({}, {"full_output_cov": True}, {"full_cov": True}):
            assert_all_close(
                *(one.predict_f(XNEW, **options) for one in both), rtol=1e-9
            )
        for whole_rows in (True, False):
            one, other = (
                each.loo_log_density_of_entries(whole_rows=whole_rows).numpy()
                for each in both
            )
            assert np.array_equal(np.isfinite(one), THERE)
            assert_close(one[THERE], other[THERE], rtol=1e-8)

    @pytest.mark.near_copies("0.5")
    def test_points_at_all_data(self, alpha: float) -> None:
        """Exact multi-output regression, up to the jitter."""
        options: dict[str, Any] = {"of_each": [X, X], "alpha": alpha}
        with gpflow.config.as_context(gpflow.config.Config(jitter=1e-10)):
            expected = reference.exact(problem("Gaussian", of_each=[X, X]), NOISE)
            for each in (regression(**options), model("Gaussian", **options)):
                assert_close(log_z(each), expected, rtol=1e-6)


@pytest.mark.near_copies("0.5-four")
@pytest.mark.parametrize("kind", ["Gaussian", "four"])
@pytest.mark.parametrize("alpha", [0.5, 1.0])
def test_energy_written_out(kind: str, alpha: float) -> None:
    """And it is stationary in the sites."""
    fixed = converged(kind, alpha)
    parts = problem(kind)
    nu, tau = (part.numpy() for part in fixed.read_sites())
    assert np.array_equal(nu != 0.0, THERE)
    assert_close(log_z(fixed), reference.row_energy(parts, nu, tau, alpha), rtol=1e-8)
    for seed in range(2):
        a, b = (
            1e-4 * THERE * np.random.default_rng(seed).standard_normal([2, *nu.shape])
        )
        both = [
            reference.row_energy(parts, nu + s * a, tau + s * b, alpha) for s in (1, -1)
        ]
        assert abs(both[0] - both[1]) / 2e-4 < 1e-5


@pytest.mark.slow
def test_alpha_0_is_the_best_bound_over_a_full_q() -> None:
    fixed = converged("four", 0.0)
    parts = problem("four")
    mean = fixed.q_mu.numpy()[:, 0]
    root = fixed.q_sqrt.numpy()[0]
    value = reference.bound(parts, mean, root)
    assert_close(fixed.elbo(), value, rtol=1e-9)
    random = np.random.default_rng(0)
    for size in (1e-5, 1e-2):
        noise = (
            random.standard_normal(mean.shape),
            np.tril(random.standard_normal(root.shape)),
        )
        a = size * noise[0]
        b = size * noise[1] * np.abs(root)
        both = [
            reference.bound(parts, mean + sign * a, root + sign * b) for sign in (1, -1)
        ]
        if size == 1e-5:
            assert abs(both[0] - both[1]) / (2.0 * size) < 1e-5  # it is stationary,
        else:
            # A maximum, as three of the likelihoods are log-concave.
            assert max(both) < value


@pytest.mark.near_copies("5-regression-*")
@pytest.mark.parametrize(
    "kind, alpha, rtol",
    [
        ("regression", 0.4, 1e-8),
        ("four", 0.0, 1e-6),
        ("four", 0.5, 1e-6),
        ("Gaussian", 0.6, 1e-7),
    ],
)
@pytest.mark.parametrize("chunk_size", [None, 5])
def test_gradients(
    kind: str, alpha: float, rtol: float, chunk_size: int | None
) -> None:
    """Of kernels, inducing points, mixing, offsets and likelihoods."""
    options = {"alpha": alpha, "chunk_size": chunk_size}
    trained = regression(**options) if kind == "regression" else model(kind, **options)
    assert len(trained.trainable_variables) == 4 + 2 + 1 + 1 + (
        2 if kind == "four" else P
    )
    if kind == "regression":
        assert trained.rows.num_inducing == Q * M  # what chunks are chosen by
    loss = tf.function(trained.training_loss)
    assert_gradients(loss, trained.trainable_variables, rtol=rtol, scale=1.0)


class TestPredictions:
    @pytest.mark.slow
    @pytest.mark.parametrize("full_cov", [False, True])
    @pytest.mark.parametrize("full_output_cov", [False, True])
    def test_moments(self, full_cov: bool, full_output_cov: bool) -> None:
        fixed = converged("four", 0.5)
        parts = problem("four")
        a = parts.directions(XNEW)
        root = fixed.q_sqrt.numpy()[0]
        between = np.einsum("nps,st,mrt->npmr", a, root @ root.T, a)
        for q, part in enumerate(parts.kernels):
            A = parts.projected(XNEW)[0][q]
            left = part(XNEW, XNEW) - A.T @ A
            between += np.einsum("p,nm,r->npmr", W[:, q], left, W[:, q])
        axes = {3: "npmr->npmr", 2: "npmp->pnm", 1: "npnr->npr", 0: "npnp->np"}
        covariance = np.einsum(axes[2 * full_cov + full_output_cov], between)
        expected = a @ fixed.q_mu.numpy()[:, 0] + MEANS, covariance
        full = full_cov, full_output_cov
        for predict in (fixed.predict_f, fixed.posterior().predict_f):
            assert_all_close(predict(XNEW, *full), expected, rtol=1e-8)
        batches = np.stack([XNEW, XNEW + 0.1])
        assert_close(
            fixed.posterior().predict_f(batches, *full)[1][0], covariance, rtol=1e-8
        )

    @pytest.mark.slow
    def test_of_each_output(self) -> None:
        fixed = converged("four", 0.5)
        moments = fixed.predict_f(XNEW)
        for p, part in enumerate(likelihood("four").likelihoods):
            column = [moment[:, p : p + 1] for moment in moments]
            expected = part.predict_mean_and_var(XNEW, *column)
            actual = [moment[:, p : p + 1] for moment in fixed.predict_y(XNEW)]
            assert_all_close(actual, expected, rtol=1e-8)
        density = fixed.predict_log_density((X, MIXED)).numpy()
        mean, variance = (moment.numpy() for moment in fixed.predict_f(X))
        ell = reference.of_each(problem("four"), mean - MEANS, variance, 1.0)
        assert_close(density, ell.sum(axis=1), rtol=1e-7)

    def test_given_outputs_of_the_same_row(self) -> None:
        fixed = regression(alpha=0.5)
        known = np.full((5, P), np.nan)
        known[:3, 0], known[1:4, 2] = 0.7, -0.4
        mean, covariance = (
            part.numpy() for part in fixed.predict_f(XNEW, full_output_cov=True)
        )
        expected_mean = mean.copy()
        expected_variance = np.einsum("npp->np", covariance).copy()
        for n in range(5):
            there = np.isfinite(known[n])
            K = covariance[n][there][:, there] + np.diag(NOISE[there])
            gain = np.linalg.solve(K, covariance[n][there]).T
            expected_mean[n] += gain @ (known[n] - mean[n])[there]
            expected_variance[n] -= np.sum(gain * covariance[n][:, there], axis=1)
        expected = expected_mean, expected_variance
        assert_all_close(fixed.predict_f(XNEW, given=known), expected, rtol=1e-8)
        variance = fixed.predict_y(XNEW, given=known)[1]
        assert_close(variance, expected_variance + NOISE, rtol=1e-8)

    @pytest.mark.slow
    def test_given_labels_and_counts(self) -> None:
        """A row with one known output: its posterior by integration."""
        fixed = converged("four", 0.5)
        known = np.full((5, P), np.nan)
        known[:, 2] = [0.0, 1.0, 2.0, 3.0, 9.0]
        mean, covariance = (
            part.numpy() for part in fixed.predict_f(XNEW, full_output_cov=True)
        )
        actual = fixed.predict_f(XNEW, given=known)
        x = np.linspace(-12.0, 12.0, 6001)
        for n in range(5):
            f = mean[n, 2] + np.sqrt(covariance[n, 2, 2]) * x
            weights = np.exp(-0.5 * x**2 + poisson_log_density(f, known[n, 2]))
            weights /= weights.sum()
            shift = weights @ f - mean[n, 2]
            gain = covariance[n, :, 2] / covariance[n, 2, 2]
            assert_close(actual[0][n], mean[n] + gain * shift, rtol=1e-6)
            spread = weights @ (f - weights @ f) ** 2 - covariance[n, 2, 2]
            expected = np.diagonal(covariance[n]) + gain**2 * spread
            assert_close(actual[1][n], expected, rtol=1e-6)

    def test_q_of_u(self) -> None:
        fixed = converged("four", 0.5)
        parts = problem("four")
        mean, covariance = fixed.compute_qu()
        root = fixed.q_sqrt.numpy()[0]
        whole = root @ root.T
        for q, (Z_q, part) in enumerate(zip(Z, parts.kernels)):
            L = np.linalg.cholesky(part(Z_q, Z_q) + parts.jitter * np.eye(M))
            block = slice(q * M, (q + 1) * M)
            assert_close(mean[:, q], L @ fixed.q_mu.numpy()[block, 0], rtol=1e-8)
            assert_close(covariance[q], L @ whole[block, block] @ L.T, rtol=1e-8)


@pytest.mark.near_copies("True")
@pytest.mark.parametrize("whole_rows", [True, False])
def test_left_out_is_trained_without(whole_rows: bool) -> None:
    """At power 1 Gaussian noise is exact: what is left out can be taken out of the
    model.
    """
    density = (
        regression(alpha=1.0).loo_log_density_of_entries(whole_rows=whole_rows).numpy()
    )
    for n, p in [
        (0, int(np.flatnonzero(THERE[0])[0])),
        (7, int(np.flatnonzero(THERE[7])[-1])),
    ]:
        rest = GAUSSIAN.copy()
        row = GAUSSIAN[n : n + 1].copy()
        rest[n], row[0, p] = np.nan, np.nan
        known = {} if whole_rows else {"given": row}
        mean, variance = regression(rest, alpha=1.0).predict_y(X[n : n + 1], **known)
        expected = gpflow.logdensities.gaussian(
            GAUSSIAN[n, p], mean[0, p], variance[0, p]
        )
        assert_close(density[n, p], expected, rtol=1e-8)


def test_imputed_by_a_mixture_of_powers() -> None:
    parts = [regression(alpha=alpha) for alpha in (0.0, 1.0)]
    mean, variance = pep.training.ensemble_of_models(parts, [0.3, 0.7]).impute_y()
    (m0, s0), (m1, s1) = (part.impute_y() for part in parts)
    assert_close(mean, 0.3 * m0 + 0.7 * m1, rtol=1e-10)
    assert_close(variance, 0.3 * s0 + 0.7 * s1 + 0.21 * (m1 - m0) ** 2, rtol=1e-10)
    independent = pep.models.PEPRegression(
        (X, X), gpflow.kernels.SquaredExponential(), X[:3]
    )
    with pytest.raises(ValueError, match="impute_y"):
        pep.training.ensemble_of_models([independent]).impute_y()


@pytest.mark.slow
def test_imputed_and_left_out_of_any_likelihood() -> None:
    """Close to what a model without the row predicts: given it, and of it."""
    n = 5
    fixed = converged("four", 1.0)
    others = MIXED.copy()
    others[n] = np.nan
    row = X[n : n + 1]
    targets = MIXED[n : n + 1]
    without = model("four", others, alpha=1.0)
    expected = [part[0] for part in without.predict_f(row, given=targets)]
    assert_all_close([part[n] for part in fixed.impute_f()], expected, rtol=0.1)
    whole = fixed.loo_log_density_of_entries(whole_rows=True).numpy()
    expected = without.predict_log_density((row, targets))[0]
    assert_close(np.nansum(whole[n]), expected, rtol=0.1)
    assert_close(fixed.loo_log_density()[n], np.nansum(whole[n]), rtol=1e-10)
    density = fixed.loo_log_density_of_entries(whole_rows=False).numpy()
    assert np.array_equal(np.isfinite(density), THERE)


@pytest.mark.slow
class TestAsOtherModels:
    def test_shared_points(self) -> None:
        expected = log_z(model("four", of_each=[Z[0], Z[0]]))
        parts = likelihood("four")
        first = gpflow.inducing_variables.InducingPoints(Z[0])
        both = gpflow.inducing_variables.SharedIndependentInducingVariables(first)
        for shared in (Z[0], both):
            options = {"mean_function": Constant(MEANS), **TIGHT}
            one = pep.models.PEP((X, MIXED), kernel(), parts, shared, **options)
            assert_close(log_z(one), expected, rtol=1e-9)

    def test_one_likelihood_for_all(self) -> None:
        parts = (X, GAUSSIAN), kernel()
        one = pep.models.PEP(*parts, Gaussian(0.05), points(), num_latent_gps=Q)
        other = pep.models.PEP(
            *parts, PerOutput([Gaussian(0.05) for _ in range(P)]), points()
        )
        closed = pep.models.PEPRegression(*parts, points(), likelihood=Gaussian(0.05))
        assert (
            np.isnan(closed.predict_y(XNEW, given=np.full((5, P), np.nan))[0]).sum()
            == 0
        )
        for each in (one, other):
            assert_close(log_z(each), log_z(closed), rtol=1e-9)

    def test_independent_outputs(self) -> None:
        """W the identity: a model for each output; and ``PerOutput`` without
        a mixture.
        """
        data = (X, COLUMNS[:, :Q])
        both = PerOutput(likelihood("four").likelihoods[:Q])
        mixture = pep.models.PEP(data, kernel(np.eye(Q)), both, points(), **TIGHT)
        separate = gpflow.kernels.SeparateIndependent(list(kernel().latent_kernels))
        plain = pep.models.PEP(data, separate, both, points(), **TIGHT)
        assert_close(log_z(mixture), log_z(plain), rtol=1e-8)
        assert_all_close(mixture.predict_y(XNEW), plain.predict_y(XNEW), rtol=1e-6)

    def test_an_output_without_observations(self) -> None:
        fixed = model("four", np.where(np.arange(P) == 2, np.nan, MIXED))
        three = [0, 1, 3]
        others = PerOutput([likelihood("four").likelihoods[p] for p in three])
        options = {"mean_function": Constant(MEANS[three]), **TIGHT}
        without = pep.PEP(
            (X, MIXED[:, three]), kernel(W[three]), others, points(), **options
        )
        assert_close(log_z(fixed), log_z(without), rtol=1e-8)


def test_labels_of_several_outputs_and_what_constructors_make() -> None:
    assert type(model("four")) is pep.PEP
    copied = deepcopy(regression())
    assert (
        type(copied) is pep.PEPRegression and type(copied.latents).__name__ == "Mixed"
    )
    labels = np.where(THERE, F > 0.0, np.nan)[:, :2]
    parts = (X, labels), kernel(W[:2])
    one = pep.PEPClassification(*parts, None, points())
    other = pep.PEP(*parts, Bernoulli(), points())
    assert type(one) is pep.PEPClassification and type(one.likelihood) is Bernoulli
    assert_close(log_z(one), log_z(other), rtol=1e-10)


def test_targets_that_go_missing_later() -> None:
    complete = F + np.sqrt(NOISE) * np.random.default_rng(2).standard_normal(F.shape)
    for make in (regression, partial(model, "Gaussian")):
        changed = make(complete)
        changed.data = X, GAUSSIAN
        assert_close(log_z(changed), log_z(make(GAUSSIAN)), rtol=1e-8)


def independent() -> pep.models.PEPRegression:
    return pep.models.PEPRegression(
        (X, F), gpflow.kernels.SquaredExponential(), Z[0].copy()
    )


def _targets(column: int, value: float) -> Array:
    return np.where((np.arange(P) == column) & THERE, value, MIXED)


def _of(columns: int, rows: int, of_each: Any) -> pep.PEP:
    """Some of the columns, with so many rows of W."""
    return pep.PEP((X, MIXED[:, :columns]), kernel(W[:rows]), of_each, points())


ZEROS = np.zeros((5, P))
fixed = partial(converged, "four", 0.5)
REFUSED = {
    "W: got shape": lambda: _of(3, P, Gaussian()),
    "likelihoods: got 4, expected 3": lambda: _of(3, 3, likelihood("four")),
    "likelihood: got MultiClass, expected a likelihood of a single": lambda: _of(
        P, P, gpflow.likelihoods.MultiClass(3)
    ),
    "num_latent_gps: got 3, expected 2": lambda: model("four", num_latent_gps=3),
    "Y: got NaN alone": lambda: regression(GAUSSIAN * np.nan),
    "Y: got 0.5 at row": lambda: model("four", _targets(1, 0.5)),
    "Y: got -1 at row": lambda: model("four", _targets(2, -1.0)),
    "likelihoods: got none": lambda: PerOutput([]),
    "likelihoods: got Softmax": lambda: PerOutput([gpflow.likelihoods.Softmax(3)]),
    "likelihood: got PerOutput, expected a gpflow.likelihoods.Gaussian": (
        lambda: pep.PEPRegression(
            (X, MIXED), kernel(), points(), likelihood=likelihood("four")
        )
    ),
    "blocks: got a model": lambda: regression(blocks=np.arange(N)),
    "given: got outputs together with full_cov": (
        lambda: fixed().predict_f(XNEW, full_cov=True, given=ZEROS)
    ),
    "Y: got 1 column": lambda: regression().predict_f(XNEW, given=ZEROS[:, :1]),
    "blocks and near rows: got": (
        lambda: regression().predict_f(XNEW, blocks=np.arange(5))
    ),
    "remember: got": lambda: fixed().remember(),
    "converged_rows: got": lambda: fixed().converged_rows(),
    "surrogate: got": lambda: regression().surrogate(),
    "minibatch_training_loss_closure: got": (
        lambda: model("four").minibatch_training_loss_closure(4, seed=0)
    ),
    "impute_f: got a model of independent outputs": lambda: independent().impute_f(),
    "given: got a model of independent": (
        lambda: independent().predict_y(XNEW, given=XNEW)
    ),
    "loo_log_density_of_entries: got a": lambda: (
        independent().loo_log_density_of_entries()
    ),
    "memory: got a model whose outputs are mixed": lambda: model("four", memory=0),
    "upper_bound: got": lambda: regression().upper_bound(),
    "fitc_log_marginal_likelihood: got": lambda: (
        regression().fitc_log_marginal_likelihood()
    ),
}
#: Of those that need converged sites, which take long, one stays fast.
test_refusals = pytest.mark.near_copies("[!g]*", "given: got a *")(refusals(REFUSED))
