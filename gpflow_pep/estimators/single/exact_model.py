r"""An exact Gaussian process with trained hyperparameters: its posterior, and its
predictions of left-out rows, in NumPy.

It equals :class:`~gpflow_pep.models.PEPRegression` with inducing inputs Z at all
distinct rows. With :math:`K_{ZZ} = L L^T`, which includes GPflow's jitter, and with

.. math::

    A = L^{-1} K_{ZX}, \qquad d_n = k(x_n, x_n) - |A_n|^2, \qquad
    \tau_n = 1 / (s_n + \alpha d_n), \qquad B = I + A \operatorname{diag}(\tau) A^T,

the whitened inducing variables have the mean :math:`B^{-1} A \operatorname{diag}(\tau)
t` and the covariance :math:`B^{-1}`. Without jitter d is 0, and :math:`\alpha` does not
matter. The prediction of a left-out row follows from its marginal :math:`m_n, v_n`
without d, by division by the row's term of precision :math:`\tau_n`:

.. math::

    e_n = 1 - \tau_n v_n, \qquad
    E[t_n] = (m_n - \tau_n v_n t_n) / e_n, \qquad
    Var[t_n] = v_n / e_n + d_n + s_n .
"""

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from ...distributions.predictive import require_finite
from ...engine.refusals.arrays import AnyNDArray
from ...scoring.components import factors_of_u, moments_anywhere, rows_of_anywhere
from ...scoring.kernels import Description, covariance_with, variance_of
from ...scoring.likelihoods import LOG_LINEAR, noise_at
from ...scoring.triangles import solve_lower
from .defaults_of_gpflow import default_jitter
from .exact import KERNELS, LEAST_NOISE, LEAST_PARAMETER, SLOPE, SMOOTH, Hyperparameters

#: The power of the model, which matters only for the share of the jitter.
POWER = 0.5


class ExactPosterior(NamedTuple):
    """The posterior of f: for new rows, and at the training rows, [N] each."""

    #: The description for :func:`~gpflow_pep.scoring.components.component_of`.
    component: dict[str, Any]
    mean: AnyNDArray
    variance: AnyNDArray  #: Without the residual variance.
    residual: AnyNDArray  #: The variance of f that the inducing variables leave, d.
    noise: AnyNDArray  #: The variance of the noise.


class ExactModel:
    """An exact model of one column of targets.

    :param theta: The hyperparameters.
    :param X: Inputs in the model's units, [N, D].
    :param t: Targets in the model's units, warped, [N].
    :param kernel: One of :data:`~gpflow_pep.estimators.single.exact.KERNELS`.
    :param varying: Whether the noise is a function of the inputs.
    :param input_of_line: The input with a linear function; None for no such input.
    """

    def __init__(
        self,
        theta: Hyperparameters,
        X: AnyNDArray,
        t: AnyNDArray,
        kernel: str,
        varying: bool,
        input_of_line: int | None = None,
    ) -> None:
        least = np.log(LEAST_PARAMETER)
        self.theta = theta._replace(log_noise=max(theta.log_noise, least))
        self.X = X
        self.t = t
        self.kernel = _kernel(self.theta, kernel, input_of_line)
        self.likelihood = _likelihood(self.theta, varying)
        _, places = np.unique(X, axis=0, return_index=True)
        #: The distinct rows, in their order, [M, D].
        self.points: AnyNDArray = X[np.sort(places)]

    @property
    def is_usable(self) -> bool:
        """Whether NumPy can replace the model of TensorFlow: in float64, and if
        :math:`K_{ZZ}` needs no more than GPflow's jitter.
        """
        if self.X.dtype != np.float64:
            return False
        try:
            _ = self.posterior
        except np.linalg.LinAlgError:
            return False
        return True

    @cached_property
    def posterior(self) -> ExactPosterior:
        """The posterior.

        :raises numpy.linalg.LinAlgError: If :math:`K_{ZZ}` needs more jitter.
        """
        covariance = covariance_with(self.kernel, self.points)
        variance = variance_of(self.kernel)
        Kuu = covariance(self.points)
        np.fill_diagonal(Kuu, variance(self.points) + default_jitter())
        L = np.linalg.cholesky(Kuu)
        A = solve_lower(L, covariance(self.X).T)
        residual = np.maximum(variance(self.X) - np.sum(A * A, axis=0), 0.0)
        noise = np.zeros(len(self.X)) + np.ravel(noise_at(self.likelihood, self.X))
        precision = self._precision(residual, noise)
        eye = np.eye(len(L))
        root = np.linalg.cholesky(eye + (A * precision) @ A.T)
        W = solve_lower(root, eye)
        explained = W @ A
        u = W.T @ (explained @ (precision * self.t))
        marginal = A.T @ u, np.sum(explained * explained, axis=0)
        least_noise = np.min(noise_at(self.likelihood, self.points))
        some = rows_of_anywhere(len(self.X))
        component = {
            "kernel": self.kernel,
            "likelihood": self.likelihood,
            "Z": self.points,
            "any_row": moments_anywhere(
                marginal[0][some, None], (marginal[1] + residual)[some, None]
            ),
            **factors_of_u(
                u[:, None],
                L,
                (eye - W.T @ W)[None],
                float(least_noise / np.max(variance(self.points))),
            ),
        }
        return ExactPosterior(component, *marginal, residual, noise)

    def left_out(
        self, copies: AnyNDArray | None = None
    ) -> tuple[AnyNDArray, AnyNDArray]:
        """Compute mean and variance of the target of each row given the other rows, [N]
        each.

        :param copies: The number of rows that have the same inputs and targets as each
            row, itself included, [N]; they are left out together. None leaves out each
            row alone.
        :raises ValueError: If a moment is not finite.
        """
        _, mean, variance, residual, noise = self.posterior
        precision = self._precision(residual, noise)
        if copies is not None:
            precision = copies * precision
        share = 1.0 - precision * variance
        mean = (mean - precision * variance * self.t) / share
        require_finite(mean)
        return mean, require_finite(variance / share + residual + noise)

    def _precision(self, residual: AnyNDArray, noise: AnyNDArray) -> AnyNDArray:
        return 1.0 / (noise + POWER * residual)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what is computed again when it is needed."""
        return {name: each for name, each in vars(self).items() if name != "posterior"}


def _kernel(
    theta: Hyperparameters, kernel: str, input_of_line: int | None
) -> Description:
    """Describe the kernel for :mod:`gpflow_pep.scoring.kernels`."""
    terms: list[dict[str, Any]] = [
        {
            "kind": KERNELS[kernel][0],
            "variance": np.exp(theta.log_variance),
            "lengthscales": np.exp(theta.log_lengthscales),
            "active_dims": slice(None),
        }
    ]
    for d, variance in enumerate(np.exp(theta.log_additive)):
        if variance > 0.0:
            smooth = {"kind": "SquaredExponential", "lengthscales": SMOOTH}
            terms.append({**smooth, "variance": variance, "active_dims": [d]})
    if input_of_line is not None:
        line = {"kind": "Linear", "variance": SLOPE, "active_dims": [input_of_line]}
        terms.append(line)
    return terms[0] if len(terms) == 1 else {"kind": "Sum", "kernels": terms}


def _likelihood(theta: Hyperparameters, varying: bool) -> dict[str, Any]:
    """Describe the noise for :mod:`gpflow_pep.scoring.likelihoods`."""
    noise: Any = np.exp(theta.log_noise)
    if varying:
        noise = {
            "kind": LOG_LINEAR,
            "variance": noise,
            "weights": theta.noise_weights[:, None],
        }
    return {
        "kind": "Gaussian",
        "variance": noise,
        "scale": None,
        "variance_lower_bound": LEAST_NOISE,
    }
