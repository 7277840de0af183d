"""What tests of models and examples take from inside the package, imported in one place."""

from gpflow_pep.covariances import project
from gpflow_pep.energies import tied as tied_energies
from gpflow_pep.inference.prediction import WhitenedGaussian
from gpflow_pep.models.rows import match_rows
from gpflow_pep.ops.natural import natural_step
from gpflow_pep.ops.tempered import tempered

__all__ = ["WhitenedGaussian", "match_rows", "natural_step", "project", "tempered", "tied_energies"]
