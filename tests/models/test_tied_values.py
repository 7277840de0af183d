"""APEP, ARPEP and RPAPEP against the reference, GPflow's SVGP and limits."""

from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from cases.pep import CASES, N
from cases.tied import ALPHAS, LIKELIHOODS, MODELS, NUM_DATA, create, data_of, random_start, svgp
from helpers import Array, assert_all_close, assert_close, gradients
from reference import tied as tied_reference
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
    start, name = random_start("RobustMax"), "RobustMax"
    white, plain = (create(model_name, name, start, whiten=w, alpha=0.3) for w in (True, False))
    q = start.q_mu, start.q_sqrt @ start.q_sqrt.transpose(0, 2, 1)
    for model in (white, plain):
        log_z = model.pep_log_marginal_likelihood(data_of(name))
        assert_close(log_z, start.log_z(model_name, 0.3))
        assert_all_close(model.compute_qu(), q)
    Xnew = CASES[name].problem.Xnew
    assert_all_close(plain.predict_f(Xnew, True), white.predict_f(Xnew, True))
    assert_all_close((plain.q_mu, plain.q_sqrt), (start.q_mu, start.q_sqrt))
    assert_close(white.q_sqrt, start.whitened()[1])


@pytest.mark.parametrize("whiten", [True, False])
def test_start_without_q(whiten: bool) -> None:
    """They start as SVGP does."""
    start, data = random_start("Gaussian"), data_of("Gaussian")
    nothing: dict[str, Any] = {"q_mu": None, "q_sqrt": None, "whiten": whiten}
    expected = svgp("Gaussian", start, **nothing).elbo(data)
    for name in MODELS:
        model = create(name, "Gaussian", start, alpha=0.0, **nothing)
        assert_close(model.pep_log_marginal_likelihood(data), expected)


@pytest.mark.parametrize(
    "name, rtol", [("Gaussian", 1e-10), ("Poisson", 1e-10), ("probit", 1e-3), ("RobustMax", 1e-3)]
)
@pytest.mark.parametrize("model_name", MODELS)
def test_alpha_0_is_svgp(model_name: str, name: str, rtol: float) -> None:
    """GPflow's variational expectation is in closed form, or by its quadrature."""
    start, data = random_start(name, seed=1), data_of(name)
    expected = svgp(name, start).elbo(data)
    model = create(model_name, name, start, alpha=0.0)
    at_0 = model.pep_log_marginal_likelihood(data)
    assert_close(at_0, expected, rtol=rtol)
    model.alpha.assign(1e-6)
    near_0 = model.pep_log_marginal_likelihood(data)
    assert_close(near_0, at_0, rtol=1e-5)
    assert abs(near_0 - at_0) > 1e-8


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


class TestManyRows:
    """The rest of the energy, in whitened coordinates, beside 100 decimal digits."""

    # Random roots of covariances, one narrow, that are narrower than the prior.
    Q_MU = np.random.default_rng(0).standard_normal([3, 1])
    Q_SQRT = np.array([[[0.7, 0.0, 0.0], [0.2, 0.05, 0.0], [-0.1, 0.3, 0.4]]])

    def _expected(self, name: str, alpha: float, num_data: int) -> float:
        covariance = self.Q_SQRT[0] @ self.Q_SQRT[0].T
        q = tied_reference.natural(self.Q_MU[:, 0], covariance)
        prior = tied_reference.natural(np.zeros(3), np.eye(3))
        return float(tied_reference.rest(name.upper(), prior, q, alpha, num_data))

    @pytest.mark.parametrize("num_data", [1, 100, 10**9, 10**15])
    @pytest.mark.parametrize("name", ["apep", "rpapep"])
    def test_rest(self, name: str, num_data: int) -> None:
        q = WhitenedGaussian(tf.constant(self.Q_MU), tf.constant(self.Q_SQRT))
        for alpha in (0.0, 1e-12, 1e-6, 0.01, 0.5, 1.0):
            energy = getattr(tied_energies, name)(q, alpha, num_data)
            assert_close(energy.rest, self._expected(name, alpha, num_data), 1e-13, scale=1.0)

    def test_gradient_of_many_rows_is_that_of_infinitely_many(self) -> None:
        """Where both are ARPEP's, but for the power of the prior in RPAPEP."""
        both = tf.constant(self.Q_MU), tf.constant(self.Q_SQRT)

        def slopes(name: str, alpha: float, num_data: int) -> list[Array]:
            energy = getattr(tied_energies, name)
            rest = lambda: energy(WhitenedGaussian(*both), alpha, num_data).rest  # noqa: E731
            return [np.tril(part) for part in gradients(rest, both)]

        assert_all_close(slopes("apep", 1.0, 10**9), slopes("arpep", 1.0, 1), rtol=1e-7)
        assert_all_close(slopes("apep", 0.0, 1), slopes("arpep", 1.0, 1), rtol=1e-12)


def test_natural_of_reference() -> None:
    """The reference's arithmetic beside NumPy's."""
    one = Natural(to_decimals([1.0, 2.0]), to_decimals([[2.0, 0.3], [0.3, 1.0]]))
    mean, covariance = map(tied_reference.to_floats, one.moments())
    assert_close(covariance, np.linalg.inv([[2.0, 0.3], [0.3, 1.0]]), rtol=1e-14)
    G = np.log(2 * np.pi) + 0.5 * np.linalg.slogdet(covariance)[1] + 0.5 * mean @ [1.0, 2.0]
    assert_close(float(one.log_normaliser()), G, rtol=1e-14)
    with pytest.raises(ValueError, match="positive definite"):
        Natural(to_decimals([0.0]), to_decimals([[-1.0]])).log_normaliser()


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
