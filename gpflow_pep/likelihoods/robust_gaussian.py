r"""
Gaussian noise and outliers, in closed form: robust and conjugate regression.

Source: Altamirano, Briol & Knoblauch, *Robust and conjugate Gaussian process regression*, ICML
2024. In place of the likelihood, generalised Bayes takes :math:`\exp(-\sum_n \ell_n(f_n))` with a
loss :math:`\ell_n` that compares the score of the model with that of the data, weighted by
:math:`w(x, y)`:

.. math::

   E\left[w^2 (s - s_{\text{data}})^2\right] = E\left[w^2 s^2 + 2 \partial_y (w^2 s)\right]
   + \text{constant}, \qquad s = \partial_y \log N(y; f, \sigma^2) = (f - y) / \sigma^2,

by partial integration of the mixed term, since :math:`s_{\text{data}} = \partial_y \log p`. So

.. math::

   \ell_n(f) = w^2 \frac{(f - y)^2}{\sigma^4}
   + 2 \frac{(\partial_y w^2)(f - y) - w^2}{\sigma^2},

which is quadratic in f: :math:`e^{-\ell_n}` is a Gaussian whose precision is
:math:`2 w^2 / \sigma^4`, and whose peak, where the derivative is 0, is
:math:`\tilde y = y - \sigma^2 \partial_y \log w^2`. With the inverse multiquadric
:math:`w^2 = \tfrac{\sigma^2}{2} (1 + r^2 / c^2)^{-1}` and :math:`r = y - \gamma(x)` that is

.. math::

   e^{-\ell_n(f)} \propto N(\tilde y_n; f, J_n), \qquad
   J_n = \sigma^2 \Big(1 + \frac{r_n^2}{c^2}\Big), \qquad
   \tilde y_n = y_n + \frac{2 \sigma^2 r_n}{c^2 + r_n^2}.

For :math:`c \to \infty` it is Gaussian noise. Far out the pull of a target on f is
:math:`\tilde r_n / J_n \approx c^2 / (\sigma^2 r_n)`, which falls to 0.

Since the factor of a row is Gaussian, so is its power :math:`\alpha`: Power EP with
:math:`N(\tilde y_n; f_n, J_n)` as the factors is that of regression with noise that differs between
rows, in closed form for every :math:`\alpha`. The power concerns what the inducing variables leave
open, and has nothing to do with the weights: with inducing inputs at all data each :math:`\alpha`
gives the posterior of the paper. The objective is the log density of the pseudo-targets
:math:`\tilde y`, not of y.
"""

from typing import Any

import tensorflow as tf
from check_shapes import check_shapes, inherit_check_shapes
from gpflow import Parameter
from gpflow.base import TensorType
from gpflow.functions import Function, Zero
from gpflow.likelihoods import Gaussian
from gpflow.utilities import positive
from tensorflow import Tensor

from ..checks import check_real
from ..covariances.evaluate import SiteTargets, site_targets
from ..tilted import Layout, implementations, layout, support
from ..tilted.gaussian import gaussian_log_power_expectation
from ..tilted.support import any_number


class RobustGaussian(Gaussian):
    r"""
    Gaussian noise, and targets far from a centre that count for less: outliers, in closed form::

        likelihood = RobustGaussian(variance=0.1, threshold=1.0)
        model = PEPRegression((X, Y), kernel, Z, likelihood=likelihood)
        pep.training.maximise_robust(model)

    The factor of a row is :math:`N(\tilde y; f, J)` with

    .. math::

       J = \sigma^2 \Big(1 + \frac{r^2}{c^2}\Big), \qquad
       \tilde y = y + \frac{2 \sigma^2 r}{c^2 + r^2}, \qquad r = y - \gamma(x)

    (:mod:`gpflow_pep.likelihoods.robust_gaussian` derives it). Predictions and leave-one-out
    moments are of targets that are no outliers, with noise :math:`\sigma^2`. Models of one column
    of Y take it; see :doc:`/robust`.
    """

    def __init__(
        self,
        variance: float = 1.0,
        threshold: float = 1.0,
        centre: Function | None = None,
        **kwargs: Any,
    ) -> None:
        r"""
        :param variance: :math:`\sigma^2`, of targets that are no outliers; a trainable parameter,
            as that of :class:`gpflow.likelihoods.Gaussian`.
        :param threshold: c, above 0: where a target counts half, in units of Y; a parameter that is
            not trainable. :func:`~gpflow_pep.training.maximise_robust` chooses it.
        :param centre: :math:`\gamma`, what is expected of targets before they are seen; None: 0.
            Give the mean function of the model if it has one. Its parameters are trained with the
            model unless they are set not to be.
        :raises ValueError: If the threshold is not above 0.
        """
        super().__init__(variance, **kwargs)
        check_real("threshold", float(threshold), "(0, inf)", "Pass twice the noise's deviation.")
        self.threshold = Parameter(threshold, transform=positive(), trainable=False)
        self.centre = Zero() if centre is None else centre

    @check_shapes(
        "X: [N, D]",
        "Y: [N, 1]",
        "return.Y: [N, 1]",
        "return.variance: [N, 1]",
    )
    def pseudo_targets(self, X: TensorType, Y: TensorType) -> SiteTargets:
        r"""Compute the :math:`\tilde y` and J of rows."""
        variance = self.variance_at(X)
        error = Y - self.centre(X)
        square = tf.square(self.threshold)
        stretch = 2.0 * variance * error / (square + tf.square(error))
        return SiteTargets(Y + stretch, variance * (1.0 + tf.square(error) / square))

    @check_shapes(
        "X: [N, D]",
        "Y: [N, 1]",
        "return: [N, 1]",
    )
    def weights(self, X: TensorType, Y: TensorType) -> Tensor:
        r"""Compute how much rows count, :math:`\sigma^2 / J`: 1 at the centre, 0 far from it."""
        return self.variance_at(X) / self.pseudo_targets(X, Y).variance

    @inherit_check_shapes
    def _variational_expectations(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> Tensor:
        return _robust(self, X, Fmu, Fvar, Y, tf.zeros([1], Fmu.dtype))


support.register(RobustGaussian)(any_number)


@site_targets.register(RobustGaussian)
def _site_targets(likelihood: RobustGaussian, X: Tensor, Y: Tensor) -> SiteTargets:
    return likelihood.pseudo_targets(X, Y)


@implementations.register(RobustGaussian)
def _robust(
    likelihood: RobustGaussian, X: Tensor, Fmu: Tensor, Fvar: Tensor, Y: Tensor, alpha: Tensor
) -> Tensor:
    target, variance = likelihood.pseudo_targets(X, Y)
    terms = gaussian_log_power_expectation(Fmu, Fvar, target, variance, alpha[:, None])
    return tf.reduce_sum(terms, axis=-1)


@layout.register(RobustGaussian)
def _one_column(likelihood: RobustGaussian, num_columns: int) -> Layout:
    return Layout(1, 1)
