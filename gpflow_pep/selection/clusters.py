"""Centres of clusters, and how far the clusters spread."""

from typing import Literal

import numpy as np
from gpflow.base import AnyNDArray, TensorData
from gpflow.inducing_variables import InducingPoints
from sklearn.cluster import KMeans

from ..inducing_variables import BlurredInducingPoints
from .rows import as_inputs, check_number, too_few_distinct

Covariances = Literal["spherical", "diagonal", "full"]


def kmeans(
    X: TensorData, M: int, *, seed: int, covariances: bool | Covariances = False
) -> InducingPoints | BlurredInducingPoints:
    """
    Take the centres of k-means clusters (scikit-learn's ``KMeans``).

    :param X: Inputs, [N, D].
    :param M: How many clusters.
    :param seed: The same seed gives the same clusters.
    :param covariances: ``True`` or "full": also the covariance of each cluster, for SASPA (Qi,
        Abdel-Gawad & Minka 2010); "diagonal": its diagonal; "spherical": the mean of that.
    :return: M centres; with covariances, blurred points.
    :raises ValueError: If fewer than M rows differ.
    """
    X = as_inputs(X)
    check_number(M, len(X))
    if covariances not in (False, True, "spherical", "diagonal", "full"):
        raise ValueError(
            f"covariances: got {covariances!r}, expected False, True, 'spherical', 'diagonal' or"
            " 'full'. Choose one of them."
        )
    num_distinct = len(np.unique(X, axis=0))
    if num_distinct < M:
        raise too_few_distinct(M, num_distinct)
    clusters = KMeans(M, n_init=1, random_state=seed).fit(X)
    centres = clusters.cluster_centers_
    if not covariances:
        return InducingPoints(centres)
    full = _covariances(X, centres, clusters.labels_)
    diagonal = np.diagonal(full, axis1=1, axis2=2)
    if covariances == "spherical":
        return BlurredInducingPoints(centres, diagonal.mean(axis=1))
    return BlurredInducingPoints(centres, diagonal if covariances == "diagonal" else full)


def _covariances(X: AnyNDArray, centres: AnyNDArray, labels: AnyNDArray) -> AnyNDArray:
    """[M, D, D], the covariance of each cluster's rows; 0 for a single row."""
    order = np.argsort(labels, kind="stable")
    ends = np.cumsum(np.bincount(labels, minlength=len(centres)))
    members = np.split(order, ends[:-1])
    deviations = (X[rows] - centre for rows, centre in zip(members, centres))
    return np.stack([R.T @ R / max(1, len(R)) for R in deviations])
