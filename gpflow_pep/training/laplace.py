r"""
The Laplace approximation of the posterior of hyperparameters.

With :math:`\theta`, all trainable parameters without their constraints, and minus the log posterior
density :math:`g(\theta)`, which is the training loss,

.. math:: p(\theta | y) \approx N(\hat\theta, H^{-1}), \qquad H = g''(\hat\theta),

around its mode. The second derivatives of ``PEP`` are of :mod:`gpflow_pep.energies.curvature`.
"""

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.models import GPModel

from ..checks import check_positive, check_seed, refusal
from . import checks
from .model_state import copy_of

#: In nats: a step of Newton's method from a mode raises the log posterior density by less.
NEAR_MODE = 0.05


class HyperparameterPosterior(NamedTuple):
    """A Gaussian over the trainable parameters of a model, without their constraints."""

    model: GPModel

    mean: AnyNDArray
    """[P], the parameters as they are, in the order of ``model.trainable_parameters``."""

    covariance: AnyNDArray
    """[P, P]."""

    def draw_models(self, number: int, *, seed: int) -> list[GPModel]:
        """
        Draw copies of the model, which
        :func:`mix_models <gpflow_pep.training.mixtures.mix_models>` makes one predictor of.

        :param number: How many.
        :param seed: The same seed gives the same draws.
        """
        check_positive("number", number)
        random = np.random.default_rng(check_seed(seed))
        root = np.linalg.cholesky(self.covariance)
        models = [copy_of(self.model) for _ in range(number)]
        for model in models:
            values, start = self.mean + root @ random.standard_normal(len(root)), 0
            for variable in _variables(model):
                size = int(tf.size(variable))
                variable.assign(np.reshape(values[start : start + size], variable.shape))
                start += size
        return models


def laplace(model: GPModel) -> HyperparameterPosterior:
    """
    Approximate the posterior of the trainable parameters around where they are.

    ::

        gpflow.set_trainable(model.inducing_variable, False)
        pep.training.maximise(model)
        posterior = pep.training.laplace(model)
        mixed = pep.training.mix_models(posterior.draw_models(20, seed=0), weights="uniform")

    Set priors, without which a parameter that the data say nothing of has no posterior, and do not
    train inducing inputs, which are no parameters of the model of the data. It takes a product with
    the second derivative of the loss for each number.

    :param model: One that holds its data, such as ``PEP``, ``PEPRegression`` or GPflow's ``GPR``,
        trained to the mode.
    :raises ValueError: If the parameters are not near a mode; see also
        :mod:`gpflow_pep.sites.implicit`.
    """
    checks.check_holds_data(model)
    variables = _variables(model)
    gradient, hessian = _derivatives(model, variables)
    remedy = "Train to the end (tolerance=0), set priors, and leave inducing inputs out."
    lowest = np.linalg.eigvalsh(hessian)[0] if np.all(np.isfinite(hessian)) else np.nan
    if not lowest > 0.0:
        got = f"a second derivative of the loss with the eigenvalue {lowest:.3g}"
        raise refusal("laplace", got, "a mode, where all are positive", remedy)
    covariance = np.linalg.inv(hessian)
    gain = 0.5 * float(gradient @ covariance @ gradient)
    if gain > NEAR_MODE:
        got = f"parameters from which a step of Newton's method gains {gain:.3g} nats"
        raise refusal("laplace", got, f"a mode: less than {NEAR_MODE:g}", remedy)
    mean = np.concatenate([np.ravel(variable) for variable in variables])
    return HyperparameterPosterior(model, mean, 0.5 * (covariance + covariance.T))


def _variables(model: GPModel) -> list[tf.Variable]:
    return [parameter.unconstrained_variable for parameter in model.trainable_parameters]


def _derivatives(model: Any, variables: list[tf.Variable]) -> tuple[AnyNDArray, AnyNDArray]:
    """Differentiate the training loss once, [P], and twice, [P, P], one row after another."""
    zero = tf.UnconnectedGradients.ZERO
    with tf.GradientTape(persistent=True) as outer:
        with tf.GradientTape() as inner:
            loss = model.training_loss()
        parts = inner.gradient(loss, variables, unconnected_gradients=zero)
        gradient = _flat(parts)
        numbers = tf.unstack(gradient)
    rows = (outer.gradient(number, variables, unconnected_gradients=zero) for number in numbers)
    return np.asarray(gradient), np.stack([np.asarray(_flat(row)) for row in rows])


def _flat(parts: Any) -> tf.Tensor:
    return tf.concat([tf.reshape(part, [-1]) for part in parts], axis=0)
