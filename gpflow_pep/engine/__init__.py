"""The computations of the package. Only the package imports from here, not users.

Its rooms, lowest first. Each imports only from the rooms before it.
"""

from .refusals import imported_when_used

ROOMS = {
    "refusals": (
        "the one form of all refusals, got, expected and what to do; checks of numbers"
        " and arrays; no TensorFlow"
    ),
    "files": "files and folders that are written whole or not at all; no TensorFlow",
    "left_out_rows": (
        "rows that are left out of training: their copies, and weights of models that"
        " predict them; no TensorFlow"
    ),
    "records": "what training returns; no TensorFlow",
    "checks": "checks of the arguments of models, and of values inside graphs",
    "numerics": (
        "tensors only; `linalg` is the one place that adds jitter, `power` the one"
        " place where a small alpha is special"
    ),
    "prior": (
        "matrices of kernels and inducing variables; the only place that calls users'"
        " kernels"
    ),
    "factors": (
        "the tilted integral of a likelihood, a file for each likelihood; supports"
    ),
    "sites": (
        "sites, their posterior q(v), and the inner loop that computes their fixed"
        " point"
    ),
    "energies": "approximate log marginal likelihoods: scalars to maximise",
    "predictions": (
        "moments of f at new rows, from q(v) and from training rows beside it"
    ),
    "paths": "functions drawn from the posterior, to be evaluated anywhere",
}


# Imported when first used, because some rooms do not need TensorFlow and are used
# without it.
__getattr__ = imported_when_used(__name__, {room: f".{room}" for room in ROOMS})
