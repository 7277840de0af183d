"""Sparse Gaussian processes by Power Expectation Propagation, for GPflow.

Where you write ``gpflow.models.SGPR``, write :class:`gpflow_pep.models.PEPRegression` and choose
the power ``alpha`` between 0 (variational inference) and 1 (EP, FITC).
"""

from importlib import import_module
from typing import Any

from .refusals import absent

__version__ = "0.2.0"

#: The packages, lowest first: each imports only from those before it. The architecture test checks
#: them, CONTRIBUTING.md and the reference against this list.
ROOMS = {
    "refusals": "the one form of all refusals: got, expected, what to do",
    "checks": "checks of what users pass: got, expected, what to do",
    "files": "files and folders that are whole or not there; no TensorFlow",
    "columns": "columns of tables, pandas only: how their cells are read, numbers made of them",
    "scoring": "predictions of fitted models in NumPy alone; no TensorFlow, no scikit-learn",
    "ops": "tensors only; `linalg` is the one place that adds jitter, `power` the one place where a"
    " small alpha is special",
    "inducing_variables": "inducing variables that GPflow lacks",
    "covariances": "kernel and inducing variable turned into matrices; the boundary to users' code",
    "tilted": "likelihood, Gaussian and alpha turned into the tilted integral, a file for each"
    " likelihood; their supports",
    "likelihoods": "likelihoods that GPflow lacks",
    "sites": "sites, the posterior q(v) that they make, and the inner loop that brings them to"
    " their fixed point",
    "energies": "approximate log marginal likelihoods: scalars to maximise",
    "predictions": "moments of f at new rows, from q(v) and from training rows beside it",
    "paths": "functions drawn from the posterior, to be evaluated anywhere",
    "models": "parameters and GPflow's interface; models only wire the stages before",
    "selection": "data turned into inducing variables, and rows worth a label",
    "training": "loops, their record and outputs, and rows spread over processes",
    "estimators": "scikit-learn's conventions on the models",
    "metrics": "how good predictions of held-out rows are",
    "plotting": "pictures: numbers and an `ax` in, the `ax` out",
    "compare": "the main job: tables in, a report out, and the command line",
    "monitor": "tasks for `gpflow.monitor`",
    "trieste": "models for Bayesian optimisation by trieste, which it does not import",
}

#: Those of :mod:`gpflow_pep.models`, here as well.
MODELS = ("APEP", "ARPEP", "PEP", "PEPClassification", "PEPRegression", "RPAPEP")

__all__ = ["__version__", *ROOMS, *MODELS]


# Imported when first used: TensorFlow takes seconds to load, and the help of the command line
# needs none of it.
def __getattr__(name: str) -> Any:
    if name in ROOMS:
        return import_module(f"{__name__}.{name}")
    if name in MODELS:
        return getattr(import_module(f"{__name__}.models"), name)
    return absent(__name__)(name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
