"""Training of many models with one compilation, as in cross-validation."""

import threading
from collections.abc import Hashable
from typing import Any

import tensorflow as tf
from gpflow.models import GPModel

from ...engine.factors.entries import takes_missing_targets
from ...engine.numerics import chunks
from ...engine.prior import latent_kernels
from ...models import PEP
from ...models.arguments import set_unchecked
from ...models.base import InternalDataModel
from .full_batch import MaximiseRecord, maximise
from .objectives import Objective, WholeLoss, assign, copy_of, state_of

#: How many losses are kept: the ones used last.
MOST = 4


class SharedLosses:
    """
    The losses of models that differ in nothing but rows and the values of parameters, compiled once
    for all that have parameters of the same shapes::

        losses = SharedLosses()
        for rows in folds:
            model = make_model(rows)
            losses.maximise(model)  # compiles in the first fold only

    Each model is trained in the place of a copy of the first one, whose rows are variables. Those
    whose rows are summed over in chunks, or have blocks, are trained by themselves:
    where there are many rows, compiling is little of the time.
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
        """Train a model: see :func:`~gpflow_pep.training.maximise`.

        :param model: One that holds its data.
        :param cache_key: The caller promises that models with the same key differ in rows and
            values of parameters only.
        :param objective: Of that function.
        :param options: Of that function; a callback sees the model as it was before.
        """
        if not fits_one_chunk(model):
            return maximise(model, objective=objective, **options)
        state, data = state_of(model), tuple(map(tf.convert_to_tensor, model.data))
        columns = [tuple(part.shape[1:]) for part in data]
        shapes = (tuple(variable.shape) for variable in state)
        key = (cache_key, objective, type(model), takes_missing_targets(model), *columns, *shapes)
        # It is not in the cache while it is used: a callback may train another such model.
        loss = self._losses.pop(key, None) or _loss_of_any_rows(model, data, objective)
        assign(loss.model.data, data)
        assign(loss.state, state)
        if isinstance(model, PEP):
            loss.model.loss_tolerance.assign(model.loss_tolerance)
        try:
            return maximise(loss, **options)
        finally:
            assign(state, loss.state)
            assign(loss.model.data, [part[:0] for part in data])
            self._losses[key] = loss
            for oldest in list(self._losses)[:-MOST]:
                del self._losses[oldest]


_of_thread = threading.local()


def thread_cache() -> SharedLosses:
    """Give the losses that all models trained in this thread share."""
    return vars(_of_thread).setdefault("losses", SharedLosses())


def _loss_of_any_rows(
    model: GPModel, data: tuple[tf.Tensor, ...], objective: Objective
) -> WholeLoss:
    """Make the loss of a copy that stands for models with any number of rows."""
    template = copy_of(model)
    rows = [tf.Variable(part, shape=[None, *part.shape[1:]], trainable=False) for part in data]
    set_unchecked(template, data=tuple(rows))
    if isinstance(template, InternalDataModel):
        template.chunk_size = chunks.ALL_ROWS
    return WholeLoss(template, objective=objective)


def fits_one_chunk(model: GPModel) -> bool:
    """Whether rows are summed over in one chunk, so that their number need not be known."""
    if not isinstance(model, InternalDataModel):
        return True
    plain = model.chunk_size is None and model.rows.cut.block_rows is None
    size = chunks.num_rows(model.data[0]) * (model.inducing_variable.num_inducing or 1)
    size *= len(latent_kernels(model.kernel))
    return plain and bool(size <= chunks.CHUNK_ELEMENTS)
