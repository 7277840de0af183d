"""What GPflow's models have: elbo, fitc_log_marginal_likelihood, prior_kl and
q_diag.
"""

from functools import partial
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from cases.models import each_tied, gaussian_model
from gpflow.kernels import SeparateIndependent, SharedIndependent
from helpers import assert_all_close, assert_close, gradients, regression_problem

import gpflow_pep as pep

PROBLEM = regression_problem(3, num_data=12, num_inducing=4, num_outputs=2)
_noise = {"noise_variance": PROBLEM.noise_variance}
_regression = partial(gaussian_model, "PEPRegression", PROBLEM, **_noise)


def _gpflows(model_class: Any) -> Any:
    return PROBLEM.model(model_class)


def test_elbo_is_that_of_sgpr() -> None:
    expected = _gpflows(gpflow.models.SGPR).elbo()
    model = _regression(alpha=0.0)
    compiled = tf.function(model.elbo)
    for elbo in (model.elbo, compiled):
        assert_close(elbo(), expected, rtol=1e-10)
    model.alpha = 0.5
    refused = r"elbo: got a power alpha above 0(.|\n)*pep_log_marginal_likelihood"
    for elbo in (model.elbo, compiled):
        with pytest.raises((ValueError, tf.errors.InvalidArgumentError), match=refused):
            elbo()
    model = gaussian_model(
        "PEP", PROBLEM, noise_variance=PROBLEM.noise_variance, alpha=0.0
    )
    assert_close(model.elbo(), expected, rtol=1e-9)
    model.alpha = np.where(np.arange(12) == 3, 0.1, 0.0)
    with pytest.raises(ValueError, match="expected 0 for all rows"):
        model.elbo()


def test_fitc_is_that_of_gprfitc() -> None:
    fitc = _gpflows(gpflow.models.GPRFITC)
    model = _regression(alpha=1.0)
    assert_close(
        model.fitc_log_marginal_likelihood(), fitc.fitc_log_marginal_likelihood()
    )
    model.alpha = 0.9
    with pytest.raises(
        ValueError, match=r"got a power alpha below 1.*model.alpha = 1.0"
    ):
        model.fitc_log_marginal_likelihood()
    in_blocks = _regression(alpha=1.0, blocks=np.arange(12) // 3)
    with pytest.raises(ValueError, match=r"got a model with blocks.*PITC"):
        in_blocks.fitc_log_marginal_likelihood()


@each_tied
@pytest.mark.parametrize("q_diag", [False, True])
@pytest.mark.parametrize("whiten", [False, True])
def test_same_parts_as_svgp(name: str, q_diag: bool, whiten: bool) -> None:
    rng = np.random.default_rng(0)
    q_sqrt = rng.uniform(0.3, 1.0, (4, 2))
    if not q_diag:
        q_sqrt = np.tril(0.2 * rng.standard_normal((2, 4, 4))) + 0.5 * np.eye(4)
    options: dict[str, Any] = {"q_mu": rng.standard_normal((4, 2)), "q_sqrt": q_sqrt}
    options |= {"q_diag": q_diag, "whiten": whiten, "num_data": 30}
    ours = gaussian_model(name, PROBLEM, alpha=0.0, **options)
    svgp = gpflow.models.SVGP(ours.kernel, ours.likelihood, PROBLEM.Z, **options)
    assert_close(ours.prior_kl(), svgp.prior_kl(), rtol=1e-9)
    assert_close(ours.elbo(PROBLEM.data), svgp.elbo(PROBLEM.data), rtol=1e-9)
    assert ours.q_sqrt.shape == svgp.q_sqrt.shape
    for full_cov in (False, True):
        expected = svgp.predict_f(PROBLEM.Xnew, full_cov=full_cov)
        assert_all_close(
            ours.predict_f(PROBLEM.Xnew, full_cov=full_cov), expected, rtol=1e-9
        )
    ours.alpha = 0.5
    # In a graph the reason came after a trace.
    for elbo in (
        ours.elbo,
        tf.function(ours.elbo),
    ):
        with pytest.raises(ValueError, match=r"^elbo: got a power alpha above 0"):
            elbo(PROBLEM.data)


@pytest.mark.parametrize("name", ["PEPRegression", "PEP"])
def test_what_svgp_has_and_a_computed_q_has_not(name: str) -> None:
    for argument in ("whiten", "q_diag", "num_data", "q_mu", "q_sqrt"):
        words = (
            f"^{argument}: got True, expected no such argument: {name} computes the"
            " best q"
        )
        with pytest.raises(TypeError, match=words):
            gaussian_model(name, PROBLEM, **{argument: True})
    model = gaussian_model(name, PROBLEM, alpha=0.0)
    for method in (model.training_loss, model.training_loss_closure, model.elbo):
        with pytest.raises(
            TypeError, match=f"expected no argument: {name} holds its data. Call"
        ):
            method(PROBLEM.data)
    natural = gpflow.optimizers.NaturalGradient(0.1)
    step = [(model.q_mu, model.q_sqrt)]
    with pytest.raises(
        ValueError, match=r"^NaturalGradient: got q_mu and q_sqrt of a model that"
    ):
        natural.minimize(model.training_loss, step)
    assert_close(model.training_loss(), model.training_loss_closure()())


@pytest.mark.slow
def test_a_diagonal_q_starts_from_the_prior_and_is_trained() -> None:
    model = gaussian_model("ARPEP", PROBLEM, num_latent_gps=2, q_diag=True, alpha=0.5)
    assert_close(model.prior_kl(), 0.0, scale=1.0)
    closure = model.training_loss_closure(PROBLEM.data, compile=True)
    before = float(closure())
    options = {"compile": False, "options": {"maxiter": 5}}
    gpflow.optimizers.Scipy().minimize(closure, model.trainable_variables, **options)
    assert float(closure()) < before - 1.0 and np.all(model.q_sqrt.numpy() > 0.0)


def test_a_diagonal_q_that_is_none() -> None:
    bad = -np.ones((4, 1)), np.ones((1, 4, 4))
    words = "above 0 with q_diag=True", r"got shape \(1, 4, 4\), expected \(4, 4\)"
    for q_sqrt, said in zip(bad, words):
        with pytest.raises(ValueError, match=said):
            gaussian_model("ARPEP", PROBLEM, q_diag=True, q_sqrt=q_sqrt)


# PEPRegression under ``SharedIndependent``, as users of SVGP write several outputs.

iv = gpflow.inducing_variables
OUTPUTS = regression_problem(4, num_data=14, num_inducing=4, num_outputs=2)


def _shared(Z: Any = OUTPUTS.Z) -> Any:
    return iv.SharedIndependentInducingVariables(iv.InducingPoints(Z.copy()))


def _pair(**options: Any) -> tuple[pep.PEPRegression, pep.PEPRegression]:
    kernel = OUTPUTS.kernel()
    options = {"noise_variance": 0.1, "alpha": 0.4, **options}
    ways = (SharedIndependent(kernel, 2), _shared()), (OUTPUTS.kernel(), OUTPUTS.Z)
    shared, plain = (pep.PEPRegression(OUTPUTS.data, *way, **options) for way in ways)
    return shared, plain


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"blocks": np.arange(14) // 4},
    ],
    ids=["rows", "blocks"],
)
@pytest.mark.near_copies
def test_same_as_without(options: dict[str, Any]) -> None:
    shared, plain = _pair(**options)
    assert_close(shared.training_loss(), plain.training_loss(), rtol=1e-12)
    each = (
        gradients(one.training_loss, one.trainable_variables) for one in (shared, plain)
    )
    assert_all_close(*each, rtol=1e-10)
    for full_cov in (False, True):
        expected = plain.predict_f(OUTPUTS.Xnew, full_cov=full_cov)
        for of in (shared.predict_f, shared.posterior().predict_f):
            assert_all_close(of(OUTPUTS.Xnew, full_cov=full_cov), expected, rtol=1e-9)
    assert_all_close(shared.compute_qu(), plain.compute_qu(), rtol=1e-10)


@pytest.mark.slow
def test_all_else_that_regression_has() -> None:
    pair = _pair(alpha=0.0)
    for method in ("elbo", "upper_bound", "loo_log_density"):
        assert_close(*(getattr(model, method)() for model in pair), rtol=1e-12)
    assert pair[0].predict_f(OUTPUTS.Xnew, full_output_cov=True)[1].shape == (6, 2, 2)
    parts = ((one.kernel, one.inducing_variable, one.remember()) for one in pair)
    later = [
        pep.PEPRegression(OUTPUTS.data, k, Z, memory=memory) for k, Z, memory in parts
    ]
    assert_close(*(model.training_loss() for model in later), rtol=1e-10)


TWO = SharedIndependent(OUTPUTS.kernel(), 2)
SEPARATE = iv.SeparateIndependentInducingVariables([iv.InducingPoints(OUTPUTS.Z)] * 2)


@pytest.mark.parametrize(
    "kernel, variables, said",
    [
        (TWO, OUTPUTS.Z, "SharedIndependentInducingVariables"),
        (
            SharedIndependent(OUTPUTS.kernel(), 3),
            _shared(),
            "kernel: got 3.*expected 2",
        ),
        (
            TWO,
            SEPARATE,
            "expected one set of inducing variables for all latent functions",
        ),
        (
            SeparateIndependent([OUTPUTS.kernel(), OUTPUTS.kernel()]),
            _shared(),
            (
                "SeparateIndependent, expected a kernel of one"
                " output.*LinearCoregionalization"
            ),
        ),
    ],
)
def test_others_are_refused(kernel: Any, variables: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        pep.PEPRegression(OUTPUTS.data, kernel, variables)
