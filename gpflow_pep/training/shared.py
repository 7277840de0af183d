"""Training of many models of one make, as in cross-validation, with one compilation for all."""

from typing import Any

import gpflow
import tensorflow as tf
from gpflow.models import GPModel

from ..models.base import InternalDataModel
from ..models.parameters import keep
from ..ops.chunks import ALL_ROWS, CHUNK_ELEMENTS
from .full_batch import MaximiseRecord, maximise
from .model_state import assign, state_of
from .whole_loss import WholeLoss


class SharedLosses:
    """
    The losses of models that differ in nothing but rows and the values of parameters, compiled once
    for all that have parameters of the same shapes::

        losses = SharedLosses()
        for rows in folds:
            model = make_model(rows)
            losses.maximise(model)  # compiles in the first fold only

    That the models do not differ otherwise is the caller's promise. Each is trained in the place of
    a copy of the first one, whose rows are variables.
    """

    def __init__(self) -> None:
        self._losses: dict[Any, WholeLoss] = {}

    def maximise(self, model: GPModel, **options: Any) -> MaximiseRecord:
        """
        Train a model: see :func:`~gpflow_pep.training.full_batch.maximise`.

        :param model: One that holds its data.
        :param options: Of that function; a callback sees the model as it was before.
        :raises ValueError: As there.
        """
        state, data = state_of(model), tuple(map(tf.convert_to_tensor, model.data))
        any_number = _in_one_piece(model, data[0])
        of_data = [(None if any_number else len(part), *part.shape[1:]) for part in data]
        make = (*of_data, *(tuple(variable.shape) for variable in state))
        if make not in self._losses:
            twin = gpflow.utilities.deepcopy(model)
            rows = [tf.Variable(p, shape=s, trainable=False) for p, s in zip(data, of_data)]
            keep(twin, data=tuple(rows))
            if isinstance(twin, InternalDataModel) and any_number:
                twin.chunk_size = ALL_ROWS
            self._losses[make] = WholeLoss(twin)
        loss = self._losses[make]
        assign(loss.model.data, data)
        assign(loss.state, state)
        try:
            return maximise(loss, **options)
        finally:
            assign(state, loss.state)


def _in_one_piece(model: GPModel, X: tf.Tensor) -> bool:
    """Whether the rows are summed over in one piece, so that their number need not be known."""
    if not isinstance(model, InternalDataModel):
        return True
    plain = model.chunk_size is None and not getattr(model, "neighbours", 0)
    plain = plain and not getattr(model, "has_blocks", False)
    return plain and len(X) * (model.inducing_variable.num_inducing or 1) <= CHUNK_ELEMENTS
