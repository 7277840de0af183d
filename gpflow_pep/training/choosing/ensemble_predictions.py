"""Predictions of ensembles of Gaussian processes: moments, densities, quantiles and draws."""

import abc
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import AnyNDArray, InputData, MeanAndVariance, Module, RegressionData
from gpflow.likelihoods import Likelihood

from ...engine import checks
from ...engine.factors import class_probabilities, num_classes, predict_mean_and_var, traits
from ...engine.factors.entries import (
    check_entries,
    draw_targets,
    entry_log_power_expectation,
    has_gaussian_noise,
    takes_missing_targets,
    target_rule,
)
from ...engine.prior import is_mixed
from ...models.base import ADVICE, finite
from ...scoring.arguments import as_probabilities
from ...scoring.predictive import Predictive


class EnsemblePredictions(Module):
    """Predictions of an ensemble of Gaussian processes with one kind of likelihood.

    :param models: The components, of which only what their targets may be is kept.
    :param likelihoods: Of the components.
    :param weights: [K], at least 0, with sum 1.
    """

    def __init__(
        self, models: Sequence[Any], likelihoods: Sequence[Likelihood], weights: AnyNDArray
    ) -> None:
        super().__init__()
        self.likelihoods = list(likelihoods)
        self.weights = gpflow.Parameter(weights, trainable=False)
        self.takes_missing_targets = all(map(takes_missing_targets, models))
        self._mixes_outputs = any(is_mixed(model.kernel) for model in models)

    @abc.abstractmethod
    def components_of_f(
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
        """Compute mean and covariance of f under the ensemble, which is no Gaussian.

        :param full_cov: Whether to compute the covariances of rows.
        :param full_output_cov: Whether to compute those of outputs; not both.
        :raises ValueError: If both covariances are asked for.
        """
        if full_cov and full_output_cov:
            raise checks.refusal(
                "full_cov, full_output_cov", "both", "at most one", "Pass one of them."
            )
        moments = self.components_of_f(Xnew, full_cov, full_output_cov)
        return self.mix_moments(moments, full_cov, full_output_cov)

    @check_shapes("Xnew: [N, D]", "return[0]: [N, P]", "return[1]: [N, P]")
    def predict_y(self, Xnew: InputData) -> MeanAndVariance:
        """Compute mean and variance of new targets, with the spread of the components' means."""
        return finite(self.mix_moments(self.components_of_y(Xnew)))

    def components_of_y(self, Xnew: InputData) -> list[MeanAndVariance]:
        """Compute mean and variance of new targets under each component, [N, P]."""
        return [
            predict_mean_and_var(likelihood, Xnew, *moments_of_f)
            for likelihood, moments_of_f in self._components(Xnew)
        ]

    @check_shapes("data[0]: [N, D]", "data[1]: [N, P]", "return: [N]")
    def predict_log_density(self, data: RegressionData) -> tf.Tensor:
        r"""Compute :math:`\log \sum_k w_k p_k(y | x)` of new rows, exactly.

        :param data: X and Y of the rows; NaN in Y is left out if the components allow it.
        :raises ValueError: If a target is outside the likelihood's support.
        """
        rule, (X, Y) = target_rule(self), map(tf.convert_to_tensor, data)
        rule.check(self.likelihoods[0], Y)
        return self._mix_densities(rule.log_power_expectation, X, Y)

    @check_shapes("data[0]: [N, D]", "data[1]: [N, P]", "return: [N, P]")
    def predict_log_density_of_entries(self, data: RegressionData) -> tf.Tensor:
        r"""Compute :math:`\log \sum_k w_k p_k(y_p | x)` of each target of new rows; NaN of NaN.

        :param data: X and Y of the rows, where Y has NaN for what was not observed.
        :raises ValueError: If a target is outside its likelihood's support, or these are not of one
            latent function and target for each output.
        """
        X, Y = map(tf.convert_to_tensor, data)
        check_entries(self.likelihoods[0], Y)
        densities = self._mix_densities(entry_log_power_expectation, X, Y)
        return tf.where(tf.math.is_nan(Y), Y, densities)

    def _mix_densities(
        self, log_power_expectation: Callable[..., tf.Tensor], X: tf.Tensor, Y: tf.Tensor
    ) -> tf.Tensor:
        power = tf.ones([1], X.dtype)
        densities = tf.stack(
            [
                log_power_expectation(likelihood, X, *moments_of_f, Y, power)
                for likelihood, moments_of_f in self._components(X)
            ]
        )
        log_weights = tf.math.log(self._weights(densities))
        shape = [-1, *[1] * (densities.shape.rank - 1)]
        return tf.reduce_logsumexp(densities + tf.reshape(log_weights, shape), 0)

    @check_shapes("Xnew: [N, D]", "return: [N, C]")
    def predict_probabilities(self, Xnew: InputData) -> tf.Tensor:
        """Compute the probability of each class at new rows; refuse targets that are no classes."""
        number = num_classes(self.likelihoods[0])
        probabilities = [
            class_probabilities(likelihood, Xnew, *moments_of_f, number)
            for likelihood, moments_of_f in self._components(Xnew)
        ]
        w = self._weights(probabilities[0])
        mixed = tf.tensordot(w, tf.stack(probabilities), 1)
        return checks.require_finite(mixed, "prediction", ADVICE)

    @check_shapes("Xnew: [N, D]", "quantiles: [Q]", "return: [N, P, Q]")
    def predict_quantiles(self, Xnew: InputData, quantiles: Any = (0.05, 0.5, 0.95)) -> tf.Tensor:
        r"""Compute quantiles of new targets with Gaussian noise, :math:`\sum_k w_k F_k(y) = q`.

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
        means, variances = map(np.stack, zip(*self.components_of_y(Xnew), strict=True))
        predictive = Predictive(means, variances, self.weights.numpy())
        return tf.constant(predictive.quantiles(as_probabilities(quantiles)), means.dtype)

    @check_shapes("Xnew: [N, D]", "return: [S, N, P]")
    def predict_f_samples(
        self,
        Xnew: InputData,
        num_samples: int = 1,
        full_cov: bool = True,
        *,
        seed: int | None = None,
    ) -> tf.Tensor:
        """Draw f: first the component, then f at all rows under it.

        :param num_samples: S.
        :param full_cov: Whether rows are drawn jointly.
        :param seed: The same seed gives the same draws; None: others each time.
        """
        return tf.constant(self._draw_f(Xnew, num_samples, full_cov, seed)[1])

    @check_shapes("Xnew: [N, D]", "return: [S, N, P]")
    def predict_y_samples(
        self,
        Xnew: InputData,
        num_samples: int = 1,
        full_cov: bool = True,
        *,
        seed: int | None = None,
    ) -> tf.Tensor:
        """Draw targets given :meth:`predict_f_samples`, whose arguments these are.

        :raises ValueError: If nothing is known that draws from the likelihood.
        """
        if any(traits(likelihood).draw is None for likelihood in self.likelihoods):
            raise checks.refusal(
                "likelihood",
                type(self.likelihoods[0]).__name__,
                "one that can be drawn from, such as Gaussian, StudentT or Poisson",
                "Use predict_y.",
            )
        component, f, random = self._draw_f(Xnew, num_samples, full_cov, seed)
        y: list[AnyNDArray] = [np.empty(0)] * num_samples
        for k, likelihood in enumerate(self.likelihoods):
            chosen = np.flatnonzero(component == k)
            if len(chosen):
                latents = np.moveaxis(f[chosen], 0, 1)  # [N, S, L]
                drawn = draw_targets(likelihood, np.asarray(Xnew), latents, random)
                for place, values in zip(chosen, np.moveaxis(drawn, 1, 0)):
                    y[place] = values
        return tf.constant(np.stack(y))

    def _draw_f(
        self, Xnew: InputData, num_samples: int, full_cov: bool, seed: int | None
    ) -> tuple[AnyNDArray, AnyNDArray, np.random.Generator]:
        """Draw components [S] and f [S, N, L], and give the generator for what comes next."""
        checks.check_positive("num_samples", num_samples)
        random = np.random.default_rng(seed)
        component = random.choice(len(self.likelihoods), num_samples, p=self.weights.numpy())
        correlated = self._mixes_outputs  # the outputs of a row
        components = self.components_of_f(Xnew, full_cov, correlated)
        moments = [[part.numpy() for part in m] for m in components]
        f = np.empty([num_samples, *moments[0][0].shape], moments[0][0].dtype)
        for k, (mean, covariance) in enumerate(moments):
            chosen = component == k
            noise = random.standard_normal((np.sum(chosen), *mean.shape))
            if correlated:
                blocks = [1, mean.size] if full_cov else list(mean.shape)
                root = _root_of(covariance.reshape([*blocks, blocks[1]]))
                drawn = np.einsum("bij,sbj->sbi", root, noise.reshape([-1, *blocks]), optimize=True)
                f[chosen] = mean + drawn.reshape(noise.shape)
            elif full_cov:
                root = _root_of(covariance)
                f[chosen] = mean + np.einsum("pnm,smp->snp", root, noise, optimize=True)
            else:
                f[chosen] = mean + np.sqrt(covariance) * noise
        return component, f, random

    def _components(self, Xnew: InputData) -> Iterator[tuple[Likelihood, MeanAndVariance]]:
        return zip(self.likelihoods, self.components_of_f(Xnew), strict=True)

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


def _root_of(covariance: AnyNDArray) -> AnyNDArray:
    """Factorise covariances [..., M, M]; unlike a Cholesky factor this root never fails, where
    rounding makes values negative."""
    values, vectors = np.linalg.eigh(covariance)
    return vectors * np.sqrt(np.maximum(values, 0.0))[..., None, :]
