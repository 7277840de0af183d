"""What tests of models and examples take from inside the package, imported in one place."""

from gpflow_pep.covariances import nearest, project, whiten
from gpflow_pep.energies import tied as tied_energies
from gpflow_pep.energies.collapsed import RowSums
from gpflow_pep.inference.held_rows import (
    Basis,
    HeldRows,
    Known,
    SharedPosterior,
    given_neighbours,
)
from gpflow_pep.inference.prediction import WhitenedGaussian
from gpflow_pep.models.rows import match_rows
from gpflow_pep.ops.chunks import Reduction
from gpflow_pep.ops.natural import natural_step
from gpflow_pep.ops.tempered import tempered

__all__ = [
    "Basis",
    "HeldRows",
    "Known",
    "Reduction",
    "RowSums",
    "SharedPosterior",
    "WhitenedGaussian",
    "given_neighbours",
    "match_rows",
    "natural_step",
    "nearest",
    "project",
    "tempered",
    "tied_energies",
    "whiten",
]
