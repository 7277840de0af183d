"""Models whose sites are tied, which replace ``gpflow.models.SVGP``, for any number of
rows.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow import Parameter
from gpflow.base import AnyNDArray, RegressionData, TensorData
from gpflow.config import default_float
from gpflow.inducing_variables import InducingVariables, MultioutputInducingVariables
from gpflow.kernels import Kernel, MultioutputKernel
from gpflow.kullback_leiblers import gauss_kl
from gpflow.likelihoods import Likelihood
from gpflow.mean_functions import MeanFunction
from gpflow.models.training_mixins import ExternalDataTrainingLossMixin
from gpflow.models.util import InducingVariablesLike
from gpflow.utilities import positive, triangular

from ..engine import checks, factors
from ..engine.energies import tied
from ..engine.energies.tied import TiedEnergy
from ..engine.factors.gaussian import joint_log_power_expectation
from ..engine.predictions.posterior import f_under
from ..engine.prior import (
    check_columns,
    check_inducing_variable,
    covariance_of_u,
    mixes_outputs,
)
from ..engine.prior.evaluate import convert_user_code, unconverted
from ..engine.sites.posterior import WhitenedGaussian, row_moments, unwhitened
from .arguments import Power, VariationalParameter
from .base import ADVICE, PowerEPModel, labels_to_floats

#: For kernels of users, whose code may need AutoGraph.
_f_under = convert_user_code(f_under)

_SHARED = "gpflow.inducing_variables.SharedIndependentInducingVariables"
_LARGE_BATCH = checks.message(
    "data",
    "a batch of more rows than num_data",
    "at most num_data rows",
    "Pass num_data=len(X) for X with all rows. Here num_data is:",
)


class TiedModel(PowerEPModel, ExternalDataTrainingLossMixin):
    r"""Base class of APEP, ARPEP and RPAPEP: everything except the energy.

    ``q_mu`` and ``q_sqrt`` are parameters, as in ``gpflow.models.SVGP``. They can be
    trained with ``gpflow.optimizers.NaturalGradient`` and with
    ``gpflow_pep.training.fit(natural_gradient=...)``.

    :param kernel: Any kernel for ``gpflow.models.SVGP``, of one output or several. If q
        correlates the latent functions of a row, the tilted integral is over all of
        them at once. It is available for a Gaussian likelihood, in closed form, and for
        any likelihood at :math:`\alpha = 0`, where marginals are enough.
    :param inducing_variable: The inducing variables. This argument, ``mean_function``
        and ``alpha``, which is a number, are as in :class:`PEPRegression`.
    :param num_data: The number of rows N of the whole data set, not of a batch; it can
        be assigned later.
    :param num_latent_gps: The number of latent functions, L; by default the number in
        the kernel, or in ``q_mu`` or ``q_sqrt`` if they are given.
    :param q_diag: Whether the covariances of q are diagonal, as in
        ``gpflow.models.SVGP``. This has fewer parameters, but is a worse approximation
        and cannot be trained with natural gradients.
    :param q_mu: Initial mean of q, [M, L]; zero by default.
    :param q_sqrt: Initial lower triangular square roots of the covariances of q, [L, M,
        M]; with ``q_diag``, standard deviations [M, L].
    :param whiten: Whether ``q_mu`` and ``q_sqrt`` describe the whitened inducing
        variables v (u = L v), or u minus the mean function. The energy is the same at
        the same q.
    :raises ValueError: If alpha is outside [0, 1], if shapes or float types do not
        agree, if GPflow has no covariance of the inducing variables under the kernel,
        or if ``q_sqrt`` is not a square root.
    """

    likelihood: Likelihood
    q_mu: Parameter
    q_sqrt: Parameter
    _num_data: tuple[int, tf.Variable]

    _TF_MODULE_IGNORED_PROPERTIES = frozenset(
        {"_num_data", *PowerEPModel._TF_MODULE_IGNORED_PROPERTIES}
    )

    energy: Callable[[WhitenedGaussian, tf.Tensor, tf.Tensor], TiedEnergy]
    """The energy as a function of q, alpha and N, from
    :mod:`gpflow_pep.engine.energies.tied`.
    """

    def __init__(
        self,
        kernel: Kernel,
        likelihood: Likelihood,
        inducing_variable: InducingVariablesLike,
        *,
        alpha: float = 0.5,
        num_data: int | None = None,
        mean_function: MeanFunction | None = None,
        num_latent_gps: int = 1,
        q_diag: bool = False,
        q_mu: TensorData | None = None,
        q_sqrt: TensorData | None = None,
        whiten: bool = True,
    ) -> None:
        inducing_variable = check_inducing_variable(inducing_variable, kernel, None)
        shape = _shape_of_q(inducing_variable, kernel)
        mean, root = _check_q(q_mu, q_sqrt, shape, num_latent_gps, q_diag)
        super().__init__(
            kernel,
            likelihood,
            inducing_variable,
            mean_function,
            mean.shape[1],
            alpha,
            None,
        )
        self._powers()
        self.num_data = num_data
        self.whiten = whiten
        self.q_diag = q_diag
        self.q_mu = VariationalParameter(mean)
        self.q_sqrt = VariationalParameter(
            root, transform=positive() if q_diag else triangular()
        )

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "data":
            got = f"an assignment to {type(self).__name__}, which holds no data"
            remedy = "Pass the data to training_loss or elbo."
            raise checks.refusal(
                "data", got, "data as an argument of each call", remedy
            )
        super().__setattr__(name, value)

    @property
    def num_data(self) -> int:
        """The number of rows N of the whole data set. Compiled functions use a new
        value when it is assigned. It is not a parameter, and restoring a checkpoint
        does not change it.
        """
        # The new value is compared with the present one.
        if "_num_data" not in vars(self):
            raise AttributeError("num_data")
        return self._num_data[0]

    @num_data.setter
    def num_data(self, value: Any) -> None:
        remedy = (
            "Pass the number of rows of the whole data set, len(X), not of a batch."
        )
        number = checks.check_positive("num_data", value, remedy)
        known = vars(self).get("_num_data")
        variable = (
            known[1] if known else tf.Variable(0, trainable=False, dtype=tf.int64)
        )
        variable.assign(number)
        # This bypasses TensorFlow, which would save it.
        self.__dict__["_num_data"] = (
            number,
            variable,
        )

    @check_shapes("return: []")
    def prior_kl(self) -> tf.Tensor:
        """Compute the divergence of q from the prior."""
        return gauss_kl(*self._posterior_of_v())

    @unconverted("return: []")
    def maximum_log_likelihood_objective(self, data: RegressionData) -> tf.Tensor:
        """See :meth:`pep_log_marginal_likelihood`."""
        X, Y = checks.check_data(labels_to_floats(data))
        factors.check_support(self.likelihood, Y)
        check_columns(self.inducing_variable, X)
        number = tf.convert_to_tensor(self._num_data[1])
        enough = checks.require(
            tf.shape(X, tf.int64)[0] <= number, _LARGE_BATCH, number
        )
        with tf.control_dependencies(enough):
            X = tf.identity(X)
        num_data = tf.cast(number, X.dtype)
        alpha = self._powers()
        energy = self.energy(self._posterior_of_v(), alpha, num_data)
        scale = num_data / tf.cast(tf.shape(X)[0], X.dtype)
        value = energy.rest + scale * tf.reduce_sum(
            self._tilted(energy.cavity, X, Y, alpha)
        )
        return checks.require_finite(value, "log marginal likelihood", ADVICE)

    def _tilted(
        self, q: WhitenedGaussian, X: tf.Tensor, Y: tf.Tensor, alpha: tf.Tensor
    ) -> tf.Tensor:
        """Compute the tilted integral of each row under q, [B]."""
        if mixes_outputs(self.kernel, self.inducing_variable):
            return self._tilted_of_mixed(q, X, Y, alpha)
        A, D, _ = self._parts.project(self._parts.whiten().W, X)
        h, s = row_moments(q, A)
        d = tf.transpose(D)
        mean = h + self._parts.mean(X)
        factors.check_num_latent(mean.shape[1], self.likelihood, Y)
        return self._resolved(X, mean, s + d, Y, alpha)

    def _tilted_of_mixed(
        self, q: WhitenedGaussian, X: tf.Tensor, Y: tf.Tensor, alpha: tf.Tensor
    ) -> tf.Tensor:
        """Compute :meth:`_tilted` if q correlates the latent functions of a row."""
        joint = factors.traits(self.likelihood).is_gaussian
        mean, covariance = _f_under(q, *self._parts[:3], X, False, joint)
        factors.check_num_latent(mean.shape[1], self.likelihood, Y)
        if joint:
            noise = self.likelihood.variance_at(X)
            return joint_log_power_expectation(mean, covariance, Y, noise, alpha)
        got = (
            f"a power above 0 with {type(self.kernel).__name__}, under which q"
            " correlates the"
        )
        got += f" latent functions of a row, and {type(self.likelihood).__name__}"
        expected = "a likelihood whose integral over all latent functions is known"
        remedy = (
            "Use alpha=0, a Gaussian likelihood, or independent latent functions,"
            f" {_SHARED}."
        )
        text = checks.message("alpha", got, expected, remedy)
        with tf.control_dependencies(checks.require(tf.equal(alpha, 0.0), text)):
            return self._resolved(X, mean, covariance, Y, alpha)

    def _resolved(
        self, X: Any, mean: tf.Tensor, variance: tf.Tensor, *rest: Any
    ) -> tf.Tensor:
        """Compute the integral of each row, [B], after a check that it exists."""
        ell = factors.log_power_expectation(self.likelihood, X, mean, variance, *rest)
        with tf.control_dependencies(
            factors.require_resolved(self.likelihood, ell, mean, variance)
        ):
            return tf.identity(ell)

    @check_shapes("return[0]: [M, L]", "return[1]: [L, M, M]")
    def compute_qu(self) -> tuple[tf.Tensor, tf.Tensor]:
        """Compute mean and covariance of q(u), minus the mean function, for each latent
        function.
        """
        return unwhitened(self._prior_root(), self._posterior_of_v())

    def _prior_root(self) -> tf.Tensor:
        """Compute Cholesky factors of the prior covariance of u, [1, M, M] or [L, M,
        M].
        """
        return tf.linalg.cholesky(covariance_of_u(self.inducing_variable, self.kernel))

    def _check_powers(self, alpha: Power) -> tf.Tensor:
        power = checks.read_powers(alpha)
        if power.shape.rank != 0:
            remedy = (
                "Pass a number, or use gpflow_pep.models.PEP for a power for each row."
            )
            got = f"shape {tuple(power.shape)}"
            expected = "one number, because the sites are tied"
            raise checks.refusal("alpha", got, expected, remedy)
        return power

    def _posterior_of_v(self) -> WhitenedGaussian:
        """Compute q(v) for the present parameters."""
        mean, root = (
            checks.require_finite(tf.convert_to_tensor(parameter), "q", ADVICE)
            for parameter in (self.q_mu, self.q_sqrt)
        )
        if self.q_diag:
            root = tf.linalg.diag(tf.transpose(root))
        if self.whiten:
            return WhitenedGaussian(mean, root)
        L = self._prior_root()
        mean = tf.linalg.triangular_solve(L, tf.transpose(mean)[:, :, None])
        return WhitenedGaussian(
            tf.transpose(mean[..., 0]), tf.linalg.triangular_solve(L, root)
        )


class ARPEP(TiedModel):
    r"""Sparse GP model by approximate reparameterised Power EP, for data in
    minibatches::

        kernel, likelihood = gpflow.kernels.RBF(), gpflow.likelihoods.Bernoulli()
        model = pep.ARPEP(kernel, likelihood, X[:20], num_data=len(X), alpha=0.5)
        batches = pep.training.shuffled_batches((X, labels), 50, seed=0)
        adam = tf_keras.optimizers.Adam(0.01)
        pep.training.fit(model, batches, num_steps=100, optimizer=adam)
        probability, _ = model.predict_y(X_new)

    The model is :class:`gpflow.models.SVGP` with the variational expectation replaced
    by the tilted integral under q: :func:`gpflow_pep.engine.energies.tied.arpep`.
    Source: Villacampa-Calvo & Hernández-Lobato (2020), section 3.3. For the arguments
    see :class:`TiedModel`.

    .. seealso:: :class:`PEP`, where each step can pass over all rows; :class:`RPAPEP`
        and :class:`APEP`, to try after this one; :ref:`tied`, and :doc:`/training`.
    """

    energy = staticmethod(tied.arpep)


class RPAPEP(TiedModel):
    r"""Sparse GP model by refined prior approximate Power EP, used like :class:`ARPEP`.

    The prior is one of N + 1 tied factors:
    :func:`gpflow_pep.engine.energies.tied.rpapep`. Source: Villacampa-Calvo &
    Hernández-Lobato (2020), section 3.4. For the arguments see :class:`TiedModel`.

    .. seealso:: :class:`ARPEP`, to try first; :class:`PEP`, where each step can pass
        over all rows; :ref:`tied`, and :doc:`/training`.
    """

    energy = staticmethod(tied.rpapep)


class APEP(TiedModel):
    r"""Sparse GP model by approximate Power EP, used like :class:`ARPEP`.

    q is the prior times N equal Gaussian factors:
    :func:`gpflow_pep.engine.energies.tied.apep`. At :math:`\alpha = 1` this is the
    energy of stochastic EP. Source: Villacampa-Calvo & Hernández-Lobato (2020), section
    3.2.

    Every Gaussian q can be written in this way: the factor is the N-th root of q
    divided by the prior. The precision of the factor may be negative in some direction,
    like the precision of a site of EP, but the cavity is a proper Gaussian for any q.
    Therefore the parameters of this class are the parameters of q, while the paper uses
    the parameters of the factor. For the arguments see :class:`TiedModel`.

    .. seealso:: :class:`ARPEP`, to try first; :class:`PEP`, where each step can pass
        over all rows; :ref:`tied`, and :doc:`/training`.
    """

    energy = staticmethod(tied.apep)


def _shape_of_q(
    inducing_variable: InducingVariables, kernel: Kernel
) -> tuple[int, int | None]:
    """Return the numbers of rows and columns of ``q_mu``. The number of columns is None
    for a kernel that suits any number.
    """
    num_inducing = int(inducing_variable.num_inducing)
    if not isinstance(kernel, MultioutputKernel):
        return num_inducing, None
    num_latents = int(kernel.num_latent_gps)
    several = isinstance(inducing_variable, MultioutputInducingVariables)
    # All latent functions are in one Gaussian.
    return (num_inducing, num_latents) if several else (num_inducing * num_latents, 1)


def _check_q(
    q_mu: Any,
    q_sqrt: Any,
    shape: tuple[int, int | None],
    num_latent_gps: int,
    q_diag: bool,
) -> tuple[AnyNDArray, AnyNDArray]:
    """Check the initial Gaussian. Arguments that are None are taken from the prior."""
    dtype = default_float()
    mean: AnyNDArray | None = None if q_mu is None else np.asarray(q_mu, dtype)
    root: AnyNDArray | None = None if q_sqrt is None else np.asarray(q_sqrt, dtype)
    size, needed = shape
    num_latent = checks.check_positive(
        "num_latent_gps", _num_latent_of(mean, root, q_diag) or num_latent_gps
    )
    if needed not in (None, num_latent):
        expected = f"{needed} for this kernel and these inducing variables"
        remedy = f"Pass num_latent_gps={needed}, or wrap points in {_SHARED}."
        raise checks.refusal("num_latent_gps", num_latent, expected, remedy)
    mean_of_prior: AnyNDArray = np.zeros([size, num_latent], dtype)
    if q_diag:
        root_of_prior = np.ones_like(mean_of_prior)
    else:
        root_of_prior = np.tile(np.eye(size, dtype=dtype), [num_latent, 1, 1])
    if mean is None:
        mean = mean_of_prior
    _check_numbers("q_mu", mean, mean_of_prior.shape)
    if root is None:
        return mean, root_of_prior
    _check_numbers("q_sqrt", root, root_of_prior.shape)
    if q_diag:
        _check_deviations(root)
    else:
        _check_triangular(root)
    return mean, root


def _num_latent_of(
    mean: AnyNDArray | None, root: AnyNDArray | None, q_diag: bool
) -> int | None:
    """Read the number of latent functions from q_mu or q_sqrt, if one of them is an
    array.
    """
    if mean is not None and mean.ndim:
        return int(mean.shape[-1])
    if root is not None and root.ndim:
        return int(root.shape[-1 if q_diag else 0])
    return None


def _check_numbers(name: str, value: AnyNDArray, shape: tuple[int, ...]) -> None:
    if value.shape != shape:
        expected = f"{shape}, which q_diag and the numbers of inducing variables and"
        expected += " latent functions need"
        remedy = "Reshape it, or leave it out."
        raise checks.refusal(name, f"shape {value.shape}", expected, remedy)
    if not np.isfinite(value).all():
        remedy = "Leave it out to start from the prior."
        raise checks.refusal(name, "NaN or infinity", "finite numbers", remedy)


def _check_deviations(root: AnyNDArray) -> None:
    if not (root > 0.0).all():
        got = "numbers that are not above 0 with q_diag=True"
        remedy = "Use their absolute values, or leave it out."
        raise checks.refusal("q_sqrt", got, "standard deviations", remedy)


def _check_triangular(root: AnyNDArray) -> None:
    if np.triu(root, 1).any() or not np.diagonal(root, 0, 1, 2).all():
        got = "matrices with entries above the diagonal or zeros on it"
        expected = "lower triangular square roots of covariances"
        remedy = "Use numpy.linalg.cholesky of the covariances."
        raise checks.refusal("q_sqrt", got, expected, remedy)
