"""Models whose predictive density is a mixture of those of others."""

import abc
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from check_shapes import check_shapes
from gpflow.base import AnyNDArray, InputData, MeanAndVariance, Module, RegressionData
from gpflow.likelihoods import Likelihood
from gpflow.models import GPModel
from gpflow.posteriors import AbstractPosterior

from .. import checks
from ..models.base import finite
from ..tilted import class_probabilities, num_classes, predict_mean_and_var, traits
from ..tilted.entries import has_gaussian_noise, takes_missing_targets, target_rule
from .mixed_missing import impute_y
from .mixed_paths import draw_mixed_paths

#: Halvings of an interval: enough for all digits of a double.
_BISECTIONS = 60


class MixtureRecord(NamedTuple):
    """How a mixture came about."""

    alphas: tuple[float | None, ...]
    """The power of each component; None where it has none, or several."""

    log_densities: AnyNDArray
    """[K], the mean log density of the rows that were left out, in nats; NaN where unknown."""

    weights_from: str
    """``"leave-one-out"``, ``"held-out"``, ``"uniform"`` or ``"given"``."""


class Mixture(Module):
    """
    Predictions of a mixture of Gaussian processes with one kind of likelihood.

    :param likelihoods: Of the components.
    :param weights: [K], at least 0, with sum 1.
    """

    def __init__(self, likelihoods: Sequence[Likelihood], weights: AnyNDArray) -> None:
        super().__init__()
        self.likelihoods = list(likelihoods)
        self.weights = gpflow.Parameter(weights, trainable=False)
        self.takes_missing_targets = False

    @abc.abstractmethod
    def _components_of_f(
        self, Xnew: InputData, full_cov: bool = False, full_output_cov: bool = False
    ) -> Sequence[MeanAndVariance]:
        """Mean and covariance of f under each component."""

    @check_shapes(
        "Xnew: [N, D]",
        "return[0]: [N, P]",
        "return[1]: [P, N, N] if full_cov and (not full_output_cov)",
        "return[1]: [N, P, P] if (not full_cov) and full_output_cov",
        "return[1]: [N, P] if (not full_cov) and (not full_output_cov)",
    )
    def predict_f(
        self, Xnew: InputData, full_cov: bool = False, full_output_cov: bool = False
    ) -> MeanAndVariance:
        """
        Compute mean and covariance of f under the mixture, which is no Gaussian.

        :param Xnew: Where.
        :param full_cov: Whether to compute the covariances of rows.
        :param full_output_cov: Whether to compute those of outputs; not both.
        :raises ValueError: If both covariances are asked for.
        """
        if full_cov and full_output_cov:
            raise checks.refusal(
                "full_cov, full_output_cov", "both", "at most one", "Ask for one of them."
            )
        moments = self._components_of_f(Xnew, full_cov, full_output_cov)
        return self.mix_moments(moments, full_cov, full_output_cov)

    @check_shapes(
        "Xnew: [N, D]",
        "return[0]: [N, P]",
        "return[1]: [N, P]",
    )
    def predict_y(self, Xnew: InputData) -> MeanAndVariance:
        """
        Compute mean and variance of new targets, the spread of the components' means included.

        :param Xnew: Where.
        """
        return finite(self.mix_moments(self.components_of_y(Xnew)))

    def components_of_y(self, Xnew: InputData) -> list[MeanAndVariance]:
        """Compute mean and variance of new targets under each component, [N, P]."""
        return [
            predict_mean_and_var(likelihood, Xnew, *moments_of_f)
            for likelihood, moments_of_f in self._components(Xnew)
        ]

    @check_shapes(
        "data[0]: [N, D]",
        "data[1]: [N, P]",
        "return: [N]",
    )
    def predict_log_density(self, data: RegressionData) -> tf.Tensor:
        r"""
        Compute :math:`\log \sum_k w_k p_k(y | x)` of new rows, exactly.

        :param data: X and Y of the rows; NaN in Y is left out if the components know of it.
        :raises ValueError: If a target is outside the likelihood's support.
        """
        X, Y = map(tf.convert_to_tensor, data)
        power, rule = tf.ones([1], X.dtype), target_rule(self)
        rule.check(self.likelihoods[0], Y)
        densities = tf.stack(
            [
                rule.log_power_expectation(likelihood, X, *moments_of_f, Y, power)
                for likelihood, moments_of_f in self._components(X)
            ]
        )
        return tf.reduce_logsumexp(densities + tf.math.log(self._weights(densities))[:, None], 0)

    @check_shapes(
        "Xnew: [N, D]",
        "return: [N, C]",
    )
    def predict_probabilities(self, Xnew: InputData) -> tf.Tensor:
        """
        Compute the probability of each class at new rows.

        :param Xnew: Where.
        :raises ValueError: If the targets are no classes.
        """
        number = num_classes(self.likelihoods[0])
        probabilities = [
            class_probabilities(likelihood, Xnew, *moments_of_f, number)
            for likelihood, moments_of_f in self._components(Xnew)
        ]
        w = self._weights(probabilities[0])
        return tf.tensordot(w, tf.stack(probabilities), 1)

    @check_shapes(
        "Xnew: [N, D]",
        "quantiles: [Q]",
        "return: [N, P, Q]",
    )
    def predict_quantiles(self, Xnew: InputData, quantiles: Any = (0.05, 0.5, 0.95)) -> tf.Tensor:
        r"""
        Compute quantiles of new targets with Gaussian noise, by bisection.

        Each solves :math:`\sum_k w_k F_k(y) = q` between the smallest and the largest of the
        components' own quantiles.

        :param Xnew: Where.
        :param quantiles: Probabilities in (0, 1).
        :raises ValueError: If one is not, or if the noise is not Gaussian.
        """
        if not all(map(has_gaussian_noise, self.likelihoods)):
            raise checks.refusal(
                "predict_quantiles",
                f"the likelihood {type(self.likelihoods[0]).__name__}",
                "Gaussian noise",
                "Draw f by predict_f_samples, and targets given f.",
            )
        q = np.asarray(quantiles, dtype=np.float64)
        if not np.all((q > 0.0) & (q < 1.0)):
            raise checks.refusal(
                "quantiles", f"{quantiles!r}", "probabilities between 0 and 1", "Leave out 0 and 1."
            )
        moments = zip(*self.components_of_y(Xnew), strict=True)
        mean, variance = (tf.stack(part)[..., None] for part in moments)
        normal = tfp.distributions.Normal(mean, tf.sqrt(variance))  # [K, N, P, 1]
        q = tf.convert_to_tensor(q, mean.dtype)
        by_component = normal.quantile(q)
        low, high = tf.reduce_min(by_component, axis=0), tf.reduce_max(by_component, axis=0)
        w = self._weights(mean)
        for _ in range(_BISECTIONS):
            middle = 0.5 * (low + high)
            below = tf.tensordot(w, normal.cdf(middle), 1) < q
            low, high = tf.where(below, middle, low), tf.where(below, high, middle)
        return 0.5 * (low + high)

    @check_shapes(
        "Xnew: [N, D]",
        "return: [S, N, P]",
    )
    def predict_f_samples(
        self,
        Xnew: InputData,
        num_samples: int = 1,
        full_cov: bool = True,
        *,
        seed: int | None = None,
    ) -> tf.Tensor:
        """
        Draw f: first the component, then f at all rows under it.

        :param Xnew: Where.
        :param num_samples: S.
        :param full_cov: Whether rows are drawn jointly.
        :param seed: The same seed gives the same draws; None: others each time.
        """
        return tf.constant(self._draw_f(Xnew, num_samples, full_cov, seed)[1])

    @check_shapes(
        "Xnew: [N, D]",
        "return: [S, N, P]",
    )
    def predict_y_samples(
        self,
        Xnew: InputData,
        num_samples: int = 1,
        full_cov: bool = True,
        *,
        seed: int | None = None,
    ) -> tf.Tensor:
        """
        Draw targets given :meth:`predict_f_samples`, whose arguments these are.

        :raises ValueError: If nothing is known that draws from the likelihood.
        """
        draws = [traits(likelihood).draw for likelihood in self.likelihoods]
        if None in draws:
            raise checks.refusal(
                "likelihood",
                type(self.likelihoods[0]).__name__,
                "one that can be drawn from, such as Gaussian, StudentT or Poisson",
                "Use predict_y.",
            )
        component, f, random = self._draw_f(Xnew, num_samples, full_cov, seed)
        y: list[AnyNDArray] = [np.empty(0)] * num_samples
        for k, draw in enumerate(draws):
            chosen = np.flatnonzero(component == k)
            if len(chosen):
                latents = np.moveaxis(f[chosen], 0, 1)  # [N, S, L]
                latents = latents[..., 0] if f.shape[-1] == 1 else latents
                for place, drawn in zip(chosen, draw(np.asarray(Xnew), latents, random).T):
                    y[place] = drawn
        return tf.constant(np.stack(y)[..., None])

    def _draw_f(
        self, Xnew: InputData, num_samples: int, full_cov: bool, seed: int | None
    ) -> tuple[AnyNDArray, AnyNDArray, np.random.Generator]:
        """Draw components [S] and f [S, N, L], and give the generator for what comes next."""
        checks.check_positive("num_samples", num_samples)
        random = np.random.default_rng(seed)
        component = random.choice(len(self.likelihoods), num_samples, p=self.weights.numpy())
        moments = [[part.numpy() for part in m] for m in self._components_of_f(Xnew, full_cov)]
        f = np.empty([num_samples, *moments[0][0].shape], moments[0][0].dtype)
        for k, (mean, covariance) in enumerate(moments):
            chosen = component == k
            noise = random.standard_normal((np.sum(chosen), *mean.shape))
            if full_cov:
                # Unlike a Cholesky factor this root never fails: rounding can make values negative.
                values, vectors = np.linalg.eigh(covariance)
                root = vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]
                f[chosen] = mean + np.einsum("pnm,smp->snp", root, noise, optimize=True)
            else:
                f[chosen] = mean + np.sqrt(covariance) * noise
        return component, f, random

    def _components(self, Xnew: InputData) -> Iterator[tuple[Likelihood, MeanAndVariance]]:
        return zip(self.likelihoods, self._components_of_f(Xnew), strict=True)

    def _weights(self, like: tf.Tensor) -> tf.Tensor:
        return tf.cast(tf.convert_to_tensor(self.weights), like.dtype)

    def mix_moments(
        self,
        moments: Sequence[MeanAndVariance],
        full_cov: bool = False,
        full_output_cov: bool = False,
    ) -> MeanAndVariance:
        """Mix moments; the spread of the components' means adds to their covariances."""
        means, covariances = (tf.stack(part) for part in zip(*moments, strict=True))
        w = self._weights(means)
        mean = tf.tensordot(w, means, 1)
        apart = means - mean
        equation = {(True, False): "knp,kmp->kpnm", (False, True): "knp,knq->knpq"}.get(
            (full_cov, full_output_cov), "knp,knp->knp"
        )
        return mean, tf.tensordot(w, covariances + tf.einsum(equation, apart, apart), 1)


class MixedModel(Mixture):
    """
    A mixture of models of one kind of likelihood.

    Its predictions are those of :class:`Mixture` and follow the parameters of the models;
    :meth:`posterior` keeps what predictions need.

    :param models: The components: of one number of latent functions and one kind of likelihood.
    :param weights: [K], at least 0, with sum 1; None: all equal.
    :param record: How they came about.
    :raises ValueError: If the models or the weights do not fit together.
    """

    paths, impute_y = draw_mixed_paths, impute_y

    def __init__(
        self,
        models: Sequence[GPModel],
        weights: AnyNDArray | None = None,
        record: MixtureRecord | None = None,
    ) -> None:
        models = check_models(models)
        super().__init__(
            [model.likelihood for model in models], check_weights(weights, len(models))
        )
        self.models, self.record = models, record
        self.takes_missing_targets = all(map(takes_missing_targets, models))

    def posterior(self) -> "MixedPosterior":
        """Compute the posterior of each component, for fast predictions."""
        return mixed_posterior(self)

    def _components_of_f(
        self, Xnew: InputData, full_cov: bool = False, full_output_cov: bool = False
    ) -> Sequence[MeanAndVariance]:
        return [model.predict_f(Xnew, full_cov, full_output_cov) for model in self.models]


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

    def _components_of_f(
        self, Xnew: InputData, full_cov: bool = False, full_output_cov: bool = False
    ) -> Sequence[MeanAndVariance]:
        moments = [part.predict_f(Xnew, full_cov, full_output_cov) for part in self.posteriors]
        least = -np.inf if full_cov or full_output_cov else 0.0
        return [(mean, tf.maximum(variance, least)) for mean, variance in moments]  # of rounding


def mixed_posterior(model: GPModel | MixedModel) -> MixedPosterior:
    """Compute the posterior of a mixture, or of one model as a mixture of one."""
    models, weights = components(model)
    posteriors = [component.posterior() for component in models]
    mixed = MixedPosterior(posteriors, [component.likelihood for component in models], weights)
    mixed.takes_missing_targets = all(map(takes_missing_targets, models))
    return mixed


def components(model: GPModel | MixedModel) -> tuple[list[GPModel], AnyNDArray]:
    """Give the components of a mixture and their weights [K]; one model is its own."""
    if isinstance(model, MixedModel):
        return model.models, model.weights.numpy()
    return [model], np.ones(1)


def heaviest(model: GPModel | MixedModel) -> GPModel:
    """Give the component of the largest weight."""
    return max(zip(*components(model), strict=True), key=lambda pair: pair[1])[0]


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
