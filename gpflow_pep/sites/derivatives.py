"""Derivatives that are not known: refused where they are asked for, instead of being wrong.

Sites at their fixed point are computed without a record for differentiation. The energy is
stationary in them, so that its first derivative needs none. Every other derivative in a
hyperparameter does: that of predictions, and all higher ones of the energy.
"""

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import TensorType

from .. import checks

_GOT = "one in a hyperparameter"
_EXPECTED = "none: how sites at their fixed point move with hyperparameters is not differentiated"
_REMEDY = (
    "First derivatives of training_loss and derivatives in Xnew are exact. For others use finite"
    " differences, or gpflow_pep.models.PEPRegression where the noise is Gaussian."
)


def float_variables(*parts: Any) -> list[tf.Variable]:
    """List the variables of kernels, likelihoods and the like, each one once."""
    variables = [v for part in parts for v in getattr(part, "variables", ())]
    return list({id(v): v for v in variables if v.dtype.is_floating}.values())


def refuse_derivatives(values: Any, sources: Sequence[TensorType], quantity: str) -> Any:
    """
    Let constants pass that are functions of others, with a gradient that refuses.

    A tape calls the gradient functions of all that it has recorded, whatever its user asks for. An
    error is raised where that is a derivative in one of the sources. It is not known yet where
    TensorFlow prepares the gradient of a compiled function: there the derivative in them is NaN.

    :param sources: What they depend on: variables, or tensors, in which the derivative is NaN where
        another one may be asked for.
    :raises ValueError: While a derivative in one of the sources is computed.
    """

    @tf.custom_gradient
    def constant(*inputs: tf.Tensor) -> tuple[list[tf.Tensor], Callable[..., Any]]:
        def gradient(*upstream: tf.Tensor) -> list[tf.Tensor | None]:
            is_asked = _is_asked_for(sources, inputs)
            if is_asked:
                raise checks.refusal(f"derivative of {quantity}", _GOT, _EXPECTED, _REMEDY)
            # A compiled function may have other results: zero arrives for those that nobody asks
            # for. Differentiation forwards makes use of how this depends on upstream.
            total = tf.add_n([tf.reduce_sum(tf.abs(part)) for part in upstream])
            unknown = tf.where(tf.equal(total, 0.0), total, np.nan * total)
            return [
                None if is_asked is False and isinstance(source, tf.Variable) else unknown + 0.0 * x
                for source, x in zip(sources, inputs, strict=True)
            ]

        return [tf.identity(value) for value in tf.nest.flatten(values)], gradient

    inputs = list(map(tf.convert_to_tensor, sources))
    return tf.nest.pack_sequence_as(values, constant(*inputs)) if inputs else values


def once_differentiable(
    value: tf.Tensor, sources: Sequence[TensorType], quantity: str
) -> tf.Tensor:
    """
    Let a tensor pass whose first derivatives are right, and refuse all higher ones.

    :raises ValueError: While a higher derivative is computed.
    """

    @tf.custom_gradient
    def same(value: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
        def gradient(upstream: tf.Tensor) -> tf.Tensor:
            one = tf.ones_like(upstream)
            return upstream * refuse_derivatives(one, sources, f"the gradient of {quantity}")

        return tf.identity(value), gradient

    return same(value)


def _is_asked_for(sources: Sequence[TensorType], inputs: Sequence[tf.Tensor]) -> bool | None:
    """Find out whether the derivative being computed is one in the sources; None: not known."""
    frame = sys._getframe()
    while frame.f_back is not None:
        frame = frame.f_back
        if frame.f_code is tf.GradientTape.gradient.__code__:
            asked_for = tf.nest.flatten(frame.f_locals["sources"])
            if any(asked is source for asked in asked_for for source in sources):
                return True
            break
    else:  # tf.gradients, which asks for what it needs and no more, or a function's gradient
        return True if _same_graph(inputs) else None
    # The gradient of a function is kept, for others who ask for more.
    return False if _same_graph(inputs) or tf.executing_eagerly() else None


def _same_graph(tensors: Sequence[tf.Tensor]) -> bool:
    graph = getattr(tensors[0], "graph", None) if tf.is_symbolic_tensor(tensors[0]) else None
    return graph is tf.compat.v1.get_default_graph()
