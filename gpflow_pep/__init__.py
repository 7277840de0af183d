"""Sparse Gaussian processes by Power Expectation Propagation, for GPflow.

Where you write ``gpflow.models.SGPR``, write :class:`gpflow_pep.models.PEPRegression` and choose
the power ``alpha`` between 0 (variational inference) and 1 (EP, FITC).
"""

from importlib import import_module
from types import ModuleType

__version__ = "0.1.0"

#: The rooms, from the ground up: each imports only from those before it.
ROOMS = (
    "checks",
    "ops",
    "inducing_variables",
    "covariances",
    "tilted",
    "likelihoods",
    "inference",
    "energies",
    "models",
    "selection",
    "training",
    "metrics",
    "compare",
    "plotting",
    "monitor",
)

__all__ = ["__version__", *ROOMS]


# Imported when first used: TensorFlow takes seconds to load, and the help of the command line
# needs none of it.
def __getattr__(name: str) -> ModuleType:
    if name in ROOMS:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
