"""What models remember from call to call, and that it is never stale, lost or trained."""

import warnings
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.kernels import SquaredExponential
from gpflow.likelihoods import Bernoulli
from helpers import assert_close

import gpflow_pep as pep
from gpflow_pep.models import ConvergenceWarning

rng = np.random.default_rng(1)
X = rng.uniform(-3.0, 3.0, (40, 1))
LABELS = (np.sin(X) > 0.3 * rng.standard_normal(X.shape)).astype(float)


def _model(**options: Any) -> "pep.models.PEP":
    options = {"kernel": SquaredExponential(), "likelihood": Bernoulli(), **options}
    return pep.models.PEP((X, LABELS), inducing_variable=X[:6].copy(), **options)


def _models() -> dict[str, Any]:
    parts = SquaredExponential(), Bernoulli(), X[:6].copy()
    return {
        "PEPRegression": pep.models.PEPRegression((X, np.sin(X)), parts[0], parts[2]),
        "PEP": _model(),
        "APEP": pep.models.APEP(*parts, num_data=40),
        "ARPEP": pep.models.ARPEP(*parts, num_data=40),
    }


@pytest.mark.parametrize("name", _models())
def test_set_trainable_frees_neither_alpha_nor_sites(name: str) -> None:
    model = _models()[name]
    before = {id(variable) for variable in model.trainable_variables}
    gpflow.set_trainable(model, True)
    assert {id(variable) for variable in model.trainable_variables} == before
    assert model.alpha not in model.trainable_parameters and not model.alpha.trainable
    gpflow.set_trainable(model.kernel, False)
    assert len(model.trainable_variables) == len(before) - 2


@pytest.mark.filterwarnings("ignore:The sites did not converge")
@pytest.mark.slow
def test_updates_one_at_a_time_go_on_from_the_last() -> None:
    model = _model()
    records = [model.update_sites(max_sweeps=1) for _ in range(30)]
    assert all(record.num_sweeps <= 2 and record.fallback == "" for record in records)
    assert records[-1].converged and not records[0].converged
    expected = _model().pep_log_marginal_likelihood()
    assert_close(model.pep_log_marginal_likelihood(), expected, rtol=1e-9)


@pytest.mark.filterwarnings("ignore:The sites did not converge")
@pytest.mark.slow
def test_reset_sites_make_log_z_a_function_of_the_parameters() -> None:
    """Labels without a slope to climb: at alpha 0 there are several fixed points."""

    def create(**options: Any) -> "pep.models.PEP":
        likelihood = pep.likelihoods.NoisyLabelBernoulli(0.01, link="step")
        kernel, Z = SquaredExponential(lengthscales=0.6), X[:15].copy()
        return pep.models.PEP((X, LABELS), kernel, likelihood, Z, alpha=0.0, **options)

    model, other = create(reset_sites=True), create()
    first = float(model.pep_log_marginal_likelihood())
    for lengthscale in (0.2, 0.6):
        model.kernel.lengthscales.assign(lengthscale)
        last = float(model.pep_log_marginal_likelihood())
    assert last == first
    # The same from other sites, by one call.
    other.sites.nu.assign(np.where(LABELS > 0.5, -3.0, 3.0))
    other.update_sites(fresh=True)
    assert_close(other.sites.nu, model.sites.nu, rtol=1e-6)


@pytest.mark.parametrize("disturb", ["prediction", "update_data", "loss", "another loss"])
@pytest.mark.slow
def test_minibatch_totals_follow_sites_that_something_else_replaced(disturb: str) -> None:
    model = _model()
    loss = model.minibatch_training_loss_closure(10, seed=0, refresh_every=10**6)
    other = model.minibatch_training_loss_closure(8, seed=1, refresh_every=10**6)
    for _ in range(3):
        loss()
    model.kernel.lengthscales.assign(0.4)
    {
        "prediction": lambda: model.predict_f(X[:2]),
        "loss": tf.function(model.training_loss),
        "update_data": lambda: model.update_data((X[::-1].copy(), LABELS)),
        "another loss": other,
    }[disturb]()
    # As if it were made now: its first call sums over all rows.
    index = tf.range(10, dtype=tf.int64)
    again = gpflow.utilities.deepcopy(model)
    fresh = again.minibatch_training_loss_closure(10, seed=0)
    assert_close(loss.of_batch(index), fresh.of_batch(index), rtol=1e-12)


def test_powers_of_rows_that_became_fewer() -> None:
    data = tuple(tf.Variable(part, shape=[None, 1], trainable=False) for part in (X, np.sin(X)))
    powers = np.linspace(0.0, 1.0, 40)
    model = pep.models.PEPRegression(data, SquaredExponential(), X[:6], alpha=powers)
    compiled = tf.function(model.training_loss)
    compiled()
    for variable in data:
        variable.assign(variable[:20])
    with pytest.raises(ValueError, match=r"alpha: got shape \(40,\).*\(20,\)"):
        model.training_loss()
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"alpha: got shape \(40,\)"):
        compiled()


def test_a_tolerance_that_the_float_can_reach() -> None:
    gpflow.config.set_default_float(np.float32)
    single = X.astype(np.float32), LABELS.astype(np.float32)
    parts = SquaredExponential(), Bernoulli(), X[:6].astype(np.float32)
    model = pep.models.PEP(single, *parts, tolerance=1e-9)
    assert 1e-5 < model.tolerance < 1e-3
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert model.update_sites().converged


def test_a_compiled_loss_says_that_sites_did_not_converge() -> None:
    model = _model(max_sweeps=1)
    compiled = tf.function(model.training_loss)
    with pytest.warns(ConvergenceWarning, match="The sites did not converge: residual expected"):
        compiled()


def test_training_warns_only_of_where_it_ends() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        pep.training.maximise(_model(), max_iterations=2, progress=False)
    with pytest.warns(ConvergenceWarning, match="The sites did not converge"):
        pep.training.maximise(_model(max_sweeps=1), max_iterations=2, progress=False)


def test_latent_functions_with_different_numbers_of_inducing_variables() -> None:
    points = gpflow.inducing_variables.InducingPoints
    variables = gpflow.inducing_variables.SeparateIndependentInducingVariables(
        [points(X[:size].copy()) for size in (5, 4, 5)]
    )
    kernel = gpflow.kernels.SharedIndependent(SquaredExponential(), 3)
    classes = np.digitize(X, [-1.0, 1.0]).astype(float)
    likelihood = gpflow.likelihoods.MultiClass(3)
    with pytest.raises(ValueError, match=r"got 4, 5 .*expected as many for each.*Give each"):
        pep.models.PEP((X, classes), kernel, likelihood, variables)


@pytest.mark.parametrize("num_outputs", [1, 2])
@pytest.mark.near_copies
def test_blocks_in_several_chunks_compile(num_outputs: int) -> None:
    data = X, np.hstack([np.sin(X), np.cos(X)])[:, :num_outputs]
    ends = []
    for chunk_size in (None, 10):
        options: dict[str, Any] = {"blocks": np.arange(40) // 4, "chunk_size": chunk_size}
        model = pep.models.PEPRegression(data, SquaredExponential(), X[:5].copy(), **options)
        result = gpflow.optimizers.Scipy().minimize(
            model.training_loss, model.trainable_variables, options={"maxiter": 3}
        )
        ends.append(result.fun)
    assert_close(ends[1], ends[0], rtol=1e-8)
