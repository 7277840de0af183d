"""What is registered of likelihoods: targets they refuse, numbers of columns,
traits.
"""

import importlib
import pkgutil
from functools import partial
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.base import TensorType

import gpflow_pep as pep
from gpflow_pep.engine.factors import check_num_latent, num_classes
from gpflow_pep.engine.sites import sweep
from gpflow_pep.likelihoods import Traits, check_support, traits

likelihoods = gpflow.likelihoods
ours = pep.likelihoods
Create = Any


class Comparison(likelihoods.MultiLatentLikelihood):  # type: ignore[misc]
    """Two classes, by the larger of two latent functions with logistic noise: a softmax
    of two.
    """

    def __init__(self) -> None:
        super().__init__(latent_dim=2)

    def _log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        return tf.math.log_sigmoid((2.0 * Y[..., 0] - 1.0) * (F[..., 1] - F[..., 0]))


class RegisteredComparison(Comparison):
    pass


traits.register(RegisteredComparison)(
    lambda _: Traits(num_classes=2, ignores_level=True)
)


def _fixed_exponential() -> gpflow.likelihoods.Likelihood:
    likelihood = likelihoods.Gamma()
    gpflow.set_trainable(likelihood.shape, False)
    return likelihood


def _switched() -> gpflow.likelihoods.Likelihood:
    return likelihoods.SwitchedLikelihood(
        [ours.NoisyLabelBernoulli(), likelihoods.Poisson()]
    )


_multi = partial(likelihoods.MultiClass, 3)
_softmax = partial(likelihoods.Softmax, 4)
#: A likelihood, targets in its support, others that are outside, and words of the
#: message.
SUPPORTS: list[tuple[Create, Any, Any, str]] = [
    (
        likelihoods.Bernoulli,
        [0.0, 1.0],
        [1.0, 2.0],
        "got 2 at row 1, expected 0 or 1 .* Bernoulli",
    ),
    (
        ours.NoisyLabelBernoulli,
        [0.0, 1.0],
        [1.0, 2.0],
        "got 2 at row 1, expected 0 or 1 for",
    ),
    (_multi, [0, 2], [3.0], "got 3 at row 0, expected whole .* 0 to 2"),
    (_softmax, [0.0, 3.0], [0.5], "got 0.5 at row 0"),
    (
        partial(likelihoods.Ordinal, np.array([0.0, 1.0])),
        [2.0],
        [3.0],
        "numbers from 0 to 2",
    ),
    (lambda: ours.Ordinal([0.0, 1.0]), [0.0, 2.0], [3.0], "whole numbers from 0 to 2"),
    (
        likelihoods.Poisson,
        [0.0, 7.0],
        [0.5],
        "got 0.5 at row 0, expected whole numbers from 0",
    ),
    (likelihoods.Exponential, [0.0], [-1.0], "expected numbers from 0"),
    (
        lambda: likelihoods.Gamma(shape=2.0),
        [1e-9],
        [1.0, 0.0],
        "got 0 at row 1, .* above 0",
    ),
    (likelihoods.Gamma, [1e-9], [0.0], "above 0, or from 0 if shape is fixed at 1"),
    (_fixed_exponential, [0.0], [-1.0], "expected numbers from 0"),
    (likelihoods.Beta, [0.0, 1.0], [1.1], "numbers from 0 to 1"),
    (likelihoods.Gaussian, [-3.0], None, ""),
    (
        ours.NegativeBinomial,
        [0.0, 7.0],
        [0.5],
        "got 0.5 at row 0, expected whole numbers from 0",
    ),
    (
        ours.LogNormal,
        [1e-9, 1e9],
        [1.0, 0.0],
        "got 0 at row 1, expected numbers above 0",
    ),
    (lambda: ours.Tobit(high=2.0), [-1e9, 2.0], [2.5], "numbers"),
    (
        lambda: ours.Tobit(low=1.0),
        [1.0],
        [0.5],
        "got 0.5 at row 0, expected numbers from 1",
    ),
    (
        lambda: ours.Tobit(0.0, 1.0),
        [0.0, 1.0],
        [1.5],
        "expected numbers from 0 to 1 for",
    ),
    (
        ours.Tobit,
        [[-9.0, -1.0], [2.0, 1.0], [3.0, 0.0]],
        [[0.5, 0.5]],
        "got 0.5 .*, and -1, 0 or 1",
    ),
    *(
        (_switched, [[1.0, 0.0], [5.0, 1.0]], rows, message)
        for rows, message in (
            (
                [[1.0, 0.0], [2.0, 0.0]],
                "got 2 at row 1, .*0 or 1 if the last column is 0",
            ),
            ([[0.5, 1.0]], "got 0.5 at row 0, .*whole numbers from 0 if .* is 1"),
            (
                [[1.0, 2.0]],
                "got 2 at row 0, expected in the last column .* from 0 to 1",
            ),
            ([[1.0, 0.5]], "got 0.5 at row 0, expected in the last column"),
        )
    ),
    (
        lambda: "Bernoulli",
        None,
        [0.0],
        "likelihood: got str, expected a likelihood of gpflow.likelihoods",
    ),
]


@pytest.mark.parametrize("create, inside, outside, message", SUPPORTS)
def test_targets_outside_the_support_are_refused(
    create: Create, inside: Any, outside: Any, message: str
) -> None:
    likelihood = create()
    if inside is not None:
        check_support(likelihood, tf.reshape(tf.constant(inside), [len(inside), -1]))
    if outside is not None:
        refused = tf.reshape(tf.constant(outside), [len(outside), -1])
        with pytest.raises(ValueError, match=message):
            check_support(likelihood, refused)
        if create is likelihoods.Bernoulli:  # a graph has no values to check
            tf.function(lambda Y: check_support(likelihood, Y), autograph=False)(
                refused
            )


def test_noise_of_each_row_is_a_function_of_it() -> None:
    X = np.arange(3.0)[:, None]
    Y = np.ones((3, 1))
    kernel = gpflow.kernels.SquaredExponential()
    message = (
        r"likelihood: got a .* of shape \(3,\), expected one number, or a"
        r" gpflow.functions"
    )
    gaussian = likelihoods.Gaussian(variance=[0.1, 0.2, 0.3])
    for likelihood in (gaussian, likelihoods.StudentT(scale=[0.1, 0.2, 0.3])):
        with pytest.raises(ValueError, match=message):
            pep.models.PEP((X, Y), kernel, likelihood, X)
    with pytest.raises(ValueError, match=message):
        pep.models.PEPRegression((X, Y), kernel, X, likelihood=gaussian)
    with pytest.raises(
        ValueError, match=r"noise_variance: got 3 numbers, expected one\. .* row"
    ):
        pep.models.PEPRegression((X, Y), kernel, X, noise_variance=np.ones(3))


@pytest.mark.parametrize(
    "create, columns, num_latent, wrong",
    [
        (likelihoods.Bernoulli, 2, 2, None),
        (_multi, 1, 3, 2),
        (_softmax, 1, 4, 3),
        (likelihoods.HeteroskedasticTFPConditional, 1, 2, None),
        (_switched, 2, 1, 1),
    ],
)
def test_numbers_of_latent_functions_and_columns(
    create: Create, columns: int, num_latent: int, wrong: int | None
) -> None:
    Y = tf.zeros((3, columns))
    for given in (None, num_latent):
        assert check_num_latent(given, create(), Y) == num_latent
    with pytest.raises(
        ValueError, match=f"num_latent_gps: got 7, expected {num_latent}"
    ):
        check_num_latent(7, create(), Y)
    if wrong:
        with pytest.raises(
            ValueError, match=f"Y: got {wrong} columns?, expected {columns}"
        ):
            check_num_latent(None, create(), tf.zeros((3, wrong)))


_TWO = {"num_classes": 2, "follows_wider_priors": True}


@pytest.mark.parametrize(
    "create, expected",
    [
        (likelihoods.Bernoulli, _TWO),
        (ours.NoisyLabelBernoulli, _TWO),
        (_multi, {"num_classes": 3, "ignores_level": True, "follows_by_newton": True}),
        (_softmax, {"num_classes": 4, "ignores_level": True}),
        (
            likelihoods.Gamma,
            {"starts_at_high_powers": True, "follows_wider_priors": True},
        ),
        (likelihoods.Beta, {}),
        (ours.NegativeBinomial, {"starts_at_high_powers": True}),
        (lambda: ours.Tobit(0.0), {}),
        (ours.LogNormal, {}),
        (lambda: ours.Ordinal.of_classes(4), {"num_classes": 4}),
        (Comparison, {}),
        (RegisteredComparison, {"num_classes": 2, "ignores_level": True}),
    ],
)
def test_traits(create: Create, expected: dict[str, Any]) -> None:
    others: dict[str, Any] = {
        "draw": None,
        "advice": "",
        "in_units": None,
    }
    others |= {
        "has_density": Traits().has_density,
        "predict": None,
        "probabilities": None,
    }
    assert traits(create())._replace(**others) == Traits(**expected)


def test_which_likelihoods_are_gaussian() -> None:
    varying = likelihoods.Gaussian(variance=gpflow.functions.Polynomial(1))
    for likelihood in (varying, likelihoods.GaussianMC()):
        assert traits(likelihood).is_gaussian
    assert not traits(likelihoods.StudentT()).is_gaussian
    with pytest.raises(
        ValueError,
        match="likelihood: got Beta, expected a likelihood of classes, such as",
    ):
        num_classes(likelihoods.Beta())


@pytest.mark.near_copies("Registered*")
@pytest.mark.parametrize(
    "kind, is_coupled", [(Comparison, False), (RegisteredComparison, True)]
)
def test_several_classes_of_a_users_own_take_their_steps_together(
    kind: type[Comparison], is_coupled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = []
    together = sweep.mean_step
    monkeypatch.setattr(
        sweep,
        "mean_step",
        lambda *parts, **more: steps.append(parts) or together(*parts, **more),
    )
    X = np.linspace(0.0, 3.0, 5)[:, None]
    kernel = gpflow.kernels.SquaredExponential()
    Y = (X > 1.0).astype(float)
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
