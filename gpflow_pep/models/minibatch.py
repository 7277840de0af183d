r"""Training PEP by minibatches: sites of the batch, and running totals of all others.

Bui, Yan & Turner (2017), section 3.9; Villacampa-Calvo & Hernández-Lobato (2020), section 3.1. What
all sites add to the prior is kept as totals G and b, see :class:`gpflow_pep.sweep.NaturalSums`. A
step takes the batch's sites out of them, updates these against the rest, puts them back, and
returns

.. math::

    -\sum_l [ -\tfrac12 \log|I + G_l| + \tfrac12 b_lᵀ (I + G_l)^{-1} b_l ]
    - \frac{N}{|\mathrm{batch}|} \sum_{n \in \mathrm{batch}} (\ell_n + \mathrm{site\ terms}),

in whose gradient the batch's part of G and b counts :math:`N / |\mathrm{batch}|` times. Totals are
those of the parameters at the time of each row's last visit; now and then they are summed anew for
the parameters as they are.
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from ..ops.batches import check_positive, shuffled_rows
from ..ops.constant import constant
from ..ops.graph import unconverted
from ..sites import Marginals, Sites
from ..sweep import NaturalSums, ProjectedRows, natural_sums, sweep
from ..updates import run_to_fixed_point
from . import checks
from .inference import SiteModel

#: Evaluations of a batch in one step: its sites as they were, and after each of two updates.
_SWEEPS = 3


class MinibatchLoss:
    """
    The training loss of the next batch, each time it is called.

    :param model: The model, whose sites it updates.
    :param batch_size: Rows in a batch.
    :param seed: Of the order of rows, which changes from epoch to epoch.
    :param refresh_every: Steps between sums over all rows.
    :param compile: Whether calls are compiled.
    :raises ValueError: If an argument is outside its range.
    """

    def __init__(
        self,
        model: SiteModel,
        batch_size: int,
        seed: int,
        refresh_every: int | None,
        compile: bool = True,
    ) -> None:
        num_rows = int(tf.shape(model.data[0])[0])
        for name, value in (("batch_size", batch_size), ("refresh_every", refresh_every)):
            if value is not None:
                check_positive(name, value)
        if batch_size > num_rows:
            raise ValueError(
                f"batch_size: got {batch_size}, expected at most the {num_rows} rows of the data."
                " Pass less, or train with model.training_loss."
            )
        self._model, self._num_rows = model, num_rows
        self._scale = num_rows / batch_size
        self._refresh_every = refresh_every or max(1, num_rows // batch_size)
        self.epoch = shuffled_rows(num_rows, batch_size, seed)
        self._batches = iter(tf.data.Dataset.range(tf.int64.max).flat_map(self.epoch))
        self._next = tf.function(self._of_next, autograph=False) if compile else self._of_next
        M, L, dtype = model._num_inducing_of_latents(), model.num_latent_gps, model.data[0].dtype
        self._totals = [
            tf.Variable(tf.zeros([M[k], columns or M[k]], dtype), trainable=False)
            for columns in (None, 1)
            for k in range(L)
        ]
        self._steps = tf.Variable(0, trainable=False)

    def __call__(self) -> tf.Tensor:
        """The next batch's loss."""
        return self._next()

    @property
    def model(self) -> SiteModel:
        """The model whose loss it is."""
        return self._model

    @property
    def state(self) -> list[tf.Variable]:
        """What it keeps from call to call beside the model's sites, but for the next batch."""
        return [*self._totals, self._steps]

    @unconverted
    def _of_next(self) -> tf.Tensor:
        return self.of(next(self._batches))

    @unconverted
    def of(self, index: tf.Tensor) -> tf.Tensor:
        """
        The loss of any batch, after an update of its sites.

        :param index: Numbers of its rows, as many as a batch has; ``epoch(k)`` gives those of the
            k-th epoch, batch by batch.
        """
        model = self._model
        checks.check_not_sharded(
            "minibatch loss",
            "Use gpflow_pep.distributed.sharded_training_loss, or train ARPEP.",
        )
        X, Y, alpha = model._rows()
        same = checks.require(
            tf.equal(tf.shape(X)[0], self._num_rows),
            f"data: got other rows than the {self._num_rows} that this minibatch loss was made for,"
            " expected the same. Make it anew.",
        )
        with tf.control_dependencies(same):
            index = tf.identity(index)
        factors = model._prior_factors()
        batch = tuple(tf.gather(value, index) for value in (X, Y, alpha))
        updated = constant(lambda: self._update(factors, index, batch))
        sites, moments = Sites(*updated[:2]), Marginals(*updated[2:4])
        totals = tuple(updated[4:])
        for parameter, value in zip((model.sites.nu, model.sites.tau), sites, strict=True):
            parameter.unconstrained_variable.scatter_nd_update(index[:, None], value)
        for variable, value in zip(self._totals, totals, strict=True):
            variable.assign(value)
        self._steps.assign_add(1)
        return (
            -model._energy(
                factors, batch, sites, moments, NaturalSums.unflatten(totals), self._scale
            )
            - model.log_prior_density()
        )

    def _update(
        self, factors: list[tf.Tensor], index: tf.Tensor, batch: tuple[tf.Tensor, ...]
    ) -> list[tf.Tensor]:
        """Sites and marginals of the batch, and all totals, after its update."""
        model = self._model
        X, Y, alpha = batch
        everywhere = model.sites.read()
        refresh = self._steps % self._refresh_every == 0
        totals = tf.cond(
            refresh,
            lambda: list(model._sum_natural(factors, everywhere).flatten()),
            lambda: [tf.convert_to_tensor(total) for total in self._totals],
        )
        projected = ProjectedRows(model._priors(), factors, X, model._rows_at_a_time(), keep=True)

        def sum_natural(sites: Sites) -> list[tf.Tensor]:
            return list(
                projected.sum(
                    lambda projections, *piece: natural_sums(projections, Sites(*piece)).flatten(),
                    sites,
                )
            )

        before = Sites(*(tf.gather(part, index) for part in everywhere))
        others = [a - b for a, b in zip(totals, sum_natural(before), strict=True)]
        # Totals lag behind the parameters, so that a difference of them may be improper, as may
        # negative precisions under other parameters: then start again from what never is.
        others, nu, tau = tf.cond(
            _proper(others[: model.num_latent_gps]),
            lambda: (others, *before),
            lambda: self._mended(factors, everywhere, before, sum_natural),
        )
        rows = X, model._mean(X), Y, alpha
        sites, moments, _ = run_to_fixed_point(
            lambda sites: sweep(
                model.likelihood, projected, rows, sites, NaturalSums.unflatten(tuple(others))
            ),
            Sites(nu, tau),
            max_sweeps=_SWEEPS,
            tolerance=model.tolerance,
            fall_back=False,
        )
        after = [a + b for a, b in zip(others, sum_natural(sites), strict=True)]
        return [*sites, *moments, *after]

    def _mended(
        self,
        factors: list[tf.Tensor],
        everywhere: Sites,
        before: Sites,
        sum_natural: Callable[[Sites], list[tf.Tensor]],
    ) -> tuple[Any, ...]:
        """Totals of the others and sites of the batch, without negative precisions."""
        everywhere, before = (
            Sites(sites.nu, tf.maximum(sites.tau, tf.zeros_like(sites.tau)))
            for sites in (everywhere, before)
        )
        totals = self._model._sum_natural(factors, everywhere).flatten()
        others = [a - b for a, b in zip(totals, sum_natural(before), strict=True)]
        return others, *before


def _proper(grams: list[tf.Tensor]) -> tf.Tensor:
    """Whether I + G has a Cholesky factor, of all latent functions."""
    finite = [
        tf.reduce_all(
            tf.math.is_finite(tf.linalg.cholesky(G + tf.eye(tf.shape(G)[0], dtype=G.dtype)))
        )
        for G in grams
    ]
    return tf.reduce_all(tf.stack(finite))
