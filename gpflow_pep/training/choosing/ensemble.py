"""Models whose predictive density is a mixture of the densities of other models:
moments, densities and draws.
"""

import abc
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import (
    AnyNDArray,
    InputData,
    MeanAndVariance,
    Module,
    RegressionData,
    TensorType,
)
from gpflow.likelihoods import Likelihood
from gpflow.models import GPModel
from gpflow.posteriors import AbstractPosterior

from ...distributions import Predictive
from ...distributions.cutting import record_cut
from ...distributions.mixtures import draws_of_mixture, mixed_moments, weighted_sum
from ...engine import checks
from ...engine.factors import (
    class_probabilities,
    num_classes,
    predict_mean_and_var,
    traits,
)
from ...engine.factors.entries import (
    check_entries,
    draw_targets,
    entry_log_power_expectation,
    has_gaussian_noise,
    takes_missing_targets,
    target_rule,
)
from ...engine.predictions.context_posterior import as_near
from ...engine.predictions.context_rows import NearRows
from ...engine.prior import is_mixed
from ...engine.prior.evaluate import skip_autograph
from ...engine.refusals.numbers import as_probabilities
from ...models.base import ADVICE, finite, q_once
from ...models.mixed import predict_f_of_readings
from ...scoring.components import moments_anywhere, rows_of_anywhere


class EnsemblePredictions(Module):
    """Predictions of an ensemble of Gaussian processes with one kind of likelihood.

    :param models: The components. Only the checks of their targets are kept.
    :param likelihoods: The likelihoods of the components.
    :param weights: The weights, [K], at least 0, with sum 1.
    """

    def __init__(
        self,
        models: Sequence[Any],
        likelihoods: Sequence[Likelihood],
        weights: AnyNDArray,
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
        """Compute mean and covariance of f under each component."""

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
        """Compute mean and covariance of f under the ensemble. The density of f is a
        mixture, not a Gaussian.

        :param full_cov: Whether to compute the covariances of rows.
        :param full_output_cov: Whether to compute the covariances of outputs; not both.
        :raises ValueError: If both covariances are requested.
        """
        if full_cov and full_output_cov:
            raise checks.refusal(
                "full_cov, full_output_cov", "both", "at most one", "Pass one of them."
            )
        moments = self.components_of_f(Xnew, full_cov, full_output_cov)
        return self.mix_moments(moments, full_cov, full_output_cov)

    @check_shapes("Xnew: [N, D]", "return[0]: [N, P]", "return[1]: [N, P]")
    def predict_y(self, Xnew: InputData) -> MeanAndVariance:
        """Compute mean and variance of new targets. The variance includes the spread of
        the components' means.
        """
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

        :param data: X and Y of the rows; NaN in Y is left out if the components allow
            it.
        :raises ValueError: If a target is outside the likelihood's support.
        """
        rule, (X, Y) = target_rule(self), map(tf.convert_to_tensor, data)
        rule.check(self.likelihoods[0], Y)
        return self._mix_densities(rule.log_power_expectation, X, Y)

    @check_shapes("data[0]: [N, D]", "data[1]: [N, P]", "return: [N, P]")
    def predict_log_density_of_entries(self, data: RegressionData) -> tf.Tensor:
        r"""Compute :math:`\log \sum_k w_k p_k(y_p | x)` of each target of new rows; NaN
        for missing targets.

        :param data: X and Y of the rows; NaN in Y marks a missing target.
        :raises ValueError: If a target is outside the support of its likelihood, or if
            the likelihoods do not have one latent function and one target for each
            output.
        """
        X, Y = map(tf.convert_to_tensor, data)
        check_entries(self.likelihoods[0], Y)
        densities = self._mix_densities(entry_log_power_expectation, X, Y)
        return tf.where(tf.math.is_nan(Y), Y, densities)

    def _mix_densities(
        self,
        log_power_expectation: Callable[..., tf.Tensor],
        X: tf.Tensor,
        Y: tf.Tensor,
    ) -> tf.Tensor:
        power = tf.ones([1], X.dtype)
        densities = tf.stack(
            [
                log_power_expectation(likelihood, X, *moments_of_f, Y, power)
                for likelihood, moments_of_f in self._components(X)
            ]
        )
        log_weights = tf.math.log(tf.stack(self._weights(densities)))
        shape = [-1, *[1] * (densities.shape.rank - 1)]
        return tf.reduce_logsumexp(densities + tf.reshape(log_weights, shape), 0)

    @check_shapes("Xnew: [N, D]", "return: [N, C]")
    def predict_probabilities(self, Xnew: InputData) -> tf.Tensor:
        """Compute the probability of each class at new rows; refuse targets that are
        not classes.
        """
        count = num_classes(self.likelihoods[0])
        probabilities = [
            class_probabilities(likelihood, Xnew, *moments_of_f, count)
            for likelihood, moments_of_f in self._components(Xnew)
        ]
        weights = self._weights(probabilities[0])
        mixed = weighted_sum(weights, probabilities)
        return checks.require_finite(mixed, "prediction", ADVICE)

    @check_shapes("Xnew: [N, D]", "quantiles: [Q]", "return: [N, P, Q]")
    def predict_quantiles(
        self, Xnew: InputData, quantiles: Any = (0.05, 0.5, 0.95)
    ) -> tf.Tensor:
        r"""Compute quantiles of new targets with Gaussian noise,
        :math:`\sum_k w_k F_k(y) = q`.

        :param quantiles: Probabilities in (0, 1).
        :raises ValueError: If a probability is outside (0, 1), or if the noise is not
            Gaussian.
        """
        if not all(map(has_gaussian_noise, self.likelihoods)):
            raise checks.refusal(
                "predict_quantiles",
                f"the likelihood {type(self.likelihoods[0]).__name__}",
                "Gaussian noise",
                "Draw f with predict_f_samples, and draw targets given f.",
            )
        means, variances = map(np.stack, zip(*self.components_of_y(Xnew), strict=True))
        predictive = Predictive(means, variances, self.weights.numpy())
        return tf.constant(
            predictive.quantiles(as_probabilities(quantiles)), means.dtype
        )

    @check_shapes("Xnew: [N, D]", "return: [S, N, P]")
    def predict_f_samples(
        self,
        Xnew: InputData,
        num_samples: int = 1,
        full_cov: bool = True,
        *,
        seed: int | None = None,
    ) -> tf.Tensor:
        """Draw f: first the component, and then f at all rows under this component.

        :param num_samples: The number of draws, S.
        :param full_cov: Whether rows are drawn jointly.
        :param seed: Seed of the draws: the same seed gives the same draws. None gives
            new draws each time.
        """
        return self._draw(Xnew, num_samples, full_cov, seed, lambda k, f, random: f)

    @check_shapes("Xnew: [N, D]", "return: [S, N, P]")
    def predict_y_samples(
        self,
        Xnew: InputData,
        num_samples: int = 1,
        full_cov: bool = True,
        *,
        seed: int | None = None,
    ) -> tf.Tensor:
        """Draw f and then targets given f. The arguments are the same as in
        :meth:`predict_f_samples`.

        :raises ValueError: If the likelihood cannot be sampled.
        """
        if any(traits(likelihood).draw is None for likelihood in self.likelihoods):
            raise checks.refusal(
                "likelihood",
                type(self.likelihoods[0]).__name__,
                "a likelihood that can be sampled, such as Gaussian, StudentT or"
                " Poisson",
                "Use predict_y.",
            )

        def draw_y(k: int, f: AnyNDArray, random: np.random.Generator) -> AnyNDArray:
            latents = np.moveaxis(f, 0, 1)  # [N, S, L]
            y = draw_targets(self.likelihoods[k], np.asarray(Xnew), latents, random)
            return np.moveaxis(y, 1, 0)

        return self._draw(Xnew, num_samples, full_cov, seed, draw_y)

    def _draw(
        self,
        Xnew: InputData,
        num_samples: int,
        full_cov: bool,
        seed: int | None,
        given_f: Callable[[int, AnyNDArray, np.random.Generator], AnyNDArray],
    ) -> tf.Tensor:
        """Draw from the mixture, [S, N, P]: f under a component, and then ``given_f``
        of the component's number and f.
        """
        checks.check_positive("num_samples", num_samples)
        random = np.random.default_rng(seed)
        moments = self.components_of_f(Xnew, full_cov, self._mixes_outputs)

        def draw(k: int, number: int) -> AnyNDArray:
            mean, covariance = (part.numpy() for part in moments[k])
            noise = random.standard_normal((number, *mean.shape))
            f = mean + self._correlate(noise, covariance, full_cov)
            return given_f(k, f.astype(mean.dtype), random)

        weights = self.weights.numpy()
        return tf.constant(draws_of_mixture(weights, num_samples, random, draw))

    def _correlate(
        self, noise: AnyNDArray, covariance: AnyNDArray, full_cov: bool
    ) -> AnyNDArray:
        """Convert standard normal draws [S, N, L] to draws with the covariance of f."""
        if self._mixes_outputs:  # the outputs of a row depend on each other
            shape = noise.shape[1:]
            blocks = [1, shape[0] * shape[1]] if full_cov else list(shape)
            root = _root_of(covariance.reshape([*blocks, blocks[1]]))
            drawn = np.einsum(
                "bij,sbj->sbi", root, noise.reshape([-1, *blocks]), optimize=True
            )
            return np.asarray(drawn.reshape(noise.shape))
        if full_cov:
            root = _root_of(covariance)
            return np.asarray(np.einsum("pnm,smp->snp", root, noise, optimize=True))
        return np.asarray(np.sqrt(covariance) * noise)

    def _components(
        self, Xnew: InputData
    ) -> Iterator[tuple[Likelihood, MeanAndVariance]]:
        return zip(self.likelihoods, self.components_of_f(Xnew), strict=True)

    def _weights(self, like: tf.Tensor) -> list[tf.Tensor]:
        return tf.unstack(tf.cast(tf.convert_to_tensor(self.weights), like.dtype))

    def mix_moments(
        self,
        moments: Sequence[MeanAndVariance],
        full_cov: bool = False,
        full_output_cov: bool = False,
    ) -> MeanAndVariance:
        """Mix moments; the spread of the components' means adds to their
        covariances.
        """

        def outer(apart: tf.Tensor) -> tf.Tensor:
            if full_cov:
                return tf.einsum("np,mp->pnm", apart, apart)
            if full_output_cov:
                return tf.einsum("np,nq->npq", apart, apart)
            return tf.square(apart)

        means, covariances = zip(*moments, strict=True)
        return mixed_moments(self._weights(means[0]), means, covariances, outer)


def _root_of(covariance: AnyNDArray) -> AnyNDArray:
    """Factorise covariances [..., M, M]. Unlike a Cholesky factorisation this never
    fails if rounding makes eigenvalues negative.
    """
    values, vectors = np.linalg.eigh(covariance)
    return vectors * np.sqrt(np.maximum(values, 0.0))[..., None, :]


class EnsembleRecord(NamedTuple):
    """How the weights of an ensemble were chosen."""

    alphas: tuple[float | None, ...]
    """The power of each component; None if it has no power or several."""

    log_densities: AnyNDArray
    """The mean log density of left-out rows for each component, [K], in nats; NaN if
    unknown.
    """

    weights_from: (
        str  #: ``"leave-one-out"``, ``"held-out"``, ``"uniform"`` or ``"given"``.
    )


class Ensemble(EnsemblePredictions):
    """An ensemble of models of one kind of likelihood.

    The predictions are described in :class:`EnsemblePredictions` and follow the
    parameters of the models; :meth:`posterior` stores what predictions need.

    :param models: The components, which have the same number of latent functions and
        one kind of likelihood.
    :param weights: The weights, [K], each at least 0, with sum 1; None makes them
        equal.
    :param record: How the weights were chosen.
    :param near: How the predictions of each component use near training rows
        (:mod:`gpflow_pep.training.choosing.near`), with None for a component that does
        not. None if no component uses near rows.
    :param known: For mixed outputs: known outputs of the predicted rows, [N, P], with
        NaN for unknown ones. Each component is conditioned on them
        (:meth:`~gpflow_pep.models.PEP.predict_f`), and the weights do not change. The
        prediction of a known output describes a further measurement, with other white
        noise.
    :raises ValueError: If the models or the weights do not fit together.
    """

    def __init__(
        self,
        models: Sequence[GPModel],
        weights: AnyNDArray | None = None,
        record: EnsembleRecord | None = None,
        near: Sequence[NearRows | None] | None = None,
        known: AnyNDArray | None = None,
    ) -> None:
        models = check_models(models)
        self.near = (None,) * len(models) if near is None else tuple(near)
        likelihoods = [*map(_likelihood_of_targets, models, self.near)]
        super().__init__(models, likelihoods, check_weights(weights, len(models)))
        self.models = models
        self.record = record
        self._known = known

    def posterior(self) -> "EnsemblePosterior":
        """Compute the posterior of each component, for fast predictions."""
        return ensemble_posterior(self)

    @check_shapes("return[0]: [N, P]", "return[1]: [N, P]")
    def impute_y(self) -> MeanAndVariance:
        """Compute mean and variance of the missing targets in the rows of the data, as
        ``impute_y`` of the components does, including the spread of their means.

        :raises ValueError: If the components do not have mixed outputs.
        """
        if not all(is_mixed(model.kernel) for model in self.models):
            got = type(self.models[0]).__name__
            expected = "models whose outputs are mixed"
            raise checks.refusal("impute_y", got, expected, "Use predict_y.")
        return finite(self.mix_moments([model.impute_y() for model in self.models]))

    def components_of_f(
        self, Xnew: InputData, full_cov: bool = False, full_output_cov: bool = False
    ) -> Sequence[MeanAndVariance]:
        options: list[dict[str, Any]] = [
            {"near": near} if near else {} for near in self.near
        ]
        if self._known is not None and not (full_cov or full_output_cov):
            return [
                predict_f_of_readings(model, Xnew, self._known) for model in self.models
            ]
        if self._known is not None:
            options = [{"given": self._known}] * len(self.models)
        pairs = zip(self.models, options, strict=True)
        return [
            model.predict_f(Xnew, full_cov, full_output_cov, **more)
            for model, more in pairs
        ]


class EnsemblePosterior(EnsemblePredictions):
    """The posteriors of an :class:`Ensemble`. They do not change with its parameters.

    :param posteriors: The GPflow posteriors of the components. For the other arguments
        see :class:`EnsemblePredictions`.
    """

    def __init__(
        self,
        posteriors: Sequence[AbstractPosterior],
        models: Sequence[Any],
        *ensemble: Any,
    ) -> None:
        super().__init__(models, *ensemble)
        self.posteriors = list(posteriors)
        self._some_rows = [*map(_some_rows, models, self.posteriors)]

    @skip_autograph
    def moments_anywhere(self) -> list[AnyNDArray]:
        """Compute mean and variance of f under each component, [2, L], at a row with
        unknown inputs: the mixture over training rows, or over about 1000 of them.
        """

        def moments(posterior: AbstractPosterior, rows: AnyNDArray) -> AnyNDArray:
            return moments_anywhere(*map(np.asarray, posterior.predict_f(rows)))

        parts = self.posteriors, self._some_rows
        if tf.executing_eagerly():
            return [*map(moments, *parts)]
        # tf.init_scope would stop gradient tapes, by which near rows get their sites.
        with ThreadPoolExecutor(1) as outside:
            return [*outside.map(moments, *parts)]

    def components_of_f(
        self, Xnew: InputData, full_cov: bool = False, full_output_cov: bool = False
    ) -> Sequence[MeanAndVariance]:
        """Predict f; at rows of NaN, whose inputs are unknown, with
        :meth:`moments_anywhere`.
        """
        unknown = tf.reduce_all(tf.math.is_nan(Xnew), axis=1)  # [N]
        options = full_cov, full_output_cov
        least = -np.inf if any(options) else 0.0
        new_rows = None
        if not tf.executing_eagerly() or tf.reduce_any(unknown):
            Xnew = tf.where(unknown[:, None], tf.zeros([], Xnew.dtype), Xnew)
            new_rows = iter(self.moments_anywhere())
        moments = [posterior.predict_f(Xnew, *options) for posterior in self.posteriors]
        if not any(options) and tf.executing_eagerly():
            for likelihood, computed in zip(self.likelihoods, moments, strict=True):
                _record_cut(likelihood, Xnew, *computed)
        # Rounding can make the variance smaller.
        moments = [(mean, tf.maximum(variance, least)) for mean, variance in moments]
        if new_rows is None:
            return moments
        return [
            _with_unknown(unknown, next(new_rows), *pair, *options) for pair in moments
        ]


def _record_cut(
    likelihood: Likelihood, X: TensorType, mean: tf.Tensor, variance: tf.Tensor
) -> None:
    """Record negative variances of f for the estimators, which warn of them."""
    if not tf.reduce_any(variance < 0.0):
        return
    of_f = tf.maximum(variance, 0.0)
    of_target = of_f + 1.0
    if traits(likelihood).num_classes is None:
        of_target = predict_mean_and_var(likelihood, X, mean, of_f)[1]
    record_cut(variance.numpy(), np.asarray(of_target))


def _some_rows(model: Any, posterior: Any) -> AnyNDArray:
    """Select training rows at equal steps, or inducing inputs if a model has no
    rows.
    """
    if hasattr(model, "data"):
        rows: AnyNDArray = np.asarray(model.data[0])
    else:
        rows = np.asarray(
            getattr(posterior.X_data, "inducing_variable", posterior.X_data).Z
        )
    return rows[rows_of_anywhere(len(rows))]


def _with_unknown(
    unknown: tf.Tensor,
    anywhere: AnyNDArray,
    mean: tf.Tensor,
    covariance: tf.Tensor,
    full_cov: bool,
    full_output_cov: bool,
) -> MeanAndVariance:
    """Use moments [L] for unknown rows, which are independent of other rows."""
    of_rows = tf.where(unknown[:, None], anywhere[1], tf.zeros_like(mean))  # [N, L]
    replaced = unknown[:, None] | unknown if full_cov else unknown
    if full_cov and full_output_cov:
        apart = tf.reshape(
            tf.linalg.diag(tf.reshape(of_rows, [-1])), tf.shape(covariance)
        )
        replaced = replaced[:, None, :, None]
    elif full_cov:
        apart = tf.linalg.diag(tf.transpose(of_rows))
    elif full_output_cov:
        apart = tf.linalg.diag(of_rows)
        replaced = replaced[:, None, None]
    else:
        apart = of_rows
        replaced = replaced[:, None]
    return tf.where(unknown[:, None], anywhere[0], mean), tf.where(
        replaced, apart, covariance
    )


def ensemble_posterior(model: GPModel | Ensemble) -> EnsemblePosterior:
    """Compute the posterior of an ensemble, or of one model as an ensemble of one."""
    (models, weights), near = components(model), near_rows(model)
    pairs: Any = zip(models, near, strict=True)
    with q_once():  # a model may be two components, with and without near rows
        posteriors = [
            part.posterior(**({"near": rows} if rows else {})) for part, rows in pairs
        ]
    likelihoods = getattr(
        model, "likelihoods", [component.likelihood for component in models]
    )
    return EnsemblePosterior(posteriors, models, likelihoods, weights)


def _likelihood_of_targets(model: GPModel, near: NearRows | None) -> Likelihood:
    if near is None or near.noise_variance is None:
        return model.likelihood
    variance: Any = as_near(near, None, has_blocks=False).noise_variance
    likelihood = gpflow.likelihoods.Gaussian(
        variance, variance_lower_bound=0.5 * variance
    )
    gpflow.set_trainable(likelihood, False)
    return likelihood


def components(model: GPModel | Ensemble) -> tuple[list[GPModel], AnyNDArray]:
    """Return the components of an ensemble and their weights [K]. A single model is its
    only component.
    """
    if isinstance(model, Ensemble):
        return model.models, model.weights.numpy()
    return [model], np.ones(1)


def near_rows(model: GPModel | Ensemble) -> Sequence[NearRows | None]:
    """Return how each component of an ensemble uses near training rows. A single model
    does not use them.
    """
    return model.near if isinstance(model, Ensemble) else [None]


def heaviest(model: GPModel | Ensemble, *, from_points: bool = False) -> GPModel:
    """Return the component with the largest weight.

    :param from_points: Whether to leave out components that are trained to predict from
        near rows alone.
    """
    alone = [
        near is not None and near.noise_variance is None for near in near_rows(model)
    ]
    candidates = zip(*components(model), alone, strict=True)
    return max(
        candidates,
        key=lambda candidate: (not (from_points and candidate[2]), candidate[1]),
    )[0]


def check_models(models: Sequence[GPModel]) -> list[GPModel]:
    models = list(models)
    kinds = {(type(model.likelihood), model.num_latent_gps) for model in models}
    if len(kinds) != 1:
        raise checks.refusal(
            "models",
            f"{len(models)} models with {len(kinds)} kinds of likelihood or numbers of"
            " latent functions",
            "at least one model, and the same kind of likelihood and number of latent"
            " functions in all",
            "Mix models of the same targets.",
        )
    return models


def check_weights(weights: Any, num_components: int) -> AnyNDArray:
    if weights is None:
        return np.full(num_components, 1.0 / num_components)
    values: AnyNDArray = np.asarray(weights, dtype=np.float64)
    if (
        values.shape != (num_components,)
        or not np.all(values >= 0.0)
        or not values.sum() > 0.0
    ):
        expected = f"{num_components} numbers of at least 0, not all 0"
        raise checks.refusal(
            "weights",
            checks.as_code(weights),
            expected,
            "Pass a weight for each component.",
        )
    # Weights whose sum is 1 already are not divided again, so that a saved ensemble is
    # loaded unchanged.
    total = values.sum()
    return values if abs(total - 1.0) < 1e-14 * len(values) else values / total
