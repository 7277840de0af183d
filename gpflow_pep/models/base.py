"""What models have in common: everything that follows from q(v)."""

import abc
from typing import Any

import tensorflow as tf
from check_shapes import inherit_check_shapes
from gpflow.base import InputData, MeanAndVariance
from gpflow.inducing_variables import InducingVariables
from gpflow.models import GPModel
from gpflow.models.training_mixins import InternalDataTrainingLossMixin
from gpflow.posteriors import BasePosterior, PrecomputeCacheType, create_posterior

from ..covariances import well_conditioned
from ..ops import chunks, replicas
from ..ops.graph import converted_for, unconverted
from ..posterior import WhitenedGaussian, gpflow_posterior
from ..surrogate import SurrogateRegression, surrogate_rows
from . import checks

#: Matrices of size M x N that automatic differentiation keeps: Kuf twice (its exponential and its
#: product with the variance), A, and A times the rows' precisions.
_KEPT_MATRICES = 4


class PredictiveModel(GPModel):
    """A model that predicts by q(v) of the whitened inducing variables."""

    inducing_variable: InducingVariables

    @abc.abstractmethod
    def _posterior_of_v(self) -> WhitenedGaussian:
        """q(v) for the parameters and data as they are."""

    def posterior(
        self,
        precompute_cache: PrecomputeCacheType | str | None = PrecomputeCacheType.TENSOR,
    ) -> BasePosterior:
        """
        Create the GPflow posterior, for fast predictions.

        :param precompute_cache: As in :meth:`gpflow.models.SGPR.posterior`.
        :raises ValueError: If it is none of GPflow's.
        """
        return gpflow_posterior(
            self._posterior_of_v,
            self.kernel,
            self.inducing_variable,
            self.mean_function,
            precompute_cache,
        )

    @inherit_check_shapes
    def predict_f(
        self, Xnew: InputData, full_cov: bool = False, full_output_cov: bool = False
    ) -> MeanAndVariance:
        """
        See :meth:`gpflow.models.GPModel.predict_f`.

        This works q(u) out anew; :meth:`posterior` keeps it for many predictions.
        """
        return self._f_under(self._posterior_of_v(), Xnew, full_cov, full_output_cov)

    def _f_under(
        self,
        q: WhitenedGaussian,
        Xnew: InputData,
        full_cov: bool = False,
        full_output_cov: bool = False,
    ) -> MeanAndVariance:
        """Moments of f where v is distributed as q, by GPflow's conditionals."""
        posterior = create_posterior(
            self.kernel,
            well_conditioned(self.inducing_variable, self.kernel),
            *q,
            whiten=True,
            mean_function=self.mean_function,
            precompute_cache=PrecomputeCacheType.NOCACHE,
        )
        return posterior.fused_predict_f(Xnew, full_cov=full_cov, full_output_cov=full_output_cov)


class InternalDataModel(PredictiveModel, InternalDataTrainingLossMixin):
    """A model that holds its data and computes q(v) from them."""

    data: tuple[tf.Tensor, tf.Tensor]
    _chunk_size: int | None

    @abc.abstractmethod
    def pep_log_marginal_likelihood(self) -> tf.Tensor:
        """Compute the Power EP estimate of the log marginal likelihood."""

    @abc.abstractmethod
    def _natural_of_v(self) -> list[tuple[tf.Tensor, tf.Tensor, tf.Tensor]]:
        """
        Of each latent function the inverse Cholesky factor of Kuu and what the data add to the
        prior of v: W [M, M], G [M, M] and b [M, 1].
        """

    @unconverted
    def surrogate(self) -> SurrogateRegression:
        """
        Compute the regression problem whose exact posterior of u and evidence are this model's.

        See :mod:`gpflow_pep.surrogate`. It takes as many inducing variables for each latent
        function.

        :raises ValueError: If sites of negative precision leave a direction of u with less
            precision than the prior has: no observation with noise does that.
        """
        rows = [surrogate_rows(*natural) for natural in self._natural_of_v()]
        smallest = tf.reduce_min(tf.stack([row.smallest for row in rows]))
        checks.require(
            smallest > -1e-6,
            "surrogate: got sites of negative precision that leave some direction less certain than"
            " the prior, expected a likelihood whose sites all say something. Use a log-concave"
            " likelihood.",
        )
        log_evidence = tf.add_n([row.log_evidence for row in rows])
        return SurrogateRegression(
            tf.stack([row.weights for row in rows]),
            tf.stack([row.targets for row in rows]),
            self.pep_log_marginal_likelihood() - log_evidence,
        )

    @inherit_check_shapes
    def maximum_log_likelihood_objective(self) -> tf.Tensor:
        """See :meth:`pep_log_marginal_likelihood`."""
        return self.pep_log_marginal_likelihood()

    @property
    def q_mu(self) -> tf.Tensor:
        """[M, L], the mean of the whitened q(v); u = L v."""
        return self._posterior_of_v().q_mu

    @property
    def q_sqrt(self) -> tf.Tensor:
        """[L, M, M], lower triangular square root of the covariance of the whitened q(v)."""
        return self._posterior_of_v().q_sqrt

    def _mean(self, X: tf.Tensor) -> tf.Tensor:
        """The mean function."""
        return converted_for((self.mean_function,), _call)(self.mean_function, X)

    def _num_rows(self) -> tf.Tensor:
        return tf.shape(self.data[0])[0]

    def _num_rows_everywhere(self) -> tf.Tensor:
        """N, of all processes that hold a shard of the rows."""
        (number,) = replicas.total([tf.cast(self._num_rows(), self.data[0].dtype)])
        return number

    def _known_num_rows(self) -> int | None:
        """N where it is known before a graph runs."""
        if tf.executing_eagerly():
            return int(self._num_rows())
        known: int | None = self.data[0].shape[0]
        return known

    def _num_inducing(self) -> int:
        return (self.inducing_variable.shape or (None,))[0] or 1

    def _rows_at_a_time(self) -> int:
        return self._chunk_size or chunks.default_chunk_size(self._num_inducing())

    def _fits_memory(self, copies: int = _KEPT_MATRICES) -> bool:
        """Whether matrices of size M x N may be kept; never where a chunk size was asked for."""
        X = self.data[0]
        return self._chunk_size is None and chunks.fits_memory(
            self._num_inducing(), X.shape[0], X.dtype.size, copies
        )


def _call(function: Any, X: tf.Tensor) -> tf.Tensor:
    return function(X)
