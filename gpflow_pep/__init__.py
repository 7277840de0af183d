"""Sparse Gaussian processes by Power Expectation Propagation, for GPflow.

Where you write ``gpflow.models.SGPR``, write :class:`gpflow_pep.models.PEPRegression`
and choose the power ``alpha`` between 0 (variational inference) and 1 (EP, FITC).
"""

from .engine.refusals import imported_when_used

__version__ = "0.4.0"

#: The packages, lowest first: each imports only from those before it. The architecture
#: test checks them, CONTRIBUTING.md and the reference against this list.
ROOMS = {
    "engine": "what the package computes with; users do not import from it",
    "tables": (
        "how tables and files are read and cleaned, and how their columns become"
        " numbers"
    ),
    "distributions": (
        "distributions of targets, units of targets and inputs, in NumPy alone"
    ),
    "scoring": (
        "predictions of fitted models in NumPy alone; no TensorFlow, no scikit-learn"
    ),
    "inducing_variables": "inducing variables that GPflow lacks",
    "likelihoods": (
        "likelihoods that GPflow lacks, and what your own likelihood registers"
    ),
    "models": ("parameters and GPflow's interface; the engine does the computing"),
    "training": "starts, loops, their records, choices by held-out or left-out rows",
    "estimators": "scikit-learn's conventions on the models",
    "metrics": "how good predictions of held-out rows are",
    "plotting": "pictures: numbers and an `ax` in, the `ax` out",
    "compare": "the main job: tables in, a report out, and the command line",
    "monitor": "tasks for `gpflow.monitor`",
}

#: Names of :mod:`gpflow_pep.models` that this package offers as well.
MODELS = ("APEP", "ARPEP", "PEP", "PEPClassification", "PEPRegression", "RPAPEP")

__all__ = ["__version__", *ROOMS, *MODELS]


# Imported when first used: TensorFlow takes seconds to load, and the help of the
# command line needs none of it.
_homes = {**{room: f".{room}" for room in ROOMS}, **dict.fromkeys(MODELS, ".models")}
__getattr__ = imported_when_used(__name__, _homes)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
