"""Rows or centres of clusters as inducing points, and the common parts of all choices
of rows: checks of the input, and distinct rows.
"""

from collections.abc import Iterable
from typing import Any, Literal

import numpy as np
from gpflow.base import AnyNDArray, RegressionData, TensorData
from gpflow.config import default_float
from gpflow.inducing_variables import (
    InducingPoints,
    InducingVariables,
    SharedIndependentInducingVariables,
)
from gpflow.kernels import Kernel, MultioutputKernel
from gpflow.likelihoods import Likelihood
from sklearn.cluster import KMeans, MiniBatchKMeans

from ...engine import checks
from ...engine.factors import traits
from ...inducing_variables import BlurredInducingPoints
from ...models import PEP, PEPRegression


def random_subset(X: TensorData, M: int, *, seed: int) -> InducingPoints:
    """Choose rows of the inputs X [N, D] at random.

    :raises ValueError: If there are fewer than M distinct rows.
    """
    X = as_inputs(X)
    checks.check_number(M, len(X))
    checks.check_seed(seed)
    order = np.random.default_rng(seed).permutation(len(X))
    return InducingPoints(X[distinct_rows(X, order, M)])


def as_inputs(X: TensorData) -> AnyNDArray:
    """Convert inputs to a matrix of GPflow's default float, of finite numbers."""
    return checks.as_matrix("X", X, dtype=default_float())


def as_data(
    data: Any, *, missing_targets: bool = False
) -> tuple[AnyNDArray, AnyNDArray]:
    """Convert inputs and targets to such matrices with the same number of rows. Y may
    have missing targets (NaN).
    """
    if isinstance(data, (tuple, list)) and len(data) == 2:
        float_type = default_float()
        data = tuple(
            checks.as_numbers(name, values, float_type)
            for name, values in zip("XY", data)
        )
    X, Y = checks.check_data(data, missing_targets=missing_targets)
    return X.numpy(), Y.numpy()


def key(row: AnyNDArray) -> bytes:
    """Return bytes that are the same for equal rows; 0 equals -0."""
    return (row + 0.0).tobytes()


def distinct_rows(
    X: AnyNDArray, order: Iterable[int], at_least: int, limit: int = 0
) -> AnyNDArray:
    """Select rows in some order, without copies of rows that were selected before.

    :param limit: The largest number of rows to select, if it is more than ``at_least``.
    """
    first_places: dict[bytes, int] = {}
    for place in order:
        first_places.setdefault(key(X[place]), place)
        if len(first_places) == max(at_least, limit):
            break
    if len(first_places) < at_least:
        raise too_few_distinct(at_least, len(first_places))
    return np.fromiter(first_places.values(), dtype=np.intp, count=len(first_places))


def too_few_distinct(wanted: int, num_distinct: int) -> ValueError:
    """Make the error for too few distinct rows."""
    expected = f"at most {num_distinct}, the number of distinct rows of X"
    return checks.refusal("M", wanted, expected, "Choose a smaller M.")


Spread = Literal["spherical", "diagonal", "full"]

#: With more distances between rows and centres, N M, the default is mini-batches,
#: because passes over all rows would take minutes.
MOST_DISTANCES = 2**26


def kmeans(
    X: TensorData,
    M: int,
    *,
    seed: int,
    covariances: bool | Spread = False,
    minibatches: bool | None = None,
) -> InducingPoints | BlurredInducingPoints:
    """Compute the centres of k-means clusters, with scikit-learn's ``KMeans`` or
    ``MiniBatchKMeans``.

    :param X: Inputs, [N, D].
    :param M: The number of clusters.
    :param seed: Seed of the clusters: the same seed gives the same clusters.
    :param covariances: Whether to compute also the covariance of each cluster about its
        centre, for SASPA (Qi, Abdel-Gawad & Minka 2010). ``True`` and "full" give the
        covariance, "diagonal" its diagonal, and "spherical" the mean of the diagonal.
    :param minibatches: Whether to move the centres with random batches of rows instead
        of passes over all rows, which is far faster and a little worse. None uses
        batches if N M exceeds :data:`MOST_DISTANCES`.
    :return: The M centres; with covariances, blurred points.
    :raises ValueError: If there are fewer than M distinct rows, or if ``covariances``
        is not one of these.
    """
    X = as_inputs(X)
    checks.check_number(M, len(X))
    checks.check_seed(seed)
    spreads = (False, True, "spherical", "diagonal", "full")
    checks.check_choice("covariances", covariances, spreads, "Choose one of them.")
    checks.check_choice(
        "minibatches", minibatches, (None, False, True), "Leave it out."
    )
    num_distinct = len(np.unique(X, axis=0))
    if num_distinct < M:
        raise too_few_distinct(M, num_distinct)
    if minibatches is None:
        minibatches = len(X) * M > MOST_DISTANCES
    if minibatches:
        method = MiniBatchKMeans(M, n_init=1, random_state=seed, batch_size=2**13)
    else:
        method = KMeans(M, n_init=1, random_state=seed)
    # Distances that are computed from products lose digits if the mean is large. KMeans
    # subtracts the mean itself.
    mean = X.mean(axis=0) if minibatches else 0.0
    clusters = method.fit(X - mean)
    centres = clusters.cluster_centers_ + mean
    if not covariances:
        return InducingPoints(centres)
    deviations = (X[clusters.labels_ == m] - centre for m, centre in enumerate(centres))
    # The matrix of a single row is 0.
    full = np.stack([R.T @ R / max(1, len(R)) for R in deviations])
    diagonal = np.diagonal(full, axis1=1, axis2=2)
    if covariances == "spherical":
        return BlurredInducingPoints(centres, diagonal.mean(axis=1))
    return BlurredInducingPoints(
        centres, diagonal if covariances == "diagonal" else full
    )


def saspa(
    data: RegressionData,
    kernel: Kernel,
    likelihood: Likelihood,
    M: int,
    *,
    seed: int,
    alpha: float = 1.0,
    covariances: bool | Spread = "full",
    **options: Any,
) -> PEP | PEPRegression:
    r"""Create a sparse Gaussian process with blurred basis points (Qi, Abdel-Gawad &
    Minka 2010).

    The model uses expectation propagation, that is Power EP at :math:`\alpha = 1`. Its
    inducing points are the centres of k-means clusters of the inputs, each blurred by
    the covariance of its cluster. Hyperparameters are not changed; train the model like
    any other.

    :param data: X [N, D] and Y [N, P].
    :param kernel: A kernel for which blurred points are registered, see
        :class:`~gpflow_pep.inducing_variables.BlurredInducingPoints`. Latent functions
        with separate kernels share the points.
    :param likelihood: Any likelihood. With a Gaussian likelihood and a kernel of one
        output the model is :class:`~gpflow_pep.models.PEPRegression`, in closed form;
        otherwise :class:`~gpflow_pep.models.PEP`.
    :param M: The number of basis points.
    :param seed: Seed of k-means: the same seed gives the same points.
    :param alpha: The power; the paper uses 1.
    :param covariances: The covariances of the clusters: "full", "diagonal" or
        "spherical". ``False`` gives points without blur, that is FITC, with EP if the
        likelihood is not Gaussian.
    :param options: Other arguments of the model.
    :raises ValueError: If the data, the kernel, M or an option does not suit the model.
    """
    X, _ = checks.check_data(data)
    points: InducingVariables = kmeans(X, M, seed=seed, covariances=covariances)
    if isinstance(kernel, MultioutputKernel):
        points = SharedIndependentInducingVariables(points)
    elif traits(likelihood).is_gaussian:
        return PEPRegression(
            data, kernel, points, alpha=alpha, likelihood=likelihood, **options
        )
    return PEP(data, kernel, likelihood, points, alpha=alpha, **options)
