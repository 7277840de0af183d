"""Basis points of a paper in a model, with all its choices, in one call."""

from typing import Any

from gpflow.base import RegressionData
from gpflow.inducing_variables import InducingVariables, SharedIndependentInducingVariables
from gpflow.kernels import Kernel, MultioutputKernel
from gpflow.likelihoods import Likelihood

from ..checks import check_data
from ..models import PEP, PEPRegression
from ..tilted import traits
from .clusters import Spread, kmeans


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
    r"""
    Create a sparse Gaussian process with blurred basis points (Qi, Abdel-Gawad & Minka 2010).

    Expectation propagation, that is Power EP at :math:`\alpha = 1`, with the centres of k-means
    clusters of the inputs as inducing points, each blurred by the covariance of its cluster.
    Hyperparameters are as they are given; train the model as any other.

    :param data: X [N, D] and Y [N, P].
    :param kernel: One that blurred points know, see
        :class:`~gpflow_pep.inducing_variables.BlurredInducingPoints`. Latent functions that have
        kernels of their own share the points.
    :param likelihood: Any. With a Gaussian one and a kernel of one output the model is
        :class:`~gpflow_pep.models.PEPRegression`, in closed form; otherwise
        :class:`~gpflow_pep.models.PEP`.
    :param M: How many basis points.
    :param seed: Of k-means; the same seed gives the same points.
    :param alpha: The power; the paper's is 1.
    :param covariances: "full", "diagonal" or "spherical" ones of the clusters, or ``False`` for
        points without blur: FITC, by EP where the likelihood is not Gaussian.
    :param options: Other arguments of the model.
    :raises ValueError: If the data, the kernel, M or an option is refused, as by the model.
    """
    X, _ = check_data(data)
    points: InducingVariables = kmeans(X, M, seed=seed, covariances=covariances)
    if isinstance(kernel, MultioutputKernel):
        points = SharedIndependentInducingVariables(points)
    elif traits(likelihood).is_gaussian:
        return PEPRegression(data, kernel, points, alpha=alpha, likelihood=likelihood, **options)
    return PEP(data, kernel, likelihood, points, alpha=alpha, **options)
