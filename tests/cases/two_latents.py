"""Likelihoods as users write them, of two latent functions; each by SciPy too, with
targets.
"""

from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from scipy import stats
from scipy.special import expit


class _Own(gpflow.likelihoods.MultiLatentLikelihood):
    """What GPflow asks for beside the density, which nothing here needs; and the law of
    targets.
    """

    law: Any  # of two latent functions, SciPy's
    density = "logpdf"

    def __init__(self) -> None:
        super().__init__(latent_dim=2)

    def _conditional_mean(self, X: Any, F: Any) -> Any:
        return F[..., :1]

    def _conditional_variance(self, X: Any, F: Any) -> Any:
        return tf.ones_like(F[..., :1])

    @classmethod
    def log_density(cls, f: Any, g: Any, y: float) -> Any:
        return getattr(cls.law(f, g), cls.density)(y)

    @classmethod
    def draw(cls, f: Any, g: Any, rng: np.random.Generator) -> Any:
        return cls.law(f, g).rvs(size=f.shape, random_state=rng).astype(float)


class DispersedCounts(_Own):
    """Negative binomial: logarithms of the mean and of the shape."""

    means = (1.0, 0.5)
    density = "logpmf"

    def law(f, g):
        return stats.nbinom(np.exp(g), expit(g - f))

    def _log_prob(self, X: Any, F: Any, Y: Any) -> Any:
        logits = F[..., 0] - F[..., 1]
        shape = tf.exp(F[..., 1])
        y = Y[..., 0]
        counted = (
            tf.math.lgamma(y + shape) - tf.math.lgamma(shape) - tf.math.lgamma(y + 1.0)
        )
        return (
            counted
            + y * tf.math.log_sigmoid(logits)
            + shape * tf.math.log_sigmoid(-logits)
        )


class InflatedCounts(gpflow.likelihoods.QuadratureLikelihood):
    """Zero-inflated Poisson: logarithm of the rate, logit of the probability of a zero
    more.
    """

    means = 1.0, -0.5

    def __init__(self) -> None:
        super().__init__(input_dim=None, latent_dim=2, observation_dim=1)

    def _log_prob(self, X: Any, F: Any, Y: Any) -> Any:
        f = F[..., 0]
        g = F[..., 1]
        y = Y[..., 0]
        counted = y * f - tf.exp(f) - tf.math.lgamma(y + 1.0) + tf.math.log_sigmoid(-g)
        zero = tf.reduce_logsumexp(tf.stack([tf.math.log_sigmoid(g), counted]), axis=0)
        return tf.where(y + 0.0 * f == 0.0, zero, counted)

    _conditional_mean = _Own._conditional_mean
    _conditional_variance = _Own._conditional_variance

    @staticmethod
    def log_density(f: Any, g: Any, y: float) -> Any:
        more = expit(g)
        return np.log(
            more * (y == 0.0) + (1.0 - more) * stats.poisson.pmf(y, np.exp(f))
        )

    @staticmethod
    def draw(f: Any, g: Any, rng: np.random.Generator) -> Any:
        return np.where(
            rng.uniform(size=f.shape) < expit(g), 0.0, rng.poisson(np.exp(f))
        )


class Weibull(_Own):
    """Logarithm of the scale, and the shape by softplus."""

    means = 1.0, 1.5

    def law(f, g):
        return stats.weibull_min(np.logaddexp(0.0, g) + 0.1, scale=np.exp(f))

    def _log_prob(self, X: Any, F: Any, Y: Any) -> Any:
        f = F[..., 0]
        shape = tf.nn.softplus(F[..., 1]) + 0.1
        log_y = tf.math.log(Y[..., 0])
        return (
            tf.math.log(shape)
            - log_y
            + shape * (log_y - f)
            - tf.exp(shape * (log_y - f))
        )

    @staticmethod
    def draw(f: Any, g: Any, rng: np.random.Generator) -> Any:
        return np.exp(f) * rng.weibull(np.logaddexp(0.0, g) + 0.1)


class NoisyStudentT(_Own):
    """Location and logarithm of the scale."""

    means = 1.0, -1.5

    def law(f, g):
        return stats.t(4.0, loc=f, scale=np.exp(g))

    def __init__(self) -> None:
        super().__init__()
        self.df = gpflow.Parameter(4.0, transform=gpflow.utilities.positive(lower=2.0))

    def _log_prob(self, X: Any, F: Any, Y: Any) -> Any:
        df = self.df
        half = 0.5 * self.df
        constant = tf.math.lgamma(half + 0.5) - tf.math.lgamma(half)
        constant -= 0.5 * tf.math.log(df * np.pi)
        squares = tf.square((Y[..., 0] - F[..., 0]) * tf.exp(-F[..., 1])) / df
        return constant - F[..., 1] - (half + 0.5) * tf.math.log1p(squares)


_kinds = DispersedCounts, InflatedCounts, Weibull, NoisyStudentT
TWO_LATENTS = {kind.__name__: kind for kind in _kinds}


def draw_rows(name: str, num_rows: int, seed: int = 0) -> tuple[AnyNDArray, AnyNDArray]:
    """Draw targets whose two latent functions vary with one input."""
    rng = np.random.default_rng(seed)
    X = np.sort(rng.uniform(0.0, 6.0, (num_rows, 1)), axis=0)
    kind: Any = TWO_LATENTS[name]
    f = kind.means[0] + np.sin(2.0 * X)
    g = kind.means[1] + 0.5 * np.cos(X)
    return X, kind.draw(f, g, rng)
