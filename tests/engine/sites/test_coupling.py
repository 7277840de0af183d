"""Steps of the means of all classes: the same sites in fewer sweeps, however solved
for.
"""

from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.inducing_variables import (
    InducingPoints,
    SeparateIndependentInducingVariables,
)
from gpflow.kernels import SeparateIndependent, SquaredExponential
from helpers import assert_all_close, assert_close

import gpflow_pep as pep
from gpflow_pep.engine.sites import coupling, sweep
from gpflow_pep.engine.sites.coupling import Curvature, CurvatureFactor, mean_step
from gpflow_pep.engine.sites.posterior import Sites, natural_sums, posterior_factor
from gpflow_pep.likelihoods import Traits
from gpflow_pep.models import ConvergenceWarning

N = 60
M = 8
C = 3
LIKELIHOODS = {
    "RobustMax": gpflow.likelihoods.MultiClass,
    "Softmax": gpflow.likelihoods.Softmax,
}


def classes(
    likelihood: str = "RobustMax",
    lengthscale: float = 3.0,
    separate: bool = False,
    **options: Any,
) -> pep.models.PEP:
    """Three classes of noisy rows in the plane, with a lengthscale that is long beside
    the data.
    """
    rng = np.random.default_rng(3)
    X = rng.standard_normal((N, 2))
    Y = np.digitize(X[:, :1] + 0.5 * rng.standard_normal((N, 1)), [-0.5, 0.5]).astype(
        float
    )
    kernel: Any = SquaredExponential(lengthscales=lengthscale)
    Z: Any = X[:M].copy()
    if separate:
        kernel = SeparateIndependent(
            [SquaredExponential(lengthscales=k + 2.0) for k in range(C)]
        )
        points = [InducingPoints(X[k * M : (k + 1) * M].copy()) for k in range(C)]
        Z = SeparateIndependentInducingVariables(points)
    return pep.models.PEP((X, Y), kernel, LIKELIHOODS[likelihood](C), Z, **options)


def run(model: pep.models.PEP) -> tuple[float, int]:
    value = tf.function(model.pep_log_marginal_likelihood, autograph=False)()
    assert model.last_inference.converged
    return float(value), model.last_inference.num_sweeps


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
@pytest.mark.slow
def test_the_same_sites_in_fewer_sweeps(
    likelihood: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    coupled = classes(likelihood, alpha=0.5, tolerance=1e-9)
    value, sweeps = run(coupled)
    monkeypatch.setattr(sweep, "traits", lambda likelihood: Traits())
    site_by_site = classes(likelihood, alpha=0.5, tolerance=1e-9, max_sweeps=2000)
    expected, more = run(site_by_site)
    assert_close(value, expected, rtol=1e-9)
    assert_all_close(coupled.read_sites(), site_by_site.read_sites(), rtol=1e-5)
    assert sweeps < more
    assert likelihood == "Softmax" or (sweeps <= 60 and more > 100)
    # The record means the same: the other loop has nothing left to do.
    site_by_site.write_sites(coupled.read_sites())
    assert site_by_site.update_sites(tolerance=2e-9).num_sweeps == 1


@pytest.mark.slow
def test_few_inducing_inputs_and_a_long_lengthscale_take_tens_of_sweeps() -> None:
    """Full steps in what the acceleration does not explain made it take hundreds."""
    X = np.random.default_rng(0).standard_normal((150, 2))
    Y = (X[:, :1] > 0.0) + (X[:, 1:] > 0.0).astype(float)
    Z = X[np.random.default_rng(1).permutation(150)[:20]]
    parts = SquaredExponential(10.0, 5.0), gpflow.likelihoods.MultiClass(C), Z
    record = pep.models.PEP((X, Y), *parts, alpha=1.0).update_sites(max_sweeps=200)
    assert record.converged and record.num_sweeps <= 60


@pytest.mark.parametrize(
    ("alpha", "most"), [(0.5, 15), pytest.param(0.0, 45, marks=pytest.mark.slow)]
)
def test_many_rows_take_no_more_sweeps(alpha: float, most: int) -> None:
    """Many small changes that move means far, and a q that becomes narrow: they took 20
    and 59.
    """
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (25_000, 8))
    f = np.sin(4.0 * X[:, 0]) * X[:, 1] + X[:, 2] ** 2
    Y = np.digitize(f + 0.3 * rng.standard_normal(len(X)), [0.0, 0.5])[:, None].astype(
        float
    )
    X = np.sqrt(3.0) * X[:4000]
    # Where some steps of training lead to: 25 inducing inputs, lengthscales and
    # variance.
    point = np.load(Path(__file__).parent / "data" / "after_some_training.npy").astype(
        float
    )
    kernel = SquaredExponential(point[208], point[200:208])
    parts = kernel, gpflow.likelihoods.MultiClass(C), point[:200].reshape(25, 8)
    record = pep.models.PEP((X, Y[:4000]), *parts, alpha=alpha).update_sites(
        max_sweeps=60
    )
    assert record.converged and record.num_sweeps <= most and record.num_rejected <= 1


@pytest.mark.slow
def test_the_energy_never_falls_at_alpha_0() -> None:
    """Where a run of so many sweeps ends, it is where the last step that was accepted
    led.
    """
    model = classes(alpha=0.0)
    energies = []
    with pytest.warns(ConvergenceWarning):
        for max_sweeps in range(1, 16):
            model.update_sites(max_sweeps=max_sweeps, fresh=True)
            q = posterior_factor(natural_sums(model.site_problem(), model.read_sites()))
            root = tf.linalg.cholesky(tf.matmul(q.W, q.W, transpose_a=True))
            parts = model.kernel, model.likelihood, model.inducing_variable
            options = {
                "num_latent_gps": C,
                "q_mu": tf.transpose(q.w[..., 0]),
                "q_sqrt": root,
            }
            svgp, (X, Y) = gpflow.models.SVGP(*parts, **options), model.data
            rows = X, *svgp.predict_f(X), Y
            ell = pep.likelihoods.log_power_expectation(model.likelihood, *rows, 0.0)
            energies.append(float(tf.reduce_sum(ell) - svgp.prior_kl()))
    assert energies[-1] > energies[0] + 1.0
    assert np.all(np.diff(energies) >= -1e-8 * np.abs(energies[:-1]))


def test_a_few_sweeps_are_a_few() -> None:
    model = classes(alpha=0.0, lengthscale=10.0)
    for max_sweeps in (1, 3):
        with pytest.warns(ConvergenceWarning):
            record = model.update_sites(max_sweeps=max_sweeps, fresh=True)
        # The first one looks at what is there.
        assert record.num_sweeps == max_sweeps + 1 and record.fallback == ""


@pytest.mark.parametrize("separate", [False, True])
def test_conjugate_gradients_are_the_direct_solve(separate: bool) -> None:
    problem = classes(separate=separate).site_problem().keep_projections()
    assert problem.projection is not None
    rng = np.random.default_rng(0)
    tau = np.exp(rng.standard_normal((N, C)))
    g = rng.standard_normal((N, C))
    q = posterior_factor(
        natural_sums(problem, Sites(tf.constant(g), tf.constant(0.8 * tau)))
    )
    curvature = Curvature.from_precision(tf.constant(tau))
    nothing = CurvatureFactor.empty(problem, tf.zeros([N, C], tf.float64))
    factor = nothing.refactorised(problem, curvature)
    direct = mean_step(problem, curvature, tf.constant(g), q, factor)
    iterated = mean_step(problem, curvature, tf.constant(g), q)
    np.testing.assert_allclose(iterated, direct, atol=1e-4 * np.max(np.abs(direct)))
    # Both solve (I + A W A') dw = A g, of which the rows see A' dw.
    A = problem.projection.A.numpy() + np.zeros((C, 1, 1))
    big = np.zeros((N, C, C * M))
    for k in range(C):
        big[:, k, k * M : (k + 1) * M] = A[k].T
    W = np.stack([np.diag(t) - np.outer(t, t) / t.sum() for t in tau])
    K = np.eye(C * M) + np.einsum("nkp,nkl,nlq->pq", big, W, big)
    expected = big @ np.linalg.solve(K, np.einsum("nkp,nk->p", big, g))
    assert_close(direct, expected, rtol=1e-8)
    # A curvature that is close takes the same factor, one that is not gets its own.
    for change, own in ((1.05, 1.0), (1.2, 1.2)):
        other = Curvature.from_precision(tf.constant(change * tau))
        assert_close(factor.refactorised(problem, other).t, own * tau, rtol=1e-11)


@pytest.mark.slow
@pytest.mark.parametrize("most_factorised", [1500, 0])
def test_chunks_change_nothing(
    most_factorised: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coupling, "MOST_FACTORISED", most_factorised)
    whole, sweeps = run(classes(alpha=0.5, tolerance=1e-9))
    monkeypatch.setattr(coupling, "MOST_FACTORISED", 1500)
    in_chunks, as_many = run(classes(alpha=0.5, tolerance=1e-9, chunk_size=17))
    assert_close(in_chunks, whole, rtol=1e-9)
    # Conjugate gradients solve for steps to five digits only.
    assert abs(sweeps - as_many) <= (1 if most_factorised else 0.05 * sweeps)


@pytest.mark.slow
def test_xla_compiles_it_and_rows_may_be_far_from_all_inducing_inputs() -> None:
    """The h of such rows is 0 for sure, and no step of its mean is too long."""
    model = classes(alpha=0.5)
    loss = tf.function(model.training_loss, jit_compile=True, autograph=False)
    assert_close(loss(), -run(classes(alpha=0.5))[0], rtol=1e-7)
    assert model.last_inference.converged
    assert np.isfinite(run(classes(alpha=0.5, lengthscale=0.01))[0])
