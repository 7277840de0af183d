r"""Training of PEP with minibatches: sites of the batch, and running totals of all
other sites.

Bui, Yan & Turner (2017), section 3.9; Villacampa-Calvo & Hernández-Lobato (2020),
section 3.1. The contribution of all sites to the natural parameters is kept as totals G
and b (:class:`~gpflow_pep.engine.sites.posterior.Natural`). A step removes the batch's
sites from the totals, updates the sites against the rest, puts them back, and returns

.. math::

    -\sum_l [ -\tfrac12 \log|I + G_l| + \tfrac12 b_lᵀ (I + G_l)^{-1} b_l ]
    - \frac{N}{|\mathrm{batch}|}
    \sum_{n \in \mathrm{batch}} (\ell_n + \mathrm{site\ terms}),

whose gradient counts the batch's part of G and b :math:`N / |\mathrm{batch}|` times.
The totals contain each row's contribution for the parameters at its last visit. From
time to time, and always after other code has replaced the sites, they are summed again
for the present parameters.

**Near rows.** Training for predictions from near rows maximises the sum over rows of
:math:`\log p(y_n \mid y_{near(n)})`, where near(n) are the m other training rows
nearest in units of the kernel's lengthscales, and f has the kernel's prior:
:meth:`~gpflow_pep.models.context_predictions.ContextPredictions.near_row_log_density`.
A batch costs m³ for each of its rows, independently of N. Inducing variables are not
used and not trained.
"""

import abc
from typing import Any

import numpy as np
import tensorflow as tf

from ..engine import checks
from ..engine.energies import point
from ..engine.factors import require_resolved
from ..engine.numerics.chunks import shuffled_rows
from ..engine.numerics.graphs import compiled
from ..engine.numerics.tapes import without_gradient
from ..engine.predictions.context_posterior import as_near
from ..engine.prior import input_scales, nearest_others
from ..engine.sites.posterior import Natural, SiteProblem, Sites, natural_sums
from ..engine.sites.record import FixedPoint, Goal, Solver
from ..engine.sites.sweep import infer

#: The number of evaluations of a batch in one step: with its old sites, and after each
#: of two updates.
_SWEEPS = 3


class BatchLoss(abc.ABC):
    """The training loss of batches of a model that holds its data, for ``fit``."""

    model: Any

    @property
    def state(self) -> list[tf.Variable]:
        """The variables that are kept from batch to batch, in addition to the model's
        parameters and sites.
        """
        return []

    @abc.abstractmethod
    def epoch(self, number: int) -> tf.data.Dataset:
        """Put rows into batches, in another order in each epoch."""

    @abc.abstractmethod
    def of_batch(self, batch: Any) -> tf.Tensor:
        """Compute the loss of a batch, scaled to all rows."""


class MinibatchLoss(BatchLoss):
    """The training loss of the next batch, each time it is called.

    For the arguments see :meth:`gpflow_pep.models.PEP.minibatch_training_loss_closure`.
    """

    def __init__(
        self,
        model: Any,
        batch_size: int,
        seed: int,
        refresh_every: int | None,
        compile: bool = True,
    ) -> None:
        num_rows = int(tf.shape(model.data[0])[0])
        checks.check_number(
            batch_size, num_rows, "batch_size", counted="rows of the data"
        )
        checks.check_seed(seed)
        if refresh_every is not None:
            checks.check_positive("refresh_every", refresh_every)
        self.model = model
        self._num_rows = num_rows
        self._scale = num_rows / batch_size
        self._refresh_every = refresh_every or max(1, num_rows // batch_size)
        self._shuffled = shuffled_rows(num_rows, batch_size, seed)
        self._batches = iter(
            tf.data.Dataset.range(tf.int64.max).flat_map(self._shuffled)
        )
        self._next = self._next_loss
        if compile:
            self._next = compiled(self._next_loss)
        L = model.num_latent_gps
        M = int(model.inducing_variable.num_inducing)
        self._totals = Natural(
            *(
                tf.Variable(
                    tf.zeros([L, M, columns], model.data[0].dtype), trainable=False
                )
                for columns in (M, 1)
            )
        )
        self._steps = tf.Variable(0, trainable=False)
        self._version = tf.Variable(0, trainable=False)
        """The version of the model's sites to which the totals belong."""

    def __call__(self) -> tf.Tensor:
        """Compute the next batch's loss."""
        return self._next()

    @property
    def state(self) -> list[tf.Variable]:
        """The variables that are kept from call to call, in addition to the model's
        sites and except the next batch.
        """
        return [*self._totals, self._steps, self._version]

    def epoch(self, number: int) -> tf.data.Dataset:
        """Put the numbers of rows into batches."""
        return self._shuffled(number)

    @tf.autograph.experimental.do_not_convert
    def _next_loss(self) -> tf.Tensor:
        return self.of_batch(next(self._batches))

    @tf.autograph.experimental.do_not_convert
    def of_batch(self, batch: tf.Tensor) -> tf.Tensor:
        """Compute the loss of a batch that the caller chooses, after updating its
        sites.

        :param batch: The numbers of the rows, as many as in a batch; ``epoch(k)`` gives
            the batches of the k-th epoch.
        """
        model = self.model
        index = batch
        problem = model.site_problem()
        text = checks.message(
            "data",
            f"other rows than the {self._num_rows} that this minibatch loss was"
            " made for",
            "the same",
            "Make the loss again.",
        )
        same = checks.require(
            tf.equal(tf.shape(problem.rows.X)[0], self._num_rows), text
        )
        with tf.control_dependencies(same):
            index = tf.identity(index)
        batch = problem.batch(index).keep_projections(point.KEPT_MATRICES)
        end, totals = without_gradient(lambda: self._update(problem, batch, index))
        ell = end.extra.tilted.ell
        resolved = require_resolved(model.likelihood, ell, *end.marginals, rows=index)
        with tf.control_dependencies(resolved):
            end = end._replace(extra=tf.nest.map_structure(tf.identity, end.extra))
        for parameter, value in zip(
            (model.sites.nu, model.sites.tau), end.sites, strict=True
        ):
            parameter.unconstrained_variable.scatter_nd_update(index[:, None], value)
        for variable, value in zip(self._totals, totals, strict=True):
            variable.assign(value)
        self._version.assign(model.sites.version.assign_add(1, read_value=True))
        self._steps.assign_add(1)
        value = point.energy(batch, end, self._scale)
        return -value - model.log_prior_density()

    def _update(
        self, problem: SiteProblem, batch: SiteProblem, index: tf.Tensor
    ) -> tuple[FixedPoint, Natural]:
        """Update the batch, and compute its sites and all totals."""
        model = self.model
        all_sites = model.read_sites()

        def taken_out(totals: Natural, sites: Sites) -> tuple[Natural, Sites]:
            """Return the totals of the other rows, and the sites of the batch."""
            of_batch = Sites(*(tf.gather(numbers, index) for numbers in sites))
            sums = natural_sums(batch, of_batch)
            return tf.nest.map_structure(tf.subtract, totals, sums), of_batch

        def without_negative() -> tuple[Natural, Sites]:
            sites = Sites(all_sites.nu, tf.nn.relu(all_sites.tau))
            return taken_out(natural_sums(problem, sites), sites)

        lagging = (self._steps % self._refresh_every == 0) | (
            self._version != model.sites.version
        )
        totals = tf.cond(
            lagging,
            lambda: natural_sums(problem, all_sites),
            lambda: Natural(*map(tf.convert_to_tensor, self._totals)),
        )
        others, before = taken_out(totals, all_sites)
        # Totals belong to older parameters, so differences of totals may be improper,
        # and so may negative precisions with other parameters. In that case, start
        # again from totals that are always proper.
        identity = tf.eye(tf.shape(others.G)[-1], dtype=others.G.dtype)
        is_proper = tf.reduce_all(
            tf.math.is_finite(tf.linalg.cholesky(others.G + identity))
        )
        others, before = tf.cond(is_proper, lambda: (others, before), without_negative)
        limits = Solver(Goal(model.tolerance), _SWEEPS, fall_back=False)
        end = infer(batch, before, limits, others)
        sums = natural_sums(batch, end.sites)
        return end, tf.nest.map_structure(tf.add, others, sums)


#: The number of batches after which near rows are searched again, because lengthscales
#: have changed by then.
REFRESH_EVERY = 5


class NearRowLoss(BatchLoss):
    """The training loss of batches of rows, each given the rows near it.

    For the arguments see ``near_row_training_loss_closure`` of
    :class:`~gpflow_pep.models.context_predictions.ContextPredictions`.
    """

    def __init__(self, model: Any, near: int, batch_size: int, seed: int) -> None:
        num_rows = int(tf.shape(model.data[0])[0])
        near = as_near(
            checks.check_positive("near", near), num_rows - 1, model.has_blocks
        ).number
        self.model = model
        self._near = near
        self._num_rows = num_rows
        self._batch_size = min(
            checks.check_positive("batch_size", batch_size), num_rows
        )
        self._seed = checks.check_seed(seed)

    def epoch(self, number: int) -> tf.data.Dataset:
        """Find the near rows of the rows in the next batches, with the present kernel.

        :param number: The number of the epoch, from 0. An epoch has
            :data:`REFRESH_EVERY` batches, or fewer if there are not enough rows. Rows
            are chosen at random in each epoch.
        """
        X = tf.convert_to_tensor(self.model.data[0])
        scales = input_scales(self.model.context_parts().kernel, X)
        size = min(REFRESH_EVERY * self._batch_size, self._num_rows)
        random = np.random.default_rng([self._seed, number])
        index = tf.constant(random.choice(self._num_rows, size, replace=False))
        near = nearest_others(X / scales, index, self._near)
        rows = tf.data.Dataset.from_tensor_slices((index, near))
        return rows.batch(self._batch_size, drop_remainder=True)

    @tf.autograph.experimental.do_not_convert
    def of_batch(self, batch: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        """Compute the loss of rows [B], each given m near rows [B, m], scaled to all
        rows.
        """
        density = tf.reduce_mean(self.model.near_row_log_density(*batch))
        return -self._num_rows * density - self.model.log_prior_density()
