"""What tests of models and examples take from inside the package, imported in one place."""

from gpflow_pep.covariances import nearest, project, whiten
from gpflow_pep.energies import tied as tied_energies
from gpflow_pep.energies.collapsed import RowSums
from gpflow_pep.models.rows import match_rows
from gpflow_pep.ops.chunks import Reduction
from gpflow_pep.ops.natural import natural_step
from gpflow_pep.ops.tempered import tempered
from gpflow_pep.predictions.context_rows import (
    Context,
    ContextRows,
    InducingBasis,
    SharedPosterior,
    predict_from_neighbours,
)
from gpflow_pep.sites.whitened import WhitenedGaussian

__all__ = [
    "Context",
    "ContextRows",
    "InducingBasis",
    "Reduction",
    "RowSums",
    "SharedPosterior",
    "WhitenedGaussian",
    "match_rows",
    "natural_step",
    "nearest",
    "predict_from_neighbours",
    "project",
    "tempered",
    "tied_energies",
    "whiten",
]
