"""What a method of the papers' experiments is given, what it gives, and how good that
is.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import gpflow
import numpy as np
import tensorflow_probability as tfp
from gpflow.base import AnyNDArray

from gpflow_pep.metrics import error_rate, mean_nlpd, smll, smse

NOISE_VARIANCE = 0.1
MakeKernel = Callable[[int], gpflow.kernels.Kernel]


class Task(NamedTuple):
    """Rows to train on, new inputs, and where inducing inputs start."""

    X: AnyNDArray
    Y: AnyNDArray
    """[N, 1], numbers, or labels from 0."""

    Xnew: AnyNDArray
    Z: AnyNDArray
    num_classes: int = 0
    """0: regression."""

    seed: int = 0

    @property
    def likelihood(self) -> gpflow.likelihoods.Likelihood:
        """The one of all methods but Laplace's, label regression and those of Gaussian
        noise.
        """
        if self.num_classes == 0:
            return gpflow.likelihoods.Gaussian(NOISE_VARIANCE)
        if self.num_classes == 2:
            return gpflow.likelihoods.Bernoulli()
        return gpflow.likelihoods.MultiClass(self.num_classes)

    @property
    def num_latent(self) -> int:
        return self.num_classes if self.num_classes > 2 else 1


class Budget(NamedTuple):
    """When training stops, see :func:`gpflow_pep.training.maximise`."""

    max_iterations: int = 200
    tolerance: float = 1e-4
    window: int = 10


class Fitted(NamedTuple):
    """What came of a fit."""

    mean: AnyNDArray
    """Regression: of y at the new inputs [S, 1]. Classification: probabilities [S, C].
    """

    variance: AnyNDArray | None
    """Regression: of y at the new inputs [S, 1]."""

    objective: float
    seconds: float
    """Of training, without the compilation where :func:`maximise` did it."""

    iterations: int
    model: Any
    """As trained. It is shared: the next fit of the same method and shape trains it
    anew.
    """


def regression_scores(
    fitted: Fitted, Y: AnyNDArray, Y_train: AnyNDArray
) -> dict[str, float]:
    """SMSE, SMLL and negative log density of held-out rows."""
    normal = tfp.distributions.Normal(fitted.mean, np.sqrt(fitted.variance))
    log_density = normal.log_prob(Y).numpy()[:, 0]
    return {
        "smse": smse(Y, fitted.mean),
        "smll": smll(Y, log_density, Y_train),
        "nlpd": mean_nlpd(log_density),
    }


def classification_scores(fitted: Fitted, Y: AnyNDArray) -> dict[str, float]:
    """Error rate, and negative log probability of held-out labels."""
    labels = Y.astype(int)
    probability = np.take_along_axis(fitted.mean, labels, axis=1)
    return {
        "error_rate": error_rate(labels[:, 0], np.argmax(fitted.mean, axis=1)),
        "nlpd": mean_nlpd(np.log(probability[:, 0])),
    }
