"""Cheaper training: first on some of the rows, and with one compilation for many
models.

Hyperparameters and inducing inputs need far fewer rows than the posterior, and the cost
of a step is proportional to the number of rows.
"""

import threading
from collections.abc import Hashable
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.models import GPModel

from ...engine.checks import check_positive, check_seed, refusal
from ...engine.factors.entries import takes_missing_targets
from ...engine.numerics import chunks
from ...engine.prior import latent_kernels
from ...engine.records import MaximiseRecord
from ...models import PEP, PEPClassification, PEPRegression
from ...models.arguments import set_unchecked
from ...models.base import InternalDataModel
from .full_batch import maximise
from .objectives import Objective, WholeLoss, assign, copy_of, state_of
from .points import with_data

#: The number of rows for each inducing variable on which training begins.
ROWS_PER_POINT = 20
#: Training on some rows ends when this number of steps gains less than this number of
#: nats a row, on average.
TOLERANCE = 1e-3
WINDOW = 5


def maximise_on_subset(
    model: PEPRegression | PEP,
    num_rows: int | None = None,
    *,
    seed: int = 0,
    **options: Any,
) -> MaximiseRecord:
    """Train a model on some of its rows::

        pep.training.maximise_on_subset(model)
        pep.training.maximise(model)

    Training changes the parameters of the model, which afterwards predicts from all its
    rows and can be trained further on all of them. With many rows this is several times
    faster than training on all rows from the beginning.

    :param model: A model without blocks, memory, several powers or missing targets.
    :param num_rows: The number of rows, which are chosen at random; by default 20
        (:data:`ROWS_PER_POINT`) for each inducing variable, and at most half of the
        rows. A model with at most ``num_rows`` rows is trained on all of them.
    :param seed: Seed of the choice of rows.
    :param options: All arguments of :func:`~gpflow_pep.training.maximise`, except
        ``num_inducing`` and ``optimizer``. By default ``tolerance`` is 1e-3 and
        ``window`` is 5.
    :return: The record of this training. Its objective is for the chosen rows.
    :raises ValueError: If the model cannot be trained in this way, or if an argument is
        outside its range.
    """
    check_seed(seed)
    for name in {"num_inducing", "optimizer"} & options.keys():
        raise refusal(name, repr(options[name]), "no such argument", "Leave it out.")
    if not has_subsets(model):
        got = type(model).__name__
        if type(model) in (PEPRegression, PEP, PEPClassification):
            got = "a model with blocks, a memory or a power for each row"
        expected = (
            "a PEPRegression, PEP or PEPClassification without these, all targets"
            " observed"
        )
        raise refusal("model", got, expected, "Call maximise directly.")
    if num_rows is None:
        num_rows = min(ROWS_PER_POINT * model.num_inducing, -(-len(model.data[0]) // 2))
    subset = on_some_rows(model, check_positive("num_rows", num_rows), seed)
    return maximise(subset, **{"tolerance": TOLERANCE, "window": WINDOW, **options})


def on_some_rows(
    model: PEPRegression | PEP, num_rows: int, seed: int
) -> PEPRegression | PEP:
    """Make a model of random rows. It shares its parts, and therefore its parameters,
    with the other model.
    """
    X, Y = map(np.asarray, model.data)
    rows = np.random.default_rng(seed).permutation(len(X))[:num_rows]
    return with_data(model, (X[rows], Y[rows]))


def has_subsets(model: Any) -> bool:
    """Whether a model can be trained on some of its rows, because it has no blocks and
    so on.
    """
    kinds = PEPRegression, PEP, PEPClassification
    plain = type(model) in kinds and model.memory is None and not model.has_blocks
    return (
        plain and not takes_missing_targets(model) and bool(model.alpha.shape.rank == 0)
    )


#: The number of losses that are kept, the most recently used ones.
MOST = 4


class SharedLosses:
    """
    The losses of models that differ only in rows and in the values of parameters. A
    loss is compiled once for all models whose parameters have the same shapes::

        losses = SharedLosses()
        for rows in folds:
            model = make_model(rows)
            losses.maximise(model)  # compiles in the first fold only

    Instead of each model, a copy of the first one is trained, whose rows are variables.
    Models whose rows are summed in chunks, or have blocks, are trained directly,
    because with many rows compilation is a small part of the time.
    """

    def __init__(self) -> None:
        self._losses: dict[Any, WholeLoss] = {}

    def maximise(
        self,
        model: GPModel,
        *,
        cache_key: Hashable = (),
        objective: Objective = "evidence",
        **options: Any,
    ) -> MaximiseRecord:
        """Train a model; see :func:`~gpflow_pep.training.maximise`.

        :param model: A model that holds its data.
        :param cache_key: A key of the model. Models with the same key may differ only
            in rows and in values of parameters.
        :param objective: The objective of that function.
        :param options: Other arguments of that function. A callback gets the model with
            its parameters from before training.
        """
        if not fits_one_chunk(model):
            return maximise(model, objective=objective, **options)
        state = state_of(model)
        data = tuple(map(tf.convert_to_tensor, model.data))
        columns = [tuple(array.shape[1:]) for array in data]
        shapes = ((variable.trainable, *variable.shape) for variable in state)
        key = (
            cache_key,
            objective,
            type(model),
            takes_missing_targets(model),
            *columns,
            *shapes,
        )
        # The loss is not in the cache while it is used, because a callback may train
        # another model of this kind.
        loss = self._losses.pop(key, None) or _loss_of_any_rows(model, data, objective)
        assign(loss.model.data, data)
        assign(loss.state, state)
        if isinstance(model, PEP):
            loss.model.loss_tolerance.assign(model.loss_tolerance)
        try:
            return maximise(loss, **options)
        finally:
            assign(state, loss.state)
            assign(loss.model.data, [array[:0] for array in data])
            self._losses[key] = loss
            for oldest in list(self._losses)[:-MOST]:
                del self._losses[oldest]


_of_thread = threading.local()


def thread_cache() -> SharedLosses:
    """Return the losses that are shared by all models that are trained in this
    thread.
    """
    return vars(_of_thread).setdefault("losses", SharedLosses())


def _loss_of_any_rows(
    model: GPModel, data: tuple[tf.Tensor, ...], objective: Objective
) -> WholeLoss:
    """Make the loss of a copy that can have any number of rows."""
    template = copy_of(model)
    rows = [
        tf.Variable(array, shape=[None, *array.shape[1:]], trainable=False)
        for array in data
    ]
    set_unchecked(template, data=tuple(rows))
    if isinstance(template, InternalDataModel):
        template.chunk_size = chunks.ALL_ROWS
    return WholeLoss(template, objective=objective)


def fits_one_chunk(model: GPModel) -> bool:
    """Whether rows are summed in one chunk, so that their number need not be known."""
    if not isinstance(model, InternalDataModel):
        return True
    plain = model.chunk_size is None and model.rows.cut.block_rows is None
    size = chunks.num_rows(model.data[0]) * (model.inducing_variable.num_inducing or 1)
    size *= len(latent_kernels(model.kernel))
    return plain and bool(size <= chunks.CHUNK_ELEMENTS)
