"""Models that the papers compare with, and that neither GPflow nor the package has."""

from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.models import InternalDataTrainingLossMixin


class DTC(gpflow.models.SGPR):
    """Projected process: the deterministic training conditional as a model of its own.

    Its predictions are those of SGPR, its objective the same without the trace: no
    bound.
    """

    def maximum_log_likelihood_objective(self) -> tf.Tensor:  # type: ignore[override]
        common = self._common_calculation()
        of_prior = tf.reduce_sum(
            self.kernel(self.data[0], full_cov=False) / common.sigma_sq
        )
        return self.elbo() + 0.5 * (of_prior - tf.linalg.trace(common.AAT))


class OnAllRows(gpflow.models.GPModel, InternalDataTrainingLossMixin):
    """GPflow's SVGP, or a model with tied sites, which is to be trained on all rows."""

    def __init__(self, data: Any, inner: Any) -> None:
        super().__init__(
            inner.kernel, inner.likelihood, num_latent_gps=inner.num_latent_gps
        )
        self.data = data
        self.inner = inner

    @property
    def alpha(self) -> Any:
        return self.inner.alpha

    def maximum_log_likelihood_objective(self) -> tf.Tensor:  # type: ignore[override]
        return self.inner.maximum_log_likelihood_objective(self.data)

    def predict_f(
        self, Xnew: Any, full_cov: bool = False, full_output_cov: bool = False
    ) -> Any:
        return self.inner.predict_f(Xnew, full_cov, full_output_cov)


class Laplace(gpflow.models.GPModel, InternalDataTrainingLossMixin):
    r"""Laplace's approximation of a full GP for a log-concave likelihood.

    Rasmussen & Williams (2006), sections 3.4 and 3.5, for L latent functions that are
    independent a priori and share the kernel. At the mode f of
    :math:`\log p(y | f) + \log p(f)`, with
    :math:`W = -\nabla\nabla \log p(y | f) = R Rᵀ` and :math:`B = I + Rᵀ K R`,

    .. math:: \log Z = \log p(y | f) - \tfrac12 fᵀ K^{-1} f - \tfrac12 \log |B|.

    One more Newton step from the mode leaves it where it is, and has the mode's
    derivative with respect to the kernel: so the gradient of log Z is by automatic
    differentiation, and exact.
    """

    TOLERANCE = 1e-10
    MAX_STEPS = 100
    MIN_CURVATURE = 1e-10

    def __init__(
        self, data: Any, kernel: Any, likelihood: Any, num_latent: int
    ) -> None:
        super().__init__(kernel, likelihood, num_latent_gps=num_latent)
        self.data = data

    def maximum_log_likelihood_objective(self) -> tf.Tensor:  # type: ignore[override]
        K = self._prior()
        f, a = self._step(K, tf.stop_gradient(self._mode(K)))
        log_p, _, R = self._likelihood_terms(f)
        log_B = 2.0 * tf.reduce_sum(
            tf.math.log(tf.linalg.diag_part(self._factor(K, R)))
        )
        return tf.reduce_sum(log_p) - 0.5 * tf.reduce_sum(a * f) - 0.5 * log_B

    def predict_f(
        self, Xnew: Any, full_cov: bool = False, full_output_cov: bool = False
    ) -> Any:
        if full_cov or full_output_cov:
            raise ValueError(
                "full_cov: got True, expected False: only marginals are here."
            )
        K = self._prior()
        L = self.num_latent_gps
        _, gradient, R = self._likelihood_terms(self._mode(K))
        cross = self.kernel(self.data[0], Xnew)
        rows = tf.reshape(tf.einsum("ns,nlk->nksl", cross, R), [tf.size(gradient), -1])
        explained = tf.linalg.triangular_solve(self._factor(K, R), rows)
        lost = tf.reshape(tf.reduce_sum(tf.square(explained), axis=0), [-1, L])
        mean = tf.matmul(cross, gradient, transpose_a=True)
        return mean, self.kernel(Xnew, full_cov=False)[:, None] - lost

    def _prior(self) -> tf.Tensor:
        """Of each latent function, [N, N]."""
        K = self.kernel(self.data[0])
        return K + gpflow.default_jitter() * tf.eye(tf.shape(K)[0], dtype=K.dtype)

    def _likelihood_terms(self, f: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Log density [N] of each row, its gradient [N, L], and R, a block [L, L] for
        each row.
        """
        X, Y = self.data
        L = self.num_latent_gps
        if isinstance(self.likelihood, gpflow.likelihoods.Softmax):
            Y = tf.cast(Y, tf.int64)  # as TensorFlow's cross entropy wants them
        with tf.GradientTape(persistent=True) as outer:
            outer.watch(f)
            with tf.GradientTape() as inner:
                inner.watch(f)
                log_p = self.likelihood.log_prob(X, f, Y)
            gradient = inner.gradient(log_p, f)
            parts = [gradient[:, latent] for latent in range(L)]
        W = -tf.stack([outer.gradient(part, f) for part in parts], axis=1)
        return (
            log_p,
            gradient,
            tf.linalg.cholesky(W + self.MIN_CURVATURE * tf.eye(L, dtype=W.dtype)),
        )

    @staticmethod
    def _factor(K: tf.Tensor, R: tf.Tensor) -> tf.Tensor:
        """Of B, [NL, NL], whose prior is K for each latent function."""
        size = tf.shape(R)[0] * tf.shape(R)[1]
        B = tf.reshape(tf.einsum("nm,njl,mjk->nlmk", K, R, R), [size, size])
        return tf.linalg.cholesky(B + tf.eye(size, dtype=B.dtype))

    def _step(self, K: tf.Tensor, f: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Newton's: the next f, and K⁻¹ f, both [N, L]; their algorithm 3.1."""
        _, gradient, R = self._likelihood_terms(f)
        b = tf.einsum("nlk,njk,nj->nl", R, R, f) + gradient
        c = tf.einsum("nlk,nl->nk", R, tf.matmul(K, b))
        solved = tf.linalg.cholesky_solve(self._factor(K, R), tf.reshape(c, [-1, 1]))
        a = b - tf.einsum("nlk,nk->nl", R, tf.reshape(solved, tf.shape(f)))
        return tf.matmul(K, a), a

    def _mode(self, K: tf.Tensor) -> tf.Tensor:
        shape = [tf.shape(self.data[0])[0], self.num_latent_gps]
        start = tf.zeros(shape, K.dtype)

        def step(
            number: tf.Tensor, f: tf.Tensor, _: tf.Tensor
        ) -> tuple[tf.Tensor, ...]:
            further, _ = self._step(K, f)
            return number + 1, further, tf.reduce_max(tf.abs(further - f))

        _, f, _ = tf.while_loop(
            lambda number, _, change: (
                (number < self.MAX_STEPS) & (change > self.TOLERANCE)
            ),
            step,
            (tf.constant(0), start, tf.constant(np.inf, K.dtype)),
        )
        return f


def sgpmc(data: Any, kernel: Any, likelihood: Any, Z: Any, num_latent: int) -> Any:
    """GPflow's, with log-normal priors around the start, and Z fixed."""
    model = gpflow.models.SGPMC(data, kernel, likelihood, None, num_latent, Z)
    gpflow.set_trainable(model.inducing_variable, False)
    for parameter in (*kernel.trainable_parameters, *likelihood.trainable_parameters):
        parameter.prior = tfp.distributions.LogNormal(
            np.log(parameter.numpy()), np.float64(1.0)
        )
    return model
