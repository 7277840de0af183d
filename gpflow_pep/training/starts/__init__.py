"""Choosing inducing variables: rows of the data, or clusters of them. Also which row to
label next, and where to start coregionalised outputs.

Every function but those named here takes the data and the number M of inducing
variables, gives the same for the same seed, and returns what a model takes for its
``inducing_variable``. M is between 1 and the number of rows that differ: none is chosen
twice. Rows come in the order of their choice: the first m of M are the rows chosen for
m (not for :func:`kmeans`). :func:`saspa` makes a whole model with clusters as its basis
points. :func:`predictive_entropy` takes a model and rows without targets, and measures
how hard they are to predict. :func:`coregionalization` makes kernels of outputs that
are mixtures.
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
