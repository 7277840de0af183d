"""Counts with more zeros than Poisson's: a likelihood of one's own, beside those of the
package.

    python -m examples zero_inflated

Zero with probability p, otherwise a Poisson count (Lambert, *Zero-inflated Poisson
regression*, Technometrics 34, 1992, with one p for all rows). The likelihood defines
its log density and the moments of y given f; every integral of Power EP follows from
these. The table has the mean negative log probability of held-out counts, and the mean
probability of a zero beside the share of zeros.
"""

from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from examples.common import arguments
from gpflow_pep.likelihoods import NegativeBinomial
from gpflow_pep.models import PEP
from gpflow_pep.training import maximise

#: Above it a rate is infinite for all counts of practice, and its exponential would be.
LARGEST_LOG_RATE = 100.0


class ZeroInflatedPoisson(gpflow.likelihoods.ScalarLikelihood):
    r"""Counts y with

    .. math::

       p(0 | f) = p + (1 - p) e^{-\lambda}, \qquad
       p(y | f) = (1 - p) \frac{\lambda^y e^{-\lambda}}{y!} \quad (y > 0), \qquad
       \lambda = e^f

    :param zero_probability: p, in (0, 1); a trainable parameter.
    """

    def __init__(self, zero_probability: float = 0.2, **options: Any) -> None:
        super().__init__(**options)
        limits = tfp.bijectors.Sigmoid(np.float64(1e-6), np.float64(1.0 - 1e-6))
        self.zero_probability = gpflow.Parameter(zero_probability, transform=limits)

    def _scalar_log_prob(self, X: Any, F: Any, Y: Any) -> tf.Tensor:
        p = self.zero_probability
        F = tf.minimum(F, tf.cast(LARGEST_LOG_RATE, F.dtype))
        rate = tf.exp(F)
        zero = tf.math.log(p + (1.0 - p) * tf.exp(-rate))
        positive = tf.math.log1p(-p) + Y * F - rate - tf.math.lgamma(Y + 1.0)
        return tf.where(Y > 0.0, positive, zero)

    def _conditional_mean(self, X: Any, F: Any) -> tf.Tensor:
        return (1.0 - self.zero_probability) * tf.exp(F)

    def _conditional_variance(self, X: Any, F: Any) -> tf.Tensor:
        mean = self._conditional_mean(X, F)
        return mean * (1.0 + self.zero_probability * tf.exp(F))


def main() -> None:
    args = arguments(__doc__, rows=400, inducing=15, quick={"rows": 80, "inducing": 5})
    rng = np.random.default_rng(0)
    X = rng.uniform(-3.0, 3.0, (2 * args.rows, 1))
    present = rng.uniform(size=X.shape) < 0.7
    Y = 1.0 * present * rng.poisson(np.exp(1.0 + np.sin(2.0 * X)))
    train = (X[::2], Y[::2])
    test = (X[1::2], Y[1::2])
    Z = np.linspace(-3.0, 3.0, args.inducing)[:, None]
    print(f"{'likelihood':22}{'NLPD':>8}{'zeros':>8}   (of held-out counts: ", end="")
    print(f"{np.mean(test[1] == 0):.3f})")
    for likelihood in (
        gpflow.likelihoods.Poisson(),
        NegativeBinomial(),
        ZeroInflatedPoisson(),
    ):
        kernel = gpflow.kernels.SquaredExponential()
        model = PEP(train, kernel, likelihood, Z.copy(), alpha=0.5)
        maximise(model, progress=False)
        nlpd = -np.mean(model.predict_log_density(test))
        zero = np.exp(model.predict_log_density((test[0], 0.0 * test[1])))
        print(f"{type(likelihood).__name__:22}{nlpd:8.3f}{np.mean(zero):8.3f}")
