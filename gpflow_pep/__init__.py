"""Sparse Gaussian processes by Power Expectation Propagation, for GPflow.

Where you write ``gpflow.models.SGPR``, write :class:`gpflow_pep.models.PEPRegression` and choose
the power ``alpha`` between 0 (variational inference) and 1 (EP, FITC).
"""

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from . import (
        compare,
        covariances,
        distributed,
        energies,
        inducing_variables,
        metrics,
        models,
        monitor,
        ops,
        plotting,
        posterior,
        recipes,
        selection,
        training,
    )

__version__ = "0.1.0"

__all__ = [
    "__version__",
    "compare",
    "covariances",
    "distributed",
    "energies",
    "inducing_variables",
    "likelihoods",
    "metrics",
    "models",
    "monitor",
    "ops",
    "plotting",
    "posterior",
    "recipes",
    "selection",
    "sequential",
    "sites",
    "surrogate",
    "sweep",
    "tilted",
    "training",
    "updates",
]


# Imported when first used: TensorFlow takes seconds to load, and the help of the command line
# needs none of it.
def __getattr__(name: str) -> ModuleType:
    if name in __all__:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
