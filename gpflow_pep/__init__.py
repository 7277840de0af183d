"""Sparse Gaussian processes by Power Expectation Propagation, for GPflow.

Where you write ``gpflow.models.SGPR``, write :class:`gpflow_pep.models.PEPRegression` and choose
the power ``alpha`` between 0 (variational inference) and 1 (EP, FITC).
"""

__version__ = "0.1.0"

from . import covariances, energies, metrics, models, ops, posterior

__all__ = ["__version__", "covariances", "energies", "metrics", "models", "ops", "posterior"]
