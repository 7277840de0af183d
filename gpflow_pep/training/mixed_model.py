"""Models whose predictive density is a mixture of those of others."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray, InputData, MeanAndVariance
from gpflow.kernels import Kernel
from gpflow.likelihoods import Likelihood
from gpflow.models import GPModel
from gpflow.posteriors import AbstractPosterior

from .. import checks
from ..tilted.entries import takes_missing_targets
from .mixed_missing import impute_y
from .mixed_paths import draw_mixed_paths
from .mixture import Mixture
from .near_rows import GivenRows, near_likelihood, near_posterior


class MixtureRecord(NamedTuple):
    """How a mixture came about."""

    alphas: tuple[float | None, ...]
    """The power of each component; None where it has none, or several."""

    log_densities: AnyNDArray
    """[K], the mean log density of the rows that were left out, in nats; NaN where unknown."""

    weights_from: str
    """``"leave-one-out"``, ``"held-out"``, ``"uniform"`` or ``"given"``."""


class MixedModel(Mixture):
    """
    A mixture of models of one kind of likelihood.

    Its predictions are those of :class:`Mixture` and follow the parameters of the models;
    :meth:`posterior` keeps what predictions need.

    :param models: The components: of one number of latent functions and one kind of likelihood.
    :param weights: [K], at least 0, with sum 1; None: all equal.
    :param record: How they came about.
    :param near: How the predictions of each component know near training rows
        (:mod:`gpflow_pep.training.near_rows`), None where they do not; None: none does.
    :raises ValueError: If the models or the weights do not fit together.
    """

    paths, impute_y = draw_mixed_paths, impute_y

    def __init__(
        self,
        models: Sequence[GPModel],
        weights: AnyNDArray | None = None,
        record: MixtureRecord | None = None,
        near: Sequence[GivenRows | None] | None = None,
    ) -> None:
        models = check_models(models)
        self.near = (None,) * len(models) if near is None else tuple(near)
        pairs = zip(models, self.near, strict=True)
        likelihoods = [near_likelihood(*pair) for pair in pairs]
        super().__init__(likelihoods, check_weights(weights, len(models)))
        self.models, self.record = models, record
        self.takes_missing_targets = all(map(takes_missing_targets, models))

    @property
    def _kernels(self) -> list[Kernel]:
        return [model.kernel for model in self.models]

    def posterior(self) -> "MixedPosterior":
        """Compute the posterior of each component, for fast predictions."""
        return mixed_posterior(self)

    def _components_of_f(
        self, Xnew: InputData, full_cov: bool = False, full_output_cov: bool = False
    ) -> Sequence[MeanAndVariance]:
        options = full_cov, full_output_cov
        return [
            model.predict_f(Xnew, *options)
            if near is None
            else near_posterior(model, near, "nocache").fused_predict_f(Xnew, *options)
            for model, near in zip(self.models, self.near, strict=True)
        ]


class MixedPosterior(Mixture):
    """
    The posteriors of a :class:`MixedModel`, which do not follow its parameters.

    :param posteriors: GPflow posteriors.
    :param likelihoods: Of the components.
    :param weights: [K].
    """

    def __init__(
        self,
        posteriors: Sequence[AbstractPosterior],
        likelihoods: Sequence[Likelihood],
        weights: AnyNDArray,
    ) -> None:
        super().__init__(likelihoods, weights)
        self.posteriors = list(posteriors)

    @property
    def _kernels(self) -> list[Kernel]:
        return [posterior.kernel for posterior in self.posteriors]

    def _components_of_f(
        self, Xnew: InputData, full_cov: bool = False, full_output_cov: bool = False
    ) -> Sequence[MeanAndVariance]:
        moments = [part.predict_f(Xnew, full_cov, full_output_cov) for part in self.posteriors]
        least = -np.inf if full_cov or full_output_cov else 0.0
        return [(mean, tf.maximum(variance, least)) for mean, variance in moments]  # of rounding


class GivenOutputs(Mixture):
    """
    Predictions of a mixture given outputs of the same rows that are known.

    Each component is conditioned on them, see :meth:`~gpflow_pep.models.PEP.predict_f`; the weights
    stay as they are. Rows are independent of each other given the training rows' u.

    :param models: Models whose outputs are mixtures of latent functions.
    :param weights: [K].
    :param known: Targets of the rows that are predicted, [N, P], NaN where they are not known.
    """

    def __init__(self, models: Sequence[Any], weights: AnyNDArray, known: AnyNDArray) -> None:
        super().__init__([model.likelihood for model in models], weights)
        self.models, self.known = list(models), known

    @property
    def _kernels(self) -> list[Kernel]:
        return [model.kernel for model in self.models]

    def _components_of_f(
        self, Xnew: InputData, full_cov: bool = False, full_output_cov: bool = False
    ) -> Sequence[MeanAndVariance]:
        options = full_cov, full_output_cov
        return [model.predict_f(Xnew, *options, given=self.known) for model in self.models]


def mixed_posterior(
    model: GPModel | MixedModel, posteriors: Sequence[AbstractPosterior] | None = None
) -> MixedPosterior:
    """
    Compute the posterior of a mixture, or of one model as a mixture of one.

    :param posteriors: Those of the components, where they are known already.
    """
    (models, weights), near = components(model), near_rows(model)
    if posteriors is None:
        posteriors = [near_posterior(*pair, "tensor") for pair in zip(models, near, strict=True)]
    likelihoods = getattr(model, "likelihoods", [component.likelihood for component in models])
    mixed = MixedPosterior(posteriors, likelihoods, weights)
    mixed.takes_missing_targets = all(map(takes_missing_targets, models))
    return mixed


def components(model: GPModel | MixedModel) -> tuple[list[GPModel], AnyNDArray]:
    """Give the components of a mixture and their weights [K]; one model is its own."""
    if isinstance(model, MixedModel):
        return model.models, model.weights.numpy()
    return [model], np.ones(1)


def near_rows(model: GPModel | MixedModel) -> Sequence[GivenRows | None]:
    """Say how each component of a mixture knows near training rows; one model does not."""
    return model.near if isinstance(model, MixedModel) else [None]


def heaviest(model: GPModel | MixedModel, *, from_points: bool = False) -> GPModel:
    """
    Give the component of the largest weight.

    :param from_points: Whether it must not be one that is trained to predict from near rows alone.
    """
    alone = [near is not None and near.noise_variance is None for near in near_rows(model)]
    candidates = zip(*components(model), alone, strict=True)
    return max(candidates, key=lambda part: (not (from_points and part[2]), part[1]))[0]


def check_models(models: Sequence[GPModel]) -> list[GPModel]:
    models = list(models)
    kinds = {(type(model.likelihood), model.num_latent_gps) for model in models}
    if len(kinds) != 1:
        raise checks.refusal(
            "models",
            f"{len(models)} models with {len(kinds)} kinds of likelihood or numbers of latent"
            " functions",
            "at least one model, and one kind of likelihood",
            "Mix models of the same targets.",
        )
    return models


def check_weights(weights: Any, num_components: int) -> AnyNDArray:
    if weights is None:
        return np.full(num_components, 1.0 / num_components)
    values: AnyNDArray = np.asarray(weights, dtype=np.float64)
    if values.shape != (num_components,) or not np.all(values >= 0.0) or not values.sum() > 0.0:
        expected = f"{num_components} numbers of at least 0, not all 0"
        raise checks.refusal("weights", repr(weights), expected, "Give one for each component.")
    # Those that were divided once stay as they are, so that a mixture that was saved is the same.
    total = values.sum()
    return values if abs(total - 1.0) < 1e-14 * len(values) else values / total
