"""Which function computes what for which likelihood; the implementations register here."""

from typing import Any

from gpflow.utilities import Dispatcher

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
        " Expected one of GPflow's or gpflow_pep's likelihoods, or of your own classes: register"
        f" a function with gpflow_pep.tilted.scalar_factor.register({type(likelihood).__name__}) if"
        " it derives from gpflow.likelihoods.ScalarLikelihood, else one with"
        f" gpflow_pep.tilted.implementations.register({type(likelihood).__name__})."
    )


@scalar_factor.register(object)
def _unknown_scalar_likelihood(likelihood: Any, *arguments: Any) -> Any:
    return _unknown_likelihood(likelihood)
