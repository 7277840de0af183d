"""Traits of likelihoods, also of one of the user's own."""

from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.base import TensorType

import gpflow_pep as pep
from gpflow_pep.engine.factors import num_classes
from gpflow_pep.engine.sites import sweep
from gpflow_pep.likelihoods import Traits, traits

likelihoods = gpflow.likelihoods


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


@pytest.mark.parametrize(
    "create, expected",
    [
        (likelihoods.Bernoulli, {"num_classes": 2, "follows_wider_priors": True}),
        (pep.likelihoods.NoisyLabelBernoulli, {"num_classes": 2, "follows_wider_priors": True}),
        (
            lambda: likelihoods.MultiClass(3),
            {"num_classes": 3, "ignores_level": True, "follows_by_newton": True},
        ),
        (lambda: likelihoods.Softmax(4), {"num_classes": 4, "ignores_level": True}),
        (likelihoods.Gamma, {"starts_at_high_powers": True, "follows_wider_priors": True}),
        (likelihoods.Beta, {}),
        (pep.likelihoods.NegativeBinomial, {"starts_at_high_powers": True}),
        (pep.likelihoods.ZeroInflatedPoisson, {"starts_at_high_powers": True}),
        (lambda: pep.likelihoods.Tobit(0.0), {}),
        (pep.likelihoods.LogNormal, {}),
        (lambda: pep.likelihoods.Ordinal.of_classes(4), {"num_classes": 4}),
        (Comparison, {}),
        (RegisteredComparison, {"num_classes": 2, "ignores_level": True}),
    ],
)
def test_traits(create: Callable[[], Any], expected: dict[str, Any]) -> None:
    others: dict[str, Any] = {"draw": None, "advice": "", "error_rate": None, "in_units": None}
    others["has_density"] = Traits().has_density
    others["predict"] = others["probabilities"] = None
    assert traits(create())._replace(**others) == Traits(**expected)


def test_rates_of_wrong_labels_are_parameters() -> None:
    several, noisy = likelihoods.MultiClass(3), pep.likelihoods.NoisyLabelBernoulli()
    assert traits(several).error_rate(several) is several.invlink.epsilon
    assert traits(noisy).error_rate(noisy) is noisy.epsilon
    for likelihood in (likelihoods.Bernoulli(), likelihoods.Softmax(3)):
        assert traits(likelihood).error_rate is None


def test_gaussian_noise_of_any_kind_is_gaussian() -> None:
    varying = likelihoods.Gaussian(variance=gpflow.functions.Polynomial(1))
    for likelihood in (varying, likelihoods.GaussianMC()):
        assert traits(likelihood).is_gaussian
    assert not traits(likelihoods.StudentT()).is_gaussian


def test_others_have_no_classes() -> None:
    with pytest.raises(ValueError, match="likelihood: got Beta, expected one of classes, such as"):
        num_classes(likelihoods.Beta())


@pytest.mark.near_copies("Registered*")
@pytest.mark.parametrize("kind, is_coupled", [(Comparison, False), (RegisteredComparison, True)])
def test_several_classes_of_a_users_own_take_their_steps_together(
    kind: type[Comparison], is_coupled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = []
    together = sweep.mean_step

    def noted(*parts: Any, **more: Any) -> Any:
        steps.append(parts)
        return together(*parts, **more)

    monkeypatch.setattr(sweep, "mean_step", noted)
    X = np.linspace(0.0, 3.0, 5)[:, None]
    kernel = gpflow.kernels.SquaredExponential()
    Y = (X > 1.0).astype(float)
    model = pep.PEP((X, Y), kernel, kind(), X[::2].copy(), alpha=0.5)
    assert model.update_sites(max_sweeps=3).num_sweeps > 0
    assert bool(steps) == is_coupled
