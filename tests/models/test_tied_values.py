"""APEP, ARPEP and RPAPEP against the reference, golden numbers, GPflow's SVGP and limits."""

from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from cases.pep import CASES, M, N, plain_probit_link
from cases.tied import ALPHAS, LIKELIHOODS, MODELS, NUM_DATA, create, data_of, random_start, svgp
from helpers import Array, assert_all_close, assert_close, golden_problem
from reference import tied as tied_reference
from reference.golden import golden_targets
from reference.tied import Natural, to_decimals

import gpflow_pep as pep
from gpflow_pep.engine.energies import tied as tied_energies
from gpflow_pep.engine.sites.posterior import WhitenedGaussian

ROWS = [3, 4, 8]  # a batch


@pytest.mark.parametrize("name", LIKELIHOODS)
@pytest.mark.parametrize("model_name", MODELS)
@pytest.mark.near_copies("ARPEP-*", "*-Gaussian")
def test_reference(model_name: str, name: str) -> None:
    start = random_start(name)
    model = create(model_name, name, start)
    for alpha in ALPHAS:
        model.alpha.assign(alpha)
        for num_data, rows in ((NUM_DATA, range(N)), (5, ROWS), (1, [2])):
            model.num_data = num_data
            value = model.pep_log_marginal_likelihood(data_of(name, list(rows)))
            assert_close(value, start.log_z(model_name, alpha, num_data, rows), rtol=1e-8)


@pytest.mark.parametrize("model_name", MODELS)
def test_coordinates(model_name: str) -> None:
    """The energy, predictions and q(u) do not depend on the coordinates that q is held in."""
    start = random_start("RobustMax")
    white, plain = (
        create(model_name, "RobustMax", start, whiten=whiten, alpha=0.3) for whiten in (True, False)
    )
    data = data_of("RobustMax")
    expected = start.log_z(model_name, 0.3)
    Xnew = CASES["RobustMax"].problem.Xnew
    for model in (white, plain):
        assert_close(model.pep_log_marginal_likelihood(data), expected)
        mean, covariance = model.compute_qu()
        assert_close(mean, start.q_mu)
        assert_close(covariance, start.q_sqrt @ start.q_sqrt.transpose(0, 2, 1))
    assert_all_close(plain.predict_f(Xnew, True), white.predict_f(Xnew, True))
    assert_close(plain.q_mu, start.q_mu)
    assert_close(plain.q_sqrt, start.q_sqrt)
    assert_close(white.q_sqrt, start.whitened()[1])


@pytest.mark.parametrize("whiten", [True, False])
def test_start_without_q(whiten: bool) -> None:
    """They start as SVGP does."""
    start = random_start("Gaussian")
    nothing: dict[str, Any] = {"q_mu": None, "q_sqrt": None, "whiten": whiten}
    expected = svgp("Gaussian", start, **nothing).elbo(data_of("Gaussian"))
    for name in MODELS:
        model = create(name, "Gaussian", start, alpha=0.0, **nothing)
        assert_close(model.pep_log_marginal_likelihood(data_of("Gaussian")), expected)


@pytest.mark.parametrize("name", ["Gaussian", "Poisson"])
@pytest.mark.parametrize("model_name", MODELS)
def test_alpha_0_is_svgp(model_name: str, name: str) -> None:
    """Where GPflow's variational expectation is in closed form."""
    start = random_start(name, seed=1)
    expected = svgp(name, start).elbo(data_of(name))
    model = create(model_name, name, start, alpha=0.0)
    value = model.pep_log_marginal_likelihood(data_of(name))
    assert_close(value, expected, rtol=1e-10)
    model.alpha.assign(1e-6)
    assert_close(model.pep_log_marginal_likelihood(data_of(name)), expected, rtol=1e-5)
    assert abs(model.pep_log_marginal_likelihood(data_of(name)) - expected) > 1e-8


@pytest.mark.parametrize("name", ["probit", "RobustMax"])
@pytest.mark.parametrize("model_name", MODELS)
def test_alpha_0_is_svgp_by_its_quadrature(model_name: str, name: str) -> None:
    start = random_start(name, seed=1)
    expected = svgp(name, start).elbo(data_of(name))
    model = create(model_name, name, start, alpha=0.0)
    assert_close(model.pep_log_marginal_likelihood(data_of(name)), expected, rtol=1e-3)


@pytest.mark.parametrize("model_name", MODELS)
def test_batches_are_unbiased(model_name: str) -> None:
    model = create(model_name, "probit", random_start("probit"), num_data=N)
    batches = [data_of("probit", slice(i, i + 2)) for i in range(0, N, 2)]
    estimates = [model.pep_log_marginal_likelihood(batch) for batch in batches]
    whole = model.pep_log_marginal_likelihood(data_of("probit"))
    assert_close(np.mean(estimates), whole, rtol=1e-13)
    assert np.std(estimates) > 0.1


def test_apep_with_one_row_and_a_site_on_it_is_ep() -> None:
    """One row, one factor: at alpha = 1 the cavity is the prior, and Z the exact evidence."""
    start = random_start("probit")
    model = create("APEP", "probit", start, alpha=1.0, num_data=1)
    prior = svgp("probit", start, q_mu=None, q_sqrt=None, num_data=1)
    X, Y = data_of("probit", [4])
    expected = pep.likelihoods.log_power_expectation(
        model.likelihood, X, *prior.predict_f(X), Y, 1.0
    )
    assert_close(model.pep_log_marginal_likelihood((X, Y)), expected[0])


def test_apep_at_alpha_1_is_stochastic_ep() -> None:
    """
    log Z = G(q) - G(prior) + sum_n [log E[p] + G(cavity) - G(q)], written in moments with SciPy.
    """
    start = random_start("probit", seed=2)
    (site,), (q,) = start.sites, start.q
    T1, T2 = map(tied_reference.to_floats, site)
    mean, covariance = map(tied_reference.to_floats, q.moments())
    cavity_covariance = np.linalg.inv(np.linalg.inv(covariance) - T2 / NUM_DATA)
    cavity_mean = cavity_covariance @ (np.linalg.solve(covariance, mean) - T1 / NUM_DATA)
    model = create("APEP", "probit", start, alpha=1.0, q_mu=None, q_sqrt=None)
    L = np.linalg.cholesky(start.problem.priors[0].Kuu)
    as_q = svgp(
        "probit",
        start,
        q_mu=np.linalg.solve(L, cavity_mean)[:, None],
        q_sqrt=np.linalg.solve(L, np.linalg.cholesky(cavity_covariance))[None],
    )
    X, Y = data_of("probit")

    def G(m: Array, V: Array) -> float:
        return 0.5 * float(np.linalg.slogdet(V)[1] + m @ np.linalg.solve(V, m))

    log_p = pep.likelihoods.log_power_expectation(model.likelihood, X, *as_q.predict_f(X), Y, 1.0)
    G_q = G(mean, covariance)
    expected = G_q - G(np.zeros(M), start.problem.priors[0].Kuu)
    expected += NUM_DATA * (np.mean(log_p) + G(cavity_mean, cavity_covariance) - G_q)
    value = create("APEP", "probit", start, alpha=1.0).pep_log_marginal_likelihood((X, Y))
    assert_close(value, expected)


def _golden_q() -> tuple[Array, Array]:
    i = np.arange(4.0)
    q_sqrt = np.diag(0.6 + 0.05 * i) + np.tril(0.1 * np.sin(i[:, None] + 2.0 * i), -1)
    return 0.5 * np.cos(1.0 + i)[:, None], q_sqrt[None]


def _golden(model_class: Any, alpha: float, q_mu: Array, q_sqrt: Array) -> float:
    gpflow.config.set_default_jitter(1e-16)
    problem, mean, *_ = golden_problem()
    model = model_class(
        problem.kernel(),
        gpflow.likelihoods.Bernoulli(invlink=plain_probit_link),
        problem.Z,
        alpha=alpha,
        num_data=9,
        mean_function=gpflow.functions.Constant(mean),
        q_mu=q_mu,
        q_sqrt=q_sqrt,
        whiten=False,
    )
    return float(model.pep_log_marginal_likelihood((problem.X, golden_targets("labels"))))


def test_golden_free() -> None:
    q = _golden_q()
    assert_close(_golden(pep.models.ARPEP, 0.5, *q), -8.7780700882, rtol=1e-10)
    for model_class in MODELS.values():
        assert_close(_golden(model_class, 0.0, *q), -10.1486075279, rtol=1e-10)


def test_golden_apep() -> None:
    i = np.arange(4.0)
    E = np.cos(i[:, None] * (1.0 + i))
    T2 = 0.4 * E @ E.T + 0.3 * np.eye(4)
    problem = golden_problem().problem
    covariance = np.linalg.inv(np.linalg.inv(problem.prior(0.0).Kuu) + T2)
    q_mu = covariance @ np.sin(1.0 + 2.0 * i)
    q_sqrt = np.linalg.cholesky(covariance)
    value = _golden(pep.models.APEP, 0.5, q_mu[:, None], q_sqrt[None])
    assert_close(value, -8.0596823488, rtol=1e-10)


class TestManyRows:
    """The rest of the energy, in whitened coordinates, beside 100 decimal digits."""

    # Random roots of covariances, one narrow, that are narrower than the prior.
    Q_MU = np.random.default_rng(0).standard_normal([3, 1])
    Q_SQRT = np.array([[[0.7, 0.0, 0.0], [0.2, 0.05, 0.0], [-0.1, 0.3, 0.4]]])

    def _expected(self, name: str, alpha: float, num_data: int) -> float:
        covariance = self.Q_SQRT[0] @ self.Q_SQRT[0].T
        q = tied_reference.natural(self.Q_MU[:, 0], covariance)
        prior = tied_reference.natural(np.zeros(3), np.eye(3))
        power = tied_reference._decimal_power(alpha)
        G = q.log_normaliser()
        if name == "apep":
            G_cavity = q.plus(q.plus(prior, -1), -power / num_data).log_normaliser()
            value = G - prior.log_normaliser() + num_data / power * (G_cavity - G)
        else:
            cavity = q.to_the(1 - power / (num_data + 1))
            joint = cavity.plus(prior, power).log_normaliser() - power * prior.log_normaliser()
            value = G + (joint - cavity.log_normaliser()) / power
            value += (num_data + 1) / power * (cavity.log_normaliser() - G)
        return float(value)

    @pytest.mark.parametrize("num_data", [1, 100, 10**9, 10**15])
    @pytest.mark.parametrize("name", ["apep", "rpapep"])
    def test_rest(self, name: str, num_data: int) -> None:
        q = WhitenedGaussian(tf.constant(self.Q_MU), tf.constant(self.Q_SQRT))
        for alpha in (0.0, 1e-12, 1e-6, 0.01, 0.5, 1.0):
            energy = getattr(tied_energies, name)(q, alpha, num_data)
            assert_close(energy.rest, self._expected(name, alpha, num_data), 1e-13, scale=1.0)

    def test_gradient_of_many_rows_is_that_of_infinitely_many(self) -> None:
        """Where both are ARPEP's, but for the power of the prior in RPAPEP."""
        q_mu, q_sqrt = tf.constant(self.Q_MU), tf.constant(self.Q_SQRT)

        def gradients(name: str, alpha: float, num_data: int) -> list[Array]:
            with tf.GradientTape() as tape:
                tape.watch((q_mu, q_sqrt))
                q = WhitenedGaussian(q_mu, q_sqrt)
                energy = getattr(tied_energies, name)(q, alpha, num_data)
            return tape.gradient(energy.rest, (q_mu, q_sqrt))

        for actual, expected in zip(gradients("apep", 1.0, 10**9), gradients("arpep", 1.0, 1)):
            assert_close(np.tril(actual), np.tril(expected), rtol=1e-7)
        assert_all_close(gradients("apep", 0.0, 1), gradients("arpep", 1.0, 1), rtol=1e-12)


def test_natural_of_reference() -> None:
    """The reference's arithmetic beside NumPy's."""
    one = Natural(to_decimals([1.0, 2.0]), to_decimals([[2.0, 0.3], [0.3, 1.0]]))
    mean, covariance = map(tied_reference.to_floats, one.moments())
    assert_close(covariance, np.linalg.inv([[2.0, 0.3], [0.3, 1.0]]), rtol=1e-14)
    G = np.log(2 * np.pi) + 0.5 * np.linalg.slogdet(covariance)[1] + 0.5 * mean @ [1.0, 2.0]
    assert_close(float(one.log_normaliser()), G, rtol=1e-14)


@pytest.mark.near_copies("APEP")
@pytest.mark.parametrize("model_name", MODELS)
def test_compiled_functions_see_another_num_data(model_name: str) -> None:
    start, rows = random_start("Gaussian"), data_of("Gaussian", ROWS)
    model = create(model_name, "Gaussian", start, alpha=0.3, num_data=10)
    before = len(model.variables)
    compiled = tf.function(model.pep_log_marginal_likelihood)
    for num_data in (10, 5, 10**6):
        model.num_data = num_data
        assert model.num_data == num_data
        assert_close(compiled(rows), start.log_z(model_name, 0.3, num_data, ROWS), rtol=1e-8)
    model.num_data = 2
    with pytest.raises((ValueError, tf.errors.InvalidArgumentError), match="more rows than num_da"):
        compiled(rows)
    assert compiled.experimental_get_tracing_count() == 1
    for wrong in (None, 0, 2.5):
        with pytest.raises(ValueError, match="number of rows of the whole data set"):
            model.num_data = wrong
    assert model.num_data == 2 and len(model.variables) == before
    assert gpflow.utilities.deepcopy(model).num_data == 2
