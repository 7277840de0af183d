"""Models whose predictive density is an ensemble of those of others."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import AnyNDArray, InputData, MeanAndVariance
from gpflow.likelihoods import Likelihood
from gpflow.models import GPModel
from gpflow.posteriors import AbstractPosterior

from ...engine import checks
from ...engine.predictions.context_rows import NearRows
from ...engine.prior import is_mixed
from ...engine.prior.evaluate import skip_autograph
from ...models.base import finite
from .ensemble_paths import EnsemblePaths
from .ensemble_predictions import EnsemblePredictions


class EnsembleRecord(NamedTuple):
    """How an ensemble came about."""

    alphas: tuple[float | None, ...]
    """The power of each component; None where it has none, or several."""

    log_densities: AnyNDArray
    """[K], the mean log density of the rows that were left out, in nats; NaN where unknown."""

    weights_from: str  #: ``"leave-one-out"``, ``"held-out"``, ``"uniform"`` or ``"given"``.


class Ensemble(EnsemblePredictions):
    """An ensemble of models of one kind of likelihood.

    Its predictions are those of :class:`EnsemblePredictions` and follow the parameters of the
    models; :meth:`posterior` keeps what predictions need.

    :param models: The components: of one number of latent functions and one kind of likelihood.
    :param weights: [K], at least 0, with sum 1; None: all equal.
    :param record: How they came about.
    :param near: How the predictions of each component use near training rows
        (:mod:`gpflow_pep.training.choosing.near`), None where they do not; None: none does.
    :param known: Outputs of the rows that are predicted which are known, [N, P], NaN where they are
        not, of mixed outputs: each component is conditioned on them
        (:meth:`~gpflow_pep.models.PEP.predict_f`), and the weights stay as they are.
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
        self.models, self.record, self._known = models, record, known

    def posterior(self) -> "EnsemblePosterior":
        """Compute the posterior of each component, for fast predictions."""
        return ensemble_posterior(self)

    def paths(self, num_paths: int, num_features: int = 1024, seed: int = 0) -> EnsemblePaths:
        """Draw functions, see :doc:`/paths`: each first its component, then a function of it. The
        arguments are those of :meth:`gpflow_pep.models.PEPRegression.paths`.

        :raises ValueError: If a component is no model of gpflow_pep, or refuses.
        """
        return EnsemblePaths(self, num_paths, num_features, seed)

    @check_shapes("return[0]: [N, P]", "return[1]: [N, P]")
    def impute_y(self) -> MeanAndVariance:
        """Compute mean and variance of the targets that are missing in the rows of the data, as
        ``impute_y`` of the components does, the spread of their means included.

        :raises ValueError: If the components are not of mixed outputs.
        """
        if not all(is_mixed(model.kernel) for model in self.models):
            got, expected = type(self.models[0]).__name__, "models whose outputs are mixed"
            raise checks.refusal("impute_y", got, expected, "Use predict_y.")
        return finite(self.mix_moments([model.impute_y() for model in self.models]))

    def components_of_f(
        self, Xnew: InputData, full_cov: bool = False, full_output_cov: bool = False
    ) -> Sequence[MeanAndVariance]:
        options: list[dict[str, Any]] = [{"near": near} if near else {} for near in self.near]
        if self._known is not None:
            options = [{"given": self._known}] * len(self.models)
        pairs = zip(self.models, options, strict=True)
        return [model.predict_f(Xnew, full_cov, full_output_cov, **more) for model, more in pairs]


class EnsemblePosterior(EnsemblePredictions):
    """The posteriors of an :class:`Ensemble`, which do not follow its parameters.

    :param posteriors: GPflow posteriors. For the others see :class:`EnsemblePredictions`.
    """

    def __init__(
        self, posteriors: Sequence[AbstractPosterior], models: Sequence[Any], *ensemble: Any
    ) -> None:
        super().__init__(models, *ensemble)
        self.posteriors = list(posteriors)
        self._some_rows = [*map(_some_rows, models, self.posteriors)]

    @skip_autograph
    def moments_anywhere(self) -> list[tuple[AnyNDArray, ...]]:
        """Compute mean and variance of f, [L] each, at a row of which nothing is known under each
        component: one that may be any of the training rows, or some 1000 of them.
        """

        def moments(posterior: AbstractPosterior, rows: AnyNDArray) -> tuple[AnyNDArray, ...]:
            means, variances = map(np.asarray, posterior.predict_f(rows))
            mean = means.mean(axis=0)
            return mean, np.mean(variances + (means - mean) ** 2, axis=0)

        parts = self.posteriors, self._some_rows
        if tf.executing_eagerly():
            return [*map(moments, *parts)]
        # tf.init_scope would stop gradient tapes, by which near rows get their sites.
        with ThreadPoolExecutor(1) as outside:
            return [*outside.map(moments, *parts)]

    def components_of_f(
        self, Xnew: InputData, full_cov: bool = False, full_output_cov: bool = False
    ) -> Sequence[MeanAndVariance]:
        """Predict f; of rows of NaN, of which nothing is known, by :meth:`moments_anywhere`."""
        unknown, options = is_unknown(Xnew), (full_cov, full_output_cov)
        least, some = -np.inf if any(options) else 0.0, None
        if not tf.executing_eagerly() or tf.reduce_any(unknown):
            Xnew = tf.where(unknown[:, None], tf.zeros([], Xnew.dtype), Xnew)
            some = iter(self.moments_anywhere())
        moments = [part.predict_f(Xnew, *options) for part in self.posteriors]
        moments = [(mean, tf.maximum(variance, least)) for mean, variance in moments]  # of rounding
        if some is None:
            return moments
        return [_with_unknown(unknown, next(some), *pair, *options) for pair in moments]


def is_unknown(X: InputData) -> tf.Tensor:
    """Find for each row, [N], whether nothing is known of it: it is NaN throughout."""
    return tf.reduce_all(tf.math.is_nan(X), axis=1)


def _some_rows(model: Any, posterior: Any) -> AnyNDArray:
    """Give training rows evenly, or inducing inputs where a model has no rows."""
    if hasattr(model, "data"):
        rows: AnyNDArray = np.asarray(model.data[0])
    else:
        rows = np.asarray(getattr(posterior.X_data, "inducing_variable", posterior.X_data).Z)
    return rows[np.unique(np.linspace(0, len(rows) - 1, 1000).astype(int))]


def _with_unknown(
    unknown: tf.Tensor,
    anywhere: tuple[AnyNDArray, ...],
    mean: tf.Tensor,
    covariance: tf.Tensor,
    full_cov: bool,
    full_output_cov: bool,
) -> MeanAndVariance:
    """Put moments [L] in the place of those of unknown rows, which are independent of others."""
    of_rows = tf.where(unknown[:, None], anywhere[1], tf.zeros_like(mean))  # [N, L]
    replaced = unknown[:, None] | unknown if full_cov else unknown
    if full_cov and full_output_cov:
        apart = tf.reshape(tf.linalg.diag(tf.reshape(of_rows, [-1])), tf.shape(covariance))
        replaced = replaced[:, None, :, None]
    elif full_cov:
        apart = tf.linalg.diag(tf.transpose(of_rows))
    elif full_output_cov:
        apart, replaced = tf.linalg.diag(of_rows), replaced[:, None, None]
    else:
        apart, replaced = of_rows, replaced[:, None]
    return tf.where(unknown[:, None], anywhere[0], mean), tf.where(replaced, apart, covariance)


def ensemble_posterior(model: GPModel | Ensemble) -> EnsemblePosterior:
    """Compute the posterior of an ensemble, or of one model as an ensemble of one."""
    (models, weights), near = components(model), near_rows(model)
    posteriors = [*map(posterior_of, models, near)]
    likelihoods = getattr(model, "likelihoods", [component.likelihood for component in models])
    return EnsemblePosterior(posteriors, models, likelihoods, weights)


def posterior_of(model: Any, near: NearRows | None) -> AbstractPosterior:
    """Create the posterior of a component, which may use near rows."""
    return model.posterior() if near is None else model.posterior(near=near)


def _likelihood_of_targets(model: GPModel, near: NearRows | None) -> Likelihood:
    if near is None or near.noise_variance is None:
        return model.likelihood
    variance = near.noise_variance
    likelihood = gpflow.likelihoods.Gaussian(variance, variance_lower_bound=0.5 * variance)
    gpflow.set_trainable(likelihood, False)
    return likelihood


def components(model: GPModel | Ensemble) -> tuple[list[GPModel], AnyNDArray]:
    """Give the components of an ensemble and their weights [K]; one model is its own."""
    if isinstance(model, Ensemble):
        return model.models, model.weights.numpy()
    return [model], np.ones(1)


def near_rows(model: GPModel | Ensemble) -> Sequence[NearRows | None]:
    """Describe how each component of an ensemble uses near training rows; one model does not."""
    return model.near if isinstance(model, Ensemble) else [None]


def heaviest(model: GPModel | Ensemble, *, from_points: bool = False) -> GPModel:
    """Give the component of the largest weight.

    :param from_points: Leave out components trained to predict from near rows alone.
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
    # Weights that were divided once stay as they are: a saved ensemble loads as the same.
    total = values.sum()
    return values if abs(total - 1.0) < 1e-14 * len(values) else values / total
