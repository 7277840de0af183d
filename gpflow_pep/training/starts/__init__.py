"""Initial inducing variables: rows of the data, or centres of clusters of rows. Also
the choice of the row to label next, and initial kernels of coregionalised outputs.

The functions have the data and the number M of inducing variables as arguments, give
the same result for the same seed, and return an ``inducing_variable`` for a model. The
exceptions are named at the end. M is between 1 and the number of distinct rows, because
no row is chosen twice. Rows come in the order of their choice: the first m of M rows
are the result for m (except for :func:`kmeans`). :func:`saspa` makes a whole model with
clusters as its basis points. :func:`predictive_entropy` measures how hard rows without
targets are to predict. :func:`coregionalization` makes kernels of outputs that are
mixtures.
"""

from .acquisition import predictive_entropy
from .greedy import greedy_variance, greedy_variational
from .mixing import coregionalization
from .rows import kmeans, random_subset, saspa

__all__ = [
    "coregionalization",
    "greedy_variance",
    "greedy_variational",
    "kmeans",
    "predictive_entropy",
    "random_subset",
    "saspa",
]
