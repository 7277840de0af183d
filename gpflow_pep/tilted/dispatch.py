"""Which function computes what for which likelihood; the implementations register here."""

from collections.abc import Callable
from typing import Any

from gpflow.utilities import Dispatcher

Implementation = Callable[..., Any]

#: ``(likelihood, X, Fmu, Fvar, Y, alpha) -> [N]``, with alpha a tensor [N], or [1] where all
#: rows have one power: see :func:`~gpflow_pep.tilted.log_power_expectation`.
implementations = Dispatcher("gpflow_pep.tilted.log_power_expectation")

#: ``(likelihood, X, Y, alpha) -> ScalarFactor``: see
#: :class:`~gpflow_pep.tilted.generic.ScalarFactor`.
scalar_factor = Dispatcher("gpflow_pep.tilted.scalar_factor")


@implementations.register(object)
def _unknown_likelihood(likelihood: Any, *_: Any) -> Any:
    raise NotImplementedError(
        f"likelihood: got {type(likelihood).__name__}, for which no tilted moments are registered."
        " Expected one of GPflow's or gpflow_pep's likelihoods, or one of your own that derives"
        " from gpflow.likelihoods.ScalarLikelihood or MultiLatentLikelihood. For another register a"
        f" function with gpflow_pep.tilted.implementations.register({type(likelihood).__name__})."
    )


def registered_class(dispatcher: Dispatcher, kind: type) -> type:
    """
    Find the class, of a class and those it derives from, that something is registered for.
    """
    return next(
        ancestor
        for ancestor in kind.__mro__
        if (ancestor,) in dispatcher.funcs or ancestor is object
    )
