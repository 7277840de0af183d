"""What is registered of likelihoods: targets they refuse, numbers of columns, traits."""

import importlib
import inspect
import pkgutil
from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.base import TensorType
from scipy.stats import multivariate_normal

import gpflow_pep as pep
from gpflow_pep.engine.factors import check_num_latent, num_classes
from gpflow_pep.engine.sites import sweep
from gpflow_pep.likelihoods import Traits, check_support, support, traits

likelihoods, ours = gpflow.likelihoods, pep.likelihoods
Create = Callable[[], Any]


class Comparison(likelihoods.MultiLatentLikelihood):  # type: ignore[misc]
    """Two classes, by the larger of two latent functions with logistic noise: a softmax of two."""

    def __init__(self) -> None:
        super().__init__(latent_dim=2)

    def _log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        return tf.math.log_sigmoid((2.0 * Y[..., 0] - 1.0) * (F[..., 1] - F[..., 0]))


class RegisteredComparison(Comparison):
    pass


@traits.register(RegisteredComparison)
def _comparison(likelihood: RegisteredComparison) -> Traits:
    return Traits(num_classes=2, ignores_level=True)


def _fixed_exponential() -> gpflow.likelihoods.Likelihood:
    likelihood = likelihoods.Gamma()
    gpflow.set_trainable(likelihood.shape, False)
    return likelihood


def _switched() -> gpflow.likelihoods.Likelihood:
    return likelihoods.SwitchedLikelihood([ours.NoisyLabelBernoulli(), likelihoods.Poisson()])


def _multi(number: int = 3) -> Any:
    return likelihoods.MultiClass(number)


def _softmax(number: int = 3) -> Any:
    return likelihoods.Softmax(number)


def _theirs() -> Any:
    return likelihoods.Ordinal(np.array([0.0, 1.0]))


#: A likelihood, targets in its support, others that are outside, and words of the message.
SUPPORTS: list[tuple[Create, Any, Any, str]] = [
    (likelihoods.Bernoulli, [0.0, 1.0], [1.0, 2.0], "got 2 at row 1, expected 0 or 1 .* Bernoulli"),
    (ours.NoisyLabelBernoulli, [0.0, 1.0], [1.0, 2.0], "got 2 at row 1, expected 0 or 1 for"),
    (_multi, [0, 2], [3.0], "got 3 at row 0, expected whole .* 0 to 2"),
    (_softmax, [0.0, 2.0], [0.5], "got 0.5 at row 0"),
    (_theirs, [2.0], [3.0], "whole numbers from 0 to 2"),
    (lambda: ours.Ordinal([0.0, 1.0]), [0.0, 2.0], [3.0], "whole numbers from 0 to 2"),
    (likelihoods.Poisson, [0.0, 7.0], [0.5], "got 0.5 at row 0, expected whole numbers from 0"),
    (likelihoods.Exponential, [0.0], [-1.0], "expected numbers from 0"),
    (lambda: likelihoods.Gamma(shape=2.0), [1e-9], [1.0, 0.0], "got 0 at row 1, .* above 0"),
    (likelihoods.Gamma, [1e-9], [0.0], "above 0, or from 0 if shape is fixed at 1"),
    (_fixed_exponential, [0.0], [-1.0], "expected numbers from 0"),
    (likelihoods.Beta, [0.0, 1.0], [1.1], "numbers from 0 to 1"),
    (likelihoods.Gaussian, [-3.0], None, ""),
    (ours.NegativeBinomial, [0.0, 7.0], [0.5], "got 0.5 at row 0, expected whole numbers from 0"),
    (ours.ZeroInflatedPoisson, [0.0, 7.0], [-1.0], "got -1 at row 0, expected whole numbers from"),
    (ours.LogNormal, [1e-9, 1e9], [1.0, 0.0], "got 0 at row 1, expected numbers above 0"),
    (lambda: ours.Tobit(high=2.0), [-1e9, 2.0], [2.5], "numbers"),
    (lambda: ours.Tobit(low=1.0), [1.0], [0.5], "got 0.5 at row 0, expected numbers from 1"),
    (lambda: ours.Tobit(0.0, 1.0), [0.0, 1.0], [1.5], "expected numbers from 0 to 1 for"),
    (
        ours.Tobit,
        [[-1e9, -1.0], [2.0, 1.0], [3.0, 0.0]],
        [[0.5, 0.5]],
        "got 0.5 at row 0, expected numbers, and -1, 0 or 1",
    ),
    *(
        (_switched, [[1.0, 0.0], [5.0, 1.0]], rows, message)
        for rows, message in (
            ([[1.0, 0.0], [2.0, 0.0]], "got 2 at row 1, .*0 or 1 where the last column is 0"),
            ([[0.5, 1.0]], "got 0.5 at row 0, .*whole numbers from 0 where .* is 1"),
            ([[1.0, 2.0]], "got 2 at row 0, expected in the last column .* from 0 to 1"),
            ([[1.0, 0.5]], "got 0.5 at row 0, expected in the last column"),
        )
    ),
    (lambda: "Bernoulli", None, [0.0], "likelihood: got str, expected one of gpflow.likelihoods"),
]


@pytest.mark.parametrize("create, inside, outside, message", SUPPORTS)
def test_targets_outside_the_support_are_refused(
    create: Create, inside: Any, outside: Any, message: str
) -> None:
    accepted, refused = (
        None if rows is None else tf.reshape(tf.constant(rows), [len(rows), -1])
        for rows in (inside, outside)
    )
    if accepted is not None:
        check_support(create(), accepted)
    if refused is not None:
        with pytest.raises(ValueError, match=message):
            check_support(create(), refused)


def test_a_graph_has_no_values_to_check() -> None:
    @tf.function
    def checked(Y: tf.Tensor) -> tf.Tensor:
        check_support(likelihoods.Bernoulli(), Y)
        return Y

    checked(tf.constant([[2.0]]))


class ErrorBars(gpflow.functions.Function):  # type: ignore[misc]
    def __call__(self, X: tf.Tensor) -> tf.Tensor:
        return X[..., -1:] ** 2


def test_noise_of_each_row_is_a_function_of_it() -> None:
    """Several numbers are refused; with Z = X and error bars log Z is that of the exact process."""
    sd, Y = np.array([[0.1], [0.5], [0.2]]), np.array([[0.3], [-1.0], [2.0]])
    X, kernel = np.array([[0.0], [1.0], [2.5]]), gpflow.kernels.SquaredExponential(active_dims=[0])
    message = r"likelihood: got a .* of shape \(3,\), expected one number, or a gpflow.functions"
    gaussian = likelihoods.Gaussian(variance=[0.1, 0.2, 0.3])
    for likelihood in (gaussian, likelihoods.StudentT(scale=[0.1, 0.2, 0.3])):
        with pytest.raises(ValueError, match=message):
            pep.models.PEP((X, Y), kernel, likelihood, X)
    with pytest.raises(ValueError, match=message):
        pep.models.PEPRegression((X, Y), kernel, X, likelihood=gaussian)
    with pytest.raises(ValueError, match=r"noise_variance: got 3 numbers, expected one\. .* row"):
        pep.models.PEPRegression((X, Y), kernel, X, noise_variance=np.ones(3))

    rows, of_row = np.hstack([X, sd]), likelihoods.Gaussian(variance=ErrorBars())
    covariance = np.exp(-0.5 * (X - X.T) ** 2) + np.diag(sd[:, 0] ** 2)
    expected = multivariate_normal.logpdf(Y[:, 0], cov=covariance)
    for alpha in (0.0, 0.5, 1.0):
        options = {"alpha": alpha, "likelihood": of_row}
        model = pep.models.PEPRegression((rows, Y), kernel, rows.copy(), **options)
        np.testing.assert_allclose(model.pep_log_marginal_likelihood(), expected, rtol=1e-4)
        moments = model.predict_f(rows)[1] + sd**2, model.predict_y(rows)[1]
        np.testing.assert_allclose(*moments, rtol=1e-9)


def test_every_likelihood_has_an_entry_of_its_own() -> None:
    registered = {kinds[0] for kinds in support.funcs}
    bases = {"", "MonteCarlo", "MultiLatent", "Quadrature", "Scalar"}
    for module in (likelihoods, ours):
        for name, kind in inspect.getmembers(module, inspect.isclass):
            is_likelihood = issubclass(kind, likelihoods.Likelihood)
            if is_likelihood and name.removesuffix("Likelihood") not in bases:
                assert kind in registered, f"support.register({name}) is missing"


@pytest.mark.parametrize(
    "create, columns, num_latent, wrong",
    [
        (likelihoods.Bernoulli, 2, 2, None),
        (_multi, 1, 3, 2),
        (lambda: _softmax(4), 1, 4, 3),
        (likelihoods.HeteroskedasticTFPConditional, 1, 2, None),
        (_switched, 2, 1, 1),
    ],
)
def test_numbers_of_latent_functions_and_columns(
    create: Create, columns: int, num_latent: int, wrong: int | None
) -> None:
    Y = tf.zeros((3, columns))
    assert check_num_latent(None, create(), Y) == num_latent
    assert check_num_latent(num_latent, create(), Y) == num_latent
    with pytest.raises(ValueError, match=f"num_latent_gps: got 7, expected {num_latent}"):
        check_num_latent(7, create(), Y)
    if wrong:
        with pytest.raises(ValueError, match=f"Y: got {wrong} columns?, expected {columns}"):
            check_num_latent(None, create(), tf.zeros((3, wrong)))


_TWO = {"num_classes": 2, "follows_wider_priors": True}


@pytest.mark.parametrize(
    "create, expected",
    [
        (likelihoods.Bernoulli, _TWO),
        (ours.NoisyLabelBernoulli, _TWO),
        (_multi, {"num_classes": 3, "ignores_level": True, "follows_by_newton": True}),
        (lambda: _softmax(4), {"num_classes": 4, "ignores_level": True}),
        (likelihoods.Gamma, {"starts_at_high_powers": True, "follows_wider_priors": True}),
        (likelihoods.Beta, {}),
        (ours.NegativeBinomial, {"starts_at_high_powers": True}),
        (ours.ZeroInflatedPoisson, {"starts_at_high_powers": True}),
        (lambda: ours.Tobit(0.0), {}),
        (ours.LogNormal, {}),
        (lambda: ours.Ordinal.of_classes(4), {"num_classes": 4}),
        (Comparison, {}),
        (RegisteredComparison, {"num_classes": 2, "ignores_level": True}),
    ],
)
def test_traits(create: Create, expected: dict[str, Any]) -> None:
    others: dict[str, Any] = {"draw": None, "advice": "", "error_rate": None, "in_units": None}
    others["has_density"] = Traits().has_density
    others["predict"] = others["probabilities"] = None
    assert traits(create())._replace(**others) == Traits(**expected)


def test_traits_that_are_parameters_or_names() -> None:
    several, noisy = _multi(), ours.NoisyLabelBernoulli()
    assert traits(several).error_rate(several) is several.invlink.epsilon
    assert traits(noisy).error_rate(noisy) is noisy.epsilon
    for likelihood in (likelihoods.Bernoulli(), _softmax()):
        assert traits(likelihood).error_rate is None
    varying = likelihoods.Gaussian(variance=gpflow.functions.Polynomial(1))
    for likelihood in (varying, likelihoods.GaussianMC()):
        assert traits(likelihood).is_gaussian
    assert not traits(likelihoods.StudentT()).is_gaussian
    with pytest.raises(ValueError, match="likelihood: got Beta, expected one of classes, such as"):
        num_classes(likelihoods.Beta())


@pytest.mark.near_copies("Registered*")
@pytest.mark.parametrize("kind, is_coupled", [(Comparison, False), (RegisteredComparison, True)])
def test_several_classes_of_a_users_own_take_their_steps_together(
    kind: type[Comparison], is_coupled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps, together = [], sweep.mean_step
    monkeypatch.setattr(
        sweep, "mean_step", lambda *parts, **more: steps.append(parts) or together(*parts, **more)
    )
    X = np.linspace(0.0, 3.0, 5)[:, None]
    kernel, Y = gpflow.kernels.SquaredExponential(), (X > 1.0).astype(float)
    model = pep.PEP((X, Y), kernel, kind(), X[::2].copy(), alpha=0.5)
    assert model.update_sites(max_sweeps=3).num_sweeps > 0
    assert bool(steps) == is_coupled


def test_all_public_names_exist() -> None:
    assert all(hasattr(pep, public) for public in pep.__all__)
    for module in pkgutil.walk_packages(pep.__path__, f"{pep.__name__}."):
        if not any(part.startswith("_") for part in module.name.split(".")):
            imported = importlib.import_module(module.name)
            for public in getattr(imported, "__all__", ()):
                assert hasattr(imported, public), f"{module.name} has no {public}"
