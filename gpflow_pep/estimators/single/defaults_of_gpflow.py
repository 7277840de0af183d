"""GPflow's default float and jitter, without an import of GPflow if nothing can have
changed them.
"""

import os
import sys
from typing import Any

import numpy as np

from .when_used import gpflow


def _may_differ() -> bool:
    """Whether GPflow's defaults may have other values than without a user's choice:
    GPflow is there, or will read them from the environment.
    """
    return "gpflow" in sys.modules or not {"GPFLOW_FLOAT", "GPFLOW_JITTER"}.isdisjoint(
        os.environ
    )


def default_float() -> type[np.floating[Any]]:
    """Return ``gpflow.default_float()``."""
    return gpflow.default_float() if _may_differ() else np.float64


def default_jitter() -> float:
    """Return ``gpflow.default_jitter()``."""
    return float(gpflow.default_jitter()) if _may_differ() else 1e-6
